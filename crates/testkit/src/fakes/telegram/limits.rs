//! Rate limits as a pure model that is told the time: per chat, per group and per bot.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

/// `burst` at once, then one every `every_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    pub burst: u64,
    pub every_ms: u64,
}

/// At most `count` in any `within_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    pub count: usize,
    pub within_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub enabled: bool,
    pub chat: Rate,
    pub group: Window,
    pub bot: Rate,
}

impl Default for Limits {
    /// About what the vendor's documents say: a message a second in a chat, 20 a minute in a group, 30 a second per bot.
    fn default() -> Self {
        Self {
            enabled: true,
            chat: Rate { burst: 3, every_ms: 1_000 },
            group: Window { count: 20, within_ms: 60_000 },
            bot: Rate { burst: 30, every_ms: 34 },
        }
    }
}

impl Limits {
    pub fn off() -> Self {
        Self { enabled: false, ..Self::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Bucket {
    Chat(i64, i64),
    Bot(i64),
}

/// What a call takes from the limits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) bot: i64,
    /// The chat that messages go to, and how many.
    pub(super) chat: Option<(i64, u64)>,
    pub(super) is_group: bool,
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The time at which a bucket would be empty again (the generic cell rate algorithm).
    full_until_ms: HashMap<Bucket, u64>,
    /// When the latest messages of a bot to a group were sent.
    sent_ms: HashMap<(i64, i64), VecDeque<u64>>,
}

impl Meter {
    /// Takes the load, or says after how many seconds it would be accepted. A refused call takes nothing.
    pub(super) fn take(&mut self, now_ms: u64, limits: &Limits, load: Load) -> Result<(), u64> {
        if !limits.enabled {
            return Ok(());
        }
        let mut wanted = vec![(Bucket::Bot(load.bot), limits.bot, load.chat.map_or(1, |(_, count)| count))];
        if let Some((chat, count)) = load.chat {
            wanted.push((Bucket::Chat(load.bot, chat), limits.chat, count));
        }
        let group = load.chat.filter(|_| load.is_group).map(|(chat, count)| ((load.bot, chat), count));
        let group_ms = group.map(|(key, count)| self.group_wait_ms(now_ms, limits.group, key, count));
        let wait_ms = wanted.iter().map(|(bucket, rate, count)| self.wait_ms(now_ms, bucket, *rate, *count));
        let wait_ms = wait_ms.chain(group_ms).max();
        if let Some(wait_ms @ 1..) = wait_ms {
            return Err(wait_ms.div_ceil(1_000));
        }
        for (bucket, rate, count) in wanted {
            let until = self.full_until_ms.entry(bucket).or_insert(now_ms);
            *until = (*until).max(now_ms) + rate.every_ms * count;
        }
        if let Some((key, count)) = group {
            self.sent_ms.entry(key).or_default().extend((0..count).map(|_| now_ms));
        }
        Ok(())
    }

    fn group_wait_ms(&mut self, now_ms: u64, window: Window, key: (i64, i64), count: u64) -> u64 {
        let sent = self.sent_ms.entry(key).or_default();
        while sent.front().is_some_and(|at| at + window.within_ms <= now_ms) {
            sent.pop_front();
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(window.count);
        let over = (sent.len() + count).saturating_sub(window.count);
        let blocking = over.checked_sub(1).and_then(|at| sent.get(at));
        blocking.map_or(0, |at| at + window.within_ms - now_ms)
    }

    fn wait_ms(&self, now_ms: u64, bucket: &Bucket, rate: Rate, count: u64) -> u64 {
        let until = self.full_until_ms.get(bucket).copied().unwrap_or(now_ms).max(now_ms);
        // More at once than the burst (an album) is accepted by a bucket that is empty.
        let room_ms = rate.every_ms * rate.burst.max(count);
        (until + rate.every_ms * count).saturating_sub(now_ms + room_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(chat: i64, is_group: bool) -> Load {
        Load { bot: 1, chat: Some((chat, 1)), is_group }
    }

    #[test]
    fn a_chat_takes_a_burst_and_then_one_a_second() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        for _ in 0..3 {
            assert_eq!(meter.take(5_000, &limits, load(7, false)), Ok(()));
        }
        assert_eq!(meter.take(5_000, &limits, load(7, false)), Err(1));
        assert_eq!(meter.take(5_000, &limits, load(8, false)), Ok(()));
        assert_eq!(meter.take(6_000, &limits, load(7, false)), Ok(()));
        assert_eq!(meter.take(6_000, &limits, load(7, false)), Err(1));
        assert_eq!(meter.take(6_000, &Limits::off(), load(7, false)), Ok(()));
    }

    #[test]
    fn a_group_takes_twenty_a_minute() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        for second in 0..20 {
            assert_eq!(meter.take(second * 1_000, &limits, load(-7, true)), Ok(()), "{second}");
        }
        assert_eq!(meter.take(20_000, &limits, load(-7, true)), Err(40));
        assert_eq!(meter.take(20_000, &limits, load(-8, true)), Ok(()), "another group");
        assert_eq!(meter.take(60_000, &limits, load(-7, true)), Ok(()));
        assert_eq!(meter.take(60_500, &limits, load(-7, true)), Err(1));
    }

    #[test]
    fn a_bot_takes_thirty_a_second_over_all_chats() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        let accepted = (0..100).filter(|chat| meter.take(0, &limits, load(*chat, false)).is_ok()).count();
        assert_eq!(accepted, 30);
    }

    #[test]
    fn an_album_larger_than_the_burst_is_accepted_when_nothing_waits() {
        let (mut meter, limits) = (Meter::default(), Limits::default());
        let album = Load { bot: 1, chat: Some((7, 10)), is_group: false };
        assert_eq!(meter.take(0, &limits, album), Ok(()));
        assert_eq!(meter.take(0, &limits, load(7, false)), Err(8));
    }
}
