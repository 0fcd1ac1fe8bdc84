//! When the list of commands of a bot is declared at its platform. No I/O: the caller passes lists, results
//! and the time.
//!
//! A list is declared when it has stayed the same for a while, so that agents that connect one after another cause one
//! call. Vendors limit how often a list may change, so calls that succeed are spaced as well.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::port::platform::{Bot, Command, PlatformBot};

/// A list that did not change for this long is declared.
const SETTLED_MS: u64 = 10_000;
/// A list that keeps changing is declared as it is after this time.
const UNSETTLED_MAX_MS: u64 = 60_000;
/// The least time between two calls of one bot that succeed.
const SPACING_MS: u64 = 300_000;
/// The pause after the first failure; it doubles with each further one.
const RETRY_MS: u64 = 10_000;
const RETRY_MAX_MS: u64 = 3_600_000;

#[derive(Default)]
pub struct Declarations {
    bots: BTreeMap<PlatformBot, Entry>,
}

struct Entry {
    bot: Arc<Bot>,
    wanted: Arc<[Command]>,
    /// What the platform has, as far as this server knows.
    declared: Option<Arc<[Command]>>,
    due_ms: u64,
    /// Since when the list has been changing.
    unsettled_ms: Option<u64>,
    /// No call before this time, after one that succeeded.
    spaced_until_ms: u64,
    failures: u32,
    is_in_flight: bool,
}

/// A call to make.
#[derive(Debug, Clone)]
pub struct Due {
    pub name: PlatformBot,
    pub bot: Arc<Bot>,
    pub commands: Arc<[Command]>,
}

/// Results that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    Declared,
    /// The first failure in a row. The next ones are not reported.
    Failed {
        again_in_ms: u64,
    },
}

impl Declarations {
    /// All bots with the lists that they should have now. Returns the bots that are gone.
    pub fn want(&mut self, all: Vec<(PlatformBot, Arc<Bot>, Vec<Command>)>, now_ms: u64) -> Vec<PlatformBot> {
        let mut before = std::mem::take(&mut self.bots);
        for (name, bot, wanted) in all {
            let entry = match before.remove(&name) {
                // Another record of the bot may be another account: nothing is known of its list.
                Some(mut entry) if Arc::ptr_eq(&entry.bot, &bot) => {
                    if *entry.wanted != *wanted {
                        entry.wanted = wanted.into();
                        let since_ms = *entry.unsettled_ms.get_or_insert(now_ms);
                        let settled_ms = (now_ms + SETTLED_MS).min(since_ms + UNSETTLED_MAX_MS);
                        // A change does not shorten the pause after a failure.
                        let paused_ms = if entry.failures > 0 { entry.due_ms } else { 0 };
                        entry.due_ms = settled_ms.max(entry.spaced_until_ms).max(paused_ms);
                    }
                    entry
                }
                _ => Entry {
                    bot,
                    wanted: wanted.into(),
                    declared: None,
                    due_ms: now_ms + SETTLED_MS,
                    unsettled_ms: None,
                    spaced_until_ms: 0,
                    failures: 0,
                    is_in_flight: false,
                },
            };
            self.bots.insert(name, entry);
        }
        before.into_keys().collect()
    }

    /// At most so many calls to make now. The caller must report the result of each, or put it off.
    pub fn due(&mut self, now_ms: u64, limit: usize) -> Vec<Due> {
        let ready = |entry: &Entry| {
            !entry.is_in_flight && entry.due_ms <= now_ms && entry.declared.as_ref() != Some(&entry.wanted)
        };
        let ready = self.bots.iter_mut().filter(|(_, entry)| ready(entry)).take(limit);
        let begin = |(name, entry): (&PlatformBot, &mut Entry)| {
            (entry.is_in_flight, entry.unsettled_ms) = (true, None);
            Due { name: name.clone(), bot: entry.bot.clone(), commands: entry.wanted.clone() }
        };
        ready.map(begin).collect()
    }

    /// Another server declares for this bot: it is looked at again later.
    pub fn put_off(&mut self, due: &Due, now_ms: u64) {
        if let Some(entry) = self.entry(due) {
            entry.is_in_flight = false;
            entry.due_ms = now_ms + SETTLED_MS;
        }
    }

    pub fn ended(&mut self, due: &Due, is_declared: bool, now_ms: u64) -> Option<Report> {
        let entry = self.entry(due)?;
        entry.is_in_flight = false;
        let is_current = entry.wanted == due.commands;
        if is_declared {
            entry.declared = Some(due.commands.clone());
            entry.failures = 0;
            entry.spaced_until_ms = now_ms + SPACING_MS;
            entry.due_ms = entry.due_ms.max(entry.spaced_until_ms);
            return Some(Report::Declared);
        }
        // The list at the platform is unknown now.
        entry.declared = None;
        let again_in_ms = (RETRY_MS << entry.failures.min(16)).min(RETRY_MAX_MS);
        entry.due_ms = (now_ms + again_in_ms).max(entry.due_ms);
        entry.failures += u32::from(is_current);
        (entry.failures <= 1).then_some(Report::Failed { again_in_ms })
    }

    /// The entry, unless the bot was changed or removed since the call began.
    fn entry(&mut self, due: &Due) -> Option<&mut Entry> {
        self.bots.get_mut(&due.name).filter(|entry| Arc::ptr_eq(&entry.bot, &due.bot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bot() -> Arc<Bot> {
        Arc::new(Bot::bare("b"))
    }

    fn want(plan: &mut Declarations, bot: &Arc<Bot>, names: &[&str], now_ms: u64) -> Vec<PlatformBot> {
        let commands = names.iter().map(|name| Command::new(*name, "")).collect();
        plan.want(vec![(("p".into(), "b".into()), bot.clone(), commands)], now_ms)
    }

    /// The names that a call would declare now.
    fn due(plan: &mut Declarations, now_ms: u64) -> Option<(Due, Vec<String>)> {
        let due = plan.due(now_ms, 9).pop()?;
        let names = due.commands.iter().map(|command| command.name.clone()).collect();
        Some((due, names))
    }

    #[test]
    fn a_list_is_declared_once_it_stayed_the_same() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        want(&mut plan, &bot, &["a", "b"], 6_000);
        want(&mut plan, &bot, &["a", "b"], 9_000);
        assert!(due(&mut plan, 15_999).is_none());
        let (call, names) = due(&mut plan, 16_000).unwrap();
        assert_eq!(names, ["a", "b"]);
        assert!(due(&mut plan, 90_000).is_none(), "one call at a time");
        assert_eq!(plan.ended(&call, true, 17_000), Some(Report::Declared));
        assert!(due(&mut plan, 9_000_000).is_none(), "nothing changed");
    }

    #[test]
    fn calls_that_succeed_are_spaced_and_a_change_that_is_taken_back_needs_none() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        let (call, _) = due(&mut plan, 10_000).unwrap();
        plan.ended(&call, true, 10_000);
        want(&mut plan, &bot, &["b"], 20_000);
        assert!(due(&mut plan, 309_999).is_none());
        want(&mut plan, &bot, &["a"], 100_000);
        assert!(due(&mut plan, 400_000).is_none(), "the platform has it");
        want(&mut plan, &bot, &["c"], 400_000);
        assert_eq!(due(&mut plan, 410_000).unwrap().1, ["c"]);
    }

    #[test]
    fn a_list_that_keeps_changing_is_declared_nevertheless() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        let declared = (1..20).find(|round| {
            want(&mut plan, &bot, if round % 2 == 0 { &["a"] } else { &["b"] }, round * 9_000);
            due(&mut plan, round * 9_000).is_some()
        });
        assert_eq!(declared, Some(8), "a minute after its first change");
    }

    #[test]
    fn a_change_does_not_shorten_the_pause_after_a_failure() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        let (call, _) = due(&mut plan, 10_000).unwrap();
        plan.ended(&call, false, 10_000);
        let (call, _) = due(&mut plan, 20_000).unwrap();
        plan.ended(&call, false, 20_000);
        want(&mut plan, &bot, &["b"], 21_000);
        assert!(due(&mut plan, 39_999).is_none());
        assert_eq!(due(&mut plan, 40_000).unwrap().1, ["b"]);
    }

    #[test]
    fn failures_are_retried_with_growing_pauses_and_reported_once() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        let (mut now_ms, mut pauses, mut reports) = (10_000, Vec::new(), 0);
        for _ in 0..12 {
            let (call, _) = due(&mut plan, now_ms).unwrap();
            reports += usize::from(plan.ended(&call, false, now_ms).is_some());
            let began_ms = now_ms;
            while due(&mut plan, now_ms).map(|(call, _)| plan.put_off_for_test(&call)).is_none() {
                now_ms += 10_000;
            }
            pauses.push((now_ms - began_ms) / 1_000);
        }
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600]);
        assert_eq!(reports, 1);
        let (call, _) = due(&mut plan, now_ms).unwrap();
        assert_eq!(plan.ended(&call, true, now_ms), Some(Report::Declared));
        want(&mut plan, &bot, &["b"], now_ms + 300_000);
        let (call, _) = due(&mut plan, now_ms + 310_000).unwrap();
        assert_eq!(plan.ended(&call, false, 0), Some(Report::Failed { again_in_ms: 10_000 }), "a new trouble");
    }

    #[test]
    fn a_list_that_changed_during_a_call_is_declared_next() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        let (call, _) = due(&mut plan, 10_000).unwrap();
        want(&mut plan, &bot, &["b"], 11_000);
        plan.ended(&call, true, 12_000);
        assert!(due(&mut plan, 311_999).is_none());
        assert_eq!(due(&mut plan, 312_000).unwrap().1, ["b"]);
    }

    #[test]
    fn a_changed_bot_begins_anew_and_a_removed_one_is_named() {
        let (mut plan, old, new) = (Declarations::default(), bot(), bot());
        want(&mut plan, &old, &["a"], 0);
        let (call, _) = due(&mut plan, 10_000).unwrap();
        want(&mut plan, &new, &["a"], 11_000);
        assert_eq!(plan.ended(&call, true, 12_000), None, "it was for the old one");
        assert_eq!(due(&mut plan, 21_000).unwrap().1, ["a"]);
        assert_eq!(plan.want(Vec::new(), 30_000), [("p".to_owned(), "b".into())]);
        assert!(due(&mut plan, 90_000).is_none());
    }

    #[test]
    fn a_bot_of_another_desk_is_looked_at_again() {
        let (mut plan, bot) = (Declarations::default(), bot());
        want(&mut plan, &bot, &["a"], 0);
        let (call, _) = due(&mut plan, 10_000).unwrap();
        plan.put_off(&call, 10_000);
        assert!(due(&mut plan, 19_999).is_none());
        assert_eq!(due(&mut plan, 20_000).unwrap().1, ["a"]);
    }

    impl Declarations {
        /// Only looked whether it was due.
        fn put_off_for_test(&mut self, due: &Due) {
            self.bots.get_mut(&due.name).unwrap().is_in_flight = false;
        }
    }
}
