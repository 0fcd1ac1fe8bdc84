//! Files of a platform: fetched when an agent asks for them, once, also days after the message came.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

#[path = "../harness/mod.rs"]
mod harness;
mod platform;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk::config::Config;
use frontdesk::env::SystemEnv;
use frontdesk_core::Env as _;
use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, REMOTE_MEDIA_MAX, Receipt, RemoteFile, TenantSource, Verified};
use frontdesk_core::port::platform::Inlet as _;
use frontdesk_core::port::store::Retention;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::folder::{files, holds};
use frontdesk_wire::{MessageEvent, MessageId, Secret, Source};
use serde_json::{Value, json};

use harness::{GatewayAccount, Harness, Reply, TIME_LIMIT};
use platform::{FileChat, PLATFORM, Plan};

const TOKEN: &str = "token-of-the-file-bot";
const HOUR_MS: u64 = 3_600_000;

struct Scene {
    harness: Harness,
    platform: Arc<FileChat>,
    clock: Arc<TestEnv>,
    account: GatewayAccount,
}

impl Scene {
    async fn open() -> Self {
        Self::with(|_| {}).await
    }

    /// A server with one bot of the platform, and a user who is linked to the agent of `account`.
    async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let (platform, clock) = (Arc::new(FileChat::new()), Arc::new(TestEnv::default()));
        clock.set_ms(SystemEnv.now_ms());
        let folder = tempfile::tempdir().unwrap();
        let harness = Harness::running(vec![platform.clone()], clock.clone(), folder, change).await;
        let account = harness.add_gateway("g").await;
        let bot = json!({ "platform": PLATFORM, "id": "b", "tenant": account.tenant, "secrets": { "token": TOKEN } });
        harness.admin("POST", "/bots", &bot).await.expect(201);
        let link = json!({ "platform": PLATFORM, "user_id": "ann", "tenant": account.tenant, "instance": "g" });
        harness.admin("POST", "/bindings", &link).await.expect(201);
        Self { harness, platform, clock, account }
    }

    fn intake(&self, message_id: &str, files: Vec<RemoteFile>) -> Intake {
        let source = Source {
            platform: PLATFORM.into(),
            chat_id: "c".into(),
            chat_type: "dm".into(),
            user_id: Some("ann".into()),
            ..Source::default()
        };
        let (text, message_id) = ("look".into(), Some(message_id.to_owned()));
        let event = MessageEvent {
            text,
            message_type: "text".into(),
            source,
            message_id: message_id.map(MessageId::from),
            ..MessageEvent::default()
        };
        let tenant_source = TenantSource::Tenant(self.account.tenant.clone().into());
        Intake { remote_media: files, ..Intake::new(Verified::by("a test"), tenant_source, "b".into(), event) }
    }

    /// A message with one file; returns its outcome.
    async fn say(&self, message_id: &str, handle: &str) -> Receipt {
        let intake = self.intake(message_id, vec![file(handle)]);
        let receipt = self.harness.app.desk.inbound().receive(vec![intake]).await.unwrap().remove(0);
        assert_eq!(receipt.verdict.outcome, "delivered");
        receipt
    }

    /// The events in the ledger of the agent, oldest first.
    async fn events(&self) -> Vec<Value> {
        let mut events = Vec::new();
        for row in self.harness.mail(&self.account).await {
            let path = format!("/mail/{}", row["id"].as_str().unwrap());
            events.push(self.harness.admin("GET", &path, &Value::Null).await.expect(200)["event"].clone());
        }
        events
    }

    /// The path of the file of the newest message.
    async fn path(&self) -> String {
        let events = self.events().await;
        let url = events.last().unwrap()["media_urls"][0].as_str().unwrap();
        url.strip_prefix(&self.harness.url).unwrap_or_else(|| panic!("{url} is not ours")).to_owned()
    }

    async fn get(&self, path: &str) -> Reply {
        self.harness.get(path, &self.account.bearer()).await
    }

    async fn purge(&self) {
        let rules = self.harness.app.desk.rules();
        let retention =
            Retention { now_ms: self.clock.now_ms(), media_ttl_ms: rules.media_ttl_ms, ..Retention::default() };
        while self.harness.app.desk.upkeep().purge(retention).await.unwrap().more {}
    }

    async fn fetches(&self, outcome: &str) -> u64 {
        self.harness.metric(&format!("frontdesk_media_fetches_total{{why=\"{outcome}\"}}")).await
    }

    async fn until_asked(&self, times: usize) {
        let asked = async {
            while self.platform.asked() < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TIME_LIMIT, asked).await.expect("the platform was not asked");
    }
}

fn file(handle: &str) -> RemoteFile {
    let filename = Some("../holiday/bild ä.png".into());
    RemoteFile { handle: Secret::new(handle), mime: "image/png".into(), filename, size: Some(4) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_fetched_once_by_the_first_who_ask() {
    let scene = Scene::open().await;
    scene.say("m1", "handle-1").await;
    let event = scene.events().await.remove(0);
    let path = scene.path().await;
    assert_eq!(event["message_type"], "photo");
    let media = json!([{ "url": event["media_urls"][0], "kind": "image", "mime": "image/png", "size": 4,
                         "filename": "bild ä.png", "caption": null }]);
    assert_eq!((&event["media"], event["media_urls"].as_array().unwrap().len()), (&media, 1));
    assert_eq!(scene.platform.asked(), 0, "nobody asked for it yet");

    scene.platform.answers.forget_permits(1_000);
    scene.platform.plan(Plan::Bytes(b"png!".to_vec()));
    let many = (0..8).map(|_| scene.get(&path));
    let many = futures_util::future::join_all(many);
    let answer = async {
        scene.until_asked(1).await;
        scene.platform.answers.add_permits(1_000);
    };
    let (replies, ()) = tokio::join!(many, answer);
    for reply in &replies {
        assert_eq!((reply.status, reply.body.as_slice()), (200, b"png!".as_slice()), "{}", reply.text());
        assert_eq!(reply.header("content-type"), "image/png", "the platform said so with the message");
    }
    assert_eq!(scene.platform.asked(), 1);
    assert_eq!(*scene.platform.last.lock().unwrap(), (TOKEN.into(), "handle-1".into()));
    assert_eq!(scene.get(&path).await.body, b"png!");
    let page = path.replace("/relay/", "/chat/v1/");
    assert_eq!(scene.harness.get(&page, &scene.account.chat).await.body, b"png!");
    assert_eq!((scene.platform.asked(), scene.fetches("fetched").await), (1, 1), "from disk");
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_belongs_to_the_tenant_that_got_the_message() {
    let scene = Scene::open().await;
    let rival = scene.harness.add_gateway_in("rival", "r").await;
    scene.say("m1", "handle-1").await;
    let path = scene.path().await;
    let never = scene.harness.get(&format!("/relay/media/{}", "0".repeat(32)), &rival.bearer()).await;
    let theirs = scene.harness.get(&path, &rival.bearer()).await;
    assert_eq!((theirs.error(404), &theirs.body), (never.error(404), &never.body));
    scene.harness.get(&path, "").await.error(401);
    assert_eq!(scene.platform.asked(), 0);
    scene.platform.plan(Plan::Bytes(b"png!".to_vec()));
    assert_eq!(scene.get(&path).await.status, 200);
    scene.harness.get(&path, &rival.bearer()).await.error(404);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_says_why_and_what_can_be_retried_is() {
    let scene = Scene::open().await;
    scene.say("m1", "handle-1").await;
    let path = scene.path().await;
    for plan in [Plan::Unavailable, Plan::Cut] {
        scene.platform.plan(plan);
        let reply = scene.get(&path).await;
        let text = reply.error(503);
        assert!(text.contains("try again") && !text.contains("handle-1"), "{text}");
        assert_eq!(reply.header("retry-after"), "10");
    }
    scene.platform.plan(Plan::Gone);
    let reply = scene.get(&path).await;
    let text = reply.error(410);
    assert!(text.contains("no longer has this file: asked for ...") && !text.contains("handle-1"), "{text}");
    scene.platform.plan(Plan::Gone);
    let page = path.replace("/relay/", "/chat/v1/");
    assert_eq!(scene.harness.get(&page, &scene.account.chat).await.problem(410), "gone");
    scene.platform.plan(Plan::Bytes(b"png!".to_vec()));
    assert_eq!(scene.get(&path).await.body, b"png!");
    assert_eq!(scene.platform.asked(), 5);
    let counted = [scene.fetches("unavailable").await, scene.fetches("gone").await, scene.fetches("fetched").await];
    assert_eq!(counted, [2, 2, 1]);

    scene.say("m2", "handle-2").await;
    let path = scene.path().await;
    assert_eq!(scene.harness.admin("DELETE", &format!("/bots/{PLATFORM}/b"), &Value::Null).await.status, 204);
    let text = scene.get(&path).await.error(503);
    assert!(text.contains("bot \"b\" was removed"), "{text}");
    assert_eq!(scene.platform.asked(), 5);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_is_refused_before_or_while_it_comes() {
    let scene = Scene::with(|config| (config.media.max_bytes, config.media.per_tenant_bytes) = (1_000, 1_500)).await;
    let said = vec![RemoteFile { size: Some(1_001), ..file("declared") }];
    scene.harness.app.desk.inbound().receive(vec![scene.intake("m1", said)]).await.unwrap();
    let path = scene.path().await;
    assert!(scene.get(&path).await.error(413).contains("larger than 1000 bytes"));
    assert_eq!(scene.platform.asked(), 0, "the platform said how large it is");
    scene.say("m2", "streamed").await;
    let path = scene.path().await;
    scene.platform.plan(Plan::Bytes(vec![1; 1_001]));
    assert!(scene.get(&path).await.error(413).contains("larger than 1000 bytes"));
    // The quota of the tenant, as for uploads; what was refused left nothing behind.
    scene.platform.plan(Plan::Bytes(vec![1; 1_000]));
    assert_eq!(scene.get(&path).await.status, 200);
    scene.say("m3", "third").await;
    let path = scene.path().await;
    scene.platform.plan(Plan::Bytes(vec![1; 501]));
    let text = scene.get(&path).await.error(413);
    assert!(text.contains("stores 1000 bytes") && text.contains("media.per_tenant_bytes (1500)"), "{text}");
    scene.platform.plan(Plan::Bytes(vec![1; 500]));
    assert_eq!(scene.get(&path).await.status, 200);
    assert_eq!((scene.fetches("too_large").await, scene.fetches("full").await), (2, 1));
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_does_not_stop_the_fetch() {
    let scene = Scene::open().await;
    scene.say("m1", "handle-1").await;
    let path = scene.path().await;
    scene.platform.answers.forget_permits(1_000);
    scene.platform.plan(Plan::Bytes(b"png!".to_vec()));
    let asking = scene.harness.request("GET", &path).bearer_auth(scene.account.bearer()).send();
    tokio::select! {
        _ = asking => panic!("it was answered"),
        () = scene.until_asked(1) => {}
    }
    scene.platform.answers.add_permits(1_000);
    assert_eq!(scene.get(&path).await.body, b"png!");
    assert_eq!(scene.platform.asked(), 1);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_wait_for_an_agent_that_sleeps_for_days() {
    let scene = Scene::open().await;
    scene.say("m1", "handle-1").await;
    let path = scene.path().await;
    let request = scene.harness.request("POST", "/chat/v1/media").bearer_auth(&scene.account.chat);
    let uploaded = scene.harness.send(request.header("content-type", "image/png").body("up")).await.expect(200);
    let post = json!({ "user_id": scene.account.user, "text": "see", "media": [{ "id": uploaded["id"] }] });
    scene.harness.say_as(&scene.account, "c", post).await.expect(202);
    let posted = format!("/relay/media/{}", uploaded["id"].as_str().unwrap());

    scene.clock.advance_ms(5 * 24 * HOUR_MS);
    scene.purge().await;
    scene.platform.plan(Plan::Bytes(b"png!".to_vec()));
    // It wakes, takes its mail and asks for the files only then.
    let mut socket = scene.harness.socket(&scene.account).await;
    for frame in socket.events(2).await {
        socket.ack(&frame).await;
    }
    socket.settle().await;
    assert_eq!(scene.get(&posted).await.body, b"up");
    assert_eq!(scene.get(&path).await.body, b"png!");
    scene.purge().await;
    scene.clock.advance_ms(HOUR_MS - 1);
    scene.purge().await;
    assert_eq!((scene.get(&path).await.status, scene.get(&posted).await.status), (200, 200));
    scene.clock.advance_ms(2);
    scene.purge().await;
    assert_eq!((scene.get(&path).await.status, scene.get(&posted).await.status), (404, 404));
    assert_eq!(std::fs::read_dir(scene.harness.folder.path().join("data/media")).unwrap().count(), 0);
    drop(socket);
    scene.harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_files_and_long_handles_are_refused_with_a_reason() {
    let scene = Scene::open().await;
    let desk = scene.harness.app.desk.clone();
    let bot = desk.directory().bots().bot(PLATFORM, &"b".into());
    let inlet = desk.inbound().inlet(PLATFORM, &bot);
    let many = |count: usize| (0..count).map(|number| file(&format!("handle-{number}"))).collect::<Vec<_>>();
    let taken = inlet.take(vec![
        scene.intake("m1", many(REMOTE_MEDIA_MAX + 1)),
        scene.intake("m2", vec![file(&"h".repeat(HANDLE_MAX_BYTES + 1))]),
        scene.intake("m3", vec![file("")]),
        scene.intake("m4", many(REMOTE_MEDIA_MAX)),
    ]);
    let taken = taken.await.unwrap();
    for (outcome, why) in taken[..3].iter().zip(["17 files; at most 16", "longer than 4096 bytes", "empty"]) {
        let text = outcome.as_ref().unwrap_err().to_string();
        assert!(text.contains(why), "{text}");
    }
    assert!(taken[3].is_ok());
    assert_eq!(scene.events().await[0]["media_urls"].as_array().unwrap().len(), REMOTE_MEDIA_MAX);
    scene.harness.finish().await;
}

// ---- secrecy --------------------------------------------------------------------------------

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

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_is_in_no_event_log_answer_or_file() {
    const HANDLE: &str = "AgACAgIAAxkBAAIB-secret-file-handle";
    let level = tracing_subscriber::filter::LevelFilter::TRACE;
    tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(|| Logged).init();
    let scene = Scene::open().await;
    assert!(scene.say("m1", HANDLE).await.fresh);
    assert!(!scene.say("m1", HANDLE).await.fresh);
    let path = scene.path().await;
    let nowhere = |when: &str| {
        assert!(!holds(&LOG.lock().unwrap(), HANDLE), "logged {when}");
        assert!(!holds(&scene.harness.received.lock().unwrap(), HANDLE), "answered {when}");
        for (name, bytes) in files(scene.harness.folder.path()) {
            assert!(!holds(&bytes, HANDLE), "in {name} {when}");
        }
    };
    nowhere("before the fetch");
    for plan in [Plan::Unavailable, Plan::Gone, Plan::Cut, Plan::Bytes(b"png!".to_vec())] {
        scene.platform.plan(plan);
        scene.get(&path).await;
    }
    let mut socket = scene.harness.socket(&scene.account).await;
    let frame = socket.event().await;
    assert!(frame.raw.contains(&path) && !frame.raw.contains(HANDLE));
    nowhere("after it");
    assert!(holds(&LOG.lock().unwrap(), "fetching a file from its platform failed"));
    let folder = scene.harness.folder.path().join("data/frontdesk.db");
    let database = rusqlite::Connection::open(folder).unwrap();
    let count = |table: &str| {
        let sql = format!("SELECT COUNT(*) FROM {table}");
        database.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count("media"), count("media_remote")), (1, 0), "once, and its handle is forgotten");
    drop((socket, database));
    scene.harness.finish().await;
}
