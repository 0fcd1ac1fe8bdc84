//! Stores what a shard has read, in order. Session and sequence are saved after what is before them was stored; after a
//! restart Discord sends what came since.

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::platform::{Bot, Change, Gap, Inlet};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Discord;
use super::backlog::{Backlog, Item, is_event};
use super::cursor::ShardCursor;
use super::listening::Listening;
use super::look::unreadable;
use super::normalize::read;
use super::snowflake::{first_at, ms_of, number};

/// Stored in one commit.
const BATCH_MAX: usize = 100;

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

/// Changes made by a batch. They take effect once its events are stored.
struct Stage {
    cursor: ShardCursor,
    me: String,
    /// Direct chats with new messages, and whether these were delivered.
    directs: Vec<(String, bool)>,
    /// The bot listens for the first time, from this id on.
    since: Option<u64>,
    /// Sessions that were lost: each after this message, with these guilds.
    missed: Vec<(u64, Vec<String>)>,
    /// A guild became known or a session was resumed, so reading back can continue.
    is_news: bool,
    intakes: Vec<Intake>,
}

impl Stage {
    fn new(cursor: ShardCursor, me: String) -> Self {
        let (directs, missed, intakes) = (Vec::new(), Vec::new(), Vec::new());
        Self { cursor, me, directs, since: None, missed, is_news: false, intakes }
    }

    async fn take(&mut self, inlet: &dyn Inlet) -> Result<(), String> {
        let sources = self.intakes.iter().map(|intake| &intake.event.source);
        let chats: Vec<_> = sources.map(|it| (it.chat_type == "dm").then(|| it.chat_id.to_string())).collect();
        let receipts = take(&mut self.intakes, inlet).await?;
        for (chat, receipt) in chats.into_iter().zip(receipts) {
            if receipt.is_ok_and(|receipt| receipt.verdict.outcome == "delivered") {
                self.directs.extend(chat.map(|chat| (chat, true)));
            }
        }
        Ok(())
    }
}

pub(super) async fn take(
    intakes: &mut Vec<Intake>,
    inlet: &dyn Inlet,
) -> Result<Vec<Result<Receipt, DeskError>>, String> {
    if intakes.is_empty() {
        return Ok(Vec::new());
    }
    inlet.take(std::mem::take(intakes)).await.map_err(|error| format!("the events were not stored: {error}"))
}

impl Listening<'_> {
    /// Returns why it cannot continue.
    pub(super) async fn store(&self, mut items: mpsc::Receiver<Item>, backlog: &Backlog) -> String {
        let mut batch = Vec::new();
        loop {
            if items.recv_many(&mut batch, BATCH_MAX).await == 0 {
                return "the socket was closed".into();
            }
            if let Err(why) = self.store_batch(&batch).await {
                return why;
            }
            backlog.stored(batch.drain(..).map(|item| item.bytes()).sum());
        }
    }

    async fn store_batch(&self, batch: &[Item]) -> Result<(), String> {
        let me = self.progress.read(|cursor| cursor.me.clone());
        let mut stage = Stage::new(self.progress.shard(), me);
        for item in batch {
            match item {
                Item::SessionLost => stage.cursor.session_id.clear(),
                Item::Frame(text) => match serde_json::from_str::<Frame>(text) {
                    Ok(frame) => self.understand(&frame, &mut stage).await?,
                    Err(error) if is_event(text) => self.not_understood(text, &error),
                    Err(_) => {}
                },
            }
        }
        stage.take(self.inlet).await?;
        let Stage { cursor, me, directs, since, missed, is_news, .. } = stage;
        self.progress.change(|all| {
            all.me = me;
            if all.since == 0 {
                all.since = since.unwrap_or(0);
            }
            all.shards = vec![cursor];
            for (channel, is_delivered) in &directs {
                all.note_direct(channel, *is_delivered);
            }
            for (newest, guilds) in missed {
                all.miss(self.part.index, newest, guilds);
            }
        });
        self.progress.save().await?;
        if is_news {
            self.missed.notify_one();
        }
        Ok(())
    }

    /// Later events are taken. The error is not reported in full: it may contain text of a user.
    fn not_understood(&self, text: &str, error: &serde_json::Error) {
        let (bytes, column, now_ms) = (text.len(), error.column(), self.discord.env.now_ms());
        let reason = format!("an event of {bytes} bytes could not be read (at column {column}), and was skipped");
        self.inlet.gap(Gap { since_ms: now_ms, until_ms: now_ms, reason });
    }

    async fn understand(&self, frame: &Frame, stage: &mut Stage) -> Result<(), String> {
        let Frame { sequence, kind, data } = frame;
        stage.cursor.sequence = *sequence;
        match kind.as_str() {
            "READY" => {
                self.ready(data, stage);
                // Changes of roles and channels may have been missed too.
                let changed = self.inlet.changed(Change::Scope(String::new())).await;
                changed.map_err(|error| error.to_string())?;
            }
            "RESUMED" => stage.is_news = true,
            "MESSAGE_CREATE" => self.discord.said(self.bot, data, false, stage).await,
            "MESSAGE_UPDATE" => self.discord.said(self.bot, data, true, stage).await,
            "INTERACTION_CREATE" => {
                stage.take(self.inlet).await?;
                self.discord.take_interaction(self.bot, data, self.inlet, &self.answers).await?;
            }
            kind => {
                // Earlier messages are decided with what was known then.
                stage.take(self.inlet).await?;
                self.discord.guilds.take(&self.bot.id, &stage.me, kind, data);
                for change in changes(kind, data) {
                    self.inlet.changed(change).await.map_err(|error| error.to_string())?;
                }
                stage.is_news |= kind == "GUILD_CREATE";
            }
        }
        Ok(())
    }

    /// A new session. If there was an earlier one, Discord does not have it any more.
    fn ready(&self, data: &Value, stage: &mut Stage) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let now_ms = self.discord.env.now_ms();
        stage.me = text(&data["user"]["id"]);
        // They are reported anew.
        self.discord.guilds.begin(&self.bot.id, self.part);
        self.discord.know(self.bot, &data["user"]);
        let newest = stage.cursor.newest;
        if newest == 0 {
            // Nothing was stored yet, and nothing before this is missing.
            stage.cursor.newest = first_at(now_ms);
            stage.since = Some(stage.cursor.newest);
        } else {
            self.inlet.gap(Gap { since_ms: ms_of(newest), until_ms: now_ms, reason: GAP.into() });
            let guilds = data["guilds"].as_array().into_iter().flatten();
            stage.missed.push((newest, guilds.map(|guild| text(&guild["id"])).collect()));
        }
        stage.cursor.session_id = text(&data["session_id"]);
        stage.cursor.resume_url = text(&data["resume_gateway_url"]);
        stage.is_news = true;
    }
}

/// What is done about a session that was lost.
const GAP: &str = "Discord did not resume the session; what was written since is read from the channels and the known \
                   direct chats instead; edits, threads that were archived since, and people who wrote directly for \
                   the first time, are not found";

impl Discord {
    /// What a frame of the socket says, if it is a message. The bot has this user id.
    pub async fn read_frame(&self, bot: &Bot, me: &str, text: &str) -> Option<Intake> {
        let frame: Frame = serde_json::from_str(text).ok()?;
        let mut stage = Stage::new(ShardCursor::default(), me.to_owned());
        self.said(bot, &frame.data, frame.kind == "MESSAGE_UPDATE", &mut stage).await;
        stage.intakes.pop()
    }

    async fn said(&self, bot: &Bot, data: &Value, is_edit: bool, stage: &mut Stage) {
        let message = match read(data) {
            Ok(message) => message,
            Err(why) => return stage.intakes.push(unreadable(bot, data, &why)),
        };
        if is_edit && !message.is_real_edit(self.env.now_ms()) {
            return;
        }
        stage.cursor.newest = stage.cursor.newest.max(number(&message.id).unwrap_or(0));
        if message.guild_id.is_none() {
            stage.directs.push((message.channel_id.clone(), false));
        }
        stage.intakes.extend(self.intake(bot, &stage.me, &message, is_edit).await);
    }
}

/// Cached facts that an event makes wrong.
fn changes(kind: &str, data: &Value) -> Vec<Change> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match kind {
        "GUILD_ROLE_UPDATE" | "GUILD_ROLE_DELETE" => vec![Change::Scope(text(&data["guild_id"]))],
        "GUILD_UPDATE" | "GUILD_DELETE" => vec![Change::Scope(text(&data["id"]))],
        // Who comes, leaves, or gets other roles, may see other channels than before.
        "GUILD_MEMBER_ADD" | "GUILD_MEMBER_UPDATE" | "GUILD_MEMBER_REMOVE" => {
            vec![Change::Person(text(&data["user"]["id"]).into())]
        }
        // Threads of a channel have its rights.
        "CHANNEL_UPDATE" | "CHANNEL_DELETE" => match data["guild_id"].as_str() {
            Some(guild) => vec![Change::Scope(guild.to_owned())],
            None => vec![Change::Chat(text(&data["id"]).into())],
        },
        "THREAD_UPDATE" | "THREAD_DELETE" | "THREAD_MEMBERS_UPDATE" => vec![Change::Chat(text(&data["id"]).into())],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_sees_what_is_asked_again_after_a_change() {
        let update = json!({ "guild_id": "g", "user": { "id": "u" } });
        for kind in ["GUILD_MEMBER_ADD", "GUILD_MEMBER_UPDATE", "GUILD_MEMBER_REMOVE"] {
            assert_eq!(changes(kind, &update), [Change::Person("u".into())], "{kind}");
        }
        assert_eq!(changes("CHANNEL_UPDATE", &json!({ "id": "c", "guild_id": "g" })), [Change::Scope("g".into())]);
        assert_eq!(
            changes("THREAD_MEMBERS_UPDATE", &json!({ "id": "t", "guild_id": "g" })),
            [Change::Chat("t".into())]
        );
        assert_eq!(changes("MESSAGE_DELETE", &json!({ "id": "m", "channel_id": "c" })), []);
    }
}
