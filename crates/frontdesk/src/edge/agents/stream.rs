//! An agent's inbox as server-sent events. While it is open its session is live: it can be woken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use frontdesk_core::agents::attendance::{SEATS_MAX, Seat};
use frontdesk_core::desk::inbox_message;
use frontdesk_core::port::letters::Filed;
use frontdesk_wire::agents::{Class, Fault};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::json;

use super::Refused;
use super::who::Api;
use crate::edge::App;

/// Letters read at once.
const PAGE: usize = 100;
/// How often it is seen to that the token is still good.
const LOOK_TIME: Duration = Duration::from_secs(15);
const SESSION_MAX_CHARS: usize = 256;

#[derive(Deserialize)]
pub(crate) struct Which {
    session: Option<String>,
    after: Option<u64>,
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
        let text = format!("session has at most {SESSION_MAX_CHARS} characters and no control characters");
        return Err(Fault::invalid(text).into());
    }
    let resumed = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.trim().parse().ok());
    let agent = app.desk.open_inbox(who.speaker(), &id).await?;
    let desk = &app.desk;
    let order = desk.switchboard.next_session();
    let seat = desk.rooms.attendance.sit_down(agent, session, order, desk.env.now_ms());
    // Where it begins is read before it sits down: what is said to whoever sits there is behind that.
    let cursor = match resumed.or(which.after) {
        Some(after) => desk.known_place(agent, after).await?,
        None => desk.store.last_letter(agent).await.map_err(Fault::from)?,
    };
    let full = || Fault::new(Class::RateLimitedError, format!("{SEATS_MAX} streams of this agent are open"));
    let seat = seat.ok_or_else(full)?;
    let listener = Listener {
        seat: Seated { app: app.clone(), seat },
        app,
        token_id: who.token_id,
        agent,
        cursor,
        letters: VecDeque::new(),
        greeted: false,
        yielded: 0,
    };
    let events = stream::unfold(listener, |mut listener| async move {
        let event = listener.next().await?;
        Some((Ok(event), listener))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// A seat that is given up when the stream ends, however it ends.
struct Seated {
    app: App,
    seat: Arc<Seat>,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.app.desk.rooms.attendance.leave(&self.seat);
    }
}

struct Listener {
    app: App,
    seat: Seated,
    token_id: String,
    agent: u64,
    /// Letters up to this one were read.
    cursor: u64,
    letters: VecDeque<Filed>,
    greeted: bool,
    /// The last letter that was given away.
    yielded: u64,
}

impl Listener {
    /// `None` ends the stream.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.greeted, true) {
            // With the place where it begins: whoever is cut off before the first message resumes there.
            let told = json!({ "session_id": self.seat.seat.session }).to_string();
            return Some(Event::default().id(self.cursor.to_string()).event("ready").data(told));
        }
        // We are asked for more: what was given away before is in the socket's hands.
        self.seat.seat.handed.hand(self.yielded);
        loop {
            while let Some(filed) = self.letters.pop_front() {
                if self.seat.seat.hears(filed.letter.session_id.as_deref()) {
                    self.yielded = filed.event;
                    let message = inbox_message(filed);
                    let data = serde_json::to_string(&message).unwrap_or_default();
                    return Some(Event::default().id(message.seq.to_string()).event("message").data(data));
                }
            }
            if !self.is_welcome() {
                return None;
            }
            let read = self.app.desk.store.letters(self.agent, self.cursor, PAGE).await;
            match read {
                Ok(letters) if letters.is_empty() => {}
                Ok(letters) => {
                    self.cursor = letters.last().map_or(self.cursor, |filed| filed.event);
                    self.letters = letters.into();
                    self.app.desk.rooms.attendance.note_traffic(self.agent, self.app.desk.env.now_ms());
                    continue;
                }
                Err(error) => {
                    tracing::error!(%error, "an inbox could not be read; its stream ends and may come again");
                    return None;
                }
            }
            tokio::select! {
                () = self.seat.seat.bell.notified() => {}
                () = tokio::time::sleep(LOOK_TIME) => {}
                () = self.app.stop.cancelled() => return None,
            }
        }
    }

    /// The token is still good and the agent still there.
    fn is_welcome(&self) -> bool {
        let now_ms = self.app.desk.env.now_ms();
        self.app.desk.registry.read(|view| {
            let token = view.tokens.get(&self.token_id);
            token.is_some_and(|it| it.expires_ms.is_none_or(|at| at > now_ms)) && view.agent_no(self.agent).is_some()
        })
    }
}
