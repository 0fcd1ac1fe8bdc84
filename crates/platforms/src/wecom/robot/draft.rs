//! A text that grows while the agent writes it: a stream, which is a reply to a message. The final text ends it, whether it comes
//! as the last frame of the draft or as a message.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::platform::{Acted, ActingAs};
use frontdesk_wire::{ActionResult, Code};
use serde_json::json;

use super::link::LinkError;
use super::{MESSAGE_MAX, Robot};
use crate::shared::draft::completes;
use crate::shared::text::nothing_visible;

/// `WeCom` ends a stream after ten minutes.
const STREAM_MS: u64 = 9 * 60_000;
const DRAFTS_MAX: usize = 1_000;

/// Robot, tenant and chat.
type Key = (String, String, String);

/// Frames of one chat come one after the other.
type Shared = Arc<tokio::sync::Mutex<Option<Stream>>>;

/// A stream that is not over.
pub(super) struct Stream {
    draft_id: String,
    id: String,
    req_id: String,
    begun_ms: u64,
    shown: String,
}

#[derive(Default)]
pub(super) struct Drafts(Mutex<Known>);

#[derive(Default)]
struct Known {
    streams: HashMap<Key, Shared>,
    oldest: VecDeque<Key>,
}

impl Drafts {
    fn of(&self, key: Key, make: bool) -> Option<Shared> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.streams.get(&key) {
            return Some(found.clone());
        }
        if !make {
            return None;
        }
        let shared = Shared::default();
        known.streams.insert(key.clone(), shared.clone());
        known.oldest.push_back(key);
        if known.oldest.len() > DRAFTS_MAX {
            // The oldest without a stream, else the oldest.
            let is_free = |it: &Shared| Arc::strong_count(it) == 1 && it.try_lock().is_ok_and(|it| it.is_none());
            let is_idle = |key: &Key| known.streams.get(key).is_none_or(is_free);
            let others = known.oldest.iter().take(DRAFTS_MAX);
            let index = others.clone().position(is_idle).unwrap_or(0);
            if let Some(key) = known.oldest.remove(index) {
                known.streams.remove(&key);
            }
        }
        Some(shared)
    }
}

fn key(acting_as: ActingAs<'_>, chat_id: &str) -> Key {
    (acting_as.bot.id.to_string(), acting_as.tenant.to_string(), chat_id.to_owned())
}

impl Robot {
    pub(super) async fn draft(
        &self,
        acting_as: ActingAs<'_>,
        chat_id: &str,
        draft_id: &str,
        content: &str,
        sealed: bool,
    ) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let Some(shared) = self.drafts.of(key(acting_as, chat_id), true) else {
            return Err(ActionResult::refused(Code::Internal, "the state of the draft was not found"));
        };
        let mut open = shared.lock().await;
        let now_ms = self.env.steady_ms();
        if open.as_ref().is_some_and(|stream| stream.draft_id != draft_id || now_ms > stream.begun_ms + STREAM_MS) {
            *open = None; // it stays as it is shown
        }
        if content.trim().is_empty() && open.is_none() {
            return match sealed {
                true => Err(nothing_visible()),
                false => Ok(ActionResult::done().into()),
            };
        }
        if open.is_none() && sealed {
            return Ok(self.send_whole(bot, chat_id, None, content).await);
        }
        if open.is_none() {
            let Some(req_id) = self.replies.request_for(&bot.id, chat_id, None, now_ms) else {
                let text = "WeCom streams only replies, and this server has seen no message of the chat lately";
                return Err(ActionResult::refused(Code::NotFound, text));
            };
            let id = format!("stream_{}", self.env.random_hex(12));
            let draft_id = draft_id.to_owned();
            *open = Some(Stream { draft_id, id, req_id, begun_ms: now_ms, shown: String::new() });
        }
        let parts = frontdesk_core::split::split(content, MESSAGE_MAX, frontdesk_wire::descriptor::LenUnit::Chars);
        let first = parts.first().map_or("", String::as_str);
        let outcome = self.show(acting_as, chat_id, &mut open, first, sealed).await;
        let acted = match outcome {
            Ok(req_id) => Acted::from(ActionResult::sent(req_id)),
            Err(error) => return Ok(error.into()),
        };
        if sealed {
            *open = None;
            for part in parts.iter().skip(1) {
                let more = self.send_whole(bot, chat_id, None, part).await;
                if !more.result.success {
                    return Ok(super::act::partial(
                        more,
                        acted.result.message_id.map(Into::into),
                        "the first part went out",
                    ));
                }
            }
        }
        Ok(acted)
    }

    /// Ends the stream of this chat with the final text, if there is one that the text completes. `None`: there is none. Another
    /// text is a message: the stream may be that of another agent, or of another answer.
    pub(super) async fn end_draft(&self, acting_as: ActingAs<'_>, chat_id: &str, content: &str) -> Option<Acted> {
        let shared = self.drafts.of(key(acting_as, chat_id), false)?;
        let mut open = shared.lock().await;
        let is_fresh = |stream: &Stream| self.env.steady_ms() <= stream.begun_ms + STREAM_MS;
        if !open.as_ref().is_some_and(is_fresh) {
            *open = None;
            return None;
        }
        if !open.as_ref().is_some_and(|stream| completes(&stream.shown, content)) {
            return None;
        }
        match self.show(acting_as, chat_id, &mut open, content, true).await {
            Ok(req_id) => {
                *open = None;
                Some(ActionResult::sent(req_id).into())
            }
            // It is sent as a message then.
            Err(LinkError::Refused { .. }) => None,
            Err(error) => Some(error.into()),
        }
    }

    /// One frame of the stream. The stream ends after a refusal, and after an answer that did not come: the next answer
    /// to the same request could be mistaken for it.
    async fn show(
        &self,
        acting_as: ActingAs<'_>,
        chat_id: &str,
        open: &mut Option<Stream>,
        content: &str,
        finish: bool,
    ) -> Result<String, LinkError> {
        // Taken out, so that it ends also if the caller is gone before the answer.
        let Some(mut stream) = open.take() else { return Err(LinkError::NotSent("there is no stream".into())) };
        let req_id = stream.req_id.clone();
        if stream.shown == content && !finish {
            *open = Some(stream);
            return Ok(req_id);
        }
        let body = json!({ "msgtype": "stream",
            "stream": { "id": stream.id, "finish": finish, "content": content } });
        let outcome = self.respond(acting_as.bot, chat_id, &req_id, &body).await;
        if outcome.is_ok() {
            content.clone_into(&mut stream.shown);
        }
        if let Ok(()) | Err(LinkError::NotSent(_)) = outcome {
            *open = Some(stream);
        }
        outcome.map(|()| req_id)
    }
}
