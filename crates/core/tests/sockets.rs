//! The sockets: which socket is notified, what it learns about missed notifications, and what outlives it.

use std::sync::Arc;

use frontdesk_core::delivery::sockets::{GivenUp, Mailbox, Order, Sockets};
use frontdesk_core::delivery::unserved::Unserved;
use frontdesk_core::delivery::window::Acks;
use frontdesk_core::port::store::{Delivery, MadeRow, NewRow, Presence, SentTurn};
use frontdesk_wire::{Close, DeskNo, EventId, GatewayId, InstanceNo, Seq};

fn delivery(session: &str) -> Arc<Delivery> {
    Arc::new(Delivery {
        event: EventId(1),
        at_ms: 0,
        passthrough: false,
        json: "{}".into(),
        platform: "chat".into(),
        bot: "desk".into(),
        chat_id: format!("chat of {session}").into(),
        session_key: session.into(),
        message_id: "m".into(),
    })
}

fn row(instance: u64, seq: u64, delivery: Arc<Delivery>) -> NewRow {
    NewRow { row: MadeRow { instance: InstanceNo(instance), seq: Seq(seq), served_by: DeskNo(0) }, delivery }
}

fn add_rows(sockets: &Sockets, instance: u64, seqs: impl IntoIterator<Item = u64>) {
    let rows: Vec<NewRow> = seqs.into_iter().map(|seq| row(instance, seq, delivery("k"))).collect();
    sockets.take_rows(&rows, |_| false);
}

fn rows(mailbox: &Mailbox, cursor: u64) -> Option<Vec<u64>> {
    mailbox.take_rows(Seq(cursor), 9_999, usize::MAX).map(|rows| rows.into_iter().map(|(seq, _)| seq.0).collect())
}

/// A socket that has read its ledger up to now.
fn served(sockets: &Sockets, instance: u64) -> Arc<Mailbox> {
    let (mailbox, _) = sockets.attach(InstanceNo(instance), &"gw".into(), &"acme".into());
    mailbox.close_gap();
    mailbox
}

#[test]
fn a_new_socket_must_read_the_ledger_first() {
    let sockets = Sockets::default();
    let (mailbox, before) = sockets.attach(InstanceNo(7), &"gw".into(), &"acme".into());
    assert!(before.is_none());
    add_rows(&sockets, 7, [1]);
    assert_eq!(rows(&mailbox, 0), None, "earlier rows are only in the ledger");
    mailbox.close_gap();
    add_rows(&sockets, 7, [2, 3]);
    assert_eq!(rows(&mailbox, 1), Some(vec![2, 3]));
    assert_eq!(rows(&mailbox, 3), Some(vec![]));
}

#[test]
fn rows_are_taken_in_order_up_to_the_limit() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    add_rows(&sockets, 7, [3, 1, 2]); // one commit; sorted by the sockets
    let two: Vec<u64> = mailbox.take_rows(Seq(0), 2, usize::MAX).unwrap().into_iter().map(|(seq, _)| seq.0).collect();
    assert_eq!(two, [1, 2]);
    assert_eq!(rows(&mailbox, 2), Some(vec![3]), "the rest is kept");
}

#[test]
fn rows_already_read_from_the_ledger_are_not_returned_again() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    add_rows(&sockets, 7, 1..=5);
    assert_eq!(rows(&mailbox, 3), Some(vec![4, 5]));
}

#[test]
fn a_gap_in_the_numbers_sends_the_session_to_the_ledger() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    add_rows(&sockets, 7, [5]);
    assert_eq!(rows(&mailbox, 3), None);
}

#[test]
fn a_mailbox_that_overflows_drops_rows_and_reports_it() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    add_rows(&sockets, 7, 1..=512);
    add_rows(&sockets, 7, [513]);
    add_rows(&sockets, 7, [514]);
    assert_eq!(rows(&mailbox, 0), None);
    mailbox.close_gap();
    add_rows(&sockets, 7, [515]);
    assert_eq!(rows(&mailbox, 514), Some(vec![515]), "rows are kept again after the ledger was read");
    mailbox.open_gap();
    assert_eq!(rows(&mailbox, 515), None);
}

/// Regression: each agent of a tenant that did not ack could fill its own mailbox.
#[test]
fn mailboxes_of_a_tenant_have_a_limit_together() {
    let size = delivery("k").json.len();
    let sockets = Sockets::new(3 * size);
    let (seven, eight) = (served(&sockets, 7), served(&sockets, 8));
    add_rows(&sockets, 7, [1, 2]);
    add_rows(&sockets, 8, [1]);
    add_rows(&sockets, 8, [2]);
    assert_eq!((rows(&seven, 0), rows(&eight, 0)), (Some(vec![1, 2]), None), "the rest is in the ledger");
    let (other, _) = sockets.attach(InstanceNo(9), &"gw".into(), &"rival".into());
    other.close_gap();
    add_rows(&sockets, 9, [1]);
    assert_eq!(rows(&other, 0), Some(vec![1]), "another tenant");
    eight.close_gap();
    add_rows(&sockets, 8, [3]);
    assert_eq!(rows(&eight, 2), Some(vec![3]), "there is room again");
    // Results are kept for the next socket when the memory is used up, but each socket has some.
    let result = || Order::Result("x".repeat(40_000));
    assert!(seven.order(result()) && seven.order(result()) && !seven.order(result()));
    assert!(eight.order(result()));
    drop(seven.take_orders());
    assert!(seven.order(result()));
}

#[test]
fn a_notification_reaches_only_its_instance() {
    let sockets = Sockets::default();
    let (seven, eight) = (served(&sockets, 7), served(&sockets, 8));
    let added = [(7, 1, "a"), (9, 1, "a"), (8, 4, "a"), (7, 2, "b")];
    sockets.take_rows(&added.map(|(instance, seq, key)| row(instance, seq, delivery(key))), |_| false);
    assert_eq!((rows(&seven, 0), rows(&eight, 3)), (Some(vec![1, 2]), Some(vec![4])));
    assert_eq!(
        sockets.unserved().take(),
        [(InstanceNo(9), Unserved::NewMail)].into(),
        "no socket serves it, so it must be woken"
    );
    assert!(sockets.unserved().take().is_empty(), "reported once");
}

#[test]
fn turns_outlive_their_socket_until_they_are_finished() {
    let (sockets, no) = (Sockets::default(), InstanceNo(7));
    let is_known = || sockets.turn_chat(no, &["k".into()], 0).is_some();
    let first = served(&sockets, 7);
    sockets.remember_turns(no, std::iter::once(&*delivery("k")), 1_000);
    assert!(is_known());
    sockets.detach(no, &first);
    assert!(!is_known(), "no socket");
    sockets.forget_finished(60_000, 60_000);
    let second = served(&sockets, 7);
    assert!(is_known());
    sockets.forget_finished(31 * 60_000, 31 * 60_000);
    assert!(is_known(), "the agent has a socket");
    sockets.detach(no, &second);
    sockets.forget_finished(31 * 60_000, 31 * 60_000);
    let _third = served(&sockets, 7);
    assert!(!is_known());
}

#[tokio::test]
async fn the_newest_socket_wins_and_the_old_one_is_closed() {
    let sockets = Sockets::default();
    let old = served(&sockets, 7);
    let (new, replaced) = sockets.attach(InstanceNo(7), &"gw".into(), &"acme".into());
    let replaced = replaced.expect("the old mailbox is returned, to be waited for");
    assert!(Arc::ptr_eq(&old, &replaced) && new.number() > old.number());
    assert!(matches!(old.take_orders().pop_front(), Some(Order::Close(Close::Replaced))));
    assert!(!sockets.detach(InstanceNo(7), &old), "detaching the old one changes nothing");
    assert!(sockets.is_live(InstanceNo(7)) && sockets.open_sockets() == 1);

    old.finish();
    replaced.finished().await;
    assert!(!old.order(Order::Dropped(Seq(1))), "a finished session accepts no orders");
    assert!(sockets.detach(InstanceNo(7), &new) && !sockets.is_live(InstanceNo(7)));
    assert!(!sockets.detach(InstanceNo(7), &new), "once");
}

#[test]
fn orders_are_bounded() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    let taken = (0..2_000).filter(|seq| mailbox.order(Order::Dropped(Seq(*seq)))).count();
    assert_eq!(taken, 1_024);
    assert_eq!(mailbox.take_orders().len(), 1_024);
    assert!(mailbox.order(Order::Dropped(Seq(1))), "there is space again");
}

#[test]
fn orders_and_rows_are_bounded_in_bytes() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    let line = || "x".repeat(1 << 20);
    let taken = (0..100).filter(|_| mailbox.order(Order::Line(line()))).count();
    assert_eq!(taken, 4);
    let taken = (0..100).filter(|_| mailbox.order(Order::Result(line()))).count();
    assert_eq!(taken, 4, "results have their own limit");
    assert!(mailbox.order(Order::Close(Close::GoingAway)), "a close always gets through");
    mailbox.take_orders();
    assert!(mailbox.order(Order::Line(line())), "there is space again");

    let large = |seq: u64| {
        let delivery = Delivery { json: line(), ..(*delivery("a")).clone() };
        sockets.take_rows(&[row(7, seq, Arc::new(delivery))], |_| false);
    };
    (1..=4).for_each(large);
    let two = mailbox.take_rows(Seq(0), 99, 1 << 20).unwrap();
    assert_eq!(two.len(), 1, "no more than the limit");
    assert_eq!(rows(&mailbox, 1), Some(vec![2, 3, 4]));
    (5..=9).for_each(large);
    assert_eq!(rows(&mailbox, 4), None, "above the bound the ledger is read");
    (0..100).for_each(|_| sockets.park(InstanceNo(8), line(), 0));
    assert_eq!(sockets.take_parked(InstanceNo(8), 1).len(), 1);
}

#[test]
fn the_unserved_reason_is_reported_once_and_new_mail_takes_precedence() {
    let sockets = Sockets::default();
    sockets.unserved().note(InstanceNo(7), Unserved::Look);
    add_rows(&sockets, 7, [1]);
    sockets.unserved().note(InstanceNo(7), Unserved::Look);
    assert_eq!(sockets.unserved().take(), [(InstanceNo(7), Unserved::NewMail)].into());
    assert!(sockets.unserved().take().is_empty());
}

#[test]
fn refusals_are_recorded_up_to_a_rate_and_given_up_rows_are_kept() {
    let sockets = Sockets::default();
    assert_eq!((0..100).filter(|_| sockets.may_note_refusal(InstanceNo(7), 5_000)).count(), 10);
    assert!(sockets.may_note_refusal(InstanceNo(8), 5_000) && sockets.may_note_refusal(InstanceNo(7), 6_000));
    assert!(sockets.given_up().is_empty());
    (0..100)
        .for_each(|seq| sockets.note_given_up(InstanceNo(7), GivenUp { seq: Seq(seq), event: EventId(seq), at_ms: 0 }));
    let found = sockets.given_up();
    assert_eq!((found.len(), found[0].0, found[0].1.len(), found[0].1[31].seq), (1, InstanceNo(7), 32, Seq(99)));
}

#[test]
fn refused_connections_are_logged_once_per_minute_and_gateway() {
    let sockets = Sockets::default();
    let log = |gateway: Option<&str>, at_ms| sockets.may_log_refused_dial(gateway.map(GatewayId::from).as_ref(), at_ms);
    assert!(log(Some("a"), 0) && !log(Some("a"), 59_999) && log(Some("b"), 1) && log(Some("a"), 60_000));
    assert!(log(None, 60_000) && !log(None, 60_001), "unknown gateways share one line");
    let many = (0..1_000).filter(|number| log(Some(&number.to_string()), 60_002)).count();
    assert!(many < 256, "{many}");
}

#[test]
fn a_non_acking_gateway_is_known_after_a_restart() {
    let sockets = Sockets::default();
    sockets.set_presence(InstanceNo(7), |presence| presence.never_acks = true);
    assert_eq!(sockets.acks(InstanceNo(7)), Acks::Never);
    sockets.remember_acks(InstanceNo(7), Acks::Seen);
    assert_eq!(sockets.acks(InstanceNo(7)), Acks::Seen, "an ack ends it");
}

#[test]
fn closing_a_gateway_closes_its_sockets_only() {
    let sockets = Sockets::default();
    let (a, _) = sockets.attach(InstanceNo(7), &"gw-a".into(), &"acme".into());
    let (b, _) = sockets.attach(InstanceNo(8), &"gw-b".into(), &"acme".into());
    sockets.close(Some(&"gw-a".into()), Close::Unauthorized);
    assert!(matches!(a.take_orders().pop_front(), Some(Order::Close(Close::Unauthorized))));
    assert!(b.take_orders().is_empty());
    sockets.close(None, Close::GoingAway);
    assert!(matches!(b.take_orders().pop_front(), Some(Order::Close(Close::GoingAway))));
}

#[test]
fn a_result_goes_to_the_next_socket_when_its_own_is_gone() {
    let sockets = Sockets::default();
    let mailbox = served(&sockets, 7);
    assert_eq!(sockets.answer(InstanceNo(7), "first".into()), Ok(()));
    assert!(matches!(mailbox.take_orders().pop_front(), Some(Order::Result(line)) if line == "first"));
    mailbox.finish();
    assert_eq!(sockets.answer(InstanceNo(7), "second".into()), Err("second".into()));
    sockets.detach(InstanceNo(7), &mailbox);
    assert_eq!(sockets.answer(InstanceNo(7), "third".into()), Err("third".into()));
    sockets.park(InstanceNo(7), "second".into(), 0);
    sockets.park(InstanceNo(7), "third".into(), 29_000);
    assert_eq!(sockets.take_parked(InstanceNo(7), 30_000), [(29_000, "third".to_owned())], "results are kept for 30 s");
    assert!(sockets.take_parked(InstanceNo(7), 30_000).is_empty(), "returned once");
    sockets.park(InstanceNo(9), "of an agent that does not come back".into(), 0);
    sockets.forget_finished(0, 30_000);
    assert!(sockets.take_parked(InstanceNo(9), 1).is_empty(), "not kept until the agent connects");
    (0..1_100).for_each(|number| sockets.park(InstanceNo(7), number.to_string(), 0));
    let parked = sockets.take_parked(InstanceNo(7), 1);
    assert_eq!((parked.len(), parked[0].1.as_str()), (1_024, "76"), "the oldest are dropped first");
}

#[test]
fn instance_state_outlives_its_sockets() {
    let sockets = Sockets::default();
    assert_eq!(sockets.acks(InstanceNo(7)), Acks::Assumed);
    sockets.remember_acks(InstanceNo(7), Acks::Never);
    let written = sockets.set_presence(InstanceNo(7), |presence| presence.idle = true);
    let mailbox = served(&sockets, 7);
    sockets.detach(InstanceNo(7), &mailbox);
    assert_eq!((sockets.acks(InstanceNo(7)), sockets.presence(InstanceNo(7))), (Acks::Never, written));
    assert_eq!(sockets.presence(InstanceNo(8)), Presence::default());
}

#[test]
fn turns_are_found_where_there_is_a_socket_and_asked_of_the_ledger_once_for_each() {
    let sockets = Sockets::default();
    let no = InstanceNo(7);
    sockets.remember_turns(no, [&*delivery("a")].into_iter(), 1_000);
    assert_eq!((sockets.turn_chat(no, &["a".into()], 0), sockets.lacks_turns(no)), (None, None), "it has no socket");
    let mailbox = served(&sockets, 7);
    assert_eq!(sockets.turn_chat(no, &["b".into(), "a".into()], 1_000).as_deref(), Some("chat of a"));
    assert_eq!(sockets.turn_chat(no, &["a".into()], 1_001), None);
    let socket = sockets.lacks_turns(no).unwrap();
    let stored = SentTurn { session_key: "b".into(), chat_id: "chat of b".into(), at_ms: 900 };
    sockets.complete_turns(no, socket, vec![stored]);
    assert_eq!(sockets.turn_chat(no, &["b".into()], 900).as_deref(), Some("chat of b"));
    assert_eq!(sockets.lacks_turns(no), None);
    sockets.detach(no, &mailbox);
    served(&sockets, 7);
    assert!(sockets.lacks_turns(no).is_some_and(|next| next > socket), "another server may have had it in between");
}
