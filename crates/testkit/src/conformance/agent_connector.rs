//! Contract tests for any implementation of `AgentConnector`. Rule numbers are those of the agents spec.
//!
//! The tests do not know the transport behind it. Whether a message really arrived is checked through
//! [`Expected::arrived`], which the caller provides.

use frontdesk_wire::agents::{
    AgentConnector, AgentStatus, BoxFuture, Class, DeliveryMeta, DeliveryPayload, Fault, Immediate, Origin, WakeOpts,
    When,
};

/// Whether this text is where the agent finds it. Called after the receipt; it may wait a bounded time only if the
/// transport is live (a terminal) and stores nothing.
pub type Arrived<'a> = Box<dyn Fn(String) -> BoxFuture<'a, bool> + Send + Sync + 'a>;

/// Properties of the connector under test.
pub struct Expected<'a> {
    /// All agents that it lists. Messages are sent to the first one.
    pub agents: Vec<String>,
    /// An id that it does not know.
    pub unknown: String,
    /// Its receipts may have `woken: true`; if false, such a receipt is an error.
    pub can_wake: bool,
    /// It supports answers. No agent answers during the test, so requests time out.
    pub can_answer: bool,
    /// Called after each receipt. `None`: arrival cannot be checked.
    pub arrived: Option<Arrived<'a>>,
    /// It accepts nothing, and reports that with `delivery_skipped` and a warning.
    pub leads_nowhere: bool,
}

/// All rules.
pub async fn agent_connector(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    is_healthy(connector).await;
    lists_its_agents(connector, expected).await;
    delivers(connector, expected).await;
    takes_what_is_legal(connector, expected).await;
    refuses_unknown_agents(connector, expected).await;
    wakes_or_degrades(connector, expected).await;
    answers_or_says_that_it_cannot(connector, expected).await;
    tells_a_status(connector, expected).await;
}

pub fn augment(dispatch_id: &str, content: &str) -> DeliveryPayload {
    DeliveryPayload::Augment { content: content.into(), meta: meta(dispatch_id) }
}

pub fn template(dispatch_id: &str, prompt: &str) -> DeliveryPayload {
    DeliveryPayload::Template { prompt: prompt.into(), meta: meta(dispatch_id) }
}

fn meta(dispatch_id: &str) -> DeliveryMeta {
    let origin = Origin { skill_name: Some("watcher".into()), trigger_kind: Some("cron".into()), ..Origin::default() };
    DeliveryMeta { dispatch_id: dispatch_id.into(), sent_at: 1_700_000_000_000, origin, ..DeliveryMeta::default() }
}

pub async fn is_healthy(connector: &dyn AgentConnector) {
    let health = connector.health_check().await;
    assert!(health.is_ok(), "health_check of a healthy connector: {health:?}");
}

pub async fn lists_its_agents(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let listed = connector.list_agents().await.expect("list_agents");
    let mut listed: Vec<String> = listed.into_iter().map(|it| it.agent_id).collect();
    let mut agents = expected.agents.clone();
    listed.sort();
    agents.sort();
    assert_eq!(listed, agents, "list_agents: all agents, each once");
}

/// Rules 10 and 11: the receipt is returned after the message has arrived.
pub async fn delivers(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let (agent, text) = (&expected.agents[0], "rule ten: there before the receipt");
    let receipt = connector.deliver(agent, &augment("conformance-1", text)).await.expect("deliver");
    assert!(receipt.delivered_at > 0, "delivered_at is unix ms");
    expect_there(expected, text, "rule 10: there is a receipt, but the message has not arrived").await;
    if expected.leads_nowhere {
        assert!(receipt.delivery_skipped, "rule 11: a message that was not pushed is marked as skipped");
        assert!(!receipt.warnings.is_empty(), "rule 11: a warning says why");
    }
    if let Some(session) = &receipt.session_id {
        assert!(!session.is_empty(), "rule 11: a session has a name");
    }
}

/// Rules 8, 9 and 12: both kinds, empty text, unknown keys, any dispatch id.
pub async fn takes_what_is_legal(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let agent = &expected.agents[0];
    for (id, payload) in [
        ("rule 9: an empty content", augment("conformance-2", "")),
        ("rule 9: an empty prompt", template("conformance-3", "")),
        ("a template", template("conformance-4", "first look, then tell")),
        ("a dispatch id with special characters", augment("../../conformance 5\u{7}\n", "five")),
        ("rule 12: the same dispatch id with another text", augment("conformance-1", "another message")),
    ] {
        let taken = connector.deliver(agent, &payload).await;
        assert!(taken.is_ok(), "{id}: {taken:?}");
    }
    expect_there(expected, "another message", "rule 12: it is a different message").await;
    let mut payload = augment("conformance-6", "with more");
    if let DeliveryPayload::Augment { meta, .. } = &mut payload {
        meta.more.insert("x_new".into(), serde_json::json!({ "deep": [1, null] }));
        meta.origin.trigger_kind = Some("an unknown kind".into());
    }
    let taken = connector.deliver(agent, &payload).await;
    assert!(taken.is_ok(), "rule 8: unknown keys and trigger kinds: {taken:?}");
}

/// An unknown agent is a fault, never a receipt.
pub async fn refuses_unknown_agents(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let unknown = &expected.unknown;
    let refused = |what: &str, fault: Option<Fault>| {
        let fault = fault.unwrap_or_else(|| panic!("{what} to an unknown agent gave a receipt"));
        let known = [Class::UnknownAgentError, Class::DeliveryFailedError];
        assert!(known.contains(&fault.class), "{what} to an unknown agent: {fault}");
    };
    refused("deliver", connector.deliver(unknown, &augment("conformance-7", "lost")).await.err());
    refused("wake", connector.wake(unknown, &WakeOpts::default()).await.err());
}

/// Section 5: without an interrupt a wake still succeeds, and `woken` is true only if it happened.
pub async fn wakes_or_degrades(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let agent = &expected.agents[0];
    let text = "section five: look at this";
    for (what, opts) in [
        ("with a context", WakeOpts { context: Some(text.into()), ..WakeOpts::default() }),
        ("rule 31: without a context", WakeOpts::default()),
        ("rule 15: immediate", WakeOpts { when: Some(When::Word(Immediate::Now)), ..WakeOpts::default() }),
        ("rule 15: in the past", WakeOpts { when: Some(When::At(1)), ..WakeOpts::default() }),
        ("with a session", WakeOpts { session_id: Some("kitchen".into()), ..WakeOpts::default() }),
    ] {
        let receipt = connector.wake(agent, &opts).await;
        let receipt = receipt.unwrap_or_else(|fault| panic!("wake {what} failed: {fault}"));
        assert!(receipt.woken_at > 0, "wake {what}: woken_at is unix ms");
        assert!(expected.can_wake || !receipt.woken, "rule 14: wake {what}: nobody was interrupted");
        assert!(receipt.scheduled_for.is_none(), "rule 15: wake {what}: it is immediate");
        if opts.context.is_some() {
            expect_there(expected, text, "section 5: the context of a wake is delivered").await;
        }
    }
}

/// Rules 16 and 17: answers, or the fault for an unsupported operation.
pub async fn answers_or_says_that_it_cannot(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let mut payload = augment("conformance-8", "what is the time?");
    if let DeliveryPayload::Augment { meta, .. } = &mut payload {
        meta.correlation_id = Some("conformance-correlation".into());
    }
    let fault = connector.request_response(&expected.agents[0], &payload, 50).await;
    let fault = fault.expect_err("nobody answers during the test");
    if expected.can_answer {
        assert_eq!(fault.class, Class::TimeoutError, "rule 16: {fault}");
        assert_eq!(fault.fields.get("timeout_ms"), Some(&50.into()), "rule 16: TimeoutError names its limit");
    } else {
        assert_eq!(fault.class, Class::NotImplementedError, "rule 17: {fault}");
    }
}

/// A status is information only: an unknown agent is not a fault.
pub async fn tells_a_status(connector: &dyn AgentConnector, expected: &Expected<'_>) {
    let known = connector.agent_status(&expected.agents[0]).await;
    assert!(known.is_ok(), "agent_status: {known:?}");
    let unknown = connector.agent_status(&expected.unknown).await;
    assert_eq!(unknown.ok(), Some(AgentStatus::Unknown), "agent_status of an unknown agent");
}

async fn expect_there(expected: &Expected<'_>, text: &str, otherwise: &str) {
    if let Some(arrived) = &expected.arrived {
        assert!(arrived(text.into()).await, "{otherwise}");
    }
}
