//! Regressions: interactions of two features that each work alone.

use std::time::Duration;

use serde_json::json;

use crate::harness::{Harness, Source, hello};
use crate::scene::*;

#[tokio::test(flavor = "multi_thread")]
async fn members_survive_concurrent_changes_of_the_chat() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    for number in 0..50 {
        let (chat, only) = (format!("c{number}"), json!({ "members": ["somebody-else"] }));
        let path = format!("/chat/v1/chats/{chat}");
        tokio::join!(harness.call("PUT", &path, &ann.chat, &only), say(&harness, &ann, &chat, "stranger", "hi", PLAIN));
        let posted = say(&harness, &ann, &chat, "u-ann", "let me in", PLAIN).await;
        assert_eq!(ruling(&harness, &posted).await, "ann-visibility/can_see", "a first message, {number}");
        let thread = json!({ "op": "thread_create", "chat_id": chat, "thread_name": "t" });
        tokio::join!(harness.call("PUT", &path, &ann.chat, &only), socket.act(thread));
        let posted = say(&harness, &ann, &chat, "u-ann", "let me in", PLAIN).await;
        assert_eq!(ruling(&harness, &posted).await, "ann-visibility/can_see", "a thread, {number}");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_with_a_revoked_secret_never_serves_even_after_the_gateway_returned() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut silent = harness.dial(&ann.bearer()).await;
    managed(&harness, &ann, "deprovision", json!({})).await;
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM });
    harness.post("/relay/provision", &ann.identity, &ask).await.expect(200);
    silent.frame(&hello(PLATFORM, "")).await;
    assert_eq!(silent.closed().await, (4401, "unauthorized".into()));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_sockets_of_an_instance_close_at_deprovision_even_of_a_moved_gateway() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    let twin = second_gateway(&harness, &ann, "ann-2").await;
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM, "instanceId": "elsewhere" });
    harness.post("/relay/provision", &ann.identity, &ask).await.expect(200);
    managed(&harness, &twin, "deprovision", json!({})).await;
    assert_eq!(
        socket.closed().await.0,
        1001,
        "closed when the gateway moved, so that it reconnects for the new instance"
    );
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_wake_after_deprovision() {
    let harness = Harness::with(|config| config.wake.cooldown_ms = 200).await;
    let ann = harness.add_gateway("ann").await;
    let sink = Source::open("text/plain", b"ok").await;
    sink.answer(1000);
    set_wake_url(&harness, &ann, &sink.url).await;
    write(&harness, &ann, "d", "u-ann", "mail").await;
    sink.asked().await;
    managed(&harness, &ann, "deprovision", json!({})).await;
    while sink.was_asked() {
        sink.asked().await; // before it was deprovisioned
    }
    let mut pokes = 0; // one may have been decided on before
    while tokio::time::timeout(Duration::from_secs(3), sink.asked()).await.is_ok() && pokes < 5 {
        pokes += 1;
    }
    assert!(pokes <= 1, "{pokes} pokes");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_returns_its_first_verdict() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let post = json!({ "user_id": "new", "text": "hi", "message_id": "m-1" });
    let first = harness.say_as(&ann, "d", post.clone()).await.expect(202);
    harness.bind("home", "new", "ann").await;
    let again = harness.say_as(&ann, "d", post).await.expect(202);
    assert_eq!(again["verdict"]["outcome"], first["verdict"]["outcome"]);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_sent_twice_interrupts_once() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    write(&harness, &ann, "d", "u-ann", "go").await;
    receives(&mut socket, "go").await;
    for _ in 0..2 {
        harness.say_as(&ann, "d", json!({ "user_id": "u-ann", "text": "/stop", "message_id": "m" })).await.expect(202);
    }
    assert_eq!(harness.metric("frontdesk_interrupts_total").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_is_counted_once_per_event() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    for _ in 0..5 {
        harness.say_as(&ann, "d", json!({ "user_id": "u-ann", "text": "x", "message_id": "m" })).await.expect(202);
    }
    assert_eq!(harness.metric("frontdesk_verdicts_total{verdict=\"delivered\",layer=\"owner\"}").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_refusal_under_manage_has_the_form_of_the_contract() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    harness.get("/manage/why?message_id=a&message_id=b", &ann.bearer()).await.error(400);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_long_line_does_not_hide_the_others() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    open_to_all(&harness, &team, "room").await;
    set_policy(&harness, &team, json!({ "requireAddress": true })).await;
    let mut socket = harness.socket(&team).await;
    say(&harness, &ann, "room", "u-ann", "short", PLAIN).await;
    say(&harness, &ann, "room", "u-ann", &"x".repeat(20_000), PLAIN).await;
    say(&harness, &ann, "room", "u-ann", "q", to_the_bot()).await;
    assert!(!receives(&mut socket, "q").await["context"].is_null());
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivered_event_is_not_context_after_a_policy_change() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    open_to_all(&harness, &team, "room").await;
    let mut socket = harness.socket(&team).await;
    say(&harness, &ann, "room", "u-ann", "an event", PLAIN).await;
    receives(&mut socket, "an event").await;
    set_policy(&harness, &team, json!({ "requireAddress": true })).await;
    say(&harness, &ann, "room", "u-ann", "q", to_the_bot()).await;
    assert!(receives(&mut socket, "q").await["context"].is_null());
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_called_stop_answers_its_prompt() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut socket = harness.socket(&ann).await;
    write(&harness, &ann, "d", "u-ann", "hi").await;
    receives(&mut socket, "hi").await;
    let options = json!([{ "id": "go", "label": "Go" }, { "id": "stop", "label": "Stop" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "d", "prompt_id": "p", "content": "go on?", "options": options });
    let sent = socket.act(prompt).await;
    let path = format!("/chat/v1/chats/d/messages/{}/press", sent["message_id"].as_str().unwrap());
    harness
        .post(&path, &ann.chat, &json!({ "prompt_id": "p", "option_id": "stop", "user_id": "u-ann" }))
        .await
        .expect(202);
    let frame = socket.next().await;
    harness.finish().await;
    assert!(frame.is("inbound"), "the press was handled as a command: {}", frame.raw);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_has_the_thread_and_scope_of_its_prompt() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    managed(&harness, &team, "scope", json!({ "platform": "relay", "scope_id": "wing", "channel_id": "room" })).await;
    managed(&harness, &team, "principal", json!({ "policy": "any" })).await;
    let mut teams = harness.socket(&team).await;
    say(&harness, &ann, "room", "u-ann", "hello", json!({ "scope_id": "wing", "thread_id": "t1" })).await;
    receives(&mut teams, "hello").await;
    let prompt = json!({ "op": "prompt", "chat_id": "room", "prompt_id": "p", "content": "ok?",
        "options": [{ "id": "yes", "label": "Yes" }], "metadata": { "thread_id": "t1", "scope_id": "wing" } });
    let sent = teams.act(prompt).await;
    let path = format!("/chat/v1/chats/room/messages/{}/press", sent["message_id"].as_str().unwrap());
    let press = json!({ "prompt_id": "p", "option_id": "yes", "user_id": "u-ann" });
    let posted = harness.post(&path, &ann.chat, &press).await.expect(202);
    let ruling = ruling(&harness, &posted).await;
    let got = teams.unread().await;
    harness.finish().await;
    assert_eq!(got, 1, "the agent that asked did not get the answer: {ruling}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_cannot_see_a_chat_cannot_answer_its_prompts() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let mut socket = harness.socket(&ann).await;
    members(&harness, &ann, "club", &["u-ann"]).await;
    let options = json!([{ "id": "yes", "label": "Yes" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "club", "prompt_id": "p", "content": "ok?", "options": options });
    let sent = socket.act(prompt).await;
    let path = format!("/chat/v1/chats/club/messages/{}/press", sent["message_id"].as_str().unwrap());
    let press = |user: &str| json!({ "prompt_id": "p", "option_id": "yes", "user_id": user });
    let posted = harness.post(&path, &bob.chat, &press("u-bob")).await.expect(202);
    let withheld = ruling(&harness, &posted).await;
    let second = harness.post(&path, &ann.chat, &press("u-ann")).await;
    harness.finish().await;
    assert_eq!(second.status, 202, "{withheld}, but the second press: {}", second.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_before_an_interrupt_are_context_of_the_next_turn() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    open_to_all(&harness, &team, "room").await;
    set_policy(&harness, &team, json!({ "requireAddress": true })).await;
    let mut teams = harness.socket(&team).await;
    say(&harness, &ann, "room", "u-ann", "begin", to_the_bot()).await;
    receives(&mut teams, "begin").await;
    say(&harness, &ann, "room", "u-ann", "an aside", PLAIN).await;
    say(&harness, &ann, "room", "u-ann", "/stop", PLAIN).await;
    assert!(teams.next().await.is("interrupt_inbound"));
    say(&harness, &ann, "room", "u-ann", "well?", to_the_bot()).await;
    let event = receives(&mut teams, "well?").await;
    harness.finish().await;
    assert_eq!(event["context"][0]["text"], "an aside", "the interrupt carried no context: {event}");
}
