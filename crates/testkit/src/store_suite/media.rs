//! Rules for media: the same bytes, only for the same tenant, until they expire.

use std::sync::Arc;

use frontdesk_core::port::media::{EventFile, MediaItem, MediaPut, MediaTotal, body_of, read_whole};
use frontdesk_core::port::store::{Acceptance, Retention, Store};
use frontdesk_wire::TenantId;

use super::held_media::sealed;
use super::{Harness, accept, acceptance, purge};

pub fn item(id: &str, size: u64) -> MediaItem {
    MediaItem {
        id: id.into(),
        tenant: "acme".into(),
        mime: "image/png".into(),
        filename: Some("bild ä.png".into()),
        size,
        expires_ms: 500,
    }
}

async fn put(store: &Arc<dyn Store>, item: MediaItem, bytes: &[u8]) {
    let size = bytes.len() as u64;
    assert_eq!(store.media_put(item, body_of(bytes.to_vec()), 0).await.unwrap(), MediaPut::Stored(size));
}

async fn get(store: &Arc<dyn Store>, tenant: &str, id: &str, now_ms: u64) -> Option<(MediaItem, Vec<u8>)> {
    let known = store.media_item(&TenantId::from(tenant), id, now_ms).await.unwrap();
    let (item, body) = store.media_get(&TenantId::from(tenant), id, now_ms).await.unwrap()?;
    assert_eq!(known.as_ref(), Some(&item));
    Some((item, read_whole(body).await.unwrap()))
}

pub async fn bytes_come_back_equal(Harness { store, .. }: Harness) {
    let all: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    for (id, body) in [("big", all), ("small", vec![0]), ("empty", Vec::new())] {
        let item = MediaItem { filename: (id == "big").then(|| "x".into()), ..item(id, body.len() as u64) };
        put(&store, MediaItem { size: 77, ..item.clone() }, &body).await; // the size is counted
        let (found, bytes) = get(&store, "acme", id, 0).await.expect("the media item exists");
        assert!(bytes == body, "{id}");
        assert_eq!(found, item);
    }
    assert_eq!(get(&store, "acme", "other", 0).await, None);
    assert_eq!(get(&store, "acme", "../frontdesk.db", 0).await, None, "an id is not a path");
}

pub async fn media_belong_to_their_tenant(Harness { store, .. }: Harness) {
    put(&store, item("m", 2), b"hi").await;
    for tenant in ["other", "", "ACME"] {
        assert_eq!(get(&store, tenant, "m", 0).await, None, "{tenant}");
    }
}

pub async fn media_end_at_their_time(Harness { store, .. }: Harness) {
    put(&store, item("m", 2), b"hi").await;
    assert!(get(&store, "acme", "m", 499).await.is_some());
    assert!(get(&store, "acme", "m", 500).await.is_none());
}

pub async fn media_survive(harness: Harness) {
    put(&harness.store, item("m", 2), b"hi").await;
    let harness = harness.reopened();
    assert_eq!(get(&harness.store, "acme", "m", 0).await, Some((item("m", 2), b"hi".to_vec())));
}

/// An aborted upload leaves nothing behind, and its id can be used again.
pub async fn a_broken_upload_leaves_nothing(Harness { store, .. }: Harness) {
    let pieces = [Ok(vec![1; 100].into()), Err(std::io::Error::other("disconnected"))];
    let broken = Box::pin(futures_util::stream::iter(pieces));
    assert_eq!(store.media_put(item("m", 0), broken, 0).await.unwrap(), MediaPut::Aborted);
    assert_eq!(get(&store, "acme", "m", 0).await, None);
    put(&store, item("m", 2), b"hi").await;
}

pub async fn the_bytes_of_a_tenant_are_limited(Harness { store, .. }: Harness) {
    let put = |id: &'static str, tenant: &str, size: usize| {
        let item = MediaItem { tenant: tenant.into(), ..item(id, 0) };
        store.media_put(item, body_of(vec![0; size]), 100)
    };
    assert_eq!(put("a", "acme", 60).await.unwrap(), MediaPut::Stored(60));
    assert_eq!(put("b", "acme", 41).await.unwrap(), MediaPut::Full(60));
    assert_eq!(get(&store, "acme", "b", 0).await, None);
    assert_eq!(put("c", "other", 100).await.unwrap(), MediaPut::Stored(100), "each tenant has its own");
    assert_eq!(put("d", "acme", 40).await.unwrap(), MediaPut::Stored(40));
    assert_eq!(put("e", "acme", 1).await.unwrap(), MediaPut::Full(100));
}

/// Files whose bytes are here, whatever became of them and however they came.
pub async fn what_a_tenant_stores_is_counted(harness: Harness) {
    let total = async |store: &Arc<dyn Store>, tenant: &str| {
        let MediaTotal { files, bytes } = store.media_total(&tenant.into()).await.unwrap();
        (files, bytes)
    };
    let store = &harness.store;
    assert_eq!(total(store, "acme").await, (0, 0));
    let remote = ["far", "unused"].map(|id| EventFile::Remote(sealed(id)));
    accept(&**store, Acceptance { files: remote.into(), ..acceptance(1, &[7]) }).await;
    assert_eq!(total(store, "acme").await, (0, 0), "their bytes are at the platform");
    put(store, item("far", 0), b"12345").await;
    put(store, item("a", 0), b"123").await;
    put(store, item("empty", 0), b"").await;
    put(store, MediaItem { expires_ms: 9_000, ..item("long", 0) }, b"1").await;
    put(store, MediaItem { tenant: "other".into(), ..item("b", 0) }, b"12").await;
    assert!(store.media_put(item("a", 0), body_of("again"), 0).await.is_err());
    assert_eq!(store.media_put(item("full", 0), body_of("x"), 9).await.unwrap(), MediaPut::Full(9));
    assert_eq!((total(store, "acme").await, total(store, "other").await), ((4, 9), (1, 2)));
    let harness = harness.reopened();
    let store = &harness.store;
    assert_eq!((total(store, "acme").await, total(store, "other").await), ((4, 9), (1, 2)));
    let at = |now_ms| Retention { now_ms, ..Retention::default() };
    purge(&**store, at(1_000)).await;
    assert_eq!(
        (total(store, "acme").await, total(store, "other").await),
        ((2, 6), (0, 0)),
        "one is owed, one is young"
    );
    store.settle(frontdesk_wire::InstanceNo(7), super::settled(&[1]).into()).await.unwrap();
    purge(&**store, at(2_000)).await;
    purge(&**store, at(10_000)).await;
    assert_eq!(total(store, "acme").await, (0, 0));
    for id in ["far", "unused", "a", "long"] {
        assert_eq!(store.media_item(&"acme".into(), id, 0).await.unwrap(), None, "{id}");
    }
}
