//! Tokens that are bound to one agent: they act as that agent, and can message all others.

use serde_json::{Value, json};

use crate::harness::Reply;
use crate::plane::{Plane, class};

/// A token of scope agents that is bound to one agent.
pub(crate) async fn bound(plane: &Plane, agent: &str) -> String {
    let ask = json!({ "tenant": "home", "scope": "agents", "instance": agent });
    let made = plane.harness.admin("POST", "/tokens", &ask).await.expect(201);
    made["token"].as_str().unwrap().to_owned()
}

/// The text of a refusal, which names the agent that the token is bound to.
#[track_caller]
fn refused(reply: &Reply) -> String {
    assert_eq!(class(reply, 403), "ForbiddenError");
    let message = reply.expect(403)["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("bound to the agent \"alice\""), "{message}");
    message
}

#[tokio::test]
async fn a_bound_token_acts_only_as_its_own_agent() {
    let plane = Plane::with_agents(&["bob", "alice@home"]).await;
    let token = bound(&plane, "alice").await;
    let harness = &plane.harness;
    let call = async |method: &str, path: &str, body: Value| harness.call(method, path, &token, &body).await;
    call("PUT", "/v1/agents/alice", json!({ "agent_name": "Alice" })).await.expect(200);
    plane.deliver("alice", &plane.augment("for alice")).await.expect(200);
    plane.deliver("bob", &plane.augment("for bob")).await.expect(200);
    let own = call("GET", "/v1/agents/alice/inbox", Value::Null).await.expect(200);
    assert_eq!(own["messages"][0]["text"], "for alice");
    call("GET", "/v1/agents/alice%40tab/inbox", Value::Null).await.expect(200);
    let reply = json!({ "correlation_id": "c", "content": "x" });
    assert_eq!(class(&call("POST", "/v1/agents/alice/replies", reply.clone()).await, 410), "GoneError");
    for (method, path, body) in [
        ("GET", "/v1/agents/bob/inbox", Value::Null),
        ("GET", "/v1/agents/bob/inbox/stream", Value::Null),
        ("GET", "/v1/agents/alice%40home/inbox", Value::Null),
        ("POST", "/v1/agents/bob/replies", reply.clone()),
        ("PUT", "/v1/agents/bob", json!({ "wake_url": "" })),
        ("PUT", "/v1/agents/carol", json!({})),
    ] {
        refused(&call(method, path, body.clone()).await);
        let by_path = harness.call(method, &format!("/k/{token}{path}"), "", &body).await;
        refused(&by_path);
    }
    assert!(!plane.get("/v1/agents").await.expect(200).to_string().contains("carol"));
    for path in ["/v1/agents/bob", "/v1/agents/alice"] {
        assert_eq!(class(&call("DELETE", path, Value::Null).await, 403), "ForbiddenError", "{path}");
    }
    // What every token may read and use.
    call("GET", "/v1/agents/bob/status", Value::Null).await.expect(200);
    call("PUT", "/v1/skills/s", json!({ "source": "# Skill: s\n" })).await.expect(200);
    call("POST", "/v1/data", json!({ "content": "tea" })).await.expect(201);
    plane.finish().await;
}

#[tokio::test]
async fn a_bound_token_names_its_agent_as_the_sender() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let token = bound(&plane, "alice").await;
    let meta = |origin: Value| json!({ "dispatch_id": origin.to_string(), "sent_at": 1, "origin": origin });
    let message = |origin: Value| json!({ "kind": "augment", "content": "hello", "meta": meta(origin) });
    let post = async |path: &str, body: Value| plane.harness.post(path, &token, &body).await;
    post("/v1/agents/bob/deliver", message(json!({}))).await.expect(200);
    post("/v1/agents/bob/deliver", message(json!({ "caller_agent_id": "alice", "skill_name": "s" }))).await.expect(200);
    let cron = json!({ "agent": "bob", "message": "m", "origin": { "trigger_kind": "cron" } });
    post("/v1/notify", cron).await.expect(200);
    post("/v1/agents/bob/wake", json!({ "context": "up" })).await.expect(200);
    let inbox = plane.inbox("bob").await;
    assert_eq!(inbox.len(), 4);
    for message in &inbox[..3] {
        assert_eq!(message["meta"]["origin"]["caller_agent_id"], "alice", "{message}");
    }
    let said = plane.harness.admin("GET", "/dispatches", &Value::Null).await.expect(200);
    assert!(said["dispatches"].as_array().unwrap().iter().all(|it| it["from"] == "alice"), "{said}");

    let claim = json!({ "caller_agent_id": "bob" });
    refused(&post("/v1/agents/bob/deliver", message(claim.clone())).await);
    refused(&post("/v1/notify", json!({ "agent": "bob", "message": "m", "origin": claim })).await);
    let mut asked = message(claim);
    asked["meta"]["correlation_id"] = json!("c");
    refused(&post("/v1/agents/bob/exchange", asked).await);
    let note = json!({ "source": "# Skill: s\n", "metadata": { "author": "bob" } });
    refused(&plane.harness.call("PUT", "/v1/skills/s", &token, &note).await);
    refused(&post("/v1/data", json!({ "content": "tea", "agent_id": "bob" })).await);
    refused(&post("/v1/data", json!({ "content": "tea", "metadata": { "agent_id": "bob" } })).await);
    for (name, status) in [("alice", 200), ("bob", 403)] {
        let request = plane.harness.request("GET", "/v1/health").bearer_auth(&token).header("x-agent-id", name);
        let reply = plane.harness.send(request).await;
        assert_eq!(reply.status, status, "{}", reply.text());
    }
    let relay = json!({ "connectors": [{ "type": "relay", "instance": "bob" }] });
    refused(&plane.harness.call("PUT", "/v1/agents/alice", &token, &relay).await);
    assert_eq!(plane.inbox("bob").await.len(), 4, "refused messages are not stored");
    plane.finish().await;
}

#[tokio::test]
async fn only_tokens_of_scope_agents_can_be_bound() {
    let plane = Plane::open().await;
    for scope in ["operator", "chat"] {
        let ask = json!({ "tenant": "home", "scope": scope, "instance": "alice" });
        let response = plane.harness.admin("POST", "/tokens", &ask).await;
        assert_eq!(response.status, 400, "{}", response.text());
        assert!(response.text().contains("leave instance out"), "{}", response.text());
    }
    plane.finish().await;
}
