//! The directory in memory over a real store: written through with compare-and-set, and read back the same.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::sync::Arc;

use frontdesk_core::directory::facts::{Binding, Instance, Scope, Tenant, Token};
use frontdesk_core::directory::{AmendError, Draft, Fact, Registry, View};
use frontdesk_core::port::store::{Change, Store, StoreError};
use frontdesk_store::memory::MemoryStore;
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_wire::{InstanceId, InstanceNo};

fn tenant(name: &str) -> Fact {
    Fact::Tenant(Tenant { name: name.into(), created_ms: 1, notices: true })
}

fn binding(instance: &str, at_ms: u64) -> Fact {
    let [platform, user_id] = ["chat", "ada"].map(str::to_owned);
    Fact::Binding(Binding {
        tenant: "acme".into(),
        platform,
        user_id: user_id.into(),
        instance: instance.into(),
        at_ms,
        since_ms: at_ms,
    })
}

fn token(hash: &str) -> Fact {
    let (id, hash, tenant) = ("t-1".to_owned(), hash.to_owned(), "acme".to_owned());
    Fact::Token(Token {
        id,
        hash,
        tenant: tenant.into(),
        scope: Scope::Chat,
        instance: None,
        created_ms: 1,
        expires_ms: None,
    })
}

async fn put(registry: &Registry, facts: Vec<Fact>) -> Result<(), AmendError<Infallible>> {
    let decide = |_: &_, draft: &mut Draft| {
        for fact in &facts {
            draft.put(fact.clone());
        }
        Ok(())
    };
    registry.write(decide).await
}

fn links(registry: &Registry) -> Vec<InstanceId> {
    registry.read(|view| {
        view.links(&"acme".into(), "chat", &"ada".into()).iter().map(|link| link.instance.clone()).collect()
    })
}

#[tokio::test]
async fn records_are_read_back_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(folder.path(), 1).unwrap()) };
    let registry = Registry::open(open()).await.unwrap();
    let instance = Fact::Instance(Instance {
        no: InstanceNo(41),
        tenant: "acme".into(),
        name: "a".into(),
        wake_url: None,
        left_ms: None,
    });
    put(&registry, vec![tenant("acme"), token("h1"), instance]).await.unwrap();
    put(&registry, vec![binding("late", 20), binding("early", 10)]).await.unwrap();
    put(&registry, vec![token("h2")]).await.unwrap();
    drop(registry);

    let registry = Registry::open(open()).await.unwrap();
    assert_eq!(links(&registry), ["early", "late"], "the latest link is last");
    registry.read(|view| {
        assert!(view.tenant(&"acme".into()).is_some());
        assert!(view.token_by_hash("h1").is_none() && view.token_by_hash("h2").is_some(), "the old hash is gone");
        assert_eq!(view.instance_no(InstanceNo(41)).unwrap().name, "a");
    });
    let early = binding("early", 10);
    let forget = |_: &_, draft: &mut Draft| {
        draft.remove(&early);
        Ok::<_, Infallible>(())
    };
    registry.write(forget).await.unwrap();
    assert_eq!(links(&registry), ["late"]);
}

/// Both decide on what they see; the second decision is made again on what the first one wrote.
#[tokio::test]
async fn of_two_servers_on_one_store_the_second_decides_again() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let (one, other) = (Registry::open(store.clone()).await.unwrap(), Registry::open(store.clone()).await.unwrap());
    put(&one, vec![tenant("acme")]).await.unwrap();
    let mut seen = Vec::new();
    let decide = |view: &View, draft: &mut Draft| {
        seen.push(view.tenant(&"acme".into()).is_some());
        if view.tenant(&"acme".into()).is_some() {
            return Err("it is taken");
        }
        draft.put(tenant("acme"));
        Ok(())
    };
    assert!(matches!(other.write(decide).await, Err(AmendError::Refused("it is taken"))));
    assert_eq!(seen, [false, true]);
    put(&other, vec![token("h")]).await.unwrap();
    one.refresh().await.unwrap();
    let (mine, theirs) = (one.read(View::records), other.read(View::records));
    assert_eq!(mine, theirs);
    let mut stored = store.changed_since(0).await.unwrap().records;
    stored.sort_by(|a, b| (&a.kind, &a.key).cmp(&(&b.kind, &b.key)));
    assert_eq!(mine, stored);
}

/// Numbers come from the store, so two servers never give one ledger to two owners.
#[tokio::test]
async fn two_servers_give_distinct_instance_numbers() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let desks = [Registry::open(store.clone()).await.unwrap(), Registry::open(store.clone()).await.unwrap()];
    for round in 0..10 {
        for (at, desk) in desks.iter().enumerate() {
            let name = format!("i-{round}-{at}");
            let new =
                Instance { no: InstanceNo(0), tenant: "acme".into(), name: name.into(), wake_url: None, left_ms: None };
            put(desk, vec![Fact::Instance(new)]).await.unwrap();
        }
    }
    desks[0].refresh().await.unwrap();
    let numbers: std::collections::HashSet<InstanceNo> =
        desks[0].read(|view| view.instances().map(|it| it.no).collect());
    assert_eq!(numbers.len(), 20);
}

/// A stale deletion must not remove a newer record of the same name.
#[tokio::test]
async fn a_stale_deletion_removes_no_newer_record() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let (one, other) = (Registry::open(store.clone()).await.unwrap(), Registry::open(store.clone()).await.unwrap());
    put(&one, vec![token("first")]).await.unwrap();
    other.refresh().await.unwrap();
    one.write(|_, draft| {
        draft.remove(&token("first"));
        Ok::<_, Infallible>(())
    })
    .await
    .unwrap();
    put(&one, vec![token("second")]).await.unwrap();
    // The other server still sees the first record. Its decision is about that one, and is made again.
    let decide = |view: &View, draft: &mut Draft| {
        if view.token_by_hash("first").is_none() {
            return Err("it is gone");
        }
        draft.remove(&token("first"));
        Ok(())
    };
    assert!(matches!(other.write(decide).await, Err(AmendError::Refused("it is gone"))));
    assert!(other.read(|view| view.token_by_hash("second").is_some()));
}

#[tokio::test]
async fn a_refusal_of_the_rules_writes_nothing() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let registry = Registry::open(store.clone()).await.unwrap();
    let refused = registry
        .write(|_, draft| {
            draft.put(tenant("acme"));
            Err::<(), _>("no")
        })
        .await;
    assert!(matches!(refused, Err(AmendError::Refused("no"))));
    assert!(store.changed_since(0).await.unwrap().records.is_empty());
    registry.read(|view| assert!(view.tenants().len() == 0));
}

/// Two server versions side by side: the older one sets aside records that it cannot read, and works with the rest.
#[tokio::test]
async fn an_unreadable_record_is_kept_aside_and_never_overwritten() {
    for json in ["{", "{}", r#"{"name": "acme", "created_ms": "yesterday"}"#] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
        let running = Registry::open(store.clone()).await.unwrap();
        put(&running, vec![tenant("acme"), tenant("other")]).await.unwrap();
        let newer = Change { kind: "tenant".into(), key: "acme".into(), json: Some(json.into()) };
        store.amend(1, vec![newer], Box::new(|_| {})).await.unwrap();
        running.refresh().await.unwrap();
        let started = Registry::open(store.clone()).await.unwrap();
        for registry in [&running, &started] {
            registry.read(|view| {
                assert!(view.tenant(&"other".into()).is_some() && view.tenant(&"acme".into()).is_none());
                assert_eq!(view.unreadable().names().collect::<Vec<_>>(), [("tenant", "acme".to_owned())]);
            });
            for fact in [tenant("acme"), token("h")] {
                let refused = put(registry, vec![fact]).await;
                assert!(matches!(refused, Err(AmendError::Store(StoreError::Newer(_)))), "{refused:?}");
            }
            let remove = |_: &_, draft: &mut Draft| {
                draft.remove(&tenant("acme"));
                Ok::<_, Infallible>(())
            };
            assert!(matches!(registry.write(remove).await, Err(AmendError::Store(StoreError::Newer(_)))));
        }
        let stored = store.changed_since(0).await.unwrap().records;
        assert!(stored.iter().any(|it| it.key == "acme" && it.json.as_deref() == Some(json)), "{stored:?}");

        // A form that both can read.
        let readable = Change { kind: "tenant".into(), key: "acme".into(), json: Some(tenant("acme").json()) };
        store.amend(2, vec![readable], Box::new(|_| {})).await.unwrap();
        running.refresh().await.unwrap();
        running.read(|view| assert!(view.tenant(&"acme".into()).is_some() && view.unreadable().is_empty()));
        put(&running, vec![token("h")]).await.unwrap();
    }
}

/// Two server versions side by side: the older one does not touch records of unknown kinds.
#[tokio::test]
async fn a_record_of_an_unknown_kind_is_not_touched() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let newer = Change { kind: "tarot".into(), key: "acme".into(), json: Some("{}".into()) };
    store.amend(0, vec![newer], Box::new(|_| {})).await.unwrap();
    let registry = Registry::open(store.clone()).await.unwrap();
    put(&registry, vec![tenant("acme")]).await.unwrap();
    assert_eq!(store.changed_since(0).await.unwrap().records.len(), 2);
}
