//! A server with tokens for the agents API, and requests with them.

use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk::config::Config;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::harness::{Harness, Reply, TIME_LIMIT};

pub(crate) struct Plane {
    pub(crate) harness: Harness,
    /// Token of scope agents, in the first tenant.
    pub(crate) token: String,
    /// Token of scope operator, in the first tenant.
    pub(crate) operator: String,
    dispatches: AtomicU64,
}

impl Plane {
    pub(crate) async fn open() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        Self::of(Harness::with(change).await).await
    }

    pub(crate) async fn of(harness: Harness) -> Self {
        let token = harness.token("home", "agents").await;
        let operator = harness.token("home", "operator").await;
        Self { harness, token, operator, dispatches: AtomicU64::new(0) }
    }

    /// A server with these agents registered.
    pub(crate) async fn with_agents(ids: &[&str]) -> Self {
        let plane = Self::open().await;
        for id in ids {
            plane.register(id).await;
        }
        plane
    }

    pub(crate) async fn finish(self) {
        self.harness.finish().await;
    }

    /// Restarts the server in the same folder; tokens stay valid.
    pub(crate) async fn again(self) -> Self {
        let Self { harness, token, operator, dispatches } = self;
        let harness = Harness::again(harness.finish().await, |_| {}).await;
        Self { harness, token, operator, dispatches }
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.harness.call(method, path, &self.token, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, &Value::Null).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.call("POST", path, body).await
    }

    pub(crate) async fn register(&self, id: &str) {
        self.put(id, json!({})).await.expect(200);
    }

    pub(crate) async fn put(&self, id: &str, body: Value) -> Reply {
        self.call("PUT", &format!("/v1/agents/{}", encoded(id)), &body).await
    }

    /// Metadata with a new dispatch id.
    pub(crate) fn meta(&self) -> Value {
        let number = self.dispatches.fetch_add(1, Ordering::Relaxed);
        let origin = json!({ "skill_name": "teller", "trigger_kind": "agent", "caller_agent_id": "bob" });
        json!({ "dispatch_id": format!("d-{number}"), "sent_at": 1_700_000_000_000_u64, "origin": origin })
    }

    pub(crate) fn augment(&self, content: &str) -> Value {
        json!({ "kind": "augment", "content": content, "meta": self.meta() })
    }

    pub(crate) async fn deliver(&self, address: &str, body: &Value) -> Reply {
        self.post(&format!("/v1/agents/{}/deliver", encoded(address)), body).await
    }

    pub(crate) async fn wake(&self, address: &str, body: Value) -> Reply {
        self.post(&format!("/v1/agents/{}/wake", encoded(address)), &body).await
    }

    pub(crate) async fn notify(&self, body: Value) -> Reply {
        self.post("/v1/notify", &body).await
    }

    pub(crate) async fn inbox(&self, id: &str) -> Vec<Value> {
        // Page by page, because large messages fill a page quickly.
        let (mut all, mut after): (Vec<Value>, u64) = (Vec::new(), 0);
        loop {
            let page = self.get(&format!("/v1/agents/{}/inbox?after={after}", encoded(id))).await.expect(200);
            let messages = page["messages"].as_array().unwrap();
            let Some(last) = messages.last() else { return all };
            after = last["seq"].as_u64().unwrap();
            all.extend_from_slice(messages);
        }
    }

    pub(crate) async fn status(&self, id: &str) -> String {
        let state = self.get(&format!("/v1/agents/{}/status", encoded(id))).await.expect(200);
        state["status"].as_str().unwrap().to_owned()
    }

    /// Opens a stream of an agent's inbox and reads its `ready`.
    pub(crate) async fn listen(&self, id: &str, query: &str) -> Listener {
        let path = format!("/v1/agents/{}/inbox/stream{query}", encoded(id));
        let response = self.harness.open_stream(&path, &self.token).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut listener = Listener { response, text: String::new() };
        assert_eq!(listener.next().await.unwrap().name, "ready");
        listener
    }
}

/// The class of a refusal. The form is checked, too.
#[track_caller]
pub(crate) fn class(reply: &Reply, status: u16) -> String {
    let response = reply.expect(status);
    assert_eq!(response.as_object().map(serde_json::Map::len), Some(1), "{response}");
    assert!(response["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{response}");
    response["error"]["class"].as_str().unwrap_or_else(|| panic!("no class in {response}")).to_owned()
}

/// One path segment, encoded once.
pub(crate) fn encoded(segment: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    segment.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: Value,
}

pub(crate) struct Listener {
    response: reqwest::Response,
    text: String,
}

impl Listener {
    /// The next event; `None`: the stream ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(event) = read(&block) {
                    return Some(event);
                }
                continue; // a keep-alive comment
            }
            let chunk = timeout(TIME_LIMIT, self.response.chunk()).await.expect("no event came").ok().flatten()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The next event, which must be a message.
    pub(crate) async fn message(&mut self) -> Value {
        let event = self.next().await.expect("the stream ended");
        assert_eq!(event.name, "message");
        assert_eq!(event.id, event.data["seq"].to_string());
        event.data
    }
}

fn read(block: &str) -> Option<Event> {
    let mut event = Event::default();
    for line in block.lines() {
        match line.split_once(':').map(|(name, value)| (name, value.trim_start())) {
            Some(("id", value)) => event.id = value.into(),
            Some(("event", value)) => event.name = value.into(),
            Some(("data", value)) => event.data = serde_json::from_str(value).unwrap(),
            _ => {}
        }
    }
    (!event.name.is_empty()).then_some(event)
}
