//! Requests of unauthenticated clients to the routes of phone numbers: verifiers, decoders and normalizers, for
//! `FUZZ_SECONDS` each (two by default).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use bytes::Bytes;
use frontdesk_core::intake::{HANDLE_MAX_BYTES, Intake, REMOTE_MEDIA_MAX, TenantSource};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Bot, Platform as _, RawRequest, ReceivedRequest, Reply};
use frontdesk_platforms::twilio::{self, Sms};
use frontdesk_platforms::whatsapp::{self, WhatsApp};
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};
use frontdesk_wire::Secret;
use futures_util::FutureExt as _;

fn run(target: &Target) {
    let settings = Settings::from_env();
    println!("fuzz {}: seed {}, {} s", target.name, settings.seed, settings.time.as_secs());
    match fuzz(target, &settings) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}

/// Nothing is asked while a vendor waits for the answer.
struct NoCalls;

impl Outcall for NoCalls {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        panic!("{} is called", call.url);
    }
}

fn kit() -> Kit {
    Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(NoCalls),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    }
}

fn bot(settings: &[(&str, &str)], secrets: &[(&str, &str)]) -> Bot {
    let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Bot::new("b", None, settings, secrets)
}

/// What holds for every event of a shared bot, and what tells one from another.
fn shape(intake: &Intake, platform: &str) -> (bool, String, usize, bool) {
    let event = &intake.event;
    assert_eq!(
        (&intake.tenant_source, intake.bot.as_str(), event.source.platform.as_str()),
        (&TenantSource::Shared, "b", platform)
    );
    assert!(event.message_id.as_ref().is_some_and(|id| !id.is_empty()));
    assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX && intake.reports_to.is_none() && !intake.from_program);
    assert!(intake.refused.is_some() || event.source.user_id.as_ref().is_some_and(|id| !id.is_empty()));
    assert!(intake.remote_media.iter().all(|file| file.handle.expose().len() < HANDLE_MAX_BYTES << 4));
    (intake.refused.is_some(), event.message_type.clone(), intake.remote_media.len(), event.prompt_response.is_some())
}

/// `door NUL query NUL signature NUL body`: the body as a form, and as JSON.
fn sms(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(4, |byte| *byte == 0);
    let mut text = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    let (door, query, signature) = (text(), text(), text());
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let is_status = door.starts_with('s');
    let platform = Sms::new(&kit());
    let bot = bot(&[("account_sid", "AC1"), ("from", "+15559990000")], &[("auth_token", "the-token")]);
    let path = if is_status { "https://desk.example/twilio/b/status" } else { "https://desk.example/twilio/b" };
    let url = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    let receive = |mime: &str, signature: &str| -> Result<ReceivedRequest, Reply> {
        let headers = [("content-type", mime), ("x-twilio-signature", signature)];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let door = if is_status { "/twilio/{bot}/status" } else { "/twilio/{bot}" };
        let request = RawRequest { door, query: query.clone(), headers, body: body.clone(), ..RawRequest::default() };
        platform.receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    let mut seen = Vec::new();
    for mime in ["application/x-www-form-urlencoded", "application/json", ""] {
        // The fuzzer does not know the token.
        let strange = receive(mime, &signature).err().map(|reply| reply.status);
        assert!(matches!(strange, Some(400 | 403)), "{strange:?} {signature:?}");
        // What is signed as a form of these fields is read, whatever it says.
        let signed =
            twilio::signature::Signed { url: &url, content_type: Some(mime), signature: Some(&signature), body: &body };
        let _ = twilio::signature::verify("another token", signed);
        let form: &[u8] = if mime.ends_with("urlencoded") { &body } else { b"" };
        let good = twilio::signature::sign_body("the-token", &url, form).unwrap_or_default();
        let taken = receive(mime, &good);
        if let Err(reply) = &taken {
            let is_form = mime.ends_with("urlencoded") && !good.is_empty();
            let is_read = reply.status == 400 || reply.body.contains("another account");
            assert!(is_read || !is_form, "a form that is signed was not read: {} {}", reply.status, reply.body);
        }
        let taken = taken.ok();
        seen.push(taken.map(|received| {
            assert!(received.intakes.len() + received.receipts.len() <= 1);
            let shapes: Vec<_> = received.intakes.iter().map(|intake| shape(intake, "sms")).collect();
            (shapes, received.receipts.iter().map(|receipt| receipt.event.is_some()).collect::<Vec<_>>())
        }));
    }
    outcome((seen, is_status))
}

fn sms_seeds() -> Vec<Vec<u8>> {
    let json = r#"{"MessageSid":"SM1","From":"+15550001111","Body":"x","NumMedia":0}"#;
    [
        "m\0\0AAAA\0MessageSid=SM1&AccountSid=AC1&From=%2B15550001111&To=%2B15559990000&Body=hello&NumMedia=0",
        "m\0a=1\0\0MessageSid=MM1&From=%2B1555&Body=&NumMedia=2&MediaUrl0=https%3A%2F%2Fapi.twilio.com%2Fx&MediaContentType0=image%2Fpng&MediaUrl1=y",
        "m\0\0x\0SmsSid=SM1&From=whatsapp%3A%2B1&Body=STOP&OptOutType=STOP",
        "s\0key=1.2.0\0x\0MessageSid=SM1&MessageStatus=undelivered&ErrorCode=30003&To=%2B1555",
        "s\0\0x\0SmsSid=SM1&SmsStatus=delivered",
        "m\0\0x\0&&=&%=%%&a=%ff&a",
        &format!("m\0bodySHA256=00\0x\0{json}"),
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}

#[test]
fn forms_of_twilio() {
    run(&Target { name: "twilio_form", run: sms, seeds: sms_seeds });
}

/// `query NUL signature NUL body`
fn graph(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(3, |byte| *byte == 0);
    let mut text = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    let (query, signature) = (text(), text());
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let platform = WhatsApp::new(&kit());
    let secrets =
        [("access_token", "a"), ("app_secret", "the secret of the app"), ("verify_token", "the verify token")];
    let bot = bot(&[("phone_number_id", "106540352242922")], &secrets);
    let receive = |query: &str, signature: &str, body: &Bytes| {
        let headers = vec![("x-hub-signature-256".to_owned(), signature.to_owned())];
        let (query, body) = (query.to_owned(), body.clone());
        let request = RawRequest { door: "/whatsapp/{bot}", query, headers, body, ..RawRequest::default() };
        platform.receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    // The fuzzer knows neither the secret nor the token.
    let strange = receive(&query, &signature, &body).err().map(|reply| reply.status);
    assert!(matches!(strange, Some(401 | 403)), "{strange:?} {query:?} {signature:?}");
    let good = whatsapp::signature::sign("the secret of the app", &body);
    let Ok(received) = receive("", &good, &body) else { return outcome(None::<usize>) };
    let shapes: Vec<_> = received.intakes.iter().map(|intake| shape(intake, "whatsapp_cloud")).take(8).collect();
    let receipts: Vec<bool> = received.receipts.iter().map(|receipt| receipt.event.is_some()).take(8).collect();
    outcome((shapes, receipts))
}

fn graph_seeds() -> Vec<Vec<u8>> {
    let of = |value: &str| {
        let metadata = r#""metadata":{"display_phone_number":"1555","phone_number_id":"106540352242922"}"#;
        let contacts = r#""contacts":[{"wa_id":"4912345","profile":{"name":"Ann"}}]"#;
        let change = format!(r#"{{"field":"messages","value":{{{metadata},{contacts},{value}}}}}"#);
        format!(
            "hub.mode=subscribe\0sha256=00\0{{\"object\":\"whatsapp_business_account\",\"entry\":[{{\"changes\":[{change}]}}]}}"
        )
    };
    let message = |rest: &str| of(&format!(r#""messages":[{{"id":"w1","from":"4912345","timestamp":"1",{rest}}}]"#));
    [
        message(r#""type":"text","text":{"body":"hi"},"context":{"id":"w0","from":"1555"}"#),
        message(r#""type":"image","image":{"id":"m","mime_type":"image/png","caption":"c"}"#),
        message(r#""type":"document","document":{"id":"m","filename":"a.pdf"}"#),
        message(r#""type":"interactive","interactive":{"button_reply":{"id":"hp1:p:y","title":"Y"}},"context":{"id":"w0"}"#),
        message(r#""type":"location","location":{"latitude":1.5,"longitude":2}"#),
        message(r#""type":"contacts","contacts":[{"name":{"formatted_name":"B"},"phones":[{"phone":"1"}]}]"#),
        message(r#""type":"unsupported","group_id":"g""#),
        of(r#""statuses":[{"id":"w1","status":"failed","recipient_id":"4912345","errors":[{"code":131047,"title":"t"}]},{"id":"w2","status":"delivered"}]"#),
        "hub.mode=subscribe&hub.verify_token=x&hub.challenge=1\0\0".to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn webhooks_of_whatsapp() {
    run(&Target { name: "whatsapp_webhook", run: graph, seeds: graph_seeds });
}
