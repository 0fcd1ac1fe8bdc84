//! Look-ups of bots, users and places, cached for a while.

use std::time::Duration;

use frontdesk_core::port::platform::Bot;
use serde_json::Value;

use super::Slack;
use super::account::{Workspace, is_id, workspace, workspaces};
use super::api::{Api, ApiError};
use super::normalize::Me;
use super::rich::text_of;

/// Slack waits three seconds for an answer, and up to three questions come before it. What it does not return in
/// this time is left out.
pub(super) const ASK_LIMIT: Duration = Duration::from_millis(800);
/// Workspaces that are asked for a chat whose workspace is not known.
const SEARCH_MAX: usize = 50;

impl Slack {
    pub(super) fn api<'a>(&'a self, bot: &'a Bot, of: Workspace<'a>) -> Api<'a> {
        Api { outcall: &*self.outcall, own_base: bot.setting("base_url"), token: of.token }
    }

    /// The Web API with the token of a workspace. An empty team is any.
    pub(super) fn api_of<'a>(&'a self, bot: &'a Bot, team: &str) -> Option<Api<'a>> {
        let of = match team {
            "" => workspaces(bot).into_iter().next(),
            team => workspace(bot, team),
        };
        of.map(|of| self.api(bot, of))
    }

    /// Who the bot is in a workspace. Asked once.
    pub(super) async fn me(&self, bot: &Bot, team: &str) -> Result<Me, ApiError> {
        let key = (bot.id.clone(), bot.account().to_owned(), team.to_owned());
        if let Some(me) = self.known.get(&key, self.env.steady_ms()) {
            return Ok(me);
        }
        let why = format!("the app is not installed in workspace {team:?}");
        let absent = ApiError::NoAnswer { may_be_done: false, why };
        let api = self.api_of(bot, team).ok_or(absent)?;
        let response = api.ask("auth.test", &[]).await?;
        let of = |name| text_of(&response, name).to_owned();
        let me = Me { user: of("user_id"), bot: of("bot_id"), team: of("team_id") };
        if me.user.is_empty() {
            return Err(ApiError::NoAnswer { may_be_done: false, why: "it did not return the id of the bot".into() });
        }
        self.known.put(key, me.clone(), self.env.steady_ms());
        Ok(me)
    }

    /// The name that users see. `None` if it is not known in time.
    pub(super) async fn name_of(&self, bot: &Bot, team: &str, user: &str) -> Option<String> {
        if !is_id(user) {
            return None;
        }
        let key = (bot.id.clone(), team.to_owned(), user.to_owned());
        let now_ms = self.env.steady_ms();
        if let Some(known) = self.names.get(&key, now_ms) {
            return known;
        }
        let api = self.api_of(bot, team)?;
        let fields = [("user", user)];
        let asked = tokio::time::timeout(ASK_LIMIT, api.ask("users.info", &fields)).await;
        let name = match asked {
            Ok(Ok(response)) => shown_name(&response["user"]),
            // What Slack refuses now it refuses for the next message too.
            Ok(Err(ApiError::Refused { .. } | ApiError::Limited { .. })) => None,
            _ => return None,
        };
        self.names.put(key, name.clone(), now_ms);
        name
    }

    pub(super) fn note_place(&self, bot: &Bot, chat: &str, team: &str) {
        if !team.is_empty() && is_id(chat) {
            self.places.put((bot.id.clone(), chat.to_owned()), team.to_owned(), self.env.steady_ms());
        }
    }

    /// A mention comes without the kind of its chat. Without an answer in time it is guessed from the id, as far as
    /// possible.
    pub(super) async fn kind_of(&self, bot: &Bot, team: &str, chat: &str) -> &'static str {
        if chat.starts_with('D') {
            return "im";
        }
        let key = (bot.id.clone(), chat.to_owned());
        if let Some(known) = self.kinds.get(&key, self.env.steady_ms()) {
            return known;
        }
        let Some(api) = self.api_of(bot, team).filter(|_| is_id(chat)) else { return "" };
        let fields = [("channel", chat)];
        let Ok(Ok(response)) = tokio::time::timeout(ASK_LIMIT, api.ask("conversations.info", &fields)).await else {
            return "";
        };
        let kind = if response["channel"]["is_mpim"].as_bool() == Some(true) { "mpim" } else { "channel" };
        self.kinds.put(key, kind, self.env.steady_ms());
        kind
    }

    pub(super) fn note_kind(&self, bot: &Bot, chat: &str, kind: &str) {
        let kind = match kind {
            "mpim" => "mpim",
            "channel" | "group" => "channel",
            _ => return,
        };
        self.kinds.put((bot.id.clone(), chat.to_owned()), kind, self.env.steady_ms());
    }

    /// The Web API of the workspace that a chat is in. `team_hint` is what the gateway says about it: it only chooses
    /// among tokens of the bot, and Slack refuses a chat of another workspace.
    pub(super) async fn api_for<'a>(
        &'a self,
        bot: &'a Bot,
        chat: &str,
        team_hint: Option<&str>,
    ) -> Result<Option<(Api<'a>, String)>, ApiError> {
        let all = workspaces(bot);
        if let [only] = all.as_slice() {
            return Ok(Some((self.api(bot, *only), only.team.unwrap_or_default().to_owned())));
        }
        let known = self.places.get(&(bot.id.clone(), chat.to_owned()), self.env.steady_ms());
        let team_hint = team_hint.filter(|team| all.iter().any(|it| it.team == Some(*team))).map(str::to_owned);
        if let Some(team) = known.or(team_hint)
            && let Some(api) = self.api_of(bot, &team)
        {
            return Ok(Some((api, team)));
        }
        for of in all.into_iter().take(SEARCH_MAX) {
            let api = self.api(bot, of);
            match api.ask("conversations.info", &[("channel", chat)]).await {
                Ok(_) => {
                    let team = match of.team {
                        Some(team) => team.to_owned(),
                        None => self.me(bot, "").await?.team,
                    };
                    self.note_place(bot, chat, &team);
                    return Ok(Some((api, team)));
                }
                Err(ApiError::Refused { .. }) => {} // not there
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

fn shown_name(user: &Value) -> Option<String> {
    let profile = &user["profile"];
    let names = [
        text_of(profile, "display_name"),
        text_of(profile, "real_name"),
        text_of(user, "real_name"),
        text_of(user, "name"),
    ];
    names.into_iter().find(|name| !name.trim().is_empty()).map(str::to_owned)
}
