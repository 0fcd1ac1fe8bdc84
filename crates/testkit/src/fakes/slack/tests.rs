//! What the fake shares with the real one, where its users rely on it.

use serde_json::{Value, json};

use super::*;

fn fake() -> FakeSlack {
    let fake = FakeSlack::new();
    for act in [
        json!({"act": "set_app", "id": "A1", "app_token": "xapp-1", "client_id": "1.2", "client_secret": "s"}),
        json!({"act": "add_team", "id": "T1", "token": "xoxb-1", "bot_user": "UBOT", "installed": true}),
        json!({"act": "add_team", "id": "T2", "token": "xoxb-2", "bot_user": "UBOT2"}),
        json!({"act": "add_user", "id": "UANN", "team": "T1", "name": "Ann"}),
        json!({"act": "add_channel", "id": "C1", "team": "T1", "name": "general", "kind": "channel", "members": ["UBOT", "UANN"]}),
        json!({"act": "add_channel", "id": "C2", "team": "T1", "name": "other", "kind": "channel", "members": ["UANN"]}),
        json!({"act": "add_channel", "id": "G1", "team": "T1", "name": "secret", "kind": "group", "members": ["UANN"]}),
    ] {
        fake.act(1, serde_json::from_value(act).unwrap()).unwrap();
    }
    fake
}

fn call(fake: &FakeSlack, token: &str, method: &str, params: Value) -> Value {
    match fake.call(1_700_000_000_000, "http://127.0.0.1:1", token, method, &params) {
        Answered::Json(value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_go_where_the_app_is_a_member() {
    let fake = fake();
    let post = |channel: &str| call(&fake, "xoxb-1", "chat.postMessage", json!({ "channel": channel, "text": "x" }));
    let ts = post("C1")["ts"].clone();
    assert_eq!((&post("C2")["error"], &post("G1")["error"]), (&json!("not_in_channel"), &json!("channel_not_found")));
    assert_eq!(call(&fake, "xoxb-2", "auth.test", json!({}))["error"], "invalid_auth", "it is not installed");
    let update = |text: &str| call(&fake, "xoxb-1", "chat.update", json!({ "channel": "C1", "ts": ts, "text": text }));
    assert_eq!((&update("y")["ok"], &update("")["error"]), (&json!(true), &json!("no_text")));
    assert_eq!(fake.messages("C1")[0]["text"], "y");
}

#[test]
fn blocks_are_judged_by_their_limits() {
    let fake = fake();
    let post = |blocks: Value| {
        call(&fake, "xoxb-1", "chat.postMessage", json!({ "channel": "C1", "text": "x", "blocks": blocks }))
    };
    let button = |id: &str, style: &str| {
        json!({ "type": "button", "action_id": id, "value": id, "style": style,
        "text": { "type": "plain_text", "text": "Yes" } })
    };
    let actions = |elements: Value| json!([{ "type": "actions", "elements": elements }]);
    assert_eq!(post(actions(json!([button("a", "primary"), button("b", "danger")])))["ok"], true);
    for bad in [
        actions(json!([button("a", "primary"), button("a", "danger")])),
        actions(json!([button("a", "secondary")])),
        actions(json!([])),
        json!([{ "type": "section", "text": { "text": "x".repeat(3_001) } }]),
    ] {
        assert_eq!(post(bad)["error"], "invalid_blocks");
    }
}

#[test]
fn what_a_socket_does_not_acknowledge_comes_again() {
    let fake = fake();
    let first = fake.change(State::connect);
    fake.act(1, serde_json::from_value(json!({"act": "say", "channel": "C1", "from": "UANN", "text": "hi"})).unwrap())
        .unwrap();
    let frames = fake.state().frames(1, first);
    assert_eq!((frames[0]["type"].as_str(), frames[1]["type"].as_str()), (Some("hello"), Some("events_api")));
    fake.change(|state| state.disconnected(1, first));
    let second = fake.change(State::connect);
    assert_eq!(fake.state().frames(2, second).len(), 1, "not at once");
    let again = fake.state().frames(1_000, second);
    assert_eq!((&again[0]["retry_attempt"], &again[0]["envelope_id"]), (&json!(1), &frames[1]["envelope_id"]));
    fake.change(|state| state.acknowledged(&json!({ "envelope_id": again[0]["envelope_id"] })));
    assert_eq!(fake.waiting(), 0);
}

#[test]
fn a_code_is_good_for_one_token() {
    let fake = fake();
    let code =
        fake.act(1, serde_json::from_value(json!({"act": "agree", "team": "T2"})).unwrap()).unwrap()["code"].clone();
    let exchange = |secret: &str| {
        let params = json!({ "client_id": "1.2", "client_secret": secret, "code": code });
        call(&fake, "", "oauth.v2.access", params)
    };
    assert_eq!(exchange("wrong")["error"], "bad_client_secret");
    assert_eq!(exchange("s")["access_token"], "xoxb-2");
    assert_eq!(exchange("s")["error"], "invalid_code");
    assert_eq!(call(&fake, "xoxb-2", "auth.test", json!({}))["team_id"], "T2");
}
