//! Rules for the directory: one version, compare-and-set on it, atomic commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk_core::port::store::{Change, Changes, Record, Store, StoreError};
use tokio::task::JoinSet;

use super::Harness;

fn put(key: &str, json: &str) -> Change {
    Change { kind: "tenant".into(), key: key.into(), json: Some(json.into()) }
}

fn delete(key: &str) -> Change {
    Change { json: None, ..put(key, "") }
}

fn record(key: &str, version: u64, json: &str) -> Record {
    Record { kind: "tenant".into(), key: key.into(), version, json: Some(json.into()) }
}

async fn since(store: &Arc<dyn Store>, version: u64) -> Changes {
    let mut changes = store.changed_since(version).await.unwrap();
    changes.records.sort_by(|a, b| (&a.kind, &a.key).cmp(&(&b.kind, &b.key)));
    changes
}

async fn load(store: &Arc<dyn Store>) -> Vec<Record> {
    since(store, 0).await.records
}

async fn amend(store: &Arc<dyn Store>, seen: u64, changes: Vec<Change>) -> Result<u64, StoreError> {
    store.amend(seen, changes, Box::new(|_| {})).await
}

/// A writer that has seen the newest version.
async fn write(store: &Arc<dyn Store>, changes: Vec<Change>) -> u64 {
    let seen = since(store, 0).await.version;
    amend(store, seen, changes).await.unwrap()
}

pub async fn every_commit_raises_the_version_of_the_directory(Harness { store, .. }: Harness) {
    assert_eq!(since(&store, 0).await, Changes { version: 0, records: Vec::new(), whole: true });
    assert_eq!(amend(&store, 0, vec![put("a", "1"), put("b", "1")]).await, Ok(1));
    assert_eq!(amend(&store, 1, vec![put("a", "2")]).await, Ok(2));
    assert_eq!(load(&store).await, [record("a", 2, "2"), record("b", 1, "1")]);
}

pub async fn a_stale_writer_gets_a_conflict(Harness { store, .. }: Harness) {
    write(&store, vec![put("a", "1")]).await;
    write(&store, vec![put("a", "2")]).await;
    for seen in [0, 1, 3] {
        for change in [put("a", "stale"), put("b", "of something else"), delete("a")] {
            assert_eq!(amend(&store, seen, vec![change]).await, Err(StoreError::Conflict), "seen {seen}");
        }
    }
    assert_eq!(since(&store, 0).await, Changes { version: 2, records: vec![record("a", 2, "2")], whole: true });
}

pub async fn changes_include_deletions(Harness { store, .. }: Harness) {
    write(&store, vec![put("a", "1"), put("b", "1"), put("c", "1")]).await;
    write(&store, vec![put("a", "2"), delete("b")]).await;
    let gone = Record { json: None, ..record("b", 2, "") };
    assert_eq!(since(&store, 1).await, Changes { version: 2, records: vec![record("a", 2, "2"), gone], whole: false });
    assert_eq!(since(&store, 2).await, Changes { version: 2, records: Vec::new(), whole: false });
    assert_eq!(load(&store).await, [record("a", 2, "2"), record("c", 1, "1")], "deleted records are not loaded");
    write(&store, vec![put("b", "again")]).await;
    assert_eq!(since(&store, 1).await.records, [record("a", 2, "2"), record("b", 3, "again")]);
}

/// If versions started again at 1, a stale writer could delete a newer record.
pub async fn versions_rise_across_deletions(Harness { store, .. }: Harness) {
    write(&store, vec![put("a", "1")]).await;
    write(&store, vec![delete("a")]).await;
    write(&store, vec![put("a", "2")]).await;
    assert_eq!(load(&store).await, [record("a", 3, "2")]);
    assert_eq!(amend(&store, 1, vec![delete("a")]).await, Err(StoreError::Conflict));
}

pub async fn kinds_do_not_share_keys(Harness { store, .. }: Harness) {
    write(&store, vec![put("a", "1"), Change { kind: "bot".into(), ..put("a", "2") }]).await;
    let kinds: Vec<_> = load(&store).await.into_iter().map(|it| (it.kind, it.json.unwrap())).collect();
    assert_eq!(kinds, [("bot".to_owned(), "2".to_owned()), ("tenant".to_owned(), "1".to_owned())]);
}

pub async fn of_many_writers_one_wins(Harness { store, .. }: Harness) {
    let mut writers = JoinSet::new();
    for number in 0..32 {
        let store = store.clone();
        writers.spawn(async move { (number, amend(&store, 0, vec![put("a", &number.to_string())]).await) });
    }
    let mut winners = Vec::new();
    while let Some(ended) = writers.join_next().await {
        match ended.unwrap() {
            (number, Ok(1)) => winners.push(number),
            (_, refused) => assert_eq!(refused, Err(StoreError::Conflict)),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(load(&store).await, [record("a", 1, &winners[0].to_string())]);
}

pub async fn records_survive(harness: Harness) {
    let json = r#"{"name":"büro","emoji":"🙂"}"#;
    write(&harness.store, vec![put("a\u{1f}b", json), put("gone", "1")]).await;
    write(&harness.store, vec![delete("gone")]).await;
    let harness = harness.reopened();
    assert_eq!(load(&harness.store).await, [record("a\u{1f}b", 1, json)]);
    // A reader from before the restart learns of the deletion, by a list of all records.
    let changes = since(&harness.store, 1).await;
    let is_listed = changes.whole || changes.records.iter().any(|it| it.key == "gone" && it.json.is_none());
    assert!(is_listed && changes.version == 2, "{changes:?}");
    assert_eq!(amend(&harness.store, 2, vec![put("b", "1")]).await, Ok(3), "versions continue");
}

fn numbered(kind: &str, key: &str, no: u64) -> Change {
    Change { kind: kind.into(), ..put(key, &format!(r#"{{"no":{no},"name":"{key}"}}"#)) }
}

/// Two owners of one ledger would read each other's messages.
pub async fn a_number_has_one_owner(Harness { store, .. }: Harness) {
    write(&store, vec![numbered("instance", "a", 7)]).await;
    for (kind, key) in [("instance", "b"), ("agent", "b")] {
        let both = vec![put("t", "1"), numbered(kind, key, 7)];
        assert_eq!(amend(&store, 1, both).await, Err(StoreError::Conflict), "{kind}");
    }
    assert_eq!((load(&store).await.len(), since(&store, 0).await.version), (1, 1), "nothing of it was written");
    write(&store, vec![numbered("instance", "a", 7), numbered("agent", "b", 8), numbered("tenant", "x", 7)]).await;
}

pub async fn numbers_are_drawn_once(harness: Harness) {
    let first = harness.store.draw_numbers(1).await.unwrap();
    let run = harness.store.draw_numbers(3).await.unwrap();
    assert!(first >= 1 && run > first);
    let harness = harness.reopened();
    assert!(harness.store.draw_numbers(1).await.unwrap() > run + 2, "also after a restart");
    write(&harness.store, vec![numbered("instance", "a", 900)]).await;
    assert!(harness.store.draw_numbers(1).await.unwrap() > 900, "above a number that a record brought along");
}

/// The callback runs with the commit, and not without it.
pub async fn memory_changes_with_the_commit(Harness { store, .. }: Harness) {
    let newest = Arc::new(AtomicU64::new(0));
    let noted = || {
        let newest = newest.clone();
        Box::new(move |version| {
            newest.fetch_max(version, Ordering::SeqCst);
        })
    };
    store.amend(0, vec![put("a", "1")], noted()).await.unwrap();
    assert_eq!(store.amend(0, vec![put("a", "2")], noted()).await, Err(StoreError::Conflict));
    assert_eq!(newest.load(Ordering::SeqCst), 1);
    // If the caller is dropped after the request, both the commit and the callback happen.
    let mut asked = store.amend(1, vec![put("a", "3")], noted());
    let polled = std::future::poll_fn(|context| std::task::Poll::Ready(asked.as_mut().poll(context).is_ready()));
    let was_quick = polled.await;
    drop(asked);
    // A store with several connections may be asked for the next one before.
    while since(&store, 0).await.version < 2 {
        tokio::task::yield_now().await;
    }
    store.amend(2, vec![put("b", "1")], noted()).await.unwrap();
    assert_eq!(newest.load(Ordering::SeqCst), 3, "quick: {was_quick}");
    assert_eq!(load(&store).await, [record("a", 2, "3"), record("b", 3, "1")]);
}
