//! Lines to be written to a socket: several share one message, none is split.
//!
//! It holds up to [`OUTBOX_MAX_BYTES`] plus one frame. While it is full, the session reads nothing from the peer and
//! takes no rows: a peer that does not read is not read from.

use std::collections::VecDeque;

/// Clients refuse messages above 1 MiB; small batches also keep latency low.
const MESSAGE_BYTES: usize = 128 * 1024;
/// Above this size the peer is not read from.
pub(super) const OUTBOX_MAX_BYTES: usize = 1 << 20;

pub(super) struct Outbox {
    messages: VecDeque<String>,
    /// Bytes in all messages except the last one, which may still grow.
    earlier_bytes: usize,
}

impl Default for Outbox {
    /// With place for one message: an idle session has written one and keeps the place.
    fn default() -> Self {
        Self { messages: VecDeque::with_capacity(1), earlier_bytes: 0 }
    }
}

impl Outbox {
    /// The buffer for the next `bytes`: the last message if they fit, otherwise a new one.
    pub(super) fn room(&mut self, bytes: usize) -> &mut String {
        let fits = self.messages.back().is_some_and(|last| last.len() + bytes <= MESSAGE_BYTES);
        if !fits {
            self.earlier_bytes += self.messages.back().map_or(0, String::len);
            self.messages.push_back(String::new());
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    pub(super) fn push(&mut self, line: &str) {
        self.room(line.len()).push_str(line);
    }

    pub(super) fn pop(&mut self) -> Option<String> {
        let message = self.messages.pop_front()?;
        if !self.messages.is_empty() {
            self.earlier_bytes -= message.len();
        }
        Some(message)
    }

    pub(super) fn bytes(&self) -> usize {
        self.earlier_bytes + self.messages.back().map_or(0, String::len)
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes() >= OUTBOX_MAX_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_share_a_message_until_it_is_full() {
        let mut outbox = Outbox::default();
        outbox.push("a\n");
        outbox.push("b\n");
        outbox.push(&"x".repeat(MESSAGE_BYTES + 1));
        outbox.push("c\n");
        assert_eq!(outbox.pop().as_deref(), Some("a\nb\n"));
        assert_eq!(outbox.pop().map(|m| m.len()), Some(MESSAGE_BYTES + 1));
        assert_eq!(outbox.pop().as_deref(), Some("c\n"));
        assert!(outbox.is_empty() && outbox.pop().is_none());
    }

    #[test]
    fn it_is_full_by_bytes_until_enough_was_taken() {
        let mut outbox = Outbox::default();
        let line = "x".repeat(100_000);
        let mut pushed = 0;
        while !outbox.is_full() {
            outbox.push(&line);
            pushed += line.len();
            assert_eq!(outbox.bytes(), pushed);
        }
        assert!(pushed >= OUTBOX_MAX_BYTES && pushed < OUTBOX_MAX_BYTES + line.len());
        while let Some(message) = outbox.pop() {
            pushed -= message.len();
            assert_eq!(outbox.bytes(), pushed);
        }
        assert!(!outbox.is_full() && outbox.bytes() == 0);
    }
}
