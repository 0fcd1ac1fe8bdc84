//! What a request needs before it is sent: a question to answer, an alarm to revive, a session of tools.

use super::*;

/// The first request of a client of the tools.
pub(crate) fn initialize() -> Value {
    let about = json!({ "name": "x", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params })
}

/// Opens a session of tools and returns its id.
pub(crate) async fn open_mcp(harness: &Harness, token: &str) -> String {
    let request =
        || harness.request("POST", "/mcp").bearer_auth(token).header("accept", "application/json, text/event-stream");
    let opened = harness.send(request().json(&initialize())).await;
    let session = opened.header("mcp-session-id").to_owned();
    assert!(!session.is_empty(), "{}", opened.text());
    let notification = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let response = harness.send(request().header("mcp-session-id", &session).json(&notification)).await;
    assert_eq!(response.status, 202, "{}", response.text());
    session
}

impl Scene {
    /// Bob asks Alice and does not wait for the answer, which therefore goes to his inbox.
    pub(crate) async fn question(&self, name: &str) {
        let who = AgentsCaller { caller: Some("bob"), ..as_operator() };
        let [dispatch_id, correlation_id] = [name, name].map(str::to_owned);
        let meta = DeliveryMeta { dispatch_id, correlation_id: Some(correlation_id), ..DeliveryMeta::default() };
        let payload = DeliveryPayload::Augment { content: "?".into(), meta };
        let (line, _) = oneshot::channel(); // the asker has hung up
        Box::pin(self.desk().exchanges().ask(who, "alice", payload.into(), 60_000, line.into())).await;
    }

    /// An alarm that was given up; returns its number.
    pub(crate) async fn dead_alarm(&self, job: &str) -> u64 {
        let (desk, alarms) = (self.desk(), &self.desk().stores().alarms);
        let who = Identity { tenant: FIRST_TENANT.into(), instance: Some("sleeper".into()) };
        let proven = desk.directory().proven_instance(&who).await.unwrap();
        let ask = json!({ "job_id": job, "fire_at": "2100-01-01T00:00:00Z", "agent_callback_url": "relay:" });
        desk.cron().provision_alarm(&proven, serde_json::from_value(ask).unwrap()).await.unwrap();
        let alarm = alarms.alarm(proven.instance.no, &job.into()).await.unwrap().unwrap();
        let now_ms = desk.env().now_ms();
        let claimed = alarms.claim_alarms(vec![alarm.id], alarm.next_ms, now_ms, now_ms + 60_000).await.unwrap();
        let ends = claimed.into_iter().map(|it| (it, Conclusion::Dead { note: "a test".into() })).collect();
        assert_eq!(alarms.conclude(ends, now_ms).await.unwrap(), [Concluded::Ended]);
        alarm.id
    }
}
