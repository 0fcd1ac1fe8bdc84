//! Frames that a shard has read and that are not yet stored, bounded in count and bytes. If there are more, the socket
//! is dropped, and Discord sends the rest again after a resume.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, mpsc};

pub(super) const QUEUE_MAX: usize = 4_096;
const QUEUE_MAX_BYTES: usize = 16 << 20;
/// A larger frame is taken if it is alone, except for greetings and heartbeats.
const ALONE_BYTES: usize = 64 << 10;
const FRAME_MAX_BYTES: usize = 64 << 20;

/// What a shard passes to its store.
pub(super) enum Item {
    Frame(String),
    /// Discord does not have the session any more.
    SessionLost,
}

impl Item {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Frame(text) => text.len(),
            Self::SessionLost => 0,
        }
    }
}

/// Whether a frame carries an event; others are heartbeats and the like. Texts of people have their quotes escaped.
pub(super) fn is_event(frame: &str) -> bool {
    frame.contains("\"op\":0")
}

/// Why a frame was not taken, with its size.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Full {
    ForNow(usize),
    /// It will never be taken.
    TooLarge(usize),
}

#[derive(Default)]
pub(super) struct Backlog {
    bytes: AtomicUsize,
    changed: Notify,
}

impl Backlog {
    /// Does not wait.
    pub(super) fn put(&self, push: &mpsc::Sender<Item>, frame: String) -> Result<(), Full> {
        let size = frame.len();
        if size > FRAME_MAX_BYTES {
            return Err(Full::TooLarge(size));
        }
        // Only this adds to it.
        let before = self.bytes.load(Ordering::Relaxed);
        if before > room_beside(size).max(ALONE_BYTES) {
            return Err(Full::ForNow(size));
        }
        self.bytes.fetch_add(size, Ordering::Relaxed);
        push.try_send(Item::Frame(frame)).map_err(|_| {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            Full::ForNow(size)
        })
    }

    pub(super) fn stored(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Waits until the half of it is stored, or as much as a frame of this size needs.
    pub(super) async fn has_room_for(&self, push: &mpsc::Sender<Item>, size: usize) {
        let most = room_beside(size).min(QUEUE_MAX_BYTES / 2);
        while self.bytes.load(Ordering::Relaxed) > most || push.capacity() < QUEUE_MAX / 2 {
            self.changed.notified().await;
        }
    }
}

/// Bytes that may be there when a frame of this size comes.
fn room_beside(size: usize) -> usize {
    QUEUE_MAX_BYTES.saturating_sub(size)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn a_full_queue_has_room_again_when_half_of_it_is_stored() {
        let backlog = Backlog::default();
        let (push, mut items) = mpsc::channel(QUEUE_MAX);
        let mebibyte = || "x".repeat(1 << 20);
        for _ in 0..16 {
            assert_eq!(backlog.put(&push, mebibyte()), Ok(()));
        }
        assert_eq!(backlog.put(&push, mebibyte()), Err(Full::ForNow(1 << 20)));
        for left in (0..16).rev() {
            let has_room = backlog.has_room_for(&push, 1 << 20).now_or_never().is_some();
            assert_eq!(has_room, left < 8, "{left} are left");
            backlog.stored(items.recv().await.unwrap().bytes());
        }
        for _ in 0..QUEUE_MAX {
            assert_eq!(backlog.put(&push, String::new()), Ok(()));
        }
        assert_eq!(backlog.put(&push, "{}".into()), Err(Full::ForNow(2)), "too many");
        assert!(backlog.has_room_for(&push, 2).now_or_never().is_none());
        assert_eq!(backlog.bytes.load(Ordering::Relaxed), 0, "what was not taken does not count");
    }

    #[tokio::test]
    async fn a_frame_larger_than_the_queue_is_taken_alone() {
        let backlog = Backlog::default();
        let (push, mut items) = mpsc::channel(QUEUE_MAX);
        let large = || "x".repeat(QUEUE_MAX_BYTES + 1);
        assert_eq!(backlog.put(&push, "a greeting".into()), Ok(()));
        assert_eq!(backlog.put(&push, large()), Ok(()));
        assert_eq!(backlog.put(&push, large()), Err(Full::ForNow(QUEUE_MAX_BYTES + 1)));
        assert!(backlog.has_room_for(&push, QUEUE_MAX_BYTES + 1).now_or_never().is_none());
        for _ in 0..2 {
            backlog.stored(items.recv().await.unwrap().bytes());
        }
        assert!(backlog.has_room_for(&push, QUEUE_MAX_BYTES + 1).now_or_never().is_some());
        let size = FRAME_MAX_BYTES + 1;
        assert_eq!(backlog.put(&push, "x".repeat(size)), Err(Full::TooLarge(size)), "alone too");
    }
}
