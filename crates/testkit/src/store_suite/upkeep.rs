//! Rules for upkeep: health, report, and retention.

use frontdesk_core::port::store::{Acceptance, Closing, MailState, Outcome, Position, Retention, Store};
use frontdesk_wire::{ChatId, EventId, InstanceNo, Seq};

use frontdesk_core::port::media::body_of;

use super::{Harness, accept, accept_many, acceptance, capability, media, numbers, owed, purge, settled};

/// Deletes what happened before this time.
fn before(at_ms: u64) -> Retention {
    Retention { events_before_ms: at_ms, verdicts_before_ms: at_ms, ..Retention::default() }
}

async fn mail(store: &dyn Store, instance: u64) -> Vec<u64> {
    let mut seqs: Vec<u64> =
        store.mail(InstanceNo(instance), None, Seq(0), 99_999).await.unwrap().iter().map(|row| row.seq.0).collect();
    seqs.reverse();
    seqs
}

pub async fn a_healthy_store_reports_it(harness: Harness) {
    harness.store.health().await.unwrap();
    let harness = harness.reopened();
    harness.store.health().await.unwrap();
    let report = harness.store.report().await.unwrap();
    assert!(!report.backend.is_empty());
    assert_eq!(report.faults, [""; 0]);
}

pub async fn the_report_counts_what_waits(Harness { store, .. }: Harness) {
    let waiting = async || store.report().await.unwrap().rows_waiting;
    assert_eq!(waiting().await, 0);
    accept_many(&*store, 5, 7).await;
    accept(&*store, acceptance(9, &[8])).await;
    assert_eq!(waiting().await, 6);
    store.settle(InstanceNo(7), settled(&[1, 3, 4]).into()).await.unwrap();
    store.drop_mail(InstanceNo(8), Seq(1), None, "no".into()).await.unwrap();
    assert_eq!(waiting().await, 2, "rows settled above the watermark do not wait");
}

pub async fn purge_deletes_old_settled_rows(harness: Harness) {
    let store = &harness.store;
    accept_many(&**store, 6, 7).await; // at 1001 to 1006
    store.drop_mail(InstanceNo(7), Seq(2), None, "no".into()).await.unwrap();
    store.settle(InstanceNo(7), Position { through: Seq(6), above: vec![], sent: Seq(6) }.into()).await.unwrap();
    let events: Vec<u64> = store
        .mail(InstanceNo(7), None, Seq(0), 9)
        .await
        .unwrap()
        .iter()
        .map(|row| row.delivery.event.0)
        .rev()
        .collect();
    assert!(purge(&**store, before(1_005)).await > 0);
    assert_eq!(mail(&**store, 7).await, [5, 6]);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(store.event(EventId(*event)).await.unwrap().is_some(), index >= 4, "event of row {}", index + 1);
    }
    assert_eq!(purge(&**store, before(1_005)).await, 0, "nothing is left to delete");
    assert!(accept(&**store, acceptance(1, &[7])).await.fresh, "its dedup key was deleted");
    assert!(!accept(&**store, acceptance(5, &[7])).await.fresh, "the dedup key of a young event stays");
    let harness = harness.reopened();
    assert_eq!(mail(&*harness.store, 7).await, [5, 6, 7]);
    assert_eq!(owed(&*harness.store, 7).await, [7]);
    assert_eq!(harness.store.position(InstanceNo(7)).await.unwrap().through, Seq(6));
}

pub async fn purge_keeps_unsettled_rows_of_any_age(harness: Harness) {
    let store = &harness.store;
    accept_many(&**store, 4, 7).await;
    accept(&**store, acceptance(5, &[8])).await;
    store.settle(InstanceNo(7), settled(&[1, 3]).into()).await.unwrap();
    store.settle(InstanceNo(8), settled(&[1]).into()).await.unwrap();
    purge(&**store, before(u64::from(u32::MAX))).await;
    assert_eq!(owed(&**store, 7).await, [2, 4]);
    let row = store.mail_row(InstanceNo(7), Seq(2)).await.unwrap().expect("owed");
    assert_eq!((row.state, &*row.delivery.message_id), (MailState::Accepted, "m-2"));
    assert!(store.event(row.delivery.event).await.unwrap().is_some(), "its event is kept");
    assert!(!accept(&**store, acceptance(4, &[7])).await.fresh, "its dedup key is kept");
    let harness = harness.reopened();
    assert_eq!(owed(&*harness.store, 7).await, [2, 4]);
    let waiting = harness.store.waiting().await.unwrap();
    assert_eq!((waiting.len(), waiting[0].count, waiting[0].oldest_seq.0), (1, 2, 2));
}

pub async fn purge_keeps_young_rows(Harness { store, .. }: Harness) {
    accept_many(&*store, 4, 7).await;
    store.settle(InstanceNo(7), Position { through: Seq(4), above: vec![], sent: Seq(4) }.into()).await.unwrap();
    assert_eq!(purge(&*store, before(1_001)).await, 0, "the limit is exclusive");
    let split = Retention { events_before_ms: 9_999, ..before(1_003) };
    purge(&*store, split).await;
    assert_eq!(mail(&*store, 7).await, [3, 4], "the longer of the two periods applies");
}

pub async fn a_replayed_old_row_keeps_younger_ones(Harness { store, .. }: Harness) {
    accept_many(&*store, 4, 7).await; // at 1001 to 1004
    assert_eq!(store.replay_mail(InstanceNo(7), Seq(1)).await.unwrap(), Some(Seq(5))); // a copy of 1001, after 1004
    store.settle(InstanceNo(7), Position { through: Seq(5), above: vec![], sent: Seq(5) }.into()).await.unwrap();
    purge(&*store, before(1_003)).await;
    let left = mail(&*store, 7).await;
    assert!(left.starts_with(&[3, 4]), "{left:?}");
    assert!(!accept(&*store, acceptance(3, &[7])).await.fresh);
}

pub async fn purge_ends_capabilities_and_media(harness: Harness) {
    let store = &harness.store;
    let two = vec![capability("short", &["k1"], 500), capability("long", &["k2"], 600)];
    accept(&**store, Acceptance { capabilities: two, ..acceptance(1, &[]) }).await;
    store.media_put(media::item("short", 2), body_of("hi"), 0).await.unwrap();
    let long = frontdesk_core::port::media::MediaItem { expires_ms: 600, ..media::item("long", 2) };
    store.media_put(long, body_of("ho"), 0).await.unwrap();
    assert_eq!(purge(&**store, Retention { now_ms: 499, ..before(0) }).await, 0);
    assert_eq!(purge(&**store, Retention { now_ms: 500, ..before(0) }).await, 2);
    let harness = harness.reopened();
    // Read as of a time when both were valid: expired ones are deleted.
    for (key, there) in [("k1", false), ("k2", true)] {
        assert_eq!(
            harness.store.capability(&"acme".into(), &key.into(), "interaction", 0).await.unwrap().is_some(),
            there,
            "{key}"
        );
    }
    for (id, there) in [("short", false), ("long", true)] {
        assert_eq!(harness.store.media_get(&"acme".into(), id, 0).await.unwrap().is_some(), there, "{id}");
    }
    harness.store.media_put(media::item("short", 2), body_of("ha"), 0).await.unwrap();
}

pub async fn numbers_are_never_reused(harness: Harness) {
    accept_many(&*harness.store, 3, 7).await;
    harness
        .store
        .settle(InstanceNo(7), Position { through: Seq(3), above: vec![], sent: Seq(3) }.into())
        .await
        .unwrap();
    let last = harness.store.mail_row(InstanceNo(7), Seq(3)).await.unwrap().unwrap().delivery.event;
    purge(&*harness.store, before(u64::from(u32::MAX))).await;
    assert_eq!(mail(&*harness.store, 7).await, [0; 0]);
    let harness = harness.reopened();
    let next = accept(&*harness.store, acceptance(4, &[7])).await;
    assert_eq!(numbers(&next.rows), [(7, 4)], "the position keeps the numbers of deleted rows");
    assert!(next.event > last, "event numbers are not reused: {} after {last}", next.event);
}

/// The backlog of an absent agent keeps only its own events.
pub async fn a_large_backlog_keeps_only_its_own_events(Harness { store, .. }: Harness) {
    // Every third event also goes to the absent agent.
    for number in 1..=1_500 {
        let receivers: &[u64] = if number % 3 == 0 { &[7, 8] } else { &[7] };
        accept(&*store, acceptance(number, receivers)).await;
    }
    let all: Vec<u64> = (1..=1_500).collect();
    store.settle(InstanceNo(7), settled(&all).into()).await.unwrap();
    store.settle(InstanceNo(8), settled(&[2, 500]).into()).await.unwrap();
    purge(&*store, before(u64::from(u32::MAX))).await;
    assert_eq!(mail(&*store, 7).await, [0; 0], "settled and old");
    let owed: Vec<u64> = owed(&*store, 8).await;
    assert_eq!(owed.len(), 498);
    assert_eq!(store.pending(InstanceNo(8), Seq(0), 1).await.unwrap()[0].1.message_id, "m-3");
    let known =
        store.events_marked(&"t".into(), (1..=6_u64).map(|n| n.to_be_bytes().to_vec()).collect()).await.unwrap();
    let known: Vec<bool> = known.iter().map(Option::is_some).collect();
    assert_eq!(known, [false, false, true, false, false, true], "settled events between pending ones are deleted");
    assert_eq!(purge(&*store, before(u64::from(u32::MAX))).await, 0, "nothing is left to delete");
}

pub async fn lines_entries_and_inactive_chats_expire(Harness { store, .. }: Harness) {
    for (number, at_ms) in [(1, 1_000), (2, 2_000), (3, 3_000)] {
        store
            .chat_append(&"acme".into(), &"c".into(), &format!("m-{number}").into(), "{}".into(), at_ms)
            .await
            .unwrap();
        let id = store.open_entry(super::journal::entry("acme", at_ms), None).await.unwrap();
        if number != 1 {
            store.close_entry(id, Closing::new(Outcome::Delivered, 1, "")).await.unwrap();
        }
        let mut it = acceptance(number, &[7]);
        (it.reaches, it.delivery.at_ms, it.delivery.chat_id) = (true, at_ms, format!("c-{number}").into());
        accept(&*store, it).await;
    }
    let now_ms = 90 * 86_400_000;
    let keep =
        Retention { now_ms, journal_before_ms: 3_000, chat_before_ms: 2_000, reach_before_ms: 3_000, ..before(0) };
    purge(&*store, Retention { now_ms, ..before(0) }).await;
    assert_eq!(store.chat_since(&"acme".into(), &"c".into(), 0, 9).await.unwrap().len(), 3, "0 means no limit");
    purge(&*store, Retention { now_ms: now_ms + 7_200_000, ..keep }).await;
    let lines: Vec<u64> =
        store.chat_since(&"acme".into(), &"c".into(), 0, 9).await.unwrap().iter().map(|row| row.seq).collect();
    assert_eq!(lines, [2, 3]);
    let (seq, fresh) = store.chat_append(&"acme".into(), &"c".into(), &"m-4".into(), "{}".into(), 4_000).await.unwrap();
    assert_eq!((seq, fresh), (4, true), "numbers continue");
    let entries: Vec<u64> = store.entries(None, 9).await.unwrap().iter().map(|entry| entry.at_ms).collect();
    assert_eq!(entries, [3_000, 1_000], "open entries stay");
    for (chat, reached) in [("c-1", false), ("c-2", false), ("c-3", true)] {
        assert_eq!(
            store.reached(&"acme".into(), "chat", &"desk".into(), &ChatId::from(chat)).await.unwrap(),
            reached,
            "{chat}"
        );
    }
}
