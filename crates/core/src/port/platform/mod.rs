//! The interface of a platform: what it supports, its incoming events, actions, and look-ups.

mod bot;
mod cost;
mod door;
mod inlet;
mod part;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::{
    Act, Action, ActionResult, ChatId, ChatInfo, Code, Descriptor, MessageEvent, MessageId, Secret, TenantId, UserId,
};
use serde::{Deserialize, Serialize};

use super::BoxFuture;
use super::media::MediaBody;
use super::stored::StoreError;
use crate::intake::Intake;
use crate::split;

pub use bot::{Bot, BotFinding, BotNames, PlatformBot};
pub use cost::{Acted, Cost, Pace, Priority, Rate, replaces};
pub use door::{
    Afterwards, Door, DoorAnswer, GrantedSecret, Method, RawRequest, ReceivedFragment, ReceivedRequest, Reply,
    ReplyMaker, ReplyToFailure,
};
pub use inlet::{Change, Gap, Inlet, LateReceipt, ListenEnd};
pub use part::{Layout, LayoutStep, PARTS_MAX, Part, Partitioned};

/// Limit for an answer on who can see a chat, or whose it is. A late answer counts as unknown.
pub const LOOK_LIMIT: Duration = Duration::from_secs(3);
/// The same while a user waits for the answer to an interaction: vendors give it three seconds in all.
pub const LOOK_LIMIT_OF_INTERACTION: Duration = Duration::from_millis(1_500);

const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// On whose behalf, and as which bot, an action goes out.
#[derive(Debug, Clone, Copy)]
pub struct ActingAs<'a> {
    pub tenant: &'a TenantId,
    pub bot: &'a Bot,
    /// The same for every attempt of one action (of one part of it, if it was split), and never used for another one.
    /// It comes from the journal. A vendor that takes such a key does not carry out an action twice. `None`: the action
    /// is not in the journal.
    pub idempotency_key: Option<&'a str>,
}

impl<'a> ActingAs<'a> {
    pub fn new(tenant: &'a TenantId, bot: &'a Bot) -> Self {
        Self { tenant, bot, idempotency_key: None }
    }
}

/// What the platform itself knows of a chat.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub info: ChatInfo,
    /// Whether the person that was asked about can see it. Not known is `None`, and counts as no.
    pub visible: Option<bool>,
    pub scope_id: Option<String>,
    /// The channel, if this chat is a thread of it.
    pub parent_chat_id: Option<ChatId>,
    /// The one person of a direct chat.
    pub person: Option<UserId>,
}

/// Why a look failed.
#[derive(Debug, thiserror::Error)]
pub enum LookFault {
    /// The platform did not say. Who can see the chat is not known then, which counts as no.
    #[error("{0}")]
    Platform(String),
    /// The server's own store did not answer: nothing can be decided, and an event that needs it is not accepted.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A message that was written nearby.
#[derive(Debug, Clone, Default)]
pub struct Nearby {
    pub message_id: MessageId,
    pub user_id: UserId,
    pub user_name: Option<String>,
    pub is_bot: bool,
    /// It was addressed to the bot, so it was delivered as an event.
    pub addressed: bool,
    pub text: String,
}

/// A command that agents offer to people, for the platform's own list of commands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Command {
    /// Without a slash.
    pub name: String,
    pub description: String,
    /// Its options as the agent named them: a JSON array. `None`: it takes none, or any text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<String>,
}

impl Command {
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), options: None }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.description.len() + self.options.as_ref().map_or(0, String::len)
    }
}

/// A file that is at the platform.
pub struct RemoteMedia {
    pub mime: String,
    pub filename: Option<String>,
    pub body: MediaBody,
}

/// Why a file could not be fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediaFault {
    /// The platform does not have it any more: a retry would not help.
    #[error("the platform no longer has this file: {0}")]
    Gone(String),
    #[error("the file could not be fetched, try again: {0}")]
    Unavailable(String),
}

/// Duties of a platform. There is no method per feature: an action that `supported_ops` does not name is refused
/// before it gets here. Only `descriptor`, `act` and `look` must be written; a platform adds the duties that its
/// vendor needs.
pub trait Platform: Send + Sync {
    fn descriptor(&self) -> &Descriptor;

    /// A bot that every tenant has without adding it. A platform with such a bot separates tenants itself: it shows a tenant
    /// only its own chats.
    fn common_bot(&self) -> Option<&str> {
        None
    }

    /// Settings and secrets that `bot add` accepts. `None`: any.
    fn bot_names(&self) -> Option<BotNames> {
        None
    }

    /// Whether its bots have something to listen to. Only then is `listen` called.
    fn listens(&self) -> bool {
        false
    }

    /// Checks settings and secrets without asking the vendor. `Err`: why the bot cannot work.
    fn check_bot(&self, _bot: &Bot) -> Result<(), String> {
        Ok(())
    }

    /// Checks a bot against the others of the platform. `Err`: the vendor could not distinguish them.
    fn clash(&self, _bot: &Bot, _others: &[Arc<Bot>]) -> Result<(), String> {
        Ok(())
    }

    /// The vendor's account, if the secrets identify it: with a new token of the same account the listener continues at its
    /// cursor. `None`: other secrets count as another account.
    fn account_of(&self, _bot: &Bot) -> Option<String> {
        None
    }

    /// Called with all bots of the platform about once a second, and before the first of them listens.
    fn know_bots(&self, _bots: &[Arc<Bot>]) {}

    /// A message of this platform from another server, by [`Hint::Platform`](crate::port::bus::Hint::Platform). It may arrive
    /// late, twice, or not at all.
    fn receive_hint<'a>(&'a self, _text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// What the vendor says about the bot: its token, its webhook, its rights. Limit 20 s.
    fn inspect<'a>(&'a self, _bot: &'a Bot) -> BoxFuture<'a, Vec<BotFinding>> {
        Box::pin(std::future::ready(Vec::new()))
    }

    /// Where the vendor spreads the events of a bot over several connections. `None`: each bot has one part.
    fn partitioned(&self) -> Option<&dyn Partitioned> {
        None
    }

    /// Listens as this bot until the future is dropped; returns only if it cannot continue. One call per bot and part
    /// runs in all servers together. Must not block: events wait in `inlet`, not here.
    fn listen<'a>(
        &'a self,
        _bot: &'a Bot,
        _part: Part,
        _cursor: Option<String>,
        _inlet: &'a dyn Inlet,
    ) -> BoxFuture<'a, ListenEnd> {
        Box::pin(std::future::ready(ListenEnd::Never))
    }

    /// The routes that the edge opens for this platform.
    fn doors(&self) -> &[Door] {
        &[]
    }

    /// The bot that a request is for whose path has no `{bot}`: found by its credential among all bots of the platform.
    /// It is asked before the body is read. `None`: `receive` gets no bot, and refuses.
    fn bot_of<'a>(&self, _bots: &'a [Arc<Bot>], _request: &RawRequest) -> Option<&'a Arc<Bot>> {
        None
    }

    /// Verifies the raw bytes of a request, then parses them. `Err` is the refusal as the vendor expects it. `bot` is
    /// the one that the path names, or that `bot_of` found.
    fn receive<'a>(
        &'a self,
        _bot: Option<&'a Bot>,
        _request: &'a RawRequest,
    ) -> BoxFuture<'a, Result<ReceivedRequest, Reply>> {
        Box::pin(std::future::ready(Err(Reply::text(404, "this platform takes no requests"))))
    }

    /// Makes events from the fragments of one, in the order in which they came. For the same fragments it makes the same
    /// events. An error is tried again.
    fn join<'a>(&'a self, _bot: &'a Bot, _fragments: &'a [Secret]) -> BoxFuture<'a, Result<Vec<Intake>, String>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Carries out one action, perhaps with a capability from the vault. May take long; must not panic. `ambiguous` in
    /// the result means that it is not known whether it was carried out.
    fn act<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        action: &'a Action,
        capability: Option<&'a Secret>,
    ) -> BoxFuture<'a, Acted>;

    /// The kind of capability that the answer to an event needs, where the vendor waits for one. Most agents answer with
    /// `send`: it gets the capability that its agent got last in the same chat.
    fn answers_with(&self) -> Option<&'static str> {
        None
    }

    /// How long the vendor shows a typing indicator. Where it is known, the server repeats it while the agent works.
    fn typing_lasts_ms(&self) -> Option<u64> {
        None
    }

    /// The chat, if it is there, and whether `viewer` can see it.
    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>>;

    /// The latest messages of people in a chat (and thread), oldest first. Asked only where the descriptor says
    /// `supports_context`.
    fn nearby<'a>(
        &'a self,
        _acting_as: ActingAs<'a>,
        _chat_id: &'a ChatId,
        _thread_id: Option<&'a str>,
        _limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Nearby>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Shows a message between agents to users who watch, if there are any.
    fn show_agent_message<'a>(&'a self, _acting_as: ActingAs<'a>, _event: &'a MessageEvent) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// A notice of the server itself to the people in a chat, not from an agent. By default it is sent as a message.
    fn notice<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        text: &'a str,
    ) -> BoxFuture<'a, ActionResult> {
        let send = Act::Send { chat_id: chat_id.clone(), content: text.to_owned(), reply_to: None };
        Box::pin(async move { self.act(acting_as, &send.into(), None).await.result })
    }

    /// Whether it has a list of commands of its own. Only then is `declare_commands` called.
    fn declares_commands(&self) -> bool {
        false
    }

    /// Makes the platform's own list of commands this one: the union over the tenants of the bot. Called when the
    /// union has changed and then stayed the same for a while, and once after each start of the server: a list that the
    /// vendor has already should cost nothing. Limit 30 s. An error is tried again.
    fn declare_commands<'a>(&'a self, _bot: &'a Bot, _commands: &'a [Command]) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Opens a file that an event referred to. The handle is that of [`RemoteFile`](crate::intake::RemoteFile); it is
    /// kept sealed, for it may be a credential, and must not be repeated in an error. The answer has to begin within 20 s.
    fn fetch_media<'a>(&'a self, _bot: &'a Bot, _handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(std::future::ready(Err(MediaFault::Gone("this platform has no files".into()))))
    }

    /// A text in parts that each fit into one message as it is sent, measured in the platform's own unit.
    fn split(&self, text: &str) -> Vec<String> {
        let Descriptor { max_message_length, len_unit, .. } = self.descriptor();
        split::split(text, *max_message_length, *len_unit)
    }

    /// What an action takes from the bot's rate budget.
    fn cost(&self, _acting_as: ActingAs<'_>, action: &Action) -> Cost {
        Cost::of(action)
    }
}

/// A notice that is not waited for longer than for an action.
pub async fn notice_in_time(
    platform: &dyn Platform,
    acting_as: ActingAs<'_>,
    chat_id: &ChatId,
    text: &str,
) -> ActionResult {
    let late = || {
        let text = "timed out: the platform did not answer, and the notice may have been shown";
        ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, text) }
    };
    tokio::time::timeout(NOTICE_LIMIT, platform.notice(acting_as, chat_id, text)).await.unwrap_or_else(|_| late())
}

/// The platforms that this server runs, by name.
#[derive(Default)]
pub struct Platforms(HashMap<String, Arc<dyn Platform>>);

impl Platforms {
    pub fn new(all: Vec<Arc<dyn Platform>>) -> Self {
        Self(all.into_iter().map(|it| (it.descriptor().platform.clone(), it)).collect())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Platform>> {
        self.0.get(name)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Platform>> {
        self.0.values()
    }

    /// Its credential names one tenant, so that no event of it needs a route.
    pub fn keeps_tenants_apart(&self, name: &str) -> bool {
        self.get(name).is_some_and(|found| found.common_bot().is_some())
    }
}
