//! A platform, as the desk sees it: what it can do, how to act there, what can be seen there.

use std::collections::HashMap;
use std::sync::Arc;

use frontdesk_wire::{Action, ActionResult, ChatInfo, Descriptor, MessageEvent, Secret};

use super::BoxFuture;
use super::stored::StoreError;

/// On whose behalf, and as which bot, an action goes out.
#[derive(Debug, Clone, Copy)]
pub struct ActingAs<'a> {
    pub tenant: &'a str,
    pub bot: &'a str,
}

/// What the platform itself knows of a chat.
#[derive(Debug, Clone, Default)]
pub struct Look {
    pub info: ChatInfo,
    /// Whether the person that was asked about can see it. Not known is `None`, and counts as no.
    pub visible: Option<bool>,
    pub scope_id: Option<String>,
    /// The channel, if this chat is a thread of it.
    pub parent_chat_id: Option<String>,
    /// The one person of a direct chat.
    pub person: Option<String>,
}

/// A message that was said nearby.
#[derive(Debug, Clone, Default)]
pub struct Nearby {
    pub message_id: String,
    pub user_id: String,
    pub user_name: Option<String>,
    pub is_bot: bool,
    /// It was addressed to the bot, so it was a turn of its own.
    pub addressed: bool,
    pub text: String,
}

/// Duties of a platform. There is no method per feature: an action that `supported_ops` does not
/// name is refused before it gets here.
pub trait Platform: Send + Sync {
    fn descriptor(&self) -> &Descriptor;

    /// A bot that every tenant has here without asking. Where there is one, the platform keeps tenants
    /// apart itself: it shows a tenant that tenant's chats and no others.
    fn common_bot(&self) -> Option<&str> {
        None
    }

    /// Does one action, perhaps with a capability from the vault. May take long; must not panic.
    /// `ambiguous` in the result means that nobody knows whether it happened.
    fn act<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        action: &'a Action,
        capability: Option<&'a Secret>,
    ) -> BoxFuture<'a, ActionResult>;

    /// The chat, if it is there, and whether `viewer` can see it.
    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a str,
        viewer: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Option<Look>, StoreError>>;

    /// The latest messages of people in a chat (and thread), oldest first. Asked only where the
    /// descriptor says `supports_context`.
    fn nearby<'a>(
        &'a self,
        _acting_as: ActingAs<'a>,
        _chat_id: &'a str,
        _thread_id: Option<&'a str>,
        _limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Nearby>, StoreError>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Something was said to an agent here by another agent: shown to people who look on, if there are any.
    fn overheard<'a>(&'a self, _acting_as: ActingAs<'a>, _event: &'a MessageEvent) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// A word from the desk itself to the people in a chat, not from an agent.
    fn notice<'a>(&'a self, acting_as: ActingAs<'a>, chat_id: &'a str, text: &'a str) -> BoxFuture<'a, ActionResult>;
}

/// The platforms that this desk runs, by name.
#[derive(Default)]
pub struct Platforms(HashMap<String, Arc<dyn Platform>>);

impl Platforms {
    pub fn new(all: Vec<Arc<dyn Platform>>) -> Self {
        Self(all.into_iter().map(|it| (it.descriptor().platform.clone(), it)).collect())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn Platform>> {
        self.0.get(name)
    }

    /// Its credential names one tenant, so that no event of it needs a route.
    pub fn keeps_tenants_apart(&self, name: &str) -> bool {
        self.get(name).is_some_and(|found| found.common_bot().is_some())
    }
}
