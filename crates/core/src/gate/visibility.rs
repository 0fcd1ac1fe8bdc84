//! Cache of which users can see which chat, as platforms reported. No answer counts as no.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Sees;

/// Lifetime of an unknown answer: asked again soon, but not for every message.
const UNKNOWN_LIFE_MS: u64 = 2_000;
/// Above these limits everything is dropped and asked again: memory is bounded, and the cost is one request.
const PLACES_MAX: usize = 50_000;
const VIEWERS_MAX: usize = 1_000;

#[derive(Default)]
pub struct VisibilityCache {
    places: Mutex<Places>,
    /// Increased by every `forget`, so that an answer requested before it is not stored after it.
    age: AtomicU64,
}

/// Nested maps, so that lookups build no keys.
#[derive(Default)]
struct Places {
    by_tenant: HashMap<String, HashMap<String, Vec<Place>>>,
    count: usize,
}

/// One chat of one tenant; the same chat id means something else on another platform or bot.
struct Place {
    platform: String,
    bot: String,
    /// By user: the answer, and until when it is valid.
    viewers: HashMap<String, (Sees, u64)>,
}

/// A chat to ask about, with the age of the cache.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    tenant: &'a str,
    platform: &'a str,
    bot: &'a str,
    chat_id: &'a str,
    age: u64,
}

impl Spot<'_> {
    fn is_at(&self, place: &Place) -> bool {
        place.platform == self.platform && place.bot == self.bot
    }
}

impl VisibilityCache {
    pub fn spot<'a>(&self, tenant: &'a str, platform: &'a str, bot: &'a str, chat_id: &'a str) -> Spot<'a> {
        Spot { tenant, platform, bot, chat_id, age: self.age.load(Ordering::Acquire) }
    }

    /// `None`: the platform must be asked.
    pub fn known(&self, spot: Spot<'_>, viewer: &str, now_ms: u64) -> Option<Sees> {
        let places = self.places();
        let chats = places.by_tenant.get(spot.tenant)?.get(spot.chat_id)?;
        let (sees, until_ms) = chats.iter().find(|place| spot.is_at(place))?.viewers.get(viewer)?;
        (*until_ms > now_ms).then_some(*sees)
    }

    pub fn keep(&self, spot: Spot<'_>, viewer: &str, sees: Sees, now_ms: u64, life_ms: u64) {
        let mut places = self.places();
        if self.age.load(Ordering::Acquire) != spot.age {
            return;
        }
        if places.count >= PLACES_MAX {
            *places = Places::default();
        }
        let Places { by_tenant, count } = &mut *places;
        let chats = by_tenant.entry(spot.tenant.to_owned()).or_default().entry(spot.chat_id.to_owned()).or_default();
        let at = chats.iter().position(|place| spot.is_at(place)).unwrap_or_else(|| {
            *count += 1;
            let (platform, bot) = (spot.platform.to_owned(), spot.bot.to_owned());
            chats.push(Place { platform, bot, viewers: HashMap::new() });
            chats.len() - 1
        });
        let viewers = &mut chats[at].viewers;
        if viewers.len() >= VIEWERS_MAX {
            viewers.clear();
        }
        let life_ms = if sees == Sees::Unknown { life_ms.min(UNKNOWN_LIFE_MS) } else { life_ms };
        viewers.insert(viewer.to_owned(), (sees, now_ms + life_ms));
    }

    /// Called when the members of a chat changed.
    pub fn forget(&self, tenant: &str, platform: &str, bot: &str, chat_id: &str) {
        self.age.fetch_add(1, Ordering::AcqRel);
        let spot = self.spot(tenant, platform, bot, chat_id);
        let mut places = self.places();
        let Some(chats) = places.by_tenant.get_mut(tenant).and_then(|chats| chats.get_mut(chat_id)) else { return };
        for place in chats.iter_mut().filter(|place| spot.is_at(place)) {
            place.viewers.clear();
        }
    }

    /// The same for every tenant that may see this chat of a shared bot.
    pub fn forget_chat(&self, platform: &str, bot: &str, chat_id: &str) {
        self.age.fetch_add(1, Ordering::AcqRel);
        let spot = self.spot("", platform, bot, chat_id);
        let mut places = self.places();
        let chats = places.by_tenant.values_mut().filter_map(|chats| chats.get_mut(chat_id)).flatten();
        chats.filter(|place| spot.is_at(place)).for_each(|place| place.viewers.clear());
    }

    pub fn forget_all(&self) {
        self.age.fetch_add(1, Ordering::AcqRel);
        *self.places() = Places::default();
    }

    fn places(&self) -> std::sync::MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE_MS: u64 = 30_000;

    #[test]
    fn an_answer_expires_and_is_for_one_place_and_user() {
        let cache = VisibilityCache::default();
        let spot = cache.spot("t", "p", "b", "c");
        cache.keep(spot, "ann", Sees::Yes, 1_000, LIFE_MS);
        cache.keep(spot, "bob", Sees::No, 20_000, LIFE_MS);
        cache.keep(spot, "gus", Sees::Unknown, 30_000, LIFE_MS);
        assert_eq!(cache.known(spot, "ann", 30_999), Some(Sees::Yes));
        assert_eq!(cache.known(spot, "bob", 30_999), Some(Sees::No));
        assert_eq!(cache.known(spot, "gus", 30_999), Some(Sees::Unknown), "asked, but unknown");
        assert_eq!(cache.known(spot, "eve", 30_999), None);
        for (tenant, platform, bot, chat) in
            [("t2", "p", "b", "c"), ("t", "p2", "b", "c"), ("t", "p", "b2", "c"), ("t", "p", "b", "c2")]
        {
            assert_eq!(cache.known(cache.spot(tenant, platform, bot, chat), "ann", 30_999), None);
        }
        assert_eq!(cache.known(spot, "ann", 31_000), None, "expired");
        assert_eq!(cache.known(spot, "gus", 32_000), None, "unknown answers expire sooner");
        cache.keep(spot, "ann", Sees::No, 31_000, LIFE_MS);
        assert_eq!(cache.known(spot, "ann", 31_001), Some(Sees::No));
    }

    #[test]
    fn an_answer_requested_before_a_change_is_not_stored() {
        let cache = VisibilityCache::default();
        let asked = cache.spot("t", "p", "b", "c");
        cache.keep(asked, "ann", Sees::Yes, 0, LIFE_MS);
        cache.forget("t", "p", "b", "c");
        assert_eq!(cache.known(asked, "ann", 1), None);
        cache.keep(asked, "ann", Sees::Yes, 1, LIFE_MS); // requested before the change
        assert_eq!(cache.known(asked, "ann", 2), None);
        let again = cache.spot("t", "p", "b", "c");
        cache.keep(again, "ann", Sees::No, 2, LIFE_MS);
        assert_eq!(cache.known(again, "ann", 3), Some(Sees::No));
    }

    #[test]
    fn it_is_bounded() {
        let cache = VisibilityCache::default();
        let spot = cache.spot("t", "p", "b", "c");
        for viewer in 0..VIEWERS_MAX * 2 {
            cache.keep(spot, &viewer.to_string(), Sees::Yes, 0, LIFE_MS);
        }
        assert!(cache.places().by_tenant["t"]["c"][0].viewers.len() <= VIEWERS_MAX);
        for chat in 0..PLACES_MAX * 2 {
            cache.keep(cache.spot("t", "p", "b", &chat.to_string()), "ann", Sees::Yes, 0, LIFE_MS);
        }
        assert!(cache.places().by_tenant["t"].len() <= PLACES_MAX);
    }
}
