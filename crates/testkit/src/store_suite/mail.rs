//! Rules for operator access to the ledger: list, drop, replay.

use std::time::Duration;

use frontdesk_core::port::store::{Delivery, MailState, Position, Store};
use frontdesk_wire::{InstanceNo, Seq, SessionKey};
use futures_util::FutureExt as _;

use super::{Harness, NotifiedRows, accept, accept_many, acceptance, numbers, owed, sent, settled};

async fn seqs(store: &dyn Store, state: Option<MailState>, before: u64, limit: usize) -> Vec<u64> {
    let mail = store.mail(InstanceNo(7), state, Seq(before), limit).await.unwrap();
    assert!(mail.iter().all(|row| row.instance == InstanceNo(7) && state.is_none_or(|wanted| wanted == row.state)));
    mail.into_iter().map(|row| row.seq.0).collect()
}

pub async fn mail_is_listed_by_state(harness: Harness) {
    accept_many(&*harness.store, 6, 7).await;
    accept(&*harness.store, acceptance(9, &[8])).await;
    harness.store.settle(InstanceNo(7), Position { sent: Seq(4), ..settled(&[1, 3]) }.into()).await.unwrap();
    harness.store.drop_mail(InstanceNo(7), Seq(2), None, "asked to".into()).await.unwrap();
    let harness = harness.reopened();
    let store = &*harness.store;
    assert_eq!(seqs(store, Some(MailState::Accepted), 0, 99).await, [6, 5]);
    assert_eq!(seqs(store, Some(MailState::Sent), 0, 99).await, [4]);
    assert_eq!(seqs(store, Some(MailState::Acked), 0, 99).await, [3, 1]);
    assert_eq!(seqs(store, Some(MailState::Dead), 0, 99).await, [2]);
    assert_eq!(seqs(store, None, 0, 99).await, [6, 5, 4, 3, 2, 1]);
    let dead = store.mail(InstanceNo(7), Some(MailState::Dead), Seq(0), 1).await.unwrap().remove(0);
    assert_eq!((dead.reason.as_deref(), &*dead.delivery.message_id), (Some("asked to"), "m-2"));
    assert_eq!(store.mail(InstanceNo(9), None, Seq(0), 99).await.unwrap(), []);
}

pub async fn mail_is_listed_newest_first_in_pages(Harness { store, .. }: Harness) {
    accept_many(&*store, 9, 7).await;
    store.settle(InstanceNo(7), settled(&[2, 4, 6, 8]).into()).await.unwrap();
    assert_eq!(seqs(&*store, None, 0, 2).await, [9, 8]);
    assert_eq!(seqs(&*store, None, 8, 3).await, [7, 6, 5]);
    assert_eq!(seqs(&*store, None, 1, 3).await, [0; 0]);
    assert_eq!(seqs(&*store, None, 99, 1).await, [9]);
    assert_eq!(seqs(&*store, Some(MailState::Acked), 8, 2).await, [6, 4], "the limit counts matching rows");
}

pub async fn one_row_is_found_by_its_number(Harness { store, .. }: Harness) {
    accept_many(&*store, 2, 7).await;
    let row = store.mail_row(InstanceNo(7), Seq(2)).await.unwrap().unwrap();
    assert_eq!((row.instance.0, row.seq.0, row.state, row.reason), (7, 2, MailState::Accepted, None));
    assert_eq!(row.delivery.message_id, "m-2");
    for (instance, seq) in [(7, 0), (7, 3), (8, 1), (7, u64::MAX)] {
        assert_eq!(store.mail_row(InstanceNo(instance), Seq(seq)).await.unwrap(), None);
    }
}

pub async fn a_row_is_dropped_once(harness: Harness) {
    accept_many(&*harness.store, 3, 7).await;
    assert!(harness.store.drop_mail(InstanceNo(7), Seq(2), None, "first".into()).await.unwrap());
    assert!(!harness.store.drop_mail(InstanceNo(7), Seq(2), None, "second".into()).await.unwrap());
    let harness = harness.reopened();
    assert!(!harness.store.drop_mail(InstanceNo(7), Seq(2), None, "third".into()).await.unwrap());
    let row = harness.store.mail_row(InstanceNo(7), Seq(2)).await.unwrap().unwrap();
    assert_eq!((row.state, row.reason.as_deref()), (MailState::Dead, Some("first")));
    assert_eq!(harness.store.position(InstanceNo(7)).await.unwrap(), settled(&[2]));
    assert_eq!(owed(&*harness.store, 7).await, [1, 3]);
}

pub async fn a_settled_or_absent_row_cannot_be_dropped(Harness { store, .. }: Harness) {
    accept_many(&*store, 3, 7).await;
    store.settle(InstanceNo(7), settled(&[1, 3]).into()).await.unwrap();
    for (instance, seq) in [(7, 1), (7, 3), (7, 0), (7, 4), (8, 1), (7, u64::MAX)] {
        assert!(!store.drop_mail(InstanceNo(instance), Seq(seq), None, "no".into()).await.unwrap(), "{instance} {seq}");
    }
    assert_eq!(seqs(&*store, Some(MailState::Dead), 0, 9).await, [0; 0]);
    assert_eq!(owed(&*store, 7).await, [2]);
    assert_eq!(numbers(&accept(&*store, acceptance(4, &[7, 8])).await.rows), [(7, 4), (8, 1)], "no number was skipped");
}

pub async fn a_dropped_row_stays_dead(Harness { store, .. }: Harness) {
    accept_many(&*store, 3, 7).await;
    assert!(store.drop_mail(InstanceNo(7), Seq(1), None, "no".into()).await.unwrap());
    store.settle(InstanceNo(7), Position { through: Seq(3), above: vec![], sent: Seq(3) }.into()).await.unwrap();
    assert_eq!(
        store.mail_row(InstanceNo(7), Seq(1)).await.unwrap().unwrap().state,
        MailState::Dead,
        "a late ack does not revive it"
    );
    assert_eq!(seqs(&*store, Some(MailState::Acked), 0, 9).await, [3, 2]);
}

pub async fn a_replay_is_a_new_row_at_the_end(harness: Harness) {
    accept_many(&*harness.store, 3, 7).await;
    harness
        .store
        .settle(InstanceNo(7), Position { through: Seq(2), above: vec![], sent: Seq(3) }.into())
        .await
        .unwrap();
    assert_eq!(harness.store.replay_mail(InstanceNo(7), Seq(1)).await.unwrap(), Some(Seq(4)));
    let harness = harness.reopened();
    let store = &harness.store;
    assert_eq!(owed(&**store, 7).await, [3, 4]);
    let old = store.mail_row(InstanceNo(7), Seq(1)).await.unwrap().unwrap();
    let new = store.mail_row(InstanceNo(7), Seq(4)).await.unwrap().unwrap();
    assert_eq!((old.state, new.state, new.reason), (MailState::Acked, MailState::Accepted, None));
    assert_eq!(*new.delivery, Delivery { event: new.delivery.event, ..(*old.delivery).clone() });
    let (first, again) =
        (store.event(old.delivery.event).await.unwrap(), store.event(new.delivery.event).await.unwrap());
    assert_eq!(first.unwrap().verdict, again.expect("the copy has an event").verdict);
    assert_eq!(
        accept(&**store, acceptance(1, &[7])).await.event,
        old.delivery.event,
        "the dedup key belongs to the first event"
    );
    assert_eq!(numbers(&accept(&**store, acceptance(9, &[7])).await.rows), [(7, 5)]);
}

pub async fn a_replay_is_reported(Harness { store, .. }: Harness) {
    let notified = NotifiedRows::on(&*store);
    accept_many(&*store, 2, 7).await;
    store.replay_mail(InstanceNo(7), Seq(2)).await.unwrap();
    assert_eq!(notified.rows(), [(7, 1), (7, 2), (7, 3)]);
    let added = notified.deliveries().pop().unwrap().delivery;
    assert_eq!(*added, *store.mail_row(InstanceNo(7), Seq(3)).await.unwrap().unwrap().delivery);
    store.replay_mail(InstanceNo(7), Seq(99)).await.unwrap();
    assert_eq!(notified.rows().len(), 3, "nothing replayed, no notification");
}

pub async fn a_settled_and_a_dead_row_can_be_replayed(Harness { store, .. }: Harness) {
    accept_many(&*store, 3, 7).await;
    store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    store.drop_mail(InstanceNo(7), Seq(2), None, "no".into()).await.unwrap();
    for (seq, made) in [(1, 4), (2, 5), (3, 6), (5, 7)] {
        assert_eq!(store.replay_mail(InstanceNo(7), Seq(seq)).await.unwrap(), Some(Seq(made)));
    }
    assert_eq!(owed(&*store, 7).await, [3, 4, 5, 6, 7]);
    let ids: Vec<_> = store
        .mail(InstanceNo(7), None, Seq(0), 4)
        .await
        .unwrap()
        .iter()
        .map(|it| it.delivery.message_id.clone())
        .collect();
    assert_eq!(ids, ["m-2", "m-3", "m-2", "m-1"]);
}

pub async fn an_absent_row_cannot_be_replayed(Harness { store, .. }: Harness) {
    accept_many(&*store, 1, 7).await;
    for (instance, seq) in [(7, 0), (7, 2), (8, 1), (7, u64::MAX)] {
        assert_eq!(store.replay_mail(InstanceNo(instance), Seq(seq)).await.unwrap(), None);
    }
    assert_eq!((owed(&*store, 7).await, owed(&*store, 8).await), (vec![1], vec![]));
}

/// `/stop` finds the turn that it means by them.
pub async fn sent_turns_are_those_of_rows_that_were_written(harness: Harness) {
    let of = |number: u64, session: &str| {
        let mut one = acceptance(number, &[7]);
        one.delivery.session_key = session.into();
        one
    };
    harness.store.accept(vec![of(1, "a"), of(2, "b"), of(3, "a"), of(4, "c")]).await.unwrap();
    let turns = async |store: &dyn Store, since_ms| {
        let found = store.sent_turns(InstanceNo(7), since_ms).await.unwrap();
        found.into_iter().map(|turn| (turn.session_key, turn.at_ms)).collect::<Vec<_>>()
    };
    assert_eq!(turns(&*harness.store, 0).await, [], "nothing was sent yet");
    harness.store.settle(InstanceNo(7), sent(3).into()).await.unwrap();
    let harness = harness.reopened();
    let store = &*harness.store;
    let turn = |session: &str, at_ms: u64| (SessionKey::from(session), at_ms);
    assert_eq!(
        turns(store, 0).await,
        [turn("a", 1_003), turn("b", 1_002)],
        "the newest first, the fourth was not sent"
    );
    assert_eq!(turns(store, 1_003).await, [turn("a", 1_003)], "since is inclusive");
    assert_eq!(turns(store, 1_004).await, []);
    assert!(store.sent_turns(InstanceNo(8), 0).await.unwrap().is_empty());
    store.settle(InstanceNo(7), Position { through: Seq(4), above: vec![], sent: Seq(4) }.into()).await.unwrap();
    assert_eq!(turns(store, 1_003).await, [turn("c", 1_004), turn("a", 1_003)], "settled rows count as sent");
    let chat = store.sent_turns(InstanceNo(7), 1_004).await.unwrap().remove(0).chat_id;
    assert_eq!(chat, acceptance(4, &[7]).delivery.chat_id);
}

/// A replayed message is a new row with its old time.
pub async fn sent_turns_are_found_behind_a_replayed_row(harness: Harness) {
    let store = &*harness.store;
    accept_many(store, 3, 7).await;
    store.settle(InstanceNo(7), sent(3).into()).await.unwrap();
    let replayed = store.replay_mail(InstanceNo(7), Seq(1)).await.unwrap().unwrap();
    store.settle(InstanceNo(7), sent(replayed.0).into()).await.unwrap();
    let found = store.sent_turns(InstanceNo(7), 1_002).await.unwrap();
    assert!(found.iter().any(|turn| turn.at_ms == 1_003), "{found:?}");
}

/// A busy agent's turn is found behind many others.
pub async fn sent_turns_reach_far_back(harness: Harness) {
    let of = |number: u64| {
        let mut one = acceptance(number, &[7]);
        one.delivery.session_key = if number == 1 { "first" } else { "later" }.into();
        one
    };
    for begin in [1, 1_001, 2_001] {
        harness.store.accept((begin..begin + 1_000).map(of).collect()).await.unwrap();
    }
    harness.store.settle(InstanceNo(7), sent(3_000).into()).await.unwrap();
    let found = harness.store.sent_turns(InstanceNo(7), 0).await.unwrap();
    let keys: Vec<&str> = found.iter().map(|turn| &*turn.session_key).collect();
    assert_eq!(keys, ["later", "first"]);
}

/// Regression: a read that was waited for, and whose caller was busy with something else, kept the turn that it was given, and
/// no other read of the server began.
pub async fn reads_that_are_not_polled_delay_nobody(harness: Harness) {
    let store = &*harness.store;
    accept_many(store, 1, 7).await;
    let mut unpolled: Vec<_> = (0..300).map(|_| store.position(InstanceNo(7))).collect();
    unpolled.retain_mut(|read| read.as_mut().now_or_never().is_none());
    let other = tokio::time::timeout(Duration::from_mins(1), store.position(InstanceNo(8))).await;
    assert_eq!(other.expect("the read does not end"), Ok(Position::default()));
    for read in unpolled {
        read.await.unwrap();
    }
}
