//! The servers on this file. The lock of the folder admits one process, so leases live in its memory; numbers and tokens
//! are in the file, for they must never be reused.

use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_core::port::store::{DeskNo, DeskRecord, Desks, LEASE_MS, Renewal, StoreError, Stored};
use rusqlite::{Connection, OptionalExtension as _};

use super::threads::Books;
use super::{SqliteStore, fault, signed, unsigned};
use crate::read_queue::SERVER;

/// The servers of this process.
#[derive(Clone, Default)]
pub(super) struct Leases(Arc<Mutex<Vec<DeskRecord>>>);

impl Leases {
    fn with<R>(&self, act: impl FnOnce(&mut Vec<DeskRecord>) -> R) -> R {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_live(&self, desk: DeskNo, now_ms: u64) -> bool {
        self.with(|all| all.iter().any(|it| it.number == desk && it.lease_until_ms > now_ms))
    }

    fn may_take(&self, desk: DeskNo, now_ms: u64) -> bool {
        self.is_live(desk, now_ms) && self.with(|all| all.iter().all(|it| it.number != desk || !it.is_leaving))
    }
}

impl Desks for SqliteStore {
    fn enlist(&self, name: String, version: String, now_ms: u64) -> Stored<'_, DeskNo> {
        let draw = |books: &mut Books| {
            let sql = "INSERT INTO meta (key, value) VALUES ('last desk', 1)
                       ON CONFLICT DO UPDATE SET value = value + 1 RETURNING value";
            books.connection.query_row(sql, [], |row| row.get(0)).map(unsigned).map_err(fault)
        };
        let leases = self.leases.clone();
        self.writer.write(draw, move |number| {
            let (number, lease_until_ms) = (*number, now_ms + LEASE_MS);
            let record = DeskRecord::new(number, name, version, lease_until_ms);
            leases.with(|all| {
                all.retain(|it| it.lease_until_ms > now_ms);
                all.push(record);
            });
        })
    }

    fn renew(&self, me: DeskNo, seen: u64, now_ms: u64) -> Stored<'_, Renewal> {
        let live = self.leases.with(|all| {
            let mine = all.iter_mut().find(|it| it.number == me && it.lease_until_ms > now_ms)?;
            mine.lease_until_ms = now_ms + LEASE_MS;
            mine.directory_seen = seen;
            let live = || all.iter().filter(|it| it.lease_until_ms > now_ms);
            let leaving = live().filter(|it| it.is_leaving).map(|it| it.number).collect();
            Some((live().map(|it| it.number).collect(), leaving))
        });
        self.readers.read(SERVER, move |connection| {
            let (live, leaving) = live.ok_or(StoreError::Conflict)?;
            Ok(Renewal { directory_version: super::directory::version(connection)?, live, leaving })
        })
    }

    fn take_duty(&self, me: DeskNo, duty: String, now_ms: u64) -> Stored<'_, Option<u64>> {
        let leases = self.leases.clone();
        let work = move |books: &mut Books| take(&books.connection, &leases, me, &duty, now_ms);
        self.writer.write(work, |_| {})
    }

    fn drop_duty(&self, me: DeskNo, duty: String) -> Stored<'_, ()> {
        let work = move |books: &mut Books| {
            let sql = "UPDATE duty SET desk = 0 WHERE name = ?1 AND desk = ?2";
            books.connection.execute(sql, (duty, signed(me))).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }

    fn leave(&self, me: DeskNo) -> Stored<'_, ()> {
        // Before the write, so that nothing is taken between.
        self.leases.with(|all| all.iter_mut().filter(|it| it.number == me).for_each(|it| it.is_leaving = true));
        self.writer.write(move |books: &mut Books| free_duties(&books.connection, me), |()| {})
    }

    fn resign(&self, me: DeskNo) -> Stored<'_, ()> {
        let leases = self.leases.clone();
        let work = move |books: &mut Books| free_duties(&books.connection, me);
        self.writer.write(work, move |()| leases.with(|all| all.retain(|it| it.number != me)))
    }

    fn put_report(&self, me: DeskNo, report: String) -> Stored<'_, ()> {
        self.leases
            .with(|all| all.iter_mut().filter(|it| it.number == me).for_each(|it| it.report.clone_from(&report)));
        Box::pin(std::future::ready(Ok(())))
    }

    /// Always empty: the lock of the folder excludes other processes.
    fn absent(&self, _: u64) -> Stored<'_, Vec<(DeskRecord, u64)>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn desks(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, Vec<String>)>> {
        let mut all = self.leases.with(|all| all.clone());
        all.retain(|it| it.lease_until_ms > now_ms);
        self.readers.read(SERVER, move |connection| {
            let mut query =
                connection.prepare_cached("SELECT name FROM duty WHERE desk = ?1 ORDER BY name").map_err(fault)?;
            let mut count =
                connection.prepare_cached("SELECT COUNT(*) FROM presence WHERE desk = ?1").map_err(fault)?;
            let mut found = Vec::new();
            for mut record in all {
                record.sockets =
                    count.query_row([signed(record.number)], |row| row.get(0)).map(unsigned).map_err(fault)?;
                let duties = query.query_map([signed(record.number)], |row| row.get(0)).map_err(fault)?;
                let duties = duties.collect::<rusqlite::Result<_>>().map_err(fault)?;
                found.push((record, duties));
            }
            Ok(found)
        })
    }
}

fn free_duties(connection: &Connection, of: DeskNo) -> Result<(), StoreError> {
    connection.execute("UPDATE duty SET desk = 0 WHERE desk = ?1", [signed(of)]).map(drop).map_err(fault)
}

fn take(
    connection: &Connection,
    leases: &Leases,
    me: DeskNo,
    duty: &str,
    now_ms: u64,
) -> Result<Option<u64>, StoreError> {
    if !leases.may_take(me, now_ms) {
        return Ok(None);
    }
    let sql = "SELECT desk, token FROM duty WHERE name = ?1";
    let held = connection.query_row(sql, [duty], |row| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?))));
    let token = match held.optional().map_err(fault)? {
        Some((holder, token)) if holder == me => return Ok(Some(token)),
        Some((holder, _)) if leases.is_live(holder, now_ms) => return Ok(None),
        Some((_, token)) => token + 1,
        None => 1,
    };
    let sql = "INSERT INTO duty (name, desk, token) VALUES (?1, ?2, ?3)
               ON CONFLICT DO UPDATE SET desk = excluded.desk, token = excluded.token";
    connection.execute(sql, (duty, signed(me), signed(token))).map_err(fault)?;
    Ok(Some(token))
}
