//! Ways to agents that are not our own inbox and sockets: webhooks, folders, terminals.

use std::sync::Arc;

use frontdesk_wire::InstanceId;
use frontdesk_wire::agents::{AgentConnector, ConnectorSpec, Fault};

pub trait Connectors: Send + Sync {
    /// The way that a specification describes, to this one agent. What can be told to be wrong without
    /// going there is refused here: a URL that is no allowed destination, a folder outside the base.
    fn open(&self, agent_id: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault>;
}

/// A desk that knows no other ways.
pub struct NoConnectors;

impl Connectors for NoConnectors {
    fn open(&self, _: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault> {
        Err(Fault::invalid(format!("this server has no {} connectors", spec.name())))
    }
}
