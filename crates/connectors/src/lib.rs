//! Bundled connectors to agents (noop, webhook, file, tmux, relay) and a registry of connectors.
//!
//! Each is opened for one agent, except the relay, which serves a tenant. A receipt is returned only after the other
//! side has accepted the message, and `woken` is true only where an agent was really interrupted. An agent's own socket
//! is handled by the server, not here.

mod address;
mod file;
mod noop;
mod registry;
mod relay;
mod tmux;
mod webhook;

use std::path::PathBuf;
use std::sync::Arc;

pub use file::FileDrop;
use frontdesk_core::Env;
use frontdesk_core::port::connectors::Connectors;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_wire::InstanceId;
use frontdesk_wire::agents::{AgentConnector, ConnectorSpec, Fault};
pub use noop::NoOp;
pub use registry::{Registry, RegistryError};
pub use relay::Relay;
pub use tmux::{Tmux, TmuxSettings};
pub use webhook::HttpWebhook;

/// What the operator allows on the machine of the server. By default nothing.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Base folder of file connectors.
    pub file_base: Option<PathBuf>,
    pub tmux: Option<TmuxSettings>,
}

/// Opens connectors from their specifications.
pub struct Bundled {
    pub env: Arc<dyn Env>,
    pub outcall: Arc<dyn Outcall>,
    pub settings: Settings,
}

impl Connectors for Bundled {
    fn open(&self, agent_id: &InstanceId, spec: &ConnectorSpec) -> Result<Arc<dyn AgentConnector>, Fault> {
        let env = self.env.clone();
        Ok(match spec {
            ConnectorSpec::Noop {} => Arc::new(NoOp::new(agent_id, env)),
            ConnectorSpec::Webhook { .. } => Arc::new(HttpWebhook::open(agent_id, spec, env, self.outcall.clone())?),
            ConnectorSpec::File { dir, .. } => {
                let base = self.settings.file_base.as_deref().ok_or_else(|| {
                    Fault::invalid("file connectors are disabled; set [agents] file_base to the folder for their files")
                })?;
                Arc::new(FileDrop::open(agent_id, base, dir, env)?)
            }
            ConnectorSpec::Tmux { target, .. } => {
                let settings = self.settings.tmux.clone().ok_or_else(|| {
                    Fault::invalid("tmux connectors are disabled; set [agents] tmux = true to enable them")
                })?;
                Arc::new(Tmux::open(agent_id, target, settings, env)?)
            }
            ConnectorSpec::Relay { .. } => {
                return Err(Fault::invalid(
                    "the relay connector is built in and cannot be opened from a specification",
                ));
            }
        })
    }
}
