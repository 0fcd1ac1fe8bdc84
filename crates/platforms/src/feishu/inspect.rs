//! What Feishu says about a bot, for `frontdesk bot check`.

use frontdesk_core::port::platform::{Bot, BotFinding};

use super::Feishu;
use super::account::{Mode, base, mode};
use super::value::{list_of, text_of};

/// A permission that is enough, or several of which one is. Without those of the second list something works less.
const SCOPES: [&[&str]; 3] = [
    &["im:message", "im:message:send_as_bot", "im:message:send"],
    &["im:message", "im:message.p2p_msg:readonly", "im:message.p2p_msg"],
    &["im:message", "im:message.group_at_msg:readonly", "im:message.group_at_msg", "im:message.group_msg"],
];
const OPTIONAL: [&[&str]; 4] = [
    &["im:resource"],
    &["im:chat:readonly", "im:chat", "im:chat:read"],
    &["im:message.reactions:write_only", "im:message"],
    &["contact:user.base:readonly", "contact:contact.base:readonly", "contact:contact:readonly_as_app"],
];

impl Feishu {
    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let response = match self.api(bot).ask_whole("/open-apis/bot/v3/info").await {
            Ok(response) => response,
            Err(error) => return vec![BotFinding::new("app", false, format!("{}: {}", base(bot), error.text()))],
        };
        let of = if response["bot"].is_object() { &response["bot"] } else { &response["data"]["bot"] };
        let name = super::value::first([text_of(of, "app_name"), text_of(of, "bot_name")]);
        let text = format!("app_id and app_secret are those of {name:?} ({}) at {}", text_of(of, "open_id"), base(bot));
        let mut found = vec![BotFinding::new("app", true, text)];
        // 0: not yet, 1: stopped, 2: in use, 3: to be installed
        match of["activate_status"].as_i64() {
            None | Some(2) => {}
            Some(status) => {
                let text =
                    format!("the app is not in use in this organization (status {status}): publish a version of it");
                found.push(BotFinding::new("app", false, text));
            }
        }
        found.extend(self.of_scopes(bot).await);
        found.push(self.of_events(bot).await);
        found
    }

    /// Feishu returns it only to apps with the permission; for others it is left out.
    async fn of_scopes(&self, bot: &Bot) -> Option<BotFinding> {
        let response = self.api(bot).ask("/open-apis/application/v6/scopes").await.ok()?;
        let is_granted = |scope: &&serde_json::Value| scope["grant_status"].as_i64().is_none_or(|status| status == 1);
        let has: Vec<&str> =
            list_of(&response, "scopes").iter().filter(is_granted).map(|it| text_of(it, "scope_name")).collect();
        let is_lacking = |any: &&&[&str]| !any.iter().any(|scope| has.contains(scope));
        let needed: Vec<&str> = SCOPES.iter().filter(is_lacking).filter_map(|any| any.first().copied()).collect();
        let optional = OPTIONAL.iter().filter(is_lacking).filter_map(|any| any.first().copied());
        let lacking: Vec<&str> = needed.iter().copied().chain(optional).collect();
        let text = match lacking.is_empty() {
            true => "the app has all permissions".to_owned(),
            false => format!(
                "the app lacks the permissions {}: add them under Permissions & Scopes, and publish a version of the app",
                lacking.join(", ")
            ),
        };
        Some(BotFinding::new("permissions", needed.is_empty(), text))
    }

    async fn of_events(&self, bot: &Bot) -> BotFinding {
        if mode(bot) == Mode::Events {
            let text = format!(
                "Feishu must call {}/feishu/{} for events and for callbacks (Events & Callbacks > Request URL)",
                self.public_url, bot.id
            );
            return BotFinding::new("events", true, text);
        }
        match self.endpoint(bot).await {
            Ok(_) => BotFinding::new("events", true, "this server dials Feishu's socket (persistent connection)"),
            Err(error) => BotFinding::new("events", false, format!("persistent connection: {}", error.text())),
        }
    }
}
