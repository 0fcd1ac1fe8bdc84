//! Actions of agents: each op as calls of the daemon.

use frontdesk_core::port::platform::{Acted, ActingAs};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code};
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Daemon, RpcError};
use super::ids::{MessageRef, recipient};
use super::text::one_message;
use super::{MESSAGE_MAX, PLATFORM, Signal};
use crate::shared::missing_bot;
use crate::shared::text::{nothing_visible, too_long};

/// The result of a message, for each recipient.
#[derive(Deserialize)]
pub(super) struct Sent {
    timestamp: u64,
    #[serde(default)]
    results: Vec<Outcome>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    retry_after_seconds: Option<u64>,
}

impl Signal {
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        self.try_act(acting_as, action).await.unwrap_or_else(Acted::from)
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let daemon = Daemon::of(&*self.outcall, bot).ok_or_else(|| missing_bot::refused(bot))?;
        Ok(match &action.act {
            Act::Send { chat_id, content, reply_to } => {
                if content.trim().is_empty() {
                    return Err(nothing_visible());
                }
                sent(daemon.rpc("send", target(&daemon, chat_id, content, reply_to.as_deref())?).await)
            }
            Act::SendMedia { chat_id, source_url, content, filename, reply_to, .. } => {
                let (content, filename, reply_to) = (content.as_deref(), filename.as_deref(), reply_to.as_deref());
                self.send_media(&daemon, acting_as.tenant, chat_id, source_url, content, filename, reply_to).await?
            }
            Act::Typing { chat_id, content } => {
                let mut params = recipient(chat_id);
                params["stop"] = (content.as_deref() == Some("")).into();
                done(daemon.rpc("sendTyping", params).await)
            }
            Act::React { chat_id, message_id, emoji, remove } => {
                let id = message(message_id)?;
                let mut params = recipient(chat_id);
                params["emoji"] = emoji.as_str().into();
                params["targetAuthor"] = id.author.as_deref().unwrap_or(daemon.account).into();
                params["targetTimestamp"] = id.sent_ms.into();
                params["remove"] = (*remove).into();
                match daemon.rpc("sendReaction", params).await {
                    Ok(outcome) => match failure(&outcome) {
                        None => ActionResult::done().into(),
                        Some(failed) => failed,
                    },
                    Err(error) => error.into(),
                }
            }
            Act::GetChatInfo { chat_id } => match self.look_at(bot, chat_id, None).await {
                Ok(Some(look)) => ActionResult { chat_info: Some(look.info), ..ActionResult::done() }.into(),
                Ok(None) => ActionResult::refused(Code::NotFound, "the bot is in no such group").into(),
                Err(fault) => ActionResult::refused(Code::Unavailable, fault.to_string()).into(),
            },
            _ => {
                let text = format!("{PLATFORM} does not support {}", action.act.op());
                return Err(ActionResult::refused(Code::UnsupportedOp, text));
            }
        })
    }
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn message(id: &str) -> Result<MessageRef, ActionResult> {
    let bad = || ActionResult::refused(Code::BadRequest, format!("{id:?} is not a message id of {PLATFORM}"));
    MessageRef::parse(id).ok_or_else(bad)
}

/// The parameters of a message. An empty text is one that only accompanies a file.
#[allow(clippy::result_large_err)] // see above
pub(super) fn target(
    daemon: &Daemon<'_>,
    chat_id: &str,
    content: &str,
    reply_to: Option<&str>,
) -> Result<Value, ActionResult> {
    let mut params = recipient(chat_id);
    params["message"] = "".into();
    if !content.trim().is_empty() {
        let styled = one_message(content).ok_or_else(|| too_long(MESSAGE_MAX, "units"))?;
        params["message"] = styled.text.into();
        if !styled.styles.is_empty() {
            params["textStyles"] = json!(styled.styles);
        }
    }
    // A message that cannot be quoted is answered without a quote.
    if let Some(id) = reply_to.and_then(MessageRef::parse) {
        params["quoteTimestamp"] = id.sent_ms.into();
        params["quoteAuthor"] = id.author.as_deref().unwrap_or(daemon.account).into();
    }
    Ok(params)
}

/// Whether no recipient got it, and why.
fn failure(sent: &Sent) -> Option<Acted> {
    let is_done = |it: &Outcome| it.kind == "SUCCESS";
    if sent.results.is_empty() || sent.results.iter().any(is_done) {
        return None;
    }
    let retry_after_s = sent.results.iter().filter_map(|it| it.retry_after_seconds).max();
    let (code, message) = match sent.results[0].kind.as_str() {
        "RATE_LIMIT_FAILURE" => (-5, "too many messages"),
        "IDENTITY_FAILURE" => (-4, "identity failure"),
        "UNREGISTERED_FAILURE" => (-1, "the recipient is not on Signal"),
        "NETWORK_FAILURE" => (-3, "no connection to Signal"),
        _ => (-2, "the message was not accepted"),
    };
    Some(RpcError::Refused { code, message: message.into(), retry_after_s }.into())
}

pub(super) fn sent(outcome: Result<Sent, RpcError>) -> Acted {
    match outcome {
        Ok(outcome) => failure(&outcome).unwrap_or_else(|| {
            ActionResult::sent(MessageRef { sent_ms: outcome.timestamp, author: None }.to_string()).into()
        }),
        Err(error) => error.into(),
    }
}

fn done(outcome: Result<Value, RpcError>) -> Acted {
    match outcome {
        Ok(_) => ActionResult::done().into(),
        Err(error) => error.into(),
    }
}

/// Of a person, whose name is only in their messages.
pub(super) fn person(chat_id: &str) -> ChatInfo {
    ChatInfo { name: chat_id.to_owned(), chat_type: "dm".into() }
}
