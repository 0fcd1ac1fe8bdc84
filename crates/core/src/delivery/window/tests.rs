//! Tests of the window: credit, order, acks, resends and rows that are given up.

use super::*;
use frontdesk_wire::EventId;

fn delivery(chat: &str, passthrough: bool) -> Arc<Delivery> {
    Arc::new(Delivery {
        event: EventId(1),
        at_ms: 0,
        passthrough,
        json: "{}".into(),
        platform: "relay".into(),
        bot: "desk".into(),
        chat_id: chat.into(),
        session_key: "k".into(),
        message_id: "m".into(),
    })
}

fn window() -> Window {
    Window::new(3, 5_000, Position::default(), Acks::Assumed, 0)
}

/// A ping at this time is answered at once.
fn pinged(w: &mut Window, now_ms: u64) {
    assert_eq!(w.health(now_ms, true, false), Health::Probe);
    w.ponged(now_ms);
}

#[test]
fn it_is_bounded_and_acks_in_any_order_move_the_watermark() {
    let mut w = window();
    for seq in 1..=3 {
        w.sent(Seq(seq), delivery("c", false), 0);
    }
    assert_eq!(w.room(0), 0);
    assert!(w.ack(Seq(2)).is_some());
    assert_eq!(w.take_unsaved(), Some(Position { through: Seq(0), above: vec![Seq(2)], sent: Seq(3) }.into()));
    assert!(w.ack(Seq(1)).is_some());
    assert_eq!(w.take_unsaved(), Some(Position { through: Seq(2), above: vec![], sent: Seq(3) }.into()));
    assert!(w.ack(Seq(1)).is_none(), "a second ack is ignored");
    assert!(w.ack(Seq(9)).is_none());
    assert_eq!(w.take_unsaved(), None);
    assert_eq!(w.room(0), 2);
}

#[test]
fn silence_is_probed_at_the_limit_and_dead_soon_after() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 500);
    assert!(w.ack(Seq(1)).is_some());
    w.sent(Seq(2), delivery("c", false), 1_000);
    assert_eq!(w.health(1_999, true, false), Health::Fine);
    assert_eq!(w.health(2_000, true, false), Health::Probe, "only asked, before its rows are held back");
    assert_eq!(w.health(6_000, true, false), Health::Probe);
    assert_eq!(w.health(8_999, true, false), Health::Fine);
    assert_eq!(w.health(9_000, true, false), Health::Dead);
}

#[test]
fn a_peer_that_has_not_acked_may_stall_for_half_a_minute() {
    // Whatever its last socket did.
    for acks in [Acks::Assumed, Acks::Seen, Acks::Never] {
        let mut w = Window::new(3, 5_000, Position::default(), acks, 0);
        w.sent(Seq(1), delivery("c", false), 1_000);
        assert_eq!(w.health(6_000, true, false), Health::Probe);
        assert_eq!(w.health(35_999, true, false), Health::Fine);
        assert_eq!(w.health(36_000, true, false), Health::Dead);
    }
}

#[test]
fn a_slow_peer_that_answers_pings_lives() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    assert_eq!(w.health(5_000, true, false), Health::Probe);
    w.received(5_001);
    assert_eq!(w.health(9_999, true, false), Health::Fine);
    assert_eq!(w.health(10_000, true, false), Health::Probe, "it is probed again");
}

#[test]
fn an_idle_socket_is_probed() {
    let mut w = window();
    assert_eq!(w.health(29_999, true, false), Health::Fine);
    assert_eq!(w.health(30_000, true, false), Health::Probe);
    assert_eq!(w.health(33_000, true, false), Health::Dead);
}

#[test]
fn never_acks_needs_evidence() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    pinged(&mut w, 59_000);
    assert!(w.settle_unacked(70_000).is_empty(), "no answer, no evidence");
    w.answered(&"other".into());
    assert!(w.settle_unacked(70_000).is_empty());
    w.answered(&"c".into());
    assert!(w.settle_unacked(59_999).is_empty(), "not yet");
    assert_eq!(w.settle_unacked(60_000).len(), 1);
    assert_eq!(w.acks, Acks::Never);

    w.sent(Seq(2), delivery("c", false), 60_000);
    w.received(60_001);
    assert!(w.settle_unacked(70_000).is_empty(), "a frame may have been sent before it arrived");
    pinged(&mut w, 65_000);
    assert!(w.settle_unacked(69_999).is_empty());
    assert_eq!(w.settle_unacked(70_000).len(), 1);
    w.sent(Seq(3), delivery("c", false), 70_000);
    assert!(w.ack(Seq(3)).is_some());
    assert_eq!(w.acks, Acks::Seen, "an ack seen later ends that state");
}

#[test]
fn what_is_only_inferred_is_saved_apart_until_it_is_stored() {
    let mut w = window();
    for seq in 1..=3 {
        w.sent(Seq(seq), delivery("c", seq == 1), 0);
    }
    pinged(&mut w, 5_000);
    w.ack(Seq(3));
    assert_eq!(w.settle_unacked(10_000).len(), 1, "the forward, by health");
    let all = Position { through: Seq(1), above: vec![Seq(3)], sent: Seq(0) };
    let unsaved = w.take_unsaved().unwrap();
    assert_eq!(unsaved.acked, Position { through: Seq(0), above: vec![Seq(3)], sent: Seq(3) });
    assert_eq!(unsaved.inferred, Some(all.clone()));
    w.save_failed();
    assert_eq!(w.take_unsaved(), Some(unsaved), "all of it again");
    w.saved();
    w.ack(Seq(2));
    let unsaved = w.take_unsaved().unwrap();
    assert_eq!((unsaved.acked.through, unsaved.inferred), (Seq(3), None), "what was stored is known");
}

#[test]
fn answered_rows_do_not_block_a_gateway_that_never_acked() {
    let mut w = window();
    for seq in 1..=3 {
        w.sent(Seq(seq), delivery("c", false), 0);
    }
    assert_eq!(w.room(0), 0);
    w.answered(&"c".into());
    assert_eq!(w.room(0), 3);
    for seq in 4..=48 {
        w.sent(Seq(seq), delivery("c", false), 0);
        w.answered(&"c".into());
    }
    assert_eq!(w.room(0), 0, "up to the limit");
    let mut w = window();
    for seq in 1..=3 {
        w.sent(Seq(seq), delivery("c", false), 0);
    }
    w.ack(Seq(1));
    w.answered(&"c".into());
    assert_eq!(w.room(0), 1, "a gateway that acks must ack");
}

#[test]
fn a_forward_is_settled_by_health_or_by_its_follow_up() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", true), 0);
    pinged(&mut w, 5_000);
    assert_eq!(w.settle_unacked(10_000).len(), 1);
    w.sent(Seq(2), delivery("c", true), 10_000);
    w.followed_up(&"k".into());
    assert!(w.is_empty());
}

/// Regression, found by the simulation: a server that was stopped for a while settled rows that lay unread on a socket
/// whose peer had sent something and then vanished.
#[test]
fn only_the_answer_to_a_ping_behind_a_row_proves_that_it_arrived() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", true), 1_000);
    w.received(1_001);
    assert_eq!(w.health(30_000, true, false), Health::Probe);
    assert!(w.settle_unacked(30_000).is_empty(), "the ping is not answered yet");
    w.ponged(30_001);
    assert_eq!(w.settle_unacked(30_001).len(), 1);
    w.sent(Seq(2), delivery("c", true), 40_000);
    assert_eq!(w.health(45_000, false, false), Health::Probe);
    w.ponged(45_001);
    assert!(w.settle_unacked(50_000).is_empty(), "the ping was written before the row");
    w.received(50_001);
    assert_eq!(w.health(50_002, true, false), Health::Probe);
    w.received(50_003);
    assert_eq!(w.health(55_003, true, false), Health::Probe);
    w.ponged(55_004);
    assert_eq!(w.settle_unacked(55_004).len(), 1, "by the answer to the ping of 50,002");
}

#[test]
fn an_unacked_row_is_resent_three_times_and_then_given_up() {
    let mut w = window();
    for seq in 1..=3 {
        w.sent(Seq(seq), delivery("c", false), 0);
    }
    w.received(1);
    w.ack(Seq(2));
    assert!(w.overdue(29_999).resend.is_empty(), "not yet");
    for round in 1..=u64::from(RESENDS_MAX) {
        w.received(round * 30_000);
        let overdue = w.overdue(round * 30_000);
        assert_eq!(overdue.resend.iter().map(|(seq, _)| seq.0).collect::<Vec<_>>(), [1], "only 1: 3 may be slow");
        assert!(overdue.given_up.is_empty() && w.overdue(round * 30_000 + 29_999).resend.is_empty());
    }
    let overdue = w.overdue(120_000);
    assert_eq!((overdue.resend.len(), overdue.given_up.len(), overdue.given_up[0].0), (0, 1, Seq(1)));
    w.received(119_000);
    assert_eq!(w.room(120_000), 2, "3 is still waited for");
    assert!(!w.settled(Seq(1)), "it was not acked");
    w.dropped(Seq(1));
    assert_eq!(w.take_unsaved().unwrap().acked.through, Seq(2));
}

/// A gateway that acked before and then stops, but answers pings.
#[test]
fn if_no_later_row_is_acked_the_oldest_is_resent_three_times_and_kept() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.ack(Seq(1));
    for seq in 2..=3 {
        w.sent(Seq(seq), delivery("c", false), 1_000);
    }
    assert_eq!(w.unacked_since_ms(1_000), Some(1_000));
    let mut resent = Vec::new();
    for at_ms in (0..600_000).step_by(1_000) {
        w.received(at_ms);
        let overdue = w.overdue(at_ms);
        assert!(overdue.given_up.is_empty(), "at {at_ms}");
        resent.extend(overdue.resend.iter().map(|(seq, _)| (seq.0, at_ms)));
    }
    assert_eq!(resent, [(2, 61_000), (2, 121_000), (2, 181_000)]);
    assert_eq!((w.room(600_000), w.unacked_since_ms(600_000)), (1, Some(1_000)), "it is kept, and reported");
    w.ack(Seq(2));
    w.ack(Seq(3));
    assert_eq!(w.unacked_since_ms(600_000), None);
}

#[test]
fn rows_acked_ahead_of_an_unacked_one_are_bounded() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.working(Seq(1), 0);
    let mut seq = 1;
    while w.room(0) > 0 {
        seq += 1;
        w.sent(Seq(seq), delivery("d", false), 0);
        w.ack(Seq(seq));
    }
    assert_eq!(seq, AHEAD_MAX as u64 + 1);
    let mut reopened = Window::new(3, 1_000, w.acked.clone(), Acks::Seen, 0);
    w.ack(Seq(1));
    assert_eq!(w.room(0), 3);
    assert_eq!(reopened.room(0), 3, "the row below is sent again");
    reopened.sent(Seq(1), delivery("d", false), 0);
    reopened.ack(Seq(1));
    assert_eq!(reopened.room(0), 3);
    reopened.sent(Seq(seq + 1), delivery("d", false), 0);
    assert_eq!(reopened.room(0), 2);
}

#[test]
fn a_row_that_is_worked_on_is_neither_resent_nor_settled() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.sent(Seq(2), delivery("d", true), 0);
    w.answered(&"c".into());
    w.working(Seq(1), 5_000);
    w.working(Seq(2), 5_000);
    w.working(Seq(7), 5_000); // none of this socket
    pinged(&mut w, 8_000);
    assert!(w.settle_unacked(90_000).is_empty(), "it acks, and says that it has not finished");
    w.sent(Seq(3), delivery("c", false), 90_000);
    w.ack(Seq(3));
    for at_ms in (90_000..900_000).step_by(25_000) {
        w.received(at_ms);
        w.working(Seq(1), at_ms);
        w.working(Seq(2), at_ms);
        let overdue = w.overdue(at_ms + 24_999);
        assert!(overdue.resend.is_empty() && overdue.given_up.is_empty(), "at {at_ms}");
    }
    assert_eq!(w.room(900_000), 3, "it does not hold up others");
    // It says no more: the usual rule.
    assert_eq!(w.overdue(950_000).resend.len(), 2);
    assert!(w.ack(Seq(1)).is_some());
}

#[test]
fn a_gateway_that_never_acked_is_not_sent_anything_twice() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.sent(Seq(2), delivery("c", false), 0);
    let overdue = w.overdue(300_000);
    assert!(overdue.resend.is_empty() && overdue.given_up.is_empty());
}

#[test]
fn a_silent_peer_gets_no_new_rows_and_a_slow_one_does() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.received(100);
    w.ack(Seq(1));
    w.sent(Seq(2), delivery("c", false), 1_000);
    assert_eq!(w.room(2_999), 2);
    assert_eq!(w.health(1_999, true, false), Health::Fine);
    assert_eq!(w.health(2_000, true, false), Health::Probe, "asked before rows are held back");
    assert_eq!(w.room(3_000), 0, "nothing was received since row 2 was sent");
    assert_eq!(w.health(3_000, true, true), Health::Probe, "the ping before is not written yet");
    assert_eq!(w.pings.len(), 1);
    assert_eq!(w.health(3_999, true, false), Health::Fine, "it is not taken for dead sooner");
    w.ponged(4_000);
    assert_eq!(w.room(5_999), 2, "slow, not frozen");
    assert_eq!(w.room(6_000), 0, "received something since row 2 was sent, and silent now");
    assert_eq!(w.health(6_000, true, false), Health::Probe, "the probe");
    assert_eq!(w.health(9_000, true, false), Health::Dead);
    // What it says that it is at work on does not count.
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.working(Seq(1), 100);
    assert_eq!(w.room(50_000), 3);
    // A gateway that never acked may be one that does not ack.
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    assert_eq!(w.room(50_000), 2);
}

#[test]
fn what_is_in_flight_is_bounded_in_bytes() {
    let mut w = Window::new(32, 5_000, Position::default(), Acks::Assumed, 0);
    let large = Arc::new(Delivery { json: "x".repeat(1 << 20), ..(*delivery("c", false)).clone() });
    let mut sent = 0;
    while w.room(0) > 0 {
        sent += 1;
        w.sent(Seq(sent), large.clone(), 0);
    }
    assert_eq!(sent, 4);
    w.ack(Seq(1));
    assert!(w.room(0) > 0);
}

#[test]
fn a_dropped_row_is_settled_in_flight_or_ahead_of_it() {
    let mut w = window();
    w.sent(Seq(1), delivery("c", false), 0);
    w.dropped(Seq(1));
    w.dropped(Seq(2));
    assert!(w.is_empty() && w.settled(Seq(2)));
    assert_eq!(w.take_unsaved().unwrap().acked.through, Seq(2));
}
