//! A store with a row in every table, made through its ports.

use frontdesk_core::port::alarms::Conclusion;
use frontdesk_core::port::inbox::{InboxMessage, PlannedWake};
use frontdesk_core::port::media::{EventFile, MediaItem, SealedMedia, body_of};
use frontdesk_core::port::store::{
    Acceptance, Change, ChatGroups, ChatWrite, Closing, Fragment, JournalEntry, Outcome, Position, Store,
};
use frontdesk_testkit::store_suite::{accept, acceptance, alarms, capability, data, media, settled, skills};
use frontdesk_wire::{DeskNo, InstanceNo, Seq};
use serde_json::json;

/// `odd` is put into every text of others.
pub(crate) async fn fill(store: &dyn Store, odd: &str) {
    directory(store, odd).await;
    mail(store, odd).await;
    inbox(store, odd).await;
    actions(store, odd).await;
    chat_and_media(store, odd).await;
    alarms_of(store, odd).await;
    skills_and_data(store, odd).await;
    servers(store, odd).await;
}

async fn directory(store: &dyn Store, odd: &str) {
    let put = |kind: &str, key: &str, json: serde_json::Value| Change {
        kind: kind.into(),
        key: key.into(),
        json: Some(json.to_string()),
    };
    let first = vec![
        put("tenant", "acme", json!({"name": odd})),
        put("instance", "acme/ann", json!({"no": 7, "name": "ann", "tenant": "acme"})),
        put("agent", &format!("key {odd}"), json!({"no": 9, "text": odd})),
        put("tenant", "gone", json!({})),
    ];
    store.amend(0, first, Box::new(|_| {})).await.unwrap();
    let second = vec![Change { kind: "tenant".into(), key: "gone".into(), json: None }];
    store.amend(1, second, Box::new(|_| {})).await.unwrap();
    store.draw_numbers(20).await.unwrap();
}

async fn mail(store: &dyn Store, odd: &str) {
    for number in 1..=12 {
        let own_json = vec![(InstanceNo(8), format!("{{\"own\":{}}}", json!(odd)))];
        let mut one = Acceptance { own_json, reaches: true, attempt: number, ..acceptance(number, &[7, 8]) };
        one.capabilities = vec![capability(&format!("cap-{number}"), &["k", &format!("k-{number} {odd}")], 9_000)];
        one.delivery.json = json!({"text": odd, "number": number}).to_string();
        one.delivery.message_id = format!("m-{number} {odd}").into();
        one.delivery.chat_id = format!("c-{number} {odd}").as_str().into();
        one.delivery.passthrough = number % 2 == 0;
        one.dedup = [&number.to_be_bytes()[..], odd.as_bytes()].concat();
        accept(store, one).await;
    }
    accept(store, acceptance(100, &[])).await; // it has no receiver
    store.settle(InstanceNo(7), Position { sent: Seq(6), ..settled(&[1, 2, 4]) }.into()).await.unwrap();
    assert!(store.drop_mail(InstanceNo(8), Seq(5), None, format!("by hand {odd}")).await.unwrap());
    store.replay_mail(InstanceNo(8), Seq(5)).await.unwrap().unwrap();
    store.mark_idle(InstanceNo(7), None, true).await.unwrap();
    store.claim_notice(InstanceNo(8), Seq(3)).await.unwrap();
    let session = store.attach(InstanceNo(8), DeskNo(1), "gw".into(), 5_000).await.unwrap().session;
    store.detach(InstanceNo(8), session, true, 6_000).await.unwrap();
}

async fn inbox(store: &dyn Store, odd: &str) {
    for number in 200..206 {
        let message = InboxMessage {
            agent: InstanceNo(9 + number % 2),
            delivery_id: format!("d-{number}"),
            kind: "augment".into(),
            text: format!("{number} {odd}"),
            meta: (number % 3 == 0).then(|| json!({"odd": odd}).to_string()),
            session_id: (number % 2 == 0).then(|| odd.to_owned()),
            receipts: json!([odd]).to_string(),
        };
        accept(store, Acceptance { message: Some(message), ..acceptance(number, &[7]) }).await;
    }
    let wake = PlannedWake { key: format!("wake {odd}"), agent: InstanceNo(9), json: json!([odd]).to_string() };
    store.plan_wake(wake).await.unwrap();
}

async fn actions(store: &dyn Store, odd: &str) {
    for number in 1..=3 {
        let entry = JournalEntry {
            id: 0,
            tenant: "acme".into(),
            instance: "ann".into(),
            platform: "chat".into(),
            bot: "desk".into(),
            chat_id: odd.into(),
            op: "send".into(),
            at_ms: 100 + number,
            outcome: Outcome::Open,
            parts: 2,
            cursor: 0,
            note: String::new(),
            desk: DeskNo(1),
        };
        let id = store.open_entry(entry, None).await.unwrap();
        if number != 2 {
            let note = format!("note {odd}");
            assert!(store.close_entry(id, Closing::new(Outcome::Delivered, 1, note)).await.unwrap());
        }
        store.add_receipt(id, format!("receipt {number} {odd}")).await.unwrap();
    }
}

async fn chat_and_media(store: &dyn Store, odd: &str) {
    store
        .chat_append(&"acme".into(), &"room".into(), &format!("line {odd}").into(), json!({"text": odd}).to_string(), 7)
        .await
        .unwrap();
    store.chat_put(&"acme".into(), &"facts".into(), "", json!({"title": odd}).to_string()).await.unwrap();
    let write = ChatWrite {
        chat_id: "room".into(),
        message_id: "with an event".into(),
        json: "{}".into(),
        at_ms: 8,
        amend: None,
    };
    accept(store, Acceptance { chat: Some(Box::new(write)), ..acceptance(300, &[7]) }).await;
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(600_000).collect();
    for (id, bytes) in [("big", large), ("empty", Vec::new()), ("small", vec![0, 255])] {
        let filename = (id != "empty").then(|| format!("name {odd}"));
        let item = MediaItem { filename, expires_ms: 1 << 50, ..media::item(id, 0) };
        store.media_put(item, body_of(bytes), 0).await.unwrap();
    }
    let remote = SealedMedia {
        id: "far".into(),
        mime: "image/png".into(),
        filename: Some(odd.into()),
        size: None,
        sealed: vec![1, 0, 2],
        expires_ms: 1 << 50,
    };
    let files = vec![EventFile::Remote(remote)];
    accept(store, Acceptance { files, ..acceptance(301, &[7, 8]) }).await;
}

async fn alarms_of(store: &dyn Store, odd: &str) {
    for number in 1..=4 {
        let mut alarm = alarms::alarm(number, 1_000 * number);
        alarm.note = odd.into();
        alarm.job_id = format!("j-{number} {odd}").into();
        store.arm(vec![alarm]).await.unwrap();
    }
    store.disarm(InstanceNo(7), &format!("j-1 {odd}").into(), 50).await.unwrap();
    let next = store.next_alarms((0, 0), 2_500, 1).await.unwrap().remove(0);
    let claimed = store.claim_alarms(vec![next.id], 2_500, 2_500, 9_000).await.unwrap().remove(0);
    let ends = vec![(claimed, Conclusion::Fired { note: odd.into() })];
    store.conclude(ends, 2_600).await.unwrap();
    let next = store.next_alarms((0, 0), 3_500, 1).await.unwrap().remove(0);
    assert_eq!(store.claim_alarms(vec![next.id], 3_500, 3_500, 9_000).await.unwrap().len(), 1);
}

async fn skills_and_data(store: &dyn Store, odd: &str) {
    for (name, source) in [("one", "first body"), ("two", odd)] {
        let mut write = skills::write(name, source);
        write.meta.description = Some(odd.into());
        store.skill_put(write).await.unwrap();
    }
    for number in 1..=4 {
        let mut row = data::row(&format!("d-{number} {odd}"), &format!("words of row {number} {odd}"));
        row.detail = row.detail.filter(|_| number != 2);
        row.domain_tags = Some(vec!["tag".into(), odd.into()]);
        row.expires_at = (number == 3).then_some(1 << 40);
        store.data_put(&if number == 4 { "zeta" } else { "acme" }.into(), row).await.unwrap();
    }
}

async fn servers(store: &dyn Store, odd: &str) {
    let me = store.enlist("desk-a".into(), "1".into(), 1_000).await.unwrap();
    let token = store.take_duty(me, "alarms 1".into(), 1_000).await.unwrap().unwrap();
    store.save_cursor("chat".into(), format!("bot {odd}"), token, odd.into()).await.unwrap();
    for (group, id) in [("g", "a"), ("g", "b"), ("h", "c"), ("i", "d")] {
        let fragment = Fragment {
            platform: "p".into(),
            bot: "b".into(),
            chat_id: format!("chat {group}").into(),
            group: format!("{group} {odd}"),
            id: format!("{id} {odd}"),
            at_ms: 50,
            sealed: id.as_bytes().to_vec(),
        };
        store.hold(fragment).await.unwrap();
    }
    for chat_id in ["chat g", "chat h"] {
        let groups = ChatGroups { platform: "p".into(), bot: "b".into(), chat_id: chat_id.into(), but: None };
        let claim = store.claim_chat(groups, 60).await.unwrap().remove(0);
        if chat_id == "chat h" {
            store.joined(claim.number).await.unwrap();
        }
    }
    store.resign(me).await.unwrap();
}
