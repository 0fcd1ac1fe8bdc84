//! The conformance suites over the typed client, over HTTP, against a real server: as a Rust program with only a URL
//! and a token sees it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use frontdesk_client::agents::{AgentsClient, InboxEvent};
use frontdesk_connectors::{Registry, Relay};
use frontdesk_testkit::conformance::agent_connector::{Expected, agent_connector, augment};
use frontdesk_testkit::conformance::{data_store, skill_store};
use frontdesk_wire::Secret;
use frontdesk_wire::agents::{AgentConnector, AgentPut, Class, DeliveryPayload, NotifyPost, Origin, WakeOpts};
use tokio::time::timeout;

use crate::harness::TIME_LIMIT;
use crate::plane::Plane;

fn client(plane: &Plane, token: &str) -> AgentsClient {
    AgentsClient::new(&plane.harness.url, Secret::new(token)).unwrap()
}

macro_rules! over_http {
    ($part:ident: $($rule:ident),+ $(,)?) => {
        $(
            #[tokio::test]
            async fn $rule() {
                let plane = Plane::open().await;
                $part::$rule(&client(&plane, &plane.operator)).await;
                plane.finish().await;
            }
        )+
    };
}

over_http! { skill_store:
    rule_18_a_body_is_kept_byte_for_byte, rule_18_the_hash_is_of_the_stored_bytes, rule_19_the_status_is_the_bodys,
    rule_20_a_status_is_changed_in_the_body, rule_20_status_rewrite_swallows_blank_lines,
    rule_20_a_status_line_is_put_in_where_there_is_none, rule_20_changes_at_the_same_time_are_all_kept,
    rule_21_the_bodys_own_status_wins_on_overwrite, rule_21_another_author_is_a_conflict,
    rule_21_strange_names_are_refused, rule_21_old_versions_are_loaded, rule_21_versions_are_oldest_first,
    rule_22_queries_are_ordered_by_name, rule_22_each_filter_narrows, rule_22_tags_come_from_the_body,
    rule_22_bad_patterns_are_refused, rule_23_what_is_absent_is_a_fault, rule_23_delete_frees_the_name,
    rule_23_the_token_moves_with_every_change, rule_33_a_noted_status_is_written_into_the_body,
    rule_33_the_line_that_is_read_is_rewritten, rule_33_the_same_again_is_history,
}

over_http! { data_store:
    rule_25_the_summary_is_the_first_line, rule_25_the_detail_is_everything, rule_35_a_summary_cuts_no_pair_in_half,
    rule_25_absence_is_no_fault, rule_25_ids_are_new, rule_25_all_words_are_required,
    rule_25_case_and_diacritics_do_not_matter, rule_25_boolean_words_are_words,
    rule_25_punctuation_is_never_an_error, rule_25_no_words_are_newest_first, rule_25_an_undeclared_mode_fails,
    rule_25_filters_outside_the_manifest_fail, rule_25_declared_filters_are_honoured, rule_25_the_limit_holds,
    rule_25_nothing_expires_by_default, rule_25_curated_fields_stand_at_the_top,
}

/// The contract of a connector, observed through the inbox.
async fn keeps_the_contract(plane: &Plane, connector: &dyn AgentConnector) {
    let eyes = client(plane, &plane.token);
    let arrived = Box::new(move |text: String| {
        let eyes = eyes.clone();
        let look = async move { eyes.inbox("ann", None).await.unwrap().iter().any(|one| one.text == text) };
        Box::pin(look) as Pin<Box<dyn Future<Output = bool> + Send>>
    });
    let expected = Expected {
        agents: vec!["ann".into(), "e.mail@example.org".into()],
        unknown: "bob".into(),
        can_wake: false, // no agent is connected
        can_answer: true,
        arrived: Some(arrived),
        leads_nowhere: false,
    };
    agent_connector(connector, &expected).await;
}

#[tokio::test]
async fn a_server_keeps_the_contract_of_a_connector() {
    let plane = Plane::with_agents(&["ann", "e.mail@example.org"]).await;
    keeps_the_contract(&plane, &client(&plane, &plane.token)).await;
    plane.finish().await;
}

#[tokio::test]
async fn the_bundled_relay_keeps_the_contract_and_can_be_registered() {
    let plane = Plane::with_agents(&["ann", "e.mail@example.org"]).await;
    let relay = Arc::new(Relay::new(plane.harness.app.desk.clone(), "home"));
    keeps_the_contract(&plane, &*relay).await;
    let mut registry = Registry::default();
    registry.register("desk", relay).await.unwrap();
    let receipts = registry.broadcast("ann", &augment("d-all", "to all")).await.unwrap();
    assert!(receipts.len() == 1 && receipts[0].ok && receipts[0].connector == "desk", "{receipts:?}");
    assert_eq!(plane.inbox("ann").await.last().unwrap()["text"], "to all");
    plane.finish().await;
}

#[tokio::test]
async fn an_agent_with_the_client_is_woken_and_replies() {
    let plane = Plane::open().await;
    // The sender has a token, the agent only a URL.
    let sender = client(&plane, &plane.token);
    let agent = AgentsClient::by_capability(&format!("{}/k/{}", plane.harness.url, plane.token)).unwrap();
    agent.put_agent("ann", &AgentPut { agent_name: Some("Ann".into()), ..AgentPut::default() }).await.unwrap();
    assert_eq!(sender.list_agents().await.unwrap()[0].agent_name.as_deref(), Some("Ann"));
    let mut stream = agent.inbox_stream("ann", Some("desk"), None).await.unwrap();
    assert_eq!(stream.next().await.unwrap(), InboxEvent::Ready);
    let opts = WakeOpts { context: Some("look".into()), ..WakeOpts::default() };
    let woken = sender.wake("ann@desk", &opts).await.unwrap();
    assert_eq!((woken.woken, woken.session_id.as_deref()), (true, Some("desk")));
    let mut question = augment("d-1", "what is it?");
    if let DeliveryPayload::Augment { meta, .. } = &mut question {
        meta.correlation_id = Some("c-1".into());
    }
    let answering = async {
        let mut seen = Vec::new();
        loop {
            let InboxEvent::Message(message) = stream.next().await.unwrap() else { continue };
            let id = message.meta.as_ref().and_then(|meta| meta["correlation_id"].as_str().map(str::to_owned));
            seen.push((message.kind, message.text));
            if let Some(id) = id {
                agent.reply("ann", &id, "a bell").await.unwrap();
                return seen;
            }
        }
    };
    let both = async { tokio::join!(sender.request_response("ann", &question, 20_000), answering) };
    let (reply, seen) = timeout(TIME_LIMIT, both).await.unwrap();
    assert_eq!(reply.unwrap().content, "a bell");
    assert_eq!(seen, [("wake".into(), "look".into()), ("augment".into(), "what is it?".to_owned())]);
    assert_eq!(agent.reply("ann", "c-1", "again").await.unwrap_err().class, Class::GoneError);
    let post = NotifyPost {
        agent: "ann".into(),
        message: "news".into(),
        event_type: None,
        correlation_id: None,
        origin: Origin::default(),
    };
    let notified = sender.notify(&post).await.unwrap();
    assert_eq!(notified.route, "deliver");
    let InboxEvent::Message(news) = timeout(TIME_LIMIT, stream.next()).await.unwrap().unwrap() else { panic!("ready") };
    assert_eq!((news.text.as_str(), stream.last_id()), ("news", Some(news.seq.to_string().as_str())));
    assert_eq!(agent.inbox("ann", Some(news.seq)).await.unwrap(), []);
    drop(stream);
    assert_eq!(sender.delete_agent("ann").await.unwrap_err().class, Class::ForbiddenError);
    client(&plane, &plane.operator).delete_agent("ann").await.unwrap();
    assert_eq!(agent.inbox("ann", None).await.unwrap_err().class, Class::UnknownAgentError);
    plane.finish().await;
}
