//! The API of the built-in chat.

use serde_json::{Value, json};

use crate::harness::Harness;

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_message_is_one_event() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let post = json!({ "user_id": account.user, "text": "once", "message_id": "m-1" });
    let first = harness.say_as(&account, "c", post.clone()).await.expect(202);
    let second = harness.say_as(&account, "c", post.clone()).await.expect(202);
    assert_eq!(first, second);
    assert_eq!(first["message_id"], "m-1");
    let elsewhere = harness.say_as(&account, "d", post).await.expect(202);
    assert_ne!(first["event_id"], elsewhere["event_id"], "an id is unique in its chat only");
    socket.events(2).await;
    assert_eq!(socket.unread().await, 0);
    assert_eq!(harness.history(&account, "c").await.len(), 1);
    assert_eq!(harness.metric("frontdesk_events_duplicate_total").await, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_repeats_of_a_message_make_one_event() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let post = json!({ "user_id": account.user, "text": "once", "message_id": "m-1" });
    let posts = (0..20).map(|_| harness.say_as(&account, "c", post.clone()));
    let replies = futures_util::future::join_all(posts).await;
    let mut events: Vec<_> = replies.iter().map(|reply| reply.expect(202)["event_id"].to_string()).collect();
    events.sort();
    events.dedup();
    assert_eq!(events.len(), 1);
    assert_eq!(socket.event().await.text(), "once");
    assert_eq!(socket.unread().await, 0);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_an_unlinked_user_is_withheld_and_explained_with_the_same_text() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    let posted = harness.say_as(&account, "c", json!({ "user_id": "stranger", "text": "hello?" })).await.expect(202);
    assert_eq!(posted["verdict"]["outcome"], "withheld");
    let words = posted["verdict"]["text"].as_str().unwrap();
    assert!(words.contains("stranger") && words.contains("frontdesk bind relay stranger"), "{words}");
    let path = format!("/events/{}/explain", posted["event_id"].as_str().unwrap());
    let response = harness.admin("GET", &path, &Value::Null).await.expect(200);
    assert_eq!((&response["outcome"], &response["tenant"]), (&json!("withheld"), &json!("home")));
    assert_eq!(
        (&response["instances"][0]["text"], &response["instances"][0]["layer"]),
        (&json!(words), &json!("owner"))
    );
    assert_eq!(socket.unread().await, 0);
    let good = harness.say(&account, "c", "hi").await;
    let path = format!("/events/{}/explain", good["event_id"].as_str().unwrap());
    let response = harness.admin("GET", &path, &Value::Null).await.expect(200);
    assert_eq!((&response["outcome"], &response["instances"][0]["instance"]), (&json!("delivered"), &json!("g")));
    assert_eq!(response["instances"][0]["text"], good["verdict"]["text"]);
    assert_eq!(harness.admin("GET", "/events/ev-999999/explain", &Value::Null).await.problem(404), "not_found");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_needs_an_existing_prompt_and_counts_once() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "hi").await;
    let said = socket.event().await;
    socket.ack(&said).await;
    let prompt = json!({ "op": "prompt", "chat_id": "c", "prompt_id": "p", "content": "?",
                         "options": [{ "id": "a", "label": "A" }, { "id": "b", "label": "B" }] });
    let id = socket.act(prompt).await["message_id"].as_str().unwrap().to_owned();
    let press = async |chat: &str, message: &str, prompt: &str, option: &str| {
        let body = json!({ "prompt_id": prompt, "option_id": option, "user_id": account.user });
        harness.post(&format!("/chat/v1/chats/{chat}/messages/{message}/press"), &account.chat, &body).await
    };
    let plain = harness.history(&account, "c").await[0]["message_id"].as_str().unwrap().to_owned();
    for (chat, message, prompt, option) in [
        ("c", "none", "p", "a"),
        ("c", &*plain, "p", "a"),
        ("c", &*id, "q", "a"),
        ("c", &*id, "p", "z"),
        ("d", &*id, "p", "a"),
    ] {
        assert_eq!(press(chat, message, prompt, option).await.problem(404), "not_found", "{chat} {prompt} {option}");
    }
    assert_eq!(press("c", &id, "p", "a").await.status, 202);
    assert_eq!(press("c", &id, "p", "b").await.problem(409), "conflict");
    assert_eq!(press("c", &id, "p", "a").await.problem(409), "conflict");
    assert_eq!(socket.event().await.json["event"]["prompt_response"]["option_id"], "a");
    assert_eq!(socket.unread().await, 0);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_token_opens_only_the_chat_of_its_tenant() {
    let harness = Harness::open().await;
    let (account, rival) = (harness.add_gateway("g").await, harness.add_gateway_in("rival", "r").await);
    harness.say(&account, "c", "ours").await;
    harness.say(&rival, "c", "theirs").await;
    for (reader, text) in [(&account, "ours"), (&rival, "theirs")] {
        let lines = harness.history(reader, "c").await;
        assert_eq!((lines.len(), &lines[0]["text"]), (1, &json!(text)));
    }
    for bearer in ["", "x", &account.identity, &account.bearer(), &harness.admin.clone()] {
        for path in ["/chat/v1/chats", "/chat/v1/chats/c/messages", "/chat/v1/chats/c/stream", "/chat/v1/me"] {
            assert_eq!(harness.get(path, bearer).await.problem(401), "unauthorized", "{path}");
        }
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_messages_are_refused_and_store_nothing() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let cases = [
        (json!({ "user_id": account.user, "text": "  " }), 400, "bad_request"),
        (json!({ "user_id": account.user }), 400, "bad_request"),
        (json!({ "user_id": "", "text": "x" }), 400, "bad_request"),
        (json!({ "user_id": account.user, "text": "x", "chat_type": "cave" }), 400, "bad_request"),
        (json!({ "user_id": account.user, "text": "x", "message_id": "x".repeat(300) }), 400, "bad_request"),
        (json!({ "user_id": account.user, "text": "x".repeat(32_001) }), 413, "too_large"),
    ];
    for (body, status, code) in cases {
        assert_eq!(harness.say_as(&account, "c", body.clone()).await.problem(status), code, "{body}");
    }
    assert_eq!(harness.history(&account, "c").await.len(), 0);
    let chats = harness.get("/chat/v1/chats", &account.chat).await.expect(200);
    assert_eq!(chats["chats"], json!([]));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn history_pages_by_seq_and_the_stream_reports_every_step() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut stream = harness.open_stream("/chat/v1/chats/c/stream", &account.chat).await;
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "one").await;
    let event = socket.event().await;
    socket.ack(&event).await;
    socket.act(json!({ "op": "send", "chat_id": "c", "content": "two" })).await;
    let came = harness.follow(&mut stream, &["\"text\":\"two\"", "\"step\":\"acked\"", "\"step\":\"action\""]).await;
    for step in ["awake", "accepted", "sent"] {
        assert!(came.contains(&format!("\"step\":\"{step}\"")), "{step} in {came}");
    }
    let lines = harness.history(&account, "c").await;
    let seq = lines[0]["seq"].as_u64().unwrap();
    let rest = harness.get(&format!("/chat/v1/chats/c/messages?after={seq}"), &account.chat).await.expect(200);
    assert_eq!(rest["messages"], json!([lines[1]]));
    drop(stream);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_contains_the_message_that_it_answers() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "hi").await;
    socket.event().await;
    let id = socket.act(json!({ "op": "send", "chat_id": "c", "content": "which one?" })).await["message_id"].clone();
    harness.say_as(&account, "c", json!({ "user_id": account.user, "text": "that", "reply_to": id })).await.expect(202);
    let event = socket.event().await.json["event"].clone();
    assert_eq!(event["reply_to_message_id"], id);
    assert_eq!((&event["reply_to"]["text"], &event["reply_to"]["is_own"]), (&json!("which one?"), &json!(true)));
    harness.finish().await;
}
