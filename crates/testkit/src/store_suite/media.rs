//! Rules of the media shelf: the same bytes, for the same tenant, for a while.

use frontdesk_core::port::store::MediaItem;

use super::House;

pub(super) fn item(id: &str, size: u64) -> MediaItem {
    MediaItem {
        id: id.into(),
        tenant: "acme".into(),
        mime: "image/png".into(),
        filename: Some("bild ä.png".into()),
        size,
        expires_ms: 500,
    }
}

pub async fn bytes_come_back_equal(House { store, .. }: House) {
    let all: Vec<u8> = (0..=u8::MAX).cycle().take(1 << 20).collect();
    for (id, body) in [("big", all), ("small", vec![0]), ("empty", Vec::new())] {
        let item = MediaItem { filename: (id == "big").then(|| "x".into()), ..item(id, body.len() as u64) };
        store.media_put(item.clone(), body.clone()).await.unwrap();
        let (found, bytes) = store.media_get("acme", id, 0).await.unwrap().expect("it is there");
        assert!(bytes == body, "{id}");
        assert_eq!(found, item);
    }
    assert_eq!(store.media_get("acme", "other", 0).await.unwrap(), None);
    assert_eq!(store.media_get("acme", "../frontdesk.db", 0).await.unwrap(), None, "an id is no path");
}

pub async fn media_belong_to_their_tenant(House { store, .. }: House) {
    store.media_put(item("m", 2), b"hi".to_vec()).await.unwrap();
    for tenant in ["other", "", "ACME"] {
        assert_eq!(store.media_get(tenant, "m", 0).await.unwrap(), None, "{tenant}");
    }
}

pub async fn media_end_at_their_time(House { store, .. }: House) {
    store.media_put(item("m", 2), b"hi".to_vec()).await.unwrap();
    assert!(store.media_get("acme", "m", 499).await.unwrap().is_some());
    assert!(store.media_get("acme", "m", 500).await.unwrap().is_none());
}

pub async fn media_survive(house: House) {
    house.store.media_put(item("m", 2), b"hi".to_vec()).await.unwrap();
    let house = house.reopened();
    assert_eq!(house.store.media_get("acme", "m", 0).await.unwrap(), Some((item("m", 2), b"hi".to_vec())));
}
