//! A text that grows while the agent writes it. On Slack it is the message itself, which is edited.

use std::sync::Arc;

use frontdesk_core::port::platform::{Acted, Bot};
use frontdesk_wire::ActionResult;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::Slack;
use super::act::{Target, partial, post_text, sent};
use super::api::Api;
use super::text::{is_blank, not_one_message, one_message, parts};

/// Bot, chat, thread and draft.
pub(super) type DraftKey = (String, String, String, String);

/// Frames of one draft come one after the other.
pub(super) type Draft = Arc<Mutex<DraftState>>;

#[derive(Default)]
pub(super) struct DraftState {
    ts: Option<String>,
    /// What the message shows.
    shown: String,
    is_sealed: bool,
}

impl Slack {
    pub(super) async fn draft(
        &self,
        bot: &Bot,
        api: &Api<'_>,
        target: Target<'_>,
        draft_id: &str,
        content: &str,
        sealed: bool,
    ) -> Result<Acted, ActionResult> {
        let thread = target.thread.unwrap_or_default();
        let key = (bot.id.clone(), target.chat_id.to_owned(), thread.to_owned(), draft_id.to_owned());
        let now_ms = self.env.now_ms();
        let draft = self.drafts.get(&key, now_ms).unwrap_or_else(|| {
            let draft = Draft::default();
            self.drafts.put(key, draft.clone(), now_ms);
            draft
        });
        let mut state = draft.lock().await;
        if state.is_sealed {
            // The final text is there; a frame that comes late changes nothing.
            return Ok(ActionResult { message_id: state.ts.clone(), ..ActionResult::done() }.into());
        }
        if is_blank(content) && state.ts.is_none() {
            return if sealed { Err(not_one_message(content)) } else { Ok(ActionResult::done().into()) };
        }
        let texts = parts(content);
        let first = texts.first().map_or("", String::as_str);
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
                state.is_sealed = true; // some of it is there: it is not begun anew
                let what = format!("{index} of {} parts went out", texts.len());
                return Ok(partial(more, message_id.as_deref(), &what));
            }
        }
        state.is_sealed = true;
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
    let acted = sent(post_text(api, "chat.postMessage", fields).await);
    if acted.result.success {
        state.ts.clone_from(&acted.result.message_id);
        state.shown = rendered.markup;
    }
    Ok(acted)
}
