//! Rules for inboxes: messages are stored with their event, in order, until the inbox is dropped.

use frontdesk_core::port::inbox::{InboxMessage, PAGE_MAX_BYTES, PlannedWake, StoredMessage};
use frontdesk_core::port::store::{Acceptance, Retention, Store};
use frontdesk_core::port::upkeep::STEP_MAX_ROWS;
use frontdesk_wire::{EventId, InboxSeq, InstanceNo};

use super::{Harness, accept, acceptance, numbers, owed, settled};

fn message(number: u64, agent: u64) -> InboxMessage {
    InboxMessage {
        agent: InstanceNo(agent),
        delivery_id: format!("d-{number}"),
        kind: "augment".into(),
        text: format!("text \u{1F600} {number}"),
        meta: Some(format!(r#"{{"dispatch_id":"{number}"}}"#)),
        session_id: Some("kitchen".into()),
        receipts: "[]".into(),
    }
}

fn with_message(number: u64, agent: u64, receivers: &[u64]) -> Acceptance {
    Acceptance { message: Some(message(number, agent)), ..acceptance(number, receivers) }
}

/// Stores messages with these numbers in one inbox.
async fn store_messages(store: &dyn Store, numbers: &[u64], agent: u64) {
    store.accept(numbers.iter().map(|number| with_message(*number, agent, &[])).collect()).await.unwrap();
}

/// Drops an inbox to its end, and returns how many rows each step took.
async fn drop_inbox(store: &dyn Store, agent: u64) -> Vec<u64> {
    let mut steps = Vec::new();
    loop {
        let step = store.drop_inbox(InstanceNo(agent)).await.unwrap();
        steps.push(step.gone);
        if !step.more {
            return steps;
        }
    }
}

async fn all(store: &dyn Store, agent: u64) -> Vec<StoredMessage> {
    store.messages(InstanceNo(agent), InboxSeq(0), 999).await.unwrap()
}

async fn ids(store: &dyn Store, agent: u64) -> Vec<String> {
    all(store, agent).await.into_iter().map(|stored| stored.message.delivery_id).collect()
}

async fn places(store: &dyn Store, agent: u64) -> Vec<u64> {
    all(store, agent).await.into_iter().map(|stored| stored.place.0).collect()
}

fn wake(key: &str, agent: u64) -> PlannedWake {
    PlannedWake { key: key.into(), agent: InstanceNo(agent), json: format!(r#"{{"for":{agent}}}"#) }
}

pub async fn a_message_is_written_with_its_event(Harness { store, .. }: Harness) {
    assert_eq!(store.newest_message(InstanceNo(3)).await.unwrap(), InboxSeq(0));
    let accepted = accept(&*store, with_message(1, 3, &[])).await;
    let stored = StoredMessage { place: accepted.place, event: accepted.event, at_ms: 1_001, message: message(1, 3) };
    assert_eq!(all(&*store, 3).await, std::slice::from_ref(&stored));
    assert_eq!(store.message_of(accepted.event).await.unwrap(), Some(stored));
    assert_eq!(store.newest_message(InstanceNo(3)).await.unwrap(), accepted.place);
    let plain = accept(&*store, acceptance(2, &[7])).await;
    assert_eq!(store.message_of(plain.event).await.unwrap(), None, "not every event is a message");
    let bare = InboxMessage { meta: None, session_id: None, text: String::new(), ..message(3, 3) };
    let accepted = accept(&*store, Acceptance { message: Some(bare.clone()), ..acceptance(3, &[]) }).await;
    assert_eq!(store.message_of(accepted.event).await.unwrap().unwrap().message, bare);
}

pub async fn a_page_of_large_messages_is_short(Harness { store, .. }: Harness) {
    let large = |number| {
        let text = "x".repeat(PAGE_MAX_BYTES / 2);
        Acceptance { message: Some(InboxMessage { text, ..message(number, 3) }), ..acceptance(number, &[]) }
    };
    store.accept((1..=5).map(large).collect()).await.unwrap();
    let mut after = InboxSeq::NONE;
    for expected in [vec!["d-1", "d-2"], vec!["d-3", "d-4"], vec!["d-5"], vec![]] {
        let page = store.messages(InstanceNo(3), InboxSeq(after.0), 500).await.unwrap();
        after = page.last().map_or(after, |stored| stored.place);
        assert_eq!(page.iter().map(|stored| &stored.message.delivery_id).collect::<Vec<_>>(), expected);
    }
}

pub async fn messages_are_read_in_pages(Harness { store, .. }: Harness) {
    store_messages(&*store, &[1, 2, 3, 4, 5], 3).await;
    let mut after = InboxSeq::NONE;
    for expected in [vec!["d-1", "d-2"], vec!["d-3", "d-4"], vec!["d-5"], vec![]] {
        let page = store.messages(InstanceNo(3), InboxSeq(after.0), 2).await.unwrap();
        after = page.last().map_or(after, |stored| stored.place);
        assert_eq!(page.iter().map(|stored| &stored.message.delivery_id).collect::<Vec<_>>(), expected);
    }
    assert_eq!(store.messages(InstanceNo(3), InboxSeq(0), 0).await.unwrap(), []);
}

pub async fn every_inbox_is_read_alone(Harness { store, .. }: Harness) {
    for (number, agent) in [(1, 3), (2, 4), (3, 3), (4, 4), (5, 5)] {
        store_messages(&*store, &[number], agent).await;
    }
    assert_eq!(ids(&*store, 3).await, ["d-1", "d-3"]);
    assert_eq!(ids(&*store, 4).await, ["d-2", "d-4"]);
    assert_eq!(ids(&*store, 5).await, ["d-5"]);
    assert_eq!(ids(&*store, 6).await, [""; 0]);
    let first = places(&*store, 3).await[0];
    assert_eq!(
        store.messages(InstanceNo(3), InboxSeq(first), 9).await.unwrap().len(),
        1,
        "the page does not reach into the next inbox"
    );
}

/// Messages become readable in the order of their positions: a reader that continues after the last one sees every
/// other one.
pub async fn a_reader_behind_many_writers_misses_nothing(Harness { store, .. }: Harness) {
    const WRITERS: u64 = 8;
    const EACH: u64 = 40;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for number in 0..EACH {
                // Other inboxes, and events without a message, take numbers in between.
                let number = 1 + writer * EACH + number;
                accept(&*store, with_message(number, 3 + number % 2, &[])).await;
                accept(&*store, acceptance(10_000 + number, &[7])).await;
            }
        });
    }
    let (mut after, mut seen) = (InboxSeq::NONE, Vec::new());
    while !writers.is_empty() || seen.len() < (WRITERS * EACH / 2) as usize {
        let is_over = writers.is_empty();
        let page = store.messages(InstanceNo(3), InboxSeq(after.0), 16).await.unwrap();
        assert!(page.is_sorted_by_key(|stored| stored.place));
        assert!(!is_over || !page.is_empty(), "only {} messages", seen.len());
        after = page.last().map_or(after, |stored| stored.place);
        seen.extend(page.into_iter().map(|stored| stored.message.delivery_id));
        while let Some(ended) = writers.try_join_next() {
            ended.unwrap();
        }
        tokio::task::yield_now().await;
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), (WRITERS * EACH / 2) as usize);
}

/// A reader with a position from before an inbox was dropped misses nothing in the new one.
pub async fn message_numbers_are_never_reused(harness: Harness) {
    store_messages(&*harness.store, &[1, 2], 3).await;
    let before = harness.store.newest_message(InstanceNo(3)).await.unwrap();
    drop_inbox(&*harness.store, 3).await;
    super::purge(&*harness.store, KEEP).await;
    let harness = harness.reopened();
    store_messages(&*harness.store, &[3], 4).await;
    assert!(places(&*harness.store, 4).await[0] > before.0);
}

pub async fn a_duplicate_stores_no_second_message(Harness { store, .. }: Harness) {
    let first = accept(&*store, with_message(1, 3, &[7])).await;
    let changed = InboxMessage { text: "other".into(), ..message(1, 3) };
    let again = accept(&*store, Acceptance { message: Some(changed), ..acceptance(1, &[7]) }).await;
    assert_eq!((again.event, again.fresh), (first.event, false));
    assert_eq!(all(&*store, 3).await.len(), 1);
    let kept = store.message_of(first.event).await.unwrap().unwrap();
    assert_eq!(kept.message, message(1, 3), "a retry gets the first one");
}

pub async fn a_message_and_its_rows_are_one_commit(harness: Harness) {
    let accepted = accept(&*harness.store, with_message(1, 3, &[7, 8])).await;
    assert_eq!(numbers(&accepted.rows), [(7, 1), (8, 1)]);
    let harness = harness.reopened();
    assert_eq!((owed(&*harness.store, 7).await, owed(&*harness.store, 8).await), (vec![1], vec![1]));
    assert_eq!(ids(&*harness.store, 3).await, ["d-1"]);
}

pub async fn receipts_are_noted_and_the_rest_stays(harness: Harness) {
    store_messages(&*harness.store, &[1, 2], 3).await;
    let now = |agent| {
        let (kind, receipts) = ("wake_degraded".into(), r#"[{"ok":true}]"#.into());
        InboxMessage { agent, kind, receipts, session_id: None, text: "ignored".into(), ..InboxMessage::default() }
    };
    let events: Vec<EventId> = all(&*harness.store, 3).await.iter().map(|stored| stored.event).collect();
    let store = &harness.store;
    assert!(store.note_receipts(events[1], None, now(InstanceNo(3))).await.unwrap());
    let unknown = EventId(events[1].0 + 7);
    assert!(!store.note_receipts(unknown, None, now(InstanceNo(3))).await.unwrap());
    assert!(!store.note_receipts(events[0], None, now(InstanceNo(4))).await.unwrap(), "of another agent");
    let harness = harness.reopened();
    let kept: Vec<InboxMessage> = all(&*harness.store, 3).await.into_iter().map(|stored| stored.message).collect();
    let now = now(InstanceNo(3));
    let noted = InboxMessage { kind: now.kind, receipts: now.receipts, session_id: None, ..message(2, 3) };
    assert_eq!(kept, [message(1, 3), noted]);
}

/// Two servers that add receipts at the same time: the second sees that it must read them again.
pub async fn receipts_that_changed_meanwhile_are_not_overwritten(Harness { store, .. }: Harness) {
    store_messages(&*store, &[1], 3).await;
    let first = all(&*store, 3).await.remove(0);
    let with = |receipts: &str| InboxMessage { receipts: receipts.into(), ..first.message.clone() };
    let seen = || Some(first.message.receipts.clone());
    assert!(store.note_receipts(first.event, seen(), with("[1]")).await.unwrap());
    assert!(!store.note_receipts(first.event, seen(), with("[2]")).await.unwrap());
    assert_eq!(all(&*store, 3).await[0].message.receipts, "[1]");
    assert!(store.note_receipts(first.event, Some("[1]".into()), with("[1,2]")).await.unwrap());
    assert_eq!(all(&*store, 3).await[0].message.receipts, "[1,2]");
}

pub async fn the_newest_messages_of_a_tenant_come_first(Harness { store, .. }: Harness) {
    store_messages(&*store, &[1], 3).await;
    store_messages(&*store, &[2], 4).await;
    accept(&*store, Acceptance { tenant: "other".into(), ..with_message(3, 5, &[]) }).await;
    store_messages(&*store, &[4], 3).await;
    let newest = async |tenant: &str, limit| {
        let found = store.recent_messages(&tenant.into(), limit).await.unwrap();
        found.into_iter().map(|stored| stored.message.delivery_id).collect::<Vec<_>>()
    };
    assert_eq!(newest("acme", 9).await, ["d-4", "d-2", "d-1"]);
    assert_eq!(newest("acme", 2).await, ["d-4", "d-2"]);
    assert_eq!(newest("other", 9).await, ["d-3"]);
    assert_eq!(newest("nobody", 9).await, [""; 0]);
}

pub async fn a_dropped_inbox_is_empty_and_so_are_its_plans(Harness { store, .. }: Harness) {
    store_messages(&*store, &[1, 2], 3).await;
    store_messages(&*store, &[3], 4).await;
    store.plan_wake(wake("a", 3)).await.unwrap();
    store.plan_wake(wake("b", 4)).await.unwrap();
    drop_inbox(&*store, 3).await;
    assert_eq!((ids(&*store, 3).await.len(), ids(&*store, 4).await), (0, vec!["d-3".to_owned()]));
    assert_eq!(store.planned_wake("a").await.unwrap(), None);
    assert_eq!(store.planned_wake("b").await.unwrap(), Some(wake("b", 4)));
    assert_eq!(store.newest_message(InstanceNo(3)).await.unwrap(), InboxSeq(0));
    assert_eq!(drop_inbox(&*store, 99).await, [0]);
}

/// Others write between two steps, and a deletion that was interrupted is found.
pub async fn a_large_inbox_is_dropped_in_small_steps(harness: Harness) {
    for first in (1..=1_200).step_by(100) {
        store_messages(&*harness.store, &(first..first + 100).collect::<Vec<_>>(), 3).await;
    }
    store_messages(&*harness.store, &[2_000], 4).await;
    for number in 0..600 {
        harness.store.plan_wake(wake(&format!("w-{number}"), 3)).await.unwrap();
    }
    let is_left = async |store: &dyn Store| store.inboxes().await.unwrap().contains(&InstanceNo(3));
    for _ in 0..4 {
        let step = harness.store.drop_inbox(InstanceNo(3)).await.unwrap();
        assert!(step.more && (1..=STEP_MAX_ROWS).contains(&step.gone), "{step:?}");
        assert!(is_left(&*harness.store).await);
    }
    let harness = harness.reopened();
    assert!(is_left(&*harness.store).await);
    let steps = drop_inbox(&*harness.store, 3).await;
    assert!(steps.len() > 1 && steps.iter().all(|gone| *gone <= STEP_MAX_ROWS), "{steps:?}");
    assert!(!is_left(&*harness.store).await);
    assert_eq!((ids(&*harness.store, 3).await.len(), ids(&*harness.store, 4).await), (0, vec!["d-2000".to_owned()]));
    for number in [0, 599] {
        assert_eq!(harness.store.planned_wake(&format!("w-{number}")).await.unwrap(), None);
    }
}

pub async fn a_planned_wake_is_kept_until_dropped(harness: Harness) {
    harness.store.plan_wake(wake("a", 3)).await.unwrap();
    harness.store.plan_wake(wake("b", 3)).await.unwrap();
    let later = PlannedWake { json: r#"{"again":true}"#.into(), ..wake("a", 3) };
    harness.store.plan_wake(later.clone()).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(harness.store.planned_wake("a").await.unwrap(), Some(later), "the latest value");
    harness.store.drop_planned_wake("a").await.unwrap();
    harness.store.drop_planned_wake("a").await.unwrap();
    assert_eq!(harness.store.planned_wake("a").await.unwrap(), None);
    assert_eq!(harness.store.planned_wake("b").await.unwrap(), Some(wake("b", 3)));
}

pub async fn messages_survive(harness: Harness) {
    store_messages(&*harness.store, &[1, 2], 3).await;
    let before = all(&*harness.store, 3).await;
    let harness = harness.reopened();
    assert_eq!(all(&*harness.store, 3).await, before);
    store_messages(&*harness.store, &[3], 3).await;
    assert_eq!(ids(&*harness.store, 3).await, ["d-1", "d-2", "d-3"], "numbering continues");
}

/// Deletes everything that can expire, except messages.
const KEEP: Retention = Retention {
    now_ms: 9_000,
    events_before_ms: 9_000,
    verdicts_before_ms: 9_000,
    inbox_before_ms: 0,
    journal_before_ms: 0,
    chat_before_ms: 0,
    reach_before_ms: 0,
    media_ttl_ms: 0,
};

pub async fn old_messages_are_deleted_if_configured(Harness { store, .. }: Harness) {
    store_messages(&*store, &[1, 2, 3], 3).await; // of 1_001, 1_002 and 1_003
    store_messages(&*store, &[4], 4).await;
    let keep = Retention { inbox_before_ms: 1_003, ..KEEP };
    assert!(super::purge(&*store, keep).await >= 2);
    assert_eq!((ids(&*store, 3).await, ids(&*store, 4).await), (vec!["d-3".to_owned()], vec!["d-4".to_owned()]));
}

pub async fn inboxes_are_found_by_their_messages(Harness { store, .. }: Harness) {
    assert_eq!(store.inboxes().await.unwrap(), []);
    for (number, agent) in [(1, 9), (2, 3), (3, 9), (4, 1 << 60)] {
        store_messages(&*store, &[number], agent).await;
    }
    let mut found = store.inboxes().await.unwrap();
    found.sort_unstable();
    assert_eq!(found, [3, 9, 1 << 60].map(InstanceNo));
    drop_inbox(&*store, 9).await;
    assert_eq!(store.inboxes().await.unwrap().len(), 2);
    store.plan_wake(wake("a", 5)).await.unwrap();
    assert!(store.inboxes().await.unwrap().contains(&InstanceNo(5)), "nor is a planned wake forgotten");
}

pub async fn messages_outlive_their_events(Harness { store, .. }: Harness) {
    let accepted = accept(&*store, with_message(1, 3, &[7])).await;
    store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    super::purge(&*store, KEEP).await;
    assert_eq!(store.event(accepted.event).await.unwrap(), None, "the event was deleted");
    assert_eq!(ids(&*store, 3).await, ["d-1"], "the message stays");
}
