//! The position at which each bot's listener continues after a restart.

use frontdesk_core::port::store::{Cursors, StoreError, Stored};
use rusqlite::OptionalExtension as _;

use super::threads::Books;
use super::{SqliteStore, fault, signed};
use crate::read_queue::SERVER;

impl Cursors for SqliteStore {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>> {
        let key = (platform.to_owned(), bot.to_owned());
        self.readers.read(SERVER, move |connection| {
            let sql = "SELECT value FROM cursor WHERE platform = ?1 AND bot = ?2";
            connection.query_row(sql, key, |row| row.get(0)).optional().map_err(fault)
        })
    }

    fn save_cursor(&self, platform: String, bot: String, token: u64, cursor: String) -> Stored<'_, ()> {
        let work = move |books: &mut Books| {
            let sql = "INSERT INTO cursor (platform, bot, token, value) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT DO UPDATE SET token = excluded.token, value = excluded.value
                       WHERE token <= excluded.token";
            match books.connection.execute(sql, (platform, bot, signed(token), cursor)).map_err(fault)? {
                0 => Err(StoreError::Conflict),
                _ => Ok(()),
            }
        };
        self.writer.write(work, |()| {})
    }
}
