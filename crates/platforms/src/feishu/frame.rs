//! Frames of the socket: protocol buffers, as the vendor's library describes them (`pbbp2.proto`), and messages that come in
//! several frames.

use bytes::{Bytes, BytesMut};
use prost::Message as _;

/// A control frame: ping or pong.
pub const CONTROL: i32 = 0;
/// A data frame: an event, and the answer to it.
pub const DATA: i32 = 1;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Header {
    #[prost(string, required, tag = "1")]
    pub key: String,
    #[prost(string, required, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Frame {
    #[prost(uint64, required, tag = "1")]
    pub seq_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub log_id: u64,
    #[prost(int32, required, tag = "3")]
    pub service: i32,
    #[prost(int32, required, tag = "4")]
    pub method: i32,
    #[prost(message, repeated, tag = "5")]
    pub headers: Vec<Header>,
    #[prost(string, optional, tag = "6")]
    pub payload_encoding: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub payload_type: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "8")]
    pub payload: Option<Bytes>,
    #[prost(string, optional, tag = "9")]
    pub log_id_new: Option<String>,
}

impl Frame {
    pub fn read(bytes: Bytes) -> Option<Self> {
        Self::decode(bytes).ok()
    }

    pub fn bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    pub fn ping(service: i32) -> Self {
        let headers = vec![Header { key: "type".into(), value: "ping".into() }];
        Self { service, method: CONTROL, headers, ..Self::default() }
    }

    /// Empty: there is no such header.
    pub fn header(&self, key: &str) -> &str {
        self.headers.iter().find(|header| header.key == key).map_or("", |header| header.value.as_str())
    }

    /// The same frame with another payload: how a data frame is answered.
    #[must_use]
    pub fn answer(mut self, payload: String, took_ms: u64) -> Self {
        self.headers.push(Header { key: "biz_rt".into(), value: took_ms.to_string() });
        self.payload = Some(payload.into());
        self
    }
}

/// Frames of one message.
pub const PARTS_MAX: usize = 256;
/// Messages that are not complete.
pub const OPEN_MAX: usize = 32;
/// Bytes of all of them.
pub const BYTES_MAX: usize = 8 << 20;
/// After this time the rest of a message does not come any more; the vendor's library waits for 5 s.
pub const PARTS_LAST_MS: u64 = 30_000;

/// The result of adding a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Joined {
    Whole(Bytes),
    Waiting,
    /// Its numbers make no sense, or it is too large.
    Refused,
}

#[derive(Default)]
pub struct Parts {
    open: Vec<OpenMessage>,
}

struct OpenMessage {
    id: String,
    since_ms: u64,
    parts: Vec<Option<Bytes>>,
}

impl OpenMessage {
    fn bytes(&self) -> usize {
        self.parts.iter().flatten().map(Bytes::len).sum()
    }
}

impl Parts {
    /// Adds one part, by the headers `message_id`, `sum` and `seq` of its frame. Those that are old or too many are forgotten:
    /// they were not acknowledged, and come again.
    pub fn add(&mut self, now_ms: u64, frame: &Frame) -> Joined {
        let payload = frame.payload.clone().unwrap_or_default();
        let number = |name: &str, absent: usize| match frame.header(name) {
            "" => Some(absent),
            text => text.parse::<usize>().ok(),
        };
        let (Some(sum), Some(seq)) = (number("sum", 1), number("seq", 0)) else { return Joined::Refused };
        if sum <= 1 {
            return Joined::Whole(payload);
        }
        let id = frame.header("message_id");
        if sum > PARTS_MAX || seq >= sum || id.is_empty() || id.len() > 256 || payload.len() > BYTES_MAX {
            return Joined::Refused;
        }
        self.open.retain(|open| now_ms.saturating_sub(open.since_ms) < PARTS_LAST_MS);
        let at = self.open.iter().position(|open| open.id == id && open.parts.len() == sum);
        let at = at.unwrap_or_else(|| {
            self.open.retain(|open| open.id != id);
            self.open.push(OpenMessage { id: id.to_owned(), since_ms: now_ms, parts: vec![None; sum] });
            self.open.len() - 1
        });
        self.open[at].parts[seq] = Some(payload);
        if self.open[at].parts.iter().all(Option::is_some) {
            let whole = self.open.remove(at);
            let mut bytes = BytesMut::with_capacity(whole.bytes());
            whole.parts.iter().flatten().for_each(|part| bytes.extend_from_slice(part));
            return Joined::Whole(bytes.freeze());
        }
        while self.open.len() > OPEN_MAX || self.open.iter().map(OpenMessage::bytes).sum::<usize>() > BYTES_MAX {
            self.open.remove(0);
        }
        Joined::Waiting
    }

    /// Messages and bytes that are held, for tests.
    pub fn held(&self) -> (usize, usize) {
        (self.open.len(), self.open.iter().map(OpenMessage::bytes).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(id: &str, sum: &str, seq: &str, payload: &'static str) -> Frame {
        let header = |key: &str, value: &str| Header { key: key.into(), value: value.into() };
        let headers = vec![header("type", "event"), header("message_id", id), header("sum", sum), header("seq", seq)];
        Frame { method: DATA, headers, payload: Some(payload.into()), ..Frame::default() }
    }

    #[test]
    fn a_frame_is_written_as_the_library_writes_it() {
        // Frame() of lark-oapi with service 5, method 0 and the header type=ping.
        let known = "08001000180520002a0c0a0474797065120470696e67";
        assert_eq!(hex::encode(Frame::ping(5).bytes()), known);
        let frame = Frame::read(hex::decode(known).unwrap().into()).unwrap();
        assert_eq!((frame.header("type"), frame.header("x"), frame.service), ("ping", "", 5));
        assert!(Frame::read(Bytes::from_static(b"\xff\xff\xff")).is_none());
        let answer = part("m", "1", "0", "{}").answer("{\"code\":200}".into(), 7);
        let again = Frame::read(answer.bytes()).unwrap();
        assert_eq!((again.header("biz_rt"), again.payload.as_deref()), ("7", Some(&b"{\"code\":200}"[..])));
    }

    #[test]
    fn parts_are_joined_in_any_order() {
        let mut parts = Parts::default();
        assert_eq!(parts.add(0, &part("m", "1", "0", "one")), Joined::Whole("one".into()));
        assert_eq!(parts.add(0, &part("m", "3", "2", "c")), Joined::Waiting);
        assert_eq!(parts.add(0, &part("n", "2", "0", "x")), Joined::Waiting);
        assert_eq!(parts.add(1, &part("m", "3", "0", "a")), Joined::Waiting);
        assert_eq!(parts.add(1, &part("m", "3", "0", "a")), Joined::Waiting, "it came again");
        assert_eq!(parts.add(2, &part("m", "3", "1", "b")), Joined::Whole("abc".into()));
        assert_eq!(parts.held(), (1, 1));
        assert_eq!(
            parts.add(PARTS_LAST_MS, &part("n", "2", "1", "y")),
            Joined::Waiting,
            "the first part was forgotten"
        );
        for (sum, seq) in [("2", "2"), ("x", "0"), ("999999999", "0"), ("2", "-1"), ("257", "0")] {
            assert_eq!(parts.add(0, &part("o", sum, seq, "x")), Joined::Refused, "{sum} {seq}");
        }
        assert_eq!(parts.add(0, &part("", "2", "1", "x")), Joined::Refused);
    }

    #[test]
    fn what_is_held_is_bounded() {
        let mut parts = Parts::default();
        for number in 0..2 * OPEN_MAX {
            parts.add(0, &part(&number.to_string(), "2", "0", "x"));
        }
        assert_eq!(parts.held().0, OPEN_MAX);
        let large = Bytes::from(vec![b'x'; BYTES_MAX / 3]);
        for number in 0..9 {
            let frame = Frame { payload: Some(large.clone()), ..part(&format!("l{number}"), "2", "0", "") };
            parts.add(0, &frame);
            assert!(parts.held().1 <= BYTES_MAX);
        }
    }
}
