//! Who is there to hear: open streams of agents, by inbox. A stream reads its messages from the store; here
//! it is only rung, and says how far it has handed them over.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::delivery::delivered::Delivered;

/// Open streams of one agent; each is rung for every message.
pub const STREAMS_MAX: usize = 256;

/// One open stream.
pub struct Stream {
    agent: u64,
    /// The session that it is, if it has a name.
    pub session: Option<String>,
    /// Later ones are higher, across streams and sockets.
    pub order: u64,
    pub bell: Notify,
    /// Inbox that were handed to its socket.
    pub handed: Delivered,
}

impl Stream {
    /// What is for the agent as a whole, or for this session; a stream without a name hears everything.
    pub fn hears(&self, session: Option<&str>) -> bool {
        match (&self.session, session) {
            (Some(own), Some(meant)) => own == meant,
            _ => true,
        }
    }
}

#[derive(Default)]
struct Open {
    streams: Vec<Arc<Stream>>,
    /// The last time something was said to, or by, the agent here.
    traffic_ms: u64,
}

#[derive(Default)]
pub struct Streams {
    by_agent: Mutex<HashMap<u64, Open>>,
}

impl Streams {
    fn by_agent(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.by_agent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None`: as many streams as an agent may have are open.
    pub fn open(&self, agent: u64, session: Option<String>, order: u64, now_ms: u64) -> Option<Arc<Stream>> {
        let stream = Arc::new(Stream { agent, session, order, bell: Notify::new(), handed: Delivered::default() });
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
        stream.handed.end();
        if let Some(known) = self.by_agent().get_mut(&stream.agent) {
            known.streams.retain(|other| other.order != stream.order);
        }
    }

    /// Latest first.
    pub fn of(&self, agent: u64) -> Vec<Arc<Stream>> {
        let mut streams = self.by_agent().get(&agent).map(|known| known.streams.clone()).unwrap_or_default();
        streams.sort_by_key(|stream| std::cmp::Reverse(stream.order));
        streams
    }

    pub fn is_attended(&self, agent: u64) -> bool {
        self.by_agent().get(&agent).is_some_and(|known| !known.streams.is_empty())
    }

    /// Something was written into the inbox.
    pub fn ring(&self, agent: u64) {
        if let Some(known) = self.by_agent().get(&agent) {
            for stream in &known.streams {
                stream.bell.notify_one();
            }
        }
    }

    pub fn note_traffic(&self, agent: u64, now_ms: u64) {
        self.by_agent().entry(agent).or_default().traffic_ms = now_ms;
    }

    pub fn traffic_ms(&self, agent: u64) -> u64 {
        self.by_agent().get(&agent).map_or(0, |known| known.traffic_ms)
    }

    /// The agent is gone; its streams are rung, so that they notice.
    pub fn forget(&self, agent: u64) {
        if let Some(known) = self.by_agent().remove(&agent) {
            known.streams.iter().for_each(|stream| stream.bell.notify_one());
        }
    }

    pub fn open_streams(&self) -> usize {
        self.by_agent().values().map(|known| known.streams.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_stream_says_how_far_it_got_and_its_end_is_noticed() {
        let streams = Streams::default();
        let first = streams.open(7, Some("a".into()), 1, 5).unwrap();
        let second = streams.open(7, None, 2, 6).unwrap();
        let order: Vec<u64> = streams.of(7).iter().map(|stream| stream.order).collect();
        assert_eq!((order, streams.traffic_ms(7)), (vec![2, 1], 6));
        assert!(first.hears(None) && first.hears(Some("a")) && !first.hears(Some("b")) && second.hears(Some("b")));
        first.handed.hand(3);
        first.handed.hand(2);
        assert!(first.handed.took(3).await);
        // Whoever waits holds the stream too, and notices all the same.
        let (waits, ()) = tokio::join!(first.handed.took(4), async { streams.close(&first) });
        assert!(!waits && first.handed.took(3).await && !first.handed.took(4).await);
        streams.close(&second);
        assert!(!streams.is_attended(7));
    }
}
