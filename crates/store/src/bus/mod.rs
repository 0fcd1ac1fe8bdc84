//! The bus between servers. `local` is for several servers in one process, `notify` uses Postgres.

mod local;
mod notify;
mod queues;

pub use local::LocalHub;
pub use notify::notify_bus;
pub use queues::NetworkBus;
