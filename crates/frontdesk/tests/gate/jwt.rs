//! Signed words about an agent, by which a portal may manage it.

use std::sync::OnceLock;

use aws_lc_rs::hmac;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::harness::{Harness, Reply, Seat};
use crate::scene::{PLATFORM, channel, facts, facts_of, kinds, manage, managed, write};

const ISSUER: &str = "https://portal.test";
/// More than any clock is off, in either direction.
const LONG_S: u64 = 3_600;

// ---- a portal ---------------------------------------------------------------------------------

/// Whoever can sign.
struct Signer(KeyPair);

impl Signer {
    /// The portal whose keys the desk was given.
    fn portal() -> &'static Self {
        static PORTAL: OnceLock<Signer> = OnceLock::new();
        PORTAL.get_or_init(|| Self(KeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    /// Somebody else with a key that is as good.
    fn stranger() -> &'static Self {
        static STRANGER: OnceLock<Signer> = OnceLock::new();
        STRANGER.get_or_init(|| Self(KeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    fn jwk(&self) -> Value {
        let public = self.0.public_key();
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let (n, e) = (public.modulus(), public.exponent());
        json!({ "kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256",
                "n": b64(n.big_endian_without_leading_zero()), "e": b64(e.big_endian_without_leading_zero()) })
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned(header, claims);
        let mut signature = vec![0; self.0.public_modulus_len()];
        let random = aws_lc_rs::rand::SystemRandom::new();
        self.0.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let b64 = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", b64(header), b64(claims))
}

fn header() -> Value {
    json!({ "alg": "RS256", "typ": "JWT", "kid": "k1" })
}

fn claims(house: &Harness, instance: &str) -> Value {
    let now_s = house.app.desk.env().now_s();
    json!({ "iss": ISSUER, "aud": format!("agent:{instance}"), "sub": "portal", "iat": now_s, "exp": now_s + LONG_S })
}

fn with(mut base: Value, field: &str, value: Value) -> Value {
    base[field] = value;
    base
}

/// A desk that believes the portal about the agents of `tenant`, or of any where it is empty.
async fn believing(tenant: &str) -> Harness {
    let keys = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(keys.path(), json!({ "keys": [Signer::portal().jwk()] }).to_string()).unwrap();
    Harness::with(|config| {
        config.manage.jwks = keys.path().display().to_string();
        config.manage.issuer = ISSUER.into();
        config.manage.tenant = tenant.into();
    })
    .await
}

fn word_about(house: &Harness, instance: &str) -> String {
    Signer::portal().sign(&header(), &claims(house, instance))
}

/// Everything that can be asked below `/manage`, leaving last.
async fn ask_everything(house: &Harness, bearer: &str, user: &str, message_id: &str) -> Vec<(&'static str, Reply)> {
    let person = json!({ "platform": PLATFORM, "user_id": user });
    let why = format!("/manage/why?message_id={message_id}");
    vec![
        ("link", house.post("/manage/link", bearer, &json!({ "platform": PLATFORM })).await),
        ("scope", house.post("/manage/scope", bearer, &channel("room")).await),
        ("release", house.post("/manage/scope/release", bearer, &channel("room")).await),
        ("principal", house.post("/manage/principal", bearer, &json!({ "policy": "any" })).await),
        ("dm-default", house.post("/manage/dm-default", bearer, &person).await),
        ("why", house.get(&why, bearer).await),
        ("deprovision", house.post("/manage/deprovision", bearer, &json!({})).await),
    ]
}

/// None of it is let in, all in the same words, and nothing is changed by it.
async fn opens_nothing(house: &Harness, bearer: &str, user: &str, kind: &str) {
    let before = facts(house);
    for (verb, reply) in ask_everything(house, bearer, user, "m").await {
        assert_eq!(reply.status, 401, "{kind} at {verb}: {}", reply.text());
        assert_eq!(reply.error(401), "a valid bearer token is required", "{kind} at {verb}");
    }
    assert_eq!(facts(house), before, "{kind}");
}

// ---- the rules --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_word_manages_the_agent_that_it_is_about_and_no_other() {
    let house = believing("").await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let posted = write(&house, &ann, "d", "u-ann", "hi").await;
    let bobs = facts_of(&house, "home", "bob");
    let mut socket = house.socket(&ann).await;
    let word = word_about(&house, "ann");
    for (verb, reply) in ask_everything(&house, &word, "u-ann", posted["message_id"].as_str().unwrap()).await {
        let told = reply.expect(200);
        match verb {
            "link" => assert_eq!(told["code"].as_str().unwrap().len(), 9, "{told}"),
            "why" => assert_eq!(told["instances"][0]["instance"], "ann", "{told}"),
            _ => assert_eq!(told, json!({ "ok": true }), "{verb}"),
        }
        assert_eq!(facts_of(&house, "home", "bob"), bobs, "{verb}");
    }
    assert_eq!(socket.closed().await, (4401, "unauthorized".into()), "the last of them was to leave");
    assert_eq!(kinds(&facts_of(&house, "home", "ann")), ["Gateway"]);
    manage(&house, &bob, "link", json!({ "platform": PLATFORM })).await.expect(200);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_the_portal_decide_about_the_same_things() {
    let house = believing("home").await;
    let (ann, bob) = (house.seat("ann").await, house.seat("bob").await);
    let (about_ann, about_bob) = (word_about(&house, "ann"), word_about(&house, "bob"));
    house.post("/manage/scope", &about_ann, &channel("room")).await.expect(200);
    managed(&house, &ann, "scope", channel("room")).await;
    manage(&house, &bob, "scope", channel("room")).await.error(409);
    house.post("/manage/scope", &about_bob, &channel("room")).await.error(409);
    // A body that names another is not read here either.
    let mut release = channel("room");
    release["instanceId"] = json!("ann");
    house.post("/manage/scope/release", &about_bob, &release).await.error(409);
    managed(&house, &ann, "scope/release", channel("room")).await;
    house.post("/manage/scope", &about_bob, &channel("room")).await.expect(200);
    let person = json!({ "platform": PLATFORM, "user_id": "u-ann" });
    house.post("/manage/dm-default", &about_bob, &person).await.error(409);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_not_signed_by_the_portals_key_opens_nothing() {
    let house = believing("").await;
    house.seat("ann").await;
    let claims = claims(&house, "ann");
    let none = with(header(), "alg", json!("none"));
    opens_nothing(&house, &format!("{}.", unsigned(&none, &claims)), "u-ann", "alg none").await;
    opens_nothing(&house, &Signer::portal().sign(&none, &claims), "u-ann", "alg none, signed").await;
    opens_nothing(&house, &format!("{}.", unsigned(&header(), &claims)), "u-ann", "no signature").await;
    // The old trick: what everybody may know, taken as a shared secret.
    let public = Signer::portal().0.public_key();
    let jwk = Signer::portal().jwk();
    let secrets = [
        public.as_ref().to_vec(),
        public.modulus().big_endian_without_leading_zero().to_vec(),
        jwk["n"].as_str().unwrap().as_bytes().to_vec(),
        jwk.to_string().into_bytes(),
        Vec::new(),
    ];
    for secret in secrets {
        for kid in [json!("k1"), Value::Null] {
            let header = json!({ "alg": "HS256", "typ": "JWT", "kid": kid });
            let message = unsigned(&header, &claims);
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message.as_bytes());
            let word = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag));
            opens_nothing(&house, &word, "u-ann", "HS256").await;
        }
    }
    for alg in ["RS384", "RS512", "PS256", "ES256", "rs256", ""] {
        let word = Signer::portal().sign(&with(header(), "alg", json!(alg)), &claims);
        opens_nothing(&house, &word, "u-ann", alg).await;
    }
    opens_nothing(&house, &Signer::stranger().sign(&header(), &claims), "u-ann", "another key").await;
    for kid in [json!("k2"), json!(""), Value::Null, json!("../k1")] {
        let word = Signer::portal().sign(&with(header(), "kid", kid.clone()), &claims);
        opens_nothing(&house, &word, "u-ann", &format!("kid {kid}")).await;
    }
    // A key that the token brings along is nobody's.
    let own = with(header(), "jwk", Signer::stranger().jwk());
    opens_nothing(&house, &Signer::stranger().sign(&own, &claims), "u-ann", "its own key").await;
    let good = word_about(&house, "ann");
    let parts: Vec<&str> = good.split('.').collect();
    let other = URL_SAFE_NO_PAD.encode(with(claims.clone(), "sub", json!("other")).to_string());
    opens_nothing(&house, &format!("{}.{other}.{}", parts[0], parts[2]), "u-ann", "changed claims").await;
    for broken in [".", "..", "a.b", "a.b.c", &format!("{good}."), &format!("{good}.x"), &good[..good.len() - 4]] {
        opens_nothing(&house, broken, "u-ann", broken).await;
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_for_another_time_from_another_issuer_or_about_no_agent_opens_nothing() {
    let house = believing("").await;
    house.seat("ann").await;
    let now_s = house.app.desk.env().now_s();
    let changes = [
        ("iss", json!("https://other.test")),
        ("iss", json!("")),
        ("iss", Value::Null),
        ("aud", json!("ann")),
        ("aud", json!("agent:")),
        ("aud", json!("agent: ann")),
        ("aud", json!("Agent:ann")),
        ("aud", json!("user:ann")),
        ("aud", json!("agent:nobody")),
        ("aud", json!("agent:ann ")),
        ("aud", json!(["agent:ann", "agent:bob"])),
        ("aud", json!([])),
        ("aud", json!({ "agent": "ann" })),
        ("aud", Value::Null),
        ("exp", json!(now_s - LONG_S)),
        ("exp", json!(0)),
        ("exp", json!(-1)),
        ("exp", json!("tomorrow")),
        ("exp", Value::Null),
        ("nbf", json!(now_s + LONG_S)),
        ("nbf", json!("soon")),
    ];
    for (field, value) in changes {
        let claims = with(claims(&house, "ann"), field, value.clone());
        let word = Signer::portal().sign(&header(), &claims);
        opens_nothing(&house, &word, "u-ann", &format!("{field} {value}")).await;
    }
    for field in ["iss", "aud", "exp"] {
        let mut claims = claims(&house, "ann");
        claims.as_object_mut().unwrap().remove(field);
        opens_nothing(&house, &Signer::portal().sign(&header(), &claims), "u-ann", &format!("no {field}")).await;
    }
    // One audience in a list is one audience, and one that has begun has begun.
    let one = with(claims(&house, "ann"), "aud", json!(["agent:ann"]));
    let begun = with(one, "nbf", json!(now_s - 1));
    let word = Signer::portal().sign(&header(), &begun);
    house.post("/manage/scope", &word, &channel("room")).await.expect(200);
    house.finish().await;
}

/// Two tenants with an instance `twin` each; the seats of both.
async fn twins(house: &Harness) -> [Seat; 2] {
    let mut seats = Vec::new();
    for (tenant, gateway) in [("home", "h"), ("rival", "r")] {
        let seat = house.seat_in(tenant, gateway).await;
        house.namesake(tenant, "twin").await;
        let ask = json!({ "gatewayId": format!("{gateway}-twin"), "platform": PLATFORM, "instanceId": "twin" });
        let reply = house.post("/relay/provision", &seat.identity, &ask).await.expect(200);
        house.bind(tenant, &seat.user, "twin").await;
        let secret = reply["secret"].as_str().unwrap().to_owned();
        seats.push(Seat { gateway: format!("{gateway}-twin"), secret, ..seat });
    }
    seats.try_into().unwrap_or_else(|_| panic!("two tenants"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_two_tenants_use_proves_neither() {
    let house = believing("").await;
    twins(&house).await;
    for user in ["u-h", "u-r"] {
        opens_nothing(&house, &word_about(&house, "twin"), user, "twin").await;
    }
    for (name, tenant) in [("h", "home"), ("r", "rival")] {
        let before = facts_of(&house, tenant, name).len();
        house.post("/manage/scope", &word_about(&house, name), &channel("room")).await.expect(200);
        assert_eq!(facts_of(&house, tenant, name).len(), before + 1);
    }
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_one_tenant_is_configured_the_word_is_good_for_its_agents_only() {
    let house = believing("rival").await;
    let [ours, theirs] = twins(&house).await;
    let before = facts_of(&house, "home", "twin");
    let word = word_about(&house, "twin");
    house.post("/manage/scope", &word, &channel("room")).await.expect(200);
    assert_eq!(facts_of(&house, "home", "twin"), before);
    assert!(kinds(&facts_of(&house, "rival", "twin")).contains(&"Grant"));
    opens_nothing(&house, &word_about(&house, "h"), "u-h", "an agent of another tenant").await;
    house.post("/manage/deprovision", &word, &json!({})).await.expect(200);
    assert_eq!(facts_of(&house, "home", "twin"), before);
    manage(&house, &ours, "scope", channel("room")).await.expect(200);
    manage(&house, &theirs, "scope", channel("room")).await.error(401);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_tenant_that_does_not_exist_has_no_agents() {
    let house = believing("nowhere").await;
    house.seat("ann").await;
    opens_nothing(&house, &word_about(&house, "ann"), "u-ann", "no such tenant").await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_desk_that_was_given_no_keys_believes_nobody() {
    let house = Harness::open().await;
    house.seat("ann").await;
    opens_nothing(&house, &word_about(&house, "ann"), "u-ann", "no keys").await;
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_word_is_no_upgrade_token_and_no_other_token_either() {
    let house = believing("").await;
    let ann = house.seat("ann").await;
    let word = word_about(&house, "ann");
    let before = facts(&house);
    house.post("/relay/policy", &word, &json!({ "platform": PLATFORM })).await.error(401);
    let upload = house.request("POST", "/relay/media").bearer_auth(&word).header("content-type", "text/plain");
    house.send(upload.body("x")).await.error(401);
    let upload = house.request("POST", "/relay/media").bearer_auth(ann.bearer()).header("content-type", "text/plain");
    let id = house.send(upload.body("x")).await.expect(200)["id"].as_str().unwrap().to_owned();
    house.get(&format!("/relay/media/{id}"), &word).await.error(401);
    assert_eq!(house.refusal(&word).await, (4401, "unauthorized".into()));
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM });
    house.post("/relay/provision", &word, &ask).await.error(401);
    assert_eq!(house.get("/chat/v1/chats", &word).await.problem(401), "unauthorized");
    assert_eq!(house.get("/admin/v1/tenants", &word).await.problem(401), "unauthorized");
    assert_eq!(facts(&house), before);
    house.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_word_about_an_agent_that_left_opens_nothing() {
    let house = believing("").await;
    let ann = house.seat("ann").await;
    managed(&house, &ann, "deprovision", json!({})).await;
    opens_nothing(&house, &word_about(&house, "ann"), "u-ann", "it left").await;
    house.finish().await;
}
