//! What went wrong once and must not again: crossings of two things that each work alone.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Harness, Source, hello};
use crate::scene::*;

#[tokio::test(flavor = "multi_thread")]
async fn members_that_were_set_stay_whatever_else_happens_in_the_chat_meanwhile() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    for number in 0..50 {
        let (chat, only) = (format!("c{number}"), json!({ "members": ["somebody-else"] }));
        let path = format!("/chat/v1/chats/{chat}");
        tokio::join!(house.call("PUT", &path, &ann.chat, &only), say(&house, &ann, &chat, "stranger", "hi", PLAIN));
        let posted = say(&house, &ann, &chat, "u-ann", "let me in", PLAIN).await;
        assert_eq!(ruling(&house, &posted).await, "ann-visibility/can_see", "a first message, {number}");
        let thread = json!({ "op": "thread_create", "chat_id": chat, "thread_name": "t" });
        tokio::join!(house.call("PUT", &path, &ann.chat, &only), socket.act(thread));
        let posted = say(&house, &ann, &chat, "u-ann", "let me in", PLAIN).await;
        assert_eq!(ruling(&house, &posted).await, "ann-visibility/can_see", "a thread, {number}");
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_opened_with_a_revoked_secret_never_serves_also_after_its_gateway_came_back() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut silent = house.dial(&ann.bearer()).await;
    managed(&house, &ann, "deprovision", json!({})).await;
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM });
    house.post("/relay/provision", &ann.identity, &ask).await.expect(200);
    silent.frame(&hello(PLATFORM, "")).await;
    assert_eq!(silent.closed().await, (4401, "unauthorized".into()));
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_socket_of_an_instance_closes_when_it_leaves_also_of_a_gateway_that_moved_on() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    let twin = second_gateway(&house, &ann, "ann-2").await;
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM, "instanceId": "elsewhere" });
    house.post("/relay/provision", &ann.identity, &ask).await.expect(200);
    managed(&house, &twin, "deprovision", json!({})).await;
    assert_eq!(socket.closed().await.0, 1001, "already when it moved: it must dial again, as another's");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_woken_after_leaving() {
    let house = Harness::with(|config| config.wake.cooldown_ms = 200).await;
    let ann = house.seat("ann").await;
    let sink = Source::open("text/plain", b"ok").await;
    sink.answer(1000);
    set_wake_url(&house, &ann, &sink.url).await;
    write(&house, &ann, "d", "u-ann", "mail").await;
    sink.asked().await;
    managed(&house, &ann, "deprovision", json!({})).await;
    let mut pokes = 0;
    while tokio::time::timeout(Duration::from_secs(3), sink.asked()).await.is_ok() && pokes < 5 {
        pokes += 1;
    }
    assert!(pokes <= 1, "{pokes} pokes");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_was_here_before_is_answered_with_the_verdict_that_it_had() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let post = json!({ "user_id": "new", "text": "hi", "message_id": "m-1" });
    let first = house.say_as(&ann, "d", post.clone()).await.expect(202);
    house.bind("home", "new", "ann").await;
    let again = house.say_as(&ann, "d", post).await.expect(202);
    assert_eq!(again["verdict"]["outcome"], first["verdict"]["outcome"]);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sent_twice_interrupts_once() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    write(&house, &ann, "d", "u-ann", "go").await;
    hears(&mut socket, "go").await;
    for _ in 0..2 {
        house.say_as(&ann, "d", json!({ "user_id": "u-ann", "text": "/stop", "message_id": "m" })).await.expect(202);
    }
    assert_eq!(house.metric("frontdesk_interrupts_total").await, 1);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_counted_once_per_event() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    for _ in 0..5 {
        house.say_as(&ann, "d", json!({ "user_id": "u-ann", "text": "x", "message_id": "m" })).await.expect(202);
    }
    assert_eq!(house.metric("frontdesk_verdicts_total{verdict=\"delivered\",layer=\"owner\"}").await, 1);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_below_manage_has_the_contracts_form() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    house.get("/manage/why?message_id=a&message_id=b", &ann.bearer()).await.error(400);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_long_line_does_not_hide_the_others() {
    let house = Harness::open().await;
    let (ann, team) = (house.seat("ann").await, house.seat("team").await);
    open_to_all(&house, &team, "room").await;
    set_policy(&house, &team, json!({ "requireAddress": true })).await;
    let mut socket = house.socket(&team).await;
    say(&house, &ann, "room", "u-ann", "short", PLAIN).await;
    say(&house, &ann, "room", "u-ann", &"x".repeat(20_000), PLAIN).await;
    say(&house, &ann, "room", "u-ann", "q", to_the_bot()).await;
    assert!(!hears(&mut socket, "q").await["context"].is_null());
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_as_an_event_does_not_ride_along_after_the_policy_changed() {
    let house = Harness::open().await;
    let (ann, team) = (house.seat("ann").await, house.seat("team").await);
    open_to_all(&house, &team, "room").await;
    let mut socket = house.socket(&team).await;
    say(&house, &ann, "room", "u-ann", "an event", PLAIN).await;
    hears(&mut socket, "an event").await;
    set_policy(&house, &team, json!({ "requireAddress": true })).await;
    say(&house, &ann, "room", "u-ann", "q", to_the_bot()).await;
    assert!(hears(&mut socket, "q").await["context"].is_null());
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_called_stop_answers_its_prompt() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut socket = house.socket(&ann).await;
    write(&house, &ann, "d", "u-ann", "hi").await;
    hears(&mut socket, "hi").await;
    let options = json!([{ "id": "go", "label": "Go" }, { "id": "stop", "label": "Stop" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "d", "prompt_id": "p", "content": "go on?", "options": options });
    let sent = socket.act(prompt).await;
    let path = format!("/chat/v1/chats/d/messages/{}/press", sent["message_id"].as_str().unwrap());
    house
        .post(&path, &ann.chat, &json!({ "prompt_id": "p", "option_id": "stop", "user_id": "u-ann" }))
        .await
        .expect(202);
    let frame = socket.next().await;
    house.finish().await;
    assert!(frame.is("inbound"), "the answer was swallowed: {}", frame.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_in_a_thread_of_a_scoped_channel_is_of_that_thread_and_scope() {
    let house = Harness::open().await;
    let (ann, team) = (house.seat("ann").await, house.seat("team").await);
    managed(&house, &team, "scope", json!({ "platform": "relay", "scope_id": "wing", "channel_id": "room" })).await;
    managed(&house, &team, "principal", json!({ "policy": "any" })).await;
    let mut teams = house.socket(&team).await;
    say(&house, &ann, "room", "u-ann", "hello", json!({ "scope_id": "wing", "thread_id": "t1" })).await;
    hears(&mut teams, "hello").await;
    let prompt = json!({ "op": "prompt", "chat_id": "room", "prompt_id": "p", "content": "ok?",
        "options": [{ "id": "yes", "label": "Yes" }], "metadata": { "thread_id": "t1", "scope_id": "wing" } });
    let sent = teams.act(prompt).await;
    let path = format!("/chat/v1/chats/room/messages/{}/press", sent["message_id"].as_str().unwrap());
    let press = json!({ "prompt_id": "p", "option_id": "yes", "user_id": "u-ann" });
    let posted = house.post(&path, &ann.chat, &press).await.expect(202);
    let ruling = ruling(&house, &posted).await;
    let got = teams.unread().await;
    house.finish().await;
    assert_eq!(got, 1, "the agent that asked never hears the answer: {ruling}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_see_a_chat_does_not_use_up_its_prompts() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let mut socket = house.socket(&ann).await;
    members(&house, &ann, "club", &["u-ann"]).await;
    let options = json!([{ "id": "yes", "label": "Yes" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "club", "prompt_id": "p", "content": "ok?", "options": options });
    let sent = socket.act(prompt).await;
    let path = format!("/chat/v1/chats/club/messages/{}/press", sent["message_id"].as_str().unwrap());
    let press = |user: &str| json!({ "prompt_id": "p", "option_id": "yes", "user_id": user });
    let posted = house.post(&path, &bob.chat, &press("u-bob")).await.expect(202);
    let withheld = ruling(&house, &posted).await;
    let second = house.post(&path, &ann.chat, &press("u-ann")).await;
    house.finish().await;
    assert_eq!(second.status, 202, "{withheld}, and yet: {}", second.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_before_an_interrupt_still_rides_along_on_the_next_turn() {
    let house = Harness::open().await;
    let (ann, team) = (house.seat("ann").await, house.seat("team").await);
    open_to_all(&house, &team, "room").await;
    set_policy(&house, &team, json!({ "requireAddress": true })).await;
    let mut teams = house.socket(&team).await;
    say(&house, &ann, "room", "u-ann", "begin", to_the_bot()).await;
    hears(&mut teams, "begin").await;
    say(&house, &ann, "room", "u-ann", "an aside", PLAIN).await;
    say(&house, &ann, "room", "u-ann", "/stop", PLAIN).await;
    assert!(teams.next().await.is("interrupt_inbound"));
    say(&house, &ann, "room", "u-ann", "well?", to_the_bot()).await;
    let event = hears(&mut teams, "well?").await;
    house.finish().await;
    assert_eq!(event["context"][0]["text"], "an aside", "the interrupt carried no context: {event}");
}
