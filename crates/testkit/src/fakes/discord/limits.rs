//! Rate limits as a pure model that is told the time: buckets per route and resource, the global limit of a bot, limits
//! that bots share, and the count of invalid requests.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::faults::Scope;
use super::snowflake::Id;

/// At most `count` in a window that begins with the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub count: u64,
    pub within_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub enabled: bool,
    /// Of a bot over all routes.
    pub global: Window,
    /// By the name of the route, as in the record of calls; each resource (channel, guild, webhook) has its own.
    pub routes: BTreeMap<String, Window>,
    /// Of every other route.
    pub other: Window,
    /// As `routes`, but all bots take from one.
    pub shared: BTreeMap<String, Window>,
    /// Changes of the name of one channel. The headers do not tell of it.
    pub renames: Window,
    /// Answers 401, 403 and 429 of one address before it is banned. A ban is only counted.
    pub invalid: Window,
    /// Commands that may be created for one guild, or globally, in a day.
    pub command_creates_a_day: usize,
}

impl Default for Limits {
    /// As they were observed; the vendor publishes only the global one, that of invalid requests and that of commands.
    fn default() -> Self {
        let routes = [
            ("POST channels/:id/messages", 5, 5_000),
            ("PATCH channels/:id/messages/:id", 5, 5_000),
            ("DELETE channels/:id/messages/:id", 5, 1_000),
            ("PUT channels/:id/messages/:id/reactions/:emoji/@me", 1, 250),
            ("DELETE channels/:id/messages/:id/reactions/:emoji/@me", 1, 250),
            ("POST channels/:id/typing", 5, 5_000),
            ("POST webhooks/:id/:token", 5, 2_000),
        ];
        Self {
            enabled: true,
            global: Window { count: 50, within_ms: 1_000 },
            routes: routes
                .map(|(name, count, within_ms)| (name.to_owned(), Window { count, within_ms }))
                .into_iter()
                .collect(),
            other: Window { count: 30, within_ms: 1_000 },
            shared: BTreeMap::new(),
            renames: Window { count: 2, within_ms: 600_000 },
            invalid: Window { count: 10_000, within_ms: 600_000 },
            command_creates_a_day: 200,
        }
    }
}

impl Limits {
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }
}

/// What a call takes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    /// `None` for the webhooks of interactions, which the global limit does not count.
    pub(super) bot: Option<Id>,
    pub(super) route: &'a str,
    /// The resource that has a bucket of its own.
    pub(super) major: &'a str,
    pub(super) renames: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) scope: Scope,
    pub(super) retry_after_ms: u64,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    count: u64,
    until_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    used: HashMap<String, Used>,
    invalid_ms: VecDeque<u64>,
    bans: u64,
}

impl Meter {
    /// Headers of the answer, and the refusal if a limit is reached. A refused call takes nothing.
    pub(super) fn take(
        &mut self,
        now_ms: u64,
        limits: &Limits,
        load: Load<'_>,
    ) -> (Vec<(String, String)>, Option<Refused>) {
        if !limits.enabled {
            return (Vec::new(), None);
        }
        let Load { bot, route, major, .. } = load;
        let of_bot = bot.unwrap_or_default();
        let window = limits.routes.get(route).copied().unwrap_or(limits.other);
        let own = format!("{of_bot} {route} {major}");
        let mut wanted = vec![(own.clone(), window, Scope::User)];
        if bot.is_some() {
            wanted.push((format!("{of_bot} *"), limits.global, Scope::Global));
        }
        if let Some(shared) = limits.shared.get(route) {
            wanted.push((format!("{route} {major}"), *shared, Scope::Shared));
        }
        if load.renames {
            wanted.push((format!("{of_bot} name {major}"), limits.renames, Scope::User));
        }
        let waits = wanted.iter().filter_map(|(key, window, scope)| {
            let wait_ms = self.wait_ms(now_ms, key, *window)?;
            Some(Refused { scope: *scope, retry_after_ms: wait_ms })
        });
        let refused = waits.max_by_key(|refused| refused.retry_after_ms);
        if refused.is_none() {
            for (key, window, _) in &wanted {
                self.count(now_ms, key, *window);
            }
        }
        (self.headers(now_ms, route, &own, window), refused)
    }

    fn wait_ms(&self, now_ms: u64, key: &str, window: Window) -> Option<u64> {
        let used = self.used.get(key).filter(|used| used.until_ms > now_ms)?;
        (used.count >= window.count).then(|| used.until_ms - now_ms)
    }

    fn count(&mut self, now_ms: u64, key: &str, window: Window) {
        let fresh = Used { count: 0, until_ms: now_ms + window.within_ms };
        let used = self.used.entry(key.to_owned()).or_insert(fresh);
        if used.until_ms <= now_ms {
            *used = fresh;
        }
        used.count += 1;
    }

    fn headers(&self, now_ms: u64, route: &str, key: &str, window: Window) -> Vec<(String, String)> {
        let used = self.used.get(key).filter(|used| used.until_ms > now_ms);
        let (count, until_ms) = used.map_or((0, now_ms + window.within_ms), |used| (used.count, used.until_ms));
        let pairs = [
            ("X-RateLimit-Limit", window.count.to_string()),
            ("X-RateLimit-Remaining", window.count.saturating_sub(count).to_string()),
            ("X-RateLimit-Reset", seconds(until_ms)),
            ("X-RateLimit-Reset-After", seconds(until_ms - now_ms)),
            ("X-RateLimit-Bucket", bucket(route)),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }

    /// Counts an answer that the vendor holds against the address.
    pub(super) fn count_invalid(&mut self, now_ms: u64, limits: &Limits, status: u16, scope: Option<Scope>) {
        if !matches!(status, 401 | 403 | 429) || scope == Some(Scope::Shared) {
            return;
        }
        while self.invalid_ms.front().is_some_and(|at| at + limits.invalid.within_ms <= now_ms) {
            self.invalid_ms.pop_front();
        }
        self.invalid_ms.push_back(now_ms);
        if self.invalid_ms.len() as u64 > limits.invalid.count {
            self.invalid_ms.clear();
            self.bans += 1;
        }
    }

    pub(super) fn invalid(&self) -> usize {
        self.invalid_ms.len()
    }

    /// How often the address would have been banned.
    pub(super) fn bans(&self) -> u64 {
        self.bans
    }
}

pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1_000, ms % 1_000)
}

/// The same for every resource of a route, and meaningless to a reader, as the vendor's are.
fn bucket(route: &str) -> String {
    let hash = route
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    format!("{hash:016x}{:016x}", hash.rotate_left(17))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEND: &str = "POST channels/:id/messages";

    fn load(major: &str) -> Load<'_> {
        Load { bot: Some(1), route: SEND, major, renames: false }
    }

    fn header(headers: &[(String, String)], name: &str) -> String {
        headers.iter().find(|(known, _)| known == name).unwrap().1.clone()
    }

    #[test]
    fn a_bucket_is_refused_until_its_window_ends() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        for left in (0..5).rev() {
            let (headers, refused) = meter.take(1_000, &limits, load("7"));
            assert_eq!((refused, header(&headers, "X-RateLimit-Remaining")), (None, left.to_string()));
            assert_eq!(header(&headers, "X-RateLimit-Reset"), "6.000");
        }
        let (headers, refused) = meter.take(1_500, &limits, load("7"));
        assert_eq!(refused, Some(Refused { scope: Scope::User, retry_after_ms: 4_500 }));
        assert_eq!(header(&headers, "X-RateLimit-Reset-After"), "4.500");
        assert_eq!(meter.take(1_500, &limits, load("8")).1, None, "another channel");
        assert_eq!(meter.take(6_000, &limits, load("7")).1, None);
    }

    #[test]
    fn fifty_a_second_over_all_routes() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        let channels: Vec<String> = (0..60).map(|number| number.to_string()).collect();
        let taken = channels.iter().map(|major| meter.take(0, &limits, load(major)).1);
        let refused: Vec<_> = taken.flatten().collect();
        assert_eq!(refused.len(), 10);
        assert_eq!(refused[0].scope, Scope::Global);
        let webhook = Load { bot: None, route: "POST webhooks/:id/:token", major: "t", renames: false };
        assert_eq!(meter.take(0, &limits, webhook).1, None, "webhooks are not counted globally");
    }

    #[test]
    fn bots_share_what_is_shared() {
        let mut limits = Limits::default();
        limits.shared.insert(SEND.to_owned(), Window { count: 1, within_ms: 1_000 });
        let mut meter = Meter::default();
        assert_eq!(meter.take(0, &limits, load("7")).1, None);
        let other = Load { bot: Some(2), ..load("7") };
        assert_eq!(meter.take(0, &limits, other).1.map(|refused| refused.scope), Some(Scope::Shared));
    }

    #[test]
    fn two_renames_in_ten_minutes() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        let rename = Load { route: "PATCH channels/:id", renames: true, ..load("7") };
        assert_eq!(meter.take(0, &limits, rename).1, None);
        assert_eq!(meter.take(1, &limits, rename).1, None);
        assert_eq!(meter.take(2, &limits, rename).1.map(|refused| refused.retry_after_ms), Some(599_998));
        assert_eq!(meter.take(2, &limits, Load { renames: false, ..rename }).1, None, "other changes");
    }

    #[test]
    fn too_many_invalid_requests_are_a_ban() {
        let mut limits = Limits::default();
        limits.invalid.count = 2;
        let mut meter = Meter::default();
        for status in [401, 200, 404, 403] {
            meter.count_invalid(0, &limits, status, None);
        }
        meter.count_invalid(0, &limits, 429, Some(Scope::Shared));
        assert_eq!((meter.invalid(), meter.bans()), (2, 0));
        meter.count_invalid(1, &limits, 429, Some(Scope::User));
        assert_eq!(meter.bans(), 1);
    }
}
