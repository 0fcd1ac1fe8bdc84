//! Two agents: A notifies B, which is asleep, is woken, takes the message and answers a question. Every receipt says
//! exactly what happened.

use std::sync::Arc;

use frontdesk_client::wake::WakeListener;
use frontdesk_client::{Dial, Handler, Inbound, RelayTransport as _, SocketTransport};
use frontdesk_wire::{Act, Action, MessageEvent, Secret};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::harness::{GatewayAccount, Harness, TIME_LIMIT};
use crate::plane::Plane;

/// An example agent that answers every message.
async fn wake_up(
    harness: &Harness,
    account: &GatewayAccount,
) -> (Arc<SocketTransport>, mpsc::UnboundedReceiver<MessageEvent>) {
    let transport = Arc::new(SocketTransport::new(Dial {
        url: harness.url.clone(),
        gateway_id: account.gateway.clone(),
        secret: Secret::new(account.secret.as_str()),
        identities: vec![("relay".into(), String::new())],
    }));
    let (sender, receiver) = mpsc::unbounded_channel();
    let speaker = transport.clone();
    let handler: Handler = Arc::new(move |inbound| {
        let (sender, speaker) = (sender.clone(), speaker.clone());
        Box::pin(async move {
            let Inbound::Event(event) = inbound else { panic!("not an event: {inbound:?}") };
            let content = format!("you said: {}", event.text);
            let (chat_id, reply_to) = (event.source.chat_id.clone(), event.message_id.clone());
            sender.send(*event).unwrap();
            // Not awaited here: a handler that waits for its own result would block the acks.
            tokio::spawn(async move {
                let act = Act::Send { chat_id, content, reply_to };
                speaker.send_outbound(Action { act, metadata: serde_json::Map::new() }).await.unwrap();
            });
            true
        })
    });
    transport.set_inbound_handler(handler);
    timeout(TIME_LIMIT, transport.connect()).await.expect("timed out").expect("connecting failed");
    (transport, receiver)
}

fn by_connector<'a>(response: &'a Value, name: &str) -> &'a Value {
    let receipts = response["receipts"].as_array().unwrap();
    &receipts.iter().find(|it| it["connector"] == name).unwrap_or_else(|| panic!("no {name} in {response}"))["receipt"]
}

#[tokio::test]
async fn a_notified_agent_that_sleeps_is_woken_and_answers() {
    let plane = Plane::with_agents(&["alice"]).await;
    let listener = WakeListener::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let account = plane.harness.add_gateway("bob").await;
    let wake =
        json!({ "gatewayId": "bob", "platform": "relay", "botId": "", "routeKeys": [], "wakeUrl": listener.url });
    plane.harness.post("/relay/provision", &account.identity, &wake).await.expect(200);
    let origin = json!({ "skill_name": "greet", "trigger_kind": "agent", "caller_agent_id": "alice" });

    // B is asleep: the message is stored but not delivered, and the receipts say so.
    let response =
        plane.notify(json!({ "agent": "bob", "message": "are you there?", "origin": origin })).await.expect(200);
    assert_eq!(response["route"], "deliver");
    assert_eq!(by_connector(&response, "relay")["delivery_skipped"], true);
    assert_eq!(by_connector(&response, "inbox")["delivery_skipped"], true);

    // The server calls the wake URL, B connects and gets the message.
    timeout(TIME_LIMIT, listener.called()).await.expect("the wake URL was not called");
    let (bob, mut received) = wake_up(&plane.harness, &account).await;
    let event = timeout(TIME_LIMIT, received.recv()).await.expect("timed out").unwrap();
    assert_eq!(event.text, "are you there?");
    assert_eq!(event.source.user_name.as_deref(), Some("alice"));
    let delivery = event.delivery.as_ref().expect("the event has no delivery metadata");
    assert_eq!(delivery.meta.as_ref().unwrap()["dispatch_id"], response["dispatch_id"]);
    assert_eq!(event.message_id.as_deref(), by_connector(&response, "relay")["delivery_id"].as_str());

    // B is awake now: a wake is confirmed, a delivery is pushed, a question is answered.
    let woken = plane.wake("bob", json!({ "context": "look up" })).await.expect(200);
    assert_eq!((&woken["woken"], &woken["session_id"]), (&json!(true), &json!("bob")));
    assert_eq!(timeout(TIME_LIMIT, received.recv()).await.expect("timed out").unwrap().text, "look up");
    let mut ask = plane.augment("what is two and two?");
    ask["meta"]["correlation_id"] = json!("q-1");
    ask["meta"]["origin"] = origin;
    ask["timeout_ms"] = json!(20_000);
    let answer = plane.post("/v1/agents/bob/exchange", &ask).await.expect(200);
    assert_eq!(answer["content"], "you said: what is two and two?");
    assert_eq!((&answer["correlation_id"], &answer["agent_id"]), (&json!("q-1"), &json!("bob")));
    assert!(plane.inbox("alice").await.is_empty(), "an unsolicited answer must go to no inbox, to avoid loops");

    // The admin API lists all of it, newest first, with the receipts.
    let shown = plane.harness.admin("GET", "/dispatches?tenant=home", &Value::Null).await.expect(200);
    let shown = shown["dispatches"].as_array().unwrap();
    let kinds: Vec<&str> = shown.iter().map(|it| it["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["augment", "wake", "augment"]);
    assert_eq!((&shown[2]["from"], &shown[2]["agent_id"]), (&json!("alice"), &json!("bob")));
    assert_eq!(shown[2]["receipts"], response["receipts"]);
    let page = plane.harness.get("/chat/v1/dispatches", &account.chat).await.expect(200);
    assert_eq!(page["dispatches"].as_array().unwrap().len(), 3);
    bob.disconnect().await;
    plane.finish().await;
}

#[tokio::test]
async fn tail_reports_messages_between_agents() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut tail = plane.harness.open_stream("/admin/v1/events/stream", &plane.harness.admin).await;
    plane.notify(json!({ "agent": "alice", "message": "psst", "origin": { "skill_name": "s" } })).await.expect(200);
    plane.wake("alice", json!({ "context": "up" })).await.expect(200);
    let events = plane.harness.follow(&mut tail, &["\"skipped\"", "\"degraded\""]).await;
    assert!(events.contains("\"instance\":\"alice\"") && events.contains("inbox: stored"), "{events}");
    plane.finish().await;
}
