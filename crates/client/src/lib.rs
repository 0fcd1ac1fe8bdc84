//! The agent's half: a transport that dials the desk, takes what arrives, acks it, and sends.
//!
//! It needs nothing of the desk but its URL, an id and a secret. [`socket::SocketTransport`] is the
//! real one, [`memory::MemoryTransport`] the one for tests of agents.

pub mod agents;
pub mod cron;
pub mod memory;
pub mod socket;
pub mod transport;
pub mod wake;

pub use memory::MemoryTransport;
pub use socket::{Dial, SocketTransport};
pub use transport::{Handler, Inbound, RelayTransport, TransportError};
