//! The persistent connection.

use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::port::platform::{ListenEnd, Part, Platform as _};

use super::super::frame::{CONTROL, DATA, Frame, Header};
use super::*;

fn socket_stage() -> Stage {
    let stage = stage_with(&[("mode", "socket")], &[]);
    let config = json!({ "ReconnectCount": -1, "ReconnectInterval": 120, "ReconnectNonce": 30, "PingInterval": 100 });
    let url = "ws://vendor.example/ws?device_id=d1&access_key=ticket&service_id=42";
    stage.vendor.says(
        "POST /callback/ws/endpoint",
        200,
        json!({ "code": 0, "data": { "URL": url, "ClientConfig": config } }),
    );
    stage
}

fn frame(headers: &[(&str, &str)], payload: &[u8]) -> Frame {
    let header = |(key, value): &(&str, &str)| Header { key: (*key).into(), value: (*value).into() };
    let headers = headers.iter().map(header).collect();
    Frame {
        seq_id: 7,
        log_id: 8,
        service: 42,
        method: DATA,
        headers,
        payload: Some(payload.to_vec().into()),
        ..Frame::default()
    }
}

fn event(payload: &Value) -> Frame {
    let headers = [("type", "event"), ("message_id", "m1"), ("sum", "1"), ("seq", "0"), ("trace_id", "t")];
    frame(&headers, payload.to_string().as_bytes())
}

fn press(message_id: &str) -> Value {
    payload(
        "card.action.trigger",
        json!({
            "operator": { "open_id": "ou_ann", "user_id": "ann" }, "token": "c-1",
            "action": { "tag": "button", "value": { "hp1": "hp1:p:yes", "label": "Yes", "question": "Sure?" } },
            "context": { "open_message_id": message_id, "open_chat_id": "oc_group" },
        }),
    )
}

fn payload_of(frame: &Frame) -> Value {
    serde_json::from_slice(frame.payload.as_deref().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_frame_is_answered_after_its_event_is_stored() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        let ping = end.next().await;
        assert_eq!((ping.method, ping.header("type"), ping.service), (CONTROL, "ping", 42));
        end.frame(&event(&said("oc_direct", "hello", json!({}))));
        let answer = end.next_data().await;
        assert_eq!(taken.recv().await.unwrap().event.text, "hello");
        assert_eq!((answer.seq_id, answer.log_id, answer.header("message_id")), (7, 8, "m1"));
        assert_eq!((&payload_of(&answer)["code"], &payload_of(&answer)["data"]), (&json!(200), &Value::Null));
        assert!(!answer.header("biz_rt").is_empty());
        // A message in three parts, and nonsense between them.
        let whole = said("oc_direct", "in parts", json!({ "message_id": "om_2" })).to_string().into_bytes();
        let (first, rest) = whole.split_at(50);
        let (second, third) = rest.split_at(80);
        for (seq, part) in [("2", third), ("0", first)] {
            end.frame(&frame(&[("type", "event"), ("message_id", "m2"), ("sum", "3"), ("seq", seq)], part));
            end.say.send(SocketMessage::Binary(bytes::Bytes::from_static(b"\xff\xff"))).unwrap();
            end.say.send(SocketMessage::Text("{}".into())).unwrap();
            end.frame(&frame(&[("type", "event"), ("message_id", "m3"), ("sum", "9999999"), ("seq", "1")], b"x"));
        }
        end.frame(&frame(&[("type", "event"), ("message_id", "m2"), ("sum", "3"), ("seq", "1")], second));
        assert_eq!(taken.recv().await.unwrap().event.text, "in parts");
        end.next_data().await;
        // An event of another app is not taken, and does not come again.
        let mut other = said("oc_direct", "not for us", json!({}));
        other["header"]["app_id"] = "cli_2".into();
        end.frame(&event(&other));
        assert_eq!(payload_of(&end.next_data().await)["code"], 200);
        assert!(taken.try_recv().is_err());
        drop(end);
    };
    let (ended, ()) = tokio::join!(listening, scene);
    assert!(matches!(ended, ListenEnd::Lost(_)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn a_press_is_answered_in_its_frame() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        end.frame(&event(&press("om_7")));
        let answer = end.next_data().await;
        assert_eq!(taken.recv().await.unwrap().event.text, "/yes");
        let data = STANDARD.decode(payload_of(&answer)["data"].as_str().unwrap()).unwrap();
        let data: Value = serde_json::from_slice(&data).unwrap();
        assert_eq!(data["toast"]["type"], "success");
        // A press that cannot be stored is answered, because it does not come again.
        store.is_down.store(true, Ordering::SeqCst);
        end.frame(&event(&press("om_8")));
        let answer = end.next_data().await;
        assert!(STANDARD.decode(payload_of(&answer)["data"].as_str().unwrap()).unwrap().starts_with(b"{\"toast\""));
    };
    let (ended, ()) = tokio::join!(listening, scene);
    assert!(matches!(ended, ListenEnd::Lost(_)), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_stored_is_not_acknowledged() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    store.is_down.store(true, Ordering::SeqCst);
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        end.frame(&event(&said("oc_direct", "hello", json!({}))));
        end.frame(&event(&said("oc_direct", "later", json!({ "message_id": "om_2" }))));
        assert_eq!(payload_of(&end.next_data().await)["code"], 500);
        store.is_down.store(false, Ordering::SeqCst);
        assert!(end.received.recv().await.is_none(), "what came later is not stored before it");
    };
    let (ended, ()) = tokio::join!(listening, scene);
    assert!(matches!(ended, ListenEnd::Lost(_)), "{ended:?}");
    assert!(taken.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_question_that_fails_does_not_end_the_socket() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    let reaction = json!({ "message_id": "om_5", "operator_type": "user", "user_id": { "open_id": "ou_ann" },
        "reaction_type": { "emoji_type": "OK" } });
    stage.vendor.says("GET /im/v1/messages/om_5", 500, json!({ "code": 2, "msg": "x" }));
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        end.frame(&event(&payload("im.message.reaction.created_v1", reaction)));
        assert_eq!(payload_of(&end.next_data().await)["code"], 500, "it comes again");
        end.frame(&event(&said("oc_direct", "hello", json!({}))));
        assert_eq!(payload_of(&end.next_data().await)["code"], 200);
        assert_eq!(taken.recv().await.unwrap().event.text, "hello");
        drop(end);
    };
    tokio::join!(listening, scene);
}

#[tokio::test(start_paused = true)]
async fn a_press_does_not_wait_for_slow_events_and_messages_keep_their_order() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    // Only the first message asks about its chat, and waits.
    stage.vendor.stalls(&["/im/v1/chats/oc_slow"]);
    let numbered = |chat: &str, number: usize| {
        event(&said(chat, &format!("{number}"), json!({ "message_id": format!("om_{number}") })))
    };
    let began = tokio::time::Instant::now();
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        end.frame(&numbered("oc_slow", 0));
        for number in 1..50 {
            end.frame(&numbered("oc_direct", number));
        }
        end.frame(&event(&press("om_70")));
        end.next_data().await;
        assert_eq!(taken.recv().await.unwrap().event.text, "/yes");
        assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
        // More than may wait: the rest is read later.
        for number in 50..200 {
            end.frame(&numbered("oc_direct", number));
        }
        for number in 0..200 {
            assert_eq!(payload_of(&end.next_data().await)["code"], 200);
            assert_eq!(taken.recv().await.unwrap().event.text, number.to_string());
        }
        drop(end);
    };
    tokio::join!(listening, scene);
}

#[tokio::test(start_paused = true)]
async fn what_is_being_stored_when_the_socket_ends_is_stored() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    stage.vendor.stalls(&["/im/v1/chats/oc_slow"]);
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        assert_eq!(end.next().await.header("type"), "ping");
        end.frame(&event(&said("oc_slow", "hello", json!({}))));
        drop(end);
    };
    let (ended, ()) = tokio::join!(listening, scene);
    assert!(matches!(&ended, ListenEnd::Lost(why) if why.contains("closed")), "{ended:?}");
    assert_eq!(taken.try_recv().unwrap().event.text, "hello");
}

#[tokio::test(start_paused = true)]
async fn what_is_ignored_is_acknowledged_and_logged_now_and_then() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, mut taken) = Store::new();
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        let headers = [("type", "event"), ("message_id", "m1"), ("sum", "1"), ("seq", "0")];
        end.frame(&frame(&headers, b"no JSON"));
        end.frame(&event(&json!({ "uuid": "u", "event": { "type": "message" } })));
        for _ in 0..2 {
            assert_eq!(payload_of(&end.next_data().await)["code"], 200);
        }
        assert!(taken.try_recv().is_err());
        drop(end);
    };
    tokio::join!(listening, scene);
    let mut ignored = super::super::work::Ignored::default();
    let mut note = || ignored.note(&stage.bot, "it is of an old schema");
    assert_eq!((note(), note()), (true, false));
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!((note(), note()), (true, false));
}

#[tokio::test(start_paused = true)]
async fn a_silent_socket_is_given_up_and_pongs_keep_it() {
    let stage = socket_stage();
    let (script, mut end) = script();
    stage.vendor.script(script);
    let (store, _taken) = Store::new();
    let began = tokio::time::Instant::now();
    let listening = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store);
    let scene = async {
        for _ in 0..3 {
            assert_eq!(end.next().await.header("type"), "ping");
            let mut pong = Frame::ping(42);
            pong.headers[0].value = "pong".into();
            pong.payload = Some(json!({ "PingInterval": 30 }).to_string().into());
            end.frame(&pong);
        }
        assert_eq!(end.next().await.header("type"), "ping");
        end
    };
    let (ended, _end) = tokio::join!(listening, scene);
    assert!(matches!(&ended, ListenEnd::Lost(why) if why.contains("silent")), "{ended:?}");
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(90) && took < Duration::from_secs(200), "{took:?}");
    assert!(!store.cursors.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_says_why_there_is_no_socket() {
    for (answer, is_final) in [
        (json!({ "code": 1, "msg": "system busy" }), false),
        (json!({ "code": 514, "msg": "auth failed" }), true),
        (json!({ "code": 10_014, "msg": "app secret invalid" }), true),
        (json!({ "code": 0, "data": { "URL": "https://elsewhere" } }), false),
        (json!({ "code": 0 }), false),
        (json!("rubbish"), false),
    ] {
        let stage = stage_with(&[("mode", "socket")], &[]);
        stage.vendor.says("POST /callback/ws/endpoint", 200, answer.clone());
        let (store, _taken) = Store::new();
        let ended = stage.feishu.listen(&stage.bot, Part::WHOLE, None, &store).await;
        assert_eq!(matches!(ended, ListenEnd::Misconfigured(_)), is_final, "{answer}: {ended:?}");
        assert!(!format!("{ended:?}").contains(SECRET));
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_absence_is_a_gap() {
    let stage = socket_stage();
    let (store, _taken) = Store::new();
    let now_ms = frontdesk_core::Env::now_ms(&*stage.env);
    let cursor = now_ms - 7 * 3_600_000;
    stage.feishu.listen(&stage.bot, Part::WHOLE, Some(cursor.to_string()), &store).await;
    stage.feishu.listen(&stage.bot, Part::WHOLE, Some((now_ms - 1_000).to_string()), &store).await;
    let gaps = store.gaps.lock().unwrap();
    assert_eq!((gaps.len(), gaps[0].since_ms), (1, cursor));
}
