//! The position at which each bot's listener continues after a restart.

use frontdesk_core::port::store::{Cursors, StoreError, Stored};

use super::text::{given, kept};
use super::{PostgresStore, signed};
use crate::read_queue::SERVER;

impl Cursors for PostgresStore {
    fn cursor<'a>(&'a self, platform: &'a str, bot: &'a str) -> Stored<'a, Option<String>> {
        let [platform, bot] = [platform, bot].map(str::to_owned);
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT value FROM cursor WHERE platform = $1 AND bot = $2";
            let found = connection.query_opt(sql, &[&kept(&platform), &kept(&bot)]).await?;
            Ok(found.map(|row| given(row.get(0))))
        })
    }

    fn save_cursor(&self, platform: String, bot: String, token: u64, cursor: String) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            let sql = "INSERT INTO cursor AS c (platform, bot, token, value) VALUES ($1, $2, $3, $4)
                       ON CONFLICT (platform, bot) DO UPDATE SET token = excluded.token, value = excluded.value
                       WHERE c.token <= excluded.token";
            let token = signed(token);
            match connection.execute(sql, &[&kept(&platform), &kept(&bot), &token, &kept(&cursor)]).await? {
                0 => Err(StoreError::Conflict.into()),
                _ => Ok(()),
            }
        })
    }
}
