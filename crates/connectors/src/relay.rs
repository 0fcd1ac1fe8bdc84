//! Relay connector: reaches the agents of one tenant through their inboxes, streams and sockets. The only connector
//! that returns replies.

use std::sync::Arc;

use frontdesk_core::Desk;
use frontdesk_core::agents::AgentsCaller;
use frontdesk_wire::TenantId;
use frontdesk_wire::agents::{
    AgentConnector, AgentDescriptor, AgentReply, AgentStatus, DeliveryPayload, DeliveryReceipt, Promise, WakeOpts,
    WakeReceipt,
};

pub struct Relay {
    desk: Arc<Desk>,
    tenant: TenantId,
}

impl Relay {
    /// For a program that embeds the server. The connector can reach every agent of the tenant.
    pub fn new(desk: Arc<Desk>, tenant: impl Into<TenantId>) -> Self {
        Self { desk, tenant: tenant.into() }
    }

    fn as_caller(&self) -> AgentsCaller<'_> {
        AgentsCaller::of(&self.tenant)
    }
}

impl AgentConnector for Relay {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>> {
        Box::pin(std::future::ready(Ok(self.desk.agents().list(&self.tenant))))
    }

    fn deliver<'a>(&'a self, agent_id: &'a str, payload: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt> {
        Box::pin(self.desk.messages().deliver(self.as_caller(), agent_id, payload))
    }

    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt> {
        Box::pin(self.desk.messages().wake(self.as_caller(), agent_id, opts))
    }

    /// Writes to the store, so that it fails where a delivery would fail.
    fn health_check(&self) -> Promise<'_, ()> {
        Box::pin(async move { Ok(self.desk.upkeep().health().await?) })
    }

    fn request_response<'a>(
        &'a self,
        agent_id: &'a str,
        payload: &'a DeliveryPayload,
        timeout_ms: u64,
    ) -> Promise<'a, AgentReply> {
        Box::pin(self.desk.exchanges().exchange(self.as_caller(), agent_id, payload, timeout_ms))
    }

    fn agent_status<'a>(&'a self, agent_id: &'a str) -> Promise<'a, AgentStatus> {
        Box::pin(std::future::ready(Ok(self.desk.agents().status(&self.tenant, agent_id))))
    }
}
