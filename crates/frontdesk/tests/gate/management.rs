//! The routes with which an agent manages itself.

use frontdesk_core::directory::Fact;
use frontdesk_core::port::store::{Acceptance, KEYS_PER_TURN};
use frontdesk_testkit::store_suite::acceptance;
use frontdesk_wire::{Secret, token};
use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness};
use crate::scene::{
    PLAIN, PLATFORM, answer, channel, code_of, facts, facts_of, kinds, manage, managed, members, open_to_all, receives,
    ruling, say, second_gateway, set_policy, write,
};

/// Every route with a body, and a body that is valid for `account`.
fn routes_with_bodies(account: &GatewayAccount) -> Vec<(&'static str, Value)> {
    vec![
        ("/manage/link", json!({ "platform": PLATFORM })),
        ("/manage/scope", channel("room")),
        ("/manage/scope/release", channel("room")),
        ("/manage/principal", json!({ "policy": "any", "allow": [] })),
        ("/manage/dm-default", json!({ "platform": PLATFORM, "user_id": account.user })),
        ("/relay/policy", json!({ "platform": PLATFORM, "requireAddress": true })),
    ]
}

// ---- what each route does ---------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_link_code_is_readable_new_each_time_and_has_an_expiry() {
    let harness = Harness::with(|config| config.link.ttl_s = 300).await;
    let account = harness.add_gateway("ann").await;
    let mut codes = Vec::new();
    for _ in 0..10 {
        let before_ms = harness.app.desk.env().now_ms();
        let offer = manage(&harness, &account, "link", json!({ "platform": PLATFORM })).await.expect(200);
        assert_eq!(offer.as_object().unwrap().len(), 2, "{offer}");
        let left_ms = offer["expires_at"].as_u64().unwrap() - before_ms;
        assert!((300_000..=300_000 + 20_000).contains(&left_ms), "{left_ms}");
        let code = offer["code"].as_str().unwrap().to_owned();
        let (first, second) = code.split_once('-').unwrap();
        assert_eq!((first.len(), second.len()), (4, 4), "{code}");
        let clear = |letter: char| letter.is_ascii_digit() || letter.is_ascii_uppercase();
        assert!(code.chars().all(|letter| letter == '-' || (clear(letter) && !"O0I1".contains(letter))), "{code}");
        codes.push(code);
    }
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), 10);
    let response = manage(&harness, &account, "link", json!({ "platform": "semaphore" })).await.error(400);
    assert!(response.contains("semaphore"), "{response}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_codes_of_an_agent_are_limited_and_a_used_one_frees_a_slot() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let first = code_of(&harness, &ann).await;
    for _ in 1..20 {
        code_of(&harness, &ann).await;
    }
    let ask = || json!({ "platform": PLATFORM });
    let response = manage(&harness, &ann, "link", ask()).await.error(429);
    assert!(response.contains("20"), "{response}");
    code_of(&harness, &bob).await; // other agents are not affected
    write(&harness, &ann, "d", "newcomer", &format!("/link {first}")).await;
    code_of(&harness, &ann).await;
    manage(&harness, &ann, "link", ask()).await.error(429);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_and_release_are_idempotent() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let before = facts(&harness);
    managed(&harness, &ann, "scope/release", channel("room")).await;
    assert_eq!(facts(&harness), before);
    managed(&harness, &ann, "scope", channel("room")).await;
    let held = facts(&harness);
    assert_eq!(held.len(), before.len() + 1);
    managed(&harness, &ann, "scope", channel("room")).await;
    assert_eq!(facts(&harness), held, "the second claim changes nothing");
    // The scope is optional for a platform without scopes.
    managed(&harness, &ann, "scope", json!({ "platform": PLATFORM, "channel_id": "room" })).await;
    assert_eq!(facts(&harness), held);
    for _ in 0..2 {
        managed(&harness, &ann, "scope/release", channel("room")).await;
        assert_eq!(facts(&harness), before);
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_held_by_another_agent_is_a_conflict_without_its_name() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    managed(&harness, &ann, "scope", channel("room")).await;
    let held = facts(&harness);
    for verb in ["scope", "scope/release"] {
        let response = manage(&harness, &bob, verb, channel("room")).await.error(409);
        for name in ["ann", "u-ann", "home", "room"] {
            assert!(!response.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == name), "{response}");
        }
        assert_eq!(facts(&harness), held);
    }
    // The same id in another scope or tenant is another channel.
    let elsewhere = json!({ "platform": PLATFORM, "scope_id": "wing", "channel_id": "room" });
    managed(&harness, &bob, "scope", elsewhere).await;
    let rival = harness.add_gateway_in("rival", "r").await;
    managed(&harness, &rival, "scope", channel("room")).await;
    managed(&harness, &ann, "scope/release", channel("room")).await;
    managed(&harness, &bob, "scope", channel("room")).await;
    manage(&harness, &ann, "scope", channel("room")).await.error(409);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_claims_of_a_channel_one_succeeds() {
    let harness = Harness::open().await;
    let mut accounts = Vec::new();
    for number in 0..8 {
        accounts.push(harness.add_gateway(&format!("a{number}")).await);
    }
    let claims = accounts.iter().map(|account| manage(&harness, account, "scope", channel("room")));
    let mut answers: Vec<u16> = futures_util::future::join_all(claims).await.iter().map(|reply| reply.status).collect();
    answers.sort_unstable();
    assert_eq!(answers, [200, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(kinds(&facts(&harness)).iter().filter(|kind| **kind == "Grant").count(), 1);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_of_a_shared_platform_can_be_claimed_only_if_routed_to_the_tenant() {
    let harness = Harness::open().await;
    let (ann, rival) = (harness.add_gateway("ann").await, harness.add_gateway_in("rival", "r").await);
    for (key, tenant) in [("guild-a", "home"), ("guild-r", "rival"), ("chat-a", "home")] {
        let route = json!({ "platform": "semaphore", "key": key, "tenant": tenant });
        harness.admin("POST", "/routes", &route).await.expect(201);
    }
    let ask = |scope: &str, channel: &str| json!({ "platform": "semaphore", "scope_id": scope, "channel_id": channel });
    managed(&harness, &ann, "scope", ask("guild-a", "general")).await;
    managed(&harness, &ann, "scope", ask("", "chat-a")).await;
    managed(&harness, &rival, "scope", ask("guild-r", "general")).await;
    let held = facts(&harness);
    let foreign = manage(&harness, &ann, "scope", ask("guild-r", "lounge")).await.error(403);
    let unknown = manage(&harness, &ann, "scope", ask("guild-x", "lounge")).await.error(403);
    assert_eq!(foreign, unknown, "must not reveal whether it is held");
    manage(&harness, &ann, "scope", ask("", "lounge")).await.error(403);
    // An own scope in the request does not give access to a foreign channel.
    manage(&harness, &ann, "scope", ask("guild-r", "chat-x")).await.error(403);
    assert_eq!(facts(&harness), held);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_is_replaced_as_a_whole() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let principal = || {
        let of_ann = facts_of(&harness, "home", "ann");
        of_ann.into_iter().find(|fact| fact.starts_with("Principal")).unwrap_or_default()
    };
    assert_eq!(principal(), "");
    for (ask, policy, allow) in [
        (json!({ "policy": "any" }), "Any", "{}"),
        (json!({ "policy": "allow-list", "allow": ["bo", "al", "bo"] }), "AllowList", "{\"al\", \"bo\"}"),
        (json!({ "policy": "allow-list" }), "AllowList", "{}"),
        (json!({ "policy": "owner-only" }), "OwnerOnly", "{}"),
    ] {
        for _ in 0..2 {
            managed(&harness, &ann, "principal", ask.clone()).await;
            assert!(principal().contains(&format!("policy: {policy}, allow: {allow}")), "{}", principal());
        }
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relevance_policy_is_replaced_as_a_whole_for_each_platform() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let policies = || -> Vec<Value> {
        let policy = |fact| match fact {
            Fact::Policy(it) => Some(serde_json::to_value(&it.policy).unwrap()),
            _ => None,
        };
        harness.app.desk.directory().read(|view| view.facts().into_iter().filter_map(policy).collect())
    };
    let full = json!({ "platform": PLATFORM, "requireAddress": true, "freeResponseScopes": ["a", "b"], "allowOtherBots": true });
    let bare = json!({ "platform": PLATFORM });
    let none =
        json!({ "platform": PLATFORM, "requireAddress": false, "freeResponseScopes": [], "allowOtherBots": false });
    for (sent, kept) in [(&full, &full), (&full, &full), (&bare, &none), (&full, &full)] {
        let reply = harness.post("/relay/policy", &ann.bearer(), sent).await;
        assert_eq!((reply.status, reply.json()), (200, json!({ "ok": true })));
        assert_eq!(policies(), std::slice::from_ref(kept));
    }
    let mut other = full.clone();
    other["platform"] = json!("semaphore");
    harness.post("/relay/policy", &ann.bearer(), &other).await.expect(200);
    assert_eq!(policies(), [full, other], "policies are stored per platform");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dm_default_needs_a_link_and_its_refusal_reveals_no_other_tenant() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let ask = |user: &str| json!({ "platform": PLATFORM, "user_id": user });
    for _ in 0..2 {
        managed(&harness, &ann, "dm-default", ask("u-ann")).await;
    }
    let kept = facts(&harness);
    let linked_elsewhere = manage(&harness, &ann, "dm-default", ask("u-bob")).await.error(409);
    let linked_nowhere = manage(&harness, &ann, "dm-default", ask("u-eve")).await.error(409);
    assert_eq!(linked_elsewhere.replace("u-bob", "?"), linked_nowhere.replace("u-eve", "?"));
    let platform = json!({ "platform": "semaphore", "user_id": "u-ann" });
    manage(&harness, &ann, "dm-default", platform).await.error(409);
    let rival = harness.add_gateway_in("rival", "r").await;
    let before = facts(&harness);
    manage(&harness, &rival, "dm-default", ask("u-ann")).await.error(409);
    assert_eq!(facts(&harness), before);
    assert!(kept.iter().all(|fact| before.contains(fact)));
    managed(&harness, &bob, "dm-default", ask("u-bob")).await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_named_in_a_body_is_ignored() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let rival = harness.add_gateway_in("rival", "r").await;
    let (bobs, rivals) = (facts_of(&harness, "home", "bob"), facts_of(&harness, "rival", "r"));
    for (other, tenant) in [(&bob, "home"), (&rival, "rival")] {
        for (path, mut body) in routes_with_bodies(&ann) {
            for field in ["instanceId", "instance_id", "instance", "gatewayId", "gateway"] {
                body[field] = json!(other.gateway);
            }
            for field in ["tenant", "tenantId"] {
                body[field] = json!(tenant);
            }
            harness.post(path, &ann.bearer(), &body).await.expect(200);
            assert_eq!(facts_of(&harness, "home", "bob"), bobs, "{path}");
            assert_eq!(facts_of(&harness, "rival", "r"), rivals, "{path}");
        }
    }
    let own = facts_of(&harness, "home", "ann");
    for kind in ["Binding", "DmDefault", "Gateway", "LinkCode", "Policy", "Principal"] {
        assert!(kinds(&own).contains(&kind), "{kind} in {own:?}");
    }
    // The same in a query, and with an otherwise empty body.
    let posted = write(&harness, &bob, "d", "u-bob", "for bob").await;
    let id = posted["message_id"].as_str().unwrap();
    let path = format!("/manage/why?message_id={id}&instance=bob&instanceId=bob&tenant=home");
    let response = harness.get(&path, &ann.bearer()).await.expect(200);
    assert_eq!((&response["outcome"], &response["instances"][0]["instance"]), (&json!("withheld"), &json!("ann")));
    let body = json!({ "instanceId": "bob", "instance": "bob", "gatewayId": "bob", "tenant": "home" });
    managed(&harness, &ann, "deprovision", body).await;
    assert_eq!(facts_of(&harness, "home", "bob"), bobs);
    manage(&harness, &ann, "link", json!({ "platform": PLATFORM })).await.error(401);
    harness.finish().await;
}

/// Ids are not kept by tenant: a short one is the beginning of many that others got.
#[tokio::test(flavor = "multi_thread")]
async fn a_short_message_id_is_found_among_those_of_others() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let post = json!({ "text": "hi", "user_id": "u-ann", "message_id": "m" });
    harness.post("/chat/v1/chats/d/messages", &ann.chat, &post).await.expect(202);
    let others = (0..2 * KEYS_PER_TURN).map(|number| {
        let dedup = [format!("m{number}").as_bytes(), &[0x80; 16]].concat();
        Acceptance { tenant: "rival".into(), dedup, ..acceptance(number as u64, &[]) }
    });
    for batch in others.collect::<Vec<_>>().chunks(500) {
        harness.app.desk.stores().ledger.accept(batch.to_vec()).await.unwrap();
    }
    for which in ["message_id=m", "message_id=m&chat_id=d"] {
        let found = harness.get(&format!("/manage/why?{which}"), &ann.bearer()).await.expect(200);
        assert_eq!(found["instances"][0]["instance"], "ann");
    }
    harness.get("/manage/why?message_id=m&chat_id=e", &ann.bearer()).await.error(404);
    harness.finish().await;
}

// ---- authentication ---------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_bearer_is_refused_everywhere_and_changes_nothing() {
    let harness = Harness::open().await;
    let (ann, gone) = (harness.add_gateway("ann").await, harness.add_gateway("gone").await);
    harness.admin("POST", "/gateways/gone/revoke", &Value::Null).await.expect(200);
    let posted = write(&harness, &ann, "d", "u-ann", "hi").await;
    let why = format!("/manage/why?message_id={}", posted["message_id"].as_str().unwrap());
    let signed = |gateway: &str, secret: &str| token::mint(gateway, &Secret::new(secret), 0);
    let bearers = [
        ("none", String::new()),
        ("nonsense", "x".into()),
        ("three words", "a.b.c".into()),
        ("forged", signed("ann", "not the secret")),
        ("by another's secret", signed("ann", &gone.secret)),
        ("by an empty secret", signed("ann", "")),
        ("nobody's", signed("nobody", &ann.secret)),
        ("revoked", gone.bearer()),
        ("expired", ann.bearer_until(1)),
        ("the secret itself", ann.secret.clone()),
        ("admin", harness.admin.clone()),
        ("chat", ann.chat.clone()),
        ("identity", ann.identity.clone()),
        ("agents", harness.token("home", "agents").await),
        ("operator", harness.token("home", "operator").await),
    ];
    let before = facts(&harness);
    let mut words = Vec::new();
    for (kind, bearer) in &bearers {
        let mut refused = Vec::new();
        for (path, body) in routes_with_bodies(&ann) {
            refused.push((path, harness.post(path, bearer, &body).await));
        }
        refused.push(("/manage/deprovision", harness.post("/manage/deprovision", bearer, &json!({})).await));
        refused.push(("/manage/why", harness.get(&why, bearer).await));
        for (path, reply) in refused {
            assert_eq!(reply.status, 401, "{kind} at {path}: {}", reply.text());
            words.push(reply.error(401));
        }
        assert_eq!(facts(&harness), before, "{kind}");
    }
    words.dedup();
    assert_eq!(words.len(), 1, "the same text for all: {words:?}");
    // Authentication is checked before the body.
    harness.post("/manage/scope", "x", &json!({ "nothing": true })).await.error(401);
    harness.post("/relay/policy", "x", &json!({ "nothing": true })).await.error(401);
    harness.finish().await;
}

// ---- deprovision ------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn deprovision_removes_all_records_of_the_agent_and_no_others() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let twin = second_gateway(&harness, &ann, "ann-2").await;
    // Another tenant has an instance of the same name.
    let namesake = harness.add_gateway_in("rival", "r").await;
    harness.namesake("rival", "ann").await;
    let ask = json!({ "gatewayId": "r-ann", "platform": PLATFORM, "instanceId": "ann" });
    let reply = harness.post("/relay/provision", &namesake.identity, &ask).await.expect(200);
    let secret = reply["secret"].as_str().unwrap().to_owned();
    let namesake = GatewayAccount { gateway: "r-ann".into(), secret, user: "u-ann".into(), ..namesake };
    harness.bind("rival", "u-ann", "ann").await;
    harness.bind("home", "both", "bob").await;
    harness.bind("home", "both", "ann").await;
    for (account, room) in [(&ann, "room-a"), (&bob, "room-b"), (&namesake, "room-a")] {
        open_to_all(&harness, account, room).await;
        set_policy(&harness, account, json!({ "requireAddress": true })).await;
        managed(&harness, account, "dm-default", json!({ "platform": PLATFORM, "user_id": account.user })).await;
    }
    managed(&harness, &ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "both" })).await;
    let (code, bobs_code) = (code_of(&harness, &ann).await, code_of(&harness, &bob).await);
    let (mut socket, mut bobs) = (harness.socket(&ann).await, harness.socket(&bob).await);
    let mut theirs = harness.socket(&namesake).await;
    let others = |harness: &Harness| {
        let (mut bobs, rivals) = (facts_of(harness, "home", "bob"), facts_of(harness, "rival", "ann"));
        bobs.extend(rivals);
        bobs
    };
    let before = others(&harness);

    managed(&harness, &twin, "deprovision", json!({})).await; // any of its gateways can do it
    assert_eq!(socket.closed().await, (4401, "unauthorized".into()));
    let left = facts_of(&harness, "home", "ann");
    assert_eq!(kinds(&left), ["Gateway", "Gateway"], "only the revoked gateways remain: {left:?}");
    assert!(left.iter().all(|fact| fact.contains("secrets: []") && !fact.contains("revoked_ms: None")), "{left:?}");
    assert_eq!(others(&harness), before);
    for account in [&ann, &twin] {
        assert_eq!(harness.refusal(&account.bearer()).await, (4401, "unauthorized".into()));
        manage(&harness, account, "link", json!({ "platform": PLATFORM })).await.error(401);
        manage(&harness, account, "deprovision", json!({})).await.error(401);
    }

    // Its users are unlinked or go to another linked agent, and its code is invalid.
    let posted = write(&harness, &ann, "d", "u-ann", "anybody?").await;
    assert_eq!(ruling(&harness, &posted).await, "nobody-owner/linked");
    write(&harness, &ann, "d2", "both", "to the other").await;
    receives(&mut bobs, "to the other").await;
    write(&harness, &ann, "d3", "newcomer", &format!("/link {code}")).await;
    assert!(answer(&harness, &ann, "d3").await.contains("do not know this code"));
    write(&harness, &ann, "d3", "newcomer", &format!("/link {bobs_code}")).await;
    assert!(answer(&harness, &ann, "d3").await.contains("linked to bob"));
    managed(&harness, &bob, "scope", channel("room-a")).await; // its channel is free again
    write(&harness, &namesake, "d", "u-ann", "in the other tenant").await;
    receives(&mut theirs, "in the other tenant").await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_returns_starts_without_old_records() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    open_to_all(&harness, &ann, "room").await;
    managed(&harness, &ann, "deprovision", json!({})).await;
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM });
    let reply = harness.post("/relay/provision", &ann.identity, &ask).await.expect(200);
    let secret = reply["secret"].as_str().unwrap().to_owned();
    assert_ne!(secret, ann.secret, "an old secret must not be reused");
    let back = GatewayAccount { secret, ..ann.clone() };
    assert_eq!(kinds(&facts_of(&harness, "home", "ann")), ["Gateway"]);
    assert_eq!(harness.refusal(&ann.bearer()).await, (4401, "unauthorized".into()));
    manage(&harness, &ann, "scope", channel("room")).await.error(401);
    let mut socket = harness.socket(&back).await;
    let code = code_of(&harness, &back).await;
    write(&harness, &back, "d", "u-ann", &format!("/link {code}")).await;
    write(&harness, &back, "d", "u-ann", "hello again").await;
    receives(&mut socket, "hello again").await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_without_hello_at_deprovision_never_serves() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let mut silent = harness.dial(&ann.bearer()).await;
    managed(&harness, &ann, "deprovision", json!({})).await;
    silent.frame(&crate::harness::hello(PLATFORM, "")).await;
    assert_eq!(silent.closed().await, (4401, "unauthorized".into()));
    assert_eq!(silent.came(), 0, "not even a descriptor");
    harness.finish().await;
}

// ---- bodies -----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn invalid_bodies_are_refused_in_one_form_and_change_nothing() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let before = facts(&harness);
    let send = async |path: &str, kind: Option<&str>, body: &str| {
        let mut request = harness.request("POST", path).bearer_auth(ann.bearer()).body(body.to_owned());
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        harness.send(request).await
    };
    for (path, body) in routes_with_bodies(&ann) {
        let good = body.to_string();
        for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonp")] {
            let response = send(path, kind, &good).await.error(415);
            assert!(response.contains("application/json"), "{path}: {response}");
        }
        for bad in ["", "{", "nonsense", "null", "[]", "5", "\"platform\"", "{}", &good[..good.len() - 1]] {
            let response = send(path, Some("application/json"), bad).await.error(400);
            assert!(!response.is_empty(), "{path} {bad}");
        }
        for (field, _) in body.as_object().unwrap() {
            for value in [json!(5), json!({})] {
                let mut wrong = body.clone();
                wrong[field] = value;
                send(path, Some("application/json"), &wrong.to_string()).await.error(400);
            }
        }
    }
    for (path, missing) in [
        ("/manage/link", json!({ "x": 1 })),
        ("/manage/scope", json!({ "platform": PLATFORM })),
        ("/manage/scope", json!({ "channel_id": "room" })),
        ("/manage/scope/release", json!({ "platform": PLATFORM })),
        ("/manage/principal", json!({ "allow": ["x"] })),
        ("/manage/dm-default", json!({ "platform": PLATFORM })),
        ("/manage/dm-default", json!({ "user_id": "u-ann" })),
        ("/relay/policy", json!({ "requireAddress": true })),
    ] {
        harness.post(path, &ann.bearer(), &missing).await.error(400);
    }
    for word in ["", "all", "Any", "ANY", "owner_only", "OwnerOnly", "allow"] {
        let response = manage(&harness, &ann, "principal", json!({ "policy": word })).await.error(400);
        assert!(
            response.contains("owner-only") && response.contains("allow-list"),
            "the refusal lists the valid values: {response}"
        );
    }
    let which = harness.get("/manage/why", &ann.bearer()).await.error(400);
    assert!(which.contains("message_id"), "{which}");
    harness.get("/manage/why?message_id=", &ann.bearer()).await.error(400);
    harness.get("/manage/why?message_id=never", &ann.bearer()).await.error(404);
    assert_eq!(facts(&harness), before);
    // A charset parameter is allowed.
    let reply = send("/manage/principal", Some("Application/JSON; charset=utf-8"), "{\"policy\":\"any\"}").await;
    assert_eq!(reply.status, 200);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_empty_too_long_or_unprintable_is_refused() {
    let harness = Harness::open().await;
    let ann = harness.add_gateway("ann").await;
    let before = facts(&harness);
    let fields = [
        ("/manage/link", "platform"),
        ("/manage/scope", "platform"),
        ("/manage/scope", "scope_id"),
        ("/manage/scope", "channel_id"),
        ("/manage/scope/release", "platform"),
        ("/manage/scope/release", "scope_id"),
        ("/manage/scope/release", "channel_id"),
        ("/manage/dm-default", "platform"),
        ("/manage/dm-default", "user_id"),
        ("/relay/policy", "platform"),
    ];
    let bad = [String::new(), "x".repeat(257), "é".repeat(257), "a\nb".into(), "a\u{1f}b".into(), "\0".into()];
    for (path, field) in fields {
        for id in &bad {
            if field == "scope_id" && id.is_empty() {
                continue; // scopes are optional
            }
            let (_, mut body) = routes_with_bodies(&ann).into_iter().find(|(door, _)| *door == path).unwrap();
            body[field] = json!(id);
            let response = harness.post(path, &ann.bearer(), &body).await.error(400);
            assert!(response.contains(field), "{path}: {response}");
        }
    }
    for id in &bad {
        let ask = json!({ "policy": "allow-list", "allow": ["fine", id] });
        assert!(manage(&harness, &ann, "principal", ask).await.error(400).contains("allow"));
        if id.len() < 200 {
            let path = format!(
                "/manage/why?message_id={}",
                id.replace('\n', "%0A").replace('\u{1f}', "%1F").replace('\0', "%00")
            );
            harness.get(&path, &ann.bearer()).await.error(400);
        }
    }
    assert_eq!(facts(&harness), before);
    managed(&harness, &ann, "scope", channel(&"é".repeat(256))).await; // characters, not bytes
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_too_long_is_refused_and_the_previous_one_stays() {
    let harness = Harness::open().await;
    let (ann, team) = (harness.add_gateway("ann").await, harness.add_gateway("team").await);
    open_to_all(&harness, &team, "room").await;
    let people = |count: usize| -> Vec<String> { (0..count).map(|number| format!("p{number}")).collect() };
    managed(&harness, &team, "principal", json!({ "policy": "allow-list", "allow": people(9_999) })).await;
    let mut allow = people(9_999);
    allow.push("u-ann".into());
    managed(&harness, &team, "principal", json!({ "policy": "allow-list", "allow": allow })).await;
    set_policy(&harness, &team, json!({ "requireAddress": true, "freeResponseScopes": people(10_000) })).await;
    let before = facts(&harness);

    let one_more = json!({ "policy": "any", "allow": people(10_001) });
    assert!(manage(&harness, &team, "principal", one_more).await.error(400).contains("10000"));
    let scopes =
        |count: usize| json!({ "platform": PLATFORM, "requireAddress": false, "freeResponseScopes": people(count) });
    assert!(harness.post("/relay/policy", &team.bearer(), &scopes(10_001)).await.error(400).contains("10000"));
    // A million short entries are a body over any limit, which is refused before its end.
    let body = format!("{{\"platform\":\"relay\",\"freeResponseScopes\":[{}\"x\"]}}", "\"x\",".repeat(1_000_000));
    let head = format!(
        "POST /relay/policy HTTP/1.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}",
        team.bearer(),
        body.len()
    );
    assert_eq!(harness.raw(&head, body.into_bytes()).await, 413);
    assert_eq!(facts(&harness), before);
    let posted = say(&harness, &ann, "room", "u-ann", "not to the bot", PLAIN).await;
    assert_eq!(ruling(&harness, &posted).await, "ann+owner/linked team-relevance/requireAddress");
    harness.finish().await;
}

// ---- persistence ------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_an_agent_survive_a_restart() {
    let first = Harness::open().await;
    let (ann, team) = (first.add_gateway("ann").await, first.add_gateway("team").await);
    open_to_all(&first, &team, "room").await;
    set_policy(&first, &team, json!({ "requireAddress": true })).await;
    first.bind("home", "u-ann", "team").await;
    managed(&first, &ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    members(&first, &ann, "club", &["u-team"]).await;
    let (open, used) = (code_of(&first, &ann).await, code_of(&first, &ann).await);
    write(&first, &ann, "d", "one", &format!("/link {used}")).await;
    let before = facts(&first);
    let folder = first.finish().await;

    let harness = Harness::with(|config| config.data_dir = folder.path().join("data")).await;
    assert_eq!(facts(&harness), before);
    let posted = write(&harness, &ann, "d", "u-ann", "hi").await;
    assert_eq!(ruling(&harness, &posted).await, "ann+owner/linked team-owner/dm-default");
    let posted = say(&harness, &ann, "room", "one", "not to the bot", PLAIN).await;
    assert_eq!(ruling(&harness, &posted).await, "ann+owner/linked team-relevance/requireAddress");
    let posted = say(&harness, &ann, "club", "one", "let me in", PLAIN).await;
    assert_eq!(ruling(&harness, &posted).await, "ann-visibility/can_see");
    write(&harness, &ann, "d", "two", &format!("/link {used}")).await;
    assert!(answer(&harness, &ann, "d").await.contains("already used"));
    write(&harness, &ann, "d", "two", &format!("/link {open}")).await;
    assert!(answer(&harness, &ann, "d").await.contains("linked to ann"));
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_lists_grants_and_can_remove_them() {
    let harness = Harness::open().await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let room = json!({ "platform": "relay", "scope_id": "s", "channel_id": "room" });
    harness.post("/manage/scope", &ann.bearer(), &room).await.expect(200);
    let held = harness.admin("GET", "/grants?tenant=home", &Value::Null).await.expect(200);
    let one = &held["grants"][0];
    assert_eq!((&one["instance"], &one["channel_id"], &one["scope_id"]), (&json!("ann"), &json!("room"), &json!("s")));
    assert_eq!(harness.admin("GET", "/grants?tenant=other", &Value::Null).await.expect(200)["grants"], json!([]));
    let mut named = room.clone();
    named["tenant"] = json!("home");
    assert_eq!(harness.admin("DELETE", "/grants", &named).await.status, 204);
    assert_eq!(harness.admin("DELETE", "/grants", &named).await.problem(404), "not_found");
    harness.post("/manage/scope", &bob.bearer(), &room).await.expect(200);
    harness.finish().await;
}
