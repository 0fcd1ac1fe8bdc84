//! A text that grows while the agent writes it. On Slack it is the message itself, which is edited.

use std::sync::Arc;

use frontdesk_core::port::platform::{Acted, ActingAs};
use frontdesk_core::short_hash;
use frontdesk_wire::{ActionResult, Code, MessageId};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::Slack;
use super::act::{Target, partial, post_text, sent};
use super::api::Api;
use super::text::{is_blank, not_one_message, one_message, parts};
use crate::shared::draft::Seal;

/// The hash of bot, tenant, chat, thread and id of the draft, which may be long.
pub(super) type DraftKey = [u8; 16];

/// Locked, so that the frames of one draft are handled one after another.
pub(super) type Draft = Arc<Mutex<DraftState>>;

#[derive(Default)]
pub(super) struct DraftState {
    ts: Option<MessageId>,
    /// What the message shows.
    shown: String,
    seal: Seal,
    /// It is unknown whether the message was sent. Sending another one could show the draft twice.
    may_be_sent: bool,
}

const MAY_BE_SENT: &str =
    "it is not known whether the message of this draft was sent, so no second one is created; send the final text";

impl Slack {
    pub(super) async fn draft(
        &self,
        acting_as: ActingAs<'_>,
        api: &Api<'_>,
        target: Target<'_>,
        draft_id: &str,
        content: &str,
        sealed: bool,
    ) -> Result<Acted, ActionResult> {
        let thread = target.thread.unwrap_or_default();
        let key = short_hash(&[&acting_as.bot.id, acting_as.tenant, target.chat_id, thread, draft_id]);
        let now_ms = self.env.steady_ms();
        let draft = self.drafts.get_or_put(key, now_ms, Draft::default);
        let mut state = draft.lock().await;
        if state.seal.is_of_another(content, sealed, now_ms) {
            *state = DraftState::default();
        }
        if state.seal.is_closed() {
            // The final text is there; a frame that comes late changes nothing.
            return Ok(ActionResult { message_id: state.ts.clone(), ..ActionResult::done() }.into());
        }
        if is_blank(content) && state.ts.is_none() {
            return if sealed { Err(not_one_message(content)) } else { Ok(ActionResult::done().into()) };
        }
        let texts = parts(content);
        let first = texts.first().map_or("", String::as_str);
        if state.may_be_sent && !sealed {
            return Err(ActionResult::refused(Code::Unavailable, MAY_BE_SENT));
        }
        let acted = show(api, target, &mut state, first).await?;
        if !sealed || !acted.result.success {
            return Ok(acted);
        }
        let message_id = state.ts.clone();
        for (index, text) in texts.iter().enumerate().skip(1) {
            let Some(rendered) = one_message(text) else { continue };
            let mut fields = target.fields();
            fields.insert("text".into(), rendered.markup.into());
            let more = sent(post_text(api, "chat.postMessage", fields).await);
            if !more.result.success {
                state.seal.close(content, now_ms); // some of it is there: it is not begun anew
                let what = format!("{index} of {} parts went out", texts.len());
                return Ok(partial(more, message_id.as_deref(), &what));
            }
        }
        state.seal.close(content, now_ms);
        Ok(ActionResult { message_id, ..ActionResult::done() }.into())
    }
}

/// Makes the message, or changes it.
async fn show(api: &Api<'_>, target: Target<'_>, state: &mut DraftState, text: &str) -> Result<Acted, ActionResult> {
    let rendered = one_message(text).ok_or_else(|| not_one_message(text))?;
    if let Some(ts) = state.ts.clone() {
        if state.shown == rendered.markup {
            return Ok(ActionResult::sent(ts).into());
        }
        let fields = json!({ "channel": target.chat_id, "ts": ts, "text": rendered.markup, "blocks": [] });
        let acted = sent(api.post("chat.update", &fields).await);
        if acted.result.success {
            state.shown = rendered.markup;
        }
        return Ok(acted);
    }
    let mut fields: Map<String, Value> = target.fields();
    fields.insert("text".into(), rendered.markup.clone().into());
    state.may_be_sent = true; // also if the caller is gone when the action ends
    let acted = sent(post_text(api, "chat.postMessage", fields).await);
    state.may_be_sent = acted.result.ambiguous;
    if acted.result.success {
        state.ts.clone_from(&acted.result.message_id);
        state.shown = rendered.markup;
    }
    Ok(acted)
}
