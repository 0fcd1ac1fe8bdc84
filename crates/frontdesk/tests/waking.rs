//! Agents that sleep: calls of their wake URL, notices to users, and shutdown with connected clients.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_wire::frame::GatewayLine;
use process::{Api, Desk, GatewayAccount, Received, Socket, person, until};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Time limit for everything that should happen at once.
const SOON: Duration = Duration::from_secs(30);
/// Tolerance for clocks of two processes and timers that fire a little early.
const SLACK: Duration = Duration::from_millis(400);

/// A wake URL: responds to every request with one status and records the time.
struct WakeServer {
    url: String,
    status: Arc<AtomicU16>,
    pokes: Arc<Mutex<Vec<(Instant, String)>>>,
    task: tokio::task::JoinHandle<()>,
}

impl WakeServer {
    async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/wake/me?machine=7", listener.local_addr().unwrap());
        let (status, pokes) = (Arc::new(AtomicU16::new(status)), Arc::new(Mutex::new(Vec::new())));
        let (answer, seen) = (status.clone(), pokes.clone());
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                let whole = async {
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await?);
                    }
                    std::io::Result::Ok(())
                };
                if !matches!(timeout(SOON, whole).await, Ok(Ok(()))) {
                    continue;
                }
                seen.lock().unwrap().push((Instant::now(), String::from_utf8(head).unwrap()));
                let status = answer.load(Ordering::SeqCst);
                let text = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(text.as_bytes()).await; // the server may have been killed
            }
        });
        Self { url, status, pokes, task }
    }

    fn times(&self) -> Vec<Instant> {
        self.pokes.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }

    fn count(&self) -> usize {
        self.pokes.lock().unwrap().len()
    }

    async fn wait_for(&self, count: usize, within: Duration) {
        until(&format!("wake call {count}"), within, async || (self.count() >= count).then_some(())).await;
    }
}

impl Drop for WakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn say(api: &Api, instance: &str, id: &str) -> Value {
    api.post("chat", &person(instance), id, "are you there?").await
}

async fn dial(api: &Api, account: &GatewayAccount) -> Socket {
    until("the gateway can connect", SOON, async || Socket::dial(&api.url, account).await.ok()).await
}

/// Sends `going_idle` and waits for its ack.
async fn go_idle(socket: &mut Socket) {
    socket.say(&GatewayLine::GoingIdle.line()).await.unwrap();
    match timeout(SOON, socket.receive()).await.unwrap() {
        Received::Frame(frame) if frame["type"] == "going_idle_ack" => {}
        other => panic!("no ack of going_idle: {other:?}"),
    }
}

async fn wait_until_gone(api: &Api, gateway: &str) {
    until("the server notices that the socket ended", SOON, async || (!api.connected(gateway).await).then_some(()))
        .await;
}

// ---- wake calls -------------------------------------------------------------------------------

#[tokio::test]
async fn a_sleeping_agent_is_called_once_per_cooldown_until_it_connects() {
    let cooldown = Duration::from_secs(15);
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "15000")]).await;
    let wake = WakeServer::start(200).await;
    let account = desk.api.add_gateway("ann", Some(&wake.url)).await;
    let api = &desk.api;
    assert_eq!(wake.count(), 0, "no wake call without waiting rows");

    say(api, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
    let first = wake.times()[0];
    for number in 1..5 {
        say(api, "ann", &format!("m{number}")).await;
    }
    sleep_until(first + cooldown - SLACK).await;
    assert_eq!(wake.count(), 1, "five messages, one wake call");
    let head = wake.pokes.lock().unwrap()[0].1.to_lowercase();
    assert!(head.starts_with("get /wake/me?machine=7 http/1.1\r\n"), "{head}");
    for absent in ["authorization", "content-length", "transfer-encoding", "cookie", "signature"] {
        assert!(!head.contains(absent), "a wake call contains no data or credentials: {head}");
    }

    // The URL responded, but the agent did not connect: called again after the cooldown.
    wake.wait_for(2, cooldown + SOON).await;
    let second = wake.times()[1];
    assert!(second - first + SLACK >= cooldown, "{:?}", second - first);
    let mut socket = dial(api, &account).await;
    assert_eq!(socket.take(5).await, ["m0", "m1", "m2", "m3", "m4"]);
    until("all is acked", SOON, async || (api.waiting("ann").await == 0).then_some(())).await;

    // The agent has connected, so the wake is finished: asleep again, the next message does not wait for the cooldown.
    socket.hang_up().await;
    wait_until_gone(api, "ann").await;
    let asked = Instant::now();
    say(api, "ann", "m5").await;
    wake.wait_for(3, SOON).await;
    assert!(wake.times()[2] - asked + SLACK < cooldown, "{:?}", wake.times()[2] - asked);
    let mut socket = dial(api, &account).await;
    assert_eq!(socket.take(1).await, ["m5"]);
    sleep(cooldown + Duration::from_secs(3)).await;
    assert_eq!(wake.count(), 3, "a connected agent is not called");
    assert_eq!(api.metric("frontdesk_wakes_total{why=\"answered\"}").await, 3);
}

#[tokio::test]
async fn an_agent_that_acked_everything_is_not_called_again() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "5000")]).await;
    let wake = WakeServer::start(200).await;
    let account = desk.api.add_gateway("ann", Some(&wake.url)).await;
    let api = &desk.api;
    for round in 0..3 {
        say(api, "ann", &format!("m{round}")).await;
        wake.wait_for(round + 1, SOON).await;
        let mut socket = dial(api, &account).await;
        assert_eq!(socket.take(1).await, [format!("m{round}")]);
        until("all is acked", SOON, async || (api.waiting("ann").await == 0).then_some(())).await;
        if round == 0 {
            go_idle(&mut socket).await;
        }
        socket.hang_up().await;
        wait_until_gone(api, "ann").await;
    }
    sleep(Duration::from_secs(8)).await; // an unnecessary call would come after the cooldown
    assert_eq!(wake.count(), 3);
}

#[tokio::test]
async fn a_failing_wake_url_is_retried_with_growing_delays_until_the_agent_connects() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "50")]).await;
    let wake = WakeServer::start(500).await;
    let account = desk.api.add_gateway("ann", Some(&wake.url)).await;
    let api = &desk.api;
    say(api, "ann", "m0").await;
    wake.wait_for(2, SOON).await;
    say(api, "ann", "m1").await; // a new message does not shorten the delay
    wake.wait_for(3, SOON).await;
    let times = wake.times();
    let (one, two) = (times[1] - times[0], times[2] - times[1]);
    assert!(one + SLACK >= Duration::from_secs(1), "{one:?}");
    assert!(two + SLACK >= Duration::from_secs(2), "{one:?}, then {two:?}");
    let counted = async || api.metric("frontdesk_wakes_total{why=\"bad_status\"}").await;
    until("the third answer is counted", SOON, async || (counted().await == 3).then_some(())).await;

    let mut socket = dial(api, &account).await;
    assert_eq!(socket.take(2).await, ["m0", "m1"]);
    sleep_until(times[2] + Duration::from_secs(6)).await; // the next call would have come after four seconds
    assert_eq!(wake.count(), 3, "a wake call after the agent connected");

    // Asleep again, with a working URL.
    wake.status.store(204, Ordering::SeqCst);
    socket.hang_up().await;
    wait_until_gone(api, "ann").await;
    say(api, "ann", "m2").await;
    wake.wait_for(4, SOON).await;
}

#[tokio::test]
async fn mail_that_came_before_the_wake_url_causes_a_call_as_soon_as_it_is_known() {
    let desk = Desk::start(&[]).await;
    let api = &desk.api;
    api.add_gateway("ann", None).await;
    say(api, "ann", "m0").await;
    let tried = "frontdesk_wakes_total{why=\"no_wake_url\"}";
    until("the attempt without URL", SOON, async || (api.metric(tried).await > 0).then_some(())).await;
    let failing = WakeServer::start(500).await;
    api.add_gateway("ann", Some(&failing.url)).await;
    failing.wait_for(2, SOON).await;
    let wake = WakeServer::start(200).await;
    api.add_gateway("ann", Some(&wake.url)).await;
    wake.wait_for(1, SOON).await;
    say(api, "ann", "m1").await;
    assert_eq!((wake.count(), api.waiting("ann").await), (1, 2));
}

#[tokio::test]
async fn a_withheld_message_wakes_no_agent() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "50")]).await;
    let wake = WakeServer::start(200).await;
    let _account = desk.api.add_gateway("ann", Some(&wake.url)).await;
    let api = &desk.api;
    for number in 0..3 {
        let answer = api.post("chat", "stranger", &format!("s{number}"), "hello?").await;
        assert_eq!(answer["verdict"]["outcome"], "withheld", "{answer}");
    }
    sleep(Duration::from_millis(800)).await;
    assert_eq!(wake.count(), 0, "a withheld message wakes no agent");
    assert_eq!(api.waiting("ann").await, 0);
    say(api, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
}

#[tokio::test]
async fn an_agent_that_goes_idle_or_dies_with_unacked_rows_is_called() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "100")]).await;
    let wake = WakeServer::start(200).await;
    let account = desk.api.add_gateway("ann", Some(&wake.url)).await;
    let api = &desk.api;

    let mut socket = dial(api, &account).await;
    go_idle(&mut socket).await;
    socket.hang_up().await;
    wait_until_gone(api, "ann").await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(wake.count(), 0, "asleep and nothing waits");
    say(api, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
    let mut socket = dial(api, &account).await;
    let (_, message_id) = socket.row(SOON).await.expect("no row after connecting");
    assert_eq!(message_id, "m0");

    // The agent dies before it acks: the row waits, so the agent is called again.
    let pokes = wake.count();
    drop(socket);
    wake.wait_for(pokes + 1, SOON).await;
    let mut socket = dial(api, &account).await;
    assert_eq!(socket.take(1).await, ["m0"]);
    until("all is acked", SOON, async || (api.waiting("ann").await == 0).then_some(())).await;

    // Idle with an open socket (a suspended machine): rows are buffered, and the agent is called.
    let pokes = wake.count();
    go_idle(&mut socket).await;
    say(api, "ann", "m1").await;
    assert!(socket.row(Duration::from_millis(500)).await.is_none(), "nothing is pushed to an idle agent");
    wake.wait_for(pokes + 1, SOON).await;
    let mut next = dial(api, &account).await;
    assert_eq!(next.take(1).await, ["m1"]);
    assert!(matches!(socket.receive().await, Received::Closed(Some(1000))), "the newest socket wins");
}

#[tokio::test]
async fn rows_that_wait_through_a_crash_cause_a_wake_call_at_start() {
    let mut desk = Desk::start(&[("WAKE_COOLDOWN_MS", "60000")]).await;
    let wake = WakeServer::start(200).await;
    let (account, idle) = (desk.api.add_gateway("ann", Some(&wake.url)).await, WakeServer::start(200).await);
    let _nothing_waits = desk.api.add_gateway("ben", Some(&idle.url)).await;
    say(&desk.api, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
    desk.kill().await;
    desk.start_again().await;
    wake.wait_for(2, SOON).await;
    let mut socket = dial(&desk.api, &account).await;
    assert_eq!(socket.take(1).await, ["m0"]);
    until("all is acked", SOON, async || (desk.api.waiting("ann").await == 0).then_some(())).await;
    desk.kill().await;
    desk.start_again().await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!((wake.count(), idle.count()), (2, 0), "nothing waits, so nothing is called");
}

// ---- notices ----------------------------------------------------------------------------------

async fn notices(api: &Api, chat: &str) -> usize {
    api.history(chat).await.iter().filter(|line| line["kind"] == "notice").count()
}

#[tokio::test]
async fn users_are_notified_once_that_their_agent_is_away_and_messages_stay() {
    let notice_after = Duration::from_secs(10); // long enough to store three messages before
    let mut desk = Desk::start(&[("WAKE_NOTICE_AFTER_S", "10")]).await;
    let wake = WakeServer::start(500).await;
    let account = desk.api.add_gateway("ann", Some(&wake.url)).await;
    let api = desk.api.clone();
    let began = Instant::now();
    let user = person("ann");
    for (chat, id) in [("one", "a0"), ("one", "a1"), ("two", "b0")] {
        api.post(chat, &user, id, "are you there?").await;
    }
    for chat in ["one", "two"] {
        until("users are notified", SOON, async || (notices(&api, chat).await > 0).then_some(())).await;
    }
    assert!(began.elapsed() >= notice_after, "notified too early");
    let line = api.history("one").await.pop().unwrap();
    assert_eq!((&line["kind"], &line["direction"]), (&"notice".into(), &"out".into()), "{line}");
    sleep(Duration::from_millis(1500)).await;

    // After a crash and an orderly restart the rows are the same, and users were already notified.
    desk.kill().await;
    desk.start_again().await;
    sleep(Duration::from_millis(1500)).await;
    desk.signal("TERM");
    assert!(desk.ended(SOON).await.unwrap().success());
    desk.start_again().await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!((notices(&api, "one").await, notices(&api, "two").await), (1, 1));
    let rows = api.mail("ann", "").await;
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["state"] == "accepted"), "{rows:?}");

    let mut socket = dial(&api, &account).await;
    assert_eq!(socket.take(3).await, ["a0", "a1", "b0"], "waiting rows are delivered when the agent returns");
    until("all is acked", SOON, async || (api.waiting("ann").await == 0).then_some(())).await;

    // A later wait is a new one: users are notified again.
    socket.hang_up().await;
    wait_until_gone(&api, "ann").await;
    api.post("one", &user, "a2", "and now?").await;
    until("users are notified again", SOON, async || (notices(&api, "one").await == 2).then_some(())).await;
    assert_eq!(notices(&api, "two").await, 1);
}

// ---- stopping ---------------------------------------------------------------------------------

async fn connect(api: &Api, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(api.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Opens an event stream and reads its first bytes.
async fn listen(api: &Api, path: &str, bearer: &str) -> reqwest::Response {
    let mut stream = api.client.get(format!("{}{path}", api.url)).bearer_auth(bearer).send().await.unwrap();
    assert_eq!(stream.status().as_u16(), 200, "{path}");
    if path.starts_with("/chat") {
        stream.chunk().await.unwrap().expect("the stream starts with the state of the agents");
    }
    stream
}

async fn drained(mut stream: reqwest::Response) {
    while let Ok(Some(_)) = stream.chunk().await {}
}

#[tokio::test]
async fn the_server_is_healthy_and_stops_gracefully() {
    let mut desk = Desk::start(&[]).await;
    let api = desk.api.clone();
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let (status, body) = api.ask(reqwest::Method::GET, path, "", None).await.unwrap();
        assert_eq!((status, body), (200, Value::String(text.into())), "{path}");
    }
    let mut sockets = Vec::new();
    for instance in ["ann", "ben"] {
        let account = api.add_gateway(instance, None).await;
        sockets.push(dial(&api, &account).await);
    }
    let stalled_account = api.add_gateway("stalled", None).await;
    let stalled = dial(&api, &stalled_account).await; // never reads again
    say(&api, "ann", "m0").await;
    assert_eq!(sockets[0].row(SOON).await.unwrap().1, "m0"); // not acked
    let chat = listen(&api, "/chat/v1/chats/chat/stream", &api.chat).await;
    let tail = listen(&api, "/admin/v1/events/stream", &api.admin).await;
    let asked = Instant::now();
    desk.signal("TERM");
    for socket in &mut sockets {
        let code = loop {
            match timeout(SOON, socket.receive()).await.expect("no close frame") {
                Received::Closed(code) => break code,
                Received::Row { .. } | Received::Frame(_) => {}
            }
        };
        assert_eq!(code, Some(1001), "going away, so that clients reconnect");
    }
    drop(sockets);
    timeout(SOON, drained(chat)).await.expect("the chat stream did not end");
    timeout(SOON, drained(tail)).await.expect("the tail did not end");
    let ended = desk.ended(SOON).await.expect("the server did not stop");
    let took = asked.elapsed();
    assert_eq!(ended.code(), Some(0), "{}", desk.log());
    assert!(took < Duration::from_secs(5), "all clients were closed, but the shutdown took {took:?}");
    drop(stalled);
    println!("stopped in {took:?}");

    desk.start_again().await;
    let rows = desk.api.mail("ann", "").await;
    assert_eq!(rows.len(), 1, "accepted messages are stored");
}

#[tokio::test]
async fn idle_connections_do_not_delay_a_shutdown_for_long() {
    for request in ["", "GET /healthz HT"] {
        let mut desk = Desk::start(&[]).await;
        let silent = connect(&desk.api, request).await;
        desk.api.look("/admin/v1/tenants").await; // this connection stays open, too
        let asked = Instant::now();
        desk.signal("TERM");
        let ended = desk.ended(SOON).await.expect("the server did not stop");
        assert_eq!(ended.code(), Some(0));
        println!("after {request:?} stopped in {:?}", asked.elapsed());
        drop(silent);
    }
}

#[tokio::test]
async fn messages_accepted_during_a_shutdown_are_stored() {
    let mut desk = Desk::start(&[]).await;
    let api = desk.api.clone();
    let _account = api.add_gateway("ann", None).await;
    let posting = tokio::spawn(async move {
        let mut taken = Vec::new();
        loop {
            let id = format!("m{}", taken.len());
            if api.try_post("chat", &person("ann"), &id, "quick").await.is_err() {
                return taken;
            }
            taken.push(id);
        }
    });
    sleep(Duration::from_millis(300)).await;
    desk.signal("TERM");
    let ended = desk.ended(SOON).await.expect("the server did not stop");
    assert_eq!(ended.code(), Some(0));
    let taken = posting.await.unwrap();
    desk.start_again().await;
    let mut there: Vec<String> =
        desk.api.mail("ann", "").await.iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect();
    there.reverse();
    assert_eq!(there.get(..taken.len()), Some(&taken[..]));
    assert!(there.len() <= taken.len() + 1, "one more may have been stored without a response");
    println!("{} messages taken until it stopped", taken.len());
}

#[tokio::test]
async fn an_endless_request_delays_a_shutdown_only_until_the_deadline_or_a_second_signal() {
    let mut desk = Desk::start(&[]).await;
    for twice in [false, true] {
        let head = format!(
            "POST /chat/v1/chats/chat/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"user_id\":",
            desk.api.chat
        );
        let slow = connect(&desk.api, &head).await;
        // The server has started to handle it when a later request has been answered.
        desk.api.look("/admin/v1/tenants").await;
        let asked = Instant::now();
        desk.signal("TERM");
        if twice {
            assert!(
                desk.ended(Duration::from_millis(500)).await.is_none(),
                "the shutdown waits for the request in progress"
            );
            desk.signal("TERM");
            let ended = desk.ended(Duration::from_secs(2)).await.expect("the second signal must stop it at once");
            assert_eq!(ended.code(), Some(0));
        } else {
            let ended = desk.ended(SOON).await.expect("the server did not stop");
            assert_eq!(ended.code(), Some(0));
            println!("an endless request held the stop up for {:?}", asked.elapsed());
            desk.start_again().await;
        }
        drop(slow);
    }
}
