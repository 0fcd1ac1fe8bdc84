//! Identity of bearer tokens: tokens of an issuer, and accounts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use frontdesk::config::VerifierKind;
use frontdesk::env::SystemEnv;
use frontdesk_core::Env as _;
use frontdesk_core::cron::signing::{SigningKey, new_key};
use frontdesk_testkit::TestEnv;
use frontdesk_wire::cron::SigningAlg;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::harness::Harness;

const ISSUER: &str = "https://login.example";

struct Issuer {
    key: EncodingKey,
    jwks: Value,
}

impl Issuer {
    fn new(kid: &str) -> Self {
        let pkcs8 = new_key(SigningAlg::ES256).unwrap();
        let jwk = SigningKey::open(kid, SigningAlg::ES256, &pkcs8).unwrap().jwk();
        Self { key: EncodingKey::from_ec_der(&pkcs8), jwks: json!({ "keys": [jwk] }) }
    }

    fn token(&self, claims: &Value) -> String {
        let header = Header { kid: Some("k1".into()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }
}

fn now_s() -> i64 {
    jiff::Timestamp::now().as_second()
}

fn claims(more: Value) -> Value {
    let mut all = json!({ "iss": ISSUER, "aud": "frontdesk", "exp": now_s() + 600, "tid": "home" });
    for (name, value) in more.as_object().unwrap() {
        all[name] = value.clone();
    }
    all
}

async fn believing(issuer: &Issuer, folder: &std::path::Path) -> Harness {
    let file = folder.join("jwks.json");
    std::fs::write(&file, issuer.jwks.to_string()).unwrap();
    Harness::with(|config| {
        config.identity.verifier = VerifierKind::Oidc;
        config.identity.issuer = ISSUER.into();
        config.identity.audience = "frontdesk".into();
        config.identity.jwks = file.display().to_string();
    })
    .await
}

async fn listed(harness: &Harness, bearer: &str) -> u16 {
    harness.get("/api/agent-cron/list", bearer).await.status
}

#[tokio::test]
async fn an_issuers_token_names_the_tenant_by_a_claim_and_the_agent_by_its_client() {
    let (issuer, folder) = (Issuer::new("k1"), tempfile::tempdir().unwrap());
    let harness = believing(&issuer, folder.path()).await;
    for name in ["client_id", "azp"] {
        let mut one = claims(json!({}));
        one[name] = json!("agent:sleeper");
        assert_eq!(listed(&harness, &issuer.token(&one)).await, 200, "{name}");
    }
    let provision = json!({ "gatewayId": "gw", "platform": "relay" });
    let by_client = issuer.token(&claims(json!({ "client_id": "agent:sleeper" })));
    harness.post("/relay/provision", &by_client, &provision).await.expect(200);
    let response = harness.admin("GET", "/gateways/gw", &Value::Null).await.expect(200);
    assert_eq!((&response["tenant"], &response["instance"]), (&json!("home"), &json!("sleeper")));
    // A session that the operator linked to an agent.
    let by_session = issuer.token(&claims(json!({ "client_id": "cli", "sid": "s-1" })));
    assert_eq!(listed(&harness, &by_session).await, 403, "valid, but without an agent");
    let link = json!({ "platform": "session", "user_id": "s-1", "tenant": "home", "instance": "mapped" });
    harness.admin("POST", "/bindings", &link).await.expect(201);
    assert_eq!(listed(&harness, &by_session).await, 200);
    // Tokens created by the admin still work.
    let ask = json!({ "tenant": "home", "scope": "identity", "instance": "sleeper" });
    let own = harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    assert_eq!(listed(&harness, &own).await, 200);
    harness.finish().await;
}

#[tokio::test]
async fn every_other_token_of_an_issuer_is_refused() {
    let (issuer, stranger) = (Issuer::new("k1"), Issuer::new("k1"));
    let folder = tempfile::tempdir().unwrap();
    let harness = believing(&issuer, folder.path()).await;
    let agent = json!({ "client_id": "agent:sleeper" });
    for (field, value, status) in [
        ("iss", json!("https://other.example"), 401),
        ("aud", json!("somebody"), 401),
        ("exp", json!(now_s() - 600), 401),
        ("nbf", json!(now_s() + 600), 401),
        ("tid", json!("nowhere"), 403),
        ("tid", Value::Null, 403),
        ("client_id", json!("agent:"), 403),
    ] {
        let mut one = claims(agent.clone());
        one[field] = value.clone();
        assert_eq!(listed(&harness, &issuer.token(&one)).await, status, "{field} {value}");
    }
    assert_eq!(listed(&harness, &stranger.token(&claims(agent.clone()))).await, 401, "another key with the same id");
    let header = Header { kid: Some("k1".into()), ..Header::new(Algorithm::HS256) };
    let shared = encode(&header, &claims(agent), &EncodingKey::from_secret(b"k1")).unwrap();
    assert_eq!(listed(&harness, &shared).await, 401);
    harness.finish().await;
}

/// An account URL: bearer to status and body, and the number of requests.
#[derive(Default)]
struct Accounts {
    answers: Mutex<Vec<(String, u16, Value)>>,
    asked: Mutex<usize>,
}

async fn account(State(accounts): State<Arc<Accounts>>, headers: HeaderMap) -> (StatusCode, axum::Json<Value>) {
    *accounts.asked.lock().unwrap() += 1;
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known =
        accounts.answers.lock().unwrap().iter().find(|(token, ..)| bearer == format!("Bearer {token}")).cloned();
    let (_, status, body) = known.unwrap_or((String::new(), 401, json!({})));
    (StatusCode::from_u16(status).unwrap(), axum::Json(body))
}

/// The most requests that were at the account URL together.
#[derive(Default)]
struct Crowd {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// Anybody can send bearers that nobody knows, and each is one call.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_account_url_are_bounded() {
    let crowd = Arc::new(Crowd::default());
    let slow = |State(crowd): State<Arc<Crowd>>| async move {
        crowd.most.fetch_max(crowd.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        crowd.now.fetch_sub(1, Ordering::SeqCst);
        StatusCode::UNAUTHORIZED
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/me", listener.local_addr().unwrap());
    let router = Router::new().route("/me", get(slow)).with_state(crowd.clone());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let harness = Harness::with(|config| {
        config.identity.verifier = VerifierKind::Introspect;
        config.identity.url.clone_from(&url);
    })
    .await;
    let bearers: Vec<String> = (0..200).map(|number| format!("bearer-{number}")).collect();
    let all = bearers.iter().map(|bearer| listed(&harness, bearer));
    let statuses = futures_util::future::join_all(all).await;
    assert!(statuses.iter().all(|status| *status == 401), "{statuses:?}");
    let most = crowd.most.load(Ordering::SeqCst);
    assert!((2..=32).contains(&most), "{most} at a time");
    serving.abort();
    harness.finish().await;
}

#[tokio::test]
async fn an_account_is_asked_with_the_bearer_and_cached() {
    let accounts = Arc::new(Accounts::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/me", listener.local_addr().unwrap());
    let router = Router::new().route("/me", get(account)).with_state(accounts.clone());
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    *accounts.answers.lock().unwrap() = vec![
        ("good".into(), 200, json!({ "tid": "home", "client_id": "agent:sleeper" })),
        ("agentless".into(), 200, json!({ "tid": "home" })),
        ("over".into(), 200, json!({ "active": false, "tid": "home", "client_id": "agent:sleeper" })),
        ("broken".into(), 500, json!({})),
        ("throttled".into(), 429, json!({})),
        ("odd".into(), 200, json!(["tid"])),
    ];
    let clock = Arc::new(TestEnv::default());
    clock.set_ms(SystemEnv.now_ms());
    let harness = Harness::by(clock.clone(), tempfile::tempdir().unwrap(), |config| {
        config.identity.verifier = VerifierKind::Introspect;
        config.identity.url.clone_from(&url);
    })
    .await;
    for _ in 0..3 {
        assert_eq!(listed(&harness, "good").await, 200);
    }
    assert_eq!(*accounts.asked.lock().unwrap(), 1, "the response is cached");
    assert_eq!(listed(&harness, "agentless").await, 403);
    assert_eq!(listed(&harness, "over").await, 401);
    let asked = *accounts.asked.lock().unwrap();
    for _ in 0..3 {
        assert_eq!(listed(&harness, "unknown").await, 401);
    }
    assert_eq!(*accounts.asked.lock().unwrap(), asked + 1, "a refusal is remembered for a moment");
    harness.pass(&clock, 5_000).await;
    assert_eq!(listed(&harness, "unknown").await, 401);
    assert_eq!(*accounts.asked.lock().unwrap(), asked + 2);
    assert_eq!(listed(&harness, "broken").await, 503, "a failure of the account URL is not a refusal");
    assert_eq!(listed(&harness, "throttled").await, 503, "nor is one that comes from too many requests");
    accounts.answers.lock().unwrap().iter_mut().find(|it| it.0 == "throttled").unwrap().1 = 401;
    assert_eq!(listed(&harness, "throttled").await, 401, "it was not remembered");
    assert_eq!(listed(&harness, "odd").await, 503);
    serving.abort();
    let _ = serving.await; // aborted
    assert_eq!(listed(&harness, "another").await, 503);
    assert_eq!(listed(&harness, "good").await, 200, "still cached");
    // For 30 s, whatever the clock says: an account that was closed must not be accepted for hours.
    clock.set_ms(clock.now_ms() - 2 * 3_600_000);
    assert_eq!(listed(&harness, "good").await, 200);
    harness.pass(&clock, 31_000).await;
    assert_eq!(listed(&harness, "good").await, 503);
    harness.finish().await;
}
