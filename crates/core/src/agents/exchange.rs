//! Questions and answers between agents. A question is an ordinary message; the asker waits for the reply.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::agents::{AgentReply, Class, DeliveryMeta, DeliveryPayload, Fault, Origin, Replied};
use frontdesk_wire::{Act, Action, InstanceNo};
use futures_util::FutureExt as _;
use futures_util::future::FusedFuture as _;
use tokio::sync::{Notify, oneshot};

use super::deliver::{Asks, How};
use super::messages::reply_mark;
use super::speaker::Speaker;
use super::waiters::{Refused, Unheard};
use super::{AgentsPlane, Inboxes, Messages};
use crate::base::Base;
use crate::directory::Caller;
use crate::env::Env;
use crate::meters::{Meters, Why};
use crate::outbound::Listener;

/// Maximum time to wait for an answer.
pub const TIMEOUT_MAX_MS: u64 = 600_000;

/// Channel to the waiting asker. Its receiver is dropped when the asker disconnects.
pub type Line = oneshot::Sender<Result<AgentReply, Fault>>;

/// Questions between agents, and the callers that wait for the answers.
pub struct Exchanges {
    env: Arc<dyn Env>,
    agents: Arc<AgentsPlane>,
    messages: Arc<Messages>,
    inboxes: Arc<Inboxes>,
    meters: Arc<Meters>,
}

impl Exchanges {
    pub(crate) fn new(
        base: &Base,
        agents: &Arc<AgentsPlane>,
        messages: &Arc<Messages>,
        inboxes: &Arc<Inboxes>,
    ) -> Self {
        let (agents, messages, inboxes) = (agents.clone(), messages.clone(), inboxes.clone());
        Self { env: base.env.clone(), agents, messages, inboxes, meters: base.meters.clone() }
    }

    /// Asks, and returns after the answer is known and the question was handed to all connectors.
    pub async fn exchange(
        &self,
        who: Speaker<'_>,
        address: &str,
        payload: &DeliveryPayload,
        timeout_ms: u64,
    ) -> Result<AgentReply, Fault> {
        let (line, answer) = oneshot::channel();
        let (answer, ()) = tokio::join!(answer, Box::pin(self.ask(who, address, payload, timeout_ms, line)));
        answer.unwrap_or_else(|_| Err(Fault::new(Class::InternalError, "the exchange ended without a result")))
    }

    /// Asks, and sends the answer to `line` as soon as it is known. An asker that disconnects frees its slot at once;
    /// the question is still handed to all connectors.
    pub async fn ask(&self, who: Speaker<'_>, address: &str, payload: &DeliveryPayload, timeout_ms: u64, line: Line) {
        let mut line = Some(line);
        let asked = self.ask_on(who, address, payload, timeout_ms, &mut line).await;
        if let (Err(fault), Some(line)) = (asked, line) {
            let _ = line.send(Err(fault)); // the asker may have disconnected
        }
    }

    async fn ask_on(
        &self,
        who: Speaker<'_>,
        address: &str,
        payload: &DeliveryPayload,
        timeout_ms: u64,
        line: &mut Option<Line>,
    ) -> Result<(), Fault> {
        let correlation_id = check_question(payload, timeout_ms)?;
        let to = self.agents.addressee(who.tenant, address).await?;
        let payload = &*who.signed(payload)?;
        let asker = self.asker(who, payload);
        let ticket = self.agents.live.waiters.wait(who.tenant, correlation_id, to.agent.no, &to.agent.id);
        let (ticket, mut answer) = ticket.map_err(|refused| match refused {
            Refused::InFlight => {
                let text = "an exchange with this correlation_id is in progress";
                Fault::new(Class::ConflictError, text).with("correlation_id", correlation_id)
            }
            Refused::TooMany => Fault::new(Class::RateLimitedError, "too many exchanges in progress; try again later"),
        })?;
        let stored = Notify::new();
        let question = async {
            // Registered before the commit: the answer may arrive before the commit returns.
            let chat_id = super::deliver::chat_of_payload(payload);
            let instances: Vec<InstanceNo> = to.relay.iter().map(|it| it.no).collect();
            let delivery_id = self.messages.new_delivery_id();
            ticket.asked(&delivery_id, &chat_id, instances.clone());
            // A repeated question keeps the delivery id of the first one.
            let named = |first: &str| {
                ticket.asked(first, &chat_id, instances.clone());
                stored.notify_one();
            };
            let how = How { asks: Some(Asks { by: asker.as_deref(), on_stored: &named }), dedup: None };
            Box::pin(self.messages.deliver_to(&to, payload, delivery_id, how)).await.map(drop)
        };
        let mut question = std::pin::pin!(question.fuse());
        // Also accepts the answer while a slow connector is still being called.
        let heard = async {
            let hung_up = async {
                match line.as_mut() {
                    Some(line) => line.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                reply = &mut answer => Ok(reply.ok()),
                Err(fault) = &mut question => Err(fault),
                () = hung_up => Err(Fault::new(Class::TimeoutError, "the asker disconnected")),
            }
        };
        let mut answered = tokio::time::timeout(Duration::from_millis(timeout_ms), heard).await;
        if !matches!(answered, Ok(Ok(Some(_)))) {
            ticket.leave();
            if let Ok(reply) = answer.try_recv() {
                answered = Ok(Ok(Some(reply))); // the replier was told that its reply was accepted
            }
        }
        let is_answered = matches!(answered, Ok(Ok(Some(_))));
        let why = match &answered {
            Ok(Ok(Some(_))) => "answered",
            Ok(_) => "exchange_failed",
            Err(_) => "unanswered",
        };
        self.meters.agent_messages.get_or_create(&Why { why }).inc();
        let answer = match answered {
            Ok(Ok(Some(reply))) => Ok(reply),
            Ok(Ok(None)) => Err(Fault::unknown_agent(&to.agent.id)), // deleted during the exchange
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(no_answer(&to.agent.id, timeout_ms)),
        };
        let unheard = line.take().and_then(|line| line.send(answer).err());
        if asker.is_some() && is_answered {
            // The answer may have arrived before the question was committed.
            if !question.is_terminated() {
                tokio::select! {
                    biased;
                    () = stored.notified() => {}
                    _ = &mut question => {}
                }
            }
            let noted = match unheard {
                // The asker disconnected just now, but the replier was told that its reply was accepted.
                Some(Ok(reply)) => {
                    let late =
                        self.late_reply(who.tenant, &to.agent.id, Some(to.agent.no), correlation_id, reply.content);
                    Box::pin(late).await.map(drop)
                }
                _ => self.note_answered(who.tenant, to.agent.no, correlation_id).await,
            };
            if let Err(fault) = noted {
                tracing::warn!(%fault, "closing an answered question failed; a second answer may reach the asker");
            }
        }
        ticket.leave(); // after the commit: until then further replies get `Answered`
        if !question.is_terminated() {
            let _ = question.await; // a failure is in the receipts; the asker has its answer
        }
        Ok(())
    }

    /// The asking agent, if there is one: from its token, otherwise from the name that it claims.
    fn asker(&self, who: Speaker<'_>, payload: &DeliveryPayload) -> Option<String> {
        let claimed = payload.meta().origin.caller_agent_id.as_deref();
        let mut names = [who.bound, who.caller, claimed].into_iter().flatten();
        names.find_map(|name| self.agents.find_agent(who.tenant, name).ok()).map(|(id, _)| id)
    }

    async fn note_answered(&self, tenant: &str, agent: InstanceNo, correlation_id: &str) -> Result<(), Fault> {
        match self.messages.question(tenant, agent, correlation_id).await? {
            Some((question, _)) => self.messages.close_question(tenant, question).await,
            None => Ok(()),
        }
    }

    /// An agent replies through the API. If nobody waits any more, the reply goes to the inbox of the asking agent.
    pub async fn reply(
        &self,
        who: Speaker<'_>,
        address: &str,
        correlation_id: &str,
        content: String,
    ) -> Result<Replied, Fault> {
        let (id, no) = self.inboxes.inbox_of(who.tenant, address)?;
        who.check_own(&id, "answer as")?;
        let now_ms = self.env.now_ms();
        if let Some(no) = no {
            self.agents.live.streams.note_traffic(no, now_ms);
        }
        // 0 is never an agent number: an agent without an inbox was never asked anything.
        let heard =
            self.agents.live.waiters.reply(who.tenant, correlation_id, no.unwrap_or_default(), content.clone(), now_ms);
        match heard {
            Ok(()) => Ok(Replied { ok: true, delivered_to: None }),
            Err(Unheard::OtherAgent) => {
                Err(Fault::new(Class::ForbiddenError, format!("{id} cannot reply: another agent was asked")))
            }
            Err(Unheard::NobodyWaits) if self.late_reply(who.tenant, &id, no, correlation_id, content).await? => {
                Ok(Replied { ok: true, delivered_to: Some("inbox".into()) })
            }
            Err(Unheard::NobodyWaits | Unheard::Answered) => {
                let text = "nobody waits for this reply: the question was answered or is unknown, or no agent asked it";
                Err(Fault::new(Class::GoneError, text).with("correlation_id", correlation_id))
            }
        }
    }

    /// Delivers a late reply to the asking agent. Returns whether this reply is in its inbox; only the first one is.
    async fn late_reply(
        &self,
        tenant: &str,
        id: &str,
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
            Origin { trigger_kind: Some("agent".into()), caller_agent_id: Some(id.into()), ..Origin::default() };
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
    fn sending(&self, caller: &Caller, action: &Action) {
        let (chat_id, content, reply_to, sealed) = match &action.act {
            Act::Send { chat_id, content, reply_to } => (chat_id, content, reply_to.as_deref(), false),
            Act::Draft { chat_id, content, sealed: true, .. } => (chat_id, content, None, true),
            _ => return,
        };
        if !chat_id.starts_with("agent:") || self.agents.live.waiters.is_empty() {
            return;
        }
        let named = action.meta("correlation_id");
        let thread = action.meta("thread_id");
        // A gateway sends everything in the thread of the question, including progress notices, and marks the final
        // message with `notify`. A simple agent just replies to the message.
        let is_last_word = sealed || action.metadata.get("notify").and_then(serde_json::Value::as_bool) == Some(true);
        if named.is_none() && thread.is_some() && !is_last_word {
            return;
        }
        let message = thread.or(reply_to);
        let meant = self.agents.live.waiters.meant(&caller.tenant, caller.instance.no, chat_id, named, message);
        if let Some((correlation_id, agent)) = meant {
            let now_ms = self.env.now_ms();
            // The asker may have disconnected just now; then it is only a message in the chat.
            let _ = self.agents.live.waiters.reply(&caller.tenant, &correlation_id, agent, content.clone(), now_ms);
        }
    }
}

/// Validates a question and returns its correlation id.
fn check_question(payload: &DeliveryPayload, timeout_ms: u64) -> Result<&str, Fault> {
    if !(1..=TIMEOUT_MAX_MS).contains(&timeout_ms) {
        return Err(Fault::invalid(format!("timeout_ms must be between 1 and {TIMEOUT_MAX_MS}")));
    }
    let correlation_id = payload.meta().correlation_id.as_deref().filter(|id| !id.is_empty());
    correlation_id.ok_or_else(|| Fault::invalid("meta.correlation_id is required for an exchange"))
}

fn no_answer(agent: &str, timeout_ms: u64) -> Fault {
    let text = format!("{agent} did not answer within {timeout_ms} ms; the question stays in its inbox");
    Fault::new(Class::TimeoutError, text).with("timeout_ms", timeout_ms)
}
