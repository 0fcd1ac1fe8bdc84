//! What Telegram says about a bot, for `frontdesk bot check`.

use frontdesk_core::port::platform::{Bot, BotFinding};
use serde::Deserialize;
use serde_json::json;

use super::Telegram;
use super::api::Api;

#[derive(Deserialize)]
struct Me {
    id: i64,
    #[serde(default)]
    username: Option<String>,
    #[serde(default)]
    can_join_groups: bool,
    #[serde(default)]
    can_read_all_group_messages: bool,
}

#[derive(Deserialize)]
struct WebhookInfo {
    #[serde(default)]
    url: String,
    #[serde(default)]
    pending_update_count: u64,
    #[serde(default)]
    last_error_message: Option<String>,
}

impl Telegram {
    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            return vec![BotFinding::new(
                "token",
                false,
                "the bot has no token; repeat `bot add` with --secret token=...",
            )];
        };
        let me: Me = match api.call("getMe", &json!({})).await {
            Ok(me) => me,
            Err(error) if matches!(error.code(), Some(401 | 404)) => {
                let text = format!("{}; get the right token from @BotFather and repeat `bot add`", error.text());
                return vec![BotFinding::new("token", false, text)];
            }
            Err(error) => return vec![BotFinding::new("token", false, error.text())],
        };
        let name = me.username.as_deref().unwrap_or("without a name");
        let mut found = vec![BotFinding::new("token", true, format!("the token is that of @{name} ({})", me.id))];
        found.push(match (me.can_join_groups, me.can_read_all_group_messages) {
            (false, _) => BotFinding::new("groups", true, "nobody can add it to a group; @BotFather /setjoingroups changes that"),
            (true, false) => BotFinding::new(
                "groups",
                true,
                "privacy mode is on: in groups it sees commands, mentions and replies to it; @BotFather /setprivacy changes that",
            ),
            (true, true) => BotFinding::new("groups", true, "it sees all messages of its groups"),
        });
        found.push(match api.call::<WebhookInfo>("getWebhookInfo", &json!({})).await {
            Ok(info) => self.webhook_finding(bot, &info),
            Err(error) => BotFinding::new("updates", false, error.text()),
        });
        found
    }

    fn webhook_finding(&self, bot: &Bot, info: &WebhookInfo) -> BotFinding {
        let waiting = format!("{} updates are waiting at Telegram", info.pending_update_count);
        let own = self.webhook_url(bot);
        match (bot.setting("mode").unwrap_or("poll"), info.url.as_str()) {
            ("webhook", url) if url == own => match &info.last_error_message {
                None => BotFinding::new("updates", true, format!("Telegram calls {url}; {waiting}")),
                Some(why) => {
                    let text = format!("Telegram could not deliver to {url}: {why}; {waiting}");
                    BotFinding::new("updates", info.pending_update_count == 0, text)
                }
            },
            ("webhook", "") => {
                BotFinding::new("updates", false, format!("no webhook is set; it should be {own}; {waiting}"))
            }
            (_, "") => BotFinding::new("updates", true, format!("polled by this server; {waiting}")),
            (_, url) => BotFinding::new(
                "updates",
                false,
                format!(
                    "Telegram sends the updates to {url}, so another program has this bot; stop it, or use another bot"
                ),
            ),
        }
    }
}
