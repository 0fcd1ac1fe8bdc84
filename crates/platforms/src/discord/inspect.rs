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
            Err(error) => {
                let text = format!("{}; copy the token again from the developer portal", error.text());
                return vec![BotFinding::new("token", false, text)];
            }
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
        found
    }
}
