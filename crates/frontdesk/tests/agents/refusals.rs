//! Section 1 of the agents API: every refusal has its class, however invalid the request is.

use serde_json::{Value, json};

use crate::plane::{Plane, class};

#[tokio::test]
async fn a_wrong_method_or_path_is_refused_with_a_class() {
    let plane = Plane::with_agents(&["alice"]).await;
    for (method, path, status, what) in [
        ("GET", "/v1/agents/alice/deliver", 405, "MethodNotAllowedError"),
        ("PUT", "/v1/agents/alice/wake", 405, "MethodNotAllowedError"),
        ("POST", "/v1/agents/alice", 405, "MethodNotAllowedError"),
        ("POST", "/v1/agents", 405, "MethodNotAllowedError"),
        ("DELETE", "/v1/agents/alice/inbox", 405, "MethodNotAllowedError"),
        ("PATCH", "/v1/skills/s", 405, "MethodNotAllowedError"),
        ("OPTIONS", "/v1/notify", 405, "MethodNotAllowedError"),
        ("GET", "/v1", 404, "NotFoundError"),
        ("GET", "/v1/", 404, "NotFoundError"),
        ("GET", "/v1/agents/", 404, "NotFoundError"),
        ("POST", "/v1/agents/alice/deliver/", 404, "NotFoundError"),
        ("POST", "/v1/agents//deliver", 404, "UnknownAgentError"),
        ("GET", "/v1/agents/alice/inbox/stream/x", 404, "NotFoundError"),
        ("GET", "/v1//agents", 404, "NotFoundError"),
        ("GET", "/v2/agents", 404, ""),
    ] {
        let reply = plane.call(method, path, &Value::Null).await;
        if what.is_empty() {
            assert_eq!(reply.status, status, "{method} {path}");
        } else {
            assert_eq!(class(&reply, status), what, "{method} {path}");
        }
    }
    let long = format!("/v1/agents/{}/status", "x".repeat(60_000));
    let reply = plane.get(&long).await;
    assert!(matches!(reply.status, 200 | 414 | 431), "{}", reply.status);
    plane.finish().await;
}

#[tokio::test]
async fn numbers_in_queries_are_validated() {
    let plane = Plane::with_agents(&["alice"]).await;
    for text in ["1", "2", "3"] {
        plane.deliver("alice", &plane.augment(text)).await.expect(200);
    }
    for after in ["-1", "x", "1.5", "18446744073709551616", "1&after=2", "%FF"] {
        for path in ["inbox", "inbox/stream"] {
            let reply = plane.get(&format!("/v1/agents/alice/{path}?after={after}")).await;
            assert_eq!(class(&reply, 400), "ValidationError", "{path} {after}");
        }
    }
    for (after, seqs) in [("0", vec![1, 2, 3]), ("2", vec![3]), ("3", vec![])] {
        let found = plane.get(&format!("/v1/agents/alice/inbox?after={after}")).await.expect(200);
        let got: Vec<u64> =
            found["messages"].as_array().unwrap().iter().map(|it| it["seq"].as_u64().unwrap()).collect();
        assert_eq!(got, seqs, "after {after}");
    }
    // A position after the end of the inbox: no messages, and the response contains the newest seq.
    for after in ["4", "9223372036854775807", "18446744073709551615"] {
        let found = plane.get(&format!("/v1/agents/alice/inbox?after={after}")).await.expect(200);
        assert_eq!(found, json!({ "messages": [], "newest": 3 }), "after {after}");
    }
    plane.finish().await;
}

#[tokio::test]
async fn bodies_that_are_not_json_objects_are_refused_with_a_class() {
    let plane = Plane::with_agents(&["alice"]).await;
    let send = |method: &str, path: &str, body: &'static [u8]| {
        plane.harness.send(plane.harness.request(method, path).bearer_auth(&plane.token).body(body))
    };
    for (method, path) in [
        ("PUT", "/v1/agents/alice"),
        ("POST", "/v1/agents/alice/deliver"),
        ("POST", "/v1/agents/alice/wake"),
        ("POST", "/v1/agents/alice/exchange"),
        ("POST", "/v1/agents/alice/replies"),
        ("POST", "/v1/notify"),
        ("PUT", "/v1/skills/s"),
        ("POST", "/v1/skills/s/status"),
        ("POST", "/v1/skill-store/query"),
        ("POST", "/v1/data"),
        ("POST", "/v1/data-store/query"),
    ] {
        let deep: &[u8] = Box::leak([b"[".repeat(100_000), b"]".repeat(100_000)].concat().into_boxed_slice());
        for body in [b"{".as_slice(), b"\xEF\xBB\xBF{}", b"nonsense", b"3", b"\"x\"", b"{}{}", b"\xff", deep] {
            let reply = send(method, path, body).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(20)]);
            assert_eq!(class(&reply, 400), "ValidationError", "{method} {path} {shown}");
        }
    }
    assert!(plane.inbox("alice").await.is_empty());
    // A duplicate key is ambiguous.
    let twice = br#"{"kind":"augment","content":"a","content":"b","meta":{"dispatch_id":"d","sent_at":1,"origin":{}}}"#;
    let reply = send("POST", "/v1/agents/alice/deliver", twice).await;
    assert!(matches!(reply.status, 200 | 400), "{}", reply.text());
    plane.finish().await;
}

#[tokio::test]
async fn every_refusal_of_the_stores_has_its_class() {
    let plane = Plane::open().await;
    plane.call("PUT", "/v1/skills/s", &json!({ "source": "# Skill: s\n" })).await.expect(200);
    let response = plane.get("/v1/skills/s?version=000000000000").await.expect(404);
    assert_eq!(response["error"]["class"], "VersionNotFoundError");
    assert_eq!(
        (&response["error"]["skill_name"], &response["error"]["version"]),
        (&json!("s"), &json!("000000000000"))
    );
    for path in ["/v1/skills/none", "/v1/skills/none/metadata", "/v1/skills/none/versions"] {
        let response = plane.get(path).await.expect(404);
        assert_eq!(
            (&response["error"]["class"], &response["error"]["skill_name"]),
            (&json!("SkillNotFoundError"), &json!("none"))
        );
    }
    for name in ["-x", ".x", "a%20b", "a%2Fb", "%C3%A9", "a%0A"] {
        let put = plane.call("PUT", &format!("/v1/skills/{name}"), &json!({ "source": "" })).await;
        assert_eq!(class(&put, 400), "ValidationError", "{name}");
    }
    for status in [json!("Ready"), json!(3), Value::Null] {
        let reply = plane.post("/v1/skills/s/status", &json!({ "status": status })).await;
        assert_eq!(class(&reply, 400), "ValidationError", "{status}");
    }
    let by = |author: &str| json!({ "source": "# Skill: own\n", "metadata": { "author": author } });
    plane.call("PUT", "/v1/skills/own", &by("ada")).await.expect(200);
    let response = plane.call("PUT", "/v1/skills/own", &by("eve")).await.expect(409);
    assert_eq!(
        (&response["error"]["class"], &response["error"]["skill_name"]),
        (&json!("StorageConflictError"), &json!("own"))
    );
    assert!(response["error"]["reason"].is_string(), "{response}");
    let response = plane.post("/v1/data-store/query", &json!({ "query": "x", "colour": "red", "mode": "fts" })).await;
    let response = response.expect(400)["error"].clone();
    assert_eq!(
        (&response["class"], &response["unsupportedKeys"]),
        (&json!("UnsupportedFilterError"), &json!(["colour"]))
    );
    assert!(response["supportedKeys"].as_array().is_some_and(|keys| keys.contains(&json!("vault"))), "{response}");
    let response = plane.post("/v1/data-store/query", &json!({ "query": "x", "mode": "rag" })).await.expect(400);
    assert_eq!((&response["error"]["class"], &response["error"]["mode"]), (&json!("QueryError"), &json!("rag")));
    assert_eq!(class(&plane.post("/v1/data", &json!({ "tags": [] })).await, 400), "ValidationError");
    assert_eq!(class(&plane.get("/v1/data/none").await, 404), "DataNotFound");
    plane.finish().await;
}
