//! The platform against a daemon that is a table of answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::media::{MediaBody, body_of, read_whole};
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, OpenAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{
    ActingAs, Bot, Change, Gap, Inlet, LateReceipt, ListenEnd, MediaFault, Part, Platform as _,
};
use frontdesk_core::port::store::StoreError;
use frontdesk_core::{DeskError, Env as _};
use frontdesk_testkit::TestEnv;
use frontdesk_wire::{Act, Action, ActionResult, Code, MessageId, Secret, TenantId, UserId};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::Signal;
use crate::{Kit, NoMedia};

const BASE: &str = "http://127.0.0.1:8080";
const ME: &str = "+15550001";
const ANN: &str = "0b6d7c9e-1111-4222-8333-444455556666";
const GROUP: &str = "group:R3JvdXA=";

/// One stream: its pieces, and whether it stays open after them.
type Stream = (Vec<&'static str>, bool);

/// Answers RPCs by their method, streams in turn.
#[derive(Default)]
struct Table {
    answers: Mutex<Vec<(&'static str, Result<Value, OutcallError>)>>,
    streams: Mutex<VecDeque<Stream>>,
    seen: Mutex<Vec<Value>>,
}

impl Table {
    fn on(&self, method: &'static str, result: Value) {
        self.answers.lock().unwrap().push((method, Ok(json!({ "jsonrpc": "2.0", "result": result, "id": method }))));
    }

    fn refuse(&self, method: &'static str, code: i64) {
        let error = json!({ "code": code, "message": "why", "data": null });
        self.answers.lock().unwrap().push((method, Ok(json!({ "jsonrpc": "2.0", "error": error, "id": method }))));
    }

    fn answer(&self, request: Value) -> Result<Vec<u8>, OutcallError> {
        assert_eq!(request["jsonrpc"], "2.0");
        let method = request["method"].as_str().unwrap().to_owned();
        self.seen.lock().unwrap().push(request);
        let answers = self.answers.lock().unwrap();
        let found = answers.iter().find(|(known, _)| *known == method).map(|(_, answer)| answer.clone());
        found
            .unwrap_or_else(|| Err(OutcallError::Failed(format!("no answer to {method}"))))
            .map(|it| it.to_string().into_bytes())
    }

    /// Parameters of the calls of a method.
    fn params(&self, method: &str) -> Vec<Value> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|it| it["method"] == method).map(|it| it["params"].clone()).collect()
    }
}

async fn request_of(body: Body<'_>) -> Value {
    match body {
        Body::Json(text) => serde_json::from_str(text).unwrap(),
        Body::Stream { body, length, .. } => {
            let bytes = read_whole(body).await.unwrap();
            assert!(length.is_none_or(|length| length == bytes.len() as u64), "the length is true");
            serde_json::from_slice(&bytes).unwrap()
        }
        _ => panic!("a call without a request"),
    }
}

impl Outcall for Table {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        Box::pin(async move {
            assert_eq!((call.url, call.trusted), (&*format!("{BASE}/api/v1/rpc"), Some(BASE)));
            let body = self.answer(request_of(call.body).await)?;
            Ok(HttpAnswer { status: 200, body, ..HttpAnswer::default() })
        })
    }

    fn open<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<OpenAnswer, OutcallError>> {
        Box::pin(async move {
            let body: MediaBody = match call.method {
                HttpMethod::Get => {
                    assert_eq!(call.url, format!("{BASE}/api/v1/events?account=%2B15550001"));
                    assert!(call.endless);
                    let next = self.streams.lock().unwrap().pop_front();
                    let (pieces, stays) = next.ok_or(OutcallError::NotSent("refused".into()))?;
                    let pieces = stream::iter(pieces).map(|piece| Ok(Bytes::from(piece)));
                    match stays {
                        true => Box::pin(pieces.chain(stream::pending())),
                        false => Box::pin(pieces),
                    }
                }
                _ => body_of(self.answer(request_of(call.body).await)?),
            };
            Ok(OpenAnswer { status: 200, headers: Vec::new(), body })
        })
    }
}

/// Notes what it is given; fails as often as a test asks for.
#[derive(Default)]
struct Notes {
    taken: Mutex<Vec<Intake>>,
    gaps: Mutex<Vec<Gap>>,
    fails: Mutex<usize>,
}

impl Inlet for Notes {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        let mut fails = self.fails.lock().unwrap();
        if *fails > 0 {
            *fails -= 1;
            return Box::pin(std::future::ready(Err(StoreError::Unavailable("full".into()).into())));
        }
        self.taken.lock().unwrap().extend(intakes);
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn changed(&self, _: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(false)))
    }

    fn gap(&self, gap: Gap) {
        self.gaps.lock().unwrap().push(gap);
    }

    fn save_cursor(&self, _: String) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(std::future::ready(Ok(())))
    }
}

struct World {
    table: Arc<Table>,
    env: Arc<TestEnv>,
    signal: Signal,
    bot: Bot,
}

fn world() -> World {
    let (table, env) = (Arc::new(Table::default()), Arc::new(TestEnv::default()));
    let kit = Kit {
        env: env.clone(),
        outcall: table.clone(),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let settings = [("url", BASE), ("account", ME)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let bot = Bot::new("b", Some("home".into()), settings.into(), [].into());
    World { signal: Signal::new(&kit), table, env, bot }
}

impl World {
    async fn act(&self, act: Act) -> ActionResult {
        let action: Action = act.into();
        self.signal.act(ActingAs::new(&"home".into(), &self.bot), &action, None).await.result
    }

    async fn send(&self, chat_id: &str, content: &str, reply_to: Option<&str>) -> ActionResult {
        let (content, reply_to) = (content.to_owned(), reply_to.map(str::to_owned));
        self.act(Act::Send { chat_id: chat_id.into(), content, reply_to: reply_to.map(MessageId::from) }).await
    }

    async fn listen(&self, notes: &Notes) -> ListenEnd {
        let listening = self.signal.listen(&self.bot, Part::WHOLE, None, notes);
        tokio::time::timeout(Duration::from_mins(10), listening).await.expect("it ends")
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_the_stream_are_stored_also_after_the_store_failed() {
    let world = world();
    let first =
        r#"{"envelope":{"sourceUuid":"ann","timestamp":1,"dataMessage":{"message":"one"}},"account":"+15550001"}"#;
    let text: &'static str = format!("event:receive\ndata:{first}\n\n:\n").leak();
    let (a, b) = text.split_at(40);
    let second =
        "data:{\"envelope\":{\"sourceUuid\":\"ann\",\"timestamp\":2,\"dataMessage\":{\"message\":\"two\"}}}\n\n";
    world.table.streams.lock().unwrap().push_back((vec![a, b, second], false));
    let notes = Notes { fails: Mutex::new(3), ..Notes::default() };
    assert_eq!(world.listen(&notes).await, ListenEnd::Lost("signal-cli ended the stream".into()));
    let texts: Vec<String> = notes.taken.lock().unwrap().iter().map(|it| it.event.text.clone()).collect();
    assert_eq!(texts, ["one", "two"], "in order, each once");
    assert!(notes.gaps.lock().unwrap().is_empty(), "nothing was before it");

    // A stream that is silent is left, and the time without one is reported.
    world.env.advance_ms(5_000);
    world.table.streams.lock().unwrap().push_back((vec![":\n", ":\n"], true));
    let until = world.env.now_ms();
    assert_eq!(world.listen(&notes).await, ListenEnd::Lost("the stream of signal-cli was silent for 60 s".into()));
    let gaps = notes.gaps.lock().unwrap();
    assert_eq!(gaps.iter().map(|it| (it.since_ms, it.until_ms)).collect::<Vec<_>>(), [(until - 5_000, until)]);
    assert!(gaps[0].reason.contains("--receive-mode on-connection"), "{}", gaps[0].reason);
}

#[tokio::test(start_paused = true)]
async fn events_of_a_listener_that_was_stopped_are_stored_by_the_next_one() {
    let world = world();
    let event = |at: u64, text: &str| {
        let envelope = json!({ "sourceUuid": "ann", "timestamp": at, "dataMessage": { "message": text } });
        format!("data:{}\n\n", json!({ "envelope": envelope }))
    };
    let both: &'static str = format!("{}{}", event(1, "one"), event(2, "two")).leak();
    world.table.streams.lock().unwrap().push_back((vec![both], true));
    let stopped = Notes { fails: Mutex::new(usize::MAX), ..Notes::default() };
    let listening = world.signal.listen(&world.bot, Part::WHOLE, None, &stopped);
    assert!(tokio::time::timeout(Duration::from_secs(10), listening).await.is_err(), "the store does not answer");
    let gaps: Vec<String> = stopped.gaps.lock().unwrap().iter().map(|it| it.reason.clone()).collect();
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    assert!(gaps[0].contains("before 2 messages were stored"), "{}", gaps[0]);

    world.table.streams.lock().unwrap().push_back((vec![], false));
    let notes = Notes::default();
    world.listen(&notes).await;
    let texts: Vec<String> = notes.taken.lock().unwrap().iter().map(|it| it.event.text.clone()).collect();
    assert_eq!(texts, ["one", "two"]);
}

#[tokio::test]
async fn a_text_goes_out_with_its_styles_to_a_person_or_a_group() {
    let world = world();
    world.table.on("send", json!({ "timestamp": 1_700_000_000_123_u64, "results": [{ "type": "SUCCESS" }] }));
    let result = world.send(ANN, "**Done.** See `log`", None).await;
    assert_eq!(result, ActionResult::sent("1700000000123"));
    world.send(GROUP, "hi", Some(&format!("1600000000000:{ANN}"))).await;
    world.send(GROUP, "hi", Some("1600000000001")).await;
    assert_eq!(
        world.table.params("send"),
        [
            json!({ "account": ME, "recipient": [ANN], "message": "Done. See log", "textStyles": ["0:5:BOLD", "10:3:MONOSPACE"] }),
            json!({ "account": ME, "groupId": "R3JvdXA=", "message": "hi", "quoteTimestamp": 1_600_000_000_000_u64, "quoteAuthor": ANN }),
            json!({ "account": ME, "groupId": "R3JvdXA=", "message": "hi", "quoteTimestamp": 1_600_000_000_001_u64, "quoteAuthor": ME }),
        ]
    );
    let empty = world.send(ANN, "  ", None).await;
    assert_eq!(empty.code, Some(Code::BadRequest));
    let long = world.send(ANN, &"x".repeat(9_000), None).await;
    assert_eq!(long.code, Some(Code::TooLarge), "the server splits before it sends");
    assert_eq!(world.table.params("send").len(), 3);
}

#[tokio::test]
async fn a_message_that_nobody_got_is_not_called_sent() {
    for (kind, code, ambiguous) in [
        ("UNREGISTERED_FAILURE", Code::BadRequest, false),
        ("IDENTITY_FAILURE", Code::Forbidden, false),
        ("RATE_LIMIT_FAILURE", Code::RateLimited, false),
        ("NETWORK_FAILURE", Code::Unknown, true),
    ] {
        let world = world();
        world.table.on("send", json!({ "timestamp": 1, "results": [{ "type": kind, "retryAfterSeconds": 9 }] }));
        let result = world.send(ANN, "hi", None).await;
        assert_eq!((result.code, result.ambiguous, result.success), (Some(code), ambiguous, false), "{kind}");
    }
    let world = world();
    world
        .table
        .on("send", json!({ "timestamp": 1, "results": [{ "type": "NETWORK_FAILURE" }, { "type": "SUCCESS" }] }));
    assert!(world.send(GROUP, "hi", None).await.success, "somebody of the group has it");
    let world = self::world();
    world.table.refuse("send", -4);
    let result = world.send(ANN, "hi", None).await;
    assert!(result.error.unwrap().contains("signal-cli trust"));
}

#[tokio::test]
async fn typing_and_reactions_name_their_target() {
    let world = world();
    world.table.on("sendTyping", json!({}));
    world.table.on("sendReaction", json!({ "timestamp": 1, "results": [{ "type": "SUCCESS" }] }));
    for content in [None, Some(String::new())] {
        assert!(world.act(Act::Typing { chat_id: ANN.into(), content }).await.success);
    }
    let react = |message_id: &str, remove| Act::React {
        chat_id: GROUP.into(),
        message_id: message_id.into(),
        emoji: "👍".into(),
        remove,
    };
    assert!(world.act(react(&format!("5:{ANN}"), false)).await.success);
    assert!(world.act(react("6", true)).await.success);
    assert_eq!(world.act(react("x", false)).await.code, Some(Code::BadRequest));
    assert_eq!(
        world.table.params("sendTyping"),
        [
            json!({ "account": ME, "recipient": [ANN], "stop": false }),
            json!({ "account": ME, "recipient": [ANN], "stop": true }),
        ]
    );
    let of = |author: &str, sent: u64, remove| {
        json!({ "account": ME, "groupId": "R3JvdXA=", "emoji": "👍", "targetAuthor": author, "targetTimestamp": sent,
                "remove": remove })
    };
    assert_eq!(world.table.params("sendReaction"), [of(ANN, 5, false), of(ME, 6, true)]);
}

#[tokio::test]
async fn only_members_see_a_group() {
    let world = world();
    let members = json!([{ "uuid": ANN, "number": "+15550002" }, { "uuid": null, "number": "+15550003" }]);
    world.table.on("listGroups", json!([{ "id": "R3JvdXA=", "name": "Ops", "members": members }]));
    let look = async |chat: &str, viewer: Option<&str>| {
        let viewer = viewer.map(UserId::from);
        let home = TenantId::from("home");
        world.signal.look(ActingAs::new(&home, &world.bot), &chat.into(), viewer.as_ref()).await.unwrap()
    };
    assert_eq!(look(GROUP, Some(ANN)).await.unwrap().visible, Some(true));
    assert_eq!(look(GROUP, Some("somebody")).await.unwrap().visible, Some(false));
    assert_eq!(look(GROUP, None).await.unwrap().info.name, "Ops");
    assert!(look("group:other", None).await.is_none());
    let own = look(ANN, Some(ANN)).await.unwrap();
    assert_eq!((own.visible, own.person.as_deref()), (Some(true), Some(ANN)));
    assert_eq!(look(ANN, Some("somebody")).await.unwrap().visible, Some(false));
}

#[tokio::test]
async fn a_file_is_fetched_from_the_daemon_when_it_is_needed() {
    let world = world();
    world.table.on("getAttachment", json!({ "data": "aGVsbG8=" }));
    let handle = Secret::new(json!({ "id": "x1.png", "chat_id": ANN }).to_string());
    let file = world.signal.fetch_media(&world.bot, &handle).await.unwrap();
    assert_eq!(read_whole(file.body).await.unwrap(), b"hello");
    assert_eq!(world.table.params("getAttachment"), [json!({ "account": ME, "recipient": ANN, "id": "x1.png" })]);
    let world = self::world();
    world.table.refuse("getAttachment", -1);
    assert!(matches!(world.signal.fetch_media(&world.bot, &handle).await, Err(MediaFault::Gone(_))));
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_reason() {
    let world = world();
    for (url, account, expected) in [
        ("127.0.0.1:8080", ME, "must begin with http"),
        (BASE, "15550001", "country code"),
        (BASE, "+1 555", "country code"),
        (BASE, "", "country code"),
    ] {
        let settings = [("url", url), ("account", account)].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let bot = Bot::new("b", None, settings.into(), [].into());
        let why = world.signal.check_bot(&bot).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(world.signal.check_bot(&world.bot), Ok(()));
    let other = Arc::new(Bot::new("c", None, [("account".to_owned(), ME.to_owned())].into(), [].into()));
    assert!(world.signal.clash(&world.bot, &[other]).unwrap_err().contains("same account"));
}
