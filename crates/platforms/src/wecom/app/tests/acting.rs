//! What goes out.

use frontdesk_wire::Code;

use super::*;

fn send(content: &str) -> Value {
    json!({ "op": "send", "chat_id": format!("{CORP}:ann"), "content": content })
}

fn error(code: i64) -> Answering {
    Answering::Json(200, json!({ "errcode": code, "errmsg": "no, hint: [1], from ip: 1.2.3.4" }))
}

#[tokio::test]
async fn a_text_goes_to_one_member() {
    let scene = Scene::new();
    let result = scene.act(send("**Done**: [x](https://a.example)")).await.result;
    assert_eq!((result.success, result.message_id.as_deref()), (true, Some("m2")), "{result:?}");
    let calls = scene.vendor.calls.lock().unwrap().clone();
    let [(token, _), (url, body)] = &calls[..] else { panic!("{calls:?}") };
    let wanted = format!("https://qyapi.weixin.qq.com/cgi-bin/gettoken?corpid={CORP}&corpsecret=the-secret-of-the-app");
    assert_eq!(*token, wanted);
    assert_eq!(url, "https://qyapi.weixin.qq.com/cgi-bin/message/send?access_token=token-1");
    let content = json!({ "content": "Done: x (https://a.example)" });
    assert_eq!(*body, json!({ "touser": "ann", "msgtype": "text", "agentid": 1_000_002, "text": content, "safe": 0 }));
}

#[tokio::test]
async fn a_chat_is_with_one_member_of_this_company() {
    let scene = Scene::new();
    for chat_id in ["ww-other:ann", "ann|ben", "@all", "", &format!("{CORP}:@all"), &format!("{CORP}:a:b"), "a b"] {
        let result = scene.act(json!({ "op": "send", "chat_id": chat_id, "content": "x" })).await.result;
        assert_eq!(result.code, Some(Code::BadRequest), "{chat_id}");
    }
    assert!(scene.vendor.calls.lock().unwrap().is_empty(), "nothing was asked");
    for chat_id in ["ann", "ann.b-c_d@corp.example"] {
        assert!(
            scene.act(json!({ "op": "send", "chat_id": chat_id, "content": "x" })).await.result.success,
            "{chat_id}"
        );
    }
    for (content, code) in [(" ", Code::BadRequest), (&*"你".repeat(700), Code::TooLarge)] {
        assert_eq!(scene.act(send(content)).await.result.code, Some(code));
    }
}

#[tokio::test]
async fn the_token_is_asked_for_once_and_again_when_it_is_refused() {
    let scene = Scene::new();
    let all = futures_util::future::join_all((0..20).map(|_| scene.act(send("x")))).await;
    assert!(all.iter().all(|acted| acted.result.success));
    assert_eq!(*scene.vendor.tokens.lock().unwrap(), 1);
    for code in [40_014, 42_001, 41_001, 40_001] {
        scene.vendor.answers("message/send", error(code));
        assert!(scene.act(send("x")).await.result.success, "{code}");
    }
    assert_eq!(*scene.vendor.tokens.lock().unwrap(), 5);
    scene.vendor.answers("message/send", error(42_001));
    scene.vendor.answers("message/send", error(42_001));
    let result = scene.act(send("x")).await.result;
    assert_eq!(
        (result.success, result.ambiguous),
        (false, false),
        "it is tried once more, and not for ever: {result:?}"
    );
    scene.env.advance_ms(7_000_000);
    assert!(scene.act(send("x")).await.result.success);
    assert_eq!(*scene.vendor.tokens.lock().unwrap(), 7, "before it expires there is a new one");
}

#[tokio::test]
async fn failures_are_what_they_are() {
    let scene = Scene::new();
    for (path, answer, code, ambiguous, expected) in [
        ("gettoken", error(40_001), Code::PlatformFailed, false, "secret"),
        ("gettoken", error(40_013), Code::PlatformFailed, false, "corp_id"),
        ("gettoken", Answering::Lost, Code::Unavailable, false, "network"),
        ("gettoken", Answering::Json(502, json!(1)), Code::Unavailable, false, "network"),
        ("gettoken", Answering::Json(200, json!({ "errcode": 0 })), Code::Unavailable, false, "access_token"),
        ("message/send", error(60_020), Code::Forbidden, false, "Trusted IPs"),
        ("message/send", error(81_013), Code::NotFound, false, "visible range"),
        ("message/send", error(45_009), Code::RateLimited, false, "network"),
        ("message/send", error(48_002), Code::Forbidden, false, "may not use"),
        ("message/send", error(40_056), Code::PlatformFailed, false, "agent_id"),
        ("message/send", error(-1), Code::Unavailable, false, "network"),
        ("message/send", Answering::Lost, Code::Unknown, true, "timed out"),
        ("message/send", Answering::NotSent, Code::Unavailable, false, "network"),
        ("message/send", Answering::Json(500, json!({})), Code::Unknown, true, "timed out"),
        ("message/send", Answering::Json(403, json!({})), Code::PlatformFailed, false, "403"),
    ] {
        scene.vendor.answers(path, answer);
        let acted = scene.act(send("x")).await;
        let text = acted.result.error.unwrap();
        assert_eq!((acted.result.code, acted.result.ambiguous), (Some(code), ambiguous), "{text}");
        assert!(text.contains(expected) && !text.contains("1.2.3.4") && !text.contains("the-secret"), "{text}");
        assert_eq!(acted.pace.retry_after_ms.is_some(), code == Code::RateLimited);
        scene.env.advance_ms(7_200_000);
    }
}

#[tokio::test]
async fn a_success_that_reached_nobody_is_a_failure() {
    let scene = Scene::new();
    for (field, code, expected) in
        [("invaliduser", Code::NotFound, "visible range"), ("unlicenseduser", Code::Forbidden, "license")]
    {
        let answer = json!({ "errcode": 0, "errmsg": "ok", field: "ann", "msgid": "m" });
        scene.vendor.answers("message/send", Answering::Json(200, answer));
        let result = scene.act(send("x")).await.result;
        let text = result.error.unwrap();
        assert_eq!((result.success, result.code), (false, Some(code)));
        assert!(text.contains(expected) && text.contains("ann"), "{text}");
    }
}

#[tokio::test]
async fn a_file_is_uploaded_and_then_sent_with_its_caption_behind_it() {
    let scene = Scene::new();
    let media = json!({ "op": "send_media", "chat_id": format!("{CORP}:ann"), "media_kind": "image",
        "source_url": "https://files.example/a.png", "content": "look", "filename": "a.png" });
    scene.vendor.answers("media/upload", error(42_001));
    let result = scene.act(media.clone()).await.result;
    assert!(result.success, "{result:?}");
    let uploads = scene.vendor.to("media/upload");
    assert_eq!(uploads.len(), 2, "with another token the file is sent again");
    assert!(uploads[1].0.ends_with("?access_token=token-2&type=image"), "{}", uploads[1].0);
    assert_eq!(uploads[1].1, json!(["media", "a.png", "image/png", "a picture"]));
    let sent: Vec<Value> = scene.vendor.to("message/send").into_iter().map(|(_, body)| body).collect();
    assert_eq!((&sent[0]["image"], &sent[0]["msgtype"]), (&json!({ "media_id": "media-1" }), &json!("image")));
    assert_eq!(sent[1]["text"]["content"], "look");
    scene.vendor.answers("media/upload", Answering::Lost);
    let result = scene.act(media.clone()).await.result;
    assert_eq!((result.code, result.ambiguous), (Some(Code::Unavailable), false), "an upload is no message");
    let ok = Answering::Json(200, json!({ "errcode": 0, "msgid": "first" }));
    scene.vendor.answers("message/send", ok);
    scene.vendor.answers("message/send", error(45_009));
    let result = scene.act(media).await.result;
    assert_eq!((result.code, result.message_id.as_deref()), (Some(Code::Partial), Some("first")), "{result:?}");
    assert!(result.error.unwrap().contains("the file went out"));
}

#[tokio::test]
async fn files_of_members_are_fetched_by_their_id() {
    let scene = Scene::new();
    let handle = Secret::new("MEDIA/id");
    let media = scene.app.fetch_media(&scene.bot, &handle).await.ok().unwrap();
    assert_eq!(media.mime, "image/png");
    assert!(scene.vendor.to("media/get")[0].0.ends_with("?access_token=token-1&media_id=MEDIA%2Fid"));
    scene.vendor.answers("media/get", error(42_001));
    assert!(scene.app.fetch_media(&scene.bot, &handle).await.is_ok(), "with another token");
    scene.vendor.answers("media/get", error(40_007));
    let fault = scene.app.fetch_media(&scene.bot, &handle).await.err().unwrap();
    assert!(matches!(&fault, MediaFault::Gone(why) if why.contains("three days")), "{fault}");
    scene.vendor.answers("media/get", Answering::Lost);
    assert!(matches!(scene.app.fetch_media(&scene.bot, &handle).await.err(), Some(MediaFault::Unavailable(_))));
}

#[tokio::test]
async fn a_bot_is_inspected() {
    let scene = Scene::new();
    let shown = async || -> Vec<(bool, String)> {
        scene.app.inspect(&scene.bot).await.into_iter().map(|it| (it.ok, it.text)).collect()
    };
    let all = shown().await;
    assert!(all.iter().all(|(ok, _)| *ok) && all[1].1.contains("Helper"), "{all:?}");
    assert!(all[2].1.contains("https://desk.example/wecom/wc"), "{all:?}");
    for (path, answer, at, expected) in [
        ("agent/get", error(60_020), 1, "Trusted IPs"),
        ("agent/get", Answering::Json(200, json!({ "errcode": 0, "name": "H", "close": 1 })), 1, "disabled"),
        ("agent/get", error(301_002), 1, "agent_id"),
    ] {
        scene.vendor.answers(path, answer);
        let all = shown().await;
        assert!(!all[at].0 && all[at].1.contains(expected), "{all:?}");
    }
    let scene = Scene::new();
    scene.vendor.answers("gettoken", error(40_013));
    let all = scene.app.inspect(&scene.bot).await;
    assert!(!all[0].ok && all[0].text.contains("corp_id"), "{all:?}");
    scene.vendor.answers("gettoken", error(40_001));
    let ended = scene.app.check_credentials(&scene.bot).await;
    assert!(matches!(&ended, ListenEnd::Misconfigured(why) if why.contains("secret")), "{ended:?}");
    scene.vendor.answers("gettoken", Answering::Lost);
    assert!(matches!(scene.app.check_credentials(&scene.bot).await, ListenEnd::Lost(_)));
    assert_eq!(scene.app.check_credentials(&scene.bot).await, ListenEnd::Never);
}
