//! Ways to agents that are not our own inbox and sockets: webhooks, folders, terminals.

use std::sync::Arc;

use frontdesk_wire::InstanceId;
use frontdesk_wire::agents::{AgentConnector, ConnectorSpec, Fault};

pub trait Connectors: Send + Sync {
    /// Opens a connector of this one agent. Errors that show without a call are refused here: a URL that is no allowed
    /// destination, a folder outside the base.
    fn open(&self, agent_id: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault>;
}

/// No connectors.
pub struct NoConnectors;

impl Connectors for NoConnectors {
    fn open(&self, _: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault> {
        Err(Fault::invalid(format!("this server has no {} connectors", spec.name())))
    }
}
