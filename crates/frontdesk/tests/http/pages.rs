//! Pages, operator routes, and slow connections.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::harness::{Harness, Reply, TIME_LIMIT};

/// The cookie that a response sets, as a request header.
fn cookie_of(reply: &Reply) -> String {
    reply.header("set-cookie").split(';').next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_routes_are_open() {
    let harness = Harness::open().await;
    let health = harness.get("/healthz", "").await;
    assert_eq!((health.status, health.text().trim()), (200, "ok"));
    let ready = harness.get("/readyz", "").await;
    assert_eq!((ready.status, ready.text().trim()), (200, "ready"));
    let metrics = harness.get("/metrics", "").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    assert!(metrics.text().contains("frontdesk_sockets_open 0") && metrics.text().trim_end().ends_with("# EOF"));
    let openapi = harness.get("/openapi.json", "").await.expect(200);
    assert!(openapi["openapi"].as_str().is_some_and(|version| version.starts_with('3')));
    assert!(openapi["paths"]["/relay/provision"]["post"].is_object());
    assert_eq!(openapi["servers"][0]["url"], harness.url);
    assert_eq!(harness.get("/nothing/here", "").await.problem(404), "not_found");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_load_nothing_from_outside_and_cannot_be_framed() {
    let harness = Harness::open().await;
    for path in ["/chat", "/docs", "/chat/chat.js", "/chat/chat.css", "/docs/docs.js"] {
        let page = harness.get(path, "").await;
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
    let root = harness.get("/", "").await;
    assert_eq!((root.status, root.header("location")), (303, "/chat"));
    assert_eq!(harness.get("/chat/master.key", "").await.status, 404);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_the_chat_once() {
    let harness = Harness::open().await;
    let account = harness.add_gateway_in("rival", "r").await;
    harness.say(&account, "c", "theirs").await;
    let made = harness.admin("POST", "/chat-link", &json!({ "name": "rival" })).await.expect(201);
    let link = made["url"].as_str().unwrap().to_owned();
    let opened = harness.send(harness.client.get(&link)).await;
    assert_eq!((opened.status, opened.header("location")), (303, "/chat"));
    let set = opened.header("set-cookie");
    assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict") && set.contains("Path=/chat"), "{set}");
    let again = harness.send(harness.client.get(&link)).await;
    assert_eq!(again.problem(403), "forbidden");
    assert_eq!(again.header("set-cookie"), "");
    let used_by_owner = harness.send(harness.client.get(&link).header("cookie", cookie_of(&opened))).await;
    assert_eq!(used_by_owner.status, 303, "an existing session stays valid");
    let me = harness.send(harness.request("GET", "/chat/v1/me").header("cookie", cookie_of(&opened))).await.expect(200);
    assert_eq!(me["tenant"], "rival");
    let read = harness.request("GET", "/chat/v1/chats/c/messages").header("cookie", cookie_of(&opened));
    assert_eq!(harness.send(read).await.expect(200)["messages"][0]["text"], "theirs");
    let forged = harness.request("GET", "/chat/v1/me").header("cookie", format!("frontdesk_chat={}", "0".repeat(48)));
    assert_eq!(harness.send(forged).await.problem(401), "unauthorized");
    assert_eq!(harness.admin("POST", "/chat-link", &json!({ "name": "nobody" })).await.problem(404), "not_found");
    harness.finish().await;
}

/// A link that is used up has its session, also if the client hangs up at any moment: the operator can see and revoke it.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_is_opened_wholly_or_not_at_all() {
    let harness = Harness::open().await;
    let tokens = async || {
        let listed = harness.admin("GET", "/tokens", &Value::Null).await.expect(200);
        listed["tokens"].as_array().unwrap().len()
    };
    let before = tokens().await;
    let mut links = Vec::new();
    for pause in 0..60 {
        let made = harness.admin("POST", "/chat-link", &json!({ "name": "home" })).await.expect(201);
        let link = made["url"].as_str().unwrap().to_owned();
        let path = link.split_once("/chat").unwrap().1;
        let mut stream = TcpStream::connect(harness.url.trim_start_matches("http://")).await.unwrap();
        let head = format!("GET /chat{path} HTTP/1.1\r\nHost: desk\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_micros(pause * 50)).await;
        drop(stream);
        links.push(link);
    }
    // Each link that is not used up yet is opened now, so that in the end there is one session for each.
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let mut used = 0;
    for link in &links {
        let opened = harness.send(client.get(link)).await;
        assert!([303, 403].contains(&opened.status), "{}", opened.status);
        used += usize::from(opened.status == 403);
    }
    let has_all = async {
        while tokens().await < before + links.len() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIME_LIMIT, has_all).await.expect("a link was used up without a session");
    assert_eq!(tokens().await, before + links.len());
    assert!(used > 0, "no client hung up late enough");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_requests_need_no_token_and_others_do() {
    let harness = Harness::open().await;
    let local = harness.get("/chat", "").await;
    let cookie = cookie_of(&local);
    assert!(cookie.starts_with("frontdesk_chat="), "{cookie}");
    let me = harness.send(harness.request("GET", "/chat/v1/me").header("cookie", &cookie)).await.expect(200);
    assert_eq!(me["tenant"], "home");
    let signed_in = harness.send(harness.request("GET", "/chat").header("cookie", &cookie)).await;
    assert_eq!(signed_in.header("set-cookie"), "", "one session is enough");
    for (name, value) in [
        ("x-forwarded-for", "203.0.113.9"),
        ("forwarded", "for=203.0.113.9"),
        ("x-real-ip", "203.0.113.9"),
        ("host", "desk.example.com"),
        ("host", "127.0.0.1.example.com"),
    ] {
        let page = harness.send(harness.request("GET", "/chat").header(name, value)).await;
        assert_eq!((page.status, page.header("set-cookie")), (200, ""), "{name}: {value}");
    }
    assert_eq!(harness.get("/chat/v1/me", "").await.problem(401), "unauthorized");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_chat_token_signs_in() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let login = harness.post("/chat/login", "", &json!({ "token": format!(" {}\n", account.chat) })).await;
    assert_eq!(login.status, 204);
    let me = harness.request("GET", "/chat/v1/me").header("cookie", cookie_of(&login));
    assert_eq!(harness.send(me).await.expect(200)["tenant"], "home");
    for token in ["", "x", &account.identity, &harness.admin, &account.secret] {
        let refused = harness.post("/chat/login", "", &json!({ "token": token })).await;
        assert_eq!(refused.problem(401), "unauthorized");
        assert_eq!(refused.header("set-cookie"), "");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_head_that_never_ends_is_closed() {
    let harness = Harness::open().await;
    let mut stream = TcpStream::connect(harness.url.trim_start_matches("http://")).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: desk\r\nX-Slow: ").await.unwrap();
    let mut rest = Vec::new();
    let ended = timeout(TIME_LIMIT, stream.read_to_end(&mut rest)).await;
    assert!(ended.is_ok(), "the connection was left open");
    assert!(!rest.starts_with(b"HTTP/1.1 2"), "{:?}", String::from_utf8_lossy(&rest));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_big_is_refused() {
    let harness = Harness::open().await;
    let head = format!("GET /healthz HTTP/1.1\r\nX-Big: {}", "x".repeat(400 * 1024));
    assert_eq!(harness.raw(&head, Vec::new()).await, 431);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_is_in_time_with_open_sockets_streams_and_idle_connections() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let mut stream = harness.open_stream("/chat/v1/chats/c/stream", &account.chat).await;
    let mut tail = harness.open_stream("/admin/v1/events/stream", &harness.admin).await;
    let mut idle = TcpStream::connect(harness.url.trim_start_matches("http://")).await.unwrap();
    harness.say(&account, "c", "last words").await;
    socket.event().await;
    let finishing = timeout(Duration::from_secs(4), harness.finish());
    assert!(finishing.await.is_ok(), "the shutdown took the whole drain time");
    assert_eq!(socket.closed().await.0, 1001);
    while stream.chunk().await.unwrap_or_default().is_some() {}
    while tail.chunk().await.unwrap_or_default().is_some() {}
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap_or_default(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_messages_survive_a_restart() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "keep this").await;
    let folder = harness.finish().await;
    let again = Harness::with(|config| config.data_dir = folder.path().join("data")).await;
    let mut socket = again.socket(&account).await;
    let event = socket.event().await;
    assert_eq!(event.text(), "keep this");
    assert_eq!(again.history(&account, "c").await.len(), 1, "tokens and lines survive, too");
    assert_eq!(again.admin("GET", "/gateways/g", &Value::Null).await.expect(200)["connected"], true);
    again.finish().await;
}
