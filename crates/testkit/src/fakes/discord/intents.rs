//! Which dispatch needs which intent, and what a message shows without the intent for its content.

use serde_json::{Value, json};

pub(super) const GUILDS: u64 = 1;
pub(super) const GUILD_MEMBERS: u64 = 1 << 1;
pub(super) const GUILD_PRESENCES: u64 = 1 << 8;
pub(super) const GUILD_MESSAGES: u64 = 1 << 9;
pub(super) const GUILD_MESSAGE_REACTIONS: u64 = 1 << 10;
pub(super) const GUILD_MESSAGE_TYPING: u64 = 1 << 11;
pub(super) const DIRECT_MESSAGES: u64 = 1 << 12;
pub(super) const DIRECT_MESSAGE_REACTIONS: u64 = 1 << 13;
pub(super) const DIRECT_MESSAGE_TYPING: u64 = 1 << 14;
pub(super) const MESSAGE_CONTENT: u64 = 1 << 15;

/// Need a switch in the portal; without it the gateway closes with 4014.
pub(super) const PRIVILEGED: u64 = GUILD_MEMBERS | GUILD_PRESENCES | MESSAGE_CONTENT;
/// All that the gateway knows: the first 17, those of moderation and those of polls. Others close with 4013.
pub(super) const KNOWN: u64 = ((1 << 17) - 1) | 0b11 << 20 | 0b11 << 24;

/// One of these is needed; 0: it is always sent.
pub(super) fn needed(event: &str, in_guild: bool) -> u64 {
    let either = |guild, direct| if in_guild { guild } else { direct };
    match event {
        "MESSAGE_CREATE" | "MESSAGE_UPDATE" | "MESSAGE_DELETE" => either(GUILD_MESSAGES, DIRECT_MESSAGES),
        "MESSAGE_REACTION_ADD" | "MESSAGE_REACTION_REMOVE" => either(GUILD_MESSAGE_REACTIONS, DIRECT_MESSAGE_REACTIONS),
        "TYPING_START" => either(GUILD_MESSAGE_TYPING, DIRECT_MESSAGE_TYPING),
        "GUILD_MEMBER_ADD" | "GUILD_MEMBER_UPDATE" | "GUILD_MEMBER_REMOVE" => GUILD_MEMBERS,
        // With either intent; without GUILD_MEMBERS only what concerns the bot itself, which the sender decides.
        "THREAD_MEMBERS_UPDATE" => GUILDS | GUILD_MEMBERS,
        _ if !in_guild => 0,
        _ if event.starts_with("GUILD_") || event.starts_with("CHANNEL_") || event.starts_with("THREAD_") => GUILDS,
        _ => 0,
    }
}

pub(super) fn allows(intents: u64, event: &str, in_guild: bool) -> bool {
    let needed = needed(event, in_guild);
    needed == 0 || intents & needed != 0
}

/// Empties what the intent for content guards.
pub(super) fn hide_content(message: &mut Value) {
    message["content"] = json!("");
    for field in ["attachments", "embeds", "components"] {
        message[field] = json!([]);
    }
    if message["referenced_message"].is_object() {
        hide_content(&mut message["referenced_message"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatches_need_the_intent_of_their_place() {
        assert!(allows(GUILD_MESSAGES, "MESSAGE_CREATE", true));
        assert!(!allows(GUILD_MESSAGES, "MESSAGE_CREATE", false));
        assert!(allows(DIRECT_MESSAGES, "MESSAGE_DELETE", false));
        assert!(!allows(GUILDS, "GUILD_MEMBER_ADD", true));
        assert!(allows(GUILDS, "THREAD_CREATE", true));
        assert!(!allows(0, "CHANNEL_UPDATE", true));
        assert!(allows(0, "INTERACTION_CREATE", true));
        assert!(allows(0, "CHANNEL_CREATE", false), "direct messages have no intent for their channel");
    }

    #[test]
    fn unknown_bits_are_not_intents() {
        assert_eq!(KNOWN & (1 << 17), 0);
        assert_eq!(KNOWN & (1 << 60), 0);
        assert_ne!(KNOWN & MESSAGE_CONTENT, 0);
    }

    #[test]
    fn content_is_hidden_also_in_the_message_that_is_replied_to() {
        let mut message = json!({"content": "a", "attachments": [1], "embeds": [1], "components": [1],
            "referenced_message": {"content": "b"}});
        hide_content(&mut message);
        assert_eq!(message["content"], "");
        assert_eq!(message["attachments"], json!([]));
        assert_eq!(message["referenced_message"]["content"], "");
    }
}
