//! Payloads as Slack documents them, and the events that agents get.

use frontdesk_core::intake::{Intake, TenantSource, Verified};
use frontdesk_core::port::platform::{Bot, Change};
use frontdesk_wire::session_key::build_session_key;
use serde_json::{Value, json};

use super::super::normalize::{Me, Meaning, Scene, meaning_of, team_of};
use super::{envelope, said};

fn meaning(payload: &Value) -> Meaning {
    let bot = Bot::bare("sl");
    let me = Me { user: "UBOT".into(), bot: "BBOT".into(), team: "T1".into() };
    let scene = Scene { bot: &bot, team: team_of(payload), app_id: "A1", me: &me };
    meaning_of(&scene, Verified::by("a test"), &payload["event"])
}

fn event(event: Value) -> Option<Intake> {
    meaning(&envelope(event)).intake.map(|intake| *intake)
}

fn with(mut event: Value, more: Value) -> Value {
    event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event
}

#[test]
fn a_message_in_a_channel_is_of_its_workspace_and_has_no_thread() {
    let intake = event(said("C1", "channel", "hello <@UBEN>")).unwrap();
    let expected = json!({
        "text": "hello <@UBEN>",
        "message_type": "text",
        "message_id": "1700000000.000100",
        "source": {
            "platform": "slack", "chat_id": "C1", "chat_type": "group", "chat_name": "C1", "user_id": "UANN",
            "user_name": null, "thread_id": null, "chat_topic": null, "is_bot": false, "message_is_edit": false,
            "scope_id": "T1", "guild_id": "T1", "message_id": "1700000000.000100",
        },
    });
    assert_eq!(serde_json::to_value(&intake.event).unwrap(), expected);
    assert_eq!((intake.addressed, intake.tenant_source, intake.mark.as_str()), (false, TenantSource::Shared, "T1"));
    assert_eq!(build_session_key(&intake.event.source), "agent:main:slack:group:C1:UANN");
}

#[test]
fn mentions_are_removed_and_address_the_bot() {
    for kind in ["message", "app_mention"] {
        let intake =
            event(with(said("C1", "channel", "<@UBOT> what is up, <@UBEN>?"), json!({ "type": kind }))).unwrap();
        assert_eq!((intake.event.text.as_str(), intake.addressed), ("what is up, <@UBEN>?", true));
    }
    let both = [
        event(said("C1", "channel", "<@UBOT> x")),
        event(with(said("C1", "", "<@UBOT> x"), json!({ "type": "app_mention" }))),
    ];
    let [first, second] = both.map(|it| it.unwrap().event.message_id);
    assert_eq!(first, second, "the same message comes twice, and is stored once");
}

#[test]
fn threads_are_named_by_their_first_message() {
    let reply = json!({ "thread_ts": "1699999999.000001", "parent_user_id": "UBOT" });
    let intake = event(with(said("C1", "channel", "and now?"), reply)).unwrap();
    assert_eq!(intake.event.source.thread_id.as_deref(), Some("1699999999.000001"));
    assert_eq!(intake.event.reply_to_message_id.as_deref(), Some("1699999999.000001"));
    assert_eq!(intake.event.reply_to.as_ref().unwrap().is_own, Some(true));
    assert!(intake.addressed, "an answer to the bot");
    let other = json!({ "thread_ts": "1699999999.000001", "parent_user_id": "UBEN" });
    let intake = event(with(said("C1", "channel", "and now?"), other)).unwrap();
    assert_eq!((intake.addressed, intake.event.reply_to.unwrap().is_own), (false, Some(false)));
    let first = event(with(said("C1", "channel", "x"), json!({ "thread_ts": "1700000000.000100" }))).unwrap();
    assert_eq!(first.event.source.thread_id, None, "the first message of a thread is not in it");
}

#[test]
fn chats_between_people_are_direct_ones() {
    for (channel, kind, chat_type, is_one) in [
        ("D1", "im", "dm", Some(true)),
        ("D1", "", "dm", Some(true)),
        ("G1", "mpim", "dm", None),
        ("C1", "mpim", "dm", None),
        ("G1", "group", "group", None),
        ("C1", "", "group", None),
    ] {
        let source = event(said(channel, kind, "x")).unwrap().event.source;
        assert_eq!((source.chat_type.as_str(), source.one_to_one_verified), (chat_type, is_one), "{channel} {kind}");
    }
}

#[test]
fn own_messages_are_skipped_and_other_bots_marked() {
    for own in [
        json!({ "user": "UBOT" }),
        json!({ "bot_id": "BBOT" }),
        json!({ "bot_id": "BX", "app_id": "A1" }),
        json!({ "subtype": "bot_message", "bot_id": "BBOT", "user": null }),
    ] {
        assert!(event(with(said("C1", "channel", "x"), own.clone())).is_none(), "{own}");
    }
    let other = event(with(said("C1", "channel", "x"), json!({ "bot_id": "BX", "app_id": "AX" }))).unwrap();
    assert!(other.event.source.is_bot);
    let workflow = json!({ "subtype": "bot_message", "bot_id": "BX", "user": null, "username": "Deploys" });
    let source = event(with(said("C1", "channel", "x"), workflow)).unwrap().event.source;
    assert_eq!(
        (source.is_bot, source.user_id.as_deref(), source.user_name.as_deref()),
        (true, Some("BX"), Some("Deploys"))
    );
}

#[test]
fn edits_of_people_are_edits_and_previews_are_not() {
    let changed = |edited: Value, before: &str| {
        let message = with(said("", "", "new"), json!({ "edited": edited, "channel": null }));
        json!({
            "type": "message", "subtype": "message_changed", "channel": "C1", "channel_type": "channel", "hidden": true,
            "message": message, "previous_message": { "text": before }, "ts": "1700000009.000900",
        })
    };
    let edited = json!({ "user": "UANN", "ts": "1700000008.000000" });
    let intake = event(changed(edited.clone(), "old")).unwrap();
    assert_eq!((intake.event.text.as_str(), intake.event.source.message_is_edit), ("new", true));
    assert_eq!(intake.event.message_id.as_deref(), Some("1700000000.000100"));
    assert_eq!(intake.edit_id.as_deref(), Some("1700000008.000000"));
    assert!(event(changed(Value::Null, "old")).is_none() && event(changed(edited, "new")).is_none());
}

#[test]
fn notes_of_slack_are_no_messages() {
    for subtype in ["channel_join", "channel_topic", "message_deleted", "message_replied", "assistant_app_thread", "x"]
    {
        assert!(event(with(said("C1", "channel", "x"), json!({ "subtype": subtype }))).is_none(), "{subtype}");
    }
    for subtype in ["file_share", "thread_broadcast", "me_message"] {
        assert!(event(with(said("C1", "channel", "x"), json!({ "subtype": subtype }))).is_some(), "{subtype}");
    }
}

#[test]
fn commands_begin_with_an_exclamation_mark_or_a_slash() {
    for (text, read, kind) in
        [("!stop", "/stop", "command"), ("/new", "/new", "command"), ("!nice work", "!nice work", "text")]
    {
        let intake = event(said("C1", "channel", text)).unwrap();
        let (said, of) = (intake.event.text.as_str(), intake.event.message_type.as_str());
        assert_eq!((said, of, intake.addressed), (read, kind, kind == "command"));
    }
}

#[test]
fn files_are_named_by_handles_and_decide_the_kind() {
    let files = |files: Value| {
        event(with(said("D1", "im", "look"), json!({ "subtype": "file_share", "files": files }))).unwrap()
    };
    let of = |mime: &str| json!([{ "id": "F1", "mimetype": mime, "name": "a.x", "size": 7 }]);
    for (mime, kind) in [
        ("image/png", "photo"),
        ("video/mp4", "video"),
        ("audio/mpeg", "voice"),
        ("application/pdf", "document"),
        ("", "document"),
    ] {
        let intake = files(of(mime));
        assert_eq!(intake.event.message_type, kind, "{mime}");
        let file = &intake.remote_media[0];
        assert_eq!((file.handle.expose(), file.filename.as_deref(), file.size), ("T1/F1", Some("a.x"), Some(7)));
    }
    let clip = files(json!([{ "id": "F1", "mimetype": "video/mp4", "subtype": "slack_audio" }]));
    assert_eq!((clip.event.message_type.as_str(), clip.remote_media[0].mime.as_str()), ("voice", "audio/mp4"));
    let odd = files(json!([
        { "id": "F1", "mode": "tombstone" }, { "mode": "external", "id": "F2", "name": "doc", "external_url": "https://x.example" },
        { "id": "../x" }, null, { "id": "F3", "file_access": "check_file_info" },
    ]));
    assert_eq!(odd.remote_media.len(), 1, "only what Slack has");
    assert!(odd.event.text.contains("[File doc: https://x.example]"), "{}", odd.event.text);
    let many: Vec<Value> = (0..20).map(|at| json!({ "id": format!("F{at}") })).collect();
    let many = files(many.into());
    assert_eq!((many.remote_media.len(), many.event.text.matches("was left out").count()), (16, 4));
}

#[test]
fn changes_of_places_and_people_are_told() {
    let changes = |event: Value| meaning(&envelope(event)).changes;
    let member = Change::Member { chat_id: "C1".into(), user_id: "UANN".into() };
    assert_eq!(changes(json!({ "type": "member_left_channel", "channel": "C1", "user": "UANN" })), [member]);
    let moved = Change::ChatMoved { from: "G1".into(), to: "C9".into() };
    let payload = json!({ "type": "channel_id_changed", "old_channel_id": "G1", "new_channel_id": "C9" });
    assert_eq!(changes(payload), [moved]);
    assert_eq!(changes(json!({ "type": "channel_rename", "channel": { "id": "C1" } })), [Change::Chat("C1".into())]);
    assert_eq!(changes(json!({ "type": "user_change", "user": { "id": "UANN" } })), [Change::Person("UANN".into())]);
    for odd in [
        json!({ "type": "member_left_channel" }),
        json!({ "type": "channel_rename", "channel": 5 }),
        json!({}),
        json!([]),
    ] {
        assert_eq!(changes(odd), []);
    }
    assert!(meaning(&envelope(json!({ "type": "app_uninstalled" }))).is_uninstalled);
    assert!(meaning(&envelope(json!({ "type": "tokens_revoked", "tokens": { "bot": ["UBOT"] } }))).is_uninstalled);
    assert!(!meaning(&envelope(json!({ "type": "tokens_revoked", "tokens": { "oauth": ["U1"] } }))).is_uninstalled);
}

#[test]
fn the_workspace_is_that_of_the_installation() {
    let mut shared = envelope(with(said("C1", "channel", "x"), json!({ "team": "T9" })));
    assert_eq!(team_of(&shared), "T1", "the author is of another workspace");
    shared["authorizations"] = json!([]);
    assert_eq!(team_of(&shared), "T1");
    shared["team_id"] = Value::Null;
    assert_eq!(team_of(&shared), "T9");
}

#[test]
fn a_message_without_an_id_is_recorded_and_refused() {
    for odd in [json!({ "ts": null }), json!({ "ts": "soon" }), json!({ "channel": "../c" }), json!({ "channel": 5 })] {
        let intake = event(with(said("C1", "channel", "x"), odd.clone())).unwrap();
        assert!(intake.refused.is_some() && intake.event.message_id.is_some(), "{odd}");
    }
}
