//! The position at which each bot's listener continues after a restart.

use super::stored::Stored;

/// A cursor is the platform's own text: an update id, a sequence with its session, a sync token. `bot` names a row: the id
/// of the bot, with its part if it has several.
pub trait Cursors: Send + Sync {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>>;
    /// `token` belongs to the duty to listen as this bot and part. `Conflict`: a later holder of the duty saved a cursor.
    fn save_cursor(&self, platform: String, bot: String, token: u64, cursor: String) -> Stored<'_, ()>;
}
