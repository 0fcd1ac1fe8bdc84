//! The account of a bot: its settings and secrets, checked.

use frontdesk_core::port::platform::{Bot, BotNames};
use frontdesk_wire::Secret;

pub(super) const NAMES: BotNames = BotNames {
    settings: &["homeserver_url", "user_id", "mode", "invites"],
    required: &["homeserver_url", "user_id"],
    secrets: &["access_token", "as_token", "hs_token"],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// The homeserver pushes transactions to our door.
    AppService,
    /// A plain account that polls.
    Sync,
}

/// Whose invitations are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Invites<'a> {
    All,
    None,
    /// User ids (`@ann:example.org`) and server names (`example.org`).
    From(Vec<&'a str>),
}

impl Invites<'_> {
    pub(super) fn accept(&self, inviter: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::From(known) => known.iter().any(|it| *it == inviter || Some(*it) == server_of(inviter)),
        }
    }
}

pub(super) struct Account<'a> {
    pub(super) bot: &'a Bot,
    /// Without a final slash.
    pub(super) base: &'a str,
    pub(super) user_id: &'a str,
    pub(super) mode: Mode,
    pub(super) invites: Invites<'a>,
    pub(super) token: &'a Secret,
}

impl<'a> Account<'a> {
    pub(super) fn of(bot: &'a Bot) -> Result<Self, String> {
        let setting = |name: &str| bot.setting(name).ok_or_else(|| format!("the setting {name} is missing"));
        let base = setting("homeserver_url")?.trim_end_matches('/');
        let host = base.strip_prefix("https://").or_else(|| base.strip_prefix("http://"));
        if host.is_none_or(|host| host.is_empty() || host.contains(['?', '#', ' '])) {
            return Err(format!("homeserver_url must be http:// or https:// and a host, not {base:?}"));
        }
        let user_id = setting("user_id")?;
        if !is_user_id(user_id) {
            return Err(format!("user_id must have the form @name:server, not {user_id:?}"));
        }
        let mode = match bot.setting("mode").unwrap_or("sync") {
            "sync" => Mode::Sync,
            "appservice" => Mode::AppService,
            other => return Err(format!("mode must be sync or appservice, not {other:?}")),
        };
        let invites = match bot.setting("invites").unwrap_or("all") {
            "all" => Invites::All,
            "none" => Invites::None,
            list => Invites::From(list.split([',', ' ']).filter(|it| !it.is_empty()).collect()),
        };
        let secret = |name: &str| {
            let absent = || format!("mode {} needs the secret {name}; give it with --secret {name}=...", mode.name());
            bot.secret(name).ok_or_else(absent)
        };
        let token = match mode {
            Mode::Sync => secret("access_token")?,
            Mode::AppService => {
                secret("hs_token")?;
                secret("as_token")?
            }
        };
        Ok(Self { bot, base, user_id, mode, invites, token })
    }

    /// The name before the server.
    pub(super) fn localpart(&self) -> &'a str {
        self.user_id.trim_start_matches('@').split(':').next().unwrap_or_default()
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::AppService => "appservice",
            Self::Sync => "sync",
        }
    }
}

fn is_user_id(text: &str) -> bool {
    let parts = text.strip_prefix('@').and_then(|rest| rest.split_once(':'));
    parts.is_some_and(|(name, server)| !name.is_empty() && !server.is_empty()) && !text.contains(char::is_whitespace)
}

/// The server name of a user id or room id. Rooms of version 12 have none.
pub(super) fn server_of(id: &str) -> Option<&str> {
    id.split_once(':').map(|(_, server)| server).filter(|server| !server.is_empty())
}
