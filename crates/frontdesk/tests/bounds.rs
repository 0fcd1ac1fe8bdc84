//! Limits for memory and time that peers can occupy.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

#[path = "harness/mod.rs"]
mod harness;

use std::io::ErrorKind;
use std::time::Duration;

use frontdesk::app::FIRST_TENANT;
use frontdesk_core::port::alarms::{Alarm, Conclusion, JOBS_SCANNED_MAX};
use frontdesk_testkit::store_suite::alarms::alarm;
use frontdesk_wire::{MessageId, TenantId};
use harness::{GatewayAccount, Harness, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Resident memory of this process, which includes the server.
fn resident_bytes() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

async fn connect(harness: &Harness) -> TcpStream {
    TcpStream::connect(harness.url.trim_start_matches("http://")).await.unwrap()
}

/// The next complete response on a connection: status and body.
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
    timeout(TIME_LIMIT, reading).await.expect("no response")
}

#[tokio::test]
async fn bodies_before_authentication_are_small() {
    let harness = Harness::open().await;
    let head = "POST /chat/login HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2000000";
    assert_eq!(harness.raw(head, Vec::new()).await, 413, "refused by its Content-Length before it is sent");
    let token = "x".repeat(5_000);
    assert_eq!(harness.post("/chat/login", "", &json!({ "token": token })).await.problem(413), "too_large");
    harness.finish().await;
}

/// A client whose connection is closed while it sends may never see the reason.
#[tokio::test]
async fn a_client_that_sends_a_large_body_can_read_the_refusal_and_the_connection_stays_usable() {
    let harness = Harness::with(|config| config.media.per_tenant_bytes = 1).await;
    let account = harness.add_gateway("g").await;
    let mut stream = connect(&harness).await;
    let body = vec![b' '; 3 << 20];
    let (length, chunked) = (format!("Content-Length: {}", body.len()), "Transfer-Encoding: chunked".to_owned());
    let json = "Content-Type: application/json";
    for (path, bearer, kind, length, wanted) in [
        ("/admin/v1/tokens", &harness.admin, json, &length, 413),
        ("/admin/v1/tokens", &harness.admin, json, &chunked, 413),
        ("/admin/v1/tokens", &harness.admin, "Content-Type: text/plain", &length, 415),
        ("/admin/v1/tokens", &account.chat, json, &length, 401),
        ("/chat/v1/media", &harness.admin, "Content-Type: image/png", &length, 401),
        ("/chat/v1/media", &account.chat, "Content-Type: image/png", &length, 413), // its tenant may store one byte
        ("/nowhere", &account.chat, json, &length, 404),
    ] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {bearer}\r\n{kind}\r\n{length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let is_chunked = *length == chunked;
        if is_chunked {
            stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await.unwrap();
        }
        stream.write_all(&body).await.unwrap();
        if is_chunked {
            stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        }
        let (status, text) = answer(&mut stream).await;
        assert_eq!(status, wanted, "{path}: {text}");
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await, (200, "ok\n".into()), "{path}");
    }
    harness.finish().await;
}

/// It waits with its body, so there is nothing to discard, and it is not asked to send it.
#[tokio::test]
async fn a_client_that_expects_100_continue_is_refused_before_it_sends() {
    let harness = Harness::open().await;
    let mut stream = connect(&harness).await;
    let head = "POST /admin/v1/tokens HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer x\r\nContent-Type: application/json\r\n\
                Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(answer(&mut stream).await.0, 401);
    harness.finish().await;
}

/// Sends all of a body but the last bytes, and keeps the connection open.
async fn stall(harness: &Harness, path: &str, headers: &str, bytes: usize) -> TcpStream {
    let mut stream = connect(harness).await;
    let head = format!("POST {path} HTTP/1.1\r\nHost: desk\r\n{headers}Content-Length: {}\r\n\r\n", bytes + 9);
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; bytes]).await.unwrap();
    stream
}

/// Waits until there is no memory for the request beside bodies that stall. Those that were answered are replaced: a body that
/// does not arrive within 30 s is ended, which a slow machine may take for the steps of a test.
async fn await_full(
    harness: &Harness,
    stalled: &mut [TcpStream],
    one_more: impl AsyncFn() -> TcpStream,
    request: impl Fn() -> reqwest::RequestBuilder,
) {
    let full = async {
        loop {
            let reply = harness.send(request()).await;
            if reply.status == 503 {
                assert!(reply.text().contains("too many requests in progress"), "{}", reply.text());
                return;
            }
            for stream in &mut *stalled {
                if !matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock) {
                    *stream = one_more().await;
                }
            }
        }
    };
    timeout(TIME_LIMIT, full).await.expect("stalled bodies are not limited");
}

/// `server.requests_per_tenant_kib`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_bodies_of_a_tenant_take_no_memory_of_others() {
    let harness = Harness::with(|config| {
        config.server.requests_per_tenant_kib = 8192;
        config.agents.rate_per_s = 0;
    })
    .await;
    harness.admin("POST", "/tenants", &json!({ "name": "rival" })).await.expect(201);
    let (token, rival) = (harness.token(FIRST_TENANT, "agents").await, harness.token("rival", "agents").await);
    for token in [&token, &rival] {
        harness.call("PUT", "/v1/agents/alice", token, &json!({})).await.expect(200);
    }
    let deliver = |token: &str, bytes: usize| {
        let meta = json!({ "dispatch_id": "d", "sent_at": 1, "origin": {} });
        let message = json!({ "kind": "augment", "content": "x".repeat(bytes), "meta": meta });
        harness.request("POST", "/v1/agents/alice/deliver").bearer_auth(token).json(&message)
    };
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let one_more = async || stall(&harness, "/v1/agents/alice/deliver", &bearer, (4 << 20) - 1024).await;
    let mut stalled = [one_more().await, one_more().await];
    await_full(&harness, &mut stalled, one_more, || deliver(&token, 9_000)).await;
    assert_eq!(harness.send(deliver(&rival, 9_000)).await.status, 200, "another tenant");
    // Its client can read the refusal of a body that is refused while it comes.
    await_full(&harness, &mut stalled, one_more, || deliver(&token, 1_000_000)).await;
    drop(stalled);
    let free = async { while harness.send(deliver(&token, 9_000)).await.status != 200 {} };
    timeout(TIME_LIMIT, free).await.expect("the memory is not given back");
    harness.finish().await;
}

/// Bodies of unauthenticated clients take memory of their route only, and large ones leave room for ordinary messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_bodies_at_a_door_take_no_memory_of_others() {
    let harness = Harness::open().await;
    for bot in ["builds", "other"] {
        let key = "0123456789abcdef0123456789abcdef";
        let bot = json!({ "platform": "hooks", "id": bot, "tenant": FIRST_TENANT, "secrets": { "key": key } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
    }
    let hook = |bot: &str, bytes: usize| harness.request("POST", &format!("/hooks/{bot}")).body("x".repeat(bytes));
    let one_more = async || stall(&harness, "/hooks/builds", "", 250_000).await;
    let mut stalled = Vec::new();
    for _ in 0..200 {
        stalled.push(one_more().await); // 32 MiB, what large bodies of a door have together
    }
    await_full(&harness, &mut stalled, one_more, || hook("builds", 200_000)).await;
    // 401 says that a body was read, because its signature is checked over all of it.
    assert_eq!(harness.send(hook("builds", 10_000)).await.status, 401, "an ordinary message at the same door");
    assert_eq!(harness.send(hook("other", 200_000)).await.status, 401, "a large one at another door");
    await_full(&harness, &mut stalled, one_more, || hook("builds", 200_000)).await;
    drop(stalled);
    let free = async { while harness.send(hook("builds", 200_000)).await.status != 401 {} };
    timeout(TIME_LIMIT, free).await.expect("the memory is not given back");
    harness.finish().await;
}

#[tokio::test]
async fn connections_over_the_limit_get_a_reason() {
    let harness = Harness::with(|config| config.server.connections_max = 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = connect(&harness).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await.0, 200);
        held.push(stream);
    }
    let (status, text) = answer(&mut connect(&harness).await).await;
    assert!(status == 503 && text.contains("too many connections"), "{status} {text}");
    drop(held.pop());
    let again = async {
        loop {
            let mut stream = connect(&harness).await;
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await;
            let mut some = [0; 12];
            if stream.read_exact(&mut some).await.is_ok() && &some == b"HTTP/1.1 200" {
                return;
            }
        }
    };
    timeout(TIME_LIMIT, again).await.expect("no connection became free");
    harness.finish().await;
}

/// A socket counts as a connection while it is open, although its HTTP connection has ended.
#[tokio::test]
async fn relay_sockets_count_as_connections() {
    let harness = Harness::with(|config| config.server.connections_max = 4).await;
    let account = harness.add_gateway("gw").await;
    let socket = harness.socket(&account).await;
    let mut others = Vec::new();
    let full = async {
        loop {
            let mut stream = connect(&harness).await;
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\n\r\n").await;
            let (status, _) = answer(&mut stream).await;
            if status == 503 {
                return;
            }
            others.push(stream);
        }
    };
    timeout(TIME_LIMIT, full).await.expect("the limit was not reached");
    // The fourth connection is that of the client that created the gateway.
    assert_eq!(others.len(), 2, "besides the socket");
    drop((socket, others));
    harness.finish().await;
}

/// 24 MB in 240 lines.
async fn long_chat(harness: &Harness, account: &GatewayAccount) {
    let text = "x".repeat(30_000);
    for number in 0..240 {
        let json = json!({ "message_id": format!("m-{number}"), "direction": "in", "text": format!("{number} {text}{text}{text}"),
            "at": 1, "seq": 0, "edited": false, "deleted": false, "reactions": [] });
        let id = format!("m-{number}");
        harness
            .app
            .desk
            .stores()
            .chat
            .chat_append(&TenantId::from(&account.tenant), &"long".into(), &MessageId::from(&id), json.to_string(), 1)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn history_pages_have_a_bounded_size() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("gw").await;
    long_chat(&harness, &account).await;
    let (mut after, mut pages, mut lines) = (0, 0, 0);
    loop {
        let page = harness.get(&format!("/chat/v1/chats/long/messages?after={after}"), &account.chat).await;
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
    harness.finish().await;
}

/// Opens 40 streams of 24 MB each and reads none of them. Another stream that is read gets everything, although the
/// others hold their pages.
async fn stall_streams(harness: &Harness, path: &str, bearer: &str, words: &[&str]) {
    let before = resident_bytes();
    let mut held = Vec::new();
    for _ in 0..40 {
        let mut stream = connect(harness).await;
        let head = format!("GET {path} HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {bearer}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut some = [0; 256];
        timeout(TIME_LIMIT, stream.read_exact(&mut some)).await.unwrap().unwrap(); // the stream has started
        held.push(stream);
    }
    let all = harness.stream(path, bearer, words).await;
    assert!(all.len() > 20_000_000);
    drop(all);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 200 << 20, "{grown} bytes for 40 streams of 24 MB each");
}

/// Each unread stream would otherwise hold the whole history.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_chat_streams_hold_one_page_each() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("gw").await;
    long_chat(&harness, &account).await;
    stall_streams(&harness, "/chat/v1/chats/long/stream", &account.chat, &["\"m-0\"", "\"m-239\""]).await;
    harness.finish().await;
}

/// The same for inboxes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unread_inbox_streams_hold_one_page_each() {
    let harness = Harness::open().await;
    let token = harness.token("home", "agents").await;
    harness.call("PUT", "/v1/agents/alice", &token, &json!({})).await.expect(200);
    let text = "x".repeat(100_000);
    for number in 0..240 {
        let meta = json!({ "dispatch_id": format!("d-{number}"), "sent_at": 1, "origin": {} });
        let body = json!({ "kind": "augment", "content": format!("{number} {text}"), "meta": meta });
        harness.post("/v1/agents/alice/deliver", &token, &body).await.expect(200);
    }
    stall_streams(&harness, "/v1/agents/alice/inbox/stream?after=0", &token, &["\"d-0\"", "\"d-239\""]).await;
    harness.finish().await;
}

/// `server.answers_per_tenant_kib`: the smallest budget is that of two pages. Streams that are not read hold one each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_unread_answers_use_up_its_budget_is_refused_and_others_are_served() {
    let harness = Harness::with(|config| {
        config.server.answers_per_tenant_kib = 2048;
        config.agents.rate_per_s = 0;
    })
    .await;
    harness.admin("POST", "/tenants", &json!({ "name": "rival" })).await.expect(201);
    let (token, rival) = (harness.token(FIRST_TENANT, "agents").await, harness.token("rival", "agents").await);
    let text = "x".repeat(1 << 20);
    // More than the buffers of a socket hold.
    for (token, count) in [(&token, 32), (&rival, 1)] {
        harness.call("PUT", "/v1/agents/alice", token, &json!({})).await.expect(200);
        for number in 0..count {
            let meta = json!({ "dispatch_id": format!("d-{number}"), "sent_at": 1, "origin": {} });
            let body = json!({ "kind": "augment", "content": text, "meta": meta });
            harness.post("/v1/agents/alice/deliver", token, &body).await.expect(200);
        }
    }
    let mut unread = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(&harness).await;
        let head = format!(
            "GET /v1/agents/alice/inbox/stream?after=0 HTTP/1.1\r\nHost: desk\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        unread.push(stream);
    }
    // Until the buffers are full, each stream returns its share between two pages.
    let refused = async {
        loop {
            let page = harness.get("/v1/agents/alice/inbox", &token).await;
            if page.status != 200 {
                return page;
            }
        }
    };
    let refused = timeout(TIME_LIMIT * 2, refused).await.expect("unread answers are not limited");
    let response = refused.expect(429);
    assert_eq!(response["error"]["class"], "RateLimitedError", "{response}");
    assert!(response["error"]["message"].as_str().unwrap().contains("too many responses"), "{response}");
    let theirs = harness.get("/v1/agents/alice/inbox", &rival).await.expect(200);
    assert_eq!(theirs["messages"].as_array().map(Vec::len), Some(1), "another tenant is served");
    drop(unread);
    harness.get("/v1/agents/alice/inbox", &token).await.expect(200);
    harness.finish().await;
}

/// Answers of stores, by their own routes and as results of tools. A client that does not read keeps its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_stores_that_are_not_read_count() {
    let harness = Harness::with(|config| {
        config.server.answers_per_tenant_kib = 16 << 10;
        config.agents.rate_per_s = 0;
    })
    .await;
    let token = harness.token(FIRST_TENANT, "agents").await;
    let text = format!("tea {}", "x".repeat(1_000_000));
    // More than the buffers of a socket hold.
    for _ in 0..16 {
        harness.post("/v1/data", &token, &json!({ "content": text })).await.expect(201);
    }
    let query = json!({ "query": "tea", "limit": 100 });
    let page = harness.post("/v1/data-store/query", &token, &query).await.expect(200);
    let page_bytes = page.to_string().len();
    assert!(page_bytes > 12 << 20, "{page_bytes}");
    harness.post("/v1/data-store/query", &token, &query).await.expect(200); // what was read is given back
    let mut unread = connect(&harness).await;
    let body = query.to_string();
    let head = format!(
        "POST /v1/data-store/query HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n\
         {body}",
        body.len()
    );
    unread.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    unread.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200", "the answer is made");
    let response = harness.post("/v1/data-store/query", &token, &query).await.expect(429);
    assert!(response["error"]["message"].as_str().unwrap().contains("too many responses"), "{response}");
    drop(unread);
    harness.post("/v1/data-store/query", &token, &query).await.expect(200);
    harness.finish().await;
}

/// Answers of agents that are not read count. Nothing is read from one connection with several questions, each of which is
/// answered: the buffers of its socket fill, and the next answer stays in memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_agents_that_are_not_read_count() {
    let harness = Harness::with(|config| {
        config.server.answers_per_tenant_kib = 2048;
        config.agents.rate_per_s = 0;
    })
    .await;
    let token = harness.token(FIRST_TENANT, "agents").await;
    harness.call("PUT", "/v1/agents/alice", &token, &json!({})).await.expect(200);
    let question = |id: &str| {
        let meta = json!({ "dispatch_id": id, "sent_at": 1, "origin": {}, "correlation_id": id });
        json!({ "kind": "augment", "content": "?", "meta": meta, "timeout_ms": 60_000 })
    };
    let text = "x".repeat(1 << 20);
    // Repeated until a request has come.
    let answer = async |id: &str| {
        let reply = json!({ "correlation_id": id, "content": text });
        while harness.post("/v1/agents/alice/replies", &token, &reply).await.status != 200 {}
    };
    let mut unread = connect(&harness).await;
    let ids: Vec<String> = (0..8).map(|number| format!("unread-{number}")).collect();
    for id in &ids {
        let body = question(id).to_string();
        let head = format!(
            "POST /v1/agents/alice/exchange HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        unread.write_all(head.as_bytes()).await.unwrap();
    }
    let mut number = 0;
    let mut ask = async || {
        number += 1;
        let (id, body) = (format!("read-{number}"), question(&format!("read-{number}")));
        let asking = harness.post("/v1/agents/alice/exchange", &token, &body);
        tokio::join!(asking, answer(&id)).0
    };
    let refused = async {
        loop {
            let response = ask().await;
            if response.status != 200 {
                return response;
            }
        }
    };
    let answering = async {
        for id in &ids {
            answer(id).await;
        }
        std::future::pending::<()>().await;
    };
    let response = tokio::select! {
        response = timeout(TIME_LIMIT * 2, refused) => response.expect("unread answers are not limited").expect(504),
        () = answering => unreachable!(),
    };
    assert!(response["error"]["message"].as_str().unwrap().contains("too many unread answers"), "{response}");
    drop(unread);
    let served = async { while ask().await.status != 200 {} };
    timeout(TIME_LIMIT, served).await.expect("what is not read any more is given back");
    harness.finish().await;
}

/// These routes read a body before its sender is authenticated. The limit is the one for bodies without progress, 15 s;
/// the clock is moved beyond it.
#[tokio::test]
async fn a_stalled_body_of_a_stranger_is_answered_and_its_connection_is_closed() {
    const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
    let harness = Harness::with(|config| config.cron.relay_keys = vec!["a key".into()]).await;
    for path in ["/chat/login", "/api/agent-cron/relay"] {
        let mut stream = connect(&harness).await;
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: desk\r\nContent-Type: application/json\r\nExpect: 100-continue\r\n\
             Content-Length: 100\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The server answers `100 Continue` when it begins to read the body, and from then on the limit runs.
        let mut response = vec![0; GO_ON.len()];
        timeout(TIME_LIMIT, stream.read_exact(&mut response)).await.expect("the body is not read").unwrap();
        assert_eq!(String::from_utf8_lossy(&response), String::from_utf8_lossy(GO_ON), "{path}");
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(16)).await;
        tokio::time::resume();
        let mut rest = Vec::new();
        let ended = timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await; // less than the limit
        ended.expect("the connection stays open").unwrap();
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.starts_with("HTTP/1.1 400") && rest.contains("incomplete or stalled"), "{path}: {rest}");
    }
    harness.finish().await;
}

/// Stalled uploads are on disk, not in memory, and their number per tenant is limited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_uploads_are_limited_and_not_in_memory() {
    let harness = Harness::open().await;
    let (account, rival) = (harness.add_gateway("gw").await, harness.add_gateway_in("rival", "r").await);
    let before = resident_bytes();
    let begin = async |chat: &str| {
        let mut stream = connect(&harness).await;
        let head = format!(
            "POST /chat/v1/media HTTP/1.1\r\nHost: desk\r\nAuthorization: Bearer {chat}\r\n\
             Content-Type: image/png\r\nContent-Length: 5000001\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&vec![1; 5_000_000]).await.unwrap(); // all but the last byte
        stream
    };
    let mut stalled = Vec::new();
    for _ in 0..16 {
        stalled.push(begin(&account.chat).await);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes for 80 MB of uploads");
    let put = async |chat: &str| {
        let request = harness.request("POST", "/chat/v1/media").bearer_auth(chat).header("content-type", "image/png");
        harness.send(request.body(vec![1; 10])).await
    };
    let response = put(&account.chat).await;
    assert_eq!(response.problem(429), "rate_limited");
    assert!(response.text().contains("uploads"), "{}", response.text());
    put(&rival.chat).await.expect(200); // other tenants are not affected
    let mut last = stalled.pop().unwrap();
    last.write_all(&[1]).await.unwrap();
    let (status, _) = answer(&mut last).await;
    assert_eq!(status, 200);
    put(&account.chat).await.expect(200);
    drop(stalled);
    harness.finish().await;
}

#[tokio::test]
async fn the_list_of_chats_tells_that_there_are_more() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("gw").await;
    for number in 0..1_001 {
        harness
            .app
            .desk
            .stores()
            .chat
            .chat_put(&TenantId::from(&account.tenant), &format!("c-{number:04}").into(), "", "{}".into())
            .await
            .unwrap();
    }
    let first = harness.get("/chat/v1/chats", &account.chat).await.expect(200);
    let chats = first["chats"].as_array().unwrap();
    assert_eq!((chats.len(), &first["more"]), (1_000, &json!(true)));
    let last = chats.last().unwrap()["chat_id"].as_str().unwrap();
    let rest = harness.get(&format!("/chat/v1/chats?after={last}"), &account.chat).await.expect(200);
    assert_eq!((rest["chats"].as_array().unwrap().len(), &rest["more"]), (1, &json!(false)));
    harness.finish().await;
}

/// A check writes to the store, and monitoring calls it often.
#[tokio::test]
async fn readiness_writes_at_most_once_per_second() {
    let harness = Harness::open().await;
    let mark = || {
        let database = rusqlite::Connection::open(harness.folder.path().join("data/frontdesk.db")).unwrap();
        database.query_row("SELECT value FROM meta WHERE key = 'health'", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let mut marks = std::collections::HashSet::new();
    let began = tokio::time::Instant::now();
    for _ in 0..200 {
        assert_eq!(harness.get("/readyz", "").await.status, 200);
        marks.insert(mark());
    }
    // Nor if the client hangs up before the answer.
    for _ in 0..200 {
        let mut stream = connect(&harness).await;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: desk\r\n\r\n").await.unwrap();
        drop(stream);
        tokio::task::yield_now().await;
        marks.insert(mark());
    }
    assert_eq!(harness.get("/readyz", "").await.status, 200);
    marks.insert(mark());
    let seconds = began.elapsed().as_secs();
    assert!(marks.len() as u64 <= seconds + 2, "{} writes in {seconds} s", marks.len());
    harness.finish().await;
}

#[tokio::test]
async fn instances_gateways_and_alarms_per_tenant_are_limited() {
    let harness = Harness::with(|config| {
        config.relay.instances_per_tenant = 3;
        config.relay.gateways_per_tenant = 2;
        config.cron.armed_per_tenant = 2;
    })
    .await;
    let identity = harness.token(FIRST_TENANT, "identity").await;
    let provision = async |gateway: &str, instance: &str| {
        let ask = json!({ "gatewayId": gateway, "platform": "relay", "instanceId": instance });
        harness.post("/relay/provision", &identity, &ask).await
    };
    provision("a", "one").await.expect(200);
    provision("b", "two").await.expect(200);
    let response = provision("c", "one").await.error(403);
    assert!(response.contains("relay.gateways_per_tenant (2)"), "{response}");
    provision("a", "three").await.expect(200);
    let response = provision("b", "four").await.error(403);
    assert!(response.contains("relay.instances_per_tenant (3)"), "{response}");
    let other = harness.add_gateway_in("other", "theirs").await;
    assert_eq!(other.tenant, "other", "another tenant has its own limit");

    let ask = json!({ "tenant": FIRST_TENANT, "scope": "identity", "instance": "one" });
    let bearer = harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    let arm = async |job: &str, year: u32| {
        let ask =
            json!({ "job_id": job, "fire_at": format!("{year}-01-01T00:00:00Z"), "agent_callback_url": "relay:" });
        harness.post("/api/agent-cron/provision", &bearer, &ask).await
    };
    arm("a", 2099).await.expect(200);
    arm("b", 2099).await.expect(200);
    let response = arm("c", 2099).await.error(429);
    assert!(response.contains("cron.armed_per_tenant (2)"), "{response}");
    arm("b", 2098).await.expect(200); // the same job at another time does not count again
    harness.post("/api/agent-cron/cancel", &bearer, &json!({ "job_id": "a" })).await.expect(200);
    arm("c", 2099).await.expect(200);
    harness.finish().await;
}

/// Removed ones stay on record, and are not a way around the limit.
#[tokio::test]
async fn what_returns_counts_like_what_is_new() {
    let harness = Harness::with(|config| {
        config.relay.instances_per_tenant = 2;
        config.relay.gateways_per_tenant = 3;
    })
    .await;
    let identity = harness.token(FIRST_TENANT, "identity").await;
    let provision = async |gateway: &str, instance: &str| {
        let ask = json!({ "gatewayId": gateway, "platform": "relay", "instanceId": instance });
        harness.post("/relay/provision", &identity, &ask).await
    };
    let secret = provision("a", "one").await.expect(200)["secret"].as_str().unwrap().to_owned();
    let bearer = frontdesk_wire::token::mint("a", &frontdesk_wire::Secret::new(secret), 0);
    harness.post("/manage/deprovision", &bearer, &json!({})).await.expect(200);
    provision("b", "two").await.expect(200);
    provision("c", "three").await.expect(200);
    let response = provision("a", "one").await.error(403);
    assert!(response.contains("relay.instances_per_tenant (2)"), "the instance: {response}");
    provision("d", "two").await.expect(200);
    let response = provision("a", "two").await.error(403);
    assert!(response.contains("relay.gateways_per_tenant (3)"), "the gateway: {response}");
    harness.finish().await;
}

/// `relay.directory_per_tenant_kib`: whatever a tenant puts into the directory, which is in memory.
#[tokio::test]
async fn bytes_of_the_directory_per_tenant_are_limited() {
    let harness = Harness::with(|config| config.relay.directory_per_tenant_kib = 64).await;
    let account = harness.add_gateway("gw").await;
    let agents = harness.token(FIRST_TENANT, "agents").await;
    let policy = async |platform: &str, scopes: usize| {
        let scopes: Vec<String> = (0..scopes).map(|number| format!("scope number {number:05}")).collect();
        let ask = json!({ "instanceId": "gw", "platform": platform, "requireAddress": true, "freeResponseScopes": scopes,
            "allowOtherBots": false });
        harness.post("/relay/policy", &account.bearer(), &ask).await
    };
    policy("p1", 1_000).await.expect(200);
    policy("p1", 1_100).await.expect(200); // instead of the one before
    policy("p2", 1_000).await.expect(200);
    let response = policy("p3", 1_000).await.error(403);
    assert!(response.contains("relay.directory_per_tenant_kib (64)"), "{response}");
    let webhook = json!({ "type": "webhook", "url": format!("http://127.0.0.1:1/{}", "x".repeat(1_900)) });
    let ask = json!({ "connectors": vec![webhook; 8] });
    let response = harness.call("PUT", "/v1/agents/alice", &agents, &ask).await;
    let response = response.expect(403);
    assert!(response["error"]["message"].as_str().unwrap().contains("relay.directory_per_tenant_kib"), "{response}");
    let ask =
        |bot: &str, keys: Value| json!({ "gatewayId": "gw", "platform": "relay", "botId": bot, "routeKeys": keys });
    let response =
        harness.post("/relay/provision", &account.identity, &ask(&"b".repeat(300), json!([]))).await.error(400);
    assert!(response.contains("botId"), "{response}");
    let response =
        harness.post("/relay/provision", &account.identity, &ask("", json!(["k".repeat(300)]))).await.error(400);
    assert!(response.contains("routeKeys"), "{response}");
    for bot in 1..64 {
        harness.post("/relay/provision", &account.identity, &ask(&bot.to_string(), json!([]))).await.expect(200);
    }
    let response = harness.post("/relay/provision", &account.identity, &ask("one more", json!([]))).await.error(403);
    assert!(response.contains("64 bots"), "{response}");
    policy("p2", 0).await.expect(200);
    policy("p3", 1_000).await.expect(200);
    // Another tenant has its own, and what removes is never refused.
    let other = harness.add_gateway_in("other", "theirs").await;
    harness.post("/manage/deprovision", &other.bearer(), &json!({})).await.expect(200);
    harness.post("/manage/deprovision", &account.bearer(), &json!({})).await.expect(200);
    harness.finish().await;
}

#[tokio::test]
async fn bytes_of_files_per_tenant_are_limited() {
    let harness = Harness::with(|config| config.media.per_tenant_bytes = 100_000).await;
    let account = harness.add_gateway("gw").await;
    let put = async |size: usize| {
        let request =
            harness.request("POST", "/chat/v1/media").bearer_auth(&account.chat).header("content-type", "image/png");
        harness.send(request.body(vec![1; size])).await
    };
    let id = put(60_000).await.expect(200)["id"].as_str().unwrap().to_owned();
    let response = put(60_000).await;
    assert_eq!(response.problem(413), "too_large");
    assert!(response.text().contains("media.per_tenant_bytes (100000)"), "{}", response.text());
    let body = harness.get(&format!("/chat/v1/media/{id}"), &account.chat).await.body;
    assert_eq!(body.len(), 60_000);
    harness.finish().await;
}

#[tokio::test]
async fn the_number_of_files_per_tenant_is_limited() {
    let harness = Harness::with(|config| config.media.per_tenant_files = 2).await;
    let (account, other) = (harness.add_gateway("gw").await, harness.add_gateway_in("other", "theirs").await);
    let put = async |account: &GatewayAccount| {
        let request =
            harness.request("POST", "/chat/v1/media").bearer_auth(&account.chat).header("content-type", "image/png");
        harness.send(request.body(vec![1])).await
    };
    for _ in 0..2 {
        put(&account).await.expect(200);
    }
    let response = put(&account).await;
    assert_eq!(response.problem(413), "too_large");
    assert!(
        response.text().contains("stores 2 files") && response.text().contains("media.per_tenant_files (2)"),
        "{}",
        response.text()
    );
    put(&other).await.expect(200);
    harness.finish().await;
}

/// Many pages of armed alarms, in the one response that the contract requires.
#[tokio::test]
async fn the_list_of_alarms_is_complete() {
    let harness = Harness::open().await;
    let ask = json!({ "tenant": FIRST_TENANT, "scope": "identity", "instance": "one" });
    let bearer = harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    assert_eq!(harness.get("/api/agent-cron/list", &bearer).await.expect(200), json!({ "armed": [] }));
    let desk = &harness.app.desk;
    let who = frontdesk_core::directory::Identity { tenant: FIRST_TENANT.into(), instance: Some("one".into()) };
    let proven = desk.directory().proven_instance(&who).await.unwrap();
    for count in [1, 500, 1_501] {
        let armed = desk.cron().armed(proven.instance.no, 9_999).await.unwrap().len();
        for number in armed..count {
            let ask = json!({ "job_id": format!("job \"{number:04}\""), "fire_at": "2099-01-01T00:00:00Z", "agent_callback_url": "relay:" });
            desk.cron().provision_alarm(&proven, serde_json::from_value(ask).unwrap()).await.unwrap();
        }
        let list = harness.get("/api/agent-cron/list", &bearer).await;
        assert_eq!(list.header("content-type"), "application/json");
        assert_eq!(list.header("content-length"), "", "it is made page by page");
        let list = list.expect(200);
        let jobs: Vec<&Value> = list["armed"].as_array().unwrap().iter().map(|it| &it["job_id"]).collect();
        assert_eq!(jobs.len(), count);
        assert!(jobs.iter().enumerate().all(|(number, job)| **job == json!(format!("job \"{number:04}\""))));
    }
    harness.finish().await;
}

/// Jobs that fired are kept, so the first pages of the list may have no alarm.
#[tokio::test]
async fn the_list_of_alarms_is_json_if_thousands_of_jobs_have_fired() {
    let harness = Harness::open().await;
    let ask = json!({ "tenant": FIRST_TENANT, "scope": "identity", "instance": "one" });
    let bearer = harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    harness.get("/api/agent-cron/list", &bearer).await.expect(200);
    let desk = &harness.app.desk;
    let who = frontdesk_core::directory::Identity { tenant: FIRST_TENANT.into(), instance: Some("one".into()) };
    let instance = desk.directory().proven_instance(&who).await.unwrap().instance.no;
    let job =
        |number: usize, name: String| Alarm { instance, job_id: name.into(), ..alarm(number as u64, u64::MAX >> 2) };
    let alarms = &desk.stores().alarms;
    for first in (0..=2 * JOBS_SCANNED_MAX).step_by(500) {
        let some = (first..first + 500).map(|number| job(number, format!("a-{number:06}"))).collect();
        let ids = alarms.arm(some).await.unwrap().into_iter().map(|it| it.id).collect();
        let taken = alarms.claim_alarms(ids, u64::MAX >> 1, 1, 2).await.unwrap();
        let fired = || Conclusion::Fired { note: String::new() };
        alarms.conclude(taken.into_iter().map(|it| (it, fired())).collect(), 1).await.unwrap();
    }
    for names in [vec![], vec!["b-1"], vec!["b-1", "b-2"]] {
        if let Some(name) = names.last() {
            alarms.arm(vec![job(1, (*name).to_owned())]).await.unwrap();
        }
        let list = harness.get("/api/agent-cron/list", &bearer).await.expect(200);
        let jobs: Vec<&str> =
            list["armed"].as_array().unwrap().iter().map(|it| it["job_id"].as_str().unwrap()).collect();
        assert_eq!(jobs, names);
    }
    harness.finish().await;
}

/// Messages are accepted during a backup, and the copy is a consistent snapshot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_completes_under_load_and_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let harness = Harness::open().await;
    let account = harness.add_gateway("gw").await;
    long_chat(&harness, &account).await;
    let file = harness.folder.path().join("copy.db");
    let ask = json!({ "file": file });
    let backup = harness.admin("POST", "/backup", &ask);
    let load = async {
        loop {
            harness.say(&account, "load", "x").await;
            assert_eq!(harness.get("/readyz", "").await.status, 200);
        }
    };
    let done = timeout(Duration::from_mins(1), async {
        tokio::select! { done = backup => done, () = load => unreachable!() }
    });
    done.await.expect("the backup did not end").expect(200);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = rusqlite::Connection::open(&file).unwrap();
    let lines: i64 =
        copy.query_row("SELECT COUNT(*) FROM chat_line WHERE chat_id = 'long'", [], |row| row.get(0)).unwrap();
    assert_eq!(lines, 240);
    harness.finish().await;
}
