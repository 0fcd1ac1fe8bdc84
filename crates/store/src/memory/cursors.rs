//! Where each bot's listener goes on after a restart.

use frontdesk_core::port::store::{Cursors, Stored};

use super::{MemoryStore, now};

impl Cursors for MemoryStore {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>> {
        now(self.state().cursors.get(&(platform.to_owned(), bot.to_owned())).cloned())
    }

    fn save_cursor(&self, platform: String, bot: String, cursor: Option<String>) -> Stored<'_, ()> {
        let mut state = self.state();
        match cursor {
            Some(cursor) => state.cursors.insert((platform, bot), cursor),
            None => state.cursors.remove(&(platform, bot)),
        };
        now(())
    }
}
