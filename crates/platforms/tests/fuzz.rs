//! The parsers of platforms that unauthenticated clients reach, for `FUZZ_SECONDS` each (two by default).
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use frontdesk_core::intake::{Handover, REMOTE_MEDIA_MAX, TenantSource};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_core::port::platform::{Bot, DoorAnswer, Platform as _, RawRequest};
use frontdesk_platforms::discord::Discord;
use frontdesk_platforms::hooks::{self, Hooks};
use frontdesk_platforms::matrix::Homeservers;
use frontdesk_platforms::shared::markdown::{Dialect, LIMIT_MIN, Unit, render};
use frontdesk_platforms::shared::standard_webhooks::sign;
use frontdesk_platforms::slack::{self, Slack};
use frontdesk_platforms::telegram::Telegram;
use frontdesk_platforms::{Kit, NoMedia};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::fakes::discord::{public_key, signature_headers};
use frontdesk_testkit::fuzz::engine::{Outcome, outcome};
use frontdesk_testkit::fuzz::{Settings, Target, fuzz};
use frontdesk_wire::Secret;
use futures_util::FutureExt as _;
use tokio::runtime::Runtime;

const KEY: &str = "the key of this webhook";
const NOW_S: u64 = 1_800_000_000;

fn run(target: &Target) {
    let settings = Settings::from_env();
    println!("fuzz {}: seed {}, {} s", target.name, settings.seed, settings.time.as_secs());
    match fuzz(target, &settings) {
        Ok(report) => println!("{report}"),
        Err(crash) => panic!("{crash}"),
    }
}

/// `id NUL timestamp NUL signature NUL body`
fn webhook(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(4, |byte| *byte == 0);
    let mut text = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    let (id, stamp, signature) = (text(), text(), text());
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let secrets = [("key".to_owned(), Secret::new(KEY))].into();
    let bot = Bot::new("builds", Some("home".into()), [].into(), secrets);
    let receive = |stamp: &str, signature: &str| {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"].map(str::to_owned);
        let headers = names.into_iter().zip([id.clone(), stamp.to_owned(), signature.to_owned()]).collect();
        let request = RawRequest { headers, body: body.clone(), now_ms: NOW_S * 1_000, ..RawRequest::default() };
        let hooks = Hooks::new(hooks::Settings { max_bytes: 256 << 10 });
        hooks.receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    // The fuzzer does not know the key.
    let strange = receive(&stamp, &signature).err().map(|reply| reply.status);
    assert_eq!(strange, Some(401), "{id:?} {stamp:?} {signature:?}");
    // What is signed is taken as it is, if it can be an event at all.
    let good = receive(&NOW_S.to_string(), &sign(KEY.as_bytes(), &id, NOW_S, &body));
    let is_id = !id.is_empty() && id.len() <= 256;
    let is_text = std::str::from_utf8(&body).is_ok_and(|text| !text.trim().is_empty());
    let taken = match good {
        Ok(received) => {
            let intake = &received.intakes[0];
            assert!(is_id && is_text && intake.from_program);
            assert_eq!(intake.tenant_source, TenantSource::Tenant("home".into()));
            assert_eq!(intake.event.text.as_bytes(), &body[..]);
            assert_eq!(intake.event.message_id.as_deref(), Some(id.as_str()));
            true
        }
        Err(reply) => {
            assert_eq!(reply.status, if is_id { 400 } else { 401 }, "{}", reply.body);
            assert!(!is_id || !is_text);
            false
        }
    };
    outcome((taken, id.len().min(300) / 50, stamp.parse::<u64>().is_ok(), signature.split(' ').count().min(20)))
}

fn seeds() -> Vec<Vec<u8>> {
    let foreign = sign(b"another key of somebody", "msg_1", NOW_S, b"{}");
    let join = |parts: [&str; 4]| parts.join("\0").into_bytes();
    vec![
        join(["msg_1", "1800000000", &foreign, "{}"]),
        join(["msg_1", "1800000000", &format!("v1,AAAA v1a,x {foreign}"), "{\"type\":\"a.b\",\"data\":{}}"]),
        join(["", "now", "v1,", ""]),
        join(["m", "-1", "v2,AAAA", " \n"]),
        join(["m", "18446744073709551615", "", "\u{fffd}"]),
    ]
}

/// A homeserver with one room, in which everything that is asked for is the same.
struct OneRoom;

impl Outcall for OneRoom {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        assert!(call.url.starts_with("http://127.0.0.1/_matrix/") && !call.url.contains("/../"), "{}", call.url);
        let body =
            br#"{"joined":{"@bot:x":{},"@ann:x":{},"@ben:x":{}},"event_id":"$e","sender":"@bot:x","type":"m.a"}"#;
        Box::pin(std::future::ready(Ok(HttpAnswer { body: body.to_vec(), ..HttpAnswer::of(200) })))
    }
}

/// Look-ups have time limits, which are never reached here.
static CLOCK: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());

/// `token NUL body`
fn transaction(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let token = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(OneRoom),
        media: Arc::new(NoMedia),
        public_url: String::new(),
        settings: toml::Table::new(),
    };
    let settings = [("homeserver_url", "http://127.0.0.1"), ("user_id", "@bot:x"), ("mode", "appservice")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let secrets = ["as_token", "hs_token"].map(|name| (name.to_owned(), Secret::new(KEY))).into();
    let bots = [Arc::new(Bot::new("b", Some("home".into()), settings, secrets))];
    let platform = Homeservers::new(&kit);
    let push = |headers: Vec<(String, String)>, query: &str| {
        let door = "/_matrix/app/v1/transactions/{txn}";
        let request = RawRequest { door, headers, query: query.into(), body: body.clone(), ..RawRequest::default() };
        let bot = platform.bot_of(&bots, &request).map(|bot| &**bot);
        let _inside = CLOCK.enter();
        platform.receive(bot, &request).now_or_never().expect("it waits for nothing")
    };
    // The fuzzer does not know the token.
    let header = |token: &str| vec![("authorization".to_owned(), format!("Bearer {token}"))];
    for refused in [push(header(&token), ""), push(Vec::new(), &format!("access_token={token}"))] {
        assert!(matches!(refused, Err(reply) if matches!(reply.status, 401 | 403)), "{token:?}");
    }
    let taken = match push(header(KEY), "") {
        Err(reply) => {
            assert_eq!(reply.status, 400, "{}", reply.body);
            None
        }
        Ok(received) => {
            for intake in &received.intakes {
                assert_ne!(intake.event.source.user_id.as_deref(), Some("@bot:x"));
                assert_eq!(intake.tenant_source, TenantSource::Tenant("home".into()));
            }
            Some((received.intakes.len().min(4), received.changes.len().min(4)))
        }
    };
    outcome((taken, token.len().min(64) / 8))
}

fn transaction_seeds() -> Vec<Vec<u8>> {
    let event = |kind: &str, content: &str| {
        format!(
            r#"t{}{{"events":[{{"event_id":"$1","room_id":"!r:x","sender":"@ann:x","type":"{kind}","content":{content}}}]}}"#,
            '\0'
        )
    };
    let relates =
        r#"{"m.relates_to":{"rel_type":"m.replace","event_id":"$2"},"m.new_content":{"msgtype":"m.text","body":"b"},"#;
    [
        event("m.room.message", r#"{"msgtype":"m.text","body":"@bot:x: /stop"}"#),
        event("m.room.message", &format!(r#"{relates}"msgtype":"m.text","body":"a"}}"#)),
        event("m.room.message", r#"{"msgtype":"m.image","body":"a","url":"mxc://x/a","info":{"size":1}}"#),
        event("m.reaction", r#"{"m.relates_to":{"event_id":"$2","key":"1⃣"}}"#),
        event("m.room.encrypted", "{}"),
        event("m.room.tombstone", r#"{"replacement_room":"!s:x"}"#),
        event("m.room.member", r#"{"membership":"invite"},"state_key":"@bot:x""#),
        "t\0{}".into(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn transactions() {
    run(&Target { name: "matrix_transaction", run: transaction, seeds: transaction_seeds });
}

#[test]
fn webhooks() {
    run(&Target { name: "webhook", run: webhook, seeds });
}

/// Knows the bot, and nothing else.
struct GetMe;

impl Outcall for GetMe {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        assert!(call.url.ends_with("/getMe"), "reading an update needs no other call");
        let body = br#"{"ok":true,"result":{"id":7001,"is_bot":true,"first_name":"d","username":"desk_bot"}}"#;
        Box::pin(std::future::ready(Ok(HttpAnswer { status: 200, body: body.to_vec(), ..HttpAnswer::default() })))
    }
}

/// An update as it comes by webhook.
fn telegram(input: &[u8]) -> Outcome {
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(GetMe),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let secrets = [("token", "7001:AAbbCCddEEffGGhhIIjjKKll"), ("webhook_secret", "0123456789abcdef")];
    let secrets = secrets.into_iter().map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
    let bot = Bot::new("tg", None, [("mode".to_owned(), "webhook".to_owned())].into(), secrets);
    let receive = |secret: &str| {
        let headers = vec![("x-telegram-bot-api-secret-token".to_owned(), secret.to_owned())];
        let request = RawRequest { headers, body: Bytes::copy_from_slice(input), ..RawRequest::default() };
        Telegram::new(&kit).receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    assert_eq!(receive("0123456789abcdeF").err().map(|reply| reply.status), Some(401));
    match receive("0123456789abcdef") {
        Err(reply) => {
            assert_eq!(reply.status, 400, "{}", reply.body);
            outcome(false)
        }
        Ok(received) => {
            assert!(received.intakes.len() <= 1);
            let shape = received.intakes.first().map(|intake| {
                let event = &intake.event;
                assert_eq!((&intake.tenant_source, intake.bot.as_str()), (&TenantSource::Shared, "tg"));
                assert_eq!(event.source.platform, "telegram");
                assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX);
                assert!(event.message_id.as_ref().is_some_and(|id| !id.is_empty()));
                let about = (event.source.chat_type.clone(), event.source.thread_id.is_some(), intake.addressed);
                (intake.refused.is_some(), event.message_type.clone(), about, event.prompt_response.is_some())
            });
            outcome((shape, received.changes.len()))
        }
    }
}

fn telegram_seeds() -> Vec<Vec<u8>> {
    let from = r#""from":{"id":5,"is_bot":false,"first_name":"Ann","last_name":"B"}"#;
    let group = r#""chat":{"id":-4,"type":"supergroup","title":"g","is_forum":true}"#;
    let in_group = |rest: &str| format!(r#"{{"update_id":9,"message":{{"message_id":3,{from},{group},{rest}}}}}"#);
    [
        in_group(r#""text":"@desk_bot hi","entities":[{"type":"mention","offset":0,"length":9}]"#),
        in_group(r#""text":"/go@desk_bot x","entities":[{"type":"bot_command","offset":0,"length":12}],"message_thread_id":7,"is_topic_message":true"#),
        in_group(r#""photo":[{"file_id":"f","file_size":3}],"caption":"c","media_group_id":"g1""#),
        in_group(r#""sticker":{"file_id":"s","emoji":"x","is_video":true}"#),
        in_group(r#""location":{"latitude":1.5,"longitude":-2},"venue":{"title":"t","address":"a"}"#),
        in_group(r#""text":"re","reply_to_message":{"message_id":2,"chat":{"id":-4},"text":"whole"},"quote":{"text":"part"}"#),
        in_group(r#""migrate_to_chat_id":-100"#),
        in_group(r#""new_chat_members":[{"id":6}]"#),
        format!(r#"{{"update_id":9,"callback_query":{{"id":"q",{from},"data":"hp1:p:yes","message":{{"message_id":3,"from":{{"id":7001}},"chat":{{"id":5,"type":"private"}},"reply_markup":{{"inline_keyboard":[[{{"text":"Yes","callback_data":"hp1:p:yes"}}]]}}}}}}}}"#),
        r#"{"update_id":9,"channel_post":{"message_id":1,"chat":{"id":-7,"type":"channel","title":"c"},"text":"news"}}"#.into(),
        r#"{"update_id":9,"my_chat_member":{"chat":{"id":-4}}}"#.into(),
        r#"{"update_id":9,"message":{"message_id":"x"}}"#.into(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn updates_of_telegram() {
    run(&Target { name: "telegram", run: telegram, seeds: telegram_seeds });
}

/// A byte for the limit, then the text of an agent. Every dialect must take it.
fn markdown(input: &[u8]) -> Outcome {
    let Some((limit, text)) = input.split_first() else { return outcome(()) };
    let limit = LIMIT_MIN + usize::from(*limit) * 4;
    let text = String::from_utf8_lossy(text);
    let mut shape = Vec::new();
    for dialect in Dialect::ALL {
        for unit in [Unit::Utf16, Unit::Bytes] {
            let parts = render(dialect, &text, limit, unit);
            for part in &parts {
                let length = unit.measure(&part.markup);
                // One character can be longer than the limit.
                assert!(length <= limit || limit < 64, "{dialect:?} {unit:?}: {length} of {limit}: {:?}", part.markup);
                assert!(!part.markup.trim().is_empty() && !part.plain.trim().is_empty(), "{dialect:?}: an empty part");
            }
            shape.push(parts.len().min(9));
        }
    }
    outcome(shape)
}

fn markdown_seeds() -> Vec<Vec<u8>> {
    [
        "\u{10}**bold _both_** and `code with \\` tick` ~~gone~~",
        "\u{20}# Head\n\n> quote\n> more\n\n1. one\n   - two\n     ```rs\n     let x = 1;\n     ```\n2. three",
        "\u{30}| a | b |\n|---|:-:|\n| x\\|y | [link](https://e.org/a_(b)_c) |\n",
        "\u{7f}~~~\nfence ``` inside\n~~~\n\n![image](http://e.org/i.png) <https://e.org/?a=1&b=2> \u{202e}rtl\u{200b}",
        "\u{1}👨‍👩‍👧‍👦🇩🇪e\u{301}漢字 \\* &amp; <b>html</b> <!-- x --> [ref]\n\n[ref]: http://e.org",
    ]
    .map(|seed| seed.as_bytes().to_vec())
    .to_vec()
}

#[test]
fn texts_of_agents() {
    run(&Target { name: "markdown", run: markdown, seeds: markdown_seeds });
}

/// A frame of the gateway socket.
fn discord(input: &[u8]) -> Outcome {
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(NoDiscord),
        media: Arc::new(NoMedia),
        public_url: String::new(),
        settings: toml::Table::new(),
    };
    let secrets = [("token".to_owned(), Secret::new("0123456789abcdef0123456789"))].into();
    let bot = Bot::new("dc", None, [].into(), secrets);
    let text = String::from_utf8_lossy(input).into_owned();
    let read = CLOCK.block_on(Discord::new(&kit).read_frame(&bot, "7001", &text));
    let shape = read.map(|intake| {
        let event = &intake.event;
        assert_eq!((&intake.tenant_source, intake.bot.as_str()), (&TenantSource::Shared, "dc"));
        assert_eq!(event.source.platform, "discord");
        assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX);
        let about = (event.source.chat_type.clone(), event.source.thread_id.is_some(), intake.addressed);
        (intake.refused.is_some(), event.message_type.clone(), about, event.reply_to.is_some(), event.text.is_empty())
    });
    outcome(shape)
}

/// Every channel is a thread of itself.
struct NoDiscord;

impl Outcall for NoDiscord {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        let path = call.url.strip_prefix("https://discord.com/api/v10/").unwrap_or_default();
        let id = path.strip_prefix("channels/").or_else(|| path.strip_prefix("guilds/")).unwrap_or_default();
        assert!(!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit()), "{}", call.url);
        let body = br#"{"id":"5","type":11,"guild_id":"3","name":"t","parent_id":"5","topic":"x"}"#;
        Box::pin(std::future::ready(Ok(HttpAnswer { body: body.to_vec(), ..HttpAnswer::of(200) })))
    }
}

fn discord_seeds() -> Vec<Vec<u8>> {
    let message = |rest: &str| {
        let base = r#""id":"9","channel_id":"5","author":{"id":"8","username":"ann"}"#;
        format!(r#"{{"op":0,"s":3,"t":"MESSAGE_CREATE","d":{{{base},{rest}}}}}"#)
    };
    [
        message(r#""guild_id":"3","content":"<@7001> hi","mentions":[{"id":"7001"}],"member":{"nick":"A"},"type":0"#),
        message(r#""content":"","attachments":[{"id":"1","filename":"a.png","content_type":"image/png","size":3}]"#),
        message(r#""content":"x","type":19,"message_reference":{"message_id":"2"},"referenced_message":{"id":"2","channel_id":"5","author":{"id":"7001"},"content":"y"}"#),
        message(r#""content":"","embeds":[{"title":"t","description":"d"}],"sticker_items":[{"name":"s"}],"webhook_id":"4""#),
        message(r#""guild_id":"3","content":"@r","mention_roles":["6"],"flags":8192,"edited_timestamp":"2026""#),
        message(r#""content":"x","type":21"#),
        r#"{"op":11}"#.to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn frames_of_discord() {
    run(&Target { name: "discord", run: discord, seeds: discord_seeds });
}

const DISCORD_APPLICATION: u64 = 7001;
/// Of every interaction whose token is a text; it is in nothing that an agent gets.
const INTERACTION_TOKEN: &str = "aW50ZXJhY3Rpb24token";

/// `signature NUL body`: a request to the interactions endpoint.
fn interaction(input: &[u8]) -> Outcome {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let signature = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(NoCalls),
        media: Arc::new(NoMedia),
        public_url: String::new(),
        settings: toml::Table::new(),
    };
    let settings = [("public_key".to_owned(), public_key(DISCORD_APPLICATION))].into();
    let secrets = [("token".to_owned(), Secret::new("0123456789abcdef0123456789"))].into();
    let bot = Bot::new("dc", None, settings, secrets);
    let platform = Discord::new(&kit);
    let post = |headers: [(&str, String); 2]| {
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value)).to_vec();
        let request = RawRequest { headers, body: body.clone(), now_ms: NOW_S * 1_000, ..RawRequest::default() };
        platform.receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    // The fuzzer does not know the key.
    let strange = post([("x-signature-ed25519", signature), ("x-signature-timestamp", NOW_S.to_string())]);
    assert_eq!(strange.err().map(|reply| reply.status), Some(401));
    let Ok(received) = post(signature_headers(DISCORD_APPLICATION, NOW_S * 1_000, &body)) else {
        assert!(serde_json::from_slice::<serde_json::Value>(&body).is_err(), "signed JSON is always answered");
        return outcome(None::<usize>);
    };
    let data: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let shape: Vec<_> = received
        .intakes
        .iter()
        .map(|intake| {
            let event = &intake.event;
            assert_eq!(
                (&intake.tenant_source, intake.bot.as_str(), event.source.platform.as_str()),
                (&TenantSource::Shared, "dc", "discord")
            );
            if data["token"] == INTERACTION_TOKEN
                && let Handover::Forward(forward) = &intake.handover
            {
                let sent = STANDARD.decode(&forward.body_b64).unwrap();
                assert!(!String::from_utf8_lossy(&sent).contains(INTERACTION_TOKEN), "the token is forwarded");
            }
            let is_press = event.prompt_response.is_some();
            assert!(!is_press || (intake.capabilities.is_empty() && matches!(intake.handover, Handover::Event)));
            let about = (event.source.chat_type.clone(), event.source.thread_id.is_some(), event.message_type.clone());
            (intake.refused.is_some(), intake.capabilities.len(), is_press, about)
        })
        .collect();
    let answer = match received.answer {
        DoorAnswer::Fixed(reply) => reply,
        DoorAnswer::FromReceipts(answer) => answer(&[]),
        DoorAnswer::File(..) => panic!("no file was asked for"),
    };
    let kind = serde_json::from_str::<serde_json::Value>(&answer.body).unwrap()["type"].as_u64();
    assert_eq!(answer.status, 200, "Discord takes no other status");
    outcome((shape, kind))
}

/// Nothing is asked while Discord waits for the answer.
struct NoCalls;

impl Outcall for NoCalls {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        panic!("{} is called", call.url);
    }
}

fn interaction_seeds() -> Vec<Vec<u8>> {
    let of = |rest: &str| {
        let base = format!(
            r#""id":"9","application_id":"7001","token":"{INTERACTION_TOKEN}","channel_id":"5","user":{{"id":"8","username":"a"}}"#
        );
        format!("00\0{{{base},{rest}}}")
    };
    let buttons = r#"[{"type":1,"components":[{"type":2,"label":"A","custom_id":"hp1:p:a"},{"type":3,"custom_id":"hps1:0:p","options":[{"label":"B","value":"b"}]}]}]"#;
    [
        of(r#""type":1"#),
        of(r#""type":2,"guild_id":"3","channel":{"id":"5","type":11,"parent_id":"4","name":"t"},"member":{"nick":"N","user":{"id":"8","username":"a"}},"data":{"id":"1","name":"ask","type":1,"options":[{"type":1,"name":"s","options":[{"type":3,"name":"q","value":"w"}]}]}"#),
        of(r#""type":2,"data":{"name":"Do","type":3,"target_id":"6","resolved":{"messages":{"6":{"id":"6","content":"x","author":{"id":"8"}}}}}"#),
        of(&format!(r#""type":3,"message":{{"id":"6","content":"q","components":{buttons}}},"data":{{"component_type":2,"custom_id":"hp1:p:a"}}"#)),
        of(&format!(r#""type":3,"message":{{"id":"6","components":{buttons}}},"data":{{"component_type":3,"custom_id":"hps1:0:p","values":["b"]}}"#)),
        of(r#""type":3,"message":{"id":"6"},"data":{"custom_id":"other"}"#),
        of(r#""type":4,"data":{"name":"ask"}"#),
        of(r#""type":5,"data":{"custom_id":"f","components":[{"type":1,"components":[{"type":4,"custom_id":"n","value":"v"}]}]}"#),
        of(r#""type":9"#),
        "00\0[]".to_owned(),
    ]
    .map(String::into_bytes)
    .to_vec()
}

#[test]
fn interactions_of_discord() {
    run(&Target { name: "discord_interaction", run: interaction, seeds: interaction_seeds });
}

/// Knows the bot and everybody.
struct NoSlack;

impl Outcall for NoSlack {
    fn check(&self, _: &str) -> Result<(), OutcallError> {
        Ok(())
    }

    fn call<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
        let method = call.url.strip_prefix("https://slack.com/api/").unwrap_or_default();
        assert!(
            matches!(method, "auth.test" | "users.info" | "conversations.info"),
            "nothing else is asked while an event is read: {}",
            call.url
        );
        let body = br#"{"ok":true,"user_id":"UBOT","bot_id":"BBOT","team_id":"T1","user":{"name":"ann"}}"#;
        Box::pin(std::future::ready(Ok(HttpAnswer { body: body.to_vec(), ..HttpAnswer::of(200) })))
    }
}

/// `door timestamp NUL signature NUL body`, where the door is one letter.
fn slack(input: &[u8]) -> Outcome {
    let kit = Kit {
        env: Arc::new(TestEnv::default()),
        outcall: Arc::new(NoSlack),
        media: Arc::new(NoMedia),
        public_url: "https://desk.example".into(),
        settings: toml::Table::new(),
    };
    let (door, rest) = input.split_first().unwrap_or((&b'e', &[]));
    let door = match door {
        b'c' => "/slack/{bot}/commands",
        b'i' => "/slack/{bot}/interactions",
        _ => "/slack/{bot}/events",
    };
    let mut parts = rest.splitn(3, |byte| *byte == 0);
    let mut text = || parts.next().map(|part| String::from_utf8_lossy(part).into_owned()).unwrap_or_default();
    let (stamp, signature) = (text(), text());
    let body = Bytes::copy_from_slice(parts.next().unwrap_or_default());
    let secrets = [("bot_token", "xoxb-1-2-abc"), ("signing_secret", KEY)];
    let secrets = secrets.into_iter().map(|(name, value)| (name.to_owned(), Secret::new(value))).collect();
    let bot = Bot::new("sl", None, [].into(), secrets);
    let receive = |stamp: &str, signature: &str| {
        let names = ["x-slack-request-timestamp", "x-slack-signature"].map(str::to_owned);
        let headers = names.into_iter().zip([stamp.to_owned(), signature.to_owned()]).collect();
        let request = RawRequest { door, headers, body: body.clone(), now_ms: NOW_S * 1_000, ..RawRequest::default() };
        let _clock = CLOCK.enter();
        Slack::new(&kit).receive(Some(&bot), &request).now_or_never().expect("it waits for nothing")
    };
    // The fuzzer does not know the key.
    assert_eq!(receive(&stamp, &signature).err().map(|reply| reply.status), Some(401), "{stamp:?} {signature:?}");
    let genuine = slack::signature::sign(&Secret::new(KEY), NOW_S, &body);
    match receive(&NOW_S.to_string(), &genuine) {
        Err(reply) => {
            assert_eq!(reply.status, 400, "{}", reply.body);
            outcome(false)
        }
        Ok(received) => {
            assert!(received.intakes.len() <= 1 && received.changes.len() <= 1);
            let shape = received.intakes.first().map(|intake| {
                let event = &intake.event;
                assert_eq!((&intake.tenant_source, intake.bot.as_str()), (&TenantSource::Shared, "sl"));
                assert_eq!((event.source.platform.as_str(), &event.source.scope_id), ("slack", &event.source.guild_id));
                assert!(intake.remote_media.len() <= REMOTE_MEDIA_MAX);
                assert!(event.message_id.as_ref().is_some_and(|id| !id.is_empty()));
                let kept = intake.capabilities.iter().all(|it| {
                    it.value.expose().starts_with("https://hooks.slack.com/")
                        || it.value.expose().starts_with("https://slack.com/")
                        || it.value.expose().contains(".slack.com")
                });
                assert!(kept && intake.capabilities.len() <= 1);
                let about = (event.source.chat_type.clone(), event.source.thread_id.is_some(), intake.addressed);
                (intake.refused.is_some(), event.message_type.clone(), about, event.prompt_response.is_some())
            });
            outcome((
                shape,
                received.changes.len(),
                received.gaps.len(),
                received.granted.is_empty(),
                received.afterwards.is_some(),
            ))
        }
    }
}

fn slack_seeds() -> Vec<Vec<u8>> {
    let event = |event: &str| {
        format!(
            r#"{{"type":"event_callback","team_id":"T1","api_app_id":"A1","event":{event},"authorizations":[{{"team_id":"T1","user_id":"UBOT","is_bot":true}}]}}"#
        )
    };
    let message = |rest: &str| {
        event(&format!(
            r#"{{"type":"message","channel":"C1","channel_type":"channel","user":"UANN","ts":"1700000000.000100",{rest}}}"#
        ))
    };
    let payload = |json: &str| format!("payload={}", json.replace('%', "%25").replace('&', "%26").replace('+', "%2B"));
    let of = |door: char, body: String| format!("{door}1800000000\0v0=00\0{body}").into_bytes();
    vec![
        of('e', r#"{"type":"url_verification","challenge":"abc"}"#.into()),
        of('e', r#"{"type":"app_rate_limited","minute_rate_limited":1700000000}"#.into()),
        of('e', message(r#""text":"<@UBOT> hello","thread_ts":"1699999999.000001","parent_user_id":"UBOT""#)),
        of('e', message(r#""text":"!stop","bot_id":"B2","app_id":"A2""#)),
        of('e', message(r#""subtype":"file_share","text":"x","files":[{"id":"F1","mimetype":"image/png","name":"a","size":3}]"#)),
        of('e', message(r#""text":"q","blocks":[{"type":"rich_text","elements":[{"type":"rich_text_quote","elements":[{"type":"text","text":"said"}]}]}],"attachments":[{"title":"t","from_url":"u"}]"#)),
        of('e', message(r#""subtype":"message_changed","message":{"type":"message","user":"UANN","text":"n","ts":"1.2","edited":{"ts":"2.3"}},"previous_message":{"text":"o"}"#)),
        of('e', event(r#"{"type":"member_left_channel","channel":"C1","user":"UANN"}"#)),
        of('e', event(r#"{"type":"channel_id_changed","old_channel_id":"G1","new_channel_id":"C2"}"#)),
        of('e', event(r#"{"type":"app_uninstalled"}"#)),
        of('c', "team_id=T1&channel_id=D1&channel_name=directmessage&user_id=UANN&command=%2Fx&text=a+b&trigger_id=1&response_url=https%3A%2F%2Fhooks.slack.com%2Fx".into()),
        of('c', "ssl_check=1".into()),
        of('i', payload(r#"{"type":"block_actions","team":{"id":"T1"},"user":{"id":"UANN"},"channel":{"id":"C1"},"container":{"message_ts":"1.2"},"message":{"text":"?"},"actions":[{"value":"hp1:p:y","action_ts":"3.4"}],"response_url":"https://hooks.slack.com/y"}"#)),
        of('i', payload(r#"{"type":"view_submission","view":{}}"#)),
    ]
}

#[test]
fn requests_of_slack() {
    run(&Target { name: "slack", run: slack, seeds: slack_seeds });
}
