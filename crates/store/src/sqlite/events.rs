//! Accepted events, and the chats that they came from.

use frontdesk_core::port::store::{EventRecord, Events, KEYS_PER_TURN, Stored};
use frontdesk_wire::{BotId, ChatId, EventId, MessageId, TenantId};
use rusqlite::{OptionalExtension as _, Row};

use super::{SqliteStore, fault, signed, text_at, unsigned};
use crate::read_queue::{SERVER, of_tenant};

impl Events for SqliteStore {
    fn event(&self, event: EventId) -> Stored<'_, Option<EventRecord>> {
        self.readers.read(SERVER, move |connection| {
            let mut query = connection.prepare_cached(&select_event("id = ?1")).map_err(fault)?;
            query.query_row([signed(event)], event_record).optional().map_err(fault)
        })
    }

    fn event_named<'a>(
        &'a self,
        tenant: &'a TenantId,
        dedup_prefix: Vec<u8>,
        message_id: &'a MessageId,
        chat_id: Option<&'a ChatId>,
    ) -> Stored<'a, Option<EventRecord>> {
        Box::pin(async move {
            // Text never contains 0xff, so this is above all keys with the prefix.
            let past = [dedup_prefix.as_slice(), &[0xff; 32]].concat();
            let (mut newest, mut from) = (None, Some(dedup_prefix));
            while let Some(key) = from {
                let (past, message_id) = (past.clone(), message_id.to_string());
                let (owner, chat_id) = (tenant.to_string(), chat_id.map(ToString::to_string));
                let part = self.readers.read(of_tenant(tenant), move |connection| {
                    let sql = "SELECT dedup, id, tenant = ?4 AND message_id = ?5 AND (?6 IS NULL OR chat_id = ?6)
                               FROM event WHERE dedup >= ?1 AND dedup < ?2 ORDER BY dedup LIMIT ?3";
                    let mut query = connection.prepare_cached(sql).map_err(fault)?;
                    let which = (key, past, signed(KEYS_PER_TURN as u64), owner, message_id, chat_id);
                    let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                    let rows = query.query_map(which, row).map_err(fault)?;
                    rows.collect::<rusqlite::Result<Vec<(Vec<u8>, i64, bool)>>>().map_err(fault)
                });
                let part = part.await?;
                let meant = part.iter().filter(|(_, _, is_meant)| *is_meant).map(|(_, id, _)| *id);
                newest = newest.into_iter().chain(meant).max();
                // The next key is the last one with a zero byte behind it.
                from =
                    part.last().filter(|_| part.len() == KEYS_PER_TURN).map(|(key, ..)| [key, [0].as_slice()].concat());
            }
            match newest {
                Some(id) => self.event(unsigned(id)).await,
                None => Ok(None),
            }
        })
    }

    fn events_marked<'a>(&'a self, tenant: &'a TenantId, dedups: Vec<Vec<u8>>) -> Stored<'a, Vec<Option<EventRecord>>> {
        self.readers.read(of_tenant(tenant), move |connection| {
            let mut query = connection.prepare_cached(&select_event("dedup = ?1")).map_err(fault)?;
            let mut one = |key: Vec<u8>| query.query_row([key], event_record).optional().map_err(fault);
            dedups.into_iter().map(&mut one).collect()
        })
    }

    fn reached<'a>(
        &'a self,
        tenant: &'a TenantId,
        platform: &'a str,
        bot: &'a BotId,
        chat_id: &'a ChatId,
    ) -> Stored<'a, bool> {
        let place = [tenant.as_str(), platform, bot.as_str(), chat_id.as_str()].map(str::to_owned);
        self.readers.read(of_tenant(tenant), move |connection| {
            let sql = "SELECT 1 FROM reach WHERE tenant = ?1 AND platform = ?2 AND bot = ?3 AND chat_id = ?4";
            connection.prepare_cached(sql).and_then(|mut query| query.exists(place)).map_err(fault)
        })
    }
}

fn select_event(which: &str) -> String {
    format!("SELECT id, tenant, at_ms, chat_id, message_id, verdict FROM event WHERE {which}")
}

fn event_record(row: &Row<'_>) -> rusqlite::Result<EventRecord> {
    Ok(EventRecord {
        event: unsigned(row.get(0)?),
        tenant: text_at(row, 1)?.into(),
        at_ms: unsigned(row.get(2)?),
        chat_id: text_at(row, 3)?.into(),
        message_id: text_at(row, 4)?.into(),
        verdict: row.get(5)?,
    })
}
