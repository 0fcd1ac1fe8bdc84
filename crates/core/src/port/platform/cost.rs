//! What an action takes from the rate limits of its platform, and what the platform reports about them.

use frontdesk_wire::{Act, Action, ActionResult};

/// Which of several waiting actions goes first. The order of the variants is the order of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    Text,
    Prompt,
    Edit,
    Reaction,
    Typing,
}

impl Priority {
    pub const ALL: [Self; 5] = [Self::Text, Self::Prompt, Self::Edit, Self::Reaction, Self::Typing];

    pub fn of(act: &Act) -> Self {
        match act {
            Act::Prompt { .. } => Self::Prompt,
            Act::Edit { .. } | Act::Draft { .. } | Act::Delete { .. } | Act::ThreadRename { .. } => Self::Edit,
            Act::React { .. } => Self::Reaction,
            Act::Typing { .. } => Self::Typing,
            _ => Self::Text,
        }
    }
}

/// A token bucket: `burst` actions at once, then one every `every_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    pub burst: u32,
    pub every_ms: u64,
}

impl Rate {
    fn divided(self, by: u32) -> Self {
        let by = by.max(1);
        Self { burst: (self.burst / by).max(1), every_ms: self.every_ms.saturating_mul(by.into()) }
    }
}

/// What one action takes from its bot's budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cost {
    pub priority: Priority,
    /// Budgets that it takes one token from, by name: `("chat:42", Rate { .. })`.
    pub buckets: Vec<(String, Rate)>,
    /// Names of those that are of the whole bot: servers that use it at the same time divide them.
    pub of_bot: Vec<String>,
    /// Useless when it is late: it is dropped instead of waiting long.
    pub droppable: bool,
    /// A later action with the same key replaces this one while it waits.
    pub replaces: Option<String>,
}

impl Cost {
    /// By the kind of action alone, without a budget.
    pub fn of(action: &Action) -> Self {
        let priority = Priority::of(&action.act);
        let replaces = replaces(&action.act);
        Self { priority, buckets: Vec::new(), of_bot: Vec::new(), droppable: priority == Priority::Typing, replaces }
    }

    /// A budget of the whole bot.
    #[must_use]
    pub fn in_bot_bucket(mut self, name: impl Into<String>, rate: Rate) -> Self {
        let name = name.into();
        self.of_bot.push(name.clone());
        self.in_bucket(name, rate)
    }

    /// The share of one of so many servers that use the bot.
    #[must_use]
    pub fn divided(mut self, servers: u32) -> Self {
        for (_, rate) in self.buckets.iter_mut().filter(|(name, _)| self.of_bot.contains(name)) {
            *rate = rate.divided(servers);
        }
        self
    }

    /// A budget of a chat or the like, which one server uses at a time.
    #[must_use]
    pub fn in_bucket(mut self, name: impl Into<String>, rate: Rate) -> Self {
        self.buckets.push((name.into(), rate));
        self
    }
}

/// Edits of one message, and previews of one draft: only the latest counts. A final draft is not replaced.
pub fn replaces(act: &Act) -> Option<String> {
    match act {
        Act::Edit { chat_id, message_id, .. } => Some(format!("edit {}:{chat_id}{message_id}", chat_id.len())),
        Act::Draft { chat_id, draft_id, sealed: false, .. } => {
            Some(format!("draft {}:{chat_id}{draft_id}", chat_id.len()))
        }
        _ => None,
    }
}

/// What a platform's answer says about its rate limits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pace {
    /// Refused for its rate, and nothing was sent: try again after this time.
    pub retry_after_ms: Option<u64>,
    /// The bucket that is meant. `None`: the whole bot.
    pub bucket: Option<String>,
    /// No action of that bucket before this time has passed, although this one was sent.
    pub pause_ms: Option<u64>,
}

/// The result of an action, and the reported rate limits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Acted {
    pub result: ActionResult,
    pub pace: Pace,
    /// The id under which the vendor reports the outcome later, if it does.
    pub receipt_id: Option<String>,
}

impl From<ActionResult> for Acted {
    fn from(result: ActionResult) -> Self {
        Self { result, ..Self::default() }
    }
}
