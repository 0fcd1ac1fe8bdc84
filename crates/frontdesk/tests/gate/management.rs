//! The doors by which an agent decides about itself.

use frontdesk_wire::{Secret, token};
use serde_json::{Value, json};

use crate::harness::{Harness, Seat};
use crate::scene::{
    PLAIN, PLATFORM, answer, channel, code_of, facts, facts_of, hears, kinds, manage, managed, members, open_to_all,
    ruling, say, second_gateway, set_policy, write,
};

/// Every door that takes a body, with one that it would accept of `seat`.
fn doors(seat: &Seat) -> Vec<(&'static str, Value)> {
    vec![
        ("/manage/link", json!({ "platform": PLATFORM })),
        ("/manage/scope", channel("room")),
        ("/manage/scope/release", channel("room")),
        ("/manage/principal", json!({ "policy": "any", "allow": [] })),
        ("/manage/dm-default", json!({ "platform": PLATFORM, "user_id": seat.user })),
        ("/relay/policy", json!({ "platform": PLATFORM, "requireAddress": true })),
    ]
}

// ---- what each of them does -------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_link_code_can_be_read_aloud_is_new_every_time_and_says_until_when() {
    let house = Harness::with(|config| config.link.ttl_s = 300).await;
    let seat = house.seat("ann").await;
    let mut codes = Vec::new();
    for _ in 0..10 {
        let before_ms = house.app.desk.env().now_ms();
        let offer = manage(&house, &seat, "link", json!({ "platform": PLATFORM })).await.expect(200);
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
    let told = manage(&house, &seat, "link", json!({ "platform": "semaphore" })).await.error(400);
    assert!(told.contains("semaphore"), "{told}");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_has_only_so_many_open_codes_and_a_used_one_makes_room() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let first = code_of(&house, &ann).await;
    for _ in 1..20 {
        code_of(&house, &ann).await;
    }
    let ask = || json!({ "platform": PLATFORM });
    let told = manage(&house, &ann, "link", ask()).await.error(429);
    assert!(told.contains("20"), "{told}");
    code_of(&house, &bob).await; // nobody else is held up by that
    write(&house, &ann, "d", "newcomer", &format!("/link {first}")).await;
    code_of(&house, &ann).await;
    manage(&house, &ann, "link", ask()).await.error(429);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_claimed_twice_is_held_once_and_releasing_what_nobody_holds_is_fine() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let before = facts(&house);
    managed(&house, &ann, "scope/release", channel("room")).await;
    assert_eq!(facts(&house), before);
    managed(&house, &ann, "scope", channel("room")).await;
    let held = facts(&house);
    assert_eq!(held.len(), before.len() + 1);
    managed(&house, &ann, "scope", channel("room")).await;
    assert_eq!(facts(&house), held, "the second claim changes nothing");
    // The scope is optional where the platform has none.
    managed(&house, &ann, "scope", json!({ "platform": PLATFORM, "channel_id": "room" })).await;
    assert_eq!(facts(&house), held);
    for _ in 0..2 {
        managed(&house, &ann, "scope/release", channel("room")).await;
        assert_eq!(facts(&house), before);
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_another_agent_holds_is_a_conflict_that_names_nobody() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    managed(&house, &ann, "scope", channel("room")).await;
    let held = facts(&house);
    for verb in ["scope", "scope/release"] {
        let told = manage(&house, &bob, verb, channel("room")).await.error(409);
        for name in ["ann", "u-ann", "home", "room"] {
            assert!(!told.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == name), "{told}");
        }
        assert_eq!(facts(&house), held);
    }
    // The same name elsewhere is another channel: another scope, another tenant.
    let elsewhere = json!({ "platform": PLATFORM, "scope_id": "wing", "channel_id": "room" });
    managed(&house, &bob, "scope", elsewhere).await;
    let rival = house.seat_in("rival", "r").await;
    managed(&house, &rival, "scope", channel("room")).await;
    managed(&house, &ann, "scope/release", channel("room")).await;
    managed(&house, &bob, "scope", channel("room")).await;
    manage(&house, &ann, "scope", channel("room")).await.error(409);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_claim_a_channel_at_once_one_holds_it() {
    let house = Harness::open().await;
    let mut seats = Vec::new();
    for number in 0..8 {
        seats.push(house.seat(&format!("a{number}")).await);
    }
    let claims = seats.iter().map(|seat| manage(&house, seat, "scope", channel("room")));
    let mut answers: Vec<u16> = futures_util::future::join_all(claims).await.iter().map(|reply| reply.status).collect();
    answers.sort_unstable();
    assert_eq!(answers, [200, 409, 409, 409, 409, 409, 409, 409]);
    assert_eq!(kinds(&facts(&house)).iter().filter(|kind| **kind == "Grant").count(), 1);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_channel_of_a_shared_platform_is_claimed_only_where_our_records_route_it() {
    let house = Harness::open().await;
    let (ann, rival) = (house.seat("ann").await, house.seat_in("rival", "r").await);
    for (key, tenant) in [("guild-a", "home"), ("guild-r", "rival"), ("chat-a", "home")] {
        let route = json!({ "platform": "semaphore", "key": key, "tenant": tenant });
        house.admin("POST", "/routes", &route).await.expect(201);
    }
    let ask = |scope: &str, channel: &str| json!({ "platform": "semaphore", "scope_id": scope, "channel_id": channel });
    managed(&house, &ann, "scope", ask("guild-a", "general")).await;
    managed(&house, &ann, "scope", ask("", "chat-a")).await;
    managed(&house, &rival, "scope", ask("guild-r", "general")).await;
    let held = facts(&house);
    let foreign = manage(&house, &ann, "scope", ask("guild-r", "lounge")).await.error(403);
    let unknown = manage(&house, &ann, "scope", ask("guild-x", "lounge")).await.error(403);
    assert_eq!(foreign, unknown, "it does not tell whether somebody has it");
    manage(&house, &ann, "scope", ask("", "lounge")).await.error(403);
    // A claim cannot be smuggled in under the name of a scope that is ours.
    manage(&house, &ann, "scope", ask("guild-r", "chat-x")).await.error(403);
    assert_eq!(facts(&house), held);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_is_replaced_as_a_whole() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let principal = || {
        let of_ann = facts_of(&house, "home", "ann");
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
            managed(&house, &ann, "principal", ask.clone()).await;
            assert!(principal().contains(&format!("policy: {policy}, allow: {allow}")), "{}", principal());
        }
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relevance_policy_is_replaced_as_a_whole_for_each_platform() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let policies = || -> Vec<Value> {
        house
            .app
            .desk
            .directory()
            .read(|view| view.policies.values().map(|it| serde_json::to_value(&it.policy).unwrap()).collect())
    };
    let full = json!({ "platform": PLATFORM, "requireAddress": true, "freeResponseScopes": ["a", "b"], "allowOtherBots": true });
    let bare = json!({ "platform": PLATFORM });
    let none =
        json!({ "platform": PLATFORM, "requireAddress": false, "freeResponseScopes": [], "allowOtherBots": false });
    for (sent, kept) in [(&full, &full), (&full, &full), (&bare, &none), (&full, &full)] {
        let reply = house.post("/relay/policy", &ann.bearer(), sent).await;
        assert_eq!((reply.status, reply.json()), (200, json!({ "ok": true })));
        assert_eq!(policies(), std::slice::from_ref(kept));
    }
    let mut other = full.clone();
    other["platform"] = json!("semaphore");
    house.post("/relay/policy", &ann.bearer(), &other).await.expect(200);
    assert_eq!(policies(), [full, other], "one platform's does not replace another's");
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dm_default_needs_a_link_here_and_its_refusal_tells_nothing_about_elsewhere() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let ask = |user: &str| json!({ "platform": PLATFORM, "user_id": user });
    for _ in 0..2 {
        managed(&house, &ann, "dm-default", ask("u-ann")).await;
    }
    let kept = facts(&house);
    let linked_elsewhere = manage(&house, &ann, "dm-default", ask("u-bob")).await.error(409);
    let linked_nowhere = manage(&house, &ann, "dm-default", ask("u-eve")).await.error(409);
    assert_eq!(linked_elsewhere.replace("u-bob", "?"), linked_nowhere.replace("u-eve", "?"));
    let platform = json!({ "platform": "semaphore", "user_id": "u-ann" });
    manage(&house, &ann, "dm-default", platform).await.error(409);
    let rival = house.seat_in("rival", "r").await;
    let before = facts(&house);
    manage(&house, &rival, "dm-default", ask("u-ann")).await.error(409);
    assert_eq!(facts(&house), before);
    assert!(kept.iter().all(|fact| before.contains(fact)));
    managed(&house, &bob, "dm-default", ask("u-bob")).await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_body_says_about_who_asks_is_not_read() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let rival = house.seat_in("rival", "r").await;
    let (bobs, rivals) = (facts_of(&house, "home", "bob"), facts_of(&house, "rival", "r"));
    for (other, tenant) in [(&bob, "home"), (&rival, "rival")] {
        for (path, mut body) in doors(&ann) {
            for field in ["instanceId", "instance_id", "instance", "gatewayId", "gateway"] {
                body[field] = json!(other.gateway);
            }
            for field in ["tenant", "tenantId"] {
                body[field] = json!(tenant);
            }
            house.post(path, &ann.bearer(), &body).await.expect(200);
            assert_eq!(facts_of(&house, "home", "bob"), bobs, "{path}");
            assert_eq!(facts_of(&house, "rival", "r"), rivals, "{path}");
        }
    }
    let own = facts_of(&house, "home", "ann");
    for kind in ["Binding", "DmDefault", "Gateway", "LinkCode", "Policy", "Principal"] {
        assert!(kinds(&own).contains(&kind), "{kind} in {own:?}");
    }
    // The same in a query, and where the body is otherwise empty.
    let posted = write(&house, &bob, "d", "u-bob", "for bob").await;
    let id = posted["message_id"].as_str().unwrap();
    let path = format!("/manage/why?message_id={id}&instance=bob&instanceId=bob&tenant=home");
    let told = house.get(&path, &ann.bearer()).await.expect(200);
    assert_eq!((&told["outcome"], &told["instances"][0]["instance"]), (&json!("withheld"), &json!("ann")));
    let body = json!({ "instanceId": "bob", "instance": "bob", "gatewayId": "bob", "tenant": "home" });
    managed(&house, &ann, "deprovision", body).await;
    assert_eq!(facts_of(&house, "home", "bob"), bobs);
    manage(&house, &ann, "link", json!({ "platform": PLATFORM })).await.error(401);
    house.finish().await;
}

// ---- who may call -----------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_bearer_that_proves_no_live_gateway_opens_nothing_and_changes_nothing() {
    let house = Harness::open().await;
    let (ann, gone) = (house.seat("ann").await, house.seat("gone").await);
    house.admin("POST", "/gateways/gone/revoke", &Value::Null).await.expect(200);
    let posted = write(&house, &ann, "d", "u-ann", "hi").await;
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
        ("admin", house.admin.clone()),
        ("chat", ann.chat.clone()),
        ("identity", ann.identity.clone()),
        ("agents", house.token("home", "agents").await),
        ("operator", house.token("home", "operator").await),
    ];
    let before = facts(&house);
    let mut words = Vec::new();
    for (kind, bearer) in &bearers {
        let mut refused = Vec::new();
        for (path, body) in doors(&ann) {
            refused.push((path, house.post(path, bearer, &body).await));
        }
        refused.push(("/manage/deprovision", house.post("/manage/deprovision", bearer, &json!({})).await));
        refused.push(("/manage/why", house.get(&why, bearer).await));
        for (path, reply) in refused {
            assert_eq!(reply.status, 401, "{kind} at {path}: {}", reply.text());
            words.push(reply.error(401));
        }
        assert_eq!(facts(&house), before, "{kind}");
    }
    words.dedup();
    assert_eq!(words.len(), 1, "the same words for all: {words:?}");
    // A stranger is told so before anything is said about the body.
    house.post("/manage/scope", "x", &json!({ "nothing": true })).await.error(401);
    house.post("/relay/policy", "x", &json!({ "nothing": true })).await.error(401);
    house.finish().await;
}

// ---- leaving ----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_leaves_takes_all_its_own_and_nothing_of_anybody_else() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let twin = second_gateway(&house, &ann, "ann-2").await;
    // Another tenant has an instance of the very same name.
    let namesake = house.seat_in("rival", "r").await;
    house.namesake("rival", "ann").await;
    let ask = json!({ "gatewayId": "r-ann", "platform": PLATFORM, "instanceId": "ann" });
    let reply = house.post("/relay/provision", &namesake.identity, &ask).await.expect(200);
    let secret = reply["secret"].as_str().unwrap().to_owned();
    let namesake = Seat { gateway: "r-ann".into(), secret, user: "u-ann".into(), ..namesake };
    house.bind("rival", "u-ann", "ann").await;
    house.bind("home", "both", "bob").await;
    house.bind("home", "both", "ann").await;
    for (seat, room) in [(&ann, "room-a"), (&bob, "room-b"), (&namesake, "room-a")] {
        open_to_all(&house, seat, room).await;
        set_policy(&house, seat, json!({ "requireAddress": true })).await;
        managed(&house, seat, "dm-default", json!({ "platform": PLATFORM, "user_id": seat.user })).await;
    }
    managed(&house, &ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "both" })).await;
    let (code, bobs_code) = (code_of(&house, &ann).await, code_of(&house, &bob).await);
    let (mut socket, mut bobs) = (house.socket(&ann).await, house.socket(&bob).await);
    let mut theirs = house.socket(&namesake).await;
    let others = |house: &Harness| {
        let (mut bobs, rivals) = (facts_of(house, "home", "bob"), facts_of(house, "rival", "ann"));
        bobs.extend(rivals);
        bobs
    };
    let before = others(&house);

    managed(&house, &twin, "deprovision", json!({})).await; // whichever of its gateways asks
    assert_eq!(socket.closed().await, (4401, "unauthorized".into()));
    let left = facts_of(&house, "home", "ann");
    assert_eq!(kinds(&left), ["Gateway", "Gateway"], "only that they were: {left:?}");
    assert!(left.iter().all(|fact| fact.contains("secrets: []") && !fact.contains("revoked_ms: None")), "{left:?}");
    assert_eq!(others(&house), before);
    for seat in [&ann, &twin] {
        assert_eq!(house.refusal(&seat.bearer()).await, (4401, "unauthorized".into()));
        manage(&house, seat, "link", json!({ "platform": PLATFORM })).await.error(401);
        manage(&house, seat, "deprovision", json!({})).await.error(401);
    }

    // Its people are nobody's now, or go where else they are linked; its code is a wrong one.
    let posted = write(&house, &ann, "d", "u-ann", "anybody?").await;
    assert_eq!(ruling(&house, &posted).await, "nobody-owner/linked");
    write(&house, &ann, "d2", "both", "to the other").await;
    hears(&mut bobs, "to the other").await;
    write(&house, &ann, "d3", "newcomer", &format!("/link {code}")).await;
    assert!(answer(&house, &ann, "d3").await.contains("do not know this code"));
    write(&house, &ann, "d3", "newcomer", &format!("/link {bobs_code}")).await;
    assert!(answer(&house, &ann, "d3").await.contains("linked to bob"));
    managed(&house, &bob, "scope", channel("room-a")).await; // and its channel is free
    write(&house, &namesake, "d", "u-ann", "in the other tenant").await;
    hears(&mut theirs, "in the other tenant").await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_comes_back_begins_anew() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    open_to_all(&house, &ann, "room").await;
    managed(&house, &ann, "deprovision", json!({})).await;
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM });
    let reply = house.post("/relay/provision", &ann.identity, &ask).await.expect(200);
    let secret = reply["secret"].as_str().unwrap().to_owned();
    assert_ne!(secret, ann.secret, "never an old secret");
    let back = Seat { secret, ..ann.clone() };
    assert_eq!(kinds(&facts_of(&house, "home", "ann")), ["Gateway"]);
    assert_eq!(house.refusal(&ann.bearer()).await, (4401, "unauthorized".into()));
    manage(&house, &ann, "scope", channel("room")).await.error(401);
    let mut socket = house.socket(&back).await;
    let code = code_of(&house, &back).await;
    write(&house, &back, "d", "u-ann", &format!("/link {code}")).await;
    write(&house, &back, "d", "u-ann", "hello again").await;
    hears(&mut socket, "hello again").await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_had_not_said_hello_when_its_agent_left_never_serves() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let mut silent = house.dial(&ann.bearer()).await;
    managed(&house, &ann, "deprovision", json!({})).await;
    silent.frame(&crate::harness::hello(PLATFORM, "")).await;
    assert_eq!(silent.closed().await, (4401, "unauthorized".into()));
    assert_eq!(silent.came(), 0, "not even a descriptor");
    house.finish().await;
}

// ---- bodies -----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_json_of_the_right_shape_is_refused_in_one_form_and_changes_nothing() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let before = facts(&house);
    let send = async |path: &str, kind: Option<&str>, body: &str| {
        let mut request = house.request("POST", path).bearer_auth(ann.bearer()).body(body.to_owned());
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        house.send(request).await
    };
    for (path, body) in doors(&ann) {
        let good = body.to_string();
        for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded"), Some("application/jsonp")] {
            let told = send(path, kind, &good).await.error(415);
            assert!(told.contains("application/json"), "{path}: {told}");
        }
        for bad in ["", "{", "nonsense", "null", "[]", "5", "\"platform\"", "{}", &good[..good.len() - 1]] {
            let told = send(path, Some("application/json"), bad).await.error(400);
            assert!(!told.is_empty(), "{path} {bad}");
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
        house.post(path, &ann.bearer(), &missing).await.error(400);
    }
    for word in ["", "all", "Any", "ANY", "owner_only", "OwnerOnly", "allow"] {
        let told = manage(&house, &ann, "principal", json!({ "policy": word })).await.error(400);
        assert!(told.contains("owner-only") && told.contains("allow-list"), "it says what there is: {told}");
    }
    let which = house.get("/manage/why", &ann.bearer()).await.error(400);
    assert!(which.contains("message_id"), "{which}");
    house.get("/manage/why?message_id=", &ann.bearer()).await.error(400);
    house.get("/manage/why?message_id=never", &ann.bearer()).await.error(404);
    assert_eq!(facts(&house), before);
    // A charset does not make it another type.
    let reply = send("/manage/principal", Some("Application/JSON; charset=utf-8"), "{\"policy\":\"any\"}").await;
    assert_eq!(reply.status, 200);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_is_empty_too_long_or_unprintable_is_refused() {
    let house = Harness::open().await;
    let ann = house.seat("ann").await;
    let before = facts(&house);
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
                continue; // a platform without scopes
            }
            let (_, mut body) = doors(&ann).into_iter().find(|(door, _)| *door == path).unwrap();
            body[field] = json!(id);
            let told = house.post(path, &ann.bearer(), &body).await.error(400);
            assert!(told.contains(field), "{path}: {told}");
        }
    }
    for id in &bad {
        let ask = json!({ "policy": "allow-list", "allow": ["fine", id] });
        assert!(manage(&house, &ann, "principal", ask).await.error(400).contains("allow"));
        if id.len() < 200 {
            let path = format!(
                "/manage/why?message_id={}",
                id.replace('\n', "%0A").replace('\u{1f}', "%1F").replace('\0', "%00")
            );
            house.get(&path, &ann.bearer()).await.error(400);
        }
    }
    assert_eq!(facts(&house), before);
    managed(&house, &ann, "scope", channel(&"é".repeat(256))).await; // characters, not bytes
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_too_long_is_refused_and_what_was_in_force_stays() {
    let house = Harness::open().await;
    let (ann, team) = (house.seat("ann").await, house.seat("team").await);
    open_to_all(&house, &team, "room").await;
    let people = |count: usize| -> Vec<String> { (0..count).map(|number| format!("p{number}")).collect() };
    managed(&house, &team, "principal", json!({ "policy": "allow-list", "allow": people(9_999) })).await;
    let mut allow = people(9_999);
    allow.push("u-ann".into());
    managed(&house, &team, "principal", json!({ "policy": "allow-list", "allow": allow })).await;
    set_policy(&house, &team, json!({ "requireAddress": true, "freeResponseScopes": people(10_000) })).await;
    let before = facts(&house);

    let one_more = json!({ "policy": "any", "allow": people(10_001) });
    assert!(manage(&house, &team, "principal", one_more).await.error(400).contains("10000"));
    let scopes =
        |count: usize| json!({ "platform": PLATFORM, "requireAddress": false, "freeResponseScopes": people(count) });
    assert!(house.post("/relay/policy", &team.bearer(), &scopes(10_001)).await.error(400).contains("10000"));
    // A million of the shortest ones is a body over any limit, and is answered before its end.
    let body = format!("{{\"platform\":\"relay\",\"freeResponseScopes\":[{}\"x\"]}}", "\"x\",".repeat(1_000_000));
    let head = format!(
        "POST /relay/policy HTTP/1.1\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}",
        team.bearer(),
        body.len()
    );
    assert_eq!(house.raw(&head, body.into_bytes()).await, 413);
    assert_eq!(facts(&house), before);
    let posted = say(&house, &ann, "room", "u-ann", "not to the bot", PLAIN).await;
    assert_eq!(ruling(&house, &posted).await, "ann+owner/linked team-relevance/requireAddress");
    house.finish().await;
}

// ---- keeping ----------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn what_an_agent_decided_is_in_force_after_a_restart() {
    let first = Harness::open().await;
    let (ann, team) = (first.seat("ann").await, first.seat("team").await);
    open_to_all(&first, &team, "room").await;
    set_policy(&first, &team, json!({ "requireAddress": true })).await;
    first.bind("home", "u-ann", "team").await;
    managed(&first, &ann, "dm-default", json!({ "platform": PLATFORM, "user_id": "u-ann" })).await;
    members(&first, &ann, "club", &["u-team"]).await;
    let (open, used) = (code_of(&first, &ann).await, code_of(&first, &ann).await);
    write(&first, &ann, "d", "one", &format!("/link {used}")).await;
    let before = facts(&first);
    let folder = first.finish().await;

    let house = Harness::with(|config| config.data_dir = folder.path().join("data")).await;
    assert_eq!(facts(&house), before);
    let posted = write(&house, &ann, "d", "u-ann", "hi").await;
    assert_eq!(ruling(&house, &posted).await, "ann+owner/linked team-owner/dm-default");
    let posted = say(&house, &ann, "room", "one", "not to the bot", PLAIN).await;
    assert_eq!(ruling(&house, &posted).await, "ann+owner/linked team-relevance/requireAddress");
    let posted = say(&house, &ann, "club", "one", "let me in", PLAIN).await;
    assert_eq!(ruling(&house, &posted).await, "ann-visibility/can_see");
    write(&house, &ann, "d", "two", &format!("/link {used}")).await;
    assert!(answer(&house, &ann, "d").await.contains("already used"));
    write(&house, &ann, "d", "two", &format!("/link {open}")).await;
    assert!(answer(&house, &ann, "d").await.contains("linked to ann"));
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operator_sees_who_holds_a_channel_and_can_take_it() {
    let house = Harness::open().await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let room = json!({ "platform": "relay", "scope_id": "s", "channel_id": "room" });
    house.post("/manage/scope", &ann.bearer(), &room).await.expect(200);
    let held = house.admin("GET", "/grants?tenant=home", &Value::Null).await.expect(200);
    let one = &held["grants"][0];
    assert_eq!((&one["instance"], &one["channel_id"], &one["scope_id"]), (&json!("ann"), &json!("room"), &json!("s")));
    assert_eq!(house.admin("GET", "/grants?tenant=other", &Value::Null).await.expect(200)["grants"], json!([]));
    let mut named = room.clone();
    named["tenant"] = json!("home");
    assert_eq!(house.admin("DELETE", "/grants", &named).await.status, 204);
    assert_eq!(house.admin("DELETE", "/grants", &named).await.problem(404), "not_found");
    house.post("/manage/scope", &bob.bearer(), &room).await.expect(200);
    house.finish().await;
}
