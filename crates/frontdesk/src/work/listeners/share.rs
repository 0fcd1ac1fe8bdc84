//! Which parts of a bot this desk takes while others are live: at first as many as are its share, the others only if nobody
//! takes them. A desk that has more for a while gives one away, so that a desk that was started later gets its share.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Name;

/// How long a part is left to the others.
const SPARE: Duration = Duration::from_secs(5);
/// How long a desk has more than its share before it gives one part away.
const GIVE_AFTER: Duration = Duration::from_secs(30);
/// That time is doubled if nobody takes what is given, up to this.
const GIVE_AFTER_MAX: Duration = Duration::from_hours(1);

#[derive(Default)]
pub(super) struct Share {
    /// Parts that are left to the others, since when.
    left: HashMap<Name, Instant>,
    /// Parts that were given away.
    given: HashSet<Name>,
    /// (platform, bot) of which this desk has more than its share.
    over: HashMap<(String, String), Over>,
}

struct Over {
    since: Option<Instant>,
    give_after: Duration,
}

/// Of `count` parts.
fn share(count: u32, live: usize) -> usize {
    (count as usize).div_ceil(live.max(1))
}

fn bot_of(name: &Name) -> (String, String) {
    (name.platform.clone(), name.bot.clone())
}

impl Share {
    /// Whether to try to take this part, of whose bot the desk has so many.
    pub(super) fn may_take(&mut self, name: &Name, held: usize, live: usize) -> bool {
        if name.part.is_whole() {
            return true;
        }
        if held < share(name.part.count, live) && !self.given.contains(name) {
            self.left.remove(name);
            return true;
        }
        let since = *self.left.entry(name.clone()).or_insert_with(Instant::now);
        let is_due = since.elapsed() >= SPARE || live <= 1;
        if is_due {
            self.left.remove(name);
        }
        is_due
    }

    /// It was tried.
    pub(super) fn tried(&mut self, name: &Name, is_taken: bool) {
        if self.given.remove(name)
            && let Some(over) = self.over.get_mut(&bot_of(name))
        {
            let longer = if is_taken { over.give_after * 2 } else { GIVE_AFTER };
            over.give_after = longer.min(GIVE_AFTER_MAX);
        }
    }

    /// Whether to give this part away. The desk has so many of its bot.
    pub(super) fn gives(&mut self, name: &Name, held: usize, live: usize) -> bool {
        let over = self.over.entry(bot_of(name)).or_insert(Over { since: None, give_after: GIVE_AFTER });
        if held <= share(name.part.count, live) {
            over.since = None;
            return false;
        }
        let since = *over.since.get_or_insert_with(Instant::now);
        if since.elapsed() < over.give_after {
            return false;
        }
        over.since = None;
        self.given.insert(name.clone());
        true
    }

    /// Parts that are not wanted any more.
    pub(super) fn forget_others(&mut self, is_wanted: impl Fn(&Name) -> bool) {
        self.left.retain(|name, _| is_wanted(name));
        self.given.retain(&is_wanted);
        let part_of = |(platform, bot): &(String, String)| Name {
            platform: platform.clone(),
            bot: bot.clone(),
            part: frontdesk_core::port::platform::Part::WHOLE,
        };
        self.over.retain(|bot, _| is_wanted(&part_of(bot)));
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_core::port::platform::Part;
    use tokio::time::advance;

    use super::*;

    fn part(index: u32) -> Name {
        Name { platform: "p".into(), bot: "b".into(), part: Part { index, count: 5 } }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_more_than_a_share_is_left_to_others_for_a_while() {
        let mut share = Share::default();
        assert!(share.may_take(&part(0).with(Part::WHOLE), 9, 2));
        assert!(share.may_take(&part(2), 2, 2) && !share.may_take(&part(3), 3, 2));
        advance(SPARE).await;
        assert!(share.may_take(&part(3), 3, 2), "nobody took it");
        assert!(!share.may_take(&part(3), 3, 2), "then it waits again");
        assert!(share.may_take(&part(3), 3, 1), "alone");
    }

    #[tokio::test(start_paused = true)]
    async fn one_is_given_away_after_a_while_and_later_if_nobody_takes_it() {
        let mut share = Share::default();
        assert!(!share.gives(&part(4), 5, 2) && !share.gives(&part(2), 3, 2));
        advance(GIVE_AFTER).await;
        assert!(!share.gives(&part(4), 5, 2), "it had its share in between");
        advance(GIVE_AFTER).await;
        assert!(share.gives(&part(4), 5, 2) && !share.gives(&part(3), 4, 2), "one after another");
        assert!(!share.may_take(&part(4), 0, 2), "not at once");
        advance(SPARE).await;
        assert!(share.may_take(&part(4), 4, 2));
        share.tried(&part(4), true);
        advance(GIVE_AFTER).await;
        assert!(!share.gives(&part(4), 5, 2));
        advance(GIVE_AFTER).await;
        assert!(share.gives(&part(4), 5, 2));
        share.tried(&part(4), false);
        share.gives(&part(3), 4, 2);
        advance(GIVE_AFTER).await;
        assert!(share.gives(&part(3), 4, 2), "somebody took the last one");
    }
}
