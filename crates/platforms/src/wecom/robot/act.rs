//! Actions of agents: each op as a frame.

use frontdesk_core::port::platform::{Acted, ActingAs, Bot};
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code, MessageId};
use serde_json::{Value, json};

use super::frame::{RESPOND, SEND};
use super::link::LinkError;
use super::{MESSAGE_MAX, Robot};
use crate::shared::missing_bot;
use crate::shared::text::not_one_message;
use crate::wecom::errors::code_of;

impl Robot {
    /// A rate limit applies to the chat; other chats continue.
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        let mut acted = self.try_act(acting_as, action).await.unwrap_or_else(Acted::from);
        if acted.pace.retry_after_ms.is_some() {
            acted.pace.bucket = Some(super::bucket(action).0);
        }
        acted
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        if bot.setting("bot_id").is_none() {
            return Err(missing_bot::refused(bot));
        }
        if action.act.chat_id().is_none_or(|id| id.is_empty()) {
            return Err(ActionResult::refused(Code::BadRequest, "chat_id is empty"));
        }
        Ok(match &action.act {
            Act::Send { chat_id, content, reply_to } => {
                check_text(content)?;
                match self.end_draft(acting_as, chat_id, content).await {
                    Some(acted) => acted,
                    None => self.send_whole(bot, chat_id, reply_to.as_deref(), content).await,
                }
            }
            Act::Draft { chat_id, draft_id, content, sealed } => {
                self.draft(acting_as, chat_id, draft_id, content, *sealed).await?
            }
            Act::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to } => {
                let (caption, reply_to) = (content.as_deref(), reply_to.as_deref());
                let source = (media_kind.as_str(), source_url.as_str(), filename.as_deref());
                self.send_media(acting_as, chat_id, reply_to, source, caption).await?
            }
            Act::GetChatInfo { chat_id } => {
                let look = self.look_at(bot, chat_id, None);
                let info =
                    look.map_or_else(|| ChatInfo { name: chat_id.to_string(), chat_type: "dm".into() }, |it| it.info);
                ActionResult { chat_info: Some(info), ..ActionResult::done() }.into()
            }
            _ => {
                return Err(ActionResult::refused(
                    Code::UnsupportedOp,
                    format!("WeCom robots do not support {}", action.act.op()),
                ));
            }
        })
    }

    pub(super) async fn send_whole(&self, bot: &Bot, chat_id: &str, reply_to: Option<&str>, content: &str) -> Acted {
        let body = json!({ "msgtype": "markdown", "markdown": { "content": content } });
        self.say(bot, chat_id, reply_to, body).await
    }

    /// Answers a message. All answers to it have the same id, so it is not used again after one that was not acknowledged.
    pub(super) async fn respond(&self, bot: &Bot, chat_id: &str, req_id: &str, body: &Value) -> Result<(), LinkError> {
        let forget = || self.replies.forget(&bot.id, chat_id, req_id);
        self.links.ask_as(&bot.id, RESPOND, req_id, body, &forget).await.map(|_| ())
    }

    /// As a reply if there is something to reply to: a robot may not begin to speak in a group. Else as a message.
    pub(super) async fn say(&self, bot: &Bot, chat_id: &str, reply_to: Option<&str>, body: Value) -> Acted {
        if let Some(req_id) = self.replies.request_for(&bot.id, chat_id, reply_to, self.env.steady_ms()) {
            match self.respond(bot, chat_id, &req_id, &body).await {
                Ok(()) => return ActionResult::sent(req_id).into(),
                // It was not done, so it can be tried in the other way.
                Err(LinkError::Refused { code, .. }) if is_of_request(code) => {
                    self.replies.forget(&bot.id, chat_id, &req_id);
                }
                Err(error) => return error.into(),
            }
        }
        let mut message = body;
        message["chatid"] = chat_id.into();
        let req_id = self.new_req_id(SEND);
        match self.links.ask(&bot.id, SEND, &req_id, &message).await {
            Ok(_) => ActionResult::sent(req_id).into(),
            Err(error) => error.into(),
        }
    }
}

/// Whether it may be refused because the message can no longer be answered. What is wrong with the answer itself, or the pace of
/// it, stays so in the other way.
fn is_of_request(code: i64) -> bool {
    let others = [Code::BadRequest, Code::TooLarge, Code::NotFound, Code::RateLimited, Code::Unavailable];
    !others.contains(&code_of(code))
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn check_text(content: &str) -> Result<(), ActionResult> {
    let is_blank = content.trim().is_empty();
    match is_blank || LenUnit::Chars.measure(content) > MESSAGE_MAX {
        true => Err(not_one_message(is_blank, MESSAGE_MAX, "characters")),
        false => Ok(()),
    }
}

/// Some parts were sent: that is reported, and the action is not retried as a whole.
pub(super) fn partial(failed: Acted, message_id: Option<String>, what: &str) -> Acted {
    let why = failed.result.error.unwrap_or_default();
    let result = ActionResult {
        code: Some(Code::Partial),
        message_id: message_id.map(MessageId::from),
        ambiguous: failed.result.ambiguous,
        error: Some(format!("{what}, then: {why}")),
        ..ActionResult::default()
    };
    result.worded().into()
}
