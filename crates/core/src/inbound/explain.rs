//! Why a message was delivered or withheld: the stored verdict, for operators and for one agent.

use std::sync::Arc;

use frontdesk_wire::api::Explanation;
use frontdesk_wire::{ChatId, EventId, MessageId};

use super::{answers_in, dedup_prefix};
use crate::directory::{ProvenInstance, check_id};
use crate::error::DeskError;
use crate::gate;
use crate::port::store::Events;
use crate::port::stores::Stores;

pub struct Explanations {
    events: Arc<dyn Events>,
}

impl Explanations {
    pub(crate) fn new(stores: &Stores) -> Self {
        Self { events: stores.events.clone() }
    }

    pub async fn explain(&self, id: &str) -> Result<Explanation, DeskError> {
        let absent = || DeskError::NotFound(format!("event {id:?} not found, or no longer stored"));
        let event = EventId::parse(id).ok_or_else(absent)?;
        let record = self.events.event(event).await?.ok_or_else(absent)?;
        let read = gate::read_verdict(&record.verdict, &record.tenant).ok_or_else(absent)?;
        let (outcome, instances) = (read.outcome, read.instances);
        Ok(Explanation { event_id: event, tenant: record.tenant, outcome, instances })
    }

    /// Why this instance did or did not get a message: its own line only.
    pub async fn why(
        &self,
        who: &ProvenInstance,
        message_id: &MessageId,
        chat_id: Option<&ChatId>,
    ) -> Result<Explanation, DeskError> {
        check_id("message_id", message_id)?;
        let absent = || {
            let but = "not found, or no longer stored; a press is found with its chat_id only";
            DeskError::NotFound(format!("message {message_id:?} {but}"))
        };
        let find = async |prefix| self.events.event_named(&who.tenant, prefix, message_id, chat_id).await;
        let found = match (find(dedup_prefix(message_id)).await?, chat_id) {
            (None, Some(chat_id)) => find(answers_in(chat_id)).await?,
            (found, _) => found,
        };
        let record = found.ok_or_else(absent)?;
        let read = gate::read_verdict(&record.verdict, &record.tenant).ok_or_else(absent)?;
        let line = read.for_instance(&who.instance.name);
        Ok(Explanation {
            event_id: record.event,
            tenant: record.tenant,
            outcome: line.outcome.clone(),
            instances: vec![line],
        })
    }
}
