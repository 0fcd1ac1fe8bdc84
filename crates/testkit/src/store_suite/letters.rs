//! Rules of the letters: filed with their event, in order, and theirs until the inbox is dropped.

use frontdesk_core::port::letters::{Filed, Letter, PlannedWake};
use frontdesk_core::port::store::{Acceptance, Retention, Store};

use super::{House, accept, acceptance, owed, settled};

fn letter(number: u64, agent: u64) -> Letter {
    Letter {
        agent,
        delivery_id: format!("d-{number}"),
        kind: "augment".into(),
        text: format!("text \u{1F600} {number}"),
        meta: Some(format!(r#"{{"dispatch_id":"{number}"}}"#)),
        session_id: Some("kitchen".into()),
        receipts: "[]".into(),
    }
}

fn with_letter(number: u64, agent: u64, receivers: &[u64]) -> Acceptance {
    Acceptance { letter: Some(letter(number, agent)), ..acceptance(number, receivers) }
}

/// Files letters with these numbers in one inbox.
async fn file(store: &dyn Store, numbers: &[u64], agent: u64) {
    store.accept(numbers.iter().map(|number| with_letter(*number, agent, &[])).collect()).await.unwrap();
}

async fn all(store: &dyn Store, agent: u64) -> Vec<Filed> {
    store.letters(agent, 0, 999).await.unwrap()
}

async fn seqs(store: &dyn Store, agent: u64) -> Vec<u64> {
    all(store, agent).await.into_iter().map(|filed| filed.seq).collect()
}

fn wake(key: &str, agent: u64) -> PlannedWake {
    PlannedWake { key: key.into(), agent, json: format!(r#"{{"for":{agent}}}"#) }
}

pub async fn a_letter_is_filed_with_its_event(House { store, .. }: House) {
    assert_eq!(store.last_letter(3).await.unwrap(), 0);
    let accepted = accept(&*store, with_letter(1, 3, &[])).await;
    assert_eq!((accepted.fresh, accepted.letter), (true, Some(1)));
    let filed = Filed { seq: 1, event: accepted.event, at_ms: 1_001, letter: letter(1, 3) };
    assert_eq!(all(&*store, 3).await, std::slice::from_ref(&filed));
    assert_eq!(store.letter_of(accepted.event).await.unwrap(), Some(filed));
    assert_eq!(store.last_letter(3).await.unwrap(), 1);
    let plain = accept(&*store, acceptance(2, &[7])).await;
    assert_eq!(plain.letter, None, "not every event is a letter");
    assert_eq!(store.letter_of(plain.event).await.unwrap(), None);
    let bare = Letter { meta: None, session_id: None, text: String::new(), ..letter(3, 3) };
    let accepted = accept(&*store, Acceptance { letter: Some(bare.clone()), ..acceptance(3, &[]) }).await;
    assert_eq!(store.letter_of(accepted.event).await.unwrap().unwrap().letter, bare);
}

pub async fn letters_are_read_in_pages(House { store, .. }: House) {
    file(&*store, &[1, 2, 3, 4, 5], 3).await;
    let page = async |after, limit| {
        let found = store.letters(3, after, limit).await.unwrap();
        found.into_iter().map(|filed| filed.letter.delivery_id).collect::<Vec<_>>()
    };
    assert_eq!(page(0, 2).await, ["d-1", "d-2"]);
    assert_eq!(page(2, 2).await, ["d-3", "d-4"]);
    assert_eq!(page(4, 2).await, ["d-5"]);
    assert_eq!(page(5, 2).await, [""; 0]);
    assert_eq!(page(0, 0).await, [""; 0]);
}

pub async fn every_inbox_counts_its_own(House { store, .. }: House) {
    for (number, agent) in [(1, 3), (2, 4), (3, 3), (4, 4), (5, 5)] {
        file(&*store, &[number], agent).await;
    }
    assert_eq!(seqs(&*store, 3).await, [1, 2]);
    assert_eq!(seqs(&*store, 4).await, [1, 2]);
    assert_eq!(seqs(&*store, 5).await, [1]);
    assert_eq!(seqs(&*store, 6).await, [0; 0]);
    assert_eq!(store.letters(3, 1, 9).await.unwrap().len(), 1, "the next inbox is not read into");
}

pub async fn a_duplicate_files_no_second_letter(House { store, .. }: House) {
    let first = accept(&*store, with_letter(1, 3, &[7])).await;
    let changed = Letter { text: "other".into(), ..letter(1, 3) };
    let again = accept(&*store, Acceptance { letter: Some(changed), ..acceptance(1, &[7]) }).await;
    assert_eq!((again.event, again.fresh, again.letter), (first.event, false, None));
    assert_eq!(all(&*store, 3).await.len(), 1);
    let kept = store.letter_of(first.event).await.unwrap().unwrap();
    assert_eq!((kept.seq, kept.letter), (1, letter(1, 3)), "the first one is what a retry is told of");
}

pub async fn a_letter_and_its_rows_are_one_commit(house: House) {
    let accepted = accept(&*house.store, with_letter(1, 3, &[7, 8])).await;
    assert_eq!((accepted.rows, accepted.letter), (vec![(7, 1), (8, 1)], Some(1)));
    let house = house.reopened();
    assert_eq!((owed(&*house.store, 7).await, owed(&*house.store, 8).await), (vec![1], vec![1]));
    assert_eq!(seqs(&*house.store, 3).await, [1]);
}

pub async fn receipts_are_noted_and_the_rest_stays(house: House) {
    file(&*house.store, &[1, 2], 3).await;
    let now = |agent| {
        let (kind, receipts) = ("wake_degraded".into(), r#"[{"ok":true}]"#.into());
        Letter { agent, kind, receipts, session_id: None, text: "ignored".into(), ..Letter::default() }
    };
    house.store.note_receipts(2, now(3)).await.unwrap();
    house.store.note_receipts(9, now(3)).await.unwrap(); // there is none: nothing happens
    house.store.note_receipts(1, now(4)).await.unwrap();
    let house = house.reopened();
    let kept: Vec<Letter> = all(&*house.store, 3).await.into_iter().map(|filed| filed.letter).collect();
    let now = now(3);
    let noted = Letter { kind: now.kind, receipts: now.receipts, session_id: None, ..letter(2, 3) };
    assert_eq!(kept, [letter(1, 3), noted]);
}

pub async fn the_newest_letters_of_a_tenant_come_first(House { store, .. }: House) {
    file(&*store, &[1], 3).await;
    file(&*store, &[2], 4).await;
    accept(&*store, Acceptance { tenant: "other".into(), ..with_letter(3, 5, &[]) }).await;
    file(&*store, &[4], 3).await;
    let newest = async |tenant, limit| {
        let found = store.tenant_letters(tenant, limit).await.unwrap();
        found.into_iter().map(|filed| filed.letter.delivery_id).collect::<Vec<_>>()
    };
    assert_eq!(newest("acme", 9).await, ["d-4", "d-2", "d-1"]);
    assert_eq!(newest("acme", 2).await, ["d-4", "d-2"]);
    assert_eq!(newest("other", 9).await, ["d-3"]);
    assert_eq!(newest("nobody", 9).await, [""; 0]);
}

pub async fn a_dropped_inbox_is_empty_and_so_are_its_plans(House { store, .. }: House) {
    file(&*store, &[1, 2], 3).await;
    file(&*store, &[3], 4).await;
    store.plan_wake(wake("a", 3)).await.unwrap();
    store.plan_wake(wake("b", 4)).await.unwrap();
    store.drop_inbox(3).await.unwrap();
    assert_eq!((seqs(&*store, 3).await, seqs(&*store, 4).await), (vec![], vec![1]));
    assert_eq!(store.planned_wake("a").await.unwrap(), None);
    assert_eq!(store.planned_wake("b").await.unwrap(), Some(wake("b", 4)));
    assert_eq!(store.last_letter(3).await.unwrap(), 0);
    store.drop_inbox(99).await.unwrap();
}

pub async fn a_planned_wake_is_kept_until_dropped(house: House) {
    house.store.plan_wake(wake("a", 3)).await.unwrap();
    house.store.plan_wake(wake("b", 3)).await.unwrap();
    let later = PlannedWake { json: r#"{"again":true}"#.into(), ..wake("a", 3) };
    house.store.plan_wake(later.clone()).await.unwrap();
    let house = house.reopened();
    assert_eq!(house.store.planned_wake("a").await.unwrap(), Some(later), "the latest word");
    house.store.drop_planned_wake("a").await.unwrap();
    house.store.drop_planned_wake("a").await.unwrap();
    assert_eq!(house.store.planned_wake("a").await.unwrap(), None);
    assert_eq!(house.store.planned_wake("b").await.unwrap(), Some(wake("b", 3)));
}

pub async fn letters_survive(house: House) {
    file(&*house.store, &[1, 2], 3).await;
    let before = all(&*house.store, 3).await;
    let house = house.reopened();
    assert_eq!(all(&*house.store, 3).await, before);
    file(&*house.store, &[3], 3).await;
    assert_eq!(seqs(&*house.store, 3).await, [1, 2, 3], "and the counting goes on");
}

pub async fn letters_outlive_their_events(House { store, .. }: House) {
    let accepted = accept(&*store, with_letter(1, 3, &[7])).await;
    store.settle(7, settled(&[1])).await.unwrap();
    let keep = Retention { now_ms: 9_000, events_before_ms: 9_000, verdicts_before_ms: 9_000 };
    store.purge(keep).await.unwrap();
    assert_eq!(store.event(accepted.event).await.unwrap(), None, "the event is forgotten");
    assert_eq!(seqs(&*store, 3).await, [1], "what was said is not");
}
