//! An agent's inbox as server-sent events. While a stream is open its session is live and can be woken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use frontdesk_core::agents::streams::{STREAMS_MAX, Stream as LiveStream};
use frontdesk_core::agents::{inbox_message, is_in_flight};
use frontdesk_core::port::inbox::StoredMessage;
use frontdesk_core::port::store::{PAGE_MAX_BYTES, StoreError};
use frontdesk_wire::agents::{Class, Fault};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, TenantId};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Refused;
use super::auth::Api;
use crate::edge::App;
use crate::edge::flow::{PAGE_KIB, Spent};

/// Messages per read.
const PAGE: usize = 100;
/// How often the token is checked again.
const LOOK_TIME: Duration = Duration::from_secs(15);
const SESSION_MAX_CHARS: usize = 256;
/// Messages of other sessions that a stream keeps track of; each is settled within seconds. Further ones are only in
/// the inbox.
const PASSED_OVER_MAX: usize = 64;

#[derive(Deserialize)]
pub(crate) struct Which {
    session: Option<String>,
    after: Option<InboxSeq>,
}

pub(crate) async fn open(
    State(app): State<App>,
    who: Api,
    Path(id): Path<String>,
    Query(which): Query<Which>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refused> {
    let session = which.session.filter(|it| !it.is_empty());
    let printable = |it: &String| it.chars().count() <= SESSION_MAX_CHARS && !it.chars().any(char::is_control);
    if !session.as_ref().is_none_or(printable) {
        let text = format!("session must have at most {SESSION_MAX_CHARS} characters and no control characters");
        return Err(Fault::invalid(text).into());
    }
    let resumed = last_event_id(&headers)?;
    let agent = app.desk.inboxes().open_inbox(who.as_caller(), &id).await?;
    let desk = &app.desk;
    // Read before the stream is registered, so that messages to this session come after it.
    let newest = desk.inboxes().newest(agent).await.map_err(Fault::from)?;
    // A position after the newest message comes from before a restore of an older backup.
    let cursor = resumed.or(which.after).map_or(newest, |after| after.min(newest));
    let order = desk.delivery().sockets().next_order();
    let live = desk.agents().live().streams.open(agent, session, order, desk.env().now_ms());
    let full = || {
        Fault::new(
            Class::RateLimitedError,
            format!("this agent already has {STREAMS_MAX} open streams, the maximum; close one first"),
        )
    };
    let live = live.ok_or_else(full)?;
    let listener = Listener {
        session: Session { app: app.clone(), live },
        leave: app.drain.slice(),
        app,
        token_id: who.token_id,
        tenant: who.tenant,
        agent,
        cursor,
        newest,
        messages: VecDeque::new(),
        spent: None,
        passed_over: Vec::new(),
        greeted: false,
        yielded: InboxSeq::NONE,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// Position at which a reconnecting client continues. An empty header counts as absent.
fn last_event_id(headers: &HeaderMap) -> Result<Option<InboxSeq>, Fault> {
    let Some(id) = headers.get("last-event-id").filter(|id| !id.is_empty()) else { return Ok(None) };
    let place = id.to_str().ok().and_then(|id| id.trim().parse().ok()).map(InboxSeq);
    let text = "Last-Event-ID must be the seq of a message (a whole number), as sent in the id of an event";
    place.map(Some).ok_or_else(|| Fault::invalid(text))
}

/// Closes the stream when dropped.
struct Session {
    app: App,
    live: Arc<LiveStream>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.app.desk.agents().live().streams.close(&self.live);
    }
}

struct Listener {
    app: App,
    session: Session,
    leave: CancellationToken,
    token_id: String,
    tenant: TenantId,
    agent: InstanceNo,
    /// Messages up to this one were read.
    cursor: InboxSeq,
    /// The newest message when the stream was opened.
    newest: InboxSeq,
    messages: VecDeque<StoredMessage>,
    /// Share of the tenant's budget for these messages.
    spent: Option<Spent>,
    /// Messages that were addressed to another session and still in flight when read. If not delivered there, they go
    /// to all sessions.
    passed_over: Vec<EventId>,
    greeted: bool,
    /// The last message that was sent.
    yielded: InboxSeq,
}

impl Listener {
    /// `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.greeted, true) {
            // Contains the start position, so that a client that disconnects before the first message resumes there.
            let data = json!({ "session_id": self.session.live.session, "newest": self.newest }).to_string();
            return Some(Event::default().id(self.cursor.to_string()).event("ready").data(data));
        }
        // The next event is requested, so the previous one was written to the socket.
        self.session.live.delivered.advance(self.yielded.0);
        loop {
            while let Some(stored) = self.messages.pop_front() {
                if self.session.live.accepts_session(stored.message.session_id.as_deref()) {
                    return Some(self.give(stored));
                }
                if is_in_flight(&stored) && self.passed_over.len() < PASSED_OVER_MAX {
                    self.passed_over.push(stored.event);
                }
            }
            self.spent = None;
            if !self.is_authorized() {
                return None;
            }
            if !self.passed_over.is_empty() {
                self.spent = Some(self.app.answers.take(&self.tenant, PAGE_KIB).await?);
            }
            match self.look_back().await {
                Ok(Some(stored)) => return Some(self.give(stored)),
                Ok(None) => {}
                Err(error) => return broken(&error),
            }
            // Held until the page was sent, which limits the memory of streams that are not read.
            self.spent = Some(self.app.answers.take(&self.tenant, PAGE_KIB).await?);
            let read = self.app.desk.inboxes().page(self.agent, self.cursor, PAGE).await;
            match read {
                Ok(messages) if messages.is_empty() => self.spent = None,
                Ok(messages) => {
                    self.cursor = messages.last().map_or(self.cursor, |stored| stored.place);
                    self.messages = messages.into();
                    self.app.desk.agents().live().streams.note_traffic(self.agent, self.app.desk.env().now_ms());
                    continue;
                }
                Err(error) => return broken(&error),
            }
            tokio::select! {
                () = self.session.live.notify.notified() => {}
                () = tokio::time::sleep(LOOK_TIME) => {}
                () = self.leave.cancelled() => return None,
            }
        }
    }

    fn give(&mut self, stored: StoredMessage) -> Event {
        self.yielded = stored.place;
        let message = inbox_message(stored);
        let data = serde_json::to_string(&message).unwrap_or_default();
        Event::default().id(message.seq.to_string()).event("message").data(data)
    }

    /// A message that was skipped and is now for this stream.
    async fn look_back(&mut self) -> Result<Option<StoredMessage>, StoreError> {
        let mut bytes = 0;
        for event in std::mem::take(&mut self.passed_over) {
            if bytes >= PAGE_MAX_BYTES {
                self.passed_over.push(event); // the next time
                continue;
            }
            match self.app.desk.inboxes().message(event).await? {
                Some(stored) if self.session.live.accepts_session(stored.message.session_id.as_deref()) => {
                    bytes += stored.message.text.len();
                    self.messages.push_back(stored);
                }
                Some(stored) if is_in_flight(&stored) => self.passed_over.push(event),
                _ => {}
            }
        }
        Ok(self.messages.pop_front())
    }

    /// Whether the token is still valid and the agent still exists.
    fn is_authorized(&self) -> bool {
        let now_ms = self.app.desk.env().now_ms();
        self.app.desk.directory().read(|view| {
            let token = view.token(&self.token_id);
            token.is_some_and(|it| it.expires_ms.is_none_or(|at| at > now_ms)) && view.agent_no(self.agent).is_some()
        })
    }
}

fn broken(error: &StoreError) -> Option<Event> {
    tracing::error!(%error, "reading an inbox failed; stream closed, the client may reconnect");
    None
}
