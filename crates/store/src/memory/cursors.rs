//! The position at which each bot's listener continues after a restart.

use frontdesk_core::port::store::{Cursors, StoreError, Stored};

use super::{MemoryStore, now};

impl Cursors for MemoryStore {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>> {
        let found = self.state().cursors.get(&(platform.to_owned(), bot.to_owned())).map(|(_, cursor)| cursor.clone());
        now(found)
    }

    fn save_cursor(&self, platform: String, bot: String, token: u64, cursor: String) -> Stored<'_, ()> {
        let mut state = self.state();
        let saved = state.cursors.entry((platform, bot)).or_default();
        if saved.0 > token {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        *saved = (token, cursor);
        now(())
    }
}
