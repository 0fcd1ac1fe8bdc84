//! Agents of a server: deliver, wake, ask, and what an agent itself does (its inbox, its replies).

use std::time::Duration;

use frontdesk_wire::agents::{
    AgentConnector, AgentDescriptor, AgentList, AgentPut, AgentReply, AgentState, AgentStatus, Class, DeliveryPayload,
    DeliveryReceipt, Fault, Inbox, InboxMessage, Notified, NotifyPost, Promise, Replied, ReplyPost, WakeOpts,
    WakeReceipt,
};
use reqwest::Method;
use serde::Serialize;

use super::http::{AgentsClient, LIMIT, away, encoded, read, segment};

#[derive(Serialize)]
struct Exchange<'a> {
    #[serde(flatten)]
    payload: &'a DeliveryPayload,
    timeout_ms: u64,
}

pub(super) fn agent_path(agent_id: &str, rest: &str) -> Result<String, Fault> {
    Ok(format!("agents/{}{rest}", segment(agent_id)?))
}

/// In terms of the contract, a server that does not answer is a failed delivery.
fn broken(agent_id: &str, fault: Fault) -> Fault {
    let is_away = fault.class == Class::UnavailableError && fault.fields.contains_key("cause_kind");
    if is_away { Fault { class: Class::DeliveryFailedError, ..fault }.with("agent_id", agent_id) } else { fault }
}

impl AgentsClient {
    /// Registers an agent, or changes the given fields.
    pub async fn put_agent(&self, agent_id: &str, put: &AgentPut) -> Result<(), Fault> {
        self.send(self.request(Method::PUT, &agent_path(agent_id, "")?).json(put)).await
    }

    /// Requires a token of scope operator.
    pub async fn delete_agent(&self, agent_id: &str) -> Result<(), Fault> {
        self.send(self.request(Method::DELETE, &agent_path(agent_id, "")?)).await
    }

    /// The address decides: with an `@` it wakes, otherwise it delivers.
    pub async fn notify(&self, post: &NotifyPost) -> Result<Notified, Fault> {
        self.post("notify", post).await.map_err(|fault| broken(&post.agent, fault))
    }

    /// Answers an exchange. A late answer goes to the inbox of the asking agent. `GoneError`: the caller does not wait
    /// any more, and no agent asked.
    pub async fn reply(&self, agent_id: &str, correlation_id: &str, content: &str) -> Result<Replied, Fault> {
        let reply = ReplyPost { correlation_id: correlation_id.into(), content: content.into() };
        self.post(&agent_path(agent_id, "/replies")?, &reply).await
    }

    /// Messages after this number, or all of them.
    pub async fn inbox(&self, agent_id: &str, after: Option<u64>) -> Result<Vec<InboxMessage>, Fault> {
        Ok(self.inbox_page(agent_id, after).await?.messages)
    }

    /// The same with the newest number of the inbox. If it is below `after`, the server was restored from an older
    /// backup, and the reader continues from it.
    pub async fn inbox_page(&self, agent_id: &str, after: Option<u64>) -> Result<Inbox, Fault> {
        let after = after.map(|seq| format!("?after={seq}")).unwrap_or_default();
        self.get(&agent_path(agent_id, &format!("/inbox{after}"))?).await
    }

    pub(super) fn stream_path(agent_id: &str, session: Option<&str>) -> Result<String, Fault> {
        let session = session.map(|name| format!("?session={}", encoded(name))).unwrap_or_default();
        agent_path(agent_id, &format!("/inbox/stream{session}"))
    }
}

impl AgentConnector for AgentsClient {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>> {
        Box::pin(async { Ok(self.get::<AgentList>("agents").await?.agents) })
    }

    fn deliver<'a>(&'a self, agent_id: &'a str, payload: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt> {
        Box::pin(async move {
            let path = agent_path(agent_id, "/deliver")?;
            self.post(&path, payload).await.map_err(|fault| broken(agent_id, fault))
        })
    }

    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt> {
        Box::pin(async move {
            let path = agent_path(agent_id, "/wake")?;
            self.post(&path, opts).await.map_err(|fault| broken(agent_id, fault))
        })
    }

    fn health_check(&self) -> Promise<'_, ()> {
        Box::pin(async { self.send(self.request(Method::GET, "health")).await })
    }

    fn request_response<'a>(
        &'a self,
        agent_id: &'a str,
        payload: &'a DeliveryPayload,
        timeout_ms: u64,
    ) -> Promise<'a, AgentReply> {
        Box::pin(async move {
            let request = self.request(Method::POST, &agent_path(agent_id, "/exchange")?);
            // The server enforces the timeout; ours is for a server that does not answer.
            let request = request.json(&Exchange { payload, timeout_ms });
            let request = request.timeout(Duration::from_millis(timeout_ms).saturating_add(LIMIT));
            let answer = self.open(request).await.map_err(|fault| broken(agent_id, fault))?;
            read(&answer.bytes().await.map_err(|error| broken(agent_id, away(error)))?)
        })
    }

    fn agent_status<'a>(&'a self, agent_id: &'a str) -> Promise<'a, AgentStatus> {
        Box::pin(async move { Ok(self.get::<AgentState>(&agent_path(agent_id, "/status")?).await?.status) })
    }
}
