//! Agents in the admin API, and how several connectors and wake URLs are distinguished.

use serde_json::{Value, json};

use crate::harness::Source;
use crate::plane::Plane;

#[tokio::test]
async fn the_operator_lists_shows_messages_reads_and_deletes_agents() {
    let plane = Plane::open().await;
    plane.harness.add_gateway("gw-1").await;
    plane.put("alice", json!({ "agent_name": "Alice", "connectors": [{ "type": "noop" }] })).await.expect(200);
    let admin = async |method: &str, path: &str, body: Value| plane.harness.admin(method, path, &body).await;
    let listed = admin("GET", "/agents?tenant=home", Value::Null).await.expect(200);
    let of = |list: &Value, what: &str| -> Vec<Value> {
        list.as_array().unwrap().iter().map(|it| it[what].clone()).collect()
    };
    assert_eq!(of(&listed["agents"], "agent_id"), ["alice", "gw-1"]);
    assert_eq!(of(&listed["agents"], "kind"), ["agent", "instance"]);
    assert_eq!(listed["agents"][0]["connectors"], json!(["noop"]));
    assert_eq!(admin("GET", "/agents?tenant=nowhere", Value::Null).await.status, 404);
    let instances = admin("GET", "/instances", Value::Null).await.expect(200);
    assert_eq!(of(&instances["instances"], "kind"), ["instance"]);
    assert_eq!(of(&instances["agents"], "agent_id"), ["alice"]);

    let said = json!({ "tenant": "home", "text": "tea is ready", "from": "ann" });
    assert!(admin("POST", "/agents/alice/say", said).await.expect(200)["delivery_id"].is_string());
    let woken = json!({ "tenant": "home", "text": "now", "wake": true });
    assert_eq!(admin("POST", "/agents/alice/say", woken.clone()).await.expect(200)["woken"], false);
    assert_eq!(admin("POST", "/agents/nobody/say", woken).await.status, 404);
    let inbox = admin("GET", "/agents/alice/inbox?tenant=home", Value::Null).await.expect(200);
    assert_eq!(of(&inbox["messages"], "text"), ["tea is ready", "now"]);
    assert_eq!(inbox["messages"][0]["meta"]["origin"], json!({ "trigger_kind": "cli", "caller_agent_id": "ann" }));
    assert_eq!(inbox["newest"], inbox["messages"][1]["seq"]);
    let shown = admin("GET", "/agents/alice?tenant=home", Value::Null).await.expect(200);
    assert_eq!((&shown["agent_name"], &shown["newest"]), (&json!("Alice"), &inbox["newest"]));
    assert_eq!((&shown["status"], &shown["seen_at"]), (&json!("asleep"), &json!(0)), "the operator is not the agent");

    for path in ["/agents/alice", "/agents/alice/inbox", "/agents/alice/inbox?tenant=home&after=x"] {
        let response = admin("GET", path, Value::Null).await;
        assert_eq!((response.status, response.header("content-type")), (400, "application/problem+json"), "{path}");
    }
    let mail = admin("GET", "/instances/alice/mail", Value::Null).await;
    assert_eq!(mail.status, 404);
    assert!(mail.text().contains("frontdesk inbox alice --tenant home"), "{}", mail.text());
    assert_eq!(admin("DELETE", "/agents/alice?tenant=home", Value::Null).await.status, 204);
    assert_eq!(admin("DELETE", "/agents/alice?tenant=home", Value::Null).await.status, 404);
    assert_eq!(admin("GET", "/agents/alice?tenant=home", Value::Null).await.status, 404);
    assert_eq!(plane.harness.get("/admin/v1/agents", &plane.operator).await.status, 401);
    plane.finish().await;
}

#[tokio::test]
async fn two_webhooks_of_one_agent_are_distinguished() {
    let good = Source::open("application/json", b"{}").await;
    good.answer(100);
    let plane = Plane::open().await;
    let hook = |url: &str| json!({ "type": "webhook", "url": url, "timeout_ms": 2_000 });
    let names = async |hooks: Vec<Value>| -> Vec<String> {
        plane.put("alice", json!({ "connectors": hooks })).await.expect(200);
        let response = plane.notify(json!({ "agent": "alice", "message": "m", "origin": {} })).await.expect(200);
        let receipts = response["receipts"].as_array().unwrap().iter();
        receipts.map(|it| format!("{} {}", it["connector"].as_str().unwrap(), it["ok"])).collect()
    };
    assert_eq!(names(vec![hook(&good.url)]).await, ["inbox true", "webhook true"]);
    let refused = "http://127.0.0.1:1/";
    let two = vec![hook(&good.url), json!({ "type": "noop" }), hook(refused)];
    assert_eq!(names(two).await, ["inbox true", "webhook#1 true", "noop true", "webhook#2 false"]);
    let response = plane.wake("alice", json!({ "context": "up" })).await;
    assert!(response.text().contains("inbox"), "{}", response.text());
    let said = plane.harness.admin("GET", "/dispatches", &Value::Null).await.expect(200);
    let receipts = said["dispatches"][0]["receipts"].as_array().unwrap();
    assert!(receipts.iter().any(|it| it["connector"] == "webhook#2" && it["ok"] == false), "{said}");
    plane.finish().await;
}

#[tokio::test]
async fn the_doctor_names_an_agent_whose_wake_url_fails() {
    let plane = Plane::open().await;
    plane.put("alice", json!({ "wake_url": "http://127.0.0.1:1/wake" })).await.expect(200);
    let doctor = async || plane.harness.admin("GET", "/doctor", &Value::Null).await.expect(200);
    assert_eq!(doctor().await["ok"], true, "the wake URL was not called yet");
    plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "alice").unwrap().1.unwrap();
    let failed = async {
        while desk.delivery().wake_failure(no).is_none() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::TIME_LIMIT, failed).await.expect("the wake URL was not called");
    let response = doctor().await;
    let found = response["findings"].as_array().unwrap().iter().find(|it| it["check"] == "agent").cloned().unwrap();
    let text = found["text"].as_str().unwrap();
    assert_eq!((&response["ok"], &found["ok"]), (&json!(false), &json!(false)));
    assert!(text.starts_with("home/alice: a wake is pending, and the wake URL fails ("), "{text}");
    let shown = plane.harness.admin("GET", "/agents/alice?tenant=home", &Value::Null).await.expect(200);
    assert_eq!((&shown["wake_waits"], shown["wake_failure"].is_string()), (&json!(true), true));
    plane.inbox("alice").await; // the agent reads its inbox
    let settled = async {
        while desk.delivery().wake_failure(no).is_some() || desk.delivery().sockets().presence(no).idle {
            desk.agents().live().look_at_pokes();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::TIME_LIMIT, settled).await.expect("the wake stays pending");
    assert_eq!(doctor().await["ok"], true);
    plane.finish().await;
}
