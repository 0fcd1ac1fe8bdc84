//! Secrets must not leak: the capability of a command is used but never shown, and no secret is in any response, log or
//! file.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod harness;

use std::io::Write;
use std::sync::{Mutex, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_platforms::chat::Commands;
use frontdesk_testkit::folder::{files, holds};
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use harness::{GatewayAccount, Harness, Socket};

const KIND: &str = "relay.interaction_token";
/// Prefix of all capabilities of the built-in chat.
const CAPABILITY: &str = "rit1.";

// ---- logs -----------------------------------------------------------------------------------

/// Everything that the servers of this process log, at the finest level.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logged;

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn begin_logging() {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        let builder = tracing_subscriber::fmt().with_max_level(LevelFilter::TRACE).with_ansi(false);
        builder.with_writer(|| Logged).init();
    });
}

/// Posts a command and receives it; returns the session key to which its capability is bound.
async fn command(harness: &Harness, account: &GatewayAccount, socket: &mut Socket, text: &str) -> String {
    harness.say(account, "c", text).await;
    let event = socket.event().await;
    assert_eq!((&event.json["event"]["message_type"], event.text()), (&json!("command"), text));
    socket.ack(&event).await;
    "agent:main:relay:dm:c".into()
}

/// The operator sees why an agent does not connect. The agent tries again and again, and does not fill the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_gateway_secret_is_logged_once_and_without_the_token() {
    begin_logging();
    let harness = Harness::open().await;
    let mut forged = harness.add_gateway("gw-with-a-wrong-secret").await;
    forged.secret = "0".repeat(64);
    let token = forged.bearer();
    for _ in 0..3 {
        assert_eq!(harness.refusal(&token).await, (4401, "unauthorized".into()));
    }
    harness.finish().await;
    let log = String::from_utf8_lossy(&LOG.lock().unwrap()).into_owned();
    let is_told = |line: &&str| line.contains("relay connection refused") && line.contains(&forged.gateway);
    let lines: Vec<&str> = log.lines().filter(is_told).collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let reason = "the token is not signed with the gateway's secret";
    assert!(lines[0].contains("WARN") && lines[0].contains(reason), "{}", lines[0]);
    assert!(!lines[0].contains(&token) && !lines[0].contains(&forged.secret), "{}", lines[0]);
}

// ---- capabilities ---------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_answers_the_command_whose_session_it_names() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let key = command(&harness, &account, &mut socket, "/weather oslo").await;
    for text in ["Rain.", "Still rain."] {
        let result = socket.follow_up(&key, KIND, text).await.json["result"].clone();
        assert_eq!(result["success"], true, "{result}");
        let line = harness.line(&account, "c", result["message_id"].as_str().unwrap()).await;
        assert_eq!(
            (&line["text"], &line["kind"], &line["direction"]),
            (&json!(text), &json!("follow_up"), &json!("out"))
        );
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_over_the_limit_is_split() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let key = command(&harness, &account, &mut socket, "/story").await;
    let text = "Once upon a time. ".repeat(1_000);
    let result = socket.follow_up(&key, KIND, &text).await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    let parts: Vec<_> =
        harness.history(&account, "c").await.into_iter().filter(|line| line["kind"] == "follow_up").collect();
    assert_eq!((parts.len(), &parts[0]["message_id"]), (3, &result["message_id"]));
    assert!(parts.iter().all(|line| line["text"].as_str().unwrap().chars().count() <= 8_000));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_foreign_expired_and_other_kinds_are_refused_with_identical_bytes() {
    let (harness, late) = (Harness::open().await, Harness::with(|config| config.vault.ttl_s = 0).await);
    let (account, rival) = (harness.add_gateway("g").await, harness.add_gateway_in("rival", "r").await);
    let (mut socket, mut other) = (harness.socket(&account).await, harness.socket(&rival).await);
    let key = command(&harness, &account, &mut socket, "/secret plan").await;
    harness.say(&rival, "c", "no command").await;
    let late_account = late.add_gateway("g").await;
    let mut late_socket = late.socket(&late_account).await;
    let late_key = command(&late, &late_account, &mut late_socket, "/secret plan").await;
    let refusals = [
        other.follow_up(&key, KIND, "boo").await,
        socket.follow_up("agent:main:relay:dm:nowhere", KIND, "boo").await,
        socket.follow_up(&key, "semaphore.interaction_token", "boo").await,
        socket.follow_up(&key, "", "boo").await,
        socket.follow_up("", KIND, "boo").await,
        late_socket.follow_up(&late_key, KIND, "boo").await,
    ];
    let expected = "{\"success\":false,\"error\":\"no such capability is bound to this session\",\
                    \"code\":\"capability_unavailable\"}}";
    for refusal in &refusals {
        assert_eq!(refusal.result(), expected);
    }
    for (harness, account) in [(&harness, &account), (&harness, &rival), (&late, &late_account)] {
        assert_eq!(harness.history(account, "c").await.len(), 1, "nothing was sent");
    }
    assert_eq!(socket.follow_up(&key, KIND, "mine").await.json["result"]["success"], true);
    harness.finish().await;
    late.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withheld_command_stores_no_capability() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let posted = harness.say_as(&account, "c", json!({ "user_id": "stranger", "text": "/weather" })).await.expect(202);
    assert_eq!(posted["verdict"]["outcome"], "withheld");
    let refused = socket.follow_up("agent:main:relay:dm:c", KIND, "boo").await.json["result"].clone();
    assert_eq!(refused["code"], "capability_unavailable");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capability_is_in_no_response_log_or_file() {
    begin_logging();
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut tail = harness.open_stream("/admin/v1/events/stream", &harness.admin).await;
    let mut stream = harness.open_stream("/chat/v1/chats/c/stream", &account.chat).await;
    let mut socket = harness.socket(&account).await;
    let key = command(&harness, &account, &mut socket, "/weather oslo-in-plain").await;
    assert_eq!(socket.follow_up(&key, KIND, "Rain.").await.json["result"]["success"], true);
    assert_eq!(socket.follow_up(&key, "other", "Rain.").await.json["result"]["success"], false);
    harness.follow(&mut tail, &["accepted", "follow_up: delivered"]).await;
    harness.follow(&mut stream, &["oslo-in-plain", "Rain.", "follow_up: delivered"]).await;
    look_at_everything(&harness, &account).await;
    let backup = harness.folder.path().join("backup.db");
    harness.admin("POST", "/backup", &json!({ "file": backup })).await.expect(200);
    nowhere(&harness, CAPABILITY, "oslo-in-plain");
    let received = harness.received.clone();
    drop((tail, stream));
    let folder = harness.finish().await;
    // Checked again after the write-ahead log was merged into the database.
    assert!(files(folder.path()).iter().all(|(_, bytes)| !holds(bytes, CAPABILITY)));
    assert!(!holds(&received.lock().unwrap(), CAPABILITY));
}

/// Calls every route that shows an event.
async fn look_at_everything(harness: &Harness, account: &GatewayAccount) {
    let rows = harness.mail(account).await;
    assert!(!rows.is_empty());
    for row in &rows {
        let (mail, event) = (row["id"].as_str().unwrap(), row["event_id"].as_str().unwrap());
        harness.admin("GET", &format!("/mail/{mail}"), &Value::Null).await.expect(200);
        harness.admin("GET", &format!("/events/{event}/explain"), &Value::Null).await.expect(200);
    }
    harness.history(account, "c").await;
    for path in ["/journal", "/instances", "/gateways", "/tokens", "/bots", "/bindings", "/tenants", "/doctor"] {
        harness.admin("GET", path, &Value::Null).await.expect(200);
    }
    for path in ["/metrics", "/openapi.json", "/readyz"] {
        assert_eq!(harness.get(path, "").await.status, 200);
    }
    for path in ["/chat/v1/chats", "/chat/v1/me"] {
        harness.get(path, &account.chat).await.expect(200);
    }
}

/// The secret is in no response, log or file; the plain text is found, which shows that the checks work.
fn nowhere(harness: &Harness, secret: &str, plain: &str) {
    let received = harness.received.lock().unwrap().clone();
    assert!(holds(&received, plain), "no response was recorded");
    assert!(!holds(&received, secret), "the secret is in a response");
    assert!(!holds(&LOG.lock().unwrap(), secret), "the secret was logged");
    let files = files(harness.folder.path());
    assert!(files.iter().any(|(_, bytes)| holds(bytes, plain)), "no file was checked");
    for (name, bytes) in files {
        assert!(!holds(&bytes, secret), "the secret is in {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_logged_or_stored_in_plain_text() {
    begin_logging();
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let bot = json!({ "platform": "semaphore", "id": "flags", "tenant": "home", "secrets": { "token": "s3cr3t-bot-token-value" } });
    harness.admin("POST", "/bots", &bot).await.expect(201);
    let rotated = harness.admin("POST", "/gateways/g/rotate", &json!({})).await.expect(200);
    let enrollment = harness.admin("POST", "/enrollment-tokens", &json!({ "tenant": "home" })).await.expect(201);
    let link = harness.admin("POST", "/chat-link", &json!({ "name": "home" })).await.expect(201);
    let code = link["url"].as_str().unwrap().split("code=").nth(1).unwrap().to_owned();
    let opened = harness.send(harness.client.get(link["url"].as_str().unwrap())).await;
    let session = opened.header("set-cookie").split(['=', ';']).nth(1).unwrap().to_owned();
    // Events that cause log lines: valid and invalid connections, invalid frames, a revoke.
    let mut socket = harness.socket(&account).await;
    socket.text("{\"type\":\"outbound\"}\nrubbish\n").await;
    command(&harness, &account, &mut socket, "/plain-words").await;
    assert_eq!(harness.refusal(&account.bearer_until(1)).await.0, 4401);
    let bearer = account.bearer();
    harness.admin("POST", "/gateways/g/revoke", &json!({})).await.expect(200);
    assert_eq!(socket.closed().await.0, 4401);
    assert_eq!(harness.refusal(&bearer).await.0, 4401);
    harness.post("/relay/provision", "fd_wrong", &json!({})).await.error(401);
    let backup = harness.folder.path().join("backup.db");
    harness.admin("POST", "/backup", &json!({ "file": backup })).await.expect(200);
    let secrets = [
        ("a gateway's secret", account.secret.as_str()),
        ("a rotated secret", rotated["secret"].as_str().unwrap()),
        ("an upgrade token", &bearer),
        ("the admin token", &harness.admin),
        ("a chat token", &account.chat),
        ("an identity token", &account.identity),
        ("an enrollment token", enrollment["token"].as_str().unwrap()),
        ("a bot's secret", "s3cr3t-bot-token-value"),
        ("a link's code", &code),
        ("a page's session", &session),
    ];
    assert!(holds(&LOG.lock().unwrap(), "DEBUG"), "nothing was logged at all");
    for (what, secret) in secrets {
        assert!(secret.len() > 16, "{what}");
        assert!(!holds(&LOG.lock().unwrap(), secret), "{what} was logged");
        for (name, bytes) in files(harness.folder.path()) {
            assert!(!holds(&bytes, secret), "{what} is in {name}");
        }
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_shown_only_once() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let before = harness.received.lock().unwrap().len();
    let mut socket = harness.socket(&account).await;
    command(&harness, &account, &mut socket, "/x").await;
    look_at_everything(&harness, &account).await;
    let received = harness.received.lock().unwrap()[before..].to_vec();
    for secret in [&account.secret, &account.chat, &account.identity, &harness.admin] {
        assert!(!holds(&received, secret));
    }
    harness.finish().await;
}

// ---- forwards -------------------------------------------------------------------------------

async fn forwarding() -> (Harness, GatewayAccount) {
    begin_logging();
    let harness = Harness::with(|config| config.chat.commands = Commands::Forward).await;
    let account = harness.add_gateway("g").await;
    (harness, account)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_contains_the_sanitized_command_and_no_credential() {
    let (harness, account) = forwarding().await;
    let mut socket = harness.socket(&account).await;
    let post = json!({ "user_id": account.user, "user_name": "Ada", "text": "/weather  oslo-in-plain now ", "message_id": "m-1" });
    harness.say_as(&account, "c", post).await.expect(202);
    let frame = socket.of("passthrough_forward").await;
    let forward = &frame.json["forward"];
    assert_eq!((&forward["platform"], &forward["botId"]), (&json!("relay"), &json!("desk")));
    let headers: Vec<&str> = forward["headers"].as_array().unwrap().iter().map(|it| it[0].as_str().unwrap()).collect();
    assert_eq!(headers, ["content-type"]);
    let body = STANDARD.decode(forward["bodyB64"].as_str().unwrap()).unwrap();
    let expected = json!({ "type": "command", "id": "m-1", "chat_id": "c", "chat_type": "dm",
                           "user": { "id": account.user, "name": "Ada" }, "name": "weather", "args": "oslo-in-plain now" });
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
    assert_eq!(socket.unread().await, 0, "not sent as an event, too");
    harness.history(&account, "c").await;
    nowhere(&harness, CAPABILITY, "oslo-in-plain");
    assert_eq!(harness.say(&account, "c", "plain text").await["verdict"]["outcome"], "delivered");
    assert_eq!(socket.event().await.text(), "plain text");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_waits_for_its_gateway_and_is_resent_until_acked() {
    let (harness, account) = forwarding().await;
    harness.say(&account, "c", "/first").await;
    let mut socket = harness.socket(&account).await;
    let waited = socket.of("passthrough_forward").await;
    socket.hang_up().await;
    let mut again = harness.socket(&account).await;
    let same = again.of("passthrough_forward").await;
    assert_eq!(waited.raw, same.raw);
    again.ack(&same).await;
    again.hang_up().await;
    let mut third = harness.socket(&account).await;
    assert_eq!(third.unread().await, 0);
    assert_eq!(harness.metric("frontdesk_acks_total").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_settles_the_forward_that_it_answers() {
    let (harness, account) = forwarding().await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "/first").await;
    socket.of("passthrough_forward").await;
    let result = socket.follow_up("agent:main:relay:dm:c", KIND, "done").await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    socket.hang_up().await;
    let mut again = harness.socket(&account).await;
    assert_eq!(again.unread().await, 0, "the forward is not sent again");
    harness.finish().await;
}
