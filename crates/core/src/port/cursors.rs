//! Where each bot's listener goes on after a restart.

use super::stored::Stored;

/// A cursor is the platform's own text: an update id, a sequence with its session, a sync token.
pub trait Cursors: Send + Sync {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>>;
    /// `None` forgets it.
    fn save_cursor(&self, platform: String, bot: String, cursor: Option<String>) -> Stored<'_, ()>;
}
