//! Lines on their way into a socket: as many as fit share one message, none is split.

use std::collections::VecDeque;

/// The client refuses messages over 1 MiB; small batches also keep latency low.
const MESSAGE_BYTES: usize = 128 * 1024;

#[derive(Default)]
pub(super) struct Outbox {
    messages: VecDeque<String>,
}

impl Outbox {
    /// Where the next `bytes` go: the last message if they fit, else a new one.
    pub(super) fn room(&mut self, bytes: usize) -> &mut String {
        let fits = self.messages.back().is_some_and(|last| last.len() + bytes <= MESSAGE_BYTES);
        if !fits {
            self.messages.push_back(String::new());
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    pub(super) fn push(&mut self, line: &str) {
        self.room(line.len()).push_str(line);
    }

    pub(super) fn pop(&mut self) -> Option<String> {
        self.messages.pop_front()
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
}
