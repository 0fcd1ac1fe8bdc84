//! Rules 26, 27 and 36: the agents API as MCP tools, over plain HTTP with a minimal client.

use serde_json::{Value, json};

use crate::harness::Reply;
use crate::plane::{Plane, class};

const BOTH: &str = "application/json, text/event-stream";

/// A minimal client: it takes the last `data:` line as the answer.
struct Client<'a> {
    plane: &'a Plane,
    path: String,
    token: String,
    session: String,
    name: Option<&'static str>,
}

impl<'a> Client<'a> {
    /// Before initialize.
    fn new(plane: &'a Plane, token: &str) -> Self {
        Self { plane, path: "/mcp".into(), token: token.into(), session: String::new(), name: None }
    }

    async fn open(plane: &'a Plane) -> Self {
        let mut client = Self::new(plane, &plane.token);
        client.begin().await;
        client
    }

    /// Initializes and uses the session that it gets.
    async fn begin(&mut self) -> Value {
        let reply = self.initialize().await;
        reply.header("mcp-session-id").clone_into(&mut self.session);
        assert!(!self.session.is_empty(), "initialize gives a session");
        let response = answer(&reply);
        let done = self.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        assert_eq!((done.status, done.text().as_str()), (202, ""));
        response
    }

    async fn initialize(&self) -> Reply {
        let about = json!({ "name": "tests", "version": "1" });
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
        self.ask("initialize", &params).await
    }

    async fn post(&self, body: &Value) -> Reply {
        self.plane.harness.send(self.request("POST").json(body)).await
    }

    fn request(&self, method: &str) -> reqwest::RequestBuilder {
        let mut request = self.plane.harness.request(method, &self.path).header("accept", BOTH);
        if !self.token.is_empty() {
            request = request.bearer_auth(&self.token);
        }
        if !self.session.is_empty() {
            request = request.header("mcp-session-id", &self.session);
        }
        match self.name {
            Some(name) => request.header("x-agent-id", name),
            None => request,
        }
    }

    async fn ask(&self, method: &str, params: &Value) -> Reply {
        self.post(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })).await
    }

    async fn tool(&self, name: &str, arguments: Value) -> Value {
        answer(&self.ask("tools/call", &json!({ "name": name, "arguments": arguments })).await)
    }

    /// The result of a tool: one text, which is JSON.
    async fn call(&self, name: &str, arguments: Value) -> Value {
        let response = self.tool(name, arguments).await;
        let result = &response["result"];
        assert!(result["isError"].as_bool() != Some(true), "{response}");
        let content = result["content"].as_array().unwrap_or_else(|| panic!("no content in {response}"));
        assert_eq!((content.len(), &content[0]["type"]), (1, &json!("text")), "{response}");
        serde_json::from_str(content[0]["text"].as_str().unwrap()).unwrap()
    }

    /// The fault of a tool that must fail: the data of a JSON-RPC error.
    async fn fault(&self, name: &str, arguments: Value) -> Value {
        let response = self.tool(name, arguments).await;
        assert!(response.get("result").is_none(), "a failure is an error, not a result: {response}");
        let error = &response["error"];
        assert!(error["code"].as_i64().is_some_and(|code| code < 0), "{response}");
        let (class, text) = (error["data"]["class"].as_str().unwrap(), error["data"]["message"].as_str().unwrap());
        assert_eq!(error["message"], format!("{class}: {text}"));
        error["data"].clone()
    }
}

/// The JSON-RPC message of a stream: exactly one `data:` line, in the last frame.
#[track_caller]
fn answer(reply: &Reply) -> Value {
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"), "{}", reply.text());
    let text = reply.text();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("data:")).collect();
    assert_eq!(lines.len(), 1, "one data line: {text:?}");
    let last = text.trim_end().split("\n\n").last().unwrap();
    assert!(last.contains(lines[0]), "the answer is the last frame: {text:?}");
    assert!(text.ends_with("\n\n"), "the frame is complete: {text:?}");
    let response: Value = serde_json::from_str(lines[0].trim_start_matches("data:").trim()).unwrap();
    assert_eq!((&response["jsonrpc"], &response["id"]), (&json!("2.0"), &json!(7)), "{response}");
    response
}

#[tokio::test]
async fn rule_26_an_answer_is_one_data_line_of_a_stream() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut client = Client::new(&plane, &plane.token);
    let response = client.begin().await;
    assert_eq!(response["result"]["serverInfo"]["name"], "frontdesk");
    assert!(response["result"]["capabilities"]["tools"].is_object(), "{response}");
    assert_eq!(response["result"]["protocolVersion"], "2025-06-18");
    // Text with line breaks is still one line of the stream.
    let written = client.call("data_write", json!({ "content": "one\ntwo\r\n\n\ndata: three\u{2028}" })).await;
    let row = client.call("data_get", json!({ "id": written["id"] })).await;
    assert_eq!(row["detail"], "one\ntwo\r\n\n\ndata: three\u{2028}");
    // Errors of the protocol itself have the same form.
    let unknown = answer(&client.ask("no/such/method", &json!({})).await);
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_an_unknown_session_is_404_without_effect() {
    let plane = Plane::with_agents(&["alice"]).await;
    let theirs = Client::open(&plane).await.session;
    let again = plane.harness.token("home", "agents").await;
    for (token, session) in [(&plane.token, "nobodys"), (&plane.operator, theirs.as_str()), (&again, &theirs)] {
        let mut client = Client::new(&plane, token);
        client.session = session.into();
        let call = json!({ "name": "agent_deliver", "arguments": { "agent_id": "alice", "content": "psst" } });
        assert_eq!(class(&client.ask("tools/call", &call).await, 404), "NotFoundError");
        for method in ["GET", "DELETE"] {
            let reply = plane.harness.send(client.request(method)).await;
            assert_eq!(class(&reply, 404), "NotFoundError", "{method} in a foreign session");
        }
    }
    assert!(plane.inbox("alice").await.is_empty());
    // The owner can still use the session: no other token could end it.
    let mut client = Client::new(&plane, &plane.token);
    client.session = theirs;
    client.call("agent_deliver", json!({ "agent_id": "alice", "content": "hello" })).await;
    assert_eq!(plane.inbox("alice").await.len(), 1);
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_a_call_outside_a_session_has_no_effect() {
    let plane = Plane::with_agents(&["alice"]).await;
    let client = Client::new(&plane, &plane.token);
    let call = json!({ "name": "agent_deliver", "arguments": { "agent_id": "alice", "content": "psst" } });
    let reply = client.ask("tools/call", &call).await;
    assert!((400..500).contains(&reply.status), "{} {}", reply.status, reply.text());
    // Nor has one whose client does not accept the response type.
    let client = Client::open(&plane).await;
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call });
    let mut request = client.request("POST").json(&body).build().unwrap();
    request.headers_mut().insert("accept", "text/html".parse().unwrap());
    assert_eq!(plane.harness.client.execute(request).await.unwrap().status(), 406);
    assert!(plane.inbox("alice").await.is_empty());
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_a_session_lives_until_it_is_ended() {
    let plane = Plane::with_agents(&["alice"]).await;
    let client = Client::open(&plane).await;
    let other = Client::open(&plane).await;
    assert_ne!(client.session, other.session);
    for _ in 0..3 {
        client.call("agents_list", json!({})).await;
    }
    let ended = plane.harness.send(client.request("DELETE")).await;
    assert_eq!((ended.status, ended.text().as_str()), (204, ""));
    let call = json!({ "name": "agents_list", "arguments": {} });
    assert_eq!(class(&client.ask("tools/call", &call).await, 404), "NotFoundError");
    other.call("agents_list", json!({})).await;
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_a_revoked_token_ends_its_session() {
    let plane = Plane::with_agents(&["alice"]).await;
    let ask = json!({ "tenant": "home", "scope": "agents" });
    let made = plane.harness.admin("POST", "/tokens", &ask).await.expect(201);
    let mut client = Client::new(&plane, made["token"].as_str().unwrap());
    client.begin().await;
    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(plane.harness.admin("DELETE", &path, &Value::Null).await.status, 204);
    let call = json!({ "name": "agent_deliver", "arguments": { "agent_id": "alice", "content": "psst" } });
    assert_eq!(class(&client.ask("tools/call", &call).await, 401), "UnauthorizedError");
    assert!(plane.inbox("alice").await.is_empty());
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_a_failed_tool_is_an_error_with_its_class() {
    let plane = Plane::with_agents(&["alice"]).await;
    let client = Client::open(&plane).await;
    for (tool, arguments, class) in [
        ("agent_deliver", json!({ "agent_id": "nobody", "content": "x" }), "UnknownAgentError"),
        ("agent_deliver", json!({ "agent_id": "alice", "kind": "song", "content": "x" }), "UnsupportedKindError"),
        ("agent_deliver", json!({ "agent_id": "alice", "kind": "template", "content": "x" }), "ValidationError"),
        ("agent_deliver", json!({ "agent_id": "alice" }), "ValidationError"),
        ("agent_wake", json!({ "agent_id": "nobody" }), "UnknownAgentError"),
        ("agent_wake", json!({ "agent_id": "alice", "when": "tomorrow" }), "ValidationError"),
        ("agent_status", json!({ "agent_id": 5 }), "ValidationError"),
        ("skill_read", json!({ "name": "none" }), "SkillNotFoundError"),
        ("skill_read", json!({}), "ValidationError"),
        ("skill_write", json!({ "name": "../up", "source": "x" }), "ValidationError"),
        ("skill_list", json!({ "status": "Gone" }), "ValidationError"),
        ("data_read", json!({ "query": "x", "mode": "telepathy" }), "QueryError"),
        ("data_read", json!({ "query": "x", "shoe_size": 5 }), "UnsupportedFilterError"),
        ("data_write", json!({ "text": "x" }), "ValidationError"),
        ("no_such_tool", json!({}), "NotFoundError"),
        ("agent_register", json!({ "agent_id": "" }), "ValidationError"),
        ("agent_register", json!({ "agent_id": "carol", "wake_url": "ftp://x" }), "ValidationError"),
        ("agent_inbox", json!({ "agent_id": "nobody" }), "UnknownAgentError"),
        ("agent_inbox", json!({ "agent_id": "alice", "after": -1 }), "ValidationError"),
        ("agent_reply", json!({ "agent_id": "alice", "correlation_id": "c", "content": "x" }), "GoneError"),
        ("agent_reply", json!({ "agent_id": "alice", "content": "x" }), "ValidationError"),
        ("agent_exchange", json!({ "agent_id": "nobody", "content": "x" }), "UnknownAgentError"),
        ("agent_exchange", json!({ "agent_id": "alice", "content": "x", "timeout_ms": 0 }), "ValidationError"),
    ] {
        let fault = client.fault(tool, arguments.clone()).await;
        assert_eq!(fault["class"], class, "{tool} {arguments}");
    }
    assert!(plane.inbox("alice").await.is_empty());
    // The fields of a fault are included.
    let fault = client.fault("data_read", json!({ "query": "x", "shoe_size": 5 })).await;
    assert_eq!(fault["unsupportedKeys"], json!(["shoe_size"]));
    assert!(fault["supportedKeys"].as_array().unwrap().contains(&json!("domain_tags")));
    assert_eq!(client.fault("skill_read", json!({ "name": "none" })).await["skill_name"], "none");
    plane.finish().await;
}

#[tokio::test]
async fn rule_27_every_tool_has_a_schema_of_an_object() {
    let plane = Plane::open().await;
    let client = Client::open(&plane).await;
    let response = answer(&client.ask("tools/list", &json!({})).await);
    let tools = response["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for (name, arguments) in [
        ("agents_list", &[] as &[&str]),
        ("agent_deliver", &["agent_id", "kind", "content", "prompt", "event_type", "correlation_id"]),
        ("agent_wake", &["agent_id", "context", "when", "session_id"]),
        ("agent_status", &["agent_id"]),
        ("skill_read", &["name", "version"]),
        ("skill_write", &["name", "source", "overwrite"]),
        ("skill_list", &["status", "author", "if_none_match"]),
        ("data_read", &["query", "mode", "limit"]),
        ("data_get", &["id"]),
        ("data_write", &["content"]),
        ("agent_register", &["agent_id", "agent_name", "wake_url"]),
        ("agent_inbox", &["agent_id", "after"]),
        ("agent_reply", &["agent_id", "correlation_id", "content"]),
        ("agent_exchange", &["agent_id", "content", "timeout_ms", "correlation_id"]),
        ("cron_list", &[]),
    ] {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name} in {names:?}"));
        let schema = &tool["inputSchema"];
        assert_eq!(schema["type"], "object", "{name}");
        assert!(tool["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        let properties = schema["properties"].as_object().unwrap_or_else(|| panic!("{name}: {schema}"));
        assert!(arguments.iter().all(|it| properties.contains_key(*it)), "{name}: {schema}");
        let required = schema["required"].as_array().unwrap();
        assert!(required.iter().all(|it| properties.contains_key(it.as_str().unwrap())), "{name}: {schema}");
    }
    plane.finish().await;
}

#[tokio::test]
async fn invalid_messages_are_400_and_unknown_arguments_list_the_known_ones() {
    let plane = Plane::with_agents(&["alice"]).await;
    let client = Client::open(&plane).await;
    for body in ["{", "", "[]", "null", r#"{"hello":1}"#] {
        let request = client.request("POST").header("content-type", "application/json").body(body);
        assert_eq!(class(&plane.harness.send(request).await, 400), "ValidationError", "{body:?}");
    }
    let request = client.request("POST").header("content-type", "text/plain").body("{}");
    assert_eq!(plane.harness.send(request).await.status, 415);
    let error_text = async |tool: &str, arguments: Value| {
        let fault = client.fault(tool, arguments).await;
        assert!(fault["class"] == "ValidationError" || fault["class"] == "UnsupportedKindError", "{fault}");
        fault["message"].as_str().unwrap().to_owned()
    };
    for status in [json!("Gone"), json!(["Draft", "Gone"])] {
        let text = error_text("skill_list", json!({ "status": status })).await;
        assert!(["Draft", "Approved", "Disabled"].iter().all(|word| text.contains(word)), "{text}");
    }
    let kind = json!({ "agent_id": "alice", "kind": "song", "content": "x" });
    let text = error_text("agent_deliver", kind).await;
    assert!(text.contains("augment") && text.contains("template"), "{text}");
    for (tool, arguments, names) in [
        ("agent_deliver", json!({ "agent_id": "alice", "content": "x", "colour": 1 }), "\"colour\""),
        ("agent_wake", json!({ "agent_id": "alice", "message": "x" }), "\"message\""),
        ("skill_list", json!({ "states": ["Draft"] }), "\"states\""),
        ("agents_list", json!({ "tenant": "x" }), "\"tenant\""),
    ] {
        let text = error_text(tool, arguments).await;
        assert!(text.contains(names), "{text}");
    }
    assert!(plane.inbox("alice").await.is_empty());
    assert_eq!(client.call("skill_list", json!({ "status": [] })).await["skills"], json!([]));
    plane.finish().await;
}

#[tokio::test]
async fn an_agent_can_receive_ask_and_reply_with_tools_alone() {
    let plane = Plane::open().await;
    let (mut alice, mut bob) = (Client::open(&plane).await, Client::open(&plane).await);
    (alice.name, bob.name) = (Some("alice"), Some("bob"));
    let made = alice.call("agent_register", json!({ "agent_id": "alice", "agent_name": "Alice" })).await;
    assert_eq!((&made["agent_id"], &made["agent_name"]), (&json!("alice"), &json!("Alice")));
    bob.call("agent_register", json!({ "agent_id": "bob" })).await;
    let question = json!({ "agent_id": "alice", "content": "tea?", "timeout_ms": 20_000 });
    let answer = async {
        let message = loop {
            let page = alice.call("agent_inbox", json!({ "agent_id": "alice", "after": 0 })).await;
            if let Some(message) = page["messages"].as_array().unwrap().last() {
                assert_eq!(page["newest"], message["seq"]);
                break message.clone();
            }
        };
        assert_eq!((&message["text"], &message["meta"]["origin"]["caller_agent_id"]), (&json!("tea?"), &json!("bob")));
        let name = message["meta"]["correlation_id"].clone();
        let reply = json!({ "agent_id": "alice", "correlation_id": name, "content": "yes" });
        assert_eq!(alice.call("agent_reply", reply).await, json!({ "ok": true }));
        let page = alice.call("agent_inbox", json!({ "agent_id": "alice", "after": message["seq"] })).await;
        assert_eq!(page["messages"], json!([]));
    };
    let (response, ()) = tokio::join!(bob.call("agent_exchange", question), answer);
    assert_eq!((&response["content"], &response["agent_id"]), (&json!("yes"), &json!("alice")));
    plane.finish().await;
}

/// A call is completed and stored, whether the client disconnects or ends its session.
#[tokio::test]
async fn a_call_is_completed_after_its_client_is_gone() {
    let source = crate::harness::Source::open("application/json", b"{}").await;
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    let desk = plane.harness.app.desk.clone();
    for ends_session in [false, true] {
        let client = Client::open(&plane).await;
        let call = json!({ "name": "agent_deliver", "arguments": { "agent_id": "alice", "content": "hello" } });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call });
        let calling = tokio::spawn(client.request("POST").json(&body).send());
        source.asked().await;
        if ends_session {
            assert_eq!(plane.harness.send(client.request("DELETE")).await.status, 204);
        }
        calling.abort();
        let _ = calling.await;
        source.answer(1);
        let carried = async {
            while !desk.agents().live().in_flight().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::harness::TIME_LIMIT, carried).await.expect("the call is still in progress");
        let said = plane.harness.admin("GET", "/dispatches", &Value::Null).await.expect(200);
        let receipts = said["dispatches"][0]["receipts"].as_array().unwrap().clone();
        let webhook = receipts.iter().find(|it| it["connector"] == "webhook");
        assert!(webhook.is_some_and(|it| it["ok"] == true), "ends session: {ends_session}, {receipts:?}");
    }
    plane.finish().await;
}

#[tokio::test]
async fn a_bound_token_acts_as_its_agent_with_tools_too() {
    let plane = Plane::with_agents(&["alice", "bob"]).await;
    let mut client = Client::new(&plane, &crate::bound::bound(&plane, "alice").await);
    client.begin().await;
    client.call("agent_register", json!({ "agent_id": "alice" })).await;
    client.call("agent_deliver", json!({ "agent_id": "bob", "content": "hello" })).await;
    assert_eq!(plane.inbox("bob").await[0]["meta"]["origin"]["caller_agent_id"], "alice");
    assert_eq!(client.call("agent_inbox", json!({ "agent_id": "alice" })).await["messages"], json!([]));
    for (tool, arguments) in [
        ("agent_register", json!({ "agent_id": "bob" })),
        ("agent_inbox", json!({ "agent_id": "bob" })),
        ("agent_reply", json!({ "agent_id": "bob", "correlation_id": "c", "content": "x" })),
        ("data_write", json!({ "content": "x", "agent_id": "bob" })),
    ] {
        let fault = client.fault(tool, arguments).await;
        assert_eq!(fault["class"], "ForbiddenError", "{tool}");
        assert!(fault["message"].as_str().unwrap().contains("\"alice\""), "{fault}");
    }
    client.name = Some("bob");
    let call = json!({ "name": "agents_list", "arguments": {} });
    assert_eq!(class(&client.ask("tools/call", &call).await, 403), "ForbiddenError");
    plane.finish().await;
}

#[tokio::test]
async fn rule_36_the_server_fills_in_the_metadata_of_a_message() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut client = Client::open(&plane).await;
    client.name = Some("bob");
    let before = plane.harness.app.desk.env().now_ms();
    let extra = json!({ "agent_id": "alice", "kind": "augment", "content": "good morning", "event_type": "greeting",
        "correlation_id": "c-1" });
    let receipt = client.call("agent_deliver", extra).await;
    assert_eq!(receipt["delivery_skipped"], true, "{receipt}");
    assert!(receipt["delivered_at"].as_u64().unwrap() >= before);
    client.name = None;
    let template = json!({ "agent_id": "alice", "kind": "template", "prompt": "" });
    client.call("agent_deliver", template).await;
    let inbox = plane.inbox("alice").await;
    assert_eq!(inbox.len(), 2);
    assert_eq!((&inbox[0]["type"], &inbox[0]["text"]), (&json!("augment"), &json!("good morning")));
    assert_eq!(inbox[0]["delivery_id"], receipt["delivery_id"]);
    assert_eq!((&inbox[1]["type"], &inbox[1]["text"]), (&json!("template"), &json!("")));
    let (first, second) = (&inbox[0]["meta"], &inbox[1]["meta"]);
    assert_eq!(first["origin"], json!({ "trigger_kind": "agent", "caller_agent_id": "bob" }));
    assert_eq!(second["origin"], json!({ "trigger_kind": "agent" }), "no caller is invented");
    assert_eq!((&first["event_type"], &first["correlation_id"]), (&json!("greeting"), &json!("c-1")));
    assert!(second.get("event_type").is_none() && second.get("correlation_id").is_none(), "{second}");
    assert!(first["sent_at"].as_u64().unwrap() >= before);
    let id = first["dispatch_id"].as_str().unwrap();
    assert_eq!((id.len(), &id[14..15]), (36, "4"), "a UUID of version 4: {id}");
    assert_ne!(first["dispatch_id"], second["dispatch_id"]);
    plane.finish().await;
}

#[tokio::test]
async fn rule_36_agents_are_listed_woken_and_scheduled() {
    let plane = Plane::with_agents(&["alice"]).await;
    let client = Client::open(&plane).await;
    let listed = client.call("agents_list", json!({})).await;
    assert_eq!(listed["agents"][0]["agent_id"], "alice");
    let status = async |id: &str| client.call("agent_status", json!({ "agent_id": id })).await["status"].clone();
    assert_eq!((status("alice").await, status("nobody").await), (json!("asleep"), json!("unknown")));

    let away = client.call("agent_wake", json!({ "agent_id": "alice", "context": "up", "when": "immediate" })).await;
    assert_eq!(away["woken"], false);
    assert_eq!(plane.inbox("alice").await[0]["type"], "wake_degraded");
    let mut stream = plane.listen("alice", "?session=tab").await;
    let wake = json!({ "agent_id": "alice", "context": "now", "when": 5, "session_id": "tab" });
    let woken = client.call("agent_wake", wake).await;
    assert_eq!((&woken["woken"], &woken["session_id"]), (&json!(true), &json!("tab")));
    assert_eq!(stream.message().await["text"], "now");
    let nulls = json!({ "agent_id": "alice", "context": null, "when": null, "session_id": null });
    assert_eq!(client.call("agent_wake", nulls).await["woken"], true, "null counts as absent");
    assert_eq!(stream.message().await["text"], "");
    drop(stream);

    assert_eq!(client.call("cron_list", json!({})).await, json!({ "armed": [] }));
    let later = plane.harness.app.desk.env().now_ms() + 3_600_000;
    let planned = client.call("agent_wake", json!({ "agent_id": "alice", "context": "tea", "when": later })).await;
    assert_eq!((&planned["woken"], &planned["scheduled_for"]), (&json!(false), &json!(later)));
    let armed = client.call("cron_list", json!({})).await["armed"].as_array().unwrap().clone();
    assert_eq!((armed.len(), &armed[0]["agent_id"], &armed[0]["attempts"]), (1, &json!("alice"), &json!(0)));
    let at: jiff::Timestamp = armed[0]["fire_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(u64::try_from(at.as_millisecond()).unwrap(), later);
    plane.finish().await;
}

#[tokio::test]
async fn rule_36_skills_are_written_as_drafts() {
    let plane = Plane::open().await;
    let mut client = Client::open(&plane).await;
    client.name = Some("bob");
    let source = "# Skill: hello\n# Status: Approved\nemit \"hi\"\n";
    let made = client.call("skill_write", json!({ "name": "hello", "source": source })).await;
    assert_eq!(made["status"], "Draft", "the given status is ignored");
    let read = client.call("skill_read", json!({ "name": "hello" })).await;
    assert_eq!(read["source"], "# Skill: hello\n# Status: Draft\nemit \"hi\"\n");
    assert_eq!((&read["metadata"]["status"], &read["metadata"]["author"]), (&json!("Draft"), &json!("bob")));

    let fault = client.fault("skill_write", json!({ "name": "hello", "source": "# Skill: hello\n" })).await;
    assert_eq!((&fault["class"], &fault["skill_name"]), (&json!("StorageConflictError"), &json!("hello")));
    assert!(fault["reason"].is_string());
    let fault = client.fault("skill_write", json!({ "name": "hello", "source": "x", "overwrite": false })).await;
    assert_eq!(fault["class"], "StorageConflictError");
    assert_eq!(client.call("skill_read", json!({ "name": "hello" })).await, read, "it was left as it was");

    // A person approves it; a tool that overwrites it makes it a draft again.
    let status = json!({ "status": "Approved" });
    plane.post("/v1/skills/hello/status", &status).await.expect(200);
    let over = json!({ "name": "hello", "source": "# Skill: hello\n# Status: Approved\nnew\n", "overwrite": true });
    assert_eq!(client.call("skill_write", over).await["status"], "Draft");
    let old = client.call("skill_read", json!({ "name": "hello", "version": read["version"] })).await;
    assert_eq!(old["source"], read["source"]);
    let fault = client.fault("skill_read", json!({ "name": "hello", "version": "000000000000" })).await;
    assert_eq!(fault["class"], "VersionNotFoundError");
    plane.finish().await;
}

#[tokio::test]
async fn rule_36_a_skill_list_tells_whether_it_changed() {
    let plane = Plane::open().await;
    let mut client = Client::open(&plane).await;
    for (name, author) in [("one", "bob"), ("two", "eve")] {
        client.name = Some(author);
        client.call("skill_write", json!({ "name": name, "source": format!("# Skill: {name}\n") })).await;
    }
    plane.post("/v1/skills/two/status", &json!({ "status": "Approved" })).await.expect(200);
    let listed = client.call("skill_list", json!({})).await;
    let names = |listed: &Value| -> Vec<String> {
        listed["skills"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&listed), ["one", "two"]);
    assert_eq!(names(&client.call("skill_list", json!({ "status": "Approved" })).await), ["two"]);
    assert_eq!(names(&client.call("skill_list", json!({ "author": "bob" })).await), ["one"]);
    let version = listed["catalog_version"].clone();
    let same = client.call("skill_list", json!({ "if_none_match": version })).await;
    assert_eq!(same, json!({ "not_modified": true, "catalog_version": version }));
    let over = json!({ "name": "one", "source": "# Skill: one\nmore\n", "overwrite": true });
    client.call("skill_write", over).await;
    let moved = client.call("skill_list", json!({ "if_none_match": version })).await;
    assert_eq!(names(&moved), ["one", "two"]);
    assert_ne!(moved["catalog_version"], version);
    plane.finish().await;
}

#[tokio::test]
async fn rule_36_data_is_written_read_and_filtered() {
    let plane = Plane::open().await;
    let client = Client::open(&plane).await;
    let mut ids = Vec::new();
    for (content, tag) in [("the café opens at nine", "place"), ("the bank opens at ten", "money")] {
        let written = client.call("data_write", json!({ "content": content, "tags": [tag] })).await;
        assert!(written["created_at"].as_u64().is_some_and(|at| at < 100_000_000_000), "seconds: {written}");
        ids.push(written["id"].clone());
    }
    let found = async |arguments: Value| -> Vec<Value> {
        let response = client.call("data_read", arguments).await;
        response["items"].as_array().unwrap().iter().map(|it| it["id"].clone()).collect()
    };
    assert_eq!(found(json!({ "query": "CAFE nine", "mode": "fts", "limit": 5 })).await, [ids[0].clone()]);
    assert_eq!(found(json!({ "query": "opens", "limit": 1 })).await.len(), 1);
    assert_eq!(found(json!({ "query": "opens", "domain_tags": ["money"] })).await, [ids[1].clone()]);
    assert_eq!(found(json!({ "query": "bicycle" })).await, [] as [Value; 0]);
    let open = json!({ "query": "opens", "shoe_size": 5, "permissive_filters": true });
    assert_eq!(found(open).await.len(), 2);
    assert_eq!(client.call("data_get", json!({ "id": "none" })).await, Value::Null);
    assert_eq!(client.call("data_get", json!({ "id": ids[1] })).await["detail"], "the bank opens at ten");
    plane.finish().await;
}

/// Dropping a filter would return rows that the caller excluded.
#[tokio::test]
async fn rule_25_a_null_filter_is_refused_and_not_dropped() {
    let plane = Plane::open().await;
    let client = Client::open(&plane).await;
    for vault in ["mine", "theirs"] {
        let row = json!({ "content": "the tea is ready", "metadata": { "vault": vault } });
        client.call("data_write", row).await;
    }
    for (filter, class) in [("vault", "ValidationError"), ("shoe_size", "UnsupportedFilterError")] {
        let asked = json!({ "query": "tea", filter: null });
        assert_eq!(client.fault("data_read", asked.clone()).await["class"], class, "{filter}");
        let response = plane.post("/v1/data-store/query", &asked).await.expect(400);
        assert_eq!(response["error"]["class"], class, "the same with the REST API");
    }
    let nulls = json!({ "query": "tea", "mode": null, "limit": null, "permissive_filters": null, "vault": "mine" });
    assert_eq!(client.call("data_read", nulls).await["items"].as_array().map(Vec::len), Some(1));
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_a_capability_url_needs_no_header() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut client = Client::new(&plane, "");
    client.path = format!("/k/{}/mcp", plane.token);
    client.begin().await;
    let listed = client.call("agents_list", json!({})).await;
    assert_eq!(listed["agents"][0]["agent_id"], "alice");
    // The session belongs to the token, however that is sent.
    let mut plain = Client::new(&plane, &plane.token);
    plain.session = client.session;
    plain.call("agents_list", json!({})).await;
    let mut wrong = Client::new(&plane, &plane.operator);
    wrong.path = client.path;
    assert_eq!(class(&wrong.initialize().await, 400), "ValidationError", "two tokens that differ");
    plane.finish().await;
}

#[tokio::test]
async fn rule_26_a_token_is_required() {
    let plane = Plane::open().await;
    let chat = plane.harness.token("home", "chat").await;
    for (path, token) in [("/mcp", ""), ("/mcp", "wrong"), ("/mcp", chat.as_str()), ("/k/wrong/mcp", "")] {
        let mut client = Client::new(&plane, token);
        client.path = path.into();
        assert_eq!(class(&client.initialize().await, 401), "UnauthorizedError", "{path}");
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_29_tools_see_only_their_own_tenant() {
    let plane = Plane::with_agents(&["alice"]).await;
    plane.harness.admin("POST", "/tenants", &json!({ "name": "next-door" })).await.expect(201);
    let other = plane.harness.token("next-door", "agents").await;
    let mine = Client::open(&plane).await;
    let row = mine.call("data_write", json!({ "content": "ours" })).await;
    mine.call("skill_write", json!({ "name": "ours", "source": "# Skill: ours\n" })).await;
    let mut theirs = Client::new(&plane, &other);
    theirs.begin().await;
    assert_eq!(theirs.call("agents_list", json!({})).await, json!({ "agents": [] }));
    assert_eq!(theirs.call("data_get", json!({ "id": row["id"] })).await, Value::Null);
    assert_eq!(theirs.call("data_read", json!({ "query": "ours" })).await, json!({ "items": [] }));
    assert_eq!(theirs.fault("skill_read", json!({ "name": "ours" })).await["class"], "SkillNotFoundError");
    let deliver = json!({ "agent_id": "alice", "content": "psst" });
    assert_eq!(theirs.fault("agent_deliver", deliver).await["class"], "UnknownAgentError");
    assert!(plane.inbox("alice").await.is_empty());
    plane.finish().await;
}
