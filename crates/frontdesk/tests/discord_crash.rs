//! The server is killed while it listens to Discord, and Discord forgets sessions now and then: no message is lost, and
//! none is stored twice.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod process;

use std::collections::BTreeSet;
use std::time::Duration;

use frontdesk_testkit::fakes::discord::{FakeDiscord, GatewaySettings, Limits, Server, SocketFault};
use process::{Desk, TENANT};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// `CRASH_ROUNDS` names another count.
const ROUNDS: u64 = 100;
const TOKEN: &str = "MTEwMDAwMDAwMDAwMDAwMDAwMQ.fake00.token-of-the-first-bot-of-the-fake-x";
const BOT: u64 = 1_100_000_000_000_000_001;
const ANN: u64 = 1_100_000_000_000_000_011;
const GUILD: u64 = 1_100_000_000_000_000_100;
const GENERAL: u64 = 1_100_000_000_000_000_101;
const TIME_LIMIT: Duration = Duration::from_mins(1);

async fn ask(desk: &Desk, path: &str, body: Value) {
    let (status, answer) = desk.api.ask(Method::POST, path, &desk.api.admin, Some(&body)).await.unwrap();
    assert_eq!(status, 201, "{answer}");
}

#[allow(clippy::cast_possible_truncation, reason = "milliseconds of this age")]
fn act(server: &Server, act: Value) -> Value {
    let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    server.fake.act(now_ms, serde_json::from_value(act).unwrap()).unwrap()
}

async fn world() -> Server {
    let fake = FakeDiscord::new();
    fake.set_limits(Limits::off());
    fake.set_gateway(GatewaySettings { identify_every_ms: 0, max_concurrency: 0, ..GatewaySettings::default() });
    let server = fake.serve().await.unwrap();
    act(&server, json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
    act(&server, json!({"act": "add_user", "id": ANN, "username": "ann"}));
    act(
        &server,
        json!({"act": "add_guild", "id": GUILD, "name": "Guild", "owner": ANN, "members": [{"user": BOT}, {"user": ANN}],
            "channels": [{"id": GENERAL, "name": "general"}]}),
    );
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_or_stored_twice_through_many_kills() {
    let rounds = std::env::var("CRASH_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let server = world().await;
    let mut desk = Desk::start(&[]).await;
    desk.api.add_gateway("ann", None).await;
    let link = json!({ "platform": "discord", "user_id": ANN.to_string(), "tenant": TENANT, "instance": "ann" });
    ask(&desk, "/admin/v1/bindings", link).await;
    let bot = json!({ "platform": "discord", "id": "dc", "tenant": TENANT, "secrets": { "token": TOKEN },
        "settings": { "base_url": server.base_url, "gateway_url": server.gateway_url } });
    ask(&desk, "/admin/v1/bots", bot).await;
    let (mut said, mut last): (BTreeSet<String>, u64) = (BTreeSet::new(), 0);
    for round in 0..rounds {
        let connects = |fake: &FakeDiscord| {
            let calls = fake.calls_after(last).into_iter();
            let mut connects = calls.filter(|it| matches!(it.method.as_str(), "gateway identify" | "gateway resume"));
            connects.next().map(|call| call.number)
        };
        let begun = server.fake.wait_for(connects);
        last = timeout(TIME_LIMIT, begun).await.unwrap_or_else(|_| panic!("it does not connect\n{}", desk.log()));
        for number in 0..=round % 3 {
            let text = format!("r{round}-{number} <@{BOT}>");
            let place = if number == 1 { json!({ "channel": GENERAL }) } else { json!({ "bot": BOT }) };
            let mut say = json!({"act": "say", "from": ANN, "text": text});
            say.as_object_mut().unwrap().extend(place.as_object().unwrap().clone());
            said.insert(act(&server, say)["id"].as_str().unwrap().to_owned());
        }
        if round == 0 {
            stored(&desk, &said).await; // a direct chat without any message could not be found again
        }
        sleep(Duration::from_millis(round * 7 % 23)).await; // somewhere between the message and the saved cursor
        desk.kill().await;
        if round % 4 == 3 {
            server.fake.socket_fault(BOT, &SocketFault::ForgetSessions);
        }
        desk.start_again().await;
    }
    let rows = stored(&desk, &said).await;
    assert_eq!(rows, said.into_iter().collect::<Vec<_>>(), "{}", desk.log());
}

/// The ids of what is stored, as soon as it is as much as was said.
async fn stored(desk: &Desk, said: &BTreeSet<String>) -> Vec<String> {
    let found = timeout(TIME_LIMIT, async {
        loop {
            let rows = desk.api.mail("ann", "").await;
            let mut ids: Vec<String> = rows.iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect();
            ids.sort();
            if ids.len() >= said.len() {
                return ids;
            }
            sleep(Duration::from_millis(20)).await;
        }
    });
    found.await.unwrap_or_else(|_| panic!("messages are missing\n{}", desk.log()))
}
