//! How gateways join, and which requests are refused.

use serde_json::{Value, json};

use crate::harness::Harness;

async fn identity_of(harness: &Harness, instance: &str) -> String {
    let ask = json!({ "tenant": "home", "scope": "identity", "instance": instance });
    harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned()
}

async fn enrollment(harness: &Harness, tenant: &str, ttl_s: Option<u64>) -> String {
    let ask = json!({ "tenant": tenant, "ttl_s": ttl_s });
    harness.admin("POST", "/enrollment-tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_json_is_an_unsupported_media_type() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let admin = harness.admin.clone();
    let routes = [
        ("/relay/provision", &account.identity),
        ("/relay/enroll", &account.identity),
        ("/relay/policy", &account.bearer()),
        ("/chat/v1/chats/c/messages", &account.chat),
        ("/admin/v1/tenants", &admin),
    ];
    for (path, bearer) in routes {
        for kind in [Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonx"), None] {
            let mut request = harness.request("POST", path).bearer_auth(bearer).body("{}");
            if let Some(kind) = kind {
                request = request.header("content-type", kind);
            }
            let reply = harness.send(request).await;
            if path.starts_with("/relay") {
                assert!(reply.error(415).contains("application/json"), "{path}");
            } else {
                assert_eq!(reply.problem(415), "unsupported_media_type", "{path}");
            }
        }
        let with_charset = harness.request("POST", path).bearer_auth(bearer).body("{");
        let reply = harness.send(with_charset.header("content-type", "Application/JSON; charset=utf-8")).await;
        assert_eq!(reply.status, 400, "{path}: JSON type, but invalid JSON");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_over_the_limit_is_too_large() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let size = (2 << 20) + 1;
    for (path, bearer) in [("/relay/provision", &account.identity), ("/admin/v1/tenants", &harness.admin)] {
        let head = format!(
            "POST {path} HTTP/1.1\r\nAuthorization: Bearer {bearer}\r\nContent-Type: application/json\r\nContent-Length: {size}"
        );
        assert_eq!(harness.raw(&head, vec![b' '; size]).await, 413, "{path}");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_field_is_named() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let upgrade = account.bearer();
    let plain = [
        ("/relay/provision", &account.identity, json!({ "platform": "relay" }), "gatewayId"),
        ("/relay/provision", &account.identity, json!({ "gatewayId": "x" }), "platform"),
        ("/relay/provision", &account.identity, json!({ "gatewayId": "", "platform": "relay" }), "gatewayId"),
        ("/relay/provision", &account.identity, json!({ "gatewayId": "x\u{7}", "platform": "relay" }), "gatewayId"),
        (
            "/relay/provision",
            &account.identity,
            json!({ "gatewayId": "x".repeat(257), "platform": "relay" }),
            "gatewayId",
        ),
        ("/relay/enroll", &account.identity, json!({ "gatewayId": "x" }), "enrollmentToken"),
        ("/relay/enroll", &account.identity, json!({ "enrollmentToken": "x" }), "gatewayId"),
        ("/relay/policy", &upgrade, json!({ "requireAddress": true }), "platform"),
    ];
    for (path, bearer, body, field) in plain {
        let words = harness.post(path, bearer, &body).await.error(400);
        assert!(words.contains(field), "{path} {body}: {words}");
    }
    let problems = [
        ("/chat/v1/chats/c/messages", &account.chat, json!({ "text": "x" }), "user_id"),
        ("/admin/v1/tokens", &harness.admin, json!({ "tenant": "home" }), "scope"),
        ("/admin/v1/tokens", &harness.admin, json!({ "tenant": "home", "scope": "root" }), "scope"),
        (
            "/admin/v1/bindings",
            &harness.admin,
            json!({ "platform": "relay", "tenant": "home", "instance": "g" }),
            "user_id",
        ),
    ];
    for (path, bearer, body, field) in problems {
        let reply = harness.post(path, bearer, &body).await;
        assert_eq!(reply.problem(400), "bad_request");
        assert!(reply.json()["detail"].as_str().unwrap().contains(field), "{path} {body}: {}", reply.text());
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_gateway_gets_one_secret_for_all_its_platforms() {
    let harness = Harness::open().await;
    let identity = harness.token("home", "identity").await;
    let mut secrets = Vec::new();
    for platform in ["relay", "semaphore", "pigeon"] {
        let ask = json!({ "gatewayId": "g", "platform": platform, "botId": "", "gatewayEndpoint": "https://x.example",
                          "routeKeys": ["k1", "k2"] });
        let reply = harness.post("/relay/provision", &identity, &ask).await.expect(200);
        assert_eq!((&reply["tenant"], &reply["gatewayId"]), (&json!("home"), &json!("g")));
        assert_eq!(reply["routeKeys"], json!(["k1", "k2"]));
        assert!(reply["deliveryKey"].as_str().is_some_and(|key| key.len() == 64), "{reply}");
        secrets.push(reply["secret"].as_str().unwrap().to_owned());
    }
    secrets.dedup();
    assert_eq!(secrets.len(), 1);
    assert_eq!(secrets[0].len(), 64);
    let shown = harness.admin("GET", "/gateways/g", &Value::Null).await.expect(200);
    let platforms: Vec<_> = shown["platforms"].as_array().unwrap().iter().map(|it| it["platform"].clone()).collect();
    assert_eq!(platforms, ["relay", "semaphore", "pigeon"]);
    assert_eq!(shown["instance"], "g", "no instanceId: the gatewayId is the instance");
    let rotated = harness.admin("POST", "/gateways/g/rotate", &json!({})).await.expect(200);
    let ask = json!({ "gatewayId": "g", "platform": "relay" });
    let again = harness.post("/relay/provision", &identity, &ask).await.expect(200);
    assert_eq!(again["secret"], rotated["secret"], "the newest secret");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_bound_to_an_instance_cannot_act_for_another() {
    let harness = Harness::open().await;
    let mine = identity_of(&harness, "mine").await;
    let ask =
        |gateway: &str, instance: Value| json!({ "gatewayId": gateway, "platform": "relay", "instanceId": instance });
    harness.post("/relay/provision", &mine, &ask("g", json!("other"))).await.error(403);
    let seen = harness.admin("GET", "/gateways/g", &Value::Null).await;
    assert_eq!(seen.status, 404, "a refused request stores nothing");
    harness.post("/relay/provision", &mine, &ask("g", json!("mine"))).await.expect(200);
    harness.post("/relay/provision", &mine, &ask("g", Value::Null)).await.expect(200);
    let shown = harness.admin("GET", "/gateways/g", &Value::Null).await.expect(200);
    assert_eq!(shown["instance"], "mine");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_bound_to_an_instance_cannot_take_the_gateway_of_another() {
    let harness = Harness::open().await;
    let victim = harness.add_gateway("victim").await;
    let mine = identity_of(&harness, "mine").await;
    for body in [
        json!({ "gatewayId": "victim", "platform": "relay" }),
        json!({ "gatewayId": "victim", "platform": "relay", "instanceId": "mine" }),
    ] {
        let reply = harness.post("/relay/provision", &mine, &body).await;
        reply.error(403);
        assert!(!reply.text().contains(&victim.secret));
    }
    let token = enrollment(&harness, "home", None).await;
    let body = json!({ "enrollmentToken": token, "gatewayId": "victim" });
    harness.post("/relay/enroll", &mine, &body).await.error(403);
    let shown = harness.admin("GET", "/gateways/victim", &Value::Null).await.expect(200);
    assert_eq!(shown["instance"], "victim");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_id_of_another_tenant_is_a_conflict() {
    let harness = Harness::open().await;
    let (account, rival) = (harness.add_gateway("g").await, harness.add_gateway_in("rival", "r").await);
    let reply =
        harness.post("/relay/provision", &rival.identity, &json!({ "gatewayId": "g", "platform": "relay" })).await;
    reply.error(403);
    assert!(!reply.text().contains(&account.secret) && !reply.text().contains("home"), "{}", reply.text());
    harness.socket(&account).await.settle().await; // the gateway still works
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn private_wake_urls_are_refused_with_the_same_text() {
    let harness = Harness::with(|config| config.outcall.allow.clear()).await;
    let identity = harness.token("home", "identity").await;
    let mut words = Vec::new();
    for host in ["127.0.0.1:1", "localhost", "10.0.0.1", "169.254.169.254", "[::1]", "0x7f.1", "192.168.0.9:8080"] {
        let ask = json!({ "gatewayId": "g", "platform": "relay", "wakeUrl": format!("http://{host}/wake") });
        words.push(harness.post("/relay/provision", &identity, &ask).await.error(400));
    }
    words.dedup();
    assert_eq!(words.len(), 1, "{words:?}");
    for url in ["ftp://example.com/", "file:///etc/passwd", "wake", ""] {
        let ask = json!({ "gatewayId": "g", "platform": "relay", "wakeUrl": url });
        harness.post("/relay/provision", &identity, &ask).await.error(400);
    }
    assert_eq!(harness.admin("GET", "/gateways/g", &Value::Null).await.status, 404);
    let fine = json!({ "gatewayId": "g", "platform": "relay", "wakeUrl": "https://agent.example.com/wake" });
    harness.post("/relay/provision", &identity, &fine).await.expect(200);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_enrollment_token_works_once_in_time_and_for_its_own_tenant() {
    let harness = Harness::open().await;
    let (account, rival) = (harness.add_gateway("g").await, harness.add_gateway_in("rival", "r").await);
    let enroll = async |identity: &str, token: &str, gateway: &str| {
        let body = json!({ "enrollmentToken": token, "gatewayId": gateway });
        harness.post("/relay/enroll", identity, &body).await
    };
    let token = enrollment(&harness, "home", None).await;
    enroll("rubbish", &token, "new").await.error(401);
    enroll(&account.chat, &token, "new").await.error(401);
    let foreign = enroll(&rival.identity, &token, "new").await.error(403);
    let forged = enroll(&rival.identity, "fde_0000", "new").await.error(403);
    assert_eq!(foreign, forged, "must not reveal a token of another tenant");
    enroll(&account.identity, &token, "r").await.error(403); // a gatewayId of the other tenant
    let reply = enroll(&account.identity, &token, "new").await.expect(200);
    let fields: Vec<&String> = reply.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["deliveryKey", "gatewayId", "routeKeys", "secret", "tenant"]);
    let mut new = account.clone();
    (new.gateway, new.secret) = ("new".into(), reply["secret"].as_str().unwrap().into());
    harness.socket(&new).await.hang_up().await;
    let used = enroll(&account.identity, &token, "new2").await.error(403);
    assert!(used.contains("used"), "{used}");
    let late = enrollment(&harness, "home", Some(0)).await;
    let expired = enroll(&account.identity, &late, "new3").await.error(403);
    assert!(expired.contains("expired"), "{expired}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn provisioning_needs_a_valid_token_of_scope_identity() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let ask = json!({ "gatewayId": "x", "platform": "relay" });
    let late = json!({ "tenant": "home", "scope": "identity", "ttl_s": 0 });
    let late = harness.admin("POST", "/tokens", &late).await.expect(201)["token"].as_str().unwrap().to_owned();
    let made = harness.admin("POST", "/tokens", &json!({ "tenant": "home", "scope": "identity" })).await.expect(201);
    let path = format!("/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(harness.admin("DELETE", &path, &Value::Null).await.status, 204);
    let revoked = made["token"].as_str().unwrap().to_owned();
    for bearer in ["", "x", &account.chat, &account.bearer(), &harness.admin.clone(), &late, &revoked] {
        harness.post("/relay/provision", bearer, &ask).await.error(401);
    }
    harness.post("/relay/provision", &account.identity, &ask).await.expect(200);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_accepted_only_from_its_gateway() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let policy = json!({ "platform": "relay", "requireAddress": true, "freeResponseScopes": ["s"], "allowOtherBots": false,
                         "newerField": 1 });
    for _ in 0..2 {
        assert_eq!(harness.post("/relay/policy", &account.bearer(), &policy).await.status, 200);
    }
    let expired = account.bearer_until(1);
    for bearer in ["", "x", &account.identity, &account.chat, &harness.admin.clone(), &expired] {
        harness.post("/relay/policy", bearer, &policy).await.error(401);
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_api_requires_the_admin_token() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("g").await;
    let operator = harness.token("home", "operator").await;
    for path in ["/tenants", "/tokens", "/gateways", "/instances", "/bindings", "/events/stream", "/journal", "/doctor"]
    {
        for bearer in ["", "x", &account.bearer(), &account.identity, &account.chat, &operator, &harness.admin[..10]] {
            let reply = harness.get(&format!("/admin/v1{path}"), bearer).await;
            assert_eq!(reply.problem(401), "unauthorized", "{path} {bearer}");
        }
    }
    let refused = harness.post("/admin/v1/tenants", "x", &json!({ "name": "sneaky" })).await;
    assert_eq!(refused.problem(401), "unauthorized");
    let tenants = harness.admin("GET", "/tenants", &Value::Null).await.expect(200);
    assert_eq!(tenants["tenants"].as_array().unwrap().len(), 1);
    assert!(harness.metric("frontdesk_requests_refused_total{why=\"unauthorized\"}").await >= 57);
    assert_eq!(harness.get("/admin/v1/nothing", &harness.admin).await.problem(404), "not_found");
    harness.finish().await;
}
