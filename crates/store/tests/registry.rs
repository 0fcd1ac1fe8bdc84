//! The directory in memory over a real store: written through, compared and set, read back the same.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::convert::Infallible;
use std::sync::Arc;

use frontdesk_core::directory::facts::{Binding, Instance, Scope, Tenant, Token};
use frontdesk_core::directory::{AmendError, Draft, Fact, Registry};
use frontdesk_core::port::store::{Change, Directory as _, Store, StoreError};
use frontdesk_store::memory::MemoryStore;
use frontdesk_store::sqlite::SqliteStore;

fn tenant(name: &str) -> Fact {
    Fact::Tenant(Tenant { name: name.into(), created_ms: 1, notices: true })
}

fn binding(instance: &str, at_ms: u64) -> Fact {
    let [tenant, platform, user_id, instance] = ["acme", "chat", "ada", instance].map(str::to_owned);
    Fact::Binding(Binding { tenant, platform, user_id, instance, at_ms, since_ms: at_ms })
}

fn token(hash: &str) -> Fact {
    let (id, hash, tenant) = ("t-1".to_owned(), hash.to_owned(), "acme".to_owned());
    Fact::Token(Token { id, hash, tenant, scope: Scope::Chat, instance: None, created_ms: 1, expires_ms: None })
}

async fn put(registry: &Registry, facts: Vec<Fact>) -> Result<(), AmendError<Infallible>> {
    let decide = |_: &_, draft: &mut Draft| {
        for fact in facts {
            draft.put(fact);
        }
        Ok(())
    };
    registry.write(decide).await
}

fn links(registry: &Registry) -> Vec<String> {
    registry.read(|view| view.links("acme", "chat", "ada").iter().map(|link| link.instance.clone()).collect())
}

#[tokio::test]
async fn what_was_written_is_read_back_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let open = || -> Arc<dyn Store> { Arc::new(SqliteStore::open(folder.path(), 1).unwrap()) };
    let registry = Registry::open(open()).await.unwrap();
    let instance =
        Fact::Instance(Instance { no: 41, tenant: "acme".into(), name: "a".into(), wake_url: None, left_ms: None });
    put(&registry, vec![tenant("acme"), token("h1"), instance]).await.unwrap();
    put(&registry, vec![binding("late", 20), binding("early", 10)]).await.unwrap();
    put(&registry, vec![token("h2")]).await.unwrap();
    drop(registry);

    let registry = Registry::open(open()).await.unwrap();
    assert_eq!(links(&registry), ["early", "late"], "the latest link is last");
    registry.read(|view| {
        assert!(view.tenants.contains_key("acme"));
        assert!(view.token_by_hash("h1").is_none() && view.token_by_hash("h2").is_some(), "the old hash is gone");
        assert_eq!(view.instance_no(41).unwrap().name, "a");
    });
    let early = binding("early", 10);
    let forget = |_: &_, draft: &mut Draft| {
        draft.remove(&early);
        Ok::<_, Infallible>(())
    };
    registry.write(forget).await.unwrap();
    assert_eq!(links(&registry), ["late"]);
}

#[tokio::test]
async fn of_two_desks_on_one_store_the_second_is_told() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1));
    let (one, other) = (Registry::open(store.clone()).await.unwrap(), Registry::open(store.clone()).await.unwrap());
    put(&one, vec![tenant("acme")]).await.unwrap();
    let refused = put(&other, vec![token("h"), tenant("acme")]).await;
    assert!(matches!(refused, Err(AmendError::Store(StoreError::Conflict))));
    other.read(|view| assert!(view.tenants.is_empty() && view.tokens.is_empty(), "nothing is here that is not there"));
    assert_eq!(store.load().await.unwrap().len(), 1);
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
    assert!(store.load().await.unwrap().is_empty());
    registry.read(|view| assert!(view.tenants.is_empty()));
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_called_damaged() {
    for (kind, json) in [("tenant", "{"), ("tenant", "{}"), ("tarot", "{}")] {
        let store = MemoryStore::new(1);
        let bad = Change { kind: kind.into(), key: "acme".into(), expect: 0, json: Some(json.into()) };
        store.amend(vec![bad], Box::new(|| {})).await.unwrap();
        let error = Registry::open(Arc::new(store)).await.err().expect("it must not open");
        assert!(matches!(&error, StoreError::Corrupt(text) if text.contains("acme")), "{error}");
    }
}
