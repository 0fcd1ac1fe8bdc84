//! Splits message texts into lines, with a bounded buffer. Frames are lines: a message may contain several frames, and
//! a frame may span several messages.

/// A line exceeded the limit before it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

pub struct Lines {
    partial: String,
    max_bytes: usize,
}

impl Lines {
    pub fn new(max_bytes: usize) -> Self {
        Self { partial: String::new(), max_bytes }
    }

    /// Bytes of the line that is not complete yet.
    pub fn bytes(&self) -> usize {
        self.partial.len()
    }

    /// Calls `each` for every complete, non-blank line. A message that is exactly one line is not copied.
    pub fn push(&mut self, text: &str, mut each: impl FnMut(&str)) -> Result<(), TooLong> {
        let mut rest = text;
        while let Some(end) = rest.find('\n') {
            let (head, tail) = (&rest[..end], &rest[end + 1..]);
            rest = tail;
            if self.partial.len() + head.len() > self.max_bytes {
                return Err(TooLong);
            }
            if self.partial.is_empty() {
                if !head.trim().is_empty() {
                    each(head);
                }
            } else {
                self.partial.push_str(head);
                let line = std::mem::take(&mut self.partial);
                if !line.trim().is_empty() {
                    each(&line);
                }
            }
        }
        if self.partial.len() + rest.len() > self.max_bytes {
            return Err(TooLong);
        }
        self.partial.push_str(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(chunks: &[&str], max: usize) -> Result<Vec<String>, TooLong> {
        let mut lines = Lines::new(max);
        let mut seen = Vec::new();
        for chunk in chunks {
            lines.push(chunk, |line| seen.push(line.to_owned()))?;
        }
        Ok(seen)
    }

    #[test]
    fn a_message_has_many_lines_and_a_line_spans_many_messages() {
        assert_eq!(split(&["a\nb\n\n  \nc\n"], 10).unwrap(), ["a", "b", "c"]);
        assert_eq!(split(&["a", "b", "c\nd", "\n"], 10).unwrap(), ["abc", "d"]);
        assert_eq!(split(&["unfinished"], 10).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_long_line_is_refused_whole_or_partial() {
        assert_eq!(split(&["0123456789a\n"], 10), Err(TooLong));
        assert_eq!(split(&["01234", "56789", "a"], 10), Err(TooLong));
        assert!(split(&["0123456789\n"], 10).is_ok());
    }
}
