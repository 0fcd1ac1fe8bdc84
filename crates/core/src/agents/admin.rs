//! Agents as shown to operators.

use frontdesk_wire::agents::AgentStatus;
use frontdesk_wire::{InstanceId, InstanceNo, TenantId};
use serde::Serialize;

use super::AgentsPlane;
use crate::directory::facts::Agent;
use crate::error::DeskError;

/// An agent as shown to an operator.
#[derive(Debug, Clone, Serialize)]
pub struct AgentShown {
    pub tenant: TenantId,
    pub agent_id: InstanceId,
    pub agent_name: Option<String>,
    /// `instance` if a gateway connects under this id, otherwise `agent`.
    pub kind: &'static str,
    pub status: AgentStatus,
    /// Names of its connectors. The inbox is not listed.
    pub connectors: Vec<String>,
    pub wake_url: bool,
    /// A wake is pending: the wake URL was called and the agent has not connected yet.
    pub wake_waits: bool,
    /// Why the last call of its wake URL failed.
    pub wake_failure: Option<String>,
    /// Time of the last stream, inbox read or reply of the agent since this process started.
    pub seen_at: u64,
    pub created_at: Option<u64>,
}

impl AgentsPlane {
    /// Registered agents and instances of one tenant, or of all tenants.
    pub fn agents_shown(&self, tenant: Option<&TenantId>) -> Result<Vec<AgentShown>, DeskError> {
        let tenants: Vec<TenantId> = self.directory.read(|view| match tenant {
            Some(name) if view.tenant(name).is_some() => Ok(vec![name.clone()]),
            Some(name) => Err(DeskError::NotFound(format!("tenant {name:?} not found"))),
            None => Ok(view.tenants().map(|it| it.name.clone()).collect()),
        })?;
        let ids =
            tenants.iter().flat_map(|tenant| self.list(tenant).into_iter().map(move |it| (tenant, it.agent_id.into())));
        Ok(ids.map(|(tenant, id)| self.agent_shown_as(tenant, id)).collect())
    }

    pub fn agent_shown(&self, tenant: &TenantId, id: &InstanceId) -> Result<AgentShown, DeskError> {
        let found = self.agents_shown(Some(tenant))?.into_iter().find(|it| it.agent_id == *id);
        found.ok_or_else(|| DeskError::NotFound(format!("tenant {tenant:?} has no agent {id:?}")))
    }

    fn agent_shown_as(&self, tenant: &TenantId, id: InstanceId) -> AgentShown {
        let (agent, instance) =
            self.directory.read(|view| (view.agent(tenant, &id).cloned(), view.instance(tenant, &id).cloned()));
        let instance = instance.filter(|it| it.left_ms.is_none());
        let no = agent.as_ref().map(|it| it.no);
        let seen = |no: InstanceNo| self.live.streams.traffic_ms(no);
        AgentShown {
            status: self.status(tenant, &id),
            kind: if instance.is_some() { "instance" } else { "agent" },
            connectors: agent.as_ref().map_or_else(|| vec!["relay".into()], |it| self.connector_names(it)),
            wake_url: agent.as_ref().is_some_and(|it| it.wake_url.is_some())
                || instance.as_ref().is_some_and(|it| it.wake_url.is_some()),
            wake_waits: no.is_some_and(|no| self.delivery.sockets().presence(no).idle),
            wake_failure: no.and_then(|no| self.delivery.wake_failure(no)),
            seen_at: no.map_or(0, seen).max(instance.map_or(0, |it| self.delivery.sockets().presence(it.no).seen_ms)),
            created_at: agent.as_ref().map(|it| it.created_ms),
            agent_name: agent.and_then(|it| it.name.clone()),
            tenant: tenant.clone(),
            agent_id: id,
        }
    }

    fn connector_names(&self, agent: &Agent) -> Vec<String> {
        let (relay, ways) = self.ways_to(agent);
        let relay = relay.iter().map(|_| "relay".to_owned());
        relay.chain(ways.map_or_else(|_| vec!["unreadable".into()], |ways| super::deliver::way_names(&ways))).collect()
    }
}
