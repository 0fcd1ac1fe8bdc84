//! Which other servers send as a bot at the moment. The budget of the bot is divided by their number.
//!
//! A server that uses a bot sends a hint to all others at once and then every second. One whose last hint is too old
//! does not count. While no hints arrive, every live server counts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_wire::{BotId, DeskNo};

use crate::base::Base;
use crate::env::Env;
use crate::lease::Lease;
use crate::port::bus::{Bus, Hint, To};
use crate::port::platform::PlatformBot;

/// Interval of hints about a bot in use.
const HINT_MS: u64 = 1_000;
/// How long a hint is valid.
const HINT_TTL_MS: u64 = 3_000;
/// At this number of bots, unused ones are removed.
const BOTS_MAX: usize = 4_096;

pub(super) struct Sharing {
    env: Arc<dyn Env>,
    lease: Arc<Lease>,
    bus: Arc<dyn Bus>,
    /// By platform and bot.
    bots: Mutex<HashMap<PlatformBot, Users>>,
}

/// Times on the steady clock.
#[derive(Default)]
struct Users {
    announced_ms: Option<u64>,
    others: HashMap<DeskNo, u64>,
}

impl Users {
    fn is_used(&self, now_ms: u64) -> bool {
        let is_young = |at_ms: &u64| now_ms.saturating_sub(*at_ms) < HINT_TTL_MS;
        self.announced_ms.as_ref().is_some_and(is_young) || self.others.values().any(is_young)
    }
}

impl Sharing {
    pub(super) fn new(base: &Base) -> Self {
        let (env, lease, bus) = (base.env.clone(), base.lease.clone(), base.bus.clone());
        Self { env, lease, bus, bots: Mutex::default() }
    }

    /// This server uses the bot now. Returns how many servers do.
    pub(super) fn servers(&self, platform: &str, bot: &BotId) -> u32 {
        if self.lease.is_alone() {
            return 1;
        }
        let now_ms = self.env.steady_ms();
        let count = self.with(platform, bot, now_ms, |users| {
            if users.announced_ms.is_none_or(|at_ms| now_ms.saturating_sub(at_ms) >= HINT_MS) {
                users.announced_ms = Some(now_ms);
                let hint = Hint::Sending(self.lease.me(), platform.to_owned(), bot.clone());
                self.bus.send(To::All, hint);
            }
            users.others.retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < HINT_TTL_MS);
            users.others.len() + 1
        });
        let count = if self.lease.is_cut_off() { self.lease.live().len() } else { count };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Another server uses it.
    pub(super) fn note_use(&self, desk: DeskNo, platform: &str, bot: &BotId) {
        if desk != self.lease.me() {
            let now_ms = self.env.steady_ms();
            self.with(platform, bot, now_ms, |users| users.others.insert(desk, now_ms));
        }
    }

    fn with<T>(&self, platform: &str, bot: &BotId, now_ms: u64, change: impl FnOnce(&mut Users) -> T) -> T {
        let mut bots = self.bots.lock().unwrap_or_else(PoisonError::into_inner);
        if bots.len() >= BOTS_MAX {
            bots.retain(|_, users| users.is_used(now_ms));
        }
        change(bots.entry((platform.to_owned(), bot.clone())).or_default())
    }
}
