//! Two servers over one store: each applies the changes of the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::delivery::sockets::{Mailbox, Order};
use frontdesk_core::directory::facts::{Bot, LinkCode, Scope};
use frontdesk_core::directory::{Draft, Fact, Identity, Unproven, View};
use frontdesk_core::port::store::{JournalEntry, LEASE_MS, Outcome, Store};
use frontdesk_core::{Desk, DeskError, Rules};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over;
use frontdesk_wire::agents::{AgentPut, DeliveryPayload};
use frontdesk_wire::api::{GatewayNew, LinkAsk, ProvisionRequest, RouteNew, ScopeAsk};
use frontdesk_wire::token::mint;
use frontdesk_wire::{BotId, Close, InboxSeq, InstanceNo, Secret, TenantId};

over_each_store!(
    instance_numbers_are_unique_across_servers,
    a_name_taken_at_another_server_is_refused,
    a_revocation_at_one_server_closes_sockets_at_the_other,
    a_revocation_is_not_missed_if_the_gateway_returned_meanwhile,
    an_agent_deleted_and_created_again_is_a_new_one_at_both_servers,
    a_rotated_key_is_known_at_both_servers,
    a_start_deletes_no_inbox_of_an_agent_created_at_another_server,
    only_the_actions_of_a_dead_server_become_unknown,
    a_stale_release_leaves_the_channel_of_another_agent,
    a_change_at_one_server_is_read_with_the_next_renewal_at_the_other,
    expired_tokens_of_the_chat_page_are_removed_in_steps,
    expired_link_codes_are_removed_in_steps,
);

pub(crate) async fn two_desks(store: Arc<dyn Store>) -> (Arc<Desk>, Arc<Desk>) {
    let env = Arc::new(TestEnv::default());
    let one = desk_over(store.clone(), env.clone(), Rules::default()).await;
    let other = desk_over(store, env, Rules::default()).await;
    (one, other)
}

fn gateway(id: &str, tenant: &str) -> GatewayNew {
    GatewayNew { id: id.into(), tenant: tenant.into(), instance: None, wake_url: None }
}

/// A gateway created by one server and connected to the other: its token and mailbox.
async fn attached(one: &Desk, other: &Desk) -> (String, Arc<Mailbox>) {
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let made = one.directory().add_gateway(gateway("bot", "acme")).await.unwrap();
    other.directory().refresh().await.unwrap();
    let bearer = mint("bot", &Secret::new(made.secret.as_str()), u64::from(u32::MAX) * 1_000);
    let caller = other.directory().prove_gateway(&bearer).unwrap();
    let (mailbox, _) = other.delivery().sockets().attach(caller.instance.no, &"bot".into(), &"acme".into());
    (bearer, mailbox)
}

/// Regression: a cancelled provision, or a second server, could give one number to two tenants.
async fn instance_numbers_are_unique_across_servers(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    other.directory().refresh().await.unwrap();
    other.directory().create_tenant(&"rival".into()).await.unwrap();
    one.directory().refresh().await.unwrap();
    for round in 0..20 {
        one.directory().add_gateway(gateway(&format!("a-{round}"), "acme")).await.unwrap();
        other.directory().add_gateway(gateway(&format!("r-{round}"), "rival")).await.unwrap();
    }
    one.directory().refresh().await.unwrap();
    let mut numbers: Vec<InstanceNo> = one.directory().read(|view| view.instances().map(|it| it.no).collect());
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 40);
}

/// Both want one name, and neither has seen the other's change.
async fn a_name_taken_at_another_server_is_refused(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    for name in ["acme", "rival"] {
        one.directory().create_tenant(&name.into()).await.unwrap();
    }
    other.directory().refresh().await.unwrap();
    one.directory().add_gateway(gateway("bot", "acme")).await.unwrap();
    let refused = other.directory().add_gateway(gateway("bot", "rival")).await;
    assert!(matches!(refused, Err(DeskError::Forbidden(_))), "the decision was made again");
    assert!(other.directory().read(|view| view.gateway(&"bot".into()).unwrap().tenant == "acme"));
}

async fn a_revocation_at_one_server_closes_sockets_at_the_other(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    let (bearer, mailbox) = attached(&one, &other).await;
    one.directory().revoke(&"bot".into()).await.unwrap();
    other.directory().refresh().await.unwrap();
    assert_eq!(other.directory().prove_gateway(&bearer).err(), Some(Unproven::Unauthorized));
    let orders: Vec<Order> = mailbox.take_orders().into();
    assert!(matches!(orders.as_slice(), [Order::Close(Close::Unauthorized)]), "{orders:?}");
    // It can join again: the old record does not prevent that.
    let who = Identity { tenant: "acme".into(), instance: None };
    let ask = ProvisionRequest {
        gateway_id: "bot".into(),
        platform: "relay".into(),
        bot_id: BotId::default(),
        gateway_endpoint: None,
        route_keys: Vec::new(),
        instance_id: None,
        wake_url: None,
    };
    other.directory().provision(&who, ask).await.unwrap();
}

/// Several changes between two reads: each must have its effect.
async fn a_revocation_is_not_missed_if_the_gateway_returned_meanwhile(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    let (bearer, mailbox) = attached(&one, &other).await;
    one.directory().revoke(&"bot".into()).await.unwrap();
    one.directory().add_gateway(gateway("bot", "acme")).await.unwrap();
    other.directory().refresh().await.unwrap();
    let orders: Vec<Order> = mailbox.take_orders().into();
    assert!(matches!(orders.as_slice(), [Order::Close(Close::Unauthorized)]), "{orders:?}");
    assert!(other.directory().prove_gateway(&bearer).is_err(), "the old secret is invalid");
}

async fn an_agent_deleted_and_created_again_is_a_new_one_at_both_servers(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let acme = TenantId::from("acme");
    let operator = AgentsCaller::operator(&acme);
    one.agents().put_agent(operator, &"alice".into(), AgentPut::default()).await.unwrap();
    other.directory().refresh().await.unwrap();
    let no = other.directory().read(|view| view.agent(&"acme".into(), &"alice".into()).unwrap().no);
    let _stream = other.agents().live().streams().open(no, None, 1, 1).unwrap();
    one.agents().delete_agent(operator, &"alice".into()).await.unwrap();
    one.agents().put_agent(operator, &"alice".into(), AgentPut::default()).await.unwrap();
    other.directory().refresh().await.unwrap();
    assert!(!other.agents().live().streams().has_open_stream(no), "the stream of the deleted agent was closed");
}

async fn a_rotated_key_is_known_at_both_servers(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    other.directory().refresh().await.unwrap();
    let kids = |desk: &Desk| {
        let jwks = desk.cron().keys().jwks();
        let keys = jwks["keys"].as_array().unwrap().iter();
        keys.map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!((kids(&one).len(), kids(&one)), (1, kids(&other)), "two starts create one key");
    let kid = one.cron().keys().rotate().await.unwrap();
    other.directory().refresh().await.unwrap();
    assert_eq!((kids(&other)[0].as_str(), kids(&other)), (kid.as_str(), kids(&one)));
}

/// A starting server must not treat agents that it does not know yet as deleted.
async fn a_start_deletes_no_inbox_of_an_agent_created_at_another_server(store: Arc<dyn Store>) {
    let env = Arc::new(TestEnv::default());
    let one = desk_over(store.clone(), env.clone(), Rules::default()).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let acme = TenantId::from("acme");
    let who = AgentsCaller::operator(&acme);
    one.agents().put_agent(who, &"alice".into(), AgentPut::default()).await.unwrap();
    let body = serde_json::json!({ "kind": "augment", "content": "hello", "meta":
        { "dispatch_id": "d-1", "sent_at": 1, "origin": {} } });
    let payload: DeliveryPayload = serde_json::from_value(body).unwrap();
    one.messages().deliver(who, "alice", &payload).await.unwrap();
    let other = desk_over(store, env, Rules::default()).await;
    assert_eq!(other.inboxes().inbox(who, "alice", InboxSeq(0)).await.unwrap().messages.len(), 1);
}

/// A starting server must not mark actions of a live one as unknown; those of a dead one are marked by any server.
async fn only_the_actions_of_a_dead_server_become_unknown(store: Arc<dyn Store>) {
    let env = Arc::new(TestEnv::default());
    let one = desk_over(store.clone(), env.clone(), Rules::default()).await;
    let entry = JournalEntry {
        id: 0,
        tenant: "acme".into(),
        instance: "bot".into(),
        platform: "relay".into(),
        bot: "desk".into(),
        chat_id: "c".into(),
        op: "send".into(),
        at_ms: 1,
        outcome: Outcome::Open,
        parts: 1,
        cursor: 0,
        note: String::new(),
        desk: one.lease().me(),
    };
    store.open_entry(entry, None).await.unwrap();
    let other = desk_over(store.clone(), env.clone(), Rules::default()).await;
    let outcome = async || store.entries(None, 1).await.unwrap()[0].outcome;
    assert_eq!(outcome().await, Outcome::Open, "the first server is still at it");
    // The first one does not renew its lease any more.
    for _ in 0..LEASE_MS / 1_000 {
        env.advance_ms(1_000);
        let (_, live) = other.lease().renew().await.unwrap();
        other.outbound().mark_orphaned_entries_unknown(live).await.unwrap();
    }
    assert_eq!(outcome().await, Outcome::Unknown);
    assert!(!one.lease().is_good(), "and it knows that it must not act");
    let before = one.lease().me();
    one.lease().renew().await.unwrap();
    assert!(one.lease().is_good() && one.lease().me() > before, "it goes on under another number");
}

/// Versions of a record must not begin again after its deletion: a release that was decided before would delete what came
/// later.
async fn a_stale_release_leaves_the_channel_of_another_agent(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let route = RouteNew { platform: "guild".into(), key: "g1".into(), tenant: "acme".into() };
    one.directory().add_route(route).await.unwrap();
    for name in ["alice", "bob"] {
        one.directory().add_gateway(gateway(name, "acme")).await.unwrap();
    }
    let channel = || ScopeAsk { platform: "guild".into(), scope_id: "g1".into(), channel_id: "c1".into() };
    let who = |desk: &Desk, name: &str| desk.directory().prove_instance(&name.into(), None).unwrap();
    one.management().claim_scope(&who(&one, "alice"), channel()).await.unwrap();
    other.directory().refresh().await.unwrap();
    one.management().release_scope(&who(&one, "alice"), channel()).await.unwrap();
    one.management().claim_scope(&who(&one, "bob"), channel()).await.unwrap();
    // The other server still knows the channel as that of alice.
    let released = other.management().release_scope(&who(&other, "alice"), channel()).await;
    assert!(matches!(released, Err(DeskError::Conflict(_))), "{released:?}");
    for desk in [&one, &other] {
        let holders: Vec<String> =
            desk.directory().read(|view| view.grants().map(|grant| grant.instance.to_string()).collect());
        assert_eq!(holders, ["bob"]);
    }
}

/// The version of the directory travels with the lease.
async fn a_change_at_one_server_is_read_with_the_next_renewal_at_the_other(store: Arc<dyn Store>) {
    let (one, other) = two_desks(store).await;
    one.directory().create_tenant(&"acme".into()).await.unwrap();
    let (version, _) = other.lease().renew().await.unwrap();
    assert!(other.directory().version() < version);
    other.directory().refresh().await.unwrap();
    assert!(other.directory().read(|view| view.tenant(&"acme".into()).is_some()));
}

/// Each link to the chat page makes one.
async fn expired_tokens_of_the_chat_page_are_removed_in_steps(store: Arc<dyn Store>) {
    let env = Arc::new(TestEnv::default());
    let desk = desk_over(store, env.clone(), Rules::default()).await;
    for tenant in ["acme", "rival"] {
        desk.directory().create_tenant(&tenant.into()).await.unwrap();
        for _ in 0..100 {
            desk.directory().create_token(&TenantId::from(tenant), Scope::Chat, None, Some(1)).await.unwrap();
        }
        desk.directory().create_token(&TenantId::from(tenant), Scope::Agents, None, Some(1)).await.unwrap();
        desk.directory().create_token(&TenantId::from(tenant), Scope::Chat, None, None).await.unwrap();
    }
    env.advance_ms(2_000);
    let count = |tenant: &str| desk.directory().read(|view| view.tokens().filter(|it| &*it.tenant == tenant).count());
    desk.directory().create_token(&"acme".into(), Scope::Agents, None, None).await.unwrap();
    assert_eq!((count("acme"), count("rival")), (103, 102), "only a new token of the chat page removes some");
    for left in [40, 5, 6] {
        desk.directory().create_token(&"acme".into(), Scope::Chat, None, None).await.unwrap();
        assert_eq!((count("acme"), count("rival")), (left, 102));
    }
}

/// An agent makes one whenever its user asks for it, and most are never used.
async fn expired_link_codes_are_removed_in_steps(store: Arc<dyn Store>) {
    let env = Arc::new(TestEnv::default());
    let desk = desk_over(store, env.clone(), Rules::default()).await;
    desk.directory().create_tenant(&"acme".into()).await.unwrap();
    desk.directory().add_gateway(gateway("alice", "acme")).await.unwrap();
    let alice = desk.directory().prove_instance(&"alice".into(), None).unwrap();
    let (settings, secrets) = (BTreeMap::new(), BTreeMap::new());
    let bot = Bot { platform: "chat".into(), id: "desk".into(), tenant: None, settings, secrets };
    let code = |number| LinkCode {
        hash: format!("code {number}"),
        tenant: "acme".into(),
        platform: "chat".into(),
        instance: "alice".into(),
        expires_ms: desk.env().now_ms(),
        used_by: None,
    };
    let fill = |_: &View, draft: &mut Draft| {
        draft.put(Fact::Bot(bot.clone()));
        (0..100).for_each(|number| draft.put(Fact::LinkCode(code(number))));
        Ok::<_, DeskError>(())
    };
    desk.directory().write(fill).await.unwrap();
    let count = || {
        let facts = desk.directory().read(View::facts);
        facts.into_iter().filter(|fact| matches!(fact, Fact::LinkCode(_))).count()
    };
    let offer = async || desk.management().offer_link(&alice, LinkAsk { platform: "chat".into() }).await.unwrap();
    offer().await;
    assert_eq!(count(), 101, "for some time they are answered with \"expired\"");
    env.advance_ms(Rules::default().link_ttl_ms);
    offer().await;
    assert_eq!(count(), 102, "for as long as they were valid");
    env.advance_ms(1);
    for left in [39, 4, 5] {
        offer().await;
        assert_eq!(count(), left);
    }
}
