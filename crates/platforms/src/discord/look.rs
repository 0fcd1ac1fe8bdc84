//! What is asked from Discord about channels and people, and what comes to the bot as an event.

use frontdesk_core::intake::{Intake, Verified};
use frontdesk_core::port::platform::{Bot, Look};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::{ChatInfo, MessageEvent, Source};
use serde::Deserialize;
use serde_json::Value;

use super::api::{Api, ApiError};
use super::guilds::{Channel, Guild, PRIVATE_THREAD, User};
use super::normalize::{Message, Place, normalize};
use super::permissions::{Member, Rights, sees};
use super::{Discord, PLATFORM};

/// After a lost session: channels of one guild, and messages of each, that are read at most.
const CHANNELS_MAX: usize = 50;
const MESSAGES_MAX: usize = 100;

impl Discord {
    pub(super) fn api<'a>(&'a self, bot: &'a Bot) -> Option<Api<'a>> {
        Api::of(&*self.outcall, &self.invalid, self.env.now_ms(), bot)
    }

    fn api_or<'a>(&'a self, bot: &'a Bot) -> Result<Api<'a>, ApiError> {
        let missing = || ApiError::NoAnswer { may_be_done: false, why: "the bot has no token".into() };
        self.api(bot).ok_or_else(missing)
    }

    pub(super) fn know(&self, bot: &Bot, user: &Value) {
        if let Ok(user) = User::deserialize(user) {
            self.known
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .insert(bot.id.clone(), (bot.account().to_owned(), user));
        }
    }

    /// The user id of the bot. A changed token is another account.
    pub(super) async fn own_id(&self, bot: &Bot) -> Result<String, ApiError> {
        let known = || self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, me)) = known().get(&bot.id).filter(|(account, _)| account == bot.account()) {
            return Ok(me.id.clone());
        }
        let me: Value = self.api_or(bot)?.get("/users/@me").await?;
        self.know(bot, &me);
        Ok(me["id"].as_str().unwrap_or_default().to_owned())
    }

    /// `None`: there is no such channel, or the bot may not see it.
    pub(super) async fn channel(&self, bot: &Bot, id: &str) -> Result<Option<Channel>, ApiError> {
        if let Some(known) = self.guilds.channel(&bot.id, id) {
            return Ok(Some(known));
        }
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(None);
        }
        match self.api_or(bot)?.get(&format!("/channels/{id}")).await {
            Ok(channel) => Ok(Some(channel)),
            Err(error) if matches!(error.status(), Some(400 | 403 | 404)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn guild(&self, bot: &Bot, id: &str) -> Result<Option<Guild>, ApiError> {
        if let Some(known) = self.guilds.guild(&bot.id, id) {
            return Ok(Some(known));
        }
        absent(self.api_or(bot)?.get(&format!("/guilds/{id}")).await)
    }

    pub(super) async fn look_at(
        &self,
        bot: &Bot,
        chat_id: &str,
        viewer: Option<&str>,
    ) -> Result<Option<Look>, StoreError> {
        let unknown = |error: ApiError| StoreError::Unavailable(error.text());
        let Some(channel) = self.channel(bot, chat_id).await.map_err(unknown)? else { return Ok(None) };
        let info = ChatInfo {
            name: channel.name.clone().unwrap_or_else(|| channel.id.clone()),
            chat_type: channel.type_name().into(),
        };
        if channel.is_direct() {
            let person = channel.recipients.first().map(|user| user.id.clone());
            let visible = viewer.map(|viewer| channel.recipients.iter().any(|user| user.id == viewer));
            return Ok(Some(Look { info, visible, person, ..Look::default() }));
        }
        let visible = match viewer {
            Some(viewer) => self.sees(bot, &channel, viewer).await.map_err(unknown)?,
            None => None,
        };
        // Who reaches the channel does not reach its private threads.
        let is_open = channel.kind != PRIVATE_THREAD;
        let parent_chat_id = channel.parent().filter(|_| is_open).map(str::to_owned);
        Ok(Some(Look { info, visible, scope_id: channel.guild_id, parent_chat_id, person: None }))
    }

    /// `None`: Discord does not say. That counts as no.
    async fn sees(&self, bot: &Bot, channel: &Channel, viewer: &str) -> Result<Option<bool>, ApiError> {
        let Some(guild_id) = channel.guild_id.as_deref() else { return Ok(None) };
        let is_id = !viewer.is_empty() && viewer.bytes().all(|byte| byte.is_ascii_digit());
        if !is_id {
            return Ok(Some(false));
        }
        let Some(guild) = self.guild(bot, guild_id).await? else { return Ok(None) };
        let api = self.api_or(bot)?;
        let Some(member) = absent::<Member>(api.get(&format!("/guilds/{guild_id}/members/{viewer}")).await)? else {
            return Ok(Some(false));
        };
        let parent = match channel.parent() {
            Some(parent) => self.channel(bot, parent).await?,
            None => None,
        };
        if channel.is_thread() && parent.is_none() {
            return Ok(None);
        }
        let overwrites = &parent.as_ref().unwrap_or(channel).permission_overwrites;
        let rights = Rights { guild_id, owner_id: &guild.owner_id, roles: &guild.roles };
        let (is_seen, sees_private) = sees(&rights, viewer, &member, overwrites);
        if channel.kind != PRIVATE_THREAD || !is_seen || sees_private {
            return Ok(Some(is_seen));
        }
        let path = format!("/channels/{}/thread-members/{viewer}", channel.id);
        Ok(Some(absent::<Value>(api.get(&path).await)?.is_some()))
    }

    pub(super) async fn intake(
        &self,
        bot: &Bot,
        me: &str,
        message: &Message,
        is_edit: bool,
    ) -> Result<Option<Intake>, String> {
        let text = |error: ApiError| error.text();
        // A direct chat is not announced, and the bot may not ask about every channel.
        let unknown = || Channel {
            id: message.channel_id.clone(),
            kind: u8::from(message.guild_id.is_none()),
            guild_id: message.guild_id.clone(),
            ..Channel::default()
        };
        let channel = match (&message.guild_id, self.guilds.channel(&bot.id, &message.channel_id)) {
            (_, Some(known)) => known,
            (None, None) => unknown(),
            (Some(_), None) => self.channel(bot, &message.channel_id).await.map_err(text)?.unwrap_or_else(unknown),
        };
        let parent = match channel.parent() {
            Some(parent) => self.channel(bot, parent).await.map_err(text)?,
            None => None,
        };
        let guild = message.guild_id.as_deref().and_then(|id| self.guilds.guild(&bot.id, id));
        let place = Place { bot, me, channel: &channel, parent: parent.as_ref(), guild: guild.as_ref() };
        Ok(normalize(&place, message, is_edit))
    }

    /// Messages of a guild after this one, oldest first in each channel.
    pub(super) async fn missed(&self, bot: &Bot, guild_id: &str, after: u64) -> Vec<Value> {
        let Some(api) = self.api(bot) else { return Vec::new() };
        let mut found = Vec::new();
        for channel in self.guilds.with_news(&bot.id, guild_id, after, CHANNELS_MAX) {
            let path = format!("/channels/{channel}/messages?after={after}&limit={MESSAGES_MAX}");
            match api.get::<Vec<Value>>(&path).await {
                Ok(mut messages) => {
                    messages.reverse(); // they come newest first
                    for mut message in messages {
                        message["guild_id"] = guild_id.into();
                        found.push(message);
                    }
                }
                Err(error) => tracing::debug!(error = error.text(), channel, "a channel could not be read after a gap"),
            }
        }
        found
    }
}

/// What is not there, or not for the bot.
fn absent<T>(outcome: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.status(), Some(403 | 404)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A message that could not be read. It is recorded, and the ones after it are taken.
pub(super) fn unreadable(bot: &Bot, data: &Value, why: &str) -> Intake {
    let text = |name: &str| data[name].as_str().map(str::to_owned);
    let chat_id = text("channel_id").unwrap_or_else(|| "unknown".into());
    let source = Source { platform: PLATFORM.into(), chat_id: chat_id.into(), ..Source::default() };
    let message_id = text("id").filter(|id| !id.is_empty());
    let event = MessageEvent { source, message_id, ..MessageEvent::default() };
    let mut intake = Intake::new(Verified::by("the socket of the bot's token"), bot.whose(), bot.id.clone(), event);
    intake.refused = Some(format!("the message could not be read: {why}"));
    intake
}
