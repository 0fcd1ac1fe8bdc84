//! Opening connectors from specifications, including kinds that the operator has not enabled.

use std::sync::Arc;

use frontdesk_connectors::{Bundled, Settings, TmuxSettings};
use frontdesk_core::port::connectors::Connectors as _;
use frontdesk_testkit::TestEnv;
use frontdesk_wire::agents::{AgentConnector, Class, ConnectorSpec, Fault};
use serde_json::{Value, json};

use crate::web::Near;

fn open(settings: &Settings, spec: Value) -> Result<Arc<dyn AgentConnector>, Fault> {
    let spec: ConnectorSpec = serde_json::from_value(spec).unwrap();
    let (env, outcall) = (Arc::new(TestEnv::default()), Arc::new(Near));
    Bundled { env, outcall, settings: settings.clone() }.open(&"ann".into(), &spec)
}

#[tokio::test]
async fn rule_28_every_specification_opens_if_enabled() {
    let base = tempfile::tempdir().unwrap();
    let all = Settings { file_base: Some(base.path().into()), tmux: Some(TmuxSettings::default()) };
    for spec in [
        json!({ "type": "noop" }),
        json!({ "type": "webhook", "url": "http://127.0.0.1:1/" }),
        json!({ "type": "file", "dir": "ann" }),
        json!({ "type": "tmux", "target": "ann:0.1" }),
    ] {
        let way = open(&all, spec.clone()).unwrap_or_else(|fault| panic!("{spec}: {fault}"));
        assert_eq!(way.list_agents().await.unwrap()[0].agent_id, "ann");
    }
}

#[test]
fn a_disabled_kind_names_the_setting_that_enables_it() {
    for (spec, word) in [
        (json!({ "type": "file", "dir": "ann" }), "[agents] file_base"),
        (json!({ "type": "tmux", "target": "ann" }), "[agents] tmux"),
        (json!({ "type": "relay", "instance": "ann" }), "relay"),
    ] {
        let fault = open(&Settings::default(), spec).err().unwrap();
        assert_eq!(fault.class, Class::ValidationError);
        assert!(fault.message.contains(word), "{fault}");
    }
}
