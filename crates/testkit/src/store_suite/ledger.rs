//! Rules for the ledger: accepting, notifying, settling, and pending rows.

use frontdesk_core::port::store::{
    Acceptance, Accepted, Delivery, EventRecord, KEYS_PER_TURN, OWED_SCANNED_MAX, Position, Waiting,
};
use frontdesk_wire::{BotId, ChatId, EventId, InboxSeq, InstanceNo, MessageId, Seq, TenantId};
use tokio::task::JoinSet;

use super::{
    Harness, NotifiedRows, accept, accept_many, acceptance, capability, delivery, numbers, owed, sent, settled,
};

pub async fn rows_and_events_rise_by_one(Harness { store, .. }: Harness) {
    let first = store.accept(vec![acceptance(1, &[7]), acceptance(2, &[7, 8])]).await.unwrap();
    let second = store.accept(vec![acceptance(3, &[8, 7])]).await.unwrap();
    let rows: Vec<_> = first.iter().chain(&second).map(|done| numbers(&done.rows)).collect();
    assert_eq!(rows, [vec![(7, 1)], vec![(7, 2), (8, 1)], vec![(8, 2), (7, 3)]]);
    let events: Vec<EventId> = first.iter().chain(&second).map(|done| done.event).collect();
    assert!(events.is_sorted_by(|a, b| a < b), "{events:?}");
    assert!(first.iter().chain(&second).all(|done| done.fresh));
}

pub async fn every_receiver_gets_a_row(Harness { store, .. }: Harness) {
    let receivers: Vec<u64> = (1..=50).collect();
    let done = accept(&*store, acceptance(1, &receivers)).await;
    assert_eq!(numbers(&done.rows), receivers.iter().map(|no| (*no, 1)).collect::<Vec<_>>());
    for instance in receivers {
        let pending = store.pending(InstanceNo(instance), Seq(0), 9).await.unwrap();
        assert_eq!(pending.len(), 1);
        assert_eq!(*pending[0].1, Delivery { event: done.event, ..delivery(1) });
    }
    assert_eq!(owed(&*store, 51).await, [0; 0]);
}

pub async fn an_event_nobody_receives_is_kept_with_its_verdict(Harness { store, .. }: Harness) {
    let done = accept(&*store, acceptance(1, &[])).await;
    assert_eq!((done.fresh, done.rows), (true, vec![]));
    let kept = store.event(done.event).await.unwrap();
    assert_eq!(kept, Some(record(done.event.0, 1)));
    assert_eq!(store.event(done.event.next()).await.unwrap(), None);
    assert_eq!(store.waiting().await.unwrap(), []);
}

fn record(event: u64, number: u64) -> EventRecord {
    EventRecord {
        event: EventId(event),
        tenant: "acme".into(),
        at_ms: 1_000 + number,
        chat_id: "c".into(),
        message_id: format!("m-{number}").into(),
        verdict: format!(r#"{{"n":{number}}}"#),
    }
}

pub async fn a_receiver_may_get_its_own_json(harness: Harness) {
    let notified = NotifiedRows::on(&*harness.store);
    let own = Acceptance { own_json: vec![(InstanceNo(8), "{\"own\":1}".into())], ..acceptance(1, &[7, 8]) };
    accept(&*harness.store, own).await;
    let added: Vec<_> =
        notified.deliveries().into_iter().map(|new| (new.row.instance.0, new.delivery.json.clone())).collect();
    let expected = [(7, delivery(1).json), (8, "{\"own\":1}".to_owned())];
    assert_eq!(added, expected);
    let replayed = harness.store.replay_mail(InstanceNo(8), Seq(1)).await.unwrap().unwrap();
    let harness = harness.reopened();
    let json =
        async |instance, seq| harness.store.mail_row(instance, seq).await.unwrap().unwrap().delivery.json.clone();
    for (instance, form) in expected {
        assert_eq!(json(InstanceNo(instance), Seq(1)).await, form, "{instance}");
    }
    assert_eq!(json(InstanceNo(8), replayed).await, "{\"own\":1}", "a replay repeats its own form");
}

pub async fn an_event_is_found_by_its_message_id(Harness { store, .. }: Harness) {
    let keyed = |number: u64, key: &[u8], id: &str, chat: &str, tenant: &str| {
        let mut one = acceptance(number, &[7]);
        one.dedup = key.to_vec();
        one.tenant = tenant.into();
        one.delivery.message_id = id.into();
        one.delivery.chat_id = chat.into();
        one
    };
    let batch = vec![
        keyed(1, b"m1\x80\x01", "m1", "a", "acme"),
        keyed(2, b"m1\x80\x02", "m1", "b", "acme"),
        keyed(3, b"m1\xff\x03", "m1", "a", "other"),
        keyed(4, b"m12\x80\x04", "m12", "a", "acme"),
    ];
    let events: Vec<EventId> = store.accept(batch).await.unwrap().iter().map(|done| done.event).collect();
    let named = async |tenant: &str, id: &str, chat: Option<&str>| {
        let chat = chat.map(ChatId::from);
        let found = store.event_named(&tenant.into(), id.as_bytes().to_vec(), &id.into(), chat.as_ref()).await.unwrap();
        found.map(|it| it.event)
    };
    assert_eq!(named("acme", "m1", None).await, Some(events[1]), "the newest");
    assert_eq!(named("acme", "m1", Some("a")).await, Some(events[0]));
    assert_eq!(named("other", "m1", None).await, Some(events[2]));
    assert_eq!(named("acme", "m12", None).await, Some(events[3]));
    assert_eq!(named("acme", "m", None).await, None);
    assert_eq!(named("acme", "m1", Some("z")).await, None);
    assert_eq!(named("nobody", "m1", None).await, None);
    let marked =
        store.events_marked(&"t".into(), vec![b"m12\x80\x04".to_vec(), b"m1".to_vec(), b"m1\x80\x01".to_vec()]).await;
    let marked: Vec<Option<EventId>> = marked.unwrap().into_iter().map(|it| it.map(|it| it.event)).collect();
    assert_eq!(marked, [Some(events[3]), None, Some(events[0])], "the whole key must match");
    store.replay_mail(InstanceNo(7), Seq(1)).await.unwrap();
    assert_eq!(named("acme", "m1", Some("a")).await, Some(events[0]), "a replay is not another message");
}

/// Keys are not kept by tenant, so there may be many that begin with a short id.
pub async fn a_message_is_found_among_many_keys_that_begin_alike(Harness { store, .. }: Harness) {
    let keyed = |number: usize, tenant: &str, id: &str| {
        let mut one = acceptance(number as u64, &[]);
        one.dedup = format!("m{number:05}").into_bytes();
        (one.tenant, one.delivery.message_id) = (tenant.into(), id.into());
        one
    };
    let last = 2 * KEYS_PER_TURN;
    let named = async |tenant: &str| {
        let found = store.event_named(&tenant.into(), b"m".to_vec(), &"m".into(), None).await.unwrap();
        found.map(|it| it.event)
    };
    // The newest one has the first key, and another one the last.
    let mut batch: Vec<_> = (1..last).map(|number| keyed(number, "other", "x")).collect();
    batch.push(keyed(last, "acme", "m"));
    for some in batch.chunks(512) {
        store.accept(some.to_vec()).await.unwrap();
    }
    assert!(named("acme").await.is_some() && named("other").await.is_none());
    let newest = store.accept(vec![keyed(0, "acme", "m")]).await.unwrap()[0].event;
    assert_eq!(named("acme").await, Some(newest));
}

pub async fn a_duplicate_gives_the_same_event_and_no_rows(Harness { store, .. }: Harness) {
    let batch = vec![acceptance(1, &[7]), acceptance(1, &[7]), acceptance(2, &[7])];
    let done = store.accept(batch).await.unwrap();
    assert_eq!(
        done[1],
        Accepted { event: done[0].event, fresh: false, rows: vec![], place: InboxSeq(0), line: None },
        "within one batch"
    );
    assert_eq!(numbers(&done[2].rows), [(7, 2)], "the next one is not affected");
    let again = accept(&*store, acceptance(1, &[8, 9])).await;
    assert_eq!(again, done[1], "in a later batch, for other receivers");
    assert_eq!((owed(&*store, 7).await, owed(&*store, 8).await), (vec![1, 2], vec![]));
}

pub async fn a_duplicate_changes_nothing_else(Harness { store, .. }: Harness) {
    let notified = NotifiedRows::on(&*store);
    let first = accept(&*store, acceptance(1, &[7])).await;
    let mut again = acceptance(1, &[7]);
    again.verdict = "another".into();
    again.reaches = true;
    again.capabilities = vec![capability("cap", &["k"], 9_999)];
    again.delivery.json = "another".into();
    accept(&*store, again).await;
    assert_eq!(notified.rows(), [(7, 1)]);
    assert!(!store.reached(&"acme".into(), "chat", &"desk".into(), &"c".into()).await.unwrap());
    assert_eq!(store.capability(&"acme".into(), &"k".into(), "interaction", 0).await.unwrap(), None);
    assert_eq!(store.event(first.event).await.unwrap().unwrap().verdict, r#"{"n":1}"#);
    assert_eq!(store.pending(InstanceNo(7), Seq(0), 9).await.unwrap()[0].1.json, delivery(1).json);
}

pub async fn a_duplicate_is_known_after_reopening(harness: Harness) {
    let first = accept(&*harness.store, acceptance(1, &[7])).await;
    harness.store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    let harness = harness.reopened();
    let again = accept(&*harness.store, acceptance(1, &[7])).await;
    assert_eq!(again, Accepted { event: first.event, fresh: false, rows: vec![], place: InboxSeq(0), line: None });
    assert_eq!(numbers(&accept(&*harness.store, acceptance(2, &[7])).await.rows), [(7, 2)], "numbers continue");
}

pub async fn a_delivery_is_given_back_whole(harness: Harness) {
    let whole = Delivery {
        event: EventId(0),
        at_ms: 1_700_000_000_123,
        passthrough: true,
        json: "{\"text\":\"a\\u0000b \u{1f642} é\"}".into(),
        platform: "discord".into(),
        bot: "bot:1".into(),
        chat_id: "c/é".into(),
        session_key: "agent:main:discord:channel:c/é".into(),
        message_id: MessageId::default(),
    };
    let done = accept(&*harness.store, Acceptance { delivery: whole.clone(), ..acceptance(1, &[7]) }).await;
    let harness = harness.reopened();
    let pending = harness.store.pending(InstanceNo(7), Seq(0), 1).await.unwrap();
    assert_eq!(*pending[0].1, Delivery { event: done.event, ..whole });
}

pub async fn listeners_get_the_same_rows_in_order(Harness { store, .. }: Harness) {
    let notified = NotifiedRows::on(&*store);
    let done = store.accept(vec![acceptance(1, &[7, 8]), acceptance(2, &[]), acceptance(3, &[7])]).await.unwrap();
    let rows: Vec<_> = done.iter().flat_map(|one| &one.rows).map(|row| (row.instance.0, row.seq.0)).collect();
    assert_eq!(notified.rows(), rows, "all rows, before the result");
    for added in notified.deliveries() {
        let row = store.mail_row(added.row.instance, added.row.seq).await.unwrap().unwrap();
        assert_eq!(*added.delivery, *row.delivery, "the notification has the stored row");
    }
    accept(&*store, acceptance(4, &[])).await;
    assert_eq!(notified.rows(), rows, "no row, no notification");
}

pub async fn hints_keep_the_order_of_commits(Harness { store, .. }: Harness) {
    let notified = NotifiedRows::on(&*store);
    let mut senders = JoinSet::new();
    for number in 0..200 {
        let store = store.clone();
        senders.spawn(async move { accept(&*store, acceptance(number, &[7, 8])).await.rows });
    }
    let answered = senders.join_all().await.concat();
    let mut answered: Vec<_> = answered.iter().map(|row| (row.instance.0, row.seq.0)).collect();
    for instance in [7, 8] {
        let added: Vec<u64> = notified.rows().into_iter().filter(|row| row.0 == instance).map(|row| row.1).collect();
        assert_eq!(added, (1..=200).collect::<Vec<_>>());
        assert_eq!(owed(&*store, instance).await, added);
    }
    answered.sort_unstable();
    let mut added = notified.rows();
    added.sort_unstable();
    assert_eq!(answered, added);
    let events: Vec<EventId> = notified.deliveries().iter().map(|new| new.delivery.event).collect();
    assert!(events.is_sorted(), "notifications are in the order of events");
}

pub async fn a_chat_is_reached_where_the_acceptance_says_so(harness: Harness) {
    accept(&*harness.store, acceptance(1, &[7])).await;
    assert!(!harness.store.reached(&"acme".into(), "chat", &"desk".into(), &"c".into()).await.unwrap());
    accept(&*harness.store, Acceptance { reaches: true, ..acceptance(2, &[]) }).await;
    accept(&*harness.store, Acceptance { reaches: true, ..acceptance(3, &[7]) }).await;
    let harness = harness.reopened();
    assert!(harness.store.reached(&"acme".into(), "chat", &"desk".into(), &"c".into()).await.unwrap());
    for [tenant, platform, bot, chat] in [
        ["other", "chat", "desk", "c"],
        ["acme", "discord", "desk", "c"],
        ["acme", "chat", "bot", "c"],
        ["acme", "chat", "desk", "C"],
        ["acme", "chat", "desk", ""],
    ] {
        assert!(
            !harness
                .store
                .reached(&TenantId::from(tenant), platform, &BotId::from(bot), &ChatId::from(chat))
                .await
                .unwrap(),
            "{tenant} {platform} {bot} {chat}"
        );
    }
}

pub async fn pending_begins_after_and_ends_at_the_limit(Harness { store, .. }: Harness) {
    accept_many(&*store, 10, 7).await;
    let seqs = async |after, limit| {
        let rows = store.pending(InstanceNo(7), Seq(after), limit).await.unwrap();
        rows.into_iter().map(|(seq, delivery)| (seq.0, delivery.message_id.clone())).unzip::<_, _, Vec<_>, Vec<_>>()
    };
    assert_eq!(seqs(0, 3).await, (vec![1, 2, 3], vec!["m-1".into(), "m-2".into(), "m-3".into()]));
    assert_eq!(seqs(8, 100).await.0, [9, 10]);
    assert_eq!(seqs(10, 100).await.0, [0; 0]);
    assert_eq!(seqs(u64::MAX, 100).await.0, [0; 0], "any number can be asked for");
    assert_eq!(seqs(0, 0).await.0, [0; 0]);
}

pub async fn pending_skips_settled_and_dead_rows(Harness { store, .. }: Harness) {
    accept_many(&*store, 8, 7).await;
    store.settle(InstanceNo(7), settled(&[1, 2, 5]).into()).await.unwrap();
    assert!(store.drop_mail(InstanceNo(7), Seq(4), None, "no".into()).await.unwrap());
    assert_eq!(owed(&*store, 7).await, [3, 6, 7, 8]);
    let limited: Vec<u64> =
        store.pending(InstanceNo(7), Seq(0), 2).await.unwrap().into_iter().map(|(seq, _)| seq.0).collect();
    assert_eq!(limited, [3, 6], "skipped rows do not count");
}

pub async fn acks_in_any_order_move_the_watermark(Harness { store, .. }: Harness) {
    accept_many(&*store, 5, 7).await;
    let position = async || store.position(InstanceNo(7)).await.unwrap();
    assert_eq!(position().await, Position::default());
    store.settle(InstanceNo(7), Position { sent: Seq(5), ..settled(&[3, 5]) }.into()).await.unwrap();
    assert_eq!(position().await, Position { through: Seq(0), above: vec![Seq(3), Seq(5)], sent: Seq(5) });
    store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    assert_eq!(position().await, Position { through: Seq(1), above: vec![Seq(3), Seq(5)], sent: Seq(5) });
    store.settle(InstanceNo(7), settled(&[2]).into()).await.unwrap();
    assert_eq!(position().await, Position { through: Seq(3), above: vec![Seq(5)], sent: Seq(5) });
    store.settle(InstanceNo(7), Position { through: Seq(4), ..Position::default() }.into()).await.unwrap();
    assert_eq!(position().await, Position { through: Seq(5), above: vec![], sent: Seq(5) });
    assert_eq!(store.position(InstanceNo(8)).await.unwrap(), Position::default(), "instances have separate positions");
}

pub async fn a_lower_position_changes_nothing(Harness { store, .. }: Harness) {
    accept_many(&*store, 6, 7).await;
    store.settle(InstanceNo(7), Position { through: Seq(3), above: vec![Seq(5)], sent: Seq(6) }.into()).await.unwrap();
    let there = store.position(InstanceNo(7)).await.unwrap();
    for lower in
        [Position::default(), Position { through: Seq(1), above: vec![Seq(3)], sent: Seq(2) }, settled(&[5, 5, 2])]
    {
        store.settle(InstanceNo(7), lower.into()).await.unwrap();
        assert_eq!(store.position(InstanceNo(7)).await.unwrap(), there);
    }
    assert_eq!(owed(&*store, 7).await, [4, 6]);
}

pub async fn a_settled_row_is_never_pending_again(harness: Harness) {
    accept_many(&*harness.store, 4, 7).await;
    harness.store.settle(InstanceNo(7), settled(&[2, 4]).into()).await.unwrap();
    accept(&*harness.store, acceptance(9, &[7])).await;
    assert_eq!(owed(&*harness.store, 7).await, [1, 3, 5]);
    harness.store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(owed(&*harness.store, 7).await, [3, 5]);
    harness.store.settle(InstanceNo(7), settled(&[3]).into()).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(owed(&*harness.store, 7).await, [5]);
}

pub async fn positions_survive(harness: Harness) {
    accept_many(&*harness.store, 9, 7).await;
    let position = Position { through: Seq(2), above: vec![Seq(5), Seq(8)], sent: Seq(9) };
    harness.store.settle(InstanceNo(7), position.clone().into()).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(harness.store.position(InstanceNo(7)).await.unwrap(), position);
    assert_eq!(numbers(&accept(&*harness.store, acceptance(10, &[7])).await.rows), [(7, 10)]);
}

pub async fn waiting_counts_and_names_the_oldest(harness: Harness) {
    let store = &harness.store;
    assert_eq!(store.waiting().await.unwrap(), []);
    accept_many(&**store, 4, 7).await;
    accept(&**store, acceptance(5, &[8, 9])).await;
    let waiting = async || {
        let mut waiting = store.waiting().await.unwrap();
        waiting.sort_by_key(|one| one.instance);
        waiting
    };
    let one = |instance, count, oldest_ms, oldest_seq| Waiting { instance, count, oldest_ms, oldest_seq };
    assert_eq!(
        waiting().await,
        [
            one(InstanceNo(7), 4, 1_001, Seq(1)),
            one(InstanceNo(8), 1, 1_005, Seq(1)),
            one(InstanceNo(9), 1, 1_005, Seq(1))
        ]
    );
    store.settle(InstanceNo(7), Position { sent: Seq(4), ..settled(&[3]) }.into()).await.unwrap();
    store.settle(InstanceNo(8), settled(&[1]).into()).await.unwrap();
    assert_eq!(
        waiting().await,
        [one(InstanceNo(7), 3, 1_001, Seq(1)), one(InstanceNo(9), 1, 1_005, Seq(1))],
        "sent rows are not settled"
    );
    store.drop_mail(InstanceNo(7), Seq(1), None, "no".into()).await.unwrap();
    assert_eq!(waiting().await, [one(InstanceNo(7), 2, 1_002, Seq(2)), one(InstanceNo(9), 1, 1_005, Seq(1))]);
    store.settle(InstanceNo(7), settled(&[2, 4]).into()).await.unwrap();
    store.drop_mail(InstanceNo(9), Seq(1), None, "no".into()).await.unwrap();
    assert_eq!(waiting().await, []);
    accept(&**store, acceptance(6, &[9])).await;
    assert_eq!(harness.reopened().store.waiting().await.unwrap(), [one(InstanceNo(9), 1, 1_006, Seq(2))]);
}

pub async fn the_epoch_is_the_stores_own(harness: Harness) {
    let epoch = harness.store.epoch();
    accept(&*harness.store, acceptance(1, &[7])).await;
    harness.store.settle(InstanceNo(7), sent(1).into()).await.unwrap();
    assert_eq!(harness.reopened().store.epoch(), epoch);
}

pub async fn pending_rows_are_found_by_message_id(Harness { store, .. }: Harness) {
    accept_many(&*store, 3, 7).await;
    store.settle(InstanceNo(7), settled(&[1, 3]).into()).await.unwrap();
    for (message, owes) in [("m-1", false), ("m-2", true), ("m-3", false), ("m-9", false)] {
        assert_eq!(store.owes(InstanceNo(7), &MessageId::from(message)).await.unwrap(), owes, "{message}");
    }
    assert!(!store.owes(InstanceNo(8), &"m-2".into()).await.unwrap(), "to another");
}

pub async fn a_search_for_pending_rows_is_bounded(Harness { store, .. }: Harness) {
    let most = OWED_SCANNED_MAX as u64;
    let wait = async |from: u64, to: u64| {
        for batch in (from..=to).map(|number| acceptance(number, &[7])).collect::<Vec<_>>().chunks(500) {
            store.accept(batch.to_vec()).await.unwrap();
        }
    };
    let owes = async |message: &str| store.owes(InstanceNo(7), &message.into()).await.unwrap();
    wait(1, most + 1).await;
    assert_eq!((owes("m-1").await, owes("m-2").await), (false, true), "beyond the bound, and the last within it");
    store.settle(InstanceNo(7), settled(&[most]).into()).await.unwrap();
    assert!(owes("m-1").await, "settled rows do not count");
}
