//! The fake as a whole, without sockets.

mod chats;
mod messages;
mod updates;
mod wire;

use serde_json::{Value, json};

use super::*;

const NOW: u64 = 1_700_000_000_000;
const TOKEN: &str = "7001:secret";
const BOT: i64 = 7001;
const ANN: i64 = 501;
const GROUP: i64 = -4001;
const FORUM: i64 = -1_001_000_000_001;
const CHANNEL: i64 = -1_001_000_000_002;

/// Acts as JSON: it is the same as over the control API.
fn act(fake: &FakeTelegram, act: Value) -> Value {
    let text = act.to_string();
    fake.act(NOW, serde_json::from_value(act).unwrap()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A bot, a user with a private chat, a group, a forum and a channel, without limits.
fn world() -> FakeTelegram {
    let fake = FakeTelegram::new();
    fake.set_limits(Limits::off());
    act(&fake, json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk_bot"}));
    act(&fake, json!({"act": "add_user", "id": ANN, "first_name": "Ann", "username": "ann_b"}));
    let members = json!([[BOT, "administrator"], [ANN, "creator"]]);
    act(&fake, json!({"act": "add_chat", "id": GROUP, "kind": "group", "title": "g", "members": members}));
    act(
        &fake,
        json!({"act": "add_chat", "id": FORUM, "kind": "supergroup", "title": "f", "is_forum": true, "members": members}),
    );
    act(
        &fake,
        json!({"act": "add_chat", "id": CHANNEL, "kind": "channel", "title": "c", "username": "news", "members": members}),
    );
    act(&fake, json!({"act": "say", "chat": ANN, "from": ANN, "text": "/start"}));
    fake
}

fn call(fake: &FakeTelegram, method: &str, params: Value) -> Response {
    fake.handle(NOW, TOKEN, method, &Params::from(params), &[])
}

fn done(fake: &FakeTelegram, method: &str, params: Value) -> Value {
    let response = call(fake, method, params);
    assert!(response.is_ok(), "{method}: {}", response.body);
    response.result().clone()
}

fn refused(fake: &FakeTelegram, method: &str, params: Value) -> String {
    let response = call(fake, method, params);
    assert!(!response.is_ok(), "{method}: {}", response.body);
    response.description().to_owned()
}

/// All updates that wait, which are then confirmed.
fn updates(fake: &FakeTelegram) -> Vec<Value> {
    let list = done(fake, "getUpdates", json!({})).as_array().unwrap().clone();
    if let Some(last) = list.last() {
        done(fake, "getUpdates", json!({"offset": last["update_id"].as_i64().unwrap() + 1}));
    }
    list
}
