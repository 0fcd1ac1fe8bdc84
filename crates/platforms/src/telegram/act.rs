//! Actions of agents: each op as calls of the Bot API.

use frontdesk_core::intake::Receipt;
use frontdesk_core::port::platform::{Acted, ActingAs, Bot};
use frontdesk_wire::action::{PromptOption, prompt_token};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{Api, ApiError};
use super::normalize::Pressed;
use super::text::{MESSAGE_MAX, is_blank, one_message, parts};
use super::update::Chat;
use super::{GENERAL_TOPIC, PLATFORM, Telegram, is_group};
use crate::shared::markdown::literal;
use crate::shared::missing_bot;
use crate::shared::text;

/// More options are shown as a numbered list.
const BUTTONS_MAX: usize = 32;
/// Labels that are not longer share a row.
const SHORT_LABEL_CHARS: usize = 12;
const ROW_MAX: usize = 3;

/// Emoji that bots may react with.
const REACTIONS: &str = "👍 👎 ❤ 🔥 🥰 👏 😁 🤔 🤯 😱 🤬 😢 🎉 🤩 🤮 💩 🙏 👌 🕊 🤡 🥱 🥴 😍 🐳 ❤‍🔥 🌚 🌭 💯 🤣 ⚡ 🍌 🏆 💔 🤨 😐 🍓 🍾 💋 🖕 😈 😴 😭 🤓 \
    👻 👨‍💻 👀 🎃 🙈 😇 😨 🤝 ✍ 🤗 🫡 🎅 🎄 ☃ 💅 🤪 🗿 🆒 💘 🙉 🦄 😘 💊 🙊 😎 👾 🤷‍♂ 🤷 🤷‍♀ 😡";
/// What agents use to show their progress, and the nearest reaction that there is.
const NEAREST: &[(&str, &str)] =
    &[("✅", "👍"), ("☑", "👍"), ("❌", "👎"), ("⏳", "👀"), ("⌛", "👀"), ("🤖", "👾"), ("⚠", "🤔"), ("🚀", "🔥")];

#[derive(Deserialize)]
pub(super) struct Sent {
    message_id: i64,
}

impl Sent {
    pub(super) fn id(&self) -> String {
        self.message_id.to_string()
    }
}

/// Where a message goes.
pub(super) struct Target<'a> {
    chat_id: &'a str,
    /// The topic of a forum.
    thread: Option<i64>,
    reply_to: Option<i64>,
}

impl<'a> Target<'a> {
    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    pub(super) fn of(action: &'a Action, chat_id: &'a str, reply_to: Option<&str>) -> Result<Self, ActionResult> {
        let thread_id = action.meta("thread_id");
        let thread = match thread_id.filter(|id| *id != GENERAL_TOPIC) {
            None => None,
            Some(id) => {
                let bad = |_| ActionResult::refused(Code::BadRequest, format!("thread_id {id:?} is not a topic"));
                Some(id.parse().map_err(bad)?)
            }
        };
        // In a topic a reply would leave it if the message is of another one.
        let reply_to = reply_to.filter(|_| thread_id.is_none()).and_then(|id| id.parse().ok());
        Ok(Self { chat_id, thread, reply_to })
    }

    pub(super) fn parameters(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("chat_id".into(), chat(self.chat_id));
        if let Some(thread) = self.thread {
            fields.insert("message_thread_id".into(), thread.into());
        }
        if let Some(message_id) = self.reply_to {
            let reply = json!({ "message_id": message_id, "allow_sending_without_reply": true });
            fields.insert("reply_parameters".into(), reply);
        }
        fields
    }
}

/// Ids of chats are numbers; `@name` is a public channel.
fn chat(id: &str) -> Value {
    id.parse::<i64>().map_or_else(|_| id.into(), Value::from)
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn message(id: &str) -> Result<i64, ActionResult> {
    id.parse().map_err(|_| ActionResult::refused(Code::BadRequest, format!("{id:?} is not a message id of {PLATFORM}")))
}

fn is_parse_error(error: &ApiError) -> bool {
    error.code() == Some(400) && error.says(&["can't parse entities", "can't parse caption entities"])
}

fn sent(outcome: Result<Sent, ApiError>) -> Acted {
    match outcome {
        Ok(sent) => ActionResult::sent(sent.id()).into(),
        Err(error) => error.into(),
    }
}

fn done(outcome: Result<Value, ApiError>, fine: &[&str]) -> Acted {
    match outcome {
        Ok(_) => ActionResult::done().into(),
        Err(error) if error.says(fine) => ActionResult::done().into(),
        Err(error) => error.into(),
    }
}

impl Telegram {
    /// A rate limit applies to the chat; other chats continue.
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        let mut acted = self.try_act(acting_as, action).await.unwrap_or_else(Acted::from);
        if acted.pace.retry_after_ms.is_some() {
            acted.pace.bucket = action.act.chat_id().map(|id| chat_bucket(id));
        }
        acted
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let api = self.api(bot)?;
        Ok(match &action.act {
            Act::Send { chat_id, content, reply_to } => {
                let target = Target::of(action, chat_id, reply_to.as_deref())?;
                sent(send_text(&api, "sendMessage", target.parameters(), content).await?)
            }
            Act::Edit { chat_id, message_id, content } => edit(&api, chat_id, message_id, content).await?,
            Act::Delete { chat_id, message_id } => {
                let fields = json!({ "chat_id": chat(chat_id), "message_id": message(message_id)? });
                done(api.call("deleteMessage", &fields).await, &["message to delete not found", "message_id_invalid"])
            }
            Act::Typing { content, .. } if content.as_deref() == Some("") => ActionResult::done().into(),
            Act::Typing { chat_id, .. } => {
                let mut fields = Target::of(action, chat_id, None)?.parameters();
                if action.meta("thread_id") == Some(GENERAL_TOPIC) {
                    fields.insert("message_thread_id".into(), 1.into()); // only here: otherwise users do not see it
                }
                fields.insert("action".into(), "typing".into());
                done(api.call("sendChatAction", &Value::Object(fields)).await, &[])
            }
            Act::React { chat_id, message_id, emoji, remove } => {
                react(&api, chat_id, message_id, emoji, *remove).await?
            }
            Act::Prompt { chat_id, prompt_id, content, options, reply_to, .. } => {
                let target = Target::of(action, chat_id, reply_to.as_deref())?;
                prompt(&api, target, prompt_id, content, options).await?
            }
            Act::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to } => {
                let target = Target::of(action, chat_id, reply_to.as_deref())?;
                let (content, filename) = (content.as_deref(), filename.as_deref());
                self.send_media(&api, acting_as.tenant, target, media_kind, source_url, content, filename).await?
            }
            Act::ThreadRename { only_if_current_name: Some(_), .. }
            | Act::ThreadRename { only_if_connector_created: true, .. } => {
                let text =
                    "Telegram reports neither the name nor the creator of a topic, so a guarded rename is not possible";
                return Err(ActionResult::refused(Code::Conflict, text));
            }
            Act::ThreadCreate { .. } | Act::ThreadRename { .. } if topic_is_blank(&action.act) => {
                return Err(ActionResult::refused(Code::BadRequest, "the name of the topic is empty"));
            }
            Act::ThreadCreate { chat_id, thread_name, .. } => create_topic(&api, chat_id, thread_name).await,
            Act::ThreadRename { chat_id, message_id, thread_name, .. } => {
                let fields = json!({
                    "chat_id": chat(chat_id),
                    "message_thread_id": message(message_id)?,
                    "name": topic_name(thread_name),
                });
                done(api.call("editForumTopic", &fields).await, &["topic_not_modified"])
            }
            Act::Draft { chat_id, draft_id, content, sealed } => {
                draft(&api, action, chat_id, draft_id, content, *sealed).await?
            }
            Act::GetChatInfo { chat_id } => {
                match api.call::<Chat>("getChat", &json!({ "chat_id": chat(chat_id) })).await {
                    Ok(found) => ActionResult { chat_info: Some(info(&found)), ..ActionResult::done() }.into(),
                    Err(error) => error.into(),
                }
            }
            Act::FollowUp { .. } => return Err(ActionResult::capability_unavailable()),
        })
    }

    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    pub(super) fn api<'a>(&'a self, bot: &'a Bot) -> Result<Api<'a>, ActionResult> {
        Api::of(&*self.outcall, bot).ok_or_else(|| missing_bot::refused(bot))
    }

    /// The query of a button must be answered, or the button keeps spinning. The prompt is closed once a press was
    /// delivered.
    pub(super) async fn answer_press(&self, api: &Api<'_>, pressed: &Pressed, receipt: Option<&Receipt>) {
        let answered: Result<Value, ApiError> = api.call("answerCallbackQuery", &press_answer(pressed, receipt)).await;
        if let Err(error) = answered {
            tracing::debug!(error = error.text(), "answering a button failed");
        }
        if let (true, Some((chat_id, message_id))) = (is_delivered(receipt), pressed.prompt) {
            let fields = json!({ "chat_id": chat_id, "message_id": message_id });
            let closed: Result<Value, ApiError> = api.call("editMessageReplyMarkup", &fields).await;
            if let Err(error) = closed {
                tracing::debug!(error = error.text(), "removing the buttons of an answered prompt failed");
            }
        }
    }
}

fn is_delivered(receipt: Option<&Receipt>) -> bool {
    receipt.is_some_and(|receipt| receipt.verdict.outcome == "delivered")
}

/// The note for the user who pressed.
pub(super) fn press_answer(pressed: &Pressed, receipt: Option<&Receipt>) -> Value {
    let text = match receipt {
        Some(_) if is_delivered(receipt) => "",
        Some(receipt) => receipt.verdict.text.as_str(),
        None => "This button no longer works. Ask the agent again.",
    };
    let text: String = text.chars().take(200).collect();
    json!({ "callback_query_id": pressed.query_id, "text": text })
}

/// The rate limit of a chat, by name.
pub(super) fn chat_bucket(chat_id: &str) -> String {
    format!("chat:{chat_id}")
}

pub(super) fn info(found: &Chat) -> ChatInfo {
    ChatInfo { name: found.name().unwrap_or_else(|| found.id.to_string()), chat_type: found.type_name().into() }
}

/// With markup. If the Bot API does not accept the markup, nothing was sent, and it goes out as plain text.
async fn send_text(
    api: &Api<'_>,
    method: &str,
    mut fields: Map<String, Value>,
    content: &str,
) -> Result<Result<Sent, ApiError>, ActionResult> {
    let Some(rendered) = one_message(content, MESSAGE_MAX) else { return Err(not_one_message(content)) };
    fields.insert("text".into(), rendered.markup.into());
    fields.insert("parse_mode".into(), "MarkdownV2".into());
    let first = api.call(method, &Value::Object(fields.clone())).await;
    let Err(error) = &first else { return Ok(first) };
    if is_parse_error(error) {
        tracing::warn!(
            error = error.text(),
            "Telegram did not accept the markup of a message; it is sent as plain text"
        );
        fields.remove("parse_mode");
        fields.insert("text".into(), rendered.plain.into());
        return Ok(api.call(method, &Value::Object(fields)).await);
    }
    if let ApiError::Refused { migrate_to: Some(to), .. } = error {
        fields.insert("chat_id".into(), (*to).into());
        return Ok(api.call(method, &Value::Object(fields)).await);
    }
    Ok(first)
}

/// Without markup, for what follows a file.
pub(super) async fn send_plainly(api: &Api<'_>, target: &Target<'_>, text: &str) -> Result<(), ApiError> {
    let mut fields = target.parameters();
    fields.insert("text".into(), text.into());
    api.call::<Sent>("sendMessage", &Value::Object(fields)).await.map(drop)
}

fn not_one_message(content: &str) -> ActionResult {
    text::not_one_message(is_blank(content), MESSAGE_MAX, "units")
}

async fn edit(api: &Api<'_>, chat_id: &str, message_id: &str, content: &str) -> Result<Acted, ActionResult> {
    let mut fields = Map::new();
    fields.insert("chat_id".into(), chat(chat_id));
    fields.insert("message_id".into(), message(message_id)?.into());
    let edited = send_text(api, "editMessageText", fields, content).await?;
    Ok(match edited {
        Err(error) if error.says(&["message is not modified"]) => ActionResult::sent(message_id).into(),
        edited => sent(edited),
    })
}

async fn react(
    api: &Api<'_>,
    chat_id: &str,
    message_id: &str,
    emoji: &str,
    remove: bool,
) -> Result<Acted, ActionResult> {
    // The list is written without the selector of the coloured form.
    let plain = emoji.replace('\u{fe0f}', "");
    let nearest = NEAREST.iter().find(|(known, _)| *known == plain).map(|(_, nearest)| *nearest);
    let known = REACTIONS.split_whitespace().find(|known| *known == plain).or(nearest);
    let reaction = match (remove, known) {
        (true, _) => json!([]),
        (false, Some(emoji)) => json!([{ "type": "emoji", "emoji": emoji }]),
        (false, None) => {
            let text = format!("Telegram has no reaction {emoji:?}; it has 👍 👎 ❤ 🔥 👏 🤔 🎉 🙏 👌 💯 👀 and others");
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
    };
    let fields = json!({ "chat_id": chat(chat_id), "message_id": message(message_id)?, "reaction": reaction });
    Ok(done(api.call("setMessageReaction", &fields).await, &["message is not modified"]))
}

async fn prompt(
    api: &Api<'_>,
    target: Target<'_>,
    prompt_id: &str,
    content: &str,
    options: &[PromptOption],
) -> Result<Acted, ActionResult> {
    let mut fields = target.parameters();
    let mut text = if content.trim().is_empty() { "?".to_owned() } else { content.to_owned() };
    if options.len() > BUTTONS_MAX {
        for (number, option) in options.iter().enumerate() {
            text.push_str(&format!("\n{}. {} (/{})", number + 1, literal(&option.label), option.id));
        }
    } else {
        fields.insert("reply_markup".into(), json!({ "inline_keyboard": keyboard(prompt_id, options) }));
    }
    Ok(sent(send_text(api, "sendMessage", fields, &text).await?))
}

fn keyboard(prompt_id: &str, options: &[PromptOption]) -> Vec<Vec<Value>> {
    let are_short = options.iter().all(|option| option.label.chars().count() <= SHORT_LABEL_CHARS);
    let button = |option: &PromptOption| {
        let label = if option.label.trim().is_empty() { &option.id } else { &option.label };
        json!({ "text": label, "callback_data": prompt_token(prompt_id, &option.id) })
    };
    options.chunks(if are_short { ROW_MAX } else { 1 }).map(|row| row.iter().map(button).collect()).collect()
}

fn topic_is_blank(act: &Act) -> bool {
    match act {
        Act::ThreadCreate { thread_name, .. } | Act::ThreadRename { thread_name, .. } => thread_name.trim().is_empty(),
        _ => false,
    }
}

fn topic_name(name: &str) -> String {
    name.chars().take(128).collect()
}

#[derive(Deserialize)]
struct Topic {
    message_thread_id: i64,
}

async fn create_topic(api: &Api<'_>, chat_id: &str, name: &str) -> Acted {
    let fields = json!({ "chat_id": chat(chat_id), "name": topic_name(name) });
    match api.call::<Topic>("createForumTopic", &fields).await {
        Ok(topic) => {
            ActionResult { thread_id: Some(topic.message_thread_id.to_string()), ..ActionResult::done() }.into()
        }
        Err(error) => error.into(),
    }
}

/// A preview in a private chat, which disappears when the message itself is sent. The final text is a message of its own.
async fn draft(
    api: &Api<'_>,
    action: &Action,
    chat_id: &str,
    draft_id: &str,
    content: &str,
    sealed: bool,
) -> Result<Acted, ActionResult> {
    let target = Target::of(action, chat_id, None)?;
    if sealed {
        return final_text(api, &target, content).await;
    }
    if is_group(chat_id) {
        return Err(ActionResult::refused(Code::UnsupportedOp, "Telegram shows drafts in private chats only"));
    }
    // The preview of a long text is its first part; the message itself comes whole.
    let first = parts(content).into_iter().next().unwrap_or_default();
    let Some(rendered) = one_message(&first, MESSAGE_MAX) else { return Err(not_one_message(&first)) };
    let mut fields = target.parameters();
    fields.insert("draft_id".into(), draft_number(draft_id).into());
    fields.insert("text".into(), rendered.plain.into());
    Ok(done(api.call("sendMessageDraft", &Value::Object(fields)).await, &[]))
}

/// The final text of a draft, in parts if it is long.
async fn final_text(api: &Api<'_>, target: &Target<'_>, content: &str) -> Result<Acted, ActionResult> {
    let texts = parts(content);
    let mut first: Option<String> = None;
    for (index, text) in texts.iter().enumerate() {
        let acted = sent(send_text(api, "sendMessage", target.parameters(), text).await?);
        match (&first, acted.result.success) {
            (None, true) => first = acted.result.message_id.map(Into::into),
            (Some(_), true) => {}
            (None, false) => return Ok(acted),
            (Some(id), false) => return Ok(acted.partial(id, &format!("{index} of {} parts went out", texts.len()))),
        }
    }
    first.map(|id| ActionResult::sent(id).into()).ok_or_else(|| not_one_message(content))
}

/// Some parts were sent: that is reported, and the action is not retried as a whole.
pub(super) trait Partial {
    fn partial(self, message_id: &str, what: &str) -> Self;
}

impl Partial for Acted {
    fn partial(mut self, message_id: &str, what: &str) -> Self {
        let why = self.result.error.take().unwrap_or_default();
        self.result.code = Some(Code::Partial);
        self.result.message_id = Some(message_id.into());
        self.result.error = Some(format!("{what}, then: {why}"));
        self.result = self.result.worded();
        self.pace.retry_after_ms = None;
        self
    }
}

/// Drafts have numbers other than 0 there.
fn draft_number(draft_id: &str) -> i64 {
    let hashed = || {
        let bytes = frontdesk_core::short_hash(&[draft_id]);
        bytes.iter().take(4).fold(0_i64, |number, byte| number << 8 | i64::from(*byte))
    };
    draft_id.parse().ok().filter(|number| *number != 0).unwrap_or_else(|| hashed().max(1))
}
