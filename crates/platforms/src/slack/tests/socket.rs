//! Socket Mode with the other end in the hands of the test.

use std::sync::atomic::Ordering;
use std::time::Duration;

use frontdesk_core::port::outcall::SocketMessage;
use frontdesk_core::port::platform::{ListenEnd, Part, Platform as _};
use serde_json::{Value, json};

use super::{Stage, Store, envelope, said, script, stage};

fn hello() -> Value {
    json!({ "type": "hello", "num_connections": 1, "connection_info": { "app_id": "A1" } })
}

fn events(id: &str, event: Value) -> Value {
    json!({ "envelope_id": id, "type": "events_api", "accepts_response_payload": false, "payload": envelope(event) })
}

fn open() -> Stage {
    let stage = stage();
    stage
        .vendor
        .answers("apps.connections.open", json!({ "ok": true, "url": "wss://wss-primary.slack.com/link/?ticket=1" }));
    stage
}

async fn listen(stage: &Stage, store: &Store) -> ListenEnd {
    stage.slack.listen(&stage.bot, Part::WHOLE, None, store).await
}

#[tokio::test(start_paused = true)]
async fn an_envelope_is_acknowledged_after_it_was_stored() {
    let (stage, (store, mut taken), (first, mut slack)) = (open(), Store::new(), script());
    stage.vendor.script(first);
    let talk = async {
        slack.say.send(hello()).unwrap();
        slack.say.send(events("e1", said("C1", "channel", "hello"))).unwrap();
        let intake = taken.recv().await.unwrap();
        assert_eq!((intake.event.text.as_str(), intake.event.source.user_name.as_deref()), ("hello", Some("Ann")));
        assert_eq!(slack.next().await, json!({ "envelope_id": "e1" }));
        slack.say.send(json!({ "envelope_id": "e2", "type": "news", "payload": {} })).unwrap();
        assert_eq!(slack.next().await, json!({ "envelope_id": "e2" }), "what is not known is not sent again and again");
        drop(slack.say);
    };
    let (ended, ()) = tokio::join!(listen(&stage, &store), talk);
    assert_eq!(ended, ListenEnd::Lost("the connection was closed".into()));
    assert_eq!(stage.vendor.calls("apps.connections.open")[0].bearer.as_deref(), Some("xapp-1-A1-x"));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_stored_is_not_acknowledged() {
    let (stage, (store, _taken), (first, mut slack)) = (open(), Store::new(), script());
    stage.vendor.script(first);
    store.is_down.store(true, Ordering::SeqCst);
    slack.say.send(hello()).unwrap();
    slack.say.send(events("e1", said("C1", "channel", "hello"))).unwrap();
    let ListenEnd::Lost(why) = listen(&stage, &store).await else { panic!() };
    assert!(why.contains("down"), "{why}");
    assert!(slack.received.recv().await.is_none(), "nothing was acknowledged");
    let (again, mut slack) = script();
    stage.vendor.script(again);
    slack.say.send(hello()).unwrap();
    let command = json!({ "team_id": "T1", "channel_id": "C1", "user_id": "UANN", "command": "/x", "trigger_id": "1" });
    slack
        .say
        .send(json!({ "envelope_id": "c1", "type": "slash_commands", "accepts_response_payload": true, "payload": command }))
        .unwrap();
    assert!(matches!(listen(&stage, &store).await, ListenEnd::Lost(_)));
    let ack = slack.next().await;
    assert!(
        ack["payload"]["text"].as_str().unwrap().contains("could not be stored"),
        "a command is not repeated: {ack}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_next_socket_is_open_before_the_old_one_is_left() {
    let (stage, (store, mut taken)) = (open(), Store::new());
    let ((first, old), (second, mut new)) = (script(), script());
    stage.vendor.script(first);
    stage.vendor.script(second);
    let talk = async {
        let mut old = old;
        old.say.send(hello()).unwrap();
        old.say.send(json!({ "type": "disconnect", "reason": "warning", "debug_info": {} })).unwrap();
        new.say.send(hello()).unwrap();
        new.say.send(events("n1", said("C1", "channel", "new"))).unwrap();
        assert_eq!(taken.recv().await.unwrap().event.text, "new");
        old.say.send(events("o1", said("C2", "channel", "old"))).unwrap();
        assert_eq!(taken.recv().await.unwrap().event.text, "old", "the old one is still read");
        assert_eq!(old.next().await["envelope_id"], "o1");
        drop(old);
        new.say.send(events("n2", said("C3", "channel", "later"))).unwrap();
        assert_eq!(taken.recv().await.unwrap().event.text, "later");
        assert_eq!(
            (new.next().await["envelope_id"].clone(), new.next().await["envelope_id"].clone()),
            (json!("n1"), json!("n2"))
        );
        drop(new.say);
    };
    let (ended, ()) = tokio::join!(listen(&stage, &store), talk);
    assert!(matches!(ended, ListenEnd::Lost(_)));
    assert_eq!(stage.vendor.calls("apps.connections.open").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_socket_is_pinged_and_then_given_up() {
    let (stage, (store, _taken), (first, mut slack)) = (open(), Store::new(), script());
    stage.vendor.script(first);
    slack.say.send(hello()).unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(listen(&stage, &store).await, ListenEnd::Lost("the socket was silent".into()));
    assert_eq!(slack.received.recv().await, Some(SocketMessage::Alive));
    assert!(began.elapsed() < Duration::from_secs(70));
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_says_nothing_or_rubbish_ends() {
    let (stage, (store, _taken), (first, slack)) = (open(), Store::new(), script());
    stage.vendor.script(first);
    slack.say.send(json!([1, "x"])).unwrap();
    assert_eq!(listen(&stage, &store).await, ListenEnd::Lost("Slack sent no hello in time".into()));
    let (second, slack) = script();
    stage.vendor.script(second);
    for odd in
        [hello(), json!(5), json!({}), json!({ "envelope_id": 7 }), json!({ "envelope_id": "x", "type": "events_api" })]
    {
        slack.say.send(odd).unwrap();
    }
    drop(slack.say);
    assert!(matches!(listen(&stage, &store).await, ListenEnd::Lost(_)));
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_said_once() {
    let (store, _taken) = Store::new();
    let (stage, (first, slack)) = (open(), script());
    stage.vendor.script(first);
    slack.say.send(hello()).unwrap();
    slack.say.send(json!({ "type": "disconnect", "reason": "link_disabled" })).unwrap();
    let ListenEnd::Misconfigured(why) = listen(&stage, &store).await else { panic!() };
    assert!(why.contains("turn it on"), "{why}");
    let stage = super::stage();
    stage.vendor.answers("apps.connections.open", json!({ "ok": false, "error": "not_allowed_token_type" }));
    assert!(matches!(listen(&stage, &store).await, ListenEnd::Misconfigured(why) if why.contains("app_token")));
    let stage = super::stage_with(&[], &[("bot_token", "xoxb-1"), ("signing_secret", super::SIGNING)]);
    assert_eq!(listen(&stage, &store).await, ListenEnd::Never, "its events come through the doors");
    let own = [("bot_token", "xoxb-1"), ("signing_secret", super::SIGNING)];
    let revoked = super::stage_with(&[], &own);
    revoked.vendor.answers("auth.test", json!({ "ok": false, "error": "token_revoked" }));
    assert_eq!(listen(&revoked, &store).await, ListenEnd::Never, "the first answer is that it is valid");
    assert!(matches!(listen(&revoked, &store).await, ListenEnd::Misconfigured(why) if why.contains("bot_token")));
    // Another workspace has installed the app, and uses the routes from now on. The token is reported.
    let installed = super::stage_with(&[], &[own[0], own[1], ("workspace:T2", "xoxb-2")]);
    installed.vendor.answers("auth.test", json!({ "ok": false, "error": "token_revoked" }));
    assert_eq!(listen(&installed, &store).await, ListenEnd::Never, "the first answer is that it is valid");
    assert!(matches!(listen(&installed, &store).await, ListenEnd::Misconfigured(why) if why.contains("bot_token")));
}

#[tokio::test(start_paused = true)]
async fn a_long_absence_is_a_gap_and_the_time_is_saved() {
    let (stage, (store, _taken), (first, slack)) = (open(), Store::new(), script());
    stage.vendor.script(first);
    let now_ms = stage.slack.env.now_ms();
    slack.say.send(hello()).unwrap();
    let talk = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(25)).await;
            slack.say.send(Value::Null).unwrap();
        }
        drop(slack.say);
    };
    let since_ms = now_ms - 3_600_000;
    let listening = stage.slack.listen(&stage.bot, Part::WHOLE, Some(since_ms.to_string()), &store);
    let (_, ()) = tokio::join!(listening, talk);
    let gap = store.gaps.lock().unwrap().pop().unwrap();
    assert_eq!((gap.since_ms, gap.until_ms < now_ms), (since_ms, true));
    assert!(!store.cursors.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_button_is_answered_while_the_socket_is_read() {
    let (stage, (store, mut taken), (first, mut slack)) = (open(), Store::new(), script());
    stage.vendor.answers("secret", json!({ "ok": true }));
    stage.vendor.script(first);
    let press = json!({
        "type": "block_actions", "team": { "id": "T1" }, "user": { "id": "UANN", "username": "ann" },
        "channel": { "id": "C1", "name": "general" },
        "container": { "message_ts": "1700000000.000200", "channel_id": "C1" },
        "message": { "text": "Sure?" }, "response_url": "https://hooks.slack.com/actions/T1/2/secret",
        "actions": [{ "value": "hp1:p:yes", "text": { "text": "Yes" }, "action_ts": "1.5" }],
    });
    let talk = async {
        slack.say.send(hello()).unwrap();
        slack.say.send(json!({ "envelope_id": "b1", "type": "interactive", "payload": press })).unwrap();
        assert_eq!(taken.recv().await.unwrap().event.prompt_response.unwrap().option_id, "yes");
        assert_eq!(slack.next().await, json!({ "envelope_id": "b1" }));
        while stage.vendor.calls("secret").is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(slack.say);
    };
    tokio::join!(listen(&stage, &store), talk);
}
