//! What `WeCom` says about a bot, for `frontdesk bot check` and at its start.

use frontdesk_core::port::platform::{Bot, BotFinding, ListenEnd};
use serde::Deserialize;

use super::App;
use super::api::Api;
use super::failed::ApiError;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    name: String,
    /// Not zero: the app is disabled.
    close: i64,
}

impl App {
    /// Messages come by the door; this only finds out early that the credentials are wrong.
    pub(super) async fn check_credentials(&self, bot: &Bot) -> ListenEnd {
        let Some(api) = Api::of(self, bot) else {
            return ListenEnd::Misconfigured("the bot has no corp_id, agent_id or secret".into());
        };
        match api.token(None).await {
            Err(error) if matches!(error.code(), Some(40_001 | 40_013 | 40_091)) => {
                ListenEnd::Misconfigured(error.text())
            }
            Err(error @ ApiError::NoAnswer { .. }) => ListenEnd::Lost(error.text()),
            Ok(_) | Err(_) => ListenEnd::Never,
        }
    }

    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let Some(api) = Api::of(self, bot) else {
            let text = "the bot has no corp_id, agent_id or secret; repeat `bot add`";
            return vec![BotFinding::new("token", false, text)];
        };
        let webhook = format!(
            "the URL for receiving messages of the app must be {}, with the token and aes_key of the bot; WeCom does not tell \
             what is set there",
            self.webhook_url(bot)
        );
        let webhook = BotFinding::new("webhook", true, webhook);
        if let Err(error) = api.token(None).await {
            return vec![BotFinding::new("token", false, error.text()), webhook];
        }
        let token = BotFinding::new("token", true, "WeCom accepts corp_id and secret");
        let app = match api.ask::<Shown>("agent/get", &format!("&agentid={}", api.agent_id), None).await {
            Ok(Shown { close, name }) if close != 0 => {
                let text = format!("the app {name:?} is disabled; enable it in the admin console of WeCom");
                BotFinding::new("app", false, text)
            }
            Ok(Shown { name, .. }) => BotFinding::new("app", true, format!("the app is {name:?}")),
            Err(error) => BotFinding::new("app", false, error.text()),
        };
        vec![token, app, webhook]
    }
}
