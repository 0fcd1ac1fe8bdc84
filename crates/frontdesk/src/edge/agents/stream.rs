//! An agent's inbox as server-sent events. While a stream is open its session is live and can be woken.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use frontdesk_core::agents::InboxStream;
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::agents::{Fault, InboxMessage};
use frontdesk_wire::{InboxSeq, TenantId};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Refused;
use super::auth::Api;
use crate::edge::App;
use crate::edge::flow::{PAGE_KIB, Spent};

/// How often the token is checked again.
const LOOK_TIME: Duration = Duration::from_secs(15);
const SESSION_MAX_CHARS: usize = 256;

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
    let after = last_event_id(&headers)?.or(which.after);
    let inbox = app.desk.inboxes().open_stream(who.as_caller(), &id, session, after).await?;
    let listener = Listener {
        inbox,
        leave: app.drain.slice(),
        app,
        token_id: who.token_id,
        tenant: who.tenant,
        spent: None,
        is_ready_sent: false,
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

struct Listener {
    app: App,
    inbox: InboxStream,
    leave: CancellationToken,
    token_id: String,
    tenant: TenantId,
    /// Share of the tenant's budget for the messages that were read.
    spent: Option<Spent>,
    is_ready_sent: bool,
}

impl Listener {
    /// `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.is_ready_sent, true) {
            // Contains the start position, so that a client that disconnects before the first message resumes there.
            let data = json!({ "session_id": self.inbox.session(), "newest": self.inbox.newest() }).to_string();
            return Some(Event::default().id(self.inbox.cursor().to_string()).event("ready").data(data));
        }
        // The next event is requested, so the previous one was written to the socket.
        self.inbox.written();
        loop {
            if let Some(message) = self.inbox.next_read() {
                return Some(event(&message));
            }
            self.spent = None;
            if !self.is_authorized() {
                return None;
            }
            // Held until the page was sent, which limits the memory of streams that are not read.
            if self.inbox.has_passed_over() {
                self.spent = Some(self.app.answers.take(&self.tenant, PAGE_KIB).await.ok()?);
                match self.inbox.look_back().await {
                    Ok(Some(message)) => return Some(event(&message)),
                    Ok(None) => {}
                    Err(error) => return broken(&error),
                }
            }
            self.spent = Some(self.app.answers.take(&self.tenant, PAGE_KIB).await.ok()?);
            match self.inbox.read_page().await {
                Ok(true) => continue,
                Ok(false) => self.spent = None,
                Err(error) => return broken(&error),
            }
            tokio::select! {
                () = self.inbox.changed() => {}
                () = tokio::time::sleep(LOOK_TIME) => {}
                () = self.leave.cancelled() => return None,
            }
        }
    }

    /// Whether the token is still valid and the agent still exists.
    fn is_authorized(&self) -> bool {
        self.app.desk.directory().is_live_token(&self.token_id) && self.inbox.has_agent()
    }
}

fn event(message: &InboxMessage) -> Event {
    let data = serde_json::to_string(message).unwrap_or_default();
    Event::default().id(message.seq.to_string()).event("message").data(data)
}

fn broken(error: &StoreError) -> Option<Event> {
    tracing::error!(%error, "reading an inbox failed; stream closed, the client may reconnect");
    None
}
