//! Rules 14 and 15, and the table of wake results.

use frontdesk_core::directory::Fact;
use frontdesk_core::port::alarms::{Alarm, Conclusion};
use frontdesk_wire::InboxSeq;
use serde_json::json;

use crate::harness::Source;
use crate::plane::{Plane, class};

#[tokio::test]
async fn rule_14_only_a_live_session_is_woken() {
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
    assert_eq!(named.message().await["type"], "wake_degraded", "stored for all sessions of the agent");
    drop(named);
    plane.finish().await;
}

#[tokio::test]
async fn a_wake_of_an_agent_that_is_away_is_stored_and_not_woken() {
    let plane = Plane::with_agents(&["alice"]).await;
    let response = plane.wake("alice", json!({ "context": "later" })).await.expect(200);
    assert_eq!((&response["woken"], response["warnings"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    let kept = plane.inbox("alice").await;
    assert_eq!((&kept[0]["type"], &kept[0]["text"]), (&json!("wake_degraded"), &json!("later")));
    // Rule 31: without a context the text is empty.
    plane.wake("alice", json!({})).await.expect(200);
    assert_eq!(plane.inbox("alice").await[1]["text"], "");
    // An absent body means no context, too.
    let bare = plane.harness.request("POST", "/v1/agents/alice/wake").bearer_auth(&plane.token);
    plane.harness.send(bare).await.expect(200);
    plane.finish().await;
}

#[tokio::test]
async fn rule_14_a_called_wake_url_does_not_count_as_woken() {
    let source = Source::open("text/plain", b"ok").await;
    source.answer(8);
    let plane = Plane::open().await;
    plane.put("alice", json!({ "wake_url": source.url })).await.expect(200);
    let response = plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    assert_eq!(response["woken"], false);
    assert!(response["warnings"].to_string().contains("wake URL"), "{response}");
    source.asked().await;
    assert_eq!(plane.inbox("alice").await[0]["type"], "wake_degraded");
    plane.finish().await;
}

#[tokio::test]
async fn after_a_restart_wake_calls_continue_until_the_agent_connects() {
    let source = Source::open("text/plain", b"ok").await;
    source.answer(8);
    let plane = Plane::open().await;
    plane.put("alice", json!({ "wake_url": source.url })).await.expect(200);
    plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    source.asked().await;
    let plane = plane.again().await;
    source.asked().await; // the agent did not connect before the restart
    assert_eq!(plane.inbox("alice").await.len(), 1); // the agent reads its inbox
    let stream = plane.listen("alice", "").await;
    let desk = plane.harness.app.desk.clone();
    desk.agents().live().look_at_pokes();
    let settled = async {
        while !desk.messages().called_agents().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::harness::TIME_LIMIT, settled)
        .await
        .expect("the wake URL is called although the agent has connected");
    drop((stream, desk)); // releases the data folder
    let plane = plane.again().await;
    assert!(plane.harness.app.desk.messages().called_agents().is_empty(), "the end of the wake is stored, too");
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_when_is_immediate_later_or_refused() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stream = plane.listen("alice", "").await;
    for when in [json!("immediate"), json!(0), json!(1_000), json!(-5), serde_json::Value::Null] {
        let response = plane.wake("alice", json!({ "context": "now", "when": when })).await.expect(200);
        assert_eq!(response["woken"], true, "{when}");
        assert!(response.get("scheduled_for").is_none());
        assert_eq!(stream.message().await["text"], "now");
    }
    for when in [json!("tomorrow"), json!(1.5), json!(true), json!([]), json!({}), json!("")] {
        assert_eq!(class(&plane.wake("alice", json!({ "when": when })).await, 400), "ValidationError", "{when}");
    }
    for body in [json!({ "context": 5 }), json!({ "session_id": [] })] {
        assert_eq!(class(&plane.wake("alice", body).await, 400), "ValidationError");
    }
    let soon = plane.harness.app.desk.env().now_ms() + 5_000;
    let response = plane.wake("alice", json!({ "context": "then", "when": soon })).await.expect(200);
    assert_eq!((&response["woken"], &response["scheduled_for"]), (&json!(false), &json!(soon)));
    let message = stream.message().await;
    assert_eq!((&message["text"], &message["type"]), (&json!("then"), &json!("wake")));
    assert!(message["at"].as_u64().unwrap() >= soon, "not before its time");
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_a_scheduled_wake_survives_a_restart_and_fires_once() {
    let plane = Plane::with_agents(&["alice", "gone"]).await;
    let soon = plane.harness.app.desk.env().now_ms() + 10_000;
    plane.wake("alice@tab", json!({ "context": "after the night", "when": soon })).await.expect(200);
    plane.wake("gone", json!({ "context": "never", "when": soon })).await.expect(200);
    plane.harness.call("DELETE", "/v1/agents/gone", &plane.operator, &serde_json::Value::Null).await;
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
    let account = plane.harness.add_gateway("gw-1").await;
    assert_eq!(plane.status("gw-1").await, "asleep");
    let asleep = plane.wake("gw-1", json!({ "context": "one" })).await.expect(200);
    assert_eq!(asleep["woken"], false);
    let mut socket = plane.harness.socket(&account).await;
    let frame = socket.of("inbound").await;
    assert_eq!(frame.text(), "one", "a message from before the connection waits in the ledger");
    socket.ack(&frame).await;
    let woken = plane.wake("gw-1", json!({ "context": "two" })).await.expect(200);
    assert_eq!((&woken["woken"], &woken["session_id"]), (&json!(true), &json!("gw-1")));
    let frame = socket.of("inbound").await;
    assert_eq!(frame.json["event"]["delivery"]["type"], "wake");
    assert_eq!(frame.text(), "two");
    socket.ack(&frame).await;
    assert_eq!(plane.status("gw-1").await, "active");
    let aside = plane.wake("gw-1@elsewhere", json!({ "context": "three" })).await.expect(200);
    assert_eq!(aside["woken"], false, "that session is not connected");
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn wake_calls_end_when_the_agent_connects_by_socket() {
    let (source, canary) = (Source::open("text/plain", b"ok").await, Source::open("text/plain", b"ok").await);
    source.answer(1_000);
    canary.answer(1_000);
    let plane = Plane::with(|config| (config.wake.cooldown_ms, config.wake.retry_max_s) = (50, 0)).await;
    let account = plane.harness.add_gateway("gw-1").await;
    plane.put("gw-1", json!({ "wake_url": source.url })).await.expect(200);
    plane.put("canary", json!({ "wake_url": canary.url })).await.expect(200);
    plane.wake("canary", json!({})).await.expect(200);
    assert_eq!(plane.wake("gw-1", json!({ "context": "up" })).await.expect(200)["woken"], false);
    for _ in 0..2 {
        source.asked().await; // repeated until the agent connects
    }
    let mut socket = plane.harness.socket(&account).await;
    let frame = socket.of("inbound").await;
    socket.ack(&frame).await;
    canary.asked().await;
    while source.was_asked() {
        source.asked().await; // a call in progress
    }
    while canary.was_asked() {
        canary.asked().await;
    }
    canary.asked().await;
    while source.was_asked() {
        source.asked().await; // it was decided before the agent connected
    }
    for _ in 0..5 {
        canary.asked().await;
    }
    assert!(!source.was_asked(), "the agent is connected and has the message");
    drop(socket);
    plane.finish().await;
}

/// Far enough in the future not to fire during the test.
fn in_a_day(plane: &Plane) -> u64 {
    plane.harness.app.desk.env().now_ms() + 86_400_000
}

async fn planned(plane: &Plane) -> Vec<Alarm> {
    plane
        .harness
        .app
        .desk
        .cron()
        .armed_of_tenant(&"home".into(), None)
        .await
        .unwrap()
        .0
        .into_iter()
        .map(|(_, alarm)| alarm)
        .collect()
}

#[tokio::test]
async fn rule_15_an_undeliverable_wake_is_not_scheduled() {
    let plane = Plane::with_agents(&["alice"]).await;
    let when = in_a_day(&plane);
    let large = json!({ "context": "x".repeat((1 << 20) + 1), "when": when });
    assert_eq!(class(&plane.wake("alice", large).await, 413), "TooLargeError");
    plane.harness.add_gateway("gw-1").await;
    let over = plane.harness.app.desk.rules().frame_max_bytes;
    let large = json!({ "context": "\n".repeat(over / 2), "when": when });
    assert_eq!(class(&plane.wake("gw-1", large).await, 413), "TooLargeError", "twice as long as JSON");
    for when in [json!(i64::MAX), json!(u64::MAX)] {
        assert_eq!(class(&plane.wake("alice", json!({ "when": when })).await, 400), "ValidationError");
    }
    assert!(planned(&plane).await.is_empty());
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_a_scheduled_wake_of_a_deleted_agent_does_not_reach_a_new_one() {
    let plane = Plane::with_agents(&["ada@example.org"]).await;
    plane.wake("ada@example.org", json!({ "context": "psst", "when": in_a_day(&plane) })).await.expect(200);
    let alarm = planned(&plane).await.remove(0);
    // A crash in the middle of the deletion: the agent is gone, but its scheduled wake still exists.
    let desk = plane.harness.app.desk.clone();
    let gone = desk.directory().write(|view, draft| {
        let agent = view.agent(&"home".into(), &"ada@example.org".into()).cloned().unwrap();
        draft.remove(&Fact::Agent((*agent).clone()));
        Ok::<_, ()>(())
    });
    assert!(gone.await.is_ok());
    for id in ["ada", "ada@example.org"] {
        plane.register(id).await;
        assert!(matches!(desk.cron().try_alarm(&alarm, || {}).await, Conclusion::Fired { .. }), "the wake is finished");
        assert!(plane.inbox(id).await.is_empty(), "{id} is another agent");
    }
    plane.finish().await;
}

#[tokio::test]
async fn rule_3_an_empty_session_id_counts_as_absent_also_for_a_scheduled_wake() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut tab = plane.listen("alice", "?session=tab").await;
    let later = plane.listen("alice", "?session=later").await;
    let wake = |when| json!({ "context": "up", "session_id": "", "when": when });
    let response = plane.wake("alice@tab", wake(json!("immediate"))).await.expect(200);
    assert_eq!((&response["session_id"], &tab.message().await["session_id"]), (&json!("tab"), &json!("tab")));
    plane.wake("alice@tab", wake(json!(in_a_day(&plane)))).await.expect(200);
    let alarm = planned(&plane).await.remove(0);
    assert!(matches!(plane.harness.app.desk.cron().try_alarm(&alarm, || {}).await, Conclusion::Fired { .. }));
    assert_eq!(plane.inbox("alice").await[1]["session_id"], "tab");
    drop((tab, later));
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_an_interrupted_scheduled_wake_is_finished_and_stored_once() {
    let source = Source::open("application/json", b"{}").await;
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "wake_url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    plane.wake("alice", json!({ "context": "up", "when": in_a_day(&plane) })).await.expect(200);
    let alarm = planned(&plane).await.remove(0);
    let desk = plane.harness.app.desk.clone();
    tokio::select! {
        _ = desk.cron().try_alarm(&alarm, || {}) => panic!("the wake ended before the webhook responded"),
        () = source.asked() => {} // the server stops here
    }
    assert_eq!(plane.inbox("alice").await.len(), 1);
    source.answer(8);
    assert!(matches!(desk.cron().try_alarm(&alarm, || {}).await, Conclusion::Fired { .. }));
    source.asked().await;
    assert!(matches!(desk.cron().try_alarm(&alarm, || {}).await, Conclusion::Fired { .. }));
    assert!(!source.was_asked(), "a completed wake is not repeated");
    let inbox = plane.inbox("alice").await;
    assert_eq!((inbox.len(), &inbox[0]["type"]), (1, &json!("wake_degraded")));
    plane.finish().await;
}

#[tokio::test]
async fn rule_14_a_session_that_does_not_read_is_not_woken_and_the_next_gets_the_message() {
    let plane = Plane::with_agents(&["alice"]).await;
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "alice").unwrap().1.unwrap();
    // An open stream whose client does not read.
    let account = desk.agents().live().streams().open(no, Some("stuck".into()), 1, desk.env().now_ms()).unwrap();
    let response = plane.wake("alice", json!({ "context": "anybody" })).await.expect(200);
    assert_eq!(response["woken"], false);
    assert!(
        response.get("session_id").is_none() && response["warnings"].to_string().contains("did not take"),
        "{response}"
    );
    // A stream that ends meanwhile is noticed at once; an explicitly named session keeps its message.
    let asked = plane.wake("alice@stuck", json!({ "context": "stuck" }));
    let ends = async {
        while desk.agents().live().in_flight().is_empty() {
            tokio::task::yield_now().await;
        }
        desk.agents().live().streams().close(&account);
    };
    let (response, ()) = tokio::join!(asked, ends);
    assert_eq!(response.expect(200)["woken"], false);
    let mut next = plane.listen("alice", "?session=next&after=0").await;
    let message = next.message().await;
    assert_eq!((&message["text"], &message["type"]), (&json!("anybody"), &json!("wake_degraded")));
    plane.deliver("alice", &plane.augment("for all")).await.expect(200);
    assert_eq!(next.message().await["text"], "for all", "the other message is for another session");
    let mut stuck = plane.listen("alice", "?session=stuck&after=0").await;
    let texts = [stuck.message().await["text"].clone(), stuck.message().await["text"].clone()];
    assert_eq!(texts, ["anybody", "stuck"]);
    drop((next, stuck));
    plane.finish().await;
}

/// The chosen session ends at that moment, after the other streams have skipped the message.
#[tokio::test]
async fn rule_14_a_message_not_taken_by_its_session_goes_to_the_others() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut stays = plane.listen("alice", "?session=stays").await;
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "alice").unwrap().1.unwrap();
    let (rooms, latest) = (desk.agents().live(), u64::MAX);
    let account = rooms.streams().open(no, Some("leaves".into()), latest, desk.env().now_ms()).unwrap();
    rooms.streams().note_traffic(no, 0);
    let leaves = async {
        while rooms.streams().traffic_ms(no) == 0 {
            tokio::task::yield_now().await; // until the other stream has read it
        }
        rooms.streams().close(&account);
    };
    let (response, ()) = tokio::join!(plane.wake("alice", json!({ "context": "anybody" })), leaves);
    assert_eq!(response.expect(200)["woken"], false);
    plane.deliver("alice", &plane.augment("later")).await.expect(200);
    let mut received = [stays.message().await, stays.message().await];
    received.sort_by_key(|message| message["seq"].as_u64());
    assert_eq!([&received[0]["text"], &received[1]["text"]], ["anybody", "later"]);
    assert_eq!((&received[0]["type"], received[0].get("session_id")), (&json!("wake_degraded"), None));
    // A message that stays with another session is not for this one.
    let account = rooms.streams().open(no, Some("leaves".into()), latest, desk.env().now_ms()).unwrap();
    rooms.streams().note_traffic(no, 0);
    let leaves = async {
        while rooms.streams().traffic_ms(no) == 0 {
            tokio::task::yield_now().await;
        }
        rooms.streams().close(&account);
    };
    let (response, ()) = tokio::join!(plane.wake("alice@leaves", json!({ "context": "for one" })), leaves);
    assert_eq!(response.expect(200)["woken"], false);
    plane.deliver("alice", &plane.augment("for all")).await.expect(200);
    assert_eq!(stays.message().await["text"], "for all");
    drop(stays);
    plane.finish().await;
}

/// A gateway has only its socket: a message that its chosen stream did not take must be sent there.
#[tokio::test]
async fn rule_14_a_message_not_taken_by_its_stream_goes_to_the_socket() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    plane.register("gw-1").await;
    let mut socket = plane.harness.socket(&account).await;
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "gw-1").unwrap().1.unwrap();
    for (session, address, texts) in
        [(None, "gw-1", vec!["anybody"]), (Some("tab"), "gw-1", vec!["anybody"]), (Some("tab"), "gw-1@tab", vec![])]
    {
        let stream = desk.agents().live().streams().open(no, session.map(str::to_owned), u64::MAX, 1).unwrap();
        let leaves = async {
            while desk.agents().live().in_flight().is_empty() {
                tokio::task::yield_now().await;
            }
            desk.agents().live().streams().close(&stream);
        };
        let (response, ()) = tokio::join!(plane.wake(address, json!({ "context": "anybody" })), leaves);
        assert_eq!(response.expect(200)["woken"], false);
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
async fn rule_15_a_scheduled_wake_interrupted_at_a_stream_goes_to_the_socket() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    plane.register("gw-1").await;
    plane.wake("gw-1", json!({ "context": "up", "when": in_a_day(&plane) })).await.expect(200);
    let alarm = planned(&plane).await.remove(0);
    let desk = plane.harness.app.desk.clone();
    let no = desk.inboxes().inbox_of(&"home".into(), "gw-1").unwrap().1.unwrap();
    let stream = desk.agents().live().streams().open(no, Some("tab".into()), u64::MAX, 1).unwrap();
    let is_written = async {
        while desk.stores().inbox.newest_message(no).await.unwrap() == InboxSeq(0) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = desk.cron().try_alarm(&alarm, || {}) => {}
        () = is_written => {} // the server stops here
    }
    desk.agents().live().streams().close(&stream);
    assert!(matches!(desk.cron().try_alarm(&alarm, || {}).await, Conclusion::Fired { .. }));
    let mut socket = plane.harness.socket(&account).await;
    let frame = socket.of("inbound").await;
    assert_eq!(frame.text(), "up");
    socket.ack(&frame).await;
    assert_eq!(plane.inbox("gw-1").await.len(), 1);
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn a_session_id_must_be_valid_for_a_stream() {
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
async fn rule_14_a_settling_or_idle_socket_is_not_woken() {
    let plane = Plane::with(|config| config.relay.settle_ms = 3_600_000).await;
    let account = plane.harness.add_gateway("gw-1").await;
    let mut socket = plane.harness.socket(&account).await;
    let response = plane.wake("gw-1", json!({ "context": "early" })).await.expect(200);
    assert_eq!(response["woken"], false);
    assert!(response["warnings"].to_string().contains("did not take"), "{response}");
    assert_eq!(plane.inbox("gw-1").await[0]["type"], "wake_degraded");
    socket.frame(&json!({ "type": "going_idle" })).await;
    socket.of("going_idle_ack").await;
    let response = plane.wake("gw-1", json!({ "context": "late" })).await.expect(200);
    assert_eq!(response["woken"], false);
    assert!(response["warnings"].to_string().contains("not connected"), "{response}");
    drop(socket);
    // Reconnected within a moment, the socket needs no settle time: both messages are delivered.
    let mut socket = plane.harness.socket(&account).await;
    for text in ["early", "late"] {
        let frame = socket.of("inbound").await;
        assert_eq!(frame.text(), text);
        socket.ack(&frame).await;
    }
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn rule_3_of_a_stream_and_a_socket_only_the_latest_is_woken() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    let mut socket = plane.harness.socket(&account).await;
    let mut stream = plane.listen("gw-1", "?session=tab").await;
    let wake = async |context: &str| plane.wake("gw-1", json!({ "context": context })).await.expect(200);
    let response = wake("to the stream").await;
    assert_eq!((&response["woken"], &response["session_id"]), (&json!(true), &json!("tab")));
    assert_eq!(stream.message().await["text"], "to the stream");
    drop(socket);
    socket = plane.harness.socket(&account).await;
    let response = wake("to the socket").await;
    assert_eq!((&response["woken"], &response["session_id"]), (&json!(true), &json!("gw-1")));
    let frame = socket.of("inbound").await;
    assert_eq!(frame.text(), "to the socket", "the previous message went to another session");
    socket.ack(&frame).await;
    let many = (0..8).map(|number| wake(if number % 2 == 0 { "even" } else { "odd" }));
    let all = futures_util::future::join_all(many).await;
    assert!(all.iter().all(|response| response["woken"] == true && response["session_id"] == "gw-1"), "{all:?}");
    for frame in socket.events(8).await {
        socket.ack(&frame).await;
    }
    drop((socket, stream));
    plane.finish().await;
}

#[tokio::test]
async fn a_deprovisioned_instance_is_no_connector_and_its_inbox_stays() {
    let plane = Plane::open().await;
    let account = plane.harness.add_gateway("gw-1").await;
    plane.put("alice", json!({ "connectors": [{ "type": "relay", "instance": "gw-1" }] })).await.expect(200);
    let mut socket = plane.harness.socket(&account).await;
    plane.deliver("alice", &plane.augment("hello")).await.expect(200);
    let frame = socket.of("inbound").await;
    socket.ack(&frame).await;
    plane.deliver("gw-1", &plane.augment("hello")).await.expect(200);
    plane.harness.post("/manage/deprovision", &account.bearer(), &json!({})).await.expect(200);
    for id in ["alice", "gw-1"] {
        let response = plane.wake(id, json!({ "context": "up" })).await.expect(200);
        assert_eq!(response["woken"], false, "{id}");
        assert_eq!(plane.deliver(id, &plane.augment("bye")).await.expect(200)["delivery_skipped"], true, "{id}");
        assert_eq!((plane.inbox(id).await.len(), plane.status(id).await.as_str()), (3, "asleep"), "{id}");
    }
    let again = plane.put("bob", json!({ "connectors": [{ "type": "relay", "instance": "gw-1" }] })).await;
    assert_eq!(class(&again, 400), "ValidationError", "a deprovisioned instance is not a valid connector");
    drop(socket);
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_the_number_of_scheduled_wakes_per_agent_is_limited() {
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

/// Regression: what was to be said stayed in the database.
#[tokio::test]
async fn rule_15_a_planned_wake_over_the_quota_is_not_stored() {
    let plane = Plane::with(|config| config.cron.armed_per_tenant = 1).await;
    plane.put("alice", json!({})).await.expect(200);
    let body = json!({ "context": "later", "when": in_a_day(&plane) });
    plane.wake("alice", body.clone()).await.expect(200);
    assert_eq!(class(&plane.wake("alice", body).await, 429), "RateLimitedError");
    let path = plane.harness.folder.path().join("data/frontdesk.db");
    if !path.exists() {
        return plane.finish().await; // a shared store, which has the same rule in core
    }
    let database = rusqlite::Connection::open(path).unwrap();
    let plans: i64 = database.query_row("SELECT count(*) FROM planned_wake", [], |row| row.get(0)).unwrap();
    assert_eq!(plans, 1);
    plane.finish().await;
}

#[tokio::test]
async fn rule_15_slow_connectors_of_a_tenant_do_not_delay_wakes_of_another() {
    let source = Source::open("application/json", b"{}").await;
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "wake_url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    plane.harness.admin("POST", "/tenants", &json!({ "name": "other" })).await.expect(201);
    let other = plane.harness.token("other", "agents").await;
    plane.harness.call("PUT", "/v1/agents/bob", &other, &json!({})).await.expect(200);
    let later = |ms: u64| json!({ "context": "up", "when": plane.harness.app.desk.env().now_ms() + ms });
    let soon = later(10_000);
    let slow = futures_util::future::join_all((0..160).map(|_| plane.wake("alice", soon.clone()))).await;
    assert!(slow.iter().all(|reply| reply.expect(200)["scheduled_for"].is_u64()));
    for _ in 0..128 {
        source.asked().await; // the maximum number of concurrent calls, none of which ends
    }
    plane.harness.post("/v1/agents/bob/wake", &other, &later(100)).await.expect(200);
    let path = "/v1/agents/bob/inbox/stream?after=0";
    let mut response = plane.harness.open_stream(path, &other).await;
    plane.harness.follow(&mut response, &["event: message", "\"up\""]).await;
    source.answer(1_000);
    drop(response);
    plane.finish().await;
}
