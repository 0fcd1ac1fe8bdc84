//! Ways to agents that are not our own inbox and sockets: webhooks, folders, terminals.

use std::sync::Arc;

use frontdesk_wire::InstanceId;
use frontdesk_wire::agents::{AgentConnector, ConnectorSpec, Fault};

pub trait Connectors: Send + Sync {
    /// Opens a connector of this agent. Fails for errors that can be found without a call, such as a URL that is not an
    /// allowed destination or a folder outside the base.
    fn open(&self, agent_id: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault>;
}

/// No connectors.
pub struct NoConnectors;

impl Connectors for NoConnectors {
    fn open(&self, _: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault> {
        Err(Fault::invalid(format!("this server has no {} connectors", spec.name())))
    }
}
