//! Deliveries on sockets: order, window, and replacement of sockets.

use serde_json::json;

use crate::harness::{Frame, GatewayAccount, Harness, Socket, Source, outbound};
use crate::{expect_done, send_slow};

async fn say_numbers(harness: &Harness, account: &GatewayAccount, numbers: std::ops::RangeInclusive<u32>) {
    for number in numbers {
        assert_eq!(harness.say(account, "c", &number.to_string()).await["verdict"]["outcome"], "delivered");
    }
}

fn texts(frames: &[Frame]) -> Vec<String> {
    frames.iter().map(|frame| frame.text().to_owned()).collect()
}

fn numbers(range: std::ops::RangeInclusive<u32>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

async fn take(socket: &mut Socket, count: usize) -> Vec<String> {
    texts(&socket.events(count).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_is_complete() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let body = json!({ "user_id": account.user, "user_name": "Ada", "text": "hi", "chat_type": "group", "scope_id": "s1",
                       "message_id": "m-1" });
    harness.say_as(&account, "room", body).await.expect(202);
    let frame = socket.event().await.json;
    let (event, source) = (&frame["event"], &frame["event"]["source"]);
    assert_eq!(
        (&event["text"], &event["message_type"], &event["message_id"]),
        (&json!("hi"), &json!("text"), &json!("m-1"))
    );
    assert_eq!((&source["scope_id"], &source["guild_id"]), (&json!("s1"), &json!("s1")));
    for field in ["platform", "chat_id", "chat_type", "user_id", "user_name", "thread_id", "chat_name", "chat_topic"] {
        assert!(source.get(field).is_some(), "{field} of {source}");
    }
    assert_eq!((&source["is_bot"], &source["message_is_edit"]), (&json!(false), &json!(false)));
    assert_eq!((&source["platform"], &source["user_name"]), (&json!("relay"), &json!("Ada")));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unacked_rows_are_sent_again_in_order_and_acked_ones_are_not() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    say_numbers(&harness, &account, 1..=6).await;
    let came = socket.events(6).await;
    assert_eq!(texts(&came), numbers(1..=6));
    for index in [3, 0] {
        socket.ack(&came[index]).await;
    }
    socket.hang_up().await;
    say_numbers(&harness, &account, 7..=7).await;
    let mut again = harness.socket(&account).await;
    assert_eq!(take(&mut again, 5).await, ["2", "3", "5", "6", "7"]);
    assert_eq!(again.unread().await, 0);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_socket_wins_and_gets_unacked_rows() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut old = harness.socket(&account).await;
    say_numbers(&harness, &account, 1..=5).await;
    let came = old.events(5).await;
    for frame in &came[..2] {
        old.ack(frame).await;
    }
    old.settle().await;
    let mut new = harness.socket(&account).await;
    let (code, reason) = old.closed().await;
    assert_eq!(code, 1000, "{reason}");
    assert_eq!(take(&mut new, 3).await, ["3", "4", "5"]);
    say_numbers(&harness, &account, 6..=6).await;
    assert_eq!(take(&mut new, 1).await, ["6"]);
    assert_eq!(new.unread().await, 0);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_number_of_waiting_rows_is_delivered_in_order() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    say_numbers(&harness, &account, 1..=100).await;
    let mut socket = harness.socket(&account).await;
    let mut all = Vec::new();
    while all.len() < 100 {
        let event = socket.event().await;
        all.push(event.text().to_owned());
        socket.ack(&event).await;
    }
    assert_eq!(all, numbers(1..=100));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_thirty_third_row_is_sent_only_after_an_ack() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    say_numbers(&harness, &account, 1..=34).await;
    let came = socket.events(32).await;
    assert_eq!(texts(&came), numbers(1..=32));
    assert_eq!(socket.unread().await, 0);
    assert_eq!(harness.metric("frontdesk_frames_pushed_total").await, 32);
    socket.ack(&came[20]).await;
    assert_eq!(take(&mut socket, 1).await, ["33"]);
    assert_eq!(socket.unread().await, 0);
    socket.ack(&came[0]).await;
    assert_eq!(take(&mut socket, 1).await, ["34"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn going_idle_is_acked_and_nothing_is_pushed_after_it() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    say_numbers(&harness, &account, 1..=1).await;
    let first = socket.event().await;
    socket.ack(&first).await;
    socket.frame(&json!({ "type": "going_idle" })).await;
    socket.of("going_idle_ack").await;
    say_numbers(&harness, &account, 2..=3).await;
    assert_eq!(socket.unread().await, 0);
    let instances = harness.admin("GET", "/instances", &json!(null)).await.expect(200);
    assert_eq!(instances["instances"][0]["idle"], true, "{instances}");
    socket.hang_up().await;
    let mut again = harness.socket(&account).await;
    assert_eq!(take(&mut again, 2).await, ["2", "3"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_of_unknown_and_foreign_rows_are_counted_and_change_nothing() {
    let harness = Harness::open().await;
    let (account, thief) = (harness.add_gateway("g").await, harness.add_gateway("thief").await);
    let (mut socket, mut other) = (harness.socket(&account).await, harness.socket(&thief).await);
    say_numbers(&harness, &account, 1..=1).await;
    let event = socket.event().await;
    let id = event.buffer_id().to_owned();
    other.ack(&event).await;
    let strange =
        ["", "x", "0-0-0", "zz-1-1", "-1--1--1", "ffffffffffffffffffffffff-1-1", &format!("{id}0"), &format!("+{id}")];
    for strange in strange {
        other.ack_id(strange).await;
    }
    other.settle().await;
    assert_eq!(harness.metric("frontdesk_acks_unknown_total").await, 9);
    assert_eq!(harness.metric("frontdesk_acks_total").await, 0);
    assert_eq!(harness.mail(&account).await[0]["state"], "accepted", "the row still waits");
    socket.hang_up().await;
    let mut again = harness.socket(&account).await;
    let event = again.event().await;
    assert_eq!(event.buffer_id(), id, "the same row has the same id");
    again.ack(&event).await;
    again.ack(&event).await; // the second ack is unknown
    again.settle().await;
    assert_eq!(harness.metric("frontdesk_acks_total").await, 1);
    assert_eq!(harness.metric("frontdesk_acks_unknown_total").await, 10);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_interrupts_the_live_turn_and_is_a_message_without_one() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    assert_eq!(harness.say(&account, "c", "/stop").await["verdict"]["outcome"], "delivered");
    assert_eq!(socket.event().await.text(), "/stop");
    harness.say(&account, "c", "work").await;
    assert_eq!(socket.event().await.text(), "work");
    let stopped = harness.say(&account, "c", "/stop").await;
    assert_eq!(stopped["verdict"], json!({ "outcome": "delivered", "text": "interrupt sent" }));
    let interrupt = socket.of("interrupt_inbound").await.json;
    assert_eq!((&interrupt["session_key"], &interrupt["chat_id"]), (&json!("agent:main:relay:dm:c"), &json!("c")));
    assert_eq!(socket.unread().await, 0);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_concurrent_actions_run_once_each_and_in_order() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.socket(&account).await;
    let send = |number: u32| {
        let action = json!({ "op": "send", "chat_id": "c", "content": number.to_string() });
        format!("{}\n", outbound(&number.to_string(), action))
    };
    socket.text((1..=200).map(send).collect::<String>()).await;
    expect_done(&mut socket, 1..=200).await;
    let said: Vec<_> = harness.history(&account, "c").await.iter().skip(1).map(|line| line["text"].clone()).collect();
    assert_eq!(said, numbers(1..=200), "each once, in order");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_an_action_is_sent_on_the_next_socket() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let source = Source::open("image/png", b"png").await;
    // Replaced during the action; the old socket still exists.
    let mut first = harness.socket(&account).await;
    send_slow(&mut first, "a", "c", &source).await;
    let mut second = harness.socket(&account).await;
    first.closed().await;
    source.answer(1);
    assert_eq!(second.result("a").await.json["result"]["success"], true);
    // Closed before the result, which waits for the next socket.
    send_slow(&mut second, "b", "c", &source).await;
    second.hang_up().await;
    let mut tail = harness.open_stream("/admin/v1/events/stream", &harness.admin).await;
    source.answer(1);
    harness.follow(&mut tail, &["send_media: delivered"]).await;
    let mut third = harness.socket(&account).await;
    assert_eq!(third.result("b").await.json["result"]["success"], true);
    drop(tail);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_waits_behind_another_is_answered_on_the_next_socket_too() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let source = Source::open("image/png", b"png").await;
    let mut socket = harness.socket(&account).await;
    send_slow(&mut socket, "slow", "c", &source).await;
    for number in 1..=3 {
        let send = json!({ "op": "send", "chat_id": "c", "content": number.to_string() });
        socket.frame(&outbound(&number.to_string(), send)).await;
    }
    socket.settle().await;
    let mut next = harness.socket(&account).await;
    socket.closed().await;
    source.answer(1);
    for request in ["slow", "1", "2", "3"] {
        assert_eq!(next.next_result().await, request);
    }
    let said: Vec<_> = harness.history(&account, "c").await.iter().map(|line| line["text"].clone()).collect();
    assert_eq!(said, ["hi", "", "1", "2", "3"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_result_is_lost_when_sockets_change_during_many_actions() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    harness.say(&account, "c", "hi").await;
    let mut socket = harness.socket(&account).await;
    for round in 0..10 {
        let send = |number: u32| {
            let action = json!({ "op": "send", "chat_id": "c", "content": "x" });
            format!("{}\n", outbound(&format!("{round}-{number}"), action))
        };
        socket.text((0..60).map(send).collect::<String>()).await;
        let first = socket.next_result().await;
        let mut next = harness.socket(&account).await;
        socket.closed().await;
        let mut answered = vec![first];
        while socket.came() > 0 {
            let frame = socket.next().await;
            answered.extend(frame.json["requestId"].as_str().map(str::to_owned));
        }
        while answered.len() < 60 {
            answered.push(next.next_result().await);
        }
        answered.sort();
        answered.dedup();
        assert_eq!(answered.len(), 60, "each result once");
        socket = next;
    }
    assert_eq!(harness.history(&account, "c").await.len(), 500, "a page of history");
    harness.finish().await;
}
