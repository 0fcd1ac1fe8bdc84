//! The Rust client (spec section 7) against a complete server: connect, receive, ack, send, go idle, wake, and close.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests call their own server and fail by panic")]

mod harness;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frontdesk_client::agent::Failure;
use frontdesk_client::memory::Seen;
use frontdesk_client::transport::BoxFuture;
use frontdesk_client::wake::WakeListener;
use frontdesk_client::{
    Agent, Dial, Handler, Inbound, MemoryTransport, RelayTransport, Serve, SocketTransport, TransportError, Turn,
};
use frontdesk_wire::{Act, ActionResult, MessageEvent, Secret, build_session_key};
use harness::{GatewayAccount, Harness, TIME_LIMIT};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

type Taken = mpsc::UnboundedReceiver<Inbound>;

fn dial(harness: &Harness, account: &GatewayAccount) -> Dial {
    Dial {
        url: harness.url.clone(),
        gateway_id: account.gateway.clone(),
        secret: Secret::new(account.secret.as_str()),
        identities: vec![("relay".into(), String::new())],
    }
}

fn transport(harness: &Harness, account: &GatewayAccount) -> SocketTransport {
    SocketTransport::new(dial(harness, account))
}

/// A handler that passes on everything it receives.
fn taker() -> (Handler, Taken) {
    let (tell, taken) = mpsc::unbounded_channel();
    let handler: Handler = Arc::new(move |inbound| {
        let tell = tell.clone();
        Box::pin(async move { tell.send(inbound).is_ok() })
    });
    (handler, taken)
}

async fn connected(harness: &Harness, account: &GatewayAccount) -> (SocketTransport, Taken) {
    let transport = transport(harness, account);
    let (handler, taken) = taker();
    transport.set_inbound_handler(handler);
    timeout(TIME_LIMIT, transport.connect()).await.expect("timed out").expect("connecting failed");
    (transport, taken)
}

async fn event(taken: &mut Taken) -> MessageEvent {
    match timeout(TIME_LIMIT, taken.recv()).await.expect("timed out") {
        Some(Inbound::Event(event)) => *event,
        other => panic!("not an event: {other:?}"),
    }
}

/// Waits until all rows of this agent are settled.
async fn settled(harness: &Harness, account: &GatewayAccount) {
    let all_acked = async {
        while harness.mail(account).await.iter().any(|row| row["state"] != "acked") {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIME_LIMIT, all_acked).await.expect("not all rows were acked");
}

fn send(chat: &str, text: &str) -> frontdesk_wire::Action {
    Act::Send { chat_id: chat.into(), content: text.into(), reply_to: None }.into()
}

#[tokio::test]
async fn it_handshakes_receives_acks_and_sends() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (transport, mut taken) = connected(&harness, &account).await;
    let descriptor = transport.handshake().await.expect("a descriptor");
    assert_eq!((descriptor.platform.as_str(), descriptor.contract_version), ("relay", 1));

    harness.say(&account, "room", "hello there").await;
    let event = event(&mut taken).await;
    assert_eq!((event.text.as_str(), event.source.chat_id.as_str()), ("hello there", "room"));
    settled(&harness, &account).await;

    let result = transport.send_outbound(send("room", "hello back")).await.expect("a result");
    assert!(result.success);
    let line = harness.line(&account, "room", &result.message_id.expect("an id")).await;
    assert_eq!(line["text"], "hello back");
    assert_eq!(transport.get_chat_info("room").await.expect("info").chat_type, "dm");
    let nowhere = transport.get_chat_info("nowhere").await.expect("an answer");
    assert_eq!(nowhere.name, "", "a foreign chat has no info");
    harness.finish().await;
}

#[tokio::test]
async fn it_is_ready_when_it_says_hello() {
    let harness = Harness::with(|config| config.relay.settle_ms = 600_000).await;
    let account = harness.add_gateway("agent").await;
    harness.say(&account, "room", "you were away").await;
    let (_transport, mut taken) = connected(&harness, &account).await;
    assert_eq!(event(&mut taken).await.text, "you were away");
    harness.finish().await;
}

#[tokio::test]
async fn a_command_is_followed_up_without_its_capability() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (transport, mut taken) = connected(&harness, &account).await;
    harness.say(&account, "room", "/weather oslo").await;
    let event = event(&mut taken).await;
    assert_eq!(event.message_type, "command");
    let key = build_session_key(&event.source);
    let result = transport.send_follow_up(&key, "relay.interaction_token", "rain").await.expect("a result");
    assert!(result.success, "{result:?}");
    let other = transport.send_follow_up("agent:main:relay:dm:elsewhere", "relay.interaction_token", "x").await;
    assert!(!other.expect("a result").success);
    harness.finish().await;
}

#[tokio::test]
async fn an_interrupt_overtakes_the_queue_and_works_both_ways() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (transport, mut taken) = connected(&harness, &account).await;
    harness.say(&account, "room", "think").await;
    let key = build_session_key(&event(&mut taken).await.source);
    harness.say(&account, "room", "/stop").await;
    let stopped = Inbound::Interrupt { session_key: key.clone(), chat_id: "room".into() };
    assert_eq!(timeout(TIME_LIMIT, taken.recv()).await.expect("timed out"), Some(stopped.clone()));
    transport.send_interrupt(&key, Some("enough")).await.expect("sent");
    assert_eq!(timeout(TIME_LIMIT, taken.recv()).await.expect("timed out"), Some(stopped));
    harness.finish().await;
}

#[tokio::test]
async fn a_dormant_agent_stays_disconnected_until_woken_and_then_gets_waiting_rows() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let listener = WakeListener::listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let body = json!({ "gatewayId": "agent", "platform": "relay", "wakeUrl": listener.url });
    harness.post("/relay/provision", &account.identity, &body).await.expect(200);
    let (transport, mut taken) = connected(&harness, &account).await;
    assert!(transport.go_dormant().await, "the server confirms");
    timeout(TIME_LIMIT, async {
        while !transport.is_dormant() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("dormant");
    for number in 0..3 {
        harness.say(&account, "room", &format!("while you slept {number}")).await;
    }
    timeout(TIME_LIMIT, listener.called()).await.expect("the wake URL was not called");
    assert!(taken.try_recv().is_err(), "nothing is delivered to a dormant agent");
    transport.wake();
    for number in 0..3 {
        assert_eq!(event(&mut taken).await.text, format!("while you slept {number}"));
    }
    settled(&harness, &account).await;
    harness.finish().await;
}

#[tokio::test]
async fn it_reconnects_after_a_loss_and_receives_nothing_twice() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (_transport, mut taken) = connected(&harness, &account).await;
    harness.say(&account, "room", "one").await;
    assert_eq!(event(&mut taken).await.text, "one");
    settled(&harness, &account).await;
    // A second process takes over for a moment: the first loses its socket and gets it back.
    let rival = harness.socket(&account).await;
    drop(rival);
    harness.say(&account, "room", "two").await;
    assert_eq!(event(&mut taken).await.text, "two", "the first row must not come again");
    settled(&harness, &account).await;
    harness.finish().await;
}

#[tokio::test]
async fn a_revoked_credential_ends_the_client() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (transport, _taken) = connected(&harness, &account).await;
    harness.admin("POST", "/gateways/agent/revoke", &json!({})).await.expect(200);
    assert_eq!(timeout(TIME_LIMIT, transport.ended()).await.expect("timed out"), TransportError::Revoked);
    assert!(transport.is_revoked());
    assert_eq!(transport.send_outbound(send("room", "x")).await, Err(TransportError::NotConnected));
    harness.finish().await;
}

#[tokio::test]
async fn a_wrong_secret_is_retried_because_it_may_be_a_race_at_the_start() {
    let harness = Harness::open().await;
    let mut account = harness.add_gateway("agent").await;
    account.secret = "wrong".into();
    let transport = transport(&harness, &account);
    let refused = async {
        tokio::select! {
            end = transport.ended() => panic!("the client gave up: {end}"),
            () = async { while harness.metric(r#"frontdesk_sockets_refused_total{why="unauthorized"}"#).await < 2 { tokio::task::yield_now().await; } } => {}
            _ = transport.connect() => panic!("the client connected"),
        }
    };
    timeout(TIME_LIMIT, refused).await.expect("not two attempts in time");
    harness.finish().await;
}

#[tokio::test]
async fn a_problem_that_an_agent_reports_is_told_to_the_operator() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (transport, _taken) = connected(&harness, &account).await;
    let wait_for_report = async |wanted: bool| {
        let reached = async {
            loop {
                let found = harness.admin("GET", "/doctor", &json!({})).await.expect(200);
                let texts: Vec<String> =
                    found["findings"].as_array().unwrap().iter().map(|it| it["text"].to_string()).collect();
                if texts.iter().any(|text| text.contains("agent reports: the model is gone")) == wanted {
                    return;
                }
            }
        };
        timeout(TIME_LIMIT, reached).await.expect("doctor does not tell it");
    };
    transport.report(Some("the model\u{1b}[31m is gone")).await.unwrap();
    wait_for_report(false).await;
    transport.report(Some("the\n model is gone")).await.unwrap();
    wait_for_report(true).await;
    transport.report(None).await.unwrap();
    wait_for_report(false).await;
    harness.finish().await;
}

/// Waits for `go` in each turn, and counts them.
struct Slow {
    turns: AtomicUsize,
    go: Semaphore,
}

impl Serve for Slow {
    fn message(self: Arc<Self>, _: Turn) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move {
            self.turns.fetch_add(1, Ordering::SeqCst);
            self.go.acquire().await?.forget();
            Ok(())
        })
    }
}

async fn turns(slow: &Slow, count: usize) {
    let reached = async {
        while slow.turns.load(Ordering::SeqCst) < count {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIME_LIMIT, reached).await.expect("not so many turns");
}

#[tokio::test]
async fn what_an_agent_is_working_on_is_not_handed_over_again() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let agent = Agent::new(dial(&harness, &account), 4);
    let slow = Arc::new(Slow { turns: AtomicUsize::new(0), go: Semaphore::new(0) });
    let (served, what) = (agent.clone(), slow.clone());
    let serving = tokio::spawn(async move { served.serve(what, None).await });
    for chat in ["one", "one", "two"] {
        harness.say(&account, chat, "hello").await;
    }
    turns(&slow, 2).await; // one in each chat
    // Another socket takes its place; the agent connects again, and gets all three again.
    let mut other = harness.socket(&account).await;
    assert_eq!(other.event().await.text(), "hello");
    other.closed().await;
    slow.go.add_permits(2);
    turns(&slow, 3).await;
    assert!(harness.mail(&account).await.iter().any(|row| row["state"] != "acked"), "the last one is being handled");
    slow.go.add_permits(10);
    settled(&harness, &account).await;
    assert_eq!(slow.turns.load(Ordering::SeqCst), 3, "each was handed over once");
    serving.abort();
    harness.finish().await;
}

#[tokio::test]
async fn the_in_memory_transport_behaves_like_the_socket() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("agent").await;
    let (socket, _) = connected(&harness, &account).await;
    let descriptor = socket.handshake().await.expect("a descriptor");
    let (transport, mut seen) = MemoryTransport::new(descriptor.clone(), |_| ActionResult::sent("m1"));
    let (handler, mut taken) = taker();
    transport.set_inbound_handler(handler);
    transport.connect().await.expect("connected");
    assert_eq!(transport.handshake().await.expect("a descriptor"), descriptor);
    let delivered = MessageEvent { text: "hi".into(), ..MessageEvent::default() };
    transport.deliver(Inbound::Event(Box::new(delivered.clone()))).await;
    assert_eq!(event(&mut taken).await, delivered);
    let result = transport.send_outbound(send("c", "x")).await.expect("a result");
    assert_eq!(result.message_id.as_deref(), Some("m1"));
    assert!(transport.go_idle().await && transport.go_dormant().await);
    let mut all = Vec::new();
    while let Ok(one) = seen.try_recv() {
        all.push(one);
    }
    assert_eq!(all, [Seen::Action(send("c", "x")), Seen::Idle, Seen::Dormant]);
    harness.finish().await;
}

/// A client that sends an endless request must not block the wake listener for others.
#[tokio::test]
async fn a_slow_client_does_not_block_the_wake_listener() {
    let listener = WakeListener::listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let address = listener.url.trim_start_matches("http://").trim_end_matches("/wake").to_owned();
    let mut rude = tokio::net::TcpStream::connect(&address).await.expect("connected");
    tokio::io::AsyncWriteExt::write_all(&mut rude, &[b'x'; 9000]).await.expect("written");
    let answer = reqwest::get(&listener.url).await.expect("an answer");
    assert_eq!(answer.status(), 204);
    timeout(TIME_LIMIT, listener.called()).await.expect("a call");
}
