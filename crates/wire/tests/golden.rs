//! Golden JSON of every type on the wire. Output is compared byte by byte, input field by field. A change here is a
//! change of the contract.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::borrow::Cow;
use std::fmt::Debug;
use std::path::PathBuf;

use frontdesk_wire::action::{ActionError, PromptOption, check_prompt, prompt_token};
use frontdesk_wire::agents::{
    AgentDescriptor, AgentList, AgentPut, AgentReply, AgentState, AgentStatus, Class, ConnectorReceipt, ConnectorSpec,
    DataWrite, DataWritten, DeliveryMeta, DeliveryPayload, DeliveryReceipt, Dispatch, Fault, Immediate, Inbox,
    InboxMessage, ManifestInfo, Notified, NotifyPost, OneOrMany, Origin, PortableData, QueryFilters, ReplyPost,
    SkillFilter, SkillMeta, SkillNote, SkillPut, SkillSource, SkillStatus, VersionInfo, WakeOpts, WakeReceipt, When,
};
use frontdesk_wire::api;
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::event::{AgentEnvelope, ContextLine, Media, PromptResponse, ReplyTo};
use frontdesk_wire::frame::{FrameError, GatewayLine, PassthroughForward, push_delivery};
use frontdesk_wire::{
    Act, Action, ActionResult, ChatId, ChatInfo, Code, Descriptor, DeskFrame, EventId, GatewayFrame, MessageEvent,
    MessageId, Source, UserId, build_session_key,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn folder() -> PathBuf {
    ["tests", "golden"].iter().collect() // tests run in the folder of their crate
}

/// The file including its final newline.
fn line(name: &str) -> String {
    std::fs::read_to_string(folder().join(format!("{name}.json"))).expect(name)
}

fn golden(name: &str) -> String {
    line(name).trim_end().to_owned()
}

fn value(name: &str) -> Value {
    serde_json::from_str(&golden(name)).expect(name)
}

#[track_caller]
fn writes(name: &str, shape: &impl Serialize) {
    assert_eq!(serde_json::to_string(shape).unwrap(), golden(name), "{name}");
}

/// Parsed and written again: the same bytes.
#[track_caller]
fn keeps<T: Serialize + DeserializeOwned>(name: &str) -> T {
    let shape: T = serde_json::from_str(&golden(name)).expect(name);
    writes(name, &shape);
    shape
}

#[track_caller]
fn both_ways<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, shape: &T) {
    writes(name, shape);
    assert_eq!(keeps::<T>(name), *shape, "{name}");
}

/// An optional text field with a value.
#[allow(clippy::unnecessary_wraps, reason = "the fields are options")]
fn text(words: &str) -> Option<String> {
    Some(words.to_owned())
}

#[test]
fn every_golden_file_is_used() {
    let here = include_str!("golden.rs");
    for file in std::fs::read_dir(folder()).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let stem = name.strip_suffix(".json").expect("only JSON files are here");
        assert!(here.contains(&format!("\"{stem}\"")), "{name} is not named in this test");
    }
}

// ---- gateway to server ----------------------------------------------------------------------

#[test]
fn hello_is_read() {
    let read = golden("gateway_hello");
    let hello = GatewayFrame::Hello {
        platform: "discord".into(),
        bot_id: "bot-1".into(),
        command_manifest: None,
        ready: false,
    };
    assert_eq!(GatewayFrame::parse(&read), Ok(hello));
    assert_eq!(GatewayLine::Hello { platform: "discord", bot_id: "bot-1", ready: false }.line(), line("gateway_hello"));
}

#[test]
fn hello_contains_a_command_manifest_and_may_lack_its_bot() {
    let read = golden("gateway_hello_manifest");
    let Ok(GatewayFrame::Hello { platform, bot_id, command_manifest, .. }) = GatewayFrame::parse(&read) else {
        panic!("not a hello")
    };
    assert_eq!((platform.as_ref(), bot_id.as_ref()), ("discord", ""));
    assert_eq!(command_manifest.unwrap(), value("gateway_hello_manifest")["command_manifest"]);
    let bare = GatewayFrame::parse(r#"{"type":"hello","platform":"relay"}"#);
    assert!(matches!(bare, Ok(GatewayFrame::Hello { bot_id, .. }) if bot_id.is_empty()));
}

#[test]
fn hello_may_report_ready() {
    let says = |ready: &str| {
        let text = format!(r#"{{"type":"hello","platform":"relay","ready":{ready}}}"#);
        matches!(GatewayFrame::parse(&text), Ok(GatewayFrame::Hello { ready: true, .. }))
    };
    assert!(says("true") && !says("false") && !says("null") && !says("\"yes\"") && !says("1"));
    let line = GatewayLine::Hello { platform: "relay", bot_id: "", ready: true }.line();
    assert_eq!(line, "{\"type\":\"hello\",\"platform\":\"relay\",\"botId\":\"\",\"ready\":true}\n");
}

#[test]
fn outbound_keeps_its_action_raw() {
    let read = golden("gateway_outbound");
    let Ok(GatewayFrame::Outbound { request_id, action, platform, bot_id }) = GatewayFrame::parse(&read) else {
        panic!("not an outbound")
    };
    assert_eq!(request_id, "r-1");
    assert_eq!((platform.as_deref(), bot_id.as_deref()), (Some("discord"), Some("bot-1")));
    assert_eq!(
        action, r#"{"op":"send","chat_id":"c","content":"hi \"there\"","metadata":{"scope_id":"g"}}"#,
        "the bytes are unchanged"
    );
    assert_eq!(Action::parse(action).unwrap().meta("scope_id"), Some("g"));

    let bare = golden("gateway_outbound_bare");
    let expected = GatewayFrame::Outbound {
        request_id: "r-2".into(),
        action: r#"{"op":"typing","chat_id":"c"}"#,
        platform: None,
        bot_id: None,
    };
    assert_eq!(GatewayFrame::parse(&bare), Ok(expected));
    let action = json!({"op": "typing", "chat_id": "c"});
    let written = GatewayLine::Outbound { request_id: "r-2", action: &action, platform: None, bot_id: None }.line();
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written, value("gateway_outbound_bare"));
}

#[test]
fn interrupt_is_read_with_and_without_a_reason() {
    let session_key = "agent:main:discord:dm:c";
    for (name, reason) in [("gateway_interrupt", Some("stopped by üser")), ("gateway_interrupt_null", None)] {
        let read = golden(name);
        let expected = GatewayFrame::Interrupt { session_key: session_key.into(), reason: reason.map(Cow::from) };
        assert_eq!(GatewayFrame::parse(&read), Ok(expected), "{name}");
    }
    assert_eq!(GatewayLine::Interrupt { session_key, reason: None }.line(), line("gateway_interrupt_null"));
}

#[test]
fn going_idle_and_acks_are_read() {
    assert_eq!(GatewayFrame::parse(&golden("gateway_going_idle")), Ok(GatewayFrame::GoingIdle));
    assert_eq!(GatewayLine::GoingIdle.line(), line("gateway_going_idle"));
    let ack = golden("gateway_inbound_ack");
    assert_eq!(GatewayFrame::parse(&ack), Ok(GatewayFrame::InboundAck { buffer_id: "0a1b2c3d-7-42".into() }));
    assert_eq!(GatewayLine::InboundAck { buffer_id: "0a1b2c3d-7-42" }.line(), line("gateway_inbound_ack"));
}

#[test]
fn unknown_types_are_distinguished_and_unknown_fields_ignored() {
    let unknown = golden("gateway_unknown_type");
    assert_eq!(GatewayFrame::parse(&unknown), Ok(GatewayFrame::Unknown("telemetry".into())));
    let fields = golden("gateway_unknown_fields");
    assert_eq!(GatewayFrame::parse(&fields), Ok(GatewayFrame::InboundAck { buffer_id: "b".into() }));
}

#[test]
fn frames_that_are_not_objects_are_invalid() {
    let arrays = [r#"["going_idle"]"#, r#"["inbound_ack",null,null,null,null,null,null,null,"b"]"#, "[]", "[{}]"];
    let scalars = ["null", "true", "1", "\"going_idle\"", "", " ", "{", "}", "{\"type\":", "nul", "{}{}", "\u{feff}{}"];
    let untyped = ["{}", r#"{"type":null}"#, r#"{"type":5}"#, r#"{"type":["hello"]}"#, r#"{"kind":"hello"}"#];
    for bad in arrays.iter().chain(&scalars).chain(&untyped) {
        assert_eq!(GatewayFrame::parse(bad), Err(FrameError::NotAnObject), "{bad}");
    }
    assert_eq!(
        GatewayFrame::parse("  {\"type\":\"going_idle\"} \r"),
        Ok(GatewayFrame::GoingIdle),
        "whitespace is allowed"
    );
}

#[test]
fn an_empty_outbound_is_kept_so_that_it_can_be_answered() {
    for text in [r#"{"type":"outbound","requestId":"r"}"#, r#"{"type":"outbound","requestId":"r","action":null}"#] {
        let Ok(GatewayFrame::Outbound { request_id, action, .. }) = GatewayFrame::parse(text) else { panic!("{text}") };
        assert_eq!((&*request_id, Action::parse(action)), ("r", Err(ActionError::NoOp)));
    }
}

#[test]
fn errors_name_the_missing_field() {
    for (bad, frame, field) in [
        (r#"{"type":"hello"}"#, "hello", "platform"),
        (r#"{"type":"hello","platform":null}"#, "hello", "platform"),
        (r#"{"type":"outbound","action":{}}"#, "outbound", "requestId"),
        (r#"{"type":"interrupt","reason":"x"}"#, "interrupt", "session_key"),
        (r#"{"type":"inbound_ack"}"#, "inbound_ack", "bufferId"),
        (r#"{"type":"inbound_ack","bufferId":null}"#, "inbound_ack", "bufferId"),
    ] {
        let error = GatewayFrame::parse(bad).unwrap_err();
        assert_eq!(error, FrameError::Missing { frame, field }, "{bad}");
        assert_eq!(error.to_string(), format!("{frame} frame lacks {field}"));
    }
}

#[test]
fn hostile_frames_end_in_an_error_and_never_in_a_panic() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(200_000), close.repeat(200_000));
    let hostile = [
        deep("[", "]"),
        format!(r#"{{"type":"outbound","requestId":"r","action":{}}}"#, deep("[", "]")),
        format!(r#"{{"type":"hello","platform":"p","command_manifest":{}}}"#, deep("{\"a\":", "}")),
        format!(r#"{{"type":"inbound_ack","bufferId":{}1}}"#, "9".repeat(5_000)),
        r#"{"type":"inbound_ack","bufferId":1e999999}"#.into(),
        r#"{"type":"inbound_ack","bufferId":"\ud800"}"#.into(),
        r#"{"type":"inbound_ack","bufferId":"\udc00\ud800"}"#.into(),
        r#"{"type":"inbound_ack","bufferId":"\u12"}"#.into(),
        r#"{"type":"inbound_ack","type":"hello","bufferId":"b"}"#.into(),
        "{\"type\":\"inbound_ack\",\"bufferId\":\"\u{0}\"}".into(),
    ];
    for (number, bad) in hostile.iter().enumerate() {
        let frame = GatewayFrame::parse(bad);
        match frame {
            Ok(GatewayFrame::Outbound { action, .. }) => assert!(Action::parse(action).is_err(), "{number}"),
            Ok(GatewayFrame::Hello { command_manifest, .. }) => assert_eq!(command_manifest, None, "{number}"),
            other => assert_eq!(other, Err(FrameError::NotAnObject), "{number}"),
        }
    }
    let pair = GatewayFrame::parse(r#"{"type":"inbound_ack","bufferId":"\ud83d\ude42"}"#);
    assert_eq!(pair, Ok(GatewayFrame::InboundAck { buffer_id: "🙂".into() }), "a complete surrogate pair is valid");
}

// ---- server to gateway ----------------------------------------------------------------------

fn descriptor() -> Descriptor {
    Descriptor {
        contract_version: 1,
        platform: "chat".into(),
        label: "Chat".into(),
        max_message_length: 4000,
        supports_draft_streaming: true,
        supports_edit: true,
        supports_threads: false,
        markdown_dialect: "commonmark".into(),
        len_unit: LenUnit::Chars,
        emoji: "💬".into(),
        platform_hint: "Plain words.".into(),
        pii_safe: false,
        supports_context: true,
        supports_inchannel_continuable: false,
        supports_block_formatting: false,
        supported_ops: vec!["send".into(), "edit".into()],
    }
}

fn forward() -> PassthroughForward {
    PassthroughForward {
        platform: "discord".into(),
        bot_id: "bot-1".into(),
        method: "POST".into(),
        path: "/interactions".into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body_b64: "e30=".into(),
    }
}

#[test]
fn desk_frames_are_written_byte_for_byte() {
    for (name, frame) in [
        ("desk_descriptor", DeskFrame::Descriptor { descriptor: descriptor() }),
        (
            "desk_outbound_result",
            DeskFrame::OutboundResult { request_id: "r-1".into(), result: ActionResult::sent("m-9") },
        ),
        (
            "desk_interrupt_inbound",
            DeskFrame::InterruptInbound { session_key: "agent:main:chat:dm:c".into(), chat_id: "c".into() },
        ),
        ("desk_going_idle_ack", DeskFrame::GoingIdleAck),
        (
            "desk_passthrough_forward",
            DeskFrame::PassthroughForward { forward: forward(), buffer_id: text("0a1b2c3d-7-43") },
        ),
    ] {
        assert_eq!(frame.line(), line(name), "{name}");
        let again: DeskFrame = serde_json::from_str(&golden(name)).expect(name);
        assert_eq!(again.line(), line(name), "{name} is read back");
    }
}

#[test]
fn deliveries_are_written_around_existing_json() {
    let mut out = String::new();
    push_delivery(&mut out, false, &golden("event_minimal"), "0a1b2c3d-7-42");
    assert_eq!(out, line("desk_inbound"));
    push_delivery(&mut out, true, &golden("passthrough_forward"), "0a1b2c3d-7-43");
    assert_eq!(out, line("desk_inbound") + &line("desk_passthrough_forward"), "frames are appended");
    let read: DeskFrame = serde_json::from_str(&golden("desk_inbound")).unwrap();
    let DeskFrame::Inbound { event, buffer_id } = read else { panic!("not an inbound") };
    assert_eq!((event, buffer_id), (value("event_minimal"), text("0a1b2c3d-7-42")));
}

#[test]
fn the_client_tolerates_unknown_frames_and_fields() {
    let read = |raw: &str| serde_json::from_str::<DeskFrame>(raw);
    assert!(matches!(read(r#"{"type":"fanfare","loud":true}"#), Ok(DeskFrame::Unknown)));
    assert!(matches!(read(r#"{"type":"going_idle_ack","at":5}"#), Ok(DeskFrame::GoingIdleAck)));
    assert!(matches!(read(r#"{"type":"inbound","event":{}}"#), Ok(DeskFrame::Inbound { buffer_id: None, .. })));
    assert!(read(r#"{"event":{}}"#).is_err() && read("[]").is_err() && read("null").is_err());
}

#[test]
fn descriptor_is_always_complete() {
    both_ways("descriptor", &descriptor());
    let least = r#"{"contract_version":1,"platform":"p","label":"P","max_message_length":1,"supports_draft_streaming":false,
        "supports_edit":false,"supports_threads":false,"markdown_dialect":"none","len_unit":"utf16"}"#;
    let least: Descriptor = serde_json::from_str(least).unwrap();
    let written = serde_json::to_value(&least).unwrap();
    let expected = value("descriptor");
    let names = |it: &Value| it.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&written), names(&expected), "defaults are written out");
    assert!(descriptor().supports("edit") && !descriptor().supports("react"));
}

#[test]
fn passthrough_forward_is_stable() {
    both_ways("passthrough_forward", &forward());
}

// ---- events ---------------------------------------------------------------------------------

fn least_event() -> MessageEvent {
    let source = Source { platform: "chat".into(), chat_id: "c".into(), chat_type: "dm".into(), ..Source::default() };
    MessageEvent { message_type: "text".into(), source, ..MessageEvent::default() }
}

#[test]
fn the_minimal_event_has_all_required_fields() {
    both_ways("event_minimal", &least_event());
    let source = &value("event_minimal")["source"];
    for always in ["user_id", "user_name", "thread_id", "chat_name", "chat_topic"] {
        assert_eq!(source.get(always), Some(&Value::Null), "{always} is null, not absent");
    }
    for flag in ["is_bot", "message_is_edit"] {
        assert_eq!(source.get(flag), Some(&Value::Bool(false)), "{flag} is explicit");
    }
}

#[test]
fn the_full_event_is_stable() {
    let mut source = Source {
        platform: "discord".into(),
        chat_id: "c-1".into(),
        chat_type: "thread".into(),
        chat_name: text("general"),
        user_id: text("u-1").map(UserId::from),
        user_name: text("ada"),
        thread_id: text("t-1"),
        chat_topic: text("all things"),
        is_bot: true,
        message_is_edit: true,
        user_id_alt: text("u-alt"),
        chat_id_alt: text("c-alt"),
        parent_chat_id: text("c-0").map(ChatId::from),
        message_id: text("m-1").map(MessageId::from),
        profile: text("coder"),
        user_display_name: text("Ada L."),
        auto_thread_created: Some(true),
        auto_thread_initial_name: text("new thread"),
        prospective_thread_id: text("t-2"),
        one_to_one_verified: Some(false),
        ..Source::default()
    };
    source.set_scope(text("g-1"));
    let url = "https://desk.example/relay/media/9f".to_owned();
    let event = MessageEvent {
        text: "/yes".into(),
        message_type: "command".into(),
        source,
        message_id: text("m-1").map(MessageId::from),
        reply_to_message_id: text("m-0").map(MessageId::from),
        reply_to: Some(ReplyTo { text: text("before"), author: text("bob"), is_own: Some(false) }),
        media_urls: vec![url.clone()],
        media: vec![Media {
            url,
            kind: "image".into(),
            mime: "image/png".into(),
            size: 68,
            filename: text("a.png"),
            caption: None,
        }],
        context: vec![ContextLine { text: "earlier".into(), source: json!({"user_id": "u-2", "user_name": "bob"}) }],
        context_error: true,
        prompt_response: Some(PromptResponse {
            prompt_id: "p-1".into(),
            option_id: "yes".into(),
            label: text("Yes"),
            prompt_message_id: text("m-0").map(MessageId::from),
        }),
        delivery: None,
    };
    both_ways("event_full", &event);
    let source = &value("event_full")["source"];
    assert_eq!(source["scope_id"], source["guild_id"], "old and new gateways read the same scope");
    assert_eq!(build_session_key(&event.source), "agent:coder:discord:thread:c-1:t-1");
}

#[test]
fn a_scope_is_set_under_both_names_or_neither() {
    let mut event = least_event();
    event.source.set_scope(text("g"));
    assert_eq!(event.source.scope_id, event.source.guild_id);
    event.source.set_scope(None);
    writes("event_minimal", &event);
}

// ---- actions --------------------------------------------------------------------------------

fn actions() -> Vec<(&'static str, Act)> {
    let (chat_id, message_id) = (ChatId::from("c"), "m".to_owned());
    let option = |id: &str, label: &str, style| PromptOption { id: id.into(), label: label.into(), style };
    vec![
        (
            "action_send",
            Act::Send {
                chat_id: chat_id.clone(),
                content: "hello\n👋".into(),
                reply_to: text("m-1").map(MessageId::from),
            },
        ),
        (
            "action_edit",
            Act::Edit { chat_id: chat_id.clone(), message_id: message_id.clone().into(), content: "better".into() },
        ),
        ("action_delete", Act::Delete { chat_id: chat_id.clone(), message_id: message_id.clone().into() }),
        ("action_typing", Act::Typing { chat_id: chat_id.clone(), content: text("") }),
        (
            "action_follow_up",
            Act::FollowUp {
                session_key: "agent:main:relay:channel:c:u".into(),
                kind: "discord_interaction".into(),
                content: "done".into(),
            },
        ),
        ("action_get_chat_info", Act::GetChatInfo { chat_id: chat_id.clone() }),
        (
            "action_send_media",
            Act::SendMedia {
                chat_id: chat_id.clone(),
                media_kind: "image".into(),
                source_url: "https://desk.example/relay/media/9f".into(),
                content: text("a caption"),
                filename: text("a.png"),
                reply_to: text("m-1").map(MessageId::from),
            },
        ),
        (
            "action_prompt",
            Act::Prompt {
                chat_id: chat_id.clone(),
                prompt_kind: "approval".into(),
                prompt_id: "p-1".into(),
                content: "Run it?".into(),
                options: vec![option("yes", "Yes", text("primary")), option("no", "No", None)],
                timeout_s: Some(120.0),
                reply_to: text("m-1").map(MessageId::from),
            },
        ),
        (
            "action_react",
            Act::React {
                chat_id: chat_id.clone(),
                message_id: message_id.clone().into(),
                emoji: "👍".into(),
                remove: true,
            },
        ),
        (
            "action_thread_create",
            Act::ThreadCreate {
                chat_id: chat_id.clone(),
                thread_name: "plans".into(),
                message_id: Some(message_id.into()),
            },
        ),
        (
            "action_thread_rename",
            Act::ThreadRename {
                chat_id: chat_id.clone(),
                message_id: "t-1".into(),
                thread_name: "plans, final".into(),
                only_if_current_name: text("plans"),
                only_if_connector_created: false,
            },
        ),
        ("action_draft", Act::Draft { chat_id, draft_id: "d-1".into(), content: "so far".into(), sealed: true }),
    ]
}

#[test]
fn every_op_round_trips() {
    for (name, act) in actions() {
        let read = Action::parse(&golden(name)).expect(name);
        assert_eq!(read.act, act, "{name}");
        assert_eq!(read.to_value(), value(name), "{name}");
        assert_eq!(format!("action_{}", act.op()), name);
        assert_eq!(act.chat_id().map(ChatId::as_str), (act.op() != "follow_up").then_some("c"), "{name}");
        assert_eq!(Action::parse(&Action::from(act).to_value().to_string()).unwrap().act, read.act, "{name}");
    }
}

#[test]
fn every_op_works_with_only_its_required_fields() {
    for least in [
        json!({"op": "send", "chat_id": "c"}),
        json!({"op": "edit", "chat_id": "c", "message_id": "m"}),
        json!({"op": "delete", "chat_id": "c", "message_id": "m"}),
        json!({"op": "typing", "chat_id": "c"}),
        json!({"op": "follow_up", "session_key": "k", "kind": "x"}),
        json!({"op": "get_chat_info", "chat_id": "c"}),
        json!({"op": "send_media", "chat_id": "c", "media_kind": "voice", "source_url": "u"}),
        json!({"op": "prompt", "chat_id": "c", "prompt_id": "p", "options": []}),
        json!({"op": "react", "chat_id": "c", "message_id": "m", "emoji": "e"}),
        json!({"op": "thread_create", "chat_id": "c", "thread_name": "n"}),
        json!({"op": "thread_rename", "chat_id": "c", "message_id": "t", "thread_name": "n"}),
        json!({"op": "draft", "chat_id": "c", "draft_id": "d"}),
    ] {
        let action = Action::parse(&least.to_string()).unwrap_or_else(|error| panic!("{least}: {error}"));
        assert_eq!(Action::parse(&action.to_value().to_string()).as_ref(), Ok(&action), "{least}");

        let needed: Vec<String> = least.as_object().unwrap().keys().filter(|name| *name != "op").cloned().collect();
        for field in needed {
            let mut lacking = least.clone();
            lacking.as_object_mut().unwrap().remove(&field);
            let error = Action::parse(&lacking.to_string()).unwrap_err();
            assert!(matches!(&error, ActionError::Malformed(text) if text.contains(&field)), "{lacking}: {error}");
        }
        let mut more = least.clone();
        more["surprise"] = json!([1, {"a": null}]);
        more["metadata"] = json!("not an object");
        assert_eq!(Action::parse(&more.to_string()), Ok(action), "unknown fields are ignored: {least}");
    }
}

#[test]
fn typing_without_content_differs_from_empty_content() {
    let typing = |raw: &str| Action::parse(raw).unwrap().act;
    assert_eq!(
        typing(r#"{"op":"typing","chat_id":"c","content":null}"#),
        Act::Typing { chat_id: "c".into(), content: None }
    );
    assert_eq!(
        typing(r#"{"op":"typing","chat_id":"c","content":""}"#),
        Act::Typing { chat_id: "c".into(), content: text("") }
    );
}

#[test]
fn invalid_actions_say_what_is_wrong() {
    let deep = format!(r#"{{"op":"send","chat_id":"c","x":{}{}}}"#, "[".repeat(9_999), "]".repeat(9_999));
    for none in ["", "null", "[]", "{}", r#"["send"]"#, r#"{"op":null}"#, r#"{"op":{}}"#, r#"{"op":"\ud800"}"#, &deep] {
        assert_eq!(Action::parse(none), Err(ActionError::NoOp));
    }
    assert_eq!(Action::parse(r#"{"op":"dance"}"#), Err(ActionError::UnknownOp("dance".into())));
    let long = Action::parse(&json!({"op": "é".repeat(999)}).to_string()).unwrap_err();
    assert_eq!(long, ActionError::UnknownOp("é".repeat(64)), "a long op is truncated");
    for bad in [
        r#"{"op":"send","chat_id":5}"#,
        r#"{"op":"send","chat_id":null}"#,
        r#"{"op":"prompt","chat_id":"c","prompt_id":"p","options":{}}"#,
        r#"{"op":"react","chat_id":"c","message_id":"m","emoji":"e","remove":"yes"}"#,
    ] {
        assert!(matches!(Action::parse(bad), Err(ActionError::Malformed(_))), "{bad}");
    }
}

#[test]
fn prompts_are_validated_before_any_platform() {
    let option = |id: &str| vec![PromptOption { id: id.into(), label: "L".into(), style: None }];
    assert_eq!(prompt_token("p-1", "yes"), "hp1:p-1:yes");
    assert_eq!(check_prompt("p", &option("A-z_0.9")), Ok(()));
    assert_eq!(check_prompt(&"p".repeat(27), &option(&"x".repeat(32))), Ok(()), "64 bytes");
    assert!(check_prompt(&"p".repeat(28), &option(&"x".repeat(32))).is_err(), "65 bytes");
    for bad in ["", "a b", "ä", "a:b", &"x".repeat(33)] {
        assert!(check_prompt("p", &option(bad)).is_err(), "{bad:?}");
    }
    assert!(check_prompt("p", &[]).is_err());
    assert_eq!(check_prompt("", &option("yes")), Err("a prompt needs a prompt_id".into()));
}

// ---- results --------------------------------------------------------------------------------

#[test]
fn results_omit_unset_fields() {
    both_ways("result_done", &ActionResult::done());
    both_ways("result_sent", &ActionResult::sent("m-9"));
    both_ways("result_thread", &ActionResult { thread_id: text("t-1"), ..ActionResult::done() });
    let (thread_id, auto_thread_name) = (text("t-1"), text("plans"));
    both_ways("result_auto_thread", &ActionResult { thread_id, auto_thread_name, ..ActionResult::sent("m-9") });
    let chat_info = Some(ChatInfo { name: "general".into(), chat_type: "channel".into() });
    both_ways("result_chat_info", &ActionResult { chat_info, ..ActionResult::done() });
    both_ways("result_egress_declined", &ActionResult::egress_declined("discord"));
    both_ways("result_capability_unavailable", &ActionResult::capability_unavailable());
    let unknown = Action::parse(r#"{"op":"dance"}"#).unwrap_err().to_string();
    both_ways("result_unknown_op", &ActionResult::refused(Code::UnsupportedOp, unknown));
    let late = ActionResult { ambiguous: true, ..ActionResult::refused(Code::Timeout, "timed out") };
    both_ways("result_ambiguous", &late);
    let partial = ActionResult {
        message_id: text("m-9").map(MessageId::from),
        ..ActionResult::refused(Code::Partial, "2 of 3 parts went")
    };
    both_ways("result_partial", &partial);
}

// ---- HTTP bodies ----------------------------------------------------------------------------

#[test]
fn relay_bodies_are_stable() {
    let ask: api::ProvisionRequest = keeps("provision_request");
    assert_eq!((ask.gateway_id.as_str(), ask.bot_id.as_str()), ("gw-1", "bot-1"));
    assert_eq!(ask.route_keys, ["guild-1", "guild-2"]);
    assert_eq!((ask.instance_id, ask.wake_url), (Some("inst-1".into()), text("https://wake.example/1")));
    let least: api::ProvisionRequest =
        serde_json::from_str(r#"{"gatewayId":"g","platform":"relay","color":"red"}"#).unwrap();
    assert!(least.bot_id.is_empty() && least.route_keys.is_empty() && least.instance_id.is_none());
    assert!(serde_json::from_str::<api::ProvisionRequest>(r#"{"platform":"relay"}"#).is_err());

    let reply: api::ProvisionReply = keeps("provision_reply");
    assert_eq!((reply.secret.as_str(), reply.delivery_key.as_str(), reply.tenant.as_str()), ("s", "k", "acme"));
    let enroll: api::EnrollRequest = keeps("enroll_request");
    assert_eq!((enroll.enrollment_token.as_str(), enroll.gateway_id.as_str()), ("t", "gw-1"));
    let media: api::MediaReply = keeps("media_reply");
    assert_eq!((media.id.as_str(), media.size), ("9f", 68));
}

#[test]
fn a_policy_defaults_to_open() {
    let policy: api::RelevancePolicy = keeps("policy");
    assert!(policy.require_address && policy.allow_other_bots);
    assert_eq!(policy.free_response_scopes, ["c-1"]);
    let least: api::RelevancePolicy = serde_json::from_str(r#"{"platform":"discord"}"#).unwrap();
    assert_eq!(least, api::RelevancePolicy { platform: "discord".into(), ..api::RelevancePolicy::default() });
    assert!(!least.require_address && !least.allow_other_bots);
}

#[test]
fn chat_bodies_are_stable() {
    let post: api::ChatPost = keeps("chat_post");
    assert!(post.is_bot && post.mentions_bot && post.media[0].id == "9f");
    let least: api::ChatPost = serde_json::from_str(r#"{"user_id":"u"}"#).unwrap();
    let written = serde_json::to_value(&least).unwrap();
    assert_eq!(written, json!({"user_id": "u", "text": "", "is_bot": false, "mentions_bot": false}));
    let posted: api::ChatPosted = keeps("chat_posted");
    assert_eq!(posted.verdict.outcome, "withheld");
    assert_eq!(keeps::<api::ChatPress>("chat_press").option_id, "yes");
    let settings = keeps::<api::ChatSettings>("chat_settings");
    assert!(matches!(settings.members, api::Members::Only(members) if members.len() == 2));
    let members = |text: &str| serde_json::from_str::<api::ChatSettings>(text).unwrap().members;
    assert_eq!(members("{}"), api::Members::AsBefore);
    assert_eq!(members("{\"members\":null}"), api::Members::Everyone);
    let history: api::ChatHistory = keeps("chat_history");
    assert!(history.typing && history.messages[1].draft);
    assert_eq!(keeps::<api::ChatSummary>("chat_summary").last_seq, 7);
}

#[test]
fn a_minimal_chat_line_has_its_required_fields() {
    let line = serde_json::to_value(api::ChatMessage::default()).unwrap();
    let expected = json!({"seq": 0, "message_id": "", "direction": "", "text": "", "edited": false, "deleted": false,
                          "reactions": [], "at": 0});
    assert_eq!(line, expected);
}

#[test]
fn explanations_problems_and_rotations_are_stable() {
    let explanation: api::Explanation = keeps("explanation");
    assert_eq!(explanation.instances[1].layer, "relevance");
    let problem: api::Problem = keeps("problem");
    assert_eq!((problem.code.as_str(), problem.status), (Code::NotFound.name(), 404));
    assert_eq!(keeps::<api::Rotated>("rotated").overlap_until, 1_700_086_400);
}

#[test]
fn a_code_is_written_as_it_is_named() {
    for code in [
        Code::BadRequest,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::Gone,
        Code::Conflict,
        Code::TooLarge,
        Code::UnsupportedMediaType,
        Code::UnsupportedOp,
        Code::UnknownIdentity,
        Code::EgressDeclined,
        Code::CapabilityUnavailable,
        Code::RateLimited,
        Code::Partial,
        Code::Unknown,
        Code::Unavailable,
        Code::Timeout,
        Code::PlatformFailed,
        Code::UrlRefused,
        Code::Internal,
    ] {
        assert_eq!(serde_json::to_value(code).unwrap(), code.name());
    }
}

// ---- the agents API -------------------------------------------------------------------------

const HASH: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

fn object(fields: Value) -> serde_json::Map<String, Value> {
    let Value::Object(fields) = fields else { panic!("{fields} is not an object") };
    fields
}

/// Unset fields are omitted when written, never null; when read, null counts as absent.
#[track_caller]
fn forgives_null<T: Serialize + DeserializeOwned>(name: &str, fields: &[&str]) {
    let mut read = value(name);
    for field in fields {
        read[*field] = Value::Null;
    }
    writes(name, &serde_json::from_value::<T>(read).unwrap());
}

#[test]
fn deliveries_keep_unknown_fields() {
    let origin = Origin {
        skill_name: text("greet"),
        entry_skill_name: text("daily"),
        trigger_kind: text("agent"),
        caller_agent_id: text("alice"),
        more: object(json!({ "depth": 2 })),
    };
    let meta = DeliveryMeta {
        dispatch_id: "0b8f1c9e-6a53-4c1f-9a3e-2f1d7c5b8e90".into(),
        sent_at: 1_700_000_000_000,
        origin,
        event_type: text("greeting"),
        correlation_id: text("c-1"),
        more: object(json!({ "trace": { "id": "t-1" }, "ttl": null })),
    };
    both_ways("agent_delivery_augment", &DeliveryPayload::Augment { content: "good morning".into(), meta });
    let meta = DeliveryMeta { dispatch_id: "d-1".into(), ..DeliveryMeta::default() };
    both_ways("agent_delivery_template", &DeliveryPayload::Template { prompt: String::new(), meta });
    let mut read = value("agent_delivery_template");
    read["meta"]["event_type"] = Value::Null;
    read["meta"]["origin"]["skill_name"] = Value::Null;
    writes("agent_delivery_template", &serde_json::from_value::<DeliveryPayload>(read).unwrap());
    for bad in [
        r#"{"kind":"song","content":"x","meta":{"dispatch_id":"d","sent_at":0,"origin":{}}}"#,
        r#"{"kind":"augment","prompt":"x","meta":{"dispatch_id":"d","sent_at":0,"origin":{}}}"#,
        r#"{"kind":"augment","content":"x","meta":{"sent_at":0,"origin":{}}}"#,
        r#"{"kind":"augment","content":"x","meta":{"dispatch_id":"d","sent_at":-1,"origin":{}}}"#,
        r#"{"kind":"augment","content":"x"}"#,
    ] {
        assert!(serde_json::from_str::<DeliveryPayload>(bad).is_err(), "{bad}");
    }
}

#[test]
fn receipts_say_what_happened_and_no_more() {
    let full = DeliveryReceipt {
        delivered_at: 1_700_000_000_005,
        delivery_id: text("dl_1"),
        session_id: text("tab"),
        delivery_skipped: true,
        warnings: vec!["nobody took it now".into()],
    };
    both_ways("agent_delivery_receipt", &full);
    let bare = DeliveryReceipt { delivered_at: 1_700_000_000_005, ..DeliveryReceipt::default() };
    both_ways("agent_delivery_receipt_bare", &bare);
    let at = 1_700_000_000_005;
    let woken = WakeReceipt { woken_at: at, woken: true, session_id: text("tab"), ..WakeReceipt::default() };
    both_ways("agent_wake_receipt", &woken);
    let later = WakeReceipt {
        woken_at: at,
        warnings: vec!["the wake was planned".into()],
        scheduled_for: Some(1_700_000_600_000),
        ..WakeReceipt::default()
    };
    both_ways("agent_wake_receipt_later", &later);
    let reply = AgentReply {
        correlation_id: "c-1".into(),
        content: "a bell".into(),
        sent_at: 1_700_000_000_009,
        agent_id: "bob".into(),
    };
    both_ways("agent_reply", &reply);
    assert_eq!(keeps::<ReplyPost>("agent_reply_post").content, "a bell");
}

#[test]
fn wakes_are_immediate_or_scheduled() {
    let when = Some(When::At(1_700_000_600_000));
    both_ways("agent_wake_opts", &WakeOpts { context: text("look up"), when, session_id: text("tab") });
    let now = WakeOpts { when: Some(When::Word(Immediate::Now)), ..WakeOpts::default() };
    both_ways("agent_wake_opts_now", &now);
    forgives_null::<WakeOpts>("agent_wake_opts_now", &["context", "session_id"]);
    for bad in [r#"{"when":"later"}"#, r#"{"when":1.5}"#, r#"{"when":true}"#, r#"{"context":5}"#] {
        assert!(serde_json::from_str::<WakeOpts>(bad).is_err(), "{bad}");
    }
}

#[test]
fn inboxes_notices_and_dispatches() {
    let inbox: Inbox = keeps("agent_inbox");
    let word = InboxMessage {
        seq: 7,
        delivery_id: "dl_1".into(),
        kind: "augment".into(),
        text: "good morning".into(),
        meta: Some(json!({ "dispatch_id": "d-1", "origin": {}, "sent_at": 0 })),
        session_id: None,
        at: 1_700_000_000_005,
    };
    assert_eq!((&inbox.messages[0], inbox.messages[1].session_id.as_deref()), (&word, Some("tab")));
    let post: NotifyPost = keeps("agent_notify");
    assert_eq!((post.agent.as_str(), post.origin.trigger_kind.as_deref()), ("bob@tab", Some("cron")));
    let taken = ConnectorReceipt {
        connector: "inbox".into(),
        ok: true,
        receipt: Some(json!({ "delivered_at": 5 })),
        error: None,
    };
    let fault = Fault::new(Class::DeliveryFailedError, "too slow").with("cause_kind", "timeout");
    let failed = ConnectorReceipt {
        connector: "webhook".into(),
        ok: false,
        receipt: None,
        error: Some(Value::Object(fault.as_object())),
    };
    let notified =
        Notified { dispatch_id: "d-1".into(), route: "deliver".into(), receipts: vec![taken.clone(), failed] };
    both_ways("agent_notified", &notified);
    let dispatch = Dispatch {
        event_id: EventId(1),
        at: 1_700_000_000_005,
        agent_id: "bob".into(),
        from: text("alice"),
        kind: "augment".into(),
        text: "good morning".into(),
        receipts: vec![taken],
    };
    both_ways("agent_dispatch", &dispatch);
}

#[test]
fn agents_and_their_connectors() {
    let list: AgentList = keeps("agent_descriptor");
    let bob = AgentDescriptor { agent_id: "bob".into(), agent_name: text("Bob"), capabilities: vec!["wake".into()] };
    assert_eq!(list.agents[0], bob);
    both_ways("agent_state", &AgentState { agent_id: "bob".into(), status: AgentStatus::Asleep });
    let put: AgentPut = keeps("agent_put");
    let webhook = |full: bool| ConnectorSpec::Webhook {
        url: "https://agent.example/in".into(),
        wake_url: full.then(|| "https://agent.example/wake".into()),
        status_url: full.then(|| "https://agent.example/status".into()),
        authorization: full.then(|| "Bearer x".into()),
        hmac_secret: full.then(|| "k".into()),
        timeout_ms: full.then_some(5000),
    };
    let specs = vec![
        ConnectorSpec::Relay { instance: "bob".into() },
        webhook(true),
        webhook(false),
        ConnectorSpec::File { dir: "bob".into(), desk: None },
        ConnectorSpec::Tmux { target: "desk:1.0".into(), desk: None },
        ConnectorSpec::Noop {},
    ];
    assert_eq!(put.connectors.unwrap(), specs);
    let names: Vec<&str> = specs.iter().map(ConnectorSpec::name).collect();
    assert_eq!(names, ["relay", "webhook", "webhook", "file", "tmux", "noop"]);
    assert!(!format!("{specs:?}").contains("Bearer"), "Debug must not show secrets");
    for bad in [
        r#"{"type":"pigeon"}"#,
        r#"{"type":"relay"}"#,
        r#"{"type":"noop","dir":"x"}"#,
        r#"{"type":"webhook","url":"u","secret":"typo"}"#,
        r#"{"url":"u"}"#,
    ] {
        assert!(serde_json::from_str::<ConnectorSpec>(bad).is_err(), "{bad}");
    }
}

#[test]
fn skills_and_their_versions() {
    let bare = SkillMeta {
        name: "hello".into(),
        version: HASH[..12].into(),
        content_hash: HASH.into(),
        status: SkillStatus::Draft,
        description: None,
        tags: Vec::new(),
        created_at: 1_700_000_000,
        updated_at: 1_700_000_001,
        status_changed_at: None,
        author: None,
        metadata_bag: None,
    };
    let source = SkillSource {
        name: "hello".into(),
        version: HASH[..12].into(),
        content_hash: HASH.into(),
        source: "# Skill: hello\r\n".into(),
        metadata: bare.clone(),
    };
    both_ways("skill_source", &source);
    let full = SkillMeta {
        status: SkillStatus::Approved,
        description: text("says hello"),
        tags: vec!["door".into(), "home".into()],
        status_changed_at: Some(1_700_000_002),
        author: text("ann"),
        metadata_bag: Some(object(json!({ "x": [1] }))),
        ..bare
    };
    both_ways("skill_meta", &full);
    let version = VersionInfo {
        name: "hello".into(),
        version: HASH[..12].into(),
        content_hash: HASH.into(),
        status: SkillStatus::Disabled,
        previous_status: Some(SkillStatus::Approved),
        changed_at: 1_700_000_003,
        changed_by: text("ann"),
    };
    both_ways("skill_version", &version);
    let note = SkillNote {
        author: text("ann"),
        status: Some(SkillStatus::Draft),
        description: text("says hello"),
        metadata_bag: Some(object(json!({ "x": 1 }))),
    };
    both_ways("skill_put", &SkillPut { source: "# Skill: hello\n".into(), metadata: Some(note) });
    let filter = SkillFilter {
        status: Some(OneOrMany::Many(vec![SkillStatus::Draft, SkillStatus::Approved])),
        author: text("ann"),
        name_pattern: text("^he"),
        tag: Some(OneOrMany::One("home".into())),
        since: Some(1_700_000_000),
        offset: Some(1),
        limit: Some(10),
    };
    both_ways("skill_filter", &filter);
    let mut strange = value("skill_filter");
    strange["shoe_size"] = json!(5);
    assert_eq!(serde_json::from_value::<SkillFilter>(strange).unwrap(), filter, "unknown keys are ignored");
}

#[test]
fn data_and_queries() {
    let row = PortableData {
        id: "da_1".into(),
        summary: "The café opens".into(),
        detail: text("The café opens\nat nine"),
        score: Some(0.5),
        created_at: Some(1_700_000_000),
        expires_at: Some(1_800_000_000),
        domain_tags: Some(vec!["place".into()]),
        curated: object(json!({ "agent_id": "ann", "pinned": true })),
        metadata: Some(object(json!({ "x": 1 }))),
    };
    both_ways("data_portable", &row);
    both_ways("data_portable_bare", &PortableData { id: "da_1".into(), ..PortableData::default() });
    let entry = DataWrite {
        content: "The café opens".into(),
        tags: Some(vec!["place".into()]),
        recipients: Some(vec!["ann".into()]),
        expires_at: Some(1_800_000_000),
        metadata: Some(object(json!({ "x": 1 }))),
        more: serde_json::Map::new(),
    };
    both_ways("data_write", &entry);
    both_ways("data_written", &DataWritten { id: "da_1".into(), created_at: 1_700_000_000 });
    let filters = QueryFilters {
        query: "cafe".into(),
        limit: Some(5),
        mode: text("fts"),
        permissive_filters: true,
        filters: object(json!({ "domain_tags": ["place"], "pinned": true })),
    };
    both_ways("data_query", &filters);
    let manifest = json!({ "supported_filters": ["pinned"] });
    both_ways("manifest_info", &ManifestInfo { capabilities_version: "1.0.0".into(), manifest });
}

#[test]
fn a_refusal_has_a_class_and_fields() {
    let fault = Fault::new(Class::UnsupportedFilterError, "not a filter here")
        .with("unsupportedKeys", vec!["shoe_size"])
        .with("supportedKeys", vec!["pinned"]);
    both_ways("agent_fault", &fault);
    assert_eq!(fault.class.status(), 400);
}

#[test]
fn an_agent_message_is_an_event_with_its_metadata() {
    let envelope = AgentEnvelope {
        kind: "augment".into(),
        delivery_id: "dl_1".into(),
        meta: Some(json!({ "correlation_id": "c-1", "dispatch_id": "d-1" })),
        session_id: text("tab"),
    };
    let event = MessageEvent {
        text: "what is it?".into(),
        message_type: "text".into(),
        source: Source {
            platform: "relay".into(),
            chat_id: "agent:alice".into(),
            chat_type: "dm".into(),
            chat_name: text("alice"),
            user_id: text("agent:alice").map(UserId::from),
            user_name: text("alice"),
            thread_id: text("dl_1"),
            message_id: text("dl_1").map(MessageId::from),
            ..Source::default()
        },
        message_id: text("dl_1").map(MessageId::from),
        delivery: Some(Box::new(envelope)),
        ..MessageEvent::default()
    };
    both_ways("event_agent_message", &event);
    assert_eq!(build_session_key(&event.source), "agent:main:relay:dm:agent:alice:dl_1");
}
