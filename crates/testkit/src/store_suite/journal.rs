//! Rules for the journal: actions and their results.

use frontdesk_core::port::store::{Closing, JournalEntry, Outcome, Retention};
use frontdesk_wire::{DeskNo, TenantId};

use super::Harness;

pub(super) fn entry(tenant: &str, at_ms: u64) -> JournalEntry {
    JournalEntry {
        id: 0,
        tenant: tenant.into(),
        instance: "agent-1".into(),
        platform: "chat".into(),
        bot: "desk".into(),
        chat_id: "c".into(),
        op: "send".into(),
        at_ms,
        outcome: Outcome::Open,
        parts: 3,
        cursor: 0,
        note: String::new(),
        desk: DeskNo(0),
    }
}

pub async fn an_entry_is_opened_then_closed(Harness { store, .. }: Harness) {
    let id = store
        .open_entry(JournalEntry { outcome: Outcome::Delivered, cursor: 3, ..entry("acme", 5) }, None)
        .await
        .unwrap();
    let open = JournalEntry { id, ..entry("acme", 5) };
    assert_eq!(
        store.entries(None, 9).await.unwrap(),
        std::slice::from_ref(&open),
        "whatever is claimed, it begins open"
    );
    assert!(store.close_entry(id, Closing::new(Outcome::Unknown, 0, "timeout")).await.unwrap());
    assert!(
        store.close_entry(id, Closing::new(Outcome::Rejected, 1, "rate_limited")).await.unwrap(),
        "it is known later"
    );
    let closed = JournalEntry { outcome: Outcome::Rejected, cursor: 1, note: "rate_limited".into(), ..open };
    assert_eq!(store.entries(None, 9).await.unwrap(), std::slice::from_ref(&closed));
    assert!(!store.close_entry(id, Closing::new(Outcome::Delivered, 3, "too late")).await.unwrap(), "closed once");
    assert!(!store.close_entry(id + 1, Closing::new(Outcome::Delivered, 0, "of nothing")).await.unwrap());
    assert_eq!(store.entries(None, 9).await.unwrap(), [closed]);
}

pub async fn open_entries_become_unknown_once(harness: Harness) {
    let mut ids = Vec::new();
    for at_ms in 0..4 {
        ids.push(harness.store.open_entry(entry("acme", at_ms), None).await.unwrap());
    }
    harness.store.close_entry(ids[0], Closing::new(Outcome::Delivered, 3, "done")).await.unwrap();
    harness.store.close_entry(ids[1], Closing::new(Outcome::Rejected, 0, "no")).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(harness.store.mark_open_entries_unknown(Vec::new()).await.unwrap(), 2);
    assert_eq!(harness.store.mark_open_entries_unknown(Vec::new()).await.unwrap(), 0);
    let entries = harness.store.entries(None, 9).await.unwrap();
    let outcomes: Vec<_> = entries.iter().map(|it| (it.outcome, it.note.is_empty())).collect();
    let marked = (Outcome::Unknown, false);
    assert_eq!(outcomes, [marked, marked, (Outcome::Rejected, false), (Outcome::Delivered, false)]);
    assert_eq!(entries[3].note, "done", "closed entries keep their note");
}

pub async fn entries_are_listed_newest_first_by_tenant(Harness { store, .. }: Harness) {
    let mut ids = Vec::new();
    for (at_ms, tenant) in ["acme", "other", "acme", "acme"].into_iter().enumerate() {
        ids.push(store.open_entry(entry(tenant, at_ms as u64), None).await.unwrap());
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let listed = async |tenant: Option<&str>, limit| {
        let entries = store.entries(tenant.map(TenantId::from).as_ref(), limit).await.unwrap();
        entries.into_iter().map(|it| it.at_ms).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 9).await, [3, 2, 1, 0]);
    assert_eq!(listed(Some("acme"), 9).await, [3, 2, 0]);
    assert_eq!(listed(Some("acme"), 2).await, [3, 2]);
    assert_eq!(listed(Some("nobody"), 9).await, [0; 0]);
}

pub async fn entries_survive(harness: Harness) {
    let id = harness.store.open_entry(entry("acme", 1), None).await.unwrap();
    harness.store.close_entry(id, Closing::new(Outcome::Delivered, 3, "büro")).await.unwrap();
    let harness = harness.reopened();
    let kept = JournalEntry { id, outcome: Outcome::Delivered, cursor: 3, note: "büro".into(), ..entry("acme", 1) };
    assert_eq!(harness.store.entries(Some(&"acme".into()), 9).await.unwrap(), [kept]);
    assert!(harness.store.open_entry(entry("acme", 2), None).await.unwrap() > id);
}

pub async fn entries_of_live_desks_stay_open(Harness { store, .. }: Harness) {
    for desk in [3, 4] {
        store.open_entry(JournalEntry { desk: DeskNo(desk), ..entry("acme", desk) }, None).await.unwrap();
    }
    assert_eq!(store.mark_open_entries_unknown(vec![DeskNo(4), DeskNo(9)]).await.unwrap(), 1);
    let outcomes: Vec<_> = store.entries(None, 9).await.unwrap().iter().map(|it| (it.desk.0, it.outcome)).collect();
    assert_eq!(outcomes, [(4, Outcome::Open), (3, Outcome::Unknown)]);
}

pub async fn a_late_receipt_is_applied_to_its_entry(Harness { store, .. }: Harness) {
    let id = store.open_entry(entry("acme", 1), None).await.unwrap();
    let apply = async |bot: &str, receipt, outcome, note| {
        let found = store.apply_receipt("chat", &bot.into(), receipt, outcome, note).await.unwrap();
        found.map(|it| (it.id, it.outcome, it.note))
    };
    assert_eq!(apply("desk", "r1", Outcome::Delivered, "").await, None, "nobody announced it");
    for receipt in ["r1", "r2"] {
        store.add_receipt(id, receipt.into()).await.unwrap();
    }
    assert_eq!(apply("other", "r1", Outcome::Rejected, "no").await, None, "another bot's message");
    let open = (id, Outcome::Open, String::new());
    assert_eq!(apply("desk", "r1", Outcome::Delivered, "ok").await, Some(open), "other parts are still to come");
    store.close_entry(id, Closing::new(Outcome::Delivered, 2, "")).await.unwrap();
    let failed = Some((id, Outcome::Rejected, "unreachable".to_owned()));
    assert_eq!(apply("desk", "r2", Outcome::Rejected, "unreachable").await, failed, "a late failure counts");
    assert_eq!(apply("desk", "r2", Outcome::Rejected, "unreachable").await, failed, "and is told once");
    assert_eq!(apply("desk", "r1", Outcome::Delivered, "ok").await, failed, "another part's success does not undo it");
    // What was unknown of a message of one part is known now.
    let one = store.open_entry(JournalEntry { parts: 1, ..entry("acme", 1) }, None).await.unwrap();
    store.add_receipt(one, "r9".into()).await.unwrap();
    store.close_entry(one, Closing::new(Outcome::Unknown, 0, "timed out")).await.unwrap();
    let known = Some((one, Outcome::Delivered, "timed out; read".to_owned()));
    assert_eq!(apply("desk", "r9", Outcome::Delivered, "read").await, known);
    // One that fails before the last part went out stays failed.
    let id = store.open_entry(entry("acme", 2), None).await.unwrap();
    store.add_receipt(id, "r3".into()).await.unwrap();
    assert_eq!(apply("desk", "r3", Outcome::Rejected, "no").await, Some((id, Outcome::Rejected, "no".to_owned())));
    assert!(!store.close_entry(id, Closing::new(Outcome::Delivered, 2, "")).await.unwrap());
    let late = Retention { now_ms: 10, journal_before_ms: 9, ..Retention::default() };
    while store.purge(late).await.unwrap().more {}
    assert_eq!(apply("desk", "r3", Outcome::Delivered, "").await, None, "it went with its entry");
}

pub async fn an_entry_is_found_by_its_receipts(Harness { store, .. }: Harness) {
    let first = store.open_entry(entry("acme", 1), Some("a".into())).await.unwrap();
    store.add_receipt(first, "b".into()).await.unwrap();
    let find = async |bot: &str, ids: &[&str]| {
        let ids = ids.iter().map(|id| (*id).to_owned()).collect();
        store.entry_of_receipt("chat", &bot.into(), ids).await.unwrap().map(|it| it.id)
    };
    assert_eq!((find("desk", &["a"]).await, find("desk", &["x", "b"]).await), (Some(first), Some(first)));
    assert_eq!((find("other", &["a"]).await, find("desk", &["x"]).await, find("desk", &[]).await), (None, None, None));
    let second = store.open_entry(entry("other", 2), Some("a".into())).await.unwrap();
    assert_eq!(find("desk", &["a"]).await, Some(second), "the newest has it");
    assert_eq!(find("desk", &["b", "a"]).await, Some(first), "the first that is known");
}
