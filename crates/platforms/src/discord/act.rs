//! Actions of agents.

use frontdesk_core::port::outcall::{HttpMethod, Part, PartValue};
use frontdesk_core::port::platform::{Acted, ActingAs, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code, Secret, TenantId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{Answered, Api, ApiError, WHOLE_BOT};
use super::interactions::PRESS;
use super::places::{Channel, PRIVATE_THREAD};
use super::prompts::prompt;
use super::snowflake::is_id;
use super::text::{allowed_mentions, is_blank, not_one_message, rendered};
use super::{Discord, PLATFORM};
use crate::shared::missing_bot;
use crate::shared::source_file::SourceFile;

/// Upload limit of a Discord server without boosts.
const UPLOAD_MAX_BYTES: usize = 10 << 20;
const DOWNLOAD_MAX_BYTES: usize = 25 << 20;
const THREAD_NAME_MAX: usize = 100;
const PUBLIC_THREAD: u8 = 11;
/// Minutes without a message after which Discord archives a thread.
const ARCHIVE_AFTER_MIN: u32 = 1_440;

#[derive(Deserialize)]
pub(super) struct Sent {
    pub(super) id: String,
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn id(given: &str, what: &str) -> Result<String, ActionResult> {
    match is_id(given) {
        true => Ok(given.to_owned()),
        false => Err(ActionResult::refused(
            Code::BadRequest,
            format!("{given:?} is not a Discord {what} id; it must be a number such as 1100000000000000101"),
        )),
    }
}

pub(super) fn paced<T>(outcome: Result<Answered<T>, ApiError>, result: impl FnOnce(T) -> ActionResult) -> Acted {
    match outcome {
        Ok(Answered { value, pause_ms, bucket }) => {
            let mut acted = Acted::from(result(value));
            (acted.pace.pause_ms, acted.pace.bucket) = (pause_ms, bucket);
            acted
        }
        Err(error) => error.into(),
    }
}

/// At most 25 characters. Discord answers with the first message if the same nonce comes again within minutes.
fn nonce(key: &str) -> String {
    hex::encode(&frontdesk_core::short_hash(&[key])[..12])
}

impl Discord {
    /// A rate limit applies to the channel of the action, unless Discord says that it is global.
    pub(super) async fn act_once(
        &self,
        acting_as: ActingAs<'_>,
        action: &Action,
        capability: Option<&Secret>,
    ) -> Acted {
        let Some(api) = self.api(acting_as.bot) else {
            return missing_bot::refused(acting_as.bot).into();
        };
        let (bot, now_ms) = (&acting_as.bot.id, self.env.steady_ms());
        let place = self.buckets.of(bot, action);
        if self.forbidden.is(bot, &place, now_ms) {
            let text = "Discord refused this here a moment ago, because the bot lacks a permission; nothing was sent";
            return ActionResult::refused(Code::Forbidden, text).into();
        }
        let mut acted = self.try_act(&api, acting_as, action, capability).await.unwrap_or_else(|refused| refused);
        if acted.result.code == Some(Code::Forbidden) {
            self.forbidden.note(bot, &place, now_ms);
        }
        let is_paused = acted.pace.retry_after_ms.is_some() || acted.pace.pause_ms.is_some();
        let bucket = acted.pace.bucket.take();
        let is_of_bot = bucket.as_deref() == Some(WHOLE_BOT);
        if let Some(name) = bucket.filter(|_| !is_of_bot) {
            self.buckets.learn(&acting_as.bot.id, action, &name);
        }
        acted.pace.bucket = (is_paused && !is_of_bot).then(|| self.buckets.of(&acting_as.bot.id, action));
        acted
    }

    async fn try_act(
        &self,
        api: &Api<'_>,
        acting_as: ActingAs<'_>,
        action: &Action,
        capability: Option<&Secret>,
    ) -> Result<Acted, Acted> {
        if let Act::FollowUp { content, .. } = &action.act {
            return self.follow_up(acting_as.bot, content, capability).await;
        }
        let channel = self.target(acting_as.bot, action).await?;
        Ok(match &action.act {
            Act::Send { content, reply_to, chat_id } => {
                // A message to a thread of the chat is not the answer to a command that was used in the chat itself.
                let held = capability.filter(|_| *channel == **chat_id);
                if let Some(acted) = self.answer(acting_as.bot, content, reply_to.as_deref(), held).await {
                    return acted;
                }
                let body = message(content, reply_to.as_deref(), acting_as.idempotency_key)?;
                let path = format!("/channels/{channel}/messages");
                paced(api.send::<Sent>(HttpMethod::Post, &path, &Value::Object(body)).await, |it| {
                    ActionResult::sent(it.id)
                })
            }
            Act::Edit { message_id, content, .. } => {
                let Some(text) = rendered(content) else { return Err(not_one_message(content).into()) };
                let path = format!("/channels/{channel}/messages/{}", id(message_id, "message")?);
                let body = json!({ "content": text, "allowed_mentions": allowed_mentions() });
                paced(api.send::<Sent>(HttpMethod::Patch, &path, &body).await, |it| ActionResult::sent(it.id))
            }
            Act::Delete { message_id, .. } => {
                let path = format!("/channels/{channel}/messages/{}", id(message_id, "message")?);
                done_if_absent(api.bare(HttpMethod::Delete, &path).await)
            }
            Act::Typing { content, .. } if content.as_deref() == Some("") => ActionResult::done().into(),
            Act::Typing { .. } => {
                paced(api.bare(HttpMethod::Post, &format!("/channels/{channel}/typing")).await, |_| {
                    ActionResult::done()
                })
            }
            Act::React { message_id, emoji, remove, .. } => {
                let (message_id, emoji) = (id(message_id, "message")?, encoded(emoji)?);
                let path = format!("/channels/{channel}/messages/{message_id}/reactions/{emoji}/@me");
                match remove {
                    true => done_if_absent(api.bare(HttpMethod::Delete, &path).await),
                    false => paced(api.bare(HttpMethod::Put, &path).await, |_| ActionResult::done()),
                }
            }
            Act::SendMedia { source_url, content, filename, reply_to, .. } => {
                let (reply_to, key) = (reply_to.as_deref(), acting_as.idempotency_key);
                let body = match content.as_deref().filter(|text| !is_blank(text)) {
                    Some(text) => message(text, reply_to, key)?,
                    None => empty(reply_to, key)?,
                };
                self.send_media(api, acting_as.tenant, &channel, source_url, filename.as_deref(), body).await?
            }
            Act::ThreadCreate { thread_name, message_id, .. } => {
                create_thread(api, &channel, thread_name, message_id.as_deref()).await?
            }
            Act::ThreadRename { message_id, chat_id, .. } => {
                let thread = self.thread_in(acting_as.bot, chat_id, message_id).await?;
                rename(self, api, acting_as.bot, &thread, &action.act).await?
            }
            Act::GetChatInfo { chat_id } => match self.channel(acting_as.bot, chat_id).await {
                Ok(Some(found)) => {
                    let name = found.name.clone().unwrap_or_else(|| found.id.clone());
                    let info = ChatInfo { name, chat_type: found.type_name().into() };
                    ActionResult { chat_info: Some(info), ..ActionResult::done() }.into()
                }
                Ok(None) => {
                    ActionResult::refused(Code::NotFound, "there is no such channel, or the bot may not see it").into()
                }
                Err(error) => error.into(),
            },
            Act::Prompt { prompt_id, content, options, reply_to, .. } => {
                let (text, rows) = prompt(prompt_id, content, options)?;
                let mut body = message(&text, reply_to.as_deref(), acting_as.idempotency_key)?;
                body.insert("components".into(), rows.into());
                let path = format!("/channels/{channel}/messages");
                paced(api.send::<Sent>(HttpMethod::Post, &path, &Value::Object(body)).await, |it| {
                    ActionResult::sent(it.id)
                })
            }
            Act::Draft { .. } | Act::FollowUp { .. } => {
                let text = "Discord does not support this here";
                return Err(ActionResult::refused(Code::UnsupportedOp, text).into());
            }
        })
    }

    /// The channel that an action goes to. The server has checked that the agent may write to the chat; a thread must be
    /// one of that chat.
    async fn target(&self, bot: &Bot, action: &Action) -> Result<String, Acted> {
        let chat_id = id(action.act.chat(), "channel")?;
        match action.meta("thread_id").filter(|thread| !thread.is_empty()) {
            Some(thread) => self.thread_in(bot, &chat_id, thread).await,
            None => Ok(chat_id),
        }
    }

    /// The id of a thread of this channel, or of the thread itself. Access to a channel does not give access to its
    /// private threads.
    async fn thread_in(&self, bot: &Bot, chat_id: &str, thread: &str) -> Result<String, Acted> {
        let thread = id(thread, "thread")?;
        if thread == chat_id {
            return Ok(thread);
        }
        match self.channel(bot, &thread).await {
            Ok(Some(found)) if found.parent() == Some(chat_id) && found.kind != PRIVATE_THREAD => Ok(thread),
            Ok(_) => Err(ActionResult::egress_declined(PLATFORM).into()),
            Err(error) => Err(error.into()),
        }
    }

    async fn send_media(
        &self,
        api: &Api<'_>,
        tenant: &TenantId,
        channel: &str,
        source_url: &str,
        filename: Option<&str>,
        body: Map<String, Value>,
    ) -> Result<Acted, ActionResult> {
        let file = self.files.open(tenant, source_url, UPLOAD_MAX_BYTES).await?;
        if file.size.is_some_and(|size| size > UPLOAD_MAX_BYTES as u64) {
            let text = format!("Discord takes files of at most {UPLOAD_MAX_BYTES} bytes");
            return Err(ActionResult::refused(Code::TooLarge, text));
        }
        let SourceFile { mime, filename: known, size, body: bytes } = file;
        let filename = filename.map(str::to_owned).or(known).unwrap_or_else(|| "file".to_owned());
        let payload = Value::Object(body).to_string();
        let parts = vec![
            Part { name: "payload_json", value: PartValue::Text(&payload) },
            Part {
                name: "files[0]",
                value: PartValue::File { filename: &filename, mime: &mime, length: size, body: bytes },
            },
        ];
        let path = format!("/channels/{channel}/messages");
        Ok(paced(api.upload::<Sent>(&path, parts).await, |it| ActionResult::sent(it.id)))
    }

    /// The handle names channel, message and attachment: URLs of files expire, so a fresh one is asked for.
    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = |text: &str| MediaFault::Gone(text.to_owned());
        let api = self.api(bot).ok_or_else(|| gone("the bot was removed"))?;
        let mut ids = handle.expose().splitn(3, '/');
        let (Some(channel), Some(message), Some(file)) = (ids.next(), ids.next(), ids.next()) else {
            return Err(gone("its handle is malformed"));
        };
        let found: Value = api.get(&format!("/channels/{channel}/messages/{message}")).await.map_err(|error| {
            match error.status() {
                Some(403 | 404) => MediaFault::Gone(error.text()),
                _ => MediaFault::Unavailable(error.text()),
            }
        })?;
        // Those of a forwarded message are in it too.
        let forwarded = found["message_snapshots"].as_array().into_iter().flatten().map(|it| &it["message"]);
        let messages = std::iter::once(&found).chain(forwarded);
        let mut attachments = messages.flat_map(|it| it["attachments"].as_array().into_iter().flatten());
        let url = attachments.by_ref().filter(|it| it["id"] == file).find_map(|it| it["url"].as_str());
        let url = url.ok_or_else(|| gone("the message has no such file any more"))?;
        let answer = self.outcall.open(api.file_call(url, DOWNLOAD_MAX_BYTES)).await;
        let answer = answer.map_err(|error| MediaFault::Unavailable(error.to_string()))?;
        match answer.status {
            200..300 => {
                let mime = answer.header("content-type").unwrap_or("application/octet-stream").to_owned();
                Ok(RemoteMedia { mime, filename: None, body: answer.body })
            }
            404 | 410 => Err(MediaFault::Gone(format!("status {}", answer.status))),
            status => Err(MediaFault::Unavailable(format!("status {status}"))),
        }
    }
}

fn done_if_absent(outcome: Result<Answered<Value>, ApiError>) -> Acted {
    match outcome {
        Err(error) if error.status() == Some(404) => ActionResult::done().into(),
        outcome => paced(outcome, |_| ActionResult::done()),
    }
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn message(content: &str, reply_to: Option<&str>, key: Option<&str>) -> Result<Map<String, Value>, ActionResult> {
    let Some(text) = rendered(content) else { return Err(not_one_message(content)) };
    let mut body = empty(reply_to, key)?;
    body.insert("content".into(), text.into());
    Ok(body)
}

/// A message without a text.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn empty(reply_to: Option<&str>, key: Option<&str>) -> Result<Map<String, Value>, ActionResult> {
    let mut body = Map::new();
    body.insert("allowed_mentions".into(), allowed_mentions());
    // The id of a button press is not the id of a message.
    if let Some(reply_to) = reply_to.filter(|it| !it.is_empty() && !it.starts_with(PRESS)) {
        // The answer is sent even if the message was deleted in the meantime.
        let reference = json!({ "message_id": id(reply_to, "message")?, "fail_if_not_exists": false });
        body.insert("message_reference".into(), reference);
    }
    if let Some(key) = key {
        body.insert("nonce".into(), nonce(key).into());
        body.insert("enforce_nonce".into(), true.into());
    }
    Ok(body)
}

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn thread_title(name: &str) -> Result<String, ActionResult> {
    match name.trim() {
        "" => Err(ActionResult::refused(Code::BadRequest, "the name of the thread is empty")),
        name => Ok(name.chars().take(THREAD_NAME_MAX).collect()),
    }
}

async fn create_thread(api: &Api<'_>, channel: &str, name: &str, anchor: Option<&str>) -> Result<Acted, ActionResult> {
    let mut body = json!({ "name": thread_title(name)?, "auto_archive_duration": ARCHIVE_AFTER_MIN });
    let path = if let Some(anchor) = anchor.filter(|anchor| !anchor.is_empty()) {
        format!("/channels/{channel}/messages/{}/threads", id(anchor, "message")?)
    } else {
        body["type"] = PUBLIC_THREAD.into();
        format!("/channels/{channel}/threads")
    };
    let made = api.send::<Sent>(HttpMethod::Post, &path, &body).await;
    Ok(paced(made, |it| ActionResult { thread_id: Some(it.id), ..ActionResult::done() }))
}

/// An emoji as a part of a path. Custom ones are `name:id`, also in the form of a text.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn encoded(emoji: &str) -> Result<String, ActionResult> {
    let emoji =
        emoji.trim_start_matches("<a:").trim_start_matches("<:").trim_start_matches(':').trim_end_matches(['>', ':']);
    // Dots alone would name another path.
    if emoji.chars().all(|c| c == '.') {
        return Err(ActionResult::refused(Code::BadRequest, format!("{emoji:?} is not an emoji")));
    }
    let part = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'-' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    Ok(emoji.bytes().map(part).collect())
}

async fn rename(discord: &Discord, api: &Api<'_>, bot: &Bot, thread: &str, act: &Act) -> Result<Acted, ActionResult> {
    let Act::ThreadRename { thread_name, only_if_current_name, only_if_connector_created, .. } = act else {
        return Err(ActionResult::refused(Code::BadRequest, "the action has no new name"));
    };
    // Asked from Discord itself: a guard must not rely on what was known before.
    let found: Channel = match api.get(&format!("/channels/{thread}")).await {
        Ok(found) => found,
        Err(error) => return Ok(error.into()),
    };
    if !found.is_thread() {
        return Err(ActionResult::refused(Code::BadRequest, "this is a channel, and only threads can be renamed"));
    }
    if only_if_current_name.is_some() || *only_if_connector_created {
        let me = match discord.own_id(bot).await {
            Ok(me) => me,
            Err(error) => return Ok(error.into()),
        };
        let conflict = |text: &str| ActionResult::refused(Code::Conflict, text);
        if *only_if_connector_created && found.owner_id.as_deref() != Some(me.as_str()) {
            return Err(conflict("the thread was not created by this bot"));
        }
        if only_if_current_name.as_ref().is_some_and(|name| found.name.as_ref() != Some(name)) {
            return Err(conflict("the thread was renamed in the meantime"));
        }
    }
    let body = json!({ "name": thread_title(thread_name)? });
    let path = format!("/channels/{thread}");
    Ok(paced(api.send::<Value>(HttpMethod::Patch, &path, &body).await, |_| ActionResult::done()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_pings_nobody_by_accident_and_has_a_nonce() {
        let body = message("hello @everyone", Some("12"), Some("1700.7.0")).unwrap();
        assert_eq!(body["allowed_mentions"], json!({ "parse": ["users"], "replied_user": true }));
        assert_eq!(body["message_reference"]["message_id"], "12");
        let nonce = body["nonce"].as_str().unwrap();
        assert!(nonce.len() <= 25 && body["enforce_nonce"] == true);
        assert_eq!(message("x", None, Some("1700.7.0")).unwrap()["nonce"], nonce);
        assert_ne!(message("x", None, Some("1700.7.1")).unwrap()["nonce"], nonce);
        assert!(message("x", Some("../1"), None).is_err() && message(" ", None, None).is_err());
    }

    #[test]
    fn emoji_are_parts_of_a_path() {
        assert_eq!(encoded("👍").unwrap(), "%F0%9F%91%8D");
        assert_eq!(encoded("<:ok:123>").unwrap(), "ok%3A123");
        assert_eq!(encoded("../@me").unwrap(), "%2E%2E%2F%40me");
        assert!(encoded("..").is_err() && encoded("").is_err());
    }
}
