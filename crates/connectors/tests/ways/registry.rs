//! The registry: registration, and broadcasts over all connectors of an agent.

use std::sync::Arc;

use frontdesk_connectors::{FileDrop, HttpWebhook, NoOp, Registry, RegistryError};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::conformance::agent_connector::augment;
use frontdesk_wire::agents::{AgentConnector, Class, ConnectorReceipt, ConnectorSpec, WakeOpts};
use serde_json::json;

use crate::web::{Near, Site, says};

fn noop(agent_id: &str) -> Arc<dyn AgentConnector> {
    Arc::new(NoOp::new(agent_id, Arc::new(TestEnv::default())))
}

fn hook(agent_id: &str, site: &Site) -> Arc<dyn AgentConnector> {
    let spec = json!({ "type": "webhook", "url": site.url, "status_url": site.url });
    let spec: ConnectorSpec = serde_json::from_value(spec).unwrap();
    Arc::new(HttpWebhook::open(agent_id, &spec, Arc::new(TestEnv::default()), Arc::new(Near)).unwrap())
}

fn outcomes(receipts: &[ConnectorReceipt]) -> Vec<(&str, bool)> {
    receipts.iter().map(|it| (it.connector.as_str(), it.ok)).collect()
}

#[tokio::test]
async fn an_unhealthy_connector_is_refused_with_name_and_reason() {
    let site = Site::open(says(503, "")).await;
    let mut registry = Registry::new();
    let error = registry.register("pager", hook("ann", &site)).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("\"pager\"") && text.contains("503"), "{text}");
    assert!(matches!(error, RegistryError::Unhealthy { why, .. } if why.class == Class::DeliveryFailedError));
    assert_eq!(registry.names().count(), 0);
    site.now(says(200, ""));
    registry.register("pager", hook("ann", &site)).await.unwrap();
    let again = registry.register("pager", noop("bob")).await;
    assert_eq!(again, Err(RegistryError::Taken("pager".into())));
    registry.register("nowhere", noop("bob")).await.unwrap();
    assert_eq!(registry.names().collect::<Vec<_>>(), ["pager", "nowhere"]);
    assert!(registry.get("pager").is_some() && registry.get("x").is_none());
}

#[tokio::test]
async fn rule_5_one_notify_is_one_dispatch_over_every_connector_of_the_agent() {
    let base = tempfile::tempdir().unwrap();
    let (site, broken) = (Site::open(says(200, r#"{"id":"m-1"}"#)).await, Site::open(says(200, "")).await);
    let file = FileDrop::open("ann", base.path(), "ann", Arc::new(TestEnv::default())).unwrap();
    let mut registry = Registry::new();
    registry.register("site", hook("ann", &site)).await.unwrap();
    registry.register("other", noop("bob")).await.unwrap();
    registry.register("broken", hook("ann", &broken)).await.unwrap();
    registry.register("file", Arc::new(file)).await.unwrap();
    registry.register("nowhere", noop("ann")).await.unwrap();
    broken.now(says(500, ""));
    // In a task, because the future must be Send for a server.
    let (registry, payload) = (Arc::new(registry), augment("d-1", "to all"));
    let held = registry.clone();
    let receipts = tokio::spawn(async move { held.broadcast("ann", &payload).await.unwrap() }).await.unwrap();
    assert_eq!(outcomes(&receipts), [("site", true), ("broken", false), ("file", true), ("nowhere", true)]);
    assert_eq!(receipts[0].receipt.as_ref().unwrap()["delivery_id"], "m-1");
    let error = receipts[1].error.as_ref().unwrap();
    assert_eq!((&error["class"], &error["http_status"]), (&json!("DeliveryFailedError"), &json!(500)));
    assert_eq!(receipts[2].receipt.as_ref().unwrap()["delivery_id"], "d-1.json");
    for site in [&site, &broken] {
        assert_eq!(site.last().json()["meta"]["dispatch_id"], "d-1");
    }
    let receipts = registry.broadcast_wake("ann@kitchen", &WakeOpts::default()).await.unwrap();
    assert_eq!(outcomes(&receipts), [("site", true), ("broken", false), ("file", true), ("nowhere", true)]);
    assert_eq!(site.last().json()["session_id"], "kitchen");
    assert_eq!(receipts[3].receipt.as_ref().unwrap()["woken"], false);
    let asked = site.asked().len();
    for unknown in ["carl", "annabel", ""] {
        let fault = registry.broadcast(unknown, &augment("d-2", "lost")).await.unwrap_err();
        assert_eq!(fault.class, Class::UnknownAgentError);
    }
    assert_eq!(site.asked().len(), asked, "nothing was sent");
}
