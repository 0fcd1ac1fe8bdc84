//! Agents that sleep: pokes of their wake URL, what people are told meanwhile, and a desk that is
//! asked to stop while everybody is connected.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_wire::frame::GatewayLine;
use process::{Desk, Door, Heard, Seat, Socket, person, until};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Long enough for anything that happens at once.
const SOON: Duration = Duration::from_secs(5);
/// Clocks of two processes and timers that fire a little early.
const SLACK: Duration = Duration::from_millis(400);

/// A machine that can be woken: it answers every request with one status and remembers when it came.
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
                let _ = stream.write_all(text.as_bytes()).await; // the desk may have been killed
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
        until(&format!("poke {count} comes"), within, async || (self.count() >= count).then_some(())).await;
    }
}

impl Drop for WakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn say(door: &Door, instance: &str, id: &str) -> Value {
    door.post("chat", &person(instance), id, "are you there?").await
}

async fn dial(door: &Door, seat: &Seat) -> Socket {
    Socket::dial(&door.url, seat).await.unwrap()
}

/// Sends `going_idle` and waits for its ack.
async fn go_idle(socket: &mut Socket) {
    socket.say(&GatewayLine::GoingIdle.line()).await.unwrap();
    match timeout(Duration::from_secs(10), socket.hear()).await.unwrap() {
        Heard::Frame(frame) if frame["type"] == "going_idle_ack" => {}
        other => panic!("no ack of going_idle: {other:?}"),
    }
}

async fn wait_until_gone(door: &Door, gateway: &str) {
    until("the desk sees the socket end", SOON, async || (!door.connected(gateway).await).then_some(())).await;
}

// ---- pokes ------------------------------------------------------------------------------------

#[tokio::test]
async fn a_sleeper_is_poked_once_per_cooldown_until_it_dials() {
    let cooldown = Duration::from_secs(2);
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "2000")]).await;
    let wake = WakeServer::start(200).await;
    let seat = desk.door.seat("ann", Some(&wake.url)).await;
    let door = &desk.door;
    assert_eq!(wake.count(), 0, "nobody is poked for nothing");

    say(door, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
    let first = wake.times()[0];
    for number in 1..5 {
        say(door, "ann", &format!("m{number}")).await;
    }
    sleep_until(first + cooldown - SLACK).await;
    assert_eq!(wake.count(), 1, "five messages, one poke");
    let head = wake.pokes.lock().unwrap()[0].1.to_lowercase();
    assert!(head.starts_with("get /wake/me?machine=7 http/1.1\r\n"), "{head}");
    for absent in ["authorization", "content-length", "transfer-encoding", "cookie", "signature"] {
        assert!(!head.contains(absent), "a poke carries and proves nothing: {head}");
    }

    // It answered and did not come: asked again, after a whole cooldown.
    wake.wait_for(2, cooldown + SOON).await;
    let second = wake.times()[1];
    assert!(second - first + SLACK >= cooldown, "{:?}", second - first);
    let mut socket = dial(door, &seat).await;
    assert_eq!(socket.take(5).await, ["m0", "m1", "m2", "m3", "m4"]);
    until("all is acked", SOON, async || (door.waiting("ann").await == 0).then_some(())).await;

    // That poke brought it, so it is over: asleep again, the next message does not wait for a cooldown.
    socket.hang_up().await;
    wait_until_gone(door, "ann").await;
    let asked = Instant::now();
    say(door, "ann", "m5").await;
    wake.wait_for(3, SOON).await;
    assert!(wake.times()[2] - asked + SLACK < cooldown, "{:?}", wake.times()[2] - asked);
    let mut socket = dial(door, &seat).await;
    assert_eq!(socket.take(1).await, ["m5"]);
    sleep(cooldown * 3).await;
    assert_eq!(wake.count(), 3, "whoever is awake is not poked");
    assert_eq!(door.metric("frontdesk_wakes_total{why=\"answered\"}").await, 3);
}

#[tokio::test]
async fn an_agent_that_comes_acks_and_sleeps_is_not_poked_for_nothing() {
    let cooldown = Duration::from_millis(500);
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "500")]).await;
    let wake = WakeServer::start(200).await;
    let seat = desk.door.seat("ann", Some(&wake.url)).await;
    let door = &desk.door;
    for round in 0..3 {
        say(door, "ann", &format!("m{round}")).await;
        wake.wait_for(round + 1, SOON).await;
        let mut socket = dial(door, &seat).await;
        assert_eq!(socket.take(1).await, [format!("m{round}")]);
        until("all is acked", SOON, async || (door.waiting("ann").await == 0).then_some(())).await;
        if round == 0 {
            go_idle(&mut socket).await;
        }
        socket.hang_up().await;
        wait_until_gone(door, "ann").await;
    }
    sleep(cooldown * 5).await; // a poke for nothing would come after one cooldown, and again after more
    assert_eq!(wake.count(), 3);
}

#[tokio::test]
async fn a_failing_wake_url_is_tried_again_with_growing_delays_until_the_agent_dials() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "50")]).await;
    let wake = WakeServer::start(500).await;
    let seat = desk.door.seat("ann", Some(&wake.url)).await;
    let door = &desk.door;
    say(door, "ann", "m0").await;
    wake.wait_for(2, SOON).await;
    say(door, "ann", "m1").await; // new mail does not make it hurry
    wake.wait_for(3, SOON).await;
    let times = wake.times();
    let (one, two) = (times[1] - times[0], times[2] - times[1]);
    assert!(one + SLACK >= Duration::from_secs(1), "{one:?}");
    assert!(two + SLACK >= Duration::from_secs(2), "{one:?}, then {two:?}");
    assert_eq!(door.metric("frontdesk_wakes_total{why=\"bad_status\"}").await, 3);

    let mut socket = dial(door, &seat).await;
    assert_eq!(socket.take(2).await, ["m0", "m1"]);
    sleep_until(times[2] + Duration::from_secs(6)).await; // the next one would have come after four
    assert_eq!(wake.count(), 3, "a poke after it dialed");

    // Asleep again, and the URL has been mended: the old failures are forgotten.
    wake.status.store(204, Ordering::SeqCst);
    socket.hang_up().await;
    wait_until_gone(door, "ann").await;
    let asked = Instant::now();
    say(door, "ann", "m2").await;
    wake.wait_for(4, SOON).await;
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_message_that_nobody_may_have_wakes_nobody() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "50")]).await;
    let wake = WakeServer::start(200).await;
    let _seat = desk.door.seat("ann", Some(&wake.url)).await;
    let door = &desk.door;
    for number in 0..3 {
        let answer = door.post("chat", "stranger", &format!("s{number}"), "hello?").await;
        assert_eq!(answer["verdict"]["outcome"], "withheld", "{answer}");
    }
    sleep(Duration::from_millis(800)).await;
    assert_eq!(wake.count(), 0, "a withheld message wakes nobody");
    assert_eq!(door.waiting("ann").await, 0);
    say(door, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
}

#[tokio::test]
async fn an_agent_that_goes_idle_or_dies_with_mail_unacked_is_poked() {
    let desk = Desk::start(&[("WAKE_COOLDOWN_MS", "100")]).await;
    let wake = WakeServer::start(200).await;
    let seat = desk.door.seat("ann", Some(&wake.url)).await;
    let door = &desk.door;

    let mut socket = dial(door, &seat).await;
    go_idle(&mut socket).await;
    socket.hang_up().await;
    wait_until_gone(door, "ann").await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(wake.count(), 0, "it sleeps and nothing waits");
    say(door, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
    let mut socket = dial(door, &seat).await;
    let (_, message_id) = socket.row(SOON).await.expect("it dialed, so it gets its mail");
    assert_eq!(message_id, "m0");

    // It dies before it acks: the row waits, so it is poked again.
    let pokes = wake.count();
    drop(socket);
    wake.wait_for(pokes + 1, SOON).await;
    let mut socket = dial(door, &seat).await;
    assert_eq!(socket.take(1).await, ["m0"]);
    until("all is acked", SOON, async || (door.waiting("ann").await == 0).then_some(())).await;

    // Idle with its socket still open (a machine that is suspended as it is): buffered, and poked.
    let pokes = wake.count();
    go_idle(&mut socket).await;
    say(door, "ann", "m1").await;
    assert!(socket.row(Duration::from_millis(500)).await.is_none(), "nothing is pushed to one that went idle");
    wake.wait_for(pokes + 1, SOON).await;
    let mut next = dial(door, &seat).await;
    assert_eq!(next.take(1).await, ["m1"]);
    assert!(matches!(socket.hear().await, Heard::Closed(Some(1000))), "the newest socket wins");
}

#[tokio::test]
async fn mail_that_waits_through_a_crash_pokes_at_the_start() {
    let mut desk = Desk::start(&[("WAKE_COOLDOWN_MS", "60000")]).await;
    let wake = WakeServer::start(200).await;
    let (seat, idle) = (desk.door.seat("ann", Some(&wake.url)).await, WakeServer::start(200).await);
    let _nothing_waits = desk.door.seat("ben", Some(&idle.url)).await;
    say(&desk.door, "ann", "m0").await;
    wake.wait_for(1, SOON).await;
    desk.kill().await;
    desk.start_again().await;
    wake.wait_for(2, SOON).await;
    let mut socket = dial(&desk.door, &seat).await;
    assert_eq!(socket.take(1).await, ["m0"]);
    until("all is acked", SOON, async || (desk.door.waiting("ann").await == 0).then_some(())).await;
    desk.kill().await;
    desk.start_again().await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!((wake.count(), idle.count()), (2, 0), "nothing waits any more, so nobody is poked");
}

// ---- notices ----------------------------------------------------------------------------------

async fn notices(door: &Door, chat: &str) -> usize {
    door.history(chat).await.iter().filter(|line| line["kind"] == "notice").count()
}

#[tokio::test]
async fn people_are_told_once_that_their_agent_is_away_and_their_message_stays() {
    let mut desk = Desk::start(&[("WAKE_NOTICE_AFTER_S", "1")]).await;
    let wake = WakeServer::start(500).await;
    let seat = desk.door.seat("ann", Some(&wake.url)).await;
    let door = desk.door.clone();
    let began = Instant::now();
    let user = person("ann");
    for (chat, id) in [("one", "a0"), ("one", "a1"), ("two", "b0")] {
        door.post(chat, &user, id, "are you there?").await;
    }
    for chat in ["one", "two"] {
        until("people are told", SOON, async || (notices(&door, chat).await > 0).then_some(())).await;
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "told too early");
    let line = door.history("one").await.pop().unwrap();
    assert_eq!((&line["kind"], &line["direction"]), (&"notice".into(), &"out".into()), "{line}");
    sleep(Duration::from_millis(1500)).await;

    // A crash and an orderly restart change nothing: the same rows, told already.
    desk.kill().await;
    desk.start_again().await;
    sleep(Duration::from_millis(1500)).await;
    desk.signal("TERM");
    assert!(desk.ended(Duration::from_secs(10)).await.unwrap().success());
    desk.start_again().await;
    sleep(Duration::from_millis(1500)).await;
    assert_eq!((notices(&door, "one").await, notices(&door, "two").await), (1, 1));
    let rows = door.mail("ann", "").await;
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row["state"] == "accepted"), "{rows:?}");

    let mut socket = dial(&door, &seat).await;
    assert_eq!(socket.take(3).await, ["a0", "a1", "b0"], "and they are delivered when it is back");
    until("all is acked", SOON, async || (door.waiting("ann").await == 0).then_some(())).await;

    // A later wait is another one: people are told again.
    socket.hang_up().await;
    wait_until_gone(&door, "ann").await;
    door.post("one", &user, "a2", "and now?").await;
    until("people are told again", SOON, async || (notices(&door, "one").await == 2).then_some(())).await;
    assert_eq!(notices(&door, "two").await, 1);
}

// ---- stopping ---------------------------------------------------------------------------------

async fn connect(door: &Door, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(door.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Opens an event stream and reads until its first bytes.
async fn listen(door: &Door, path: &str, bearer: &str) -> reqwest::Response {
    let mut stream = door.client.get(format!("{}{path}", door.url)).bearer_auth(bearer).send().await.unwrap();
    assert_eq!(stream.status().as_u16(), 200, "{path}");
    if path.starts_with("/chat") {
        stream.chunk().await.unwrap().expect("the state of the agents comes first");
    }
    stream
}

async fn drained(mut stream: reqwest::Response) {
    while let Ok(Some(_)) = stream.chunk().await {}
}

#[tokio::test]
async fn the_desk_says_that_it_lives_and_stops_politely_when_asked() {
    let mut desk = Desk::start(&[]).await;
    let door = desk.door.clone();
    for (path, text) in [("/healthz", "ok\n"), ("/readyz", "ready\n")] {
        let (status, body) = door.ask(reqwest::Method::GET, path, "", None).await.unwrap();
        assert_eq!((status, body), (200, Value::String(text.into())), "{path}");
    }
    let mut sockets = Vec::new();
    for instance in ["ann", "ben"] {
        let seat = door.seat(instance, None).await;
        sockets.push(dial(&door, &seat).await);
    }
    let deaf_seat = door.seat("deaf", None).await;
    let deaf = dial(&door, &deaf_seat).await; // it never reads again
    say(&door, "ann", "m0").await;
    assert_eq!(sockets[0].row(SOON).await.unwrap().1, "m0"); // and it does not ack
    let chat = listen(&door, "/chat/v1/chats/chat/stream", &door.chat).await;
    let tail = listen(&door, "/admin/v1/events/stream", &door.admin).await;
    let asked = Instant::now();
    desk.signal("TERM");
    for socket in &mut sockets {
        let code = loop {
            match timeout(SOON, socket.hear()).await.expect("a close comes soon") {
                Heard::Closed(code) => break code,
                Heard::Row { .. } | Heard::Frame(_) => {}
            }
        };
        assert_eq!(code, Some(1001), "going away: dial again");
    }
    drop(sockets);
    timeout(SOON, drained(chat)).await.expect("the chat's stream ends");
    timeout(SOON, drained(tail)).await.expect("the tail ends");
    let ended = desk.ended(Duration::from_secs(10)).await.expect("it ends within ten seconds");
    let took = asked.elapsed();
    assert_eq!(ended.code(), Some(0), "{}", desk.log());
    assert!(took < Duration::from_secs(5), "everybody was told to go, and yet it took {took:?}");
    drop(deaf);
    println!("stopped in {took:?}");

    desk.start_again().await;
    let rows = desk.door.mail("ann", "").await;
    assert_eq!(rows.len(), 1, "what was accepted is there");
}

#[tokio::test]
async fn connections_that_ask_for_nothing_do_not_hold_a_stop_up_for_long() {
    for request in ["", "GET /healthz HT"] {
        let mut desk = Desk::start(&[]).await;
        let silent = connect(&desk.door, request).await;
        desk.door.look("/admin/v1/tenants").await; // and this connection stays open, too
        let asked = Instant::now();
        desk.signal("TERM");
        let ended = desk.ended(Duration::from_secs(10)).await.expect("it ends within ten seconds");
        assert_eq!(ended.code(), Some(0));
        println!("after {request:?} stopped in {:?}", asked.elapsed());
        drop(silent);
    }
}

#[tokio::test]
async fn what_is_accepted_while_the_desk_stops_is_there_after_the_start() {
    let mut desk = Desk::start(&[]).await;
    let door = desk.door.clone();
    let _seat = door.seat("ann", None).await;
    let posting = tokio::spawn(async move {
        let mut taken = Vec::new();
        loop {
            let id = format!("m{}", taken.len());
            if door.try_post("chat", &person("ann"), &id, "quick").await.is_err() {
                return taken;
            }
            taken.push(id);
        }
    });
    sleep(Duration::from_millis(300)).await;
    desk.signal("TERM");
    let ended = desk.ended(Duration::from_secs(10)).await.expect("it ends within ten seconds");
    assert_eq!(ended.code(), Some(0));
    let taken = posting.await.unwrap();
    desk.start_again().await;
    let mut there: Vec<String> =
        desk.door.mail("ann", "").await.iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect();
    there.reverse();
    assert_eq!(there.get(..taken.len()), Some(&taken[..]));
    assert!(there.len() <= taken.len() + 1, "one more may have been written without its answer");
    println!("{} messages taken until it stopped", taken.len());
}

#[tokio::test]
async fn a_request_that_never_ends_holds_the_stop_up_only_so_long_and_a_second_signal_not_at_all() {
    let mut desk = Desk::start(&[]).await;
    for twice in [false, true] {
        let head = format!(
            "POST /chat/v1/chats/chat/messages HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"user_id\":",
            desk.door.chat
        );
        let slow = connect(&desk.door, &head).await;
        // The desk has begun with it when a later request has been answered.
        desk.door.look("/admin/v1/tenants").await;
        let asked = Instant::now();
        desk.signal("TERM");
        if twice {
            assert!(desk.ended(Duration::from_millis(500)).await.is_none(), "it waits for the request in hand");
            desk.signal("TERM");
            let ended = desk.ended(Duration::from_secs(2)).await.expect("the second signal ends it at once");
            assert_eq!(ended.code(), Some(0));
        } else {
            let ended = desk.ended(Duration::from_secs(10)).await.expect("it ends within ten seconds");
            assert_eq!(ended.code(), Some(0));
            println!("an endless request held the stop up for {:?}", asked.elapsed());
            desk.start_again().await;
        }
        drop(slow);
    }
}
