//! One open stream of an inbox: which messages it gets, and in which order. The edge writes them to the client.

use std::collections::VecDeque;
use std::sync::Arc;

use frontdesk_wire::agents::{Class, Fault, InboxMessage};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo};

use super::{Inboxes, inbox_message, is_in_flight};
use crate::agents::streams::{STREAMS_MAX, Stream};
use crate::agents::{AgentsCaller, AgentsPlane};
use crate::port::inbox::{Inbox as InboxStore, StoredMessage};
use crate::port::store::{PAGE_MAX_BYTES, StoreError};

/// Messages per read.
const PAGE: usize = 100;
/// Messages of other sessions that a stream keeps track of; each is settled within seconds. Further ones are only in
/// the inbox.
const PASSED_OVER_MAX: usize = 64;

/// While it exists, its session is live and can be woken.
pub struct InboxStream {
    agents: Arc<AgentsPlane>,
    inbox: Arc<dyn InboxStore>,
    live: Arc<Stream>,
    agent: InstanceNo,
    /// The newest message when the stream was opened.
    newest: InboxSeq,
    /// Messages up to this one were read.
    cursor: InboxSeq,
    /// Read, and not yet given out.
    messages: VecDeque<StoredMessage>,
    /// Messages that were addressed to another session and still in flight when read. If not delivered there, they go
    /// to all sessions.
    passed_over: Vec<EventId>,
    /// The last message that was given out.
    given: InboxSeq,
}

impl Inboxes {
    /// A stream of the messages after `after`, or of those to come.
    pub async fn open_stream(
        &self,
        who: AgentsCaller<'_>,
        address: &str,
        session: Option<String>,
        after: Option<InboxSeq>,
    ) -> Result<InboxStream, Fault> {
        let agent = self.open_inbox(who, address).await?;
        // Read before the stream is registered, so that messages to this session come after it.
        let newest = self.newest(agent).await?;
        // A position after the newest message comes from before a restore of an older backup.
        let cursor = after.map_or(newest, |after| after.min(newest));
        self.agents.note_traffic(agent);
        let order = self.agents.delivery.sockets().next_order();
        let live = self.agents.live.streams.open(agent, session, order, self.env.now_ms()).ok_or_else(|| {
            let text = format!("this agent already has {STREAMS_MAX} open streams, the maximum; close one first");
            Fault::new(Class::RateLimitedError, text)
        })?;
        Ok(InboxStream {
            agents: self.agents.clone(),
            inbox: self.inbox.clone(),
            live,
            agent,
            newest,
            cursor,
            messages: VecDeque::new(),
            passed_over: Vec::new(),
            given: InboxSeq::NONE,
        })
    }
}

impl InboxStream {
    pub fn session(&self) -> Option<&str> {
        self.live.session.as_deref()
    }

    /// The newest message when the stream was opened.
    pub fn newest(&self) -> InboxSeq {
        self.newest
    }

    /// Messages up to this one were read.
    pub fn cursor(&self) -> InboxSeq {
        self.cursor
    }

    /// False: the agent was deleted.
    pub fn has_agent(&self) -> bool {
        self.agents.directory.read(|view| view.agent_no(self.agent).is_some())
    }

    /// What was given out so far was written to the client.
    pub fn written(&self) {
        self.live.delivered.advance(self.given);
        self.agents.note_read(self.agent, self.given);
    }

    /// The next message for this stream among those that were read.
    pub fn next_read(&mut self) -> Option<InboxMessage> {
        while let Some(stored) = self.messages.pop_front() {
            if self.live.accepts_session(stored.message.session_id.as_deref()) {
                return Some(self.give(stored));
            }
            if is_in_flight(&stored) && self.passed_over.len() < PASSED_OVER_MAX {
                self.passed_over.push(stored.event);
            }
        }
        None
    }

    pub fn has_passed_over(&self) -> bool {
        !self.passed_over.is_empty()
    }

    /// A message that was passed over and is for this stream now. Reads at most one page of them.
    pub async fn look_back(&mut self) -> Result<Option<InboxMessage>, StoreError> {
        let mut bytes = 0;
        for event in std::mem::take(&mut self.passed_over) {
            if bytes >= PAGE_MAX_BYTES {
                self.passed_over.push(event); // the next time
                continue;
            }
            match self.inbox.message_of(event).await? {
                Some(stored) if self.live.accepts_session(stored.message.session_id.as_deref()) => {
                    bytes += stored.message.text.len();
                    self.messages.push_back(stored);
                }
                Some(stored) if is_in_flight(&stored) => self.passed_over.push(event),
                _ => {}
            }
        }
        Ok(self.messages.pop_front().map(|stored| self.give(stored)))
    }

    /// Reads the next page. False: there is nothing new.
    pub async fn read_page(&mut self) -> Result<bool, StoreError> {
        self.messages = self.inbox.messages(self.agent, self.cursor, PAGE).await?.into();
        let Some(last) = self.messages.back() else { return Ok(false) };
        self.cursor = last.place;
        self.agents.note_traffic(self.agent);
        Ok(true)
    }

    /// Returns when the inbox may have changed.
    pub async fn changed(&self) {
        self.live.notify.notified().await;
    }

    fn give(&mut self, stored: StoredMessage) -> InboxMessage {
        self.given = stored.place;
        inbox_message(stored)
    }
}

impl Drop for InboxStream {
    fn drop(&mut self) {
        self.agents.live.streams.close(&self.live);
    }
}
