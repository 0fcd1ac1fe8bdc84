//! Rules 14, 15 and the table of waking.

use frontdesk_core::directory::Fact;
use frontdesk_core::port::alarms::{Conclusion, Shot};
use serde_json::json;

use crate::harness::Source;
use crate::plane::{Plane, class};

#[tokio::test]
async fn rule_14_a_live_session_is_woken_and_nobody_else() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut named = plane.listen("alice", "?session=tab").await;
    let woken = plane.wake("alice@tab", json!({ "context": "look" })).await.expect(200);
    assert_eq!((&woken["woken"], &woken["session_id"]), (&json!(true), &json!("tab")));
    assert!(woken.get("warnings").is_none(), "{woken}");
    let message = named.message().await;
    assert_eq!(
        (&message["type"], &message["text"], &message["session_id"]),
        (&json!("wake"), &json!("look"), &json!("tab"))
    );
    let absent = plane.wake("alice@other", json!({ "context": "psst" })).await.expect(200);
    assert_eq!(absent["woken"], false);
    assert!(
        absent["warnings"].to_string().contains("is not connected") && absent.get("session_id").is_none(),
        "{absent}"
    );
    assert_eq!(named.message().await["type"], "wake_degraded", "kept for the agent as a whole");
    drop(named);
    plane.finish().await;
}

#[tokio::test]
async fn a_wake_of_an_agent_that_is_away_is_stored_and_not_woken() {
    let plane = Plane::with_agents(&["alice"]).await;
    let told = plane.wake("alice", json!({ "context": "later" })).await.expect(200);
    assert_eq!((&told["woken"], told["warnings"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    let kept = plane.inbox("alice").await;
    assert_eq!((&kept[0]["type"], &kept[0]["text"]), (&json!("wake_degraded"), &json!("later")));
    // Rule 31: no context is an empty text.
    plane.wake("alice", json!({})).await.expect(200);
    assert_eq!(plane.inbox("alice").await[1]["text"], "");
    // No body at all is no context either.
    let bare = plane.house.request("POST", "/v1/agents/alice/wake").bearer_auth(&plane.token);
    plane.house.send(bare).await.expect(200);
    plane.finish().await;
}

#[tokio::test]
async fn rule_14_a_poked_wake_url_is_not_woken() {
    let source = Source::open("text/plain", b"ok").await;
    source.answer(8);
    let plane = Plane::open().await;
    plane.put("alice", json!({ "wake_url": source.url })).await.expect(200);
    let told = plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    assert_eq!(told["woken"], false);
    assert!(told["warnings"].to_string().contains("wake URL"), "{told}");
    source.asked().await;
    assert_eq!(plane.inbox("alice").await[0]["type"], "wake_degraded");
    plane.finish().await;
}

#[tokio::test]
async fn a_restart_goes_on_calling_until_the_agent_comes() {
    let source = Source::open("text/plain", b"ok").await;
    source.answer(8);
    let plane = Plane::open().await;
    plane.put("alice", json!({ "wake_url": source.url })).await.expect(200);
    plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    source.asked().await;
    let plane = plane.again().await;
    source.asked().await; // nobody came before the restart
    assert_eq!(plane.inbox("alice").await.len(), 1); // it comes and looks
    let stream = plane.listen("alice", "").await;
    let desk = plane.house.app.desk.clone();
    desk.agents().live().poke_bell.notify_one();
    let settled = async {
        while !desk.messages().called_agents().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::PATIENCE, settled).await.expect("it is called although it came");
    drop((stream, desk)); // the folder is free when nobody holds the desk
    let plane = plane.again().await;
    assert!(plane.house.app.desk.messages().called_agents().is_empty(), "that it came is written down too");
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_when_is_now_later_or_refused() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stream = plane.listen("alice", "").await;
    for when in [json!("immediate"), json!(0), json!(1_000), json!(-5), serde_json::Value::Null] {
        let told = plane.wake("alice", json!({ "context": "now", "when": when })).await.expect(200);
        assert_eq!(told["woken"], true, "{when}");
        assert!(told.get("scheduled_for").is_none());
        assert_eq!(stream.message().await["text"], "now");
    }
    for when in [json!("tomorrow"), json!(1.5), json!(true), json!([]), json!({}), json!("")] {
        assert_eq!(class(&plane.wake("alice", json!({ "when": when })).await, 400), "ValidationError", "{when}");
    }
    for body in [json!({ "context": 5 }), json!({ "session_id": [] })] {
        assert_eq!(class(&plane.wake("alice", body).await, 400), "ValidationError");
    }
    let soon = plane.house.app.desk.env().now_ms() + 1_500;
    let told = plane.wake("alice", json!({ "context": "then", "when": soon })).await.expect(200);
    assert_eq!((&told["woken"], &told["scheduled_for"]), (&json!(false), &json!(soon)));
    let message = stream.message().await;
    assert_eq!((&message["text"], &message["type"]), (&json!("then"), &json!("wake")));
    assert!(message["at"].as_u64().unwrap() >= soon, "not before its time");
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_a_scheduled_wake_survives_a_restart_and_fires_once() {
    let plane = Plane::with_agents(&["alice", "gone"]).await;
    let soon = plane.house.app.desk.env().now_ms() + 2_500;
    plane.wake("alice@tab", json!({ "context": "after the night", "when": soon })).await.expect(200);
    plane.wake("gone", json!({ "context": "never", "when": soon })).await.expect(200);
    plane.house.call("DELETE", "/v1/agents/gone", &plane.operator, &serde_json::Value::Null).await;
    assert!(plane.inbox("alice").await.is_empty());
    let plane = plane.again().await;
    let mut stream = plane.listen("alice", "?session=tab&after=0").await;
    let message = stream.message().await;
    assert_eq!((&message["text"], &message["session_id"]), (&json!("after the night"), &json!("tab")));
    drop(stream);
    let plane = plane.again().await;
    assert_eq!(plane.inbox("alice").await.len(), 1, "once");
    plane.finish().await;
}

#[tokio::test]
async fn a_relay_socket_is_a_live_session_too() {
    let plane = Plane::open().await;
    let seat = plane.house.seat("gw-1").await;
    assert_eq!(plane.status("gw-1").await, "asleep");
    let asleep = plane.wake("gw-1", json!({ "context": "one" })).await.expect(200);
    assert_eq!(asleep["woken"], false);
    let mut socket = plane.house.socket(&seat).await;
    let frame = socket.of("inbound").await;
    assert_eq!(frame.text(), "one", "what was said while it slept waits in its ledger");
    socket.ack(&frame).await;
    let woken = plane.wake("gw-1", json!({ "context": "two" })).await.expect(200);
    assert_eq!((&woken["woken"], &woken["session_id"]), (&json!(true), &json!("gw-1")));
    let frame = socket.of("inbound").await;
    assert_eq!(frame.json["event"]["delivery"]["type"], "wake");
    assert_eq!(frame.text(), "two");
    socket.ack(&frame).await;
    assert_eq!(plane.status("gw-1").await, "active");
    let aside = plane.wake("gw-1@elsewhere", json!({ "context": "three" })).await.expect(200);
    assert_eq!(aside["woken"], false, "that session is not attached");
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn an_agent_that_came_by_its_socket_is_not_poked_any_more() {
    let (source, canary) = (Source::open("text/plain", b"ok").await, Source::open("text/plain", b"ok").await);
    source.answer(1_000);
    canary.answer(1_000);
    let plane = Plane::with(|config| (config.wake.cooldown_ms, config.wake.retry_max_s) = (50, 0)).await;
    let seat = plane.house.seat("gw-1").await;
    plane.put("gw-1", json!({ "wake_url": source.url })).await.expect(200);
    plane.put("canary", json!({ "wake_url": canary.url })).await.expect(200);
    plane.wake("canary", json!({})).await.expect(200);
    assert_eq!(plane.wake("gw-1", json!({ "context": "up" })).await.expect(200)["woken"], false);
    for _ in 0..2 {
        source.asked().await; // again and again, while nobody comes
    }
    let mut socket = plane.house.socket(&seat).await;
    let frame = socket.of("inbound").await;
    socket.ack(&frame).await;
    canary.asked().await;
    while source.was_asked() {
        source.asked().await; // what was under way
    }
    while canary.was_asked() {
        canary.asked().await;
    }
    for _ in 0..5 {
        canary.asked().await;
    }
    assert!(!source.was_asked(), "it is there, and has it");
    drop(socket);
    plane.finish().await;
}

/// Far enough away that the clock does not come before the test.
fn in_a_day(plane: &Plane) -> u64 {
    plane.house.app.desk.env().now_ms() + 86_400_000
}

async fn planned(plane: &Plane) -> Vec<Shot> {
    plane.house.app.desk.cron().armed_of_tenant("home").await.unwrap().into_iter().map(|(_, shot)| shot).collect()
}

#[tokio::test]
async fn rule_15_what_could_never_be_said_is_not_planned() {
    let plane = Plane::with_agents(&["alice"]).await;
    let when = in_a_day(&plane);
    let large = json!({ "context": "x".repeat((1 << 20) + 1), "when": when });
    assert_eq!(class(&plane.wake("alice", large).await, 413), "TooLargeError");
    plane.house.seat("gw-1").await;
    let over = plane.house.app.desk.rules().frame_max_bytes;
    let large = json!({ "context": "\n".repeat(over / 2), "when": when });
    assert_eq!(class(&plane.wake("gw-1", large).await, 413), "TooLargeError", "as JSON it is twice as long");
    for when in [json!(i64::MAX), json!(u64::MAX)] {
        assert_eq!(class(&plane.wake("alice", json!({ "when": when })).await, 400), "ValidationError");
    }
    assert!(planned(&plane).await.is_empty());
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_a_planned_wake_of_a_deleted_agent_reaches_nobody_of_its_name() {
    let plane = Plane::with_agents(&["ada@example.org"]).await;
    plane.wake("ada@example.org", json!({ "context": "psst", "when": in_a_day(&plane) })).await.expect(200);
    let shot = planned(&plane).await.remove(0);
    // A crash in the middle of the deletion: the agent is gone, what was planned for it is still there.
    let desk = plane.house.app.desk.clone();
    let gone = desk.directory().write(|view, draft| {
        let agent = view.agent("home", "ada@example.org").cloned().unwrap();
        draft.remove(&Fact::Agent((*agent).clone()));
        Ok::<_, ()>(())
    });
    assert!(gone.await.is_ok());
    for id in ["ada", "ada@example.org"] {
        plane.register(id).await;
        assert!(matches!(desk.cron().try_shot(&shot, || {}).await, Conclusion::Fired { .. }), "it is over");
        assert!(plane.inbox(id).await.is_empty(), "{id} is another agent");
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_3_an_empty_session_id_is_none_also_for_a_planned_wake() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut tab = plane.listen("alice", "?session=tab").await;
    let later = plane.listen("alice", "?session=later").await;
    let wake = |when| json!({ "context": "up", "session_id": "", "when": when });
    let told = plane.wake("alice@tab", wake(json!("immediate"))).await.expect(200);
    assert_eq!((&told["session_id"], &tab.message().await["session_id"]), (&json!("tab"), &json!("tab")));
    plane.wake("alice@tab", wake(json!(in_a_day(&plane)))).await.expect(200);
    let shot = planned(&plane).await.remove(0);
    assert!(matches!(plane.house.app.desk.cron().try_shot(&shot, || {}).await, Conclusion::Fired { .. }));
    assert_eq!(plane.inbox("alice").await[1]["session_id"], "tab");
    drop((tab, later));
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_a_planned_wake_that_was_cut_short_is_finished_and_written_once() {
    let source = Source::open("application/json", b"{}").await;
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "wake_url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    plane.wake("alice", json!({ "context": "up", "when": in_a_day(&plane) })).await.expect(200);
    let shot = planned(&plane).await.remove(0);
    let desk = plane.house.app.desk.clone();
    tokio::select! {
        _ = desk.cron().try_shot(&shot, || {}) => panic!("the webhook has not answered"),
        () = source.asked() => {} // and here the desk dies
    }
    assert_eq!(plane.inbox("alice").await.len(), 1);
    source.answer(8);
    assert!(matches!(desk.cron().try_shot(&shot, || {}).await, Conclusion::Fired { .. }));
    source.asked().await;
    assert!(matches!(desk.cron().try_shot(&shot, || {}).await, Conclusion::Fired { .. }));
    assert!(!source.was_asked(), "what is done is done");
    let inbox = plane.inbox("alice").await;
    assert_eq!((inbox.len(), &inbox[0]["type"]), (1, &json!("wake_degraded")));
    plane.finish().await;
}

#[tokio::test]
async fn rule_14_a_session_that_does_not_take_it_is_not_woken_and_the_next_one_hears_it() {
    let plane = Plane::with_agents(&["alice"]).await;
    let desk = plane.house.app.desk.clone();
    let no = desk.inboxes().inbox_of("home", "alice").unwrap().1.unwrap();
    // A stream that is open and whose client does not read.
    let seat = desk.agents().live().streams.open(no, Some("stuck".into()), 1, desk.env().now_ms()).unwrap();
    let told = plane.wake("alice", json!({ "context": "anybody" })).await.expect(200);
    assert_eq!(told["woken"], false);
    assert!(told.get("session_id").is_none() && told["warnings"].to_string().contains("did not take"), "{told}");
    // One that ends in between is noticed at once; one that was asked for keeps its word.
    let asked = plane.wake("alice@stuck", json!({ "context": "stuck" }));
    let ends = async {
        while desk.agents().live().in_flight.is_empty() {
            tokio::task::yield_now().await;
        }
        desk.agents().live().streams.close(&seat);
    };
    let (told, ()) = tokio::join!(asked, ends);
    assert_eq!(told.expect(200)["woken"], false);
    let mut next = plane.listen("alice", "?session=next&after=0").await;
    let message = next.message().await;
    assert_eq!((&message["text"], &message["type"]), (&json!("anybody"), &json!("wake_degraded")));
    plane.deliver("alice", &plane.augment("for all")).await.expect(200);
    assert_eq!(next.message().await["text"], "for all", "the other word is for another session");
    let mut stuck = plane.listen("alice", "?session=stuck&after=0").await;
    let texts = [stuck.message().await["text"].clone(), stuck.message().await["text"].clone()];
    assert_eq!(texts, ["anybody", "stuck"]);
    drop((next, stuck));
    plane.finish().await;
}

/// The session that was chosen leaves at that moment. Those who stay have seen by then that the word is another's.
#[tokio::test]
async fn rule_14_a_word_that_its_session_did_not_take_is_heard_by_those_who_are_there() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stays = plane.listen("alice", "?session=stays").await;
    let desk = plane.house.app.desk.clone();
    let no = desk.inboxes().inbox_of("home", "alice").unwrap().1.unwrap();
    let (rooms, latest) = (desk.agents().live(), u64::MAX);
    let seat = rooms.streams.open(no, Some("leaves".into()), latest, desk.env().now_ms()).unwrap();
    rooms.streams.note_traffic(no, 0);
    let leaves = async {
        while rooms.streams.traffic_ms(no) == 0 {
            tokio::task::yield_now().await; // the other stream has not read it yet
        }
        rooms.streams.close(&seat);
    };
    let (told, ()) = tokio::join!(plane.wake("alice", json!({ "context": "anybody" })), leaves);
    assert_eq!(told.expect(200)["woken"], false);
    plane.deliver("alice", &plane.augment("later")).await.expect(200);
    let mut heard = [stays.message().await, stays.message().await];
    heard.sort_by_key(|message| message["seq"].as_u64());
    assert_eq!([&heard[0]["text"], &heard[1]["text"]], ["anybody", "later"]);
    assert_eq!((&heard[0]["type"], heard[0].get("session_id")), (&json!("wake_degraded"), None));
    // What stays another's is still not for this one.
    let seat = rooms.streams.open(no, Some("leaves".into()), latest, desk.env().now_ms()).unwrap();
    rooms.streams.note_traffic(no, 0);
    let leaves = async {
        while rooms.streams.traffic_ms(no) == 0 {
            tokio::task::yield_now().await;
        }
        rooms.streams.close(&seat);
    };
    let (told, ()) = tokio::join!(plane.wake("alice@leaves", json!({ "context": "for one" })), leaves);
    assert_eq!(told.expect(200)["woken"], false);
    plane.deliver("alice", &plane.augment("for all")).await.expect(200);
    assert_eq!(stays.message().await["text"], "for all");
    drop(stays);
    plane.finish().await;
}

/// A gateway hears nothing but its socket: what a stream was chosen for and did not take must come there.
#[tokio::test]
async fn rule_14_a_word_that_its_stream_did_not_take_comes_by_the_socket() {
    let plane = Plane::open().await;
    let seat = plane.house.seat("gw-1").await;
    plane.register("gw-1").await;
    let mut socket = plane.house.socket(&seat).await;
    let desk = plane.house.app.desk.clone();
    let no = desk.inboxes().inbox_of("home", "gw-1").unwrap().1.unwrap();
    for (session, address, texts) in
        [(None, "gw-1", vec!["anybody"]), (Some("tab"), "gw-1", vec!["anybody"]), (Some("tab"), "gw-1@tab", vec![])]
    {
        let stream = desk.agents().live().streams.open(no, session.map(str::to_owned), u64::MAX, 1).unwrap();
        let leaves = async {
            while desk.agents().live().in_flight.is_empty() {
                tokio::task::yield_now().await;
            }
            desk.agents().live().streams.close(&stream);
        };
        let (told, ()) = tokio::join!(plane.wake(address, json!({ "context": "anybody" })), leaves);
        assert_eq!(told.expect(200)["woken"], false);
        plane.deliver("gw-1", &plane.augment("next")).await.expect(200);
        for text in texts.into_iter().chain(["next"]) {
            let frame = socket.of("inbound").await;
            assert_eq!(frame.text(), text, "{address}, a stream called {session:?}");
            socket.ack(&frame).await;
        }
    }
    drop(socket);
    plane.finish().await;
}

/// The same with a crash in between.
#[tokio::test]
async fn rule_15_a_planned_wake_that_was_cut_short_at_a_stream_comes_by_the_socket() {
    let plane = Plane::open().await;
    let seat = plane.house.seat("gw-1").await;
    plane.register("gw-1").await;
    plane.wake("gw-1", json!({ "context": "up", "when": in_a_day(&plane) })).await.expect(200);
    let shot = planned(&plane).await.remove(0);
    let desk = plane.house.app.desk.clone();
    let no = desk.inboxes().inbox_of("home", "gw-1").unwrap().1.unwrap();
    let stream = desk.agents().live().streams.open(no, Some("tab".into()), u64::MAX, 1).unwrap();
    let is_written = async {
        while desk.stores().inbox.newest_message(no).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = desk.cron().try_shot(&shot, || {}) => {}
        () = is_written => {} // and here the desk dies
    }
    desk.agents().live().streams.close(&stream);
    assert!(matches!(desk.cron().try_shot(&shot, || {}).await, Conclusion::Fired { .. }));
    let mut socket = plane.house.socket(&seat).await;
    let frame = socket.of("inbound").await;
    assert_eq!(frame.text(), "up");
    socket.ack(&frame).await;
    assert_eq!(plane.inbox("gw-1").await.len(), 1);
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn a_session_has_a_name_that_a_stream_could_have() {
    let plane = Plane::with_agents(&["alice"]).await;
    for name in ["x".repeat(257), "a\u{7}b".into()] {
        for when in [json!("immediate"), json!(in_a_day(&plane))] {
            let asked = json!({ "context": "up", "session_id": name, "when": when });
            assert_eq!(class(&plane.wake("alice", asked).await, 400), "ValidationError");
        }
        let said = json!({ "agent": format!("alice@{name}"), "message": "up", "origin": {} });
        assert_eq!(class(&plane.notify(said).await, 400), "ValidationError");
    }
    assert!(plane.inbox("alice").await.is_empty() && planned(&plane).await.is_empty());
    plane.finish().await;
}

#[tokio::test]
async fn rule_14_a_socket_that_settles_in_or_goes_idle_is_not_woken() {
    let plane = Plane::with(|config| config.relay.settle_ms = 3_600_000).await;
    let seat = plane.house.seat("gw-1").await;
    let mut socket = plane.house.socket(&seat).await;
    let told = plane.wake("gw-1", json!({ "context": "early" })).await.expect(200);
    assert_eq!(told["woken"], false);
    assert!(told["warnings"].to_string().contains("did not take"), "{told}");
    assert_eq!(plane.inbox("gw-1").await[0]["type"], "wake_degraded");
    socket.frame(&json!({ "type": "going_idle" })).await;
    socket.of("going_idle_ack").await;
    let told = plane.wake("gw-1", json!({ "context": "late" })).await.expect(200);
    assert_eq!(told["woken"], false);
    assert!(told["warnings"].to_string().contains("not connected"), "{told}");
    drop(socket);
    // It was here a moment ago, so the next socket is warm: both words are handed over.
    let mut socket = plane.house.socket(&seat).await;
    for text in ["early", "late"] {
        let frame = socket.of("inbound").await;
        assert_eq!(frame.text(), text);
        socket.ack(&frame).await;
    }
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn rule_3_of_a_stream_and_a_socket_the_latest_is_woken_and_only_it() {
    let plane = Plane::open().await;
    let seat = plane.house.seat("gw-1").await;
    let mut socket = plane.house.socket(&seat).await;
    let mut stream = plane.listen("gw-1", "?session=tab").await;
    let wake = async |context: &str| plane.wake("gw-1", json!({ "context": context })).await.expect(200);
    let told = wake("to the stream").await;
    assert_eq!((&told["woken"], &told["session_id"]), (&json!(true), &json!("tab")));
    assert_eq!(stream.message().await["text"], "to the stream");
    drop(socket);
    socket = plane.house.socket(&seat).await;
    let told = wake("to the socket").await;
    assert_eq!((&told["woken"], &told["session_id"]), (&json!(true), &json!("gw-1")));
    let frame = socket.of("inbound").await;
    assert_eq!(frame.text(), "to the socket", "the word before went to another session");
    socket.ack(&frame).await;
    let many = (0..8).map(|number| wake(if number % 2 == 0 { "even" } else { "odd" }));
    let all = futures_util::future::join_all(many).await;
    assert!(all.iter().all(|told| told["woken"] == true && told["session_id"] == "gw-1"), "{all:?}");
    for frame in socket.events(8).await {
        socket.ack(&frame).await;
    }
    drop((socket, stream));
    plane.finish().await;
}

#[tokio::test]
async fn an_instance_that_left_is_no_way_any_more_and_its_inbox_stays() {
    let plane = Plane::open().await;
    let seat = plane.house.seat("gw-1").await;
    plane.put("alice", json!({ "connectors": [{ "type": "relay", "instance": "gw-1" }] })).await.expect(200);
    let mut socket = plane.house.socket(&seat).await;
    plane.deliver("alice", &plane.augment("hello")).await.expect(200);
    let frame = socket.of("inbound").await;
    socket.ack(&frame).await;
    plane.deliver("gw-1", &plane.augment("hello")).await.expect(200);
    plane.house.post("/manage/deprovision", &seat.bearer(), &json!({})).await.expect(200);
    for id in ["alice", "gw-1"] {
        let told = plane.wake(id, json!({ "context": "up" })).await.expect(200);
        assert_eq!(told["woken"], false, "{id}");
        assert_eq!(plane.deliver(id, &plane.augment("bye")).await.expect(200)["delivery_skipped"], true, "{id}");
        assert_eq!((plane.inbox(id).await.len(), plane.status(id).await.as_str()), (3, "asleep"), "{id}");
    }
    let again = plane.put("bob", json!({ "connectors": [{ "type": "relay", "instance": "gw-1" }] })).await;
    assert_eq!(class(&again, 400), "ValidationError", "who left is no way for others either");
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_so_many_wakes_are_planned_for_an_agent_and_no_more() {
    let plane = Plane::with_agents(&["alice", "carol"]).await;
    let body = json!({ "context": "later", "when": in_a_day(&plane) });
    for _ in 0..10 {
        let hundred = futures_util::future::join_all((0..100).map(|_| plane.wake("alice", body.clone()))).await;
        assert!(hundred.iter().all(|reply| reply.status == 200));
    }
    assert_eq!(class(&plane.wake("alice", body.clone()).await, 429), "RateLimitedError");
    plane.wake("carol", body).await.expect(200);
    plane.wake("alice", json!({ "context": "now" })).await.expect(200);
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_slow_ways_of_one_tenant_hold_up_no_wakes_of_another() {
    let source = Source::open("application/json", b"{}").await;
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "wake_url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    plane.house.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    let other = plane.house.token("other", "agents").await;
    plane.house.call("PUT", "/v1/agents/bob", &other, &json!({})).await.expect(200);
    let later = |ms: u64| json!({ "context": "up", "when": plane.house.app.desk.env().now_ms() + ms });
    let soon = later(2_000);
    let slow = futures_util::future::join_all((0..160).map(|_| plane.wake("alice", soon.clone()))).await;
    assert!(slow.iter().all(|reply| reply.expect(200)["scheduled_for"].is_u64()));
    for _ in 0..128 {
        source.asked().await; // as many as there may be at once, and none of them ends
    }
    plane.house.post("/v1/agents/bob/wake", &other, &later(100)).await.expect(200);
    let path = "/v1/agents/bob/inbox/stream?after=0";
    let mut response = plane.house.request("GET", path).bearer_auth(&other).send().await.unwrap();
    plane.house.follow(&mut response, &["event: message", "\"up\""]).await;
    source.answer(1_000);
    drop(response);
    plane.finish().await;
}
