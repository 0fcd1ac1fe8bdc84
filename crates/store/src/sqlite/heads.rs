//! State of the ledgers that the writer keeps in memory.

use std::collections::HashMap;

use frontdesk_core::port::store::{DeskNo, Position, SessionNo, StoreError};
use frontdesk_wire::{BotId, ChatId, EventId, InstanceNo, Seq, TenantId};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::{fault, signed, unsigned};

/// Lets `accept` run without reads. Cleared when a group is rolled back.
#[derive(Default)]
pub(super) struct Ledgers {
    pub(super) last_event: Option<EventId>,
    pub(super) heads: HashMap<InstanceNo, Head>,
    /// The last session, and up to which one numbers are reserved.
    sessions: (SessionNo, SessionNo),
    /// With the day for which it is known.
    pub(super) reached: HashMap<(TenantId, String, BotId, ChatId), u64>,
}

/// Chats known to be in `reach`; above this the map is cleared and filled again.
pub(super) const REACHED_MAX: usize = 100_000;
pub(super) const DAY_MS: u64 = 86_400_000;
const SESSIONS_RESERVED: u64 = 1_000;

#[derive(Clone)]
pub(super) struct Head {
    pub(super) last_seq: Seq,
    pub(super) position: Position,
    /// The server and the session that serve the instance; 0 is none.
    pub(super) served_by: DeskNo,
    pub(super) session: SessionNo,
}

impl Ledgers {
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn forget_reached(&mut self) {
        self.reached.clear();
    }

    pub(super) fn next_event(&mut self, connection: &Connection) -> Result<EventId, StoreError> {
        let last = match self.last_event {
            Some(last) => last,
            // A purge may have deleted the newest event; its number is stored in meta and never reused.
            None => connection
                .query_row(
                    "SELECT MAX(COALESCE((SELECT MAX(id) FROM event), 0),
                                COALESCE((SELECT value FROM meta WHERE key = 'last_event'), 0))",
                    [],
                    |row| row.get(0),
                )
                .map(unsigned)
                .map_err(fault)?,
        };
        self.last_event = Some(last.next());
        Ok(last.next())
    }

    /// Numbers are reserved many at a time, so that a new session costs no write of its own. Those that a crash or a
    /// rollback leaves unused are skipped.
    pub(super) fn next_session(&mut self, connection: &Connection) -> Result<SessionNo, StoreError> {
        if self.sessions.0 == self.sessions.1 {
            let sql = "INSERT INTO meta (key, value) VALUES ('last session', ?1)
                       ON CONFLICT DO UPDATE SET value = value + ?1 RETURNING value";
            let end = connection.query_row(sql, [signed(SESSIONS_RESERVED)], |row| row.get(0)).map(unsigned);
            let end: SessionNo = end.map_err(fault)?;
            self.sessions = (SessionNo(end.0 - SESSIONS_RESERVED), end);
        }
        self.sessions.0 = self.sessions.0.next();
        Ok(self.sessions.0)
    }

    pub(super) fn head(&mut self, connection: &Connection, instance: InstanceNo) -> Result<&mut Head, StoreError> {
        if let std::collections::hash_map::Entry::Vacant(e) = self.heads.entry(instance) {
            let position = read_position(connection, instance)?;
            let newest: i64 = connection
                .query_row("SELECT COALESCE(MAX(seq), 0) FROM mail WHERE instance = ?1", [signed(instance)], |row| {
                    row.get(0)
                })
                .map_err(fault)?;
            // Every ledger has a position row, because listings and purges iterate over them.
            let first = "INSERT OR IGNORE INTO position (instance, through, above, sent) VALUES (?1, 0, '[]', 0)";
            connection.prepare_cached(first).and_then(|mut put| put.execute([signed(instance)])).map_err(fault)?;
            let settled = position.above.last().copied().unwrap_or_default().max(position.through);
            let last_seq = unsigned::<Seq>(newest).max(settled);
            let (served_by, session) = serving(connection, instance)?;
            e.insert(Head { last_seq, position, served_by, session });
        }
        Ok(self.heads.entry(instance).or_insert_with(|| unreachable!("inserted above")))
    }
}

pub(super) fn read_position(connection: &Connection, instance: InstanceNo) -> Result<Position, StoreError> {
    let sql = "SELECT through, above, sent FROM position WHERE instance = ?1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let position = |row: &Row<'_>| {
        let above: String = row.get(1)?;
        Ok(Position {
            through: unsigned(row.get(0)?),
            above: serde_json::from_str(&above).unwrap_or_default(),
            sent: unsigned(row.get(2)?),
        })
    };
    Ok(query.query_row([signed(instance)], position).optional().map_err(fault)?.unwrap_or_default())
}

fn serving(connection: &Connection, instance: InstanceNo) -> Result<(DeskNo, SessionNo), StoreError> {
    let sql = "SELECT desk, session FROM presence WHERE instance = ?1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let found = query.query_row([signed(instance)], |row| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?))));
    Ok(found.optional().map_err(fault)?.unwrap_or_default())
}
