//! Actions of agents: each op as calls of the Web API.

use frontdesk_core::port::platform::{Acted, ActingAs, Bot};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code, MessageId, Secret};
use serde_json::{Map, Value, json};

use super::Slack;
use super::account::{is_id, is_ts};
use super::api::{Api, ApiError};
use super::emoji;
use super::look::info;
use super::prompts::prompt;
use super::received::ResponseUrl;
use super::rich::text_of;
use super::text::{MARKDOWN_MAX, not_one_message, one_message};

const THREAD_NAME_MAX: usize = 300;

/// Where a message goes.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) chat_id: &'a str,
    /// The first message of the thread. A reply alone makes no thread: it would leave the channel.
    pub(super) thread: Option<&'a str>,
}

impl<'a> Target<'a> {
    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    fn of(action: &'a Action, chat_id: &'a str) -> Result<Self, ActionResult> {
        if !is_id(chat_id) {
            let text = format!("{chat_id:?} is not an id of a Slack channel");
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
        let thread = action.meta("thread_id").or_else(|| action.meta("thread_ts"));
        match thread.filter(|thread| !is_ts(thread)) {
            None => Ok(Self { chat_id, thread }),
            Some(thread) => {
                let text = format!("thread_id {thread:?} is not the id of a message of Slack");
                Err(ActionResult::refused(Code::BadRequest, text))
            }
        }
    }

    pub(super) fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("channel".into(), self.chat_id.into());
        if let Some(thread) = self.thread {
            fields.insert("thread_ts".into(), thread.into());
        }
        fields
    }
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn message(id: &str) -> Result<&str, ActionResult> {
    let text = || format!("{id:?} is not the id of a message of Slack, like 1700000000.000100");
    if is_ts(id) { Ok(id) } else { Err(ActionResult::refused(Code::BadRequest, text())) }
}

pub(super) fn sent(outcome: Result<Value, ApiError>) -> Acted {
    match outcome {
        Ok(response) => ActionResult::sent(text_of(&response, "ts")).into(),
        Err(error) => error.into(),
    }
}

fn done(outcome: Result<Value, ApiError>, fine: &[&str]) -> Acted {
    match outcome {
        Ok(_) => ActionResult::done().into(),
        Err(error) if error.is(fine) => ActionResult::done().into(),
        Err(error) => error.into(),
    }
}

impl Slack {
    /// A rate limit applies to this kind of action; other kinds continue.
    pub(super) async fn act_once(
        &self,
        acting_as: ActingAs<'_>,
        action: &Action,
        capability: Option<&Secret>,
    ) -> Acted {
        let acted = self.try_act(acting_as, action, capability).await;
        let mut acted = acted.unwrap_or_else(Acted::from);
        if acted.pace.retry_after_ms.is_some() {
            acted.pace.bucket = super::bucket(action).map(|(name, _)| name);
        }
        acted
    }

    async fn try_act(
        &self,
        acting_as: ActingAs<'_>,
        action: &Action,
        capability: Option<&Secret>,
    ) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        if let Act::FollowUp { content, .. } = &action.act {
            return self.follow_up(bot, content, capability).await;
        }
        let chat_id = action.act.chat();
        let target = Target::of(action, chat_id)?;
        let api = match self.api_for(bot, chat_id, action.meta("scope_id")).await {
            Ok(Some((api, _))) => api,
            Ok(None) => return Err(not_here(bot)),
            Err(error) => return Ok(error.into()),
        };
        Ok(match &action.act {
            Act::Send { content, .. } => self.send(bot, &api, action, target, content, capability).await?,
            Act::Edit { message_id, content, .. } => {
                let mut fields = text_fields(action, content)?;
                fields.insert("channel".into(), chat_id.into());
                fields.insert("ts".into(), message(message_id)?.into());
                // Blocks that are not named would stay, with the buttons of a prompt.
                fields.entry("blocks").or_insert_with(|| json!([]));
                sent(post_text(&api, "chat.update", fields).await)
            }
            Act::Delete { message_id, .. } => {
                let fields = json!({ "channel": chat_id, "ts": message(message_id)? });
                done(api.post("chat.delete", &fields).await, &["message_not_found"])
            }
            Act::Typing { content, .. } => typing(&api, target, content.as_deref()).await?,
            Act::React { message_id, emoji, remove, .. } => {
                let fields =
                    json!({ "channel": chat_id, "timestamp": message(message_id)?, "name": emoji::name(emoji)? });
                match remove {
                    true => done(api.post("reactions.remove", &fields).await, &["no_reaction"]),
                    false => done(api.post("reactions.add", &fields).await, &["already_reacted"]),
                }
            }
            Act::Prompt { prompt_id, content, options, .. } => {
                let (text, blocks) = prompt(prompt_id, content, options)?;
                let mut fields = target.fields();
                fields.insert("text".into(), text.into());
                fields.insert("blocks".into(), blocks.into());
                sent(api.post("chat.postMessage", &Value::Object(fields)).await)
            }
            Act::SendMedia { source_url, content, filename, .. } => {
                let (content, filename) = (content.as_deref(), filename.as_deref());
                self.send_media(bot, &api, acting_as.tenant, target, source_url, content, filename).await?
            }
            // A Slack thread is a message with replies: an existing message, or a new one with the name as its text.
            Act::ThreadCreate { message_id: Some(id), .. } if !id.is_empty() => {
                check_message(&api, chat_id, message(id)?).await?
            }
            Act::ThreadCreate { thread_name, .. } => begin_thread(&api, chat_id, thread_name).await?,
            Act::Draft { draft_id, content, sealed, .. } => {
                self.draft(acting_as, &api, target, draft_id, content, *sealed).await?
            }
            Act::GetChatInfo { .. } => match api.ask("conversations.info", &[("channel", chat_id)]).await {
                Ok(response) => ActionResult { chat_info: Some(chat_info(&response)), ..ActionResult::done() }.into(),
                Err(error) => error.into(),
            },
            Act::ThreadRename { .. } => {
                let text = "Slack threads have no names and cannot be renamed";
                return Err(ActionResult::refused(Code::UnsupportedOp, text));
            }
            Act::FollowUp { .. } => return Err(ActionResult::capability_unavailable()),
        })
    }

    /// A command may be used in a chat that the app is not a member of. The answer then goes to its `response_url`.
    async fn send(
        &self,
        bot: &Bot,
        api: &Api<'_>,
        action: &Action,
        target: Target<'_>,
        content: &str,
        capability: Option<&Secret>,
    ) -> Result<Acted, ActionResult> {
        let mut fields = text_fields(action, content)?;
        fields.extend(target.fields());
        for name in ["unfurl_links", "unfurl_media"] {
            if let Some(value) = action.metadata.get(name).filter(|value| value.is_boolean()) {
                fields.insert(name.into(), value.clone());
            }
        }
        let posted = post_text(api, "chat.postMessage", fields).await;
        let is_elsewhere = posted.as_ref().is_err_and(ApiError::is_absent);
        match capability.filter(|_| is_elsewhere && target.thread.is_none()) {
            None => Ok(sent(posted)),
            Some(_) => self.follow_up(bot, content, capability).await,
        }
    }

    /// The answer to a command, visible to all members of the chat. Slack returns no id of it.
    async fn follow_up(&self, bot: &Bot, content: &str, capability: Option<&Secret>) -> Result<Acted, ActionResult> {
        let url = capability.and_then(|held| ResponseUrl::of(bot, held.expose()));
        let url = url.ok_or_else(ActionResult::capability_unavailable)?;
        let rendered = one_message(content).ok_or_else(|| not_one_message(content))?;
        let body = json!({ "response_type": "in_channel", "replace_original": false, "text": rendered.markup });
        Ok(match url.post(&*self.outcall, &body).await {
            Ok(()) => ActionResult::done().into(),
            Err(error) if error.is(&["expired_url"]) => {
                let text = "Slack takes no more answers to this command: five are possible within 30 minutes";
                ActionResult::refused(Code::CapabilityUnavailable, text).into()
            }
            Err(error) => error.into(),
        })
    }
}

fn not_here(bot: &Bot) -> ActionResult {
    let text = match super::account::workspaces(bot).is_empty() {
        true => format!("bot {:?} has no token: no workspace has installed its app", bot.id),
        false => "the app is not in this chat in any workspace; invite it with /invite".to_owned(),
    };
    ActionResult::refused(Code::NotFound, text)
}

/// Text with markup, and the same as a block where the gateway asks for it.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn text_fields(action: &Action, content: &str) -> Result<Map<String, Value>, ActionResult> {
    let rendered = one_message(content).ok_or_else(|| not_one_message(content))?;
    let mut fields = Map::new();
    fields.insert("text".into(), rendered.markup.into());
    let hints = action.metadata.get("format_hints").unwrap_or(&Value::Null);
    let wants_blocks = match hints {
        Value::Null | Value::Bool(false) => false,
        Value::Array(hints) => !hints.is_empty(),
        Value::Object(hints) => !hints.is_empty(),
        Value::String(hint) => !hint.is_empty(),
        _ => true,
    };
    if wants_blocks && content.chars().count() <= MARKDOWN_MAX {
        fields.insert("blocks".into(), json!([{ "type": "markdown", "text": content }]));
    }
    Ok(fields)
}

/// If Slack does not take the blocks, nothing was sent, and it goes out as text with markup.
pub(super) async fn post_text(api: &Api<'_>, method: &str, mut fields: Map<String, Value>) -> Result<Value, ApiError> {
    let has_blocks = fields.get("blocks").and_then(Value::as_array).is_some_and(|blocks| !blocks.is_empty());
    let posted = api.post(method, &Value::Object(fields.clone())).await;
    match posted {
        Err(error) if has_blocks && error.is(&["invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long"]) => {
            tracing::warn!(error = error.text(), "Slack did not accept the blocks of a message; it is sent as text");
            fields.insert("blocks".into(), json!([]));
            api.post(method, &Value::Object(fields)).await
        }
        posted => posted,
    }
}

/// The status line of a thread. It stays until the app writes there, or for two minutes.
async fn typing(api: &Api<'_>, target: Target<'_>, content: Option<&str>) -> Result<Acted, ActionResult> {
    let Some(thread) = target.thread else {
        let text = "Slack shows a typing status only in threads";
        return Err(ActionResult::refused(Code::UnsupportedOp, text));
    };
    let status: String = content.unwrap_or("is typing...").chars().take(100).collect();
    let fields = json!({ "channel_id": target.chat_id, "thread_ts": thread, "status": status });
    Ok(done(api.post("assistant.threads.setStatus", &fields).await, &[]))
}

/// Only an existing message can have a thread.
async fn check_message(api: &Api<'_>, chat_id: &str, ts: &str) -> Result<Acted, ActionResult> {
    let fields = [("channel", chat_id), ("ts", ts), ("limit", "1")];
    Ok(match api.ask("conversations.replies", &fields).await {
        Ok(_) => ActionResult { thread_id: Some(ts.to_owned()), ..ActionResult::done() }.into(),
        Err(error) => error.into(),
    })
}

async fn begin_thread(api: &Api<'_>, chat_id: &str, name: &str) -> Result<Acted, ActionResult> {
    let name: String = name.trim().chars().take(THREAD_NAME_MAX).collect();
    if name.is_empty() {
        return Err(ActionResult::refused(Code::BadRequest, "the name of the thread is empty"));
    }
    let fields = json!({ "channel": chat_id, "text": super::text::escaped(&name) });
    Ok(match api.post("chat.postMessage", &fields).await {
        Ok(response) => {
            let ts = text_of(&response, "ts").to_owned();
            ActionResult { thread_id: Some(ts.clone()), ..ActionResult::sent(ts) }.into()
        }
        Err(error) => error.into(),
    })
}

fn chat_info(response: &Value) -> ChatInfo {
    info(&response["channel"])
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
