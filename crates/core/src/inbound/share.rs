//! Which parts of a bot this server listens to while others are live: at first as many as its share, others only if no
//! server takes them. A server that has more for a while gives one away, so that one that was started later gets its
//! share.
//!
//! Example: a bot of Discord has 4 shards, and a second server starts. The first one has 4, and its share is 2 now: after 30 s
//! it gives one away, which the second one takes, and 30 s later another one.

use std::collections::{HashMap, HashSet};

use frontdesk_wire::BotId;

use crate::port::platform::{Part, PlatformBot};

/// How long a part beyond this server's share is left for other servers.
const LEFT_MS: u64 = 5_000;
/// A server that has more than its share gives one part away after this time.
const GIVE_AFTER_MS: u64 = 30_000;
/// Maximum of that time. It is doubled each time no other server takes the part.
const GIVE_AFTER_MAX_MS: u64 = 3_600_000;

/// A part of a bot, which one server at a time listens to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartName {
    pub platform: String,
    pub bot: BotId,
    /// For a bot with several parts, the whole does not listen; its holder manages the number of parts.
    pub part: Part,
}

impl PartName {
    /// The name of the duty. The part is placed where no bot id can be, so the name is unique.
    pub fn duty(&self) -> String {
        let Self { platform, bot, part } = self;
        if part.is_whole() { format!("listen {platform} {bot}") } else { format!("listen {part} {platform} {bot}") }
    }

    #[must_use]
    pub fn with(&self, part: Part) -> Self {
        Self { part, ..self.clone() }
    }

    pub fn is_same_bot(&self, other: &Self) -> bool {
        self.platform == other.platform && self.bot == other.bot
    }
}

/// Times are on the steady clock.
#[derive(Default)]
pub struct Share {
    /// Parts that are left to the others, since when.
    left: HashMap<PartName, u64>,
    /// Parts that were given away.
    given: HashSet<PartName>,
    /// Bots of which this server may have more than its share.
    over: HashMap<PlatformBot, Over>,
}

struct Over {
    since_ms: Option<u64>,
    give_after_ms: u64,
}

/// The number of parts that each of the live servers should have.
fn share(count: u32, live: usize) -> usize {
    (count as usize).div_ceil(live.max(1))
}

fn bot_of(name: &PartName) -> PlatformBot {
    (name.platform.clone(), name.bot.clone())
}

impl Share {
    /// Whether to try to take this part. `held`: parts of the bot that this server has.
    pub fn may_take(&mut self, name: &PartName, held: usize, live: usize, now_ms: u64) -> bool {
        if name.part.is_whole() {
            return true;
        }
        if held < share(name.part.count, live) && !self.given.contains(name) {
            self.left.remove(name);
            return true;
        }
        let since_ms = *self.left.entry(name.clone()).or_insert(now_ms);
        let is_due = now_ms.saturating_sub(since_ms) >= LEFT_MS || live <= 1;
        if is_due {
            self.left.remove(name);
        }
        is_due
    }

    /// Reports whether the part was taken.
    pub fn tried(&mut self, name: &PartName, is_taken: bool) {
        if self.given.remove(name)
            && let Some(over) = self.over.get_mut(&bot_of(name))
        {
            let longer_ms = if is_taken { over.give_after_ms * 2 } else { GIVE_AFTER_MS };
            over.give_after_ms = longer_ms.min(GIVE_AFTER_MAX_MS);
        }
    }

    /// Whether to give this part away. `held`: parts of the bot that this server has.
    pub fn gives(&mut self, name: &PartName, held: usize, live: usize, now_ms: u64) -> bool {
        let over = self.over.entry(bot_of(name)).or_insert(Over { since_ms: None, give_after_ms: GIVE_AFTER_MS });
        if held <= share(name.part.count, live) {
            over.since_ms = None;
            return false;
        }
        let since_ms = *over.since_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(since_ms) < over.give_after_ms {
            return false;
        }
        over.since_ms = None;
        self.given.insert(name.clone());
        true
    }

    /// Forgets parts that are not wanted any more.
    pub fn forget_others(&mut self, is_wanted: impl Fn(&PartName) -> bool) {
        self.left.retain(|name, _| is_wanted(name));
        self.given.retain(&is_wanted);
        let part_of = |(platform, bot): &PlatformBot| PartName {
            platform: platform.clone(),
            bot: bot.clone(),
            part: Part::WHOLE,
        };
        self.over.retain(|bot, _| is_wanted(&part_of(bot)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(index: u32) -> PartName {
        PartName { platform: "p".into(), bot: "b".into(), part: Part { index, count: 5 } }
    }

    #[test]
    fn what_is_more_than_a_share_is_left_to_others_for_a_while() {
        let mut share = Share::default();
        assert!(share.may_take(&part(0).with(Part::WHOLE), 9, 2, 0));
        assert!(share.may_take(&part(2), 2, 2, 0) && !share.may_take(&part(3), 3, 2, 0));
        assert!(!share.may_take(&part(3), 3, 2, LEFT_MS - 1));
        assert!(share.may_take(&part(3), 3, 2, LEFT_MS), "nobody took it");
        assert!(!share.may_take(&part(3), 3, 2, LEFT_MS), "then it waits again");
        assert!(share.may_take(&part(3), 3, 1, LEFT_MS), "alone");
    }

    #[test]
    fn one_is_given_away_after_a_while_and_later_if_nobody_takes_it() {
        let (mut share, step) = (Share::default(), GIVE_AFTER_MS);
        assert!(!share.gives(&part(4), 5, 2, 0) && !share.gives(&part(2), 3, 2, 0));
        assert!(!share.gives(&part(4), 5, 2, step), "it had its share in between");
        assert!(share.gives(&part(4), 5, 2, 2 * step), "it is given");
        assert!(!share.gives(&part(3), 4, 2, 2 * step), "one after another");
        assert!(!share.may_take(&part(4), 0, 2, 2 * step), "not at once");
        let now_ms = 2 * step + LEFT_MS;
        assert!(share.may_take(&part(4), 4, 2, now_ms));
        share.tried(&part(4), true);
        assert!(!share.gives(&part(4), 5, 2, now_ms + step));
        assert!(share.gives(&part(4), 5, 2, now_ms + 2 * step), "twice as late, because nobody took it");
        let now_ms = now_ms + 2 * step;
        share.tried(&part(4), false);
        share.gives(&part(3), 4, 2, now_ms);
        assert!(share.gives(&part(3), 4, 2, now_ms + step), "somebody took the last one");
    }
}
