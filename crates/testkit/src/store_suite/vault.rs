//! Rules for the vault: who finds a capability, and for how long.

use frontdesk_core::port::store::{Acceptance, SealedCapability};
use frontdesk_wire::TenantId;

use super::{Harness, accept, acceptance, capability};

fn with(number: u64, capabilities: Vec<SealedCapability>) -> Acceptance {
    Acceptance { capabilities, ..acceptance(number, &[]) }
}

pub async fn a_capability_is_bound_under_every_key(Harness { store, .. }: Harness) {
    accept(&*store, with(1, vec![capability("cap", &["k1", "k2"], 500)])).await;
    for key in ["k1", "k2"] {
        let found = store.capability(&"acme".into(), &key.into(), "interaction", 0).await.unwrap().expect("bound");
        assert!(found.session_keys.iter().any(|named| named == key));
        assert_eq!(SealedCapability { session_keys: vec![], ..found }, capability("cap", &[], 500));
    }
    assert_eq!(store.capability(&"acme".into(), &"k3".into(), "interaction", 0).await.unwrap(), None);
}

pub async fn the_newest_capability_wins(Harness { store, .. }: Harness) {
    accept(&*store, with(1, vec![capability("old", &["k1", "k2"], 500)])).await;
    accept(&*store, with(2, vec![capability("new", &["k2", "k3"], 400)])).await;
    for (key, id) in [("k1", "old"), ("k2", "new"), ("k3", "new")] {
        assert_eq!(
            store.capability(&"acme".into(), &key.into(), "interaction", 0).await.unwrap().unwrap().id,
            id,
            "{key}"
        );
    }
    let both = vec![capability("a", &["k4"], 500), capability("b", &["k4"], 500)];
    accept(&*store, with(3, both)).await;
    assert_eq!(
        store.capability(&"acme".into(), &"k4".into(), "interaction", 0).await.unwrap().unwrap().id,
        "b",
        "also within one event"
    );
}

pub async fn a_capability_belongs_to_its_tenant_and_kind(Harness { store, .. }: Harness) {
    let other = SealedCapability { tenant: "other".into(), ..capability("theirs", &["k"], 500) };
    let kind = SealedCapability { kind: "reply".into(), ..capability("kind", &["k"], 500) };
    accept(&*store, with(1, vec![capability("ours", &["k"], 500), other, kind])).await;
    for (tenant, kind, id) in
        [("acme", "interaction", "ours"), ("other", "interaction", "theirs"), ("acme", "reply", "kind")]
    {
        assert_eq!(store.capability(&TenantId::from(tenant), &"k".into(), kind, 0).await.unwrap().unwrap().id, id);
    }
    for (tenant, kind) in [("nobody", "interaction"), ("other", "reply"), ("", "interaction"), ("acme", "")] {
        assert_eq!(
            store.capability(&TenantId::from(tenant), &"k".into(), kind, 0).await.unwrap(),
            None,
            "{tenant} {kind}"
        );
    }
}

pub async fn a_capability_ends_at_its_time(Harness { store, .. }: Harness) {
    accept(&*store, with(1, vec![capability("cap", &["k"], 500)])).await;
    assert!(store.capability(&"acme".into(), &"k".into(), "interaction", 499).await.unwrap().is_some());
    assert!(store.capability(&"acme".into(), &"k".into(), "interaction", 500).await.unwrap().is_none());
}

pub async fn capabilities_survive(harness: Harness) {
    accept(&*harness.store, with(1, vec![capability("cap", &["k"], 500)])).await;
    let harness = harness.reopened();
    let found = harness.store.capability(&"acme".into(), &"k".into(), "interaction", 0).await.unwrap().unwrap();
    assert_eq!(found.sealed, capability("cap", &[], 0).sealed, "unchanged");
}
