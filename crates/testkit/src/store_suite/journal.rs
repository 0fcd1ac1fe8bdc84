//! Rules for the journal: actions and their results.

use frontdesk_core::port::store::{Closing, JournalEntry, Outcome};

use super::House;

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
        desk: 0,
        receipt_id: String::new(),
    }
}

pub async fn an_entry_is_opened_then_closed(House { store, .. }: House) {
    let id =
        store.open_entry(JournalEntry { outcome: Outcome::Delivered, cursor: 3, ..entry("acme", 5) }).await.unwrap();
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

pub async fn open_entries_become_unknown_once(house: House) {
    let mut ids = Vec::new();
    for at_ms in 0..4 {
        ids.push(house.store.open_entry(entry("acme", at_ms)).await.unwrap());
    }
    house.store.close_entry(ids[0], Closing::new(Outcome::Delivered, 3, "done")).await.unwrap();
    house.store.close_entry(ids[1], Closing::new(Outcome::Rejected, 0, "no")).await.unwrap();
    let house = house.reopened();
    assert_eq!(house.store.doubt_open_entries(Vec::new()).await.unwrap(), 2);
    assert_eq!(house.store.doubt_open_entries(Vec::new()).await.unwrap(), 0);
    let entries = house.store.entries(None, 9).await.unwrap();
    let outcomes: Vec<_> = entries.iter().map(|it| (it.outcome, it.note.is_empty())).collect();
    let doubted = (Outcome::Unknown, false);
    assert_eq!(outcomes, [doubted, doubted, (Outcome::Rejected, false), (Outcome::Delivered, false)]);
    assert_eq!(entries[3].note, "done", "closed entries keep their note");
}

pub async fn entries_are_listed_newest_first_by_tenant(House { store, .. }: House) {
    let mut ids = Vec::new();
    for (at_ms, tenant) in ["acme", "other", "acme", "acme"].into_iter().enumerate() {
        ids.push(store.open_entry(entry(tenant, at_ms as u64)).await.unwrap());
    }
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    let listed = async |tenant, limit| {
        let entries = store.entries(tenant, limit).await.unwrap();
        entries.into_iter().map(|it| it.at_ms).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 9).await, [3, 2, 1, 0]);
    assert_eq!(listed(Some("acme"), 9).await, [3, 2, 0]);
    assert_eq!(listed(Some("acme"), 2).await, [3, 2]);
    assert_eq!(listed(Some("nobody"), 9).await, [0; 0]);
}

pub async fn entries_survive(house: House) {
    let id = house.store.open_entry(entry("acme", 1)).await.unwrap();
    house.store.close_entry(id, Closing::new(Outcome::Delivered, 3, "büro")).await.unwrap();
    let house = house.reopened();
    let kept = JournalEntry { id, outcome: Outcome::Delivered, cursor: 3, note: "büro".into(), ..entry("acme", 1) };
    assert_eq!(house.store.entries(Some("acme"), 9).await.unwrap(), [kept]);
    assert!(house.store.open_entry(entry("acme", 2)).await.unwrap() > id);
}
