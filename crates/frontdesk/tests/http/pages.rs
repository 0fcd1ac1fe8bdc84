//! The pages, the operator's doors, and connections that take their time.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::harness::{Harness, PATIENCE, Reply};

/// The cookie that a reply sets, ready to be sent back.
fn cookie_of(reply: &Reply) -> String {
    reply.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_doors_are_open() {
    let house = Harness::open().await;
    let health = house.get("/healthz", "").await;
    assert_eq!((health.status, health.text().trim()), (200, "ok"));
    let ready = house.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text().trim()), (200, "ready"));
    let metrics = house.get("/metrics", "").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(metrics.text().contains("frontdesk_sockets_open 0") && metrics.text().trim_end().ends_with("# EOF"));
    let openapi = house.get("/openapi.json", "").await.expect(200);
    assert!(openapi["openapi"].as_str().is_some_and(|version| version.starts_with('3')));
    assert!(openapi["paths"]["/relay/provision"]["post"].is_object());
    assert_eq!(openapi["servers"][0]["url"], house.url);
    assert_eq!(house.get("/nothing/here", "").await.problem(404), "not_found");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_load_nothing_from_outside_and_cannot_be_framed() {
    let house = Harness::open().await;
    for path in ["/chat", "/docs", "/chat/chat.js", "/chat/chat.css", "/docs/docs.js"] {
        let page = house.get(path, "").await;
        assert_eq!(page.status, 200, "{path}");
        let policy = page.header("content-security-policy");
        assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{path}: {policy}");
        assert_eq!(page.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(page.header("referrer-policy"), "no-referrer", "{path}");
        for outside in ["src=\"http", "href=\"http", "src=\"//", "@import", "cdn."] {
            assert!(!page.text().contains(outside), "{path} has {outside}");
        }
    }
    let root = house.get("/", "").await;
    assert_eq!((root.status, root.header("location")), (303, "/chat"));
    assert_eq!(house.get("/chat/master.key", "").await.status, 404);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_the_chat_once() {
    let house = Harness::open().await;
    let seat = house.seat_in("rival", "r").await;
    house.say(&seat, "c", "theirs").await;
    let made = house.admin("POST", "/chat-link", &json!({ "name": "rival" })).await.expect(201);
    let link = made["url"].as_str().unwrap().to_owned();
    let opened = house.send(house.client.get(&link)).await;
    assert_eq!((opened.status, opened.header("location")), (303, "/chat"));
    let set = opened.header("set-cookie");
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict") && set.contains("Path=/chat"), "{set}");
    let again = house.send(house.client.get(&link)).await;
    assert_eq!(again.problem(403), "forbidden");
    assert_eq!(again.header("set-cookie"), "");
    let used_by_owner = house.send(house.client.get(&link).header("cookie", cookie_of(&opened))).await;
    assert_eq!(used_by_owner.status, 303, "who is in already is not shown out");
    let me = house.send(house.request("GET", "/chat/v1/me").header("cookie", cookie_of(&opened))).await.expect(200);
    assert_eq!(me["tenant"], "rival");
    let read = house.request("GET", "/chat/v1/chats/c/messages").header("cookie", cookie_of(&opened));
    assert_eq!(house.send(read).await.expect(200)["messages"][0]["text"], "theirs");
    let forged = house.request("GET", "/chat/v1/me").header("cookie", format!("frontdesk_chat={}", "0".repeat(48)));
    assert_eq!(house.send(forged).await.problem(401), "unauthorized");
    assert_eq!(house.admin("POST", "/chat-link", &json!({ "name": "nobody" })).await.problem(404), "not_found");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn this_machine_needs_no_password_and_everybody_else_does() {
    let house = Harness::open().await;
    let local = house.get("/chat", "").await;
    let cookie = cookie_of(&local);
    assert!(cookie.starts_with("frontdesk_chat="), "{cookie}");
    let me = house.send(house.request("GET", "/chat/v1/me").header("cookie", &cookie)).await.expect(200);
    assert_eq!(me["tenant"], "home");
    let signed_in = house.send(house.request("GET", "/chat").header("cookie", &cookie)).await;
    assert_eq!(signed_in.header("set-cookie"), "", "one session is enough");
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
        ("host", "desk.example.com"),
        ("host", "127.0.0.1.example.com"),
    ] {
        let page = house.send(house.request("GET", "/chat").header(name, value)).await;
        assert_eq!((page.status, page.header("set-cookie")), (200, ""), "{name}: {value}");
    }
    assert_eq!(house.get("/chat/v1/me", "").await.problem(401), "unauthorized");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_token_signs_in_and_no_other_does() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let login = house.post("/chat/login", "", &json!({ "token": format!(" {}\n", seat.chat) })).await;
    assert_eq!(login.status, 204);
    let me = house.request("GET", "/chat/v1/me").header("cookie", cookie_of(&login));
    assert_eq!(house.send(me).await.expect(200)["tenant"], "home");
    for token in ["", "x", &seat.identity, &house.admin, &seat.secret] {
        let refused = house.post("/chat/login", "", &json!({ "token": token })).await;
        assert_eq!(refused.problem(401), "unauthorized");
        assert_eq!(refused.header("set-cookie"), "");
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_is_cut_off() {
    let house = Harness::open().await;
    let mut stream = TcpStream::connect(house.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\nX-Slow: ").await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "it was left open");
    assert!(!rest.starts_with(b"HTTP/1.1 2"), "{:?}", String::from_utf8_lossy(&rest));
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_big_is_refused() {
    let house = Harness::open().await;
    let head = format!("GET /healthz HTTP/1.1\r\nX-Big: {}", "x".repeat(400 * 1024));
    assert_eq!(house.raw(&head, Vec::new()).await, 431);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_desk_ends_in_time_with_open_sockets_streams_and_idle_connections() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let mut socket = house.socket(&seat).await;
    let mut stream = house.request("GET", "/chat/v1/chats/c/stream").bearer_auth(&seat.chat).send().await.unwrap();
    let mut tail = house.request("GET", "/admin/v1/events/stream").bearer_auth(&house.admin).send().await.unwrap();
    let mut idle = TcpStream::connect(house.url.trim_start_matches("http://")).await.unwrap();
    house.say(&seat, "c", "last words").await;
    socket.event().await;
    let finishing = timeout(Duration::from_secs(4), house.finish());
    assert!(finishing.await.is_ok(), "nothing here needs the whole time");
    assert_eq!(socket.closed().await.0, 1001);
    while stream.chunk().await.unwrap_or_default().is_some() {}
    while tail.chunk().await.unwrap_or_default().is_some() {}
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or_default(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_before_the_end_is_there_after_a_new_start() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    house.say(&seat, "c", "keep this").await;
    let folder = house.finish().await;
    let again = Harness::with(|config| config.data_dir = folder.path().join("data")).await;
    let mut socket = again.socket(&seat).await;
    let event = socket.event().await;
    assert_eq!(event.text(), "keep this");
    assert_eq!(again.history(&seat, "c").await.len(), 1, "tokens and lines are there, too");
    assert_eq!(again.admin("GET", "/gateways/g", &Value::Null).await.expect(200)["connected"], true);
    again.finish().await;
}
