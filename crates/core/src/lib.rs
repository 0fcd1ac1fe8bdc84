//! Use cases and rules of the server, and the ports to stores, platforms, agents and other servers.
//!
//! One module per plane, whose structs have only the ports that they need. From low to high: `port`, `upkeep`, `vault`,
//! `directory`, `media`, `gate`, `delivery`, `inbound`, `outbound`, `cron`, `agents`, `cluster`. A plane calls those below
//! it and never those above. [`Desk`] puts them together. All other modules are shared: every plane may import them.
//!
//! No HTTP, no SQL, no vendor code, and neither clock nor randomness but through [`env::Env`].

pub mod agents;
mod base;
pub mod cluster;
pub mod cron;
pub mod declarations;
pub mod delivery;
mod desk;
pub mod directory;
pub mod env;
mod error;
pub mod gate;
mod hash;
mod ids;
pub mod inbound;
pub mod intake;
pub mod lease;
pub mod media;
pub mod meters;
pub mod outbound;
pub mod port;
mod prompts;
mod rules;
pub mod split;
pub mod tail;
pub mod upkeep;
pub mod vault;

pub use desk::{Desk, Parts};
pub use env::Env;
pub use error::DeskError;
pub use hash::{sha256_hex, short_hash};
pub use ids::{buffer_id, mail_id, parse_buffer_id};
pub use intake::Intake;
pub use port::stores::Stores;
pub use rules::{RetentionDays, Rules, WakeRules};
