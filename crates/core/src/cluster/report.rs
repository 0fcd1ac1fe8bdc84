//! What a server reports of itself in the store, so that other servers can show it.

use frontdesk_wire::BotId;
use serde::{Deserialize, Serialize};

use crate::directory::ListenerFailure;

/// Listeners that are reported, and the length of each reason.
const LISTENERS_MAX: usize = 100;
const WHY_MAX_CHARS: usize = 300;

/// Servers of other versions read it: fields may be missing, or be more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeskReport {
    /// It does not receive its own hints.
    pub is_cut_off: bool,
    pub listeners: Vec<FailingListener>,
}

/// A listener of a bot that ended by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailingListener {
    pub platform: String,
    pub bot: BotId,
    pub why: String,
    pub at_ms: u64,
    pub is_final: bool,
}

impl DeskReport {
    pub(crate) fn new(is_cut_off: bool, failing: Vec<(String, BotId, ListenerFailure)>) -> Self {
        let listener = |(platform, bot, failure): (String, BotId, ListenerFailure)| {
            let why = failure.why.chars().take(WHY_MAX_CHARS).collect();
            FailingListener { platform, bot, why, at_ms: failure.at_ms, is_final: failure.is_final }
        };
        Self { is_cut_off, listeners: failing.into_iter().take(LISTENERS_MAX).map(listener).collect() }
    }

    /// One that cannot be read counts as empty.
    pub(crate) fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
