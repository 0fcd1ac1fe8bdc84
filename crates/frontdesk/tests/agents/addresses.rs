//! Rules 1 to 4: what an address means.

use serde_json::json;

use crate::plane::{Plane, class};

#[tokio::test]
async fn rule_1_an_at_in_the_address_wakes_and_none_delivers() {
    let plane = Plane::with_agents(&["alice", "ada@example.org"]).await;
    let said = |agent: &str| json!({ "agent": agent, "message": "hello", "origin": { "skill_name": "s" } });
    for (address, route) in
        [("alice", "deliver"), ("alice@term-1", "wake"), ("ada@example.org", "wake"), ("ada@example.org@tab", "wake")]
    {
        let response = plane.notify(said(address)).await.expect(200);
        assert_eq!(response["route"], route, "{address}");
    }
    let kinds: Vec<String> = plane.inbox("alice").await.iter().map(|it| it["type"].to_string()).collect();
    assert_eq!(kinds, [r#""augment""#, r#""wake_degraded""#]);
    assert_eq!(plane.inbox("ada@example.org").await.len(), 2);
    plane.finish().await;
}

#[tokio::test]
async fn rule_2_an_unknown_agent_is_404_and_nothing_is_stored() {
    let plane = Plane::with_agents(&["alice", "a", "a@b"]).await;
    for address in ["nobody", "nobody@term", "@alice", "bob@alice", "alic"] {
        assert_eq!(class(&plane.deliver(address, &plane.augment("x")).await, 404), "UnknownAgentError", "{address}");
        assert_eq!(class(&plane.wake(address, json!({})).await, 404), "UnknownAgentError", "{address}");
        let said = json!({ "agent": address, "message": "x", "origin": {} });
        assert_eq!(class(&plane.notify(said).await, 404), "UnknownAgentError", "{address}");
    }
    plane.wake("a@b@c", json!({ "context": "to a@b" })).await.expect(200);
    assert_eq!(plane.inbox("a@b").await[0]["text"], "to a@b", "the longest registered id wins");
    assert!(plane.inbox("a").await.is_empty() && plane.inbox("alice").await.is_empty());
    plane.finish().await;
}

#[tokio::test]
async fn rule_3_explicit_session_then_suffix_then_the_latest() {
    let plane = Plane::with_agents(&["alice"]).await;
    let mut first = plane.listen("alice", "?session=first").await;
    let mut second = plane.listen("alice", "?session=second").await;
    let session = |reply: serde_json::Value| (reply["woken"].clone(), reply["session_id"].clone());
    let both = plane.wake("alice@second", json!({ "context": "a", "session_id": "first" })).await.expect(200);
    assert_eq!(session(both), (json!(true), json!("first")));
    let suffix = plane.wake("alice@first", json!({ "context": "b" })).await.expect(200);
    assert_eq!(session(suffix), (json!(true), json!("first")));
    let ours = plane.wake("alice", json!({ "context": "c" })).await.expect(200);
    assert_eq!(session(ours), (json!(true), json!("second")), "the latest attached");
    assert_eq!([first.message().await["text"].clone(), first.message().await["text"].clone()], ["a", "b"]);
    assert_eq!(second.message().await["text"], "c");
    drop((first, second));
    plane.finish().await;
}

#[tokio::test]
async fn rule_4_deliver_drops_the_suffix_with_a_warning() {
    let plane = Plane::with_agents(&["alice"]).await;
    let receipt = plane.deliver("alice@term-1", &plane.augment("x")).await.expect(200);
    let warnings = receipt["warnings"].to_string();
    assert!(warnings.contains("term-1") && warnings.contains("inbox"), "{warnings}");
    assert!(receipt.get("session_id").is_none(), "{receipt}");
    let kept = &plane.inbox("alice").await[0];
    assert!(kept.get("session_id").is_none(), "{kept}");
    let bare = plane.deliver("alice", &plane.augment("y")).await.expect(200);
    assert!(bare.get("warnings").is_none(), "{bare}");
    plane.finish().await;
}

#[tokio::test]
async fn path_segments_are_decoded_exactly_once() {
    let plane = Plane::with_agents(&["alice@term-1", "100%25", "a/b", "Zoë Ω"]).await;
    for id in ["alice@term-1", "100%25", "a/b", "Zoë Ω"] {
        plane.deliver(id, &plane.augment(id)).await.expect(200);
        assert_eq!(plane.inbox(id).await[0]["text"], id);
    }
    // Encoded twice, it is another name.
    let twice = plane.post("/v1/agents/alice%2540term-1/deliver", &plane.augment("x")).await;
    assert_eq!(class(&twice, 404), "UnknownAgentError");
    // Not encoded at all, it is the same name.
    plane.post("/v1/agents/alice@term-1/deliver", &plane.augment("x")).await.expect(200);
    let broken = plane.post("/v1/agents/%ff%fe/deliver", &plane.augment("x")).await;
    assert_eq!(class(&broken, 400), "ValidationError");
    plane.finish().await;
}

#[tokio::test]
async fn rule_31_ids_have_1_to_256_characters_and_no_control_characters() {
    let plane = Plane::open().await;
    for id in ["x".repeat(256), "é".repeat(256), "a b.c:d@e#f?g".into()] {
        plane.put(&id, json!({})).await.expect(200);
    }
    for id in ["x".repeat(257), "a\u{7}b".into(), "a\nb".into(), "\u{0}".into()] {
        assert_eq!(class(&plane.put(&id, json!({})).await, 400), "ValidationError", "{id:?}");
    }
    plane.finish().await;
}
