//! What goes out over the socket.

use base64::Engine as _;
use frontdesk_wire::{ChatId, Code, TenantId};

use super::*;

fn send(chat: &str, content: &str) -> Value {
    json!({ "op": "send", "chat_id": chat, "content": content })
}

/// A scene with an open socket in which Ann has written in a group and alone.
async fn on_stage<F: Future<Output = ()>>(play: impl FnOnce(Arc<Scene>, Far) -> F) {
    let (scene, (store, mut taken)) = (Arc::new(Scene::new()), Store::new());
    let mut far = scene.vendor.socket();
    let run = async {
        far.accept().await;
        for (id, req_id, chat) in [("g1", "rg1", Some("group")), ("g2", "rg2", Some("group")), ("d1", "rd1", None)] {
            let mut more = text("hello");
            if let Some(chat) = chat {
                (more["chatid"], more["chattype"]) = (chat.into(), "group".into());
            }
            far.said(id, req_id, more);
            taken.recv().await.unwrap();
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        play(scene.clone(), far).await;
    };
    tokio::select! {
        ended = scene.listen(&store) => panic!("{ended:?}"),
        () = run => {}
    }
}

/// The results of an action, whose frames get these answers.
async fn acted(scene: &Scene, far: &mut Far, action: Value, answers: &[i64]) -> (Acted, Vec<Value>) {
    let answering = async {
        let mut frames = Vec::new();
        for code in answers {
            let frame = far.next().await;
            far.answer(&frame, *code, json!({ "upload_id": "u1", "media_id": "m1" }));
            frames.push(frame);
        }
        frames
    };
    tokio::join!(scene.act(action), answering)
}

#[tokio::test(start_paused = true)]
async fn answers_are_replies_and_else_messages() {
    on_stage(async |scene, mut far| {
        let markdown = |content: &str| json!({ "msgtype": "markdown", "markdown": { "content": content } });
        let mut reply = send("group", "to the first");
        reply["reply_to"] = "g1".into();
        let (first, frames) = acted(&scene, &mut far, reply, &[0]).await;
        assert_eq!((first.result.success, first.result.message_id.as_deref()), (true, Some("rg1")));
        assert_eq!(
            frames[0],
            json!({ "cmd": "aibot_respond_msg", "headers": { "req_id": "rg1" }, "body": markdown("to the first") })
        );
        let (_, frames) = acted(&scene, &mut far, send("group", "**x**"), &[0]).await;
        assert_eq!((&frames[0]["headers"]["req_id"], &frames[0]["body"]), (&json!("rg2"), &markdown("**x**")));
        let mut elsewhere = send("ann", "for ann");
        elsewhere["reply_to"] = "g1".into();
        let (_, frames) = acted(&scene, &mut far, elsewhere, &[0]).await;
        assert_eq!(frames[0]["headers"]["req_id"], "rd1", "a message of another chat is not replied to");
        let (sent, frames) = acted(&scene, &mut far, send("ben", "hi"), &[0]).await;
        assert_eq!((&frames[0]["cmd"], &frames[0]["body"]["chatid"]), (&json!("aibot_send_msg"), &json!("ben")));
        assert_eq!(sent.result.message_id.as_deref(), frames[0]["headers"]["req_id"].as_str());
        // A message that can no longer be answered.
        let (result, frames) = acted(&scene, &mut far, send("ann", "late"), &[846_605, 0]).await;
        assert!(result.result.success);
        assert_eq!((&frames[0]["cmd"], &frames[1]["cmd"]), (&json!("aibot_respond_msg"), &json!("aibot_send_msg")));
        let (_, frames) = acted(&scene, &mut far, send("ann", "again"), &[0]).await;
        assert_eq!(frames[0]["cmd"], "aibot_send_msg", "and it is not tried again");
        scene.env.advance_ms(24 * 3_600_000);
        let (_, frames) = acted(&scene, &mut far, send("group", "tomorrow"), &[0]).await;
        assert_eq!(frames[0]["cmd"], "aibot_send_msg");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn failures_are_what_they_are() {
    on_stage(async |scene, mut far| {
        let (limited, _) = acted(&scene, &mut far, send("group", "x"), &[846_607]).await;
        assert_eq!((limited.result.code, limited.pace.retry_after_ms), (Some(Code::RateLimited), Some(60_000)));
        assert_eq!(limited.pace.bucket.as_deref(), Some("chat:group"), "other chats go on");
        for (refusal, code) in [(45_002, Code::TooLarge), (40_008, Code::BadRequest), (-1, Code::Unavailable)] {
            let (refused, frames) = acted(&scene, &mut far, send("group", "x"), &[refusal]).await;
            assert_eq!((refused.result.code, refused.result.ambiguous), (Some(code), false), "{refusal}");
            assert_eq!(frames[0]["headers"]["req_id"], "rg2", "the message can still be answered");
        }
        let (refused, _) = acted(&scene, &mut far, send("ben", "x"), &[48_002]).await;
        assert_eq!((refused.result.code, refused.result.ambiguous), (Some(Code::Forbidden), false));
        // No answer.
        let lost = scene.act(send("group", "x")).await.result;
        assert_eq!((lost.code, lost.ambiguous), (Some(Code::Unknown), true), "{lost:?}");
        assert!(lost.error.unwrap().contains("timed out"));
        assert_eq!(far.next().await["headers"]["req_id"], "rg2");
        let (_, frames) = acted(&scene, &mut far, send("group", "y"), &[0]).await;
        assert_eq!(frames[0]["cmd"], "aibot_send_msg", "a late answer to the first must not be taken for the second");
        for (action, code) in [
            (send("group", " "), Code::BadRequest),
            (send("group", &"x".repeat(4_001)), Code::TooLarge),
            (send("", "x"), Code::BadRequest),
            (json!({ "op": "react", "chat_id": "c", "message_id": "m", "emoji": "👍" }), Code::UnsupportedOp),
        ] {
            assert_eq!(scene.act(action).await.result.code, Some(code));
        }
    })
    .await;
    let closed = Scene::new().act(send("ann", "x")).await.result;
    assert_eq!((closed.code, closed.ambiguous), (Some(Code::Unavailable), false));
    assert!(closed.error.unwrap().contains("not open at this server"));
}

#[tokio::test(start_paused = true)]
async fn a_draft_is_a_stream_that_the_final_text_ends() {
    on_stage(async |scene, mut far| {
        let draft = |content: &str, sealed: bool| {
            json!({ "op": "draft", "chat_id": "group", "draft_id": 7, "content": content, "final": sealed })
        };
        let (acted_first, frames) = acted(&scene, &mut far, draft("a", false), &[0]).await;
        assert!(acted_first.result.success);
        let stream = frames[0]["body"]["stream"].clone();
        assert_eq!((&stream["finish"], &stream["content"]), (&json!(false), &json!("a")));
        assert_eq!((&frames[0]["cmd"], &frames[0]["headers"]["req_id"]), (&json!("aibot_respond_msg"), &json!("rg2")));
        let (_, frames) = acted(&scene, &mut far, draft("a b", false), &[0]).await;
        assert_eq!(frames[0]["body"]["stream"]["id"], stream["id"]);
        let noticing = async {
            let frame = far.next().await;
            far.answer(&frame, 0, Value::Null);
            frame
        };
        let (home, group) = (TenantId::from("home"), ChatId::from("group"));
        let notice = scene.robot.notice(ActingAs::new(&home, &scene.bot), &group, "a notice");
        let (noticed, frame) = tokio::join!(notice, noticing);
        assert!(noticed.success && frame["body"]["msgtype"] == "markdown", "a notice does not end it: {frame}");
        let (_, frames) = acted(&scene, &mut far, send("group", "of another agent"), &[0]).await;
        assert_eq!(frames[0]["body"]["msgtype"], "markdown", "another text does not end it either");
        let (_, frames) = acted(&scene, &mut far, send("group", "a b c"), &[0]).await;
        let last = &frames[0]["body"]["stream"];
        assert_eq!((&last["id"], &last["finish"], &last["content"]), (&stream["id"], &json!(true), &json!("a b c")));
        let (_, frames) = acted(&scene, &mut far, send("group", "more"), &[0]).await;
        assert_eq!(frames[0]["body"]["msgtype"], "markdown", "the stream is over");
        let (_, _) = acted(&scene, &mut far, draft("x", false), &[0]).await;
        let (sealed, frames) = acted(&scene, &mut far, draft("x y", true), &[0]).await;
        assert!(sealed.result.success && frames[0]["body"]["stream"]["finish"] == true, "{frames:?}");
        let (_, frames) = acted(&scene, &mut far, draft("at once", true), &[0]).await;
        assert_eq!(frames[0]["body"]["msgtype"], "markdown", "a draft of one frame is a message");
        // A stream that the vendor has ended.
        acted(&scene, &mut far, draft("z", false), &[0]).await;
        let (ended, frames) = acted(&scene, &mut far, send("group", "z!"), &[846_608, 0]).await;
        assert!(ended.result.success);
        assert_eq!(frames[1]["body"]["msgtype"], "markdown");
        let unknown = json!({ "op": "draft", "chat_id": "nobody", "draft_id": "1", "content": "x" });
        assert_eq!(scene.act(unknown).await.result.code, Some(Code::NotFound));
        assert!(scene.act(json!({ "op": "draft", "chat_id": "group", "draft_id": "9", "content": "" })).await.result.success);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_file_goes_out_in_chunks_with_its_caption_behind_it() {
    on_stage(async |scene, mut far| {
        let bytes: Vec<u8> = (0..1_200_000).map(|at| u8::try_from(at % 251).unwrap()).collect();
        *scene.vendor.file.lock().unwrap() = Some((200, bytes.clone()));
        let media = json!({ "op": "send_media", "chat_id": "ann", "media_kind": "image",
            "source_url": "https://files.example/a.png", "content": "look", "filename": "a.png" });
        let (sent, frames) = acted(&scene, &mut far, media.clone(), &[0; 7]).await;
        assert!(sent.result.success, "{:?}", sent.result);
        let commands: Vec<&str> = frames.iter().map(|frame| frame["cmd"].as_str().unwrap()).collect();
        assert_eq!(
            commands,
            [
                "aibot_upload_media_init",
                "aibot_upload_media_chunk",
                "aibot_upload_media_chunk",
                "aibot_upload_media_chunk",
                "aibot_upload_media_finish",
                "aibot_respond_msg",
                "aibot_respond_msg"
            ]
        );
        let begin = &frames[0]["body"];
        assert_eq!(
            (&begin["type"], &begin["total_size"], &begin["total_chunks"]),
            (&json!("image"), &json!(1_200_000), &json!(3))
        );
        let whole: Vec<u8> = frames[1..4]
            .iter()
            .flat_map(|frame| {
                let data = frame["body"]["base64_data"].as_str().unwrap();
                base64::engine::general_purpose::STANDARD.decode(data).unwrap()
            })
            .collect();
        assert!(whole == bytes);
        assert_eq!(frames[5]["body"], json!({ "msgtype": "image", "image": { "media_id": "m1" } }));
        assert_eq!(frames[6]["body"]["markdown"]["content"], "look");
        let (refused, _) = acted(&scene, &mut far, media.clone(), &[40_009]).await;
        assert_eq!((refused.result.code, refused.result.ambiguous), (Some(Code::TooLarge), false));
        let lost = scene.act(media.clone()).await.result;
        assert_eq!((lost.code, lost.ambiguous), (Some(Code::Unavailable), false), "an upload is no message");
        far.next().await;
        *scene.vendor.file.lock().unwrap() = Some((200, b"tiny".to_vec()));
        assert_eq!(scene.act(media).await.result.code, Some(Code::BadRequest), "it is too short");
    })
    .await;
}

#[tokio::test]
async fn files_of_people_are_fetched_by_their_link() {
    let scene = Scene::new();
    let handle = |aeskey: &str| Secret::new(json!({ "url": "https://files.example/x", "aeskey": aeskey }).to_string());
    let media = scene.robot.fetch_media(&scene.bot, &handle("")).await.ok().unwrap();
    assert_eq!((media.mime.as_str(), media.filename.as_deref()), ("image/png", Some("a.png")));
    assert_eq!(frontdesk_core::port::media::read_whole(media.body).await.unwrap(), b"a picture");
    for (file, handle, is_gone) in [
        ((404, vec![]), handle(""), true),
        ((403, vec![]), handle(""), true),
        ((500, vec![]), handle(""), false),
        ((200, vec![]), handle("short"), true),
        ((200, vec![]), Secret::new("rubbish"), true),
    ] {
        *scene.vendor.file.lock().unwrap() = Some(file);
        let fault = scene.robot.fetch_media(&scene.bot, &handle).await.err().unwrap();
        assert_eq!(matches!(fault, MediaFault::Gone(_)), is_gone, "{fault}");
        assert!(!fault.to_string().contains("files.example"), "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_sees_a_group_is_known_of_those_who_wrote_there() {
    on_stage(async |scene, _far| {
        let look = |chat: &str, viewer: &str| scene.robot.look_at(&scene.bot, chat, Some(viewer)).unwrap();
        let group = look("group", "ann");
        assert_eq!((group.visible, group.info.chat_type.as_str(), group.person), (Some(true), "group", None));
        assert_eq!(look("group", "eve").visible, None);
        let alone = look("ann", "ann");
        assert_eq!((alone.visible, alone.person.as_deref()), (Some(true), Some("ann")));
        assert_eq!(look("ann", "eve").visible, Some(false));
        assert!(scene.robot.findings(&scene.bot)[0].ok);
    })
    .await;
}
