//! Requests of Feishu.

use frontdesk_core::intake::TenantSource;
use frontdesk_core::port::platform::{DoorAnswer, RawRequest, ReceivedRequest, Reply};

use super::super::{envelope, signature};
use super::*;

const NOW_MS: u64 = 1_700_000_000_000;

fn request(body: &str, headers: &[(&str, &str)]) -> RawRequest {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    RawRequest { door: "/feishu/{bot}", headers, body: body.to_owned().into(), now_ms: NOW_MS, ..RawRequest::default() }
}

fn signed(body: &str) -> RawRequest {
    let signature = signature::sign(&Secret::new(KEY), "1700000000", "n", body.as_bytes());
    let headers = [
        ("x-lark-request-timestamp", "1700000000"),
        ("x-lark-request-nonce", "n"),
        ("x-lark-signature", signature.as_str()),
    ];
    request(body, &headers)
}

pub(super) fn sealed(payload: &Value) -> String {
    let sealed = envelope::encrypt(&Secret::new(KEY), [3; 16], payload.to_string().as_bytes()).unwrap();
    json!({ "encrypt": sealed }).to_string()
}

fn reply(received: ReceivedRequest) -> Value {
    let reply = match received.answer {
        DoorAnswer::Fixed(reply) => reply,
        DoorAnswer::FromReceipts(make) => make(&[receipt("delivered", "")]),
        DoorAnswer::File(..) => panic!("a file"),
    };
    assert_eq!(reply.status, 200);
    serde_json::from_str(&reply.body).unwrap()
}

async fn receive(stage: &Stage, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
    stage.feishu.handle_request(&stage.bot, request).await
}

fn status(received: Result<ReceivedRequest, Reply>) -> (u16, String) {
    match received {
        Ok(received) => (200, format!("{} events", received.intakes.len())),
        Err(reply) => (reply.status, reply.body),
    }
}

#[tokio::test]
async fn the_address_is_checked_with_and_without_encryption() {
    let challenge = json!({ "type": "url_verification", "challenge": "abc", "token": TOKEN });
    let both = stage();
    assert_eq!(reply(receive(&both, &request(&sealed(&challenge), &[])).await.unwrap()), json!({ "challenge": "abc" }));
    assert_eq!(reply(receive(&both, &signed(&sealed(&challenge))).await.unwrap()), json!({ "challenge": "abc" }));
    let plain = stage_with(&[], &[("verification_token", TOKEN)]);
    assert_eq!(reply(receive(&plain, &request(&challenge.to_string(), &[])).await.unwrap())["challenge"], "abc");
    let wrong = json!({ "type": "url_verification", "challenge": "abc", "token": "guess" });
    for (stage, request) in [
        (&both, request(&challenge.to_string(), &[])),
        (&both, request(&sealed(&wrong), &[])),
        (&plain, request(&wrong.to_string(), &[])),
        (&plain, request(&sealed(&challenge), &[])),
        (&plain, request(&json!({ "type": "url_verification", "challenge": "abc" }).to_string(), &[])),
    ] {
        assert_eq!(status(receive(stage, &request).await).0, 401);
    }
}

#[tokio::test]
async fn only_genuine_requests_are_taken() {
    let (both, payload) = (stage(), said("oc_direct", "hi", json!({})));
    assert_eq!(status(receive(&both, &signed(&sealed(&payload))).await), (200, "1 events".into()));
    assert_eq!(status(receive(&both, &signed(&payload.to_string())).await).0, 200, "signed, and not encrypted");
    let (code, why) = status(receive(&both, &request(&sealed(&payload), &[])).await);
    assert!(code == 401 && why.contains("not signed"), "{why}");
    let mut forged = signed(&sealed(&payload));
    forged.headers[2].1 = "0".repeat(64);
    assert!(status(receive(&both, &forged).await).1.contains("encrypt_key"));
    let mut old = signed(&sealed(&payload));
    old.now_ms += 301_000;
    assert!(status(receive(&both, &old).await).1.contains("300 s"));
    let mut other_token = payload.clone();
    other_token["header"]["token"] = "guess".into();
    assert!(status(receive(&both, &signed(&sealed(&other_token))).await).1.contains("verification token"));
    let mut other_app = payload.clone();
    other_app["header"]["app_id"] = "cli_2".into();
    let (code, why) = status(receive(&both, &signed(&sealed(&other_app))).await);
    assert!(code == 403 && why.contains("cli_2"), "{why}");
    for body in ["", "[]", "null", "\u{fffd}", "{\"encrypt\":\"AAAA\"}", &"[".repeat(500)] {
        assert!((400..404).contains(&status(receive(&both, &signed(body)).await).0), "{body}");
    }
    let nothing = stage_with(&[], &[]);
    assert_eq!(status(receive(&nothing, &request(&payload.to_string(), &[])).await).0, 404);
}

#[tokio::test]
async fn a_bot_with_a_token_only_is_protected_by_it() {
    let plain = stage_with(&[], &[("verification_token", TOKEN)]);
    let payload = said("oc_direct", "hi", json!({}));
    assert_eq!(status(receive(&plain, &request(&payload.to_string(), &[])).await), (200, "1 events".into()));
    let mut without = payload.clone();
    without["header"]["token"] = Value::Null;
    for odd in [&without, &json!({ "schema": "2.0" }), &json!({ "header": { "token": "x" } })] {
        assert_eq!(status(receive(&plain, &request(&odd.to_string(), &[])).await).0, 401);
    }
}

#[tokio::test]
async fn events_of_an_old_schema_and_of_no_interest_are_answered() {
    let both = stage();
    let old = json!({ "uuid": "u", "token": TOKEN, "type": "event_callback", "event": { "type": "message" } });
    assert_eq!(status(receive(&both, &signed(&sealed(&old))).await), (200, "0 events".into()));
    let read = payload("im.message.message_read_v1", json!({}));
    let received = receive(&both, &signed(&sealed(&read))).await.unwrap();
    assert!(received.intakes.is_empty() && received.changes.is_empty());
    assert_eq!(reply(received), json!({}));
}

#[tokio::test(start_paused = true)]
async fn a_vendor_that_stalls_does_not_hold_messages_back() {
    let both = stage();
    both.vendor.stalls(&["/contact/", "/im/v1/chats/", "/im/v1/messages/", "/bot/"]);
    let body = sealed(&said("oc_direct", "hi", json!({ "parent_id": "om_0" })));
    let began = tokio::time::Instant::now();
    let received = receive(&both, &signed(&body)).await.unwrap();
    assert!(began.elapsed().as_millis() < 2_500, "Feishu waits for three seconds");
    let source = &received.intakes[0].event.source;
    assert_eq!((source.user_name.as_deref(), source.chat_name.as_deref()), (None, Some("oc_direct")));
    assert_eq!(received.intakes[0].tenant_source, TenantSource::Shared);
    // Without the id of the bot it is not known whether a mention means it: Feishu sends it again.
    let mention = json!({ "mentions": [{ "key": "@_user_1", "id": { "open_id": "ou_me" }, "name": "Desk" }] });
    let body = sealed(&said("oc_group", "@_user_1 hi", mention));
    assert_eq!(status(receive(&both, &signed(&body)).await).0, 503);
}

fn press(value: Value) -> Value {
    payload(
        "card.action.trigger",
        json!({
            "operator": { "open_id": "ou_ann", "user_id": "ann", "union_id": "on_ann" }, "token": "c-1",
            "action": { "tag": "button", "value": value }, "host": "im_message",
            "context": { "open_message_id": "om_7", "open_chat_id": "oc_group" },
        }),
    )
}

#[tokio::test]
async fn a_press_is_answered_with_the_answered_card_or_a_reason() {
    let both = stage();
    let value = json!({ "hp1": "hp1:p1:yes", "label": "Yes", "question": "Sure?", "thread": "omt_1" });
    let body = sealed(&press(value));
    // No agent gets it.
    let received = receive(&both, &signed(&body)).await.unwrap();
    let DoorAnswer::FromReceipts(make) = received.answer else { panic!("made from receipts") };
    let response: Value = serde_json::from_str(&make(&[receipt("refused", "run `frontdesk bind`")]).body).unwrap();
    assert!(
        response["toast"]["content"].as_str().unwrap().contains("/link") && response.get("card").is_none(),
        "{response}"
    );
    let received = receive(&both, &signed(&body)).await.unwrap();
    let event = &received.intakes[0].event;
    assert_eq!((event.text.as_str(), event.message_type.as_str()), ("/yes", "command"));
    assert_eq!(event.prompt_response.as_ref().unwrap().prompt_message_id.as_deref(), Some("om_7"));
    assert_eq!((event.source.user_id.as_deref(), event.source.thread_id.as_deref()), (Some("ann"), Some("omt_1")));
    assert!(received.intakes[0].is_interaction && received.intakes[0].addressed);
    assert!(event.message_id.as_ref().unwrap().starts_with("press-"));
    let down = received.if_not_stored.is_some();
    let shown = reply(received);
    assert!(down && shown["card"]["data"].to_string().contains("Sure?"), "{shown}");
    assert!(shown["card"]["data"].to_string().contains("Ann: Yes"), "{shown}");
    let other = reply(receive(&both, &signed(&sealed(&press(json!({ "a": 1 }))))).await.unwrap());
    assert!(other["toast"]["content"].as_str().unwrap().contains("no longer works"), "{other}");
}

#[tokio::test]
async fn changes_of_chats_are_told() {
    let both = stage();
    let users =
        json!([{ "user_id": { "open_id": "ou_bob", "user_id": "bob" } }, { "user_id": { "open_id": "ou_eve" } }]);
    for (kind, event, expected) in [
        ("im.chat.updated_v1", json!({ "chat_id": "oc_1" }), vec![Change::Chat("oc_1".into())]),
        ("im.chat.member.bot.added_v1", json!({ "chat_id": "oc_1" }), vec![Change::Chat("oc_1".into())]),
        (
            "im.chat.member.user.deleted_v1",
            json!({ "chat_id": "oc_1", "users": users }),
            vec![
                Change::Member { chat_id: "oc_1".into(), user_id: "bob".into() },
                Change::Member { chat_id: "oc_1".into(), user_id: "ou_eve".into() },
            ],
        ),
        ("contact.user.updated_v3", json!({ "object": { "open_id": "ou_1" } }), vec![Change::Person("ou_1".into())]),
        ("im.chat.updated_v1", json!({ "chat_id": "../x" }), vec![]),
        ("im.chat.updated_v1", json!(5), vec![]),
    ] {
        let received = receive(&both, &signed(&sealed(&payload(kind, event)))).await.unwrap();
        assert_eq!(received.changes, expected, "{kind}");
    }
}
