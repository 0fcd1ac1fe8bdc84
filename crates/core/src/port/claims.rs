//! State that servers on one store share for a short while: which one does a task, and how often something was tried. A
//! store of one process keeps it in memory.

use frontdesk_wire::{DeskNo, EventId, InstanceNo};

use super::stored::Stored;

/// Bounds of the results that are kept for the next socket of an instance, in count, bytes and time: a gateway does not
/// wait longer for them.
pub const PARKED_MAX: usize = 1_024;
pub const PARKED_MAX_BYTES: usize = 1 << 20;
pub const PARKED_MS: u64 = 30_000;

/// A hash that names a task.
pub type Mark = [u8; 16];

/// Messages that may wait for the connectors of one server.
pub const HANDOFFS_MAX: usize = 10_000;

/// The server that adds a handoff stores the receipts of its own connectors first. If it fails before that, the handoff
/// begins after this time.
pub const HANDOFF_HELD_MS: u64 = 60_000;

/// A message that a server hands to its connectors on behalf of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handoff {
    pub id: u64,
    pub event: EventId,
}

pub trait Claims: Send + Sync {
    /// Claims a task for this server until `release`, until `limit_ms` has passed, or until the server is gone. A server
    /// may claim its own task again. `live` are the servers known to be live; the list may be some seconds old, so a store
    /// that several servers share checks their leases as well.
    fn claim(&self, mark: Mark, me: DeskNo, live: Vec<DeskNo>, limit_ms: u64, now_ms: u64) -> Stored<'_, bool>;
    fn release(&self, marks: Vec<Mark>, me: DeskNo) -> Stored<'_, ()>;
    /// How often the task was tried in its window.
    fn tries(&self, mark: Mark, now_ms: u64) -> Stored<'_, u32>;
    /// Counts one more try; the first one starts a window.
    fn note_try(&self, mark: Mark, window_ms: u64, now_ms: u64) -> Stored<'_, ()>;
    /// Queues a message for the connectors of the server with this name; adding it again has no effect. The handoff starts
    /// after `release_handoffs`, or after [`HANDOFF_HELD_MS`]. False: too many are queued.
    fn add_handoff(&self, server: String, event: EventId, now_ms: u64) -> Stored<'_, bool>;
    fn release_handoffs(&self, event: EventId) -> Stored<'_, ()>;
    /// Handoffs that may start, in the order in which they were added.
    fn handoffs(&self, server: String, limit: usize, now_ms: u64) -> Stored<'_, Vec<Handoff>>;
    fn drop_handoff(&self, id: u64) -> Stored<'_, ()>;
    /// Keeps a result for the next socket of an instance. False: the limit of the instance is reached.
    fn park(&self, instance: InstanceNo, line: String, now_ms: u64) -> Stored<'_, bool>;
    /// Removes and returns the results kept for these instances, in order.
    fn take_parked(&self, instances: Vec<InstanceNo>, now_ms: u64) -> Stored<'_, Vec<(InstanceNo, String)>>;
}
