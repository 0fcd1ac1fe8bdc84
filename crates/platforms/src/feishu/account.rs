//! Settings of a bot, and the ids of the vendor.

use std::sync::Arc;

use frontdesk_core::port::platform::{Bot, BotNames};

pub(super) const BASE_URL: &str = "https://open.feishu.cn";

pub(super) const NAMES: BotNames = BotNames {
    settings: &["base_url", "app_id", "mode"],
    required: &["app_id", "app_secret"],
    secrets: &["app_secret", "verification_token", "encrypt_key"],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// This server dials a socket.
    Socket,
    /// Feishu calls this server.
    Events,
}

/// Without a setting: events, if the bot has something to verify them with.
pub(super) fn mode(bot: &Bot) -> Mode {
    let can_verify = bot.secret("verification_token").is_some() || bot.secret("encrypt_key").is_some();
    match bot.setting("mode") {
        Some("socket") => Mode::Socket,
        None if !can_verify => Mode::Socket,
        _ => Mode::Events,
    }
}

pub(super) fn check(bot: &Bot) -> Result<(), String> {
    if let Some(base) = bot.setting("base_url") {
        let rest = ["https://", "http://"].iter().find_map(|scheme| base.strip_prefix(scheme)).unwrap_or_default();
        let host = rest.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '?', '#', '@']) || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "base_url {base:?} must be scheme and host: {BASE_URL}, or https://open.larksuite.com for Lark"
            ));
        }
    }
    if bot.setting("app_id").is_none_or(|id| !is_id(id)) {
        return Err(
            "app_id must be the App ID of the app, as its page Credentials & Basic Info shows it (cli_...)".into()
        );
    }
    if bot.secret("app_secret").is_none_or(|secret| !secret.expose().bytes().all(|byte| byte.is_ascii_graphic())) {
        return Err(
            "app_secret must be the App Secret of the app, as its page Credentials & Basic Info shows it".into()
        );
    }
    match bot.setting("mode") {
        None | Some("socket" | "events") => {}
        Some(other) => return Err(format!("mode must be socket or events, not {other:?}")),
    }
    let can_verify = bot.secret("verification_token").is_some() || bot.secret("encrypt_key").is_some();
    match mode(bot) {
        Mode::Events if !can_verify => Err("mode events needs --secret encrypt_key=... or --secret verification_token=..., as the \
                                            page Events & Callbacks > Encryption Strategy of the app shows them; without a public \
                                            URL use --set mode=socket"
            .into()),
        _ => Ok(()),
    }
}

/// Feishu gives an event to one of the connections of an app, so two bots of one app would each get some of them.
pub(super) fn clash(bot: &Bot, others: &[Arc<Bot>]) -> Result<(), String> {
    let own = (bot.setting("app_id"), base(bot));
    match others.iter().find(|other| other.id != bot.id && (other.setting("app_id"), base(other)) == own) {
        None => Ok(()),
        Some(other) => Err(format!("bot {:?} has the same app_id; one app can be one bot only", other.id)),
    }
}

pub(super) fn base(bot: &Bot) -> &str {
    bot.setting("base_url").unwrap_or(BASE_URL).trim_end_matches('/')
}

pub(super) fn app_id(bot: &Bot) -> &str {
    bot.setting("app_id").unwrap_or_default()
}

/// Ids of chats, messages, people, files and topics. They become parts of paths.
pub(super) fn is_id(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=256).contains(&text.len()) && text.bytes().all(is_plain)
}

/// Other ids in this place are of events that this server made from presses and the like.
pub(super) fn is_message(id: &str) -> bool {
    id.starts_with("om_") && is_id(id)
}

/// The kind of an id of a person, by its beginning.
pub(super) fn id_type(id: &str) -> &'static str {
    match id {
        id if id.starts_with("ou_") => "open_id",
        id if id.starts_with("on_") => "union_id",
        _ => "user_id",
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_wire::Secret;

    use super::*;

    fn bot(id: &str, settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        Bot::new(id, None, settings, secrets)
    }

    const APP: (&str, &str) = ("app_id", "cli_a1");
    const SECRET: (&str, &str) = ("app_secret", "s");

    #[test]
    fn a_bot_that_cannot_work_is_refused_with_what_to_give() {
        for (settings, secrets, expected) in [
            (&[][..], &[SECRET][..], "app_id"),
            (&[("app_id", "a b")], &[SECRET], "app_id"),
            (&[APP], &[], "app_secret"),
            (&[APP, ("mode", "poll")], &[SECRET], "socket or events"),
            (&[APP, ("mode", "events")], &[SECRET], "encrypt_key"),
            (&[APP, ("base_url", "open.feishu.cn")], &[SECRET], "scheme and host"),
            (&[APP, ("base_url", "https://open.feishu.cn/open-apis")], &[SECRET], "scheme and host"),
            (&[APP, ("base_url", "https://u@open.feishu.cn")], &[SECRET], "scheme and host"),
        ] {
            let why = check(&bot("b", settings, secrets)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        let token = ("verification_token", "v");
        for (settings, secrets, expected) in [
            (&[APP][..], &[SECRET][..], Mode::Socket),
            (&[APP], &[SECRET, token], Mode::Events),
            (&[APP, ("mode", "socket")], &[SECRET, token], Mode::Socket),
            (&[APP, ("mode", "events"), ("base_url", "http://127.0.0.1:80/")], &[SECRET, token], Mode::Events),
        ] {
            let bot = bot("b", settings, secrets);
            assert_eq!((check(&bot), mode(&bot)), (Ok(()), expected));
        }
    }

    #[test]
    fn one_app_is_one_bot() {
        let one = Arc::new(bot("one", &[APP], &[SECRET]));
        assert!(clash(&bot("two", &[APP], &[SECRET]), std::slice::from_ref(&one)).unwrap_err().contains("\"one\""));
        assert_eq!(clash(&bot("one", &[APP], &[SECRET]), std::slice::from_ref(&one)), Ok(()));
        assert_eq!(clash(&bot("two", &[APP, ("base_url", "https://open.larksuite.com")], &[SECRET]), &[one]), Ok(()));
    }

    #[test]
    fn ids_are_told_from_other_texts() {
        for id in ["oc_5ad11d72b830411d72b836c20", "ou_1", "3e3cf96b"] {
            assert!(is_id(id), "{id}");
        }
        for text in ["", "a/b", "a b", "..", "om_?x", &"a".repeat(257)] {
            assert!(!is_id(text), "{text}");
        }
        assert!(is_message("om_1") && !is_message("press-1") && !is_message("om_/x"));
        assert_eq!((id_type("ou_1"), id_type("on_1"), id_type("3e3")), ("open_id", "union_id", "user_id"));
    }
}
