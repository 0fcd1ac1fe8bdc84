//! What people say, as the gateway's own adapter has it.

use super::super::frame::Frame;
use super::super::normalize::intake_of;
use super::*;

fn received(more: Value) -> Option<Intake> {
    let frame = Frame::read(&said("m1", "r1", more).to_string()).unwrap();
    intake_of(&frame, &Scene::new().bot)
}

#[test]
fn a_direct_message() {
    let intake = received(text(" hello ")).unwrap();
    let (event, source) = (&intake.event, &intake.event.source);
    assert_eq!((event.text.as_str(), event.message_type.as_str()), ("hello", "text"));
    assert_eq!((source.platform.as_str(), &*source.chat_id, source.chat_type.as_str()), ("wecom", "ann", "dm"));
    assert_eq!((source.user_id.as_deref(), source.user_name.as_deref()), (Some("ann"), Some("ann")));
    assert_eq!((source.chat_name.as_deref(), event.message_id.as_deref()), (None, Some("m1")));
    assert!(!intake.addressed);
}

#[test]
fn in_a_group_the_mention_is_taken_away() {
    let in_group = |content: &str| {
        let mut more = text(content);
        (more["chatid"], more["chattype"]) = ("g1".into(), "group".into());
        received(more)
    };
    let intake = in_group("@Bot  /approve now").unwrap();
    assert_eq!(intake.event.text, "/approve now");
    assert_eq!((&*intake.event.source.chat_id, intake.event.source.chat_type.as_str()), ("g1", "group"));
    assert!(intake.addressed);
    assert_eq!(in_group("see @Bot").unwrap().event.text, "see @Bot");
    assert_eq!(in_group("@ Bot").unwrap().event.text, "@ Bot");
    assert!(in_group("@Bot").is_none(), "nothing is left");
}

#[test]
fn files_voices_and_mixtures() {
    let link = |name: &str| json!({ "url": format!("https://files.example/{name}"), "aeskey": "k" });
    let shown = |intake: &Intake| {
        let mimes: Vec<String> = intake.remote_media.iter().map(|file| file.mime.clone()).collect();
        (intake.event.message_type.clone(), intake.event.text.clone(), mimes.join(" "))
    };
    let of = |kind: &str, text: &str, mimes: &str| (kind.to_owned(), text.to_owned(), mimes.to_owned());
    let image = received(json!({ "msgtype": "image", "image": link("a") })).unwrap();
    assert_eq!(shown(&image), of("photo", "", "image/jpeg"));
    assert_eq!(image.remote_media[0].handle.expose(), r#"{"url":"https://files.example/a","aeskey":"k"}"#);
    let file = received(json!({ "msgtype": "file", "file": link("b") })).unwrap();
    assert_eq!(shown(&file), of("document", "", "application/octet-stream"));
    let video = received(json!({ "msgtype": "video", "video": link("c") })).unwrap();
    assert_eq!(shown(&video), of("video", "", "video/mp4"));
    let voice = received(json!({ "msgtype": "voice", "voice": { "content": "spoken" } })).unwrap();
    assert_eq!(shown(&voice), of("voice", "spoken", ""));
    let items = json!([{ "msgtype": "text", "text": { "content": "one" } }, { "msgtype": "image", "image": link("d") },
        { "msgtype": "text", "text": { "content": "two" } }, 7]);
    let mixed = received(json!({ "msgtype": "mixed", "mixed": { "msg_item": items } })).unwrap();
    assert_eq!(shown(&mixed), of("photo", "one\ntwo", "image/jpeg"));
    let app = received(json!({ "msgtype": "appmsg", "appmsg": { "title": "a.pdf", "file": link("e") } })).unwrap();
    assert_eq!(shown(&app), of("document", "a.pdf", "application/octet-stream"));
    let many: Vec<Value> = (0..40).map(|_| json!({ "msgtype": "image", "image": link("x") })).collect();
    let mixed = received(json!({ "msgtype": "mixed", "mixed": { "msg_item": many } })).unwrap();
    assert_eq!(mixed.remote_media.len(), frontdesk_core::intake::REMOTE_MEDIA_MAX);
}

#[test]
fn quotes() {
    let quote = |content: &str, quote: Value| {
        let mut more = text(content);
        more["quote"] = quote;
        received(more).map(|intake| intake.event)
    };
    let event = quote("this one", json!({ "msgtype": "text", "text": { "content": "said before" } })).unwrap();
    assert_eq!((event.text.as_str(), event.reply_to_message_id.as_deref()), ("this one", Some("quote:m1")));
    assert_eq!(event.reply_to.unwrap().text.as_deref(), Some("said before"));
    let alone = quote("", json!({ "msgtype": "voice", "voice": { "content": "spoken" } })).unwrap();
    assert_eq!((alone.text.as_str(), alone.reply_to_message_id), ("spoken", None));
    let mut more = text("what is it?");
    more["quote"] = json!({ "msgtype": "image", "image": { "url": "https://files.example/q" } });
    let intake = received(more).unwrap();
    assert_eq!((intake.remote_media.len(), intake.event.reply_to_message_id), (1, None));
}

#[test]
fn what_cannot_be_read_is_told() {
    let event = |more: Value| received(more).unwrap().event;
    for kind in ["sticker", "voice"] {
        let expected = format!("[A message of the kind {kind:?}, which can only be seen in WeCom]");
        assert_eq!(event(json!({ "msgtype": kind, "voice": {} })).text, expected);
    }
    for (kind, file) in
        [("image", json!({})), ("file", json!({ "url": "x".repeat(5_000) })), ("video", json!({ "name": "v" }))]
    {
        let intake = received(json!({ "msgtype": kind, kind: file })).unwrap();
        assert!(intake.refused.is_some_and(|why| why.contains("no address")), "{kind}");
    }
    let items = json!([{ "msgtype": "text", "text": { "content": "one" } }, { "msgtype": "image", "image": {} },
        { "msgtype": "sticker" }]);
    let mixed = received(json!({ "msgtype": "mixed", "mixed": { "msg_item": items } })).unwrap();
    let expected = "one\n[Parts of this message that can only be seen in WeCom: 2]";
    assert_eq!((mixed.event.text.as_str(), mixed.refused), (expected, None));
}

#[test]
fn what_says_nothing_is_skipped() {
    for more in [
        text(" "),
        json!({}),
        json!({ "msgtype": "text", "text": "x" }),
        json!({ "msgtype": "text", "text": { "content": "x" }, "from": 7 }),
        json!({ "msgtype": "text", "text": { "content": "x" }, "aibotid": "another" }),
    ] {
        assert!(received(more.clone()).is_none(), "{more}");
    }
    let frame = json!({ "cmd": "aibot_event_callback", "headers": { "req_id": "r" }, "body": { "msgid": "e",
        "from": { "userid": "ann" }, "msgtype": "event", "event": { "eventtype": "enter_chat" } } });
    assert!(intake_of(&Frame::read(&frame.to_string()).unwrap(), &Scene::new().bot).is_none());
}
