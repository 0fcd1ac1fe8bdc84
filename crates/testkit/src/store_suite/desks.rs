//! Rules for desks that share a store: numbers, leases, duties; and cursors of listeners.

use frontdesk_core::port::store::{LEASE_MS, StoreError};
use frontdesk_wire::DeskNo;

use super::Harness;

const NOW: u64 = 1_000_000;

pub async fn desk_numbers_are_never_reused(harness: Harness) {
    let first = harness.store.enlist("a".into(), "1".into(), NOW).await.unwrap();
    let second = harness.store.enlist("a".into(), "1".into(), NOW).await.unwrap();
    assert!(second > first);
    harness.store.resign(second).await.unwrap();
    let harness = harness.reopened();
    assert!(harness.store.enlist("a".into(), "1".into(), NOW).await.unwrap() > second);
}

pub async fn a_lease_must_be_renewed_in_time(Harness { store, .. }: Harness) {
    let (one, two) = (
        store.enlist("a".into(), "1".into(), NOW).await.unwrap(),
        store.enlist("b".into(), "1".into(), NOW).await.unwrap(),
    );
    let later = NOW + LEASE_MS - 1;
    assert_eq!(store.renew(one, 0, later).await.unwrap().live, [one, two]);
    let past = NOW + LEASE_MS;
    assert_eq!(store.renew(two, 0, past).await, Err(StoreError::Conflict), "it ran out");
    assert_eq!(store.renew(one, 0, past).await.unwrap().live, [one]);
    assert_eq!(store.renew(DeskNo(two.0 + 9), 0, past).await, Err(StoreError::Conflict), "nobody has this number");
    store.resign(one).await.unwrap();
    assert_eq!(store.renew(one, 0, past).await, Err(StoreError::Conflict));
}

pub async fn a_duty_has_one_live_holder_and_its_token_rises(Harness { store, .. }: Harness) {
    let one = store.enlist("a".into(), "1".into(), NOW).await.unwrap();
    let two = store.enlist("b".into(), "1".into(), NOW).await.unwrap();
    let take = async |desk, now_ms| store.take_duty(desk, "listen".into(), now_ms).await.unwrap();
    let first = take(one, NOW).await.expect("it is free");
    assert_eq!(take(one, NOW).await, Some(first), "kept under the same token");
    assert_eq!(take(two, NOW).await, None);
    store.drop_duty(two, "listen".into()).await.unwrap();
    assert_eq!(take(two, NOW).await, None, "not its own to drop");
    store.drop_duty(one, "listen".into()).await.unwrap();
    let second = take(two, NOW).await.expect("it was dropped");
    assert!(second > first);
    assert_eq!(take(one, NOW).await, None);
    let listed = store.desks(NOW).await.unwrap();
    let duties: Vec<_> = listed.iter().map(|(desk, duties)| (desk.number, desk.name.as_str(), duties.len())).collect();
    assert_eq!(duties, [(one, "a", 0), (two, "b", 1)]);
    // The holder's lease runs out while the other renews its own.
    store.renew(one, 0, NOW + LEASE_MS - 1).await.unwrap();
    let third = take(one, NOW + LEASE_MS).await.expect("its holder is gone");
    assert!(third > second);
    assert_eq!(take(two, NOW + LEASE_MS).await, None, "a desk without a lease takes nothing");
    store.resign(one).await.unwrap();
    let last = store.enlist("c".into(), "1".into(), NOW + LEASE_MS).await.unwrap();
    assert!(take(last, NOW + LEASE_MS).await.expect("a desk that resigned gave it up") > third);
}

pub async fn a_desk_that_leaves_has_no_duties_and_keeps_its_lease(Harness { store, .. }: Harness) {
    let one = store.enlist("a".into(), "1".into(), NOW).await.unwrap();
    let two = store.enlist("b".into(), "1".into(), NOW).await.unwrap();
    let take = async |desk, duty: &str| store.take_duty(desk, duty.into(), NOW).await.unwrap();
    let first = take(one, "listen").await.expect("it is free");
    take(two, "retention").await.expect("it is free");
    store.leave(one).await.unwrap();
    assert_eq!(take(one, "listen").await, None, "it takes no more");
    assert_eq!(take(one, "another").await, None);
    assert!(take(two, "listen").await.expect("it is free at once") > first);
    let renewal = store.renew(one, 0, NOW).await.unwrap();
    assert_eq!((renewal.live, renewal.leaving), (vec![one, two], vec![one]));
    let listed = store.desks(NOW).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|(desk, duties)| (desk.number, desk.is_leaving, duties.len())).collect();
    assert_eq!(listed, [(one, true, 0), (two, false, 2)]);
}

pub async fn a_desk_tells_of_itself(Harness { store, .. }: Harness) {
    let one = store.enlist("a".into(), "1".into(), NOW).await.unwrap();
    assert_eq!(store.desks(NOW).await.unwrap()[0].0.report, "");
    store.put_report(one, "it is well".into()).await.unwrap();
    assert_eq!(store.desks(NOW).await.unwrap()[0].0.report, "it is well");
    store.renew(one, 0, NOW).await.unwrap();
    assert_eq!(store.desks(NOW).await.unwrap()[0].0.report, "it is well");
    assert_eq!(store.absent(NOW).await.unwrap(), []);
}

pub async fn cursors_are_kept_by_bot(harness: Harness) {
    let save = async |bot: &str, cursor: &str| {
        harness.store.save_cursor("p".into(), bot.into(), 1, cursor.to_owned()).await.unwrap();
    };
    assert_eq!(harness.store.cursor("p", "a").await.unwrap(), None);
    save("a", "1").await;
    save("a", "2").await;
    save("b", "x").await;
    let harness = harness.reopened();
    assert_eq!(harness.store.cursor("p", "a").await.unwrap().as_deref(), Some("2"));
    assert_eq!(harness.store.cursor("p", "b").await.unwrap().as_deref(), Some("x"));
    assert_eq!(harness.store.cursor("q", "a").await.unwrap(), None);
}

pub async fn an_earlier_holder_of_a_duty_moves_no_cursor(harness: Harness) {
    let save =
        async |token, cursor: &str| harness.store.save_cursor("p".into(), "a".into(), token, cursor.into()).await;
    save(7, "old").await.unwrap();
    save(8, "new").await.unwrap();
    assert_eq!(save(7, "older still").await, Err(StoreError::Conflict));
    let harness = harness.reopened();
    assert_eq!(harness.store.cursor("p", "a").await.unwrap().as_deref(), Some("new"));
}
