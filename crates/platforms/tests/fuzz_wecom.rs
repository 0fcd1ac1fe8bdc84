//! Requests of unauthenticated clients to the route of an app, and frames of the vendor on the socket of a robot:
//! verifier, decryptor, XML, frames and normalizers, for `FUZZ_SECONDS` each (two by default).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, REMOTE_MEDIA_MAX, TenantSource};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Bot, Platform as _, RawRequest, ReceivedRequest, Reply};
use frontdesk_platforms::wecom::app::{App, xml};
use frontdesk_platforms::wecom::crypt;
use frontdesk_platforms::wecom::robot::frame::Frame;
use frontdesk_platforms::wecom::robot::normalize::intake_of;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};
use frontdesk_wire::Secret;
use futures_util::FutureExt as _;

const CORP: &str = "ww5823bf96d3bd56c7";
const TOKEN: &str = "QDG6eK";
const KEY: &str = "jWmYm7qr5nMoAUwZRjGtBxmz3KA1tkAj3ykkR6q2B2C";
const NOW_S: u64 = 1_700_000_000;

fn run(target: &Target) {
    let settings = Settings::from_env();
    println!("fuzz {}: seed {}, {} s", target.name, settings.seed, settings.time.as_secs());
    match fuzz(target, &settings) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}

/// Nothing is asked while the vendor waits for the answer.
struct NoCalls;

impl Outcall for NoCalls {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        panic!("{} is called", call.url);
    }
}

fn bot(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Bot::new("b", None, settings, secrets)
}

/// What holds for every event of a shared bot, and what tells one from another.
fn shape(intake: &Intake, platform: &str) -> (String, String, usize, bool) {
    let event = &intake.event;
    assert_eq!(
        (&intake.tenant_source, intake.bot.as_str(), event.source.platform.as_str()),
        (&TenantSource::Shared, "b", platform)
    );
    assert!(event.message_id.as_ref().is_some_and(|id| !id.is_empty()) && !event.source.chat_id.is_empty());
    assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX && intake.reports_to.is_none() && !intake.from_program);
    assert!(intake.remote_media.iter().all(|file| file.handle.expose().len() <= HANDLE_MAX_BYTES));
    let has_content = !event.text.is_empty() || !intake.remote_media.is_empty();
    assert!(has_content || intake.refused.is_some(), "an event without content that is not refused");
    let kind = event.source.chat_type.clone();
    (event.message_type.clone(), kind, intake.remote_media.len(), event.reply_to.is_some())
}

/// `query NUL body`: as it is, and the body as the text that is sealed and signed.
fn callback(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let query = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let inner = parts.next().unwrap_or_default();
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(NoCalls),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let app = App::new(&kit);
    let secrets = [("secret", "s"), ("token", TOKEN), ("aes_key", KEY)];
    let bot = bot(&[("corp_id", CORP), ("agent_id", "1000002")], &secrets);
    let receive = |query: &str, body: Bytes| -> Result<ReceivedRequest, Reply> {
        let request = RawRequest {
            door: "/wecom/{bot}",
            query: query.to_owned(),
            body,
            now_ms: NOW_S * 1_000,
            ..RawRequest::default()
        };
        app.receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    // The fuzzer does not know the token.
    for body in [Bytes::copy_from_slice(inner), Bytes::new()] {
        let strange = receive(&query, body).err().map(|reply| reply.status);
        assert!(matches!(strange, Some(400 | 403)), "{strange:?} {query:?}");
    }
    let key = crypt::key_of(KEY).unwrap();
    let sealed = crypt::seal(&key, CORP, [7; 16], inner).unwrap();
    assert_eq!(crypt::open(&key, CORP, &sealed), Ok(inner.to_vec()));
    let signature = crypt::sign(TOKEN, "1700000000", "n", &sealed);
    let query = format!("msg_signature={signature}&timestamp=1700000000&nonce=n");
    let body = format!("<xml><Encrypt>{sealed}</Encrypt></xml>");
    outcome(match receive(&query, body.into()) {
        Ok(received) => {
            assert!(received.intakes.len() <= 1 && received.receipts.is_empty() && received.changes.is_empty());
            Ok(received.intakes.first().map(|intake| shape(intake, "wecom_callback")))
        }
        Err(reply) => {
            assert!([400, 403].contains(&reply.status), "{} {}", reply.status, reply.body);
            Err((reply.status, reply.body))
        }
    })
}

fn callback_seeds() -> Vec<Vec<u8>> {
    let of = |fields: &str| {
        format!(
            "msg_signature=5c45ff5e21c57e6ad56bac8758b79b1d9ac89fd3&timestamp=1700000000&nonce=263014780&echostr=P9nA\0\
             <xml><ToUserName><![CDATA[{CORP}]]></ToUserName><FromUserName><![CDATA[ann]]></FromUserName>\
             <CreateTime>1348831860</CreateTime>{fields}<MsgId>1</MsgId><AgentID>1000002</AgentID></xml>"
        )
    };
    [
        of("<MsgType><![CDATA[text]]></MsgType><Content><![CDATA[hi <b> & ]]>&lt;&#x4f60;</Content>"),
        of("<MsgType>image</MsgType><PicUrl>http://x</PicUrl><MediaId>M</MediaId>"),
        of("<MsgType>location</MsgType><Location_X>1</Location_X><Location_Y>2</Location_Y><Label>L</Label>"),
        of("<MsgType>link</MsgType><Title>T</Title><Url>u</Url>"),
        of("<MsgType>event</MsgType><Event>click</Event><EventKey>k</EventKey>"),
        of("<MsgType>event</MsgType><Event>enter_agent</Event><A><B><C/></B></A>"),
        "\0<!DOCTYPE x [<!ENTITY a \"b\">]><xml><A>&a;</A></xml>".to_owned(),
        "nonce=1&nonce=2&timestamp=x\0{}".to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn callbacks_of_an_app() {
    run(&Target { name: "wecom_callback", run: callback, seeds: callback_seeds });
}

/// The whole input as XML, and as what is sealed.
fn document(input: &[u8]) -> Outcome {
    let read = xml::read(input);
    if let Ok(fields) = &read {
        // What was expanded came from the input: an entity is never longer than what names it.
        let length: usize =
            ["A", "B", "Encrypt", "Content"].iter().filter_map(|name| fields.get(name)).map(str::len).sum();
        assert!(length <= input.len());
    }
    let text = String::from_utf8_lossy(input);
    let key = crypt::key_of(KEY).unwrap();
    let opened = crypt::open(&key, CORP, &text);
    assert!(opened.is_err(), "nobody else has the key");
    let signed = crypt::Signed { signature: &text, timestamp: "1700000000", nonce: "n" };
    assert!(crypt::verify(TOKEN, signed, "sealed", NOW_S).is_err());
    outcome((read.map(|fields| fields.get("A").map(str::len)), opened.err(), crypt::padding(input)))
}

fn document_seeds() -> Vec<Vec<u8>> {
    [
        "<?xml version=\"1.0\"?><xml><A><![CDATA[x]]></A><B>&amp;&#65;</B></xml>",
        "<xml><Encrypt>LpOuuS4iGQWcZQUaoudyHtDmokivR5cM</Encrypt></xml>",
        "<!DOCTYPE lolz [<!ENTITY lol \"lol\"><!ENTITY lol2 \"&lol;&lol;\">]><xml><A>&lol2;</A></xml>",
        "<xml a='1'><A b=\"2\"/></xml>",
        "<a><a><a><a><a><a><a><a><a>",
        "LpOuuS4iGQWcZQUaoudyHtDmokivR5cML6fkGlVOuL7YQTQ8kt9cUjnsUVLJEMknA8WcMv1KSvtqOYmI13qmlA==",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}

#[test]
fn documents_and_seals() {
    run(&Target { name: "wecom_xml", run: document, seeds: document_seeds });
}

fn frames(input: &[u8]) -> Outcome {
    let bot = bot(&[("bot_id", "robot-1")], &[("secret", "s")]);
    let Some(frame) = Frame::read(&String::from_utf8_lossy(input)) else { return outcome(None::<usize>) };
    let shape = intake_of(&frame, &bot).map(|intake| shape(&intake, "wecom"));
    outcome((frame.errcode != Some(0), frame.req_id.is_empty(), shape))
}

fn frame_seeds() -> Vec<Vec<u8>> {
    let of = |more: &str| {
        format!(
            r#"{{"cmd":"aibot_msg_callback","headers":{{"req_id":"r"}},"body":{{"msgid":"m","aibotid":"robot-1","chatid":"g","chattype":"group","from":{{"userid":"ann"}},{more}}}}}"#
        )
    };
    [
        of(r#""msgtype":"text","text":{"content":"@Bot hi"},"quote":{"msgtype":"text","text":{"content":"q"}}"#),
        of(r#""msgtype":"image","image":{"url":"https://x","aeskey":"k"}"#),
        of(r#""msgtype":"mixed","mixed":{"msg_item":[{"msgtype":"text","text":{"content":"a"}},{"msgtype":"image","image":{"url":"u"}}]}"#),
        of(r#""msgtype":"voice","voice":{"content":"v"},"quote":{"msgtype":"file","file":{"url":"u"}}"#),
        of(r#""msgtype":"appmsg","appmsg":{"title":"t","file":{"url":"u","name":"n"}}"#),
        of(r#""msgtype":"video","video":{"url":"u"},"chatid":"","chattype":"single""#),
        r#"{"headers":{"req_id":"r"},"errcode":45009,"errmsg":"no"}"#.to_owned(),
        r#"{"cmd":"aibot_event_callback","headers":{"req_id":"r"},"body":{"event":{"eventtype":"disconnected_event"}}}"#.to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn frames_of_a_robot() {
    run(&Target { name: "wecom_frame", run: frames, seeds: frame_seeds });
}
