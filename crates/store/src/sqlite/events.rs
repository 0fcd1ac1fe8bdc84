//! Accepted events, and the chats that they came from.

use frontdesk_core::port::store::{EventRecord, Events, KEYS_MAX, Named, Stored};
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
    ) -> Stored<'a, Named> {
        let (tenant, message_id, chat_id) = (tenant.to_owned(), message_id.to_owned(), chat_id.cloned());
        self.readers.read(of_tenant(&tenant), move |connection| {
            // Text never contains 0xff, so this is above all keys with the prefix.
            let past = [dedup_prefix.as_slice(), &[0xff; 32]].concat();
            // The index has the ids, so only rows of the events themselves are read.
            let sql = "SELECT id FROM event WHERE dedup BETWEEN ?1 AND ?2 LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let ids = query
                .query_map((dedup_prefix, past, signed((KEYS_MAX + 1) as u64)), |row| row.get(0))
                .map_err(fault)?;
            let mut ids: Vec<i64> = ids.collect::<rusqlite::Result<_>>().map_err(fault)?;
            if ids.len() > KEYS_MAX {
                return Ok(Named::TooMany);
            }
            ids.sort_unstable();
            let mut query = connection.prepare_cached(&select_event("id = ?1")).map_err(fault)?;
            for id in ids.into_iter().rev() {
                let Some(it) = query.query_row([id], event_record).optional().map_err(fault)? else { continue };
                let is_meant = it.tenant == tenant && it.message_id == message_id;
                if is_meant && chat_id.as_ref().is_none_or(|chat_id| it.chat_id == *chat_id) {
                    return Ok(Named::Event(it));
                }
            }
            Ok(Named::Absent)
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
