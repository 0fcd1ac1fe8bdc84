//! Fragments of events, kept until the event is complete. Example: a vendor delivers an album one photo per request, and
//! sends the next photo only after the last request was answered.
//!
//! A group is open until a server claims it. A claim fixes its fragments, so that every attempt makes the same event,
//! and a later fragment begins another group.

use frontdesk_wire::{BotId, ChatId};

use super::stored::Stored;

/// How long the id of a joined fragment is remembered: a vendor whose request was not answered sends it again.
pub const JOINED_KEPT_MS: u64 = 2 * 24 * 3_600_000;
/// Limits for unjoined fragments of one bot.
pub const FRAGMENTS_MAX: usize = 1_000;
pub const FRAGMENTS_MAX_BYTES: usize = 16 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    pub platform: String,
    pub bot: BotId,
    /// The chat. A message that arrives later in it is stored after the group.
    pub chat_id: ChatId,
    /// Identifies the event among all events of the bot.
    pub group: String,
    /// Identifies the fragment among all fragments of the bot.
    pub id: String,
    pub at_ms: u64,
    pub sealed: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    New,
    /// It was stored before.
    Known,
    /// The limit of the bot is reached; the fragment was not stored.
    Full,
}

/// The fragments of one group, in the order in which they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub number: u64,
    pub fragments: Vec<Fragment>,
}

/// The groups of a bot that are complete because another message came in their chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatGroups {
    pub platform: String,
    pub bot: BotId,
    pub chat_id: ChatId,
    /// Except this one.
    pub but: Option<String>,
}

pub trait Fragments: Send + Sync {
    fn hold(&self, fragment: Fragment) -> Stored<'_, Held>;

    /// Claims the open groups of a chat. Those that were claimed and not joined come first: their claimer may have
    /// failed, and making an event twice does no harm.
    fn claim_chat(&self, groups: ChatGroups, now_ms: u64) -> Stored<'_, Vec<Claim>>;

    /// Claims some open groups that got nothing after `quiet_since_ms`, and again those that were claimed up to
    /// `claimed_until_ms` and never joined. Times after `now_ms` count as long ago: a clock was set back. Forgets joined
    /// ones after their time. `true`: there are some that are not joined.
    fn claim_quiet(&self, quiet_since_ms: u64, claimed_until_ms: u64, now_ms: u64) -> Stored<'_, (Vec<Claim>, bool)>;

    /// An event was made from them.
    fn joined(&self, claim: u64) -> Stored<'_, ()>;
}
