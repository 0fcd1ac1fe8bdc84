//! Alarms: at most one per job of an instance. Several are locked in the order of (instance, job).

use frontdesk_core::port::alarms::{
    AGENT_NUMBERS, Alarm, AlarmState, AlarmTime, Alarms, ArmedPage, Arming, Concluded, Conclusion, Disarmed,
    EndedAlarm, JOBS_SCANNED_MAX,
};
use frontdesk_core::port::store::Stored;
use frontdesk_wire::{InstanceNo, JobId};
use tokio_postgres::Row;

use super::connection::{Connection, Fault, Param};
use super::text::{given, kept};
use super::{PostgresStore, signed, signed_all, unsigned};
use crate::read_queue::SERVER;

macro_rules! columns {
    () => {
        "id, instance, job_id, fire_at, due_ms, next_ms, armed_ms, first_ms, attempts, grace_ms,
         skip_missed, callback, schedule_id, state, note, claim"
    };
}

/// Alarms that one step of cancelling looks at. The statement says it as a literal: so the planner knows how few they are.
const STEP_ROWS: usize = 200;
/// Attempts to arm a job that other servers arm at the same time.
const ARM_TRIES: usize = 10;

impl Alarms for PostgresStore {
    fn arm(&self, alarms: Vec<Alarm>) -> Stored<'_, Vec<Arming>> {
        self.worker.write(async move |connection| {
            let jobs = in_order(&alarms, |alarm| alarm);
            let mut armings = Vec::with_capacity(alarms.len());
            for index in jobs {
                armings.push((index, arm_one(connection, &alarms[index]).await?));
            }
            Ok(as_asked(armings))
        })
    }

    fn disarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId, now_ms: u64) -> Stored<'a, bool> {
        let job_id = job_id.to_owned();
        self.worker.write(async move |connection| {
            let sql = concat!("DELETE FROM alarm WHERE instance = $1 AND job_id = $2 RETURNING ", columns!());
            let found = connection.query_opt(sql, &[&signed(instance), &kept(&job_id)]).await?;
            let Some(old) = found.as_ref().map(alarm) else { return Ok(false) };
            let was_armed = old.state == AlarmState::Armed;
            if was_armed {
                note_end(connection, &old, "cancelled", now_ms, "").await?;
            }
            Ok(was_armed)
        })
    }

    fn disarm_some<'a>(&'a self, instance: InstanceNo, after: &'a JobId, now_ms: u64) -> Stored<'a, Disarmed> {
        let after = after.to_owned();
        self.worker.write(async move |connection| {
            let sql = "SELECT id, job_id FROM alarm WHERE instance = $1 AND job_id > $2 ORDER BY job_id LIMIT 200";
            let some = connection.query(sql, &[&signed(instance), &kept(&after)]).await?;
            let ids: Vec<i64> = some.iter().map(|row| row.get(0)).collect();
            let sql = "WITH gone AS (
                         DELETE FROM alarm WHERE id IN (
                           SELECT id FROM alarm WHERE id = ANY($1) AND state = 'armed' ORDER BY job_id FOR UPDATE)
                         RETURNING id, instance, job_id, fire_at, schedule_id, attempts)
                       INSERT INTO alarm_end (instance, job_id, fire_at, schedule_id, outcome, attempts, at_ms, note)
                       SELECT instance, job_id, fire_at, schedule_id, 'cancelled', attempts, $2, '' FROM gone ORDER BY id";
            let gone = connection.execute(sql, &[&ids, &signed(now_ms)]).await?;
            let last = some.last().filter(|_| some.len() == STEP_ROWS);
            Ok(Disarmed { gone, next: last.map(|last| given(last.get(1)).into()) })
        })
    }

    fn armed<'a>(&'a self, instance: InstanceNo, after: &'a JobId, limit: usize) -> Stored<'a, ArmedPage> {
        let after = after.to_owned();
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let sql = concat!(
                "SELECT ",
                columns!(),
                " FROM alarm WHERE instance = $1 AND job_id > $2 AND ($4::text IS NULL OR job_id <= $4) AND state = 'armed'
                  ORDER BY job_id LIMIT $3"
            );
            let planned = concat!(
                "SELECT ",
                columns!(),
                " FROM alarm WHERE instance = $1 AND job_id > $2 AND ($4::text IS NULL OR job_id <= $4) AND state = 'armed'
                  AND instance >= 4503599627370496 ORDER BY job_id LIMIT $3"
            );
            let (is_agent, instance, after) = (instance.0 >= AGENT_NUMBERS, signed(instance), kept(&after));
            // The last job that is looked at, if there are more. Planned wakes that are armed have an index.
            let last = "SELECT job_id FROM alarm WHERE instance = $1 AND job_id > $2 ORDER BY job_id OFFSET $3 LIMIT 1";
            let scanned = signed(JOBS_SCANNED_MAX as u64) - 1;
            let last = match is_agent {
                true => None,
                false => connection.query_opt(last, &[&instance, &after, &scanned]).await?.map(|row| row.get(0)),
            };
            let last: Option<String> = last;
            let sql = if is_agent { planned } else { sql };
            let rows = connection.query(sql, &[&instance, &after, &signed(limit as u64), &last]).await?;
            let alarms: Vec<Alarm> = rows.iter().map(alarm).collect();
            let full = alarms.last().filter(|_| alarms.len() == limit).map(|last| last.job_id.clone());
            let next = full.or_else(|| last.map(|last| given(last).into()));
            Ok(ArmedPage { alarms, next })
        })
    }

    fn alarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId) -> Stored<'a, Option<Alarm>> {
        let job_id = job_id.to_owned();
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let sql = concat!("SELECT ", columns!(), " FROM alarm WHERE instance = $1 AND job_id = $2");
            let found = connection.query_opt(sql, &[&signed(instance), &kept(&job_id)]).await?;
            Ok(found.as_ref().map(alarm))
        })
    }

    fn next_alarms(&self, after: (u64, u64), until_ms: u64, limit: usize) -> Stored<'_, Vec<AlarmTime>> {
        self.worker.read(SERVER, async move |connection| {
            let sql = "SELECT next_ms, id, instance, callback FROM alarm
                       WHERE state = 'armed' AND (next_ms, id) > ($1, $2) AND next_ms <= $3
                       ORDER BY next_ms, id LIMIT $4";
            let (after, until, limit) = ((signed(after.0), signed(after.1)), signed(until_ms), signed(limit as u64));
            let rows = connection.query(sql, &[&after.0, &after.1, &until, &limit]).await?;
            Ok(rows.iter().map(alarm_time).collect())
        })
    }

    fn claim_alarms(&self, ids: Vec<u64>, due_by_ms: u64, now_ms: u64, until_ms: u64) -> Stored<'_, Vec<Alarm>> {
        self.worker.write(async move |connection| {
            // Of two concurrent claims, the second waits for the row lock and checks the condition again.
            let sql = concat!(
                "UPDATE alarm SET lease_ms = $4, claim = claim + 1 WHERE id IN (
                   SELECT id FROM alarm WHERE id = ANY($1) AND state = 'armed' AND next_ms <= $2 AND lease_ms <= $3
                   ORDER BY instance, job_id FOR UPDATE)
                 RETURNING ",
                columns!()
            );
            let times = (signed(due_by_ms), signed(now_ms), signed(until_ms));
            let rows = connection.query(sql, &[&signed_all(&ids), &times.0, &times.1, &times.2]).await?;
            let mut taken: Vec<Alarm> = rows.iter().map(alarm).collect();
            taken.sort_by_key(|alarm| ids.iter().position(|id| *id == alarm.id));
            Ok(taken)
        })
    }

    fn conclude(&self, ends: Vec<(Alarm, Conclusion)>, now_ms: u64) -> Stored<'_, Vec<Concluded>> {
        self.worker.write(async move |connection| {
            let jobs = in_order(&ends, |(tried, _)| tried);
            let mut concluded = Vec::with_capacity(ends.len());
            for index in jobs {
                let (tried, end) = &ends[index];
                concluded.push((index, conclude_one(connection, tried, end, now_ms).await?));
            }
            Ok(as_asked(concluded))
        })
    }

    fn revive_alarm(&self, id: u64, now_ms: u64) -> Stored<'_, Option<Alarm>> {
        self.worker.write(async move |connection| {
            let sql = concat!(
                "UPDATE alarm SET state = 'armed', next_ms = $2, first_ms = 0, lease_ms = 0, claim = claim + 1
                 WHERE id = $1 AND state = 'dead' RETURNING ",
                columns!()
            );
            Ok(connection.query_opt(sql, &[&signed(id), &signed(now_ms)]).await?.as_ref().map(alarm))
        })
    }

    fn hasten_retries(&self, ahead_ms: u64, next_ms: u64, claims_ms: u64) -> Stored<'_, Vec<AlarmTime>> {
        self.worker.write(async move |connection| {
            let sql = "SELECT 1 FROM alarm WHERE state = 'armed'
                         AND ((lease_ms > 0 AND lease_ms > $1) OR (attempts > 0 AND next_ms > $2))
                       ORDER BY instance, job_id FOR UPDATE";
            connection.execute(sql, &[&signed(claims_ms), &signed(ahead_ms)]).await?;
            // `> 0` lets Postgres use the partial index of claimed alarms.
            let sql = "UPDATE alarm SET lease_ms = $1 WHERE state = 'armed' AND lease_ms > 0 AND lease_ms > $1";
            connection.execute(sql, &[&signed(claims_ms)]).await?;
            let sql = "UPDATE alarm SET next_ms = $2 WHERE state = 'armed' AND attempts > 0 AND next_ms > $1
                       RETURNING next_ms, id, instance, callback";
            let rows = connection.query(sql, &[&signed(ahead_ms), &signed(next_ms)]).await?;
            Ok(rows.iter().map(alarm_time).collect())
        })
    }

    fn dead_alarms(&self, instance: Option<InstanceNo>, limit: usize) -> Stored<'_, Vec<Alarm>> {
        self.worker.read(SERVER, async move |connection| {
            let sql = concat!(
                "SELECT ",
                columns!(),
                " FROM alarm WHERE state = 'dead' AND ($1::bigint IS NULL OR instance = $1) ORDER BY id LIMIT $2"
            );
            let rows = connection.query(sql, &[&instance.map(signed), &signed(limit as u64)]).await?;
            Ok(rows.iter().map(alarm).collect())
        })
    }

    fn ended_alarms<'a>(
        &'a self,
        instance: InstanceNo,
        job_id: Option<&'a JobId>,
        limit: usize,
    ) -> Stored<'a, Vec<EndedAlarm>> {
        let job_id = job_id.map(|job_id| kept(job_id).into_owned());
        self.worker.read(self.tenants.of(instance), async move |connection| {
            let sql = "SELECT id, instance, job_id, fire_at, schedule_id, outcome, attempts, at_ms, note FROM alarm_end
                       WHERE instance = $1 AND ($2::text IS NULL OR job_id = $2) ORDER BY id DESC LIMIT $3";
            let rows = connection.query(sql, &[&signed(instance), &job_id, &signed(limit as u64)]).await?;
            Ok(rows.iter().map(ended).collect())
        })
    }

    fn armed_counts(&self) -> Stored<'_, Vec<(InstanceNo, u64)>> {
        self.worker.read(SERVER, async |connection| {
            let sql = "SELECT instance, count(*) FROM alarm WHERE state = 'armed' GROUP BY instance ORDER BY instance";
            let rows = connection.query(sql, &[]).await?;
            Ok(rows.iter().map(|row| (unsigned(row.get(0)), unsigned(row.get(1)))).collect())
        })
    }
}

/// Places in a list, in the order in which their alarms are locked. Those of one job stay in theirs.
fn in_order<T>(all: &[T], alarm: impl Fn(&T) -> &Alarm) -> Vec<usize> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|&index| {
        let alarm = alarm(&all[index]);
        (alarm.instance, alarm.job_id.as_str())
    });
    order
}

/// Answers, back in the order in which was asked.
fn as_asked<T>(mut answers: Vec<(usize, T)>) -> Vec<T> {
    answers.sort_by_key(|(index, _)| *index);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

async fn arm_one(connection: &Connection, new: &Alarm) -> Result<Arming, Fault> {
    for _ in 0..ARM_TRIES {
        let sql = concat!("SELECT ", columns!(), " FROM alarm WHERE instance = $1 AND job_id = $2 FOR UPDATE");
        let found = connection.query_opt(sql, &[&signed(new.instance), &kept(&new.job_id)]).await?;
        let known = found.as_ref().map(alarm);
        if let Some(known) = &known {
            if known.fire_at == new.fire_at && known.state != AlarmState::Dead {
                let sql = "UPDATE alarm SET callback = $2, grace_ms = $3, skip_missed = $4 WHERE id = $1";
                let (id, callback, grace) = (signed(known.id), kept(&new.callback), signed(new.grace_ms));
                connection.execute(sql, &[&id, &callback, &grace, &new.skip_missed]).await?;
                let schedule_id = known.schedule_id.clone();
                return Ok(Arming { id: known.id, schedule_id, fresh: false, replaced: false });
            }
            let is_replaced = known.state == AlarmState::Armed;
            if is_replaced {
                note_end(connection, known, "replaced", new.armed_ms, "").await?;
            }
            let (id, schedule_id) = (replace(connection, known.id, new).await?, new.schedule_id.clone());
            return Ok(Arming { id, schedule_id, fresh: true, replaced: is_replaced });
        }
        // Where there was none to lock, another server may arm the job at the same time.
        if let Some(id) = insert(connection, new).await? {
            let schedule_id = new.schedule_id.clone();
            return Ok(Arming { id, schedule_id, fresh: true, replaced: false });
        }
    }
    Err(Fault::Retry(
        "arming the alarm failed: other requests changed the same job during every attempt; try again".into(),
    ))
}

/// `None`: the job is armed.
async fn insert(connection: &Connection, new: &Alarm) -> Result<Option<u64>, Fault> {
    let sql = "INSERT INTO alarm (instance, job_id, fire_at, due_ms, next_ms, armed_ms, first_ms, attempts, grace_ms,
                                  skip_missed, callback, schedule_id, state, note)
               VALUES ($1, $2, $3, $4, $5, $6, 0, 0, $7, $8, $9, $10, 'armed', '')
               ON CONFLICT (instance, job_id) DO NOTHING RETURNING id";
    write(connection, sql, signed(new.instance), &kept(&new.job_id), new).await
}

/// Puts a new alarm into the row of the old one, under a new id, so that transactions that wait for the row lock find it.
async fn replace(connection: &Connection, old: u64, new: &Alarm) -> Result<u64, Fault> {
    let sql = "UPDATE alarm SET id = DEFAULT, job_id = $2, fire_at = $3, due_ms = $4, next_ms = $5, lease_ms = 0,
                 armed_ms = $6, first_ms = 0, attempts = 0, grace_ms = $7, skip_missed = $8, callback = $9,
                 schedule_id = $10, state = 'armed', note = '', claim = 0 WHERE id = $1 RETURNING id";
    let replaced = write(connection, sql, signed(old), &kept(&new.job_id), new).await?;
    replaced.ok_or_else(|| Fault::Retry("an alarm was deleted while it was being replaced".into()))
}

async fn write(
    connection: &Connection,
    sql: &str,
    first: i64,
    job_id: &str,
    new: &Alarm,
) -> Result<Option<u64>, Fault> {
    let (fire_at, callback, schedule_id) = (kept(&new.fire_at), kept(&new.callback), kept(&new.schedule_id));
    let (due, next, armed, grace) =
        (signed(new.due_ms), signed(new.next_ms), signed(new.armed_ms), signed(new.grace_ms));
    let values: [Param<'_>; 10] =
        [&first, &job_id, &fire_at, &due, &next, &armed, &grace, &new.skip_missed, &callback, &schedule_id];
    Ok(connection.query_opt(sql, &values).await?.map(|row| unsigned(row.get(0))))
}

/// The row may be gone by now; ids are never reused, so no other row is changed.
async fn conclude_one(
    connection: &Connection,
    tried: &Alarm,
    end: &Conclusion,
    now_ms: u64,
) -> Result<Concluded, Fault> {
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
    let sql = "UPDATE alarm SET state = $2, next_ms = coalesce($3, next_ms), attempts = $4, lease_ms = 0, note = $5,
               first_ms = CASE first_ms WHEN 0 THEN $6 ELSE first_ms END
               WHERE id = $1 AND state = 'armed' AND ($8 OR claim = $7)";
    let (id, claim, attempts) = (signed(tried.id), signed(tried.claim), i64::from(tried.attempts));
    let (next, now, text) = (next_ms.map(signed), signed(now_ms), kept(note));
    let changed = connection.execute(sql, &[&id, &state, &next, &attempts, &text, &now, &claim, &is_fact]).await?;
    let mut concluded = Concluded::Ended;
    if changed == 0 {
        if connection.query_opt("SELECT 1 FROM alarm WHERE id = $1", &[&id]).await?.is_some() {
            return Ok(Concluded::Stale);
        }
        concluded = Concluded::Noted;
    }
    if let Some(outcome) = ended {
        note_end(connection, &tried, outcome, now_ms, note).await?;
    }
    Ok(concluded)
}

async fn note_end(connection: &Connection, it: &Alarm, outcome: &str, at_ms: u64, note: &str) -> Result<(), Fault> {
    let sql = "INSERT INTO alarm_end (instance, job_id, fire_at, schedule_id, outcome, attempts, at_ms, note)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    let (job_id, fire_at, schedule_id) = (kept(&it.job_id), kept(&it.fire_at), kept(&it.schedule_id));
    let (instance, attempts, at_ms) = (signed(it.instance), i64::from(it.attempts), signed(at_ms));
    connection
        .execute(sql, &[&instance, &job_id, &fire_at, &schedule_id, &outcome, &attempts, &at_ms, &kept(note)])
        .await
        .map(drop)
}

fn alarm_time(row: &Row) -> AlarmTime {
    let (next_ms, id) = (unsigned(row.get(0)), unsigned(row.get(1)));
    AlarmTime { next_ms, id, instance: unsigned(row.get(2)), callback: given(row.get(3)) }
}

fn attempts(row: &Row, column: usize) -> u32 {
    u32::try_from(row.get::<_, i64>(column)).unwrap_or(0)
}

fn ended(row: &Row) -> EndedAlarm {
    EndedAlarm {
        id: unsigned(row.get(0)),
        instance: unsigned(row.get(1)),
        job_id: given(row.get(2)).into(),
        fire_at: given(row.get(3)),
        schedule_id: given(row.get(4)),
        outcome: row.get(5),
        attempts: attempts(row, 6),
        at_ms: unsigned(row.get(7)),
        note: given(row.get(8)),
    }
}

fn alarm(row: &Row) -> Alarm {
    let text = |column| given(row.get(column));
    let state: String = row.get(13);
    Alarm {
        id: unsigned(row.get(0)),
        instance: unsigned(row.get(1)),
        job_id: text(2).into(),
        fire_at: text(3),
        due_ms: unsigned(row.get(4)),
        next_ms: unsigned(row.get(5)),
        armed_ms: unsigned(row.get(6)),
        first_ms: unsigned(row.get(7)),
        attempts: attempts(row, 8),
        grace_ms: unsigned(row.get(9)),
        skip_missed: row.get(10),
        callback: text(11),
        schedule_id: text(12),
        state: match state.as_str() {
            "armed" => AlarmState::Armed,
            "dead" => AlarmState::Dead,
            _ => AlarmState::Fired,
        },
        note: text(14),
        claim: unsigned(row.get(15)),
    }
}
