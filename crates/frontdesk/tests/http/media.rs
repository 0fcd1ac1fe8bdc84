//! Media: files are returned unchanged, only to their tenant, up to a size and for a limited time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frontdesk::config::Config;
use frontdesk::env::SystemEnv;
use frontdesk_core::Rules;
use frontdesk_core::port::bus::NoBus;
use frontdesk_core::port::media::{MediaBody, MediaItem, MediaPut, MediaStore, MediaTotal, RemoteItem};
use frontdesk_core::port::store::Stored;
use frontdesk_platforms::chat::BuiltInChat;
use frontdesk_testkit::desk::NoWay;
use frontdesk_wire::TenantId;
use frontdesk_wire::api::{ChatPost, MediaRef};
use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Reply};

const MAX: usize = 25 * 1024 * 1024;

/// Counts how often files are read.
struct CountingMedia {
    media: Arc<dyn MediaStore>,
    reads: AtomicUsize,
}

impl CountingMedia {
    fn count(&self) -> &dyn MediaStore {
        self.reads.fetch_add(1, Ordering::SeqCst);
        &*self.media
    }
}

impl MediaStore for CountingMedia {
    fn media_put(&self, item: MediaItem, body: MediaBody, tenant_max: u64) -> Stored<'_, MediaPut> {
        self.media.media_put(item, body, tenant_max)
    }

    fn media_total<'a>(&'a self, tenant: &'a TenantId) -> Stored<'a, MediaTotal> {
        self.media.media_total(tenant)
    }

    fn media_item<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<MediaItem>> {
        self.count().media_item(tenant, id, now_ms)
    }

    fn media_get<'a>(
        &'a self,
        tenant: &'a TenantId,
        id: &'a str,
        now_ms: u64,
    ) -> Stored<'a, Option<(MediaItem, MediaBody)>> {
        self.count().media_get(tenant, id, now_ms)
    }

    fn media_remote<'a>(&'a self, tenant: &'a TenantId, id: &'a str, now_ms: u64) -> Stored<'a, Option<RemoteItem>> {
        self.count().media_remote(tenant, id, now_ms)
    }
}

async fn upload(
    harness: &Harness,
    account: &GatewayAccount,
    filename: Option<&str>,
    mime: &str,
    body: Vec<u8>,
) -> Reply {
    let mut request =
        harness.request("POST", "/relay/media").bearer_auth(account.bearer()).header("content-type", mime);
    if let Some(filename) = filename {
        request = request.header("x-media-filename", filename);
    }
    harness.send(request.body(body)).await
}

fn id_of(reply: &Reply) -> String {
    reply.expect(200)["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_returned_unchanged_with_its_type_and_cannot_run() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let bytes: Vec<u8> = (0..100_000_u32).map(|number| (number * 31 % 251) as u8).collect();
    let reply = upload(&harness, &account, Some("a b.bin"), "text/html", bytes.clone()).await;
    assert_eq!(reply.expect(200)["size"], bytes.len());
    let id = id_of(&reply);
    assert_eq!(id.len(), 32, "128 random bits: {id}");
    let path = format!("/relay/media/{id}");
    let got = harness.get(&path, &account.bearer()).await;
    assert_eq!((got.status, got.body == bytes), (200, true));
    assert_eq!(got.header("content-type"), "text/html");
    assert_eq!(got.header("x-content-type-options"), "nosniff");
    assert!(got.header("content-disposition").starts_with("attachment"), "{}", got.header("content-disposition"));
    assert!(got.header("content-security-policy").contains("sandbox"));
    for bearer in ["", "x", &account.chat, &account.identity] {
        harness.get(&path, bearer).await.error(401);
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_five_mebibytes_fit_and_one_byte_more_does_not() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let most = vec![7; MAX];
    let id = id_of(&upload(&harness, &account, None, "application/octet-stream", most.clone()).await);
    assert!(harness.get(&format!("/relay/media/{id}"), &account.bearer()).await.body == most);
    let head =
        |rest: &str| format!("POST /relay/media HTTP/1.1\r\nAuthorization: Bearer {}\r\n{rest}", account.bearer());
    // With a Content-Length it is refused before it is sent, otherwise as soon as it is too large.
    assert_eq!(harness.raw(&head(&format!("Content-Length: {}", MAX + 1)), Vec::new()).await, 413);
    let mut chunked = format!("{:x}\r\n", MAX + 1).into_bytes();
    chunked.resize(chunked.len() + MAX + 1, 7);
    chunked.extend_from_slice(b"\r\n0\r\n\r\n");
    assert_eq!(harness.raw(&head("Transfer-Encoding: chunked"), chunked).await, 413);
    upload(&harness, &account, None, "image/png", Vec::new()).await.error(400);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_media_and_missing_media_are_indistinguishable() {
    let harness = Harness::open().await;
    let (account, rival) = (harness.add_gateway("g").await, harness.add_gateway_in("rival", "r").await);
    let id = id_of(&upload(&harness, &account, None, "image/png", b"mine".to_vec()).await);
    let theirs = harness.get(&format!("/relay/media/{id}"), &rival.bearer()).await;
    let never = harness.get(&format!("/relay/media/{}", "0".repeat(32)), &rival.bearer()).await;
    assert_eq!((theirs.error(404), &theirs.body), (never.error(404), &never.body));
    assert_eq!(harness.get(&format!("/chat/v1/media/{id}"), &rival.chat).await.problem(404), "not_found");
    assert_eq!(harness.get(&format!("/chat/v1/media/{id}"), &account.chat).await.body, b"mine");
    for strange in ["..%2F..%2Fmaster.key", "%2e%2e", "a%00b", "frontdesk.db"] {
        let reply = harness.get(&format!("/relay/media/{strange}"), &account.bearer()).await;
        assert_eq!(reply.status, 404, "{strange}");
    }
    let post = json!({ "user_id": rival.user, "text": "look", "media": [{ "id": id }] });
    assert_eq!(harness.say_as(&rival, "c", post).await.problem(404), "not_found");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_percent_encoded_filename_reaches_the_agent_decoded() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let request =
        harness.request("POST", "/chat/v1/media").bearer_auth(&account.chat).header("content-type", "image/png");
    let request = request.header("x-media-filename", "..%2Fcaf%C3%A9%20menu.png").body(b"png".to_vec());
    let id = id_of(&harness.send(request).await);
    let post = json!({ "user_id": account.user, "text": "look", "media": [{ "id": id }] });
    harness.say_as(&account, "c", post).await.expect(202);
    let event = socket.event().await.json["event"].clone();
    let url = format!("{}/relay/media/{id}", harness.url);
    assert_eq!((&event["message_type"], &event["media_urls"]), (&json!("photo"), &json!([url])));
    let media = json!([{ "url": url, "kind": "image", "mime": "image/png", "size": 3, "filename": "café menu.png", "caption": Value::Null }]);
    assert_eq!(event["media"], media);
    let fetched = harness.send(harness.client.get(&url).bearer_auth(account.bearer())).await;
    assert_eq!(fetched.body, b"png");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_file_is_gone() {
    let harness = Harness::with(|config| config.media.ttl_s = 0).await;
    let account = harness.add_gateway("g").await;
    let id = id_of(&upload(&harness, &account, None, "image/png", b"x".to_vec()).await);
    harness.get(&format!("/relay/media/{id}"), &account.bearer()).await.error(404);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_a_message_names_ten_times_is_read_once() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let id = id_of(&upload(&harness, &account, None, "image/png", b"png".to_vec()).await);
    let stores = harness.app.desk.stores();
    let media = Arc::new(CountingMedia { media: stores.media.clone(), reads: AtomicUsize::default() });
    let rules = Config::load(None).unwrap().chat.rules(&Rules::default(), &harness.url);
    let (env, outcall, bus) = (Arc::new(SystemEnv), Arc::new(NoWay), Arc::new(NoBus));
    let chat = BuiltInChat::new(env, stores.chat.clone(), media.clone(), outcall, bus, rules);
    let files = (0..10).map(|_| MediaRef { id: id.clone() }).collect();
    let post = ChatPost { user_id: account.user.clone().into(), media: files, ..ChatPost::default() };
    Box::pin(chat.post(&harness.app.desk, &TenantId::from(&account.tenant), &"c".into(), post)).await.unwrap();
    let event = socket.event().await.json["event"].clone();
    assert_eq!(event["media"].as_array().map(Vec::len), Some(10), "{event}");
    assert_eq!(media.reads.load(Ordering::SeqCst), 1);
    harness.finish().await;
}
