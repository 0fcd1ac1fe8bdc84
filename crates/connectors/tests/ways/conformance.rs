//! The conformance suite of the testkit over every bundled connector.

use std::sync::Arc;

use frontdesk_connectors::{FileDrop, HttpWebhook, NoOp, Tmux};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::conformance::agent_connector::{Expected, agent_connector};
use frontdesk_wire::agents::ConnectorSpec;
use serde_json::{Value, json};

use crate::terminal::Terminal;
use crate::web::{Near, Site, says};

fn expected<'a>() -> Expected<'a> {
    Expected {
        agents: vec!["ann".into()],
        unknown: "bob".into(),
        can_wake: false,
        can_answer: false,
        arrived: None,
        leads_nowhere: false,
    }
}

fn env() -> Arc<TestEnv> {
    Arc::new(TestEnv::default())
}

#[tokio::test]
async fn noop_conforms() {
    let expected = Expected { leads_nowhere: true, ..expected() };
    agent_connector(&NoOp::new("ann", env()), &expected).await;
}

#[tokio::test]
async fn webhook_conforms() {
    let site = Site::open(says(200, r#"{"woken":true}"#)).await;
    for (wake_url, can_wake) in [(Value::Null, false), (json!(site.url), true)] {
        let spec = json!({ "type": "webhook", "url": site.url, "wake_url": wake_url });
        let spec: ConnectorSpec = serde_json::from_value(spec).unwrap();
        let hook = HttpWebhook::open("ann", &spec, env(), Arc::new(Near)).unwrap();
        let was_posted = |text: String| {
            let posted = site.last().json();
            [&posted["content"], &posted["prompt"], &posted["context"]].into_iter().any(|it| *it == text)
        };
        let arrived = Box::new(|text: String| Box::pin(std::future::ready(was_posted(text))) as _);
        agent_connector(&hook, &Expected { can_wake, arrived: Some(arrived), ..expected() }).await;
    }
}

#[tokio::test]
async fn file_drop_conforms() {
    let base = tempfile::tempdir().unwrap();
    let way = FileDrop::open("ann", base.path(), "ann", env()).unwrap();
    let lies_there = |text: &str| {
        let files = std::fs::read_dir(base.path().join("ann")).unwrap();
        files.map(|it| std::fs::read(it.unwrap().path()).unwrap()).any(|bytes| {
            let message: Value = serde_json::from_slice(&bytes).unwrap();
            message["content"] == text || message["prompt"] == text
        })
    };
    let arrived = Box::new(|text: String| Box::pin(std::future::ready(lies_there(&text))) as _);
    agent_connector(&way, &Expected { arrived: Some(arrived), ..expected() }).await;
}

#[tokio::test]
async fn tmux_conforms() {
    let terminal = Terminal::open();
    let way = Tmux::open("ann", "agent", terminal.settings(), env()).unwrap();
    let seen = &terminal;
    let arrived = Box::new(move |text: String| Box::pin(async move { seen.read_until(&text).await.is_some() }) as _);
    agent_connector(&way, &Expected { can_wake: true, arrived: Some(arrived), ..expected() }).await;
}
