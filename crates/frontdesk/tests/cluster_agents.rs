//! Agents at several servers over one Postgres: questions and answers, and connectors on one server's machine.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use process::cluster::{BusKind, Cluster, SOON};
use process::{Desk, TENANT, until};
use reqwest::Method;
use serde_json::{Value, json};

async fn ask(desk: &Desk, method: Method, path: &str, token: &str, body: Value) -> (u16, Value) {
    desk.api.answer(method, path, token, Some(&body)).await
}

/// A token of a scope, which both servers know.
async fn token(cluster: &Cluster, scope: &str) -> String {
    let body = json!({ "tenant": TENANT, "scope": scope });
    let (one, other) = (&cluster.desks[0], &cluster.desks[1]);
    let (status, made) = ask(one, Method::POST, "/admin/v1/tokens", &one.api.admin, body).await;
    assert_eq!(status, 201, "{made}");
    let token = made["token"].as_str().unwrap().to_owned();
    let knows = async || (other.api.ask(Method::GET, "/v1/agents", &token, None).await.unwrap().0 == 200).then_some(());
    until("the other server knows the token", SOON, knows).await;
    token
}

async fn register(cluster: &Cluster, id: &str, token: &str, put: Value) -> (u16, Value) {
    let (one, other) = (&cluster.desks[0], &cluster.desks[1]);
    let path = format!("/v1/agents/{id}");
    let answer = ask(one, Method::PUT, &path, token, put).await;
    if answer.0 == 200 {
        let knows = async || (other.api.ask(Method::GET, &path, token, None).await.unwrap().0 == 200).then_some(());
        until("the other server knows the agent", SOON, knows).await;
    }
    answer
}

fn message(id: &str, text: &str, correlation_id: Option<&str>) -> Value {
    let meta = json!({
        "dispatch_id": id, "sent_at": 1, "origin": { "caller_agent_id": "bob" }, "correlation_id": correlation_id
    });
    json!({ "kind": "augment", "content": text, "meta": meta })
}

async fn a_question_at_one_server_is_answered_at_another(bus: BusKind) {
    let cluster = Cluster::start_over(bus, &["desk-a", "desk-b"], &[]).await;
    let token = token(&cluster, "agents").await;
    for id in ["alice", "bob"] {
        assert_eq!(register(&cluster, id, &token, json!({})).await.0, 200);
    }
    let (one, other) = (&cluster.desks[0], &cluster.desks[1]);
    let mut body = message("d-1", "when?", Some("c-1"));
    body["timeout_ms"] = json!(30_000);
    let asking = ask(one, Method::POST, "/v1/agents/alice/exchange", &token, body);
    let answering = async {
        let asked = async || {
            let (_, inbox) = other.api.answer(Method::GET, "/v1/agents/alice/inbox", &token, None).await;
            (inbox["messages"].as_array()?.len() == 1).then_some(())
        };
        until("the question is in the inbox", SOON, asked).await;
        let reply = json!({ "correlation_id": "c-1", "content": "at noon" });
        let (status, response) = ask(other, Method::POST, "/v1/agents/alice/replies", &token, reply).await;
        assert_eq!((status, &response["delivered_to"]), (200, &Value::Null), "the asker gets it: {response}");
        let reply = json!({ "correlation_id": "c-1", "content": "at one" });
        let (status, _) = ask(other, Method::POST, "/v1/agents/alice/replies", &token, reply).await;
        assert_eq!(status, 410, "one reply");
    };
    let ((status, answer), ()) = tokio::join!(asking, answering);
    assert_eq!((status, &answer["content"]), (200, &json!("at noon")), "{answer}\n{}", cluster.logs());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_over_notify() {
    a_question_at_one_server_is_answered_at_another(BusKind::Notify).await;
}

/// By sweeps alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_without_a_bus() {
    a_question_at_one_server_is_answered_at_another(BusKind::RedisCut).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connector_acts_on_the_machine_of_the_server_that_it_names() {
    let files = tempfile::tempdir().unwrap();
    let base = files.path().to_str().unwrap();
    let cluster = Cluster::start(&["desk-a", "desk-b"], &[("AGENTS_FILE_BASE", base)]).await;
    let token = token(&cluster, "operator").await;
    let (status, refused) =
        register(&cluster, "alice", &token, json!({ "connectors": [{ "type": "file", "dir": "alice" }] })).await;
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && text.contains(r#""desk": "desk-a""#), "{refused}");
    let put = json!({ "connectors": [{ "type": "file", "dir": "alice", "desk": "desk-b" }] });
    assert_eq!(register(&cluster, "alice", &token, put).await.0, 200);
    let body = message("d-1", "hello", None);
    let (status, receipt) =
        ask(&cluster.desks[0], Method::POST, "/v1/agents/alice/deliver", &token, body.clone()).await;
    assert_eq!((status, &receipt["delivery_skipped"]), (200, &json!(true)), "nothing has happened yet: {receipt}");
    let warned = receipt["warnings"].to_string();
    assert!(warned.contains("handed to the server") && warned.contains("desk-b"), "{receipt}");
    let written = || {
        let files = std::fs::read_dir(files.path().join("alice")).into_iter().flatten();
        files
            .filter(|file| file.as_ref().is_ok_and(|file| !file.file_name().to_string_lossy().starts_with('.')))
            .count()
    };
    until("the file is there", SOON, async || (written() == 1).then_some(())).await;
    // A repetition shows the receipt of the other server.
    let repeated = async || {
        let (_, receipt) = ask(&cluster.desks[0], Method::POST, "/v1/agents/alice/deliver", &token, body.clone()).await;
        receipt["delivery_skipped"].is_null().then_some(())
    };
    until("the receipt follows", SOON, repeated).await;
    assert_eq!(written(), 1, "once");
}
