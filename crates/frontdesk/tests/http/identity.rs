//! Who stands behind a bearer: an issuer's tokens, and an account that is asked.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::get;
use frontdesk::config::VerifierKind;
use frontdesk_core::cron::signing::{SigningKey, new_key};
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

async fn listed(house: &Harness, bearer: &str) -> u16 {
    house.get("/api/agent-cron/list", bearer).await.status
}

#[tokio::test]
async fn an_issuers_token_names_the_tenant_by_a_claim_and_the_agent_by_its_client() {
    let (issuer, folder) = (Issuer::new("k1"), tempfile::tempdir().unwrap());
    let house = believing(&issuer, folder.path()).await;
    for name in ["client_id", "azp"] {
        let mut one = claims(json!({}));
        one[name] = json!("agent:sleeper");
        assert_eq!(listed(&house, &issuer.token(&one)).await, 200, "{name}");
    }
    let provision = json!({ "gatewayId": "gw", "platform": "relay" });
    let by_client = issuer.token(&claims(json!({ "client_id": "agent:sleeper" })));
    house.post("/relay/provision", &by_client, &provision).await.expect(200);
    let told = house.admin("GET", "/gateways/gw", &Value::Null).await.expect(200);
    assert_eq!((&told["tenant"], &told["instance"]), (&json!("home"), &json!("sleeper")));
    // A session that the operator mapped to an agent.
    let by_session = issuer.token(&claims(json!({ "client_id": "cli", "sid": "s-1" })));
    assert_eq!(listed(&house, &by_session).await, 403, "known, and no agent's");
    let link = json!({ "platform": "session", "user_id": "s-1", "tenant": "home", "instance": "mapped" });
    house.admin("POST", "/bindings", &link).await.expect(201);
    assert_eq!(listed(&house, &by_session).await, 200);
    // Tokens that the admin made work beside it.
    let ask = json!({ "tenant": "home", "scope": "identity", "instance": "sleeper" });
    let own = house.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned();
    assert_eq!(listed(&house, &own).await, 200);
    house.finish().await;
}

#[tokio::test]
async fn everything_else_of_an_issuer_is_nobody() {
    let (issuer, stranger) = (Issuer::new("k1"), Issuer::new("k1"));
    let folder = tempfile::tempdir().unwrap();
    let house = believing(&issuer, folder.path()).await;
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
        assert_eq!(listed(&house, &issuer.token(&one)).await, status, "{field} {value}");
    }
    assert_eq!(listed(&house, &stranger.token(&claims(agent.clone()))).await, 401, "another key of the same id");
    let header = Header { kid: Some("k1".into()), ..Header::new(Algorithm::HS256) };
    let shared = encode(&header, &claims(agent), &EncodingKey::from_secret(b"k1")).unwrap();
    assert_eq!(listed(&house, &shared).await, 401);
    house.finish().await;
}

/// An account URL: bearer to status and body, and how often it was asked.
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

#[tokio::test]
async fn an_account_is_asked_with_the_bearer_and_believed_for_a_while() {
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
        ("odd".into(), 200, json!(["tid"])),
    ];
    let house = Harness::with(|config| {
        config.identity.verifier = VerifierKind::Introspect;
        config.identity.url.clone_from(&url);
    })
    .await;
    for _ in 0..3 {
        assert_eq!(listed(&house, "good").await, 200);
    }
    assert_eq!(*accounts.asked.lock().unwrap(), 1, "what it said is remembered");
    assert_eq!(listed(&house, "agentless").await, 403);
    assert_eq!(listed(&house, "over").await, 401);
    assert_eq!(listed(&house, "unknown").await, 401);
    assert_eq!(listed(&house, "broken").await, 503, "not the bearer's fault");
    assert_eq!(listed(&house, "odd").await, 503);
    serving.abort();
    let _ = serving.await; // aborted
    assert_eq!(listed(&house, "another").await, 503);
    assert_eq!(listed(&house, "good").await, 200, "still remembered");
    house.finish().await;
}
