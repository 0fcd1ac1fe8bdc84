//! Alarms: at most one per job of an instance.

use std::collections::BTreeMap;

use frontdesk_core::port::alarms::{
    AGENT_NUMBERS, Alarm, AlarmState, AlarmTime, Alarms, ArmedPage, Arming, Concluded, Conclusion, Disarmed,
    EndedAlarm, JOBS_SCANNED_MAX,
};
use frontdesk_core::port::store::{StoreError, Stored};
use frontdesk_wire::{InstanceNo, JobId};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::threads::Books;
use super::{STEP_ROWS, SqliteStore, fault, signed, text_at, unsigned};
use crate::read_queue::SERVER;

/// Alarms that are counted in one turn.
const COUNTED_ROWS: usize = 20_000;

const COLUMNS: &str = "id, instance, job_id, fire_at, due_ms, next_ms, armed_ms, first_ms, attempts, grace_ms,
                       skip_missed, callback, schedule_id, state, note, claim";

impl Alarms for SqliteStore {
    fn arm(&self, alarms: Vec<Alarm>) -> Stored<'_, Vec<Arming>> {
        let work = move |books: &mut Books| alarms.iter().map(|alarm| arm_one(&books.connection, alarm)).collect();
        self.writer.write(work, |_| {})
    }

    fn disarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId, now_ms: u64) -> Stored<'a, bool> {
        let job_id = job_id.to_owned();
        let work = move |books: &mut Books| {
            let Some(old) = alarm_of(&books.connection, instance, &job_id)? else { return Ok(false) };
            remove(&books.connection, old.id)?;
            let was_armed = old.state == AlarmState::Armed;
            if was_armed {
                note_end(&books.connection, &old, "cancelled", now_ms, "")?;
            }
            Ok(was_armed)
        };
        self.writer.write(work, |_| {})
    }

    fn disarm_some<'a>(&'a self, instance: InstanceNo, after: &'a JobId, now_ms: u64) -> Stored<'a, Disarmed> {
        let after = after.to_owned();
        let work = move |books: &mut Books| {
            let sql = format!(
                "SELECT {COLUMNS} FROM alarm WHERE instance = ?1 AND job_id > ?2 ORDER BY job_id LIMIT {STEP_ROWS}"
            );
            let mut query = books.connection.prepare_cached(&sql).map_err(fault)?;
            let found = query.query_map((signed(instance), after.as_str()), alarm).and_then(Iterator::collect);
            let some: Vec<Alarm> = found.map_err(fault)?;
            let mut gone = 0;
            for alarm in some.iter().filter(|alarm| alarm.state == AlarmState::Armed) {
                remove(&books.connection, alarm.id)?;
                note_end(&books.connection, alarm, "cancelled", now_ms, "")?;
                gone += 1;
            }
            let last = some.last().filter(|_| some.len() == STEP_ROWS);
            Ok(Disarmed { gone, next: last.map(|last| last.job_id.clone()) })
        };
        self.writer.write(work, |_| {})
    }

    fn armed<'a>(&'a self, instance: InstanceNo, after: &'a JobId, limit: usize) -> Stored<'a, ArmedPage> {
        let after = after.to_owned();
        self.readers.read(self.tenants.of(instance), move |connection| {
            // The condition of the index of planned wakes, which has only those that are armed.
            let planned = if instance.0 < AGENT_NUMBERS {
                String::new()
            } else {
                format!("AND state = 'armed' AND instance >= {AGENT_NUMBERS}")
            };
            let sql = format!(
                "SELECT {COLUMNS} FROM alarm WHERE instance = ?1 AND job_id > ?2 {planned} ORDER BY job_id
                 LIMIT {JOBS_SCANNED_MAX}"
            );
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            let found = query.query_map((signed(instance), after.as_str()), alarm).map_err(fault)?;
            let mut failed = None;
            let jobs = found.map_while(|one| one.map_err(|error| failed = Some(error)).ok());
            let page = ArmedPage::of(jobs.map(|it| if is_armed(&it) { Ok(it) } else { Err(it.job_id) }), limit);
            failed.map_or(Ok(page), |error| Err(fault(error)))
        })
    }

    fn alarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId) -> Stored<'a, Option<Alarm>> {
        let job_id = job_id.to_owned();
        self.readers.read(self.tenants.of(instance), move |connection| alarm_of(connection, instance, &job_id))
    }

    fn next_alarms(&self, after: (u64, u64), until_ms: u64, limit: usize) -> Stored<'_, Vec<AlarmTime>> {
        self.readers.read(SERVER, move |connection| {
            let sql = "SELECT next_ms, id, instance, callback FROM alarm
                       WHERE state = 'armed' AND (next_ms, id) > (?1, ?2) AND next_ms <= ?3
                       ORDER BY next_ms, id LIMIT ?4";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let asked = (signed(after.0), signed(after.1), signed(until_ms), signed(limit as u64));
            query.query_map(asked, alarm_time).and_then(Iterator::collect).map_err(fault)
        })
    }

    fn claim_alarms(&self, ids: Vec<u64>, due_by_ms: u64, now_ms: u64, until_ms: u64) -> Stored<'_, Vec<Alarm>> {
        let work = move |books: &mut Books| {
            let sql = format!(
                "UPDATE alarm SET lease_ms = ?4, claim = claim + 1 WHERE id = ?1 AND state = 'armed' AND next_ms <= ?2 AND lease_ms <= ?3
                 RETURNING {COLUMNS}"
            );
            let mut take = books.connection.prepare_cached(&sql).map_err(fault)?;
            let mut taken = Vec::with_capacity(ids.len());
            for id in ids {
                let asked = (signed(id), signed(due_by_ms), signed(now_ms), signed(until_ms));
                let one = take.query_row(asked, alarm).optional();
                taken.extend(one.map_err(fault)?);
            }
            Ok(taken)
        };
        self.writer.write(work, |_| {})
    }

    fn conclude(&self, ends: Vec<(Alarm, Conclusion)>, now_ms: u64) -> Stored<'_, Vec<Concluded>> {
        let work = move |books: &mut Books| {
            let end = |(tried, end): &(Alarm, Conclusion)| conclude_one(&books.connection, tried, end, now_ms);
            ends.iter().map(end).collect()
        };
        self.writer.write(work, |_| {})
    }

    fn revive_alarm(&self, id: u64, now_ms: u64) -> Stored<'_, Option<Alarm>> {
        let work = move |books: &mut Books| {
            let sql = format!(
                "UPDATE alarm SET state = 'armed', next_ms = ?2, first_ms = 0, lease_ms = 0, claim = claim + 1
                 WHERE id = ?1 AND state = 'dead' RETURNING {COLUMNS}"
            );
            let mut revive = books.connection.prepare_cached(&sql).map_err(fault)?;
            revive.query_row((signed(id), signed(now_ms)), alarm).optional().map_err(fault)
        };
        self.writer.write(work, |_| {})
    }

    fn hasten_retries(&self, ahead_ms: u64, next_ms: u64, claims_ms: u64) -> Stored<'_, Vec<AlarmTime>> {
        let work = move |books: &mut Books| {
            // `> 0` lets SQLite use the partial index of claimed alarms.
            let claims = "UPDATE alarm SET lease_ms = ?1 WHERE state = 'armed' AND lease_ms > 0 AND lease_ms > ?1";
            books.connection.execute(claims, [signed(claims_ms)]).map_err(fault)?;
            let sql = "UPDATE alarm SET next_ms = ?2 WHERE state = 'armed' AND attempts > 0 AND next_ms > ?1
                       RETURNING next_ms, id, instance, callback";
            let mut hasten = books.connection.prepare_cached(sql).map_err(fault)?;
            hasten.query_map([signed(ahead_ms), signed(next_ms)], alarm_time).and_then(Iterator::collect).map_err(fault)
        };
        self.writer.write(work, |_| {})
    }

    fn dead_alarms(&self, instance: Option<InstanceNo>, limit: usize) -> Stored<'_, Vec<Alarm>> {
        self.readers.read(SERVER, move |connection| {
            let sql = format!(
                "SELECT {COLUMNS} FROM alarm WHERE state = 'dead' AND (?1 IS NULL OR instance = ?1) ORDER BY id LIMIT ?2"
            );
            let mut query = connection.prepare_cached(&sql).map_err(fault)?;
            let found = query.query_map((instance.map(signed), signed(limit as u64)), alarm);
            found.and_then(Iterator::collect).map_err(fault)
        })
    }

    fn ended_alarms<'a>(
        &'a self,
        instance: InstanceNo,
        job_id: Option<&'a JobId>,
        limit: usize,
    ) -> Stored<'a, Vec<EndedAlarm>> {
        let job_id = job_id.cloned();
        self.readers.read(self.tenants.of(instance), move |connection| {
            let sql = "SELECT id, instance, job_id, fire_at, schedule_id, outcome, attempts, at_ms, note FROM alarm_end
                       WHERE instance = ?1 AND (?2 IS NULL OR job_id = ?2) ORDER BY id DESC LIMIT ?3";
            let mut query = connection.prepare_cached(sql).map_err(fault)?;
            let ended = |row: &Row<'_>| {
                Ok(EndedAlarm {
                    id: unsigned(row.get(0)?),
                    instance: unsigned(row.get(1)?),
                    job_id: text_at(row, 2)?.into(),
                    fire_at: row.get(3)?,
                    schedule_id: row.get(4)?,
                    outcome: row.get(5)?,
                    attempts: row.get(6)?,
                    at_ms: unsigned(row.get(7)?),
                    note: row.get(8)?,
                })
            };
            let found = query.query_map((signed(instance), job_id.as_deref(), signed(limit as u64)), ended);
            found.and_then(Iterator::collect).map_err(fault)
        })
    }

    fn armed_counts(&self) -> Stored<'_, Vec<(InstanceNo, u64)>> {
        Box::pin(async move {
            let (mut counts, mut after) = (BTreeMap::<InstanceNo, u64>::new(), Some((i64::MIN, 0)));
            // A part at a time, so that other reads come in between. Alarms that fired are not in the index.
            while let Some((next_ms, id)) = after {
                let part = self.readers.read(SERVER, move |connection| {
                    let sql = "SELECT instance, next_ms, id FROM alarm INDEXED BY alarm_next
                               WHERE state = 'armed' AND (next_ms, id) > (?1, ?2) ORDER BY next_ms, id LIMIT ?3";
                    let mut query = connection.prepare_cached(sql).map_err(fault)?;
                    let row = |row: &Row<'_>| Ok((unsigned(row.get(0)?), row.get(1)?, row.get(2)?));
                    let rows = query.query_map((next_ms, id, signed(COUNTED_ROWS as u64)), row).map_err(fault)?;
                    rows.collect::<rusqlite::Result<Vec<(InstanceNo, i64, i64)>>>().map_err(fault)
                });
                let part = part.await?;
                after = part.last().filter(|_| part.len() == COUNTED_ROWS).map(|(_, next_ms, id)| (*next_ms, *id));
                for (instance, ..) in part {
                    *counts.entry(instance).or_default() += 1;
                }
            }
            Ok(counts.into_iter().collect())
        })
    }
}

fn is_armed(alarm: &Alarm) -> bool {
    alarm.state == AlarmState::Armed
}

/// The lock on the folder shows that no other process fires alarms, so claims from before a crash are released.
pub(super) fn free_claims(connection: &Connection) -> Result<(), StoreError> {
    let sql = "UPDATE alarm SET lease_ms = 0 WHERE state = 'armed' AND lease_ms > 0";
    connection.execute(sql, []).map(drop).map_err(fault)
}

fn arm_one(connection: &Connection, new: &Alarm) -> Result<Arming, StoreError> {
    let mut replaced = false;
    if let Some(known) = alarm_of(connection, new.instance, &new.job_id)? {
        if known.fire_at == new.fire_at && known.state != AlarmState::Dead {
            let sql = "UPDATE alarm SET callback = ?2, grace_ms = ?3, skip_missed = ?4 WHERE id = ?1";
            let mut put = connection.prepare_cached(sql).map_err(fault)?;
            put.execute((signed(known.id), &new.callback, signed(new.grace_ms), new.skip_missed)).map_err(fault)?;
            return Ok(Arming { id: known.id, schedule_id: known.schedule_id, fresh: false, replaced: false });
        }
        remove(connection, known.id)?;
        replaced = known.state == AlarmState::Armed;
        if replaced {
            note_end(connection, &known, "replaced", new.armed_ms, "")?;
        }
    }
    let sql = "INSERT INTO alarm (instance, job_id, fire_at, due_ms, next_ms, armed_ms, first_ms, attempts, grace_ms,
               skip_missed, callback, schedule_id, state, note) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?8, ?9, ?10, 'armed', '')";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    insert
        .execute(rusqlite::params![
            signed(new.instance),
            new.job_id.as_str(),
            new.fire_at,
            signed(new.due_ms),
            signed(new.next_ms),
            signed(new.armed_ms),
            signed(new.grace_ms),
            new.skip_missed,
            new.callback,
            new.schedule_id,
        ])
        .map_err(fault)?;
    let id = unsigned(connection.last_insert_rowid());
    Ok(Arming { id, schedule_id: new.schedule_id.clone(), fresh: true, replaced })
}

/// The row may be gone by now; ids are never reused, so no other row is changed.
fn conclude_one(
    connection: &Connection,
    tried: &Alarm,
    end: &Conclusion,
    now_ms: u64,
) -> Result<Concluded, StoreError> {
    // A skipped alarm was not tried.
    let tries = u32::from(!matches!(end, Conclusion::Skipped { .. }));
    let tried = Alarm { attempts: tried.attempts + tries, ..tried.clone() };
    let is_fact = matches!(end, Conclusion::Fired { .. });
    let (state, next_ms, ended, note) = match end {
        Conclusion::Fired { note } => ("fired", None, Some("fired"), note),
        Conclusion::Dead { note } => ("dead", None, Some("dead"), note),
        Conclusion::Skipped { note } => ("fired", None, Some("skipped"), note),
        Conclusion::Retry { next_ms, note } => ("armed", Some(*next_ms), None, note),
    };
    let sql = "UPDATE alarm SET state = ?2, next_ms = COALESCE(?3, next_ms), attempts = ?4, lease_ms = 0, note = ?5,
               first_ms = CASE first_ms WHEN 0 THEN ?6 ELSE first_ms END
               WHERE id = ?1 AND state = 'armed' AND (?8 OR claim = ?7)";
    let mut put = connection.prepare_cached(sql).map_err(fault)?;
    let (id, claim) = (signed(tried.id), signed(tried.claim));
    let changed = (id, state, next_ms.map(signed), tried.attempts, note, signed(now_ms), claim, is_fact);
    let mut concluded = Concluded::Ended;
    if put.execute(changed).map_err(fault)? == 0 {
        let mut there = connection.prepare_cached("SELECT 1 FROM alarm WHERE id = ?1").map_err(fault)?;
        if there.exists([id]).map_err(fault)? {
            return Ok(Concluded::Stale);
        }
        concluded = Concluded::Noted;
    }
    if let Some(outcome) = ended {
        note_end(connection, &tried, outcome, now_ms, note)?;
    }
    Ok(concluded)
}

fn note_end(connection: &Connection, it: &Alarm, outcome: &str, at_ms: u64, note: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO alarm_end (instance, job_id, fire_at, schedule_id, outcome, attempts, at_ms, note)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let mut insert = connection.prepare_cached(sql).map_err(fault)?;
    let row = (
        signed(it.instance),
        it.job_id.as_str(),
        &it.fire_at,
        &it.schedule_id,
        outcome,
        it.attempts,
        signed(at_ms),
        note,
    );
    insert.execute(row).map(drop).map_err(fault)
}

fn remove(connection: &Connection, id: u64) -> Result<(), StoreError> {
    let mut delete = connection.prepare_cached("DELETE FROM alarm WHERE id = ?1").map_err(fault)?;
    delete.execute([signed(id)]).map(drop).map_err(fault)
}

fn alarm_of(connection: &Connection, instance: InstanceNo, job_id: &JobId) -> Result<Option<Alarm>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM alarm WHERE instance = ?1 AND job_id = ?2");
    let mut query = connection.prepare_cached(&sql).map_err(fault)?;
    query.query_row((signed(instance), job_id.as_str()), alarm).optional().map_err(fault)
}

fn alarm_time(row: &Row<'_>) -> rusqlite::Result<AlarmTime> {
    let (next_ms, id) = (unsigned(row.get(0)?), unsigned(row.get(1)?));
    Ok(AlarmTime { next_ms, id, instance: unsigned(row.get(2)?), callback: row.get(3)? })
}

fn alarm(row: &Row<'_>) -> rusqlite::Result<Alarm> {
    let state: String = row.get(13)?;
    Ok(Alarm {
        id: unsigned(row.get(0)?),
        instance: unsigned(row.get(1)?),
        job_id: text_at(row, 2)?.into(),
        fire_at: row.get(3)?,
        due_ms: unsigned(row.get(4)?),
        next_ms: unsigned(row.get(5)?),
        armed_ms: unsigned(row.get(6)?),
        first_ms: unsigned(row.get(7)?),
        attempts: row.get(8)?,
        grace_ms: unsigned(row.get(9)?),
        skip_missed: row.get(10)?,
        callback: row.get(11)?,
        schedule_id: row.get(12)?,
        state: match state.as_str() {
            "armed" => AlarmState::Armed,
            "dead" => AlarmState::Dead,
            _ => AlarmState::Fired,
        },
        note: row.get(14)?,
        claim: unsigned(row.get(15)?),
    })
}
