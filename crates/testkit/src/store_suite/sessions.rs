//! Rules for sessions: numbers of the store, one that serves, what an old one may still say; and presence by column.

use frontdesk_core::port::store::{Acceptance, Presence, Settlement, Store, StoreError};
use frontdesk_wire::{DeskNo, GatewayId, InstanceNo, Seq, SessionNo};
use tokio::task::JoinSet;

use super::{Harness, NotifiedRows, accept, accept_many, acceptance, owed, settled};

async fn attach(store: &dyn Store, instance: u64, desk: u64) -> SessionNo {
    store.attach(InstanceNo(instance), DeskNo(desk), GatewayId::default(), 5).await.unwrap().session
}

pub async fn session_numbers_are_never_reused(harness: Harness) {
    let mut numbers = Vec::new();
    for instance in [7, 8, 7] {
        numbers.push(attach(&*harness.store, instance, 1).await);
    }
    harness.store.detach(InstanceNo(7), numbers[2], false, 6).await.unwrap();
    let harness = harness.reopened();
    numbers.push(attach(&*harness.store, 7, 2).await);
    assert!(numbers.is_sorted() && numbers[0] > SessionNo(0), "{numbers:?}");
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
}

pub async fn a_session_goes_on_from_the_position(Harness { store, .. }: Harness) {
    accept_many(&*store, 3, 7).await;
    store.settle(InstanceNo(7), settled(&[1, 3]).into()).await.unwrap();
    let attached = store.attach(InstanceNo(7), DeskNo(1), GatewayId::default(), 5).await.unwrap();
    assert_eq!(
        (attached.position, attached.before),
        (store.position(InstanceNo(7)).await.unwrap(), Presence::default())
    );
    let again = store.attach(InstanceNo(7), DeskNo(2), GatewayId::default(), 9).await.unwrap();
    assert_eq!((again.before.served_by, again.before.session, again.before.seen_ms), (DeskNo(1), attached.session, 5));
}

/// The serving desk is named with each row, so that the others leave the instance to it.
pub async fn rows_name_the_desk_that_serves(Harness { store, .. }: Harness) {
    let notified = NotifiedRows::on(&*store);
    let served_by = async |number| accept(&*store, acceptance(number, &[7])).await.rows[0].served_by;
    assert_eq!(served_by(1).await, DeskNo(0));
    let first = attach(&*store, 7, 4).await;
    assert_eq!(served_by(2).await, DeskNo(4));
    let second = attach(&*store, 7, 5).await;
    assert_eq!(served_by(3).await, DeskNo(5));
    assert!(!store.detach(InstanceNo(7), first, false, 6).await.unwrap(), "another one serves");
    assert_eq!(served_by(4).await, DeskNo(5));
    assert!(store.detach(InstanceNo(7), second, false, 6).await.unwrap());
    assert_eq!(served_by(5).await, DeskNo(0));
    let replayed = store.replay_mail(InstanceNo(7), Seq(1)).await.unwrap();
    assert_eq!(replayed, Some(Seq(6)));
    let added: Vec<u64> = notified.deliveries().iter().map(|new| new.row.served_by.0).collect();
    assert_eq!(added, [0, 4, 5, 5, 0, 0]);
}

/// A desk that was suspended infers nothing of a socket that is not its own any more; what was acked stays acked.
pub async fn an_old_session_settles_by_acks_only(Harness { store, .. }: Harness) {
    accept_many(&*store, 4, 7).await;
    let old = attach(&*store, 7, 1).await;
    let save = |session, acked: &[u64], inferred: &[u64]| {
        let inferred = (!inferred.is_empty()).then(|| settled(inferred));
        store.settle(InstanceNo(7), Settlement { session, acked: settled(acked), inferred })
    };
    assert!(save(old, &[], &[1]).await.unwrap());
    assert_eq!(owed(&*store, 7).await, [2, 3, 4]);
    let new = attach(&*store, 7, 2).await;
    assert!(!save(old, &[3], &[1, 2, 3]).await.unwrap(), "it does not serve any more");
    assert_eq!(owed(&*store, 7).await, [2, 4], "3 was acked; that 2 arrived was only inferred");
    assert!(save(new, &[], &[1, 2, 3]).await.unwrap());
    assert_eq!(owed(&*store, 7).await, [4]);
    let dropped = store.drop_mail(InstanceNo(7), Seq(4), Some(old), "never acked".into()).await;
    assert_eq!(dropped, Err(StoreError::Conflict), "nor may it give a row up");
    assert_eq!(owed(&*store, 7).await, [4]);
    store.detach(InstanceNo(7), new, true, 6).await.unwrap();
    assert!(!save(new, &[], &[4]).await.unwrap(), "nor does one that has ended");
    assert_eq!(owed(&*store, 7).await, [4]);
}

/// A desk that lost its lease has another number, and the same sockets.
pub async fn a_desk_keeps_its_sessions_under_another_number(Harness { store, .. }: Harness) {
    let (kept, replaced) = (attach(&*store, 7, 1).await, attach(&*store, 8, 1).await);
    attach(&*store, 8, 2).await;
    let sessions = vec![(InstanceNo(7), kept), (InstanceNo(8), replaced), (InstanceNo(9), SessionNo(1))];
    assert_eq!(store.adopt(DeskNo(3), sessions).await.unwrap(), [InstanceNo(7)]);
    let served_by = async |instance| store.presence(InstanceNo(instance)).await.unwrap().served_by;
    assert_eq!((served_by(7).await, served_by(8).await), (DeskNo(3), DeskNo(2)));
    let made = accept(&*store, acceptance(1, &[7])).await;
    assert_eq!(made.rows[0].served_by, DeskNo(3));
    assert!(store.settle(InstanceNo(7), Settlement { session: kept, ..settled(&[1]).into() }).await.unwrap());
}

pub async fn every_verb_writes_its_own_columns(harness: Harness) {
    let store = &harness.store;
    assert_eq!(store.presences().await.unwrap(), []);
    let session = attach(&**store, 7, 3).await;
    store.mark_never_acks(InstanceNo(7)).await.unwrap();
    assert_eq!(store.claim_notice(InstanceNo(7), Seq(9)).await.unwrap(), Some(Seq(0)));
    assert!(store.mark_idle(InstanceNo(7), Some(session), true).await.unwrap());
    let whole = Presence {
        served_by: DeskNo(3),
        session,
        idle: true,
        seen_ms: 5,
        noticed_through: Seq(9),
        never_acks: true,
        ..Presence::default()
    };
    assert_eq!(store.presence(InstanceNo(7)).await.unwrap(), whole);
    assert!(
        !store.mark_idle(InstanceNo(7), Some(session.next()), false).await.unwrap(),
        "a session that does not serve"
    );
    assert!(store.mark_idle(InstanceNo(8), None, true).await.unwrap(), "without a session");
    store.detach(InstanceNo(7), session, false, 6).await.unwrap();
    let gone = Presence { served_by: DeskNo(0), session: SessionNo(0), seen_ms: 6, never_acks: false, ..whole };
    let harness = harness.reopened();
    let waits = Presence { idle: true, ..Presence::default() };
    assert_eq!(harness.store.presences().await.unwrap(), [(InstanceNo(7), gone.clone()), (InstanceNo(8), waits)]);
    let next = attach(&*harness.store, 7, 4).await;
    let awake = Presence { served_by: DeskNo(4), session: next, idle: false, seen_ms: 5, ..gone };
    assert_eq!(harness.store.presence(InstanceNo(7)).await.unwrap(), awake);
}

pub async fn a_notice_is_claimed_once(Harness { store, .. }: Harness) {
    let mut desks = JoinSet::new();
    for _ in 0..8 {
        let store = store.clone();
        desks.spawn(async move { store.claim_notice(InstanceNo(7), Seq(5)).await.unwrap() });
    }
    let claimed: Vec<u64> = desks.join_all().await.into_iter().flatten().map(|range| range.0).collect();
    assert_eq!(claimed, [0], "by one of them");
    assert_eq!(store.claim_notice(InstanceNo(7), Seq(4)).await.unwrap(), None);
    assert_eq!(store.claim_notice(InstanceNo(7), Seq(8)).await.unwrap(), Some(Seq(5)), "the rows from 6 on");
}

/// One call of the wake URL per cool-down, whichever server accepted the mail.
pub async fn a_wake_is_claimed_by_one_server(Harness { store, .. }: Harness) {
    let claim = |desk, live: &[u64], now_ms| {
        let live = live.iter().copied().map(DeskNo).collect();
        store.claim_wake(InstanceNo(7), DeskNo(desk), live, 1_000, now_ms)
    };
    let both = [1, 2];
    assert!(claim(1, &both, 5_000).await.unwrap());
    assert!(!claim(2, &both, 5_500).await.unwrap(), "the other one does it");
    assert!(claim(1, &both, 5_600).await.unwrap(), "and may try again");
    assert!(!claim(2, &both, 6_599).await.unwrap());
    assert!(claim(2, &both, 6_600).await.unwrap(), "after the cool-down");
    assert!(claim(1, &[1], 6_700).await.unwrap(), "from one that is gone");
    attach(&*store, 7, 9).await;
    assert!(claim(2, &both, 6_800).await.unwrap(), "the agent came: the next wake begins anew");
    let mut desks = JoinSet::new();
    for desk in 1..=8 {
        let store = store.clone();
        let live: Vec<DeskNo> = (1..=8).map(DeskNo).collect();
        desks.spawn(async move { store.claim_wake(InstanceNo(8), DeskNo(desk), live, 1_000, 5_000).await.unwrap() });
    }
    assert_eq!(desks.join_all().await.into_iter().filter(|is_mine| *is_mine).count(), 1);
}

/// The answer of the first attempt was lost on the way.
pub async fn a_repeated_attempt_is_answered_as_the_first(Harness { store, .. }: Harness) {
    let attempt = |attempt, number| Acceptance { attempt, ..acceptance(number, &[7, 8]) };
    let first = accept(&*store, attempt(11, 1)).await;
    accept(&*store, attempt(12, 2)).await;
    assert_eq!(accept(&*store, attempt(11, 1)).await, first, "fresh, with its rows");
    let other = accept(&*store, attempt(13, 1)).await;
    assert_eq!((other.fresh, other.event, other.rows.len()), (false, first.event, 0), "another attempt is a duplicate");
    assert!(!accept(&*store, attempt(0, 1)).await.fresh);
    assert_eq!((owed(&*store, 7).await, owed(&*store, 8).await), (vec![1, 2], vec![1, 2]), "written once");
}
