//! Noop connector: sends nothing. For agents that only read their inbox, and for tests.
//!
//! Each receipt says that nothing was sent.

use std::sync::Arc;

use frontdesk_core::Env;
use frontdesk_wire::agents::{
    AgentConnector, AgentDescriptor, AgentReply, DeliveryPayload, DeliveryReceipt, Fault, Promise, WakeOpts,
    WakeReceipt,
};

use crate::address::{note_dropped, note_early, only, session_of};

const NOWHERE: &str = "noop connector: nothing was sent";

pub struct NoOp {
    agent_id: String,
    env: Arc<dyn Env>,
}

impl NoOp {
    pub fn new(agent_id: &str, env: Arc<dyn Env>) -> Self {
        Self { agent_id: agent_id.into(), env }
    }
}

impl AgentConnector for NoOp {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>> {
        Box::pin(async { Ok(only(&self.agent_id)) })
    }

    fn deliver<'a>(&'a self, agent_id: &'a str, _: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let receipt = DeliveryReceipt {
                delivered_at: self.env.now_ms(),
                delivery_skipped: true,
                warnings: vec![NOWHERE.into()],
                ..DeliveryReceipt::default()
            };
            Ok(note_dropped(receipt, session))
        })
    }

    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt> {
        Box::pin(async move {
            session_of(&self.agent_id, agent_id)?;
            let receipt = WakeReceipt {
                woken_at: self.env.now_ms(),
                woken: false,
                warnings: vec![NOWHERE.into()],
                ..WakeReceipt::default()
            };
            Ok(note_early(receipt, opts))
        })
    }

    fn health_check(&self) -> Promise<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn request_response<'a>(&'a self, _: &'a str, _: &'a DeliveryPayload, _: u64) -> Promise<'a, AgentReply> {
        Box::pin(async { Err(Fault::not_implemented("noop", "request_response")) })
    }
}
