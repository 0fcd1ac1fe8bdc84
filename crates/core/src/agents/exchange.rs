//! Questions and answers between agents. A question is an ordinary message; the asker waits for the reply.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frontdesk_wire::agents::{AgentReply, Class, DeliveryMeta, DeliveryPayload, Fault, Origin, Replied};
use frontdesk_wire::{Act, Action, InstanceId, InstanceNo, TenantId};
use futures_util::FutureExt as _;
use futures_util::future::FusedFuture as _;
use tokio::sync::{Notify, oneshot};

use super::caller::AgentsCaller;
use super::deliver::{Asks, How};
use super::messages::reply_mark;
use super::stores::{TEXT_MAX_BYTES, check_size};
use super::{Addressee, AgentsPlane, Inboxes, Messages};
use crate::base::Base;
use crate::directory::Caller;
use crate::env::Env;
use crate::lease::Lease;
use crate::meters::{Meters, Why};
use crate::outbound::Listener;
use crate::port::BoxFuture;
use crate::port::bus::{Bus, Hint, To};
use crate::port::exchanges::{self, Exchange, Mention, Reply, ReplyOutcome, StoredAnswer};
use crate::port::store::StoreError;
use crate::port::stores::Stores;

/// Maximum time to wait for an answer.
pub const TIMEOUT_MAX_MS: u64 = 600_000;

/// It is in memory as long as the caller waits, which may be ten minutes.
const CORRELATION_ID_MAX_BYTES: usize = 4096;
/// Attempts to put an accepted answer into the inbox of an asker that disconnected, with a pause before each further one.
const UNDELIVERED_TRIES: u32 = 30;
const UNDELIVERED_PAUSE: Duration = Duration::from_secs(1);

/// A question with its payload.
pub struct Question {
    pub payload: DeliveryPayload,
    /// A reservation that is released with the payload, once all connectors have the question. The answer may come much
    /// later.
    pub held: Box<dyn Send + Sync>,
}

impl From<DeliveryPayload> for Question {
    fn from(payload: DeliveryPayload) -> Self {
        Self { payload, held: Box::new(()) }
    }
}

/// Memory reserved for an answer until it was read; released on drop.
pub type Reservation = Box<dyn Send + Sync>;

/// An answer with its memory reservation.
pub struct BufferedReply {
    pub reply: AgentReply,
    pub reservation: Reservation,
}

type Asker = oneshot::Sender<Result<BufferedReply, Fault>>;

/// Channel to the waiting asker. Its receiver is dropped when the asker disconnects.
pub struct AnswerChannel {
    asker: Asker,
    reserve: Box<dyn Fn(usize) -> Option<Reservation> + Send + Sync>,
}

impl AnswerChannel {
    /// `reserve` reserves memory for an answer of this size. `None`: the budget for unread answers is used up.
    pub fn new(asker: Asker, reserve: impl Fn(usize) -> Option<Reservation> + Send + Sync + 'static) -> Self {
        Self { asker, reserve: Box::new(reserve) }
    }

    fn send(self, answered: Result<AgentReply, Fault>) -> Result<(), UndeliveredReply> {
        let reply = match answered {
            Ok(reply) => reply,
            Err(fault) => {
                let _ = self.asker.send(Err(fault)); // the asker may have disconnected
                return Ok(());
            }
        };
        let Some(reservation) = (self.reserve)(reply.content.len()) else {
            return Err(UndeliveredReply { content: reply.content, asker: Some(self.asker) });
        };
        match self.asker.send(Ok(BufferedReply { reply, reservation })) {
            Err(Ok(BufferedReply { reply, .. })) => Err(UndeliveredReply { content: reply.content, asker: None }),
            _ => Ok(()),
        }
    }
}

/// An asker that reads immediately and needs no memory budget.
impl From<Asker> for AnswerChannel {
    fn from(asker: Asker) -> Self {
        Self::new(asker, |_| Some(Box::new(())))
    }
}

/// An accepted answer that could not be passed to its asker.
struct UndeliveredReply {
    content: String,
    /// The asker, if it is still connected but over its budget for unread answers.
    asker: Option<Asker>,
}

/// What happened to an undelivered answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Disposition {
    InInbox,
    /// Storing it failed; it is tried again.
    Later,
    /// No agent asked, or its inbox cannot take it.
    Lost,
}

/// Tells an asker that is over its budget what happened to the answer. Not as `RateLimitedError`, which clients retry
/// because it means that nothing was done.
fn refuse(asker: Option<Asker>, disposition: Disposition) {
    let Some(asker) = asker else { return };
    let what = match disposition {
        Disposition::InInbox => "this answer is in the inbox of the agent that asked",
        Disposition::Later => "storing this answer in the inbox of the agent that asked is tried again later",
        Disposition::Lost => "this answer was not kept; ask again with another dispatch_id",
    };
    let text = "the question was answered, but too many unread answers are buffered for this tenant";
    let fault = Fault::new(Class::TimeoutError, format!("{text}; read them; {what}"));
    let _ = asker.send(Err(fault)); // it may have disconnected
}

/// Questions between agents, and the callers that wait for the answers, here and at other servers.
pub struct Exchanges {
    env: Arc<dyn Env>,
    store: Arc<dyn exchanges::Exchanges>,
    lease: Arc<Lease>,
    bus: Arc<dyn Bus>,
    /// The server number under which the store has the exchanges of this server.
    adopted_as: AtomicU64,
    agents: Arc<AgentsPlane>,
    messages: Arc<Messages>,
    inboxes: Arc<Inboxes>,
    meters: Arc<Meters>,
}

impl Exchanges {
    pub(crate) fn new(
        base: &Base,
        stores: &Stores,
        agents: &Arc<AgentsPlane>,
        messages: &Arc<Messages>,
        inboxes: &Arc<Inboxes>,
    ) -> Self {
        Self {
            env: base.env.clone(),
            store: stores.exchanges.clone(),
            lease: base.lease.clone(),
            bus: base.bus.clone(),
            adopted_as: AtomicU64::new(base.lease.me().0),
            agents: agents.clone(),
            messages: messages.clone(),
            inboxes: inboxes.clone(),
            meters: base.meters.clone(),
        }
    }

    /// Asks, and returns after the answer is known and the question was handed to all connectors.
    pub async fn exchange(
        &self,
        who: AgentsCaller<'_>,
        address: &str,
        payload: &DeliveryPayload,
        timeout_ms: u64,
    ) -> Result<AgentReply, Fault> {
        let (asker, answer) = oneshot::channel();
        let asking = self.ask(who, address, payload.clone().into(), timeout_ms, asker.into());
        let (answer, ()) = tokio::join!(answer, Box::pin(asking));
        let ended = |_| Err(Fault::new(Class::InternalError, "the exchange ended without a result"));
        answer.unwrap_or_else(ended).map(|buffered| buffered.reply)
    }

    /// Asks, and sends the answer to `line` as soon as it is known. An asker that disconnects frees its slot at once;
    /// the question is still handed to all connectors.
    pub async fn ask(
        &self,
        who: AgentsCaller<'_>,
        address: &str,
        question: Question,
        timeout_ms: u64,
        line: AnswerChannel,
    ) {
        let mut line = Some(line);
        let asked = self.ask_on(who, address, question, timeout_ms, &mut line).await;
        if let (Err(fault), Some(line)) = (asked, line) {
            let _ = line.asker.send(Err(fault)); // the asker may have disconnected
        }
    }

    async fn ask_on(
        &self,
        who: AgentsCaller<'_>,
        address: &str,
        question: Question,
        timeout_ms: u64,
        line: &mut Option<AnswerChannel>,
    ) -> Result<(), Fault> {
        let Question { payload, held } = question;
        let correlation_id = &check_question(&payload, timeout_ms)?.to_owned();
        let to = &self.agents.addressee(who.tenant, address).await?;
        let payload = who.signed_own(payload)?;
        let asker = self.asker(who, &payload);
        let exchange = Exchange {
            tenant: who.tenant.clone(),
            correlation_id: correlation_id.clone(),
            asker: asker.clone(),
            chat_id: super::deliver::chat_of_payload(&payload).into(),
            timeout_ms,
            ..self.exchange_with(to)
        };
        let (token, delivery_id) = (exchange.token, exchange.delivery_id.clone());
        // Opened before the question is committed: the answer may arrive before the commit returns.
        self.open(exchange).await?;
        let Some((ticket, mut waiting)) = self.agents.live.waiters.wait(token, who.tenant, to.agent.no) else {
            let busy = Fault::new(Class::RateLimitedError, "too many exchanges in progress; try again later");
            return self.give_up(token, busy, line, to, correlation_id).await;
        };
        // The answer may be there already: from a fast agent, or to the same question asked earlier.
        if let Err(error) = self.look_for_answers(vec![token]).await {
            return self.give_up(token, error.into(), line, to, correlation_id).await;
        }
        let stored = Notify::new();
        let on_stored = |first: String| -> BoxFuture<'_, ()> {
            let is_repeated = first != delivery_id;
            stored.notify_one();
            Box::pin(async move {
                if is_repeated && let Err(error) = self.store.name_question(token, first).await {
                    tracing::warn!(%error, "storing the id of a repeated question failed; sockets cannot answer it");
                }
            })
        };
        let how = How { asks: Some(Asks { by: asker.as_ref(), on_stored: &on_stored }), dedup: None };
        let id = delivery_id.clone();
        let question = async move {
            let _held = held; // as long as the payload
            self.messages.deliver_to(to, &payload, id, how).await
        };
        let mut question = std::pin::pin!(question.fuse());
        // Also accepts the answer while a slow connector is still being called.
        let outcome = async {
            let hung_up = async {
                match line.as_mut() {
                    Some(line) => line.asker.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = &mut waiting => answer.map_err(|_| Fault::unknown_agent(&to.agent.id)), // it was deleted
                Err(fault) = &mut question => Err(fault),
                () = hung_up => Err(Fault::new(Class::TimeoutError, "the asker disconnected")),
            }
        };
        let outcome = tokio::time::timeout(Duration::from_millis(timeout_ms), outcome).await;
        let (is_late, late) = (outcome.is_err(), || no_answer(&to.agent.id, timeout_ms));
        let answered = self.or_last_moment(token, outcome.unwrap_or_else(|_| Err(late()))).await;
        self.count(&answered, is_late);
        let is_answered = answered.is_ok();
        let mut is_settled = is_answered;
        let unsent = line.take().and_then(|line| line.send(answered.map(|it| reply_of(to, correlation_id, it))).err());
        if asker.is_some() && is_answered {
            // The answer may have arrived before the question was committed.
            if !question.is_terminated() {
                tokio::select! {
                    biased;
                    () = stored.notified() => {}
                    _ = &mut question => {}
                }
            }
            is_settled = self.close_answered(who.tenant, to, correlation_id, token, unsent).await;
        } else if let Some(UndeliveredReply { asker, .. }) = unsent {
            refuse(asker, Disposition::Lost);
        }
        // Only after the commit, so that until then further replies get `Answered`. An undelivered answer stays in the store
        // for `finish_left`.
        if is_settled {
            self.end(token).await;
        }
        drop(ticket);
        if !question.is_terminated() {
            let _ = question.await; // a failure is in the receipts; the asker has its answer
        }
        Ok(())
    }

    fn count(&self, answered: &Result<StoredAnswer, Fault>, is_late: bool) {
        let why = match answered {
            Ok(_) => "answered",
            Err(_) if is_late => "unanswered",
            Err(_) => "exchange_failed",
        };
        self.meters.agent_messages.get_or_create(&Why { why }).inc();
    }

    /// A new exchange with this agent; the caller fills in the asker.
    fn exchange_with(&self, to: &Addressee) -> Exchange {
        Exchange {
            token: self.lease.next_token(),
            desk: self.lease.me(),
            agent: to.agent.no,
            agent_id: to.agent.id.clone(),
            delivery_id: self.messages.new_delivery_id(),
            instances: to.relay.iter().map(|it| it.no).collect(),
            ..Exchange::default()
        }
    }

    async fn open(&self, exchange: Exchange) -> Result<(), Fault> {
        let (token, correlation_id) = (exchange.token, exchange.correlation_id.clone());
        match self.store.open_exchange(exchange, self.lease.live(), self.env.now_ms()).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let text = "an exchange with this correlation_id is in progress";
                Err(Fault::new(Class::ConflictError, text).with("correlation_id", correlation_id))
            }
            Err(error) => {
                let _ = self.store.end_exchange(token).await; // the row may have been written although the answer was lost
                Err(error.into())
            }
        }
    }

    /// Called before an exchange is given up: checks the store once more, because a reply may have been accepted just now.
    async fn or_last_moment(&self, token: u64, outcome: Result<StoredAnswer, Fault>) -> Result<StoredAnswer, Fault> {
        let Err(fault) = outcome else { return outcome };
        // The row is kept until the answer was delivered.
        if let Some((_, answer)) = self.store.take_answers(vec![token]).await?.pop() {
            return Ok(answer);
        }
        self.store.end_exchange(token).await?.ok_or(fault)
    }

    async fn end(&self, token: u64) {
        if let Err(error) = self.store.end_exchange(token).await {
            tracing::warn!(%error, "failed to close an exchange; it expires by itself");
        }
    }

    /// Ends an exchange before its question is delivered. The store may have an answer to the same question asked earlier.
    async fn give_up(
        &self,
        token: u64,
        fault: Fault,
        line: &mut Option<AnswerChannel>,
        to: &Addressee,
        correlation_id: &str,
    ) -> Result<(), Fault> {
        let answer = self.or_last_moment(token, Err(fault)).await?;
        let Some(line) = line.take() else { return Ok(()) };
        let undelivered = line.send(Ok(reply_of(to, correlation_id, answer))).err();
        if self.close_answered(&to.agent.tenant, to, correlation_id, token, undelivered).await {
            self.end(token).await;
        }
        Ok(())
    }

    /// Marks the question as answered. An `undelivered` answer goes to the asker's inbox, because its sender was told that
    /// it was accepted. False: storing it failed and must be tried again.
    async fn close_answered(
        &self,
        tenant: &TenantId,
        to: &Addressee,
        correlation_id: &str,
        token: u64,
        undelivered: Option<UndeliveredReply>,
    ) -> bool {
        let Some(UndeliveredReply { content, asker }) = undelivered else {
            if let Err(fault) = self.note_answered(tenant, to.agent.no, correlation_id).await {
                tracing::warn!(%fault, "closing an answered question failed; a second answer may reach the asker");
            }
            return true;
        };
        let mut tries = 1;
        let disposition = loop {
            let late = self.late_reply(tenant, &to.agent.id, Some(to.agent.no), correlation_id, content.clone());
            match Box::pin(late).await {
                Ok(true) => break Disposition::InInbox,
                Ok(false) => {
                    tracing::info!(
                        correlation_id,
                        "an answer was dropped: it is a duplicate, its question was not stored, or its asker was deleted"
                    );
                    break Disposition::Lost;
                }
                Err(fault) if !is_passing(&fault) => {
                    tracing::error!(%fault, correlation_id, "an answer was dropped: the inbox of its asker refused it");
                    break Disposition::Lost;
                }
                Err(fault) if tries < UNDELIVERED_TRIES => {
                    tracing::warn!(%fault, "storing an undelivered answer failed; trying again");
                }
                Err(fault) => {
                    tracing::error!(%fault, correlation_id, "storing an undelivered answer failed");
                    break Disposition::Later;
                }
            }
            tries += 1;
            tokio::time::sleep(UNDELIVERED_PAUSE).await;
        };
        // Leaves it for `finish_left`, or for the same question if it is asked again.
        if disposition == Disposition::Later
            && let Err(error) = self.store.leave_answer(token, self.env.now_ms()).await
        {
            tracing::warn!(%error, correlation_id, "marking an undelivered answer failed; only the same question, asked again in time, can return it");
        }
        refuse(asker, disposition);
        disposition != Disposition::Later
    }

    /// The asking agent, if there is one: from its token, otherwise from the name that it claims.
    fn asker(&self, who: AgentsCaller<'_>, payload: &DeliveryPayload) -> Option<InstanceId> {
        let claimed = payload.meta().origin.caller_agent_id.as_deref();
        let mut names = [who.bound.map(InstanceId::as_str), who.caller, claimed].into_iter().flatten();
        names.find_map(|name| self.agents.find_agent(who.tenant, name).ok()).map(|(id, _)| id)
    }

    async fn note_answered(&self, tenant: &TenantId, agent: InstanceNo, correlation_id: &str) -> Result<(), Fault> {
        match self.messages.question(tenant, agent, correlation_id).await? {
            Some((question, _)) => self.messages.close_question(tenant, question).await,
            None => Ok(()),
        }
    }

    /// A reply through the API. If no caller waits any more, it goes to the inbox of the asking agent.
    pub async fn reply(
        &self,
        who: AgentsCaller<'_>,
        address: &str,
        correlation_id: &str,
        content: String,
    ) -> Result<Replied, Fault> {
        let (id, no) = self.inboxes.inbox_of(who.tenant, address)?;
        who.check_own(&id, "answer as")?;
        check_size("content", content.len(), TEXT_MAX_BYTES)?; // it may have to go to an inbox
        if let Some(no) = no {
            self.agents.note_traffic(no);
        }
        // 0 is never an agent number: an agent without an inbox was never asked anything.
        match self.take_reply(who.tenant, correlation_id, no.unwrap_or_default(), content.clone()).await? {
            ReplyOutcome::At(..) => Ok(Replied { ok: true, delivered_to: None }),
            ReplyOutcome::OtherAgent => {
                Err(Fault::new(Class::ForbiddenError, format!("{id} cannot reply: another agent was asked")))
            }
            ReplyOutcome::NobodyWaits if self.late_reply(who.tenant, &id, no, correlation_id, content).await? => {
                Ok(Replied { ok: true, delivered_to: Some("inbox".into()) })
            }
            ReplyOutcome::NobodyWaits | ReplyOutcome::Answered => {
                let text = "no question is open for this reply: it was answered or is unknown, or no agent asked it";
                Err(Fault::new(Class::GoneError, text).with("correlation_id", correlation_id))
            }
        }
    }

    /// The row of the exchange decides whether it is the answer. The asker is notified here, or at its server.
    async fn take_reply(
        &self,
        tenant: &TenantId,
        correlation_id: &str,
        agent: InstanceNo,
        content: String,
    ) -> Result<ReplyOutcome, StoreError> {
        let (me, now_ms) = (self.lease.me(), self.env.now_ms());
        let answer = StoredAnswer { content, at_ms: now_ms };
        let (tenant, correlation_id) = (tenant.clone(), correlation_id.to_owned());
        let reply = Reply { tenant, correlation_id, agent, answer: answer.clone(), desk: me };
        let outcome = self.store.answer_exchange(reply, self.lease.live(), now_ms).await?;
        match outcome {
            ReplyOutcome::At(desk, token) if desk == me => self.agents.live.waiters.answer(token, answer),
            ReplyOutcome::At(desk, token) => self.bus.send(To::Desk(desk), Hint::Answered(vec![token])),
            _ => {}
        }
        Ok(outcome)
    }

    /// Passes on answers that other servers accepted for these exchanges.
    pub(crate) async fn look_for_answers(&self, tokens: Vec<u64>) -> Result<(), StoreError> {
        if !tokens.is_empty() {
            for (token, answer) in self.store.take_answers(tokens).await? {
                self.agents.live.waiters.answer(token, answer);
            }
        }
        Ok(())
    }

    /// After a lost lease this server has a new number: moves the exchanges of its askers to that number.
    pub(crate) async fn adopt(&self) -> Result<(), StoreError> {
        let (me, tokens) = (self.lease.me(), self.agents.live.waiters.tokens());
        if self.adopted_as.load(Ordering::SeqCst) != me.0 {
            if !tokens.is_empty() {
                self.store.adopt_exchanges(me, tokens).await?;
            }
            self.adopted_as.store(me.0, Ordering::SeqCst);
        }
        Ok(())
    }

    /// The same for all callers that wait here, because a hint may have been lost.
    pub(crate) async fn look_for_all_answers(&self) -> Result<(), StoreError> {
        self.look_for_answers(self.agents.live.waiters.tokens()).await
    }

    /// Delivers answers whose askers waited at a server that is gone to the inboxes of the asking agents.
    pub async fn finish_left(&self) -> Result<(), StoreError> {
        for (exchange, answer) in self.store.left_exchanges(self.lease.live(), self.env.now_ms()).await? {
            let Exchange { token, tenant, agent, agent_id, correlation_id, .. } = exchange;
            if exchange.asker.is_some() {
                let late = self.late_reply(&tenant, &agent_id, Some(agent), &correlation_id, answer.content);
                match Box::pin(late).await {
                    Err(fault) if is_passing(&fault) => {
                        tracing::warn!(
                            %fault,
                            "delivering an answer whose asker disconnected failed; trying again later"
                        );
                        continue;
                    }
                    Err(fault) => {
                        tracing::warn!(%fault, correlation_id, "an answer whose asker disconnected was dropped");
                    }
                    Ok(false) => {
                        tracing::info!(
                            correlation_id,
                            "an answer was dropped: it is a duplicate, or its asker was deleted"
                        );
                    }
                    Ok(true) => {}
                }
            }
            self.store.end_exchange(token).await?;
        }
        Ok(())
    }

    /// Delivers a late reply to the asking agent. Returns whether this reply is in its inbox; only the first one is.
    async fn late_reply(
        &self,
        tenant: &TenantId,
        id: &InstanceId,
        no: Option<InstanceNo>,
        correlation_id: &str,
        content: String,
    ) -> Result<bool, Fault> {
        let Some(no) = no else { return Ok(false) };
        let Some((question, asker)) = self.messages.question(tenant, no, correlation_id).await? else {
            return Ok(false);
        };
        let to = match self.agents.addressee(tenant, &asker).await {
            Ok(to) if to.agent.id == asker => to,
            Err(fault) if fault.class != Class::UnknownAgentError => return Err(fault),
            _ => return Ok(false), // the asking agent was deleted
        };
        let origin =
            Origin { trigger_kind: Some("agent".into()), caller_agent_id: Some(id.to_string()), ..Origin::default() };
        let meta = DeliveryMeta {
            dispatch_id: self.env.uuid_v4(),
            sent_at: self.env.now_ms(),
            origin,
            event_type: Some("exchange.late_reply".into()),
            correlation_id: Some(correlation_id.into()),
            ..DeliveryMeta::default()
        };
        let payload = DeliveryPayload::Augment { content, meta };
        let how = How { asks: None, dedup: Some(reply_mark(question)) };
        let done = Box::pin(self.messages.deliver_to(&to, &payload, self.messages.new_delivery_id(), how)).await?;
        Ok(done.is_stored)
    }
}

impl Listener for Exchanges {
    /// Called when an agent sends a message through its socket: if it answers a question, the asker gets it.
    fn sending<'a>(&'a self, caller: &'a Caller, action: &'a Action) -> Option<BoxFuture<'a, Result<(), StoreError>>> {
        let (chat_id, content, reply_to, sealed) = match &action.act {
            Act::Send { chat_id, content, reply_to } => (chat_id, content, reply_to.as_deref(), false),
            Act::Draft { chat_id, content, sealed: true, .. } => (chat_id, content, None, true),
            _ => return None,
        };
        if !chat_id.starts_with("agent:") {
            return None;
        }
        let named = action.meta("correlation_id");
        let thread = action.meta("thread_id");
        // A gateway sends everything in the thread of the question, including progress notices, and marks the final
        // message with `notify`. A simple agent just replies to the message.
        let is_last_word = sealed || action.metadata.get("notify").and_then(serde_json::Value::as_bool) == Some(true);
        let message = thread.or(reply_to);
        if (named.is_none() && thread.is_some() && !is_last_word) || (named.is_none() && message.is_none()) {
            return None;
        }
        let mention = Mention {
            tenant: caller.tenant.clone(),
            instance: caller.instance.no,
            chat_id: chat_id.clone(),
            correlation_id: named.map(str::to_owned),
            delivery_id: message.map(str::to_owned),
        };
        Some(Box::pin(async move {
            if let Some((correlation_id, agent)) = self.store.meant_exchange(mention).await? {
                // If the asker has just disconnected, it remains an ordinary message in the chat.
                self.take_reply(&caller.tenant, &correlation_id, agent, content.clone()).await?;
            }
            Ok(())
        }))
    }
}

/// Validates a question and returns its correlation id.
fn check_question(payload: &DeliveryPayload, timeout_ms: u64) -> Result<&str, Fault> {
    if !(1..=TIMEOUT_MAX_MS).contains(&timeout_ms) {
        return Err(Fault::invalid(format!("timeout_ms must be between 1 and {TIMEOUT_MAX_MS}")));
    }
    let correlation_id = payload.meta().correlation_id.as_deref().filter(|id| !id.is_empty());
    let correlation_id =
        correlation_id.ok_or_else(|| Fault::invalid("meta.correlation_id is required for an exchange"))?;
    if correlation_id.len() > CORRELATION_ID_MAX_BYTES {
        let (given, max) = (correlation_id.len(), CORRELATION_ID_MAX_BYTES);
        return Err(Fault::invalid(format!("meta.correlation_id has {given} bytes; the limit is {max}")));
    }
    Ok(correlation_id)
}

/// Whether a retry may succeed.
fn is_passing(fault: &Fault) -> bool {
    matches!(
        fault.class,
        Class::UnavailableError | Class::InternalError | Class::RateLimitedError | Class::TimeoutError
    )
}

fn no_answer(agent: &InstanceId, timeout_ms: u64) -> Fault {
    let text = format!("{agent} did not answer within {timeout_ms} ms; the question stays in its inbox");
    Fault::new(Class::TimeoutError, text).with("timeout_ms", timeout_ms)
}

fn reply_of(to: &Addressee, correlation_id: &str, answer: StoredAnswer) -> AgentReply {
    AgentReply {
        correlation_id: correlation_id.to_owned(),
        content: answer.content,
        sent_at: answer.at_ms,
        agent_id: to.agent.id.to_string(),
    }
}
