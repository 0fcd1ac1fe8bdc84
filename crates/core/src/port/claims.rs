//! What servers on one store share for a short while: who does something, how often something was tried. A store that one
//! server has alone keeps it in memory.

use frontdesk_wire::{DeskNo, InstanceNo};

use super::stored::Stored;

/// Results that are kept for the next socket of an instance, in count and bytes, and for how long: a gateway does not wait
/// longer for them.
pub const PARKED_MAX: usize = 1_024;
pub const PARKED_MAX_BYTES: usize = 1 << 20;
pub const PARKED_MS: u64 = 30_000;

/// A hash of what is meant.
pub type Mark = [u8; 16];

pub trait Claims: Send + Sync {
    /// This server does what is meant, and no other one until `release`, for `limit_ms` at most, or until this one is gone.
    /// `live` are the servers that are known to be live; the list may be some seconds old, so a store that several servers
    /// share looks at their leases as well.
    fn claim(&self, mark: Mark, me: DeskNo, live: Vec<DeskNo>, limit_ms: u64, now_ms: u64) -> Stored<'_, bool>;
    fn release(&self, marks: Vec<Mark>, me: DeskNo) -> Stored<'_, ()>;
    /// How often this was tried in its window.
    fn tries(&self, mark: Mark, now_ms: u64) -> Stored<'_, u32>;
    /// Counts one more; the first one begins a window.
    fn note_try(&self, mark: Mark, window_ms: u64, now_ms: u64) -> Stored<'_, ()>;
    /// Keeps a result for the next socket of an instance. False: it has too many.
    fn park(&self, instance: InstanceNo, line: String, now_ms: u64) -> Stored<'_, bool>;
    /// The results that are kept for these instances, in the order in which they came. Each is given once.
    fn take_parked(&self, instances: Vec<InstanceNo>, now_ms: u64) -> Stored<'_, Vec<(InstanceNo, String)>>;
}
