//! Outgoing actions: descriptor, egress guard, vault, journal, then the platform. Every action ends as delivered,
//! rejected with a code, or unknown. An unknown action is not retried.

mod lanes;
mod pacing;
pub mod scheduler;
mod sending;
mod sharing;
mod typing;

use std::sync::{Arc, OnceLock};

use frontdesk_wire::action::check_prompt;
use frontdesk_wire::{Act, Action, ActionResult, BotId, ChatId, Code, DeskNo, MessageId, Secret, SessionKey, TenantId};

use self::pacing::Pacer;
use self::sending::{RequestTiming, Sending};
pub use self::typing::TypingAgain;
use self::typing::{Typing, TypingKey, ends_typing, to_repeat};
use crate::base::Base;
use crate::delivery::DeliveryPlane;
use crate::delivery::session::Refused;
use crate::directory::{Caller, ChatLocation, DirectoryPlane, View, tenant_of};
use crate::env::Env;
use crate::lease::Lease;
use crate::meters::{ActionLabels, Meters};
use crate::port::BoxFuture;
use crate::port::platform::{ActingAs, Bot, LOOK_LIMIT, LookFault, Platform, PlatformBot, Platforms};
use crate::port::store::{Closing, Events, Journal, JournalEntry, Outcome, StoreError, Vault};
use crate::port::stores::Stores;
use crate::tail::Tail;
use crate::vault::{Sealer, answer_key};
use sharing::Sharing;

/// Gets each action of an agent before it is sent. The action may be the answer that a caller waits for.
pub trait Listener: Send + Sync {
    /// `None`: the listener does not need this action. If the future fails, the action is not sent.
    fn sending<'a>(&'a self, caller: &'a Caller, action: &'a Action) -> Option<BoxFuture<'a, Result<(), StoreError>>>;
}

pub struct OutboundPlane {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    delivery: Arc<DeliveryPlane>,
    events: Arc<dyn Events>,
    journal: Arc<dyn Journal>,
    vault: Arc<dyn Vault>,
    sealer: Arc<Sealer>,
    platforms: Arc<Platforms>,
    pacer: Pacer,
    sharing: Sharing,
    typing: Typing,
    lease: Arc<Lease>,
    listener: OnceLock<Arc<dyn Listener>>,
    tail: Arc<Tail>,
    meters: Arc<Meters>,
}

impl OutboundPlane {
    pub(crate) async fn open(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        delivery: &Arc<DeliveryPlane>,
        sealer: &Arc<Sealer>,
        platforms: &Arc<Platforms>,
    ) -> Result<Self, StoreError> {
        let live = base.lease.live(); // the lease was renewed a moment ago
        let plane = Self {
            env: base.env.clone(),
            directory: directory.clone(),
            delivery: delivery.clone(),
            events: stores.events.clone(),
            journal: stores.journal.clone(),
            vault: stores.vault.clone(),
            sealer: sealer.clone(),
            platforms: platforms.clone(),
            pacer: Pacer::new(base.env.clone()),
            sharing: Sharing::new(base),
            typing: Typing::default(),
            lease: base.lease.clone(),
            listener: OnceLock::new(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
        };
        plane.mark_orphaned_entries_unknown(live).await?;
        Ok(plane)
    }

    /// Set once, at the start.
    pub(crate) fn listen(&self, listener: Arc<dyn Listener>) {
        let _ = self.listener.set(listener);
    }

    /// Recent actions and their outcomes, newest first.
    pub async fn entries(&self, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<JournalEntry>, StoreError> {
        self.journal.entries(tenant, limit).await
    }

    /// The identity that a gateway means if its action names none: of several, the only one that was reached from the
    /// chat, else the first.
    pub async fn speaking_as<'a>(
        &self,
        caller: &Caller,
        first: &'a PlatformBot,
        others: &'a [PlatformBot],
        action: &Action,
    ) -> &'a PlatformBot {
        let (false, Some(chat_id)) = (others.is_empty(), action.act.chat_id()) else { return first };
        let mut known = None;
        for identity in [first].into_iter().chain(others) {
            match self.events.reached(&caller.tenant, &identity.0, &identity.1, chat_id).await {
                Ok(true) if known.is_some() => return first,
                Ok(true) => known = Some(identity),
                Ok(false) => {}
                Err(_) => return first, // the guard asks the same store, and refuses
            }
        }
        known.unwrap_or(first)
    }

    /// Carries out one action as one of the identities of the caller's hellos. `asked_ms` is the time of the request on
    /// the steady clock: the caller waits a limited time for the result.
    pub async fn act(
        &self,
        caller: &Caller,
        identity: &PlatformBot,
        identities: &[PlatformBot],
        action: Action,
        asked_ms: u64,
    ) -> ActionResult {
        self.act_for(caller, identity, identities, action, RequestTiming { ms: asked_ms, replaced: 0 }).await
    }

    async fn act_for(
        &self,
        caller: &Caller,
        (platform, bot): &PlatformBot,
        identities: &[PlatformBot],
        action: Action,
        asked: RequestTiming,
    ) -> ActionResult {
        let op = action.act.op();
        let listener_result = match self.listener.get().and_then(|listener| listener.sending(caller, &action)) {
            Some(listening) => listening.await.map_err(|error| unavailable(&error)),
            None => Ok(()),
        };
        let chat_id = action.act.chat_id().cloned().unwrap_or_default();
        if ends_typing(&action.act) {
            self.typing.end(&caller.tenant, &TypingKey::of(platform, bot, &action));
        }
        let typing = to_repeat(&action);
        let done = match listener_result {
            Ok(()) => self.try_act(caller, platform, bot, identities, action, asked).await,
            Err(refused) => Err(refused),
        };
        match done {
            Ok(result) => {
                if let Some(action) = typing.filter(|_| result.success) {
                    self.keep_typing(caller, platform, bot, action);
                }
                let outcome = outcome_name(outcome_of(&result));
                self.meters.actions.get_or_create(&ActionLabels { op, outcome }).inc();
                result
            }
            Err(result) => {
                let refused = Refused::new(platform, bot, op, &chat_id, result);
                if let Some(noting) = self.note_refused(caller, &refused) {
                    noting.await;
                }
                refused.result
            }
        }
    }

    /// Counts and reports a refused action, and returns the future that writes it to the journal. `None`: this instance
    /// had many refusals in this second, and this one is only counted.
    pub fn note_refused(&self, caller: &Caller, refused: &Refused) -> Option<impl Future<Output = ()> + Send + use<>> {
        let outcome = outcome_name(outcome_of(&refused.result));
        self.meters.actions.get_or_create(&ActionLabels { op: refused.op, outcome }).inc();
        let now_ms = self.env.now_ms();
        if !self.delivery.sockets().may_note_refusal(caller.instance.no, now_ms) {
            self.meters.refusals_unnoted.inc();
            return None;
        }
        let note = refused.result.error.clone().unwrap_or_default();
        self.tail.publish(&caller.tenant, "action", |notice| {
            notice.instance.clone_from(&caller.instance.name);
            notice.platform.clone_from(&refused.platform);
            notice.chat_id.clone_from(&refused.chat_id);
            notice.text = format!("{}: {outcome}: {note}", refused.op);
        });
        let entry = self.new_entry(caller, &refused.platform, &refused.bot, &refused.chat_id, refused.op, 1);
        let (journal, end) = (self.journal.clone(), outcome_of(&refused.result));
        Some(async move {
            let noted = match journal.open_entry(entry, None).await {
                Ok(id) => journal.close_entry(id, Closing::new(end, 0, note)).await.map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = noted {
                tracing::warn!(%error, "storing a refused action failed");
            }
        })
    }

    /// `Err`: refused before the platform was asked, and not in the journal.
    async fn try_act(
        &self,
        caller: &Caller,
        platform: &str,
        bot: &BotId,
        identities: &[PlatformBot],
        action: Action,
        asked: RequestTiming,
    ) -> Result<ActionResult, ActionResult> {
        if let Act::FollowUp { session_key, kind, .. } = &action.act {
            let (session_key, kind) = (session_key.clone(), kind.clone());
            return self.follow_up(caller, identities, &session_key, &kind, action, asked).await;
        }
        let Some(found) = self.platforms.get(platform) else {
            let text = format!("this server does not run the platform {platform:?}");
            return Err(ActionResult::refused(Code::UnsupportedOp, text));
        };
        let (op, descriptor) = (action.act.op(), found.descriptor());
        if op != "get_chat_info" && !descriptor.supports(op) {
            return Err(ActionResult::refused(Code::UnsupportedOp, format!("{platform} does not support {op}")));
        }
        if let Act::Prompt { prompt_id, options, .. } = &action.act
            && let Err(text) = check_prompt(prompt_id, options)
        {
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
        let bot = self.own_bot(caller, platform, bot)?;
        let acting_as = ActingAs::new(&caller.tenant, &bot);
        let chat_id = action.act.chat_id().cloned().unwrap_or_default();
        if !self.may_speak(found, acting_as, platform, &chat_id).await? {
            return Err(ActionResult::egress_declined(platform));
        }
        let answering = match &action.act {
            Act::Send { reply_to, .. } => self.answering(caller, &**found, &bot, &chat_id, reply_to.as_ref()).await,
            _ => None,
        };
        let capability = answering.as_ref();
        let sending =
            Sending { caller, platform: found, name: platform, acting_as, chat_id: &chat_id, capability, asked };
        if action.act.is_fleeting() {
            return self.send_unjournaled(&sending, &action).await;
        }
        self.send(&sending, action).await
    }

    /// The capability that the vendor needs for an answer in this chat, if this agent got it and the platform has such
    /// a thing. Without it the message is sent as usual.
    async fn answering(
        &self,
        caller: &Caller,
        platform: &dyn Platform,
        bot: &Bot,
        chat_id: &ChatId,
        reply_to: Option<&MessageId>,
    ) -> Option<Secret> {
        let (kind, key) = (platform.answers_with()?, answer_key(caller.instance.no, chat_id, reply_to));
        let held = self.vault.capability(&caller.tenant, &key, kind, self.env.now_ms()).await.ok().flatten()?;
        let is_ours = held.platform == platform.descriptor().platform && held.bot == bot.id;
        let opened = self.sealer.open(&held.sealed, &[&caller.tenant, &held.kind, &held.id]);
        opened.ok().filter(|_| is_ours)
    }

    /// Uses a capability that the caller never sees. Absent, expired and foreign look the same.
    async fn follow_up(
        &self,
        caller: &Caller,
        identities: &[PlatformBot],
        session_key: &SessionKey,
        kind: &str,
        action: Action,
        asked: RequestTiming,
    ) -> Result<ActionResult, ActionResult> {
        let now_ms = self.env.now_ms();
        let found = self.vault.capability(&caller.tenant, session_key, kind, now_ms).await;
        let absent = ActionResult::capability_unavailable;
        let held = found.map_err(|error| unavailable(&error))?.ok_or_else(absent)?;
        let fronted = identities.iter().any(|(platform, bot)| *platform == held.platform && *bot == held.bot);
        let (true, Some(platform)) = (fronted, self.platforms.get(&held.platform)) else { return Err(absent()) };
        let value = self.sealer.open(&held.sealed, &[&caller.tenant, &held.kind, &held.id]).map_err(|error| {
            tracing::error!(%error, kind, "opening a capability failed");
            absent()
        })?;
        let bot = self.own_bot(caller, &held.platform, &held.bot)?;
        let acting_as = ActingAs::new(&caller.tenant, &bot);
        let sending = Sending {
            caller,
            platform,
            name: &held.platform,
            acting_as,
            chat_id: &held.chat_id,
            capability: Some(&value),
            asked,
        };
        self.send(&sending, action).await
    }

    /// The bot, if the tenant may still use it: since the hello it may have been removed, or assigned to another
    /// tenant.
    #[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
    fn own_bot(&self, caller: &Caller, platform: &str, bot: &BotId) -> Result<Arc<Bot>, ActionResult> {
        let found = self.directory.bots().resolve(&caller.tenant, platform, bot);
        let refused = || {
            let text = format!("{platform} bot {bot:?} is not (or no longer) a bot of this tenant");
            ActionResult::refused(Code::UnknownIdentity, text)
        };
        found.map(|id| self.directory.bots().bot(platform, &id)).ok_or_else(refused)
    }

    fn keep_typing(&self, caller: &Caller, platform: &str, bot: &BotId, action: Action) {
        let Some(lasts_ms) = self.platforms.get(platform).and_then(|found| found.typing_lasts_ms()) else { return };
        let again = TypingAgain { caller: caller.clone(), platform: platform.to_owned(), bot: bot.to_owned(), action };
        self.typing.show(again, lasts_ms, self.env.steady_ms());
    }

    /// Typing indicators that their vendors are about to remove.
    pub fn typing_due(&self) -> Vec<TypingAgain> {
        self.typing.due(self.env.steady_ms())
    }

    /// Shows an indicator again, if the agent may still do that.
    pub async fn type_again(&self, again: TypingAgain) {
        let TypingAgain { caller, platform, bot, action } = again;
        let asked = RequestTiming { ms: self.env.steady_ms(), replaced: 0 };
        let place = TypingKey::of(&platform, &bot, &action);
        if self.try_act(&caller, &platform, &bot, &[], action, asked).await.is_err_and(|refused| !is_rate(&refused)) {
            self.typing.end(&caller.tenant, &place);
        }
    }

    /// Notes that this server sends as the bot. Returns how many servers do; they divide its budget.
    pub fn share_bot(&self, platform: &str, bot: &BotId) -> u32 {
        self.sharing.servers(platform, bot)
    }

    /// Another server sends as this bot as well.
    pub(crate) fn bot_shared(&self, desk: DeskNo, platform: &str, bot: &BotId) {
        self.sharing.note_use(desk, platform, bot);
    }

    /// Starts the actions that are due. Returns the time of the next one, on the steady clock.
    pub fn release_due(&self) -> Option<u64> {
        self.pacer.release_due()
    }

    /// Returns when `release_due` must be called earlier than it said.
    pub async fn due_earlier(&self) {
        self.pacer.earlier().await;
    }

    /// The server stops: waiting actions are refused; those at a platform continue.
    pub fn stop_waiting(&self) {
        self.pacer.close();
    }

    /// Marks open actions of servers that are gone as unknown. Returns how many.
    pub async fn mark_orphaned_entries_unknown(&self, live: Vec<DeskNo>) -> Result<u64, StoreError> {
        let marked = self.journal.mark_open_entries_unknown(live).await?;
        if marked > 0 {
            tracing::warn!(marked, "actions were in flight when a server stopped; their outcome is unknown");
        }
        Ok(marked)
    }

    /// The egress guard: only chats from which this tenant was reached, or that are its own: its scopes, the direct
    /// chats of its users, and threads of either. The platform and the directory say whose a chat is; metadata of the
    /// action is not used.
    async fn may_speak(
        &self,
        found: &Arc<dyn Platform>,
        acting_as: ActingAs<'_>,
        platform: &str,
        chat_id: &ChatId,
    ) -> Result<bool, ActionResult> {
        let reached = self.events.reached(acting_as.tenant, platform, &acting_as.bot.id, chat_id).await;
        if reached.map_err(|error| unavailable(&error))? {
            return Ok(true);
        }
        let looking = tokio::time::timeout(LOOK_LIMIT, found.look(acting_as, chat_id, None)).await;
        let looking = looking.map_err(|_| {
            let text = "the platform did not report in time which tenant this chat belongs to; nothing was sent";
            ActionResult::refused(Code::Unavailable, text)
        })?;
        let failed = |fault| match fault {
            LookFault::Store(error) => unavailable(&error),
            LookFault::Platform(error) => {
                let text = format!(
                    "the platform did not report which tenant this chat belongs to ({error}); nothing was sent"
                );
                ActionResult::refused(Code::Unavailable, text)
            }
        };
        let Some(look) = looking.map_err(failed)? else {
            return Ok(false);
        };
        if found.common_bot().is_some() {
            return Ok(true); // it shows a tenant its own chats only
        }
        if let Some(parent) = &look.parent_chat_id {
            let reached = self.events.reached(acting_as.tenant, platform, &acting_as.bot.id, parent).await;
            if reached.map_err(|error| unavailable(&error))? {
                return Ok(true);
            }
        }
        let place = ChatLocation {
            scope_id: look.scope_id.as_deref(),
            chat_id,
            parent_chat_id: look.parent_chat_id.as_ref(),
            person: look.person.as_ref(),
        };
        Ok(self.directory.read(|view| is_ours(view, acting_as.tenant, platform, &place)))
    }
}

/// A routed place is its tenant's alone; a direct chat is open to every tenant that its person is linked in.
fn is_ours(view: &View, tenant: &TenantId, platform: &str, place: &ChatLocation<'_>) -> bool {
    let place_only = ChatLocation { person: None, ..*place };
    match tenant_of(view, platform, &place_only) {
        Some(owner) => owner == tenant,
        None => place.person.is_some_and(|person| !view.links(tenant, platform, person).is_empty()),
    }
}

fn unavailable(error: &StoreError) -> ActionResult {
    tracing::error!(%error, "an action was refused because the store did not answer");
    ActionResult::refused(Code::Unavailable, "the store is unavailable; nothing was sent")
}

fn is_rate(result: &ActionResult) -> bool {
    result.code == Some(Code::RateLimited)
}

fn outcome_of(result: &ActionResult) -> Outcome {
    match (result.success, result.ambiguous) {
        (true, _) => Outcome::Delivered,
        (false, true) => Outcome::Unknown,
        (false, false) => Outcome::Rejected,
    }
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Open => "open",
        Outcome::Delivered => "delivered",
        Outcome::Rejected => "rejected",
        Outcome::Unknown => "unknown",
    }
}
