//! A plain account: what is polled, taken and saved.

use std::sync::Mutex;
use std::time::Duration;

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Bot, Change, Gap, Inlet, LateReceipt, ListenEnd, Part, Platform as _};
use frontdesk_core::port::store::StoreError;
use serde_json::{Value, json};

use super::super::Homeservers;
use super::{BASE, ME, Table, bot, bot_with, path, run, with_room, world};

const ROOM: &str = super::ROOM;

/// In the order in which it was reported.
#[derive(Debug, PartialEq)]
pub(super) enum Report {
    Text(String),
    Refused(String),
    Changed(String),
    Moved(String),
    Gap(String),
    Cursor(String),
}

#[derive(Default)]
pub(super) struct Record {
    pub(super) reports: Mutex<Vec<Report>>,
    pub(super) is_full: bool,
}

impl Record {
    fn say(&self, report: Report) {
        self.reports.lock().unwrap().push(report);
    }

    pub(super) fn gaps(&self) -> Vec<String> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter_map(|it| if let Report::Gap(why) = it { Some(why.clone()) } else { None }).collect()
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter_map(|it| if let Report::Refused(why) = it { Some(why.clone()) } else { None }).collect()
    }

    /// The one that was saved last.
    pub(super) fn cursor(&self) -> Option<String> {
        let reports = self.reports.lock().unwrap();
        reports.iter().rev().find_map(|it| if let Report::Cursor(cursor) = it { Some(cursor.clone()) } else { None })
    }

    pub(super) fn texts(&self) -> Vec<String> {
        let reports = self.reports.lock().unwrap();
        reports.iter().filter_map(|it| if let Report::Text(text) = it { Some(text.clone()) } else { None }).collect()
    }
}

impl Inlet for Record {
    fn take(&self, intakes: Vec<Intake>) -> BoxFuture<'_, Result<Vec<Result<Receipt, DeskError>>, DeskError>> {
        if self.is_full {
            let error = DeskError::Store(StoreError::Unavailable("full".into()));
            return Box::pin(std::future::ready(Err(error)));
        }
        for intake in intakes {
            self.say(match intake.refused {
                Some(reason) => Report::Refused(reason),
                None => Report::Text(intake.event.text),
            });
        }
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn changed(&self, change: Change) -> BoxFuture<'_, Result<(), StoreError>> {
        self.say(match change {
            Change::ChatMoved { to, .. } => Report::Moved(to.to_string()),
            other => Report::Changed(format!("{other:?}")),
        });
        Box::pin(std::future::ready(Ok(())))
    }

    fn receipt<'a>(&'a self, _: &'a LateReceipt) -> BoxFuture<'a, Result<bool, StoreError>> {
        Box::pin(std::future::ready(Ok(true)))
    }

    fn gap(&self, gap: Gap) {
        self.say(Report::Gap(gap.reason));
    }

    fn save_cursor(&self, cursor: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.say(Report::Cursor(cursor));
        Box::pin(std::future::ready(Ok(())))
    }
}

pub(super) fn text(id: &str, body: &str) -> Value {
    json!({ "event_id": id, "sender": "@ann:example.org", "type": "m.room.message", "origin_server_ts": 5,
            "content": { "msgtype": "m.text", "body": body } })
}

pub(super) fn own(id: &str, membership: &str, before: &str) -> Value {
    json!({ "event_id": id, "sender": ME, "type": "m.room.member", "state_key": ME,
            "content": { "membership": membership }, "unsigned": { "prev_content": { "membership": before } } })
}

pub(super) fn joined(next: &str, events: Vec<Value>) -> Value {
    json!({ "next_batch": next, "rooms": { "join": { ROOM: { "timeline": { "events": events } } } } })
}

pub(super) fn greeted(table: &Table) {
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": ME }));
    with_room(table, &[ME, "@ann:example.org", "@ben:other.net"]);
}

pub(super) fn stopped(table: &Table) {
    stopped_later(table, Duration::ZERO);
}

/// The poll that ends the listener comes after tasks had their time.
pub(super) fn stopped_later(table: &Table, time: Duration) {
    let gone = || json!({ "errcode": "M_UNKNOWN_TOKEN", "error": "logged out" });
    table.slow("GET client/v3/sync", time, 401, gone());
    table.rule("GET client/v3/account/whoami", 401, gone());
}

pub(super) fn listen(desk: &Homeservers, bot: &Bot, cursor: Option<&str>, inlet: &Record) -> ListenEnd {
    run(desk.listen(bot, Part::WHOLE, cursor.map(str::to_owned), inlet))
}

#[test]
fn the_first_poll_takes_no_history_and_the_token_is_saved_after_the_events() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 200, joined("s1", vec![text("$old", "old")]));
    table.rule("GET client/v3/sync", 200, joined("s2", vec![text("$1", "one"), text("$2", "two")]));
    stopped(&table);
    let record = Record::default();
    let ended = listen(&desk, &bot("sync"), None, &record);
    let ListenEnd::Misconfigured(why) = ended else { panic!("{ended:?}") };
    assert!(why.contains("M_UNKNOWN_TOKEN") && why.contains("logged out"), "{why}");
    let reports = record.reports.into_inner().unwrap();
    let cursor = |it: &str| Report::Cursor(it.into());
    assert_eq!(reports, [cursor("s1"), Report::Text("one".into()), Report::Text("two".into()), cursor("s2")]);
    let polls = table.seen("GET client/v3/sync");
    assert!(!polls[0].what.contains("since=") && polls[1].what.contains("since=s1"), "{}", polls[1].what);
}

#[test]
fn what_is_not_stored_is_polled_again() {
    let (table, desk) = world();
    greeted(&table);
    table.rule("GET client/v3/sync", 200, joined("s2", vec![text("$1", "one")]));
    let record = Record { is_full: true, ..Record::default() };
    assert!(matches!(listen(&desk, &bot("sync"), Some("s1"), &record), ListenEnd::Lost(why) if why.contains("full")));
    assert!(record.reports.into_inner().unwrap().is_empty(), "no token was saved");
}

#[test]
fn what_an_answer_left_out_is_read_and_otherwise_reported() {
    let (table, desk) = world();
    greeted(&table);
    let timeline = json!({ "limited": true, "prev_batch": "p1", "events": [text("$3", "three")] });
    let limited = json!({ "next_batch": "s2", "rooms": { "join": { ROOM: { "timeline": timeline } } } });
    table.rule("GET client/v3/sync", 200, limited);
    stopped(&table);
    let page = json!({ "chunk": [text("$2", "two"), text("$1", "one")] });
    table.rule(&path("GET", "messages?dir=b&from=p1&limit=100&to=s1"), 200, page);
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts(), ["one", "two", "three"]);

    let (table, desk) = world();
    greeted(&table);
    let timeline = json!({ "limited": true, "prev_batch": "p1", "events": [] });
    let limited = json!({ "next_batch": "s2", "rooms": { "join": { ROOM: { "timeline": timeline } } } });
    table.rule("GET client/v3/sync", 200, limited);
    stopped(&table);
    for n in 0..6 {
        let chunk: Vec<Value> = (0..100).map(|at| text(&format!("${n}.{at}"), "x")).collect();
        let page = json!({ "chunk": chunk, "end": format!("p{}", n + 2) });
        table.rule(&path("GET", &format!("messages?dir=b&from=p{}", n + 1)), 200, page);
    }
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts().len(), 500);
    assert!(record.gaps()[0].contains("only the latest 500 events"), "{:?}", record.gaps());
}

#[test]
fn what_was_said_before_the_invitation_is_not_taken() {
    for (events, taken) in [
        (vec![text("$1", "before"), own("$2", "invite", "leave"), text("$3", "hello"), own("$4", "join", "invite")], 1),
        (vec![text("$1", "before"), own("$2", "join", "leave"), text("$3", "hello")], 1),
        (vec![text("$1", "hello"), own("$2", "join", "join")], 1),
    ] {
        let (table, desk) = world();
        greeted(&table);
        table.rule("GET client/v3/sync", 200, joined("s2", events));
        stopped(&table);
        let record = Record::default();
        listen(&desk, &bot("sync"), Some("s1"), &record);
        assert_eq!(record.texts(), vec!["hello"; taken]);
    }
}

#[test]
fn invitations_are_accepted_by_the_setting() {
    let invitation = |sender: &str| {
        let event = json!({ "type": "m.room.member", "state_key": ME, "sender": sender,
                            "content": { "membership": "invite", "is_direct": true } });
        json!({ "next_batch": "s2", "rooms": { "invite": { ROOM: { "invite_state": { "events": [event] } } } } })
    };
    for (invites, sender, accepted) in [
        ("all", "@any:evil.net", true),
        ("none", "@ann:example.org", false),
        ("example.org, @ben:other.net", "@ann:example.org", true),
        ("example.org, @ben:other.net", "@ben:other.net", true),
        ("example.org, @ben:other.net", "@eve:other.net", false),
    ] {
        let (table, desk) = world();
        greeted(&table);
        table.rule("GET client/v3/sync", 200, invitation(sender));
        stopped(&table);
        table.rule("PUT client/v3/user/", 200, json!({}));
        table.rule(&path("POST", "join"), 200, json!({ "room_id": ROOM }));
        table.rule(&path("POST", "leave"), 200, json!({}));
        let settings = [("homeserver_url", "http://127.0.0.1:8008/"), ("user_id", ME), ("invites", invites)];
        let bot = bot_with(&settings, &[("access_token", "token")]);
        listen(&desk, &bot, Some("s1"), &Record::default());
        let asked = (table.seen(&path("POST", "join")).len(), table.seen(&path("POST", "leave")).len());
        assert_eq!(asked, if accepted { (1, 0) } else { (0, 1) }, "{invites} {sender}");
        let marked = table.seen("PUT client/v3/user/%40bot%3Aexample.org/account_data/m.direct");
        let direct = marked.first().map(|it| it.body.clone());
        assert_eq!(direct, accepted.then(|| json!({ sender: [ROOM] })));
    }
}

#[test]
fn an_encrypted_message_is_recorded_and_the_room_is_told_once() {
    let (table, desk) = world();
    greeted(&table);
    let secret = |id: &str| {
        json!({ "event_id": id, "sender": "@ann:example.org", "type": "m.room.encrypted",
                                    "content": { "ciphertext": "x" } })
    };
    table.rule("GET client/v3/sync", 200, joined("s2", vec![secret("$1"), secret("$2")]));
    stopped(&table);
    table.rule(&path("PUT", "send/"), 200, json!({ "event_id": "$notice" }));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    let reports = record.reports.into_inner().unwrap();
    let refused = reports.iter().filter(|it| matches!(it, Report::Refused(why) if why.contains("encrypted"))).count();
    assert_eq!(refused, 2, "{reports:?}");
    let notices = table.seen(&path("PUT", "send/m.room.message/"));
    assert_eq!(notices.len(), 1);
    assert_eq!(notices[0].body["msgtype"], "m.notice");
}

#[test]
fn a_token_of_somebody_else_is_a_wrong_setting() {
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 200, json!({ "user_id": "@other:example.org" }));
    let ended = listen(&desk, &bot("sync"), None, &Record::default());
    assert!(matches!(&ended, ListenEnd::Misconfigured(why) if why.contains("@other:example.org")), "{ended:?}");
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 502, json!({}));
    assert!(matches!(listen(&desk, &bot("sync"), None, &Record::default()), ListenEnd::Lost(_)));
}

#[test]
fn a_bot_that_cannot_work_is_refused_in_words() {
    let (_, desk) = world();
    let good = [("homeserver_url", "https://example.org"), ("user_id", ME)];
    for (settings, secrets, expected) in [
        (good.to_vec(), vec![], "access_token"),
        ([&good[..], &[("mode", "appservice")]].concat(), vec![("as_token", "x")], "hs_token"),
        ([&good[..], &[("mode", "push")]].concat(), vec![("access_token", "x")], "sync or appservice"),
        (vec![("homeserver_url", "example.org"), ("user_id", ME)], vec![("access_token", "x")], "https://"),
        (vec![good[0], ("user_id", "bot")], vec![("access_token", "x")], "@name:server"),
    ] {
        let why = desk.check_bot(&bot_with(&settings, &secrets)).unwrap_err();
        assert!(why.contains(expected), "{why}");
    }
    assert_eq!(desk.check_bot(&bot("appservice")), Ok(()));
}

#[test]
fn an_invitation_to_a_room_that_cannot_be_reached_stops_nothing() {
    let (table, desk) = world();
    greeted(&table);
    let event = json!({ "type": "m.room.member", "state_key": ME, "sender": "@eve:gone.net",
                        "content": { "membership": "invite" } });
    let mut answer = joined("s2", vec![text("$1", "one")]);
    answer["rooms"]["invite"] = json!({ "!x:gone.net": { "invite_state": { "events": [event] } } });
    table.rule("GET client/v3/sync", 200, answer);
    stopped(&table);
    table.rule("POST client/v3/rooms/%21x%3Agone.net/join", 504, json!({ "errcode": "M_UNKNOWN" }));
    let record = Record::default();
    listen(&desk, &bot("sync"), Some("s1"), &record);
    assert_eq!(record.texts(), ["one"]);
    assert!(record.cursor().unwrap().contains("\"since\":\"s2\""), "{:?}", record.cursor());
}

#[test]
fn a_room_moves_only_if_its_state_and_the_new_room_say_so() {
    let new = "!new:example.org";
    for (predecessor, stated, is_state, moved) in [
        (ROOM, new, true, true),
        ("!other:example.org", new, true, false),
        (ROOM, "!else:example.org", true, false),
        (ROOM, new, false, false), // any member can send a message of that type
    ] {
        let (table, desk) = world();
        greeted(&table);
        let mut tombstone = json!({ "event_id": "$t", "sender": "@ann:example.org", "type": "m.room.tombstone",
                                    "content": { "replacement_room": new } });
        if is_state {
            tombstone["state_key"] = "".into();
        }
        table.rule("GET client/v3/sync", 200, joined("s2", vec![tombstone]));
        stopped(&table);
        table.rule("POST client/v3/join/%21new%3Aexample.org?", 200, json!({}));
        let create = json!({ "predecessor": { "room_id": predecessor } });
        table.rule("GET client/v3/rooms/%21new%3Aexample.org/state/m.room.create/", 200, create);
        let stated = json!({ "replacement_room": stated });
        table.rule("GET client/v3/rooms/%21room%3Aexample.org/state/m.room.tombstone/", 200, stated);
        let record = Record::default();
        listen(&desk, &bot("sync"), Some("s1"), &record);
        let reports = record.reports.into_inner().unwrap();
        assert_eq!(reports.contains(&Report::Moved(new.into())), moved, "{reports:?}");
    }
}

/// Regression: what the inviter's server says about the room was taken for the invitation.
#[test]
fn the_inviter_is_the_one_of_the_invitation_itself() {
    let (table, desk) = world();
    greeted(&table);
    let forged = json!({ "type": "m.room.member", "state_key": ME, "sender": "@ann:example.org",
                         "content": { "membership": "invite" } });
    let real = json!({ "type": "m.room.member", "state_key": ME, "sender": "@eve:evil.net",
                       "content": { "membership": "invite" } });
    let mut answer = joined("s2", vec![]);
    answer["rooms"]["invite"] = json!({ "!x:evil.net": { "invite_state": { "events": [forged, real] } } });
    table.rule("GET client/v3/sync", 200, answer);
    stopped(&table);
    table.rule("POST client/v3/rooms/%21x%3Aevil.net/leave", 200, json!({}));
    let settings = [("homeserver_url", BASE), ("user_id", ME), ("mode", "sync"), ("invites", "example.org")];
    let bot = bot_with(&settings, &[("access_token", "token")]);
    listen(&desk, &bot, Some("s1"), &Record::default());
    assert_eq!(table.seen("POST client/v3/rooms/%21x%3Aevil.net/leave").len(), 1);
    assert!(table.seen("POST client/v3/rooms/%21x%3Aevil.net/join").is_empty());
}

#[test]
fn a_check_of_the_bot_says_what_the_homeserver_says() {
    let (table, desk) = world();
    greeted(&table);
    let check = || run(desk.inspect(&bot("sync")));
    table.rule("GET client/v3/joined_rooms", 200, json!({ "joined_rooms": [ROOM] }));
    let found: Vec<_> = check().into_iter().map(|it| (it.check, it.ok)).collect();
    assert_eq!(found, [("token", true), ("rooms", true)]);
    let (table, desk) = world();
    table.rule("GET client/v3/account/whoami", 401, json!({ "errcode": "M_UNKNOWN_TOKEN", "error": "logged out" }));
    let found = run(desk.inspect(&bot("sync")));
    assert!(!found[0].ok && found[0].text.contains("logged out"), "{found:?}");
}
