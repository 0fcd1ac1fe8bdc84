//! What comes in.

use frontdesk_core::intake::{Intake, TenantSource};
use frontdesk_core::port::platform::DoorAnswer;

use super::*;

fn receive(request: &RawRequest) -> Result<ReceivedRequest, Reply> {
    App::handle_request(&Scene::new().bot, request)
}

fn said(fields: &str) -> Option<Intake> {
    let Ok(received) = receive(&Scene::request(&message(fields))) else { panic!("{fields}") };
    let DoorAnswer::Fixed(reply) = &received.answer else { panic!() };
    assert_eq!((reply.status, reply.body.as_str()), (200, ""), "a passive answer is empty");
    assert!(received.if_not_stored.is_none(), "what is not stored must be sent again");
    received.intakes.into_iter().next()
}

fn refusal(request: &RawRequest) -> (u16, String) {
    match receive(request) {
        Err(reply) => (reply.status, reply.body),
        Ok(_) => panic!("it was taken"),
    }
}

#[test]
fn the_address_is_confirmed_to_whoever_knows_the_token() {
    let key = crypt::key_of(KEY).unwrap();
    let sealed = crypt::seal(&key, CORP, [7; 16], b"1616140317555161061").unwrap();
    let escaped = api::encoded(&sealed);
    let ask = |query: String, now_s: u64| {
        receive(&RawRequest { door: DOOR, query, now_ms: now_s * 1_000, ..RawRequest::default() })
    };
    let query = format!("{}&echostr={escaped}", Scene::query(&sealed));
    let Ok(ReceivedRequest { answer: DoorAnswer::Fixed(reply), intakes, .. }) = ask(query.clone(), NOW_S) else {
        panic!()
    };
    assert_eq!((reply.status, reply.body.as_str(), intakes.len()), (200, "1616140317555161061", 0));
    let status = |query: String, now_s| ask(query, now_s).err().map(|reply| reply.status);
    assert_eq!(status(query.clone(), NOW_S + 301), Some(403), "too old");
    assert_eq!(status(query.replace("nonce=n0", "nonce=n1"), NOW_S), Some(403));
    assert_eq!(status(query.replace("nonce=n0", "nonce=n0&nonce=n0"), NOW_S), Some(400));
    assert_eq!(status(format!("echostr={escaped}"), NOW_S), Some(400));
    assert_eq!(status(String::new(), NOW_S), Some(400));
    let caught = crypt::seal(&key, CORP, [7; 16], b"<xml><Content>private</Content></xml>").unwrap();
    let reply = ask(format!("{}&echostr={}", Scene::query(&caught), api::encoded(&caught)), NOW_S).err().unwrap();
    assert!(reply.status == 400 && !reply.body.contains("private"), "a message is not decrypted for whoever asks");
    let other = crypt::seal(&key, "ww-other", [7; 16], b"1").unwrap();
    assert_eq!(status(format!("{}&echostr={}", Scene::query(&other), api::encoded(&other)), NOW_S), Some(403));
}

#[test]
fn a_text_is_normalized_as_gateways_do() {
    let intake =
        said("<MsgType>text</MsgType><Content><![CDATA[ hello <b> & 你好 🙂 ]]></Content><MsgId>123</MsgId>").unwrap();
    let event = &intake.event;
    assert_eq!((event.text.as_str(), event.message_type.as_str()), ("hello <b> & 你好 🙂", "text"));
    assert_eq!((event.message_id.as_deref(), event.source.message_id.as_deref()), (Some("123"), Some("123")));
    let source = &event.source;
    assert_eq!((source.platform.as_str(), &*source.chat_id), ("wecom_callback", "ww5823bf96d3bd56c7:ann"));
    assert_eq!((source.chat_type.as_str(), source.chat_name.as_deref()), ("dm", Some("ann")));
    assert_eq!((source.user_id.as_deref(), source.user_name.as_deref()), (Some("ann"), Some("ann")));
    assert_eq!((source.scope_id.as_deref(), source.thread_id.as_deref()), (None, None));
    assert_eq!((&intake.tenant_source, intake.bot.as_str()), (&TenantSource::Tenant("home".into()), "wc"));
}

#[test]
fn files_are_fetched_later() {
    for (fields, kind, mime, name) in [
        ("<MsgType>image</MsgType><PicUrl>http://x</PicUrl><MediaId>M</MediaId>", "photo", "image/jpeg", None),
        ("<MsgType>voice</MsgType><MediaId>M</MediaId><Format>amr</Format>", "voice", "audio/amr", None),
        ("<MsgType>video</MsgType><MediaId>M</MediaId><ThumbMediaId>T</ThumbMediaId>", "video", "video/mp4", None),
        (
            "<MsgType>file</MsgType><Title>a.pdf</Title><MediaId>M</MediaId>",
            "document",
            "application/octet-stream",
            Some("a.pdf"),
        ),
    ] {
        let intake = said(&format!("{fields}<MsgId>1</MsgId>")).unwrap();
        let [file] = &intake.remote_media[..] else { panic!("{fields}") };
        assert_eq!((intake.event.message_type.as_str(), intake.event.text.as_str()), (kind, ""), "{fields}");
        assert_eq!((file.handle.expose(), file.mime.as_str(), file.filename.as_deref()), ("M", mime, name));
    }
    assert!(said("<MsgType>image</MsgType><MsgId>1</MsgId>").is_none(), "a file without an id is nothing");
}

#[test]
fn places_links_and_unknown_kinds_are_told_in_words() {
    let text = |fields: &str| said(&format!("{fields}<MsgId>1</MsgId>")).unwrap().event;
    let place = text(
        "<MsgType>location</MsgType><Location_X>23.1</Location_X><Location_Y>113.3</Location_Y><Label>位置</Label>",
    );
    assert_eq!(place.message_type, "location");
    assert_eq!(place.text, "[The user shared a location.]\nAddress: 位置\nlatitude: 23.1\nlongitude: 113.3");
    let link = text(
        "<MsgType>link</MsgType><Title>T</Title><Description>D</Description><Url>https://a.example/?a=1&amp;b=2</Url>",
    );
    assert_eq!(link.text, "[The user shared a link: T]\nD\nhttps://a.example/?a=1&b=2");
    assert_eq!(
        text("<MsgType>hologram</MsgType>").text,
        "[A message of the kind \"hologram\", which can only be seen in WeCom]"
    );
}

#[test]
fn of_events_only_what_people_mean_is_passed_on() {
    for silent in ["enter_agent", "subscribe", "unsubscribe", "LOCATION", "view", "batch_job_result"] {
        assert!(said(&format!("<MsgType>event</MsgType><Event>{silent}</Event>")).is_none(), "{silent}");
    }
    let event = said("<MsgType>event</MsgType><Event>click</Event><EventKey>k</EventKey>").unwrap().event;
    assert_eq!((event.text.as_str(), event.message_id.as_deref()), ("/start", Some("ann:1348831860")));
    assert!(said("<MsgType>text</MsgType><Content> </Content><MsgId>1</MsgId>").is_none(), "nothing was said");
    assert!(said("<MsgId>1</MsgId>").is_none());
    let system = message("<MsgType>event</MsgType><Event>click</Event>").replace("ann", "sys");
    assert!(receive(&Scene::request(&system)).is_ok_and(|received| received.intakes.is_empty()));
}

#[test]
fn what_is_not_for_this_app_is_refused_with_a_reason() {
    let text = "<MsgType>text</MsgType><Content>x</Content><MsgId>1</MsgId>";
    let good = Scene::request(&message(text));
    let (status, why) = refusal(&Scene::request(&message(text).replace("1000002", "1000003")));
    assert!(status == 403 && why.contains("agent_id"), "{why}");
    let (status, why) = refusal(&Scene::request(&message(text).replace(CORP, "ww-other")));
    assert!(status == 403 && why.contains("corp_id"), "{why}");
    for (change, status, expected) in [
        (("msg_signature=", "msg_signature=0"), 400, "msg_signature"),
        (("nonce=n0", "nonce=n1"), 403, "token"),
        (("timestamp=1700000000", "timestamp=1700000001"), 403, "token"),
        (("timestamp=1700000000", "timestamp=1600000000"), 403, "clock"),
        (("&nonce=n0", ""), 400, "nonce"),
    ] {
        let query = good.query.replace(change.0, change.1);
        let (found, why) = refusal(&RawRequest { query, ..good.clone() });
        assert!(found == status && why.contains(expected), "{change:?}: {found} {why}");
    }
    for (body, expected) in [
        (&b""[..], "echostr"),
        (b"<xml></xml>", "Encrypt"),
        (b"<xml><Encrypt>a</Encrypt><Encrypt>b</Encrypt></xml>", "two"),
        (b"<!DOCTYPE x [<!ENTITY a \"b\">]><xml><Encrypt>&a;</Encrypt></xml>", "document type"),
        (b"{\"encrypt\":\"x\"}", "malformed"),
    ] {
        let (status, why) = refusal(&RawRequest { body: body.into(), ..good.clone() });
        assert!(status == 400 && why.contains(expected), "{status} {why}");
    }
    // Signed with the right token, and sealed with another key.
    let sealed = crypt::seal(&[9; 32], CORP, [7; 16], b"<xml/>").unwrap();
    let body = format!("<xml><Encrypt>{sealed}</Encrypt></xml>");
    let other = RawRequest { query: Scene::query(&sealed), body: body.into_bytes().into(), ..good };
    let (status, why) = refusal(&other);
    assert!(status == 403 && why.contains("aes_key"), "{why}");
    assert_eq!(refusal(&Scene::request("<xml><A>&b;</A></xml>")).0, 400, "also what is inside is read strictly");
}

#[test]
fn incomplete_bots_are_refused_when_they_are_added() {
    let app = Scene::new().app;
    for (name, value, expected) in [
        ("corp_id", "", "My Company"),
        ("corp_id", "a b", "My Company"),
        ("agent_id", "app", "AgentId"),
        ("agent_id", "+1", "AgentId"),
        ("base_url", "qyapi.weixin.qq.com", "https://"),
        ("secret", " ", "secret"),
        ("token", "", "token"),
        ("aes_key", "short", "43"),
    ] {
        let change = |pairs: &[(&'static str, &'static str)]| {
            let mut all: Vec<(&str, &str)> = pairs.iter().filter(|(known, _)| *known != name).copied().collect();
            all.push((name, value));
            all
        };
        let is_setting = ["corp_id", "agent_id", "base_url"].contains(&name);
        let settings = if is_setting { change(&SETTINGS) } else { SETTINGS.to_vec() };
        let secrets = if is_setting { SECRETS.to_vec() } else { change(&SECRETS) };
        let why = app.check_bot(&bot_with(&settings, &secrets)).unwrap_err();
        assert!(why.contains(expected), "{name}: {why}");
    }
}
