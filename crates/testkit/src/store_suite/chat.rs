//! Rules for chat messages: one line per message id, revisions, pages.

use frontdesk_core::port::store::{
    Acceptance, ChatAmend, ChatRecord, ChatRow, ChatWrite, PAGE_MAX_BYTES, Store, StoreError,
};
use frontdesk_wire::{ChatId, MessageId, TenantId};

use super::{Harness, accept, acceptance};

fn row(seq: u64, message_id: &str, rev: u64, json: &str) -> ChatRow {
    ChatRow { seq, message_id: message_id.into(), rev, json: json.into() }
}

fn record(chat_id: &str, json: &str, last_seq: u64) -> ChatRecord {
    ChatRecord { chat_id: chat_id.into(), json: json.into(), last_seq }
}

async fn append(store: &dyn Store, chat_id: &str, message_id: &str) -> (u64, bool) {
    store
        .chat_append(
            &"acme".into(),
            &ChatId::from(chat_id),
            &MessageId::from(message_id),
            format!("{{\"id\":\"{message_id}\"}}"),
            1,
        )
        .await
        .unwrap()
}

pub async fn a_message_id_is_appended_once(Harness { store, .. }: Harness) {
    assert_eq!(append(&*store, "c", "m-1").await, (1, true));
    assert_eq!(append(&*store, "c", "m-2").await, (2, true));
    let again = store.chat_append(&"acme".into(), &"c".into(), &"m-1".into(), "other".into(), 1).await.unwrap();
    assert_eq!(again, (1, false));
    assert_eq!(append(&*store, "c", "m-3").await, (3, true), "a repetition uses no number");
    let line = store.chat_line(&"acme".into(), &"c".into(), &"m-1".into()).await.unwrap();
    assert_eq!(line, Some(row(1, "m-1", 1, r#"{"id":"m-1"}"#)), "the first content stays");
    assert_eq!(store.chat_line(&"acme".into(), &"c".into(), &"m-4".into()).await.unwrap(), None);
}

pub async fn every_chat_counts_its_own_lines(Harness { store, .. }: Harness) {
    for (chat_id, seq) in [("a", 1), ("b", 1), ("a", 2)] {
        assert_eq!(append(&*store, chat_id, &format!("m-{seq}")).await, (seq, true));
    }
    assert_eq!(
        store.chat_append(&"other".into(), &"a".into(), &"m-1".into(), "{}".into(), 1).await.unwrap(),
        (1, true),
        "each tenant counts too"
    );
    assert_eq!(store.chat_line(&"other".into(), &"b".into(), &"m-1".into()).await.unwrap(), None);
    assert_eq!(store.chat_since(&"other".into(), &"a".into(), 0, 9).await.unwrap().len(), 1);
}

pub async fn a_line_is_amended_by_revision(Harness { store, .. }: Harness) {
    append(&*store, "c", "m-1").await;
    append(&*store, "c", "m-2").await;
    store.chat_amend(&"acme".into(), &"c".into(), &"m-1".into(), 1, "two".into()).await.unwrap();
    store.chat_amend(&"acme".into(), &"c".into(), &"m-1".into(), 2, "three".into()).await.unwrap();
    let lines = store.chat_since(&"acme".into(), &"c".into(), 0, 9).await.unwrap();
    assert_eq!(lines, [row(1, "m-1", 3, "three"), row(2, "m-2", 1, r#"{"id":"m-2"}"#)], "it keeps its position");
}

pub async fn an_amend_of_another_revision_is_a_conflict(Harness { store, .. }: Harness) {
    append(&*store, "c", "m-1").await;
    store.chat_amend(&"acme".into(), &"c".into(), &"m-1".into(), 1, "two".into()).await.unwrap();
    for (tenant, chat_id, message_id, rev) in [
        ("acme", "c", "m-1", 1),
        ("acme", "c", "m-1", 3),
        ("acme", "c", "m-1", 0),
        ("acme", "c", "m-2", 1),
        ("acme", "d", "m-1", 2),
        ("other", "c", "m-1", 2),
    ] {
        let refused = store
            .chat_amend(&TenantId::from(tenant), &ChatId::from(chat_id), &MessageId::from(message_id), rev, "no".into())
            .await;
        assert_eq!(refused, Err(StoreError::Conflict), "{tenant} {chat_id} {message_id} {rev}");
    }
    assert_eq!(
        store.chat_line(&"acme".into(), &"c".into(), &"m-1".into()).await.unwrap(),
        Some(row(1, "m-1", 2, "two"))
    );
    assert_eq!(store.chat_get(&"acme".into(), &"d".into()).await.unwrap(), None, "a refused amend creates no chat");
}

pub async fn lines_are_read_in_pages(Harness { store, .. }: Harness) {
    for number in 1..=7 {
        append(&*store, "c", &format!("m-{number}")).await;
    }
    let seqs = async |after, limit| {
        let lines = store.chat_since(&"acme".into(), &"c".into(), after, limit).await.unwrap();
        lines.into_iter().map(|line| line.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(0, 3).await, [1, 2, 3]);
    assert_eq!(seqs(3, 99).await, [4, 5, 6, 7]);
    assert_eq!(seqs(7, 99).await, [0; 0]);
    assert_eq!(seqs(u64::MAX, 99).await, [0; 0], "any number can be asked for");
    assert_eq!(seqs(0, 0).await, [0; 0]);
    assert_eq!(store.chat_since(&"acme".into(), &"nowhere".into(), 0, 9).await.unwrap(), []);
}

pub async fn the_latest_lines_are_read_in_order(Harness { store, .. }: Harness) {
    for number in 1..=7 {
        append(&*store, "c", &format!("m-{number}")).await;
        append(&*store, "d", &format!("n-{number}")).await;
    }
    let seqs = async |chat_id: &str, limit| {
        let lines = store.chat_latest(&"acme".into(), &chat_id.into(), limit).await.unwrap();
        lines.into_iter().map(|line| (line.seq, line.message_id)).collect::<Vec<_>>()
    };
    assert_eq!(seqs("c", 2).await, [(6, "m-6".into()), (7, "m-7".into())]);
    assert_eq!(seqs("c", 99).await.len(), 7);
    assert_eq!(seqs("c", 0).await, []);
    assert_eq!(seqs("nowhere", 9).await, []);
    assert_eq!(store.chat_latest(&"other".into(), &"c".into(), 9).await.unwrap(), []);
}

pub async fn facts_and_lines_share_a_chat(Harness { store, .. }: Harness) {
    assert_eq!(store.chat_get(&"acme".into(), &"c".into()).await.unwrap(), None);
    append(&*store, "c", "m-1").await;
    assert_eq!(
        store.chat_get(&"acme".into(), &"c".into()).await.unwrap(),
        Some(record("c", "{}", 1)),
        "no settings yet"
    );
    store.chat_put(&"acme".into(), &"c".into(), "{}", "facts".into()).await.unwrap();
    assert_eq!(
        store.chat_get(&"acme".into(), &"c".into()).await.unwrap(),
        Some(record("c", "facts", 1)),
        "settings keep the count"
    );
    append(&*store, "c", "m-2").await;
    assert_eq!(
        store.chat_get(&"acme".into(), &"c".into()).await.unwrap(),
        Some(record("c", "facts", 2)),
        "lines keep the settings"
    );
    store.chat_put(&"acme".into(), &"empty".into(), "", "early".into()).await.unwrap();
    assert_eq!(store.chat_get(&"acme".into(), &"empty".into()).await.unwrap(), Some(record("empty", "early", 0)));
    assert_eq!(append(&*store, "empty", "m-1").await, (1, true));
    assert_eq!(store.chat_get(&"other".into(), &"c".into()).await.unwrap(), None);
}

pub async fn facts_are_compared_and_set(Harness { store, .. }: Harness) {
    assert_eq!(store.chat_put(&"acme".into(), &"c".into(), "other", "one".into()).await, Err(StoreError::Conflict));
    store.chat_put(&"acme".into(), &"c".into(), "", "one".into()).await.unwrap();
    assert_eq!(
        store.chat_put(&"acme".into(), &"c".into(), "", "two".into()).await,
        Err(StoreError::Conflict),
        "another writer was faster"
    );
    store.chat_put(&"acme".into(), &"c".into(), "one", "two".into()).await.unwrap();
    assert_eq!(store.chat_get(&"acme".into(), &"c".into()).await.unwrap().unwrap().json, "two");
    append(&*store, "d", "m-1").await;
    assert_eq!(store.chat_put(&"acme".into(), &"d".into(), "", "before it".into()).await, Err(StoreError::Conflict));
    store.chat_put(&"acme".into(), &"d".into(), "{}", "after a line".into()).await.unwrap();
}

pub async fn chats_are_listed_by_tenant(Harness { store, .. }: Harness) {
    append(&*store, "b", "m-1").await;
    store.chat_put(&"acme".into(), &"a".into(), "", "facts".into()).await.unwrap();
    store.chat_put(&"other".into(), &"c".into(), "", "{}".into()).await.unwrap();
    assert_eq!(store.chats(&"acme".into(), "", 9).await.unwrap(), [record("a", "facts", 0), record("b", "{}", 1)]);
    assert_eq!(store.chats(&"nobody".into(), "", 9).await.unwrap(), []);
}

pub async fn chats_survive(harness: Harness) {
    append(&*harness.store, "c", "m-1").await;
    harness.store.chat_amend(&"acme".into(), &"c".into(), &"m-1".into(), 1, "🙂".into()).await.unwrap();
    harness.store.chat_put(&"acme".into(), &"c".into(), "{}", "facts".into()).await.unwrap();
    let harness = harness.reopened();
    assert_eq!(
        harness.store.chat_line(&"acme".into(), &"c".into(), &"m-1".into()).await.unwrap(),
        Some(row(1, "m-1", 2, "🙂"))
    );
    assert_eq!(harness.store.chats(&"acme".into(), "", 9).await.unwrap(), [record("c", "facts", 1)]);
    assert_eq!(append(&*harness.store, "c", "m-1").await, (1, false));
    assert_eq!(append(&*harness.store, "c", "m-2").await, (2, true));
}

fn with_line(number: u64, message_id: &str, amend: Option<ChatAmend>) -> Acceptance {
    let message_id = message_id.to_owned();
    let json = format!(r#"{{"id":"{message_id}"}}"#);
    Acceptance {
        chat: Some(Box::new(ChatWrite { chat_id: "c".into(), message_id: message_id.into(), json, at_ms: 5, amend })),
        ..acceptance(number, &[7])
    }
}

/// A message in the chat that never becomes an event would be lost silently.
pub async fn a_line_is_written_with_its_event(Harness { store, .. }: Harness) {
    let accepted = accept(&*store, with_line(1, "m-1", None)).await;
    assert_eq!((accepted.fresh, accepted.line), (true, Some(1)));
    let again = accept(&*store, with_line(1, "m-1", None)).await;
    assert_eq!((again.fresh, again.line), (false, None));
    let known = accept(&*store, with_line(2, "m-1", None)).await;
    assert_eq!((known.fresh, known.line), (true, None), "an existing line is unchanged");
    let lines = store.chat_since(&"acme".into(), &"c".into(), 0, 9).await.unwrap();
    assert_eq!(lines.iter().map(|row| (row.seq, row.rev)).collect::<Vec<_>>(), [(1, 1)]);
}

pub async fn a_line_that_changed_meanwhile_stops_the_event(Harness { store, .. }: Harness) {
    append(&*store, "c", "prompt").await;
    let answer = |rev| Some(ChatAmend { message_id: "prompt".into(), rev, json: r#"{"chosen":1}"#.into() });
    let accepted = accept(&*store, with_line(1, "m-1", answer(1))).await;
    assert_eq!(accepted.line, Some(2));
    let prompt = store.chat_line(&"acme".into(), &"c".into(), &"prompt".into()).await.unwrap().unwrap();
    assert_eq!((prompt.rev, prompt.json.as_str()), (2, r#"{"chosen":1}"#));
    for rev in [1, 3] {
        let batch = vec![acceptance(8, &[7]), with_line(2, "m-2", answer(rev))];
        assert_eq!(store.accept(batch).await, Err(StoreError::Conflict));
    }
    assert_eq!(store.chat_line(&"acme".into(), &"c".into(), &"m-2".into()).await.unwrap(), None, "no line");
    assert_eq!(super::owed(&*store, 7).await, [1], "no event of the whole batch");
}

pub async fn a_page_of_large_lines_is_short(Harness { store, .. }: Harness) {
    for number in 1..=5 {
        let json = format!(r#"{{"text":"{}"}}"#, "x".repeat(PAGE_MAX_BYTES / 2));
        store.chat_append(&"acme".into(), &"c".into(), &format!("m-{number}").into(), json, 1).await.unwrap();
    }
    let (mut after, mut pages) = (0, Vec::new());
    loop {
        let page = store.chat_since(&"acme".into(), &"c".into(), after, 500).await.unwrap();
        let Some(last) = page.last() else { break };
        after = last.seq;
        pages.push(page.len());
    }
    assert_eq!(pages, [2, 2, 1]);
}
