//! Actions of agents.

use frontdesk_core::port::platform::{ActingAs, Platform as _};
use frontdesk_wire::{Action, ActionResult, ChatId, Code, TenantId, UserId};

use super::*;

async fn act(stage: &Stage, action: Value) -> ActionResult {
    let home = TenantId::from("home");
    let acting_as = ActingAs { idempotency_key: Some("1.2.3"), ..ActingAs::new(&home, &stage.bot) };
    let action = Action::parse(&action.to_string()).unwrap();
    stage.feishu.act(acting_as, &action, None).await.result
}

const CREATE: &str = "POST /im/v1/messages";

fn sends(stage: &Stage) {
    stage.vendor.answers(CREATE, json!({ "message_id": "om_10" }));
}

#[tokio::test]
async fn a_text_is_sent_with_one_token_and_a_mark() {
    let stage = stage();
    sends(&stage);
    for content in ["hello", "**hello**"] {
        let sent = act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": content })).await;
        assert_eq!((sent.success, sent.message_id.as_deref()), (true, Some("om_10")));
    }
    let calls = stage.vendor.calls(CREATE);
    assert_eq!(calls[0].what, "POST /im/v1/messages?receive_id_type=chat_id");
    assert_eq!((&calls[0].body["receive_id"], &calls[0].body["msg_type"]), (&json!("oc_1"), &json!("text")));
    assert_eq!(calls[0].content(), json!({ "text": "hello" }));
    assert_eq!(calls[1].content()["zh_cn"]["content"][0][0], json!({ "tag": "md", "text": "**hello**" }));
    let uuid = calls[0].body["uuid"].as_str().unwrap();
    assert!((10..=50).contains(&uuid.len()) && calls[1].body["uuid"] != uuid, "{uuid}");
    assert_eq!(stage.vendor.calls("POST /auth/v3/tenant_access_token/internal").len(), 1);
    assert!(calls.iter().all(|call| call.bearer.as_deref() == Some("t-1")));
}

#[tokio::test]
async fn a_token_that_is_refused_or_old_is_replaced_once() {
    let stage = stage();
    stage.vendor.refuses(CREATE, 99_991_663);
    stage.vendor.answers(CREATE, json!({ "message_id": "om_10" }));
    let send = json!({ "op": "send", "chat_id": "oc_1", "content": "x" });
    assert!(act(&stage, send.clone()).await.success);
    let bearers: Vec<_> = stage.vendor.calls(CREATE).into_iter().map(|call| call.bearer.unwrap()).collect();
    assert_eq!(bearers, ["t-1", "t-2"]);
    stage.env.advance_ms(2 * 3_600_000);
    assert!(act(&stage, send.clone()).await.success);
    assert_eq!(stage.vendor.calls(CREATE)[2].bearer.as_deref(), Some("t-3"));
    let refusing = super::stage();
    refusing.vendor.refuses(CREATE, 99_991_668);
    assert_eq!(act(&refusing, send).await.code, Some(Code::Unauthorized));
    assert_eq!(refusing.vendor.calls(CREATE).len(), 2, "not again and again");
}

#[tokio::test]
async fn many_actions_ask_for_one_token() {
    let stage = stage();
    sends(&stage);
    let send = || act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "x" }));
    let all = futures_util::future::join_all((0..20).map(|_| send())).await;
    assert!(all.iter().all(|sent| sent.success));
    assert_eq!(stage.vendor.calls("POST /auth/v3/tenant_access_token/internal").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_does_not_come_means_that_nothing_was_sent() {
    let stage = stage();
    sends(&stage);
    stage.vendor.stalls(&["tenant_access_token"]);
    let send = || act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "x" }));
    let asked = || stage.vendor.calls("POST /auth/v3/tenant_access_token/internal").len();
    let began = tokio::time::Instant::now();
    let all = futures_util::future::join_all((0..20).map(|_| send())).await;
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    assert!(all.iter().all(|it| (it.code, it.ambiguous) == (Some(Code::Unavailable), false)), "{all:?}");
    assert_eq!(asked(), 1, "all share the failure");
    assert_eq!(send().await.code, Some(Code::Unavailable));
    assert_eq!(asked(), 1, "it is remembered for a while");
    stage.vendor.stalls(&[]);
    stage.env.advance_ms(3_000);
    assert!(send().await.success);
}

#[tokio::test]
async fn an_app_with_a_wrong_secret_is_told_what_to_do() {
    let stage = stage_with(&[("base_url", "http://vendor.example")], &[]);
    let vendor = &stage.vendor;
    vendor.answers.lock().unwrap().clear();
    vendor.says(
        "POST /auth/v3/tenant_access_token/internal",
        200,
        json!({ "code": 10_014, "msg": "app secret invalid" }),
    );
    let refused = act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "x" })).await;
    assert_eq!((refused.code, refused.ambiguous), (Some(Code::Unauthorized), false));
    let text = refused.error.unwrap();
    assert!(text.contains("app_secret") && !text.contains(SECRET), "{text}");
    let findings = stage.feishu.inspect(&stage.bot).await;
    assert!(!findings[0].ok && findings[0].text.contains("app_secret"), "{findings:?}");
}

#[tokio::test]
async fn answers_go_to_their_message_and_topics_are_kept() {
    let stage = stage();
    sends(&stage);
    for id in ["om_1", "om_root", "om_2"] {
        stage.vendor.answers(
            &format!("POST /im/v1/messages/{id}/reply"),
            json!({ "message_id": "om_11", "thread_id": "omt_1" }),
        );
    }
    let reply = |id: &str| stage.vendor.calls(&format!("POST /im/v1/messages/{id}/reply"));
    let send = |reply_to: Value, metadata: Value| json!({ "op": "send", "chat_id": "oc_1", "content": "x", "reply_to": reply_to, "metadata": metadata });
    assert!(act(&stage, send(json!("om_1"), json!({}))).await.success);
    assert_eq!(reply("om_1")[0].body["reply_in_thread"], false);
    let sent = act(&stage, send(json!("om_1"), json!({ "thread_id": "omt_1" }))).await;
    assert_eq!(sent.thread_id.as_deref(), Some("omt_1"));
    assert_eq!(reply("om_1")[1].body["reply_in_thread"], true);
    // A chain of answers is known by its first message.
    assert!(act(&stage, send(Value::Null, json!({ "thread_id": "om_root" }))).await.success);
    assert_eq!(reply("om_root")[0].body["reply_in_thread"], true);
    // The message that the gateway answers.
    stage.vendor.answers("GET /im/v1/messages", json!({ "items": [{ "chat_id": "oc_1" }] }));
    assert!(
        act(&stage, send(Value::Null, json!({ "thread_id": "omt_9", "reply_to_message_id": "om_2" }))).await.success
    );
    assert_eq!(reply("om_2").len(), 1);
    // A topic in which nothing was seen yet.
    assert!(act(&stage, send(json!("press-1"), json!({ "thread_id": "omt_8" }))).await.success);
    let call = stage.vendor.calls(CREATE).pop().unwrap();
    assert_eq!(
        (call.what.as_str(), &call.body["receive_id"]),
        ("POST /im/v1/messages?receive_id_type=thread_id", &json!("omt_8"))
    );
}

#[tokio::test]
async fn an_answer_to_a_withdrawn_message_stays_in_its_topic() {
    let stage = stage();
    sends(&stage);
    stage.vendor.refuses("POST /im/v1/messages/om_1/reply", 230_011);
    stage.vendor.answers("GET /im/v1/messages", json!({ "items": [{ "chat_id": "oc_1" }] }));
    let send = |metadata: Value| json!({ "op": "send", "chat_id": "oc_1", "content": "x", "reply_to": "om_1", "metadata": metadata });
    assert!(act(&stage, send(json!({}))).await.success);
    assert_eq!(stage.vendor.calls(CREATE)[0].body["receive_id"], "oc_1");
    assert!(act(&stage, send(json!({ "thread_id": "omt_1" }))).await.success);
    assert_eq!(stage.vendor.calls(CREATE)[1].body["receive_id"], "omt_1");
    let gone = act(&stage, send(json!({ "thread_id": "om_1" }))).await;
    assert_eq!(gone.code, Some(Code::NotFound));
    // An app that may not read messages answers in the chat.
    stage.vendor.refuses("GET /im/v1/messages/om_2", 99_991_672);
    let mut unknown = send(json!({}));
    unknown["reply_to"] = "om_2".into();
    assert!(act(&stage, unknown).await.success);
    assert!(stage.vendor.calls("POST /im/v1/messages/om_2/reply").is_empty());
    assert_eq!(stage.vendor.calls(CREATE)[2].body["receive_id"], "oc_1");
}

#[tokio::test]
async fn nobody_reaches_messages_and_topics_of_other_chats() {
    let stage = stage();
    sends(&stage);
    stage.vendor.answers("GET /im/v1/messages/om_9", json!({ "items": [{ "chat_id": "oc_secret" }] }));
    stage.vendor.answers("GET /im/v1/messages", json!({ "items": [{ "chat_id": "oc_secret" }] }));
    stage.vendor.refuses("GET /im/v1/messages/om_gone", 231_003);
    let send = |reply_to: Value, metadata: Value| json!({ "op": "send", "content": "x", "reply_to": reply_to, "metadata": metadata });
    for mut action in [
        send(json!("om_9"), json!({})),
        send(Value::Null, json!({ "thread_id": "om_9" })),
        send(Value::Null, json!({ "thread_id": "omt_9" })),
        send(Value::Null, json!({ "thread_id": "omt_9", "reply_to_message_id": "om_9" })),
        json!({ "op": "edit", "message_id": "om_9", "content": "x" }),
        json!({ "op": "delete", "message_id": "om_9" }),
        json!({ "op": "react", "message_id": "om_9", "emoji": "OK" }),
        json!({ "op": "react", "message_id": "om_9", "emoji": "OK", "remove": true }),
        json!({ "op": "thread_create", "message_id": "om_9", "thread_name": "x" }),
        json!({ "op": "thread_create", "thread_name": "x", "metadata": { "thread_id": "omt_9" } }),
        json!({ "op": "thread_create", "thread_name": "x", "metadata": { "thread_id": "om_9" } }),
        json!({ "op": "prompt", "prompt_id": "p", "content": "?", "reply_to": "om_9", "options": [{ "id": "y", "label": "Y" }] }),
        json!({ "op": "draft", "draft_id": 1, "content": "x", "metadata": { "thread_id": "omt_9" } }),
        json!({ "op": "edit", "message_id": "om_gone", "content": "x" }),
    ] {
        action["chat_id"] = "oc_1".into();
        let refused = act(&stage, action.clone()).await;
        assert_eq!((refused.success, refused.code), (false, Some(Code::NotFound)), "{action}");
    }
    let made = stage.vendor.made.lock().unwrap();
    let changing: Vec<&Made> =
        made.iter().filter(|it| !it.what.starts_with("GET ") && !it.what.contains("/auth/")).collect();
    assert!(changing.is_empty(), "{changing:?}");
}

#[tokio::test]
async fn rich_text_that_is_refused_goes_out_without_markup() {
    let stage = stage();
    stage.vendor.refuses(CREATE, 230_001);
    stage.vendor.answers(CREATE, json!({ "message_id": "om_10" }));
    assert!(act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "**hi** there" })).await.success);
    let call = stage.vendor.calls(CREATE).pop().unwrap();
    assert_eq!((&call.body["msg_type"], call.content()), (&json!("text"), json!({ "text": "hi there" })));
}

#[tokio::test]
async fn edits_change_texts_and_cards() {
    let stage = stage();
    stage.vendor.answers("PUT /im/v1/messages/om_1", json!({}));
    stage.vendor.refuses("PUT /im/v1/messages/om_2", 230_054);
    for id in ["om_2", "om_10"] {
        stage.vendor.answers(&format!("PATCH /im/v1/messages/{id}"), json!({}));
    }
    let edit = |id: &str| json!({ "op": "edit", "chat_id": "oc_1", "message_id": id, "content": "new" });
    for id in ["om_1", "om_2", "om_2"] {
        assert_eq!(act(&stage, edit(id)).await.message_id.as_deref(), Some(id));
    }
    assert_eq!(stage.vendor.calls("PUT /im/v1/messages/om_2").len(), 1, "it is known to be a card");
    let card = stage.vendor.calls("PATCH /im/v1/messages/om_2").remove(0).content();
    assert_eq!((&card["elements"][0]["content"], &card["config"]["update_multi"]), (&json!("new"), &json!(true)));
    sends(&stage);
    let options = json!([{ "id": "y", "label": "Yes" }]);
    let prompt = json!({ "op": "prompt", "chat_id": "oc_1", "prompt_id": "p", "content": "?", "options": options });
    assert!(act(&stage, prompt).await.success && act(&stage, edit("om_10")).await.success);
    assert!(stage.vendor.calls("PUT /im/v1/messages/om_10").is_empty());
    assert_eq!(act(&stage, edit("press-1")).await.code, Some(Code::BadRequest));
}

#[tokio::test]
async fn messages_are_withdrawn_and_reactions_come_and_go() {
    let stage = stage();
    stage.vendor.answers("DELETE /im/v1/messages/om_1", json!({}));
    stage.vendor.refuses("DELETE /im/v1/messages/om_1", 230_011);
    for _ in 0..2 {
        assert!(act(&stage, json!({ "op": "delete", "chat_id": "oc_1", "message_id": "om_1" })).await.success);
    }
    let path = "/im/v1/messages/om_1/reactions";
    stage.vendor.answers(&format!("POST {path}"), json!({ "reaction_id": "r1" }));
    let react = |emoji: &str, remove: bool| json!({ "op": "react", "chat_id": "oc_1", "message_id": "om_1", "emoji": emoji, "remove": remove });
    assert!(act(&stage, react("👍", false)).await.success);
    assert_eq!(
        stage.vendor.calls(&format!("POST {path}"))[0].body,
        json!({ "reaction_type": { "emoji_type": "THUMBSUP" } })
    );
    let of = |id: &str, operator: &str| json!({ "reaction_id": id, "operator": { "operator_id": operator } });
    stage.vendor.answers(
        &format!("GET {path}"),
        json!({ "items": [of("r9", "ou_ann")], "has_more": true, "page_token": "p2" }),
    );
    stage.vendor.answers(&format!("GET {path}"), json!({ "items": [of("r1", "cli_1")], "has_more": false }));
    stage.vendor.answers(&format!("DELETE {path}/r1"), json!({}));
    assert!(act(&stage, react("👍", true)).await.success);
    assert_eq!(stage.vendor.calls(&format!("DELETE {path}/r1")).len(), 1);
    assert!(stage.vendor.calls(&format!("GET {path}"))[1].what.ends_with("page_token=p2"));
    assert_eq!(act(&stage, react("two words", false)).await.code, Some(Code::BadRequest));
}

#[tokio::test]
async fn pictures_and_files_are_uploaded_first() {
    let stage = stage();
    sends(&stage);
    stage.vendor.answers("POST /im/v1/images", json!({ "image_key": "img_1" }));
    stage.vendor.answers("POST /im/v1/files", json!({ "file_key": "file_1" }));
    let media = |url: &str, kind: &str, caption: Value| json!({ "op": "send_media", "chat_id": "oc_1", "media_kind": kind, "source_url": url, "content": caption });
    assert!(act(&stage, media("https://files.example/a.png", "image", Value::Null)).await.success);
    assert_eq!(stage.vendor.calls("POST /im/v1/images")[0].body["image_type"], "message");
    assert_eq!(stage.vendor.calls(CREATE)[0].content(), json!({ "image_key": "img_1" }));
    assert!(act(&stage, media("https://files.example/a.png", "image", json!("**see**"))).await.success);
    let rows = stage.vendor.calls(CREATE)[1].content()["zh_cn"]["content"].clone();
    assert_eq!(rows, json!([[{ "tag": "md", "text": "**see**" }], [{ "tag": "img", "image_key": "img_1" }]]));
    let sent = act(&stage, media("https://files.example/a.bin", "document", json!("the file"))).await;
    assert_eq!(sent.message_id.as_deref(), Some("om_10"));
    let upload = &stage.vendor.calls("POST /im/v1/files")[0].body;
    assert_eq!((&upload["file_type"], &upload["file"]["content"]), (&json!("stream"), &json!("bytes")));
    let calls = stage.vendor.calls(CREATE);
    assert_eq!(
        (calls[2].content(), calls[3].content()),
        (json!({ "file_key": "file_1" }), json!({ "text": "the file" }))
    );
    stage.vendor.refuses(CREATE, 230_002); // the queue: the last good answer comes first
    let failing = super::stage();
    failing.vendor.says("POST /im/v1/files", 500, json!({ "code": 1, "msg": "x" }));
    let failed = act(&failing, media("https://files.example/a.bin", "document", Value::Null)).await;
    assert_eq!((failed.code, failed.ambiguous), (Some(Code::Unavailable), false), "nobody has seen it");
}

#[tokio::test(start_paused = true)]
async fn only_files_of_unknown_length_are_held_and_only_some_at_once() {
    let stage = stage();
    sends(&stage);
    stage.vendor.refuses("POST /im/v1/files", 99_991_663);
    stage.vendor.answers("POST /im/v1/files", json!({ "file_key": "file_1" }));
    let media =
        |url: &str| json!({ "op": "send_media", "chat_id": "oc_1", "media_kind": "document", "source_url": url });
    let mut held = Vec::new();
    for owner in ["a", "a", "b", "b"] {
        held.push(stage.feishu.held_files.begin(owner).await.unwrap());
    }
    assert!(act(&stage, media("https://files.example/sized.bin")).await.success, "it is not held");
    let uploads = stage.vendor.calls("POST /im/v1/files");
    assert_eq!(uploads.len(), 2, "again with another token");
    assert!(uploads.iter().all(|it| it.body["file"]["content"] == "bytes"), "it is opened again");
    assert_ne!(uploads[0].bearer, uploads[1].bearer);
    let refused = act(&stage, media("https://files.example/a.bin")).await;
    assert_eq!((refused.code, refused.ambiguous), (Some(Code::RateLimited), false));
    assert!(refused.error.unwrap().contains("nothing was sent; try again later"));
    assert_eq!(stage.vendor.calls("POST /im/v1/files").len(), 2);
    drop(held);
    assert!(act(&stage, media("https://files.example/a.bin")).await.success);
}

#[tokio::test(start_paused = true)]
async fn a_draft_whose_card_may_be_sent_gets_no_other() {
    let draft = |content: &str, sealed: bool| json!({ "op": "draft", "chat_id": "oc_1", "draft_id": 5, "content": content, "final": sealed });
    for is_cut in [false, true] {
        let stage = stage();
        if is_cut {
            // The caller of the action is gone.
            stage.vendor.stalls(&["/im/v1/messages?"]);
            let action = act(&stage, draft("Hel", false));
            assert!(tokio::time::timeout(std::time::Duration::from_secs(25), action).await.is_err());
            stage.vendor.stalls(&[]);
        } else {
            stage.vendor.says(CREATE, 500, json!({ "code": 2, "msg": "x" }));
            assert!(act(&stage, draft("Hel", false)).await.ambiguous);
        }
        sends(&stage);
        let refused = act(&stage, draft("Hello", false)).await;
        assert_eq!((refused.code, refused.ambiguous), (Some(Code::Unavailable), false));
        assert_eq!(stage.vendor.calls(CREATE).len(), 1, "no second card");
        stage.vendor.answers.lock().unwrap().remove(CREATE);
        sends(&stage);
        assert_eq!(act(&stage, draft("Hello Ann", true)).await.message_id.as_deref(), Some("om_10"));
        let last = stage.vendor.calls(CREATE).pop().unwrap();
        assert_eq!((&last.body["msg_type"], last.content()), (&json!("text"), json!({ "text": "Hello Ann" })));
        assert!(act(&stage, draft("Hello", false)).await.success, "a late frame changes nothing");
        assert_eq!(stage.vendor.calls(CREATE).len(), 2);
    }
    // A card that was refused is not there, and the next frame makes one.
    let stage = stage();
    stage.vendor.refuses(CREATE, 230_002);
    assert_eq!(act(&stage, draft("Hel", false)).await.code, Some(Code::Forbidden));
    stage.vendor.answers.lock().unwrap().remove(CREATE);
    sends(&stage);
    assert!(act(&stage, draft("Hello", false)).await.success);
}

#[tokio::test]
async fn a_message_that_feishu_does_not_know_is_not_called_a_refusal() {
    let stage = stage();
    stage.vendor.answers("GET /im/v1/messages/om_9", json!({ "items": [] }));
    let edit = json!({ "op": "edit", "chat_id": "oc_1", "message_id": "om_9", "content": "x" });
    let absent = act(&stage, edit).await;
    assert_eq!(absent.code, Some(Code::NotFound));
    let text = absent.error.unwrap();
    assert!(text.contains("knows no message") && !text.contains("refused"), "{text}");
    let delete = json!({ "op": "delete", "chat_id": "oc_1", "message_id": "om_9" });
    assert!(act(&stage, delete).await.success, "it is gone already");
}

#[tokio::test]
async fn a_draft_is_a_card_that_its_final_text_completes() {
    let stage = stage();
    sends(&stage);
    stage.vendor.answers("PATCH /im/v1/messages/om_10", json!({}));
    stage.vendor.answers("DELETE /im/v1/messages/om_10", json!({}));
    let draft = |content: &str, sealed: bool| json!({ "op": "draft", "chat_id": "oc_1", "draft_id": 5, "content": content, "final": sealed });
    for text in ["", "Hel", "Hello", "Hello"] {
        assert!(act(&stage, draft(text, false)).await.success);
    }
    assert_eq!(stage.vendor.calls(CREATE)[0].body["msg_type"], "interactive");
    assert_eq!(stage.vendor.calls("PATCH /im/v1/messages/om_10").len(), 1, "only what changes is sent");
    let sent = act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "Hello **Ann**" })).await;
    assert_eq!(sent.message_id.as_deref(), Some("om_10"));
    assert_eq!(stage.vendor.calls(CREATE).len(), 1, "the card is the message");
    let card = stage.vendor.calls("PATCH /im/v1/messages/om_10").pop().unwrap().content();
    assert_eq!(card["elements"][0]["content"], "Hello **Ann**");
    assert!(act(&stage, draft("Hello again", false)).await.success, "a late frame");
    assert_eq!(stage.vendor.calls("PATCH /im/v1/messages/om_10").len(), 2);
    // Another message takes the place of the card, and the next frame makes a new one.
    let other = |content: &str, sealed: bool| json!({ "op": "draft", "chat_id": "oc_1", "draft_id": 6, "content": content, "final": sealed });
    assert!(act(&stage, other("Thinking", false)).await.success);
    assert!(act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "Something else" })).await.success);
    assert_eq!(stage.vendor.calls("DELETE /im/v1/messages/om_10").len(), 1);
    assert!(act(&stage, other("Thinking more", true)).await.success);
    assert_eq!(stage.vendor.calls(CREATE).len(), 4);
    assert!(act(&stage, json!({ "op": "send", "chat_id": "oc_1", "content": "Thinking more" })).await.success);
    assert_eq!(stage.vendor.calls(CREATE).len(), 5, "a sealed draft is a message of its own");
}

#[tokio::test]
async fn topics_are_begun() {
    let stage = stage();
    sends(&stage);
    stage.vendor.answers("POST /im/v1/messages/om_1/reply", json!({ "message_id": "om_11", "thread_id": "omt_1" }));
    let create =
        |id: Value| json!({ "op": "thread_create", "chat_id": "oc_1", "thread_name": "Plan", "message_id": id });
    let begun = act(&stage, create(json!("om_1"))).await;
    assert_eq!((begun.thread_id.as_deref(), begun.message_id.as_deref()), (Some("omt_1"), Some("om_11")));
    assert_eq!(act(&stage, create(Value::Null)).await.thread_id.as_deref(), Some("om_10"));
}

#[tokio::test]
async fn members_see_their_chats() {
    let stage = stage();
    let members = "GET /im/v1/chats/oc_group/members";
    let page = |ids: &[&str], next: &str| {
        let items: Vec<Value> = ids.iter().map(|id| json!({ "member_id": id })).collect();
        json!({ "items": items, "has_more": !next.is_empty(), "page_token": next })
    };
    stage.vendor.answers(members, page(&["bob"], "p2"));
    stage.vendor.answers(members, page(&["ann"], ""));
    let look = |chat: &'static str, viewer: &'static str| {
        let stage = &stage;
        async move {
            stage
                .feishu
                .look(ActingAs::new(&"home".into(), &stage.bot), &ChatId::from(chat), Some(&UserId::from(viewer)))
                .await
                .unwrap()
        }
    };
    assert_eq!(look("oc_group", "ann").await.unwrap().visible, Some(true));
    assert_eq!(look("oc_group", "eve").await.unwrap().visible, Some(false));
    assert!(stage.vendor.calls(members)[0].what.contains("member_id_type=user_id"));
    // A direct chat belongs to the user who wrote in it.
    let proof = frontdesk_core::intake::Verified::by("a test");
    stage.feishu.events(&stage.bot, proof, &said("oc_direct", "hi", json!({})), 0).await.unwrap();
    let direct = look("oc_direct", "ann").await.unwrap();
    assert_eq!(
        (direct.visible, direct.person.as_deref(), direct.info.chat_type.as_str()),
        (Some(true), Some("ann"), "dm")
    );
    assert_eq!(look("oc_direct", "eve").await.unwrap().visible, Some(false));
    stage.vendor.refuses("GET /im/v1/chats/oc_9", 232_011);
    assert!(look("oc_9", "ann").await.is_none());
    assert!(look("../x", "ann").await.is_none());
}

#[tokio::test]
async fn a_bot_is_inspected() {
    let stage = stage();
    let scopes = json!([{ "scope_name": "im:message:send_as_bot", "grant_status": 1 }, { "scope_name": "im:resource", "grant_status": 2 }]);
    stage.vendor.answers("GET /application/v6/scopes", json!({ "scopes": scopes }));
    let findings = stage.feishu.inspect(&stage.bot).await;
    let texts: Vec<&str> = findings.iter().map(|it| it.text.as_str()).collect();
    assert!(findings[0].ok && texts[0].contains("\"Desk\""), "{texts:?}");
    assert!(!findings[1].ok && texts[1].contains("im:resource") && texts[1].contains("im:message"), "{texts:?}");
    assert!(findings[2].ok && texts[2].contains("https://desk.example/feishu/fs"), "{texts:?}");
}
