//! An application service: who may push, and what is taken.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::platform::{Bot, DoorAnswer, Platform as _, RawRequest, ReceivedRequest, Reply};
use frontdesk_wire::Secret;
use serde_json::{Value, json};

use super::super::Homeservers;
use super::{ME, Table, bot, bot_with, path, run, with_room, world};

pub(super) fn request(token: Option<&str>, query: &str, body: &Value) -> RawRequest {
    let header = |token: &str| ("authorization".to_owned(), format!("Bearer {token}"));
    RawRequest {
        door: "/_matrix/app/v1/transactions/{txn}",
        parameters: [("txn".to_owned(), "1".to_owned())].into(),
        headers: token.map(header).into_iter().collect(),
        query: query.to_owned(),
        body: body.to_string().into_bytes().into(),
        ..RawRequest::default()
    }
}

/// As the edge does it.
fn push(desk: &Homeservers, bots: &[Arc<Bot>], request: &RawRequest) -> Result<ReceivedRequest, Reply> {
    let bot = desk.bot_of(bots, request);
    run(desk.receive(bot.map(|bot| &**bot), request))
}

/// To the bot of the application service.
pub(super) fn push_one(desk: &Homeservers, body: &Value) -> Result<ReceivedRequest, Reply> {
    push(desk, &bots(), &request(Some("pushed"), "", body))
}

fn said(body: &str) -> Value {
    json!({ "event_id": format!("${body}"), "room_id": super::ROOM, "sender": "@ann:example.org",
            "type": "m.room.message", "content": { "msgtype": "m.text", "body": body } })
}

fn bots() -> Vec<Arc<Bot>> {
    let polling = bot_with(
        &[("homeserver_url", "http://127.0.0.1:8008"), ("user_id", "@p:example.org")],
        &[("access_token", "token"), ("hs_token", "polling")],
    );
    vec![Arc::new(polling), Arc::new(bot("appservice"))]
}

fn with_people(table: &Table) {
    with_room(table, &[ME, "@ann:example.org", "@ben:other.net"]);
}

#[test]
fn the_token_finds_the_bot_and_a_wrong_one_is_refused() {
    let (table, desk) = world();
    with_people(&table);
    let body = json!({ "events": [said("one"), said("two")] });
    for right in [request(Some("pushed"), "", &body), request(None, "x=1&access_token=%70ushed", &body)] {
        let received = push(&desk, &bots(), &right).unwrap_or_else(|reply| panic!("{reply:?}"));
        let texts: Vec<&str> = received.intakes.iter().map(|it| it.event.text.as_str()).collect();
        assert_eq!(texts, ["one", "two"]);
        assert!(matches!(received.answer, DoorAnswer::Fixed(reply) if reply.status == 200 && reply.body == "{}"));
    }
    // The user in whose name it acts is in every request.
    assert!(table.seen(&path("GET", "joined_members"))[0].what.ends_with("?user_id=%40bot%3Aexample.org"));
    for (wrong, status) in [
        (request(Some("pushe"), "", &body), 403),
        (request(Some(""), "", &body), 403),
        (request(Some("polling"), "", &body), 403),
        (request(None, "access_token=%7", &body), 401),
        (request(None, "", &body), 401),
    ] {
        let reply = push(&desk, &bots(), &wrong).err().expect("refused");
        assert_eq!(reply.status, status);
        assert!(reply.body.contains("M_FORBIDDEN"), "{}", reply.body);
    }
}

#[test]
fn what_is_no_transaction_is_refused_and_odd_events_are_left_out() {
    let (table, desk) = world();
    with_people(&table);
    let status = |body: &Value| push(&desk, &bots(), &request(Some("pushed"), "", body)).err().map(|it| it.status);
    assert_eq!(status(&json!([])), Some(400));
    assert_eq!(status(&json!({ "events": 1 })), Some(400));
    let odd = json!({ "events": [null, {}, { "room_id": 7 }, { "room_id": super::ROOM }, said("good")] });
    let received = push(&desk, &bots(), &request(Some("pushed"), "", &odd)).unwrap_or_else(|reply| panic!("{reply:?}"));
    assert_eq!(received.intakes.len(), 1);
}

#[test]
fn a_transaction_is_not_answered_while_the_homeserver_cannot_be_asked() {
    let (table, desk) = world();
    table.rule(&path("GET", "joined_members"), 502, json!({}));
    let reply = push(&desk, &bots(), &request(Some("pushed"), "", &json!({ "events": [said("one")] }))).err().unwrap();
    assert_eq!(reply.status, 503);
}

#[test]
fn an_invitation_in_a_transaction_is_accepted() {
    let (table, desk) = world();
    with_people(&table);
    table.rule(&path("POST", "join"), 200, json!({}));
    let invite = json!({ "event_id": "$i", "room_id": super::ROOM, "sender": "@ann:example.org", "state_key": ME,
                         "type": "m.room.member", "content": { "membership": "invite" } });
    let received = push(&desk, &bots(), &request(Some("pushed"), "", &json!({ "events": [invite] })));
    assert_eq!(received.unwrap_or_else(|reply| panic!("{reply:?}")).changes.len(), 1);
    assert_eq!(table.seen(&path("POST", "join")).len(), 1);
}

/// Without a listener at this server the transaction comes again, and in the end it is taken with what is known.
#[test]
fn a_slow_room_delays_a_transaction_only_shortly() {
    let (table, desk) = world();
    let minute = Duration::from_mins(1);
    table.slow(&path("GET", "joined_members"), minute, 200, json!({}));
    let quick = json!({ "joined": { ME: {}, "@ann:example.org": {}, "@ben:other.net": {} } });
    table.rule("GET client/v3/rooms/%21quick%3Aexample.org/joined_members", 200, quick);
    let mut other = said("quick");
    other["room_id"] = "!quick:example.org".into();
    let body = json!({ "events": [said("one"), said("two"), other] });
    for _ in 0..2 {
        assert_eq!(push_one(&desk, &body).err().map(|reply| reply.status), Some(503));
    }
    let (received, took) = run(async {
        let began = tokio::time::Instant::now();
        let request = request(Some("pushed"), "", &body);
        (desk.receive(Some(&bot("appservice")), &request).await, began.elapsed())
    });
    let received = received.unwrap_or_else(|reply| panic!("{reply:?}"));
    let texts: Vec<&str> = received.intakes.iter().map(|it| it.event.text.as_str()).collect();
    assert_eq!(texts, ["one", "two", "quick"], "all of them, with what is known");
    assert!(took <= Duration::from_secs(11), "{took:?}");
}

/// Regression: an answer by reaction was dropped if the homeserver failed at that moment.
#[test]
fn a_reaction_that_cannot_be_resolved_comes_again_and_is_recorded_in_the_end() {
    let (table, desk) = world();
    with_people(&table);
    table.rule(&path("GET", "event/%24original"), 502, json!({}));
    let mut reaction = said("better");
    reaction["type"] = "m.reaction".into();
    let relation = json!({ "rel_type": "m.annotation", "event_id": "$original", "key": "1\u{fe0f}\u{20e3}" });
    reaction["content"] = json!({ "m.relates_to": relation });
    let body = json!({ "events": [reaction, said("next")] });
    for _ in 0..2 {
        assert_eq!(push_one(&desk, &body).err().map(|reply| reply.status), Some(503));
    }
    let received = push_one(&desk, &body).unwrap_or_else(|reply| panic!("{reply:?}"));
    assert!(received.intakes[0].refused.as_ref().is_some_and(|why| why.contains("cannot be interpreted")));
    assert_eq!(received.intakes[1].event.text, "next");
}

#[test]
fn two_bots_cannot_have_one_token() {
    let (_, desk) = world();
    let of = |id: &str, mode: &str, token: &str| {
        let settings = [("homeserver_url", "https://x.org"), ("user_id", "@a:x.org"), ("mode", mode)];
        let settings = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let secrets = [("as_token", "a"), ("hs_token", token), ("access_token", "b")];
        let secrets = secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
        Arc::new(Bot::new(id, None, settings, secrets))
    };
    let known = [of("one", "appservice", "same"), of("poller", "sync", "other")];
    let why = desk.clash(&of("two", "appservice", "same"), &known).unwrap_err();
    assert!(why.contains("\"one\"") && why.contains("hs_token") && !why.contains("same_"), "{why}");
    assert_eq!(desk.clash(&of("one", "appservice", "same"), &known), Ok(()), "itself, changed");
    assert_eq!(desk.clash(&of("two", "appservice", "other"), &known), Ok(()), "the other one polls");
    assert_eq!(desk.clash(&of("two", "sync", "same"), &known), Ok(()));
}
