//! The gateway socket. One future reads it, another stores what comes: heartbeats go on only while the socket is read, so
//! reading never waits for the store. Session and sequence are saved after what is before them was stored; after a restart
//! Discord sends what came since.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use frontdesk_core::intake::Intake;
use frontdesk_core::port::platform::{Bot, Change, Ended, Gap, Inlet};
use frontdesk_wire::Secret;
use futures_util::StreamExt as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::mpsc;
use twilight_gateway::{ConfigBuilder, Intents, Message, Session, Shard, ShardId, ShardState};

use super::Discord;
use super::look::unreadable;
use super::normalize::read;

/// What was read and not yet stored, in count and bytes. If there is more, the socket is dropped, and Discord sends the
/// rest again after a resume.
const QUEUE_MAX: usize = 4_096;
const QUEUE_MAX_BYTES: usize = 16 << 20;
/// Stored in one commit.
const BATCH_MAX: usize = 100;
/// Attempts to connect before the listener is reported as one that does not listen.
const CONNECTS_MAX: u32 = 3;

const INTENTS: [Intents; 5] = [
    Intents::GUILDS,
    Intents::GUILD_MEMBERS,
    Intents::GUILD_MESSAGES,
    Intents::DIRECT_MESSAGES,
    Intents::MESSAGE_CONTENT,
];

/// Where to go on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    session_id: String,
    sequence: u64,
    resume_url: String,
    /// The newest message that was stored: what is after it is missing if the session cannot be resumed.
    #[serde(default)]
    newest: u64,
}

/// A frame of the socket that carries an event.
#[derive(Deserialize)]
struct Frame {
    #[serde(rename = "s")]
    sequence: u64,
    #[serde(rename = "t")]
    kind: String,
    #[serde(rename = "d")]
    data: Value,
}

impl Discord {
    pub(super) async fn listen_as(&self, bot: &Bot, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let Some(token) = bot.secret("token").map(Secret::expose) else {
            return Ended::Misconfigured("the bot has no token".into());
        };
        let cursor: Option<Cursor> = cursor.and_then(|cursor| serde_json::from_str(&cursor).ok());
        let cursor = cursor.filter(|cursor| !cursor.session_id.is_empty());
        let intents = INTENTS.into_iter().fold(Intents::empty(), |all, intent| all | intent);
        // The library takes the provider of the process, and panics without one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // one may be there already
        let mut config = ConfigBuilder::new(token.to_owned(), intents);
        if let Some(url) = bot.setting("gateway_url") {
            config = config.proxy_url(url.trim_end_matches('/').to_owned());
        }
        if let Some(cursor) = &cursor {
            config = config.session(Session::new(cursor.sequence, cursor.session_id.clone()));
            if !cursor.resume_url.is_empty() {
                config = config.resume_url(cursor.resume_url.clone());
            }
        }
        let shard = Shard::with_config(ShardId::ONE, config.build());
        let _cache = Forgotten::begin(self, &bot.id);
        let queued = AtomicUsize::new(0);
        let (push, frames) = mpsc::channel(QUEUE_MAX);
        tokio::select! {
            ended = read_socket(shard, push, &queued) => ended,
            ended = self.store(bot, frames, &queued, cursor, inlet) => ended,
        }
    }

    /// What a frame of the socket says, if it is a message. The bot has this user id.
    pub async fn read_frame(&self, bot: &Bot, me: &str, text: &str) -> Result<Option<Intake>, String> {
        let Ok(frame) = serde_json::from_str::<Frame>(text) else { return Ok(None) };
        let mut stage = Stage { cursor: Cursor::default(), me: me.to_owned(), missed: None };
        let mut intakes = Vec::new();
        self.said(bot, &frame.data, frame.kind == "MESSAGE_UPDATE", &mut stage, &mut intakes).await?;
        Ok(intakes.pop())
    }

    /// Stores what was read, in order.
    async fn store(
        &self,
        bot: &Bot,
        mut frames: mpsc::Receiver<String>,
        queued: &AtomicUsize,
        cursor: Option<Cursor>,
        inlet: &dyn Inlet,
    ) -> Ended {
        let mut stage = Stage { cursor: cursor.unwrap_or_default(), me: String::new(), missed: None };
        let mut batch = Vec::new();
        loop {
            if frames.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return Ended::Lost("the socket was closed".into());
            }
            let bytes = batch.iter().map(String::len).sum();
            if let Err(why) = self.store_batch(bot, &batch, &mut stage, inlet).await {
                return Ended::Lost(why);
            }
            queued.fetch_sub(bytes, Ordering::Relaxed);
            batch.clear();
        }
    }

    async fn store_batch(
        &self,
        bot: &Bot,
        batch: &[String],
        stage: &mut Stage,
        inlet: &dyn Inlet,
    ) -> Result<(), String> {
        let mut intakes = Vec::new();
        let before = stage.cursor.clone();
        for text in batch {
            let Ok(frame) = serde_json::from_str::<Frame>(text) else { continue }; // a heartbeat, or the like
            stage.cursor.sequence = frame.sequence;
            match frame.kind.as_str() {
                "READY" => self.ready(bot, &frame.data, stage, inlet),
                "MESSAGE_CREATE" => self.said(bot, &frame.data, false, stage, &mut intakes).await?,
                "MESSAGE_UPDATE" => self.said(bot, &frame.data, true, stage, &mut intakes).await?,
                kind => {
                    // What was said before is judged by what was known before.
                    take(&mut intakes, inlet).await?;
                    self.guilds.take(&bot.id, &stage.me, kind, &frame.data);
                    for change in changes(kind, &frame.data) {
                        inlet.changed(change).await.map_err(|error| error.to_string())?;
                    }
                }
            }
            if frame.kind == "GUILD_CREATE" {
                self.fill_gap(bot, &frame.data, stage, &mut intakes).await;
            }
        }
        take(&mut intakes, inlet).await?;
        if stage.cursor == before {
            return Ok(()); // heartbeats
        }
        let saved = serde_json::to_string(&stage.cursor).map_err(|error| error.to_string())?;
        inlet.save_cursor(saved).await.map_err(|error| format!("saving where to go on failed: {error}"))
    }

    /// A new session. If there was an earlier one, Discord does not have it any more.
    fn ready(&self, bot: &Bot, data: &Value, stage: &mut Stage, inlet: &dyn Inlet) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        stage.me = text(&data["user"]["id"]);
        self.guilds.forget(&bot.id); // they are told anew
        self.know(bot, &data["user"]);
        if !stage.cursor.session_id.is_empty() {
            inlet.gap(Gap {
                since_ms: snowflake_ms(stage.cursor.newest),
                until_ms: self.env.now_ms(),
                reason: gap_text(stage.cursor.newest).into(),
            });
            let guilds = data["guilds"].as_array().into_iter().flatten();
            let guilds = guilds.map(|guild| text(&guild["id"])).collect();
            stage.missed = Some(Missed { after: stage.cursor.newest, guilds });
        }
        stage.cursor.session_id = text(&data["session_id"]);
        stage.cursor.resume_url = text(&data["resume_gateway_url"]);
    }

    async fn said(
        &self,
        bot: &Bot,
        data: &Value,
        is_edit: bool,
        stage: &mut Stage,
        into: &mut Vec<Intake>,
    ) -> Result<(), String> {
        if stage.me.is_empty() {
            stage.me = self.own_id(bot).await.map_err(|error| error.text())?;
        }
        let message = match read(data) {
            Ok(message) => message,
            Err(why) => {
                into.push(unreadable(bot, data, &why));
                return Ok(());
            }
        };
        if is_edit && !message.is_real_edit() {
            return Ok(());
        }
        stage.cursor.newest = stage.cursor.newest.max(message.id.parse().unwrap_or(0));
        into.extend(self.intake(bot, &stage.me, &message, is_edit).await?);
        Ok(())
    }

    /// Reads what came while the session was lost, for the channels of a guild that have news.
    async fn fill_gap(&self, bot: &Bot, guild: &Value, stage: &mut Stage, into: &mut Vec<Intake>) {
        let guild_id = guild["id"].as_str().unwrap_or_default();
        let Some(missed) = stage.missed.as_mut().filter(|missed| missed.after > 0) else { return };
        if !missed.guilds.remove(guild_id) {
            return; // the bot came into it later
        }
        let after = missed.after;
        for data in self.missed(bot, guild_id, after).await {
            if let Err(why) = self.said(bot, &data, false, stage, into).await {
                tracing::warn!(bot = bot.id, why, "reading what came while the socket was away failed");
                return;
            }
        }
    }
}

/// What the socket told is forgotten with it, also if the listener is dropped.
struct Forgotten<'a> {
    discord: &'a Discord,
    bot: &'a str,
}

impl<'a> Forgotten<'a> {
    fn begin(discord: &'a Discord, bot: &'a str) -> Self {
        discord.guilds.forget(bot);
        Self { discord, bot }
    }
}

impl Drop for Forgotten<'_> {
    fn drop(&mut self) {
        self.discord.guilds.forget(self.bot);
    }
}

/// What the storing side knows.
struct Stage {
    cursor: Cursor,
    me: String,
    missed: Option<Missed>,
}

/// A session was lost: what may have been said in these guilds after this message.
struct Missed {
    after: u64,
    guilds: HashSet<String>,
}

async fn take(intakes: &mut Vec<Intake>, inlet: &dyn Inlet) -> Result<(), String> {
    if intakes.is_empty() {
        return Ok(());
    }
    inlet.take(std::mem::take(intakes)).await.map(drop).map_err(|error| format!("the events were not stored: {error}"))
}

/// Until something ends it. The queue is never waited for.
async fn read_socket(mut shard: Shard, push: mpsc::Sender<String>, queued: &AtomicUsize) -> Ended {
    let mut failures = 0;
    while let Some(item) = shard.next().await {
        match item {
            Ok(Message::Text(text)) => {
                // A greeting alone does not mean that the connection works.
                if text.contains("\"op\":0") {
                    failures = 0;
                }
                let bytes = queued.fetch_add(text.len(), Ordering::Relaxed) + text.len();
                if bytes > QUEUE_MAX_BYTES || push.try_send(text).is_err() {
                    return Ended::Lost("events come faster than they are stored; the session is resumed".into());
                }
            }
            Ok(Message::Close(frame)) => {
                let code = frame.map_or(0, |frame| frame.code);
                if shard.state() == ShardState::FatallyClosed {
                    return closed(code);
                }
                failures += 1;
                if failures >= CONNECTS_MAX {
                    return Ended::Lost(format!("Discord closes the socket again and again (close code {code})"));
                }
            }
            Err(error) => {
                failures += 1;
                if failures >= CONNECTS_MAX {
                    // The error itself may hold an event.
                    let why = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
                    return Ended::Lost(format!("the socket of Discord cannot be reached: {why}"));
                }
            }
        }
    }
    Ended::Lost("the socket was closed".into())
}

/// Codes with which Discord says that it will not work as it is.
fn closed(code: u16) -> Ended {
    let text = match code {
        4004 => "Discord does not know this token; copy it again from the developer portal, and repeat `bot add`",
        4010 | 4011 => "the bot is in too many guilds for one connection",
        4013 | 4014 => {
            "Discord does not allow the intents that are needed; in the developer portal, under Bot, turn on Message \
             Content Intent and Server Members Intent"
        }
        _ => "Discord refuses the connection",
    };
    Ended::Misconfigured(format!("{text} (close code {code})"))
}

/// Cached facts that an event makes wrong.
fn changes(kind: &str, data: &Value) -> Vec<Change> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match kind {
        "GUILD_ROLE_UPDATE" | "GUILD_ROLE_DELETE" => vec![Change::Scope(text(&data["guild_id"]))],
        "GUILD_UPDATE" | "GUILD_DELETE" => vec![Change::Scope(text(&data["id"]))],
        // Who leaves, or gets other roles, may see other channels than before.
        "GUILD_MEMBER_UPDATE" | "GUILD_MEMBER_REMOVE" => vec![Change::Person(text(&data["user"]["id"]))],
        // Threads of a channel have its rights.
        "CHANNEL_UPDATE" | "CHANNEL_DELETE" => match data["guild_id"].as_str() {
            Some(guild) => vec![Change::Scope(guild.to_owned())],
            None => vec![Change::Chat(text(&data["id"]))],
        },
        "THREAD_UPDATE" | "THREAD_DELETE" | "THREAD_MEMBERS_UPDATE" => vec![Change::Chat(text(&data["id"]))],
        _ => Vec::new(),
    }
}

/// What is done about a session that was lost after this message.
fn gap_text(newest: u64) -> &'static str {
    if newest == 0 {
        return "Discord did not resume the session, and no message was stored before, so nothing that came in the \
                meantime is read";
    }
    "Discord did not resume the session; at most 100 messages of 50 channels of each guild are read instead, and no direct \
     messages"
}

/// Ids begin with the time at which they were made.
fn snowflake_ms(id: u64) -> u64 {
    const EPOCH_MS: u64 = 1_420_070_400_000;
    if id == 0 { 0 } else { (id >> 22) + EPOCH_MS }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ids_tell_their_time() {
        assert_eq!(snowflake_ms(175_928_847_299_117_063), 1_462_015_105_796); // the example of the vendor's documents
        assert_eq!(snowflake_ms(0), 0);
    }

    #[test]
    fn who_sees_what_is_asked_again_after_a_change() {
        let update = json!({ "guild_id": "g", "user": { "id": "u" } });
        assert_eq!(changes("GUILD_MEMBER_UPDATE", &update), [Change::Person("u".into())]);
        assert_eq!(changes("CHANNEL_UPDATE", &json!({ "id": "c", "guild_id": "g" })), [Change::Scope("g".into())]);
        assert_eq!(
            changes("THREAD_MEMBERS_UPDATE", &json!({ "id": "t", "guild_id": "g" })),
            [Change::Chat("t".into())]
        );
        assert_eq!(changes("TYPING_START", &json!({})), []);
    }
}
