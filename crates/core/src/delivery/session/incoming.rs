//! Input that a session holds: a frame that is still arriving, and frames that are not processed yet.

use frontdesk_wire::Close;

use super::Session;
use crate::delivery::memory::{Share, TenantMemory};
use crate::meters::Why;

/// A frame of the peer that is larger than this must be complete in [`ARRIVING_MS`], and needs memory of the tenant.
pub const ARRIVING_FREE_BYTES: usize = 64 << 10;
const ARRIVING_MS: u64 = 60_000;

pub(super) struct Incoming {
    share: Share,
    /// Bytes of the frame that is arriving.
    arriving: usize,
    /// When the frame exceeded [`ARRIVING_FREE_BYTES`].
    since_ms: Option<u64>,
}

impl Incoming {
    pub(super) fn new(memory: &TenantMemory) -> Self {
        Self { share: Share::new(&memory.incoming), arriving: 0, since_ms: None }
    }

    /// Counts the bytes of complete frames that wait to be processed.
    pub(super) fn book(&mut self, waiting_bytes: usize) {
        self.share.set(self.arriving + waiting_bytes);
    }

    /// A frame is complete; the time limit starts again with the next one.
    pub(super) fn completed(&mut self) {
        self.since_ms = None;
    }

    /// `is_paused`: nothing is read from the peer, so the time limit starts again.
    pub(super) fn is_overdue(&mut self, now_ms: u64, is_paused: bool) -> bool {
        if is_paused {
            self.since_ms = self.since_ms.map(|_| now_ms);
        }
        self.since_ms.is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= ARRIVING_MS)
    }

    /// False: the other sockets of the tenant have used up its memory.
    fn arrive(&mut self, bytes: usize, now_ms: u64) -> bool {
        self.since_ms = (bytes > ARRIVING_FREE_BYTES).then(|| self.since_ms.unwrap_or(now_ms));
        self.arriving = bytes;
        self.share.set(bytes);
        match self.since_ms {
            Some(_) => !self.share.is_full_without_own(),
            None => bytes == 0 || !self.share.is_over(),
        }
    }
}

impl Session {
    /// Notes how many bytes of an incomplete WebSocket message have arrived; 0: it is complete. The session gets a message
    /// only as a whole. `lines` may hold the beginning of a frame from earlier messages.
    pub fn arriving(&mut self, bytes: usize, now_ms: u64) {
        if bytes > 0 {
            self.note_received(now_ms, false);
        }
        if self.incoming.arrive(bytes + self.lines.bytes(), now_ms) {
            return;
        }
        let count = self.delivery.meters.frames_bad.get_or_create(&Why { why: "no_memory" }).inc() + 1;
        if count.is_power_of_two() {
            let (gateway, setting) = (self.caller.gateway.as_str(), "relay.flight_per_tenant_kib");
            tracing::warn!(
                gateway,
                setting,
                count,
                "relay socket closed: unread input of its tenant reached the limit"
            );
        }
        self.close(Close::TryLater);
    }
}
