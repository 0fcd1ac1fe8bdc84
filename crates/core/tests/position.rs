//! Settled positions against the simplest model: a set of row numbers.

use std::collections::BTreeSet;
use std::sync::Arc;

use frontdesk_core::delivery::window::{Acks, Window};
use frontdesk_core::port::store::{Delivery, Position};
use frontdesk_wire::{EventId, Seq};
use proptest::prelude::*;

const ROWS: u64 = 30;

fn position() -> impl Strategy<Value = Position> {
    (0..ROWS, prop::collection::vec(1..ROWS, 0..8), 0..ROWS).prop_map(|(through, above, sent)| Position {
        through: Seq(through),
        above: above.into_iter().map(Seq).collect(),
        sent: Seq(sent),
    })
}

fn set(position: &Position) -> BTreeSet<u64> {
    (1..=position.through.0).chain(position.above.iter().map(|seq| seq.0)).collect()
}

fn tidied(raw: &Position) -> Position {
    let mut position = Position::default();
    position.merge(raw);
    position
}

fn delivery(chat: u64) -> Arc<Delivery> {
    Arc::new(Delivery {
        event: EventId(1),
        at_ms: 0,
        passthrough: false,
        json: "{}".into(),
        platform: "chat".into(),
        bot: "desk".into(),
        chat_id: chat.to_string().into(),
        session_key: "k".into(),
        message_id: "m".into(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn merging_is_the_union_and_the_highest_sent(a in position(), b in position()) {
        let mut merged = tidied(&a);
        merged.merge(&b);
        let union: BTreeSet<u64> = set(&a).union(&set(&b)).copied().collect();
        prop_assert_eq!(set(&merged), union.clone());
        prop_assert_eq!(merged.sent, a.sent.max(b.sent));
        for seq in 0..=ROWS {
            prop_assert_eq!(merged.settled(Seq(seq)), seq == 0 || union.contains(&seq));
        }
    }

    #[test]
    fn a_merged_position_has_one_form(a in position(), b in position()) {
        let (mut one, mut other) = (tidied(&a), tidied(&b));
        one.merge(&b);
        other.merge(&a);
        prop_assert_eq!(&one, &other);
        let again = one.clone();
        one.merge(&again);
        prop_assert_eq!(&one, &again);
        prop_assert!(one.above.is_sorted_by(|a, b| a < b));
        prop_assert!(one.above.first().is_none_or(|first| *first > one.through.next()), "{:?}", one);
    }

    /// Acks in any order, mixed with drops: the window saves exactly what was settled.
    #[test]
    fn a_window_saves_what_was_settled(steps in prop::collection::vec((0_u8..4, 1..ROWS), 1..120)) {
        let mut window = Window::new(8, 5_000, Position::default(), Acks::Assumed, 0);
        let (mut settled, mut flying, mut saved) = (BTreeSet::new(), BTreeSet::new(), Position::default());
        for (now_ms, (kind, seq)) in (0..).zip(steps) {
            match kind {
                0 | 1 if window.room(0) > 0 => {
                    let next = window.cursor().next().0;
                    if settled.contains(&next) {
                        window.skip(Seq(next));
                    } else {
                        window.sent(Seq(next), delivery(next), now_ms);
                        flying.insert(next);
                    }
                }
                2 => {
                    let known = flying.remove(&seq);
                    prop_assert_eq!(window.ack(Seq(seq)).is_some(), known);
                    if known {
                        settled.insert(seq);
                    }
                }
                3 => {
                    window.dropped(Seq(seq));
                    flying.remove(&seq);
                    settled.insert(seq);
                }
                _ => {}
            }
            if let Some(settlement) = window.take_unsaved() {
                prop_assert_eq!(settlement.inferred, None);
                saved.merge(&settlement.acked);
                window.saved();
            }
            prop_assert_eq!(set(&saved), settled.clone());
            prop_assert_eq!(window.room(0), 8 - flying.len());
            prop_assert_eq!(window.is_empty(), flying.is_empty());
            prop_assert!((1..=ROWS).all(|seq| window.settled(Seq(seq)) == settled.contains(&seq)));
        }
    }
}
