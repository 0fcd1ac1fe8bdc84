//! Wakes: a message is handed to a live session at once, or stored and the wake URL called. `woken` is true only if a
//! session or connector took the message.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::agents::{Class, ConnectorReceipt, Fault, WakeOpts, WakeReceipt};
use frontdesk_wire::{InboxSeq, InstanceId, InstanceNo, TenantId};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::Addressee;
use super::Messages;
use super::caller::AgentsCaller;
use super::deliver::{failed, shown, way_names};
use super::messages::{Committed, NewMessage, StoredReceipts};
use super::streams::Stream;
use crate::cron::retry::FireAnswer;
use crate::cron::{BY_WAKE, PlannedWakes};
use crate::delivery::sockets::Mailbox;
use crate::directory::check_id;
use crate::directory::facts::Instance;
use crate::error::DeskError;
use crate::hash::short_hash;
use crate::port::BoxFuture;
use crate::port::alarms::{Alarm, AlarmState};
use crate::port::inbox::PlannedWake;
use crate::port::inbox::StoredMessage;
use crate::port::store::MadeRow;

/// Time for a live session to take a message; it normally needs a few milliseconds.
const HAND_TIME: Duration = Duration::from_secs(2);

/// Planned wakes per agent.
const PLANNED_MAX: usize = 1_000;

/// Stored form of a planned wake.
#[derive(Serialize, Deserialize)]
struct Plan {
    tenant: TenantId,
    agent_id: InstanceId,
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    session_id: Option<String>,
    #[serde(default)]
    from: Option<String>,
}

/// Result of a wake, per connector.
pub(super) struct Woken {
    pub(super) receipt: WakeReceipt,
    pub(super) receipts: Vec<ConnectorReceipt>,
    /// Set if a connector failed and the agent was not woken in another way.
    pub(super) broke: Option<Fault>,
}

/// A connected session of an agent.
enum LiveSession {
    Stream(Arc<Stream>),
    Socket(Arc<Mailbox>, Arc<Instance>),
}

impl LiveSession {
    /// The session name: the name of a stream, or the gateway of a socket.
    fn session(&self) -> Option<&str> {
        match self {
            Self::Stream(stream) => stream.session.as_deref(),
            Self::Socket(mailbox, _) => Some(mailbox.gateway().as_str()),
        }
    }

    fn order(&self) -> u64 {
        match self {
            Self::Stream(stream) => stream.order,
            Self::Socket(mailbox, _) => mailbox.number(),
        }
    }
}

impl PlannedWakes for Messages {
    fn fire<'a>(&'a self, alarm: &'a Alarm) -> BoxFuture<'a, FireAnswer> {
        Box::pin(self.fire_by_wake(alarm))
    }
}

impl Messages {
    pub async fn wake(&self, who: AgentsCaller<'_>, address: &str, opts: &WakeOpts) -> Result<WakeReceipt, Fault> {
        let to = self.agents.addressee(who.tenant, address).await?;
        if let Some(at_ms) = opts.later_than(self.env.now_ms()) {
            return self.plan_wake(&to, opts, at_ms, who.caller).await;
        }
        let woken = Box::pin(self.wake_to(&to, opts, who.caller, None)).await?;
        woken.broke.map_or(Ok(woken.receipt), Err)
    }

    /// `plan`: key of the planned wake, used for deduplication.
    pub(super) async fn wake_to(
        &self,
        to: &Addressee,
        opts: &WakeOpts,
        from: Option<&str>,
        plan: Option<&str>,
    ) -> Result<Woken, Fault> {
        let asked = asked_session(opts, to)?;
        let session = self.choose_session(to, asked);
        let delivery_id = format!("wk_{}", self.env.random_hex(12));
        let receivers = match &session {
            Some(LiveSession::Socket(_, instance)) => vec![instance.no],
            Some(LiveSession::Stream(_)) => Vec::new(),
            None => to.relay.iter().map(|it| it.no).collect(),
        };
        let message = NewMessage {
            kind: if session.is_some() { "wake" } else { "wake_degraded" },
            text: opts.context.as_deref().unwrap_or_default(),
            meta: None,
            from,
            session: session.as_ref().and_then(LiveSession::session),
            delivery_id: &delivery_id,
            asks: false,
            asked_by: None,
            dedup: short_hash(&["wake", plan.unwrap_or(&delivery_id)]),
        };
        let at_ms = self.env.now_ms();
        let instead_of_sockets =
            asked.is_none() && matches!(session, Some(LiveSession::Stream(_))) && !to.relay.is_empty();
        let mut record =
            StoredReceipts { from: from.map(str::to_owned), instead_of_sockets, ..StoredReceipts::default() };
        let carrying = match plan {
            Some(_) => self.agents.carry(message.dedup).await?,
            None => self.agents.live.in_flight.carry(message.dedup), // a new random key, unknown to other servers
        };
        let Committed { stored, fresh, gone, rows } = self.commit(to, &message, at_ms, receivers, &record).await?;
        if !fresh {
            record = serde_json::from_str(&stored.message.receipts).unwrap_or_default();
            if plan.is_some() && !record.done && !gone && carrying.is_none() {
                let text = "this planned wake is already in progress, here or at another server; it is retried";
                return Err(Fault::new(Class::UnavailableError, text));
            }
            if record.done || carrying.is_none() || gone {
                // A planned wake that was carried out before a crash; its message is stored.
                let receipt = WakeReceipt { woken_at: stored.at_ms, ..WakeReceipt::default() };
                return Ok(Woken { receipt, receipts: record.receipts, broke: None });
            }
        }
        self.agents.notify_streams(to.agent.no);
        let mut receipt = WakeReceipt { woken_at: at_ms, ..WakeReceipt::default() };
        // A wake interrupted by a crash had chosen a session that no longer exists; now the connectors are tried.
        let session = session.as_ref().filter(|_| fresh);
        let took = match session {
            Some(session) => took(session, stored.place, &rows).await,
            None => false,
        };
        let own =
            if matches!(session, Some(LiveSession::Socket(..))) || !to.relay.is_empty() { "relay" } else { "inbox" };
        if took {
            receipt.woken = true;
            receipt.woken_at = self.env.now_ms();
            receipt.session_id = message.session.map(str::to_owned);
            record.receipts.push(shown(own, &receipt));
        } else {
            receipt.warnings.push(self.why_not(to, asked, session.is_some()));
            record.receipts.push(shown(own, &receipt));
            let message = NewMessage { delivery_id: &stored.message.delivery_id, ..message };
            if record.instead_of_sockets
                && let Err(fault) = self.pass_on(to, &message, at_ms).await
            {
                receipt.warnings.push(format!("relay: {}", fault.message));
            }
            record.receipts.extend(to.unread.iter().map(|fault| failed("connectors", fault)));
            self.wake_elsewhere(to, &stored, opts, asked, &mut receipt, &mut record).await;
        }
        record.done = true;
        // If we chose the session and it did not take the message, the message becomes available to any session.
        let session_id = stored.message.session_id.clone().filter(|_| took || asked.is_some());
        let is_freed = session_id != stored.message.session_id;
        self.store_receipts(&stored, if receipt.woken { "wake" } else { "wake_degraded" }, session_id, &record).await;
        self.release_handoffs(&to.ways, stored.event).await;
        if is_freed {
            self.agents.notify_streams(to.agent.no);
        }
        drop(carrying);
        self.report_message(to, &stored, if receipt.woken { "woken" } else { "degraded" }, from, &record.receipts);
        let broken = record.receipts.iter().find_map(|it| it.error.as_ref()).filter(|_| !receipt.woken);
        let broke = broken.map(|error| push_broke(to, &stored.message.delivery_id, error));
        Ok(Woken { receipt, receipts: record.receipts, broke })
    }

    /// The session that was asked for, otherwise the newest.
    fn choose_session(&self, to: &Addressee, asked: Option<&str>) -> Option<LiveSession> {
        let streams = self.agents.live.streams.of(to.agent.no).into_iter().map(LiveSession::Stream);
        let sockets = to.relay.iter().filter_map(|instance| {
            let mailbox = self.delivery.sockets().socket(instance.no).filter(|mailbox| !mailbox.is_idle())?;
            Some(LiveSession::Socket(mailbox, instance.clone()))
        });
        let meant = |session: &LiveSession| asked.is_none() || session.session() == asked;
        streams.chain(sockets).filter(meant).max_by_key(LiveSession::order)
    }

    fn why_not(&self, to: &Addressee, asked: Option<&str>, was_live: bool) -> String {
        if was_live {
            return "the session did not take the message in time; it is in the inbox".into();
        }
        let live = self.choose_session(to, None).is_some();
        let wake_url = to.agent.wake_url.is_some() || to.relay.iter().any(|it| it.wake_url.is_some());
        match (asked, live, wake_url) {
            (Some(asked), true, _) => format!("session {asked:?} is not connected; the message is in the inbox"),
            (_, _, true) => {
                "the agent is not connected; the message is in the inbox, its wake URL is being called".into()
            }
            (_, _, false) => "the agent is not connected and has no wake URL; the message waits in the inbox".into(),
        }
    }

    /// Tries the external connectors, then the wake URL.
    async fn wake_elsewhere(
        &self,
        to: &Addressee,
        stored: &StoredMessage,
        opts: &WakeOpts,
        asked: Option<&str>,
        receipt: &mut WakeReceipt,
        record: &mut StoredReceipts,
    ) {
        let asked = asked.map(str::to_owned);
        let opts = WakeOpts { context: opts.context.clone(), when: None, session_id: asked };
        let opts = &opts;
        let tries = to.ways.iter().map(|spec| async move {
            if let Some(server) = self.elsewhere(spec) {
                let warnings = vec![self.hand_over(server, stored).await?];
                return Ok(WakeReceipt { woken_at: self.env.now_ms(), warnings, ..WakeReceipt::default() });
            }
            match self.agents.ways.connectors.open(&to.agent.id, spec) {
                Ok(connector) => connector.wake(&to.agent.id, opts).await,
                Err(fault) => Err(fault),
            }
        });
        for (name, outcome) in way_names(&to.ways).iter().zip(join_all(tries).await) {
            match outcome {
                Ok(theirs) => {
                    record.receipts.push(shown(name, &theirs));
                    if theirs.woken && !receipt.woken {
                        receipt.woken = true;
                        receipt.session_id = theirs.session_id;
                        receipt.warnings.clear();
                    }
                    receipt.warnings.extend(theirs.warnings.into_iter().map(|it| format!("{name}: {it}")));
                }
                Err(fault) => {
                    receipt.warnings.push(format!("{name}: {}", fault.message));
                    record.receipts.push(failed(name, &fault));
                }
            }
        }
        if !receipt.woken && to.agent.wake_url.is_some() {
            self.note_called(to.agent.no, true).await;
            self.agents.live.ask_for_poke(to.agent.no);
        }
    }

    /// Stores whether a wake of this agent is pending, so that a restart continues to call it.
    pub async fn note_called(&self, agent: InstanceNo, waits: bool) {
        if !waits {
            self.delivery.note_wake_failure(agent, None);
        }
        if self.delivery.sockets().presence(agent).idle == waits {
            return;
        }
        if let Err(error) = self.delivery.mark_wake_waits(agent, waits).await {
            tracing::warn!(%error, "storing a pending wake failed");
        }
    }

    /// Agents with a wake pending at the last shutdown.
    pub fn called_agents(&self) -> Vec<InstanceNo> {
        let all: Vec<InstanceNo> = self.directory.read(|view| view.agent_nos().collect());
        all.into_iter().filter(|no| self.delivery.sockets().presence(*no).idle).collect()
    }

    // ---- planned -------------------------------------------------------------------------

    /// Carries out a planned wake that is due.
    async fn fire_by_wake(&self, alarm: &Alarm) -> FireAnswer {
        let planned = match self.inbox.planned_wake(&alarm.job_id).await {
            Ok(Some(planned)) => planned,
            Ok(None) => return FireAnswer::Taken(200), // carried out before
            Err(error) => return FireAnswer::Failed(error.to_string()),
        };
        let Ok(plan) = serde_json::from_str::<Plan>(&planned.json) else {
            return FireAnswer::Failed("the stored wake is not valid JSON".into());
        };
        // The address may now resolve to another agent: one registered again, or one with a shorter id.
        let to = match self.agents.addressee(&plan.tenant, &plan.agent_id).await {
            Ok(to) => Some(to).filter(|to| to.agent.no == planned.agent),
            Err(fault) if fault.class == Class::UnknownAgentError => None,
            Err(fault) => return FireAnswer::Failed(fault.message),
        };
        let opts = WakeOpts { context: plan.context, when: None, session_id: plan.session_id };
        if let Some(to) = &to
            && let Err(fault) = Box::pin(self.wake_to(to, &opts, plan.from.as_deref(), Some(&planned.key))).await
        {
            return FireAnswer::Failed(fault.message);
        }
        if let Err(error) = self.inbox.drop_planned_wake(&planned.key).await {
            tracing::warn!(%error, "deleting a finished planned wake failed");
        }
        FireAnswer::Taken(if to.is_some() { 200 } else { 404 })
    }

    async fn plan_wake(
        &self,
        to: &Addressee,
        opts: &WakeOpts,
        at_ms: u64,
        from: Option<&str>,
    ) -> Result<WakeReceipt, Fault> {
        let at_i64 = i64::try_from(at_ms).unwrap_or(i64::MAX);
        let fire_at = jiff::Timestamp::from_millisecond(at_i64)
            .map_err(|_| Fault::invalid("when is beyond the last supported date"))?
            .to_string();
        let key = format!("wk_{}", self.env.random_hex(12));
        // Checked now, because a refusal at the due time would reach no caller.
        let text = opts.context.as_deref().unwrap_or_default();
        let session = asked_session(opts, to)?;
        let (kind, delivery_id) = ("wake_degraded", key.as_str());
        let message = NewMessage {
            kind,
            text,
            meta: None,
            from,
            session,
            delivery_id,
            asks: false,
            asked_by: None,
            dedup: [0; 16],
        };
        self.sized(&message, !to.relay.is_empty())?;
        if self.cron.armed(to.agent.no, PLANNED_MAX).await?.len() >= PLANNED_MAX {
            let text = format!("the agent has {PLANNED_MAX} planned wakes, which is the maximum");
            return Err(Fault::new(Class::RateLimitedError, text));
        }
        let plan = Plan {
            tenant: to.agent.tenant.clone(),
            agent_id: to.agent.id.clone(),
            context: opts.context.clone(),
            session_id: session.map(str::to_owned),
            from: from.map(str::to_owned),
        };
        let json = serde_json::to_string(&plan).unwrap_or_default();
        self.inbox.plan_wake(PlannedWake { key: key.clone(), agent: to.agent.no, json }).await?;
        let now_ms = self.env.now_ms();
        let lane = format!("{BY_WAKE}{}", to.agent.tenant);
        let alarm = Alarm {
            id: 0,
            instance: to.agent.no,
            job_id: key.as_str().into(),
            fire_at,
            due_ms: at_ms,
            next_ms: at_ms.max(now_ms),
            armed_ms: now_ms,
            first_ms: 0,
            attempts: 0,
            grace_ms: self.rules.misfire_grace_ms,
            skip_missed: false,
            callback: lane,
            schedule_id: key,
            state: AlarmState::Armed,
            note: String::new(),
            claim: 0,
        };
        let planned = alarm.job_id.clone();
        if let Err(error) = self.cron.arm(&to.agent.tenant, alarm).await {
            // Refused, so nothing will use the plan. After an error of the store the alarm may be armed.
            if !matches!(error, DeskError::Store(_))
                && let Err(error) = self.inbox.drop_planned_wake(&planned).await
            {
                tracing::warn!(%error, "deleting a planned wake that was refused failed; it stays in the store");
            }
            return Err(error.into());
        }
        Ok(WakeReceipt {
            woken_at: now_ms,
            scheduled_for: Some(at_ms),
            warnings: vec!["the wake was planned".into()],
            ..WakeReceipt::default()
        })
    }
}

/// The session in the options, otherwise the one after the `@`.
fn asked_session<'a>(opts: &'a WakeOpts, to: &'a Addressee) -> Result<Option<&'a str>, Fault> {
    let asked = opts.session_id.as_deref().filter(|it| !it.is_empty()).or(to.session.as_deref());
    asked.filter(|it| !it.is_empty()).map_or(Ok(()), |it| check_id("session_id", it))?;
    Ok(asked)
}

/// Whether the session took it: a stream the message, a socket its row.
async fn took(session: &LiveSession, place: InboxSeq, rows: &[MadeRow]) -> bool {
    let taken = async {
        match session {
            LiveSession::Stream(stream) => stream.delivered.reached(place).await,
            LiveSession::Socket(mailbox, instance) => match rows.iter().find(|row| row.instance == instance.no) {
                Some(row) => mailbox.delivered(row.seq).await,
                None => false,
            },
        }
    };
    tokio::time::timeout(HAND_TIME, taken).await.unwrap_or(false)
}

/// A connector that could have woken the agent failed. The message is in the inbox.
fn push_broke(to: &Addressee, delivery_id: &str, error: &serde_json::Value) -> Fault {
    let why = error.get("message").and_then(serde_json::Value::as_str).unwrap_or("no reason given");
    let text = format!("the agent could not be woken: {why}; the message is in its inbox");
    let fault = match error.get("cause_kind").and_then(serde_json::Value::as_str) {
        Some(kind) => Fault::delivery_failed(&to.agent.id, kind, text),
        None => Fault::new(Class::UnavailableError, text), // a failure of this server: the connector was not called
    };
    fault.with("stored", true).with("delivery_id", delivery_id)
}
