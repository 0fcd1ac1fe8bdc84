//! What Slack says about a bot, for `frontdesk bot check`.

use frontdesk_core::port::platform::{Bot, BotFinding};

use super::Slack;
use super::account::{Mode, Workspace, mode, workspaces};
use super::api::Api;
use super::install::SCOPES;
use super::rich::text_of;

/// Workspaces that are asked one by one.
const ASKED_MAX: usize = 20;
/// Without these something works less, but messages come and go.
const OPTIONAL: [&str; 3] = ["commands", "assistant:write", "im:write"];

impl Slack {
    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let all = workspaces(bot);
        let mut found = Vec::new();
        if all.is_empty() {
            let text = format!("no workspace has installed the app yet: {}/slack/{}/install", self.public_url, bot.id);
            found.push(BotFinding::new("token", true, text));
        }
        for of in all.iter().take(ASKED_MAX) {
            found.extend(self.of_workspace(bot, *of).await);
        }
        if all.len() > ASKED_MAX {
            let text = format!("{} further workspaces were not asked", all.len() - ASKED_MAX);
            found.push(BotFinding::new("token", true, text));
        }
        found.push(self.of_events(bot).await);
        found
    }

    async fn of_workspace(&self, bot: &Bot, of: Workspace<'_>) -> Vec<BotFinding> {
        let (response, headers) = match self.api(bot, of).ask_whole("auth.test", &[]).await {
            Ok(answer) => answer,
            Err(error) => {
                let which = of.team.map_or_else(|| "bot_token".to_owned(), |team| format!("workspace {team}"));
                return vec![BotFinding::new("token", false, format!("{which}: {}", error.text()))];
            }
        };
        let (user, team) = (text_of(&response, "user"), text_of(&response, "team"));
        let text = format!("the token is that of @{user} in {team} ({})", text_of(&response, "team_id"));
        let mut found = vec![BotFinding::new("token", true, text)];
        let scopes = headers.iter().find(|(name, _)| name == "x-oauth-scopes").map(|(_, value)| value.as_str());
        if let Some(scopes) = scopes {
            let has: Vec<&str> = scopes.split(',').map(str::trim).collect();
            let lacking: Vec<&str> = SCOPES.into_iter().filter(|scope| !has.contains(scope)).collect();
            let is_ok = lacking.iter().all(|scope| OPTIONAL.contains(scope));
            let text = match lacking.is_empty() {
                true => "the app has all scopes".to_owned(),
                false => format!(
                    "the app lacks the scopes {}: add them under OAuth & Permissions, and install the app again",
                    lacking.join(", ")
                ),
            };
            found.push(BotFinding::new("scopes", is_ok, text));
        }
        found
    }

    async fn of_events(&self, bot: &Bot) -> BotFinding {
        let Mode::Socket = mode(bot) else {
            let base = format!("{}/slack/{}", self.public_url, bot.id);
            let text = format!("Slack must call {base}/events, {base}/commands and {base}/interactions");
            return BotFinding::new("events", true, text);
        };
        let Some(token) = bot.secret("app_token") else {
            return BotFinding::new("events", false, "the bot has no app_token");
        };
        let api = Api { outcall: &*self.outcall, own_base: bot.setting("base_url"), token };
        match api.ask("apps.connections.open", &[]).await {
            Ok(_) => BotFinding::new("events", true, "this server dials Slack's socket"),
            Err(error) => BotFinding::new("events", false, format!("Socket Mode: {}", error.text())),
        }
    }
}
