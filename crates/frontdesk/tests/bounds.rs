//! Bounds: what peers can make the desk hold, and how long.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the desk, not a part of it")]

#[path = "harness/mod.rs"]
mod harness;

use std::time::Duration;

use frontdesk::app::FIRST_TENANT;
use harness::{Harness, PATIENCE, Seat};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Resident memory of this process, in which the desk runs.
fn resident_bytes() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

async fn connect(house: &Harness) -> TcpStream {
    TcpStream::connect(house.url.trim_start_matches("http://")).await.unwrap()
}

/// The next whole answer on a connection: its status and its body.
async fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let reading = async {
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length =
                    head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if length.is_none_or(|length: usize| body.len() >= length) {
                    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                    return (status, body.to_owned());
                }
            }
            assert!(stream.read_buf(&mut bytes).await.unwrap() > 0, "the connection ended: {text}");
        }
    };
    timeout(PATIENCE, reading).await.expect("no answer")
}

#[tokio::test]
async fn a_stranger_sends_little_before_it_has_proven_anything() {
    let house = Harness::open().await;
    let head = "POST /chat/login HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2000000";
    assert_eq!(house.raw(head, Vec::new()).await, 413, "refused by its length, before it comes");
    let token = "x".repeat(5_000);
    assert_eq!(house.post("/chat/login", "", &json!({ "token": token })).await.problem(413), "too_large");
    house.finish().await;
}

/// Somebody who is cut off while sending may never see why.
#[tokio::test]
async fn a_body_that_is_too_large_is_answered_and_the_connection_goes_on() {
    let house = Harness::open().await;
    let mut stream = connect(&house).await;
    let body = vec![b' '; 3 << 20];
    for head in [format!("Content-Length: {}", body.len()), "Transfer-Encoding: chunked".to_owned()] {
        let head = format!(
            "POST /admin/v1/tenants HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n{head}\r\n\r\n",
            house.admin
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        if head.contains("chunked") {
            stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await.unwrap();
        }
        stream.write_all(&body).await.unwrap();
        if head.contains("chunked") {
            stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        }
        let (status, text) = answer(&mut stream).await;
        assert_eq!(status, 413, "{text}");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await, (200, "ok\n".into()));
    }
    house.finish().await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so() {
    let house = Harness::with(|config| config.server.connections_max = 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&house).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await.0, 200);
        held.push(stream);
    }
    let (status, text) = answer(&mut connect(&house).await).await;
    assert!(status == 503 && text.contains("too many connections"), "{status} {text}");
    drop(held.pop());
    let again = async {
        loop {
            let mut stream = connect(&house).await;
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await;
            let mut some = [0; 12];
            if stream.read_exact(&mut some).await.is_ok() && &some == b"HTTP/1.1 200" {
                return;
            }
        }
    };
    timeout(PATIENCE, again).await.expect("a place that is free again");
    house.finish().await;
}

/// A socket is a connection for as long as it is open, though the HTTP that opened it has ended.
#[tokio::test]
async fn relay_sockets_count_as_connections() {
    let house = Harness::with(|config| config.server.connections_max = 4).await;
    let seat = house.seat("gw").await;
    let socket = house.socket(&seat).await;
    let mut others = Vec::new();
    let full = async {
        loop {
            let mut stream = connect(&house).await;
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await;
            let (status, _) = answer(&mut stream).await;
            if status == 503 {
                return;
            }
            others.push(stream);
        }
    };
    timeout(PATIENCE, full).await.expect("the limit holds");
    // The fourth place is the one of the client that asked for the seat.
    assert_eq!(others.len(), 2, "beside the socket");
    drop((socket, others));
    house.finish().await;
}

/// 24 MB in 240 lines.
async fn long_chat(house: &Harness, seat: &Seat) {
    let text = "x".repeat(30_000);
    for number in 0..240 {
        let json = json!({ "message_id": format!("m-{number}"), "direction": "in", "text": format!("{number} {text}{text}{text}"),
            "at": 1, "seq": 0, "edited": false, "deleted": false, "reactions": [] });
        let id = format!("m-{number}");
        house.app.desk.stores().chat.chat_append(&seat.tenant, "long", &id, json.to_string(), 1).await.unwrap();
    }
}

#[tokio::test]
async fn a_history_comes_in_pages_of_bounded_size() {
    let house = Harness::open().await;
    let seat = house.seat("gw").await;
    long_chat(&house, &seat).await;
    let (mut after, mut pages, mut lines) = (0, 0, 0);
    loop {
        let page = house.get(&format!("/chat/v1/chats/long/messages?after={after}"), &seat.chat).await;
        assert!(page.body.len() < 1 << 20, "{} bytes", page.body.len());
        let page = page.expect(200);
        let messages = page["messages"].as_array().unwrap();
        pages += 1;
        lines += messages.len();
        if page["more"] == false {
            break;
        }
        after = messages.last().unwrap()["seq"].as_u64().unwrap();
    }
    assert!(lines == 240 && pages > 20, "{lines} lines in {pages} pages");
    house.finish().await;
}

/// Opens 40 streams of 24 MB each and reads none of them. One more that is read gets everything, although the others
/// hold their pages.
async fn stall_streams(house: &Harness, path: &str, bearer: &str, words: &[&str]) {
    let before = resident_bytes();
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut stream = connect(house).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {bearer}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut some = [0; 256];
        timeout(PATIENCE, stream.read_exact(&mut some)).await.unwrap().unwrap(); // it has begun
        held.push(stream);
    }
    let all = house.stream(path, bearer, words).await;
    assert!(all.len() > 20_000_000);
    drop(all);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes for 40 streams of 24 MB each");
}

/// Streams that nobody reads: each would have held all of the history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_nobody_reads_hold_a_page_each() {
    let house = Harness::open().await;
    let seat = house.seat("gw").await;
    long_chat(&house, &seat).await;
    stall_streams(&house, "/chat/v1/chats/long/stream", &seat.chat, &["\"m-0\"", "\"m-239\""]).await;
    house.finish().await;
}

/// The same for inboxes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inbox_streams_that_nobody_reads_hold_a_page_each() {
    let house = Harness::open().await;
    let token = house.token("home", "agents").await;
    house.call("PUT", "/v1/agents/alice", &token, &json!({})).await.expect(200);
    let text = "x".repeat(100_000);
    for number in 0..240 {
        let meta = json!({ "dispatch_id": format!("d-{number}"), "sent_at": 1, "origin": {} });
        let body = json!({ "kind": "augment", "content": format!("{number} {text}"), "meta": meta });
        house.post("/v1/agents/alice/deliver", &token, &body).await.expect(200);
    }
    stall_streams(&house, "/v1/agents/alice/inbox/stream?after=0", &token, &["\"d-0\"", "\"d-239\""]).await;
    house.finish().await;
}

/// Uploads that stop in the middle lie on the disk, not in memory, and a tenant has so many of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_that_stall_are_few_and_not_held_in_memory() {
    let house = Harness::open().await;
    let (seat, rival) = (house.seat("gw").await, house.seat_in("rival", "r").await);
    let before = resident_bytes();
    let begin = async |chat: &str| {
        let mut stream = connect(&house).await;
        let head = format!(
            "POST /chat/v1/media HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {chat}\r\n\
             Content-Type: image/png\r\nContent-Length: 20000001\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![1; 20_000_000]).await.unwrap(); // all but the last byte
        stream
    };
    let mut stalled = Vec::new();
    for _ in 0..16 {
        stalled.push(begin(&seat.chat).await);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 100 << 20, "{grown} bytes for 320 MB that are on their way");
    let put = async |chat: &str| {
        let request = house.request("POST", "/chat/v1/media").bearer_auth(chat).header("content-type", "image/png");
        house.send(request.body(vec![1; 10])).await
    };
    let told = put(&seat.chat).await;
    assert_eq!(told.problem(429), "rate_limited");
    assert!(told.text().contains("uploads"), "{}", told.text());
    put(&rival.chat).await.expect(200); // nobody else waits for them
    let mut last = stalled.pop().unwrap();
    last.write_all(&[1]).await.unwrap();
    let (status, _) = answer(&mut last).await;
    assert_eq!(status, 200);
    put(&seat.chat).await.expect(200);
    drop(stalled);
    house.finish().await;
}

#[tokio::test]
async fn the_list_of_chats_says_that_there_is_more() {
    let house = Harness::open().await;
    let seat = house.seat("gw").await;
    for number in 0..1_001 {
        house.app.desk.stores().chat.chat_put(&seat.tenant, &format!("c-{number:04}"), "", "{}".into()).await.unwrap();
    }
    let first = house.get("/chat/v1/chats", &seat.chat).await.expect(200);
    let chats = first["chats"].as_array().unwrap();
    assert_eq!((chats.len(), &first["more"]), (1_000, &json!(true)));
    let last = chats.last().unwrap()["chat_id"].as_str().unwrap();
    let rest = house.get(&format!("/chat/v1/chats?after={last}"), &seat.chat).await.expect(200);
    assert_eq!((rest["chats"].as_array().unwrap().len(), &rest["more"]), (1, &json!(false)));
    house.finish().await;
}

/// A check is a write, and monitors ask often.
#[tokio::test]
async fn readiness_writes_once_a_second_however_often_it_is_asked() {
    let house = Harness::open().await;
    let mark = || {
        let database = rusqlite::Connection::open(house.folder.path().join("data/frontdesk.db")).unwrap();
        database.query_row("SELECT value FROM meta WHERE key = 'health'", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let mut marks = std::collections::HashSet::new();
    let began = tokio::time::Instant::now();
    for _ in 0..200 {
        assert_eq!(house.get("/readyz", "").await.status, 200);
        marks.insert(mark());
    }
    let seconds = began.elapsed().as_secs();
    assert!(marks.len() as u64 <= seconds + 1, "{} writes in {seconds} s", marks.len());
    house.finish().await;
}

#[tokio::test]
async fn a_tenant_has_so_many_instances_gateways_and_alarms() {
    let house = Harness::with(|config| {
        config.relay.instances_per_tenant = 3;
        config.relay.gateways_per_tenant = 2;
        config.cron.armed_per_tenant = 2;
    })
    .await;
    let identity = house.token(FIRST_TENANT, "identity").await;
    let provision = async |gateway: &str, instance: &str| {
        let ask = json!({ "gatewayId": gateway, "platform": "relay", "instanceId": instance });
        house.post("/relay/provision", &identity, &ask).await
    };
    provision("a", "one").await.expect(200);
    provision("b", "two").await.expect(200);
    let told = provision("c", "one").await.error(403);
    assert!(told.contains("relay.gateways_per_tenant (2)"), "{told}");
    provision("a", "three").await.expect(200);
    let told = provision("b", "four").await.error(403);
    assert!(told.contains("relay.instances_per_tenant (3)"), "{told}");
    let other = house.seat_in("other", "theirs").await;
    assert_eq!(other.tenant, "other", "another tenant has its own");

    let ask = json!({ "tenant": FIRST_TENANT, "scope": "identity", "instance": "one" });
    let bearer = house.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    let arm = async |job: &str, year: u32| {
        let ask =
            json!({ "job_id": job, "fire_at": format!("{year}-01-01T00:00:00Z"), "agent_callback_url": "relay:" });
        house.post("/api/agent-cron/provision", &bearer, &ask).await
    };
    arm("a", 2099).await.expect(200);
    arm("b", 2099).await.expect(200);
    let told = arm("c", 2099).await.error(429);
    assert!(told.contains("cron.armed_per_tenant (2)"), "{told}");
    arm("b", 2098).await.expect(200); // the same job at another time is none more
    house.post("/api/agent-cron/cancel", &bearer, &json!({ "job_id": "a" })).await.expect(200);
    arm("c", 2099).await.expect(200);
    house.finish().await;
}

#[tokio::test]
async fn a_tenant_has_so_many_bytes_of_files() {
    let house = Harness::with(|config| config.media.per_tenant_bytes = 100_000).await;
    let seat = house.seat("gw").await;
    let put = async |size: usize| {
        let request =
            house.request("POST", "/chat/v1/media").bearer_auth(&seat.chat).header("content-type", "image/png");
        house.send(request.body(vec![1; size])).await
    };
    let id = put(60_000).await.expect(200)["id"].as_str().unwrap().to_owned();
    let told = put(60_000).await;
    assert_eq!(told.problem(413), "too_large");
    assert!(told.text().contains("media.per_tenant_bytes (100000)"), "{}", told.text());
    let body = house.get(&format!("/chat/v1/media/{id}"), &seat.chat).await.body;
    assert_eq!(body.len(), 60_000);
    house.finish().await;
}

/// Ten pages of what is armed, in the one answer of the contract.
#[tokio::test]
async fn the_list_of_alarms_is_whole_however_long_it_is() {
    let house = Harness::open().await;
    let ask = json!({ "tenant": FIRST_TENANT, "scope": "identity", "instance": "one" });
    let bearer = house.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    assert_eq!(house.get("/api/agent-cron/list", &bearer).await.expect(200), json!({ "armed": [] }));
    let desk = &house.app.desk;
    let who = frontdesk_core::directory::Identity { tenant: FIRST_TENANT.into(), instance: Some("one".into()) };
    let guest = desk.directory().guest_of(&who).await.unwrap();
    for count in [1, 500, 1_501] {
        let armed = desk.stores().alarms.armed(guest.instance.no, 0, 9_999).await.unwrap().len();
        for number in armed..count {
            let ask = json!({ "job_id": format!("job \"{number}\""), "fire_at": "2099-01-01T00:00:00Z", "agent_callback_url": "relay:" });
            desk.cron().provision_shot(&guest, serde_json::from_value(ask).unwrap()).await.unwrap();
        }
        let list = house.get("/api/agent-cron/list", &bearer).await;
        assert_eq!(list.header("content-type"), "application/json");
        let list = list.expect(200);
        let jobs: Vec<&Value> = list["armed"].as_array().unwrap().iter().map(|it| &it["job_id"]).collect();
        assert_eq!(jobs.len(), count);
        assert!(jobs.iter().enumerate().all(|(number, job)| **job == json!(format!("job \"{number}\""))));
    }
    house.finish().await;
}

/// Posts go on while a copy of the whole database is made, and the copy is of one moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_ends_under_load_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let house = Harness::open().await;
    let seat = house.seat("gw").await;
    long_chat(&house, &seat).await;
    let file = house.folder.path().join("copy.db");
    let ask = json!({ "file": file });
    let backup = house.admin("POST", "/backup", &ask);
    let load = async {
        loop {
            house.say(&seat, "load", "x").await;
            assert_eq!(house.get("/readyz", "").await.status, 200);
        }
    };
    let done = timeout(Duration::from_mins(1), async {
        tokio::select! { done = backup => done, () = load => unreachable!() }
    });
    done.await.expect("the backup does not end").expect(200);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = rusqlite::Connection::open(&file).unwrap();
    let lines: i64 =
        copy.query_row("SELECT COUNT(*) FROM chat_line WHERE chat_id = 'long'", [], |row| row.get(0)).unwrap();
    assert_eq!(lines, 240);
    house.finish().await;
}
