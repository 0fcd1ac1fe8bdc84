//! Frames that were read but must wait: for the answer to a hello, or for space in the outbox. Holds at most one
//! message of the peer and a partial frame, because nothing is read while it is not empty.

/// Larger buffers are freed when they are empty.
const KEPT_BYTES: usize = 4096;

#[derive(Default)]
pub(super) struct Later {
    lines: String,
    at: usize,
}

impl Later {
    pub(super) fn push(&mut self, line: &str) {
        self.lines.push_str(line);
        self.lines.push('\n');
    }

    pub(super) fn next(&mut self) -> Option<String> {
        let rest = &self.lines[self.at..];
        let Some(end) = rest.find('\n') else {
            self.at = 0;
            self.lines.clear();
            self.lines.shrink_to(KEPT_BYTES);
            return None;
        };
        let line = rest[..end].to_owned();
        self.at += end + 1;
        Some(line)
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
            later.push(line);
        }
        for line in ["a", &long, "b"] {
            assert!(!later.is_empty());
            assert_eq!(later.next().as_deref(), Some(line));
        }
        assert!(later.is_empty() && later.next().is_none());
        assert!(later.lines.capacity() <= KEPT_BYTES);
    }
}
