//! What must stay inside: a command's capability is wielded and never shown, and no secret of the
//! desk is found in anything that leaves it or lies about.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

mod harness;

use std::io::Write;
use std::sync::{Mutex, OnceLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_platforms::chat::Commands;
use frontdesk_testkit::folder::{files, holds};
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use harness::{Harness, Seat, Socket};

const KIND: &str = "relay.interaction_token";
/// How every capability of the built-in chat begins.
const CAPABILITY: &str = "rit1.";

// ---- what the desk logs ---------------------------------------------------------------------

/// Everything that any desk of this program logs, at the finest level.
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

/// A typed command, as it reached the agent: the session key under which its capability is bound.
async fn command(house: &Harness, seat: &Seat, socket: &mut Socket, text: &str) -> String {
    house.say(seat, "c", text).await;
    let event = socket.event().await;
    assert_eq!((&event.json["event"]["message_type"], event.text()), (&json!("command"), text));
    socket.ack(&event).await;
    "agent:main:relay:dm:c".into()
}

// ---- capabilities ---------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_answers_the_command_whose_session_it_names() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let mut socket = house.socket(&seat).await;
    let key = command(&house, &seat, &mut socket, "/weather oslo").await;
    for text in ["Rain.", "Still rain."] {
        let result = socket.follow_up(&key, KIND, text).await.json["result"].clone();
        assert_eq!(result["success"], true, "{result}");
        let line = house.line(&seat, "c", result["message_id"].as_str().unwrap()).await;
        assert_eq!(
            (&line["text"], &line["kind"], &line["direction"]),
            (&json!(text), &json!("follow_up"), &json!("out"))
        );
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_over_the_limit_comes_in_parts() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let mut socket = house.socket(&seat).await;
    let key = command(&house, &seat, &mut socket, "/story").await;
    let text = "Once upon a time. ".repeat(1_000);
    let result = socket.follow_up(&key, KIND, &text).await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    let parts: Vec<_> =
        house.history(&seat, "c").await.into_iter().filter(|line| line["kind"] == "follow_up").collect();
    assert_eq!((parts.len(), &parts[0]["message_id"]), (3, &result["message_id"]));
    assert!(parts.iter().all(|line| line["text"].as_str().unwrap().chars().count() <= 8_000));
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn absent_foreign_expired_and_of_another_kind_are_refused_in_the_same_bytes() {
    let (house, late) = (Harness::open().await, Harness::with(|config| config.vault.ttl_s = 0).await);
    let (seat, rival) = (house.seat("g").await, house.seat_in("rival", "r").await);
    let (mut socket, mut other) = (house.socket(&seat).await, house.socket(&rival).await);
    let key = command(&house, &seat, &mut socket, "/secret plan").await;
    house.say(&rival, "c", "no command").await;
    let late_seat = late.seat("g").await;
    let mut late_socket = late.socket(&late_seat).await;
    let late_key = command(&late, &late_seat, &mut late_socket, "/secret plan").await;
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
    for (house, seat) in [(&house, &seat), (&house, &rival), (&late, &late_seat)] {
        assert_eq!(house.history(seat, "c").await.len(), 1, "nothing was said");
    }
    assert_eq!(socket.follow_up(&key, KIND, "mine").await.json["result"]["success"], true);
    house.finish().await;
    late.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withheld_command_leaves_no_capability_behind() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let mut socket = house.socket(&seat).await;
    let posted = house.say_as(&seat, "c", json!({ "user_id": "stranger", "text": "/weather" })).await.expect(202);
    assert_eq!(posted["verdict"]["outcome"], "withheld");
    let refused = socket.follow_up("agent:main:relay:dm:c", KIND, "boo").await.json["result"].clone();
    assert_eq!(refused["code"], "capability_unavailable");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capability_is_in_nothing_that_leaves_the_desk_or_lies_about() {
    begin_logging();
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let mut tail = house.request("GET", "/admin/v1/events/stream").bearer_auth(&house.admin).send().await.unwrap();
    let mut stream = house.request("GET", "/chat/v1/chats/c/stream").bearer_auth(&seat.chat).send().await.unwrap();
    let mut socket = house.socket(&seat).await;
    let key = command(&house, &seat, &mut socket, "/weather oslo-in-plain").await;
    assert_eq!(socket.follow_up(&key, KIND, "Rain.").await.json["result"]["success"], true);
    assert_eq!(socket.follow_up(&key, "other", "Rain.").await.json["result"]["success"], false);
    house.follow(&mut tail, &["accepted", "follow_up: delivered"]).await;
    house.follow(&mut stream, &["oslo-in-plain", "Rain.", "follow_up: delivered"]).await;
    look_at_everything(&house, &seat).await;
    let backup = house.folder.path().join("backup.db");
    house.admin("POST", "/backup", &json!({ "file": backup })).await.expect(200);
    nowhere(&house, CAPABILITY, "oslo-in-plain");
    let heard = house.heard.clone();
    drop((tail, stream));
    let folder = house.finish().await;
    // Once more when the log is back in its database.
    assert!(files(folder.path()).iter().all(|(_, bytes)| !holds(bytes, CAPABILITY)));
    assert!(!holds(&heard.lock().unwrap(), CAPABILITY));
}

/// Reads every door that shows anything of an event.
async fn look_at_everything(house: &Harness, seat: &Seat) {
    let rows = house.mail(seat).await;
    assert!(!rows.is_empty());
    for row in &rows {
        let (mail, event) = (row["id"].as_str().unwrap(), row["event_id"].as_str().unwrap());
        house.admin("GET", &format!("/mail/{mail}"), &Value::Null).await.expect(200);
        house.admin("GET", &format!("/events/{event}/explain"), &Value::Null).await.expect(200);
    }
    house.history(seat, "c").await;
    for path in ["/journal", "/instances", "/gateways", "/tokens", "/bots", "/bindings", "/tenants", "/doctor"] {
        house.admin("GET", path, &Value::Null).await.expect(200);
    }
    for path in ["/metrics", "/openapi.json", "/readyz"] {
        assert_eq!(house.get(path, "").await.status, 200);
    }
    for path in ["/chat/v1/chats", "/chat/v1/me"] {
        house.get(path, &seat.chat).await.expect(200);
    }
}

/// The secret is in no byte that came out, in no log and in no file; what is plain is, so we did look.
fn nowhere(house: &Harness, secret: &str, plain: &str) {
    let heard = house.heard.lock().unwrap().clone();
    assert!(holds(&heard, plain), "the test heard nothing");
    assert!(!holds(&heard, secret), "it left the desk");
    assert!(!holds(&LOG.lock().unwrap(), secret), "it was logged");
    let files = files(house.folder.path());
    assert!(files.iter().any(|(_, bytes)| holds(bytes, plain)), "the test read nothing");
    for (name, bytes) in files {
        assert!(!holds(&bytes, secret), "it is in {name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_is_logged_and_none_lies_in_a_file_as_it_is() {
    begin_logging();
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let bot = json!({ "platform": "semaphore", "id": "flags", "tenant": "home", "secrets": { "token": "s3cr3t-bot-token-value" } });
    house.admin("POST", "/bots", &bot).await.expect(201);
    let rotated = house.admin("POST", "/gateways/g/rotate", &json!({})).await.expect(200);
    let enrollment = house.admin("POST", "/enrollment-tokens", &json!({ "tenant": "home" })).await.expect(201);
    let link = house.admin("POST", "/chat-link", &json!({ "name": "home" })).await.expect(201);
    let code = link["url"].as_str().unwrap().split("code=").nth(1).unwrap().to_owned();
    let opened = house.send(house.client.get(link["url"].as_str().unwrap())).await;
    let session = opened.header("set-cookie").split(['=', ';']).nth(1).unwrap().to_owned();
    // Everything that makes a desk talk: good and bad dials, bad frames, a revoke.
    let mut socket = house.socket(&seat).await;
    socket.text("{\"type\":\"outbound\"}\nrubbish\n").await;
    command(&house, &seat, &mut socket, "/plain-words").await;
    assert_eq!(house.refusal(&seat.bearer_until(1)).await.0, 4401);
    let bearer = seat.bearer();
    house.admin("POST", "/gateways/g/revoke", &json!({})).await.expect(200);
    assert_eq!(socket.closed().await.0, 4401);
    assert_eq!(house.refusal(&bearer).await.0, 4401);
    house.post("/relay/provision", "fd_wrong", &json!({})).await.error(401);
    let backup = house.folder.path().join("backup.db");
    house.admin("POST", "/backup", &json!({ "file": backup })).await.expect(200);
    let secrets = [
        ("a gateway's secret", seat.secret.as_str()),
        ("a rotated secret", rotated["secret"].as_str().unwrap()),
        ("an upgrade token", &bearer),
        ("the admin token", &house.admin),
        ("a chat token", &seat.chat),
        ("an identity token", &seat.identity),
        ("an enrollment token", enrollment["token"].as_str().unwrap()),
        ("a bot's secret", "s3cr3t-bot-token-value"),
        ("a link's code", &code),
        ("a page's session", &session),
    ];
    assert!(holds(&LOG.lock().unwrap(), "DEBUG"), "nothing was logged at all");
    for (what, secret) in secrets {
        assert!(secret.len() > 16, "{what}");
        assert!(!holds(&LOG.lock().unwrap(), secret), "{what} was logged");
        for (name, bytes) in files(house.folder.path()) {
            assert!(!holds(&bytes, secret), "{what} is in {name}");
        }
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_once_is_not_shown_again() {
    let house = Harness::open().await;
    let seat = house.seat("g").await;
    let before = house.heard.lock().unwrap().len();
    let mut socket = house.socket(&seat).await;
    command(&house, &seat, &mut socket, "/x").await;
    look_at_everything(&house, &seat).await;
    let heard = house.heard.lock().unwrap()[before..].to_vec();
    for secret in [&seat.secret, &seat.chat, &seat.identity, &house.admin] {
        assert!(!holds(&heard, secret));
    }
    house.finish().await;
}

// ---- forwards -------------------------------------------------------------------------------

async fn forwarding() -> (Harness, Seat) {
    begin_logging();
    let house = Harness::with(|config| config.chat.commands = Commands::Forward).await;
    let seat = house.seat("g").await;
    (house, seat)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_carries_the_sanitized_command_and_no_credential() {
    let (house, seat) = forwarding().await;
    let mut socket = house.socket(&seat).await;
    let post = json!({ "user_id": seat.user, "user_name": "Ada", "text": "/weather  oslo-in-plain now ", "message_id": "m-1" });
    house.say_as(&seat, "c", post).await.expect(202);
    let frame = socket.of("passthrough_forward").await;
    let forward = &frame.json["forward"];
    assert_eq!((&forward["platform"], &forward["botId"]), (&json!("relay"), &json!("desk")));
    let headers: Vec<&str> = forward["headers"].as_array().unwrap().iter().map(|it| it[0].as_str().unwrap()).collect();
    assert_eq!(headers, ["content-type"]);
    let body = STANDARD.decode(forward["bodyB64"].as_str().unwrap()).unwrap();
    let expected = json!({ "type": "command", "id": "m-1", "chat_id": "c", "chat_type": "dm",
                           "user": { "id": seat.user, "name": "Ada" }, "name": "weather", "args": "oslo-in-plain now" });
    assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), expected);
    assert_eq!(socket.unread().await, 0, "and not as an event as well");
    house.history(&seat, "c").await;
    nowhere(&house, CAPABILITY, "oslo-in-plain");
    assert_eq!(house.say(&seat, "c", "plain text").await["verdict"]["outcome"], "delivered");
    assert_eq!(socket.event().await.text(), "plain text");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forward_waits_for_its_gateway_and_comes_again_until_it_is_acked() {
    let (house, seat) = forwarding().await;
    house.say(&seat, "c", "/first").await;
    let mut socket = house.socket(&seat).await;
    let waited = socket.of("passthrough_forward").await;
    socket.hang_up().await;
    let mut again = house.socket(&seat).await;
    let same = again.of("passthrough_forward").await;
    assert_eq!(waited.raw, same.raw);
    again.ack(&same).await;
    again.hang_up().await;
    let mut third = house.socket(&seat).await;
    assert_eq!(third.unread().await, 0);
    assert_eq!(house.metric("frontdesk_acks_total").await, 1);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follow_up_settles_the_forward_that_it_answers() {
    let (house, seat) = forwarding().await;
    let mut socket = house.socket(&seat).await;
    house.say(&seat, "c", "/first").await;
    socket.of("passthrough_forward").await;
    let result = socket.follow_up("agent:main:relay:dm:c", KIND, "done").await.json["result"].clone();
    assert_eq!(result["success"], true, "{result}");
    socket.hang_up().await;
    let mut again = house.socket(&seat).await;
    assert_eq!(again.unread().await, 0, "it does not come again");
    house.finish().await;
}
