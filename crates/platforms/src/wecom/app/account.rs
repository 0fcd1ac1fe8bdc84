//! Settings and secrets of a bot, and its chats.

use frontdesk_core::port::platform::{Bot, BotNames};
use frontdesk_wire::{ActionResult, Code};

use crate::wecom::crypt::key_of;

pub(super) const NAMES: BotNames = BotNames {
    settings: &["base_url", "corp_id", "agent_id"],
    required: &["corp_id", "agent_id", "secret", "token", "aes_key"],
    secrets: &["secret", "token", "aes_key"],
};

pub(super) fn check(bot: &Bot) -> Result<(), String> {
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    let corp_id = bot.setting("corp_id").unwrap_or_default();
    if corp_id.is_empty() || corp_id.len() > 64 || !is_plain(corp_id) {
        return Err(format!("corp_id {corp_id:?} must be the id that the admin console shows at \"My Company\""));
    }
    let agent_id = bot.setting("agent_id").unwrap_or_default();
    if agent_id.parse::<u32>().is_err() || !agent_id.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!(
            "agent_id {agent_id:?} must be the number that the admin console shows as AgentId of the app"
        ));
    }
    for name in ["secret", "token"] {
        if bot.secret(name).is_none_or(|secret| secret.expose().trim().is_empty()) {
            return Err(format!("the {name} is empty"));
        }
    }
    if bot.secret("aes_key").and_then(|key| key_of(key.expose())).is_none() {
        return Err("aes_key must be the EncodingAESKey of the app's callback: 43 letters and digits".into());
    }
    match bot.setting("base_url") {
        Some(base) if !base.starts_with("https://") && !base.starts_with("http://") => {
            Err(format!("base_url {base:?} must begin with https:// or http://"))
        }
        _ => Ok(()),
    }
}

/// The member that a chat is with: `corp:member`, or the member alone.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
pub(super) fn member_of<'a>(bot: &Bot, chat_id: &'a str) -> Result<&'a str, ActionResult> {
    let bad = |why: &str| {
        let text = format!("{chat_id:?} is not a chat of this app: {why}");
        ActionResult::refused(Code::BadRequest, text)
    };
    let member = match chat_id.split_once(':') {
        Some((corp, member)) if bot.setting("corp_id") == Some(corp) => member,
        Some(_) => return Err(bad("it is in another company")),
        None => chat_id,
    };
    // A bar would name several members, and `@all` all of them.
    let is_one = (1..=64).contains(&member.len()) && !member.contains(['|', ':']) && !member.starts_with('@');
    match is_one && !member.chars().any(|c| c.is_control() || c.is_whitespace()) {
        true => Ok(member),
        false => Err(bad("it does not name one member")),
    }
}
