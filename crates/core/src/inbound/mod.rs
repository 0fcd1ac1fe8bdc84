//! Inbound events: find the tenant, apply the gate, commit once, then notify sessions. The sender is answered only
//! after the commit.

mod context;
mod explain;
mod files;
mod joining;
mod listening;
mod once;
mod reports;
mod requests;
pub mod restart;
pub mod share;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::event::ContextLine;
use frontdesk_wire::{
    BotId, ChatId, DeskNo, EventId, InstanceId, InstanceNo, MessageEvent, MessageId, Source, TenantId, UserId,
    build_session_key, session_names, turn_names,
};
use tokio::sync::Notify;

pub use self::explain::Explanations;
pub use self::listening::BotInlet;
pub use self::requests::{DoorResponse, TakenRequest};

use self::context::Context;
use self::reports::Reports;
use crate::base::Base;
use crate::delivery::DeliveryPlane;
use crate::delivery::interrupt::LiveTurns;
use crate::directory::facts::Instance;
use crate::directory::{self, ChatLocation, DeskCommand, DirectoryPlane, Management, View};
use crate::env::Env;
use crate::error::DeskError;
use crate::gate::visibility::{Spot, VisibilityCache};
use crate::gate::{self, Decision, GateInput, KnownVisibility, Layer, Sees, Verdict};
use crate::hash::short_hash;
use crate::intake::{ChatLine, Handover, Intake, RawCapability, Receipt, TenantSource, edit_of};
use crate::lease::Lease;
use crate::meters::{Meters, VerdictLabels, Why};
use crate::port::BoxFuture;
use crate::port::platform::{ActingAs, LOOK_LIMIT, LOOK_LIMIT_OF_INTERACTION, LookFault, Platforms, notice_in_time};
use crate::port::store::{
    Acceptance, ChatWrite, Cursors, Delivery, EventFile, Events, Fragments, Journal, Ledger, SealedCapability,
    StoreError,
};
use crate::port::stores::Stores;
use crate::prompts;
use crate::rules::Rules;
use crate::tail::Tail;
use crate::vault::{Sealer, answer_key};

/// Room for the frame around an event.
const FRAME_MARGIN_BYTES: usize = 512;
/// All fields of a usual event but its text.
const SHORT_FIELDS_BYTES: usize = 512;
/// Longer message ids are stored as a hash.
const DEDUP_ID_MAX_BYTES: usize = 48;
/// The directory may change between queries; after this many rounds an unknown answer counts as no.
const ASK_ROUNDS: usize = 4;

/// An event on its way into the ledger.
struct Evaluated {
    acceptance: Acceptance,
    verdict: Verdict,
    brief: VerdictBrief,
    /// It only stops these turns.
    stops: Option<LiveTurns>,
    /// The id of a press whose dedup key is that of its prompt.
    press: Option<MessageId>,
    pending: Option<PendingCommand>,
}

/// A command to the server itself, run after its event is committed.
struct PendingCommand {
    command: DeskCommand,
    source: Source,
    /// `None` if the platform does not separate tenants.
    tenant: Option<TenantId>,
    bot: BotId,
    /// The author sees the receipt: nothing is sent to the chat.
    is_interaction: bool,
}

pub struct InboundPlane {
    env: Arc<dyn Env>,
    lease: Arc<Lease>,
    directory: Arc<DirectoryPlane>,
    management: Arc<Management>,
    delivery: Arc<DeliveryPlane>,
    ledger: Arc<dyn Ledger>,
    events: Arc<dyn Events>,
    sealer: Arc<Sealer>,
    platforms: Arc<Platforms>,
    visibility: VisibilityCache,
    journal: Arc<dyn Journal>,
    cursors: Arc<dyn Cursors>,
    fragments: Arc<dyn Fragments>,
    fragment_came: Notify,
    reports: Reports,
    tail: Arc<Tail>,
    meters: Arc<Meters>,
    rules: Arc<Rules>,
}

impl InboundPlane {
    pub(crate) fn new(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        management: &Arc<Management>,
        delivery: &Arc<DeliveryPlane>,
        sealer: &Arc<Sealer>,
        platforms: &Arc<Platforms>,
    ) -> Self {
        Self {
            env: base.env.clone(),
            lease: base.lease.clone(),
            directory: directory.clone(),
            management: management.clone(),
            delivery: delivery.clone(),
            ledger: stores.ledger.clone(),
            events: stores.events.clone(),
            sealer: sealer.clone(),
            platforms: platforms.clone(),
            visibility: VisibilityCache::default(),
            journal: stores.journal.clone(),
            cursors: stores.cursors.clone(),
            fragments: stores.fragments.clone(),
            fragment_came: Notify::new(),
            reports: Reports::default(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        }
    }

    /// Accepts events of any platforms, all or none. `Ok` means that they are committed.
    ///
    /// For the built-in chat and the benches; other platforms use `BotInlet::take`. Boxed like that one, so that it is
    /// compiled here, for speed: an `async fn` is compiled by the crates that await it, and those are compiled for size.
    pub fn receive(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Receipt>, DeskError>> {
        Box::pin(async move {
            let now_ms = self.env.now_ms();
            let mut evaluated = Vec::with_capacity(intakes.len());
            for intake in intakes {
                evaluated.push(self.evaluate(intake, now_ms).await?);
            }
            self.accept(evaluated, now_ms).await
        })
    }

    async fn accept(&self, evaluated: Vec<Evaluated>, now_ms: u64) -> Result<Vec<Receipt>, DeskError> {
        let mut batch = Vec::with_capacity(evaluated.len());
        let mut rest = Vec::with_capacity(evaluated.len());
        for Evaluated { acceptance, verdict, brief, stops, press, pending } in evaluated {
            rest.push((verdict, brief, stops, press, pending, self.watch(&acceptance)));
            batch.push(acceptance);
        }
        let accepted = self.lease.accept(&*self.ledger, batch).await.inspect_err(|error| {
            // A chat line that changed in the meantime is no error: the platform reads it again.
            if *error != StoreError::Conflict {
                self.meters.store_faults.inc();
                tracing::error!(%error, "storing events failed");
            }
        })?;
        let mut receipts = Vec::with_capacity(accepted.len());
        for (accepted, (verdict, mut brief, stops, press, pending, watched)) in accepted.into_iter().zip(rest) {
            if accepted.fresh {
                brief.delivery = self.handover(accepted.rows.iter().map(|row| (row.instance, row.served_by)));
                self.meters.events_accepted.inc();
                self.meters.mail_rows.inc_by(accepted.rows.len() as u64);
                self.count(&verdict);
            } else {
                self.meters.events_duplicate.inc();
                brief = self.brief_of_repeated(accepted.event, press.as_ref(), brief).await;
            }
            let mut step = match (accepted.fresh, brief.outcome.as_str()) {
                (false, _) => "duplicate",
                (true, _) if stops.is_some() => "interrupted",
                (true, "delivered") => "accepted",
                (true, _) => "withheld",
            };
            if let Some(stops) = stops.filter(|_| accepted.fresh)
                && let Err(why) = self.interrupt(&stops).await
            {
                step = "not_interrupted";
                brief.text = format!("the turn was not interrupted ({why}); send /stop again");
            }
            if let Some(pending) = pending.filter(|_| accepted.fresh) {
                brief.text = Box::pin(self.run(&pending)).await; // boxed: rare, and large
            }
            if let Some((tenant, platform, chat_id, message_id)) = watched {
                self.tail.publish(&tenant, step, |notice| {
                    notice.at = now_ms; // it may be delivered before this notice is sent
                    notice.event_id = Some(accepted.event);
                    notice.platform = platform;
                    notice.chat_id = chat_id;
                    notice.message_id = message_id;
                    notice.text.clone_from(&brief.text);
                });
            }
            let (event_id, fresh, line) = (accepted.event, accepted.fresh, accepted.line);
            receipts.push(Receipt { event_id, verdict: brief, fresh, line });
        }
        Ok(receipts)
    }

    /// Whether live sockets have the rows, or they wait for some. Each receiver comes with the server that serves it.
    fn handover(&self, receivers: impl Iterator<Item = (InstanceNo, DeskNo)>) -> Option<Cow<'static, str>> {
        let is_served = |(instance, desk)| self.delivery.sockets().is_served(instance) || self.lease.is_other(desk);
        let step = |(any, all), served| (any || served, all && served);
        let handover = match receivers.map(is_served).map(|it| (it, it)).reduce(|so_far, (it, _)| step(so_far, it))? {
            (_, true) => "pushed",
            (true, false) => "partly_pushed",
            (false, false) => "queued",
        };
        Some(handover.into())
    }

    /// Fields for the event stream, copied only if a client watches it.
    fn watch(&self, it: &Acceptance) -> Option<(TenantId, String, ChatId, MessageId)> {
        let d = &it.delivery;
        (self.tail.is_watched())
            .then(|| (it.tenant.clone(), d.platform.clone(), d.chat_id.clone(), d.message_id.clone()))
    }

    async fn evaluate(&self, intake: Intake, now_ms: u64) -> Result<Evaluated, DeskError> {
        let Intake { bot, mut event, capabilities, handover, addressed, from_program, chat, mark, edit_id, .. } =
            intake;
        let (tenant_source, is_interaction) = (&intake.tenant_source, intake.is_interaction);
        let asking = Asking { is_interaction, author_sees: intake.author_sees || is_interaction };
        files::check(&intake.remote_media)?;
        let message_id = match event.message_id.take().filter(|id| !id.is_empty()) {
            Some(id) => id,
            None => self.env.random_hex(16).into(),
        };
        event.message_id = Some(message_id.clone());
        event.source.message_id = Some(message_id.clone());
        let source = &event.source;
        let session_key = build_session_key(source);
        let marks = Marks { tenant_source, bot: &bot, mark: &mark };
        let dedup = marks.dedup(source, &message_id, edit_of(&event, edit_id.as_deref()));
        let command = DeskCommand::parse(&event).filter(|_| !from_program);
        let found = self.directory.read(|view| tenant_of(view, tenant_source, source).cloned());
        let mut verdict = match (&found, &command) {
            (_, Some(command)) => Verdict::withheld(Layer::Owner, "desk", command.name()),
            (Some(tenant), None) if let Some(instance) = &intake.reports_to => self.report(tenant, instance),
            (None, None) => Verdict::withheld(Layer::Tenant, "route", discriminator(tenant_source, source)),
            (Some(tenant), None) => self.ruled(tenant, &bot, source, addressed, from_program, asking).await?,
        };
        let tenant = found.unwrap_or_default();
        self.keep_to_owner(&mut verdict, &event, &tenant, &bot).await?;
        let mut brief = verdict.brief(&tenant, &source.platform);
        let mut receivers: Vec<Arc<Instance>> = verdict.receivers().cloned().collect();
        let reaches = !receivers.is_empty();
        let stops = match !from_program && reaches {
            true => self.stops(&event, &receivers, now_ms).await?,
            false => None,
        };
        if stops.is_some() {
            receivers.clear();
            brief.text = gate::STOPPED.into();
        }
        let (dedup, press) = self.key_of(dedup, &tenant, &marks, &event, intake.press_of.as_ref(), reaches).await?;
        let capabilities = if reaches && stops.is_none() {
            capabilities
                .into_iter()
                .map(|raw| self.seal_capability(raw, &tenant, &bot, source, &receivers, now_ms))
                .collect()
        } else {
            Vec::new()
        };
        let pending = command.map(|command| {
            let tenant = match tenant_source {
                TenantSource::Tenant(tenant) => Some(tenant.clone()),
                TenantSource::Shared | TenantSource::Path(_) => None,
            };
            PendingCommand { command, source: source.clone(), tenant, bot: bot.clone(), is_interaction }
        });
        let (chat_id, platform) = (source.chat_id.clone(), source.platform.clone());
        let passthrough = matches!(handover, Handover::Forward(_));
        let mut files: Vec<EventFile> = intake.stored_media.into_iter().map(EventFile::Stored).collect();
        if !receivers.is_empty() && !passthrough {
            files.extend(self.add_remote_media(intake.remote_media, &tenant, &mut event, now_ms));
        }
        let (json, own_json) = self.forms(&tenant, &marks, event, &handover, addressed, &receivers).await?;
        let delivery = Delivery {
            event: EventId::default(),
            at_ms: now_ms,
            passthrough,
            json,
            bot,
            chat_id,
            session_key,
            message_id,
            platform,
        };
        let outcome = if stops.is_some() { gate::INTERRUPTED } else { &brief.outcome };
        let stored = verdict.to_stored(outcome, &delivery.platform);
        let receivers = receivers.iter().map(|instance| instance.no).collect();
        let chat = chat.map(|line| Box::new(line_of(*line, &delivery, brief.outcome == "delivered")));
        let acceptance = Acceptance {
            tenant,
            attempt: 0,
            dedup,
            delivery,
            verdict: stored,
            receivers,
            own_json,
            capabilities,
            reaches,
            message: None,
            chat,
            files,
        };
        Ok(Evaluated { acceptance, verdict, brief, stops, press, pending })
    }

    /// The running turns that the event stops. If there are any, it is delivered to no agent.
    async fn stops(
        &self,
        event: &MessageEvent,
        receivers: &[Arc<Instance>],
        now_ms: u64,
    ) -> Result<Option<LiveTurns>, DeskError> {
        if event.text.trim() != "/stop" || event.prompt_response.is_some() {
            return Ok(None);
        }
        let numbers: Vec<InstanceNo> = receivers.iter().map(|instance| instance.no).collect();
        let (session_key, names) = (build_session_key(&event.source), turn_names(&event.source));
        Ok(self.delivery.interrupts().live_turns(&numbers, session_key, names, now_ms).await?)
    }

    /// After the commit, so that a repeated `/stop` does not interrupt a later turn.
    async fn interrupt(&self, stops: &LiveTurns) -> Result<(), &'static str> {
        match self.delivery.interrupts().send(stops).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the agent has disconnected, or too many interrupts wait for it"),
            Err(error) => {
                tracing::error!(%error, "looking up the agent's server failed; a turn was not interrupted");
                Err("the store is unavailable")
            }
        }
    }

    fn report(&self, tenant: &TenantId, instance: &InstanceId) -> Verdict {
        let found = self.directory.read(|view| view.instance(tenant, instance).cloned());
        found.map_or_else(|| Verdict::withheld(Layer::Owner, "sender", instance.to_string()), Verdict::report)
    }

    /// A pressed button reaches the agent that asked, and no other agent of that person.
    async fn keep_to_owner(
        &self,
        verdict: &mut Verdict,
        event: &MessageEvent,
        tenant: &TenantId,
        bot: &BotId,
    ) -> Result<(), StoreError> {
        let Some(press) = &event.prompt_response else { return Ok(()) };
        let chats_of = self.platforms.keeps_tenants_apart(&event.source.platform).then_some(tenant);
        let ids = prompts::of_press(chats_of, &event.source, press);
        if let Some(prompt) = self.journal.entry_of_receipt(&event.source.platform, bot, ids).await? {
            let owner = self.directory.read(|view| view.instance(&prompt.tenant, &prompt.instance).map(|it| it.no));
            verdict.only_for(owner.unwrap_or_default()); // 0 is none: it was deleted
        }
        Ok(())
    }

    /// The gate's verdict. Asks the platform who can see the chat where the gate needs it.
    async fn ruled(
        &self,
        tenant: &TenantId,
        bot: &BotId,
        source: &Source,
        addressed: bool,
        from_program: bool,
        asking: Asking,
    ) -> Result<Verdict, StoreError> {
        let input = GateInput { tenant, source, addressed, to_every_link: from_program };
        // For all look-ups of one event together.
        let mut left = if asking.is_interaction { LOOK_LIMIT_OF_INTERACTION } else { LOOK_LIMIT };
        let now_ms = self.env.steady_ms();
        let spot = Spot::new(tenant, &source.platform, bot, &source.chat_id);
        let mut known = KnownVisibility::remembered(&self.visibility, spot, now_ms);
        if let (true, Some(author)) = (asking.author_sees, &source.user_id) {
            known.note(author.clone(), Sees::Yes);
        }
        for _ in 0..ASK_ROUNDS {
            match self.directory.read(|view| gate::evaluate(view, &input, &known)) {
                Decision::Verdict(verdict) => return Ok(verdict),
                Decision::Ask(viewers) => {
                    for viewer in viewers {
                        let (began_ms, asked) = (self.env.steady_ms(), self.visibility.asked(spot));
                        let sees = Box::pin(self.look_for(tenant, bot, source, &viewer, left)).await?;
                        let took_ms = self.env.steady_ms().saturating_sub(began_ms);
                        left = left.saturating_sub(Duration::from_millis(took_ms));
                        self.visibility.keep(asked, &viewer, sees, self.env.steady_ms(), self.rules.visibility_ttl_ms);
                        known.note(viewer, sees);
                    }
                }
            }
        }
        Ok(Verdict::withheld(Layer::Visibility, "unsettled", ""))
    }

    /// Whether this person can see the chat, as the platform says.
    async fn look_for(
        &self,
        tenant: &TenantId,
        bot: &BotId,
        source: &Source,
        viewer: &UserId,
        limit: Duration,
    ) -> Result<Sees, StoreError> {
        let Some(platform) = self.platforms.get(&source.platform) else { return Ok(Sees::Unknown) };
        let bot = self.directory.bots().bot(&source.platform, bot);
        let acting_as = ActingAs::new(tenant, &bot);
        let asked = platform.look(acting_as, &source.chat_id, Some(viewer));
        match tokio::time::timeout(limit, asked).await {
            Ok(Ok(look)) => Ok(look.and_then(|look| look.visible).into()),
            Ok(Err(LookFault::Store(error))) => Err(error),
            Ok(Err(LookFault::Platform(error))) => {
                tracing::warn!(error, platform = source.platform, "visibility lookup failed");
                Ok(Sees::Unknown)
            }
            Err(_) => Ok(Sees::Unknown),
        }
    }

    /// Call when the members of a chat changed: the platform is asked again.
    pub fn drop_cached_visibility(&self, tenant: &TenantId, platform: &str, bot: &BotId, chat_id: &ChatId) {
        self.visibility.forget(tenant, platform, bot, chat_id);
    }

    /// The JSON to send: one form for all receivers, and another for those whose context differs. Without a receiver
    /// only the verdict is stored.
    async fn forms(
        &self,
        tenant: &TenantId,
        marks: &Marks<'_>,
        mut event: MessageEvent,
        handover: &Handover,
        addressed: bool,
        receivers: &[Arc<Instance>],
    ) -> Result<(String, Vec<(InstanceNo, String)>), DeskError> {
        if receivers.is_empty() {
            return Ok((String::new(), Vec::new()));
        }
        let plain = match handover {
            Handover::Event => to_json(&event, event.text.len())?,
            Handover::Forward(forward) => to_json(forward, forward.body_b64.len())?,
        };
        let Some(room) = self.rules.frame_max_bytes.checked_sub(plain.len() + FRAME_MARGIN_BYTES) else {
            return Err(DeskError::TooLarge(format!("the event is over {} bytes", self.rules.frame_max_bytes)));
        };
        if !addressed || matches!(handover, Handover::Forward(_)) {
            return Ok((plain, Vec::new()));
        }
        match Box::pin(self.context(tenant, marks, &event, receivers, room)).await {
            Context::None => Ok((plain, Vec::new())),
            Context::Failed => {
                event.context_error = true;
                Ok((to_json(&event, event.text.len())?, Vec::new()))
            }
            Context::Of(mut each) => {
                let form = |event: &mut MessageEvent, lines: Vec<ContextLine>| {
                    event.context = lines;
                    let context_bytes: usize = event.context.iter().map(|line| line.text.len()).sum();
                    to_json(event, plain.len() + context_bytes)
                };
                let (_, first) = each.remove(0);
                let mut own = Vec::new();
                for (instance, lines) in each.into_iter().filter(|(_, lines)| *lines != first) {
                    own.push((instance, form(&mut event, lines)?));
                }
                Ok((form(&mut event, first)?, own))
            }
        }
    }

    /// Runs a command and answers in the chat in the name of the server.
    async fn run(&self, pending: &PendingCommand) -> String {
        let PendingCommand { command, source, tenant, bot, is_interaction } = pending;
        let answer = self.management.obey(command, source, tenant.as_ref()).await;
        if let Some(platform) = self.platforms.get(&source.platform).filter(|_| !is_interaction) {
            let bot = self.directory.bots().bot(&source.platform, bot);
            let tenant = tenant.clone().unwrap_or_default();
            let acting_as = ActingAs::new(&tenant, &bot);
            let said = notice_in_time(&**platform, acting_as, &source.chat_id, &answer).await;
            if !said.success {
                tracing::warn!(
                    error = said.error,
                    platform = source.platform,
                    "sending the answer to a chat command failed"
                );
            }
        }
        answer
    }

    fn count(&self, verdict: &Verdict) {
        for line in &verdict.lines {
            let verdict = if line.delivered { "delivered" } else { "withheld" };
            self.meters.verdicts.get_or_create(&VerdictLabels { verdict, layer: line.layer.name() }).inc();
        }
        if verdict.outcome() == "withheld" {
            let layer = verdict.lines.first().map_or("unknown", |line| line.layer.name());
            self.meters.events_withheld.get_or_create(&Why { why: layer }).inc();
        }
    }

    fn seal_capability(
        &self,
        raw: RawCapability,
        tenant: &TenantId,
        bot: &BotId,
        source: &Source,
        receivers: &[Arc<Instance>],
        now_ms: u64,
    ) -> SealedCapability {
        let id = self.env.random_hex(16);
        let mut session_keys = session_names(source);
        for receiver in receivers.iter().filter(|_| raw.is_awaited) {
            // A message that replies to the event is found by it, any other by the chat alone.
            let message_id = source.message_id.as_ref();
            session_keys.extend([None, message_id].map(|reply_to| answer_key(receiver.no, &source.chat_id, reply_to)));
        }
        SealedCapability {
            sealed: self.sealer.seal(&*self.env, &raw.value, &[tenant, &raw.kind, &id]),
            id,
            tenant: tenant.clone(),
            session_keys,
            platform: source.platform.clone(),
            bot: bot.clone(),
            chat_id: source.chat_id.clone(),
            expires_ms: now_ms + raw.ttl_ms.min(self.rules.vault_ttl_ms),
            kind: raw.kind,
        }
    }
}

/// What is known of an event before the platform is asked who sees its chat.
#[derive(Clone, Copy)]
struct Asking {
    /// A user waits for the answer: look-ups are kept short.
    is_interaction: bool,
    author_sees: bool,
}

/// The tenant of an event, from the directory.
fn tenant_of<'a>(view: &'a View, tenant_source: &'a TenantSource, source: &Source) -> Option<&'a TenantId> {
    match tenant_source {
        TenantSource::Tenant(tenant) => Some(tenant),
        TenantSource::Shared => directory::tenant_of(view, &source.platform, &ChatLocation::of(source)),
        TenantSource::Path(path) => view.route(&source.platform, path).map(|route| &route.tenant),
    }
}

/// The key that an operator would have to route.
fn discriminator(tenant_source: &TenantSource, source: &Source) -> String {
    match tenant_source {
        TenantSource::Tenant(tenant) => tenant.to_string(),
        TenantSource::Path(path) => path.clone(),
        TenantSource::Shared => source.scope_id.clone().unwrap_or_else(|| source.channel().to_string()),
    }
}

/// The line of an event in the built-in chat. It answers a prompt only if the event has a receiver.
fn line_of(line: ChatLine, delivery: &Delivery, reaches: bool) -> ChatWrite {
    ChatWrite {
        chat_id: delivery.chat_id.clone(),
        message_id: delivery.message_id.clone(),
        json: line.json,
        at_ms: delivery.at_ms,
        amend: line.answers.filter(|_| reaches),
    }
}

/// The part of a message's origin that its dedup key depends on.
pub(super) struct Marks<'a> {
    tenant_source: &'a TenantSource,
    bot: &'a BotId,
    mark: &'a str,
}

impl Marks<'_> {
    /// The message id, then the origin as a short hash: a message can be found by its id, and rising ids let the index
    /// grow at one edge. The origin contains no tenant that the directory resolved: linking a user does not make an old
    /// message new. An edit is another event of the same message.
    pub(super) fn dedup(&self, source: &Source, message_id: &str, edit: &str) -> Vec<u8> {
        let named = match self.tenant_source {
            TenantSource::Tenant(tenant) => tenant.as_str(),
            TenantSource::Shared | TenantSource::Path(_) => "",
        };
        let mut key = dedup_prefix(message_id);
        let place = [named, &source.platform, self.bot, &source.chat_id, edit, self.mark];
        // Keys of events without a mark stay what they were before there were marks.
        let count = place.len() - usize::from(self.mark.is_empty());
        key.extend_from_slice(&short_hash(&place[..count]));
        key
    }

    /// One key for all answers to a prompt. An answer can be found by its chat.
    fn answer(&self, source: &Source, prompt: &str) -> Vec<u8> {
        [answers_in(&source.chat_id), self.dedup(source, prompt, "")].concat()
    }
}

/// Keys of answers to prompts begin with that of their chat.
fn answers_in(chat_id: &ChatId) -> Vec<u8> {
    [b"answer in ".as_slice(), &short_hash(&[chat_id])].concat()
}

pub(super) fn dedup_prefix(message_id: &str) -> Vec<u8> {
    if message_id.len() <= DEDUP_ID_MAX_BYTES {
        return message_id.as_bytes().to_vec();
    }
    let mut prefix = vec![0]; // no plain id begins with this byte, so a hash is never taken for an id
    prefix.extend_from_slice(&short_hash(&[message_id]));
    prefix
}

/// `long_bytes`: of the long fields, so that the result is rarely moved while it grows.
fn to_json(what: &impl serde::Serialize, long_bytes: usize) -> Result<String, DeskError> {
    let mut json = Vec::with_capacity(long_bytes + SHORT_FIELDS_BYTES);
    serde_json::to_writer(&mut json, what).map_err(|error| DeskError::BadRequest(error.to_string()))?;
    String::from_utf8(json).map_err(|error| DeskError::BadRequest(error.to_string()))
}
