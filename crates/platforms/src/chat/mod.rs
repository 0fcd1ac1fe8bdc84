//! The built-in chat, a platform that needs no external account. On the wire it is `relay`, bot `desk`.
//!
//! Each tenant has its own chat; the chat token is its credential and determines the tenant. It implements every op and
//! serves as the reference for platforms.

mod act;
mod lines;
mod post;
mod settings;
mod signals;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{Bus, To};
use frontdesk_core::port::media::{MediaItem, MediaStore};
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::port::platform::{Acted, ActingAs, Cost, Look, LookFault, Nearby, Platform, Rate};
use frontdesk_core::port::store::{ChatLog, StoreError};
use frontdesk_wire::api::ChatMedia;
use frontdesk_wire::descriptor::{CONTRACT_VERSION, LenUnit};
use frontdesk_wire::event::media_kind;
use frontdesk_wire::{
    Action, ActionResult, ChatId, ChatInfo, Descriptor, MessageEvent, MessageId, Secret, TenantId, UserId,
};
use serde::{Deserialize, Serialize};

use crate::shared::bounded_cache::BoundedCache;
use crate::shared::draft::Seal;
use crate::shared::transfers::Transfers;

pub use post::Posted;
pub use settings::{ChatRules, Commands, Settings};
pub use signals::{ChatEvent, ChatWatcher};
use signals::{Signal, Signals};

/// Name on the wire: the generic relay platform of gateways.
pub const PLATFORM: &str = "relay";
/// The bot that every tenant has here.
pub const BOT: &str = "desk";
/// Kind of the capability of a command.
pub const CAPABILITY_KIND: &str = "relay.interaction_token";

const MESSAGE_MAX_CHARS: usize = 8_000;
/// A typing indicator that is not renewed disappears after this time.
const TYPING_MS: u64 = 8_000;
const DRAFTS_MAX: usize = 10_000;
const DRAFT_MS: u64 = 3_600_000;
/// Files of public URLs that are being fetched. They go to the disk as they come.
const FETCHES_MAX: usize = 256;
const FETCHES_PER_TENANT: usize = 64;
/// Shorter than the core's limit for look-ups: a store that hangs must fail as a store, not count as "unknown".
const LOOK_MAX: Duration = Duration::from_secs(2);
/// Attempts to change the facts of a chat that are changed concurrently.
const FACTS_TRIES: usize = 32;
/// Limit for the actions of one tenant: a burst of 1000, then 1000 per second.
const TENANT_RATE: Rate = Rate { burst: 1_000, every_ms: 1 };
const OPS: [&str; 12] = [
    "send",
    "edit",
    "delete",
    "typing",
    "follow_up",
    "get_chat_info",
    "send_media",
    "prompt",
    "react",
    "thread_create",
    "thread_rename",
    "draft",
];

pub struct BuiltInChat {
    env: Arc<dyn Env>,
    log: Arc<dyn ChatLog>,
    media: Arc<dyn MediaStore>,
    outcall: Arc<dyn Outcall>,
    /// Files that are fetched from public URLs. Their bytes do not count for a quota yet.
    fetches: Transfers,
    rules: ChatRules,
    descriptor: Descriptor,
    signals: Arc<Signals>,
    /// The bus to the chat at other servers. `origin` distinguishes our own hints from theirs.
    bus: Arc<dyn Bus>,
    origin: String,
    /// (tenant, chat) to the time at which the indicator expires.
    typing: Mutex<HashMap<(TenantId, ChatId), u64>>,
    /// By the hash of tenant, chat and draft id (ids may be long).
    drafts: BoundedCache<[u8; 16], ChatDraft>,
}

/// A text that grows while the agent writes it.
#[derive(Clone)]
struct ChatDraft {
    message_id: MessageId,
    seal: Seal,
}

impl ChatDraft {
    fn new(message_id: MessageId) -> Self {
        Self { message_id, seal: Seal::default() }
    }
}

/// Stored data of a chat besides its lines.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ChatFacts {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(default)]
    pub chat_type: Option<String>,
    /// Only these users see the chat; `None`: all users of the tenant.
    #[serde(default)]
    pub members: Option<Vec<String>>,
    /// Scope of the latest message that had one; a button press is reported with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<String>,
    #[serde(default)]
    profile: Option<String>,
    /// Threads created by `thread_create`, with their names.
    #[serde(default)]
    threads: HashMap<String, String>,
}

impl ChatFacts {
    fn is_visible_to(&self, person: &str) -> bool {
        self.members.as_ref().is_none_or(|members| members.iter().any(|member| member == person))
    }

    fn info(self, chat_id: &ChatId) -> ChatInfo {
        ChatInfo {
            name: self.name.unwrap_or_else(|| chat_id.to_string()),
            chat_type: self.chat_type.unwrap_or_else(|| "dm".into()),
        }
    }
}

impl BuiltInChat {
    pub fn new(
        env: Arc<dyn Env>,
        log: Arc<dyn ChatLog>,
        media: Arc<dyn MediaStore>,
        outcall: Arc<dyn Outcall>,
        bus: Arc<dyn Bus>,
        rules: ChatRules,
    ) -> Self {
        let descriptor = Descriptor {
            contract_version: CONTRACT_VERSION,
            platform: PLATFORM.into(),
            label: "Frontdesk chat".into(),
            max_message_length: MESSAGE_MAX_CHARS,
            supports_draft_streaming: true,
            supports_edit: true,
            supports_threads: true,
            markdown_dialect: "markdown".into(),
            len_unit: LenUnit::Chars,
            emoji: "🛎️".into(),
            platform_hint: "You are talking in Frontdesk's built-in web chat.".into(),
            pii_safe: false,
            supports_context: true,
            supports_inchannel_continuable: false,
            supports_block_formatting: false,
            supported_ops: OPS.map(str::to_owned).to_vec(),
        };
        let (signals, origin) = (Arc::default(), env.random_hex(8));
        let (typing, drafts) = (Mutex::default(), BoundedCache::new(DRAFTS_MAX, DRAFT_MS));
        let fetches = Transfers::new(FETCHES_MAX, FETCHES_PER_TENANT);
        Self { env, log, media, outcall, fetches, rules, descriptor, signals, bus, origin, typing, drafts }
    }

    pub fn watch(&self, tenant: &TenantId, chat_id: &ChatId) -> ChatWatcher {
        self.signals.watch(tenant, chat_id)
    }

    pub fn is_typing(&self, tenant: &TenantId, chat_id: &ChatId) -> bool {
        let typing = self.typing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        typing.get(&(tenant.clone(), chat_id.clone())).is_some_and(|until| *until > self.env.steady_ms())
    }

    fn set_typing(&self, tenant: &TenantId, chat_id: &ChatId, on: bool) {
        if self.note_typing(tenant, chat_id, on) {
            self.signal(tenant, chat_id, Signal::Typing(on));
        }
    }

    /// False: nothing changed.
    fn note_typing(&self, tenant: &TenantId, chat_id: &ChatId, on: bool) -> bool {
        let now_ms = self.env.steady_ms();
        let mut typing = self.typing.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        typing.retain(|_, until| *until > now_ms);
        let place = (tenant.to_owned(), chat_id.to_owned());
        let was = if on { typing.insert(place, now_ms + TYPING_MS) } else { typing.remove(&place) };
        on || was.is_some()
    }

    /// Tells watchers at this server and at the others.
    fn signal(&self, tenant: &TenantId, chat_id: &ChatId, signal: Signal) {
        if self.bus.has_others() {
            self.bus.send(To::All, lines::hint(&self.origin, tenant, chat_id, &signal));
        }
        self.signals.send(tenant, chat_id, &signal);
    }

    pub async fn facts(&self, tenant: &TenantId, chat_id: &ChatId) -> Result<Option<ChatFacts>, StoreError> {
        let kept = self.log.chat_get(tenant, chat_id).await?;
        Ok(kept.map(|record| serde_json::from_str(&record.json).unwrap_or_default()))
    }

    /// Changes the facts of a chat without losing concurrent changes. The closure may run several times, and returns
    /// false to change nothing.
    pub async fn change_facts(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        change: impl Fn(&mut ChatFacts) -> bool + Send + Sync,
    ) -> Result<ChatFacts, StoreError> {
        for _ in 0..FACTS_TRIES {
            let before = self.log.chat_get(tenant, chat_id).await?.map(|record| record.json).unwrap_or_default();
            let mut facts: ChatFacts = serde_json::from_str(&before).unwrap_or_default();
            if !change(&mut facts) {
                return Ok(facts);
            }
            let json = serde_json::to_string(&facts).unwrap_or_default();
            match self.log.chat_put(tenant, chat_id, &before, json).await {
                Ok(()) => return Ok(facts),
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    fn shown_media(&self, item: &MediaItem, caption: Option<String>) -> ChatMedia {
        ChatMedia {
            id: item.id.clone(),
            url: self.media_url(&item.id),
            kind: media_kind(&item.mime).into(),
            mime: item.mime.clone(),
            size: item.size,
            filename: item.filename.clone(),
            caption,
        }
    }

    fn full_text(&self, used: u64) -> String {
        let max = self.rules.media_tenant_bytes;
        format!("this tenant stores {used} bytes; wait until files expire, or raise media.per_tenant_bytes ({max})")
    }

    fn media_url(&self, id: &str) -> String {
        frontdesk_core::media::url(&self.rules.base_url, id)
    }
}

impl Platform for BuiltInChat {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn receive_hint<'a>(&'a self, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.take_hint(text))
    }

    fn common_bot(&self) -> Option<&str> {
        Some(BOT)
    }

    fn act<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        action: &'a Action,
        capability: Option<&'a Secret>,
    ) -> BoxFuture<'a, Acted> {
        Box::pin(async move {
            let result = self.try_act(acting_as, action, capability).await;
            result.unwrap_or_else(|error| act::failed(&error)).into()
        })
    }

    /// Each tenant has its own bucket, so a tenant that floods its chats delays only itself.
    fn cost(&self, acting_as: ActingAs<'_>, action: &Action) -> Cost {
        Cost::of(action).in_bot_bucket(acting_as.tenant.as_str(), TENANT_RATE)
    }

    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(async move {
            let reading = tokio::time::timeout(LOOK_MAX, self.facts(acting_as.tenant, chat_id)).await;
            let facts = reading.map_err(|_| StoreError::Unavailable("reading a chat took too long".into()))??;
            Ok(facts.map(|facts| Look {
                visible: viewer.map(|viewer| facts.is_visible_to(viewer)),
                info: facts.info(chat_id),
                ..Look::default()
            }))
        })
    }

    fn nearby<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        thread_id: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<Nearby>, StoreError>> {
        Box::pin(self.said_nearby(acting_as.tenant, chat_id, thread_id, limit))
    }

    /// Shows messages between agents in a chat of their own.
    fn show_agent_message<'a>(&'a self, acting_as: ActingAs<'a>, event: &'a MessageEvent) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut line = self.new_line("in", &event.text);
            line.shown.user_id.clone_from(&event.source.user_id);
            line.shown.user_name.clone_from(&event.source.user_name);
            if let Some(message_id) = &event.message_id {
                line.shown.message_id.clone_from(message_id);
            }
            if let Err(error) = self.append(acting_as.tenant, &event.source.chat_id, line).await {
                tracing::warn!(%error, "showing an agent message in the chat failed");
            }
        })
    }

    fn notice<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        text: &'a str,
    ) -> BoxFuture<'a, ActionResult> {
        Box::pin(async move {
            let mut line = self.new_line("out", text);
            line.shown.kind = Some("notice".into());
            match self.append(acting_as.tenant, chat_id, line).await {
                Ok(message_id) => ActionResult::sent(message_id),
                Err(error) => act::failed(&error),
            }
        })
    }
}
