//! The fake as a whole, without sockets.

mod gateway;
mod rest;
mod wire;

use serde_json::{Value, json};

use super::*;

const NOW: u64 = 1_700_000_000_000;
const TOKEN: &str = "token-of-the-bot";
const BOT: Id = 1_100_000_000_000_000_001;
const ANN: Id = 1_100_000_000_000_000_011;
const GUILD: Id = 1_100_000_000_000_000_100;
const GENERAL: Id = 1_100_000_000_000_000_101;
const FORUM: Id = 1_100_000_000_000_000_102;
const HIDDEN: Id = 1_100_000_000_000_000_103;

/// Acts as JSON: it is the same as over the control API.
fn act(fake: &FakeDiscord, act: Value) -> Value {
    let text = act.to_string();
    fake.act(NOW, serde_json::from_value(act).unwrap()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// A bot and a user in a guild with a text channel, a forum and a channel that the bot does not see; without limits.
fn world() -> FakeDiscord {
    let fake = FakeDiscord::new();
    fake.set_limits(Limits::off());
    fake.set_gateway(GatewaySettings { identify_every_ms: 0, ..GatewaySettings::default() });
    act(&fake, json!({"act": "add_bot", "id": BOT, "token": TOKEN, "username": "desk"}));
    act(&fake, json!({"act": "add_user", "id": ANN, "username": "ann"}));
    let hidden = json!([{"id": GUILD.to_string(), "type": 0, "allow": "0", "deny": "1024"}]);
    act(
        &fake,
        json!({"act": "add_guild", "id": GUILD, "name": "g", "owner": ANN, "members": [{"user": BOT}, {"user": ANN}],
            "channels": [{"id": GENERAL, "name": "general"}, {"id": FORUM, "name": "f", "kind": "forum"},
                {"id": HIDDEN, "name": "hidden", "permission_overwrites": hidden}]}),
    );
    fake
}

fn say(fake: &FakeDiscord, text: &str) -> Id {
    id_of(&act(fake, json!({"act": "say", "channel": GENERAL, "from": ANN, "text": text})))
}

fn id_of(value: &Value) -> Id {
    value["id"].as_str().unwrap().parse().unwrap()
}

fn call(fake: &FakeDiscord, method: &str, path: &str, body: Value) -> Response {
    fake.handle(NOW, &RestRequest::new(method, path, TOKEN, body))
}

fn done(fake: &FakeDiscord, method: &str, path: &str, body: Value) -> Value {
    let response = call(fake, method, path, body);
    assert!(response.is_ok(), "{method} {path}: {}", response.body);
    response.body
}

fn refused(fake: &FakeDiscord, method: &str, path: &str, body: Value) -> (u16, u64) {
    let response = call(fake, method, path, body);
    assert!(!response.is_ok(), "{method} {path}: {}", response.body);
    (response.status, response.body["code"].as_u64().unwrap())
}

/// A socket that has identified with these intents.
fn socket(fake: &FakeDiscord, intents: u64) -> u64 {
    let connection = fake.connect(NOW).unwrap();
    fake.receive(NOW, connection, &json!({"op": 2, "d": {"token": TOKEN, "intents": intents}}).to_string());
    connection
}

fn frames(fake: &FakeDiscord, connection: u64) -> Vec<Value> {
    let out = fake.take_out(NOW, connection).into_iter();
    out.filter_map(|out| if let Out::Frame(frame) = out { Some(frame) } else { None }).collect()
}

/// Names of the dispatches that wait.
fn dispatched(fake: &FakeDiscord, connection: u64) -> Vec<String> {
    let frames = frames(fake, connection);
    frames.iter().filter_map(|frame| frame["t"].as_str().map(str::to_owned)).collect()
}
