//! Time limits of look-ups, and what an attempt does without them.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::client::Fault;

/// For all look-ups of one room together, while other rooms wait.
pub(super) const FIRST_LIMIT: Duration = Duration::from_secs(5);
/// The same when no room waits.
const LATER_LIMIT: Duration = Duration::from_mins(5);

/// One attempt to understand some events of a room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadline {
    limit: Duration,
    until: Instant,
    /// On the last attempt, look-ups that fail or take too long are left out. On earlier ones the attempt fails, and the
    /// same events are handled again.
    is_last: bool,
}

impl Deadline {
    fn of(limit: Duration, is_last: bool) -> Self {
        Self { limit, until: Instant::now() + limit, is_last }
    }

    /// For a poll or a transaction: short, because other rooms wait; the room can be read again later.
    pub(super) fn first() -> Self {
        Self::of(FIRST_LIMIT, false)
    }

    /// For a task that can be repeated.
    pub(super) fn later() -> Self {
        Self::of(LATER_LIMIT, false)
    }

    /// For the last attempt of a task.
    pub(super) fn last() -> Self {
        Self::of(LATER_LIMIT, true)
    }

    /// Like `last`, but short, because other rooms wait.
    pub(super) fn last_now() -> Self {
        Self::of(FIRST_LIMIT, true)
    }

    /// `None`: the look-up failed, and this last attempt continues without it.
    pub(super) async fn ask<T>(&self, asked: impl Future<Output = Result<T, Fault>>) -> Result<Option<T>, Fault> {
        match timeout_at(self.until, asked).await {
            Ok(Ok(found)) => Ok(Some(found)),
            // If the homeserver cannot be reached at all, nothing is known of any room.
            Ok(Err(fault)) if fault.is_token() || fault.is_elsewhere() => Err(fault),
            Ok(Err(_)) if self.is_last => Ok(None),
            Ok(Err(fault)) => Err(fault),
            Err(_) if self.is_last => Ok(None),
            Err(_) => Err(self.too_slow()),
        }
    }

    /// The same for what this attempt cannot do without.
    pub(super) async fn must<T>(&self, asked: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        timeout_at(self.until, asked).await.unwrap_or_else(|_| Err(self.too_slow()))
    }

    /// Whether the same events do not come again.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    pub(super) fn too_slow(&self) -> Fault {
        let why = format!("it took longer than {} s", self.limit.as_secs());
        Fault::Unreachable { why, may_have_happened: true }
    }
}
