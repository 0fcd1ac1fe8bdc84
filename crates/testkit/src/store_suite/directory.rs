//! Rules of the directory: compare-and-set, all or nothing.

use std::sync::Arc;

use frontdesk_core::port::store::{Change, Record, Store, StoreError};
use tokio::task::JoinSet;

use super::House;

fn change(key: &str, expect: u64, json: Option<&str>) -> Change {
    Change { kind: "tenant".into(), key: key.into(), expect, json: json.map(str::to_owned) }
}

fn record(key: &str, version: u64, json: &str) -> Record {
    Record { kind: "tenant".into(), key: key.into(), version, json: json.into() }
}

async fn load(store: &Arc<dyn Store>) -> Vec<Record> {
    let mut records = store.load().await.unwrap();
    records.sort_by(|a, b| (&a.kind, &a.key).cmp(&(&b.kind, &b.key)));
    records
}

pub async fn a_record_begins_at_version_one(House { store, .. }: House) {
    assert_eq!(load(&store).await, []);
    store.amend(vec![change("a", 0, Some("1"))], Box::new(|| {})).await.unwrap();
    assert_eq!(load(&store).await, [record("a", 1, "1")]);
}

pub async fn an_update_raises_the_version(House { store, .. }: House) {
    for (expect, json) in ["1", "2", "3"].into_iter().enumerate() {
        store.amend(vec![change("a", expect as u64, Some(json))], Box::new(|| {})).await.unwrap();
    }
    assert_eq!(load(&store).await, [record("a", 3, "3")]);
}

pub async fn a_wrong_version_is_a_conflict(House { store, .. }: House) {
    store.amend(vec![change("a", 0, Some("1"))], Box::new(|| {})).await.unwrap();
    store.amend(vec![change("a", 1, Some("2"))], Box::new(|| {})).await.unwrap();
    for bad in [
        change("a", 0, Some("new over old")),
        change("a", 1, Some("stale")),
        change("a", 3, Some("ahead")),
        change("a", 1, None),
        change("b", 1, Some("update of nothing")),
        change("b", 1, None),
    ] {
        assert_eq!(store.amend(vec![bad.clone()], Box::new(|| {})).await, Err(StoreError::Conflict), "{bad:?}");
    }
    assert_eq!(load(&store).await, [record("a", 2, "2")]);
}

pub async fn one_conflict_undoes_the_whole_amend(House { store, .. }: House) {
    store.amend(vec![change("a", 0, Some("1")), change("b", 0, Some("1"))], Box::new(|| {})).await.unwrap();
    let there = load(&store).await;
    let good = || vec![change("a", 1, Some("2")), change("b", 1, None), change("c", 0, Some("1"))];
    for place in 0..=3 {
        let mut changes = good();
        changes.insert(place, change("d", 7, Some("never")));
        assert_eq!(store.amend(changes, Box::new(|| {})).await, Err(StoreError::Conflict));
        assert_eq!(load(&store).await, there, "the conflict was at place {place}");
    }
    store.amend(good(), Box::new(|| {})).await.unwrap();
    assert_eq!(load(&store).await, [record("a", 2, "2"), record("c", 1, "1")]);
}

pub async fn a_deleted_record_is_gone_and_may_be_made_again(House { store, .. }: House) {
    store.amend(vec![change("a", 0, Some("1"))], Box::new(|| {})).await.unwrap();
    store.amend(vec![change("a", 1, None)], Box::new(|| {})).await.unwrap();
    assert_eq!(load(&store).await, []);
    assert_eq!(store.amend(vec![change("a", 1, Some("2"))], Box::new(|| {})).await, Err(StoreError::Conflict));
    store.amend(vec![change("a", 0, Some("3"))], Box::new(|| {})).await.unwrap();
    assert_eq!(load(&store).await, [record("a", 1, "3")]);
}

pub async fn kinds_do_not_share_keys(House { store, .. }: House) {
    let other = |json: &str| Change { kind: "bot".into(), ..change("a", 0, Some(json)) };
    store.amend(vec![change("a", 0, Some("1")), other("2")], Box::new(|| {})).await.unwrap();
    let kinds: Vec<_> = load(&store).await.into_iter().map(|it| (it.kind, it.json)).collect();
    assert_eq!(kinds, [("bot".to_owned(), "2".to_owned()), ("tenant".to_owned(), "1".to_owned())]);
}

pub async fn of_many_writers_one_wins(House { store, .. }: House) {
    let mut writers = JoinSet::new();
    for number in 0..32 {
        let store = store.clone();
        writers.spawn(async move {
            (number, store.amend(vec![change("a", 0, Some(&number.to_string()))], Box::new(|| {})).await)
        });
    }
    let mut winners = Vec::new();
    while let Some(ended) = writers.join_next().await {
        match ended.unwrap() {
            (number, Ok(())) => winners.push(number),
            (_, refused) => assert_eq!(refused, Err(StoreError::Conflict)),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(load(&store).await, [record("a", 1, &winners[0].to_string())]);
}

pub async fn records_survive(house: House) {
    let json = r#"{"name":"büro","emoji":"🙂"}"#;
    house
        .store
        .amend(vec![change("a\u{1f}b", 0, Some(json)), change("gone", 0, Some("1"))], Box::new(|| {}))
        .await
        .unwrap();
    house.store.amend(vec![change("gone", 1, None)], Box::new(|| {})).await.unwrap();
    let house = house.reopened();
    assert_eq!(load(&house.store).await, [record("a\u{1f}b", 1, json)]);
}

fn numbered(kind: &str, key: &str, no: u64) -> Change {
    Change { kind: kind.into(), ..change(key, 0, Some(&format!(r#"{{"no":{no},"name":"{key}"}}"#))) }
}

/// Two owners of one ledger would read each other's messages.
pub async fn a_number_has_one_owner(House { store, .. }: House) {
    store.amend(vec![numbered("instance", "a", 7)], Box::new(|| {})).await.unwrap();
    for (kind, key) in [("instance", "b"), ("agent", "b")] {
        let both = vec![change("t", 0, Some("1")), numbered(kind, key, 7)];
        assert_eq!(store.amend(both, Box::new(|| {})).await, Err(StoreError::Conflict), "{kind}");
    }
    assert_eq!(load(&store).await.len(), 1, "and nothing of it was written");
    let again = Change { expect: 1, ..numbered("instance", "a", 7) };
    store.amend(vec![again, numbered("agent", "b", 8), numbered("tenant", "x", 7)], Box::new(|| {})).await.unwrap();
}

pub async fn numbers_are_drawn_once(house: House) {
    let first = house.store.draw_numbers(1).await.unwrap();
    let run = house.store.draw_numbers(3).await.unwrap();
    assert!(first >= 1 && run > first);
    let house = house.reopened();
    assert!(house.store.draw_numbers(1).await.unwrap() > run + 2, "also after a restart");
    house.store.amend(vec![numbered("instance", "a", 900)], Box::new(|| {})).await.unwrap();
    assert!(house.store.draw_numbers(1).await.unwrap() > 900, "nor one that a record brought along");
}

/// What follows from a commit is done where it is made, and not without it.
pub async fn memory_changes_with_the_commit(House { store, .. }: House) {
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = || {
        let count = count.clone();
        Box::new(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        })
    };
    store.amend(vec![change("a", 0, Some("1"))], counted()).await.unwrap();
    assert_eq!(store.amend(vec![change("a", 0, Some("2"))], counted()).await, Err(StoreError::Conflict));
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 1);
    // An asker that goes away after it asked: written, and memory knows.
    let mut asked = store.amend(vec![change("a", 1, Some("3"))], counted());
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(asked.as_mut().poll(context).is_ready()));
    let was_quick = polled.await;
    drop(asked);
    store.amend(vec![change("b", 0, Some("1"))], counted()).await.unwrap();
    assert_eq!(count.load(std::sync::atomic::Ordering::SeqCst), 3, "quick: {was_quick}");
    assert_eq!(load(&store).await, [record("a", 2, "3"), record("b", 1, "1")]);
}
