//! Access control after tokens expire, tenants are added and files change owners.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

#[path = "harness/mod.rs"]
mod harness;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use frontdesk::app::{FIRST_TENANT, Frontdesk};
use frontdesk::config::Config;
use frontdesk_store::postgres::PostgresStore;
use frontdesk_testkit::postgres::TestSchema;
use frontdesk_wire::{MessageId, TenantId};
use harness::{Harness, Reply, TIME_LIMIT};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

fn cookie(reply: &Reply) -> Option<String> {
    reply.header("set-cookie").split(';').next().filter(|it| !it.is_empty()).map(str::to_owned)
}

async fn login(harness: &Harness, token: &str) -> String {
    let reply = harness.post("/chat/login", "", &json!({ "token": token })).await;
    assert_eq!(reply.status, 204, "{}", reply.text());
    cookie(&reply).unwrap()
}

async fn with_cookie(harness: &Harness, cookie: &str, path: &str) -> Reply {
    harness.send(harness.request("GET", path).header("cookie", cookie)).await
}

#[tokio::test]
async fn a_chat_session_ends_with_its_token() {
    let (harness, clock) = Harness::still().await;
    let make = async |ttl_s: Option<u64>| {
        let ask = json!({ "tenant": FIRST_TENANT, "scope": "chat", "ttl_s": ttl_s });
        harness.admin("POST", "/tokens", &ask).await.expect(201)
    };
    let short = make(Some(2)).await;
    let session = login(&harness, short["token"].as_str().unwrap()).await;
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 200);
    let mut open = harness.response(harness.request("GET", "/chat/v1/chats/c/stream").header("cookie", &session)).await;
    clock.advance_ms(2_001);
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 401, "expired");
    let ended = async { while open.chunk().await.unwrap().is_some() {} };
    timeout(TIME_LIMIT, ended).await.expect("the stream did not end with its token");

    let long = make(None).await;
    let session = login(&harness, long["token"].as_str().unwrap()).await;
    let mut by_cookie =
        harness.response(harness.request("GET", "/chat/v1/chats/c/stream").header("cookie", &session)).await;
    let bearer = long["token"].as_str().unwrap();
    let mut by_token = harness.open_stream("/chat/v1/chats/c/stream", bearer).await;
    assert_eq!((by_cookie.status(), by_token.status()), (reqwest::StatusCode::OK, reqwest::StatusCode::OK));
    let revoked = harness.admin("DELETE", &format!("/tokens/{}", long["id"].as_str().unwrap()), &Value::Null).await;
    assert_eq!(revoked.status, 204);
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 401, "revoked");
    for open in [&mut by_cookie, &mut by_token] {
        let ended = async { while open.chunk().await.unwrap().is_some() {} };
        timeout(TIME_LIMIT, ended).await.expect("the stream did not end with its token");
    }
    // Expiry of a session without token is checked at the time of use, not at the last login.
    let link = harness.admin("POST", "/chat-link", &json!({ "name": FIRST_TENANT })).await.expect(201);
    let path = link["url"].as_str().unwrap().split_once("/chat").unwrap().1.to_owned();
    let session = cookie(&harness.get(&format!("/chat{path}"), "").await).unwrap();
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 200);
    // The operator can revoke what a link has opened.
    let tokens = async || {
        let listed = harness.admin("GET", "/tokens", &Value::Null).await.expect(200)["tokens"].take();
        listed.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect::<BTreeSet<_>>()
    };
    let before = tokens().await;
    let link = harness.admin("POST", "/chat-link", &json!({ "name": FIRST_TENANT })).await.expect(201);
    let path = link["url"].as_str().unwrap().split_once("/chat").unwrap().1.to_owned();
    let other = cookie(&harness.get(&format!("/chat{path}"), "").await).unwrap();
    let after = tokens().await;
    let new: Vec<&String> = after.difference(&before).collect();
    assert_eq!((new.len(), with_cookie(&harness, &other, "/chat/v1/me").await.status), (1, 200));
    assert_eq!(harness.admin("DELETE", &format!("/tokens/{}", new[0]), &Value::Null).await.status, 204);
    assert_eq!(with_cookie(&harness, &other, "/chat/v1/me").await.status, 401, "revoked");
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 200);
    harness.pass(&clock, 7 * 86_400_000 + 1).await;
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 401);
    harness.finish().await;
}

#[tokio::test]
async fn the_page_opens_without_link_only_with_one_tenant_and_a_local_url() {
    let opens = async |harness: &Harness| cookie(&harness.get("/chat", "").await).is_some();
    let harness = Harness::open().await;
    let session = cookie(&harness.get("/chat", "").await).expect("one tenant, local URL");
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 200);
    let request = harness.request("GET", "/chat/v1/chats/c/stream").header("cookie", &session);
    let mut open = request.send().await.unwrap();
    assert_eq!(open.status(), 200);
    harness.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    assert!(!opens(&harness).await, "several tenants: ambiguous");
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 401, "opened before");
    let ended = async { while open.chunk().await.unwrap().is_some() {} };
    timeout(TIME_LIMIT, ended).await.expect("the stream did not end");
    harness.finish().await;
    // Nor after a restart with another URL.
    let harness = Harness::open().await;
    let session = cookie(&harness.get("/chat", "").await).unwrap();
    let folder = harness.finish().await;
    let harness = Harness::again(folder, |config| config.public_url = "https://desk.example".into()).await;
    assert_eq!(with_cookie(&harness, &session, "/chat/v1/me").await.status, 401);
    harness.finish().await;
    for change in
        [(|config: &mut Config| config.public_url = "https://desk.example".into()) as fn(&mut Config), |config| {
            config.chat.open_locally = false;
        }]
    {
        let harness = Harness::with(change).await;
        assert!(!opens(&harness).await);
        harness.finish().await;
    }
    let harness = Harness::with(|config| config.public_url = "http://localhost:8787".into()).await;
    assert!(opens(&harness).await);
    harness.finish().await;
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn files_are_private_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o755)).unwrap();
    let harness = Harness::again(folder, |_| {}).await;
    let account = harness.add_gateway("gw").await;
    let request =
        harness.request("POST", "/chat/v1/media").bearer_auth(&account.chat).header("content-type", "image/png");
    let id = harness.send(request.body("x")).await.expect(200)["id"].as_str().unwrap().to_owned();
    assert_eq!(mode(&data), 0o700, "permissions of a readable folder are removed");
    for file in [
        "frontdesk.db",
        "frontdesk.db-wal",
        "frontdesk.lock",
        "master.key",
        "admin.token",
        "url",
        &format!("media/{id}"),
    ] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    // Permissions of a readable database are removed at the next start.
    let folder = harness.finish().await;
    std::fs::set_permissions(data.join("frontdesk.db"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let harness = Harness::again(folder, |_| {}).await;
    assert_eq!(mode(&data.join("frontdesk.db")), 0o600);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_is_answered_once_by_concurrent_presses() {
    let harness = std::sync::Arc::new(Harness::open().await);
    let account = harness.add_gateway("gw").await;
    for person in 0..8 {
        harness.bind(FIRST_TENANT, &format!("p-{person}"), "gw").await;
    }
    for round in 0..10 {
        let id = format!("ask-{round}");
        let shown = json!({ "message_id": id, "direction": "out", "text": "?", "at": 1, "seq": 0, "edited": false,
            "deleted": false, "reactions": [], "prompt": { "prompt_id": "p", "kind": "choice",
            "options": [{ "id": "yes", "label": "Yes" }, { "id": "no", "label": "No" }] } });
        harness
            .app
            .desk
            .stores()
            .chat
            .chat_append(&TenantId::from(FIRST_TENANT), &"c".into(), &MessageId::from(&id), shown.to_string(), 1)
            .await
            .unwrap();
        let mut presses = JoinSet::new();
        for person in 0..8 {
            let (harness, chat, path) =
                (harness.clone(), account.chat.clone(), format!("/chat/v1/chats/c/messages/{id}/press"));
            let option = if person % 2 == 0 { "yes" } else { "no" };
            let press = json!({ "prompt_id": "p", "option_id": option, "user_id": format!("p-{person}") });
            presses.spawn(async move { harness.post(&path, &chat, &press).await.status });
        }
        let mut said = presses.join_all().await;
        said.sort_unstable();
        assert_eq!(said, [202, 409, 409, 409, 409, 409, 409, 409]);
    }
    let events = harness.mail(&account).await.len();
    assert_eq!(events, 10, "one answer per prompt");
    let Ok(harness) = std::sync::Arc::try_unwrap(harness) else { panic!("a task still holds the harness") };
    harness.finish().await;
}

/// The name is the audience of signed tokens: with two owners, each could act as the other.
#[tokio::test]
async fn an_instance_id_has_one_owner_per_server() {
    let harness = Harness::open().await;
    harness.add_gateway("theirs").await;
    harness.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    let identity = harness.token("other", "identity").await;
    let ask =
        |gateway: &str, instance: &str| json!({ "gatewayId": gateway, "platform": "relay", "instanceId": instance });
    let taken = harness.post("/relay/provision", &identity, &ask("mine", "theirs")).await.error(403);
    assert!(!taken.contains(FIRST_TENANT), "must not name the owner: {taken}");
    // Created by an alarm request, and by the operator.
    let bound = json!({ "tenant": "other", "scope": "identity", "instance": "theirs" });
    let bearer = harness.admin("POST", "/tokens", &bound).await.expect(201)["token"].as_str().unwrap().to_owned();
    let alarm = json!({ "job_id": "j", "fire_at": "2099-01-01T00:00:00Z", "agent_callback_url": "relay:" });
    assert_eq!(harness.post("/api/agent-cron/provision", &bearer, &alarm).await.error(403), taken);
    let link = json!({ "platform": "relay", "user_id": "u", "tenant": "other", "instance": "theirs" });
    let response = harness.admin("POST", "/bindings", &link).await;
    assert_eq!(response.problem(409), "conflict");
    assert!(response.text().contains(FIRST_TENANT), "the operator may see the owner: {}", response.text());
    harness.post("/relay/provision", &identity, &ask("mine", "mine")).await.expect(200);
    harness.finish().await;
}

#[tokio::test]
async fn a_retired_signing_key_leaves_the_jwks_on_time() {
    let (harness, clock) = Harness::still().await;
    let kids = async || {
        let set = harness.get("/.well-known/jwks.json", "").await.expect(200);
        set["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = kids().await;
    let second =
        harness.admin("POST", "/signing-keys/rotate", &json!({})).await.expect(200)["id"].as_str().unwrap().to_owned();
    assert_eq!(kids().await, [second.clone(), first[0].clone()]);
    harness.pass(&clock, 86_400_000 + 1).await;
    assert_eq!(kids().await, [second], "without a restart or another rotation");
    harness.finish().await;
}

/// Data written to a deleted file would be lost.
#[tokio::test]
async fn removal_of_the_database_file_is_noticed() {
    for how in ["removed", "replaced", "truncated", "log removed", "log truncated"] {
        let harness = Harness::open().await;
        let account = harness.add_gateway("gw").await;
        harness.say(&account, "c", "before").await;
        let data = harness.folder.path().join("data");
        let file = data.join("frontdesk.db");
        match how {
            "removed" => std::fs::remove_file(&file).unwrap(),
            "replaced" => {
                std::fs::copy(&file, data.join("copy")).unwrap();
                std::fs::rename(data.join("copy"), &file).unwrap();
            }
            "truncated" => std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(0).unwrap(),
            "log removed" => std::fs::remove_file(data.join("frontdesk.db-wal")).unwrap(),
            _ => {
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(data.join("frontdesk.db-wal"))
                    .unwrap()
                    .set_len(0)
                    .unwrap();
            }
        }
        let refused = harness.say_as(&account, "c", json!({ "user_id": account.user, "text": "after" })).await;
        assert_eq!(refused.problem(503), "unavailable", "{how}");
        let ready = harness.get("/readyz", "").await;
        let text = ready.text();
        assert!(
            ready.status == 503 && text.contains("while the server was running") && text.contains("backup"),
            "{how}: {text}"
        );
        harness.finish().await;
    }
}

fn config(folder: &Path) -> Config {
    let mut config = Config::load(None).unwrap();
    config.data_dir = folder.join("data");
    config.listen = "127.0.0.1:0".into();
    config
}

#[tokio::test]
async fn keys_without_a_database_start_only_with_new() {
    let folder = Harness::open().await.finish().await;
    for file in ["frontdesk.db", "frontdesk.db-wal", "frontdesk.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join("data").join(file)); // the write-ahead log may already be gone
    }
    let mut config = config(folder.path());
    let Err(refused) = Frontdesk::open(&config).await else { panic!("the server started") };
    let text = format!("{refused:#}");
    assert!(text.contains("--new") && text.contains("backup"), "{text}");
    config.fresh = true;
    Frontdesk::open(&config).await.unwrap();
}

/// With a shared database the data folder remembers which one it was.
#[tokio::test(flavor = "multi_thread")]
async fn another_shared_database_is_used_only_with_new() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (TestSchema::create(), TestSchema::create());
    let mut config = config(folder.path());
    config.public_url = "http://desk.example".into();
    let mut open = async |url: String, fresh: bool| {
        (config.store.url, config.fresh) = (url, fresh);
        Frontdesk::open(&config).await.map(drop).map_err(|error| format!("{error:#}"))
    };
    open(first.url(), false).await.unwrap();
    open(first.url(), false).await.unwrap();
    let refused = open(second.url(), false).await.unwrap_err();
    assert!(
        refused.contains("is empty, and this server used one before")
            && refused.contains("--new")
            && refused.contains("store.url"),
        "{refused}"
    );
    assert_eq!(PostgresStore::epoch_at(&second.url()).unwrap(), None, "nothing was written into it");
    open(second.url(), true).await.unwrap();
    open(second.url(), false).await.unwrap();
    let refused = open(first.url(), false).await.unwrap_err();
    assert!(refused.contains("is not the one that this server used before"), "{refused}");
}

/// Makes a database as the first release could leave it after a disconnect: two instances with one number. The rows of
/// the lost one follow those of the other, shifted by `shift`.
fn share_number(folder: &Path, kept: u64, lost: u64, shift: u32) {
    let database = rusqlite::Connection::open(folder.join("data/frontdesk.db")).unwrap();
    let spoil = format!(
        "ALTER TABLE alarm RENAME TO shot; ALTER TABLE alarm_end RENAME TO shot_end; ALTER TABLE inbox_message RENAME TO letter;
         DROP INDEX alarm_job; DROP INDEX alarm_next; DROP INDEX alarm_dead; DROP INDEX alarm_retry; DROP INDEX alarm_claim;
         DROP INDEX alarm_end_instance; DROP INDEX alarm_end_age; DROP INDEX reach_age;
         DROP TABLE media_total; CREATE INDEX media_tenant ON media (tenant, size);
         DROP INDEX alarm_planned; DROP INDEX inbox_message_agent; DROP INDEX inbox_message_tenant; DROP INDEX inbox_message_origin;
         CREATE UNIQUE INDEX shot_job ON shot (instance, job_id); CREATE INDEX shot_next ON shot (next_ms, id) WHERE state = 'armed';
         CREATE INDEX shot_dead ON shot (id) WHERE state = 'dead';
         CREATE INDEX shot_retry ON shot (next_ms) WHERE state = 'armed' AND attempts > 0;
         CREATE INDEX shot_claim ON shot (lease_ms) WHERE state = 'armed' AND lease_ms > 0;
         CREATE INDEX shot_end_instance ON shot_end (instance, id); CREATE INDEX shot_end_age ON shot_end (at_ms);
         CREATE INDEX letter_agent ON letter (agent); CREATE INDEX letter_tenant ON letter (tenant);
         DROP INDEX record_number; DROP INDEX record_version; DROP TABLE tombstone; ALTER TABLE shot DROP COLUMN claim;
         ALTER TABLE journal DROP COLUMN desk; DROP TABLE journal_receipt; DROP TABLE cursor; DROP TABLE duty;
         DROP TABLE presence; CREATE TABLE presence (instance INTEGER PRIMARY KEY, json TEXT NOT NULL);
         ALTER TABLE event DROP COLUMN attempt;
         DROP TABLE media_remote; DROP TABLE media_mail; DROP TABLE fragment;
         ALTER TABLE letter DROP COLUMN origin;
         DELETE FROM meta WHERE key IN ('migration 8', 'migration 9', 'migration 10', 'migration 11', 'migration 12', 'migration 13', 'migration 14', 'migration 15', 'migration 16', 'migration 17', 'migration 18', 'migration 19', 'directory_version', 'directory_floor');
         PRAGMA user_version = 7;
         UPDATE record SET json = json_set(json, '$.no', {kept}) WHERE kind = 'instance' AND json_extract(json, '$.no') = {lost};
         UPDATE mail SET seq = seq + {shift}, instance = {kept} WHERE instance = {lost};"
    );
    database.execute_batch(&spoil).unwrap();
}

#[tokio::test]
async fn a_database_with_shared_numbers_is_refused_and_repaired() {
    let harness = Harness::open().await;
    let ours = harness.add_gateway("ours").await;
    let theirs = harness.add_gateway_in("other", "theirs").await;
    for (account, text) in [(&ours, "for us"), (&theirs, "for them"), (&ours, "again"), (&theirs, "more")] {
        harness.say(account, "c", text).await;
    }
    let number = |name: &str| harness.app.desk.directory().find_instance(&name.into(), None).unwrap().no;
    let (kept, lost) = (number("ours"), number("theirs"));
    let folder = harness.finish().await;
    share_number(folder.path(), kept.0, lost.0, 2);
    let config = config(folder.path());
    let Err(refused) = Frontdesk::open(&config).await else { panic!("the server started") };
    let text = format!("{refused:#}");
    assert!(text.contains("home/ours") && text.contains("other/theirs") && text.contains("doctor --repair"), "{text}");
    let report = frontdesk::app::repair(&config).unwrap();
    assert!(report.iter().any(|line| line.contains("2 messages were moved")), "{report:?}");
    assert!(frontdesk::app::repair(&config).unwrap().is_empty(), "once");

    let harness = Harness::again(folder, |_| {}).await;
    let number = |name: &str| harness.app.desk.directory().find_instance(&name.into(), None).unwrap().no;
    assert_ne!(number("ours"), number("theirs"));
    for (account, texts) in [(&ours, ["for us", "again"]), (&theirs, ["for them", "more"])] {
        let mut socket = harness.socket(account).await;
        for text in texts {
            assert_eq!(socket.event().await.text(), text);
        }
    }
    harness.finish().await;
}

/// The same within one tenant: the verdict of a message tells its receiver.
#[tokio::test]
async fn instances_of_one_tenant_with_a_shared_number_are_separated() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    for (account, text) in [(&ann, "a1"), (&bob, "b1"), (&ann, "a2"), (&bob, "b2"), (&ann, "a3")] {
        harness.say(account, "c", text).await;
    }
    let number =
        |harness: &Harness, name: &str| harness.app.desk.directory().find_instance(&name.into(), None).unwrap().no;
    let (kept, lost) = (number(&harness, "ann"), number(&harness, "bob"));
    let folder = harness.finish().await;
    share_number(folder.path(), kept.0, lost.0, 3);
    frontdesk::app::repair(&config(folder.path())).unwrap();
    let harness = Harness::again(folder, |_| {}).await;
    let waiting = harness.app.desk.stores().ledger.waiting().await.unwrap();
    let owed = |name: &str| waiting.iter().find(|it| it.instance == number(&harness, name)).map(|it| it.count);
    assert_eq!((owed("ann"), owed("bob")), (Some(3), Some(2)), "both have waiting rows and are woken");
    for (account, texts) in [(&ann, &["a1", "a2", "a3"][..]), (&bob, &["b1", "b2"][..])] {
        let mut socket = harness.socket(account).await;
        for text in texts {
            assert_eq!(socket.event().await.text(), *text);
        }
    }
    harness.finish().await;
}

#[tokio::test]
async fn a_post_reports_whether_it_was_pushed_or_waits() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("gw").await;
    let asleep = harness.say(&account, "c", "one").await;
    assert_eq!(
        (&asleep["verdict"]["outcome"], &asleep["verdict"]["delivery"]),
        (&json!("delivered"), &json!("queued"))
    );
    let socket = harness.socket(&account).await;
    let awake = harness.say(&account, "c", "two").await;
    assert_eq!(awake["verdict"]["delivery"], "pushed");
    let nobody = harness.say_as(&account, "c", json!({ "user_id": "stranger", "text": "x" })).await.expect(202);
    assert!(nobody["verdict"].get("delivery").is_none(), "{nobody}");
    drop(socket);
    harness.finish().await;
}

/// The operator must be able to find out why a bot does not answer.
#[tokio::test]
async fn the_doctor_names_a_wake_url_that_keeps_failing() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("sleeper").await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/wake", nobody.local_addr().unwrap());
    drop(nobody);
    let ask = json!({ "gatewayId": "sleeper", "platform": "relay", "wakeUrl": url });
    harness.post("/relay/provision", &account.identity, &ask).await.expect(200);
    harness.say(&account, "c", "wake up").await;
    let report = async {
        loop {
            let found = harness.admin("GET", "/doctor", &Value::Null).await.expect(200);
            if found["ok"] == false {
                return found.to_string();
            }
        }
    };
    let report = timeout(TIME_LIMIT, report).await.expect("the doctor reported nothing");
    assert!(report.contains("home/sleeper: 1 messages waiting, the wake URL keeps failing"), "{report}");
    let socket = harness.socket(&account).await; // the agent connects by itself
    assert_eq!(harness.admin("GET", "/doctor", &Value::Null).await.expect(200)["ok"], true);
    drop(socket);
    harness.finish().await;
}
