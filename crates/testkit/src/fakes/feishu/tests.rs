//! The fake by itself; the vendor's own library drives it in `tests/vendors/feishu.py`.
#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::*;

fn fake() -> FakeFeishu {
    let fake = FakeFeishu::new();
    for act in [
        json!({ "act": "set_app", "id": "cli_1", "secret": "s", "name": "Desk", "open_id": "ou_me" }),
        json!({ "act": "add_user", "open_id": "ou_ann", "user_id": "ann", "name": "Ann" }),
        json!({ "act": "add_chat", "id": "oc_1", "mode": "group", "name": "Team", "members": ["ou_ann"] }),
    ] {
        fake.act(0, serde_json::from_value(act).unwrap()).unwrap();
    }
    fake
}

fn ask(fake: &FakeFeishu, method: &str, path: &str, body: Value) -> Value {
    let token = ask_as(
        fake,
        "",
        "POST",
        "auth/v3/tenant_access_token/internal",
        json!({ "app_id": "cli_1", "app_secret": "s" }),
    );
    ask_as(fake, token["tenant_access_token"].as_str().unwrap(), method, path, body)
}

fn ask_as(fake: &FakeFeishu, token: &str, method: &str, path: &str, body: Value) -> Value {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let query = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let asked = Asked { method: method.into(), path: path.into(), query, token: token.into(), body, file: None };
    match fake.call(0, &asked) {
        Answered::Json(_, value) => value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mark_is_sent_once_and_texts_are_changed() {
    let fake = fake();
    let body = json!({ "receive_id": "oc_1", "msg_type": "text", "content": "{\"text\":\"hi\"}", "uuid": "u1" });
    let path = "im/v1/messages?receive_id_type=chat_id";
    let first = ask(&fake, "POST", path, body.clone())["data"]["message_id"].clone();
    assert_eq!(ask(&fake, "POST", path, body)["data"]["message_id"], first);
    assert_eq!(fake.messages("oc_1").len(), 1);
    let id = first.as_str().unwrap();
    let edit = json!({ "msg_type": "text", "content": "{\"text\":\"ho\"}" });
    for number in 1..=21 {
        let response = ask(&fake, "PUT", &format!("im/v1/messages/{id}"), edit.clone());
        assert_eq!(response["code"], if number > 20 { 230_072 } else { 0 });
    }
    let card = json!({ "content": "{\"elements\":[{}]}" });
    assert_eq!(ask(&fake, "PATCH", &format!("im/v1/messages/{id}"), card)["code"], 230_054);
    assert_eq!(ask_as(&fake, "t-wrong", "GET", "bot/v3/info", json!({}))["code"], 99_991_663);
    let odd = json!({ "receive_id": "oc_1", "msg_type": "post", "content": "{\"zh_cn\":{\"content\":[5]}}" });
    assert_eq!(ask(&fake, "POST", path, odd)["code"], 230_001);
}

#[test]
fn a_reply_in_a_thread_begins_a_topic() {
    let fake = fake();
    let said = json!({ "act": "say", "chat": "oc_1", "from": "ou_ann", "text": "@_user_1 hi", "mentions": ["ou_me"] });
    let said = fake.act(5, serde_json::from_value(said).unwrap()).unwrap();
    let path = format!("im/v1/messages/{}/reply", said["message_id"].as_str().unwrap());
    let body = json!({ "msg_type": "text", "content": "{\"text\":\"hi\"}", "reply_in_thread": true });
    let response = ask(&fake, "POST", &path, body);
    assert!(response["data"]["thread_id"].as_str().unwrap().starts_with("omt_"), "{response}");
    assert_eq!(response["data"]["root_id"], said["message_id"]);
    assert_eq!(fake.waiting(), 1);
}

#[test]
fn frames_are_read_as_they_are_written() {
    let headers = vec![("type".to_owned(), "event".to_owned()), ("sum".to_owned(), "1".to_owned())];
    let frame = Frame { seq_id: 300, log_id: u64::MAX, service: 5, method: 1, headers, payload: vec![0, 255] };
    assert_eq!(Frame::decode(&frame.encode()), Some(frame));
    for odd in [&b"\xff"[..], b"\x0a\x05a", b"\x07"] {
        assert_eq!(Frame::decode(odd), None);
    }
}
