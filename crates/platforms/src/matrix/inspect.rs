//! Who the bot is at its homeserver, and what is wrong with it.

use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Bot, BotFinding};
use serde_json::json;

use super::Homeservers;
use super::account::{Account, Mode};
use super::client::{Ask, Client, Fault};

/// Rooms that a finding names.
const NAMED_MAX: usize = 5;

/// The account behind the token is the one of the settings. An application service makes it if need be.
pub(super) async fn check_account(client: &Client<'_>) -> Result<(), Fault> {
    let account = client.account;
    if account.mode == Mode::AppService {
        let body = json!({
            "type": "m.login.application_service",
            "username": account.localpart(),
            "inhibit_login": true,
        });
        let url = client.url(&["client", "v3", "register"], &[]);
        let ask = Ask { method: HttpMethod::Post, json: Some(&body), ..Ask::GET };
        match client.ask(&url, &ask).await {
            Ok(_) => {}
            Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
            Err(fault) if fault.is("M_USER_IN_USE") => {}
            Err(fault) => tracing::debug!(%fault, bot = account.bot.id.as_str(), "the user was not registered"),
        }
    }
    let answer = client.get(&["client", "v3", "account", "whoami"], &[]).await?;
    match answer["user_id"].as_str() {
        Some(user_id) if user_id == account.user_id => Ok(()),
        other => {
            let error =
                format!("the token belongs to {:?}, but user_id is {:?}", other.unwrap_or("nobody"), account.user_id);
            Err(Fault::Refused { status: 401, errcode: "M_UNKNOWN_TOKEN".into(), error })
        }
    }
}

/// A fault about the token counts only if the homeserver confirms it when it is asked about the token. The answer of
/// another server to a join arrives as one of ours, so that server can choose its error code.
pub(super) async fn token_checked<T>(client: &Client<'_>, answered: Result<T, Fault>) -> Result<T, Fault> {
    match answered {
        Err(fault) if fault.is_token() => {
            check_account(client).await?;
            Err(Fault::Final(format!("{fault}; the token of the bot works all the same")))
        }
        other => other,
    }
}

impl Homeservers {
    /// Whether the token works, and in how many rooms the bot is.
    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let account = match Account::of(bot) {
            Ok(account) => account,
            Err(why) => return vec![BotFinding::new("settings", false, why)],
        };
        let client = Client::new(&*self.outcall, &account);
        if let Err(fault) = check_account(&client).await {
            return vec![BotFinding::new("token", false, fault.to_string())];
        }
        let token = BotFinding::new("token", true, format!("the homeserver knows the bot as {}", account.user_id));
        let rooms = match client.get(&["client", "v3", "joined_rooms"], &[]).await {
            Ok(answer) => match answer["joined_rooms"].as_array().map_or(0, Vec::len) {
                0 => BotFinding::new("rooms", false, "the bot is in no room; invite it"),
                count => BotFinding::new("rooms", true, format!("rooms that the bot is in: {count}")),
            },
            Err(fault) => BotFinding::new("rooms", false, fault.to_string()),
        };
        let mut found = vec![token, rooms];
        let failures = self.notes.failures(&bot.id);
        if !failures.is_empty() {
            let named: Vec<String> =
                failures.iter().take(NAMED_MAX).map(|(room_id, why)| format!("{room_id}: {why}")).collect();
            let text = format!(
                "the notice about encryption could not be sent to {} rooms: {}",
                failures.len(),
                named.join("; ")
            );
            found.push(BotFinding::new("encryption", false, text));
        }
        found
    }
}
