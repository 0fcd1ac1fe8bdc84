//! Who can see which chat, as platforms said a short while ago. A platform that does not answer is a no.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Sees;

/// A platform that did not know is asked again soon, but not for every message.
const UNKNOWN_LIFE_MS: u64 = 2_000;
/// Beyond these everything is forgotten and asked again: bounded, and a wrong guess costs a question.
const PLACES_MAX: usize = 50_000;
const VIEWERS_MAX: usize = 1_000;

#[derive(Default)]
pub struct VisibilityCache {
    places: Mutex<Places>,
    /// Raised by every `forget`, so that an answer from before it is not kept after it.
    age: AtomicU64,
}

/// Nested, so that looking builds no key.
#[derive(Default)]
struct Places {
    by_tenant: HashMap<String, HashMap<String, Vec<Place>>>,
    count: usize,
}

/// One chat of one tenant; a chat id means something else to another platform or bot.
struct Place {
    platform: String,
    bot: String,
    /// Viewer to (what is known of them, until when).
    viewers: HashMap<String, (Sees, u64)>,
}

/// A chat to ask about, at an age of the cache.
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

    /// `None`: it must be asked.
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

    /// The members of a chat changed: what was known of it is no longer true.
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
    fn an_answer_lives_a_short_while_and_only_for_its_place_and_person() {
        let cache = VisibilityCache::default();
        let spot = cache.spot("t", "p", "b", "c");
        cache.keep(spot, "ann", Sees::Yes, 1_000, LIFE_MS);
        cache.keep(spot, "bob", Sees::No, 20_000, LIFE_MS);
        cache.keep(spot, "gus", Sees::Unknown, 30_000, LIFE_MS);
        assert_eq!(cache.known(spot, "ann", 30_999), Some(Sees::Yes));
        assert_eq!(cache.known(spot, "bob", 30_999), Some(Sees::No));
        assert_eq!(cache.known(spot, "gus", 30_999), Some(Sees::Unknown), "asked, and not known");
        assert_eq!(cache.known(spot, "eve", 30_999), None);
        for (tenant, platform, bot, chat) in
            [("t2", "p", "b", "c"), ("t", "p2", "b", "c"), ("t", "p", "b2", "c"), ("t", "p", "b", "c2")]
        {
            assert_eq!(cache.known(cache.spot(tenant, platform, bot, chat), "ann", 30_999), None);
        }
        assert_eq!(cache.known(spot, "ann", 31_000), None, "its time is over");
        assert_eq!(cache.known(spot, "gus", 32_000), None, "what is not known is asked again sooner");
        cache.keep(spot, "ann", Sees::No, 31_000, LIFE_MS);
        assert_eq!(cache.known(spot, "ann", 31_001), Some(Sees::No));
    }

    #[test]
    fn an_answer_from_before_a_change_is_not_kept_after_it() {
        let cache = VisibilityCache::default();
        let asked = cache.spot("t", "p", "b", "c");
        cache.keep(asked, "ann", Sees::Yes, 0, LIFE_MS);
        cache.forget("t", "p", "b", "c");
        assert_eq!(cache.known(asked, "ann", 1), None);
        cache.keep(asked, "ann", Sees::Yes, 1, LIFE_MS); // its question was asked before the change
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
