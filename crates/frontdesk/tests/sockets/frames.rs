//! Frames: complete, in pieces, too large and invalid.

use serde_json::{Value, json};
use tokio_websockets::Message;

use crate::harness::{Harness, hello, outbound};

const MALFORMED: &str = "frontdesk_frames_bad_total{why=\"malformed\"}";

#[tokio::test(flavor = "multi_thread")]
async fn invalid_frames_are_skipped_and_counted_and_unknown_ones_ignored() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let bad =
        ["{", "null", "[]", "\"x\"", "{}", "{\"type\":7}", "{\"type\":\"outbound\"}", "{\"type\":\"inbound_ack\"}"];
    for line in bad {
        socket.text(format!("{line}\n")).await;
    }
    for unknown in ["{\"type\":\"dance\",\"steps\":[1,{}]}", "{\"type\":\"going_home\",\"type2\":null}", "", "   "] {
        socket.text(format!("{unknown}\n")).await;
    }
    socket.say(Message::binary(vec![0, 159, 146, 150])).await;
    socket.say(Message::ping("are you there")).await;
    harness.say(&account, "c", "still here?").await;
    assert_eq!(socket.event().await.text(), "still here?");
    assert_eq!(socket.act(json!({ "op": "send", "chat_id": "c", "content": "yes" })).await["success"], true);
    assert_eq!(harness.metric(MALFORMED).await, bad.len() as u64);
    assert_eq!(harness.metric("frontdesk_frames_bad_total{why=\"binary\"}").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_are_ignored() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.dial(&account.bearer()).await;
    let greeting = json!({ "type": "hello", "platform": "relay", "botId": "", "version": 9, "command_manifest": [{}] });
    socket.frame(&greeting).await;
    socket.of("descriptor").await;
    harness.say(&account, "c", "hi").await;
    let event = socket.event().await;
    socket.frame(&json!({ "type": "inbound_ack", "bufferId": event.buffer_id(), "took_ms": 3 })).await;
    let action = json!({ "op": "send", "chat_id": "c", "content": "x", "colour": "red", "metadata": { "deep": [1] } });
    assert_eq!(socket.act(action).await["success"], true);
    assert_eq!(harness.metric("frontdesk_acks_total").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sixty_fourth_invalid_frame_in_a_minute_closes_the_socket() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    for number in 0..63 {
        match number % 3 {
            0 => socket.say(Message::binary(vec![number])).await,
            1 => socket.text("rubbish\n").await,
            _ => socket.text("{\"type\":\"outbound\",\"requestId\":null}\n").await,
        }
    }
    socket.settle().await;
    socket.text("rubbish\n").await;
    assert_eq!(socket.closed().await.0, 1008);
    harness.socket(&account).await.settle().await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_of_one_mebibyte_is_read_and_one_byte_more_closes_the_socket() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let frame = |bytes: usize| {
        let head = "{\"type\":\"dance\",\"x\":\"";
        format!("{head}{}\"}}\n", "x".repeat(bytes - head.len() - 2))
    };
    let whole = frame(1 << 20);
    assert_eq!(whole.len(), (1 << 20) + 1);
    socket.text(whole).await;
    socket.settle().await;
    socket.try_text(frame((1 << 20) + 1)).await;
    assert_eq!(socket.closed().await.0, 1008);

    let mut dripping = harness.socket(&account).await;
    for _ in 0..17 {
        dripping.try_text("y".repeat(64 * 1024)).await; // no newline: the buffer would grow without limit
    }
    assert_eq!(dripping.closed().await.0, 1008);
    assert_eq!(harness.metric("frontdesk_frames_bad_total{why=\"too_long\"}").await, 2);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_four_mebibytes_closes_the_socket_even_with_small_frames() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let line = format!("{{\"type\":\"dance\",\"x\":\"{}\"}}\n", "x".repeat(1000));
    let mut socket = harness.socket(&account).await;
    socket.text(line.repeat(3 << 10)).await; // about 3 MiB: many frames in one message are allowed
    socket.settle().await;
    socket.try_text(line.repeat(5 << 10)).await;
    let (code, _) = socket.closed().await;
    assert!([1006, 1008, 1009].contains(&code), "{code}");
    assert_eq!(harness.metric("frontdesk_frames_bad_total{why=\"unreadable\"}").await, 1);
    harness.socket(&account).await.settle().await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_frame_may_come_in_many_messages_and_many_frames_in_one() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.dial(&account.bearer()).await;
    let greeting = hello("relay", "").to_string();
    for piece in greeting.as_bytes().chunks(7) {
        socket.text(String::from_utf8_lossy(piece)).await;
    }
    let send = |number: u32| {
        outbound(&number.to_string(), json!({ "op": "send", "chat_id": "c", "content": number.to_string() }))
    };
    let (one, two, three) = (send(1).to_string(), send(2).to_string(), send(3).to_string());
    let (head, tail) = three.split_at(20);
    // The end of the hello, two complete frames with a blank line between, and the start of a third.
    socket.text(format!("\n{one}\n\n{two}\n{head}")).await;
    socket.text(format!("{tail}\n")).await;
    socket.of("descriptor").await;
    for request in ["1", "2", "3"] {
        assert_eq!(socket.next_result().await, request, "in order");
    }
    let said: Vec<String> = harness.history(&account, "c").await.iter().map(text_of).collect();
    assert_eq!(said, ["hi", "1", "2", "3"]);
    assert_eq!(harness.metric(MALFORMED).await, 0);
    harness.finish().await;
}

fn text_of(line: &Value) -> String {
    line["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_after_a_hello_in_the_same_message_wait_for_it() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.dial(&account.bearer()).await;
    let info = json!({ "op": "get_chat_info", "chat_id": "c" });
    let all = [outbound("before", info.clone()), hello("relay", ""), outbound("after", info), hello("relay", "desk")];
    let lines: Vec<String> = all.iter().map(Value::to_string).collect();
    socket.text(lines.join("\n") + "\n").await;
    let before = socket.result("before").await.json["result"].clone();
    assert_eq!((&before["success"], &before["code"]), (&json!(false), &json!("unknown_identity")), "{before}");
    let after = socket.result("after").await.json["result"].clone();
    assert_eq!(after["chat_info"], json!({ "name": "c", "type": "dm" }), "{after}");
    socket.of("descriptor").await;
    socket.of("descriptor").await; // one per hello
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_before_hello_or_for_another_identity_fails_with_a_reason() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.dial(&account.bearer()).await;
    let send = json!({ "op": "send", "chat_id": "c", "content": "x" });
    let early = socket.act(send.clone()).await;
    assert_eq!((&early["success"], &early["code"]), (&json!(false), &json!("unknown_identity")), "{early}");
    assert!(early["error"].is_string());
    socket.hello("relay", "").await;
    for (number, identity) in [json!({ "platform": "semaphore" }), json!({ "botId": "other" })].iter().enumerate() {
        let id = format!("x{number}");
        let mut frame = outbound(&id, send.clone());
        frame.as_object_mut().unwrap().extend(identity.as_object().unwrap().clone());
        socket.frame(&frame).await;
        assert_eq!(socket.result(&id).await.json["result"]["code"], "unknown_identity", "{identity}");
    }
    let mut named = outbound("named", send);
    (named["platform"], named["botId"]) = (json!("relay"), json!("desk"));
    socket.frame(&named).await;
    assert_eq!(socket.result("named").await.json["result"]["success"], true);
    assert_eq!(harness.history(&account, "c").await.len(), 2, "only the valid one was sent");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_op_and_a_malformed_action_are_answered() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let unknown = socket.act(json!({ "op": "levitate", "chat_id": "c" })).await;
    assert_eq!((&unknown["success"], &unknown["code"]), (&json!(false), &json!("unsupported_op")), "{unknown}");
    assert!(unknown["error"].as_str().unwrap().contains("levitate"), "{unknown}");
    for bad in [json!([]), json!("send"), json!({}), json!({ "op": 3 }), json!({ "op": "send" })] {
        let answer = socket.act(bad.clone()).await;
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!("bad_request")), "{bad}: {answer}");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_frames_on_one_socket_do_not_delay_another() {
    let harness = Harness::open().await;
    let (loud, quiet) = (harness.add_gateway("loud").await, harness.add_gateway("quiet").await);
    let (mut flood, mut socket) = (harness.socket(&loud).await, harness.socket(&quiet).await);
    harness.say(&quiet, "c", "warm").await;
    let warm = socket.event().await;
    socket.ack(&warm).await;
    let shouting = tokio::spawn(async move {
        for number in 0..10_000 {
            match number % 2 {
                0 => flood.text("{\"type\":\"inbound_ack\",\"bufferId\":\"00000000-1-1\"}\n").await,
                _ => flood.text("{\"type\":\"dance\"}\n").await,
            }
        }
        flood.settle().await;
    });
    let mut echoes = 0;
    while !shouting.is_finished() || echoes < 5 {
        harness.say(&quiet, "c", "ping").await;
        let event = socket.event().await;
        socket.ack(&event).await;
        let sent = socket.act(json!({ "op": "send", "chat_id": "c", "content": "pong" })).await;
        assert_eq!(sent["success"], true);
        echoes += 1;
    }
    shouting.await.unwrap();
    assert_eq!(harness.metric("frontdesk_acks_unknown_total").await, 5_000);
    harness.finish().await;
}
