//! Where each bot's listener goes on after a restart.

use frontdesk_core::port::store::{Cursors, Stored};
use rusqlite::OptionalExtension as _;

use super::readers::DESK;
use super::threads::Books;
use super::{SqliteStore, fault};

impl Cursors for SqliteStore {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>> {
        let key = (platform.to_owned(), bot.to_owned());
        self.readers.read(DESK, move |connection| {
            let sql = "SELECT value FROM cursor WHERE platform = ?1 AND bot = ?2";
            connection.query_row(sql, key, |row| row.get(0)).optional().map_err(fault)
        })
    }

    fn save_cursor(&self, platform: String, bot: String, cursor: Option<String>) -> Stored<'_, ()> {
        let work = move |books: &mut Books| {
            let saved = if let Some(cursor) = cursor {
                let sql = "INSERT INTO cursor (platform, bot, value) VALUES (?1, ?2, ?3)
                           ON CONFLICT DO UPDATE SET value = excluded.value";
                books.connection.execute(sql, (platform, bot, cursor))
            } else {
                books.connection.execute("DELETE FROM cursor WHERE platform = ?1 AND bot = ?2", (platform, bot))
            };
            saved.map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }
}
