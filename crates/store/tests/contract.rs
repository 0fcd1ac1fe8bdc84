//! All rules of the store port over every backend, and tests of the file backend only.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use frontdesk_core::port::store::{Retention, Store, StoreError, Upkeep as _};
use frontdesk_store::memory::MemoryStore;
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::store_contract;
use frontdesk_testkit::store_suite::alarms::alarm;
use frontdesk_testkit::store_suite::{
    Harness, NotifiedRows, accept, accept_many, acceptance, capability, numbers, owed, settled,
};
use frontdesk_wire::{InstanceNo, Seq};

fn in_memory() -> Harness {
    // Memory cannot be reopened: the same store is returned.
    Harness::new(|held| held.unwrap_or_else(|| Arc::new(MemoryStore::new(1))))
}

fn on_disk() -> Harness {
    let folder = tempfile::tempdir().unwrap();
    let mut times_opened = 0;
    Harness::new(move |held| -> Arc<dyn Store> {
        drop(held);
        times_opened += 1; // a new seed each time: only the first may count
        Arc::new(SqliteStore::open(folder.path(), times_opened).unwrap())
    })
}

store_contract!(memory, in_memory);
store_contract!(sqlite, on_disk);

fn open(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder, 7).unwrap())
}

/// The lock of the folder guarantees a single process, so claims from before a crash need no timeout.
#[tokio::test]
async fn claims_of_a_crash_are_released() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let id = store.arm(vec![alarm(1, 100)]).await.unwrap()[0].id;
    let far = u64::MAX >> 2;
    assert_eq!(store.claim_alarms(vec![id], 100, 100, far).await.unwrap().len(), 1);
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.claim_alarms(vec![id], 101, 101, far).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_memory_store_refuses_backups() {
    let refused = MemoryStore::new(1).backup(Path::new("nowhere")).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(text)) if text.contains("memory")));
}

#[tokio::test]
async fn a_backup_opens_as_a_store_with_the_same_content() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path());
    accept_many(&*store, 300, 7).await;
    let mut bound = acceptance(301, &[8]);
    bound.capabilities = vec![capability("cap", &["k"], 500)];
    accept(&*store, bound).await;
    store.settle(InstanceNo(7), settled(&[1, 2, 9]).into()).await.unwrap();
    store.drop_mail(InstanceNo(7), Seq(5), None, "no".into()).await.unwrap();

    let to = copy.path().join("frontdesk.db");
    let bytes = store.backup(&to).await.unwrap();
    assert_eq!(bytes, std::fs::metadata(&to).unwrap().len());
    accept(&*store, acceptance(302, &[7])).await; // written after the backup

    let again: Arc<dyn Store> = Arc::new(SqliteStore::open(copy.path(), 99).unwrap());
    assert_eq!(again.epoch(), store.epoch());
    assert_eq!(again.position(InstanceNo(7)).await.unwrap(), store.position(InstanceNo(7)).await.unwrap());
    let (mine, theirs) = (
        store.mail(InstanceNo(7), None, Seq(301), 999).await.unwrap(),
        again.mail(InstanceNo(7), None, Seq(0), 999).await.unwrap(),
    );
    assert_eq!(mine, theirs);
    assert_eq!(owed(&*again, 8).await, [1]);
    assert!(again.capability(&"acme".into(), &"k".into(), "interaction", 0).await.unwrap().is_some());
    assert_eq!(again.report().await.unwrap().faults, [""; 0]);
    assert_eq!(numbers(&accept(&*again, acceptance(302, &[7])).await.rows), [(7, 301)], "the backup is writable");
}

#[tokio::test]
async fn a_backup_under_load_is_a_consistent_snapshot() {
    let (folder, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path());
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..400 {
                accept(&*store, acceptance(number, &[7, 8])).await;
            }
        }
    });
    while owed(&*store, 8).await.is_empty() {
        tokio::task::yield_now().await;
    }
    store.backup(&copy.path().join("frontdesk.db")).await.unwrap();
    writing.await.unwrap();
    let again = open(copy.path());
    let (seven, eight) = (owed(&*again, 7).await, owed(&*again, 8).await);
    assert_eq!(seven, eight, "no event is incomplete");
    assert_eq!(seven, (1..=seven.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_backup_overwrites_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let to = folder.path().join("precious");
    std::fs::write(&to, "precious").unwrap();
    let refused = store.backup(&to).await;
    assert!(matches!(&refused, Err(StoreError::Unavailable(text)) if text.contains("exists")), "{refused:?}");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), "precious");
    let nowhere = folder.path().join("no/such/folder/frontdesk.db");
    assert!(matches!(store.backup(&nowhere).await, Err(StoreError::Unavailable(_))));
    assert!(store.backup(&folder.path().join("new.db")).await.unwrap() > 0, "backups still work");
}

#[tokio::test]
async fn a_notification_after_the_server_is_gone_is_harmless() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let notified = NotifiedRows::on(&*store);
    let asking = store.accept(vec![acceptance(1, &[7])]);
    drop(asking); // never polled, so never written
    accept(&*store, acceptance(2, &[7])).await;
    assert_eq!(notified.rows(), [(7, 1)]);
    assert_eq!(owed(&*store, 7).await, [1]);
}

/// Old rows are deleted in small steps, so that other writes run in between.
#[tokio::test]
async fn a_purge_holds_the_writer_for_a_bounded_number_of_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    accept_many(&*store, 2_000, 7).await;
    store.settle(InstanceNo(7), settled(&(1..=2_000).collect::<Vec<_>>()).into()).await.unwrap();
    let far = u64::from(u32::MAX);
    let keep = Retention { events_before_ms: far, verdicts_before_ms: far, ..Retention::default() };
    let (mut gone, mut largest) = (0, 0);
    loop {
        let step = store.purge(keep).await.unwrap();
        (gone, largest) = (gone + step.gone, largest.max(step.gone));
        if !step.more {
            break;
        }
    }
    assert!(gone >= 4_000, "{gone} rows and events of 2,000 each");
    assert!(largest <= 1_000, "{largest} rows in one step");
}
