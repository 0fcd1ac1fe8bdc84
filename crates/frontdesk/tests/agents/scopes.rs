//! Rules 28, 29 and 34: permissions, and isolation of tenants.

use serde_json::{Value, json};

use crate::harness::Source;
use crate::plane::{Plane, class};

#[tokio::test]
async fn rule_29_scopes_of_tokens() {
    let plane = Plane::with_agents(&["alice"]).await;
    plane.call("PUT", "/v1/skills/s", &json!({ "source": "# Skill: s\n" })).await.expect(200);
    for path in ["/v1/agents/alice", "/v1/skills/s"] {
        assert_eq!(class(&plane.call("DELETE", path, &Value::Null).await, 403), "ForbiddenError", "{path}");
    }
    for scope in ["identity", "chat"] {
        let token = plane.harness.token("home", scope).await;
        assert_eq!(class(&plane.harness.get("/v1/agents", &token).await, 401), "UnauthorizedError", "{scope}");
    }
    for token in ["", "nonsense", &plane.harness.admin] {
        assert_eq!(class(&plane.harness.get("/v1/agents", token).await, 401), "UnauthorizedError");
    }
    for path in ["/v1/agents/alice", "/v1/skills/s"] {
        assert_eq!(plane.harness.call("DELETE", path, &plane.operator, &Value::Null).await.status, 204, "{path}");
        let again = plane.harness.call("DELETE", path, &plane.operator, &Value::Null).await;
        assert!(class(&again, 404).contains("Error"));
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_29_a_capability_url_is_the_same_api() {
    let plane = Plane::with_agents(&["alice"]).await;
    let by_path = |path: &str| format!("/k/{}{path}", plane.token);
    plane.harness.post(&by_path("/v1/agents/alice/deliver"), "", &plane.augment("x")).await.expect(200);
    plane.harness.post(&by_path("/v1/agents/alice%40t/wake"), "", &json!({})).await.expect(200);
    assert_eq!(plane.inbox("alice").await.len(), 2);
    plane.harness.get(&by_path("/v1/health"), &plane.token).await.expect(200);
    let both = plane.harness.get(&by_path("/v1/health"), &plane.operator).await;
    assert_eq!(class(&both, 400), "ValidationError", "another token in the header");
    assert_eq!(class(&plane.harness.get("/k/nonsense/v1/health", "").await, 401), "UnauthorizedError");
    assert_eq!(class(&plane.harness.get(&by_path("/v1/nowhere"), "").await, 404), "NotFoundError");
    assert_eq!(class(&plane.harness.get(&by_path("/admin/v1/tenants"), "").await, 404), "NotFoundError");
    assert_eq!(class(&plane.harness.get(&by_path(""), "").await, 404), "NotFoundError");
    for path in ["/v1/nowhere", "/v1/health?x=1", "/v1/agents/nobody/inbox"] {
        let reply = plane.harness.call("POST", &by_path(path), "", &json!({})).await;
        assert!(reply.status >= 400 && !reply.text().contains(&plane.token), "{}", reply.text());
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_29_records_of_another_tenant_are_not_found() {
    let plane = Plane::with_agents(&["alice"]).await;
    plane.call("PUT", "/v1/skills/s", &json!({ "source": "# Skill: s\n" })).await.expect(200);
    let row = plane.post("/v1/data", &json!({ "content": "a secret of home" })).await.expect(201);
    plane.deliver("alice", &plane.augment("for alice of home")).await.expect(200);
    let account = plane.harness.add_gateway("gw-home").await;
    plane.harness.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    let other = plane.harness.token("other", "operator").await;
    let data = format!("/v1/data/{}", row["id"].as_str().unwrap());
    for (method, path, body, what) in [
        ("GET", "/v1/agents/alice/inbox", Value::Null, "UnknownAgentError"),
        ("GET", "/v1/agents/alice/inbox/stream", Value::Null, "UnknownAgentError"),
        ("POST", "/v1/agents/alice/deliver", plane.augment("x"), "UnknownAgentError"),
        ("POST", "/v1/agents/gw-home/deliver", plane.augment("x"), "UnknownAgentError"),
        ("POST", "/v1/agents/alice/wake", json!({}), "UnknownAgentError"),
        ("POST", "/v1/agents/alice/replies", json!({ "correlation_id": "c", "content": "" }), "UnknownAgentError"),
        ("DELETE", "/v1/agents/alice", Value::Null, "UnknownAgentError"),
        ("GET", "/v1/skills/s", Value::Null, "SkillNotFoundError"),
        ("GET", "/v1/skills/s/metadata", Value::Null, "SkillNotFoundError"),
        ("GET", "/v1/skills/s/versions", Value::Null, "SkillNotFoundError"),
        ("POST", "/v1/skills/s/status", json!({ "status": "Disabled" }), "SkillNotFoundError"),
        ("DELETE", "/v1/skills/s", Value::Null, "SkillNotFoundError"),
        ("GET", data.as_str(), Value::Null, "DataNotFound"),
    ] {
        let reply = plane.harness.call(method, path, &other, &body).await;
        assert_eq!(class(&reply, 404), what, "{method} {path}");
    }
    let asked = json!({ "query": "secret", "limit": 10, "mode": "fts" });
    let found = plane.harness.post("/v1/data-store/query", &other, &asked).await.expect(200);
    assert_eq!(found, json!({ "items": [] }));
    assert_eq!(
        plane.harness.post("/v1/skill-store/query", &other, &json!({})).await.expect(200),
        json!({ "skills": [] })
    );
    assert_eq!(plane.harness.get("/v1/agents", &other).await.expect(200), json!({ "agents": [] }));
    assert_eq!(plane.harness.get("/v1/agents/alice/status", &other).await.expect(200)["status"], "unknown");
    let relay = json!({ "connectors": [{ "type": "relay", "instance": account.gateway }] });
    let reached = plane.harness.call("PUT", "/v1/agents/thief", &other, &relay).await;
    assert_eq!(class(&reached, 400), "ValidationError", "an instance of another tenant is not a valid connector");
    plane.finish().await;
}

#[tokio::test]
async fn rule_28_connectors_are_validated_when_set() {
    let source = Source::open("application/json", br#"{"status":"ok","id":"hook-1"}"#).await;
    source.answer(100);
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    for (spec, status, what) in [
        (json!({ "type": "noop" }), 200, ""),
        (json!({ "type": "relay", "instance": account.gateway }), 200, ""),
        (json!({ "type": "webhook", "url": source.url, "status_url": source.url }), 200, ""),
        (json!({ "type": "relay", "instance": "nobody" }), 400, "ValidationError"),
        (json!({ "type": "pigeon" }), 400, "ValidationError"),
        (json!({ "type": "webhook" }), 400, "ValidationError"),
        (json!({ "type": "webhook", "url": "http://169.254.169.254/latest" }), 400, "ValidationError"),
        (json!({ "type": "webhook", "url": "ftp://example.org" }), 400, "ValidationError"),
        (json!({ "type": "webhook", "url": source.url, "status_url": "http://127.0.0.1:1/" }), 400, "ValidationError"),
        (json!({ "type": "file", "dir": "x" }), 403, "ForbiddenError"),
        (json!({ "type": "tmux", "target": "x" }), 403, "ForbiddenError"),
    ] {
        let reply = plane.put("alice", json!({ "connectors": [spec] })).await;
        match status {
            200 => drop(reply.expect(200)),
            _ => assert_eq!(class(&reply, status), what, "{spec}"),
        }
    }
    let long = format!("{}?{}", source.url, "x".repeat(70_000));
    for put in [
        json!({ "wake_url": long }),
        json!({ "connectors": [{ "type": "webhook", "url": long }] }),
        json!({ "connectors": [{ "type": "webhook", "url": source.url, "hmac_secret": "x".repeat(70_000) }] }),
        json!({ "webhook_secret": "x".repeat(1_025) }),
        json!({ "agent_name": "x".repeat(257) }),
    ] {
        assert_eq!(class(&plane.put("alice", put).await, 400), "ValidationError", "every agent is held in memory");
    }
    let many: Vec<Value> = (0..9).map(|_| json!({ "type": "noop" })).collect();
    assert_eq!(class(&plane.put("alice", json!({ "connectors": many })).await, 400), "ValidationError");
    // Disabled unless the operator of the server enables them, even for a token of scope operator.
    for spec in [json!({ "type": "file", "dir": "x" }), json!({ "type": "tmux", "target": "x" })] {
        let reply =
            plane.harness.call("PUT", "/v1/agents/alice", &plane.operator, &json!({ "connectors": [spec] })).await;
        let response = reply.expect(400)["error"]["message"].to_string();
        assert!(response.contains("[agents]"), "{response}");
    }
    // A refused request changed nothing: the webhook is still configured.
    let response = plane.notify(json!({ "agent": "alice", "message": "m", "origin": {} })).await.expect(200);
    let hook = response["receipts"].as_array().unwrap().iter().find(|it| it["connector"] == "webhook").unwrap();
    assert_eq!((&hook["ok"], &hook["receipt"]["delivery_id"]), (&json!(true), &json!("hook-1")));
    plane.finish().await;
}

#[tokio::test]
async fn the_number_of_agents_per_tenant_is_limited() {
    let plane = Plane::with(|config| config.agents.per_tenant = 2).await;
    for id in ["alice", "bob", "alice"] {
        plane.put(id, json!({ "agent_name": "once more" })).await.expect(200);
    }
    let full = plane.put("carol", json!({})).await;
    assert_eq!(class(&full, 403), "ForbiddenError");
    assert!(full.text().contains("agents.per_tenant"), "{}", full.text());
    plane.harness.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    let other = plane.harness.token("other", "agents").await;
    plane.harness.call("PUT", "/v1/agents/carol", &other, &json!({})).await.expect(200);
    plane.harness.call("DELETE", "/v1/agents/bob", &plane.operator, &Value::Null).await;
    plane.put("carol", json!({})).await.expect(200);
    plane.finish().await;
}

#[tokio::test]
async fn rule_28_a_file_connector_of_an_operator_writes_below_the_base() {
    let base = tempfile::tempdir().unwrap();
    let plane = Plane::with(|config| config.agents.file_base = base.path().to_owned()).await;
    let put = |dir: &str| json!({ "connectors": [{ "type": "file", "dir": dir }] });
    let outside = plane.harness.call("PUT", "/v1/agents/alice", &plane.operator, &put("../elsewhere")).await;
    assert_eq!(class(&outside, 400), "ValidationError");
    plane.harness.call("PUT", "/v1/agents/alice", &plane.operator, &put("alice")).await.expect(200);
    let body = plane.augment("on paper");
    let receipt = plane.deliver("alice", &body).await.expect(200);
    assert!(receipt.get("delivery_skipped").is_none(), "{receipt}");
    let file = base.path().join("alice").join(format!("{}.json", body["meta"]["dispatch_id"].as_str().unwrap()));
    let kept: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!((&kept["agent_id"], &kept["content"]), (&json!("alice"), &json!("on paper")));
    // Rule 5: the dispatch id is the same for the connector, the sender and the inbox.
    let response = plane.notify(json!({ "agent": "alice", "message": "to all", "origin": {} })).await.expect(200);
    let id = response["dispatch_id"].as_str().unwrap();
    let file = base.path().join("alice").join(format!("{id}.json"));
    let kept: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(kept["meta"]["dispatch_id"], id);
    assert_eq!(plane.inbox("alice").await[1]["meta"]["dispatch_id"], id);
    plane.finish().await;
}

#[tokio::test]
async fn a_failed_connector_is_reported_and_the_message_is_kept() {
    let source = Source::open("text/plain", b"ok").await;
    source.answer(100);
    let plane = Plane::open().await;
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    let hook = json!({ "connectors": [{ "type": "webhook", "url": dead, "wake_url": dead, "timeout_ms": 2000 }] });
    plane.put("alice", hook).await.expect(200);
    let receipt = plane.deliver("alice", &plane.augment("x")).await.expect(200);
    assert_eq!(receipt["delivery_skipped"], true);
    assert!(receipt["warnings"].to_string().contains("webhook"), "{receipt}");
    let broke = plane.wake("alice", json!({ "context": "up" })).await.expect(502);
    assert_eq!((&broke["error"]["class"], &broke["error"]["stored"]), (&json!("DeliveryFailedError"), &json!(true)));
    assert_eq!(plane.inbox("alice").await.len(), 2, "both are in the inbox");
    // A notify reports every connector; the stored message counts as accepted and needs no retry.
    let response = plane.notify(json!({ "agent": "alice@t", "message": "up", "origin": {} })).await.expect(200);
    let how: Vec<_> = response["receipts"].as_array().unwrap().iter().map(|it| (&it["connector"], &it["ok"])).collect();
    assert_eq!(how, [(&json!("inbox"), &json!(true)), (&json!("webhook"), &json!(false))], "{response}");
    assert_eq!(response["receipts"][1]["error"]["class"], "DeliveryFailedError");
    assert_eq!(plane.inbox("alice").await.len(), 3);
    plane.finish().await;
}

#[tokio::test]
async fn a_token_over_its_rate_is_refused() {
    let plane = Plane::with(|config| (config.agents.rate_per_s, config.agents.rate_burst) = (1, 5)).await;
    let all = futures_util::future::join_all((0..20).map(|_| plane.get("/v1/health"))).await;
    let refused: Vec<_> = all.iter().filter(|reply| reply.status == 429).collect();
    assert!((10..=15).contains(&refused.len()), "{} of 20", refused.len());
    assert_eq!((class(refused[0], 429).as_str(), refused[0].header("retry-after")), ("RateLimitedError", "1"));
    plane.harness.get("/v1/health", &plane.operator).await.expect(200);
    plane.finish().await;
}

#[tokio::test]
async fn rule_34_secured_mode_per_tenant() {
    let plane = Plane::open().await;
    let path = "/tenants/home/skills";
    let pem = frontdesk_testkit::conformance::skill_store::PUBLIC_KEY_PEM;
    let bad = plane.harness.admin("PUT", path, &json!({ "secured": true, "public_key_pem": "nonsense" })).await;
    assert_eq!(bad.problem(400), "bad_request");
    let absent = plane.harness.admin("PUT", "/tenants/nobody/skills", &json!({ "secured": false })).await;
    assert_eq!(absent.problem(404), "not_found");
    plane.harness.admin("PUT", path, &json!({ "secured": true, "public_key_pem": pem })).await.expect(200);
    let put = json!({ "source": "# Skill: s\n# Status: Approved\n" });
    assert_eq!(plane.call("PUT", "/v1/skills/s", &put).await.expect(200)["status"], "Draft");
    let promoted = plane.post("/v1/skills/s/status", &json!({ "status": "Approved" })).await;
    assert_eq!(class(&promoted, 403), "ApprovalRejectedError");
    plane.harness.admin("PUT", path, &json!({ "secured": false })).await.expect(200);
    assert_eq!(plane.call("PUT", "/v1/skills/s", &put).await.expect(200)["status"], "Approved");
    plane.finish().await;
}
