//! The parts in which a bot listens, where its vendor spreads the events of one bot over several connections.

use std::fmt;

use super::{Bot, ListenEnd};
use crate::port::BoxFuture;

/// More connections of one bot are refused.
pub const PARTS_MAX: u32 = 256;

/// One of the connections of a bot. Each has a duty and a cursor of its own, so that servers share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// From 0.
    pub index: u32,
    pub count: u32,
}

impl Part {
    /// The bot listens with one connection, as most do.
    pub const WHOLE: Self = Self { index: 0, count: 1 };

    pub fn is_whole(self) -> bool {
        self.count <= 1
    }

    pub fn all(count: u32) -> impl Iterator<Item = Self> {
        (0..count.max(1)).map(move |index| Self { index, count: count.max(1) })
    }

    /// The text for people, with the connection that it is about.
    pub fn describe(self, text: &str) -> String {
        if self.is_whole() {
            text.to_owned()
        } else {
            format!("connection {} of {}: {text}", self.index + 1, self.count)
        }
    }
}

/// Counted from 1: `2/4`.
impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index + 1, self.count)
    }
}

/// How many parts a bot has. It is saved where the cursor of the only part would be, so that one write changes the
/// count and the positions of the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub count: u32,
    /// The count changes to this one: the parts of the old count stop, and none begins.
    pub next: Option<u32>,
}

impl Layout {
    pub const WHOLE: Self = Self { count: 1, next: None };

    /// Anything else is the cursor of the only part.
    pub fn read(saved: Option<&str>) -> Self {
        let found = saved.and_then(|saved| saved.strip_prefix(MARK)).and_then(|counts| {
            let (count, next) = counts.split_once('>').map_or((counts, None), |(count, next)| (count, Some(next)));
            let number = |text: &str| text.parse().ok().filter(|count| (1..=PARTS_MAX).contains(count));
            Some(Self { count: number(count)?, next: next.map_or(Some(None), |next| number(next).map(Some))? })
        });
        found.unwrap_or(Self::WHOLE)
    }

    pub fn text(self) -> String {
        let next = self.next.map_or_else(String::new, |next| format!(">{next}"));
        format!("{MARK}{}{next}", self.count)
    }

    /// What the holder of the duty of the whole bot does if the platform wants `count` parts. `Err`: why the bot cannot
    /// listen.
    pub fn step(self, count: u32) -> Result<LayoutStep, String> {
        if !(1..=PARTS_MAX).contains(&count) {
            return Err(format!("the platform wants {count} connections, and this server opens 1 to {PARTS_MAX}"));
        }
        Ok(match self == (Self { count, next: None }) {
            false => LayoutStep::Change,
            true if count == 1 => LayoutStep::Listen,
            true => LayoutStep::Keep,
        })
    }

    /// What is saved before the number changes to `count`, so that the parts stop. The only part of a bot has the duty
    /// itself and has stopped: its cursor is saved again, so that no earlier holder of the duty can change it from here on.
    pub fn announce(self, count: u32, cursor: Option<String>) -> Option<String> {
        match self.count {
            1 => cursor,
            now => Some(Self { count: now, next: Some(count) }.text()),
        }
    }

    /// Whether this part may listen.
    pub fn has(self, part: Part) -> bool {
        self.next.is_none() && self.count == part.count
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutStep {
    /// The bot has one part, which listens under the duty of the whole.
    Listen,
    /// The parts listen; the platform is asked again later.
    Keep,
    /// The parts stop, and their cursors are divided.
    Change,
}

/// No cursor of a platform with parts begins so.
const MARK: &str = "parts:";

/// A platform whose vendor spreads the events of one bot over several connections.
pub trait Partitioned: Send + Sync {
    /// How many parts the bot should have. It has `now`; `cursor` is that of its only part, if there is one part. A change
    /// interrupts all of them, so the answer should not change without need. `Err`: why it cannot listen.
    fn count<'a>(&'a self, bot: &'a Bot, now: u32, cursor: Option<&'a str>) -> BoxFuture<'a, Result<u32, ListenEnd>>;

    /// The first cursors of the new parts, given the cursors of all old ones: events that the old parts have not stored
    /// must be found by the new ones.
    fn divide(&self, cursors: &[Option<String>], count: u32) -> Vec<String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_parts_is_changed_step_by_step() {
        let four = Layout { count: 4, next: None };
        assert_eq!(Layout::WHOLE.step(1), Ok(LayoutStep::Listen));
        assert_eq!((four.step(4), four.step(1)), (Ok(LayoutStep::Keep), Ok(LayoutStep::Change)));
        assert_eq!(
            Layout { next: Some(4), ..four }.step(4),
            Ok(LayoutStep::Change),
            "a change that was begun is finished"
        );
        for count in [0, PARTS_MAX + 1] {
            assert!(four.step(count).unwrap_err().contains("connections"));
        }
        assert_eq!(four.announce(2, Some("c".into())), Some("parts:4>2".into()));
        assert_eq!(Layout::WHOLE.announce(2, Some("c".into())), Some("c".into()));
        assert_eq!(Layout::WHOLE.announce(2, None), None);
    }

    #[test]
    fn a_layout_is_read_as_it_was_written() {
        for layout in [Layout { count: 4, next: None }, Layout { count: 4, next: Some(1) }] {
            assert_eq!(Layout::read(Some(&layout.text())), layout);
            assert_eq!(layout.has(Part { index: 1, count: 4 }), layout.next.is_none());
            assert!(!layout.has(Part { index: 1, count: 2 }));
        }
        for cursor in [None, Some("17"), Some("{\"parts\":2}"), Some("parts:x"), Some("parts:0"), Some("parts:4>0")] {
            assert_eq!(Layout::read(cursor), Layout::WHOLE, "{cursor:?}");
        }
    }

    #[test]
    fn a_part_is_named_only_where_there_are_several() {
        assert_eq!(Part::WHOLE.describe("lost"), "lost");
        assert_eq!(Part { index: 1, count: 4 }.describe("lost"), "connection 2 of 4: lost");
        assert_eq!(Part::all(3).map(|part| part.to_string()).collect::<Vec<_>>(), ["1/3", "2/3", "3/3"]);
    }
}
