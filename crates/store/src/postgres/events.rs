//! Accepted events, and the chats that they came from.

use frontdesk_core::port::store::{EventRecord, Events, KEYS_MAX, Named, Stored};
use frontdesk_wire::{BotId, ChatId, EventId, MessageId, TenantId};
use tokio_postgres::Row;

use super::connection::{Connection, Fault, Param};
use super::text::{kept, text_at};
use super::{PostgresStore, signed, unsigned};
use crate::read_queue::{SERVER, of_tenant};

impl Events for PostgresStore {
    fn event(&self, event: EventId) -> Stored<'_, Option<EventRecord>> {
        self.worker.read(SERVER, async move |connection| one_event(connection, "id = $1", &[&signed(event)]).await)
    }

    fn event_named<'a>(
        &'a self,
        tenant: &'a TenantId,
        dedup_prefix: Vec<u8>,
        message_id: &'a MessageId,
        chat_id: Option<&'a ChatId>,
    ) -> Stored<'a, Named> {
        let (tenant, message_id) = (kept(tenant).into_owned(), kept(message_id).into_owned());
        let chat_id = chat_id.map(|chat_id| kept(chat_id).into_owned());
        self.worker.read(of_tenant(&tenant), async move |connection| {
            // Text never contains 0xff, so this is above all keys with the prefix.
            let past = [dedup_prefix.as_slice(), &[0xff; 32]].concat();
            let sql = "WITH keys AS MATERIALIZED (SELECT id FROM event WHERE dedup BETWEEN $1 AND $2 LIMIT $3)
                       SELECT count(*) FROM keys";
            let most = i64::try_from(KEYS_MAX).unwrap_or(i64::MAX);
            let keys: i64 = connection.query_one(sql, &[&dedup_prefix, &past, &(most + 1)]).await?.get(0);
            if keys > most {
                return Ok(Named::TooMany);
            }
            let which = "dedup BETWEEN $1 AND $2 AND tenant = $3 AND message_id = $4
                         AND ($5::text IS NULL OR chat_id = $5) ORDER BY id DESC LIMIT 1";
            let found = one_event(connection, which, &[&dedup_prefix, &past, &tenant, &message_id, &chat_id]).await?;
            Ok(found.map_or(Named::Absent, Named::Event))
        })
    }

    fn events_marked<'a>(&'a self, tenant: &'a TenantId, dedups: Vec<Vec<u8>>) -> Stored<'a, Vec<Option<EventRecord>>> {
        self.worker.read(of_tenant(tenant), async move |connection| {
            let sql = "SELECT id, tenant, at_ms, chat_id, message_id, verdict, dedup FROM event WHERE dedup = ANY($1)";
            let rows = connection.query(sql, &[&dedups]).await?;
            let found = |dedup: &Vec<u8>| rows.iter().find(|row| row.get::<_, &[u8]>(6) == dedup).map(event_record);
            Ok(dedups.iter().map(found).collect())
        })
    }

    fn reached<'a>(
        &'a self,
        tenant: &'a TenantId,
        platform: &'a str,
        bot: &'a BotId,
        chat_id: &'a ChatId,
    ) -> Stored<'a, bool> {
        let place = [tenant, platform, bot, chat_id].map(|part| kept(part).into_owned());
        self.worker.read(of_tenant(tenant), async move |connection| {
            let sql = "SELECT 1 FROM reach WHERE tenant = $1 AND platform = $2 AND bot = $3 AND chat_id = $4";
            let [tenant, platform, bot, chat_id] = &place;
            Ok(connection.query_opt(sql, &[tenant, platform, bot, chat_id]).await?.is_some())
        })
    }
}

async fn one_event(connection: &Connection, which: &str, params: &[Param<'_>]) -> Result<Option<EventRecord>, Fault> {
    let sql = format!("SELECT id, tenant, at_ms, chat_id, message_id, verdict FROM event WHERE {which}");
    Ok(connection.query_opt(&sql, params).await?.as_ref().map(event_record))
}

fn event_record(row: &Row) -> EventRecord {
    EventRecord {
        event: unsigned(row.get(0)),
        tenant: text_at(row, 1).into(),
        at_ms: unsigned(row.get(2)),
        chat_id: text_at(row, 3).into(),
        message_id: text_at(row, 4).into(),
        verdict: text_at(row, 5),
    }
}
