//! Open streams of agents, by inbox. A stream reads its messages from the store; here it is only notified, and
//! records which messages were delivered to its client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{InboxSeq, InstanceNo};
use tokio::sync::Notify;

use crate::delivery::delivered::Delivered;

/// Open streams per agent; each of them is notified of every message.
pub const STREAMS_MAX: usize = 256;

/// One open stream.
pub struct Stream {
    agent: InstanceNo,
    /// Name of its session, if it has one.
    pub(super) session: Option<String>,
    /// Higher is newer, across streams and sockets.
    pub(super) order: u64,
    pub(super) notify: Notify,
    /// Messages that were written to its client.
    pub(super) delivered: Delivered<InboxSeq>,
}

impl Stream {
    /// Whether a message is for this stream: addressed to the whole agent or to this session. A stream without a
    /// session gets all messages.
    pub fn accepts_session(&self, session: Option<&str>) -> bool {
        match (&self.session, session) {
            (Some(own), Some(meant)) => own == meant,
            _ => true,
        }
    }
}

#[derive(Default)]
struct Open {
    streams: Vec<Arc<Stream>>,
    /// Time of the last message to or from the agent.
    traffic_ms: u64,
    /// The last message that it has read, here or at another server.
    read: InboxSeq,
}

#[derive(Default)]
pub struct Streams {
    by_agent: Mutex<HashMap<InstanceNo, Open>>,
}

impl Streams {
    fn by_agent(&self) -> MutexGuard<'_, HashMap<InstanceNo, Open>> {
        self.by_agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: the agent has the maximum number of open streams.
    pub fn open(&self, agent: InstanceNo, session: Option<String>, order: u64, now_ms: u64) -> Option<Arc<Stream>> {
        let stream = Arc::new(Stream { agent, session, order, notify: Notify::new(), delivered: Delivered::default() });
        let mut by_agent = self.by_agent();
        let known = by_agent.entry(agent).or_default();
        if known.streams.len() >= STREAMS_MAX {
            return None;
        }
        known.streams.push(stream.clone());
        known.traffic_ms = now_ms;
        Some(stream)
    }

    pub fn close(&self, stream: &Stream) {
        stream.delivered.end();
        if let Some(known) = self.by_agent().get_mut(&stream.agent) {
            known.streams.retain(|other| other.order != stream.order);
        }
    }

    /// Newest first.
    pub fn of(&self, agent: InstanceNo) -> Vec<Arc<Stream>> {
        let mut streams = self.by_agent().get(&agent).map(|known| known.streams.clone()).unwrap_or_default();
        streams.sort_by_key(|stream| std::cmp::Reverse(stream.order));
        streams
    }

    pub fn has_open_stream(&self, agent: InstanceNo) -> bool {
        self.by_agent().get(&agent).is_some_and(|known| !known.streams.is_empty())
    }

    /// Notifies the streams of an agent after its inbox changed.
    pub fn notify(&self, agent: InstanceNo) {
        if let Some(known) = self.by_agent().get(&agent) {
            for stream in &known.streams {
                stream.notify.notify_one();
            }
        }
    }

    pub fn notify_all(&self) {
        for known in self.by_agent().values() {
            known.streams.iter().for_each(|stream| stream.notify.notify_one());
        }
    }

    pub fn note_traffic(&self, agent: InstanceNo, now_ms: u64) {
        self.by_agent().entry(agent).or_default().traffic_ms = now_ms;
    }

    /// False: it was known already.
    pub(super) fn note_read(&self, agent: InstanceNo, seq: InboxSeq) -> bool {
        let mut by_agent = self.by_agent();
        let read = &mut by_agent.entry(agent).or_default().read;
        let is_new = *read < seq;
        *read = seq.max(*read);
        is_new
    }

    /// How far the agent has read its inbox since this server started, as far as it knows.
    pub(super) fn read(&self, agent: InstanceNo) -> InboxSeq {
        self.by_agent().get(&agent).map_or(InboxSeq::NONE, |known| known.read)
    }

    pub fn traffic_ms(&self, agent: InstanceNo) -> u64 {
        self.by_agent().get(&agent).map_or(0, |known| known.traffic_ms)
    }

    /// Removes a deleted agent. Its streams are notified so that they end.
    pub fn forget(&self, agent: InstanceNo) {
        if let Some(known) = self.by_agent().remove(&agent) {
            known.streams.iter().for_each(|stream| stream.notify.notify_one());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closed_stream_fails_pending_waits() {
        let streams = Streams::default();
        let first = streams.open(InstanceNo(7), Some("a".into()), 1, 5).unwrap();
        let second = streams.open(InstanceNo(7), None, 2, 6).unwrap();
        let order: Vec<u64> = streams.of(InstanceNo(7)).iter().map(|stream| stream.order).collect();
        assert_eq!((order, streams.traffic_ms(InstanceNo(7))), (vec![2, 1], 6));
        assert!(
            first.accepts_session(None)
                && first.accepts_session(Some("a"))
                && !first.accepts_session(Some("b"))
                && second.accepts_session(Some("b"))
        );
        first.delivered.advance(InboxSeq(3));
        first.delivered.advance(InboxSeq(2));
        assert!(first.delivered.reached(InboxSeq(3)).await);
        // The waiting task holds the stream too, and still notices that it was closed.
        let (waits, ()) = tokio::join!(first.delivered.reached(InboxSeq(4)), async { streams.close(&first) });
        assert!(!waits && first.delivered.reached(InboxSeq(3)).await && !first.delivered.reached(InboxSeq(4)).await);
        streams.close(&second);
        assert!(!streams.has_open_stream(InstanceNo(7)));
    }
}
