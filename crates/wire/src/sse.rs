//! Parses server-sent events from bytes in pieces of any size. Only a blank line ends an event; an incomplete one is
//! discarded.

/// No event of this server, and none that it reads, is longer; the limit protects the memory from a stream without line ends.
const EVENT_MAX_BYTES: usize = 16 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// `message` if the stream names none.
    pub name: String,
    pub data: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {EVENT_MAX_BYTES} bytes")]
pub struct TooLong;

#[derive(Default)]
pub struct Events {
    line: Vec<u8>,
    /// The last byte was CR: a following LF belongs to the same line end.
    after_cr: bool,
    begun: bool,
    name: String,
    data: String,
    has_data: bool,
    id: Option<String>,
    last_id: Option<String>,
    retry_ms: Option<u64>,
}

impl Events {
    /// The events completed by these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = *byte == b'\r';
                    events.extend(self.end_line());
                }
                _ => {
                    self.after_cr = false;
                    if self.line.len() + self.data.len() >= EVENT_MAX_BYTES {
                        return Err(TooLong);
                    }
                    self.line.push(*byte);
                }
            }
        }
        Ok(events)
    }

    /// Id of the last complete event, to resume from.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// Delay before a reconnect, as the server asks.
    pub fn retry_ms(&self) -> Option<u64> {
        self.retry_ms
    }

    /// Prepares for a new connection: drops the incomplete event, keeps the position.
    pub fn restart(&mut self) {
        *self = Self { last_id: self.last_id.take(), retry_ms: self.retry_ms, ..Self::default() };
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let text = if self.begun { &text } else { text.strip_prefix('\u{feff}').unwrap_or(&text) };
        self.begun = true;
        if text.is_empty() {
            return self.end_event();
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.name = value.into(),
            "data" => {
                if self.has_data {
                    self.data.push('\n');
                }
                self.has_data = true;
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.id = Some(value.into()),
            "retry" if value.bytes().all(|b| b.is_ascii_digit()) => {
                self.retry_ms = value.parse().ok().or(self.retry_ms);
            }
            _ => {} // comments begin with a colon; unknown fields are ignored
        }
        None
    }

    fn end_event(&mut self) -> Option<Event> {
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        // By the standard an event without data is ignored, but the server sends named ones (`event: ready`).
        let is_one = std::mem::take(&mut self.has_data) || !name.is_empty();
        is_one.then(|| Event { name: if name.is_empty() { "message".into() } else { name }, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.into(), data: data.into() }
    }

    const STREAM: &str = "\u{feff}: hello\nretry: 1500\nevent: ready\ndata\n\n: beat\r\n\r\nid: 7\r\nevent: message\r\n\
        data: {\"a\":1,\r\ndata:  \"b\":\"\u{e4}\"}\r\n\r\ndata:x\rid\r\rid: 9\ndata: last\n\nid: 10\ndata: broken off";

    fn whole() -> Vec<Event> {
        vec![
            event("ready", ""),
            event("message", "{\"a\":1,\n \"b\":\"\u{e4}\"}"),
            event("message", "x"),
            event("message", "last"),
        ]
    }

    #[test]
    fn events_are_the_same_in_pieces_of_any_size() {
        for size in 1..=STREAM.len() {
            let mut events = Events::default();
            let pieces = STREAM.as_bytes().chunks(size);
            let read: Vec<Event> = pieces.flat_map(|piece| events.push(piece).unwrap()).collect();
            assert_eq!(read, whole(), "pieces of {size}");
            assert_eq!((events.last_id(), events.retry_ms()), (Some("9"), Some(1500)));
        }
    }

    #[test]
    fn comments_unknown_fields_and_blank_lines_are_no_events() {
        let mut events = Events::default();
        assert_eq!(events.push(b":\n\n: a: b\n\nfoo: bar\n\n\n\r\n\rid: 3\n\n").unwrap(), []);
        assert_eq!(events.last_id(), Some("3"), "an id alone moves the position");
        assert_eq!(events.push(b"id: a\0b\nretry: soon\ndata: x\n\n").unwrap(), [event("message", "x")]);
        assert_eq!((events.last_id(), events.retry_ms()), (Some("3"), None));
        assert_eq!(events.push(b"data\ndata\n\n").unwrap(), [event("message", "\n")]);
        assert_eq!(events.push(b"data:  two blanks\n\n").unwrap(), [event("message", " two blanks")]);
    }

    #[test]
    fn a_new_connection_drops_the_partial_event_and_keeps_the_position() {
        let mut events = Events::default();
        events.push(b"id: 4\ndata: x\n\nid: 5\nevent: odd\ndata: half").unwrap();
        events.restart();
        assert_eq!(events.last_id(), Some("4"));
        assert_eq!(events.push(b"data: y\n\n").unwrap(), [event("message", "y")]);
        assert_eq!(events.last_id(), Some("4"));
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut events = Events::default();
        let piece = vec![b'a'; 1024 * 1024];
        let refused = (0..20).find_map(|_| events.push(&piece).err());
        assert_eq!(refused, Some(TooLong));
    }
}
