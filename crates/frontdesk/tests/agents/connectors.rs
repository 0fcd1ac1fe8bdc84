//! Rule 12 with further connectors: each gets a dispatch once, whatever the caller does.

use frontdesk_core::directory::facts::{Agent, Fact};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::harness::{Source, TIME_LIMIT};
use crate::plane::{Plane, encoded};

async fn hooked(source: &Source) -> Plane {
    let plane = Plane::open().await;
    let hook = json!({ "type": "webhook", "url": source.url, "timeout_ms": 30_000 });
    plane.put("alice", json!({ "connectors": [hook] })).await.expect(200);
    plane
}

fn warned(receipt: &Value, word: &str) -> bool {
    receipt["warnings"].as_array().into_iter().flatten().any(|it| it.as_str().is_some_and(|it| it.contains(word)))
}

/// Waits until no delivery to a connector is in progress.
async fn all_carried(plane: &Plane) {
    let in_flight = plane.harness.app.desk.agents().live().in_flight().clone();
    let over = async {
        while !in_flight.is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIME_LIMIT, over).await.expect("a delivery to a connector never ended");
}

#[tokio::test]
async fn rule_12_a_retry_while_the_webhook_hangs_does_not_call_it_again() {
    let source = Source::open("application/json", br#"{"id":"hook-1"}"#).await;
    let plane = hooked(&source).await;
    let body = plane.augment("once");
    let first = plane.deliver("alice", &body);
    let retries = async {
        source.asked().await;
        let again = join_all((0..8).map(|_| plane.deliver("alice", &body))).await;
        source.answer(100);
        again
    };
    let (first, again) = tokio::join!(first, retries);
    let first = first.expect(200);
    assert!(first.get("delivery_skipped").is_none() && first.get("warnings").is_none(), "{first}");
    for reply in again {
        let receipt = reply.expect(200);
        assert_eq!(receipt["delivery_id"], first["delivery_id"]);
        assert!(
            warned(&receipt, "delivered before") && warned(&receipt, "still waits for the connectors"),
            "{receipt}"
        );
    }
    let late = plane.deliver("alice", &body).await.expect(200);
    assert!(late.get("delivery_skipped").is_none() && !warned(&late, "still waits for the connectors"), "{late}");
    assert!(!source.was_asked(), "the webhook was called once");
    plane.finish().await;
}

#[tokio::test]
async fn rule_12_of_concurrent_repeats_one_calls_the_webhook() {
    let source = Source::open("application/json", b"{}").await;
    source.answer(100);
    let plane = hooked(&source).await;
    for _ in 0..8 {
        let body = plane.augment("once");
        let all = join_all((0..8).map(|_| plane.deliver("alice", &body))).await;
        assert!(all.iter().all(|reply| reply.status == 200));
        all_carried(&plane).await;
        source.asked().await;
        assert!(!source.was_asked(), "the webhook was called once");
    }
    plane.finish().await;
}

#[tokio::test]
async fn a_delivery_continues_after_its_caller_disconnects() {
    let source = Source::open("application/json", br#"{"id":"hook-1"}"#).await;
    let plane = hooked(&source).await;
    let body = plane.augment("once");
    let path = format!("/v1/agents/{}/deliver", encoded("alice"));
    let impatient = plane.harness.request("POST", &path).bearer_auth(&plane.token).json(&body);
    let impatient = tokio::spawn(impatient.send());
    source.asked().await;
    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled());
    source.answer(100);
    all_carried(&plane).await;
    let again = plane.deliver("alice", &body).await.expect(200);
    assert!(again.get("delivery_skipped").is_none() && warned(&again, "delivered before"), "{again}");
    assert!(!source.was_asked(), "the webhook was called once");
    plane.finish().await;
}

/// The receipt waits for the slowest connector, not for the sum of all.
#[tokio::test]
async fn connectors_are_called_concurrently() {
    let (one, two) = (Source::open("application/json", b"{}").await, Source::open("application/json", b"{}").await);
    let plane = Plane::open().await;
    let hooks = [&one, &two]
        .map(|source| json!({ "type": "webhook", "url": source.url, "wake_url": source.url, "timeout_ms": 30_000 }));
    plane.put("alice", json!({ "connectors": hooks })).await.expect(200);
    let both_asked = async || {
        one.asked().await;
        two.asked().await; // before the first has responded
        two.answer(1);
        one.answer(1);
    };
    let post = json!({ "agent": "alice", "message": "all of you", "origin": {} });
    let (response, ()) = tokio::join!(plane.notify(post), both_asked());
    let names: Vec<Value> =
        response.expect(200)["receipts"].as_array().unwrap().iter().map(|it| it["connector"].clone()).collect();
    assert_eq!(names, ["inbox", "webhook#1", "webhook#2"]);
    let (woken, ()) = tokio::join!(plane.wake("alice", json!({ "context": "up" })), both_asked());
    woken.expect(200);
    plane.finish().await;
}

/// As after a lost key: the message is in the inbox, and the receipt warns about the connectors.
#[tokio::test]
async fn unreadable_connectors_are_reported() {
    let plane = Plane::open().await;
    plane.put("alice", json!({ "connectors": [{ "type": "noop" }] })).await.expect(200);
    let desk = plane.harness.app.desk.clone();
    let spoilt = desk.directory().write(|view, draft| {
        let alice = (**view.agent(&"home".into(), &"alice".into()).unwrap()).clone();
        draft.put(Fact::Agent(Agent { connectors: Some("00".into()), ..alice }));
        Ok::<_, ()>(())
    });
    assert!(spoilt.await.is_ok());
    let receipt = plane.deliver("alice", &plane.augment("1")).await.expect(200);
    assert!(warned(&receipt, "cannot be read"), "{receipt}");
    let woken = plane.wake("alice", json!({ "context": "2" })).await.expect(503);
    assert_eq!((&woken["error"]["class"], &woken["error"]["stored"]), (&json!("UnavailableError"), &json!(true)));
    assert_eq!(plane.inbox("alice").await.len(), 2);
    plane.put("alice", json!({ "connectors": [{ "type": "noop" }] })).await.expect(200);
    let receipt = plane.deliver("alice", &plane.augment("3")).await.expect(200);
    assert!(!warned(&receipt, "cannot be read"), "{receipt}");
    plane.finish().await;
}

#[tokio::test]
async fn an_exchange_that_times_out_during_a_webhook_leaves_nothing_locked() {
    let source = Source::open("application/json", br#"{"id":"hook-1"}"#).await;
    let plane = hooked(&source).await;
    let mut body = plane.augment("well?");
    body["meta"]["correlation_id"] = json!("c");
    body["timeout_ms"] = json!(100);
    let late = plane.post("/v1/agents/alice/exchange", &body).await.expect(504);
    assert_eq!(late["error"]["class"], "TimeoutError");
    source.asked().await;
    // The caller has stopped waiting, but the question is still delivered to the webhook.
    source.answer(100);
    all_carried(&plane).await;
    body.as_object_mut().unwrap().remove("timeout_ms");
    let again = plane.deliver("alice", &body).await.expect(200);
    assert!(again.get("delivery_skipped").is_none(), "the webhook accepted it: {again}");
    assert!(!source.was_asked(), "once");
    plane.finish().await;
}
