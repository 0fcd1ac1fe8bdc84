//! Frames that were read and must wait: for a hello before them, or for room in the outbox. At most one
//! message of the peer and the rest of a frame: while something is in here, nothing more is read.

/// A buffer over this is given back when it is empty.
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
    fn lines_come_back_in_order_and_the_buffer_is_given_back() {
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
