//! Signal, through a `signal-cli` daemon that the operator runs.
//!
//! `signal-cli -a +15550001 daemon --http 127.0.0.1:8080 --receive-mode on-connection`, and then `frontdesk bot add
//! signal --id BOT --set url=http://127.0.0.1:8080 --set account=+15550001`. The keys of the account stay with the
//! daemon; every client that reaches it can act as the account, so it must listen on a private address only.

mod act;
mod api;
mod backlog;
mod envelope;
mod ids;
mod listen;
mod media;
mod normalize;
#[cfg(test)]
mod tests;
mod text;

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotFinding, BotNames, Inlet, ListenEnd, Look, LookFault, MediaFault, Part, Platform,
    RemoteMedia,
};
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::{Action, ChatId, ChatInfo, Descriptor, Secret, UserId};
use serde::Deserialize;
use serde_json::{Value, json};

use self::act::person;
use self::api::Daemon;
use self::backlog::Backlog;
use self::ids::group_of;
use crate::shared::source_file::SourceFiles;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "signal";
pub const LISTED: Listed = Listed { name: PLATFORM, defaults: "", open, sample: None };

/// Of one message, in UTF-16 units.
const MESSAGE_MAX: usize = 8_000;
const TYPING_LASTS_MS: u64 = 15_000;
const OPS: [&str; 5] = ["send", "typing", "get_chat_info", "send_media", "react"];

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let _: NoSettings = kit.section(PLATFORM)?;
    Ok(Arc::new(Signal::new(kit)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NoSettings {}

pub struct Signal {
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    files: SourceFiles,
    descriptor: Descriptor,
    backlog: Backlog,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    id: String,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    #[serde(default)]
    number: Option<String>,
    #[serde(default)]
    uuid: Option<String>,
}

#[derive(Deserialize)]
struct Account {
    #[serde(default)]
    number: String,
}

#[derive(Deserialize)]
struct Version {
    #[serde(default)]
    version: String,
}

impl Signal {
    pub fn new(kit: &Kit) -> Self {
        let descriptor = Descriptor {
            markdown_dialect: "signal".into(),
            len_unit: LenUnit::Utf16,
            emoji: "🔵".into(),
            platform_hint:
                "You are talking on Signal. Write Markdown; bold, italic, struck and monospace text is shown.".into(),
            supported_ops: OPS.map(str::to_owned).to_vec(),
            ..Descriptor::plain(PLATFORM, "Signal", MESSAGE_MAX)
        };
        Self {
            env: kit.env.clone(),
            outcall: kit.outcall.clone(),
            files: SourceFiles::new(kit),
            descriptor,
            backlog: Backlog::default(),
        }
    }

    async fn look_at(&self, bot: &Bot, chat_id: &str, viewer: Option<&str>) -> Result<Option<Look>, LookFault> {
        let Some(group_id) = group_of(chat_id) else {
            let visible = viewer.map(|viewer| viewer == chat_id);
            return Ok(Some(Look { info: person(chat_id), visible, person: Some(chat_id.into()), ..Look::default() }));
        };
        let Some(daemon) = Daemon::of(&*self.outcall, bot) else { return Ok(None) };
        let asked = daemon.rpc::<Vec<Group>>("listGroups", json!({ "groupId": [group_id] })).await;
        let groups = asked.map_err(|error| LookFault::Platform(error.text()))?;
        let Some(group) = groups.into_iter().find(|group| group.id == group_id) else { return Ok(None) };
        let is_there = |viewer: &str| {
            group.members.iter().any(|it| it.uuid.as_deref() == Some(viewer) || it.number.as_deref() == Some(viewer))
        };
        let visible = viewer.map(is_there);
        let name = group.name.filter(|name| !name.is_empty()).unwrap_or_else(|| chat_id.to_owned());
        Ok(Some(Look { info: ChatInfo { name, chat_type: "group".into() }, visible, ..Look::default() }))
    }

    /// Whether the daemon is there, and knows the account.
    async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let Some(daemon) = Daemon::of(&*self.outcall, bot) else {
            return vec![BotFinding::new("settings", false, "the bot needs the settings url and account")];
        };
        let version = match daemon.rpc_of_none::<Version>("version").await {
            Ok(found) => BotFinding::new("daemon", true, format!("signal-cli {} answers", found.version)),
            Err(error) => return vec![BotFinding::new("daemon", false, error.text())],
        };
        let account = match daemon.rpc_of_none::<Vec<Account>>("listAccounts").await {
            Ok(known) if known.iter().any(|it| it.number == daemon.account) => {
                BotFinding::new("account", true, format!("signal-cli has the account {}", daemon.account))
            }
            Ok(_) => {
                let text = format!(
                    "signal-cli does not have the account {}; register or link it with signal-cli first",
                    daemon.account
                );
                BotFinding::new("account", false, text)
            }
            // A daemon of one account has no such method: then it is asked as that account.
            Err(_) => match daemon.rpc::<Value>("listGroups", json!({})).await {
                Ok(_) => BotFinding::new("account", true, format!("signal-cli works as {}", daemon.account)),
                Err(error) => BotFinding::new("account", false, error.text()),
            },
        };
        vec![version, account]
    }
}

impl Platform for Signal {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames { settings: &["url", "account"], required: &["url", "account"], secrets: &[] })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let url = bot.setting("url").unwrap_or_default();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(format!(
                "url {url:?} must begin with http:// or https://: it is that of `signal-cli daemon --http`"
            ));
        }
        let account = bot.setting("account").unwrap_or_default();
        let digits = account.strip_prefix('+').unwrap_or_default();
        match (7..=15).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit()) {
            true => Ok(()),
            false => Err(format!("account {account:?} must be a phone number with its country code, as +15550001")),
        }
    }

    fn clash(&self, bot: &Bot, others: &[Arc<Bot>]) -> Result<(), String> {
        match others.iter().find(|it| it.id != bot.id && it.setting("account") == bot.setting("account")) {
            Some(other) => Err(format!("bot {:?} has the same account; both would get every message", other.id)),
            None => Ok(()),
        }
    }

    fn account_of(&self, bot: &Bot) -> Option<String> {
        bot.setting("account").map(str::to_owned)
    }

    fn inspect<'a>(&'a self, bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(self.findings(bot))
    }

    fn listens(&self) -> bool {
        true
    }

    fn listen<'a>(
        &'a self,
        bot: &'a Bot,
        _: Part,
        _: Option<String>,
        inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        Box::pin(self.read_stream(bot, inlet))
    }

    fn act<'a>(&'a self, acting_as: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(self.act_once(acting_as, action))
    }

    fn typing_lasts_ms(&self) -> Option<u64> {
        Some(TYPING_LASTS_MS)
    }

    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(self.look_at(acting_as.bot, chat_id, viewer.map(UserId::as_str)))
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(self.fetch(bot, handle))
    }

    fn split(&self, text: &str) -> Vec<String> {
        text::parts(text)
    }
}
