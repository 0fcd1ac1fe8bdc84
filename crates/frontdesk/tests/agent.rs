//! The agent's half (spec section 7) against a whole desk: dial, take, ack, send, sleep, wake, and the ends.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests speak HTTP to their own desk and panic to say no"
)]

mod harness;

use std::sync::Arc;
use std::time::Duration;

use frontdesk_client::memory::Seen;
use frontdesk_client::wake::WakeBell;
use frontdesk_client::{Dial, Handler, Inbound, MemoryTransport, RelayTransport, SocketTransport, TransportError};
use frontdesk_wire::{Act, ActionResult, MessageEvent, Secret, build_session_key};
use harness::{Harness, PATIENCE, Seat};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

type Taken = mpsc::UnboundedReceiver<Inbound>;

fn transport(house: &Harness, seat: &Seat) -> SocketTransport {
    SocketTransport::new(Dial {
        url: house.url.clone(),
        gateway_id: seat.gateway.clone(),
        secret: Secret::new(seat.secret.as_str()),
        identities: vec![("relay".into(), String::new())],
    })
}

/// A handler that passes on what it takes.
fn taker() -> (Handler, Taken) {
    let (tell, taken) = mpsc::unbounded_channel();
    let handler: Handler = Arc::new(move |inbound| {
        let tell = tell.clone();
        Box::pin(async move { drop(tell.send(inbound)) })
    });
    (handler, taken)
}

async fn connected(house: &Harness, seat: &Seat) -> (SocketTransport, Taken) {
    let transport = transport(house, seat);
    let (handler, taken) = taker();
    transport.set_inbound_handler(handler);
    timeout(PATIENCE, transport.connect()).await.expect("in time").expect("connected");
    (transport, taken)
}

async fn event(taken: &mut Taken) -> MessageEvent {
    match timeout(PATIENCE, taken.recv()).await.expect("in time") {
        Some(Inbound::Event(event)) => *event,
        other => panic!("not an event: {other:?}"),
    }
}

/// Waits until the desk has settled everything that it owes this agent.
async fn settled(house: &Harness, seat: &Seat) {
    let all_acked = async {
        while house.mail(seat).await.iter().any(|row| row["state"] != "acked") {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_acked).await.expect("everything is acked in time");
}

fn send(chat: &str, text: &str) -> frontdesk_wire::Action {
    Act::Send { chat_id: chat.into(), content: text.into(), reply_to: None }.into()
}

#[tokio::test]
async fn it_shakes_hands_takes_acks_and_answers() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let (transport, mut taken) = connected(&house, &seat).await;
    let descriptor = transport.handshake().await.expect("a descriptor");
    assert_eq!((descriptor.platform.as_str(), descriptor.contract_version), ("relay", 1));

    house.say(&seat, "room", "hello there").await;
    let event = event(&mut taken).await;
    assert_eq!((event.text.as_str(), event.source.chat_id.as_str()), ("hello there", "room"));
    settled(&house, &seat).await;

    let result = transport.send_outbound(send("room", "hello back")).await.expect("a result");
    assert!(result.success);
    let line = house.line(&seat, "room", &result.message_id.expect("an id")).await;
    assert_eq!(line["text"], "hello back");
    assert_eq!(transport.get_chat_info("room").await.expect("info").chat_type, "dm");
    let nowhere = transport.get_chat_info("nowhere").await.expect("an answer");
    assert_eq!(nowhere.name, "", "a chat that is not ours has no info");
    house.finish().await;
}

#[tokio::test]
async fn it_is_ready_when_it_says_hello() {
    let house = Harness::with(|config| config.relay.settle_ms = 600_000).await;
    let seat = house.seat("agent").await;
    house.say(&seat, "room", "you were away").await;
    let (_transport, mut taken) = connected(&house, &seat).await;
    assert_eq!(event(&mut taken).await.text, "you were away");
    house.finish().await;
}

#[tokio::test]
async fn a_command_is_followed_up_without_ever_seeing_its_capability() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let (transport, mut taken) = connected(&house, &seat).await;
    house.say(&seat, "room", "/weather oslo").await;
    let event = event(&mut taken).await;
    assert_eq!(event.message_type, "command");
    let key = build_session_key(&event.source);
    let result = transport.send_follow_up(&key, "relay.interaction_token", "rain").await.expect("a result");
    assert!(result.success, "{result:?}");
    let other = transport.send_follow_up("agent:main:relay:dm:elsewhere", "relay.interaction_token", "x").await;
    assert!(!other.expect("a result").success);
    house.finish().await;
}

#[tokio::test]
async fn an_interrupt_passes_the_queue_and_goes_both_ways() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let (transport, mut taken) = connected(&house, &seat).await;
    house.say(&seat, "room", "think").await;
    let key = build_session_key(&event(&mut taken).await.source);
    house.say(&seat, "room", "/stop").await;
    let stopped = Inbound::Interrupt { session_key: key.clone(), chat_id: "room".into() };
    assert_eq!(timeout(PATIENCE, taken.recv()).await.expect("in time"), Some(stopped.clone()));
    transport.send_interrupt(&key, Some("enough")).await.expect("sent");
    assert_eq!(timeout(PATIENCE, taken.recv()).await.expect("in time"), Some(stopped));
    house.finish().await;
}

#[tokio::test]
async fn dormant_it_keeps_away_until_it_is_woken_and_then_takes_what_waited_in_order() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let bell = WakeBell::listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let body = json!({ "gatewayId": "agent", "platform": "relay", "wakeUrl": bell.url });
    house.post("/relay/provision", &seat.identity, &body).await.expect(200);
    let (transport, mut taken) = connected(&house, &seat).await;
    assert!(transport.go_dormant().await, "the desk confirms");
    timeout(PATIENCE, async {
        while !transport.is_dormant() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("dormant");
    for number in 0..3 {
        house.say(&seat, "room", &format!("while you slept {number}")).await;
    }
    timeout(PATIENCE, bell.rung()).await.expect("the desk rings the bell");
    assert!(taken.try_recv().is_err(), "nothing comes to a sleeper");
    transport.wake();
    for number in 0..3 {
        assert_eq!(event(&mut taken).await.text, format!("while you slept {number}"));
    }
    settled(&house, &seat).await;
    house.finish().await;
}

#[tokio::test]
async fn it_dials_again_after_a_loss_and_takes_nothing_twice() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let (_transport, mut taken) = connected(&house, &seat).await;
    house.say(&seat, "room", "one").await;
    assert_eq!(event(&mut taken).await.text, "one");
    settled(&house, &seat).await;
    // A second process takes over for a moment: the first one loses its socket, and wins it back.
    let rival = house.socket(&seat).await;
    drop(rival);
    house.say(&seat, "room", "two").await;
    assert_eq!(event(&mut taken).await.text, "two", "and not one again");
    settled(&house, &seat).await;
    house.finish().await;
}

#[tokio::test]
async fn a_revoked_credential_ends_it_for_good() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let (transport, _taken) = connected(&house, &seat).await;
    house.admin("POST", "/gateways/agent/revoke", &json!({})).await.expect(200);
    assert_eq!(timeout(PATIENCE, transport.ended()).await.expect("in time"), TransportError::Revoked);
    assert!(transport.is_revoked());
    assert_eq!(transport.send_outbound(send("room", "x")).await, Err(TransportError::NotConnected));
    house.finish().await;
}

#[tokio::test]
async fn a_wrong_secret_is_tried_again_because_it_may_be_a_race_at_the_start() {
    let house = Harness::open().await;
    let mut seat = house.seat("agent").await;
    seat.secret = "wrong".into();
    let transport = transport(&house, &seat);
    let refused = async {
        tokio::select! {
            end = transport.ended() => panic!("it gave up: {end}"),
            () = async { while house.metric(r#"frontdesk_sockets_refused_total{why="unauthorized"}"#).await < 2 { tokio::task::yield_now().await; } } => {}
            _ = transport.connect() => panic!("it got in"),
        }
    };
    timeout(PATIENCE, refused).await.expect("two tries in time");
    house.finish().await;
}

#[tokio::test]
async fn the_transport_in_memory_behaves_like_the_socket_for_an_agents_own_tests() {
    let house = Harness::open().await;
    let seat = house.seat("agent").await;
    let (socket, _) = connected(&house, &seat).await;
    let descriptor = socket.handshake().await.expect("a descriptor");
    let (transport, mut seen) = MemoryTransport::new(descriptor.clone(), |_| ActionResult::sent("m1"));
    let (handler, mut taken) = taker();
    transport.set_inbound_handler(handler);
    transport.connect().await.expect("connected");
    assert_eq!(transport.handshake().await.expect("a descriptor"), descriptor);
    let told = MessageEvent { text: "hi".into(), ..MessageEvent::default() };
    transport.deliver(Inbound::Event(Box::new(told.clone()))).await;
    assert_eq!(event(&mut taken).await, told);
    let result = transport.send_outbound(send("c", "x")).await.expect("a result");
    assert_eq!(result.message_id.as_deref(), Some("m1"));
    assert!(transport.go_idle().await && transport.go_dormant().await);
    let mut all = Vec::new();
    while let Ok(one) = seen.try_recv() {
        all.push(one);
    }
    assert_eq!(all, [Seen::Action(send("c", "x")), Seen::Idle, Seen::Dormant]);
    house.finish().await;
}

/// Long enough for any honest answer, short enough for a test.
#[tokio::test]
async fn a_stranger_who_rings_the_bell_slowly_does_not_hold_it() {
    let bell = WakeBell::listen(([127, 0, 0, 1], 0).into()).await.expect("a port");
    let address = bell.url.trim_start_matches("http://").trim_end_matches("/wake").to_owned();
    let mut rude = tokio::net::TcpStream::connect(&address).await.expect("connected");
    tokio::io::AsyncWriteExt::write_all(&mut rude, &[b'x'; 9000]).await.expect("written");
    let answer = reqwest::get(&bell.url).await.expect("an answer");
    assert_eq!(answer.status(), 204);
    timeout(Duration::from_secs(10), bell.rung()).await.expect("rung");
}
