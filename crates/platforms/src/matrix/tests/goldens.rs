//! Events in, messages out.

use std::collections::BTreeMap;

use frontdesk_core::intake::Verified;
use serde_json::{Value, json};

use super::super::account::Account;
use super::super::event::RoomEvent;
use super::super::normalize::{Known, normalize};
use super::super::room::Room;
use super::{ME, ROOM, bot};

fn room(members: usize) -> Room {
    let all = [(ME, "Helper"), ("@ann:example.org", "Ann"), ("@ben:other.net", "Ben"), ("@cat:example.org", "Cat")];
    let members: BTreeMap<_, _> =
        all[..members].iter().map(|(id, name)| ((*id).to_owned(), Some((*name).to_owned()))).collect();
    let joined = Some(members.len());
    let is_direct = members.len() == 2;
    Room { name: Some("Ops".into()), members, joined, is_direct, scope: Some("example.org".into()), ..Room::default() }
}

/// What an agent gets of it, and what the server does besides.
fn outcome(case: &Value) -> Value {
    let bot = bot("sync");
    let account = Account::of(&bot).unwrap();
    let room = room(usize::try_from(case["members"].as_u64().unwrap_or(4)).unwrap());
    let event = RoomEvent::read(&case["event"]).expect("an event");
    let related = RoomEvent::read(&case["related"]);
    let known = Known { account: &account, room_id: ROOM, room: &room, related: related.as_ref() };
    let Some(intake) = normalize(&known, &event, Verified::by("a test")) else { return Value::Null };
    let files: Vec<Value> = intake.remote_media.iter().map(|file| {
        json!({ "handle": file.handle.expose(), "mime": file.mime, "filename": file.filename, "size": file.size })
    }).collect();
    let mut output = json!({ "event": intake.event, "addressed": intake.addressed });
    for (name, value) in [("files", json!(files)), ("refusal", json!(intake.refused)), ("needs", json!(event.needs()))]
    {
        if !value.is_null() && value != json!([]) {
            output[name] = value;
        }
    }
    // What is the same in all of them is left out of the file.
    let source = output["event"]["source"].as_object_mut().unwrap();
    assert_eq!((&source["platform"], &source["chat_id"]), (&json!("matrix"), &json!(ROOM)));
    assert_eq!((&source["scope_id"], &source["guild_id"]), (&json!("example.org"), &json!("example.org")));
    assert_eq!(source["chat_name"], "Ops");
    for name in ["platform", "chat_id", "scope_id", "guild_id", "chat_name", "chat_topic", "is_bot"] {
        source.remove(name);
    }
    source.retain(|_, value| !value.is_null() && *value != json!(false));
    output
}

/// `UPDATE_GOLDENS=1` writes the file anew; read the difference.
#[test]
fn events_become_messages() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/matrix/tests/goldens.json");
    let mut cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let update = std::env::var_os("UPDATE_GOLDENS").is_some();
    for case in cases.as_array_mut().unwrap() {
        let outcome = outcome(case);
        match update {
            true => case["becomes"] = outcome,
            false => assert_eq!(case["becomes"], outcome, "{}\n{outcome:#}", case["name"]),
        }
    }
    if update {
        std::fs::write(path, format!("{cases:#}\n")).unwrap();
    }
}

/// Regression: no message was known as one of a program.
#[test]
fn a_message_that_is_marked_as_automated_is_of_a_bot() {
    let bot = bot("sync");
    let account = Account::of(&bot).unwrap();
    let room = room(4);
    let known = Known { account: &account, room_id: ROOM, room: &room, related: None };
    for (mark, is_bot) in [(json!(true), true), (json!(false), false), (json!("true"), false), (Value::Null, false)] {
        for name in ["m.automated", "org.matrix.msc1767.automated"] {
            let content = json!({ "msgtype": "m.text", "body": "x", name: mark });
            let event =
                json!({ "event_id": "$1", "sender": "@ann:example.org", "type": "m.room.message", "content": content });
            let event = RoomEvent::read(&event).unwrap();
            let intake = normalize(&known, &event, Verified::by("a test")).unwrap();
            assert_eq!(intake.event.source.is_bot, is_bot, "{name} {mark}");
        }
    }
}

/// Any JSON in any place: no panic, and what is taken has an author and an id.
#[test]
fn no_event_breaks_the_normalizer() {
    let cases: Value = serde_json::from_str(include_str!("goldens.json")).unwrap();
    let cases = cases.as_array().unwrap();
    let odd = [
        json!(null),
        json!(0),
        json!(-1.5),
        json!(""),
        json!("> "),
        json!(">\n> \n"),
        json!("@bot:example.org"),
        json!([]),
        json!({}),
        json!([[]]),
        json!(true),
        json!("1\u{fe0f}\u{20e3}"),
        json!("!link"),
        json!("\u{0}/"),
        json!({ "event_id": "$x", "rel_type": "m.replace" }),
        json!("@bot:example.orgé"),
        json!("m.image"),
    ];
    let mut dice = 7_u64;
    let mut throw = |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(dice >> 33).unwrap() % below
    };
    let bot = bot("sync");
    let account = Account::of(&bot).unwrap();
    let mut taken = 0;
    for _ in 0..30_000 {
        let mut raw = cases[throw(cases.len())]["event"].clone();
        for _ in 0..=throw(3) {
            let paths = leaves(&raw, String::new());
            let path = &paths[throw(paths.len())];
            *raw.pointer_mut(path).unwrap() = odd[throw(odd.len())].clone();
        }
        let Some(event) = RoomEvent::read(&raw) else { continue };
        let related = RoomEvent::read(&cases[throw(cases.len())]["event"]).map(|mut it| {
            it.event_id = event.needs().unwrap_or("$other").to_owned();
            it.sender = if throw(2) == 0 { event.sender.clone() } else { ME.to_owned() };
            it
        });
        let room = room(1 + throw(4));
        let known = Known { account: &account, room_id: ROOM, room: &room, related: related.as_ref() };
        if let Some(intake) = normalize(&known, &event, Verified::by("a test")) {
            taken += 1;
            assert_eq!(intake.event.source.user_id.as_deref(), Some(event.sender.as_str()));
            assert_ne!(event.sender, ME);
            assert!(intake.event.message_id.is_some_and(|id| !id.is_empty()));
            assert!(!intake.event.message_type.is_empty());
        }
    }
    assert!(taken > 5_000, "{taken}");
}

/// Pointers to all values in it.
fn leaves(value: &Value, at: String) -> Vec<String> {
    let below: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(k, v)| (k.replace('~', "~0").replace('/', "~1"), v)).collect(),
        Value::Array(list) => list.iter().enumerate().map(|(k, v)| (k.to_string(), v)).collect(),
        _ => Vec::new(),
    };
    let mut found: Vec<String> =
        below.into_iter().flat_map(|(key, value)| leaves(value, format!("{at}/{key}"))).collect();
    found.push(at);
    found
}
