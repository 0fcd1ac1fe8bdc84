//! Settings and secrets of a bot, and the tokens of the workspaces in which its app is installed.

use frontdesk_core::port::platform::{Bot, BotNames};
use frontdesk_wire::Secret;

/// Before the id of a workspace, in the name of the token that was granted by it.
pub(super) const WORKSPACE: &str = "workspace:";
/// Workspaces of one bot.
pub(super) const WORKSPACES_MAX: usize = 200;

pub(super) const NAMES: BotNames = BotNames {
    settings: &["base_url", "client_id", "mode"],
    required: &[],
    secrets: &["bot_token", "app_token", "signing_secret", "client_secret"],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// This server dials a socket.
    Socket,
    /// Slack calls this server.
    Events,
}

/// Without a setting: the socket, if the bot has the token for it.
pub(super) fn mode(bot: &Bot) -> Mode {
    match (bot.setting("mode"), bot.secret("app_token")) {
        (Some("socket"), _) | (None, Some(_)) => Mode::Socket,
        _ => Mode::Events,
    }
}

pub(super) fn check(bot: &Bot) -> Result<(), String> {
    if let Some(base) = bot.setting("base_url") {
        let is_url = ["https://", "http://"].iter().any(|scheme| base.starts_with(scheme) && base.len() > scheme.len());
        if !is_url || !base.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("base_url {base:?} must begin with https:// or http:// and end with /api"));
        }
    }
    let begins = |name: &str, with: &str| {
        bot.secret(name).is_none_or(|token| {
            let token = token.expose();
            token.starts_with(with) && token.len() > with.len() && token.bytes().all(|byte| byte.is_ascii_graphic())
        })
    };
    if !begins("bot_token", "xoxb-") {
        return Err("bot_token must be the Bot User OAuth Token of the app; it begins with xoxb-".into());
    }
    if !begins("app_token", "xapp-") {
        return Err(
            "app_token must be an app-level token with the scope connections:write; it begins with xapp-".into()
        );
    }
    let can_install = bot.setting("client_id").is_some() && bot.secret("client_secret").is_some();
    if bot.secret("bot_token").is_none() && !can_install {
        return Err("give --secret bot_token=..., or --set client_id=... with --secret client_secret=... so that \
                    workspaces can install the app"
            .into());
    }
    if bot.setting("client_id").is_some() != bot.secret("client_secret").is_some() {
        return Err("client_id and client_secret belong together: give both or none".into());
    }
    match bot.setting("mode") {
        None | Some("socket" | "events") => {}
        Some(other) => return Err(format!("mode must be socket or events, not {other:?}")),
    }
    match mode(bot) {
        Mode::Socket if bot.secret("app_token").is_none() => {
            Err("mode socket needs --secret app_token=..., an app-level token with the scope connections:write".into())
        }
        Mode::Events if bot.secret("signing_secret").is_none_or(|secret| secret.expose().len() < 16) => Err(
            "mode events needs --secret signing_secret=..., as Basic Information of the app shows it; without a public \
             URL use --set mode=socket with --secret app_token=..."
                .into(),
        ),
        _ => Ok(()),
    }
}

/// The app, which stays the same when tokens change or workspaces come and go.
pub(super) fn account_of(bot: &Bot) -> Option<String> {
    if let Some(id) = bot.setting("client_id") {
        return Some(format!("client {id}"));
    }
    // xoxb-TEAM-BOT-secret
    let mut parts = bot.secret("bot_token")?.expose().split('-').skip(1);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(team), Some(user), Some(_)) => Some(format!("bot {team} {user}")),
        _ => None,
    }
}

/// Where the token of a workspace comes from.
#[derive(Clone, Copy)]
pub(super) struct Workspace<'a> {
    /// `None`: that of `bot_token`, whose workspace is known only when it is used.
    pub(super) team: Option<&'a str>,
    pub(super) token: &'a Secret,
}

/// All workspaces, that of `bot_token` first.
pub(super) fn workspaces(bot: &Bot) -> Vec<Workspace<'_>> {
    let own = bot.secret("bot_token").map(|token| Workspace { team: None, token });
    let granted = bot.granted(WORKSPACE).map(|(team, token)| Workspace { team: Some(team), token });
    own.into_iter().chain(granted).take(WORKSPACES_MAX + 1).collect()
}

/// The token for a workspace. One that did not install the app by itself is that of `bot_token`.
pub(super) fn workspace<'a>(bot: &'a Bot, team: &str) -> Option<Workspace<'a>> {
    let all = workspaces(bot);
    let of_team = all.iter().find(|it| it.team == Some(team)).copied();
    of_team.or_else(|| all.into_iter().find(|it| it.team.is_none()))
}

/// Ids of teams, channels and users: capital letters and digits.
pub(super) fn is_id(text: &str) -> bool {
    (2..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit())
}

/// Ids of messages: seconds and a number, `1700000000.000100`.
pub(super) fn is_ts(text: &str) -> bool {
    let is_number = |part: &str| (1..=20).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(seconds, number)| is_number(seconds) && is_number(number))
}

/// Whether this is an address of Slack, or of the server that the operator configured instead. Requests to it may carry
/// a token.
pub(super) fn is_of_vendor(bot: &Bot, url: &str) -> bool {
    if let Some(base) = bot.setting("base_url") {
        let origin = |url: &str| {
            let end = url.find("://").map(|at| at + 3)?;
            let path = url[end..].find('/').map_or(url.len(), |at| end + at);
            Some(url[..path].to_owned())
        };
        if origin(base).is_some_and(|own| origin(url) == Some(own)) {
            return true;
        }
    }
    let Some(rest) = url.strip_prefix("https://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_plain = host.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte));
    is_plain && (host == "slack.com" || host.ends_with(".slack.com"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        Bot::new("b", None, settings, secrets)
    }

    const SIGNING: (&str, &str) = ("signing_secret", "8f742231b10e8888abcd99yyyzzz85a5");

    #[test]
    fn a_bot_that_cannot_work_is_refused_with_what_to_give() {
        let token = ("bot_token", "xoxb-1-2-abc");
        for (settings, secrets, expected) in [
            (&[][..], &[SIGNING][..], "bot_token"),
            (&[], &[("bot_token", "xoxp-1"), SIGNING], "xoxb-"),
            (&[], &[token, ("app_token", "xoxb-1")], "xapp-"),
            (&[("mode", "socket")], &[token, SIGNING], "app_token"),
            (&[], &[token], "signing_secret"),
            (&[("mode", "events")], &[token, ("app_token", "xapp-1")], "signing_secret"),
            (&[("mode", "poll")], &[token, SIGNING], "socket or events"),
            (&[("client_id", "1.2")], &[token, SIGNING], "client_secret"),
            (&[("base_url", "slack.com")], &[token, SIGNING], "https://"),
        ] {
            let why = check(&bot(settings, secrets)).unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
        for (settings, secrets, mode_of) in [
            (&[][..], &[token, SIGNING][..], Mode::Events),
            (&[], &[token, ("app_token", "xapp-1-A1-x")], Mode::Socket),
            (&[("mode", "events")], &[token, SIGNING, ("app_token", "xapp-1")], Mode::Events),
            (&[("client_id", "1.2")], &[("client_secret", "x"), SIGNING], Mode::Events),
        ] {
            let bot = bot(settings, secrets);
            assert_eq!((check(&bot), mode(&bot)), (Ok(()), mode_of));
        }
    }

    #[test]
    fn a_workspace_has_the_token_that_it_granted() {
        let all = bot(&[], &[("bot_token", "xoxb-own"), ("workspace:T2", "xoxb-two"), ("workspace:T3", "xoxb-three")]);
        let token = |team| workspace(&all, team).unwrap().token.expose().to_owned();
        assert_eq!(
            (token("T2"), token("T3"), token("T1")),
            ("xoxb-two".into(), "xoxb-three".into(), "xoxb-own".into())
        );
        let only_installed = bot(&[], &[("workspace:T2", "xoxb-two")]);
        assert!(workspace(&only_installed, "T9").is_none(), "a token of another workspace is not used");
    }

    #[test]
    fn tokens_go_to_the_vendor_only() {
        let plain = Bot::bare("b");
        for url in
            ["https://slack.com/x", "https://files.slack.com/files-pri/T1-F1/a.png", "https://hooks.slack.com/a?b"]
        {
            assert!(is_of_vendor(&plain, url), "{url}");
        }
        for url in [
            "http://files.slack.com/a",
            "https://slack.com.evil.example/a",
            "https://evil.example/slack.com",
            "https://evil.example?.slack.com",
            "https://evil.example#.slack.com",
            "https://evil.example\\.slack.com/",
            "https://u@slack.com/",
            "https://notslack.com/",
            "",
        ] {
            assert!(!is_of_vendor(&plain, url), "{url}");
        }
        let own = bot(&[("base_url", "http://127.0.0.1:80/api")], &[]);
        assert!(is_of_vendor(&own, "http://127.0.0.1:80/files/F1"));
        for url in ["http://127.0.0.1:81/files/F1", "http://127.0.0.1:80.evil.example/", "https://127.0.0.1:80/a"] {
            assert!(!is_of_vendor(&own, url), "{url}");
        }
    }

    #[test]
    fn ids_are_told_from_other_texts() {
        assert!(is_id("C024BE91L") && is_ts("1700000000.000100"));
        for text in ["", "C", "c024", "C1/x", "C 1", &"C".repeat(65)] {
            assert!(!is_id(text), "{text}");
        }
        for text in ["", "1", "1.", ".1", "1.a", "1.2.3", "-1.2", " 1.2"] {
            assert!(!is_ts(text), "{text}");
        }
    }

    #[test]
    fn the_account_stays_when_workspaces_come() {
        let own = bot(&[], &[("bot_token", "xoxb-1-2-abc")]);
        assert_eq!(account_of(&own).as_deref(), Some("bot 1 2"));
        let shared = bot(&[("client_id", "1.2")], &[("workspace:T1", "xoxb-9-9-z")]);
        assert_eq!(account_of(&shared).as_deref(), Some("client 1.2"));
    }
}
