//! Every op of the built-in chat: sent by a gateway, visible to users.

use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Socket, Source, outbound};

/// A server, a gateway that may send to the chat `c`, and its socket.
async fn talking() -> (Harness, GatewayAccount, Socket) {
    let harness = Harness::open().await;
    let (account, socket) = talk(&harness).await;
    (harness, account, socket)
}

async fn talk(harness: &Harness) -> (GatewayAccount, Socket) {
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "hi").await;
    let event = socket.event().await;
    socket.ack(&event).await;
    (account, socket)
}

fn id_of(result: &Value) -> String {
    assert_eq!(result["success"], true, "{result}");
    result["message_id"].as_str().unwrap_or_else(|| panic!("no message_id in {result}")).to_owned()
}

#[track_caller]
fn refused(result: &Value, code: &str) {
    assert_eq!((&result["success"], &result["code"]), (&json!(false), &json!(code)), "{result}");
    assert!(result["error"].as_str().is_some_and(|text| !text.is_empty()), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn send_edit_and_delete_show_in_the_chat() {
    let (harness, account, mut socket) = talking().await;
    let sent = socket.act(json!({ "op": "send", "chat_id": "c", "content": "helo", "reply_to": "m0" })).await;
    let id = id_of(&sent);
    let line = harness.line(&account, "c", &id).await;
    assert_eq!((&line["direction"], &line["text"], &line["edited"]), (&json!("out"), &json!("helo"), &json!(false)));
    id_of(&socket.act(json!({ "op": "edit", "chat_id": "c", "message_id": id, "content": "hello" })).await);
    let line = harness.line(&account, "c", &id).await;
    assert_eq!((&line["text"], &line["edited"]), (&json!("hello"), &json!(true)));
    for _ in 0..2 {
        let gone = socket.act(json!({ "op": "delete", "chat_id": "c", "message_id": id })).await;
        assert_eq!(gone["success"], true, "deleting a deleted message succeeds: {gone}");
    }
    let line = harness.line(&account, "c", &id).await;
    assert_eq!((&line["deleted"], &line["text"]), (&json!(true), &json!("")));
    let absent = socket.act(json!({ "op": "delete", "chat_id": "c", "message_id": "never" })).await;
    assert_eq!(absent["success"], true);
    let edit = |id: &str| json!({ "op": "edit", "chat_id": "c", "message_id": id, "content": "mine" });
    refused(&socket.act(edit("never")).await, "not_found");
    harness.finish().await;
}

/// A result has the id of its request, and may have to be kept for the next socket.
#[tokio::test(flavor = "multi_thread")]
async fn an_action_with_a_long_request_id_is_refused() {
    let (harness, account, mut socket) = talking().await;
    for (length, is_sent) in [(1_024, true), (1_025, false)] {
        let request = "r".repeat(length);
        socket.frame(&outbound(&request, json!({ "op": "send", "chat_id": "c", "content": "x" }))).await;
        let result = socket.result(&request).await.json["result"].clone();
        if is_sent {
            id_of(&result);
        } else {
            refused(&result, "bad_request");
        }
    }
    let sent = harness.history(&account, "c").await.into_iter().filter(|line| line["direction"] == "out").count();
    assert_eq!(sent, 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_cannot_change_messages_of_users() {
    let (harness, account, mut socket) = talking().await;
    let theirs = harness.history(&account, "c").await[0]["message_id"].as_str().unwrap().to_owned();
    refused(
        &socket.act(json!({ "op": "edit", "chat_id": "c", "message_id": theirs, "content": "x" })).await,
        "forbidden",
    );
    refused(&socket.act(json!({ "op": "delete", "chat_id": "c", "message_id": theirs })).await, "forbidden");
    let line = harness.line(&account, "c", &theirs).await;
    assert_eq!((&line["text"], &line["deleted"]), (&json!("hi"), &json!(false)));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn typing_shows_until_cleared_or_a_message_is_sent() {
    let (harness, account, mut socket) = talking().await;
    let path = "/chat/v1/chats/c/messages";
    for clear in [
        json!({ "op": "typing", "chat_id": "c", "content": "" }),
        json!({ "op": "send", "chat_id": "c", "content": "x" }),
    ] {
        assert_eq!(socket.act(json!({ "op": "typing", "chat_id": "c" })).await["success"], true);
        assert_eq!(harness.get(path, &account.chat).await.expect(200)["typing"], true);
        assert_eq!(socket.act(clear).await["success"], true);
        assert_eq!(harness.get(path, &account.chat).await.expect(200)["typing"], false);
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reactions_are_idempotent() {
    let (harness, account, mut socket) = talking().await;
    let theirs = harness.history(&account, "c").await[0]["message_id"].as_str().unwrap().to_owned();
    let react =
        |remove: bool| json!({ "op": "react", "chat_id": "c", "message_id": theirs, "emoji": "👀", "remove": remove });
    for _ in 0..2 {
        assert_eq!(socket.act(react(false)).await["success"], true);
        let line = harness.line(&account, "c", &theirs).await;
        assert_eq!(line["reactions"], json!([{ "emoji": "👀", "by": "desk" }]));
    }
    for _ in 0..2 {
        assert_eq!(socket.act(react(true)).await["success"], true);
        assert_eq!(harness.line(&account, "c", &theirs).await["reactions"], json!([]));
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pressed_button_is_an_event_of_the_user_who_pressed_it() {
    let (harness, account, mut socket) = talking().await;
    harness.bind(&account.tenant, "clicker", &account.gateway).await;
    let options = json!([{ "id": "yes", "label": "Yes!", "style": "primary" }, { "id": "no", "label": "No" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "c", "prompt_kind": "approval", "prompt_id": "p1", "content": "Go?",
                         "options": options, "timeout_s": 30.5 });
    let id = id_of(&socket.act(prompt).await);
    let line = harness.line(&account, "c", &id).await;
    assert_eq!((&line["text"], &line["prompt"]["prompt_id"]), (&json!("Go?"), &json!("p1")));
    assert_eq!(line["prompt"]["options"], options);
    let press = json!({ "prompt_id": "p1", "option_id": "yes", "user_id": "clicker", "user_name": "Clicker" });
    harness.post(&format!("/chat/v1/chats/c/messages/{id}/press"), &account.chat, &press).await.expect(202);
    let event = socket.event().await.json["event"].clone();
    assert_eq!((&event["text"], &event["message_type"]), (&json!("/yes"), &json!("command")));
    assert_eq!((&event["source"]["user_id"], &event["source"]["user_name"]), (&json!("clicker"), &json!("Clicker")));
    let response = json!({ "prompt_id": "p1", "option_id": "yes", "label": "Yes!", "prompt_message_id": id });
    assert_eq!(event["prompt_response"], response);
    assert_eq!(harness.line(&account, "c", &id).await["prompt"]["chosen"], "yes");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_reaches_only_the_agent_that_asked_also_after_a_restart() {
    let (harness, account, mut socket) = talking().await;
    let other = harness.add_gateway("other").await;
    let options = json!([{ "id": "yes", "label": "Yes" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "c", "prompt_id": "p", "content": "Go?", "options": options });
    let message = id_of(&socket.act(prompt).await);
    drop(socket);
    let harness = Harness::again(harness.finish().await, |_| {}).await;
    let press = async |user: &str| {
        let press = json!({ "prompt_id": "p", "option_id": "yes", "user_id": user });
        let path = format!("/chat/v1/chats/c/messages/{message}/press");
        harness.post(&path, &account.chat, &press).await.expect(202)["verdict"]["outcome"].clone()
    };
    let before = harness.mail(&account).await.len();
    assert_eq!(press(&other.user).await, "withheld", "the agent of somebody else asked");
    assert_eq!((harness.mail(&account).await.len(), harness.mail(&other).await.len()), (before, 0));
    assert_eq!(press(&account.user).await, "delivered");
    assert_eq!((harness.mail(&account).await.len(), harness.mail(&other).await.len()), (before + 1, 0));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_answered_once_also_after_a_restart() {
    let (harness, account, mut socket) = talking().await;
    harness.bind(&account.tenant, "clicker", &account.gateway).await;
    let options = json!([{ "id": "yes", "label": "Yes" }, { "id": "no", "label": "No" }]);
    let prompt =
        |id: &str| json!({ "op": "prompt", "chat_id": "c", "prompt_id": id, "content": "Go?", "options": options });
    let (answered, open) = (id_of(&socket.act(prompt("p1")).await), id_of(&socket.act(prompt("p2")).await));
    let press = async |harness: &Harness, [message, prompt, option, user]: [&str; 4]| {
        let press = json!({ "prompt_id": prompt, "option_id": option, "user_id": user });
        harness.post(&format!("/chat/v1/chats/c/messages/{message}/press"), &account.chat, &press).await
    };
    press(&harness, [answered.as_str(), "p1", "yes", "clicker"]).await.expect(202);
    assert_eq!(socket.event().await.text(), "/yes");
    drop(socket);
    let harness = Harness::again(harness.finish().await, |_| {}).await;

    let rows = harness.mail(&account).await.len();
    for (option, user) in [("yes", "clicker"), ("no", "clicker"), ("no", account.user.as_str())] {
        let again = press(&harness, [answered.as_str(), "p1", option, user]).await;
        assert_eq!(again.problem(409), "conflict", "{option} by {user}");
    }
    assert_eq!(harness.line(&account, "c", &answered).await["prompt"]["chosen"], "yes");
    assert_eq!(harness.mail(&account).await.len(), rows, "the agent gets no second answer");

    // One that was sent before the restart and not answered is answered now, once.
    press(&harness, [open.as_str(), "p2", "no", "clicker"]).await.expect(202);
    assert_eq!(press(&harness, [open.as_str(), "p2", "yes", account.user.as_str()]).await.problem(409), "conflict");
    let mut socket = harness.socket(&account).await;
    let event = loop {
        let frame = socket.event().await; // those that were not acked come again
        if frame.text() == "/no" {
            break frame.json["event"].clone();
        }
    };
    let response = json!({ "prompt_id": "p2", "option_id": "no", "label": "No", "prompt_message_id": open });
    assert_eq!(event["prompt_response"], response);
    assert_eq!(harness.mail(&account).await.len(), rows + 1);
    drop(socket);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_prompt_is_refused_and_a_long_one_is_numbered_text() {
    let (harness, account, mut socket) = talking().await;
    let prompt = |id: &str, options: Value| json!({ "op": "prompt", "chat_id": "c", "prompt_id": id, "content": "?", "options": options });
    let option = |id: &str| json!({ "id": id, "label": id });
    for (id, options) in [
        ("p", json!([])),
        ("p", json!([option("a b")])),
        ("p", json!([option(&"x".repeat(33))])),
        ("p", json!([option("ä")])),
        (&*"p".repeat(60), json!([option("ok")])),
    ] {
        refused(&socket.act(prompt(id, options)).await, "bad_request");
    }
    assert_eq!(harness.history(&account, "c").await.len(), 1);
    let many: Vec<Value> = (1..=11).map(|number| option(&format!("o{number}"))).collect();
    let id = id_of(&socket.act(prompt("p", json!(many))).await);
    let line = harness.line(&account, "c", &id).await;
    assert!(line["prompt"].is_null() && line["text"].as_str().unwrap().contains("11. o11"), "{line}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_is_created_and_renamed_only_if_the_guard_matches() {
    let (harness, account, mut socket) = talking().await;
    let made = socket.act(json!({ "op": "thread_create", "chat_id": "c", "thread_name": "Plans" })).await;
    let thread = made["thread_id"].as_str().unwrap().to_owned();
    let rename = |name: &str, guard: Value| json!({ "op": "thread_rename", "chat_id": "c", "message_id": thread, "thread_name": name, "only_if_current_name": guard });
    assert_eq!(socket.act(rename("Plans B", json!("Plans"))).await["success"], true);
    refused(&socket.act(rename("Plans C", json!("Plans"))).await, "conflict");
    assert_eq!(
        socket.act(rename("Plans D", json!("Plans B"))).await["success"],
        true,
        "a refused rename changes nothing"
    );
    assert_eq!(socket.act(rename("Plans E", Value::Null)).await["success"], true);
    let ours = |thread: &str| json!({ "op": "thread_rename", "chat_id": "c", "message_id": thread, "thread_name": "F", "only_if_connector_created": true });
    assert_eq!(socket.act(ours(&thread)).await["success"], true);
    harness
        .say_as(&account, "c", json!({ "user_id": account.user, "text": "x", "thread_id": "theirs" }))
        .await
        .expect(202);
    refused(&socket.act(ours("theirs")).await, "not_found");
    let stray = json!({ "op": "thread_rename", "chat_id": "c", "message_id": "t0", "thread_name": "x" });
    refused(&socket.act(stray).await, "not_found");
    let said = json!({ "op": "send", "chat_id": "c", "content": "in it", "metadata": { "thread_id": thread } });
    let id = id_of(&socket.act(said).await);
    assert_eq!(harness.line(&account, "c", &id).await["thread_id"], thread);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_not_stored_and_its_seal_is_one_message() {
    let (harness, account, mut socket) = talking().await;
    let mut stream = harness.open_stream("/chat/v1/chats/c/stream", &account.chat).await;
    harness.follow(&mut stream, &["\"text\":\"hi\""]).await;
    let draft = |content: &str, sealed: bool| json!({ "op": "draft", "chat_id": "c", "draft_id": "d1", "content": content, "final": sealed });
    for content in ["Th", "Think", "Thinking"] {
        assert_eq!(socket.act(draft(content, false)).await["success"], true);
        harness.follow(&mut stream, &[&format!("\"text\":\"{content}\""), "\"draft\":true"]).await;
    }
    assert_eq!(harness.history(&account, "c").await.len(), 1, "a preview is not stored");
    let first = id_of(&socket.act(draft("Thought.", true)).await);
    let again = id_of(&socket.act(draft("Thought.", true)).await);
    assert_eq!(first, again);
    let kept = harness.history(&account, "c").await;
    assert_eq!((kept.len(), &kept[1]["text"], &kept[1]["message_id"]), (2, &json!("Thought."), &json!(first)));
    let other = json!({ "op": "draft", "chat_id": "c", "draft_id": "d2", "content": "Other.", "final": true });
    assert_ne!(id_of(&socket.act(other).await), first);
    // An agent that started again counts its drafts from the beginning.
    assert_ne!(id_of(&socket.act(draft("Good morning.", true)).await), first);
    let kept = harness.history(&account, "c").await;
    let texts: Vec<&Value> = kept.iter().map(|line| &line["text"]).collect();
    assert_eq!(texts, ["hi", "Thought.", "Other.", "Good morning."]);
    drop(stream);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn media_can_be_sent_from_an_upload_and_from_an_allowed_url() {
    let (harness, account, mut socket) = talking().await;
    let upload = harness.request("POST", "/relay/media").bearer_auth(account.bearer());
    let upload = upload.header("content-type", "image/png").header("x-media-filename", "a.png").body(b"own".to_vec());
    let own = harness.send(upload).await.expect(200)["id"].as_str().unwrap().to_owned();
    let source = Source::open("audio/ogg", b"from afar").await;
    source.answer(1);
    let cases = [
        (format!("{}/relay/media/{own}", harness.url), "image/png", &b"own"[..], json!("a.png")),
        (source.url.clone(), "audio/ogg", &b"from afar"[..], json!("voice.ogg")),
    ];
    for (url, mime, bytes, filename) in cases {
        let mut action =
            json!({ "op": "send_media", "chat_id": "c", "media_kind": "image", "source_url": url, "content": "look" });
        if filename == "voice.ogg" {
            action["filename"] = filename.clone();
        }
        let id = id_of(&socket.act(action).await);
        let line = harness.line(&account, "c", &id).await;
        let media = &line["media"][0];
        assert_eq!(
            (&line["text"], &media["mime"], &media["filename"]),
            (&json!("look"), &json!(mime), &filename),
            "{line}"
        );
        let path = format!("/chat/v1/media/{}", media["id"].as_str().unwrap());
        assert_eq!(harness.get(&path, &account.chat).await.body, bytes);
    }
    refused(&socket.act(media_from(&format!("{}/relay/media/{}", harness.url, "0".repeat(32)))).await, "not_found");
    harness.finish().await;
}

fn media_from(url: &str) -> Value {
    json!({ "op": "send_media", "chat_id": "c", "media_kind": "document", "source_url": url })
}

#[tokio::test(flavor = "multi_thread")]
async fn media_from_a_disallowed_url_is_refused_without_a_request() {
    let harness = Harness::with(|config| config.outcall.allow.clear()).await;
    let (account, mut socket) = talk(&harness).await;
    let source = Source::open("text/plain", b"secret").await;
    source.answer(1);
    let mut words = Vec::new();
    for url in [source.url.as_str(), "http://10.1.2.3/x", "http://169.254.169.254/latest/meta-data", "http://[::1]:1/"]
    {
        let frame = socket.act_frame(media_from(url)).await;
        refused(&frame.json["result"], "url_refused");
        words.push(frame.result().to_owned());
    }
    words.dedup();
    assert_eq!(words.len(), 1, "the same text for all: {words:?}");
    assert!(!source.was_asked());
    refused(&socket.act(media_from("file:///etc/passwd")).await, "url_refused");
    assert_eq!(harness.history(&account, "c").await.len(), 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_info_names_the_chat() {
    let (harness, account, mut socket) = talking().await;
    let ask = json!({ "op": "get_chat_info", "chat_id": "c" });
    assert_eq!(socket.act(ask.clone()).await["chat_info"], json!({ "name": "c", "type": "dm" }));
    harness.call("PUT", "/chat/v1/chats/c", &account.chat, &json!({ "name": "Kitchen" })).await.expect(200);
    assert_eq!(socket.act(ask).await["chat_info"], json!({ "name": "Kitchen", "type": "dm" }));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_send_is_split_and_returns_the_id_of_the_first_part() {
    let (harness, account, mut socket) = talking().await;
    let text: String = (0..2_500).map(|number| format!("word{number:04}")).collect::<Vec<_>>().join(" ");
    assert!(text.chars().count() > 20_000);
    let id = id_of(&socket.act(json!({ "op": "send", "chat_id": "c", "content": text, "reply_to": "m" })).await);
    let lines = harness.history(&account, "c").await;
    let parts: Vec<&Value> = lines.iter().filter(|line| line["direction"] == "out").collect();
    assert_eq!((parts.len(), parts[0]["message_id"].as_str()), (3, Some(id.as_str())));
    let texts: Vec<&str> = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
    assert!(texts.iter().all(|part| part.chars().count() <= 8_000));
    assert_eq!(texts.join(" "), text, "cut between words, and none is lost");
    assert_eq!((&parts[0]["reply_to"], &parts[1]["reply_to"]), (&json!("m"), &Value::Null));
    let journal = harness.admin("GET", "/journal", &Value::Null).await.expect(200);
    let entry = &journal["actions"][0];
    assert_eq!(
        (&entry["op"], &entry["parts"], &entry["cursor"], &entry["outcome"]),
        (&json!("send"), &json!(3), &json!(3), &json!("delivered"))
    );
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_chat_is_refused_like_a_missing_one() {
    let (harness, _, mut socket) = talking().await;
    let rival = harness.add_gateway_in("rival", "r").await;
    let said = harness.say(&rival, "theirs", "private").await;
    let message = said["message_id"].as_str().unwrap();
    let actions = |chat: &str| {
        [
            json!({ "op": "send", "chat_id": chat, "content": "boo" }),
            json!({ "op": "edit", "chat_id": chat, "message_id": message, "content": "boo" }),
            json!({ "op": "delete", "chat_id": chat, "message_id": message }),
            json!({ "op": "typing", "chat_id": chat }),
            json!({ "op": "react", "chat_id": chat, "message_id": message, "emoji": "x" }),
            json!({ "op": "prompt", "chat_id": chat, "prompt_id": "p", "content": "?", "options": [{ "id": "a", "label": "A" }] }),
            json!({ "op": "thread_create", "chat_id": chat, "thread_name": "t" }),
            json!({ "op": "thread_rename", "chat_id": chat, "message_id": "t", "thread_name": "t" }),
            json!({ "op": "draft", "chat_id": chat, "draft_id": "d", "content": "boo", "final": true }),
            json!({ "op": "send_media", "chat_id": chat, "media_kind": "image", "source_url": "http://127.0.0.1:1/x" }),
            json!({ "op": "get_chat_info", "chat_id": chat }),
            json!({ "op": "send", "chat_id": chat, "content": "boo", "metadata": { "scope_id": "rival", "user_id": rival.user } }),
        ]
    };
    let expected = "{\"success\":false,\"error\":\"relay egress declined: target is not an approved destination for this \
                    connection\",\"code\":\"egress_declined\"}}";
    for (theirs, never) in actions("theirs").into_iter().zip(actions("never")) {
        let (there, absent) = (socket.act_frame(theirs.clone()).await, socket.act_frame(never).await);
        assert_eq!(there.result(), expected, "{theirs}");
        assert_eq!(there.result(), absent.result(), "{theirs}");
    }
    assert_eq!(harness.history(&rival, "theirs").await.len(), 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_of_an_action_is_returned_in_later_events() {
    let (harness, account, mut socket) = talking().await;
    let send = json!({ "op": "send", "chat_id": "c", "content": "x", "metadata": { "profile": "coder" } });
    id_of(&socket.act(send).await);
    harness.say(&account, "c", "again").await;
    assert_eq!(socket.event().await.json["event"]["source"]["profile"], "coder");
    harness.finish().await;
}
