//! Reading inboxes of agents, and recent messages for the console.

mod stream;

use std::sync::Arc;

use frontdesk_wire::agents::{Dispatch, Fault, Inbox, InboxMessage};
use frontdesk_wire::{InboxSeq, InstanceId, InstanceNo, TenantId};

use super::AgentsPlane;
use super::caller::AgentsCaller;
use super::messages::StoredReceipts;
use crate::base::Base;
use crate::env::Env;
use crate::port::inbox::{Inbox as InboxStore, StoredMessage};
use crate::port::store::StoreError;
use crate::port::stores::Stores;

pub use stream::InboxStream;

/// Messages per page of an inbox.
const INBOX_PAGE: usize = 500;
/// Characters of a message shown in the console.
const SHOWN_CHARS: usize = 280;

/// Read access to inboxes.
pub struct Inboxes {
    env: Arc<dyn Env>,
    agents: Arc<AgentsPlane>,
    inbox: Arc<dyn InboxStore>,
}

impl Inboxes {
    pub(crate) fn new(base: &Base, stores: &Stores, agents: &Arc<AgentsPlane>) -> Self {
        Self { env: base.env.clone(), agents: agents.clone(), inbox: stores.inbox.clone() }
    }

    /// Id of an agent and number of its inbox. `None`: the agent is known, but nothing was ever written to it.
    pub fn inbox_of(&self, tenant: &TenantId, address: &str) -> Result<(InstanceId, Option<InstanceNo>), Fault> {
        let (id, _) = self.agents.find_agent(tenant, address)?;
        let no = self.agents.directory.read(|view| view.agent(tenant, &id).map(|agent| agent.no));
        Ok((id, no))
    }

    /// Checks the agent that a body names: it must be the one of the address, otherwise the message may be misdirected.
    pub fn check_named(&self, tenant: &TenantId, address: &str, named: &str) -> Result<(), Fault> {
        let meant = self.inbox_of(tenant, address)?.0;
        match self.inbox_of(tenant, named) {
            Ok((named, _)) if named == meant => Ok(()),
            _ => Err(Fault::invalid("agent_id in the body differs from the agent in the path")),
        }
    }

    pub async fn inbox(&self, who: AgentsCaller<'_>, address: &str, after: InboxSeq) -> Result<Inbox, Fault> {
        let (id, no) = self.inbox_of(who.tenant, address)?;
        who.check_own(&id, "read the inbox of")?;
        let Some(no) = no else { return Ok(Inbox::default()) };
        self.agents.note_traffic(no);
        let page = self.read_inbox(no, after).await?;
        let read = page.messages.last().map_or(after.0.min(page.newest), |last| last.seq);
        self.agents.note_read(no, InboxSeq(read));
        Ok(page)
    }

    pub(super) async fn read_inbox(&self, no: InstanceNo, after: InboxSeq) -> Result<Inbox, Fault> {
        let messages = self.inbox.messages(no, after, INBOX_PAGE).await?;
        // Read after the page, so it is never lower than the numbers on the page.
        let newest = self.inbox.newest_message(no).await?;
        Ok(Inbox { messages: messages.into_iter().map(inbox_message).collect(), newest: newest.0 })
    }

    /// Reads an inbox on behalf of an operator or another caller; does not count as presence of the agent.
    pub async fn read_inbox_as_operator(
        &self,
        tenant: &TenantId,
        address: &str,
        after: InboxSeq,
    ) -> Result<Inbox, Fault> {
        match self.inbox_of(tenant, address)?.1 {
            Some(no) => self.read_inbox(no, after).await,
            None => Ok(Inbox::default()),
        }
    }

    /// Returns the inbox of an agent, and creates it if needed. Streams need one.
    async fn open_inbox(&self, who: AgentsCaller<'_>, address: &str) -> Result<InstanceNo, Fault> {
        let (id, _) = self.agents.find_agent(who.tenant, address)?;
        who.check_own(&id, "read the inbox of")?;
        self.agents.addressee(who.tenant, address).await.map(|to| to.agent.no)
    }

    /// Number of the newest message in an inbox; 0 if it is empty.
    pub async fn newest(&self, no: InstanceNo) -> Result<InboxSeq, StoreError> {
        self.inbox.newest_message(no).await
    }

    /// Recent messages between agents of this tenant, newest first.
    pub async fn dispatches(&self, tenant: &TenantId, limit: usize) -> Result<Vec<Dispatch>, Fault> {
        let messages = self.inbox.recent_messages(tenant, limit).await?;
        let agents: Vec<Option<InstanceId>> = self.agents.directory.read(|view| {
            messages.iter().map(|it| view.agent_no(it.message.agent).map(|agent| agent.id.clone())).collect()
        });
        let show = |(stored, agent): (StoredMessage, Option<InstanceId>)| {
            let record: StoredReceipts = serde_json::from_str(&stored.message.receipts).unwrap_or_default();
            Dispatch {
                event_id: stored.event,
                at: stored.at_ms,
                agent_id: agent.unwrap_or_default().into(),
                from: record.from,
                kind: stored.message.kind,
                text: stored.message.text.chars().take(SHOWN_CHARS).collect(),
                receipts: record.receipts,
            }
        };
        Ok(messages.into_iter().zip(agents).map(show).collect())
    }
}

pub(super) fn inbox_message(stored: StoredMessage) -> InboxMessage {
    let StoredMessage { place, at_ms, message, .. } = stored;
    InboxMessage {
        seq: place.0,
        delivery_id: message.delivery_id,
        kind: message.kind,
        text: message.text,
        meta: message.meta.and_then(|meta| serde_json::from_str(&meta).ok()),
        session_id: message.session_id,
        at: at_ms,
    }
}

/// Whether the message is still being handed to connectors, so that its session and receipts may change.
pub fn is_in_flight(stored: &StoredMessage) -> bool {
    serde_json::from_str::<StoredReceipts>(&stored.message.receipts).is_ok_and(|record| !record.done)
}
