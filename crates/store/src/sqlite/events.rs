//! Accepted events, and the chats that they came from.

use frontdesk_core::port::store::{EventRecord, Events, Stored};
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
        let (tenant, message_id) = (tenant.to_owned(), message_id.to_owned());
        let chat_id = chat_id.map(ToString::to_string);
        self.readers.read(of_tenant(&tenant), move |connection| {
            // Text never contains 0xff, so this is above all keys with the prefix.
            let past = [dedup_prefix.as_slice(), &[0xff; 32]].concat();
            let sql = select_event(
                "dedup BETWEEN ?1 AND ?2 AND tenant = ?3 AND message_id = ?4 AND (?5 IS NULL OR chat_id = ?5)
                 ORDER BY id DESC LIMIT 1",
            );
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            let found =
                query.query_row((dedup_prefix, past, tenant.as_str(), message_id.as_str(), chat_id), event_record);
            found.optional().map_err(fault)
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
