//! `kill -9` at random points during a thousand mixed writes of the agents API: every write with a 2xx response is
//! stored once and complete, no refused one is stored, and one without response is stored once or not at all.
//!
//! And SIGTERM while calls wait for the answer of an agent: they are refused with a reason, and what they asked stays.
//!
//! `CRASH_SEED` changes the points.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test compares with the system clock, as a client does")]

mod process;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::port::alarms::Alarms as _;
use frontdesk_core::port::store::Directory as _;
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_wire::InstanceNo;
use process::{Api, Desk, Dice, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const SEED: u64 = 20_261_115;
const WRITES: u64 = 1_000;
const WRITERS: u64 = 8;
const KILLS: u64 = 12;
/// Time of scheduled wakes, after the end of this test.
const FAR_MS: u64 = 4_000_000_000_000;
/// Guaranteed time limit of a stop.
const STOP_TIME: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    /// For an agent with an inbox, and for one that is an instance.
    InboxMessage,
    Row,
    Wake,
    Plan,
    Skill,
    Status,
    Data,
    /// Must be refused.
    Song,
    Nobody,
    BadName,
}

const KINDS: [Kind; 10] = [
    Kind::InboxMessage,
    Kind::Row,
    Kind::Wake,
    Kind::Plan,
    Kind::Skill,
    Kind::Status,
    Kind::Data,
    Kind::Song,
    Kind::Nobody,
    Kind::BadName,
];

/// The result of a write.
#[derive(Debug, Clone)]
enum End {
    Done(Value),
    Refused(u16),
    /// The connection was lost, so the result is unknown.
    Unknown,
}

struct Run {
    api: Api,
    token: String,
    up: watch::Receiver<bool>,
    next: AtomicU64,
    ends: Mutex<HashMap<u64, (Kind, End)>>,
}

impl Run {
    async fn ask(&self, method: Method, path: &str, body: &Value) -> End {
        match self.api.ask(method, path, &self.token, Some(body)).await {
            Ok((status, body)) if (200..300).contains(&status) => End::Done(body),
            Ok((status, _)) => End::Refused(status),
            Err(_) => End::Unknown,
        }
    }

    async fn write(&self, number: u64, kind: Kind) -> End {
        let text = format!("message {number}");
        let meta = json!({ "dispatch_id": format!("d-{number}"), "sent_at": 1, "origin": { "skill_name": "s" } });
        let augment = json!({ "kind": "augment", "content": text, "meta": meta });
        let post = |path: &'static str, body: Value| async move { self.ask(Method::POST, path, &body).await };
        match kind {
            Kind::InboxMessage | Kind::Row => {
                let path = if kind == Kind::Row { "/v1/agents/bob/deliver" } else { "/v1/agents/alice/deliver" };
                match post(path, augment.clone()).await {
                    End::Unknown => {
                        // Like a client: repeats the same dispatch until it is answered.
                        self.wait_until_up().await;
                        post(path, augment).await
                    }
                    end => end,
                }
            }
            Kind::Wake => post("/v1/agents/alice/wake", json!({ "context": text })).await,
            Kind::Plan => post("/v1/agents/alice/wake", json!({ "context": text, "when": FAR_MS + number })).await,
            Kind::Skill => {
                let put = json!({ "source": format!("# Skill: s{number}\n# Status: Draft\n{text}\n") });
                self.ask(Method::PUT, &format!("/v1/skills/s{number}"), &put).await
            }
            Kind::Status => {
                let status = if number.is_multiple_of(2) { "Approved" } else { "Disabled" };
                post("/v1/skills/shared/status", json!({ "status": status })).await
            }
            Kind::Data => post("/v1/data", json!({ "content": text })).await,
            Kind::Song => {
                post("/v1/agents/alice/deliver", json!({ "kind": "song", "content": text, "meta": meta })).await
            }
            Kind::Nobody => post("/v1/agents/nobody/deliver", augment).await,
            Kind::BadName => self.ask(Method::PUT, "/v1/skills/.hidden", &json!({ "source": text })).await,
        }
    }

    async fn wait_until_up(&self) {
        let _ = self.up.clone().wait_for(|up| *up).await; // closed at the end of the test
    }

    async fn look(&self, path: &str) -> Option<Value> {
        let (status, body) = self.api.ask(Method::GET, path, &self.token, None).await.unwrap();
        (status == 200).then_some(body)
    }

    /// All messages of an inbox, page by page.
    async fn inbox(&self, agent: &str) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        loop {
            let after = all.last().map_or(0, |it| it["seq"].as_u64().unwrap());
            let page = self.look(&format!("/v1/agents/{agent}/inbox?after={after}")).await.unwrap();
            let page = page["messages"].as_array().unwrap().clone();
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answered_writes_are_stored_and_nothing_else() {
    let seed = std::env::var("CRASH_SEED").ok().and_then(|it| it.parse().ok()).unwrap_or(SEED);
    let mut dice = Dice::new(seed);
    let mut desk = Desk::start(&[("AGENTS_RATE_PER_S", "0")]).await;
    let api = desk.api.apart();
    let make = json!({ "tenant": process::TENANT, "scope": "agents" });
    let (_, made) = api.ask(Method::POST, "/admin/v1/tokens", &api.admin, Some(&make)).await.unwrap();
    let (tell, up) = watch::channel(true);
    let token = made["token"].as_str().unwrap().to_owned();
    let run = Arc::new(Run { api, token, up, next: AtomicU64::new(0), ends: Mutex::default() });
    run.api.add_gateway("bob", None).await;
    assert!(matches!(run.ask(Method::PUT, "/v1/agents/alice", &json!({})).await, End::Done(_)));
    let shared = json!({ "source": "# Skill: shared\n# Status: Draft\n" });
    assert!(matches!(run.ask(Method::PUT, "/v1/skills/shared", &shared).await, End::Done(_)));

    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (run, mut dice) = (run.clone(), Dice::new(seed + 1 + writer));
        writers.spawn(async move {
            loop {
                let number = run.next.fetch_add(1, Ordering::SeqCst);
                if number >= WRITES {
                    return;
                }
                run.wait_until_up().await;
                let kind = KINDS[usize::try_from(number).unwrap() % KINDS.len()];
                let end = run.write(number, kind).await;
                run.ends.lock().unwrap().insert(number, (kind, end));
                sleep(dice.millis(0, 8)).await; // spreads the writes over all kills
            }
        });
    }
    for kill in 1..=KILLS {
        // Depends on progress, not on time, so that each kill hits another part of the writes.
        let due = WRITES * kill / (KILLS + 1) + dice.below(20);
        while run.next.load(Ordering::SeqCst) < due {
            sleep(dice.millis(1, 4)).await;
        }
        tell.send(false).unwrap();
        desk.kill().await;
        desk.start_again().await;
        tell.send(true).unwrap();
    }
    while writers.join_next().await.transpose().unwrap().is_some() {}
    desk.kill().await;
    desk.start_again().await;
    check(&run, seed).await;
    desk.signal("TERM");
    assert!(desk.ended(Duration::from_secs(15)).await.is_some_and(|status| status.success()), "{}", desk.log());
    check_plans(&run, desk.folder()).await;
}

async fn check(run: &Run, seed: u64) {
    let ends = run.ends.lock().unwrap().clone();
    assert_eq!(ends.len() as u64, WRITES, "seed {seed}");
    let count = |which: fn(&End) -> bool| ends.values().filter(|(_, end)| which(end)).count();
    let (done, unknown) = (count(|it| matches!(it, End::Done(_))), count(|it| matches!(it, End::Unknown)));
    let alice = run.inbox("alice").await;
    let bob = run.inbox("bob").await;
    let times = |inbox: &[Value], text: &str| inbox.iter().filter(|it| it["text"] == text).count();
    for (number, (kind, end)) in &ends {
        let text = format!("message {number}");
        let (name, inbox) =
            (format!("{kind:?} {number} {end:?}, seed {seed}"), if *kind == Kind::Row { &bob } else { &alice });
        match (kind, end) {
            (Kind::InboxMessage | Kind::Row, End::Done(receipt)) => {
                assert_eq!(times(inbox, &text), 1, "{name}");
                assert!(
                    inbox.iter().any(|it| it["delivery_id"] == receipt["delivery_id"] && it["text"] == text),
                    "{name}"
                );
            }
            (Kind::Wake, End::Done(_)) => assert_eq!(times(inbox, &text), 1, "{name}"),
            (Kind::InboxMessage | Kind::Row | Kind::Wake, End::Unknown) => assert!(times(inbox, &text) <= 1, "{name}"),
            (Kind::Skill, End::Done(version)) => {
                let found = run.look(&format!("/v1/skills/s{number}")).await.unwrap_or_else(|| panic!("{name}"));
                assert_eq!(found["content_hash"], version["content_hash"], "{name}");
                assert!(found["source"].as_str().unwrap().contains(&text), "{name}");
            }
            (Kind::Status, End::Done(version)) => {
                let old = version["version"].as_str().unwrap();
                let found = run.look(&format!("/v1/skills/shared?version={old}")).await;
                assert_eq!(
                    found.unwrap_or_else(|| panic!("{name}"))["content_hash"],
                    version["content_hash"],
                    "{name}"
                );
            }
            (Kind::Data, End::Done(row)) => {
                let found = run.look(&format!("/v1/data/{}", row["id"].as_str().unwrap())).await;
                assert_eq!(found.unwrap_or_else(|| panic!("{name}"))["detail"], text, "{name}");
            }
            (Kind::Song | Kind::Nobody | Kind::BadName, End::Done(_)) => panic!("{name} should be refused"),
            (Kind::Song | Kind::Nobody | Kind::BadName, _) => {
                assert_eq!(times(&alice, &text) + times(&bob, &text), 0, "{name}");
            }
            (Kind::Plan, _) | (_, End::Unknown) => {}
            (_, End::Refused(status)) => panic!("{name} was refused with {status}"),
        }
    }
    // The history agrees with the responses: as many versions as changes, and the last one is current.
    let answered = ends.values().filter(|(kind, end)| *kind == Kind::Status && matches!(end, End::Done(_))).count();
    let lost = ends.values().filter(|(kind, end)| *kind == Kind::Status && matches!(end, End::Unknown)).count();
    let versions = run.look("/v1/skills/shared/versions").await.unwrap()["versions"].as_array().unwrap().clone();
    assert!((answered + 1..=answered + lost + 1).contains(&versions.len()), "{} of {answered}", versions.len());
    let head = run.look("/v1/skills/shared").await.unwrap();
    assert_eq!(head["content_hash"], versions.last().unwrap()["content_hash"]);
    assert!(
        versions[1..].windows(2).all(|two| two[1]["previous_status"] == two[0]["status"]),
        "previous_status must form a chain"
    );
    // The rows of the instance are the messages that it got.
    assert_eq!(run.api.mail("bob", "accepted").await.len(), bob.len());
    assert!(done > 600 && unknown < 100, "{done} done, {unknown} unknown: too few writes succeeded");
    println!("{done} answered 2xx, {unknown} unknown, {} refused, {KILLS} kills", ends.len() - done - unknown);
}

/// As many wakes are armed as were confirmed.
async fn check_plans(run: &Run, folder: &std::path::Path) {
    let (promised, unknown) = {
        let ends = run.ends.lock().unwrap();
        let plans =
            |which: fn(&End) -> bool| ends.values().filter(|(kind, end)| *kind == Kind::Plan && which(end)).count();
        (plans(|end| matches!(end, End::Done(_))), plans(|end| matches!(end, End::Unknown)))
    };
    let store = SqliteStore::open(folder, 1).unwrap();
    let records = store.changed_since(0).await.unwrap().records;
    let alice = records.iter().find(|it| it.kind == "agent" && it.key.ends_with("alice")).unwrap();
    let no = serde_json::from_str::<Value>(alice.json.as_deref().unwrap()).unwrap()["no"].as_u64().unwrap();
    let armed = store.armed(InstanceNo(no), &"".into(), 9_999).await.unwrap().alarms.len();
    assert!((promised..=promised + unknown).contains(&armed), "{armed} armed, {promised} promised, {unknown} unknown");
}

/// A JSON-RPC message of bob.
fn mcp(api: &Api, token: &str, session: Option<&str>, body: &Value) -> reqwest::RequestBuilder {
    let request = api.client.post(format!("{}/mcp", api.url)).bearer_auth(token).header("x-agent-id", "bob");
    let request = request.header("accept", "application/json, text/event-stream").json(body);
    match session {
        Some(session) => request.header("mcp-session-id", session),
        None => request,
    }
}

/// Opens an MCP session; returns its id.
async fn mcp_session(api: &Api, token: &str) -> String {
    let about = json!({ "name": "tests", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let begun = mcp(api, token, None, &hello).send().await.unwrap();
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    begun.text().await.unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(mcp(api, token, Some(&session), &ready).send().await.unwrap().status(), 202);
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_wait_for_an_answer_are_told_that_the_server_stops() {
    let mut desk = Desk::start(&[]).await;
    let api = desk.api.apart();
    let make = json!({ "tenant": process::TENANT, "scope": "agents" });
    let (_, made) = api.ask(Method::POST, "/admin/v1/tokens", &api.admin, Some(&make)).await.unwrap();
    let token = made["token"].as_str().unwrap();
    let ask = async |method: Method, path: &str, body: Option<&Value>| {
        let (status, answer) = api.ask(method, path, token, body).await.unwrap();
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    };
    let texts = async |agent: &str| {
        let page = ask(Method::GET, &format!("/v1/agents/{agent}/inbox?after=0"), None).await;
        let messages = page["messages"].as_array().unwrap().iter();
        let mut texts: Vec<String> = messages.map(|it| it["text"].as_str().unwrap().to_owned()).collect();
        texts.sort();
        texts
    };
    for agent in ["alice", "bob"] {
        ask(Method::PUT, &format!("/v1/agents/{agent}"), Some(&json!({}))).await;
    }

    let arguments = json!({ "agent_id": "alice", "content": "tea?", "correlation_id": "c-tool", "timeout_ms": 60_000 });
    let params = json!({ "name": "agent_exchange", "arguments": arguments });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    let call = mcp(&api, token, Some(&mcp_session(&api, token).await), &call);
    let by_tool = tokio::spawn(async move { call.send().await?.text().await });
    let meta = json!({ "dispatch_id": "d", "sent_at": 1, "origin": { "caller_agent_id": "bob" },
        "correlation_id": "c-http" });
    let question = json!({ "kind": "augment", "content": "coffee?", "meta": meta, "timeout_ms": 60_000 });
    let request = api.client.post(format!("{}/v1/agents/alice/exchange", api.url)).bearer_auth(token).json(&question);
    let by_http = tokio::spawn(async move { request.send().await });
    let both = async || (texts("alice").await.len() == 2).then_some(());
    until("both questions are stored, so both calls wait", STOP_TIME, both).await;

    desk.signal("TERM");
    let ended = desk.ended(STOP_TIME).await;
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}\n{}", desk.log());
    let answer = by_tool.await.unwrap().unwrap();
    let line = answer.lines().find_map(|line| line.strip_prefix("data:"));
    let answer: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("no answer in {answer:?}"))).unwrap();
    let response = by_http.await.unwrap().unwrap();
    assert_eq!((&answer["id"], response.status().as_u16()), (&json!(2), 503), "{answer}");
    let refused: Value = response.json().await.unwrap();
    for fault in [&answer["error"]["data"], &refused["error"]] {
        assert_eq!(fault["class"], "UnavailableError", "{fault}");
        assert!(fault["message"].as_str().unwrap().starts_with("the server is stopping"), "{fault}");
    }

    // The questions stay, and the late answers reach the agent that asked.
    desk.start_again().await;
    assert_eq!(texts("alice").await, ["coffee?", "tea?"]);
    for (id, content) in [("c-tool", "tea, please"), ("c-http", "coffee, please")] {
        let reply = json!({ "correlation_id": id, "content": content });
        let answer = ask(Method::POST, "/v1/agents/alice/replies", Some(&reply)).await;
        assert_eq!(answer, json!({ "ok": true, "delivered_to": "inbox" }), "{id}");
    }
    assert_eq!(texts("bob").await, ["coffee, please", "tea, please"]);
}
