//! Sessions and presence: one row per instance, of which every verb writes its own columns.

use frontdesk_core::port::store::{Attached, DeskNo, Presence, SessionNo, Sessions, StoreError, Stored};
use frontdesk_wire::{GatewayId, InstanceNo, Seq};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::SERVER;

const COLUMNS: &str = "instance, desk, session, idle, seen_ms, noticed_through, never_acks";

impl Sessions for SqliteStore {
    fn attach(&self, instance: InstanceNo, me: DeskNo, _: GatewayId, now_ms: u64) -> Stored<'_, Attached> {
        self.wakes.end(instance);
        let work = move |books: &mut Books| {
            let before = read(&books.connection, instance)?;
            let session = books.ledgers.next_session(&books.connection)?;
            let sql = "INSERT INTO presence (instance, desk, session, seen_ms) VALUES (?1, ?2, ?3, ?4)
                       ON CONFLICT DO UPDATE SET desk = ?2, session = ?3, seen_ms = ?4, idle = 0";
            write(books, sql, (signed(instance), signed(me), signed(session), signed(now_ms)))?;
            let head = books.ledgers.head(&books.connection, instance)?;
            (head.served_by, head.session) = (me, session);
            Ok(Attached { session, position: head.position.clone(), before })
        };
        self.writer.write(work, |_| {})
    }

    fn detach(&self, instance: InstanceNo, session: SessionNo, never_acks: bool, now_ms: u64) -> Stored<'_, bool> {
        let work = move |books: &mut Books| {
            let sql = "UPDATE presence SET desk = 0, session = 0, seen_ms = ?3, never_acks = ?4
                       WHERE instance = ?1 AND session = ?2";
            let ended = write(books, sql, (signed(instance), signed(session), signed(now_ms), never_acks))? == 1;
            if ended {
                let head = books.ledgers.head(&books.connection, instance)?;
                (head.served_by, head.session) = (DeskNo::NONE, SessionNo::NONE);
            }
            Ok(ended)
        };
        self.writer.write(work, |_| {})
    }

    fn adopt(&self, me: DeskNo, sessions: Vec<(InstanceNo, SessionNo)>) -> Stored<'_, Vec<InstanceNo>> {
        let work = move |books: &mut Books| {
            let mut adopted = Vec::new();
            for &(instance, session) in &sessions {
                let sql = "UPDATE presence SET desk = ?3 WHERE instance = ?1 AND session = ?2";
                if write(books, sql, (signed(instance), signed(session), signed(me)))? == 1 {
                    books.ledgers.head(&books.connection, instance)?.served_by = me;
                    adopted.push(instance);
                }
            }
            Ok(adopted)
        };
        self.writer.write(work, |_| {})
    }

    fn mark_idle(&self, instance: InstanceNo, session: Option<SessionNo>, idle: bool) -> Stored<'_, bool> {
        let work = move |books: &mut Books| {
            let Some(session) = session else {
                let sql = "INSERT INTO presence (instance, idle) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET idle = ?2";
                return write(books, sql, (signed(instance), idle)).map(|_| true);
            };
            let sql = "UPDATE presence SET idle = ?3 WHERE instance = ?1 AND session = ?2";
            write(books, sql, (signed(instance), signed(session), idle)).map(|changed| changed == 1)
        };
        self.writer.write(work, |_| {})
    }

    fn mark_never_acks(&self, instance: InstanceNo) -> Stored<'_, ()> {
        let work = move |books: &mut Books| {
            let sql = "INSERT INTO presence (instance, never_acks) VALUES (?1, 1)
                       ON CONFLICT DO UPDATE SET never_acks = 1";
            write(books, sql, [signed(instance)]).map(drop)
        };
        self.writer.write(work, |()| {})
    }

    fn claim_notice(&self, instance: InstanceNo, through: Seq) -> Stored<'_, Option<Seq>> {
        let work = move |books: &mut Books| {
            let noticed = read(&books.connection, instance)?.noticed_through;
            if noticed >= through {
                return Ok(None);
            }
            let sql = "INSERT INTO presence (instance, noticed_through) VALUES (?1, ?2)
                       ON CONFLICT DO UPDATE SET noticed_through = ?2";
            write(books, sql, (signed(instance), signed(through)))?;
            Ok(Some(noticed))
        };
        self.writer.write(work, |_| {})
    }

    fn claim_wake(
        &self,
        instance: InstanceNo,
        me: DeskNo,
        live: Vec<DeskNo>,
        cooldown_ms: u64,
        now_ms: u64,
    ) -> Stored<'_, bool> {
        let is_mine = self.wakes.claim(instance, me, &live, cooldown_ms, now_ms);
        Box::pin(std::future::ready(Ok(is_mine)))
    }

    fn presence(&self, instance: InstanceNo) -> Stored<'_, Presence> {
        self.readers.read(self.tenants.of(instance), move |connection| read(connection, instance))
    }

    fn presences(&self) -> Stored<'_, Vec<(InstanceNo, Presence)>> {
        self.readers.read(SERVER, |connection| {
            let sql = format!("SELECT {COLUMNS} FROM presence ORDER BY instance");
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            query.query_map([], presence).and_then(Iterator::collect).map_err(fault)
        })
    }
}

fn write(books: &Books, sql: &str, values: impl rusqlite::Params) -> Result<usize, StoreError> {
    books.connection.prepare_cached(sql).and_then(|mut put| put.execute(values)).map_err(fault)
}

fn read(connection: &Connection, instance: InstanceNo) -> Result<Presence, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM presence WHERE instance = ?1");
    let mut query = connection.prepare_cached(&sql).map_err(fault)?;
    let found = query.query_row([signed(instance)], presence).optional().map_err(fault)?;
    Ok(found.map(|(_, presence)| presence).unwrap_or_default())
}

fn presence(row: &Row<'_>) -> rusqlite::Result<(InstanceNo, Presence)> {
    let known = Presence {
        served_by: unsigned(row.get(1)?),
        session: unsigned(row.get(2)?),
        idle: row.get(3)?,
        seen_ms: unsigned(row.get(4)?),
        noticed_through: unsigned(row.get(5)?),
        never_acks: row.get(6)?,
        gateway: GatewayId::default(), // the one server knows its sockets
    };
    Ok((unsigned(row.get(0)?), known))
}
