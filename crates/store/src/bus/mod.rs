//! The bus between servers. `local` is for several servers in one process, `notify` uses Postgres,
//! `redis` Redis or Valkey.

mod local;
mod notify;
mod queues;
mod redis;

pub use local::LocalHub;
pub use notify::notify_bus;
pub use queues::NetworkBus;
pub use redis::redis_bus;
