//! Sending a message: into a chat, as an answer, or into a topic.

use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Acted, ActingAs};
use frontdesk_wire::{Action, ActionResult, Code, MessageId};
use serde_json::{Map, Value, json};

use super::Feishu;
use super::account::{is_id, is_message};
use super::api::Api;
use super::failure::ApiError;
use super::refusals::OF_ANCHOR;
use super::text::Outgoing;
use super::value::{list_of, text_of};

/// Where a message goes.
#[derive(Clone, Copy)]
pub(super) struct SendTarget<'a> {
    pub(super) chat_id: &'a str,
    /// A topic, or the first message of one.
    pub(super) thread: Option<&'a str>,
    /// The message that the gateway answers in the topic.
    anchor: Option<&'a str>,
}

impl<'a> SendTarget<'a> {
    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    pub(super) fn of(action: &'a Action, chat_id: &'a str) -> Result<Self, ActionResult> {
        let thread = action.meta("thread_id");
        if let Some(odd) = thread.filter(|thread| !is_id(thread)) {
            let text = format!("thread_id {odd:?} is not the id of a topic of Feishu, like omt_...");
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
        let anchor = action.meta("reply_to_message_id").filter(|id| is_message(id));
        Ok(Self { chat_id, thread, anchor })
    }
}

/// What was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) message_id: Option<String>,
    pub(super) thread_id: Option<String>,
}

#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    pub(super) feishu: &'a Feishu,
    pub(super) api: Api<'a>,
    pub(super) acting_as: ActingAs<'a>,
    pub(super) place: SendTarget<'a>,
}

impl Sending<'_> {
    pub(super) fn acted(sent: Result<Sent, ApiError>) -> Acted {
        match sent {
            Ok(Sent { message_id, thread_id }) => {
                ActionResult { message_id: message_id.map(MessageId::from), thread_id, ..ActionResult::done() }.into()
            }
            Err(error) => error.into(),
        }
    }

    /// If Feishu does not take the rich text, nothing was sent, and it goes out without markup.
    pub(super) async fn post_text(&self, out: &Outgoing, reply_to: Option<&str>) -> Result<Sent, ApiError> {
        match self.post(out.kind, &out.content, reply_to).await {
            Err(error) if out.kind == "post" && error.is(&[230_001, 230_099]) => {
                tracing::warn!(error = error.text(), "Feishu did not accept rich text; it is sent as text");
                self.post("text", &out.plain, reply_to).await
            }
            sent => sent,
        }
    }

    /// In a topic it is an answer to a message there. An answer to a message that is gone goes into the chat, but never out of
    /// its topic.
    pub(super) async fn post(&self, kind: &str, content: &str, reply_to: Option<&str>) -> Result<Sent, ApiError> {
        let SendTarget { thread, anchor, .. } = self.place;
        let (bot, now_ms) = (self.api.bot, self.feishu.env.steady_ms());
        if let Some(thread) = thread {
            self.check_here(thread).await?;
        }
        let named = reply_to.filter(|id| is_message(id)).or_else(|| anchor.filter(|_| thread.is_some()));
        let remembered =
            thread.and_then(|thread| self.feishu.anchors.get(&(bot.id.clone(), thread.to_owned()), now_ms));
        let first = thread.filter(|thread| is_message(thread)).map(str::to_owned);
        let candidates =
            named.map(str::to_owned).into_iter().chain(first).chain(remembered.filter(|_| named.is_none()));
        let mut gone = None;
        for id in candidates {
            match self.check_here(&id).await {
                Ok(()) => match self.reply(&id, thread.is_some(), kind, content).await {
                    Err(error) if error.is(&OF_ANCHOR) => gone = Some(error),
                    sent => return sent,
                },
                // It is gone, or Feishu does not say where it is.
                Err(error @ (ApiError::Refused { .. } | ApiError::Absent)) => gone = Some(error),
                Err(error) => return Err(error),
            }
        }
        match (thread, gone) {
            // There is no other way into a topic that begins with this message.
            (Some(thread), Some(error)) if is_message(thread) => Err(error),
            _ => self.create(kind, content).await,
        }
    }

    /// Feishu takes ids of messages and topics without a chat: an agent could name one of a chat that is not its own.
    pub(super) async fn check_here(&self, id: &str) -> Result<(), ApiError> {
        let (key, now_ms) = ((self.api.bot.id.clone(), id.to_owned()), self.feishu.env.steady_ms());
        let known = self.feishu.places.get(&key, now_ms);
        let chat = if let Some(chat) = known {
            chat
        } else {
            let chat = self.ask_chat(id).await?;
            self.feishu.places.put(key, chat.clone(), now_ms);
            chat
        };
        if chat == self.place.chat_id { Ok(()) } else { Err(ApiError::Elsewhere) }
    }

    async fn ask_chat(&self, id: &str) -> Result<String, ApiError> {
        let path = match is_message(id) {
            true => format!("/open-apis/im/v1/messages/{id}"),
            false => format!("/open-apis/im/v1/messages?container_id_type=thread&container_id={id}&page_size=1"),
        };
        let response = self.api.ask(&path).await?;
        let chat = list_of(&response, "items").first().map(|item| text_of(item, "chat_id")).filter(|chat| is_id(chat));
        chat.map(str::to_owned).ok_or(ApiError::Absent)
    }

    pub(super) async fn reply(&self, id: &str, in_thread: bool, kind: &str, content: &str) -> Result<Sent, ApiError> {
        let mut fields = self.fields(kind, content);
        fields.insert("reply_in_thread".into(), in_thread.into());
        self.sent(&format!("/open-apis/im/v1/messages/{id}/reply"), fields).await
    }

    pub(super) async fn withdraw(&self, id: &str) -> Result<Value, ApiError> {
        self.check_here(id).await?;
        self.api.call(HttpMethod::Delete, &format!("/open-apis/im/v1/messages/{id}"), None).await
    }

    /// Into the chat, or into its topic.
    pub(super) async fn create(&self, kind: &str, content: &str) -> Result<Sent, ApiError> {
        let SendTarget { chat_id, thread, .. } = self.place;
        if let Some(thread) = thread {
            self.check_here(thread).await?;
        }
        let (id, id_type) = match thread.filter(|thread| !is_message(thread)) {
            Some(thread) => (thread, "thread_id"),
            None if chat_id.starts_with("ou_") => (chat_id, "open_id"),
            None => (chat_id, "chat_id"),
        };
        let mut fields = self.fields(kind, content);
        fields.insert("receive_id".into(), id.into());
        self.sent(&format!("/open-apis/im/v1/messages?receive_id_type={id_type}"), fields).await
    }

    async fn sent(&self, path: &str, fields: Map<String, Value>) -> Result<Sent, ApiError> {
        let response = self.api.post(path, &Value::Object(fields)).await?;
        let of = |name: &str| Some(text_of(&response, name).to_owned()).filter(|id| !id.is_empty());
        let sent = Sent { message_id: of("message_id"), thread_id: of("thread_id") };
        let chat = of("chat_id").unwrap_or_else(|| self.place.chat_id.to_owned());
        for id in [&sent.message_id, &sent.thread_id].into_iter().flatten() {
            let key = (self.api.bot.id.clone(), id.clone());
            self.feishu.places.put(key, chat.clone(), self.feishu.env.steady_ms());
        }
        if let (Some(thread), Some(id)) = (&sent.thread_id, &sent.message_id) {
            let key = (self.api.bot.id.clone(), thread.clone());
            self.feishu.anchors.put(key, id.clone(), self.feishu.env.steady_ms());
        }
        Ok(sent)
    }

    /// With the mark by which Feishu knows for an hour that it has sent this already.
    fn fields(&self, kind: &str, content: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("msg_type".into(), kind.into());
        fields.insert("content".into(), content.into());
        if let Some(key) = self.acting_as.idempotency_key {
            let mark = frontdesk_core::short_hash(&[&self.api.bot.id, key, kind, content]);
            fields.insert("uuid".into(), json!(hex::encode(mark)));
        }
        fields
    }
}

/// Some parts were sent: that is reported, and the action is not retried as a whole.
pub(super) fn partial(mut acted: Acted, message_id: Option<&str>, what: &str) -> Acted {
    let why = acted.result.error.take().unwrap_or_default();
    acted.result.code = Some(Code::Partial);
    acted.result.message_id = message_id.map(MessageId::from);
    acted.result.error = Some(format!("{what}, then: {why}"));
    acted.result = acted.result.worded();
    acted.pace.retry_after_ms = None;
    acted
}
