//! Peers that send much and read little: memory for them is bounded, and others are not affected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use frontdesk::config::Config;
use frontdesk::env::SystemEnv;
use frontdesk_core::Env as _;
use frontdesk_core::delivery::window::{Acks, RESENDS_MAX};
use frontdesk_core::port::store::Outcome;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::{Seq, TenantId};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_websockets::{ClientBuilder, MaybeTlsStream, Message, WebSocketStream};

use crate::harness::{GatewayAccount, Harness, Source, TIME_LIMIT, hello, outbound};
use crate::{expect_done, expect_too_many, send_burst, send_slow};

const PAUSED: &str = "frontdesk_reads_paused_total";
const OUTBOX: &str = "frontdesk_outbox_bytes";
/// One mebibyte and one frame.
const OUTBOX_MAX: u64 = (1 << 20) + (1 << 17);

/// A socket that reads only when told to.
async fn dial(harness: &Harness, account: &GatewayAccount) -> WebSocketStream<MaybeTlsStream<TcpStream>> {
    let uri: http::Uri = format!("{}/relay", harness.url.replacen("http", "ws", 1)).parse().unwrap();
    let bearer = format!("Bearer {}", account.bearer()).parse().unwrap();
    let builder = ClientBuilder::from_uri(uri).add_header(http::header::AUTHORIZATION, bearer).unwrap();
    builder.connect().await.unwrap().0
}

async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !done().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(TIME_LIMIT, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

/// Sends all lines and reads nothing until the server stops reading; then every answer must arrive.
async fn send_without_reading(
    harness: &Harness,
    account: &GatewayAccount,
    lines: usize,
    line: impl Fn(usize) -> String,
    answer: &str,
) {
    let (mut sink, mut stream) = dial(harness, account).await.split();
    sink.send(Message::text(format!("{}\n", hello("relay", "")))).await.unwrap();
    let batches: Vec<String> =
        (0..lines).collect::<Vec<_>>().chunks(500).map(|chunk| chunk.iter().map(|n| line(*n)).collect()).collect();
    let saying = tokio::spawn(async move {
        for batch in batches {
            sink.send(Message::text(batch)).await.unwrap();
        }
        sink
    });
    until("the server did not stop reading", async || harness.metric(PAUSED).await > 0).await;
    for _ in 0..20 {
        let held = harness.metric(OUTBOX).await;
        assert!(held <= OUTBOX_MAX, "{held} bytes are held for a peer that does not read");
    }
    assert!(!saying.is_finished(), "everything was read from a peer that reads nothing");
    let mut answers = 0;
    let reading = async {
        while answers < lines {
            let message = stream.next().await.expect("the socket was closed").unwrap();
            answers += message.as_text().unwrap_or_default().matches(answer).count();
        }
    };
    timeout(TIME_LIMIT * 3, reading).await.expect("not all lines were answered");
    drop(saying.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_sends_hellos_and_does_not_read_is_not_read_from() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let padding = "x".repeat(400);
    let hello = json!({ "type": "hello", "platform": "relay", "botId": "", "padding": padding });
    send_without_reading(&harness, &account, 40_000, |_| format!("{hello}\n"), "\"type\":\"descriptor\"").await;
    until("the gauge did not return to 0", async || harness.metric(OUTBOX).await == 0).await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_sends_actions_and_does_not_read_is_not_read_from() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let padding = "x".repeat(200);
    let refused = |n: usize| format!("{}\n", outbound(&format!("{n}-{padding}"), json!({ "op": "dance" })));
    send_without_reading(&harness, &account, 60_000, refused, "\"type\":\"outbound_result\"").await;
    assert!(harness.metric("frontdesk_refusals_unnoted_total").await > 50_000, "a flood must not fill the journal");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_interrupts_is_dropped_and_others_are_served() {
    let harness = Harness::open().await;
    let (account, other) = (harness.add_gateway_in("acme", "g").await, harness.add_gateway_in("rival", "h").await);
    let mut socket = harness.socket(&account).await;
    let mut theirs = harness.socket(&other).await;
    let interrupt = |key: &str| format!("{}\n", json!({ "type": "interrupt", "session_key": key, "reason": null }));
    socket.text((0..2_000).map(|n| interrupt(&format!("agent:main:relay:dm:{n}"))).collect::<String>()).await;
    harness.say(&other, "c", "hi").await;
    assert_eq!(theirs.event().await.text(), "hi");
    until("not most of 2,000 were dropped", async || {
        harness.metric("frontdesk_frames_bad_total{why=\"interrupt_flood\"}").await > 500
    })
    .await;
    harness.say(&account, "c", "work").await;
    socket.event().await;
    until("no interrupt got through again", async || {
        socket.text(interrupt("agent:main:relay:dm:c")).await;
        harness.metric("frontdesk_interrupts_total").await > 0
    })
    .await;
    assert_eq!(socket.of("interrupt_inbound").await.json["chat_id"], "c");
    assert_eq!(harness.metric("frontdesk_frames_bad_total{why=\"malformed\"}").await, 0);
    socket.text(interrupt(&"k".repeat(2_000))).await;
    socket.settle().await;
    assert_eq!(harness.metric("frontdesk_frames_bad_total{why=\"malformed\"}").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_actions_are_bounded() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let source = Source::open("image/png", b"png").await;
    let mut socket = harness.socket(&account).await;
    send_slow(&mut socket, "slow", "c", &source).await;
    send_burst(&mut socket, 1_100).await;
    expect_too_many(&mut socket, 1_024..=1_100).await;
    source.answer(1);
    expect_done(&mut socket, 1..=1_023).await;
    assert_eq!(socket.act(json!({ "op": "send", "chat_id": "c", "content": "x" })).await["success"], true);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_of_a_closed_socket_count_until_they_are_done() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let source = Source::open("image/png", b"png").await;
    let mut socket = harness.socket(&account).await;
    send_slow(&mut socket, "slow", "c", &source).await;
    send_burst(&mut socket, 1_024).await;
    expect_too_many(&mut socket, 1_024..=1_024).await;
    let info = json!({ "op": "get_chat_info", "chat_id": "c" });
    let mut next = harness.socket(&account).await;
    assert_eq!(next.act(info.clone()).await["code"], "rate_limited", "another socket is no way around the bound");
    source.answer(1);
    assert_eq!(next.result("1023").await.json["result"]["success"], true);
    assert_eq!(next.act(info).await["success"], true);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_chats_are_processed_concurrently_and_completely() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    for number in 0..100 {
        harness.say(&account, &format!("c{number}"), "hi").await;
    }
    let mut socket = harness.socket(&account).await;
    let send = |number: u32| {
        let action = json!({ "op": "send", "chat_id": format!("c{}", number % 100), "content": number.to_string() });
        format!("{}\n", outbound(&number.to_string(), action))
    };
    socket.text((0..500).map(send).collect::<String>()).await;
    expect_done(&mut socket, 0..=499).await;
    let said: Vec<Value> =
        harness.history(&account, "c7").await.iter().skip(1).map(|line| line["text"].clone()).collect();
    assert_eq!(said, ["7", "107", "207", "307", "407"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_not_started_when_a_socket_closes_are_answered_on_the_next() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let source = Source::open("image/png", b"png").await;
    for number in 0..70 {
        harness.say(&account, &format!("c{number}"), "hi").await;
    }
    let mut socket = harness.socket(&account).await;
    // As many slow actions as run concurrently, each in its own chat; others wait for them.
    for number in 0..64 {
        send_slow(&mut socket, &number.to_string(), &format!("c{number}"), &source).await;
    }
    for number in 64..70 {
        let send = json!({ "op": "send", "chat_id": format!("c{number}"), "content": "x" });
        socket.frame(&outbound(&number.to_string(), send)).await;
    }
    socket.settle().await;
    let mut next = harness.socket(&account).await;
    socket.closed().await;
    expect_done(&mut next, 64..=69).await;
    source.answer(64);
    expect_done(&mut next, 0..=63).await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reports_ready_gets_deliveries_at_once() {
    let harness = Harness::with(|config| config.relay.settle_ms = 600_000).await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.dial(&account.bearer()).await;
    socket.frame(&json!({ "type": "hello", "platform": "relay", "botId": "", "ready": true })).await;
    assert_eq!(socket.event().await.text(), "hi");
    // Without that report delivery waits for the settle time.
    let other = harness.add_gateway("h").await;
    harness.say(&other, "c", "hi").await;
    let mut socket = harness.socket(&other).await;
    socket.settle().await;
    assert_eq!(socket.came(), 0);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_clock_was_set_back_a_new_gateway_still_gets_settle_time() {
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let settle = |config: &mut Config| config.relay.settle_ms = 600_000;
    let harness = Harness::by(clock.clone(), tempfile::tempdir().unwrap(), settle).await;
    let account = harness.add_gateway("g").await;
    harness.socket(&account).await.hang_up().await;
    until("the end of the socket was not noticed", async || harness.metric("frontdesk_sockets_open").await == 0).await;
    harness.say(&account, "c", "warm").await;
    let mut socket = harness.socket(&account).await;
    let event = socket.event().await;
    socket.ack(&event).await;
    socket.hang_up().await;
    until("the end of the socket was not noticed", async || harness.metric("frontdesk_sockets_open").await == 0).await;
    clock.set_ms(clock.now_ms() - 2 * 3_600_000);
    harness.say(&account, "c", "cold").await;
    let mut socket = harness.socket(&account).await;
    socket.settle().await;
    assert_eq!(socket.came(), 0, "the gateway would drop events now");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_disconnects_without_close_is_not_counted_as_a_violation() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let (mut sink, mut stream) = dial(&harness, &account).await.split();
    sink.send(Message::text(format!("{}\n", hello("relay", "")))).await.unwrap();
    stream.next().await.unwrap().unwrap();
    assert_eq!(harness.metric("frontdesk_sockets_open").await, 1);
    drop((sink, stream)); // the TCP connection ends without a close frame
    until("the server did not notice the disconnect", async || harness.metric("frontdesk_sockets_open").await == 0)
        .await;
    let metrics = harness.get("/metrics", "").await.text();
    assert!(!metrics.contains("=\"unreadable") && !metrics.contains("too many bad frames"), "{metrics}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_actions_are_in_journal_and_tail_with_their_reason() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.socket(&account).await;
    let mut tail = harness.open_stream("/admin/v1/events/stream", &harness.admin).await;
    socket.act(json!({ "op": "dance" })).await;
    socket.act(json!({ "op": "send", "chat_id": "elsewhere", "content": "x" })).await;
    let unnamed =
        json!({ "type": "outbound", "requestId": "n", "platform": "irc", "action": { "op": "send", "chat_id": "c" } });
    socket.frame(&unnamed).await;
    socket.result("n").await;
    harness
        .follow(
            &mut tail,
            &["unknown: rejected: unsupported op", "send: rejected: relay egress declined", "no hello on this socket"],
        )
        .await;
    let desk = &harness.app.desk;
    let noted = async || desk.stores().journal.entries(Some(&TenantId::from(&account.tenant)), 99).await.unwrap();
    until("the refusals were not stored", async || {
        noted().await.iter().filter(|it| it.outcome == Outcome::Rejected).count() == 3
    })
    .await;
    let entries = noted().await;
    let egress = entries.iter().find(|entry| entry.chat_id == "elsewhere").unwrap();
    assert!((egress.op.as_str(), egress.instance.as_str()) == ("send", "g") && egress.note.contains("declined"));
    drop(tail);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_never_acked_becomes_dead_with_a_reason() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "lost").await;
    let lost = socket.event().await;
    harness.say(&account, "c", "taken").await;
    let taken = socket.event().await;
    socket.ack(&taken).await;
    let desk = harness.app.desk.clone();
    let caller = desk.directory().prove_gateway(&account.bearer()).unwrap_or_else(|_| panic!("not authenticated"));
    let rows = desk.stores().ledger.pending(caller.instance.no, Seq(0), 9).await.unwrap();
    let mailbox = desk.delivery().sockets().socket(caller.instance.no).unwrap();
    until("the ack is not stored", async || harness.mail(&account).await[1]["state"] == "acked").await;
    desk.delivery().give_up_rows(&caller, &mailbox, &rows[..1]).await;
    let mail = harness.mail(&account).await;
    assert_eq!((&mail[0]["state"], &mail[1]["state"]), (&json!("dead"), &json!("acked")), "{mail:?}");
    assert!(mail[0]["reason"].as_str().unwrap().contains("never acked"), "{mail:?}");
    let found = desk.delivery().sockets().given_up();
    assert_eq!((found.len(), found[0].0, found[0].1[0].seq), (1, caller.instance.no, rows[0].0));
    assert_eq!(harness.metric("frontdesk_rows_given_up_total").await, 1);
    let doctor = harness.admin("GET", "/doctor", &Value::Null).await.expect(200);
    assert_eq!(doctor["ok"], false);
    assert!(doctor.to_string().contains("home/g: 1 messages were sent several times and never acked"), "{doctor}");
    socket.ack(&lost).await; // too late, and ignored
    harness.say(&account, "c", "next").await;
    assert_eq!(socket.event().await.text(), "next");
    harness.finish().await;
}

/// It acked before, and answers pings. Its oldest message comes again, is kept, and `doctor` reports it.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_stops_acking_is_reported() {
    let harness = Harness::with(|config| config.relay.ack_limit_ms = 100).await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let began = std::time::Instant::now();
    for text in ["first", "second", "third"] {
        harness.say(&account, "c", text).await;
    }
    let first = socket.event().await;
    socket.ack(&first).await;
    let desk = harness.app.desk.clone();
    let caller = desk.directory().prove_gateway(&account.bearer()).unwrap_or_else(|_| panic!("not authenticated"));
    let unacked_ms = || desk.delivery().unacked_ms(caller.instance.no);
    until("no row is noted as unacked", async || unacked_ms().is_some()).await;
    let age_ms = unacked_ms().unwrap();
    assert!(u128::from(age_ms) <= began.elapsed().as_millis(), "its age counts from when it was sent: {age_ms} ms");
    let mut texts = Vec::new();
    while texts.len() < 2 + usize::from(RESENDS_MAX) {
        texts.push(socket.event().await.text().to_owned());
    }
    assert_eq!(texts, ["second", "third", "second", "second", "second"]);
    until("the doctor does not report it", async || {
        let doctor = harness.admin("GET", "/doctor", &Value::Null).await.json();
        doctor.to_string().contains("home/g: connected, but a message is unacked")
    })
    .await;
    let states: Vec<Value> = harness.mail(&account).await.iter().map(|row| row["state"].clone()).collect();
    assert_eq!(states, ["acked", "sent", "sent"], "none is given up");
    harness.finish().await;
}

/// After a restart of the server no gateway has acked yet. One that is stuck must be reported all the same.
#[tokio::test]
async fn a_gateway_that_has_never_acked_is_reported() {
    let harness = Harness::with(|config| config.relay.ack_limit_ms = 50).await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "first").await;
    assert_eq!(socket.event().await.text(), "first");
    until("the doctor does not report it", async || {
        let doctor = harness.admin("GET", "/doctor", &Value::Null).await.json();
        doctor.to_string().contains("home/g: connected, but a message is unacked")
    })
    .await;
    harness.finish().await;
}

/// A WebSocket whose peer has sent a part of a message: `parts` frames of one fragment each, with a ping after each.
async fn unfinished(harness: &Harness, account: &GatewayAccount, parts: usize, bytes: usize) -> TcpStream {
    let mut stream = TcpStream::connect(harness.url.trim_start_matches("http://")).await.unwrap();
    let head = format!(
        "GET /relay HTTP/1.1\r\nHost: desk\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer {}\r\n\r\n",
        account.bearer()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    for part in 0..parts {
        // Not the last fragment; the first is a text. The mask is zero.
        let mut frame = vec![u8::from(part == 0), 0x80 | 127];
        frame.extend((bytes as u64).to_be_bytes());
        frame.extend([0; 4]);
        frame.extend(vec![b' '; bytes]);
        frame.extend([0x89, 0x80, 0, 0, 0, 0]);
        // One that is refused may be closed meanwhile.
        let _ = stream.write_all(&frame).await;
    }
    stream
}

/// Regression: messages that were not complete were counted nowhere, and were held for as long as the socket was open.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_not_complete_are_limited_per_tenant() {
    let harness = Harness::with(|config| config.relay.flight_per_tenant_kib = 2048).await;
    let account = harness.add_gateway("g").await;
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(unfinished(&harness, &account, 3, 300_000).await);
    }
    let closed = "frontdesk_frames_bad_total{why=\"no_memory\"}";
    until("they are not limited", async || harness.metric(closed).await >= 5).await;
    // Another agent of the tenant works, with messages of ordinary size; one of another tenant with all.
    let own = harness.add_gateway("h").await;
    harness.say(&own, "c", "hi").await;
    let mut socket = harness.socket(&own).await;
    assert_eq!(socket.event().await.text(), "hi");
    assert_eq!(socket.act(json!({ "op": "send", "chat_id": "c", "content": "x" })).await["success"], true);
    let rival = harness.add_gateway_in("rival", "r").await;
    harness.say(&rival, "c", "hi").await;
    let mut socket = harness.socket(&rival).await;
    let long = json!({ "op": "send", "chat_id": "c", "content": "x".repeat(500_000) });
    assert_eq!(socket.act(long).await["success"], true);
    drop(held);
    harness.finish().await;
}

/// Actions of all agents of a tenant that wait; each agent has some of its own.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_actions_of_a_tenant_are_bounded() {
    let harness = Harness::with(|config| config.relay.flight_per_tenant_kib = 256).await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let source = Source::open("image/png", b"png").await;
    let mut socket = harness.socket(&account).await;
    send_slow(&mut socket, "slow", "c", &source).await;
    send_burst(&mut socket, 100).await;
    expect_too_many(&mut socket, 64..=100).await;
    let other = harness.add_gateway("h").await;
    harness.say(&other, "d", "hi").await;
    let mut second = harness.socket(&other).await;
    assert_eq!(second.act(json!({ "op": "send", "chat_id": "d", "content": "x" })).await["success"], true);
    source.answer(1);
    expect_done(&mut socket, 1..=63).await;
    harness.finish().await;
}

/// Every fifth row loses an ack, and more acks are lost than the window holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_loses_acks_gets_everything() {
    let harness = Harness::with(|config| {
        config.relay.window = 8;
        config.relay.ack_limit_ms = 200;
    })
    .await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    for number in 0..100 {
        harness.say(&account, "c", &number.to_string()).await;
    }
    let mut taken: HashMap<usize, usize> = HashMap::new();
    let due = |number: usize| match number {
        5 => 1 + usize::from(RESENDS_MAX),
        _ if number.is_multiple_of(5) => 2,
        _ => 1,
    };
    while (0..100).any(|number| taken.get(&number).is_none_or(|times| *times < due(number))) {
        let event = socket.event().await;
        let number: usize = event.text().parse().unwrap();
        let times = taken.entry(number).or_default();
        *times += 1;
        if !number.is_multiple_of(5) || (*times > 1 && number != 5) {
            socket.ack(&event).await;
        }
    }
    until("some rows were not settled", async || harness.mail(&account).await.iter().all(|row| row["state"] != "sent"))
        .await;
    let rows = harness.mail(&account).await;
    let dead: Vec<&Value> = rows.iter().filter(|row| row["state"] == "dead").collect();
    assert_eq!((rows.len(), dead.len(), &dead[0]["seq"]), (100, 1, &json!(6)), "{dead:?}");
    // More than that where an ack was slow.
    assert!(harness.metric("frontdesk_rows_resent_total").await >= 19 + u64::from(RESENDS_MAX));
    assert!(taken.values().all(|times| *times <= 1 + usize::from(RESENDS_MAX)), "{taken:?}");
    assert_eq!(harness.metric("frontdesk_rows_given_up_total").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn knowledge_of_a_non_acking_gateway_survives_a_restart() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let desk = harness.app.desk.clone();
    let caller = desk.directory().prove_gateway(&account.bearer()).unwrap_or_else(|_| panic!("not authenticated"));
    desk.delivery().note_never_acks(&caller).await;
    let instance = caller.instance.no;
    drop(desk);
    let folder = harness.finish().await;
    let harness = Harness::again(folder, |_| {}).await;
    assert_eq!(harness.app.desk.delivery().sockets().acks(instance), Acks::Never);
    // An ack ends that, and this is stored, too.
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "hi").await;
    let event = socket.event().await;
    socket.ack(&event).await;
    socket.hang_up().await;
    until("the end of the socket was not noticed", async || !harness.app.desk.delivery().sockets().is_live(instance))
        .await;
    let folder = harness.finish().await;
    let harness = Harness::again(folder, |_| {}).await;
    assert_eq!(harness.app.desk.delivery().sockets().acks(instance), Acks::Assumed);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_rows_are_sent_one_by_one_and_all_arrive() {
    let harness = Harness::with(|config| config.relay.window = 32).await;
    let account = harness.add_gateway("g").await;
    let text = "🧊".repeat(30_000);
    for number in 0..30 {
        harness
            .say_as(&account, "c", json!({ "user_id": account.user, "text": text, "message_id": format!("m{number}") }))
            .await
            .expect(202);
    }
    let mut socket = harness.socket(&account).await;
    for number in 0..30 {
        let event = socket.event().await;
        assert_eq!(event.json["event"]["message_id"], format!("m{number}"));
        assert!(harness.metric(OUTBOX).await <= (2 << 20));
        socket.ack(&event).await;
    }
    harness.finish().await;
}
