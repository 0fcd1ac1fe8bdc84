//! Rules for questions whose askers wait, and for claims and tries.

use frontdesk_core::port::claims::{HANDOFF_HELD_MS, PARKED_MAX, PARKED_MAX_BYTES, PARKED_MS};
use frontdesk_core::port::exchanges::{EXCHANGE_LEFT_MS, Exchange, Mention, Reply, ReplyOutcome, StoredAnswer};
use frontdesk_core::port::store::Store;
use frontdesk_wire::{DeskNo, EventId, InstanceNo};

use super::Harness;

const LIVE: [DeskNo; 2] = [DeskNo(1), DeskNo(2)];

fn exchange(token: u64, correlation_id: &str) -> Exchange {
    Exchange {
        token,
        tenant: "t".into(),
        correlation_id: correlation_id.into(),
        desk: DeskNo(1),
        asker: Some("bob".into()),
        agent: InstanceNo(7),
        agent_id: "alice".into(),
        delivery_id: format!("dl_{token}"),
        chat_id: "agent:bob".into(),
        instances: vec![InstanceNo(70), InstanceNo(71)],
        timeout_ms: 1_000,
    }
}

fn reply(correlation_id: &str, agent: u64, content: &str, desk: u64) -> Reply {
    let answer = StoredAnswer { content: content.into(), at_ms: 5 };
    Reply {
        tenant: "t".into(),
        correlation_id: correlation_id.into(),
        agent: InstanceNo(agent),
        answer,
        desk: DeskNo(desk),
    }
}

async fn open(store: &dyn Store, exchange: Exchange) -> bool {
    store.open_exchange(exchange, LIVE.to_vec(), 100).await.unwrap()
}

async fn answer(store: &dyn Store, reply: Reply) -> ReplyOutcome {
    store.answer_exchange(reply, LIVE.to_vec(), 200).await.unwrap()
}

async fn answer_at(store: &dyn Store, reply: Reply, live: &[DeskNo]) {
    assert!(matches!(store.answer_exchange(reply, live.to_vec(), 200).await.unwrap(), ReplyOutcome::At(..)));
}

fn said(content: &str) -> StoredAnswer {
    StoredAnswer { content: content.into(), at_ms: 5 }
}

pub async fn an_exchange_is_answered_once_by_the_agent_that_was_asked(Harness { store, .. }: Harness) {
    assert!(open(&*store, exchange(1, "c")).await);
    assert!(!open(&*store, exchange(2, "c")).await, "in progress");
    assert!(open(&*store, Exchange { tenant: "u".into(), ..exchange(3, "c") }).await, "tenants do not share ids");
    assert_eq!(answer(&*store, reply("x", 7, "no", 2)).await, ReplyOutcome::NobodyWaits);
    assert_eq!(answer(&*store, reply("c", 8, "no", 2)).await, ReplyOutcome::OtherAgent);
    assert_eq!(store.take_answers(vec![1, 3]).await.unwrap(), []);
    assert_eq!(answer(&*store, reply("c", 7, "yes\0", 2)).await, ReplyOutcome::At(DeskNo(1), 1));
    assert_eq!(answer(&*store, reply("c", 7, "yes\0", 2)).await, ReplyOutcome::At(DeskNo(1), 1), "the same again");
    assert_eq!(answer(&*store, reply("c", 7, "late", 2)).await, ReplyOutcome::Answered);
    assert_eq!(answer(&*store, reply("c", 8, "yes\0", 2)).await, ReplyOutcome::Answered);
    assert_eq!(store.take_answers(vec![3, 1]).await.unwrap(), [(1, said("yes\0"))]);
    assert_eq!(store.end_exchange(1).await.unwrap(), Some(said("yes\0")));
    assert_eq!(store.end_exchange(1).await.unwrap(), None);
    assert_eq!(answer(&*store, reply("c", 7, "late", 2)).await, ReplyOutcome::NobodyWaits);
    assert_eq!(store.end_exchange(3).await.unwrap(), None, "nobody answered it");
}

pub async fn a_correlation_id_is_free_when_the_asker_has_the_answer(Harness { store, .. }: Harness) {
    open(&*store, exchange(1, "c")).await;
    answer(&*store, reply("c", 7, "one", 2)).await;
    assert!(!open(&*store, exchange(2, "c")).await, "nobody has read the answer");
    store.take_answers(vec![1]).await.unwrap();
    assert!(open(&*store, exchange(2, "c")).await);
    assert_eq!(store.end_exchange(1).await.unwrap(), None, "the next one is left alone");
    assert_eq!(answer(&*store, reply("c", 7, "two", 1)).await, ReplyOutcome::At(DeskNo(1), 2));
    assert!(open(&*store, exchange(3, "c")).await, "answered at the server where the asker waits");
}

pub async fn an_exchange_is_found_by_what_a_message_names(Harness { store, .. }: Harness) {
    open(&*store, exchange(1, "c")).await;
    open(&*store, exchange(2, "d")).await;
    let mention = |correlation_id: Option<&str>, delivery_id: Option<&str>| Mention {
        tenant: "t".into(),
        instance: InstanceNo(71),
        chat_id: "agent:bob".into(),
        correlation_id: correlation_id.map(str::to_owned),
        delivery_id: delivery_id.map(str::to_owned),
    };
    let meant = async |mention: Mention| store.meant_exchange(mention).await.unwrap().map(|(id, _)| id);
    assert_eq!(meant(mention(None, None)).await, None, "no reference to a question");
    assert_eq!(meant(mention(None, Some("dl_1"))).await.as_deref(), Some("c"));
    assert_eq!(meant(mention(None, Some("dl_0"))).await, None, "a reply to another message");
    assert_eq!(meant(mention(Some("d"), Some("dl_1"))).await.as_deref(), Some("d"), "the name is preferred");
    assert_eq!(meant(mention(Some("x"), Some("dl_1"))).await.as_deref(), Some("c"));
    store.name_question(1, "dl_first".into()).await.unwrap();
    assert_eq!(meant(mention(None, Some("dl_1"))).await, None);
    assert_eq!(meant(mention(None, Some("dl_first"))).await.as_deref(), Some("c"));
    for other in [
        Mention { tenant: "u".into(), ..mention(Some("c"), None) },
        Mention { instance: InstanceNo(72), ..mention(Some("c"), None) },
        Mention { chat_id: "agent:eve".into(), ..mention(Some("c"), None) },
    ] {
        assert_eq!(meant(other).await, None);
    }
    answer(&*store, reply("c", 7, "yes", 2)).await;
    assert_eq!(meant(mention(Some("c"), None)).await, None, "it was answered");
}

pub async fn nobody_waits_at_a_server_that_is_gone(Harness { store, .. }: Harness) {
    for (token, name) in [(1, "answered"), (2, "open"), (3, "late")] {
        let desk = DeskNo(if token == 3 { 2 } else { 1 });
        open(&*store, Exchange { desk, ..exchange(token, name) }).await;
    }
    answer(&*store, reply("answered", 7, "yes", 2)).await;
    answer(&*store, reply("late", 7, "yes", 1)).await;
    assert_eq!(store.left_exchanges(LIVE.to_vec(), 200).await.unwrap(), []);
    let live = vec![DeskNo(2)];
    let received = store.answer_exchange(reply("open", 7, "yes", 2), live.clone(), 200).await.unwrap();
    assert_eq!(received, ReplyOutcome::NobodyWaits);
    let left = store.left_exchanges(live.clone(), 200).await.unwrap();
    assert_eq!(left, [(exchange(1, "answered"), said("yes"))], "its asker may not have it");
    assert_eq!(store.left_exchanges(live.clone(), 200).await.unwrap().len(), 1, "kept until it is ended");
    store.end_exchange(1).await.unwrap();
    assert_eq!(store.left_exchanges(live.clone(), 200).await.unwrap(), []);
    assert!(
        store.open_exchange(Exchange { desk: DeskNo(3), ..exchange(5, "kept") }, vec![DeskNo(3)], 100).await.unwrap()
    );
    answer_at(&*store, reply("kept", 7, "yes", 2), &[DeskNo(2), DeskNo(3)]).await;
    let other = Exchange { agent: InstanceNo(8), ..exchange(6, "kept") };
    assert!(!store.open_exchange(other, live.clone(), 200).await.unwrap(), "an answer waits there");
    let again = Exchange { desk: DeskNo(2), ..exchange(7, "kept") };
    assert!(store.open_exchange(again, live.clone(), 200).await.unwrap());
    assert_eq!(store.take_answers(vec![5, 7]).await.unwrap(), [(7, said("yes"))], "asked again, it is the answer");
    store.end_exchange(7).await.unwrap();
    let late_ms = 100 + 1_000 + EXCHANGE_LEFT_MS;
    let left = store.left_exchanges(live.clone(), late_ms).await.unwrap();
    assert_eq!(left.len(), 1, "its server did not end it in time");
    assert!(store.open_exchange(exchange(4, "late"), live.clone(), late_ms).await.unwrap());
    // A server that lost its lease continues under another number.
    open(&*store, exchange(8, "moved")).await;
    store.adopt_exchanges(DeskNo(2), vec![8, 99]).await.unwrap();
    let received = store.answer_exchange(reply("moved", 7, "yes", 2), live, 200).await.unwrap();
    assert_eq!(received, ReplyOutcome::At(DeskNo(2), 8));
}

pub async fn an_answer_that_its_asker_did_not_get_is_kept(Harness { store, .. }: Harness) {
    open(&*store, exchange(1, "c")).await;
    assert_eq!(answer(&*store, reply("c", 7, "yes", 1)).await, ReplyOutcome::At(DeskNo(1), 1));
    assert_eq!(store.left_exchanges(LIVE.to_vec(), 200).await.unwrap(), [], "its asker has it");
    store.leave_answer(1, 200).await.unwrap();
    assert_eq!(store.left_exchanges(LIVE.to_vec(), 200).await.unwrap(), [(exchange(1, "c"), said("yes"))]);
    let again = store.open_exchange(exchange(2, "c"), LIVE.to_vec(), 200).await.unwrap();
    assert!(again, "nobody waits");
    assert_eq!(store.take_answers(vec![1, 2]).await.unwrap(), [(2, said("yes"))], "asked again, it is the answer");
    store.leave_answer(1, 200).await.unwrap();
    assert_eq!(store.left_exchanges(LIVE.to_vec(), 200).await.unwrap(), [], "the token of an ended exchange");
}

pub async fn one_server_at_a_time_has_a_claim(Harness { store, .. }: Harness) {
    let claim = async |me: u64, live: &[DeskNo], now_ms: u64| {
        store.claim([1; 16], DeskNo(me), live.to_vec(), 1_000, now_ms).await.unwrap()
    };
    assert!(claim(1, &LIVE, 0).await);
    assert!(!claim(2, &LIVE, 999).await && claim(1, &LIVE, 999).await, "again by the same server");
    assert!(!claim(2, &LIVE, 1_000).await && claim(2, &LIVE, 1_999).await, "its time is over");
    store.release(vec![[2; 16], [1; 16]], DeskNo(1)).await.unwrap();
    assert!(!claim(1, &LIVE, 2_001).await, "another one's claim is not released");
    assert!(claim(1, &[DeskNo(1)], 2_001).await, "a server that is gone has none");
    store.release(vec![[2; 16], [1; 16]], DeskNo(1)).await.unwrap();
    assert!(claim(2, &LIVE, 2_002).await);
    assert!(store.claim([2; 16], DeskNo(1), LIVE.to_vec(), 1_000, 0).await.unwrap());
}

pub async fn tries_are_counted_in_a_window(Harness { store, .. }: Harness) {
    for tried in 0..3 {
        assert_eq!(store.tries([1; 16], 50).await.unwrap(), tried);
        store.note_try([1; 16], 1_000, u64::from(tried)).await.unwrap();
    }
    assert_eq!(store.tries([2; 16], 50).await.unwrap(), 0);
    assert_eq!((store.tries([1; 16], 999).await.unwrap(), store.tries([1; 16], 1_000).await.unwrap()), (3, 0));
    store.note_try([1; 16], 1_000, 1_000).await.unwrap();
    assert_eq!(store.tries([1; 16], 1_999).await.unwrap(), 1, "a new window starts at one");
}

pub async fn results_are_kept_for_the_next_socket(Harness { store, .. }: Harness) {
    let (one, other) = (InstanceNo(1), InstanceNo(2));
    for (instance, line) in [(one, "a"), (other, "b"), (one, "c\0")] {
        assert!(store.park(instance, line.into(), 100).await.unwrap());
    }
    assert_eq!(store.take_parked(vec![InstanceNo(3)], 200).await.unwrap(), []);
    assert_eq!(store.take_parked(vec![one], 200).await.unwrap(), [(one, "a".into()), (one, "c\0".into())]);
    assert_eq!(store.take_parked(vec![one], 200).await.unwrap(), [], "given once");
    assert_eq!(store.take_parked(vec![one, other], 100 + PARKED_MS).await.unwrap(), [], "nobody waits so long");
    for _ in 0..PARKED_MAX {
        assert!(store.park(one, String::new(), 1).await.unwrap());
    }
    assert!(!store.park(one, String::new(), 1).await.unwrap(), "too many");
    assert!(!store.park(other, "x".repeat(PARKED_MAX_BYTES + 1), 1).await.unwrap(), "too large");
    assert!(store.park(one, "late".into(), 1 + PARKED_MS).await.unwrap(), "the others are over");
    assert_eq!(store.take_parked(vec![one], 1 + PARKED_MS).await.unwrap(), [(one, "late".into())]);
}

pub async fn an_handoff_is_kept_until_it_is_done(Harness { store, .. }: Harness) {
    for (server, event) in [("a", 7), ("b", 7), ("a", 5), ("a", 7)] {
        assert!(store.add_handoff(server.into(), EventId(event), 100).await.unwrap());
    }
    assert_eq!(store.handoffs("a".into(), 10, 101).await.unwrap(), [], "not released");
    store.release_handoffs(EventId(5)).await.unwrap();
    assert_eq!(store.handoffs("a".into(), 10, 101).await.unwrap().len(), 1);
    let late_ms = 100 + HANDOFF_HELD_MS;
    let handoffs = store.handoffs("a".into(), 10, late_ms).await.unwrap();
    let events: Vec<u64> = handoffs.iter().map(|handoff| handoff.event.0).collect();
    assert_eq!(events, [7, 5], "once each, in order");
    assert_eq!(store.handoffs("a".into(), 1, late_ms).await.unwrap(), handoffs[..1]);
    store.drop_handoff(handoffs[0].id).await.unwrap();
    assert_eq!(store.handoffs("a".into(), 10, late_ms).await.unwrap(), handoffs[1..]);
    assert_eq!(store.handoffs("b".into(), 10, late_ms).await.unwrap().len(), 1, "that of another server");
}
