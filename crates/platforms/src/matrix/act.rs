//! Actions of agents.

use std::time::Duration;

use frontdesk_core::port::platform::ActingAs;
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code};
use serde_json::{Map, Value, json};

use super::Homeservers;
use super::account::Account;
use super::client::Client;
use super::content::{self, REACTIONS_MAX, option_key};
use super::failed::{Failed, unsent};
use super::media::upload;

/// What is done beside an action does not delay its result longer than this.
const EXTRA_LIMIT: Duration = Duration::from_secs(2);
const REACTIONS_LIMIT: Duration = Duration::from_secs(8);
pub(super) const TYPING_MS: u64 = 30_000;
const ENCRYPTED: &str = "the room is encrypted, and this server does not send unencrypted messages there";

const NO_ANCHOR: &str = "the message that the thread should begin at was not found in this room";
const RELATED_ANCHOR: &str = "no thread can begin at this message: it is in a thread, or an edit of another message";
/// Pages of a hundred reactions that are searched.
const REACTION_PAGES: usize = 5;
const TOO_MANY_REACTIONS: &str = "the message has too many reactions to find the one of the bot; nothing was removed";

type Done = Result<ActionResult, Failed>;

/// One action on its way: as whom, and under which key.
struct Attempt<'a> {
    platform: &'a Homeservers,
    client: &'a Client<'a>,
    acting_as: ActingAs<'a>,
    action: &'a Action,
}

impl Homeservers {
    pub(super) async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Done {
        let account = Account::of(acting_as.bot).map_err(|why| {
            ActionResult::refused(Code::UnknownIdentity, format!("the bot {:?} cannot work: {why}", acting_as.bot.id))
        })?;
        let client = Client::new(&*self.outcall, &account);
        let done = Attempt { platform: self, client: &client, acting_as, action }.run().await?;
        if let Some(room_id) = action.act.chat_id().filter(|_| !matches!(action.act, Act::GetChatInfo { .. })) {
            // The action is done: its result must not wait long for this.
            let extras = async { tokio::join!(self.mark_read(&client, room_id), self.end_typing(&client, action)) };
            let _ = tokio::time::timeout(EXTRA_LIMIT, extras).await;
        }
        Ok(done)
    }

    /// Not every homeserver ends it when the message is there. Nothing depends on it.
    async fn end_typing(&self, client: &Client<'_>, action: &Action) {
        let (Act::Send { chat_id, .. } | Act::SendMedia { chat_id, .. } | Act::Prompt { chat_id, .. }) = &action.act
        else {
            return;
        };
        if !self.rooms.take_typing(&client.account.bot.id, chat_id, self.env.steady_ms()) {
            return;
        }
        let parts = ["client", "v3", "rooms", chat_id, "typing", client.account.user_id];
        if let Err(fault) = client.put(&parts, &json!({ "typing": false })).await {
            tracing::debug!(%fault, room_id = chat_id.as_str(), "removing the typing indicator failed");
        }
    }

    /// The agent answers, so it has read the room. Nothing depends on it.
    async fn mark_read(&self, client: &Client<'_>, room_id: &str) {
        let Some(event_id) = self.rooms.take_unread(&client.account.bot.id, room_id) else { return };
        let parts = ["client", "v3", "rooms", room_id, "receipt", "m.read", &event_id];
        if let Err(fault) = client.post(&parts, &json!({})).await {
            tracing::debug!(%fault, room_id, "sending the read receipt failed");
        }
    }
}

impl Attempt<'_> {
    async fn run(&self) -> Done {
        let thread = self.action.meta("thread_id");
        match &self.action.act {
            Act::Send { chat_id, content, reply_to } => {
                let mut message = content::text("m.text", content);
                content::relate(&mut message, thread, reply_to.as_deref());
                self.send(chat_id, "", message).await
            }
            Act::Edit { chat_id, message_id, content } => {
                self.refuse_foreign(chat_id, message_id).await?;
                let message = content::edit(message_id, content::text("m.text", content));
                self.send(chat_id, "", message).await.map(|_| ActionResult::sent(message_id.clone()))
            }
            Act::Delete { chat_id, message_id } => self.redact(chat_id, message_id).await,
            Act::Typing { chat_id, content } => self.typing(chat_id, content.as_deref() != Some("")).await,
            Act::GetChatInfo { chat_id } => {
                let info = self.room_info(chat_id).await?;
                Ok(ActionResult { chat_info: Some(info), ..ActionResult::done() })
            }
            Act::React { chat_id, message_id, emoji, remove: false } => {
                self.react(chat_id, message_id, emoji, "").await
            }
            Act::React { chat_id, message_id, emoji, remove: true } => self.unreact(chat_id, message_id, emoji).await,
            Act::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to } => {
                let caption = content.as_deref().unwrap_or_default();
                let mut message = self.media(chat_id, media_kind, source_url, caption, filename.as_deref()).await?;
                content::relate(&mut message, thread, reply_to.as_deref());
                self.send(chat_id, "", message).await
            }
            Act::Prompt { chat_id, prompt_id, content, options, reply_to, .. } => {
                let mut message = content::prompt(content, prompt_id, options);
                content::relate(&mut message, thread, reply_to.as_deref());
                let sent = self.send(chat_id, "", message).await?;
                let message_id = sent.message_id.as_deref().unwrap_or_default();
                let reactions = async {
                    for index in (0..options.len()).filter(|_| options.len() <= REACTIONS_MAX) {
                        let Some(key) = option_key(index) else { break };
                        if let Err(Failed(why)) = self.react(chat_id, message_id, &key, &format!("-{index}")).await {
                            tracing::debug!(error = why.result.error, "sending a reaction of a prompt failed");
                            break;
                        }
                    }
                };
                // The prompt was sent. An option without its reaction can still be chosen by text.
                let _ = tokio::time::timeout(REACTIONS_LIMIT, reactions).await;
                Ok(sent)
            }
            Act::ThreadCreate { chat_id, thread_name, message_id } => {
                // A thread begins at a message and has no name.
                let root = match message_id {
                    Some(anchor) => {
                        self.check_anchor(chat_id, anchor).await?;
                        Some(anchor.clone())
                    }
                    None => self.send(chat_id, "", content::text("m.text", thread_name)).await?.message_id,
                };
                Ok(ActionResult { thread_id: root.map(Into::into), ..ActionResult::done() })
            }
            Act::FollowUp { .. } | Act::ThreadRename { .. } | Act::Draft { .. } => {
                let text = format!("this platform does not support {}", self.action.act.op());
                Err(ActionResult::refused(Code::UnsupportedOp, text).into())
            }
        }
    }

    /// The same for every attempt, so that the homeserver does nothing twice. Only what is not in the journal has a
    /// random one.
    fn txn(&self, suffix: &str) -> String {
        match self.acting_as.idempotency_key {
            Some(key) => format!("fd.{key}{suffix}"),
            None => format!("fd.{}", self.platform.env.random_hex(16)),
        }
    }

    async fn send(&self, room_id: &str, suffix: &str, mut content: Map<String, Value>) -> Done {
        if !content::make_fit(&mut content) {
            let text = "the message is too long for one event; send it in parts";
            return Err(ActionResult::refused(Code::TooLarge, text).into());
        }
        self.refuse_encrypted(room_id).await?;
        let parts = ["client", "v3", "rooms", room_id, "send", "m.room.message", &self.txn(suffix)];
        let sent = event_id(&self.client.put_once(&parts, &Value::Object(content)).await?)?;
        if let Some(id) = &sent.message_id {
            self.platform.rooms.note_own(&self.acting_as.bot.id, id);
        }
        Ok(sent)
    }

    /// The homeserver takes an edit of any message, but clients show only those by the author of the message.
    async fn refuse_foreign(&self, room_id: &str, message_id: &str) -> Result<(), Failed> {
        if self.platform.rooms.is_own(&self.acting_as.bot.id, message_id) {
            return Ok(());
        }
        let event = self.client.get(&["client", "v3", "rooms", room_id, "event", message_id], &[]).await;
        match event.map_err(unsent)? {
            event if event["sender"] == self.client.account.user_id => {
                self.platform.rooms.note_own(&self.acting_as.bot.id, message_id);
                Ok(())
            }
            _ => Err(ActionResult::refused(Code::Forbidden, "this message was not sent by the bot").into()),
        }
    }

    async fn refuse_encrypted(&self, room_id: &str) -> Result<(), Failed> {
        let room = self.platform.rooms.room(self.client, room_id, self.platform.env.steady_ms()).await;
        let room = room.map_err(unsent)?;
        match room {
            None => Err(ActionResult::refused(Code::NotFound, "the bot is not in this room").into()),
            Some(room) if room.is_encrypted => Err(ActionResult::refused(Code::Forbidden, ENCRYPTED).into()),
            Some(_) => Ok(()),
        }
    }

    async fn redact(&self, room_id: &str, event_id: &str) -> Done {
        let parts = ["client", "v3", "rooms", room_id, "redact", event_id, &self.txn("-redact")];
        match self.client.put_once(&parts, &json!({})).await {
            Ok(_) => Ok(ActionResult::done()),
            Err(fault) if fault.is("M_NOT_FOUND") => Ok(ActionResult::done()), // gone already
            Err(fault) => Err(fault.into()),
        }
    }

    async fn typing(&self, room_id: &str, is_typing: bool) -> Done {
        let parts = ["client", "v3", "rooms", room_id, "typing", self.client.account.user_id];
        let body = match is_typing {
            true => json!({ "typing": true, "timeout": TYPING_MS }),
            false => json!({ "typing": false }),
        };
        // Noted before, because it may be shown also if the answer is lost.
        let until_ms = is_typing.then(|| self.platform.env.steady_ms() + TYPING_MS);
        self.platform.rooms.note_typing(&self.acting_as.bot.id, room_id, until_ms);
        self.client.put(&parts, &body).await?;
        Ok(ActionResult::done())
    }

    async fn react(&self, room_id: &str, event_id: &str, key: &str, suffix: &str) -> Done {
        let content = json!({ "m.relates_to": { "rel_type": "m.annotation", "event_id": event_id, "key": key } });
        let parts = ["client", "v3", "rooms", room_id, "send", "m.reaction", &self.txn(suffix)];
        match self.client.put_once(&parts, &content).await {
            Ok(_) => Ok(ActionResult::done()),
            Err(fault) if fault.is("M_DUPLICATE_ANNOTATION") => Ok(ActionResult::done()),
            Err(fault) => Err(fault.into()),
        }
    }

    /// A reaction is an event of its own: it is looked for among those of the message, then redacted. If there is none,
    /// nothing has to be done.
    async fn unreact(&self, room_id: &str, event_id: &str, key: &str) -> Done {
        let parts = ["client", "v1", "rooms", room_id, "relations", event_id, "m.annotation", "m.reaction"];
        let me = self.client.account.user_id;
        let mut from: Option<String> = None;
        for _ in 0..REACTION_PAGES {
            let mut query = vec![("limit", "100")];
            query.extend(from.as_deref().map(|from| ("from", from)));
            let found = match self.client.get(&parts, &query).await {
                Ok(found) => found,
                Err(fault) if fault.is("M_NOT_FOUND") => return Ok(ActionResult::done()), // the message is gone
                Err(fault) => return Err(unsent(fault).into()),
            };
            let own = found["chunk"].as_array().into_iter().flatten();
            let mut own = own.filter(|it| it["sender"] == me && it["content"]["m.relates_to"]["key"] == key);
            // A user has each reaction once.
            if let Some(reaction) = own.find_map(|it| it["event_id"].as_str()) {
                return self.redact(room_id, reaction).await;
            }
            from = found["next_batch"].as_str().map(str::to_owned);
            if from.is_none() {
                return Ok(ActionResult::done());
            }
        }
        Err(ActionResult::refused(Code::PlatformFailed, TOO_MANY_REACTIONS).into())
    }

    /// A thread begins at a message that is there and is in no thread itself.
    async fn check_anchor(&self, room_id: &str, event_id: &str) -> Result<(), Failed> {
        let event = self.client.get(&["client", "v3", "rooms", room_id, "event", event_id], &[]).await;
        let event = match event {
            Ok(event) => event,
            Err(fault) if fault.is("M_NOT_FOUND") => {
                return Err(ActionResult::refused(Code::NotFound, NO_ANCHOR).into());
            }
            Err(fault) => return Err(unsent(fault).into()),
        };
        match event["content"]["m.relates_to"]["rel_type"].is_string() {
            true => Err(ActionResult::refused(Code::PlatformFailed, RELATED_ANCHOR).into()),
            false => Ok(()),
        }
    }

    async fn media(
        &self,
        room_id: &str,
        kind: &str,
        source_url: &str,
        caption: &str,
        filename: Option<&str>,
    ) -> Result<Map<String, Value>, Failed> {
        self.refuse_encrypted(room_id).await?; // before the file is at the homeserver
        let (file, _held) = self.platform.file(self.acting_as, source_url).await?;
        let name = filename.map(str::to_owned).or_else(|| file.filename.clone()).unwrap_or_else(|| "file".into());
        let mut info = json!({ "mimetype": file.mime });
        if let Some(size) = file.size {
            info["size"] = size.into();
        }
        let uri = upload(self.client, file, &name).await?;
        let msgtype = match kind {
            "image" => "m.image",
            "voice" | "audio" => "m.audio",
            "video" => "m.video",
            _ => "m.file",
        };
        // The body is the caption if there is one, else the name.
        let shown = if caption.trim().is_empty() { name.as_str() } else { caption };
        let mut message = match caption.trim().is_empty() {
            true => Map::from_iter([
                ("msgtype".to_owned(), msgtype.into()),
                ("body".to_owned(), shown.into()),
                ("m.mentions".to_owned(), json!({})),
            ]),
            false => content::text(msgtype, shown),
        };
        message.insert("filename".into(), name.into());
        message.insert("url".into(), uri.into());
        message.insert("info".into(), info);
        if kind == "voice" {
            message.insert("org.matrix.msc3245.voice".into(), json!({}));
        }
        Ok(message)
    }

    async fn room_info(&self, room_id: &str) -> Result<ChatInfo, Failed> {
        let room = self.platform.rooms.room(self.client, room_id, self.platform.env.steady_ms()).await;
        let room = room.map_err(unsent)?;
        let absent = || ActionResult::refused(Code::NotFound, "the bot is not in this room");
        Ok(room.ok_or_else(absent)?.info(room_id, self.client.account.user_id))
    }
}

pub(super) fn event_id(answer: &Value) -> Done {
    let absent = || {
        let text = "the homeserver did not return the id of the message";
        ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, text) }
    };
    Ok(ActionResult::sent(answer["event_id"].as_str().ok_or_else(absent)?))
}
