//! Actions of agents: each op as a call of the messages resource.

use frontdesk_core::port::platform::{Acted, ActingAs, Bot};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code};
use serde_json::{Map, Value, json};

use super::api::{Api, ApiError, OF_CHAT};
use super::text::{MESSAGE_MAX, PARAMETER_MAX, is_blank, one_message, parameter, reason};
use super::{WINDOW_CLOSED, WhatsApp, chat_bucket, is_number, is_user_id};
use crate::shared::missing_bot;
use crate::shared::text;

/// How long the window of a chat counts as closed after Meta has said so. It opens when the person writes, perhaps to
/// another server.
const CLOSED_TTL_MS: u64 = 10 * 60 * 1_000;

/// The recipient of a message, and the key of its action.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) to: &'a str,
    pub(super) reply_to: Option<&'a str>,
    /// Key of the action, which Meta returns with the status.
    pub(super) key: Option<&'a str>,
}

impl<'a> Target<'a> {
    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    pub(super) fn of(
        chat_id: &'a str,
        reply_to: Option<&'a str>,
        acting_as: ActingAs<'a>,
    ) -> Result<Self, ActionResult> {
        if !is_number(chat_id) && !is_user_id(chat_id) {
            let text = format!("{chat_id:?} is not an id of WhatsApp: a phone number with its country, in digits only");
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
        Ok(Self { to: chat_id, reply_to, key: acting_as.idempotency_key })
    }

    /// A message with this content.
    pub(super) fn message(&self, kind: &str, content: Value) -> Value {
        let mut fields = Map::new();
        fields.insert("messaging_product".into(), "whatsapp".into());
        fields.insert("recipient_type".into(), "individual".into());
        let name = if is_user_id(self.to) { "recipient" } else { "to" };
        fields.insert(name.into(), self.to.into());
        fields.insert("type".into(), kind.into());
        fields.insert(kind.into(), content);
        if let Some(message_id) = self.reply_to {
            fields.insert("context".into(), json!({ "message_id": message_id }));
        }
        if let Some(key) = self.key {
            fields.insert("biz_opaque_callback_data".into(), key.into());
        }
        Value::Object(fields)
    }
}

/// The result of a message. If its answer was lost, the status webhook reports the outcome later, by the key.
pub(super) fn acted(outcome: Result<String, ApiError>, key: Option<&str>) -> Acted {
    match outcome {
        Ok(id) => Acted { receipt_id: Some(id.clone()), ..ActionResult::sent(id).into() },
        Err(error) => {
            let acted = Acted::from(error);
            let receipt_id = key.filter(|_| acted.result.ambiguous).map(str::to_owned);
            Acted { receipt_id, ..acted }
        }
    }
}

/// Some parts were sent: that is reported, and the action is not retried as a whole.
pub(super) fn partial(failed: Acted, message_id: &str, what: &str) -> Acted {
    let why = failed.result.error.unwrap_or_default();
    let result = ActionResult {
        success: false,
        code: Some(Code::Partial),
        message_id: Some(message_id.into()),
        ambiguous: failed.result.ambiguous,
        error: Some(format!("{what}, then: {why}")),
        ..ActionResult::default()
    };
    Acted { receipt_id: Some(message_id.to_owned()), ..result.worded().into() }
}

impl WhatsApp {
    /// A limit for one person is that of the chat: other chats continue.
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        let mut acted = self.try_act(acting_as, action).await.unwrap_or_else(Acted::from);
        if acted.pace.bucket.as_deref() == Some(OF_CHAT) {
            acted.pace.bucket = action.act.chat_id().map(|id| chat_bucket(id));
        }
        acted
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let api = Api::of(&*self.outcall, bot).ok_or_else(|| missing_bot::refused(bot))?;
        Ok(match &action.act {
            Act::Send { chat_id, content, reply_to } => {
                let target = Target::of(chat_id, reply_to.as_deref(), acting_as)?;
                self.send_text(&api, bot, target, content).await?
            }
            Act::Typing { content, .. } if content.as_deref() == Some("") => ActionResult::done().into(),
            Act::Typing { chat_id, .. } => self.show_typing(&api, bot, chat_id).await?,
            Act::React { chat_id, message_id, emoji, remove } => {
                let target = Target::of(chat_id, None, acting_as)?;
                let emoji = if *remove { "" } else { emoji };
                let reaction = json!({ "message_id": message_id, "emoji": emoji });
                acted(api.send(&target.message("reaction", reaction)).await, None)
            }
            Act::Prompt { chat_id, prompt_id, content, options, reply_to, .. } => {
                let target = Target::of(chat_id, reply_to.as_deref(), acting_as)?;
                self.ask(&api, bot, target, prompt_id, content, options).await?
            }
            Act::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to } => {
                let target = Target::of(chat_id, reply_to.as_deref(), acting_as)?;
                let (content, filename) = (content.as_deref(), filename.as_deref());
                self.send_media(&api, acting_as, target, media_kind, source_url, content, filename).await?
            }
            Act::GetChatInfo { chat_id } => {
                let info = ChatInfo { name: chat_id.to_string(), chat_type: "dm".into() };
                ActionResult { chat_info: Some(info), ..ActionResult::done() }.into()
            }
            _ => {
                return Err(ActionResult::refused(
                    Code::UnsupportedOp,
                    format!("WhatsApp does not support {}", action.act.op()),
                ));
            }
        })
    }

    /// As text while the person may be written to, else in the template of the bot, if it has one.
    pub(super) async fn send_text(
        &self,
        api: &Api<'_>,
        bot: &Bot,
        target: Target<'_>,
        content: &str,
    ) -> Result<Acted, ActionResult> {
        let body = one_message(content, MESSAGE_MAX).ok_or_else(|| not_one_message(content))?;
        if self.is_closed(bot, target.to) {
            return match bot.setting("template") {
                Some(template) => send_template(api, bot, target, template, content).await,
                None => Err(ActionResult::refused(
                    Code::Forbidden,
                    format!("{}; nothing was sent", reason(WINDOW_CLOSED, "")),
                )),
            };
        }
        let text = target.message("text", json!({ "body": body, "preview_url": true }));
        let outcome = api.send(&text).await;
        if let Err(error) = &outcome
            && error.code() == Some(WINDOW_CLOSED)
        {
            self.note_closed(bot, target.to);
            if let Some(template) = bot.setting("template") {
                return send_template(api, bot, target, template, content).await;
            }
        }
        Ok(acted(outcome, target.key))
    }

    /// `WhatsApp` shows it as an answer to a message, which is marked as read.
    async fn show_typing(&self, api: &Api<'_>, bot: &Bot, chat_id: &str) -> Result<Acted, ActionResult> {
        let Some(message_id) = self.chats.get(&bot.id, chat_id).and_then(|chat| chat.last_message) else {
            let text = "WhatsApp shows typing only after a message of the person, and this server has seen none lately";
            return Err(ActionResult::refused(Code::NotFound, text));
        };
        let body = json!({
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": message_id,
            "typing_indicator": { "type": "text" },
        });
        Ok(match api.post_status(&body).await {
            Ok(()) => ActionResult::done().into(),
            Err(error) => error.into(),
        })
    }

    pub(super) fn note_closed(&self, bot: &Bot, chat_id: &str) {
        let now_ms = self.env.steady_ms();
        self.chats.change(&bot.id, chat_id, |chat| {
            let mut chat = chat.unwrap_or_default();
            chat.closed_ms = Some(now_ms);
            Some(chat)
        });
    }

    fn is_closed(&self, bot: &Bot, chat_id: &str) -> bool {
        let since = self.chats.get(&bot.id, chat_id).and_then(|chat| chat.closed_ms);
        since.is_some_and(|since_ms| self.env.steady_ms().saturating_sub(since_ms) < CLOSED_TTL_MS)
    }
}

async fn send_template(
    api: &Api<'_>,
    bot: &Bot,
    target: Target<'_>,
    template: &str,
    content: &str,
) -> Result<Acted, ActionResult> {
    let text = parameter(content).ok_or_else(|| {
        let text = format!(
            "the person has not written for 24 hours, and the text does not fit into the template {template:?}, which takes \
             {PARAMETER_MAX} characters; nothing was sent"
        );
        ActionResult::refused(Code::TooLarge, text)
    })?;
    let language = bot.setting("template_language").unwrap_or("en_US");
    let content = json!({
        "name": template,
        "language": { "policy": "deterministic", "code": language },
        "components": [{ "type": "body", "parameters": [{ "type": "text", "text": text }] }],
    });
    Ok(acted(api.send(&target.message("template", content)).await, target.key))
}

pub(super) fn not_one_message(content: &str) -> ActionResult {
    text::not_one_message(is_blank(content), MESSAGE_MAX, "units")
}
