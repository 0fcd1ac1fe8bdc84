//! A stream of server-sent events, cut into events. Only their data counts.

/// A longer event is left out.
const EVENT_MAX_BYTES: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: String,
    /// Too long: the rest of it is skipped.
    is_skipped: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    Data(String),
    TooLong,
}

impl Events {
    /// The events that end in these bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut found = Vec::new();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.add(&rest[..end]);
            rest = &rest[end + 1..];
            found.extend(self.end_line());
        }
        self.add(rest);
        found
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.line.len() + self.data.len() + bytes.len() > EVENT_MAX_BYTES {
            self.is_skipped = true;
            self.line.clear();
            self.data.clear();
        }
        if self.is_skipped {
            // What tells whether the line is empty is kept.
            self.line.extend(bytes.first().filter(|_| self.line.is_empty()));
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        if !line.is_empty() {
            if let Some(data) = line.strip_prefix(b"data:").filter(|_| !self.is_skipped) {
                let data = String::from_utf8_lossy(data.strip_prefix(b" ").unwrap_or(data));
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(&data);
            }
            return None;
        }
        if std::mem::take(&mut self.is_skipped) {
            self.data.clear();
            return Some(Event::TooLong);
        }
        let data = std::mem::take(&mut self.data);
        (!data.is_empty()).then_some(Event::Data(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str =
        "event:receive\ndata:{\"a\":1}\n\n:\n\n:keep-alive\r\ndata: x\r\ndata: y\r\nid:7\r\n\r\ndata:cut";

    #[test]
    fn events_are_the_same_however_the_bytes_are_cut() {
        let whole = Events::default().push(STREAM.as_bytes());
        assert_eq!(whole, [Event::Data("{\"a\":1}".into()), Event::Data("x\ny".into())]);
        for size in 1..STREAM.len() {
            let mut events = Events::default();
            let found: Vec<Event> = STREAM.as_bytes().chunks(size).flat_map(|piece| events.push(piece)).collect();
            assert_eq!(found, whole, "pieces of {size}");
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_told_and_the_next_one_is_read() {
        let mut events = Events::default();
        assert!(events.push(b"data:").is_empty());
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..40 {
            assert!(events.push(&piece).is_empty());
            assert!(events.line.len() + events.data.len() <= EVENT_MAX_BYTES);
        }
        assert_eq!(events.push(b"\n\ndata:next\n\n"), [Event::TooLong, Event::Data("next".into())]);
    }
}
