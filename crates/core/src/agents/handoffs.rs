//! Messages for connectors on the machine of another server: a folder, a terminal. They are handed over through the store,
//! and the receipts follow when that server has done it.

use std::sync::PoisonError;
use std::time::Duration;

use frontdesk_wire::EventId;
use frontdesk_wire::agents::{Class, ConnectorReceipt, ConnectorSpec, DeliveryMeta, DeliveryPayload, Fault, WakeOpts};

use super::Messages;
use super::deliver::{failed, shown, way_names};
use super::messages::StoredReceipts;
use crate::directory::facts::Agent;
use crate::hash::short_hash;
use crate::port::bus::{Hint, To};
use crate::port::claims::Handoff;
use crate::port::inbox::{Inbox, StoredMessage};
use crate::port::store::StoreError;

/// How often a server looks for messages that no hint announced.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Handoffs read at a time.
const HANDOFFS_PAGE: usize = 100;
/// How long a started handoff is claimed, so that another server of the same name does not start it too.
const HANDOFF_CLAIM_MS: u64 = 600_000;
/// Other servers may add receipts to a message at the same time, each once.
const ADD_ATTEMPTS: usize = 20;

impl Messages {
    /// The server on whose machine the connector acts, if it is not this one.
    pub(super) fn elsewhere<'a>(&self, spec: &'a ConnectorSpec) -> Option<&'a str> {
        spec.desk().filter(|name| *name != self.rules.desk_name)
    }

    /// Hands a message to the server that has the connector. Returns what the receipt says.
    pub(super) async fn hand_over(&self, server: &str, stored: &StoredMessage) -> Result<String, Fault> {
        if !self.bus.has_others() {
            let text =
                format!("this connector belongs to the server {server:?}, but no other server shares this store");
            return Err(Fault::new(Class::UnavailableError, text));
        }
        if !self.claims.add_handoff(server.to_owned(), stored.event, self.env.now_ms()).await? {
            let text = format!("too many messages wait for connectors of the server {server:?}; is it running?");
            return Err(Fault::new(Class::UnavailableError, text));
        }
        Ok(format!("handed to the server {server:?}, which has this connector"))
    }

    /// Called after the receipts were stored: lets the other servers start their handoffs and add their receipts.
    pub(super) async fn release_handoffs(&self, ways: &[ConnectorSpec], event: EventId) {
        if ways.iter().any(|spec| self.elsewhere(spec).is_some()) {
            if let Err(error) = self.claims.release_handoffs(event).await {
                tracing::warn!(
                    %error,
                    "releasing a handoff to other servers failed; they start it one minute later"
                );
            }
            self.bus.send(To::All, Hint::Handoffs);
        }
    }

    /// Carries out what other servers handed to this one. A crash in between repeats one message.
    pub async fn run_handoffs(&self) -> Result<(), StoreError> {
        loop {
            let (me, now_ms) = (self.rules.desk_name.clone(), self.env.now_ms());
            let handoffs = self.claims.handoffs(me, HANDOFFS_PAGE, now_ms).await?;
            if handoffs.is_empty() {
                return Ok(());
            }
            self.directory.refresh().await?; // the connector may have been added just now
            let mut is_any_done = false;
            for Handoff { id, event } in handoffs {
                // The claim is a write: if the store accepts no writes, the connector is not called again each time.
                let mark = short_hash(&["handoff", &id.to_string()]);
                let (desk, live) = (self.lease.me(), self.lease.live());
                if !self.claims.claim(mark, desk, live, HANDOFF_CLAIM_MS, now_ms).await? {
                    continue;
                }
                let done = || self.agents.live.done_handoffs.lock().unwrap_or_else(PoisonError::into_inner);
                let is_done = done().contains(&id);
                if is_done || self.run_handoff(event).await? {
                    done().insert(id);
                    self.claims.drop_handoff(id).await?;
                    done().remove(&id);
                    is_any_done = true;
                }
            }
            if !is_any_done {
                return Ok(());
            }
        }
    }

    /// False: the agent's record may be unreadable for this version, so the handoff is tried again later.
    async fn run_handoff(&self, event: EventId) -> Result<bool, StoreError> {
        let Some(stored) = self.inbox.message_of(event).await? else { return Ok(true) };
        let Some(agent) = self.directory.read(|view| view.agent_no(stored.message.agent).cloned()) else {
            return Ok(!self.directory.read(|view| view.unreadable().has_kind("agent"))); // else it was deleted
        };
        let ways = self.agents.ways_to(&agent).1.unwrap_or_default();
        let mut receipts = Vec::new();
        let mut is_woken = false;
        for (spec, name) in ways.iter().zip(way_names(&ways)) {
            if spec.desk() == Some(self.rules.desk_name.as_str()) {
                let (receipt, woken) = self.call_connector(&agent, spec, &name, &stored).await;
                is_woken |= woken;
                receipts.push(receipt);
            }
        }
        if receipts.is_empty() {
            let text = format!("the server {:?} has no connector of this agent any more", self.rules.desk_name);
            receipts.push(failed("connectors", &Fault::new(Class::UnavailableError, text)));
        }
        add_receipts(&*self.inbox, event, &receipts, is_woken).await?;
        Ok(true)
    }

    async fn call_connector(
        &self,
        agent: &Agent,
        spec: &ConnectorSpec,
        name: &str,
        stored: &StoredMessage,
    ) -> (ConnectorReceipt, bool) {
        let connector = match self.agents.ways.connectors.open(&agent.id, spec) {
            Ok(connector) => connector,
            Err(fault) => return (failed(name, &fault), false),
        };
        let message = &stored.message;
        if message.kind.starts_with("wake") {
            let opts =
                WakeOpts { context: Some(message.text.clone()), when: None, session_id: message.session_id.clone() };
            return match connector.wake(&agent.id, &opts).await {
                Ok(receipt) => (shown(name, &receipt), receipt.woken),
                Err(fault) => (failed(name, &fault), false),
            };
        }
        let meta = message.meta.as_deref().and_then(|json| serde_json::from_str::<DeliveryMeta>(json).ok());
        let (content, meta) = (message.text.clone(), meta.unwrap_or_default());
        let payload = match message.kind.as_str() {
            "template" => DeliveryPayload::Template { prompt: content, meta },
            _ => DeliveryPayload::Augment { content, meta },
        };
        let outcome = connector.deliver(&agent.id, &payload).await;
        (outcome.map_or_else(|fault| failed(name, &fault), |receipt| shown(name, &receipt)), false)
    }
}

/// Adds receipts to the stored ones. Reads them again if another server changed them in the meantime.
async fn add_receipts(
    inbox: &dyn Inbox,
    event: EventId,
    receipts: &[ConnectorReceipt],
    is_woken: bool,
) -> Result<(), StoreError> {
    for _ in 0..ADD_ATTEMPTS {
        let Some(StoredMessage { mut message, .. }) = inbox.message_of(event).await? else { return Ok(()) };
        let mut record: StoredReceipts = serde_json::from_str(&message.receipts).unwrap_or_default();
        record.receipts.retain(|known| receipts.iter().all(|it| it.connector != known.connector));
        record.receipts.extend_from_slice(receipts);
        let seen = std::mem::replace(&mut message.receipts, serde_json::to_string(&record).unwrap_or_default());
        if is_woken {
            message.kind = "wake".into();
        }
        if inbox.note_receipts(event, Some(seen), message).await? {
            return Ok(());
        }
    }
    tracing::warn!(%event, "storing receipts failed: other servers changed them during every attempt");
    Ok(())
}
