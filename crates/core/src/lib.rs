//! The desk: what is accepted, who may have it, what was said about it, and the ports to the world.
//!
//! No HTTP, no SQL, no vendor code, and neither clock nor randomness but through [`env::Env`].

pub mod agents;
pub mod alarms;
pub mod desk;
pub mod env;
pub mod gate;
pub mod handed;
pub mod intake;
pub mod meters;
pub mod port;
pub mod registry;
pub mod seal;
pub mod sight;
pub mod skills;
pub mod split;
pub mod switchboard;
pub mod tail;
pub mod wake;
pub mod window;

pub use desk::{Desk, Rules};
pub use env::Env;
pub use intake::Intake;
