//! The server is killed while it takes updates of Telegram: none is lost, and none is stored twice.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod process;

use std::collections::BTreeMap;
use std::time::Duration;

use frontdesk_testkit::fakes::telegram::{FakeTelegram, Limits, Server};
use process::{Desk, TENANT};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

const ROUNDS: u64 = 100;
const TOKEN: &str = "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr";
const BOT: i64 = 7001;
const ANN: i64 = 501;
const PATIENCE: Duration = Duration::from_mins(1);

async fn ask(desk: &Desk, path: &str, body: Value) {
    let (status, answer) = desk.api.ask(Method::POST, path, &desk.api.admin, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
}

fn act(server: &Server, act: Value) -> Value {
    server.fake.act(0, serde_json::from_value(act).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_update_is_lost_or_stored_twice_through_many_kills() {
    let fake = FakeTelegram::new();
    fake.set_limits(Limits::off());
    let server = fake.serve().await.unwrap();
    act(&server, json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk_bot"}));
    act(&server, json!({"act": "add_user", "id": ANN, "first_name": "Ann"}));
    let mut desk = Desk::start(&[]).await;
    desk.api.add_gateway("ann", None).await;
    let link = json!({ "platform": "telegram", "user_id": ANN.to_string(), "tenant": TENANT, "instance": "ann" });
    ask(&desk, "/admin/v1/bindings", link).await;
    let bot = json!({ "platform": "telegram", "id": "tg", "tenant": TENANT, "secrets": { "token": TOKEN },
        "settings": { "base_url": server.base_url } });
    ask(&desk, "/admin/v1/bots", bot).await;
    let (mut said, mut last): (BTreeMap<String, String>, u64) = (BTreeMap::new(), 0);
    for round in 0..ROUNDS {
        // It has begun: from here on every message is taken at once.
        let begun = server.fake.wait_for(|fake| fake.calls_after(last).last().map(|call| call.number));
        last = timeout(PATIENCE, begun).await.unwrap_or_else(|_| panic!("it does not poll\n{}", desk.log()));
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
    timeout(PATIENCE, all_taken).await.unwrap_or_else(|_| panic!("updates are left\n{}", desk.log()));
    let mut stored: Vec<String> = Vec::new();
    for row in desk.api.mail("ann", "").await {
        stored.push(row["message_id"].as_str().unwrap().to_owned());
    }
    stored.sort();
    assert_eq!(stored, said.keys().cloned().collect::<Vec<_>>());
}
