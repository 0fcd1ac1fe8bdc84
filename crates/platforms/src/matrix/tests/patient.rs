//! Homeservers that are slow, faulty or restored from a backup: what waits, what continues, and what is reported.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::outcall::OutcallError;
use frontdesk_core::port::platform::{Bot, ListenEnd, Part, Platform as _};
use frontdesk_wire::ChatId;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Homeservers;
use super::listening::{Record, Report, greeted, joined, listen, own, stopped, stopped_later, text};
use super::{BASE, ME, Table, bot, bot_with, path, run, with_room, world};

const ROOM: &str = super::ROOM;
const SLOW: Duration = Duration::from_secs(14);

/// A poll with the room that is slow, and another one.
fn two_rooms(next: &str) -> Value {
    let timeline = |body: &str| json!({ "timeline": { "events": [text(&format!("${body}"), body)] } });
    json!({ "next_batch": next, "rooms": { "join": { ROOM: timeline("slow"), "!quick:example.org": timeline("quick") } } })
}

fn with_quick(table: &Table) {
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    let joined = json!({ "joined": { ME: {}, "@ann:example.org": {}, "@ben:other.net": {} } });
    table.rule("GET client/v3/rooms/%21quick%3Aexample.org/joined_members", 200, joined);
}

fn place_of(reports: &[Report], wanted: &Report) -> usize {
    reports.iter().position(|it| it == wanted).unwrap_or_else(|| panic!("{wanted:?} in {reports:?}"))
}

/// Regression: a room whose members, state or history came slowly held up all others.
#[test]
fn a_slow_room_holds_up_no_other_room() {
    let (table, desk) = world();
    with_quick(&table);
    table.slow(&path("GET", "joined_members"), SLOW, 200, json!({ "joined": { ME: {}, "@ann:example.org": {} } }));
    table.rule(
        &path("GET", "messages?dir=b&from=s2&limit=100&to=s1"),
        200,
        json!({ "chunk": [text("$slow", "slow")] }),
    );
    table.rule("GET client/v3/sync", 200, two_rooms("s2"));
    table.rule("GET client/v3/sync", 200, json!({ "next_batch": "s3" }));
    stopped_later(&table, Duration::from_mins(2));
    let record = Record::default();
    let took = run(async {
        let began = Instant::now();
        let bot = bot("sync");
        let listening = desk.listen(&bot, Part::WHOLE, Some("s1".into()), &record);
        let quick = async {
            while !record.texts().contains(&"quick".to_owned()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            began.elapsed()
        };
        tokio::join!(listening, quick).1
    });
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(record.texts(), ["quick", "slow"], "and nothing is lost");
    assert_eq!(record.cursor().as_deref(), Some("s3"));
    let reports = record.reports.lock().unwrap();
    // While the room is behind, the cursor notes it: a restart reads it again.
    let behind =
        |it: &Report| matches!(it, Report::Cursor(cursor) if cursor.contains("behind") && cursor.contains("s1"));
    let noted = reports.iter().position(behind).unwrap();
    assert!(noted < place_of(&reports, &Report::Text("slow".into())), "{reports:?}");
}

#[test]
fn what_comes_while_a_room_is_behind_is_read_in_order() {
    let (table, desk) = world();
    with_quick(&table);
    let members = json!({ "joined": { ME: {}, "@ann:example.org": {} } });
    table.slow(&path("GET", "joined_members"), SLOW, 200, members.clone());
    table.rule(&path("GET", "joined_members"), 200, members);
    table.rule(
        &path("GET", "messages?dir=b&from=s2&limit=100&to=s1"),
        200,
        json!({ "chunk": [text("$slow", "slow")] }),
    );
    table.rule(
        &path("GET", "messages?dir=b&from=s3&limit=100&to=s2"),
        200,
        json!({ "chunk": [text("$next", "next")] }),
    );
    table.rule("GET client/v3/sync", 200, two_rooms("s2"));
    table.rule("GET client/v3/sync", 200, joined("s3", vec![text("$next", "next")]));
    stopped_later(&table, Duration::from_mins(2));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts(), ["quick", "slow", "next"]);
    assert_eq!(record.cursor().as_deref(), Some("s3"));
}

#[test]
fn a_room_that_is_never_read_is_reported_and_given_up() {
    let (table, desk) = world();
    with_quick(&table);
    table.rule(&path("GET", "joined_members"), 500, json!({ "errcode": "M_UNKNOWN" }));
    let page = json!({ "chunk": [text("$slow", "slow")] });
    table.rule(&path("GET", "messages?dir=b&from=s2&limit=100&to=s1"), 200, page);
    table.rule("GET client/v3/sync", 200, two_rooms("s2"));
    stopped_later(&table, Duration::from_hours(2));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    // The room is not known, and who can see it is asked apart.
    assert_eq!(record.texts(), ["quick", "slow"]);
    assert_eq!(record.cursor().as_deref(), Some("s2"));
}

/// The list of rooms that are read later is bounded, whatever users do; the rest is taken with what is known.
#[test]
fn many_slow_rooms_are_read_with_what_is_known() {
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    table.slow("GET client/v3/rooms/", Duration::from_mins(20), 200, json!({}));
    let room =
        |n: usize| (format!("!{n}:x"), json!({ "timeline": { "events": [text(&format!("${n}"), &n.to_string())] } }));
    let rooms: serde_json::Map<String, Value> = (0..70).map(room).collect();
    table.rule("GET client/v3/sync", 200, json!({ "next_batch": "s2", "rooms": { "join": rooms } }));
    stopped_later(&table, Duration::from_secs(30));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts().len(), 6);
    assert_eq!(record.cursor().unwrap().matches("behind").count(), 64);
}

fn reaction() -> Value {
    json!({ "event_id": "$r", "sender": "@ann:example.org", "type": "m.reaction",
            "content": { "m.relates_to": { "rel_type": "m.annotation", "event_id": "$p", "key": "1\u{fe0f}\u{20e3}" } } })
}

fn prompt() -> Value {
    let options = json!([{ "id": "yes", "label": "Yes" }]);
    json!({ "event_id": "$p", "sender": ME, "type": "m.room.message",
            "content": { "org.frontdesk.prompt": { "prompt_id": "p", "options": options } } })
}

/// Regression: an answer by reaction was dropped if the homeserver failed at that moment.
#[test]
fn an_answer_by_reaction_survives_a_failure_of_the_homeserver() {
    let (table, desk) = world();
    greeted(&table);
    table.rule(&path("GET", "event/%24p"), 502, json!({}));
    table.rule(&path("GET", "event/%24p"), 200, prompt());
    table.rule(&path("GET", "messages?dir=b&from=s2"), 200, json!({ "chunk": [reaction()] }));
    table.rule("GET client/v3/sync", 200, joined("s2", vec![reaction()]));
    stopped_later(&table, Duration::from_mins(1));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts(), ["/yes"]);

    let (table, desk) = world();
    greeted(&table);
    table.rule(&path("GET", "event/%24p"), 502, json!({}));
    table.rule(&path("GET", "messages?dir=b&from=s2"), 200, json!({ "chunk": [reaction()] }));
    table.rule("GET client/v3/sync", 200, joined("s2", vec![reaction()]));
    stopped_later(&table, Duration::from_hours(2));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert!(record.refusals()[0].contains("send it again"), "recorded in the end: {:?}", record.refusals());
}

/// Regression: two bots of one server in a room answered each other for ever.
#[test]
fn bots_of_one_server_do_not_hear_each_other() {
    let (table, desk) = world();
    greeted(&table);
    let of = |user_id: &str| Arc::new(bot_with(&[("homeserver_url", BASE), ("user_id", user_id)], &[]));
    desk.know_bots(&[of(ME), of("@other:example.org")]);
    let mut said = text("$1", "hello bot");
    said["sender"] = "@other:example.org".into();
    table.rule("GET client/v3/sync", 200, joined("s2", vec![said, text("$2", "hello")]));
    stopped(&table);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts(), ["hello"]);
    assert!(record.refusals()[0].contains("another bot of this server"), "{:?}", record.refusals());
}

/// Regression: a token that a homeserver does not know after it was restored was tried for ever.
#[test]
fn a_refused_token_begins_anew_with_a_gap() {
    for errcode in ["M_UNKNOWN", "M_INVALID_PARAM", "M_UNKNOWN_POS"] {
        let (table, desk) = world();
        greeted(&table);
        let refused = json!({ "errcode": errcode, "error": "Unknown position" });
        table.rule("GET client/v3/sync", 400, refused);
        table.rule("GET client/v3/sync", 200, joined("n1", vec![text("$old", "old")]));
        table.rule("GET client/v3/sync", 200, joined("n2", vec![text("$new", "new")]));
        stopped(&table);
        let record = Record::default();
        listen(&desk, &bot("sync"), Some("s1"), &record);
        assert!(record.gaps()[0].contains("Unknown position"), "{:?}", record.gaps());
        assert_eq!((record.texts(), record.cursor()), (vec!["new".to_owned()], Some("n2".into())));
        let polls = table.seen("GET client/v3/sync");
        assert!(!polls[1].what.contains("since=") && polls[2].what.contains("since=n1"));
    }
    // A homeserver that is down is another matter.
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 502, json!({}));
    let record = Record::default();
    assert!(matches!(listen(&desk, &bot("sync"), Some("s1"), &record), ListenEnd::Lost(_)));
    assert!(record.gaps().is_empty());
}

/// Synapse answers a token that it does not know any more with an earlier one: what was said since the restore is missing.
#[test]
fn a_homeserver_that_went_back_is_told_as_a_gap() {
    for (since, next, is_gap) in [
        ("s1001_1_0", "s8_1_0", true),
        ("s8_2_0", "s8_1_0", false),
        ("s8_1_0", "s9_1_0", false),
        ("t9", "t8", false),
        ("m9~1.2_1", "s8_1", false),
    ] {
        let (table, desk) = world();
        greeted(&table);
        table.rule("GET client/v3/sync", 200, json!({ "next_batch": next }));
        stopped(&table);
        let record = Record::default();
        listen(&desk, &bot("sync"), Some(since), &record);
        assert_eq!(
            (record.gaps().len(), record.cursor().as_deref()),
            (usize::from(is_gap), Some(next)),
            "{since} {next}"
        );
    }
}

/// Regression: an answer that is too large whatever is left out of it was asked for again for ever.
#[test]
fn an_answer_that_is_always_too_large_begins_anew_with_a_gap() {
    let (table, desk) = world();
    greeted(&table);
    for _ in 0..3 {
        table.fail("GET client/v3/sync", OutcallError::TooLarge(8 << 20));
    }
    table.rule("GET client/v3/sync", 200, joined("n1", vec![text("$old", "old")]));
    stopped(&table);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!((record.gaps().len(), record.texts().len()), (1, 0));
    let polls = table.seen("GET client/v3/sync");
    // The first poll asks for no events at all, so that it is small however many rooms there are.
    assert!(polls[3].what.contains("not_types") && !polls[3].what.contains("since="), "{}", polls[3].what);
    assert!(polls[0].what.contains("%22limit%22%3A50") && polls[2].what.contains("%22limit%22%3A1"));
}

#[test]
fn a_page_that_is_too_large_is_asked_for_in_smaller_ones() {
    let (table, desk) = world();
    greeted(&table);
    let timeline = json!({ "limited": true, "prev_batch": "p1", "events": [] });
    let limited = json!({ "next_batch": "s2", "rooms": { "join": { ROOM: { "timeline": timeline } } } });
    table.rule("GET client/v3/sync", 200, limited);
    stopped(&table);
    table.fail(&path("GET", "messages?dir=b&from=p1&limit=100"), OutcallError::TooLarge(4 << 20));
    let page = json!({ "chunk": [text("$1", "large")] });
    table.rule(&path("GET", "messages?dir=b&from=p1&limit=10&to=s1"), 200, page);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!((record.texts(), record.gaps()), (vec!["large".to_owned()], vec![]));
}

fn invitation(room_id: &str) -> Value {
    let event = json!({ "type": "m.room.member", "state_key": ME, "sender": "@ann:example.org",
                        "content": { "membership": "invite" } });
    json!({ "next_batch": "s2", "rooms": { "invite": { room_id: { "invite_state": { "events": [event] } } } } })
}

/// Regression: an invitation was lost if the homeserver was restarted while the bot joined.
#[test]
fn an_invitation_is_accepted_after_the_homeserver_is_back() {
    let (table, desk) = world();
    greeted(&table);
    table.fail(&path("POST", "join"), OutcallError::Failed("connection closed".into()));
    for _ in 0..15 {
        table.fail(&path("POST", "join"), OutcallError::NotSent("connection refused".into()));
    }
    table.rule(&path("POST", "join"), 503, json!({}));
    table.rule(&path("POST", "join"), 200, json!({}));
    table.rule("GET client/v3/sync", 200, invitation(ROOM));
    stopped_later(&table, Duration::from_hours(3));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!((record.cursor().as_deref(), record.gaps().len()), (Some("s2"), 0));
    assert_eq!(table.seen(&path("POST", "join")).len(), 18);
    // And also if this server is restarted in between.
    let (table, desk) = world();
    greeted(&table);
    table.rule(&path("POST", "join"), 200, json!({}));
    stopped_later(&table, Duration::from_secs(5));
    let saved = record.reports.lock().unwrap().iter().find_map(|it| match it {
        Report::Cursor(cursor) if cursor.contains("invited") => Some(cursor.clone()),
        _ => None,
    });
    let record = Record::default();
    listen(&desk, &bot("sync"), saved.as_deref(), &record);
    assert_eq!(table.seen(&path("POST", "join")).len(), 1);
    assert!(table.seen("GET client/v3/sync")[0].what.contains("since=s2"));
}

#[test]
fn an_invitation_that_never_works_is_given_up_aloud() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("POST client/v3/rooms/%21x%3Agone.net/join", 504, json!({ "errcode": "M_UNKNOWN" }));
    table.rule("GET client/v3/sync", 200, invitation("!x:gone.net"));
    stopped_later(&table, Duration::from_hours(2));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert!(record.gaps()[0].contains("invite the bot again"), "{:?}", record.gaps());
    assert_eq!(record.cursor().as_deref(), Some("s2"));
}

/// Regression: the room that replaces one of another server could not be joined.
#[test]
fn an_upgraded_room_is_joined_by_servers_that_know_it() {
    let (table, desk) = world();
    greeted(&table);
    let tombstone = json!({ "event_id": "$t", "sender": "@ann:far.net", "type": "m.room.tombstone", "state_key": "",
                            "content": { "replacement_room": "!new" } });
    table.rule("GET client/v3/sync", 200, joined("s2", vec![tombstone]));
    stopped_later(&table, Duration::from_mins(1));
    table.rule(&path("GET", "state/m.room.tombstone/"), 200, json!({ "replacement_room": "!new" }));
    table.rule("POST client/v3/join/%21new", 200, json!({}));
    let create = json!({ "predecessor": { "room_id": ROOM } });
    table.rule("GET client/v3/rooms/%21new/state/m.room.create/", 200, create);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    let asked = table.seen("POST client/v3/join/").remove(0).what;
    for server in ["example.org", "far.net"] {
        assert!(asked.contains(&format!("via={server}&server_name={server}")), "{asked}");
    }
    assert!(record.reports.lock().unwrap().contains(&Report::Moved("!new".into())));
}

/// The members of an upgraded room that is not public are invited to the new one: the routes move then.
#[test]
fn a_room_moves_also_by_an_invitation() {
    let new = "!new:example.org";
    for (stated, moved) in [(new, true), ("!else:example.org", false)] {
        let (table, desk) = world();
        greeted(&table);
        table.rule("GET client/v3/sync", 200, invitation(new));
        stopped_later(&table, Duration::from_mins(1));
        table.rule("POST client/v3/rooms/%21new%3Aexample.org/join", 200, json!({}));
        let create = json!({ "predecessor": { "room_id": ROOM } });
        table.rule("GET client/v3/rooms/%21new%3Aexample.org/state/m.room.create/", 200, create);
        table.rule(&path("GET", "state/m.room.tombstone/"), 200, json!({ "replacement_room": stated }));
        let record = Record::default();
        listen(&desk, &bot("sync"), Some("s1"), &record);
        assert_eq!(record.reports.lock().unwrap().contains(&Report::Moved(new.into())), moved);
    }
}

fn coming(id: usize, membership: &str, before: &str) -> Value {
    let user_id = format!("@u{}:evil.net", id % 10);
    json!({ "event_id": format!("$m{id}"), "sender": user_id, "type": "m.room.member", "state_key": user_id,
            "content": { "membership": membership }, "unsigned": { "prev_content": { "membership": before } } })
}

/// Regression: users who came and went caused a look-up of the whole room for every message.
#[test]
fn strangers_who_come_and_go_do_not_disable_the_memory_of_rooms() {
    let (table, desk) = world();
    greeted(&table);
    let mut events = Vec::new();
    for n in 0..100 {
        let (now, before) = if n / 10 % 2 == 0 { ("join", "leave") } else { ("leave", "join") };
        events.extend([coming(n, now, before), text(&format!("$t{n}"), "x")]);
    }
    events.push(coming(0, "join", "join")); // another name
    table.rule("GET client/v3/sync", 200, joined("s2", events));
    stopped(&table);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts().len(), 100);
    assert_eq!(table.seen(&path("GET", "joined_members")).len(), 1);
    let reports = record.reports.lock().unwrap();
    let changed: Vec<_> = reports.iter().filter(|it| matches!(it, Report::Changed(_))).collect();
    assert_eq!(changed.len(), 10, "one for each of them, and nobody else is asked about again: {changed:?}");
    assert!(changed.iter().all(|it| matches!(it, Report::Changed(what) if what.starts_with("Member"))));
}

#[test]
fn members_are_known_as_they_come_and_go() {
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    with_room(&table, &[ME, "@ann:example.org"]);
    let kinds = |desk: &Homeservers| {
        let bot = bot("sync");
        run(desk.look(super::acting_as(&bot), &ChatId::from(ROOM), None)).unwrap().unwrap().info.chat_type
    };
    assert_eq!(kinds(&desk), "dm");
    table.rule("GET client/v3/sync", 200, joined("s2", vec![coming(1, "join", "leave")]));
    stopped(&table);
    listen(&desk, &bot("sync"), Some("s1"), &Record::default());
    assert_eq!(kinds(&desk), "group");
    assert_eq!(table.seen(&path("GET", "joined_members")).len(), 1);
}

fn secret(id: &str) -> Value {
    json!({ "event_id": id, "sender": "@ann:example.org", "type": "m.room.encrypted", "content": { "ciphertext": "x" } })
}

/// Regression: if the notice about encryption failed, the room was not notified, and it was not retried.
#[test]
fn the_notice_about_encryption_is_tried_again_and_its_failure_is_told() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 200, joined("s2", vec![secret("$1")]));
    stopped_later(&table, Duration::from_mins(10));
    for _ in 0..3 {
        table.rule(&path("PUT", "send/"), 502, json!({ "errcode": "M_UNKNOWN", "error": "ill" }));
    }
    table.rule(&path("PUT", "send/"), 200, json!({ "event_id": "$notice" }));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert!(record.refusals()[0].contains("sending a notice to the room failed"), "{:?}", record.refusals());
    let mut sent: Vec<String> = table.seen(&path("PUT", "send/")).into_iter().map(|it| it.what).collect();
    assert_eq!(sent.len(), 4);
    sent.dedup();
    assert_eq!(sent.len(), 1, "always under the same key");

    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 200, joined("s2", vec![secret("$1")]));
    table.slow("GET client/v3/sync", Duration::from_hours(1), 502, json!({}));
    table.rule(&path("PUT", "send/"), 403, json!({ "errcode": "M_FORBIDDEN", "error": "muted" }));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert!(table.seen(&path("PUT", "send/")).len() <= 5);
    assert!(record.gaps()[0].contains("muted"), "{:?}", record.gaps());
    let found = run(desk.inspect(&bot("sync")));
    assert!(found.iter().any(|it| it.check == "encryption" && it.text.contains("muted")), "{found:?}");
}

/// Regression: of what was said between the invitation and the join only one page was read.
#[test]
fn a_long_talk_before_the_join_is_read_page_by_page() {
    let (table, desk) = world();
    with_room(&table, &[ME, "@ann:example.org"]);
    table.rule(&path("POST", "join"), 200, json!({}));
    let page = |from: usize, more: Vec<Value>| {
        let said = (0..100).map(|n| text(&format!("${}", from - n), "x"));
        said.chain(more).collect::<Vec<_>>()
    };
    let first = json!({ "chunk": page(300, vec![]), "end": "p1" });
    let last = json!({ "chunk": page(100, vec![own("$i", "invite", ""), text("$0", "before")]), "end": "p3" });
    table.rule(&path("GET", "messages?dir=b&from=p1"), 200, json!({ "chunk": page(200, vec![]), "end": "p2" }));
    table.rule(&path("GET", "messages?dir=b&from=p2"), 200, last);
    table.rule(&path("GET", "messages?dir=b&limit=100"), 200, first);
    let invite = json!({ "event_id": "$i", "room_id": ROOM, "sender": "@ann:example.org", "state_key": ME,
                         "type": "m.room.member", "content": { "membership": "invite" } });
    let received =
        super::pushing::push_one(&desk, &json!({ "events": [invite] })).unwrap_or_else(|it| panic!("{it:?}"));
    assert_eq!((received.intakes.len(), received.gaps.len()), (300, 0));
    assert!(received.intakes.iter().all(|it| it.event.text == "x"));
}

/// Regression: while the talk before the join came slowly, the homeserver repeated the transaction.
#[test]
fn a_slow_talk_before_the_join_does_not_repeat_the_transaction() {
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    with_room(&table, &[ME, "@ann:example.org"]);
    table.slow(&path("POST", "join"), SLOW, 200, json!({}));
    let early = json!({ "chunk": [text("$1", "early"), own("$i", "invite", "")] });
    table.slow(&path("GET", "messages?dir=b&limit=100"), SLOW, 200, early);
    let invite = json!({ "event_id": "$i", "room_id": ROOM, "sender": "@ann:example.org", "state_key": ME,
                         "type": "m.room.member", "content": { "membership": "invite" } });
    let record = Record::default();
    let bot: Arc<Bot> = Arc::new(bot("appservice"));
    run(async {
        let pushing = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let began = Instant::now();
            let request = super::pushing::request(Some("pushed"), "", &json!({ "events": [invite] }));
            let received = desk.receive(Some(&bot), &request).await.unwrap_or_else(|it| panic!("{it:?}"));
            assert!(received.intakes.is_empty() && began.elapsed() < Duration::from_secs(1));
            assert!(record.cursor().unwrap().contains("invited"), "noted before it is answered");
            while record.texts().is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            ended = desk.listen(&bot, Part::WHOLE, None, &record) => panic!("{ended:?}"),
            () = pushing => {}
        }
    });
    assert_eq!(record.texts(), ["early"]);
}

/// Regression: Synapse forgets events that it was about to push when it stops, and that went unnoticed.
#[test]
fn what_was_not_pushed_is_found_by_a_poll() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 200, json!({ "next_batch": "s2" }));
    table.rule("GET client/v3/sync", 200, joined("s3", vec![text("$1", "missed")]));
    stopped(&table);
    let record = Record::default();
    let took = run(async {
        let began = Instant::now();
        desk.listen(&bot("appservice"), Part::WHOLE, Some("s1".into()), &record).await;
        began.elapsed()
    });
    assert_eq!((record.texts(), record.cursor().as_deref()), (vec!["missed".to_owned()], Some("s3")));
    let polls = table.seen("GET client/v3/sync");
    assert!(polls.iter().all(|poll| poll.what.contains("timeout=0")), "they do not wait: {}", polls[0].what);
    assert!(polls.iter().all(|poll| poll.what.contains("set_presence=offline")), "{}", polls[0].what);
    assert!(took >= Duration::from_mins(2), "they are rare: {took:?}");
}

#[test]
fn an_application_service_that_may_not_poll_relies_on_pushes() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 403, json!({ "errcode": "M_FORBIDDEN", "error": "not for you" }));
    let record = Record::default();
    let bot = bot("appservice");
    let listening = desk.listen(&bot, Part::WHOLE, None, &record);
    let ended = run(async { tokio::time::timeout(Duration::from_mins(45), listening).await });
    assert!(ended.is_err(), "the listener goes on: {ended:?}");
    assert_eq!(table.seen("GET client/v3/sync").len(), 2, "asked again after half an hour");
}
