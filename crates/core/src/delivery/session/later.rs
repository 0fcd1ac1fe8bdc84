//! Frames that were read but must wait: for the answer to a hello, or for space in the outbox. Holds at most one
//! message of the peer and a partial frame, because nothing is read while it is not empty.

/// Larger buffers are freed when they are empty.
const KEPT_BYTES: usize = 4096;

#[derive(Default)]
pub(super) struct Later {
    lines: String,
    at: usize,
    /// Arrival time of the last line.
    came_ms: u64,
}

impl Later {
    pub(super) fn push(&mut self, line: &str, now_ms: u64) {
        self.came_ms = now_ms;
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    /// A line, and when it came.
    pub(super) fn next(&mut self) -> Option<(String, u64)> {
        let rest = &self.lines[self.at..];
        let Some(end) = rest.find('\n') else {
            self.at = 0;
            self.lines.clear();
            self.lines.shrink_to(KEPT_BYTES);
            return None;
        };
        let line = rest[..end].to_owned();
        self.at += end + 1;
        Some((line, self.came_ms))
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_back_in_order_and_the_buffer_is_freed() {
        let mut later = Later::default();
        assert!(later.is_empty() && later.next().is_none());
        let long = "x".repeat(100_000);
        for line in ["a", &long, "b"] {
            later.push(line, 7);
        }
        for line in ["a", &*long, "b"] {
            assert!(!later.is_empty());
            assert_eq!(later.next(), Some((line.to_owned(), 7)));
        }
        assert!(later.is_empty() && later.next().is_none());
        assert!(later.lines.capacity() <= KEPT_BYTES);
    }
}
