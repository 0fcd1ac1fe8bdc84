//! The agent's side: a transport that connects to the server, receives and acks events, and sends actions.
//!
//! It needs only a URL, an id and a secret. [`socket::SocketTransport`] is the real one, [`memory::MemoryTransport`]
//! is for tests of agents.

pub mod agent;
pub mod agents;
pub mod cron;
pub mod files;
pub mod memory;
pub mod socket;
pub mod transport;
pub mod wake;

pub use agent::{Agent, Serve, Turn};
pub use memory::MemoryTransport;
pub use socket::{Dial, SocketTransport};
pub use transport::{Handler, Inbound, RelayTransport, TransportError};
