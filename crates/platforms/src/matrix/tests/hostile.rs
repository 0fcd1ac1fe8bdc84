//! Hostile users and servers, and faulty homeservers.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::outcall::OutcallError;
use frontdesk_core::port::platform::{Bot, ListenEnd, Part, Platform as _};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::Homeservers;
use super::super::task::Task;
use super::listening::{Record, Report, greeted, joined, listen, own, stopped, stopped_later, text};
use super::pushing::{push_one, request};
use super::{BASE, ME, bot, bot_with, path, run, with_room, world};

const ROOM: &str = super::ROOM;

fn own_invite(room_id: &str, inviter: &str) -> Value {
    json!({ "event_id": format!("$i{room_id}"), "room_id": room_id, "sender": inviter, "state_key": ME,
            "type": "m.room.member", "content": { "membership": "invite", "is_direct": true } })
}

fn invited(next: &str, invitations: &[(&str, &str)]) -> Value {
    let of = |(room_id, inviter): &(&str, &str)| {
        let events = [own_invite(room_id, inviter)];
        ((*room_id).to_owned(), json!({ "invite_state": { "events": events } }))
    };
    let rooms: serde_json::Map<String, Value> = invitations.iter().map(of).collect();
    json!({ "next_batch": next, "rooms": { "invite": rooms } })
}

fn tombstone() -> Value {
    json!({ "event_id": "$t", "room_id": ROOM, "sender": "@ann:example.org", "type": "m.room.tombstone",
            "state_key": "", "content": { "replacement_room": "!new:evil.net" } })
}

fn of_token(errcode: &str) -> Value {
    json!({ "errcode": errcode, "error": "said by another server" })
}

fn in_room(mut event: Value, room_id: &str) -> Value {
    event["room_id"] = room_id.into();
    event
}

/// Runs the listener of an application service while this happens.
fn beside(desk: &Homeservers, cursor: Option<&str>, record: &Record, happens: impl Future<Output = ()>) {
    let bot = bot("appservice");
    run(async {
        tokio::select! {
            ended = desk.listen(&bot, Part::WHOLE, cursor.map(str::to_owned), record) => panic!("{ended:?}"),
            () = happens => {}
        }
    });
}

/// Regression: the error code of another server's answer to a join ended the bot, again after each restart.
#[test]
fn the_answer_of_another_server_to_a_join_does_not_end_a_bot() {
    for errcode in ["M_USER_DEACTIVATED", "M_MISSING_TOKEN", "M_UNKNOWN_TOKEN"] {
        let (table, desk) = world();
        greeted(&table);
        table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
        table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
        table.rule("POST client/v3/rooms/%21x%3Aevil.net/join", 403, of_token(errcode));
        table.rule("POST client/v3/join/%21new%3Aevil.net", 403, of_token(errcode));
        let stated = json!({ "replacement_room": "!new:evil.net" });
        table.rule(&path("GET", "state/m.room.tombstone/"), 200, stated);
        let mut first = joined("s2", vec![tombstone()]);
        first["rooms"]["invite"] = invited("", &[("!x:evil.net", "@eve:evil.net")])["rooms"]["invite"].clone();
        table.rule("GET client/v3/sync", 200, first);
        table.slow("GET client/v3/sync", Duration::from_mins(1), 200, joined("s3", vec![text("$1", "later")]));
        stopped_later(&table, Duration::from_mins(1));
        let record = Record::default();
        listen(&desk, &bot("sync"), Some("s1"), &record);
        assert_eq!((record.texts(), record.cursor().as_deref()), (vec!["later".to_owned()], Some("s3")));
        assert_eq!(table.seen("POST client/v3/rooms/%21x%3Aevil.net/join").len(), 1, "final");
        // And it does not make the homeserver push the same transaction for ever.
        let (table, desk) = world();
        greeted(&table);
        table.rule("POST client/v3/rooms/%21x%3Aevil.net/join", 403, of_token(errcode));
        let pushed = push_one(&desk, &json!({ "events": [own_invite("!x:evil.net", "@eve:evil.net")] }));
        assert!(pushed.is_ok());
    }
}

#[test]
fn a_task_is_kept_if_the_token_is_really_bad() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/account/whoami", 401, of_token("M_UNKNOWN_TOKEN"));
    table.rule(&path("POST", "join"), 401, of_token("M_UNKNOWN_TOKEN"));
    table.rule("GET client/v3/sync", 200, invited("s2", &[(ROOM, "@ann:example.org")]));
    table.slow("GET client/v3/sync", Duration::from_mins(1), 200, json!({ "next_batch": "s3" }));
    let record = Record::default();
    let ended = listen(&desk, &bot("sync"), Some("s1"), &record);
    assert!(matches!(ended, ListenEnd::Misconfigured(_)), "{ended:?}");
    assert!(record.cursor().unwrap().contains("invited"));
}

#[test]
fn a_poll_ends_a_bot_for_good_only_if_the_token_is_bad() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 401, json!({ "error": "of a proxy" }));
    let ended = listen(&desk, &bot("sync"), Some("s1"), &Record::default());
    assert!(matches!(&ended, ListenEnd::Lost(why) if why.contains("of a proxy")), "{ended:?}");
}

fn member(user_id: &str, membership: &str) -> Value {
    json!({ "event_id": format!("${user_id}{membership}"), "room_id": ROOM, "sender": user_id, "type": "m.room.member",
            "state_key": user_id, "content": { "membership": membership } })
}

/// Regression: a poll brings what was pushed a while ago, and made a room of three a direct chat for minutes.
#[test]
fn old_memberships_of_a_poll_do_not_replace_newer_ones() {
    let (table, desk) = world();
    greeted(&table);
    let kind = |desk: &Homeservers| {
        let bot = bot("appservice");
        run(desk.look(super::acting_as(&bot), &ROOM.into(), None)).unwrap().unwrap().info
    };
    assert_eq!(kind(&desk).chat_type, "group");
    // Ben went and came again; the poll has only the first of that.
    table.rule("GET client/v3/sync", 200, joined("s2", vec![member("@ben:other.net", "leave")]));
    table.slow("GET client/v3/sync", Duration::from_hours(1), 200, json!({ "next_batch": "s3" }));
    beside(&desk, Some("s1"), &Record::default(), async { tokio::time::sleep(Duration::from_secs(10)).await });
    assert_eq!(kind(&desk).chat_type, "group");
    assert_eq!(table.seen(&path("GET", "joined_members")).len(), 2, "asked again");
    assert_eq!(desk.rooms.last_known("b", ROOM).unwrap().members.len(), 3);
}

/// Regression: the listener of an application service ended when an optional poll failed.
#[test]
fn a_failed_poll_of_an_application_service_is_repeated() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 502, json!({}));
    table.fail("GET client/v3/sync", OutcallError::NotSent("connection refused".into()));
    table.rule("GET client/v3/sync", 401, json!({ "error": "of a proxy" }));
    table.rule("GET client/v3/sync", 200, joined("s2", vec![text("$1", "missed")]));
    let record = Record::default();
    beside(&desk, Some("s1"), &record, async {
        while record.texts().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(record.cursor().as_deref(), Some("s2"));
    assert_eq!(table.seen("GET client/v3/sync").len(), 4);
}

/// The look-ups for an answer fail: the same answer is asked for again.
#[test]
fn a_poll_that_could_not_be_taken_is_asked_for_again() {
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    table.fail(&path("GET", "joined_members"), OutcallError::NotSent("connection refused".into()));
    with_room(&table, &[ME, "@ann:example.org"]);
    table.rule("GET client/v3/sync", 200, joined("s2", vec![text("$1", "missed")]));
    let record = Record::default();
    beside(&desk, Some("s1"), &record, async {
        while record.texts().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let polls = table.seen("GET client/v3/sync");
    assert!(polls.len() == 2 && polls[1].what.contains("since=s1"), "{polls:?}");
}

/// Regression: a direct chat was stored as a group because the homeserver was slow, and no poll corrected that.
#[test]
fn a_slow_room_of_a_transaction_is_left_to_the_listener() {
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    let members = || json!({ "joined": { ME: {}, "@ann:example.org": {} } });
    table.slow(&path("GET", "joined_members"), Duration::from_mins(1), 200, members());
    table.rule(&path("GET", "joined_members"), 200, members());
    table.rule("GET client/v3/rooms/%21quick%3Aexample.org/joined_members", 200, members());
    table.rule(&path("GET", "messages?dir=b&limit=100&to=s1"), 200, json!({ "chunk": [text("$1", "slow")] }));
    table.rule("GET client/v3/sync", 200, json!({ "next_batch": "s1" }));
    let record = Record::default();
    let events = [in_room(text("$1", "slow"), ROOM), in_room(text("$2", "quick"), "!quick:example.org")];
    let body = json!({ "events": events });
    beside(&desk, Some("s1"), &record, async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        let bot = bot("appservice");
        let request = request(Some("pushed"), "", &body);
        let received = desk.receive(Some(&bot), &request).await.unwrap_or_else(|it| panic!("{it:?}"));
        assert!(began.elapsed() <= Duration::from_secs(6), "{:?}", began.elapsed());
        let texts: Vec<&str> = received.intakes.iter().map(|it| it.event.text.as_str()).collect();
        assert_eq!(texts, ["quick"]);
        let is_noted = |it: &Report| matches!(it, Report::Cursor(cursor) if cursor.contains("behind"));
        assert!(record.reports.lock().unwrap().iter().any(is_noted), "noted before it is answered");
        while record.texts().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    assert_eq!(record.texts(), ["slow"]);
    assert_eq!(desk.rooms.last_known("b", ROOM).unwrap().chat_type(), "dm");
}

/// Regression: while the listener was busy, the transaction was refused.
#[test]
fn a_busy_listener_does_not_refuse_a_transaction() {
    let (table, desk) = world();
    greeted(&table);
    table.rule(&path("POST", "join"), 200, json!({}));
    let _never_read = desk.tasks.open("b");
    let pushed = push_one(&desk, &json!({ "events": [own_invite(ROOM, "@ann:example.org")] }));
    assert!(pushed.is_ok());
    assert_eq!(table.seen(&path("POST", "join")).len(), 1, "done by the door");
}

/// Regression: attempts counted although nothing reached the homeserver, so that events were taken without look-ups.
#[test]
fn only_attempts_that_reached_the_homeserver_count() {
    let (table, desk) = world();
    for _ in 0..5 {
        table.fail(&path("GET", "joined_members"), OutcallError::NotSent("connection refused".into()));
    }
    table.rule(&path("GET", "joined_members"), 502, json!({}));
    let body = json!({ "events": [in_room(text("$1", "one"), ROOM)] });
    for _ in 0..7 {
        assert_eq!(push_one(&desk, &body).err().map(|reply| reply.status), Some(503));
    }
    assert!(push_one(&desk, &body).is_ok(), "the third one that counts");
}

/// A room whose look-ups are refused like a bad token delays the others only until the last attempt.
#[test]
fn a_refused_look_up_does_not_hold_up_transactions_for_ever() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/rooms/%21odd%3Ax/joined_members", 401, of_token("M_UNKNOWN_TOKEN"));
    let body = json!({ "events": [in_room(text("$1", "odd"), "!odd:x"), in_room(text("$2", "one"), ROOM)] });
    for _ in 0..2 {
        assert_eq!(push_one(&desk, &body).err().map(|reply| reply.status), Some(503));
    }
    let received = push_one(&desk, &body).unwrap_or_else(|reply| panic!("{reply:?}"));
    assert_eq!((received.intakes.len(), received.gaps.len()), (1, 1));
    assert!(received.gaps[0].reason.contains("!odd:x"), "{:?}", received.gaps);
}

/// Regression: joins that the homeserver limits held all slots.
#[test]
fn a_limited_join_lets_others_go_first() {
    let (table, desk) = world();
    greeted(&table);
    let limited = json!({ "errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 3_000_000 });
    table.rule("POST client/v3/rooms/%21far", 429, limited);
    table.rule(&path("POST", "join"), 200, json!({}));
    let far: Vec<(String, String)> = (0..16).map(|n| (format!("!far{n}:x{n}.net"), format!("@e:x{n}.net"))).collect();
    let mut all: Vec<(&str, &str)> = far.iter().map(|(room, inviter)| (room.as_str(), inviter.as_str())).collect();
    all.push((ROOM, "@ann:example.org"));
    table.rule("GET client/v3/sync", 200, invited("s2", &all));
    stopped_later(&table, Duration::from_secs(20));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(table.seen(&path("POST", "join")).len(), 1);
    assert_eq!(record.cursor().unwrap().matches("invited").count(), 16);
}

/// Regression: a wanted invitation was dropped while the rejection of an unwanted one was pending, and then rejected.
#[test]
fn a_wanted_invitation_is_not_rejected_for_an_earlier_one() {
    let (table, desk) = world();
    greeted(&table);
    table.rule(&path("POST", "leave"), 502, json!({}));
    table.rule(&path("POST", "join"), 200, json!({}));
    table.rule("GET client/v3/sync", 200, invited("s2", &[(ROOM, "@eve:evil.net")]));
    table.slow("GET client/v3/sync", Duration::from_secs(1), 200, invited("s3", &[(ROOM, "@ann:example.org")]));
    stopped_later(&table, Duration::from_mins(5));
    let settings = [("homeserver_url", BASE), ("user_id", ME), ("invites", "example.org")];
    let bot = bot_with(&settings, &[("access_token", "token")]);
    let record = Record::default();
    listen(&desk, &bot, Some("s1"), &record);
    let asked = (table.seen(&path("POST", "leave")).len(), table.seen(&path("POST", "join")).len());
    assert_eq!((asked, record.cursor().as_deref()), ((1, 1), Some("s3")));
}

/// Regression: two joins at once each wrote the list of direct chats without the room of the other.
#[test]
fn the_list_of_direct_chats_is_changed_by_one_join_at_a_time() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("POST client/v3/rooms/", 200, json!({}));
    let list = "client/v3/user/%40bot%3Aexample.org/account_data/m.direct";
    table.slow(&format!("GET {list}"), Duration::from_secs(1), 200, json!({}));
    table.slow(&format!("PUT {list}"), Duration::from_secs(1), 200, json!({}));
    table.rule("GET client/v3/sync", 200, invited("s2", &[("!a:example.org", "@ann:example.org"), (ROOM, "@b:x.org")]));
    stopped_later(&table, Duration::from_mins(1));
    listen(&desk, &bot("sync"), Some("s1"), &Record::default());
    let seen = table.seen.lock().unwrap();
    let of_list = seen.iter().filter(|it| it.what.contains("m.direct")).map(|it| &it.what[..3]);
    assert_eq!(of_list.collect::<Vec<_>>(), ["GET", "PUT", "GET", "PUT"]);
}

/// Regression: what an answer left out of a room that the bot was removed from was missed silently.
#[test]
fn a_left_room_that_is_not_complete_is_a_gap() {
    let (table, desk) = world();
    greeted(&table);
    let timeline = json!({ "limited": true, "prev_batch": "p1", "events": [text("$1", "last words")] });
    let left = json!({ "next_batch": "s2", "rooms": { "leave": { ROOM: { "timeline": timeline } } } });
    table.rule("GET client/v3/sync", 200, left);
    stopped(&table);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!((record.texts().len(), record.gaps().len()), (1, 1));
    assert!(record.gaps()[0].contains("no longer in it"), "{:?}", record.gaps());
}

/// Regression: a room moved before what was said in it was stored.
#[test]
fn tasks_are_handed_over_after_all_rooms_were_read() {
    let (table, desk) = world();
    greeted(&table);
    let members = json!({ "joined": { ME: {}, "@ann:example.org": {} } });
    table.slow("GET client/v3/rooms/%21slow%3Ax/joined_members", Duration::from_secs(2), 200, members);
    let said = in_room(text("$1", "said"), "!slow:x");
    let body = json!({ "events": [tombstone(), own_invite("!b:example.org", "@ann:example.org"), said] });
    let mut handed = desk.tasks.open("b");
    let bot: Arc<Bot> = Arc::new(bot("appservice"));
    run(async {
        let began = Instant::now();
        let request = request(Some("pushed"), "", &body);
        let listening = async {
            let mut tasks = Vec::new();
            for _ in 0..2 {
                let (task, confirm) = handed.recv().await.unwrap();
                assert!(began.elapsed() >= Duration::from_secs(2), "{task:?} at {:?}", began.elapsed());
                confirm.send(()).unwrap();
                tasks.push(task);
            }
            tasks
        };
        let (received, tasks) = tokio::join!(desk.receive(Some(&bot), &request), listening);
        assert!(received.is_ok_and(|received| received.intakes.len() == 1));
        assert!(matches!(&tasks[..], [Task::Invited { .. }, Task::Moved { .. }]), "{tasks:?}");
    });
}

/// Regression: an empty page ended the reading, though the homeserver said that there is more.
#[test]
fn empty_pages_are_passed_and_too_many_of_them_are_a_gap() {
    for (empty, gaps) in [(2, 0), (50, 1)] {
        let (table, desk) = world();
        greeted(&table);
        let timeline = json!({ "limited": true, "prev_batch": "p0", "events": [] });
        let limited = json!({ "next_batch": "s2", "rooms": { "join": { ROOM: { "timeline": timeline } } } });
        table.rule("GET client/v3/sync", 200, limited);
        stopped(&table);
        for n in 0..empty {
            let page = json!({ "chunk": [], "end": format!("p{}", n + 1) });
            table.rule(&path("GET", &format!("messages?dir=b&from=p{n}&")), 200, page);
        }
        let page = json!({ "chunk": [text("$1", "found")] });
        table.rule(&path("GET", &format!("messages?dir=b&from=p{empty}&")), 200, page);
        let record = Record::default();
        listen(&desk, &bot("sync"), Some("s1"), &record);
        assert_eq!((record.texts().len(), record.gaps().len()), (1 - gaps, gaps), "{:?}", record.gaps());
    }
}

/// Regression: the poll after a join saw the invitation, and joined once more.
#[test]
fn an_invitation_in_the_history_of_a_poll_is_not_accepted_again() {
    let (table, desk) = world();
    greeted(&table);
    table.rule(&path("POST", "join"), 200, json!({}));
    let invite = own_invite(ROOM, "@ann:example.org");
    table.rule("GET client/v3/sync", 200, joined("s2", vec![invite, own("$j", "join", "invite")]));
    beside(&desk, Some("s1"), &Record::default(), async { tokio::time::sleep(Duration::from_secs(30)).await });
    assert!(table.seen(&path("POST", "join")).is_empty());
}

#[test]
fn a_bot_with_the_token_of_another_one_is_tried_again() {
    let (table, desk) = world();
    greeted(&table);
    let mut other = bot("appservice");
    other.id = "other".into();
    desk.know_bots(&[Arc::new(other)]);
    let ended = listen(&desk, &bot("appservice"), None, &Record::default());
    assert!(matches!(&ended, ListenEnd::Lost(why) if why.contains("hs_token")), "{ended:?}");
}

#[test]
fn a_saved_task_that_is_not_known_is_told() {
    let (table, desk) = world();
    greeted(&table);
    stopped(&table);
    let record = Record::default();
    let cursor = r#"{"since":"s1","tasks":[{"kind":"new","room_id":"!n:x"}]}"#;
    listen(&desk, &bot("sync"), Some(cursor), &record);
    assert!(table.seen("GET client/v3/sync")[0].what.contains("since=s1"));
    assert!(matches!(&record.reports.lock().unwrap()[..], [Report::Gap(why)] if why.contains("!n:x")));
}
