//! Why a message was delivered or withheld: the stored verdict, for operators and for one agent.

use std::sync::Arc;

use frontdesk_wire::api::Explanation;
use frontdesk_wire::{ChatId, EventId, MessageId, Source, TenantId};

use super::{Marks, answers_in, dedup_prefix};
use crate::directory::{DirectoryPlane, ProvenInstance, check_id};
use crate::error::DeskError;
use crate::gate;
use crate::port::platform::Platforms;
use crate::port::store::{EventRecord, Events, KEYS_MAX, Named};
use crate::port::stores::Stores;

pub struct Explanations {
    directory: Arc<DirectoryPlane>,
    platforms: Arc<Platforms>,
    events: Arc<dyn Events>,
}

impl Explanations {
    pub(crate) fn new(stores: &Stores, directory: &Arc<DirectoryPlane>, platforms: &Arc<Platforms>) -> Self {
        Self { directory: directory.clone(), platforms: platforms.clone(), events: stores.events.clone() }
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
        let mut found = self.named(who, dedup_prefix(message_id), message_id, chat_id).await?;
        if let (None, Some(chat_id)) = (&found, chat_id) {
            found = self.named(who, answers_in(chat_id), message_id, Some(chat_id)).await?;
        }
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

    async fn named(
        &self,
        who: &ProvenInstance,
        prefix: Vec<u8>,
        message_id: &MessageId,
        chat_id: Option<&ChatId>,
    ) -> Result<Option<EventRecord>, DeskError> {
        match self.events.event_named(&who.tenant, prefix, message_id, chat_id).await? {
            Named::Event(record) => return Ok(Some(record)),
            Named::Absent => return Ok(None),
            Named::TooMany => {}
        }
        let Some(chat_id) = chat_id else {
            let text = format!(
                "more than {KEYS_MAX} stored messages have this id or one that begins with it; name the chat_id of the message"
            );
            return Err(DeskError::BadRequest(text));
        };
        // By their whole keys, which contain the chat: not edits, and at most so many bots.
        let keys = self.keys_in(&who.tenant, chat_id, message_id);
        let records = self.events.events_marked(&who.tenant, keys).await?;
        Ok(records.into_iter().flatten().find(|it| it.tenant == who.tenant && it.message_id == *message_id))
    }

    /// The dedup keys that this message can have in this chat: one for each bot whose events the tenant may get.
    fn keys_in(&self, tenant: &TenantId, chat_id: &ChatId, message_id: &MessageId) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        for platform in self.platforms.all() {
            let name = &platform.descriptor().platform;
            let source = Source { platform: name.clone(), chat_id: chat_id.clone(), ..Source::default() };
            for (bot, tenant_source) in self.directory.bots().sources(&**platform, tenant) {
                keys.push(Marks { tenant_source: &tenant_source, bot: &bot, mark: "" }.dedup(&source, message_id, ""));
            }
        }
        keys.truncate(KEYS_MAX);
        keys
    }
}
