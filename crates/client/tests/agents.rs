//! The client of the agents API against a scripted server: requests, and handling of responses.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_client::agents::{AgentsClient, InboxEvent};
use frontdesk_wire::Secret;
use frontdesk_wire::agents::{
    AgentConnector, AgentPut, AgentStatus, Class, ConnectorSpec, DataStore, DataWrite, DeliveryMeta, DeliveryPayload,
    Fault, NotifyPost, OneOrMany, Origin, QueryFilters, SkillFilter, SkillNote, SkillStatus, SkillStore, WakeOpts,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

struct Canned {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Canned {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Canned {
    /// Responds to one connection after the other, each with the next text.
    async fn open(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = asked.clone();
        let task = tokio::spawn(async move {
            let mut answers = answers.into_iter();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let question = question(&mut stream).await;
                notes.lock().unwrap().push(question);
                let answer = answers.next().expect("more requests than expected");
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self { url, asked, task }
    }

    fn client(&self) -> AgentsClient {
        AgentsClient::new(&format!("{}/", self.url), Secret::new("tok")).unwrap()
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Request line and body of the only request.
    fn only(&self) -> (String, Value) {
        let asked = self.asked();
        assert_eq!(asked.len(), 1);
        let (head, body) = asked[0].split_once("\r\n\r\n").unwrap();
        assert!(head.contains("\r\nauthorization: Bearer tok"), "{head}");
        (head.lines().next().unwrap().into(), serde_json::from_str(body).unwrap_or_default())
    }
}

async fn question(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |text| text.parse().unwrap()) {
            return text.into_owned();
        }
    }
}

fn answer(status: u16, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Makes one call; its request must be `line` and `body`, and the client gets the given response.
async fn one<T, F: AsyncFnOnce(&AgentsClient) -> T>(
    (status, said): (u16, Value),
    ask: F,
    line: &str,
    body: Value,
) -> T {
    let text = if said.is_null() { String::new() } else { said.to_string() };
    let desk = Canned::open(vec![answer(status, &text)]).await;
    let end = ask(&desk.client()).await;
    assert_eq!(desk.only(), (format!("{line} HTTP/1.1"), body), "{line}");
    end
}

fn payload() -> DeliveryPayload {
    let meta = DeliveryMeta { dispatch_id: "d".into(), sent_at: 1, ..DeliveryMeta::default() };
    DeliveryPayload::Augment { content: "hi".into(), meta }
}

fn payload_json() -> Value {
    json!({ "kind": "augment", "content": "hi", "meta": { "dispatch_id": "d", "sent_at": 1, "origin": {} } })
}

#[tokio::test]
async fn section_1_agents() {
    let said = json!({ "agents": [{ "agent_id": "a", "agent_name": "Ann" }] });
    let list = one((200, said), async |it| it.list_agents().await, "GET /v1/agents", Value::Null).await.unwrap();
    assert_eq!((list[0].agent_id.as_str(), list[0].agent_name.as_deref()), ("a", Some("Ann")));
    let put = AgentPut {
        agent_name: Some("Ann".into()),
        connectors: Some(vec![ConnectorSpec::Noop {}]),
        ..AgentPut::default()
    };
    let body = json!({ "agent_name": "Ann", "connectors": [{ "type": "noop" }] });
    let put = one((200, json!({})), async |it| it.put_agent("a/b", &put).await, "PUT /v1/agents/a%2Fb", body).await;
    put.unwrap();
    one((204, Value::Null), async |it| it.delete_agent("a").await, "DELETE /v1/agents/a", Value::Null).await.unwrap();
    let said = json!({ "agent_id": "a", "status": "asleep" });
    let status = one((200, said), async |it| it.agent_status("a").await, "GET /v1/agents/a/status", Value::Null).await;
    assert_eq!(status, Ok(AgentStatus::Asleep));
    one((200, Value::Null), async |it| it.health_check().await, "GET /v1/health", Value::Null).await.unwrap();
    let said = json!({ "delivered_at": 5, "delivery_id": "7", "warnings": ["w"] });
    let ask = async |it: &AgentsClient| it.deliver("alice@term-1", &payload()).await;
    let receipt = one((200, said), ask, "POST /v1/agents/alice%40term-1/deliver", payload_json()).await.unwrap();
    assert_eq!((receipt.delivered_at, receipt.delivery_skipped, receipt.warnings.len()), (5, false, 1));
    let opts = WakeOpts { context: Some("look".into()), session_id: Some("s".into()), ..WakeOpts::default() };
    let said = json!({ "woken_at": 5, "woken": false, "scheduled_for": 9 });
    let body = json!({ "context": "look", "session_id": "s" });
    let woken = one((200, said), async |it| it.wake("a", &opts).await, "POST /v1/agents/a/wake", body).await.unwrap();
    assert_eq!((woken.woken, woken.scheduled_for), (false, Some(9)));
}

#[tokio::test]
async fn section_1_exchange_notify_and_inbox() {
    let mut body = payload_json();
    body["timeout_ms"] = 50.into();
    let said = json!({ "correlation_id": "c", "content": "yes", "sent_at": 3, "agent_id": "a" });
    let ask = async |it: &AgentsClient| it.request_response("a", &payload(), 50).await;
    let reply = one((200, said), ask, "POST /v1/agents/a/exchange", body.clone()).await.unwrap();
    assert_eq!((reply.correlation_id.as_str(), reply.content.as_str()), ("c", "yes"));
    let said = json!({ "error": { "class": "TimeoutError", "message": "late", "timeout_ms": 50 } });
    let fault = one((504, said), ask, "POST /v1/agents/a/exchange", body).await.unwrap_err();
    assert_eq!((fault.class, fault.fields["timeout_ms"].as_u64()), (Class::TimeoutError, Some(50)));
    let body = json!({ "correlation_id": "c", "content": "yes" });
    let ask = async |it: &AgentsClient| it.reply("a", "c", "yes").await;
    one((200, json!({ "ok": true })), ask, "POST /v1/agents/a/replies", body.clone()).await.unwrap();
    let said = json!({ "error": { "class": "GoneError", "message": "nobody" } });
    assert_eq!(one((410, said), ask, "POST /v1/agents/a/replies", body).await.unwrap_err().class, Class::GoneError);
    let message = json!({ "seq": 8, "delivery_id": "8", "type": "wake", "text": "", "at": 1 });
    let said = json!({ "messages": [message] });
    let ask = async |it: &AgentsClient| it.inbox("a", Some(7)).await;
    let inbox = one((200, said), ask, "GET /v1/agents/a/inbox?after=7", Value::Null).await.unwrap();
    assert_eq!((inbox[0].seq, inbox[0].kind.as_str()), (8, "wake"));
    let post = NotifyPost {
        agent: "a@s".into(),
        message: "m".into(),
        event_type: None,
        correlation_id: None,
        origin: Origin::default(),
    };
    let body = json!({ "agent": "a@s", "message": "m", "origin": {} });
    let said = json!({ "dispatch_id": "d", "route": "wake", "receipts": [{ "connector": "inbox", "ok": true }] });
    let notified = one((200, said), async |it| it.notify(&post).await, "POST /v1/notify", body).await.unwrap();
    assert_eq!((notified.route.as_str(), notified.receipts.len()), ("wake", 1));
}

#[tokio::test]
async fn section_1_skills() {
    let meta = json!({ "name": "n", "version": "v", "content_hash": "h", "status": "Draft", "created_at": 1, "updated_at": 2 });
    let info = json!({ "name": "n", "version": "v", "content_hash": "h", "status": "Approved", "previous_status": "Draft", "changed_at": 3 });
    let source = json!({ "name": "n", "version": "v", "content_hash": "h", "source": "x\r\n", "metadata": meta });
    let ask = async |it: &AgentsClient| it.load("n", Some("a b")).await;
    let loaded = one((200, source), ask, "GET /v1/skills/n?version=a%20b", Value::Null).await.unwrap();
    assert_eq!((loaded.source.as_str(), loaded.metadata.status), ("x\r\n", SkillStatus::Draft));
    let said = json!({ "error": { "class": "SkillNotFoundError", "message": "no", "skill_name": "n" } });
    let fault =
        one((404, said), async |it| it.load("n", None).await, "GET /v1/skills/n", Value::Null).await.unwrap_err();
    assert_eq!(fault, Fault::new(Class::SkillNotFoundError, "no").with("skill_name", "n"));
    let ask = async |it: &AgentsClient| it.metadata("n").await;
    one((200, meta.clone()), ask, "GET /v1/skills/n/metadata", Value::Null).await.unwrap();
    let said = json!({ "versions": [info, info] });
    let all = one((200, said), async |it| it.versions("n").await, "GET /v1/skills/n/versions", Value::Null).await;
    assert_eq!(all.unwrap().len(), 2);
    let ask = async |it: &AgentsClient| it.store("n", "x\r\n", &SkillNote::default()).await;
    one((200, info.clone()), ask, "PUT /v1/skills/n", json!({ "source": "x\r\n" })).await.unwrap();
    let note = SkillNote { author: Some("me".into()), ..SkillNote::default() };
    let body = json!({ "source": "x", "metadata": { "author": "me" } });
    one((200, info.clone()), async |it| it.store("n", "x", &note).await, "PUT /v1/skills/n", body).await.unwrap();
    let ask = async |it: &AgentsClient| it.update_status("n", SkillStatus::Approved).await;
    let body = json!({ "status": "Approved" });
    let changed = one((200, info), ask, "POST /v1/skills/n/status", body).await.unwrap();
    assert_eq!(changed.previous_status, Some(SkillStatus::Draft));
    one((204, Value::Null), async |it| it.delete("n").await, "DELETE /v1/skills/n", Value::Null).await.unwrap();
    let filter =
        SkillFilter { status: Some(OneOrMany::One(SkillStatus::Draft)), limit: Some(2), ..SkillFilter::default() };
    let ask = async |it: &AgentsClient| SkillStore::query(it, &filter).await;
    let body = json!({ "status": "Draft", "limit": 2 });
    let said = json!({ "skills": [meta] });
    assert_eq!(one((200, said), ask, "POST /v1/skill-store/query", body).await.unwrap().len(), 1);
    let ask = async |it: &AgentsClient| it.version().await;
    let version = one((200, json!({ "version": "t" })), ask, "GET /v1/skill-store/version", Value::Null).await;
    assert_eq!(version.unwrap(), "t");
    let said = json!({ "capabilities_version": "1", "manifest": {} });
    let ask = async |it: &AgentsClient| SkillStore::manifest(it).await;
    one((200, said), ask, "GET /v1/skill-store/manifest", Value::Null).await.unwrap();
}

#[tokio::test]
async fn section_1_data_and_only_data_not_found_is_none() {
    let entry = DataWrite { content: "c".into(), ..DataWrite::default() };
    let said = json!({ "id": "i", "created_at": 4 });
    let ask = async |it: &AgentsClient| it.write(&entry).await;
    assert_eq!(one((201, said), ask, "POST /v1/data", json!({ "content": "c" })).await.unwrap().id, "i");
    let ask = async |it: &AgentsClient| DataStore::get(it, "i/1").await;
    let said = json!({ "id": "i/1", "summary": "s", "pinned": true });
    let found = one((200, said), ask, "GET /v1/data/i%2F1", Value::Null).await.unwrap().unwrap();
    assert_eq!((found.summary.as_str(), &found.curated["pinned"]), ("s", &json!(true)));
    let said = json!({ "error": { "class": "DataNotFound", "message": "no" } });
    assert_eq!(one((404, said), ask, "GET /v1/data/i%2F1", Value::Null).await, Ok(None));
    let said = json!({ "error": { "class": "NotFoundError", "message": "no" } });
    let other = one((404, said), ask, "GET /v1/data/i%2F1", Value::Null).await.unwrap_err();
    assert_eq!(other.class, Class::NotFoundError, "another 404 does not mean missing data");
    let filters = QueryFilters { query: "q".into(), limit: Some(1), ..QueryFilters::default() };
    let ask = async |it: &AgentsClient| DataStore::query(it, &filters).await;
    let body = json!({ "query": "q", "limit": 1 });
    let none = one((200, json!({ "items": [] })), ask, "POST /v1/data-store/query", body.clone()).await;
    assert_eq!(none.unwrap(), []);
    let said = json!({ "error": { "class": "UnsupportedFilterError", "message": "no", "unsupportedKeys": ["x"] } });
    let fault = one((400, said), ask, "POST /v1/data-store/query", body).await.unwrap_err();
    assert_eq!(fault.fields["unsupportedKeys"], json!(["x"]));
    let said = json!({ "capabilities_version": "1", "manifest": { "supported_modes": ["fts"] } });
    let ask = async |it: &AgentsClient| DataStore::manifest(it).await;
    one((200, said), ask, "GET /v1/data-store/manifest", Value::Null).await.unwrap();
}

#[tokio::test]
async fn a_capability_url_needs_no_header_and_is_in_no_fault() {
    let desk = Canned::open(vec![answer(200, "{\"agents\":[]}")]).await;
    let client = AgentsClient::by_capability(&format!("{}/k/hush/", desk.url)).unwrap();
    assert_eq!(client.list_agents().await.unwrap(), []);
    let asked = desk.asked().pop().unwrap();
    assert!(asked.starts_with("GET /k/hush/v1/agents HTTP/1.1") && !asked.contains("authorization"), "{asked}");
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = AgentsClient::by_capability(&format!("http://{unused}/k/hush")).unwrap();
    let fault = client.deliver("a", &payload()).await.unwrap_err();
    assert_eq!((fault.class, fault.fields["cause_kind"].as_str()), (Class::DeliveryFailedError, Some("network")));
    assert!(!fault.to_string().contains("hush"), "{fault}");
    assert_eq!(DataStore::get(&client, "a").await.unwrap_err().class, Class::UnavailableError);
    for bad in ["", ".", ".."] {
        assert_eq!(client.deliver(bad, &payload()).await.unwrap_err().class, Class::ValidationError);
        assert_eq!(client.store(bad, "x", &SkillNote::default()).await.unwrap_err().class, Class::ValidationError);
        assert_eq!(client.load(bad, None).await.unwrap_err().class, Class::SkillNotFoundError);
        assert_eq!(DataStore::get(&client, bad).await, Ok(None), "an invalid id is not found");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_an_invalid_response_is_a_fault() {
    let away = "HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:1/\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let desk = Canned::open(vec![away.into(), answer(200, "<html>")]).await;
    let fault = desk.client().list_agents().await.unwrap_err();
    assert_eq!(fault.fields["http_status"], 307);
    let fault = desk.client().deliver("a", &payload()).await.unwrap_err();
    assert_eq!(fault.fields["cause_kind"], "malformed_response");
}

fn message(seq: u64) -> String {
    let body = json!({ "seq": seq, "delivery_id": seq.to_string(), "type": "augment", "text": "t", "at": 1 });
    format!("id: {seq}\nevent: message\ndata: {body}\n\n")
}

#[tokio::test]
async fn rule_30_a_broken_stream_resumes_after_the_last_message() {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let ready = "event: ready\ndata: {}\n\n";
    let half = &message(6)[..20];
    let desk = Canned::open(vec![
        format!("{HEAD}{ready}{}{}{half}", message(4), message(5)),
        answer(503, ""),
        format!("{HEAD}{ready}: beat\n\nevent: later\ndata: x\n\n{}", message(6)),
        answer(401, r#"{"error":{"class":"UnauthorizedError","message":"revoked"}}"#),
    ])
    .await;
    let mut stream = desk.client().inbox_stream("a b", Some("s/1"), Some(3)).await.unwrap();
    let mut seen = Vec::new();
    let fault = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            match stream.next().await {
                Ok(InboxEvent::Ready) => seen.push(0),
                Ok(InboxEvent::Message(message)) => seen.push(message.seq),
                Err(fault) => return fault,
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(seen, [0, 4, 5, 0, 6], "each once, in order");
    assert_eq!((fault.class, stream.last_id()), (Class::UnauthorizedError, Some("6")));
    let asked = desk.asked();
    assert!(asked[0].starts_with("GET /v1/agents/a%20b/inbox/stream?session=s%2F1&after=3 HTTP/1.1"), "{}", asked[0]);
    for (n, id) in [(1, 5), (2, 5), (3, 6)] {
        assert!(asked[n].starts_with("GET /v1/agents/a%20b/inbox/stream?session=s%2F1 HTTP/1.1"), "{}", asked[n]);
        assert!(asked[n].contains(&format!("\r\nlast-event-id: {id}\r\n")), "{}", asked[n]);
    }
    assert!(asked[0].contains("\r\naccept: text/event-stream\r\n") && !asked[0].contains("last-event-id"));
}

#[tokio::test]
async fn a_refused_stream_fails_at_once() {
    let said = r#"{"error":{"class":"UnknownAgentError","message":"no","agent_id":"a"}}"#;
    let desk = Canned::open(vec![answer(404, said)]).await;
    let fault = desk.client().inbox_stream("a", None, None).await.err().unwrap();
    assert_eq!(fault.class, Class::UnknownAgentError);
}
