//! Actions of agents and their results.

use frontdesk_core::port::store::{Closing, DeskNo, Journal, JournalEntry, Outcome, Stored};
use frontdesk_wire::{BotId, TenantId};
use tokio_postgres::Row;

use super::text::{given, kept};
use super::{Clock, PostgresStore, signed, signed_all, unsigned};
use crate::read_queue::SERVER;

macro_rules! columns {
    () => {
        "id, tenant, instance, platform, bot, chat_id, op, at_ms, outcome, parts, cursor, note, desk"
    };
}

const ADD_RECEIPT: &str = "INSERT INTO journal_receipt (platform, bot, receipt_id, entry)
                           SELECT platform, bot, $2, id FROM journal WHERE id = $1
                           ON CONFLICT (platform, bot, receipt_id) DO UPDATE SET entry = excluded.entry";

impl Journal for PostgresStore {
    fn open_entry(&self, it: JournalEntry, receipt_id: Option<String>) -> Stored<'_, u64> {
        self.worker.write(async move |connection| {
            let sql = "INSERT INTO journal
                         (tenant, instance, platform, bot, chat_id, op, at_ms, outcome, parts, cursor, note, desk)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, 'open', $8, 0, '', $9) RETURNING id";
            let (tenant, instance, platform) = (kept(&it.tenant), kept(&it.instance), kept(&it.platform));
            let (bot, chat_id, op) = (kept(&it.bot), kept(&it.chat_id), kept(&it.op));
            let (at_ms, parts, desk) = (signed(it.at_ms), i64::from(it.parts), signed(it.desk));
            let row = connection
                .query_one(sql, &[&tenant, &instance, &platform, &bot, &chat_id, &op, &at_ms, &parts, &desk])
                .await?;
            let id: i64 = row.get(0);
            if let Some(receipt_id) = &receipt_id {
                connection.execute(ADD_RECEIPT, &[&id, &kept(receipt_id)]).await?;
            }
            Ok(unsigned(id))
        })
    }

    fn close_entry(&self, id: u64, closing: Closing) -> Stored<'_, bool> {
        self.worker.write(async move |connection| {
            let sql = "UPDATE journal SET outcome = $2, cursor = $3, note = $4
                       WHERE id = $1 AND outcome IN ('open', 'unknown')";
            let (cursor, note) = (i64::from(closing.cursor), kept(&closing.note));
            let closed = connection.execute(sql, &[&signed(id), &name(closing.outcome), &cursor, &note]).await?;
            Ok(closed > 0)
        })
    }

    fn add_receipt(&self, id: u64, receipt_id: String) -> Stored<'_, ()> {
        self.worker.write(async move |connection| {
            connection.execute(ADD_RECEIPT, &[&signed(id), &kept(&receipt_id)]).await.map(drop)
        })
    }

    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>> {
        let [platform, bot, receipt_id, note] = [platform, bot.as_str(), receipt_id, note].map(str::to_owned);
        self.worker.write(async move |connection| {
            let sql = "SELECT entry FROM journal_receipt WHERE platform = $1 AND bot = $2 AND receipt_id = $3";
            let found = connection.query_opt(sql, &[&kept(&platform), &kept(&bot), &kept(&receipt_id)]).await?;
            let Some(id) = found.map(|row| row.get::<_, i64>(0)) else { return Ok(None) };
            // A failure counts whatever was known; a success only where the outcome of the one message was unknown.
            // The same report may come again, and then adds nothing.
            let sql = "UPDATE journal SET outcome = $2, note = CASE
                         WHEN strpos(note, $3) > 0 THEN note WHEN note = '' THEN $3 ELSE note || '; ' || $3 END
                       WHERE id = $1 AND ($2 <> 'delivered' OR (outcome = 'unknown' AND parts = 1))";
            connection.execute(sql, &[&id, &name(outcome), &kept(&note)]).await?;
            let sql = concat!("SELECT ", columns!(), " FROM journal WHERE id = $1");
            Ok(connection.query_opt(sql, &[&id]).await?.as_ref().map(entry))
        })
    }

    fn entry_of_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_ids: Vec<String>,
    ) -> Stored<'a, Option<JournalEntry>> {
        let [platform, bot] = [platform, bot.as_str()].map(str::to_owned);
        self.worker.read(SERVER, async move |connection| {
            let sql = concat!(
                "SELECT ",
                columns!(),
                " FROM journal WHERE id =
                   (SELECT entry FROM journal_receipt WHERE platform = $1 AND bot = $2 AND receipt_id = $3)"
            );
            for receipt_id in &receipt_ids {
                let found = connection.query_opt(sql, &[&kept(&platform), &kept(&bot), &kept(receipt_id)]).await?;
                if found.is_some() {
                    return Ok(found.as_ref().map(entry));
                }
            }
            Ok(None)
        })
    }

    fn mark_open_entries_unknown(&self, live: Vec<DeskNo>) -> Stored<'_, u64> {
        // A server that enlisted after the list was made is live as well; only the database's clock can tell.
        let by_lease = self.clock == Clock::Database;
        self.worker.write(async move |connection| {
            let note = "the server stopped before the platform answered";
            let sql = "UPDATE journal SET outcome = 'unknown', note = $1 WHERE id IN (
                         SELECT id FROM journal j WHERE outcome = 'open' AND desk <> ALL($2) AND NOT ($3 AND EXISTS (
                           SELECT 1 FROM desk WHERE number = j.desk
                           AND lease_until_ms > (extract(epoch FROM clock_timestamp()) * 1000)::bigint))
                         ORDER BY id FOR UPDATE)";
            connection.execute(sql, &[&note, &signed_all(&live), &by_lease]).await
        })
    }

    fn entries<'a>(&'a self, tenant: Option<&'a TenantId>, limit: usize) -> Stored<'a, Vec<JournalEntry>> {
        let tenant = tenant.map(ToString::to_string);
        self.worker.read(SERVER, async move |connection| {
            let limit = signed(limit as u64);
            let rows = if let Some(tenant) = &tenant {
                // Written so that only the index of tenants gives the order: with `=`, all entries might be walked through.
                let sql = concat!(
                    "SELECT ",
                    columns!(),
                    " FROM journal WHERE tenant BETWEEN $1 AND $1 ORDER BY tenant DESC, id DESC LIMIT $2"
                );
                connection.query(sql, &[&kept(tenant), &limit]).await?
            } else {
                let sql = concat!("SELECT ", columns!(), " FROM journal ORDER BY id DESC LIMIT $1");
                connection.query(sql, &[&limit]).await?
            };
            Ok(rows.iter().map(entry).collect())
        })
    }
}

fn entry(row: &Row) -> JournalEntry {
    let text = |column| given(row.get(column));
    let count = |column| u32::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    let outcome: String = row.get(8);
    JournalEntry {
        id: unsigned(row.get(0)),
        tenant: text(1).into(),
        instance: text(2).into(),
        platform: text(3),
        bot: text(4).into(),
        chat_id: text(5).into(),
        op: text(6),
        at_ms: unsigned(row.get(7)),
        outcome: [Outcome::Open, Outcome::Delivered, Outcome::Rejected]
            .into_iter()
            .find(|known| name(*known) == outcome)
            .unwrap_or(Outcome::Unknown),
        parts: count(9),
        cursor: count(10),
        note: text(11),
        desk: unsigned(row.get(12)),
    }
}

fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Open => "open",
        Outcome::Delivered => "delivered",
        Outcome::Rejected => "rejected",
        Outcome::Unknown => "unknown",
    }
}
