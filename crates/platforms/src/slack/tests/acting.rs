//! What agents do, as calls that Slack gets.

use frontdesk_core::port::outcall::HttpAnswer;
use frontdesk_core::port::platform::{Acted, ActingAs, LookFault, MediaFault, Platform as _};
use frontdesk_wire::{Action, Code, Secret, TenantId, UserId};
use futures_util::StreamExt as _;
use serde_json::{Value, json};

use super::{Stage, stage, stage_with};

async fn act_with(stage: &Stage, mut action: Value, capability: Option<&Secret>) -> Acted {
    if action.get("chat_id").is_none() {
        action["chat_id"] = "C1".into();
    }
    let action = Action::parse(&action.to_string()).unwrap();
    stage.slack.act(ActingAs::new(&"home".into(), &stage.bot), &action, capability).await
}

async fn act(stage: &Stage, action: Value) -> Acted {
    act_with(stage, action, None).await
}

fn posted(stage: &Stage) {
    stage.vendor.answers("chat.postMessage", json!({ "ok": true, "channel": "C1", "ts": "1700000000.000300" }));
}

#[tokio::test]
async fn a_message_goes_into_the_thread_that_is_named_and_never_by_a_reply_alone() {
    let stage = stage();
    posted(&stage);
    let sent = act(&stage, json!({ "op": "send", "content": "**hi** <@U1>", "reply_to": "1700000000.000100" })).await;
    assert_eq!(sent.result.message_id.as_deref(), Some("1700000000.000300"));
    let metadata = json!({ "thread_id": "1699999999.000001", "unfurl_links": false, "unfurl_media": "x" });
    act(&stage, json!({ "op": "send", "content": "hi", "metadata": metadata })).await;
    let calls = stage.vendor.calls("chat.postMessage");
    assert_eq!(calls[0].body, json!({ "channel": "C1", "text": "*hi* <@U1>" }));
    let expected = json!({ "channel": "C1", "text": "hi", "thread_ts": "1699999999.000001", "unfurl_links": false });
    assert_eq!(calls[1].body, expected);
    assert_eq!(calls[0].bearer.as_deref(), Some("xoxb-1-2-abc"));
    for odd in [json!({ "thread_id": "general" }), json!({ "thread_ts": "1/2" })] {
        let refused = act(&stage, json!({ "op": "send", "content": "x", "metadata": odd })).await.result;
        assert_eq!(refused.code, Some(Code::BadRequest));
    }
    let refused = act(&stage, json!({ "op": "send", "chat_id": "#general", "content": "x" })).await.result;
    assert!(refused.error.unwrap().contains("not an id"));
    assert_eq!(act(&stage, json!({ "op": "send", "content": " \n" })).await.result.code, Some(Code::BadRequest));
    assert_eq!(
        act(&stage, json!({ "op": "send", "content": "x".repeat(40_000) })).await.result.code,
        Some(Code::TooLarge)
    );
}

#[tokio::test]
async fn blocks_are_sent_where_they_are_asked_for_and_left_out_if_refused() {
    let stage = stage();
    stage.vendor.answers("chat.postMessage", json!({ "ok": false, "error": "invalid_blocks" }));
    posted(&stage);
    let metadata = json!({ "format_hints": { "blocks": true } });
    let sent = act(&stage, json!({ "op": "send", "content": "| a |\n|---|\n| b |", "metadata": metadata })).await;
    assert!(sent.result.success);
    let calls = stage.vendor.calls("chat.postMessage");
    assert_eq!(calls[0].body["blocks"][0], json!({ "type": "markdown", "text": "| a |\n|---|\n| b |" }));
    assert_eq!((&calls[1].body["blocks"], calls.len()), (&json!([]), 2));
    let long = json!({ "op": "send", "content": "x".repeat(13_000), "metadata": { "format_hints": ["blocks"] } });
    act(&stage, long).await;
    assert!(stage.vendor.calls("chat.postMessage")[2].body.get("blocks").is_none(), "too long for a block");
}

#[tokio::test]
async fn messages_are_changed_and_deleted_and_what_is_gone_is_deleted() {
    let stage = stage();
    stage.vendor.answers("chat.update", json!({ "ok": true, "ts": "1700000000.000300" }));
    stage.vendor.answers("chat.delete", json!({ "ok": false, "error": "message_not_found" }));
    let edit = act(&stage, json!({ "op": "edit", "message_id": "1700000000.000300", "content": "new" })).await;
    assert_eq!(edit.result.message_id.as_deref(), Some("1700000000.000300"));
    let body = &stage.vendor.calls("chat.update")[0].body;
    assert_eq!(*body, json!({ "channel": "C1", "ts": "1700000000.000300", "text": "new", "blocks": [] }));
    assert!(act(&stage, json!({ "op": "delete", "message_id": "1700000000.000300" })).await.result.success);
    let refused = act(&stage, json!({ "op": "edit", "message_id": "press-x", "content": "new" })).await.result;
    assert!(refused.error.unwrap().contains("1700000000.000100"));
}

#[tokio::test]
async fn reactions_have_names_and_repeating_them_succeeds() {
    let stage = stage();
    stage.vendor.answers("reactions.add", json!({ "ok": false, "error": "already_reacted" }));
    stage.vendor.answers("reactions.remove", json!({ "ok": false, "error": "no_reaction" }));
    let react = |remove: bool| json!({ "op": "react", "message_id": "1.2", "emoji": "👀", "remove": remove });
    assert!(act(&stage, react(false)).await.result.success && act(&stage, react(true)).await.result.success);
    let body = &stage.vendor.calls("reactions.add")[0].body;
    assert_eq!(*body, json!({ "channel": "C1", "timestamp": "1.2", "name": "eyes" }));
    let unknown = act(&stage, json!({ "op": "react", "message_id": "1.2", "emoji": "🫠" })).await.result;
    assert_eq!(unknown.code, Some(Code::BadRequest));
}

#[tokio::test]
async fn the_status_line_is_shown_in_threads_and_cleared_by_an_empty_text() {
    let stage = stage();
    stage.vendor.answers("assistant.threads.setStatus", json!({ "ok": true }));
    let thread = json!({ "thread_id": "1.2" });
    for (content, status) in [(Value::Null, "is typing..."), (json!(""), ""), (json!("reads mail"), "reads mail")] {
        let typing = json!({ "op": "typing", "content": content, "metadata": thread });
        assert!(act(&stage, typing).await.result.success);
        let body = stage.vendor.calls("assistant.threads.setStatus").pop().unwrap().body;
        assert_eq!(body, json!({ "channel_id": "C1", "thread_ts": "1.2", "status": status }));
    }
    let refused = act(&stage, json!({ "op": "typing" })).await.result;
    assert_eq!(refused.code, Some(Code::UnsupportedOp));
}

#[tokio::test]
async fn a_draft_is_one_message_that_changes() {
    let stage = stage();
    posted(&stage);
    stage.vendor.answers("chat.update", json!({ "ok": true, "ts": "1700000000.000300" }));
    let frame = |text: &str, sealed: bool| json!({ "op": "draft", "draft_id": 7, "content": text, "final": sealed });
    assert!(act(&stage, frame("", false)).await.result.success, "nothing to show yet");
    for text in ["He", "Hello", "Hello"] {
        assert!(act(&stage, frame(text, false)).await.result.success);
    }
    let last = act(&stage, frame("Hello **Ann**", true)).await.result;
    assert_eq!(last.message_id.as_deref(), Some("1700000000.000300"));
    assert_eq!(stage.vendor.calls("chat.postMessage").len(), 1);
    let updates: Vec<Value> = stage.vendor.calls("chat.update").iter().map(|it| it.body["text"].clone()).collect();
    assert_eq!(updates, [json!("Hello"), json!("Hello *Ann*")], "the same text is not sent again");
    let again = act(&stage, frame("Hello **Ann**", true)).await.result;
    assert_eq!((again.message_id, stage.vendor.calls("chat.update").len()), (last.message_id, 2));
    let other = json!({ "op": "draft", "draft_id": 7, "content": "x", "metadata": { "thread_id": "1.2" } });
    act(&stage, other).await;
    assert_eq!(stage.vendor.calls("chat.postMessage").len(), 2, "another thread is another message");
    assert!(act(&stage, frame("Hell", false)).await.result.success, "a late frame changes nothing");
    assert_eq!(stage.vendor.calls("chat.update").len(), 2);
    act(&stage, frame("Good morning", true)).await;
    let last = stage.vendor.calls("chat.postMessage").pop().unwrap().body;
    assert_eq!(last["text"], "Good morning", "an agent that started again counts its drafts from the beginning");
}

#[tokio::test]
async fn drafts_of_two_tenants_in_one_chat_are_two_messages() {
    let stage = stage();
    posted(&stage);
    let frame = json!({ "op": "draft", "chat_id": "C1", "draft_id": 7, "content": "Hello" });
    let action = Action::parse(&frame.to_string()).unwrap();
    for tenant in ["home", "other"] {
        assert!(
            stage.slack.act(ActingAs::new(&TenantId::from(tenant), &stage.bot), &action, None).await.result.success
        );
    }
    assert_eq!(stage.vendor.calls("chat.postMessage").len(), 2);
    assert!(stage.vendor.calls("chat.update").is_empty());
}

#[tokio::test]
async fn a_draft_whose_message_may_be_sent_gets_no_other() {
    let stage = stage();
    let frame = |text: &str, sealed: bool| json!({ "op": "draft", "draft_id": 7, "content": text, "final": sealed });
    stage.vendor.answers_with("chat.postMessage", HttpAnswer::of(500));
    posted(&stage);
    assert!(act(&stage, frame("Hel", false)).await.result.ambiguous);
    let refused = act(&stage, frame("Hello", false)).await.result;
    assert_eq!((refused.code, refused.ambiguous), (Some(Code::Unavailable), false));
    assert_eq!(stage.vendor.calls("chat.postMessage").len(), 1, "no second message");
    assert!(act(&stage, frame("Hello Ann", true)).await.result.success);
    assert_eq!(stage.vendor.calls("chat.postMessage").pop().unwrap().body["text"], "Hello Ann");
}

#[tokio::test]
async fn the_rest_of_a_long_draft_follows() {
    let stage = stage();
    posted(&stage);
    stage.vendor.answers("chat.postMessage", json!({ "ok": false, "error": "is_archived" }));
    let text = "word ".repeat(12_000);
    let sealed = act(&stage, json!({ "op": "draft", "draft_id": "a", "content": text, "final": true })).await.result;
    assert_eq!((sealed.code, sealed.message_id.as_deref()), (Some(Code::Partial), Some("1700000000.000300")));
    assert!(sealed.error.unwrap().contains("1 of 2 parts went out"));
}

#[tokio::test]
async fn a_prompt_has_buttons_and_a_thread_begins_with_a_message() {
    let stage = stage();
    posted(&stage);
    let options = json!([{ "id": "y", "label": "Yes", "style": "primary" }, { "id": "n", "label": "No" }]);
    let prompt = json!({ "op": "prompt", "prompt_id": "p", "content": "Sure?", "options": options });
    assert!(act(&stage, prompt).await.result.success);
    let body = &stage.vendor.calls("chat.postMessage")[0].body;
    assert_eq!((&body["text"], &body["blocks"][1]["elements"][0]["value"]), (&json!("Sure?"), &json!("hp1:p:y")));
    let made = act(&stage, json!({ "op": "thread_create", "thread_name": "Plans <b>" })).await.result;
    assert_eq!(made.thread_id.as_deref(), Some("1700000000.000300"));
    assert_eq!(stage.vendor.calls("chat.postMessage")[1].body["text"], "Plans &lt;b&gt;");
    stage.vendor.answers("conversations.replies", json!({ "ok": true, "messages": [{}] }));
    stage.vendor.answers("conversations.replies", json!({ "ok": false, "error": "thread_not_found" }));
    let at = |ts: &str| json!({ "op": "thread_create", "thread_name": "x", "message_id": ts });
    assert_eq!(act(&stage, at("1.2")).await.result.thread_id.as_deref(), Some("1.2"));
    assert_eq!(act(&stage, at("1.3")).await.result.code, Some(Code::NotFound));
}

#[tokio::test]
async fn a_command_is_answered_where_the_app_is_no_member() {
    let stage = stage();
    let address = Secret::new("https://hooks.slack.com/commands/T1/2/secret");
    posted(&stage);
    assert!(
        act_with(&stage, json!({ "op": "send", "content": "x" }), Some(&address)).await.result.message_id.is_some()
    );
    let stage = super::stage();
    stage.vendor.answers("chat.postMessage", json!({ "ok": false, "error": "not_in_channel" }));
    stage.vendor.answers("secret", json!("ok"));
    let sent = act_with(&stage, json!({ "op": "send", "content": "**x**" }), Some(&address)).await.result;
    assert!(sent.success && sent.message_id.is_none());
    let body = &stage.vendor.calls("secret")[0].body;
    assert_eq!(*body, json!({ "response_type": "in_channel", "replace_original": false, "text": "*x*" }));
    let alone = act(&stage, json!({ "op": "send", "content": "x" })).await.result;
    assert_eq!(alone.code, Some(Code::Forbidden));
    assert!(alone.error.unwrap().contains("/invite"));
    stage.vendor.answers_with("secret", HttpAnswer::of(404));
    let follow_up = json!({ "op": "follow_up", "session_key": "s", "kind": "slack.response_url", "content": "x" });
    assert!(act_with(&stage, follow_up.clone(), Some(&address)).await.result.success);
    let late = act_with(&stage, follow_up.clone(), Some(&address)).await.result;
    assert_eq!(late.code, Some(Code::CapabilityUnavailable));
    assert!(late.error.unwrap().contains("30 minutes"));
    let foreign = Secret::new("https://evil.example/x");
    assert_eq!(act_with(&stage, follow_up, Some(&foreign)).await.result.code, Some(Code::CapabilityUnavailable));
}

#[tokio::test]
async fn a_file_is_uploaded_and_then_shown() {
    let stage = stage();
    let pdf = |length: bool| {
        let mut headers = vec![("content-type".to_owned(), "application/pdf".to_owned())];
        headers.extend(length.then(|| ("content-length".to_owned(), "5".to_owned())));
        HttpAnswer { headers, body: b"bytes".to_vec(), ..HttpAnswer::of(200) }
    };
    stage.vendor.answers_with("a.pdf", pdf(true));
    stage.vendor.answers_with("a.pdf", pdf(false));
    let place = json!({ "ok": true, "upload_url": "https://files.slack.com/upload/v1/ticket", "file_id": "F1" });
    stage.vendor.answers("files.getUploadURLExternal", place);
    stage.vendor.answers_with("ticket", HttpAnswer::of(200));
    stage.vendor.answers("files.completeUploadExternal", json!({ "ok": true, "files": [{ "id": "F1" }] }));
    let shares = json!({ "private": { "C1": [{ "ts": "1700000000.000400" }] } });
    stage.vendor.answers("files.info", json!({ "ok": true, "file": { "id": "F1", "shares": shares } }));
    let media = json!({
        "op": "send_media", "media_kind": "document", "source_url": "https://files.example/a.pdf", "content": "**see**",
        "filename": "plan.pdf", "metadata": { "thread_id": "1.2" },
    });
    for _ in 0..2 {
        let sent = act(&stage, media.clone()).await.result;
        assert_eq!((sent.success, sent.message_id.as_deref()), (true, Some("1700000000.000400")), "{:?}", sent.error);
    }
    let asked = &stage.vendor.calls("files.getUploadURLExternal")[1].body;
    assert_eq!(*asked, json!({ "filename": "plan.pdf", "length": "5" }), "a file of unknown length is read first");
    let upload = &stage.vendor.calls("ticket")[0];
    assert_eq!((upload.bearer.as_deref(), &upload.body), (None, &json!("bytes")));
    let done = &stage.vendor.calls("files.completeUploadExternal")[0].body;
    let expected = json!({
        "files": [{ "id": "F1", "title": "plan.pdf" }], "channel_id": "C1", "thread_ts": "1.2", "initial_comment": "*see*",
    });
    assert_eq!(*done, expected);
}

#[tokio::test]
async fn a_file_that_does_not_get_there_is_not_claimed() {
    let stage = stage();
    stage.vendor.answers_with("a", HttpAnswer { body: b"x".to_vec(), ..HttpAnswer::of(200) });
    let media = json!({ "op": "send_media", "media_kind": "image", "source_url": "https://files.example/a" });
    let place = |url: &str| json!({ "ok": true, "upload_url": url, "file_id": "F1" });
    stage.vendor.answers("files.getUploadURLExternal", place("https://evil.example/upload"));
    stage.vendor.answers("files.getUploadURLExternal", place("https://files.slack.com/ticket"));
    let elsewhere = act(&stage, media.clone()).await.result;
    assert_eq!((elsewhere.code, elsewhere.ambiguous), (Some(Code::Unavailable), false));
    stage.vendor.answers_with("ticket", HttpAnswer::of(500));
    let failed = act(&stage, media.clone()).await.result;
    assert_eq!((failed.code, failed.ambiguous), (Some(Code::Unavailable), false), "nobody sees an upload");
    stage.vendor.answers_with("ticket", HttpAnswer::of(200));
    stage.vendor.answers_with("files.completeUploadExternal", HttpAnswer::of(502));
    let _ = act(&stage, media.clone()).await;
    let unknown = act(&stage, media).await.result;
    assert_eq!((unknown.code, unknown.ambiguous), (Some(Code::Unknown), true));
}

async fn fetched(stage: &Stage, handle: &str) -> Result<(String, Vec<u8>), MediaFault> {
    let mut media = stage.slack.fetch_media(&stage.bot, &Secret::new(handle)).await?;
    let mut whole = Vec::new();
    while let Some(piece) = media.body.next().await {
        whole.extend_from_slice(&piece.unwrap());
    }
    Ok((media.mime, whole))
}

#[tokio::test]
async fn files_are_fetched_with_the_token_and_only_from_slack() {
    let stage = stage();
    let file = |url: &str, mime: &str| json!({ "ok": true, "file": { "url_private_download": url, "mimetype": mime } });
    let png = |mime: &str| HttpAnswer {
        headers: vec![("content-type".into(), mime.into())],
        body: b"png".to_vec(),
        ..HttpAnswer::of(200)
    };
    stage.vendor.answers("files.info", file("https://files.slack.com/files-pri/a.png", "image/png"));
    stage.vendor.answers("files.info", file("https://files.slack.com/files-pri/a.png", "image/png"));
    stage.vendor.answers("files.info", file("https://evil.example/a.png", "image/png"));
    stage.vendor.answers("files.info", json!({ "ok": false, "error": "file_deleted" }));
    stage.vendor.answers_with("a.png", png("image/png"));
    stage.vendor.answers_with("a.png", png("text/html; charset=utf-8"));
    assert_eq!(fetched(&stage, "T1/F1").await.unwrap(), ("image/png".to_owned(), b"png".to_vec()));
    assert_eq!(stage.vendor.calls("a.png")[0].bearer.as_deref(), Some("xoxb-1-2-abc"));
    assert!(matches!(fetched(&stage, "T1/F1").await, Err(MediaFault::Unavailable(why)) if why.contains("files:read")));
    assert!(matches!(fetched(&stage, "T1/F1").await, Err(MediaFault::Gone(_))));
    assert_eq!(stage.vendor.calls("a.png").len(), 2, "the token went nowhere else");
    assert!(matches!(fetched(&stage, "T1/F1").await, Err(MediaFault::Gone(why)) if why.contains("file_deleted")));
    for odd in ["", "F1", "T1/../x"] {
        assert!(matches!(fetched(&stage, odd).await, Err(MediaFault::Gone(_))), "{odd}");
    }
}

#[tokio::test]
async fn each_workspace_is_served_with_its_own_token() {
    let stage = stage_with(&[("client_id", "1.2")], &[("workspace:T2", "xoxb-two"), ("workspace:T3", "xoxb-three")]);
    posted(&stage);
    stage.vendor.answers("conversations.info", json!({ "ok": false, "error": "channel_not_found" }));
    stage.vendor.answers("conversations.info", json!({ "ok": true, "channel": { "id": "C1" } }));
    let scoped = json!({ "op": "send", "content": "x", "chat_id": "C2", "metadata": { "scope_id": "T2" } });
    act(&stage, scoped).await;
    act(&stage, json!({ "op": "send", "content": "x" })).await;
    act(&stage, json!({ "op": "send", "content": "x" })).await;
    let tokens: Vec<_> = stage.vendor.calls("chat.postMessage").into_iter().filter_map(|it| it.bearer).collect();
    assert_eq!(tokens, ["xoxb-two", "xoxb-three", "xoxb-three"]);
    assert_eq!(stage.vendor.calls("conversations.info").len(), 2, "looked for once");
    let foreign = json!({ "op": "send", "content": "x", "chat_id": "C9", "metadata": { "scope_id": "T9" } });
    stage.vendor.answers("conversations.info", json!({ "ok": false, "error": "channel_not_found" }));
    act(&stage, json!({ "op": "send", "content": "x", "chat_id": "C8" })).await;
    let refused = act(&stage, foreign).await.result;
    assert_eq!(refused.code, Some(Code::NotFound));
    let empty = stage_with(&[("client_id", "1.2")], &[("client_secret", "x")]);
    let refused = act(&empty, json!({ "op": "send", "content": "x" })).await.result;
    assert!(refused.error.unwrap().contains("no workspace has installed"));
}

async fn sees(stage: &Stage, viewer: &str) -> Option<bool> {
    let looked =
        stage.slack.look(ActingAs::new(&"home".into(), &stage.bot), &"C1".into(), Some(&UserId::from(viewer))).await;
    looked.ok().unwrap().unwrap().visible
}

#[tokio::test]
async fn who_sees_a_chat_is_what_slack_tells() {
    let channel = |more: Value| {
        let stage = stage();
        let mut channel = json!({ "id": "C1", "name": "general" });
        channel.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        stage.vendor.answers("conversations.info", json!({ "ok": true, "channel": channel }));
        let page = json!({ "ok": true, "members": ["UBEN"], "response_metadata": { "next_cursor": "n" } });
        stage.vendor.answers("conversations.members", page);
        stage.vendor.answers("conversations.members", json!({ "ok": true, "members": ["UANN"] }));
        stage
    };
    let direct = channel(json!({ "is_im": true, "user": "UANN" }));
    assert_eq!((sees(&direct, "UANN").await, sees(&direct, "UBEN").await), (Some(true), Some(false)));
    let look =
        direct.slack.look(ActingAs::new(&"home".into(), &direct.bot), &"C1".into(), None).await.ok().unwrap().unwrap();
    assert_eq!((look.person.as_deref(), look.info.chat_type.as_str()), (Some("UANN"), "dm"));
    assert_eq!(look.scope_id.as_deref(), Some("T1"));
    let private = channel(json!({ "is_private": true }));
    assert_eq!((sees(&private, "UANN").await, sees(&private, "UEVE").await), (Some(true), Some(false)));
    assert_eq!(private.vendor.calls("conversations.members")[1].body["cursor"], "n");
    for (user, seen) in [
        (json!({ "is_restricted": false }), true),
        (json!({ "is_restricted": true }), false),
        (json!({ "is_restricted": false, "is_stranger": true }), false),
        (json!({ "is_restricted": false, "deleted": true }), false),
        (json!({}), false),
    ] {
        let public = channel(json!({}));
        public.vendor.answers("users.info", json!({ "ok": true, "user": user }));
        let _ = public.slack.name_of(&public.bot, "T1", "UANN").await; // the first answer is used up
        assert_eq!(sees(&public, "UEVE").await, Some(seen), "{user}");
    }
    let silent = stage();
    silent.vendor.answers_with("conversations.info", HttpAnswer::of(502));
    let looked =
        silent.slack.look(ActingAs::new(&"home".into(), &silent.bot), &"C1".into(), Some(&"UANN".into())).await;
    assert!(matches!(looked, Err(LookFault::Platform(_))));
    let absent = stage();
    absent.vendor.answers("conversations.info", json!({ "ok": false, "error": "channel_not_found" }));
    assert!(
        absent.slack.look(ActingAs::new(&"home".into(), &absent.bot), &"C1".into(), None).await.ok().unwrap().is_none()
    );
}

#[tokio::test]
async fn a_check_tells_what_is_missing() {
    let stage = stage();
    stage.vendor.answers("apps.connections.open", json!({ "ok": false, "error": "invalid_auth" }));
    let found = stage.slack.inspect(&stage.bot).await;
    assert!(found.iter().any(|it| it.check == "token" && it.ok && it.text.contains("@desk in One (T1)")), "{found:?}");
    assert!(found.iter().any(|it| it.check == "events" && !it.ok && it.text.contains("invalid_auth")), "{found:?}");
    let scoped = HttpAnswer {
        headers: vec![("x-oauth-scopes".into(), "chat:write,channels:history".into())],
        body: json!({ "ok": true, "user": "desk", "team": "One", "team_id": "T1" }).to_string().into_bytes(),
        ..HttpAnswer::of(200)
    };
    stage.vendor.answers_with("auth.test", scoped);
    stage.slack.inspect(&stage.bot).await;
    let found = stage.slack.inspect(&stage.bot).await;
    assert!(found.iter().any(|it| it.check == "scopes" && !it.ok && it.text.contains("files:read")), "{found:?}");
}

#[tokio::test]
async fn a_limit_is_that_of_its_kind() {
    let stage = stage();
    let limited = HttpAnswer { headers: vec![("retry-after".into(), "3".into())], ..HttpAnswer::of(429) };
    stage.vendor.answers_with("chat.postMessage", limited.clone());
    stage.vendor.answers_with("chat.update", limited);
    let sent = act(&stage, json!({ "op": "send", "content": "x" })).await;
    assert_eq!((sent.pace.retry_after_ms, sent.pace.bucket.as_deref()), (Some(3_000), Some("chat:C1")));
    let edit = act(&stage, json!({ "op": "edit", "message_id": "1.2", "content": "x" })).await;
    assert_eq!(edit.pace.bucket.as_deref(), Some("edit"));
}
