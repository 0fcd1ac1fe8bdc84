//! Single rows of the ledger: listed, ended and put in again.

use std::sync::Arc;

use frontdesk_core::port::store::{Mail, MailLog, MailState, NewRow, Position, StoreError, Stored};
use frontdesk_wire::{InstanceNo, Seq, SessionNo};
use rusqlite::{OptionalExtension as _, Row};

use super::heads::read_position;
use super::ledger::{Made, append, delivery, select_mail, write_position};
use super::threads::Books;
use super::{SqliteStore, fault, held_media, signed, unsigned};

/// Rows that a listing scans for a rare state.
const SCAN_MAX: i64 = 20_000;

impl MailLog for SqliteStore {
    fn mail(&self, instance: InstanceNo, state: Option<MailState>, before: Seq, limit: usize) -> Stored<'_, Vec<Mail>> {
        self.readers.read(self.tenants.of(instance), move |connection| {
            let position = read_position(connection, instance)?;
            let top = if before.is_none() { i64::MAX } else { signed(before) };
            let sql = select_mail(&format!("m.seq < ?2 ORDER BY m.seq DESC LIMIT {SCAN_MAX}"));
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            let mut rows = query.query((signed(instance), top)).map_err(fault)?;
            let mut found = Vec::new();
            while found.len() < limit {
                let Some(row) = rows.next().map_err(fault)? else { break };
                let mail = mail_of(row, instance, &position).map_err(fault)?;
                if state.is_none_or(|wanted| wanted == mail.state) {
                    found.push(mail);
                }
            }
            Ok(found)
        })
    }

    fn mail_row(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Mail>> {
        self.readers.read(self.tenants.of(instance), move |connection| {
            let position = read_position(connection, instance)?;
            let mut query = connection.prepare_cached(&select_mail("m.seq = ?2")).map_err(fault)?;
            let found = query.query_row((signed(instance), signed(seq)), |row| mail_of(row, instance, &position));
            found.optional().map_err(fault)
        })
    }

    fn drop_mail(
        &self,
        instance: InstanceNo,
        seq: Seq,
        session: Option<SessionNo>,
        reason: String,
    ) -> Stored<'_, bool> {
        let work = move |books: &mut Books| {
            let head = books.ledgers.head(&books.connection, instance)?;
            if session.is_some_and(|session| session != head.session) {
                return Err(StoreError::Conflict);
            }
            if head.position.settled(seq) || seq > head.last_seq {
                return Ok(false);
            }
            head.position.merge(&Position { above: vec![seq], ..Position::default() });
            write_position(&books.connection, instance, &head.position)?;
            let sql = "UPDATE mail SET reason = ?3 WHERE instance = ?1 AND seq = ?2";
            let changed = books.connection.execute(sql, (signed(instance), signed(seq), reason)).map_err(fault)?;
            Ok(changed == 1)
        };
        self.writer.write(work, |_| {})
    }

    fn replay_mail(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Seq>> {
        let listeners = self.listeners.clone();
        let work = move |books: &mut Books| {
            let mut query = books.connection.prepare_cached(&select_mail("m.seq = ?2")).map_err(fault)?;
            let found = query.query_row((signed(instance), signed(seq)), delivery).optional().map_err(fault)?;
            drop(query);
            let Some(mut found) = found else { return Ok(Made::default()) };
            // A copy of the event, so that events and rows keep rising together.
            let event = books.ledgers.next_event(&books.connection)?;
            let copy =
                "INSERT INTO event SELECT ?1, randomblob(16), tenant, at_ms, passthrough, platform, bot, chat_id,
                        session_key, message_id, ?3, verdict, 0 FROM event WHERE id = ?2";
            books.connection.execute(copy, (signed(event), signed(found.event), &found.json)).map_err(fault)?;
            found.event = event;
            let row = append(books, instance, event, None)?;
            held_media::hold_again(&books.connection, instance, seq, row.seq)?;
            Ok(Made { accepted: Vec::new(), rows: vec![NewRow { row, delivery: Arc::new(found) }] })
        };
        let answer = self.writer.write(work, move |made: &Made| listeners.rows_committed(&made.rows));
        Box::pin(async move { answer.await.map(|made| made.rows.first().map(|new| new.row.seq)) })
    }
}

fn mail_of(row: &Row<'_>, instance: InstanceNo, position: &Position) -> rusqlite::Result<Mail> {
    let seq = unsigned(row.get(0)?);
    let reason: Option<String> = row.get(1)?;
    let state = match &reason {
        Some(_) => MailState::Dead,
        None if position.settled(seq) => MailState::Acked,
        None if seq <= position.sent => MailState::Sent,
        None => MailState::Accepted,
    };
    Ok(Mail { instance, seq, state, reason, delivery: Arc::new(delivery(row)?) })
}
