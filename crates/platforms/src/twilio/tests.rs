//! Forms in, calls out: what is stored, and what Twilio gets.

use std::collections::VecDeque;
use std::sync::Mutex;

use frontdesk_core::intake::TenantSource;
use frontdesk_core::port::media::{body_of, read_whole};
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, OpenAnswer, OutcallError};
use frontdesk_testkit::TestEnv;
use frontdesk_wire::{Code, TenantId};
use serde_json::{Value, json};

use super::*;
use crate::NoMedia;

const ANN: &str = "+15550001111";
const OWN: &str = "+15559990000";
const SID: &str = "AC00000000000000000000000000000001";

type Form = Vec<(String, String)>;

/// Answers calls in turn with what was queued, else with a message; records what was asked.
#[derive(Default)]
struct Vendor {
    calls: Mutex<Vec<(String, Form)>>,
    answers: Mutex<VecDeque<(u16, Value)>>,
}

impl Outcall for Vendor {
    fn check(&self, url: &str) -> Result<(), OutcallError> {
        if url.contains("private") { Err(OutcallError::Refused) } else { Ok(()) }
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        let form = match call.body {
            Body::Form(form) => form.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            _ => Vec::new(),
        };
        let basic = call.headers.iter().find(|(name, _)| *name == "authorization").map(|(_, value)| *value);
        assert_eq!(basic, Some("Basic QUMwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMTp0aGUtdG9rZW4="));
        let mut calls = self.calls.lock().unwrap();
        calls.push((call.url.to_owned(), form));
        let usual = (201, json!({ "sid": format!("SM{}", calls.len()), "status": "queued" }));
        let (status, body) = self.answers.lock().unwrap().pop_front().unwrap_or(usual);
        let answer = HttpAnswer { body: body.to_string().into_bytes(), ..HttpAnswer::of(status) };
        Box::pin(std::future::ready(Ok(answer)))
    }

    /// The API sends on to a store of files, which gets no credentials.
    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        let (status, headers, body) = if call.url.starts_with("https://api.twilio.com/") {
            assert_eq!(call.headers.len(), 1);
            (307, vec![("location".to_owned(), "https://files.example/x?signature=1".to_owned())], "")
        } else {
            assert!(call.headers.is_empty(), "{}", call.url);
            (200, vec![("content-type".to_owned(), "image/png".to_owned())], "png")
        };
        Box::pin(std::future::ready(Ok(OpenAnswer { status, headers, body: body_of(body) })))
    }
}

struct Scene {
    vendor: Arc<Vendor>,
    platform: Sms,
    bot: Bot,
}

impl Scene {
    fn new(from: &str) -> Self {
        let vendor = Arc::new(Vendor::default());
        let kit = Kit {
            env: Arc::new(TestEnv::default()),
            outcall: vendor.clone(),
            media: Arc::new(NoMedia),
            public_url: "https://desk.example".into(),
            settings: toml::Table::new(),
        };
        let settings = [("account_sid", SID), ("from", from)];
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = [("auth_token".to_owned(), Secret::new("the-token"))].into();
        let bot = Bot::new("sms", Some("home".into()), settings, secrets);
        let platform = Sms::new(&kit);
        assert_eq!(platform.check_bot(&bot), Ok(()));
        Self { vendor, platform, bot }
    }

    fn request(door: &'static str, url: &str, query: &str, pairs: &[(&str, &str)]) -> RawRequest {
        let fields: Form = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let escaped = |text: &str| text.replace('%', "%25").replace('+', "%2B").replace('&', "%26").replace(' ', "+");
        let body: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let headers = vec![
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ("x-twilio-signature".to_owned(), signature::sign("the-token", url, &fields)),
            ("x-forwarded-host".to_owned(), "evil.example".to_owned()),
        ];
        RawRequest {
            door,
            query: query.into(),
            headers,
            body: body.join("&").into_bytes().into(),
            ..RawRequest::default()
        }
    }

    fn receive(&self, pairs: &[(&str, &str)]) -> Result<ReceivedRequest, Reply> {
        let all = [&[("MessageSid", "SMin"), ("AccountSid", SID), ("From", ANN), ("To", OWN)], pairs].concat();
        self.platform.handle_request(&self.bot, &Self::request(MESSAGES, "https://desk.example/twilio/sms", "", &all))
    }

    async fn act(&self, action: Value) -> Acted {
        let action = Action::parse(&action.to_string()).unwrap();
        let home = TenantId::from("home");
        let acting_as = ActingAs { idempotency_key: Some("7.1.0"), ..ActingAs::new(&home, &self.bot) };
        self.platform.act(acting_as, &action, None).await
    }

    async fn send(&self, text: &str) -> Acted {
        self.act(json!({ "op": "send", "chat_id": ANN, "content": text })).await
    }

    fn calls(&self) -> Vec<Form> {
        self.vendor.calls.lock().unwrap().iter().map(|(_, form)| form.clone()).collect()
    }

    fn answer(&self, status: u16, body: Value) {
        self.vendor.answers.lock().unwrap().push_back((status, body));
    }
}

#[test]
fn a_genuine_message_is_taken_and_answered_with_nothing() {
    let scene = Scene::new(OWN);
    let received = scene.receive(&[("Body", "hello + you")]).ok().unwrap();
    assert_eq!(
        (received.intakes[0].event.text.as_str(), &received.intakes[0].tenant_source),
        ("hello + you", &TenantSource::Tenant("home".into()))
    );
    let DoorAnswer::Fixed(reply) = received.answer else { panic!("no reply") };
    assert_eq!((reply.status, reply.content_type, reply.body.as_str()), (200, "text/xml", EMPTY_TWIML));
}

#[test]
fn the_url_is_that_of_the_configuration() {
    let scene = Scene::new(OWN);
    let fields = [("MessageSid", "SM1"), ("From", ANN), ("Body", "x")];
    for (url, query, is_ours) in [
        ("https://desk.example/twilio/sms", "", true),
        ("https://desk.example:443/twilio/sms", "", true),
        ("https://desk.example/twilio/sms?a=1&b=2", "a=1&b=2", true),
        ("https://desk.example/twilio/sms?b=2&a=1", "a=1&b=2", false),
        ("https://desk.example/twilio/sms", "a=1", false),
        ("https://evil.example/twilio/sms", "", false),
        ("https://desk.example/twilio/other", "", false),
        ("https://desk.example/twilio/sms/status", "", false),
        ("http://desk.example/twilio/sms", "", false),
    ] {
        let received = scene.platform.handle_request(&scene.bot, &Scene::request(MESSAGES, url, query, &fields));
        assert_eq!(received.err().map(|reply| reply.status), (!is_ours).then_some(403), "{url} {query}");
    }
    let mut twice = Scene::request(MESSAGES, "https://desk.example/twilio/sms", "", &fields);
    let again = twice.headers[1].clone();
    twice.headers.push(again);
    assert_eq!(
        scene.platform.handle_request(&scene.bot, &twice).err().map(|reply| reply.status),
        Some(403),
        "two signatures"
    );
    let other = scene.receive(&[("Body", "x"), ("AccountSid", "ACother")]);
    assert!(other.is_ok(), "the first value counts");
    let foreign = [("MessageSid", "SM1"), ("AccountSid", "ACother"), ("From", ANN), ("Body", "x")];
    let reply = scene
        .platform
        .handle_request(&scene.bot, &Scene::request(MESSAGES, "https://desk.example/twilio/sms", "", &foreign));
    assert!(reply.err().unwrap().body.contains("another account"));
}

#[test]
fn a_status_names_its_message_and_its_key() {
    let scene = Scene::new(OWN);
    let fields = [("MessageSid", "SM7"), ("MessageStatus", "failed"), ("ErrorCode", "30007"), ("To", ANN)];
    let url = "https://desk.example/twilio/sms/status?key=7.1.0";
    let received =
        scene.platform.note_status(&scene.bot, &Scene::request(STATUSES, url, "key=7.1.0", &fields)).ok().unwrap();
    let [receipt] = &received.receipts[..] else { panic!("{:?}", received.receipts) };
    assert_eq!((receipt.vendor_id.as_str(), receipt.key.as_deref()), ("SM7", Some("7.1.0")));
    assert!(receipt.note.contains("carrier filtered"), "{}", receipt.note);
    let forged = Scene::request(STATUSES, url, "key=8.1.0", &fields);
    assert_eq!(scene.platform.note_status(&scene.bot, &forged).err().map(|reply| reply.status), Some(403));
}

#[tokio::test]
async fn a_text_goes_out_plain_and_with_a_callback() {
    let scene = Scene::new(OWN);
    let acted = scene.send("**Done**").await;
    assert_eq!((acted.result.message_id.as_deref(), acted.receipt_id.as_deref()), (Some("SM1"), Some("SM1")));
    let callback = "https://desk.example/twilio/sms/status?key=7.1.0";
    let wanted = [("To", ANN), ("From", OWN), ("StatusCallback", callback), ("Body", "Done")];
    assert_eq!(scene.calls(), [wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()]);
    let url = scene.vendor.calls.lock().unwrap()[0].0.clone();
    assert_eq!(url, format!("https://api.twilio.com/2010-04-01/Accounts/{SID}/Messages.json"));
    let service = Scene::new("MG123");
    assert!(service.send("x").await.result.success);
    assert_eq!(service.calls()[0][1], ("MessagingServiceSid".to_owned(), "MG123".to_owned()));
}

#[tokio::test]
async fn who_said_stop_gets_nothing_until_start() {
    let scene = Scene::new(OWN);
    let received = scene.receive(&[("Body", "Stop")]).ok().unwrap();
    assert!(received.intakes[0].refused.is_some(), "no agent gets it");
    let result = scene.send("are you sure?").await.result;
    assert_eq!((result.code, scene.calls().len()), (Some(Code::Forbidden), 0));
    assert!(result.error.unwrap().contains("START"));
    let taken = scene.receive(&[("Body", "start")]).ok().unwrap();
    assert_eq!(taken.intakes[0].refused, None);
    assert!(scene.send("welcome back").await.result.success);
    // Twilio knows more than this server.
    scene.answer(400, json!({ "code": 21610, "message": "unsubscribed" }));
    assert_eq!(scene.send("x").await.result.code, Some(Code::Forbidden));
    assert_eq!(scene.send("y").await.result.code, Some(Code::Forbidden));
    assert_eq!(scene.calls().len(), 2, "it is not asked twice");
}

#[tokio::test]
async fn an_unknown_outcome_is_reported_and_found_by_its_key() {
    let scene = Scene::new(OWN);
    scene.answer(503, json!({}));
    let acted = scene.send("x").await;
    assert_eq!((acted.result.ambiguous, acted.receipt_id.as_deref()), (true, Some("7.1.0")));
    scene.answer(201, json!({ "sid": "SM9", "status": "failed", "error_code": 30005, "error_message": "unknown" }));
    let result = scene.send("x").await.result;
    assert_eq!((result.success, result.code), (false, Some(Code::PlatformFailed)));
    // A callback that Twilio cannot reach does not keep the message back.
    scene.answer(400, json!({ "code": 21609, "message": "The 'StatusCallback' URL is not a valid URL" }));
    assert!(scene.send("x").await.result.success);
    assert!(scene.calls().last().unwrap().iter().all(|(name, _)| name != "StatusCallback"));
}

#[tokio::test]
async fn files_are_fetched_by_twilio() {
    let scene = Scene::new(OWN);
    let media = |url: &str, caption: &str| json!({ "op": "send_media", "chat_id": ANN, "media_kind": "image", "source_url": url, "content": caption });
    assert!(scene.act(media("https://files.example/a.png", "look")).await.result.success);
    let sent = scene.calls().remove(0);
    assert_eq!(first(&sent, "MediaUrl"), Some("https://files.example/a.png"));
    assert_eq!(first(&sent, "Body"), Some("look"));
    let refused = scene.act(media("http://private/a.png", "")).await.result;
    assert_eq!(refused.code, Some(Code::UrlRefused));
    assert!(scene.act(media("https://files.example/a.png", &"word ".repeat(500))).await.result.success);
    let calls = scene.calls();
    assert_eq!(calls.len(), 3);
    assert_eq!((first(&calls[1], "MediaUrl").is_some(), first(&calls[2], "MediaUrl")), (true, None));
    scene.answer(201, json!({ "sid": "SMfile", "status": "queued" }));
    scene.answer(400, json!({ "code": 21610, "message": "unsubscribed" }));
    let result = scene.act(media("https://files.example/a.png", &"word ".repeat(500))).await.result;
    assert_eq!((result.code, result.message_id.as_deref()), (Some(Code::Partial), Some("SMfile")));
}

#[tokio::test]
async fn a_file_is_followed_to_where_it_is() {
    let scene = Scene::new(OWN);
    let handle = Secret::new("https://api.twilio.com/2010-04-01/Accounts/AC1/Messages/MM1/Media/ME1");
    let file = scene.platform.fetch(&scene.bot, &handle).await.ok().unwrap();
    assert_eq!((file.mime.as_str(), read_whole(file.body).await.unwrap().as_slice()), ("image/png", &b"png"[..]));
    let fault = scene.platform.fetch(&scene.bot, &Secret::new("https://evil.example/x")).await.err().unwrap();
    assert!(matches!(fault, MediaFault::Gone(_)));
}

#[tokio::test]
async fn wrong_numbers_and_empty_texts_are_refused_before_anything_is_sent() {
    let scene = Scene::new(OWN);
    for chat_id in ["whatsapp:+15550001111", "ann", "5550001111", ""] {
        let result = scene.act(json!({ "op": "send", "chat_id": chat_id, "content": "x" })).await.result;
        assert_eq!(result.code, Some(Code::BadRequest), "{chat_id}");
    }
    assert_eq!(scene.send(" \n").await.result.code, Some(Code::BadRequest));
    assert_eq!(scene.send(&"x".repeat(1_601)).await.result.code, Some(Code::TooLarge));
    assert!(scene.calls().is_empty());
}

#[tokio::test]
async fn while_the_token_changes_both_are_believed_and_the_first_one_calls() {
    let mut scene = Scene::new(OWN);
    let settings = [("account_sid", SID), ("from", OWN)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    for (tokens, is_believed) in
        [("the-token another", true), ("another the-token\n", true), ("one two the-token", false), ("", false)]
    {
        let secrets = [("auth_token".to_owned(), Secret::new(tokens))].into();
        scene.bot = Bot::new("sms", Some("home".into()), settings.clone().into(), secrets);
        assert_eq!(scene.receive(&[("Body", "x")]).is_ok(), is_believed, "{tokens:?}");
    }
    let secrets = [("auth_token".to_owned(), Secret::new("the-token another"))].into();
    scene.bot = Bot::new("sms", Some("home".into()), settings.into(), secrets);
    assert!(scene.send("x").await.result.success, "the vendor of the test asks for the first one");
}

#[test]
fn a_bot_needs_an_account_a_number_and_a_token() {
    let scene = Scene::new(OWN);
    let check = |sid: &str, from: &str, base: &str| {
        let settings = [("account_sid", sid), ("from", from), ("base_url", base)];
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = [("auth_token".to_owned(), Secret::new("t"))].into();
        scene.platform.check_bot(&Bot::new("b", None, settings, secrets))
    };
    assert_eq!((check("AC1", "+15550001111", ""), check("AC1", "MG1", "http://127.0.0.1")), (Ok(()), Ok(())));
    assert!(check("SK1", OWN, "").unwrap_err().contains("AC"));
    assert!(check("AC1/../x", OWN, "").is_err());
    assert!(check("AC1", "5550001111", "").unwrap_err().contains("+15551234567"));
    assert!(check("AC1", OWN, "ftp://x").unwrap_err().contains("base_url"));
}
