//! Messages for connectors on the machine of another server: a folder, a terminal. They are handed over through the store,
//! and the receipts follow when that server has done it.

use std::time::Duration;

use frontdesk_wire::agents::{Class, ConnectorReceipt, ConnectorSpec, DeliveryMeta, DeliveryPayload, Fault, WakeOpts};

use super::Messages;
use super::deliver::{failed, shown, way_names};
use super::messages::StoredReceipts;
use crate::directory::facts::Agent;
use crate::port::bus::{Ring, To};
use crate::port::claims::Errand;
use crate::port::inbox::StoredMessage;
use crate::port::store::StoreError;

/// How often a server looks for messages of which no ring told it.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Messages that are handed over at once.
const ERRANDS_PAGE: usize = 100;

impl Messages {
    /// The server on whose machine the connector acts, if it is not this one.
    pub(super) fn elsewhere<'a>(&self, spec: &'a ConnectorSpec) -> Option<&'a str> {
        spec.desk().filter(|name| *name != self.rules.desk_name)
    }

    /// Hands a message to the server that has the connector. Returns what the receipt says.
    pub(super) async fn hand_over(&self, server: &str, stored: &StoredMessage) -> Result<String, Fault> {
        if !self.bus.has_others() {
            let text = format!("this connector is at the server {server:?}, and this server has no others");
            return Err(Fault::new(Class::UnavailableError, text));
        }
        if !self.claims.add_errand(server.to_owned(), stored.event).await? {
            let text = format!("too many messages wait for connectors of the server {server:?}; is it running?");
            return Err(Fault::new(Class::UnavailableError, text));
        }
        Ok(format!("handed to the server {server:?}, which has this connector"))
    }

    /// After the receipts were stored: the other servers add theirs.
    pub(super) fn tell_servers(&self, ways: &[ConnectorSpec]) {
        if ways.iter().any(|spec| self.elsewhere(spec).is_some()) {
            self.bus.ring(To::All, Ring::Errands);
        }
    }

    /// Carries out what other servers handed to this one. A crash in between repeats one message.
    pub async fn run_errands(&self) -> Result<(), StoreError> {
        loop {
            let errands = self.claims.errands(self.rules.desk_name.clone(), ERRANDS_PAGE).await?;
            let is_last = errands.len() < ERRANDS_PAGE;
            for Errand { id, event } in errands {
                if let Some(stored) = self.inbox.message_of(event).await? {
                    self.run_errand(&stored).await;
                }
                self.claims.drop_errand(id).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }

    async fn run_errand(&self, stored: &StoredMessage) {
        let Some(agent) = self.directory.read(|view| view.agent_no(stored.message.agent).cloned()) else { return };
        let Ok(ways) = self.agents.ways_to(&agent).1 else { return }; // the receipts say that they cannot be read
        let mut record: StoredReceipts = serde_json::from_str(&stored.message.receipts).unwrap_or_default();
        let mut kind = stored.message.kind.clone();
        for (spec, name) in ways.iter().zip(way_names(&ways)) {
            if spec.desk() == Some(self.rules.desk_name.as_str()) {
                let (receipt, is_woken) = self.call_connector(&agent, spec, &name, stored).await;
                if is_woken {
                    kind = "wake".into();
                }
                record.receipts.retain(|it| it.connector != name);
                record.receipts.push(receipt);
            }
        }
        self.store_receipts(stored, &kind, stored.message.session_id.clone(), &record).await;
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
