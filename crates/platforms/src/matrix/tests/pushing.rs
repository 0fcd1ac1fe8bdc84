//! An application service: who may push, and what is taken.

use std::sync::Arc;

use frontdesk_core::port::platform::{Answer, Bot, Heard, Platform as _, RawRequest, Reply};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::super::Homeservers;
use super::{ME, Table, bot, bot_with, path, with_room, world};

fn request(token: Option<&str>, query: &str, body: &Value) -> RawRequest {
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
fn push(desk: &Homeservers, bots: &[Arc<Bot>], request: &RawRequest) -> Result<Heard, Reply> {
    let bot = desk.bot_of(bots, request);
    desk.receive(bot.map(|bot| &**bot), request).now_or_never().expect("the table answers at once")
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
        let heard = push(&desk, &bots(), &right).unwrap_or_else(|reply| panic!("{reply:?}"));
        let texts: Vec<&str> = heard.intakes.iter().map(|it| it.event.text.as_str()).collect();
        assert_eq!(texts, ["one", "two"]);
        assert!(matches!(heard.answer, Answer::Fixed(reply) if reply.status == 200 && reply.body == "{}"));
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
    let heard = push(&desk, &bots(), &request(Some("pushed"), "", &odd)).unwrap_or_else(|reply| panic!("{reply:?}"));
    assert_eq!(heard.intakes.len(), 1);
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
    let heard = push(&desk, &bots(), &request(Some("pushed"), "", &json!({ "events": [invite] })));
    assert_eq!(heard.unwrap_or_else(|reply| panic!("{reply:?}")).changes.len(), 1);
    assert_eq!(table.seen(&path("POST", "join")).len(), 1);
}
