//! Messages from agent to agent: committed first, then handed to every connector. A receipt states only what has
//! happened.

use frontdesk_wire::InstanceId;
use frontdesk_wire::agents::{
    ConnectorReceipt, ConnectorSpec, DeliveryMeta, DeliveryPayload, DeliveryReceipt, Fault, Notified, NotifyPost,
    WakeOpts,
};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::Value;

use super::Addressee;
use super::Messages;
use super::address;
use super::caller::AgentsCaller;
use super::messages::{Committed, NewMessage, StoredReceipts, chat_of};
use crate::directory::facts::Agent;
use crate::hash::short_hash;
use crate::meters::Why;
use crate::port::BoxFuture;
use crate::port::inbox::StoredMessage;

/// Result of a delivery, per connector.
pub(super) struct DeliverOutcome {
    pub(super) receipt: DeliveryReceipt,
    pub(super) receipts: Vec<ConnectorReceipt>,
    /// True if the inbox has this message. False if it has an earlier one with another text, or none any more.
    pub(super) is_stored: bool,
}

/// Options of a delivery.
#[derive(Default)]
pub(super) struct How<'a> {
    /// Set if the caller waits for an answer.
    pub(super) asks: Option<Asks<'a>>,
    /// Overrides the dedup key, which is otherwise derived from agent, dispatch id and payload.
    pub(super) dedup: Option<[u8; 16]>,
}

pub(super) struct Asks<'a> {
    /// The asking agent; a late answer is delivered to its inbox.
    pub(super) by: Option<&'a InstanceId>,
    /// Called with the delivery id of the stored question, before the question is sent to a socket again.
    pub(super) on_stored: &'a (dyn Fn(String) -> BoxFuture<'a, ()> + Sync),
}

impl Messages {
    // ---- deliver -------------------------------------------------------------------------

    /// Returns after the message was committed.
    pub async fn deliver(
        &self,
        who: AgentsCaller<'_>,
        address: &str,
        payload: &DeliveryPayload,
    ) -> Result<DeliveryReceipt, Fault> {
        let to = self.agents.addressee(who.tenant, address).await?;
        let payload = &*who.signed(payload)?;
        Box::pin(self.deliver_to(&to, payload, self.new_delivery_id(), How::default())).await.map(|done| done.receipt)
    }

    pub(super) fn new_delivery_id(&self) -> String {
        format!("dl_{}", self.env.random_hex(12))
    }

    pub(super) async fn deliver_to(
        &self,
        to: &Addressee,
        payload: &DeliveryPayload,
        delivery_id: String,
        how: How<'_>,
    ) -> Result<DeliverOutcome, Fault> {
        let meta = payload.meta();
        let from = speaker_of(meta);
        let hash = short_hash(&[payload.kind(), payload.text()]);
        // Agent numbers are never reused, so an agent that was deleted and registered again gets new dedup keys.
        let dedup = || short_hash(&[&to.agent.no.to_string(), &meta.dispatch_id, &hex::encode(hash)]);
        let dedup = how.dedup.unwrap_or_else(dedup);
        let message = NewMessage {
            kind: payload.kind(),
            text: payload.text(),
            meta: Some(meta),
            from,
            session: None,
            delivery_id: &delivery_id,
            asks: how.asks.is_some(),
            asked_by: how.asks.as_ref().and_then(|asks| asks.by),
            dedup,
        };
        let mut warnings = Vec::new();
        if let Some(session) = &to.session {
            warnings.push(format!("session {session:?} was ignored: deliver goes to the inbox of the agent"));
        }
        let at_ms = self.env.now_ms();
        let mut receipts = vec![shown("inbox", &own_receipt(&message, at_ms, self.has_open_stream(to)))];
        for instance in &to.relay {
            let served = self.delivery.sockets().is_served(instance.no);
            receipts.push(shown("relay", &own_receipt(&message, at_ms, served)));
        }
        receipts.extend(to.unread.iter().map(|fault| failed("connectors", fault)));
        let record = StoredReceipts {
            from: from.map(str::to_owned),
            done: to.ways.is_empty(),
            receipts,
            ..StoredReceipts::default()
        };
        let receivers = to.relay.iter().map(|it| it.no).collect();
        // Locked before the commit, so that only one of several concurrent repetitions calls the connectors.
        let carrying = if to.ways.is_empty() { None } else { self.agents.carry(dedup).await? };
        let Committed { stored, fresh, gone, .. } = self.commit(to, &message, at_ms, receivers, &record).await?;
        // Read after locking, so it includes the receipts of an earlier holder.
        let record = if fresh { record } else { serde_json::from_str(&stored.message.receipts).unwrap_or_default() };
        if let Some(asks) = &how.asks {
            (asks.on_stored)(stored.message.delivery_id.clone()).await;
        }
        if fresh {
            self.agents.notify_streams(to.agent.no);
        } else if how.asks.is_some() {
            self.ask_again(to, &NewMessage { delivery_id: &stored.message.delivery_id, ..message }, at_ms).await?;
        }
        let receipts = match (record.done || gone, &carrying) {
            (true, _) => record.receipts,
            (false, Some(_)) => self.push(to, &stored, payload, record).await,
            (false, None) => {
                // The other call may have finished or failed by now; only that it was running is known.
                let text = "an earlier call still waits for the connectors; repeat the call for their receipts";
                warnings.push(text.into());
                record.receipts
            }
        };
        drop(carrying);
        if gone {
            warnings.push("this dispatch was delivered before; its message has expired".into());
        } else if !fresh {
            warnings.push("this dispatch was delivered before; this is its first receipt".into());
        }
        let receipt = merged(&stored, &receipts, warnings);
        let outcome = match (fresh, receipt.delivery_skipped) {
            (false, _) => "duplicate",
            (true, true) => "skipped",
            (true, false) => "delivered",
        };
        self.report_message(to, &stored, outcome, from, &receipts);
        Ok(DeliverOutcome { receipt, receipts, is_stored: fresh || (!gone && stored.message.text == payload.text()) })
    }

    pub(super) fn has_open_stream(&self, to: &Addressee) -> bool {
        self.agents.live.streams.has_open_stream(to.agent.no)
    }

    /// Calls the external connectors and stores their receipts. Also for a repeated dispatch whose first attempt was
    /// interrupted.
    async fn push(
        &self,
        to: &Addressee,
        stored: &StoredMessage,
        payload: &DeliveryPayload,
        mut record: StoredReceipts,
    ) -> Vec<ConnectorReceipt> {
        // In parallel: the caller waits for the slowest connector, not for the sum.
        let names = way_names(&to.ways);
        let tries = to.ways.iter().zip(&names).map(|(spec, name)| async move {
            if let Some(server) = self.elsewhere(spec) {
                let handed = self.hand_over(server, stored).await.map(|warning| DeliveryReceipt {
                    delivered_at: self.env.now_ms(),
                    delivery_id: Some(stored.message.delivery_id.clone()),
                    delivery_skipped: true,
                    warnings: vec![warning],
                    ..DeliveryReceipt::default()
                });
                return handed.map_or_else(|fault| failed(name, &fault), |receipt| shown(name, &receipt));
            }
            let outcome = match self.agents.ways.connectors.open(&to.agent.id, spec) {
                Ok(connector) => connector.deliver(&to.agent.id, payload).await,
                Err(fault) => Err(fault),
            };
            outcome.map_or_else(|fault| failed(name, &fault), |receipt| shown(name, &receipt))
        });
        record.receipts.extend(join_all(tries).await);
        record.done = true;
        self.store_receipts(stored, &stored.message.kind, stored.message.session_id.clone(), &record).await;
        self.release_handoffs(&to.ways, stored.event).await;
        record.receipts
    }

    // ---- notify --------------------------------------------------------------------------

    /// Sends one message to one address; the form of the address decides whether it wakes.
    pub async fn notify(&self, who: AgentsCaller<'_>, post: NotifyPost) -> Result<Notified, Fault> {
        let dispatch_id = self.env.uuid_v4();
        let mut origin = post.origin;
        who.check_name("origin.caller_agent_id", origin.caller_agent_id.as_deref())?;
        if origin.caller_agent_id.is_none() {
            origin.caller_agent_id = who.caller.map(str::to_owned);
        }
        let mut origin = origin.in_order();
        who.sign(&mut origin)?;
        let to = self.agents.addressee(who.tenant, &post.agent).await?;
        if address::is_wake(&post.agent) {
            let opts = WakeOpts { context: Some(post.message), ..WakeOpts::default() };
            let from = origin.caller_agent_id.or(origin.skill_name);
            let woken = Box::pin(self.wake_to(&to, &opts, from.as_deref(), None)).await?;
            return Ok(Notified { dispatch_id, route: "wake".into(), receipts: woken.receipts });
        }
        let meta = DeliveryMeta {
            dispatch_id: dispatch_id.clone(),
            sent_at: self.env.now_ms(),
            origin,
            event_type: post.event_type,
            correlation_id: post.correlation_id,
            ..DeliveryMeta::default()
        };
        let payload = DeliveryPayload::Augment { content: post.message, meta };
        let done = Box::pin(self.deliver_to(&to, &payload, self.new_delivery_id(), How::default())).await?;
        Ok(Notified { dispatch_id, route: "deliver".into(), receipts: done.receipts })
    }

    // ---- notices --------------------------------------------------------------------------

    /// Reports a step of calling the wake URL of an agent to the event stream.
    pub fn publish_poke(&self, agent: &Agent, step: &'static str, text: &str) {
        self.delivery.note_wake_failure(agent.no, Some(text).filter(|_| step == "wake_failed"));
        self.tail.publish(&agent.tenant, step, |notice| {
            notice.instance.clone_from(&agent.id);
            notice.platform = "agents".into();
            notice.text = text.into();
        });
    }

    /// Counts a message and reports it to the event stream.
    pub(super) fn report_message(
        &self,
        to: &Addressee,
        stored: &StoredMessage,
        how: &'static str,
        from: Option<&str>,
        receipts: &[ConnectorReceipt],
    ) {
        self.meters.agent_messages.get_or_create(&Why { why: how }).inc();
        self.tail.publish(&to.agent.tenant, how, |notice| {
            notice.instance.clone_from(&to.agent.id);
            notice.event_id = Some(stored.event);
            notice.platform = "agents".into();
            notice.chat_id = chat_of(from).into();
            notice.message_id = stored.message.delivery_id.as_str().into();
            let speaker = from.unwrap_or("the server");
            let summaries: Vec<String> = receipts.iter().map(summary).collect();
            notice.text =
                format!("{} from {speaker} to {}; {}", stored.message.kind, to.agent.id, summaries.join(", "));
        });
    }
}

fn own_receipt(message: &NewMessage<'_>, delivered_at: u64, pushed: bool) -> DeliveryReceipt {
    DeliveryReceipt {
        delivered_at,
        delivery_id: Some(message.delivery_id.into()),
        delivery_skipped: !pushed,
        ..DeliveryReceipt::default()
    }
}

/// The sender, as far as the envelope names one.
fn speaker_of(meta: &DeliveryMeta) -> Option<&str> {
    let named = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    let origin = &meta.origin;
    [&origin.caller_agent_id, &origin.skill_name].into_iter().find(|name| named(name)).and_then(|it| it.as_deref())
}

pub(super) fn chat_of_payload(payload: &DeliveryPayload) -> String {
    chat_of(speaker_of(payload.meta()))
}

pub(super) fn shown(connector: &str, receipt: &impl Serialize) -> ConnectorReceipt {
    let receipt = serde_json::to_value(receipt).ok();
    ConnectorReceipt { connector: connector.into(), ok: true, receipt, error: None }
}

pub(super) fn failed(connector: &str, fault: &Fault) -> ConnectorReceipt {
    let error = Some(Value::Object(fault.as_object()));
    ConnectorReceipt { connector: connector.into(), ok: false, receipt: None, error }
}

/// Names of connectors in receipts: the type, with a number if an agent has several of it, as in `webhook#2`.
pub(super) fn way_names(ways: &[ConnectorSpec]) -> Vec<String> {
    let of_type = |name: &str, ways: &[ConnectorSpec]| ways.iter().filter(|it| it.name() == name).count();
    let named = |(place, spec): (usize, &ConnectorSpec)| match of_type(spec.name(), ways) {
        1 => spec.name().to_owned(),
        _ => format!("{}#{}", spec.name(), of_type(spec.name(), &ways[..=place])),
    };
    ways.iter().enumerate().map(named).collect()
}

/// Summary of a receipt for operators.
fn summary(it: &ConnectorReceipt) -> String {
    let says = |what: &str| it.receipt.as_ref().and_then(|receipt| receipt.get(what)).and_then(Value::as_bool);
    let how = match (it.ok, says("woken"), says("delivery_skipped")) {
        (false, ..) => {
            let why = it.error.as_ref().and_then(|error| error.get("message")).and_then(Value::as_str);
            return format!("{}: failed, {}", it.connector, why.unwrap_or("no reason given"));
        }
        (true, Some(true), _) => "woken",
        (true, Some(false), _) => "stored, not woken",
        (true, None, Some(true)) => "stored",
        (true, None, _) => "handed over",
    };
    format!("{}: {how}", it.connector)
}

/// Merges all receipts into one. It counts as skipped if no connector pushed the message.
fn merged(stored: &StoredMessage, receipts: &[ConnectorReceipt], mut warnings: Vec<String>) -> DeliveryReceipt {
    let mut pushed = false;
    for it in receipts {
        match (&it.receipt, &it.error) {
            (Some(receipt), _) => {
                pushed |= receipt.get("delivery_skipped").and_then(Value::as_bool) != Some(true);
                let reported = receipt.get("warnings").and_then(Value::as_array).into_iter().flatten();
                warnings.extend(reported.filter_map(Value::as_str).map(|text| format!("{}: {text}", it.connector)));
            }
            (None, Some(error)) => {
                let text = error.get("message").and_then(Value::as_str).unwrap_or("it failed");
                warnings.push(format!("{}: {text}", it.connector));
            }
            (None, None) => {}
        }
    }
    DeliveryReceipt {
        delivered_at: stored.at_ms,
        delivery_id: Some(stored.message.delivery_id.clone()),
        session_id: None,
        delivery_skipped: !pushed,
        warnings,
    }
}
