//! The server is killed while it takes updates of Telegram: none is lost, and none is stored twice.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use frontdesk_testkit::fakes::telegram::{FakeTelegram, Limits, Server};
use frontdesk_wire::{Secret, token};
use process::{Desk, GatewayAccount, Received, Socket, TENANT};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const ROUNDS: u64 = 100;
const ALBUM_ROUNDS: u64 = 30;
const TOKEN: &str = "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr";
const BOT: i64 = 7001;
const ANN: i64 = 501;
const TIME_LIMIT: Duration = Duration::from_mins(1);

/// A desk with the agent of Ann, before Telegram.
async fn begin(settings: Value) -> (Server, Desk, GatewayAccount) {
    let fake = FakeTelegram::new();
    fake.set_limits(Limits::off());
    let server = fake.serve().await.unwrap();
    act(&server, json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk_bot"}));
    act(&server, json!({"act": "add_user", "id": ANN, "first_name": "Ann"}));
    let desk = Desk::start(&[]).await;
    let ann = desk.api.add_gateway("ann", None).await;
    let link = json!({ "platform": "telegram", "user_id": ANN.to_string(), "tenant": TENANT, "instance": "ann" });
    ask(&desk, "/admin/v1/bindings", link).await;
    let mut all = json!({ "base_url": server.base_url });
    for (name, value) in settings.as_object().unwrap() {
        all[name] = value.clone();
    }
    let secrets = json!({ "token": TOKEN, "webhook_secret": "a-secret-of-the-webhook" });
    let bot = json!({ "platform": "telegram", "id": "tg", "tenant": TENANT, "secrets": secrets, "settings": all });
    ask(&desk, "/admin/v1/bots", bot).await;
    (server, desk, ann)
}

async fn ask(desk: &Desk, path: &str, body: Value) {
    let (status, answer) = desk.api.ask(Method::POST, path, &desk.api.admin, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
}

fn act(server: &Server, act: Value) -> Value {
    server.fake.act(0, serde_json::from_value(act).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_or_stored_twice_through_many_kills() {
    let (server, mut desk, _) = begin(json!({})).await;
    let (mut said, mut last): (BTreeMap<String, String>, u64) = (BTreeMap::new(), 0);
    for round in 0..ROUNDS {
        // It has begun: from here on every message is taken at once.
        let begun = server.fake.wait_for(|fake| fake.calls_after(last).last().map(|call| call.number));
        last = timeout(TIME_LIMIT, begun).await.unwrap_or_else(|_| panic!("it does not poll\n{}", desk.log()));
        for number in 0..=round % 3 {
            let text = format!("r{round}-{number}");
            let message = act(&server, json!({"act": "say", "chat": ANN, "from": ANN, "text": text}));
            said.insert(message["message_id"].to_string(), text);
        }
        sleep(Duration::from_millis(round * 7 % 23)).await; // somewhere between the message and the saved offset
        desk.kill().await;
        desk.start_again().await;
    }
    let all_taken = server.fake.wait_for(|fake| (fake.updates_waiting(BOT) == 0).then_some(()));
    timeout(TIME_LIMIT, all_taken).await.unwrap_or_else(|_| panic!("updates are left\n{}", desk.log()));
    let mut stored: Vec<String> = Vec::new();
    for row in desk.api.mail("ann", "").await {
        stored.push(row["message_id"].as_str().unwrap().to_owned());
    }
    stored.sort();
    assert_eq!(stored, said.keys().cloned().collect::<Vec<_>>());
}

/// In webhook mode each photo of an album is answered before the next one comes, so they wait in the store.
#[tokio::test(flavor = "multi_thread")]
async fn no_photo_of_an_album_is_lost_or_comes_twice_through_many_kills() {
    let (server, mut desk, ann) = begin(json!({ "mode": "webhook" })).await;
    let (mut photos, mut last) = (0, 0);
    for round in 0..ALBUM_ROUNDS {
        let begun = server.fake.wait_for(|fake| {
            fake.calls_after(last).iter().rfind(|call| call.method == "setWebhook").map(|call| call.number)
        });
        last = timeout(TIME_LIMIT, begun).await.unwrap_or_else(|_| panic!("it sets no webhook\n{}", desk.log()));
        let file = |number: u64| json!({"kind": "photo", "content": format!("r{round}-{number}")});
        let files: Vec<Value> = (0..2 + round % 3).map(file).collect();
        photos += files.len();
        act(&server, json!({"act": "album", "chat": ANN, "from": ANN, "files": files}));
        if round % 2 == 0 {
            act(&server, json!({"act": "say", "chat": ANN, "from": ANN, "text": "after it"})); // completes the album
        }
        sleep(Duration::from_millis(round * 7 % 31)).await; // somewhere between a photo and the event
        desk.kill().await;
        desk.start_again().await;
    }
    let all_taken = server.fake.wait_for(|fake| (fake.updates_waiting(BOT) == 0).then_some(()));
    timeout(TIME_LIMIT, all_taken).await.unwrap_or_else(|_| panic!("updates are left\n{}", desk.log()));
    let mut agent = Socket::dial(&desk.api.url, &ann).await.unwrap();
    let (mut seen, mut texts) = (Vec::new(), 0);
    while seen.len() < photos || texts < ALBUM_ROUNDS / 2 {
        let row = match timeout(TIME_LIMIT, agent.receive()).await {
            Ok(Received::Frame(_)) => continue,
            Ok(Received::Row { buffer_id, text, media_urls, .. }) => (buffer_id, text, media_urls),
            _ => panic!("{} of {photos} photos, {texts} texts\n{}", seen.len(), desk.log()),
        };
        let (buffer_id, text, media_urls) = row;
        agent.ack(&buffer_id).await.unwrap();
        texts += u64::from(text == "after it");
        for url in media_urls {
            let path = url.strip_prefix(&desk.api.url).unwrap();
            let bearer = token::mint(&ann.gateway, &Secret::new(ann.secret.as_str()), 0);
            let (status, photo) = desk.api.ask(Method::GET, path, &bearer, None).await.unwrap();
            assert_eq!(status, 200, "{photo}");
            seen.push(photo.to_string());
        }
    }
    assert_eq!(texts, ALBUM_ROUNDS / 2);
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (photos, photos), "every photo once");
}
