//! Single rows of the ledger: listed, ended and put in again.

use std::sync::Arc;

use frontdesk_core::port::store::{MadeRow, Mail, MailLog, MailState, NewRow, Position, StoreError, Stored};
use frontdesk_wire::{InstanceNo, Seq, SessionNo};
use tokio_postgres::Row;

use super::connection::{Connection, Fault};
use super::heads::{lock_positions, read_position, write_positions};
use super::ledger::{delivery, select_mail};
use super::text::{given, kept};
use super::worker::Database;
use super::{PostgresStore, held_media, signed, unsigned};

/// Rows that a listing scans for a rare state, and how many it reads at a time.
const SCAN_MAX: usize = 20_000;
const SCAN_PAGE: usize = 200;

impl MailLog for PostgresStore {
    fn mail(&self, instance: InstanceNo, state: Option<MailState>, before: Seq, limit: usize) -> Stored<'_, Vec<Mail>> {
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let position = read_position(connection, signed(instance)).await?;
            let sql = select_mail("WHERE m.instance = $1 AND m.seq < $2 ORDER BY m.seq DESC LIMIT $3");
            let mut top = if before.is_none() { i64::MAX } else { signed(before) };
            let (mut found, mut scanned) = (Vec::new(), 0);
            while found.len() < limit && scanned < SCAN_MAX {
                let page = signed(SCAN_PAGE.min(limit.max(1)) as u64);
                let rows = connection.query(&sql, &[&signed(instance), &top, &page]).await?;
                let Some(last) = rows.last() else { break };
                top = last.get(0);
                scanned += rows.len();
                let mails = rows.iter().map(|row| mail_of(row, instance, &position));
                found.extend(mails.filter(|mail| state.is_none_or(|wanted| wanted == mail.state)));
            }
            found.truncate(limit);
            Ok(found)
        })
    }

    fn mail_row(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Mail>> {
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let position = read_position(connection, signed(instance)).await?;
            let found = one_mail(connection, instance, seq).await?;
            Ok(found.map(|row| mail_of(&row, instance, &position)))
        })
    }

    fn drop_mail(
        &self,
        instance: InstanceNo,
        seq: Seq,
        session: Option<SessionNo>,
        reason: String,
    ) -> Stored<'_, bool> {
        self.worker.write(async move |connection| {
            // Locked, so that no other session begins before this is written.
            let sql = "SELECT last_seq, session FROM head WHERE instance = $1 FOR SHARE";
            let head = connection.query_opt(sql, &[&signed(instance)]).await?;
            let (last, serving): (Seq, SessionNo) =
                head.map(|row| (unsigned(row.get(0)), unsigned(row.get(1)))).unwrap_or_default();
            if session.is_some_and(|session| session != serving) {
                return Err(StoreError::Conflict.into());
            }
            let mut positions = lock_positions(connection, &[signed(instance)]).await?;
            for position in positions.values_mut() {
                if position.settled(seq) || seq > last {
                    return Ok(false);
                }
                position.merge(&Position { above: vec![seq], ..Position::default() });
            }
            write_positions(connection, &positions).await?;
            let sql = "UPDATE mail SET reason = $3 WHERE instance = $1 AND seq = $2";
            let changed = connection.execute(sql, &[&signed(instance), &signed(seq), &kept(&reason)]).await?;
            Ok(changed == 1)
        })
    }

    fn replay_mail(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Seq>> {
        let listeners = self.listeners.clone();
        self.worker.ask(async move |database: &Database| {
            // In turn with what is accepted, so that rows are reported in the order of their commits.
            let _turn = database.ledger_turn.lock().await;
            let work = async |connection: &Connection| replay(connection, instance, seq).await;
            let Some(new) = database.ledger.transaction(work).await? else { return Ok(None) };
            let seq = new.row.seq;
            listeners.rows_committed(&[new]);
            Ok(Some(seq))
        })
    }
}

/// The same delivery as a new row at the end.
async fn replay(connection: &Connection, instance: InstanceNo, seq: Seq) -> Result<Option<NewRow>, Fault> {
    let Some(row) = one_mail(connection, instance, seq).await? else { return Ok(None) };
    let mut found = delivery(&row);
    let copy = "INSERT INTO event (id, dedup, attempt, tenant, at_ms, passthrough, platform, bot, chat_id, session_key,
                                   message_id, json, verdict)
                SELECT nextval('event_number'), decode(replace(gen_random_uuid()::text, '-', ''), 'hex'), 0, tenant, at_ms,
                       passthrough, platform, bot, chat_id, session_key, message_id, $2, verdict
                FROM event WHERE id = $1 RETURNING id";
    let event: i64 = connection.query_one(copy, &[&signed(found.event), &kept(&found.json)]).await?.get(0);
    found.event = unsigned(event);
    let head = "UPDATE head SET last_seq = last_seq + 1 WHERE instance = $1 RETURNING last_seq, desk";
    let head = connection.query_one(head, &[&signed(instance)]).await?;
    let new = MadeRow { instance, seq: unsigned(head.get(0)), served_by: unsigned(head.get(1)) };
    let sql = "INSERT INTO mail (instance, seq, event) VALUES ($1, $2, $3)";
    connection.execute(sql, &[&signed(instance), &signed(new.seq), &event]).await?;
    held_media::hold_again(connection, instance, seq, new.seq).await?;
    Ok(Some(NewRow { row: new, delivery: Arc::new(found) }))
}

async fn one_mail(connection: &Connection, instance: InstanceNo, seq: Seq) -> Result<Option<Row>, Fault> {
    let sql = select_mail("WHERE m.instance = $1 AND m.seq = $2");
    connection.query_opt(&sql, &[&signed(instance), &signed(seq)]).await
}

fn mail_of(row: &Row, instance: InstanceNo, position: &Position) -> Mail {
    let seq = unsigned(row.get(0));
    let reason = row.get::<_, Option<String>>(1).map(given);
    let state = match &reason {
        Some(_) => MailState::Dead,
        None if position.settled(seq) => MailState::Acked,
        None if seq <= position.sent => MailState::Sent,
        None => MailState::Accepted,
    };
    Mail { instance, seq, state, reason, delivery: Arc::new(delivery(row)) }
}
