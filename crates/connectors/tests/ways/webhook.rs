//! The webhook connector: requests, signatures, responses and failures.

use std::sync::Arc;

use frontdesk_connectors::HttpWebhook;
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::outcall::{Call, HttpAnswer, Outcall, OutcallError};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::conformance::agent_connector::{augment, template};
use frontdesk_wire::agents::{AgentConnector, AgentStatus, Class, ConnectorSpec, DeliveryReceipt, Fault, WakeOpts};
use serde_json::json;

use crate::web::{Near, Says, Site, says};

fn opened(spec: serde_json::Value) -> Result<HttpWebhook, Fault> {
    let mut spec = spec;
    spec["type"] = "webhook".into();
    let spec: ConnectorSpec = serde_json::from_value(spec).unwrap();
    HttpWebhook::open("ann", &spec, Arc::new(TestEnv::default()), Arc::new(Near))
}

fn to(site: &Site) -> HttpWebhook {
    opened(json!({ "url": site.url })).unwrap()
}

async fn fault_of(hook: &HttpWebhook) -> Fault {
    hook.deliver("ann", &augment("d-1", "hi")).await.unwrap_err()
}

fn cause(fault: &Fault) -> &str {
    assert_eq!(fault.class, Class::DeliveryFailedError, "{fault}");
    assert_eq!(fault.fields["agent_id"], "ann");
    fault.fields["cause_kind"].as_str().unwrap()
}

/// The exact body, with a signature computed by another implementation (Python's hmac).
#[tokio::test]
async fn rule_13_the_exact_body_is_signed_and_the_authorization_is_verbatim() {
    const BODY: &str = r#"{"agent_id":"ann","kind":"augment","content":"grüße","meta":{"dispatch_id":"d-1","sent_at":1700000000000,"origin":{"skill_name":"watcher","trigger_kind":"cron"}}}"#;
    const SIGNATURE: &str = "sha256=dd150fdeab4b39612d6f9cf2470b023c9ee4ee754162be19febf326dac20496d";
    let site = Site::open(says(200, "")).await;
    let spec = json!({ "url": site.url, "hmac_secret": "s3cret ä", "authorization": "Token  a=b, c" });
    opened(spec).unwrap().deliver("ann", &augment("d-1", "grüße")).await.unwrap();
    let asked = site.last();
    assert_eq!(asked.line, "POST /hook HTTP/1.1");
    assert_eq!(String::from_utf8(asked.body.clone()).unwrap(), BODY);
    assert_eq!(asked.header("x-signature"), Some(SIGNATURE));
    assert_eq!(asked.header("authorization"), Some("Token  a=b, c"));
    // Without secrets no such header is sent.
    to(&site).deliver("ann", &template("d-2", "do it")).await.unwrap();
    let asked = site.last();
    assert_eq!((asked.header("x-signature"), asked.header("authorization")), (None, None));
    assert_eq!((&asked.json()["kind"], &asked.json()["prompt"]), (&json!("template"), &json!("do it")));
    assert_eq!(asked.json().get("content"), None);
}

#[tokio::test]
async fn a_receipt_is_read_from_the_response() {
    let site = Site::open(says(200, "")).await;
    let ours = DeliveryReceipt { delivered_at: TestEnv::START_MS, ..DeliveryReceipt::default() };
    let id = |id: &str| DeliveryReceipt { delivery_id: Some(id.into()), ..ours.clone() };
    let full =
        r#"{"delivered_at":5,"delivery_id":"x","id":"y","delivery_skipped":true,"warnings":["w",3],"session_id":"s"}"#;
    let read = DeliveryReceipt {
        delivered_at: 5,
        delivery_id: Some("x".into()),
        session_id: Some("s".into()),
        delivery_skipped: true,
        warnings: vec!["w".into()],
    };
    for (answer, receipt) in [
        ("", ours.clone()),
        ("ok", ours.clone()),
        ("[1]", ours.clone()),
        ("null", ours.clone()),
        ("{\"delivered_at\":", ours.clone()),
        (r#"{"delivered_at":"soon","delivery_id":7,"warnings":"w","session_id":null}"#, ours.clone()),
        (r#"{"delivered_at":-1,"delivery_skipped":"yes"}"#, ours.clone()),
        (r#"{"delivered_at":1700.75}"#, DeliveryReceipt { delivered_at: 1700, ..ours.clone() }),
        (r#"{"id":"m-1"}"#, id("m-1")),
        (r#"{"ok":true,"ts":"1700.1"}"#, id("1700.1")),
        (full, read),
    ] {
        site.now(says(202, answer));
        assert_eq!(to(&site).deliver("ann", &augment("d", "hi")).await.unwrap(), receipt, "{answer}");
    }
    // Values that are too long are truncated, or not read at all.
    site.now(says(200, &json!({ "id": "x".repeat(5000), "warnings": vec!["y".repeat(5000); 500] }).to_string()));
    let long = to(&site).deliver("ann", &augment("d", "hi")).await.unwrap();
    assert_eq!((long.delivery_id, long.warnings.len()), (None, 0), "over 64 KiB");
    site.now(says(200, &json!({ "id": "x".repeat(5000), "warnings": vec!["y"; 500] }).to_string()));
    let long = to(&site).deliver("ann", &augment("d", "hi")).await.unwrap();
    assert_eq!((long.delivery_id.unwrap().len(), long.warnings.len()), (256, 16));
}

#[tokio::test]
async fn rule_10_any_status_other_than_2xx_is_a_failure() {
    let site = Site::open(says(200, "")).await;
    for status in [301, 302, 307, 400, 401, 404, 410, 429, 500, 503] {
        site.now(says(status, r#"{"delivered_at":1}"#));
        let fault = fault_of(&to(&site)).await;
        assert_eq!((cause(&fault), &fault.fields["http_status"]), ("http_status", &json!(status)));
        assert!(fault.message.contains(&status.to_string()), "{fault}");
    }
    let asked = site.asked();
    assert_eq!(asked.len(), 10, "no redirect is followed, nothing is retried");
}

#[tokio::test]
async fn every_failure_has_its_cause_kind() {
    let site = Site::open(Says::Nothing).await;
    let hasty = opened(json!({ "url": site.url, "timeout_ms": 30 })).unwrap();
    let fault = fault_of(&hasty).await;
    assert_eq!((cause(&fault), &fault.fields["timeout_ms"]), ("timeout", &json!(30)));
    site.now(Says::Hangs);
    assert_eq!(cause(&fault_of(&to(&site)).await), "network");
    let gone = to(&site);
    site.close().await;
    assert_eq!(cause(&fault_of(&gone).await), "network");
}

/// A URL that was allowed when configured and is refused when called (its name resolves elsewhere now).
#[tokio::test]
async fn a_destination_that_is_refused_later_is_a_failure_without_details() {
    struct Turned;
    impl Outcall for Turned {
        fn check(&self, _: &str) -> Result<(), OutcallError> {
            Ok(())
        }
        fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
            Box::pin(async { Err(OutcallError::Refused) })
        }
    }
    let spec = json!({ "type": "webhook", "url": "https://inside.example/secret", "hmac_secret": "hush" });
    let spec: ConnectorSpec = serde_json::from_value(spec).unwrap();
    let hook = HttpWebhook::open("ann", &spec, Arc::new(TestEnv::default()), Arc::new(Turned)).unwrap();
    let fault = fault_of(&hook).await;
    assert_eq!(cause(&fault), "client_validation");
    let text = serde_json::to_string(&fault).unwrap();
    assert!(!text.contains("inside") && !text.contains("hush"), "{text}");
}

#[tokio::test]
async fn rule_14_only_a_wake_url_can_confirm_a_wake() {
    let site = Site::open(says(200, "")).await;
    let wake_url = site.url.replace("/hook", "/wake");
    let hook = opened(json!({ "url": site.url, "wake_url": wake_url, "hmac_secret": "k" })).unwrap();
    let opts = WakeOpts { context: Some("look".into()), session_id: Some("tab".into()), ..WakeOpts::default() };
    for (answer, woken) in [
        ("", false),
        ("{}", false),
        (r#"{"woken":false}"#, false),
        (r#"{"woken":"true"}"#, false),
        (r#"{"woken":1}"#, false),
        (r#"{"woken":true,"session_id":"tab"}"#, true),
    ] {
        site.now(says(200, answer));
        let receipt = hook.wake("ann", &opts).await.unwrap();
        assert_eq!((receipt.woken, receipt.warnings.is_empty()), (woken, woken), "{answer}");
        assert_eq!(receipt.session_id.as_deref(), woken.then_some("tab"), "{answer}");
    }
    let asked = site.last();
    assert_eq!(asked.line, "POST /wake HTTP/1.1");
    assert_eq!(asked.json(), json!({ "agent_id": "ann", "context": "look", "session_id": "tab" }));
    assert!(asked.header("x-signature").is_some());
    // The session comes from the suffix, unless one is given.
    hook.wake("ann@desk", &WakeOpts::default()).await.unwrap();
    assert_eq!(site.last().json(), json!({ "agent_id": "ann", "session_id": "desk" }));
    hook.wake("ann@desk", &opts).await.unwrap();
    assert_eq!(site.last().json()["session_id"], "tab");
    site.now(says(500, ""));
    assert_eq!(cause(&hook.wake("ann", &opts).await.unwrap_err()), "http_status");
}

#[tokio::test]
async fn section_5_without_a_wake_url_the_context_is_only_delivered() {
    let site = Site::open(says(200, r#"{"woken":true}"#)).await;
    let hook = to(&site);
    let opts = WakeOpts { context: Some("look".into()), ..WakeOpts::default() };
    let receipt = hook.wake("ann", &opts).await.unwrap();
    assert!(!receipt.woken && !receipt.warnings.is_empty(), "a delivery URL cannot confirm a wake");
    assert_eq!(site.last().json(), json!({ "agent_id": "ann", "kind": "wake", "content": "look" }));
    hook.wake("ann", &WakeOpts::default()).await.unwrap();
    assert_eq!(site.last().json(), json!({ "agent_id": "ann", "kind": "wake", "content": "" }));
    site.now(says(404, ""));
    assert_eq!(cause(&hook.wake("ann", &opts).await.unwrap_err()), "http_status", "a failed request is a fault");
}

#[tokio::test]
async fn rule_4_a_session_is_dropped_from_a_delivery_with_a_warning() {
    let site = Site::open(says(200, "")).await;
    let receipt = to(&site).deliver("ann@kitchen", &augment("d", "hi")).await.unwrap();
    assert_eq!(receipt.warnings.len(), 1, "{:?}", receipt.warnings);
    assert_eq!(site.last().json()["agent_id"], "ann");
    for unknown in ["bob", "annabel", "an", "", "bob@ann", "Ann"] {
        let fault = to(&site).deliver(unknown, &augment("d", "hi")).await.unwrap_err();
        assert_eq!(fault.class, Class::UnknownAgentError, "{unknown}");
    }
    assert_eq!(site.asked().len(), 1, "nothing was sent for an unknown agent");
}

#[tokio::test]
async fn health_and_status_come_from_the_status_url() {
    let site = Site::open(says(200, r#"{"status":"idle"}"#)).await;
    let hook = to(&site);
    assert_eq!(hook.health_check().await, Ok(()));
    assert_eq!(hook.agent_status("ann").await, Ok(AgentStatus::Unknown));
    assert!(site.asked().is_empty(), "no status URL is configured");
    let hook = opened(json!({ "url": site.url, "status_url": site.url, "authorization": "Bearer t" })).unwrap();
    assert_eq!(hook.health_check().await, Ok(()));
    let asked = site.last();
    assert_eq!((asked.line.as_str(), asked.header("authorization")), ("GET /hook HTTP/1.1", Some("Bearer t")));
    for (answer, status) in [
        (says(200, r#"{"status":"idle"}"#), AgentStatus::Idle),
        (says(200, r#"{"status":"active"}"#), AgentStatus::Active),
        (says(200, r#"{"status":"asleep"}"#), AgentStatus::Asleep),
        (says(200, r#"{"status":"Active"}"#), AgentStatus::Unknown),
        (says(200, "fine"), AgentStatus::Unknown),
        (says(500, r#"{"status":"idle"}"#), AgentStatus::Unknown),
        (Says::Hangs, AgentStatus::Unknown),
    ] {
        site.now(answer);
        assert_eq!(hook.agent_status("ann").await, Ok(status));
    }
    assert_eq!(cause(&hook.health_check().await.unwrap_err()), "network");
    site.now(says(503, ""));
    assert_eq!(cause(&hook.health_check().await.unwrap_err()), "http_status");
}

#[test]
fn invalid_values_are_refused_at_open() {
    let url = "http://127.0.0.1:1/x";
    for (field, spec) in [
        ("url", json!({ "url": "http://10.0.0.1/" })),
        ("wake_url", json!({ "url": url, "wake_url": "file:///etc/passwd" })),
        ("status_url", json!({ "url": url, "status_url": "http://169.254.169.254/" })),
        ("authorization", json!({ "url": url, "authorization": "a\r\nx-evil: 1" })),
        ("authorization", json!({ "url": url, "authorization": "" })),
        ("authorization", json!({ "url": url, "authorization": "ä" })),
        ("hmac_secret", json!({ "url": url, "hmac_secret": "" })),
        ("timeout_ms", json!({ "url": url, "timeout_ms": 0 })),
        ("timeout_ms", json!({ "url": url, "timeout_ms": 30_001 })),
    ] {
        let fault = opened(spec).err().unwrap();
        assert_eq!((fault.class, &fault.fields["field"]), (Class::ValidationError, &json!(field)), "{fault}");
        assert!(fault.message.starts_with(field), "{fault}");
    }
    assert!(opened(json!({ "url": url, "timeout_ms": 30_000 })).is_ok());
}
