//! Rules 5 to 13: metadata and delivery.

use serde_json::{Value, json};

use crate::harness::Source;
use crate::plane::{Plane, class};

#[tokio::test]
async fn rule_5_one_notify_is_one_dispatch_id_and_a_wake_has_no_metadata() {
    let plane = Plane::open().await;
    plane.put("alice", json!({ "connectors": [{ "type": "noop" }] })).await.expect(200);
    let said = json!({ "agent": "alice", "message": "m", "event_type": "tick", "correlation_id": "c-1",
        "origin": { "skill_name": "s", "trigger_kind": "agent", "caller_agent_id": "bob" } });
    let first = plane.notify(said.clone()).await.expect(200);
    let second = plane.notify(said).await.expect(200);
    let id = first["dispatch_id"].as_str().unwrap();
    assert_ne!(first["dispatch_id"], second["dispatch_id"]);
    let parts: Vec<usize> = id.split('-').map(str::len).collect();
    assert_eq!((parts, &id[14..15]), (vec![8, 4, 4, 4, 12], "4"), "a UUID of version 4");
    let names: Vec<&Value> = first["receipts"].as_array().unwrap().iter().map(|it| &it["connector"]).collect();
    assert_eq!(names, ["inbox", "noop"], "all connectors that were reached");
    let inbox = plane.inbox("alice").await;
    assert_eq!(inbox[0]["meta"]["dispatch_id"], id);
    assert_eq!((&inbox[0]["meta"]["event_type"], &inbox[0]["meta"]["correlation_id"]), (&json!("tick"), &json!("c-1")));
    plane.notify(json!({ "agent": "alice@x", "message": "up", "event_type": "t", "origin": {} })).await.expect(200);
    let woken = plane.inbox("alice").await[2].clone();
    assert!(woken.get("meta").is_none(), "{woken}");
    plane.finish().await;
}

#[tokio::test]
async fn rule_6_sent_at_is_the_senders_clock() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut body = plane.augment("from the future");
    body["meta"]["sent_at"] = json!(9_999_999_999_999_u64);
    let receipt = plane.deliver("alice", &body).await.expect(200);
    assert!(receipt["delivered_at"].as_u64().unwrap() < 9_999_999_999_999);
    assert_eq!(plane.inbox("alice").await[0]["meta"]["sent_at"], 9_999_999_999_999_u64);
    let meta: frontdesk_wire::agents::DeliveryMeta = serde_json::from_value(body["meta"].clone()).unwrap();
    assert_eq!(meta.lag_ms(receipt["delivered_at"].as_u64().unwrap()), 0, "never negative");
    assert_eq!(meta.lag_ms(9_999_999_999_999 + 250), 250);
    plane.finish().await;
}

#[tokio::test]
async fn rule_7_the_root_only_where_it_differs_and_no_caller_for_callerless_triggers() {
    let plane = Plane::with_agents(&["alice"]).await;
    let say = |origin: Value| json!({ "agent": "alice", "message": "m", "origin": origin });
    let same = json!({ "skill_name": "s", "entry_skill_name": "s", "trigger_kind": "agent", "caller_agent_id": "bob" });
    plane.notify(say(same)).await.expect(200);
    plane
        .notify(say(json!({ "skill_name": "c", "entry_skill_name": "a", "trigger_kind": "inline" })))
        .await
        .expect(200);
    for kind in ["cron", "event", "cli", "dashboard"] {
        let origin = json!({ "skill_name": "s", "trigger_kind": kind, "caller_agent_id": "bob" });
        plane.notify(say(origin)).await.expect(200);
    }
    let origins: Vec<Value> = plane.inbox("alice").await.iter().map(|it| it["meta"]["origin"].clone()).collect();
    assert_eq!(origins[0], json!({ "skill_name": "s", "trigger_kind": "agent", "caller_agent_id": "bob" }));
    assert_eq!(origins[1]["entry_skill_name"], "a");
    assert!(origins[1].get("caller_agent_id").is_none(), "the owner is never substituted");
    assert!(origins[2..].iter().all(|origin| origin.get("caller_agent_id").is_none()), "{origins:?}");
    // The caller's name comes in a header, as attribution.
    let request = plane.harness.request("POST", "/v1/notify").bearer_auth(&plane.token).header("X-Agent-Id", "carol");
    let request = request.json(&say(json!({ "skill_name": "s", "trigger_kind": "agent" })));
    plane.harness.send(request).await.expect(200);
    assert_eq!(plane.inbox("alice").await[6]["meta"]["origin"]["caller_agent_id"], "carol");
    plane.finish().await;
}

#[tokio::test]
async fn rule_8_open_trigger_kinds_unknown_keys_kept_nulls_absent() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut body = plane.augment("x");
    body["meta"]["origin"]["trigger_kind"] = json!("full-moon");
    body["meta"]["origin"]["phase"] = json!({ "deep": [1, null] });
    body["meta"]["colour"] = json!("red");
    body["meta"]["event_type"] = Value::Null;
    plane.deliver("alice", &body).await.expect(200);
    let meta = plane.inbox("alice").await[0]["meta"].clone();
    assert_eq!(meta["origin"]["trigger_kind"], "full-moon");
    assert_eq!(meta["origin"]["phase"], json!({ "deep": [1, null] }));
    assert_eq!(meta["colour"], "red");
    assert!(meta.get("event_type").is_none() && meta.get("correlation_id").is_none(), "{meta}");
    plane.finish().await;
}

#[tokio::test]
async fn rule_9_an_empty_content_is_legal() {
    let plane = Plane::with_agents(&["alice"]).await;
    plane.deliver("alice", &plane.augment("")).await.expect(200);
    plane.deliver("alice", &json!({ "kind": "template", "prompt": "", "meta": plane.meta() })).await.expect(200);
    let inbox = plane.inbox("alice").await;
    assert_eq!((inbox[0]["text"].as_str(), inbox[1]["type"].as_str()), (Some(""), Some("template")));
    plane.finish().await;
}

#[tokio::test]
async fn rule_10_acknowledged_messages_survive_a_restart() {
    let plane = Plane::with_agents(&["alice"]).await;
    let receipt = plane.deliver("alice", &plane.augment("durable")).await.expect(200);
    let plane = plane.again().await;
    let inbox = plane.inbox("alice").await;
    assert_eq!((inbox.len(), &inbox[0]["delivery_id"]), (1, &receipt["delivery_id"]));
    assert_eq!(inbox[0]["at"], receipt["delivered_at"]);
    plane.finish().await;
}

#[tokio::test]
async fn rule_11_skipped_means_stored_and_not_pushed() {
    let plane = Plane::with_agents(&["alice"]).await;
    let away = plane.deliver("alice", &plane.augment("1")).await.expect(200);
    assert_eq!(away["delivery_skipped"], true);
    let mut stream = plane.listen("alice", "?session=s").await;
    let there = plane.deliver("alice", &plane.augment("2")).await.expect(200);
    assert!(there.get("delivery_skipped").is_none() && there.get("session_id").is_none(), "{there}");
    assert_eq!(stream.message().await["delivery_id"], there["delivery_id"]);
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_11_a_connector_that_limits_its_rate_leaves_it_stored_and_not_pushed() {
    let hook = Source::saying("429 Too Many Requests", "text/plain", b"later").await;
    hook.answer(9);
    let plane = Plane::open().await;
    let spec = json!({ "type": "webhook", "url": hook.url });
    plane.put("alice", json!({ "connectors": [spec] })).await.expect(200);
    let receipt = plane.deliver("alice", &plane.augment("1")).await.expect(200);
    assert_eq!(receipt["delivery_skipped"], true);
    assert!(receipt["warnings"].to_string().contains("429"), "{receipt}");
    assert_eq!(plane.inbox("alice").await.len(), 1);
    plane.finish().await;
}

#[tokio::test]
async fn rule_12_and_32_a_retry_gets_the_first_receipt() {
    let plane = Plane::with_agents(&["alice", "carol"]).await;
    let body = plane.augment("once");
    let first = plane.deliver("alice", &body).await.expect(200);
    let mut later = body.clone();
    later["meta"]["sent_at"] = json!(5); // the hash covers kind and text, not meta
    let again = plane.deliver("alice", &later).await.expect(200);
    assert_eq!((&again["delivery_id"], &again["delivered_at"]), (&first["delivery_id"], &first["delivered_at"]));
    assert!(again["warnings"].to_string().contains("before"), "{again}");
    let mut other = body.clone();
    other["content"] = json!("another");
    let other = plane.deliver("alice", &other).await.expect(200);
    assert_ne!(other["delivery_id"], first["delivery_id"], "another payload is another message, not a conflict");
    let kind = json!({ "kind": "template", "prompt": "once", "meta": body["meta"] });
    assert_ne!(plane.deliver("alice", &kind).await.expect(200)["delivery_id"], first["delivery_id"]);
    let elsewhere = plane.deliver("carol", &body).await.expect(200);
    assert_ne!(elsewhere["delivery_id"], first["delivery_id"], "receipts are per agent");
    let plane = plane.again().await;
    assert_eq!(plane.deliver("alice", &body).await.expect(200)["delivery_id"], first["delivery_id"]);
    assert_eq!(plane.inbox("alice").await.len(), 3);
    plane.finish().await;
}

/// Inbox messages may be deleted before their dispatch ids are forgotten.
#[tokio::test]
async fn rule_12_a_retry_of_an_expired_message_gets_no_false_receipt() {
    let plane = Plane::with_agents(&["alice"]).await;
    let body = plane.augment("once");
    let first = plane.deliver("alice", &body).await.expect(200);
    let desk = plane.harness.app.desk.clone();
    desk.stores().inbox.drop_inbox(desk.inboxes().inbox_of(&"home".into(), "alice").unwrap().1.unwrap()).await.unwrap();
    let stream = plane.listen("alice", "").await;
    let again = plane.deliver("alice", &body).await.expect(200);
    assert_eq!((&again["delivery_id"], &again["delivered_at"]), (&first["delivery_id"], &first["delivered_at"]));
    assert_eq!(again["delivery_skipped"], true, "nothing was pushed by the retry");
    assert!(again["warnings"].to_string().contains("its message has expired"), "{again}");
    assert!(plane.inbox("alice").await.is_empty());
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_12_of_concurrent_retries_one_is_stored() {
    let plane = Plane::with_agents(&["alice"]).await;
    let body = plane.augment("once");
    let all = futures_util::future::join_all((0..32).map(|_| plane.deliver("alice", &body))).await;
    let mut ids: Vec<String> = all.iter().map(|reply| reply.expect(200)["delivery_id"].to_string()).collect();
    ids.dedup();
    assert_eq!((ids.len(), plane.inbox("alice").await.len()), (1, 1));
    plane.finish().await;
}

#[tokio::test]
async fn rule_13_a_webhook_secret_asks_for_a_signature_over_the_raw_bytes() {
    let plane = Plane::open().await;
    plane.put("alice", json!({ "webhook_secret": "s3cret" })).await.expect(200);
    let path = "/v1/agents/alice/deliver";
    let body = r#"{"kind":"augment","content":"signed  ","meta":{"dispatch_id":"d","sent_at":1,"origin":{}}}"#;
    // All three were computed with Python's hmac module.
    let signed = "sha256=48d7f3fd55d63329c7654b439d5dce483a51ede1c63c8a2b7d9491c6852ee0b8";
    let by_another_key = "sha256=dec6394d918792986727c31aad3683d3a0640c7eba1fd1b30b031c2bc1b63d06";
    let of_nonsense = "sha256=4b182846723bcbd5b91346e9611da460827b94fdc3a46048f4fcc992ac54f99f";
    let send = |signature: Option<&str>, body: &'static str| {
        let mut request = plane.harness.request("POST", path).bearer_auth(&plane.token).body(body);
        if let Some(signature) = signature {
            request = request.header("X-Signature", signature);
        }
        plane.harness.send(request)
    };
    assert_eq!(class(&send(None, body).await, 401), "SignatureError");
    for bad in [by_another_key, &signed.to_uppercase(), &signed[7..], ""] {
        assert_eq!(class(&send(Some(bad), body).await, 401), "SignatureError", "{bad}");
    }
    // The signature is checked before parsing, so an invalid body without one is a signature fault.
    assert_eq!(class(&send(None, "not json").await, 401), "SignatureError");
    assert_eq!(class(&send(Some(of_nonsense), "not json").await, 400), "ValidationError");
    send(Some(signed), body).await.expect(200);
    assert_eq!(plane.inbox("alice").await.len(), 1);
    // After its removal no signature is required.
    plane.put("alice", json!({ "webhook_secret": "" })).await.expect(200);
    plane.deliver("alice", &plane.augment("x")).await.expect(200);
    plane.finish().await;
}

#[tokio::test]
async fn a_bad_shape_is_400_a_bad_kind_422_and_nothing_is_stored() {
    let plane = Plane::with_agents(&["alice", "carol"]).await;
    let meta = plane.meta();
    for (body, why) in [
        (json!({ "content": "x", "meta": meta }), "no kind"),
        (json!({ "kind": 3, "content": "x", "meta": meta }), "kind is a number"),
        (json!({ "kind": "augment", "meta": meta }), "no content"),
        (json!({ "kind": "template", "content": "x", "meta": meta }), "no prompt"),
        (json!({ "kind": "augment", "content": 5, "meta": meta }), "content is a number"),
        (json!({ "kind": "augment", "content": "x" }), "no meta"),
        (json!({ "kind": "augment", "content": "x", "meta": {} }), "empty meta"),
        (
            json!({ "kind": "augment", "content": "x", "meta": { "dispatch_id": "", "sent_at": 1, "origin": {} } }),
            "empty id",
        ),
        (
            json!({ "kind": "augment", "content": "x", "meta": { "dispatch_id": "d", "sent_at": "1", "origin": {} } }),
            "sent_at",
        ),
        (json!({ "agent_id": "carol", "kind": "augment", "content": "x", "meta": meta }), "another agent"),
        (json!({ "agent_id": 7, "kind": "augment", "content": "x", "meta": meta }), "agent_id is a number"),
        (json!([]), "a list"),
        (json!("x"), "a string"),
    ] {
        assert_eq!(class(&plane.deliver("alice", &body).await, 400), "ValidationError", "{why}");
    }
    let binary = json!({ "kind": "binary", "content": "x", "meta": meta });
    assert_eq!(class(&plane.deliver("alice", &binary).await, 422), "UnsupportedKindError");
    let raw =
        |body: Vec<u8>| plane.harness.request("POST", "/v1/agents/alice/deliver").bearer_auth(&plane.token).body(body);
    let broken = plane.harness.send(raw(b"{\"kind\":\"augment\",\"content\":\"\xff\xfe\"}".to_vec())).await;
    assert_eq!(class(&broken, 400), "ValidationError", "invalid UTF-8");
    let large = plane.augment(&"x".repeat(10 << 20));
    assert_eq!(class(&plane.deliver("alice", &large).await, 413), "TooLargeError");
    let over = plane.augment(&"x".repeat((1 << 20) + 1));
    assert_eq!(class(&plane.deliver("alice", &over).await, 413), "TooLargeError");
    plane.deliver("alice", &plane.augment(&"x".repeat(1 << 20))).await.expect(200);
    plane
        .deliver("alice@s", &json!({ "agent_id": "alice", "kind": "augment", "content": "x", "meta": meta }))
        .await
        .expect(200);
    assert_eq!((plane.inbox("alice").await.len(), plane.inbox("carol").await.len()), (2, 0));
    plane.finish().await;
}

#[tokio::test]
async fn rule_10_a_failed_write_returns_no_receipt() {
    let mut folder = std::path::PathBuf::new();
    let plane = Plane::with(|config| folder.clone_from(&config.data_dir)).await;
    plane.register("alice").await;
    plane.put("carol", json!({ "connectors": [{ "type": "noop" }] })).await.expect(200);
    let stream = plane.listen("alice", "").await;
    // Another connection locks the database.
    let lock = rusqlite::Connection::open(folder.join("frontdesk.db")).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let later = plane.harness.app.desk.env().now_ms() + 86_400_000;
    let mut asked = plane.augment("q");
    asked["meta"]["correlation_id"] = json!("c");
    let (body, other) = (plane.augment("x"), plane.augment("y"));
    let said = json!({ "agent": "alice", "message": "m", "origin": {} });
    let all = tokio::join!(
        plane.deliver("alice", &body),
        plane.deliver("carol", &other),
        plane.wake("alice", json!({ "context": "up" })),
        plane.wake("alice", json!({ "context": "up", "when": later })),
        plane.notify(said),
        plane.post("/v1/agents/alice/exchange", &asked),
    );
    for reply in [&all.0, &all.1, &all.2, &all.3, &all.4, &all.5] {
        assert_eq!(class(reply, 503), "UnavailableError");
        assert!(reply.text().contains("nothing was stored"), "{}", reply.text());
    }
    lock.execute_batch("ROLLBACK").unwrap();
    let desk = plane.harness.app.desk.clone();
    assert!(desk.agents().live().waiters().is_empty() && desk.agents().live().in_flight().is_empty());
    assert!(plane.inbox("alice").await.is_empty() && plane.inbox("carol").await.is_empty());
    assert!(desk.cron().armed_of_tenant(&"home".into(), None).await.unwrap().0.is_empty());
    plane.deliver("alice", &body).await.expect(200);
    drop(stream);
    plane.finish().await;
}

#[tokio::test]
async fn rule_13_the_signature_covers_the_exact_bytes() {
    let plane = Plane::open().await;
    plane.put("alice", json!({ "webhook_secret": "s3cret" })).await.expect(200);
    let request = || plane.harness.request("POST", "/v1/agents/alice/deliver").bearer_auth(&plane.token);
    let plain =
        "  {\"kind\":\"augment\",\"content\":\"x\",\r\n\"meta\":{\"dispatch_id\":\"a\",\"sent_at\":1,\"origin\":{}}}\n";
    // All three were computed with Python's hmac module: of this body, with another key, and with a byte order mark.
    let signed = "sha256=53372bcc1d4b2dee2ff103b90fe15e9cd1cc58f768ecb13239267d114feffc76";
    let wrong = "sha256=c530d0d2adfa7c7503bec4315cdd7c93ee6b414ff442c3ff6f633e65456b5680";
    let of_marked = "sha256=f103ccf6beac941a2410862441bb453c3f4389d525081630cba858a35e38819a";
    // Of two different signatures at least one is wrong.
    for (first, second) in [(wrong, signed), (signed, wrong)] {
        let twice = request().header("X-Signature", first).header("X-Signature", second).body(plain);
        assert_eq!(class(&plane.harness.send(twice).await, 401), "SignatureError");
    }
    let marked = [b"\xEF\xBB\xBF".as_slice(), plain.as_bytes()].concat();
    let stripped = request().header("X-Signature", signed).body(marked.clone());
    assert_eq!(
        class(&plane.harness.send(stripped).await, 401),
        "SignatureError",
        "the signature includes the byte order mark"
    );
    let whole = request().header("X-Signature", of_marked).body(marked);
    assert_eq!(class(&plane.harness.send(whole).await, 400), "ValidationError", "a byte order mark is not valid JSON");
    let chunks: Vec<_> = plain.as_bytes().chunks(7).map(|it| Ok::<_, std::io::Error>(it.to_vec())).collect();
    let chunked = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    plane.harness.send(request().header("X-Signature", format!("  {signed} ")).body(chunked)).await.expect(200);
    assert_eq!(plane.inbox("alice").await.len(), 1);
    plane.finish().await;
}
