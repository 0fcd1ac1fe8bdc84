//! Cache of which users can see which chat, as platforms reported. No answer counts as no.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk_wire::{BotId, ChatId, TenantId, UserId};

use super::Sees;
use crate::hash::TextMap;

/// Lifetime of an unknown answer: asked again soon, but not for every message.
const UNKNOWN_LIFE_MS: u64 = 2_000;
/// Answers of one tenant, and of all tenants. Above these limits they are dropped and asked again: memory is bounded, and
/// the cost is one request. A tenant with many chats drops its own first.
const TENANT_MAX: usize = 20_000;
const ALL_MAX: usize = 200_000;

#[derive(Default)]
pub struct VisibilityCache {
    cached: Mutex<Cached>,
    /// Increased by every `forget`, so that an answer requested before it is not stored after it. One counter per hash of
    /// the chat, so that changes in one chat do not invalidate look-ups of all others.
    ages: Ages,
    /// The same for changes that affect all chats of a bot.
    bot_ages: Ages,
}

const AGES: usize = 256;

struct Ages(Vec<AtomicU64>);

impl Default for Ages {
    fn default() -> Self {
        Self((0..AGES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Ages {
    fn of(&self, name: impl Hash) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        &self.0[usize::try_from(hasher.finish() % AGES as u64).unwrap_or_default()]
    }
}

/// Nested maps, so that lookups build no keys.
#[derive(Default)]
struct Cached {
    by_tenant: TextMap<TenantId, OfTenant>,
    answers: usize,
}

#[derive(Default)]
struct OfTenant {
    chats: TextMap<ChatId, Vec<CachedChat>>,
    answers: usize,
}

/// One chat of one tenant; the same chat id means something else on another platform or bot.
struct CachedChat {
    platform: String,
    bot: BotId,
    /// By user: the answer, and until when it is valid.
    viewers: TextMap<UserId, (Sees, u64)>,
}

/// A chat, as a tenant sees it.
#[derive(Clone, Copy)]
pub struct Spot<'a> {
    tenant: &'a TenantId,
    platform: &'a str,
    bot: &'a BotId,
    chat_id: &'a ChatId,
}

/// A look-up in progress, with the counters of the cache at its start.
#[derive(Clone, Copy)]
pub struct VisibilityLookup<'a> {
    spot: Spot<'a>,
    ages: [u64; 2],
}

impl<'a> Spot<'a> {
    pub fn new(tenant: &'a TenantId, platform: &'a str, bot: &'a BotId, chat_id: &'a ChatId) -> Self {
        Self { tenant, platform, bot, chat_id }
    }

    fn is_at(&self, chat: &CachedChat) -> bool {
        chat.platform == self.platform && chat.bot == *self.bot
    }
}

impl OfTenant {
    /// Drops what is known of a chat. Returns how many answers that were.
    fn forget(&mut self, spot: &Spot<'_>) -> usize {
        let Some(chats) = self.chats.get_mut(spot.chat_id) else { return 0 };
        let gone = chats.iter().filter(|chat| spot.is_at(chat)).map(|chat| chat.viewers.len()).sum();
        chats.retain(|chat| !spot.is_at(chat));
        if chats.is_empty() {
            self.chats.remove(spot.chat_id);
        }
        self.answers -= gone;
        gone
    }
}

impl VisibilityCache {
    /// Called before the platform is asked: an answer that a change overtakes is not kept.
    pub fn asked<'a>(&self, spot: Spot<'a>) -> VisibilityLookup<'a> {
        VisibilityLookup { spot, ages: self.ages_of(spot) }
    }

    fn ages_of(&self, spot: Spot<'_>) -> [u64; 2] {
        let ages = [self.ages.of(spot.chat_id), self.bot_ages.of((spot.platform, spot.bot))];
        ages.map(|age| age.load(Ordering::Acquire))
    }

    /// `None`: the platform must be asked.
    pub fn known(&self, spot: Spot<'_>, viewer: &UserId, now_ms: u64) -> Option<Sees> {
        let cached = self.cached();
        let chats = cached.by_tenant.get(spot.tenant)?.chats.get(spot.chat_id)?;
        let (sees, until_ms) = chats.iter().find(|chat| spot.is_at(chat))?.viewers.get(viewer)?;
        (*until_ms > now_ms).then_some(*sees)
    }

    pub fn keep(&self, asked: VisibilityLookup<'_>, viewer: &UserId, sees: Sees, now_ms: u64, life_ms: u64) {
        let (mut cached, spot) = (self.cached(), asked.spot);
        if self.ages_of(spot) != asked.ages {
            return;
        }
        if cached.answers >= ALL_MAX {
            *cached = Cached::default();
        }
        let Cached { by_tenant, answers } = &mut *cached;
        let tenant = by_tenant.entry(spot.tenant.clone()).or_default();
        if tenant.answers >= TENANT_MAX {
            *answers -= tenant.answers;
            *tenant = OfTenant::default();
        }
        let chats = tenant.chats.entry(spot.chat_id.clone()).or_default();
        let at = chats.iter().position(|chat| spot.is_at(chat)).unwrap_or_else(|| {
            let (platform, bot) = (spot.platform.to_owned(), spot.bot.clone());
            chats.push(CachedChat { platform, bot, viewers: TextMap::default() });
            chats.len() - 1
        });
        let life_ms = if sees == Sees::Unknown { life_ms.min(UNKNOWN_LIFE_MS) } else { life_ms };
        if chats[at].viewers.insert(viewer.clone(), (sees, now_ms + life_ms)).is_none() {
            tenant.answers += 1;
            *answers += 1;
        }
    }

    /// Called when the members of a chat changed.
    pub fn forget(&self, tenant: &TenantId, platform: &str, bot: &BotId, chat_id: &ChatId) {
        self.ages.of(chat_id).fetch_add(1, Ordering::AcqRel);
        let spot = Spot::new(tenant, platform, bot, chat_id);
        let mut cached = self.cached();
        let Cached { by_tenant, answers } = &mut *cached;
        if let Some(tenant) = by_tenant.get_mut(tenant) {
            *answers -= tenant.forget(&spot);
        }
    }

    /// The same for every tenant that may see this chat of a shared bot.
    pub fn forget_chat(&self, platform: &str, bot: &BotId, chat_id: &ChatId) {
        self.ages.of(chat_id).fetch_add(1, Ordering::AcqRel);
        let nobody = TenantId::default();
        let spot = Spot::new(&nobody, platform, bot, chat_id);
        let mut cached = self.cached();
        let Cached { by_tenant, answers } = &mut *cached;
        *answers -= by_tenant.values_mut().map(|tenant| tenant.forget(&spot)).sum::<usize>();
    }

    /// One user came to a chat or left it. What is known of the others stays.
    pub fn forget_viewer(&self, platform: &str, bot: &BotId, chat_id: &ChatId, viewer: &UserId) {
        self.ages.of(chat_id).fetch_add(1, Ordering::AcqRel);
        let nobody = TenantId::default();
        let spot = Spot::new(&nobody, platform, bot, chat_id);
        let mut cached = self.cached();
        let Cached { by_tenant, answers } = &mut *cached;
        for tenant in by_tenant.values_mut() {
            let Some(chats) = tenant.chats.get_mut(chat_id) else { continue };
            let here = chats.iter_mut().filter(|chat| spot.is_at(chat));
            let gone = here.filter_map(|chat| chat.viewers.remove(viewer)).count();
            chats.retain(|chat| !chat.viewers.is_empty());
            if chats.is_empty() {
                tenant.chats.remove(chat_id);
            }
            tenant.answers -= gone;
            *answers -= gone;
        }
    }

    /// What one user can see changed, in any chat of this bot.
    pub fn forget_person(&self, platform: &str, bot: &BotId, viewer: &UserId) {
        self.bot_ages.of((platform, bot)).fetch_add(1, Ordering::AcqRel);
        self.forget_where(|chat| {
            let is_gone = chat.platform == platform && chat.bot == *bot && chat.viewers.remove(viewer).is_some();
            usize::from(is_gone)
        });
    }

    /// Roles or channels of a whole scope changed. A chat does not tell its scope, so all chats of the bot are asked about
    /// again.
    pub fn forget_bot(&self, platform: &str, bot: &BotId) {
        self.bot_ages.of((platform, bot)).fetch_add(1, Ordering::AcqRel);
        self.forget_where(|chat| {
            let is_meant = chat.platform == platform && chat.bot == *bot;
            if is_meant { std::mem::take(&mut chat.viewers).len() } else { 0 }
        });
    }

    /// `take` removes answers from a chat, and returns how many. Chats without answers are dropped.
    fn forget_where(&self, take: impl Fn(&mut CachedChat) -> usize) {
        let mut cached = self.cached();
        let Cached { by_tenant, answers } = &mut *cached;
        for tenant in by_tenant.values_mut() {
            let mut gone = 0;
            tenant.chats.retain(|_, chats| {
                gone += chats.iter_mut().map(&take).sum::<usize>();
                chats.retain(|chat| !chat.viewers.is_empty());
                !chats.is_empty()
            });
            tenant.answers -= gone;
            *answers -= gone;
        }
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, Cached> {
        self.cached.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE_MS: u64 = 30_000;

    /// Its ids live as long as the tests.
    fn spot(tenant: &str, platform: &'static str, bot: &str, chat_id: &str) -> Spot<'static> {
        let ids: &'static (TenantId, BotId, ChatId) = Box::leak(Box::new((tenant.into(), bot.into(), chat_id.into())));
        Spot::new(&ids.0, platform, &ids.1, &ids.2)
    }

    #[test]
    fn an_answer_expires_and_is_for_one_place_and_user() {
        let cache = VisibilityCache::default();
        let spot = cache.asked(spot("t", "p", "b", "c"));
        cache.keep(spot, &"ann".into(), Sees::Yes, 1_000, LIFE_MS);
        cache.keep(spot, &"bob".into(), Sees::No, 20_000, LIFE_MS);
        cache.keep(spot, &"gus".into(), Sees::Unknown, 30_000, LIFE_MS);
        assert_eq!(cache.known(spot.spot, &"ann".into(), 30_999), Some(Sees::Yes));
        assert_eq!(cache.known(spot.spot, &"bob".into(), 30_999), Some(Sees::No));
        assert_eq!(cache.known(spot.spot, &"gus".into(), 30_999), Some(Sees::Unknown), "asked, but unknown");
        assert_eq!(cache.known(spot.spot, &"eve".into(), 30_999), None);
        for (tenant, platform, bot, chat) in
            [("t2", "p", "b", "c"), ("t", "p2", "b", "c"), ("t", "p", "b2", "c"), ("t", "p", "b", "c2")]
        {
            assert_eq!(cache.known(self::spot(tenant, platform, bot, chat), &"ann".into(), 30_999), None);
        }
        assert_eq!(cache.known(spot.spot, &"ann".into(), 31_000), None, "expired");
        assert_eq!(cache.known(spot.spot, &"gus".into(), 32_000), None, "unknown answers expire sooner");
        cache.keep(spot, &"ann".into(), Sees::No, 31_000, LIFE_MS);
        assert_eq!(cache.known(spot.spot, &"ann".into(), 31_001), Some(Sees::No));
    }

    #[test]
    fn people_who_come_and_go_do_not_disable_the_cache_for_others() {
        let cache = VisibilityCache::default();
        let (spot, other) = (cache.asked(spot("t", "p", "b", "c")), cache.asked(spot("t", "p", "b", "elsewhere")));
        cache.keep(spot, &"ann".into(), Sees::Yes, 0, LIFE_MS);
        cache.keep(spot, &"eve".into(), Sees::No, 0, LIFE_MS);
        cache.forget_viewer("p", &"b".into(), &"c".into(), &"eve".into());
        assert_eq!(
            (cache.known(spot.spot, &"ann".into(), 1), cache.known(spot.spot, &"eve".into(), 1)),
            (Some(Sees::Yes), None)
        );
        cache.keep(spot, &"eve".into(), Sees::No, 0, LIFE_MS);
        assert_eq!(cache.known(spot.spot, &"eve".into(), 1), None, "the answer was requested before the change");
        cache.keep(other, &"ann".into(), Sees::Yes, 0, LIFE_MS);
        assert_eq!(cache.known(other.spot, &"ann".into(), 1), Some(Sees::Yes), "nothing changed there");
        cache.forget_viewer("p", &"b".into(), &"c".into(), &"ann".into());
        cache.forget_viewer("p", &"b".into(), &"elsewhere".into(), &"ann".into());
        assert!(cache.cached().by_tenant.values().all(|it| it.chats.is_empty()), "chats without answers are forgotten");
    }

    #[test]
    fn an_answer_requested_before_a_change_is_not_stored() {
        let cache = VisibilityCache::default();
        let asked = cache.asked(spot("t", "p", "b", "c"));
        cache.keep(asked, &"ann".into(), Sees::Yes, 0, LIFE_MS);
        cache.forget(&"t".into(), "p", &"b".into(), &"c".into());
        assert_eq!(cache.known(asked.spot, &"ann".into(), 1), None);
        cache.keep(asked, &"ann".into(), Sees::Yes, 1, LIFE_MS); // requested before the change
        assert_eq!(cache.known(asked.spot, &"ann".into(), 2), None);
        let again = cache.asked(spot("t", "p", "b", "c"));
        cache.keep(again, &"ann".into(), Sees::No, 2, LIFE_MS);
        assert_eq!(cache.known(again.spot, &"ann".into(), 3), Some(Sees::No));
    }

    #[test]
    fn a_change_of_one_bot_leaves_what_is_known_of_others() {
        let cache = VisibilityCache::default();
        let places = [("t", "p", "b", "c"), ("t", "p", "b", "d"), ("t", "p", "b2", "c"), ("t", "p2", "b", "c")];
        let spots = places.map(|(tenant, platform, bot, chat)| cache.asked(spot(tenant, platform, bot, chat)));
        let keep = |spots: [VisibilityLookup<'_>; 4]| {
            for (spot, viewer) in spots.into_iter().flat_map(|spot| [(spot, "ann"), (spot, "eve")]) {
                cache.keep(spot, &viewer.into(), Sees::Yes, 0, LIFE_MS);
            }
        };
        let known = |viewer: &str| spots.map(|spot| cache.known(spot.spot, &viewer.into(), 1).is_some());
        keep(spots);
        cache.forget_person("p", &"b".into(), &"eve".into());
        assert_eq!((known("ann"), known("eve")), ([true; 4], [false, false, true, true]));
        keep(spots);
        assert_eq!(known("eve"), [false, false, true, true], "these answers were requested before the change");
        cache.forget_bot("p", &"b".into());
        assert_eq!((known("ann"), known("eve")), ([false, false, true, true], [false, false, true, true]));
        keep(places.map(|(tenant, platform, bot, chat)| cache.asked(spot(tenant, platform, bot, chat))));
        assert_eq!((known("ann"), known("eve")), ([true; 4], [true; 4]));
        let cached = cache.cached();
        assert_eq!((cached.answers, cached.by_tenant["t"].answers), (8, 8));
    }

    #[test]
    fn it_is_bounded_and_a_tenant_with_many_chats_drops_its_own() {
        let cache = VisibilityCache::default();
        let counted = || {
            let cached = cache.cached();
            let all = cached.by_tenant.values().flat_map(|it| it.chats.values().flatten());
            let really = all.map(|chat| chat.viewers.len()).sum::<usize>();
            assert_eq!(cached.answers, really);
            really
        };
        cache.keep(cache.asked(spot("other", "p", "b", "c")), &"eve".into(), Sees::Yes, 0, LIFE_MS);
        let one = spot("t", "p", "b", "c");
        for viewer in 0..TENANT_MAX {
            cache.keep(cache.asked(one), &viewer.to_string().into(), Sees::Yes, 0, LIFE_MS);
        }
        for chat in 0..TENANT_MAX {
            cache.keep(cache.asked(spot("t", "p", "b", &chat.to_string())), &"ann".into(), Sees::Yes, 0, LIFE_MS);
        }
        assert!(counted() <= TENANT_MAX + 1);
        assert_eq!(cache.known(spot("other", "p", "b", "c"), &"eve".into(), 1), Some(Sees::Yes));
        for tenant in 0..=ALL_MAX / 1_000 {
            let one = spot(&format!("t{tenant}"), "p", "b", "c");
            for viewer in 0..1_000 {
                cache.keep(cache.asked(one), &viewer.to_string().into(), Sees::Yes, 0, LIFE_MS);
            }
        }
        assert!(counted() <= ALL_MAX);
        cache.forget_chat("p", &"b".into(), &"c".into());
        assert_eq!(counted(), 0, "of every tenant");
    }
}
