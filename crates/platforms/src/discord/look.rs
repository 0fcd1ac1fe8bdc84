//! Look-ups at Discord about channels and users, and events of messages.

use frontdesk_core::intake::{Intake, Verified};
use frontdesk_core::port::platform::{Bot, Look, LookFault};
use frontdesk_wire::{ChatId, ChatInfo, MessageEvent, MessageId, Source, UserId};
use serde::Deserialize;
use serde_json::Value;

use super::api::{Api, ApiError};
use super::ask::RetryBudget;
use super::normalize::{Message, MessageLocation, normalize};
use super::permissions::{Member, Rights, sees};
use super::places::{Channel, Guild, PRIVATE_THREAD, User};
use super::snowflake::{is_id, ms_of, number};
use super::{Discord, PLATFORM};

/// A question that got no answer is not asked again for each message.
const REST_MS: u64 = 30_000;

/// The author of a message this recent sees its chat.
const JUST_WRITTEN_MS: u64 = 60_000;

impl Discord {
    pub(super) fn api<'a>(&'a self, bot: &'a Bot) -> Option<Api<'a>> {
        Api::of(&*self.outcall, &self.invalid, self.env.steady_ms(), bot)
    }

    pub(super) fn api_or<'a>(&'a self, bot: &'a Bot) -> Result<Api<'a>, ApiError> {
        self.api(bot).ok_or_else(|| no_answer("the bot has no token"))
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
        self.own_id_within(bot, RetryBudget::SHORT).await
    }

    pub(super) async fn own_id_within(&self, bot: &Bot, budget: RetryBudget) -> Result<String, ApiError> {
        let known = || self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, me)) = known().get(&bot.id).filter(|(account, _)| account == bot.account()) {
            return Ok(me.id.clone());
        }
        let me: Value = self.ask(bot, "/users/@me", budget).await?;
        let id = me["id"].as_str().filter(|id| is_id(id)).map(str::to_owned);
        let id = id.ok_or_else(|| no_answer("it did not return the id of the bot"))?;
        self.know(bot, &me);
        Ok(id)
    }

    /// `None`: there is no such channel, or the bot may not see it.
    pub(super) async fn channel(&self, bot: &Bot, id: &str) -> Result<Option<Channel>, ApiError> {
        if let Some(known) = self.guilds.channel(&bot.id, id) {
            return Ok(Some(known));
        }
        if !is_id(id) {
            return Ok(None);
        }
        let changes = self.guilds.changes(&bot.id);
        match self.asked_once(bot, id, self.ask::<Value>(bot, &format!("/channels/{id}"), RetryBudget::SHORT)).await {
            Ok(data) => {
                if let Some(changes) = changes {
                    self.guilds.keep_channel(&bot.id, changes, &data);
                }
                let channel = Channel::deserialize(&data);
                channel.map(Some).map_err(|error| no_answer(&format!("the channel could not be read: {error}")))
            }
            Err(error) if matches!(error.status(), Some(400 | 403 | 404)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `None`: there is no such guild, or the bot is not in it. While the bot listens, its channels are asked for too, and
    /// all is kept: after a resumed session Discord does not report it.
    pub(super) async fn guild(&self, bot: &Bot, id: &str) -> Result<Option<Guild>, ApiError> {
        self.guild_within(bot, id, RetryBudget::SHORT).await
    }

    pub(super) async fn guild_within(
        &self,
        bot: &Bot,
        id: &str,
        budget: RetryBudget,
    ) -> Result<Option<Guild>, ApiError> {
        if !is_id(id) {
            return Ok(None);
        }
        if let Some(known) = self.guilds.guild(&bot.id, id) {
            return Ok(Some(known));
        }
        if self.guilds.is_paused(&bot.id, id, self.env.steady_ms()) {
            return Err(asked_lately());
        }
        let asking = self.guilds.asking(&bot.id, id);
        let Some((_turn, budget)) = budget.lock(&asking).await else {
            // The messages that follow do not wait once more.
            self.guilds.rest(&bot.id, id, self.env.steady_ms() + REST_MS);
            return Err(no_answer("the same request is still in progress"));
        };
        if let Some(known) = self.guilds.guild(&bot.id, id) {
            return Ok(Some(known));
        }
        let path = format!("/guilds/{id}");
        let Some(changes) = self.guilds.changes_of(&bot.id, id) else {
            let asked = async { guild_or_absent(self.ask(bot, &path, budget).await) };
            return self.asked_once(bot, id, asked).await;
        };
        let Some(data) = self.asked_once(bot, id, self.whole_guild(bot, &path, budget)).await? else {
            return Ok(None);
        };
        let me = self.own_id(bot).await?;
        self.guilds.keep_guild(&bot.id, &me, changes, &data);
        let kept = self.guilds.guild(&bot.id, id);
        Ok(kept.or_else(|| Guild::of(&me, &data)))
    }

    /// As the socket reports it when a session begins. `None`: the bot is not in it. Nothing else is asked then: what
    /// Discord refuses counts towards a ban.
    async fn whole_guild(&self, bot: &Bot, path: &str, budget: RetryBudget) -> Result<Option<Value>, ApiError> {
        let me = self.own_id_within(bot, budget).await?;
        let Some(mut guild) = guild_or_absent(self.ask::<Value>(bot, path, budget).await)? else {
            return Ok(None);
        };
        if !guild.is_object() {
            return Err(no_answer("unknown guild"));
        }
        let (member, channels, threads) =
            (format!("{path}/members/{me}"), format!("{path}/channels"), format!("{path}/threads/active"));
        let asked = tokio::try_join!(
            self.ask::<Value>(bot, &member, budget),
            self.ask::<Value>(bot, &channels, budget),
            self.ask::<Value>(bot, &threads, budget),
        );
        let (member, channels, threads) = asked.map_err(unknown_if_refused)?;
        guild["members"] = vec![member].into();
        guild["channels"] = channels;
        guild["threads"] = threads["threads"].clone();
        Ok(Some(guild))
    }

    /// A question that failed a moment ago is not asked again.
    async fn asked_once<T>(
        &self,
        bot: &Bot,
        id: &str,
        asked: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        if self.guilds.is_paused(&bot.id, id, self.env.steady_ms()) {
            return Err(asked_lately());
        }
        asked.await.inspect_err(|error| {
            let rest_ms = match error {
                ApiError::Limited { retry_after_ms, .. } => *retry_after_ms,
                ApiError::Refused { .. } => return,
                _ => REST_MS,
            };
            self.guilds.rest(&bot.id, id, self.env.steady_ms() + rest_ms);
        })
    }

    pub(super) async fn look_at(
        &self,
        bot: &Bot,
        chat_id: &str,
        viewer: Option<&str>,
    ) -> Result<Option<Look>, LookFault> {
        let unknown = |error: ApiError| LookFault::Platform(error.text());
        let Some(channel) = self.channel(bot, chat_id).await.map_err(unknown)? else { return Ok(None) };
        let info = ChatInfo {
            name: channel.name.clone().unwrap_or_else(|| channel.id.clone()),
            chat_type: channel.type_name().into(),
        };
        if channel.is_direct() {
            let person = channel.recipients.first().map(|user| UserId::from(&user.id));
            let visible = viewer.map(|viewer| channel.recipients.iter().any(|user| user.id == viewer));
            return Ok(Some(Look { info, visible, person, ..Look::default() }));
        }
        let visible = match viewer {
            Some(viewer) => self.sees(bot, &channel, viewer).await.map_err(unknown)?,
            None => None,
        };
        // Who reaches the channel does not reach its private threads.
        let is_open = channel.kind != PRIVATE_THREAD;
        let parent_chat_id = channel.parent().filter(|_| is_open).map(ChatId::from);
        Ok(Some(Look { info, visible, scope_id: channel.guild_id, parent_chat_id, person: None }))
    }

    /// `None`: Discord does not say. That counts as no.
    async fn sees(&self, bot: &Bot, channel: &Channel, viewer: &str) -> Result<Option<bool>, ApiError> {
        let Some(guild_id) = channel.guild_id.as_deref() else { return Ok(None) };
        if !is_id(viewer) {
            return Ok(Some(false));
        }
        let Some(guild) = self.guild(bot, guild_id).await? else { return Ok(None) };
        let path = format!("/guilds/{guild_id}/members/{viewer}");
        let Some(member) = absent::<Member>(self.ask(bot, &path, RetryBudget::SHORT).await)? else {
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
        let (is_seen, sees_private) = sees(&rights, viewer, &member, overwrites, self.env.now_ms());
        if channel.kind != PRIVATE_THREAD || !is_seen || sees_private {
            return Ok(Some(is_seen));
        }
        let path = format!("/channels/{}/thread-members/{viewer}", channel.id);
        Ok(Some(absent::<Value>(self.ask(bot, &path, RetryBudget::SHORT).await)?.is_some()))
    }

    /// The event of a message. Facts about its place that Discord does not return in time are left out.
    pub(super) async fn intake(&self, bot: &Bot, me: &str, message: &Message, is_edit: bool) -> Option<Intake> {
        let log_failure = |error: &ApiError| {
            let (bot, channel, error) = (&bot.id, &message.channel_id, error.text());
            tracing::warn!(
                bot = bot.as_str(),
                channel,
                error,
                "looking up the guild or channel of a message failed; the message was accepted without them"
            );
        };
        let guild = match message.guild_id.as_deref() {
            Some(id) => self.guild_within(bot, id, RetryBudget::FEW).await.inspect_err(log_failure).unwrap_or_default(),
            None => None,
        };
        let channel = match message.guild_id {
            Some(_) => self.channel(bot, &message.channel_id).await.inspect_err(log_failure).unwrap_or_default(),
            // A direct chat is not announced.
            None => self.guilds.channel(&bot.id, &message.channel_id),
        };
        let channel = channel.unwrap_or_else(|| message.unknown_channel());
        let parent = match channel.parent() {
            Some(parent) => self.channel(bot, parent).await.inspect_err(log_failure).unwrap_or_default(),
            None => None,
        };
        let place = MessageLocation { bot, me, channel: &channel, parent: parent.as_ref(), guild: guild.as_ref() };
        let mut intake = normalize(&place, message, is_edit)?;
        let written_ms = number(&message.id).map_or(0, ms_of);
        intake.author_sees = !is_edit && written_ms + JUST_WRITTEN_MS > self.env.now_ms();
        Some(intake)
    }
}

pub(super) fn no_answer(why: &str) -> ApiError {
    ApiError::NoAnswer { may_be_done: false, why: why.into() }
}

fn asked_lately() -> ApiError {
    no_answer("the same request failed a moment ago")
}

/// `None`: the bot is not in the guild. Any other refusal does not say that: an unknown guild (10004) or missing access
/// (50001) do.
fn guild_or_absent<T>(outcome: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match outcome {
        Ok(guild) => Ok(Some(guild)),
        Err(
            ApiError::Refused { status: 404, code: 10_004, .. } | ApiError::Refused { status: 403, code: 50_001, .. },
        ) => Ok(None),
        Err(error) => Err(unknown_if_refused(error)),
    }
}

/// A part of an answer that is refused leaves the whole unknown, and it is not asked for again at once.
fn unknown_if_refused(error: ApiError) -> ApiError {
    match error {
        ApiError::Refused { .. } => no_answer(&error.text()),
        error => error,
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
    let message_id = text("id").filter(|id| !id.is_empty()).map(MessageId::from);
    let event = MessageEvent { source, message_id, ..MessageEvent::default() };
    let mut intake =
        Intake::new(Verified::by("the socket of the bot's token"), bot.tenant_source(), bot.id.clone(), event);
    intake.refused = Some(format!("the message could not be read: {why}"));
    intake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_refusals_say_that_the_bot_is_not_in_a_guild() {
        let refused =
            |status, code| guild_or_absent::<()>(Err(ApiError::Refused { status, code, message: String::new() })).ok();
        assert_eq!((refused(404, 10_004), refused(403, 50_001)), (Some(None), Some(None)));
        for (status, code) in [(404, 0), (404, 10_003), (403, 0), (403, 40_333), (401, 0), (400, 50_035)] {
            assert_eq!(refused(status, code), None, "{status} {code}");
        }
    }
}
