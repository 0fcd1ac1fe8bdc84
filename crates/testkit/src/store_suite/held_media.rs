//! Rules for files that events refer to: stored with the event, kept while its mail is owed, then for their time.

use std::sync::Arc;

use frontdesk_core::port::media::{EventFile, MediaItem, MediaPut, RemoteItem, SealedMedia, body_of, read_whole};
use frontdesk_core::port::store::{Acceptance, Retention, Store, StoreError};
use frontdesk_wire::{InstanceNo, Seq, TenantId};

use super::media::item;
use super::{Harness, accept, acceptance, purge, settled};

pub fn sealed(id: &str) -> SealedMedia {
    SealedMedia {
        id: id.into(),
        mime: "image/png".into(),
        filename: Some("bild ä.png".into()),
        size: Some(7),
        sealed: id.bytes().chain([0, 255]).collect(),
        expires_ms: 500,
    }
}

fn with_files(number: u64, receivers: &[u64], files: Vec<EventFile>) -> Acceptance {
    Acceptance { files, ..acceptance(number, receivers) }
}

fn remote(number: u64, receivers: &[u64], ids: &[&str]) -> Acceptance {
    with_files(number, receivers, ids.iter().map(|id| EventFile::Remote(sealed(id))).collect())
}

/// As of a time when nothing has expired by itself.
async fn handle(store: &Arc<dyn Store>, tenant: &str, id: &str) -> Option<RemoteItem> {
    store.media_remote(&TenantId::from(tenant), id, 0).await.unwrap()
}

/// Whether it is there at this time, with or without its bytes.
async fn is_there(store: &Arc<dyn Store>, id: &str, now_ms: u64) -> bool {
    store.media_item(&"acme".into(), id, now_ms).await.unwrap().is_some()
}

/// Deletes what has expired, and nothing else.
fn at(now_ms: u64) -> Retention {
    Retention { now_ms, media_ttl_ms: 100, ..Retention::default() }
}

pub async fn a_remote_file_is_stored_with_its_event(harness: Harness) {
    let made = accept(&*harness.store, remote(1, &[7, 8], &["a", "b"])).await;
    let harness = harness.reopened();
    let known = RemoteItem {
        platform: "chat".into(),
        bot: "desk".into(),
        event: made.event,
        mime: "image/png".into(),
        filename: Some("bild ä.png".into()),
        size: Some(7),
        sealed: vec![b'a', 0, 255],
    };
    assert_eq!(handle(&harness.store, "acme", "a").await, Some(known));
    assert!(handle(&harness.store, "acme", "b").await.is_some());
    assert_eq!(harness.store.media_item(&"acme".into(), "a", 0).await.unwrap(), Some(item("a", 7)));
    assert!(harness.store.media_get(&"acme".into(), "a", 0).await.unwrap().is_none(), "its bytes are not here");
}

pub async fn a_duplicate_stores_no_file(Harness { store, .. }: Harness) {
    accept(&*store, remote(1, &[7], &["a"])).await;
    assert!(!accept(&*store, remote(1, &[7], &["b"])).await.fresh);
    assert!(handle(&store, "acme", "a").await.is_some());
    assert_eq!(handle(&store, "acme", "b").await, None);
}

pub async fn an_event_that_nobody_receives_stores_no_file(Harness { store, .. }: Harness) {
    accept(&*store, remote(1, &[], &["a"])).await;
    assert_eq!(handle(&store, "acme", "a").await, None);
}

pub async fn a_remote_file_belongs_to_its_tenant(Harness { store, .. }: Harness) {
    accept(&*store, remote(1, &[7], &["a"])).await;
    for tenant in ["other", "", "ACME"] {
        assert_eq!(handle(&store, tenant, "a").await, None, "{tenant}");
        assert_eq!(store.media_item(&TenantId::from(tenant), "a", 0).await.unwrap(), None, "{tenant}");
    }
    // Nor can an event of another tenant keep it.
    let theirs = Acceptance { tenant: "other".into(), ..with_files(2, &[8], vec![EventFile::Stored("a".into())]) };
    accept(&*store, theirs).await;
    store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    purge(&*store, at(1_000)).await;
    purge(&*store, at(1_200)).await;
    assert!(!is_there(&store, "a", 0).await);
}

pub async fn fetched_bytes_replace_the_handle(harness: Harness) {
    accept(&*harness.store, remote(1, &[7], &["a"])).await;
    let fetched = MediaItem { mime: "image/webp".into(), filename: None, expires_ms: 400, ..item("a", 0) };
    let put = |size: usize, max: u64| harness.store.media_put(fetched.clone(), body_of(vec![1; size]), max);
    assert_eq!(put(11, 10).await.unwrap(), MediaPut::Full(0), "a handle takes nothing of the quota");
    let pieces = [Ok(vec![1; 3].into()), Err(std::io::Error::other("cut"))];
    let cut = Box::pin(futures_util::stream::iter(pieces));
    assert_eq!(harness.store.media_put(fetched.clone(), cut, 10).await.unwrap(), MediaPut::Aborted);
    assert!(handle(&harness.store, "acme", "a").await.is_some(), "it can be tried again");
    assert!(harness.store.media_get(&"acme".into(), "a", 0).await.unwrap().is_none(), "and nothing of it is shown");
    assert_eq!(put(10, 10).await.unwrap(), MediaPut::Stored(10));
    let harness = harness.reopened();
    assert_eq!(handle(&harness.store, "acme", "a").await, None);
    let (found, body) = harness.store.media_get(&"acme".into(), "a", 0).await.unwrap().expect("it is here");
    assert_eq!(found, MediaItem { size: 10, expires_ms: 500, ..fetched }, "the later end counts");
    assert_eq!(read_whole(body).await.unwrap(), vec![1; 10]);
    let more = harness.store.media_put(item("b", 0), body_of("x"), 10).await.unwrap();
    assert_eq!(more, MediaPut::Full(10), "now it counts");
    assert!(is_there(&harness.store, "a", 900).await, "its mail is still owed");
}

pub async fn an_id_whose_bytes_are_here_is_taken(Harness { store, .. }: Harness) {
    store.media_put(item("a", 0), body_of("first"), 0).await.unwrap();
    let again = store.media_put(item("a", 0), body_of("second"), 0).await;
    assert_eq!(again, Err(StoreError::Conflict));
    let (_, body) = store.media_get(&"acme".into(), "a", 0).await.unwrap().expect("it is here");
    assert_eq!(read_whole(body).await.unwrap(), b"first");
}

pub async fn a_file_is_kept_while_its_mail_is_owed(harness: Harness) {
    let store = &harness.store;
    store.media_put(item("uploaded", 0), body_of("hi"), 0).await.unwrap();
    store.media_put(item("unused", 0), body_of("ho"), 0).await.unwrap();
    let files =
        vec![EventFile::Stored("uploaded".into()), EventFile::Remote(sealed("a")), EventFile::Stored("no".into())];
    accept(&**store, with_files(1, &[7, 8], files)).await;
    store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap(); // the other one sleeps
    assert!(purge(&**store, at(1_000_000)).await > 0);
    let harness = harness.reopened();
    for (id, there) in [("uploaded", true), ("a", true), ("unused", false), ("no", false)] {
        assert_eq!(is_there(&harness.store, id, 2_000_000).await, there, "{id}");
    }
    assert!(harness.store.media_get(&"acme".into(), "uploaded", 2_000_000).await.unwrap().is_some());
    assert!(harness.store.media_remote(&"acme".into(), "a", 2_000_000).await.unwrap().is_some());
}

pub async fn a_file_expires_after_its_mail_was_settled(Harness { store, .. }: Harness) {
    accept(&*store, acceptance(1, &[7])).await;
    store.media_put(item("uploaded", 0), body_of("hi"), 0).await.unwrap();
    let files = vec![EventFile::Stored("uploaded".into()), EventFile::Remote(sealed("a"))];
    accept(&*store, with_files(2, &[7], files)).await;
    let both = async |now_ms| (is_there(&store, "uploaded", now_ms).await, is_there(&store, "a", now_ms).await);
    store.settle(InstanceNo(7), settled(&[2]).into()).await.unwrap(); // out of order: above the watermark
    assert_eq!(both(9_000).await, (true, true), "its agent has the message, and may ask now");
    assert_eq!(purge(&*store, at(9_000)).await, 0);
    assert_eq!((both(9_099).await, both(9_100).await), ((true, true), (false, false)));
    assert_eq!(purge(&*store, at(9_099)).await, 0);
    assert_eq!(purge(&*store, at(9_100)).await, 2);
    assert_eq!(handle(&store, "acme", "a").await, None);
    store.media_put(item("a", 0), body_of("new"), 0).await.unwrap();
}

pub async fn a_file_of_several_events_waits_for_all(Harness { store, .. }: Harness) {
    store.media_put(item("f", 0), body_of("hi"), 0).await.unwrap();
    for (number, instance) in [(1, 7), (2, 8)] {
        accept(&*store, with_files(number, &[instance], vec![EventFile::Stored("f".into())])).await;
    }
    store.settle(InstanceNo(8), settled(&[1]).into()).await.unwrap();
    purge(&*store, at(1_000)).await;
    assert!(is_there(&store, "f", 5_000).await);
    store.drop_mail(InstanceNo(7), Seq(1), None, "no".into()).await.unwrap();
    purge(&*store, at(6_000)).await;
    assert!(is_there(&store, "f", 6_050).await && !is_there(&store, "f", 6_100).await, "a dead row owes nothing");
}

pub async fn a_replayed_row_keeps_its_files(Harness { store, .. }: Harness) {
    accept(&*store, remote(1, &[7], &["a"])).await;
    store.settle(InstanceNo(7), settled(&[1]).into()).await.unwrap();
    assert_eq!(store.replay_mail(InstanceNo(7), Seq(1)).await.unwrap(), Some(Seq(2)));
    purge(&*store, at(10_000)).await;
    assert!(is_there(&store, "a", 20_000).await, "the copy is owed");
    store.settle(InstanceNo(7), settled(&[2]).into()).await.unwrap();
    purge(&*store, at(30_000)).await;
    purge(&*store, at(30_100)).await;
    assert!(!is_there(&store, "a", 0).await);
}

pub async fn many_files_are_released_in_steps(Harness { store, .. }: Harness) {
    for number in 1..=450 {
        accept(&*store, remote(number, &[7 + number % 2], &[&format!("f-{number:03}")])).await;
    }
    let all: Vec<u64> = (1..=225).collect();
    store.settle(InstanceNo(7), settled(&all).into()).await.unwrap(); // the even ones
    purge(&*store, at(1_000)).await;
    assert_eq!(purge(&*store, at(1_100)).await, 225);
    for (id, there) in [("f-001", true), ("f-002", false), ("f-449", true), ("f-450", false)] {
        assert_eq!(is_there(&store, id, 0).await, there, "{id}");
    }
}
