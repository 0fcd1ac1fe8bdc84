//! Requests of unauthenticated clients to the route of Feishu, and frames of its socket: verifier, decryptor, frames
//! and their parts, normalizer and card callbacks, for `FUZZ_SECONDS` each (two by default).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use frontdesk_core::intake::{HANDLE_MAX_BYTES, REMOTE_MEDIA_MAX, TenantSource};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Bot, Platform as _, RawRequest, ReceivedRequest, Reply};
use frontdesk_platforms::feishu::frame::{BYTES_MAX, DATA, Frame, Header, Joined, OPEN_MAX, Parts};
use frontdesk_platforms::feishu::{Feishu, envelope, signature};
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};
use frontdesk_wire::Secret;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

const KEY: &str = "the encrypt key";
const TOKEN: &str = "the verification token";
const NOW_MS: u64 = 1_700_000_000_000;

fn run(target: &Target) {
    let settings = Settings::from_env();
    println!("fuzz {}: seed {}, {} s", target.name, settings.seed, settings.time.as_secs());
    match fuzz(target, &settings) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}

/// Knows the bot and its messages, and says nothing else.
struct Vendor;

impl Outcall for Vendor {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        let path = call.url.split('?').next().unwrap_or_default();
        let body = match path.strip_prefix("https://open.feishu.cn/open-apis/").expect("only the vendor is called") {
            "auth/v3/tenant_access_token/internal" => {
                json!({ "code": 0, "tenant_access_token": "t-1", "expire": 7200 })
            }
            "bot/v3/info" => json!({ "code": 0, "bot": { "open_id": "ou_me", "app_name": "Desk" } }),
            path if path.starts_with("im/v1/messages/") => {
                assert!(!path.contains("..") && path.split('/').count() == 4, "an id left its place: {path}");
                let item = json!({ "msg_type": "text", "chat_id": "oc_1", "sender": { "id": "cli_1" },
                    "body": { "content": "{\"text\":\"own\"}" } });
                json!({ "code": 0, "data": { "items": [item] } })
            }
            path => {
                assert!(!path.contains(".."), "an id left its place: {path}");
                json!({ "code": 230_001, "msg": "no" })
            }
        };
        let answer = HttpAnswer { body: body.to_string().into_bytes(), ..HttpAnswer::of(200) };
        Box::pin(std::future::ready(Ok(answer)))
    }
}

static RUNTIME: LazyLock<tokio::runtime::Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap());

fn platform() -> Feishu {
    Feishu::new(&Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(Vendor),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    })
}

fn bot() -> Bot {
    let secrets = [("app_secret", "s"), ("encrypt_key", KEY), ("verification_token", TOKEN)];
    let secrets = secrets.map(|(name, value)| (name.to_owned(), Secret::new(value)));
    Bot::new("b", None, [("app_id".to_owned(), "cli_1".to_owned())].into(), secrets.into())
}

fn receive(headers: &[(&str, &str)], body: &Bytes) -> Result<ReceivedRequest, Reply> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let body = body.clone();
    let request = RawRequest { door: "/feishu/{bot}", headers, body, now_ms: NOW_MS, ..RawRequest::default() };
    // Questions have a limit of time.
    let _context = RUNTIME.enter();
    platform().receive(Some(&bot()), &request).now_or_never().expect("it waits for nothing")
}

/// `timestamp NUL nonce NUL signature NUL body`
fn strangers(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(4, |byte| *byte == 0);
    let mut text = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    let (stamp, nonce, given) = (text(), text(), text());
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let headers =
        [("x-lark-request-timestamp", stamp.as_str()), ("x-lark-request-nonce", &nonce), ("x-lark-signature", &given)];
    // The fuzzer does not know the key.
    let refused = receive(&headers, &body).err().map(|reply| reply.status);
    assert!(matches!(refused, Some(400..500)), "{refused:?} {stamp:?} {nonce:?} {given:?}");
    let unsigned = receive(&[], &body).err().map(|reply| reply.status);
    assert!(matches!(unsigned, Some(400..500)), "{unsigned:?}");
    let sealed = serde_json::from_slice::<Value>(&body).unwrap_or_default();
    let opened = envelope::decrypt(&Secret::new(KEY), sealed["encrypt"].as_str().unwrap_or_default());
    outcome((refused, unsigned, opened.is_some()))
}

fn stranger_seeds() -> Vec<Vec<u8>> {
    let sealed = envelope::encrypt(&Secret::new("another key"), [1; 16], b"{\"type\":\"url_verification\"}").unwrap();
    let zeros = "0".repeat(64);
    [
        format!("1700000000\0n\0{zeros}\0{{\"encrypt\":\"{sealed}\"}}"),
        format!("1700000000\0n\0{zeros}\0{{\"type\":\"url_verification\",\"token\":\"x\",\"challenge\":\"c\"}}"),
        "\0\0\0{\"schema\":\"2.0\",\"header\":{\"token\":\"x\",\"app_id\":\"cli_1\"}}".to_owned(),
        "a\0b\0c\0{\"encrypt\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"}".to_owned(),
        "\0\0\0{\"encrypt\":[]}".to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn requests_of_strangers() {
    run(&Target { name: "feishu_strangers", run: strangers, seeds: stranger_seeds });
}

/// An event of the vendor with any content.
fn events(input: &[u8]) -> Outcome {
    let Ok(mut payload) = serde_json::from_slice::<Value>(input) else { return outcome("no JSON") };
    if !payload.is_object() {
        return outcome("no object");
    }
    payload["schema"] = "2.0".into();
    if payload["header"].is_object() {
        payload["header"]["token"] = TOKEN.into();
        payload["header"]["app_id"] = "cli_1".into();
    }
    let sealed = envelope::encrypt(&Secret::new(KEY), [2; 16], payload.to_string().as_bytes()).unwrap();
    let body = Bytes::from(json!({ "encrypt": sealed }).to_string());
    let given = signature::sign(&Secret::new(KEY), "1700000000", "n", &body);
    let headers =
        [("x-lark-request-timestamp", "1700000000"), ("x-lark-request-nonce", "n"), ("x-lark-signature", &given)];
    let received = match receive(&headers, &body) {
        Ok(received) => received,
        Err(reply) => return outcome(reply.status),
    };
    let shapes: Vec<_> = received
        .intakes
        .iter()
        .map(|intake| {
            let event = &intake.event;
            assert_eq!((&intake.tenant_source, event.source.platform.as_str()), (&TenantSource::Shared, "feishu"));
            assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX);
            assert!(intake.remote_media.iter().all(|file| file.handle.expose().len() <= HANDLE_MAX_BYTES));
            assert!(event.message_id.as_ref().is_some_and(|id| !id.is_empty() && id.len() <= 512));
            assert!(!event.source.chat_id.is_empty());
            assert!(
                ["text", "command", "photo", "voice", "audio", "video", "document", "sticker", "location"]
                    .contains(&event.message_type.as_str())
            );
            assert!(matches!(event.source.chat_type.as_str(), "dm" | "group" | "forum"));
            let flags = (intake.addressed, intake.is_interaction, intake.refused.is_some(), event.source.is_bot);
            (event.message_type.clone(), flags, intake.remote_media.len(), event.source.thread_id.is_some())
        })
        .collect();
    assert!(received.changes.len() <= 50);
    outcome((shapes, received.changes.len(), received.if_not_stored.is_some()))
}

fn event_seeds() -> Vec<Vec<u8>> {
    let of =
        |kind: &str, event: &str| format!(r#"{{"header":{{"event_id":"e","event_type":"{kind}"}},"event":{event}}}"#);
    let message = |rest: &str| {
        let sender =
            r#""sender":{"sender_id":{"open_id":"ou_ann","user_id":"ann","union_id":"on_ann"},"sender_type":"user"}"#;
        let ids = r#""message_id":"om_1","chat_id":"oc_1","chat_type":"group","create_time":"1700000000000""#;
        of("im.message.receive_v1", &format!(r#"{{{sender},"message":{{{ids},{rest}}}}}"#))
    };
    let deep = |open: &str, close: &str| {
        let post = format!(r#"{{"content":[[{}{{}}{}]]}}"#, open.repeat(120), close.repeat(120));
        message(&format!(r#""message_type":"post","content":{}"#, json!(post)))
    };
    [
        deep(r#"{"content":"#, "}"),
        deep(r#"{"tag":"x","other":"#, "}"),
        deep("[", "]"),
        message(r#""message_type":"text","content":"{\"text\":\"@_user_1 hi @_all\"}","mentions":[{"key":"@_user_1","id":{"open_id":"ou_me"},"name":"Desk"}]"#),
        message(r#""message_type":"post","content":"{\"title\":\"t\",\"content\":[[{\"tag\":\"text\",\"text\":\"x\",\"style\":{\"bold\":true}},{\"tag\":\"at\",\"user_id\":\"@_user_1\"},{\"tag\":\"img\",\"image_key\":\"img_1\"}],[{\"tag\":\"code_block\",\"language\":\"c\",\"text\":\"a\"}]]}""#),
        message(r#""message_type":"file","content":"{\"file_key\":\"file_1\",\"file_name\":\"a.pdf\"}","root_id":"om_0","parent_id":"om_0""#),
        message(r#""message_type":"interactive","content":"{\"header\":{\"title\":{\"content\":\"T\"}},\"elements\":[{\"tag\":\"button\",\"text\":{\"content\":\"Go\"}}]}","thread_id":"omt_1""#),
        message(r#""message_type":"merge_forward","content":"{\"items\":[{\"sender_name\":\"A\",\"text\":\"x\"}]}""#),
        message(r#""message_type":"audio","content":"{\"file_key\":\"f\",\"duration\":1}""#),
        message(r#""message_type":"location","content":"{\"name\":\"n\",\"latitude\":\"1\"}""#),
        of("im.message.reaction.created_v1", r#"{"message_id":"om_5","operator_type":"user","user_id":{"open_id":"ou_ann"},"reaction_type":{"emoji_type":"OK"}}"#),
        of("card.action.trigger", r#"{"operator":{"open_id":"ou_ann"},"token":"c","action":{"tag":"button","value":{"hp1":"hp1:p:y","label":"Y","question":"Q","thread":"omt_1"}},"context":{"open_message_id":"om_7","open_chat_id":"oc_1"}}"#),
        of("card.action.trigger", r#"{"operator":{"open_id":"ou_ann"},"action":{"tag":"select_static","option":"hp1:p:y\nY"},"context":{"open_message_id":"om_7","open_chat_id":"oc_1"}}"#),
        of("im.chat.member.user.added_v1", r#"{"chat_id":"oc_1","users":[{"user_id":{"open_id":"ou_1"}}]}"#),
        of("contact.user.updated_v3", r#"{"object":{"open_id":"ou_1"}}"#),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn events_and_presses() {
    run(&Target { name: "feishu_events", run: events, seeds: event_seeds });
}

/// Several frames, each behind two bytes of length.
fn frames(input: &[u8]) -> Outcome {
    let (mut parts, mut rest, mut seen) = (Parts::default(), input, Vec::new());
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let (bytes, tail) = tail.split_at(usize::from(u16::from_be_bytes(*length)).min(tail.len()));
        rest = tail;
        let Some(frame) = Frame::read(Bytes::copy_from_slice(bytes)) else {
            seen.push("no frame");
            continue;
        };
        assert_eq!(Frame::read(frame.bytes()).as_ref(), Some(&frame), "it is read as it is written");
        seen.push(match parts.add(u64::from(frame.log_id % 100_000 == 0) * 40_000, &frame) {
            Joined::Whole(_) => "whole",
            Joined::Waiting => "waiting",
            Joined::Refused => "refused",
        });
        let (open, held) = parts.held();
        assert!(open <= OPEN_MAX && held <= BYTES_MAX);
    }
    seen.truncate(8);
    outcome(seen)
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let frame = |id: &str, sum: &str, seq: &str| {
        let pairs = [("type", "event"), ("message_id", id), ("sum", sum), ("seq", seq)];
        let headers = pairs.map(|(key, value)| Header { key: key.into(), value: value.into() }).to_vec();
        let bytes = Frame { method: DATA, headers, payload: Some("{}".into()), ..Frame::default() }.bytes();
        [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], &bytes].concat()
    };
    vec![
        frame("m", "1", "0"),
        [frame("m", "2", "1"), frame("m", "2", "0")].concat(),
        [frame("m", "3", "2"), frame("n", "2", "0"), frame("m", "2", "0")].concat(),
        frame("m", "999999999999", "5"),
        vec![0, 3, 255, 255, 255],
    ]
}

#[test]
fn frames_and_their_parts() {
    run(&Target { name: "feishu_frames", run: frames, seeds: frame_seeds });
}
