//! Accepted events, and the chats that they came from.

use frontdesk_core::port::store::{EventRecord, Events, KEYS_PER_TURN, Stored};
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
    ) -> Stored<'a, Option<EventRecord>> {
        Box::pin(async move {
            // Text never contains 0xff, so this is above all keys with the prefix.
            let past = [dedup_prefix.as_slice(), &[0xff; 32]].concat();
            let (mut newest, mut from) = (None, Some(dedup_prefix));
            while let Some(key) = from {
                let (past, message_id) = (past.clone(), kept(message_id).into_owned());
                let (owner, chat_id) = (kept(tenant).into_owned(), chat_id.map(|chat_id| kept(chat_id).into_owned()));
                let part = self.worker.read(of_tenant(tenant), async move |connection| {
                    let sql = "SELECT dedup, id, tenant = $4 AND message_id = $5 AND ($6::text IS NULL OR chat_id = $6)
                               FROM event WHERE dedup >= $1 AND dedup < $2 ORDER BY dedup LIMIT $3";
                    let limit = signed(KEYS_PER_TURN as u64);
                    let rows = connection.query(sql, &[&key, &past, &limit, &owner, &message_id, &chat_id]).await?;
                    let part = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)));
                    Ok(part.collect::<Vec<(Vec<u8>, i64, bool)>>())
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
