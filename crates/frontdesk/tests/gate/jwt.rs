//! JWTs about an agent, with which a portal can manage it.

use std::sync::OnceLock;

use aws_lc_rs::hmac;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::harness::{GatewayAccount, Harness, Reply};
use crate::scene::{PLATFORM, channel, facts, facts_of, kinds, manage, managed, write};

const ISSUER: &str = "https://portal.test";
/// More than the tolerated clock difference.
const LONG_S: u64 = 3_600;

// ---- a portal ---------------------------------------------------------------------------------

/// A key pair that signs tokens.
struct Signer(KeyPair);

impl Signer {
    /// The portal whose keys are configured.
    fn portal() -> &'static Self {
        static PORTAL: OnceLock<Signer> = OnceLock::new();
        PORTAL.get_or_init(|| Self(KeyPair::generate(KeySize::Rsa2048).unwrap()))
    }

    /// Another signer with a valid key that is not configured.
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

fn claims(harness: &Harness, instance: &str) -> Value {
    let now_s = harness.app.desk.env().now_s();
    json!({ "iss": ISSUER, "aud": format!("agent:{instance}"), "sub": "portal", "iat": now_s, "exp": now_s + LONG_S })
}

fn with(mut base: Value, field: &str, value: Value) -> Value {
    base[field] = value;
    base
}

/// A server that accepts tokens of the portal about agents of `tenant`, or of any tenant if it is empty.
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

fn token_about(harness: &Harness, instance: &str) -> String {
    Signer::portal().sign(&header(), &claims(harness, instance))
}

/// Every request under `/manage`; deprovision is the last.
async fn ask_everything(harness: &Harness, bearer: &str, user: &str, message_id: &str) -> Vec<(&'static str, Reply)> {
    let person = json!({ "platform": PLATFORM, "user_id": user });
    let why = format!("/manage/why?message_id={message_id}");
    vec![
        ("link", harness.post("/manage/link", bearer, &json!({ "platform": PLATFORM })).await),
        ("scope", harness.post("/manage/scope", bearer, &channel("room")).await),
        ("release", harness.post("/manage/scope/release", bearer, &channel("room")).await),
        ("principal", harness.post("/manage/principal", bearer, &json!({ "policy": "any" })).await),
        ("dm-default", harness.post("/manage/dm-default", bearer, &person).await),
        ("why", harness.get(&why, bearer).await),
        ("deprovision", harness.post("/manage/deprovision", bearer, &json!({})).await),
    ]
}

/// All requests are refused with the same text, and nothing changes.
async fn is_refused_everywhere(harness: &Harness, bearer: &str, user: &str, kind: &str) {
    let before = facts(harness);
    for (verb, reply) in ask_everything(harness, bearer, user, "m").await {
        assert_eq!(reply.status, 401, "{kind} at {verb}: {}", reply.text());
        assert_eq!(reply.error(401), "a valid bearer token is required", "{kind} at {verb}");
    }
    assert_eq!(facts(harness), before, "{kind}");
}

// ---- the rules --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn a_token_manages_only_the_agent_that_it_names() {
    let harness = believing("").await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let posted = write(&harness, &ann, "d", "u-ann", "hi").await;
    let bobs = facts_of(&harness, "home", "bob");
    let mut socket = harness.socket(&ann).await;
    let token = token_about(&harness, "ann");
    for (verb, reply) in ask_everything(&harness, &token, "u-ann", posted["message_id"].as_str().unwrap()).await {
        let response = reply.expect(200);
        match verb {
            "link" => assert_eq!(response["code"].as_str().unwrap().len(), 9, "{response}"),
            "why" => assert_eq!(response["instances"][0]["instance"], "ann", "{response}"),
            _ => assert_eq!(response, json!({ "ok": true }), "{verb}"),
        }
        assert_eq!(facts_of(&harness, "home", "bob"), bobs, "{verb}");
    }
    assert_eq!(socket.closed().await, (4401, "unauthorized".into()), "the last request was deprovision");
    assert_eq!(kinds(&facts_of(&harness, "home", "ann")), ["Gateway"]);
    manage(&harness, &bob, "link", json!({ "platform": PLATFORM })).await.expect(200);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_and_the_portal_change_the_same_settings() {
    let harness = believing("home").await;
    let (ann, bob) = (harness.add_gateway("ann").await, harness.add_gateway("bob").await);
    let (about_ann, about_bob) = (token_about(&harness, "ann"), token_about(&harness, "bob"));
    harness.post("/manage/scope", &about_ann, &channel("room")).await.expect(200);
    managed(&harness, &ann, "scope", channel("room")).await;
    manage(&harness, &bob, "scope", channel("room")).await.error(409);
    harness.post("/manage/scope", &about_bob, &channel("room")).await.error(409);
    // An instance named in a body is ignored here, too.
    let mut release = channel("room");
    release["instanceId"] = json!("ann");
    harness.post("/manage/scope/release", &about_bob, &release).await.error(409);
    managed(&harness, &ann, "scope/release", channel("room")).await;
    harness.post("/manage/scope", &about_bob, &channel("room")).await.expect(200);
    let person = json!({ "platform": PLATFORM, "user_id": "u-ann" });
    harness.post("/manage/dm-default", &about_bob, &person).await.error(409);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_not_signed_by_the_portals_key_is_refused() {
    let harness = believing("").await;
    harness.add_gateway("ann").await;
    let claims = claims(&harness, "ann");
    let none = with(header(), "alg", json!("none"));
    is_refused_everywhere(&harness, &format!("{}.", unsigned(&none, &claims)), "u-ann", "alg none").await;
    is_refused_everywhere(&harness, &Signer::portal().sign(&none, &claims), "u-ann", "alg none, signed").await;
    is_refused_everywhere(&harness, &format!("{}.", unsigned(&header(), &claims)), "u-ann", "no signature").await;
    // Algorithm confusion: the public key used as an HMAC secret.
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
            let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag));
            is_refused_everywhere(&harness, &token, "u-ann", "HS256").await;
        }
    }
    for alg in ["RS384", "RS512", "PS256", "ES256", "rs256", ""] {
        let token = Signer::portal().sign(&with(header(), "alg", json!(alg)), &claims);
        is_refused_everywhere(&harness, &token, "u-ann", alg).await;
    }
    is_refused_everywhere(&harness, &Signer::stranger().sign(&header(), &claims), "u-ann", "another key").await;
    for kid in [json!("k2"), json!(""), Value::Null, json!("../k1")] {
        let token = Signer::portal().sign(&with(header(), "kid", kid.clone()), &claims);
        is_refused_everywhere(&harness, &token, "u-ann", &format!("kid {kid}")).await;
    }
    // A key inside the token is ignored.
    let own = with(header(), "jwk", Signer::stranger().jwk());
    is_refused_everywhere(&harness, &Signer::stranger().sign(&own, &claims), "u-ann", "its own key").await;
    let good = token_about(&harness, "ann");
    let parts: Vec<&str> = good.split('.').collect();
    let other = URL_SAFE_NO_PAD.encode(with(claims.clone(), "sub", json!("other")).to_string());
    is_refused_everywhere(&harness, &format!("{}.{other}.{}", parts[0], parts[2]), "u-ann", "changed claims").await;
    for broken in [".", "..", "a.b", "a.b.c", &format!("{good}."), &format!("{good}.x"), &good[..good.len() - 4]] {
        is_refused_everywhere(&harness, broken, "u-ann", broken).await;
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_wrong_time_issuer_or_audience_is_refused() {
    let harness = believing("").await;
    harness.add_gateway("ann").await;
    let now_s = harness.app.desk.env().now_s();
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
        let claims = with(claims(&harness, "ann"), field, value.clone());
        let token = Signer::portal().sign(&header(), &claims);
        is_refused_everywhere(&harness, &token, "u-ann", &format!("{field} {value}")).await;
    }
    for field in ["iss", "aud", "exp"] {
        let mut claims = claims(&harness, "ann");
        claims.as_object_mut().unwrap().remove(field);
        is_refused_everywhere(&harness, &Signer::portal().sign(&header(), &claims), "u-ann", &format!("no {field}"))
            .await;
    }
    // A list with one audience is accepted, and so is a token whose `nbf` has passed.
    let one = with(claims(&harness, "ann"), "aud", json!(["agent:ann"]));
    let begun = with(one, "nbf", json!(now_s - 1));
    let token = Signer::portal().sign(&header(), &begun);
    harness.post("/manage/scope", &token, &channel("room")).await.expect(200);
    harness.finish().await;
}

/// Two tenants with an instance `twin` each; the gateways of both.
async fn twins(harness: &Harness) -> [GatewayAccount; 2] {
    let mut accounts = Vec::new();
    for (tenant, gateway) in [("home", "h"), ("rival", "r")] {
        let account = harness.add_gateway_in(tenant, gateway).await;
        harness.namesake(tenant, "twin").await;
        let ask = json!({ "gatewayId": format!("{gateway}-twin"), "platform": PLATFORM, "instanceId": "twin" });
        let reply = harness.post("/relay/provision", &account.identity, &ask).await.expect(200);
        harness.bind(tenant, &account.user, "twin").await;
        let secret = reply["secret"].as_str().unwrap().to_owned();
        accounts.push(GatewayAccount { gateway: format!("{gateway}-twin"), secret, ..account });
    }
    accounts.try_into().unwrap_or_else(|_| panic!("two tenants"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_used_in_two_tenants_is_refused() {
    let harness = believing("").await;
    twins(&harness).await;
    for user in ["u-h", "u-r"] {
        is_refused_everywhere(&harness, &token_about(&harness, "twin"), user, "twin").await;
    }
    for (name, tenant) in [("h", "home"), ("r", "rival")] {
        let before = facts_of(&harness, tenant, name).len();
        harness.post("/manage/scope", &token_about(&harness, name), &channel("room")).await.expect(200);
        assert_eq!(facts_of(&harness, tenant, name).len(), before + 1);
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_configured_tenant_only_its_agents_are_accepted() {
    let harness = believing("rival").await;
    let [ours, theirs] = twins(&harness).await;
    let before = facts_of(&harness, "home", "twin");
    let token = token_about(&harness, "twin");
    harness.post("/manage/scope", &token, &channel("room")).await.expect(200);
    assert_eq!(facts_of(&harness, "home", "twin"), before);
    assert!(kinds(&facts_of(&harness, "rival", "twin")).contains(&"Grant"));
    is_refused_everywhere(&harness, &token_about(&harness, "h"), "u-h", "an agent of another tenant").await;
    harness.post("/manage/deprovision", &token, &json!({})).await.expect(200);
    assert_eq!(facts_of(&harness, "home", "twin"), before);
    manage(&harness, &ours, "scope", channel("room")).await.expect(200);
    manage(&harness, &theirs, "scope", channel("room")).await.error(401);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_tenant_that_does_not_exist_has_no_agents() {
    let harness = believing("nowhere").await;
    harness.add_gateway("ann").await;
    is_refused_everywhere(&harness, &token_about(&harness, "ann"), "u-ann", "no such tenant").await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_configured_keys_every_token_is_refused() {
    let harness = Harness::open().await;
    harness.add_gateway("ann").await;
    is_refused_everywhere(&harness, &token_about(&harness, "ann"), "u-ann", "no keys").await;
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_about_an_agent_is_not_accepted_as_any_other_token() {
    let harness = believing("").await;
    let ann = harness.add_gateway("ann").await;
    let token = token_about(&harness, "ann");
    let before = facts(&harness);
    harness.post("/relay/policy", &token, &json!({ "platform": PLATFORM })).await.error(401);
    let upload = harness.request("POST", "/relay/media").bearer_auth(&token).header("content-type", "text/plain");
    harness.send(upload.body("x")).await.error(401);
    let upload = harness.request("POST", "/relay/media").bearer_auth(ann.bearer()).header("content-type", "text/plain");
    let id = harness.send(upload.body("x")).await.expect(200)["id"].as_str().unwrap().to_owned();
    harness.get(&format!("/relay/media/{id}"), &token).await.error(401);
    assert_eq!(harness.refusal(&token).await, (4401, "unauthorized".into()));
    let ask = json!({ "gatewayId": "ann", "platform": PLATFORM });
    harness.post("/relay/provision", &token, &ask).await.error(401);
    assert_eq!(harness.get("/chat/v1/chats", &token).await.problem(401), "unauthorized");
    assert_eq!(harness.get("/admin/v1/tenants", &token).await.problem(401), "unauthorized");
    assert_eq!(facts(&harness), before);
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_about_a_deprovisioned_agent_is_refused() {
    let harness = believing("").await;
    let ann = harness.add_gateway("ann").await;
    managed(&harness, &ann, "deprovision", json!({})).await;
    is_refused_everywhere(&harness, &token_about(&harness, "ann"), "u-ann", "it left").await;
    harness.finish().await;
}
