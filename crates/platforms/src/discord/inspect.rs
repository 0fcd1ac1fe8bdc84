//! What Discord says about a bot, for `frontdesk bot check`.

use frontdesk_core::port::platform::{Bot, BotFinding};
use serde_json::Value;

use super::Discord;

// Flags of an application: an intent was granted, or is on for a bot in few guilds.
const MEMBERS: u64 = 1 << 14 | 1 << 15;
const CONTENT: u64 = 1 << 18 | 1 << 19;

impl Discord {
    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let Some(api) = self.api(bot) else {
            let text = "the bot has no token; repeat `bot add` with --secret token=...";
            return vec![BotFinding::new("token", false, text)];
        };
        let me: Value = match api.get("/users/@me").await {
            Ok(me) => me,
            Err(error) if error.status() == Some(401) => {
                let text = format!("{}; copy the token again from the developer portal", error.text());
                return vec![BotFinding::new("token", false, text)];
            }
            Err(error) => return vec![BotFinding::new("token", false, error.text())],
        };
        let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let text = format!("the token is that of {} ({})", name(&me["username"]), name(&me["id"]));
        let mut found = vec![BotFinding::new("token", true, text)];
        let application: Value = match api.get("/applications/@me").await {
            Ok(application) => application,
            Err(error) => {
                found.push(BotFinding::new("intents", false, error.text()));
                return found;
            }
        };
        let flags = application["flags"].as_u64().unwrap_or(0);
        for (flag, what) in [(CONTENT, "Message Content Intent"), (MEMBERS, "Server Members Intent")] {
            let text = match flags & flag != 0 {
                true => format!("{what} is on"),
                false => format!("{what} is off; turn it on in the developer portal, under Bot"),
            };
            found.push(BotFinding::new("intents", flags & flag != 0, text));
        }
        found.extend(about_interactions(&self.public_url, bot, &application));
        found
    }
}

/// The route of commands and buttons to this server.
fn about_interactions(public_url: &str, bot: &Bot, application: &Value) -> Vec<BotFinding> {
    let ours = format!("{}/interactions/{}", public_url, bot.id);
    let set = application["interactions_endpoint_url"].as_str().filter(|url| !url.is_empty());
    let key = bot.setting("public_key");
    let by_socket = bot.setting("socket") != Some("off");
    let (ok, text) = match (set, key) {
        (Some(url), Some(_)) if url == ours => (true, format!("Discord sends interactions to {url}")),
        (Some(url), Some(_)) => (
            false,
            format!(
                "Discord sends interactions to {url}, and this server takes them at {ours}; change the Interactions \
                 Endpoint URL in the developer portal, or public_url of this server"
            ),
        ),
        (Some(url), None) => (
            false,
            format!(
                "Discord sends interactions to {url}, and the bot has no public_key to verify them with; repeat \
                 `bot add` with --set public_key=..., or remove the URL in the developer portal"
            ),
        ),
        (None, _) if by_socket => (true, "interactions come by the socket".to_owned()),
        (None, _) => (
            false,
            format!("no interactions come: set the Interactions Endpoint URL in the developer portal to {ours}"),
        ),
    };
    let mut found = vec![BotFinding::new("interactions", ok, text)];
    if let (Some(key), Some(real)) = (key, application["verify_key"].as_str())
        && !key.eq_ignore_ascii_case(real)
    {
        let text = "public_key is not that of the application; copy it again from the developer portal";
        found.push(BotFinding::new("interactions", false, text));
    }
    found
}
