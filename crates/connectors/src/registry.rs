//! Connectors by name, and broadcasts over all connectors of an agent.
//!
//! A connector that is not healthy is refused at registration, with the reason. A connector that fails in a broadcast
//! is listed with its fault.
//!
//! For programs that use the connectors as a library. The server does not: it opens the connectors that an agent lists.

use std::sync::Arc;

use frontdesk_wire::agents::{AgentConnector, ConnectorReceipt, DeliveryPayload, Fault, Promise, WakeOpts};
use futures_util::future::join_all;
use serde::Serialize;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegistryError {
    #[error("a connector named {0:?} is already registered")]
    Taken(String),
    #[error("the connector {name:?} is not healthy: {why}")]
    Unhealthy { name: String, why: Fault },
}

#[derive(Default)]
pub struct Registry {
    ways: Vec<(String, Arc<dyn AgentConnector>)>,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    pub async fn register(&mut self, name: &str, connector: Arc<dyn AgentConnector>) -> Result<(), RegistryError> {
        if self.get(name).is_some() {
            return Err(RegistryError::Taken(name.into()));
        }
        connector.health_check().await.map_err(|why| RegistryError::Unhealthy { name: name.into(), why })?;
        self.ways.push((name.into(), connector));
        Ok(())
    }

    /// In the order in which they were registered.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ways.iter().map(|(name, _)| name.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<dyn AgentConnector>> {
        self.ways.iter().find(|(known, _)| known == name).map(|(_, way)| way)
    }

    /// Sends the same payload, with the same `dispatch_id`, over all connectors that list this agent, concurrently.
    /// Receipts are in the order of registration. If no connector lists the agent, nothing is sent and a fault is
    /// returned.
    pub async fn broadcast(&self, agent_id: &str, payload: &DeliveryPayload) -> Result<Vec<ConnectorReceipt>, Fault> {
        self.over_all(agent_id, |way| way.deliver(agent_id, payload)).await
    }

    pub async fn broadcast_wake(&self, agent_id: &str, opts: &WakeOpts) -> Result<Vec<ConnectorReceipt>, Fault> {
        self.over_all(agent_id, |way| way.wake(agent_id, opts)).await
    }

    async fn over_all<'a, T: Serialize>(
        &'a self,
        agent_id: &str,
        send: impl Fn(&'a dyn AgentConnector) -> Promise<'a, T>,
    ) -> Result<Vec<ConnectorReceipt>, Fault> {
        let tries = self.ways.iter().map(async |(name, way)| match way.list_agents().await {
            Ok(known) if !known.iter().any(|it| is_for(&it.agent_id, agent_id)) => None,
            Ok(_) => Some(receipt(name, send(way.as_ref()).await)),
            // The connector may know the agent. Left out silently, its failure would look like success.
            Err(fault) => Some(receipt::<T>(name, Err(fault))),
        });
        let receipts: Vec<ConnectorReceipt> = join_all(tries).await.into_iter().flatten().collect();
        if receipts.is_empty() { Err(Fault::unknown_agent(agent_id)) } else { Ok(receipts) }
    }
}

/// The id itself, or the id with a session.
fn is_for(known: &str, asked: &str) -> bool {
    asked.strip_prefix(known).is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
}

fn receipt<T: Serialize>(connector: &str, end: Result<T, Fault>) -> ConnectorReceipt {
    let connector = connector.to_owned();
    match end {
        Ok(receipt) => {
            let receipt = serde_json::to_value(receipt).ok();
            ConnectorReceipt { connector, ok: true, receipt, error: None }
        }
        Err(fault) => ConnectorReceipt { connector, ok: false, receipt: None, error: Some(fault.as_object().into()) },
    }
}
