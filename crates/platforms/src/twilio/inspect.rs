//! What Twilio says about a bot, for `frontdesk bot check` and at its start.

use frontdesk_core::port::platform::{Bot, BotFinding, ListenEnd};
use serde::Deserialize;

use super::api::{Api, ApiError};
use super::{SERVICE_PREFIX, Sms};

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Account {
    friendly_name: String,
    status: String,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Numbers {
    #[serde(default)]
    incoming_phone_numbers: Vec<Number>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Number {
    sms_url: Option<String>,
    sms_method: Option<String>,
    capabilities: Capabilities,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Capabilities {
    sms: bool,
    mms: bool,
}

impl Sms {
    /// Messages come by the door; this only finds out early that the credentials are wrong.
    pub(super) async fn check_credentials(&self, bot: &Bot) -> ListenEnd {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            return ListenEnd::Misconfigured("the bot has no account_sid or auth_token".into());
        };
        match api.get::<Account>(".json").await {
            Err(error) if error.status() == Some(401) => ListenEnd::Misconfigured(not_accepted(&error)),
            Err(error @ ApiError::NoAnswer { .. }) => ListenEnd::Lost(error.text()),
            Ok(_) | Err(ApiError::Refused { .. }) => ListenEnd::Never,
        }
    }

    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let Some(api) = Api::of(&*self.outcall, bot) else {
            let text = "the bot has no account_sid or auth_token; repeat `bot add`";
            return vec![BotFinding::new("token", false, text)];
        };
        let account: Account = match api.get(".json").await {
            Ok(account) => account,
            Err(error) if matches!(error.status(), Some(401 | 404)) => {
                return vec![BotFinding::new("token", false, not_accepted(&error))];
            }
            Err(error) => return vec![BotFinding::new("token", false, error.text())],
        };
        let Account { friendly_name, status, kind } = account;
        let text = format!("the account is {friendly_name:?} ({status}, {kind})");
        let mut found = vec![BotFinding::new("token", matches!(status.as_str(), "active" | ""), text)];
        found.push(self.number_finding(&api, bot).await);
        found
    }

    async fn number_finding(&self, api: &Api<'_>, bot: &Bot) -> BotFinding {
        let from = bot.setting("from").unwrap_or_default();
        let own = self.webhook_url(bot);
        if from.starts_with(SERVICE_PREFIX) {
            let text = format!("{from} is a messaging service; its webhook for incoming messages must be {own}");
            return BotFinding::new("number", true, text);
        }
        let path = format!("/IncomingPhoneNumbers.json?PhoneNumber={}", from.replace('+', "%2B"));
        let number = match api.get::<Numbers>(&path).await {
            Ok(mut found) if !found.incoming_phone_numbers.is_empty() => found.incoming_phone_numbers.remove(0),
            Ok(_) => return BotFinding::new("number", false, format!("{from} is not a number of this account")),
            Err(error) => return BotFinding::new("number", false, error.text()),
        };
        let url = number.sms_url.unwrap_or_default();
        let method = number.sms_method.unwrap_or_else(|| "POST".into());
        // Overrides for retries are behind a hash sign and not a part of the address.
        if url.split('#').next() != Some(own.as_str()) || !method.eq_ignore_ascii_case("POST") {
            let text = format!("Twilio sends messages to {from} to {method} {url:?}; set it to POST {own}");
            return BotFinding::new("number", false, text);
        }
        let files = if number.capabilities.mms { "texts and files" } else { "texts only" };
        let text = format!("Twilio sends messages to {from} to {own}; the number takes {files}");
        BotFinding::new("number", number.capabilities.sms, text)
    }
}

fn not_accepted(error: &ApiError) -> String {
    format!("{}; copy account_sid and auth_token from the console of Twilio, and repeat `bot add`", error.text())
}
