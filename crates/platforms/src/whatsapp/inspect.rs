//! What Meta says about a bot, for `frontdesk bot check` and at its start.

use frontdesk_core::port::platform::{Bot, BotFinding, ListenEnd};
use serde::Deserialize;

use super::WhatsApp;
use super::api::{Api, ApiError};

#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    display_phone_number: String,
    verified_name: String,
    quality_rating: String,
}

impl WhatsApp {
    async fn number(api: &Api<'_>) -> Result<Shown, ApiError> {
        api.get(&format!("{}?fields=display_phone_number,verified_name,quality_rating", api.phone_number_id)).await
    }

    /// Messages come by the door; this only finds out early that the credentials are wrong.
    pub(super) async fn check_credentials(&self, bot: &Bot) -> ListenEnd {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            return ListenEnd::Misconfigured("the bot has no phone_number_id or access_token".into());
        };
        match Self::number(&api).await {
            Err(error) if error.status() == Some(401) => ListenEnd::Misconfigured(not_accepted(&error)),
            Err(error @ ApiError::NoAnswer { .. }) => ListenEnd::Lost(error.text()),
            Ok(_) | Err(ApiError::Refused { .. }) => ListenEnd::Never,
        }
    }

    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            let text = "the bot has no phone_number_id or access_token; repeat `bot add`";
            return vec![BotFinding::new("token", false, text)];
        };
        let first = match Self::number(&api).await {
            Ok(Shown { display_phone_number, verified_name, quality_rating }) => {
                let text =
                    format!("the number is {display_phone_number} ({verified_name:?}, quality {quality_rating})");
                BotFinding::new("token", true, text)
            }
            Err(error) if matches!(error.status(), Some(400..=404)) => {
                BotFinding::new("token", false, not_accepted(&error))
            }
            Err(error) => BotFinding::new("token", false, error.text()),
        };
        let text = format!(
            "the callback URL of the app must be {}, with the verify_token of the bot, and subscribed to `messages`; Meta does \
             not tell it to this token",
            self.webhook_url(bot)
        );
        let template = match bot.setting("template") {
            Some(name) => format!("after 24 hours without a message, texts go out in the template {name:?}"),
            None => "no template is set: after 24 hours without a message, nothing can be sent to a person".to_owned(),
        };
        vec![first, BotFinding::new("webhook", true, text), BotFinding::new("window", true, template)]
    }
}

fn not_accepted(error: &ApiError) -> String {
    format!("{}; make a token of a system user with whatsapp_business_messaging, and repeat `bot add`", error.text())
}
