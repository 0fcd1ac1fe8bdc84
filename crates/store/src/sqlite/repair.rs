//! Repairs a database in which two instances have the same number, and so share one ledger. The first release could
//! create this when a client disconnected during a provision.
//!
//! It runs before the migration that makes numbers unique, so the tables have their names of that time: `shot` for alarms.

use std::collections::{BTreeMap, HashMap};

use frontdesk_core::port::store::{Position, StoreError};
use frontdesk_wire::{InstanceNo, Seq, TenantId};
use rusqlite::Connection;
use serde_json::Value;

use super::heads::read_position;
use super::ledger::write_position;
use super::{fault, signed, unsigned};

/// A record with a number.
struct Numbered {
    key: String,
    json: Value,
    tenant: TenantId,
    name: String,
}

impl Numbered {
    fn shown(&self) -> String {
        format!("{}/{}", self.tenant, self.name)
    }
}

/// Instances by number, where several have the same one.
fn shared_numbers(connection: &Connection) -> Result<BTreeMap<InstanceNo, Vec<Numbered>>, StoreError> {
    let sql = "SELECT key, json FROM record WHERE kind = 'instance' ORDER BY key";
    let mut query = connection.prepare(sql).map_err(fault)?;
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?));
    let rows: Vec<(String, String)> = query.query_map([], pair).and_then(Iterator::collect).map_err(fault)?;
    let mut found: BTreeMap<InstanceNo, Vec<Numbered>> = BTreeMap::new();
    for (key, json) in rows {
        let json: Value = serde_json::from_str(&json)
            .map_err(|error| StoreError::Corrupt(format!("unreadable instance record {key:?}: {error}")))?;
        let text = |field: &str| json[field].as_str().unwrap_or_default().to_owned();
        let (tenant, name) = (text("tenant"), text("name"));
        found.entry(InstanceNo(json["no"].as_u64().unwrap_or(0))).or_default().push(Numbered {
            key,
            json,
            tenant: tenant.into(),
            name,
        });
    }
    found.retain(|_, owners| owners.len() > 1);
    Ok(found)
}

/// Fails if instances share a number, and names them.
pub(super) fn check(connection: &Connection) -> Result<(), StoreError> {
    let shared = shared_numbers(connection)?;
    let Some((no, owners)) = shared.iter().next() else { return Ok(()) };
    let names: Vec<String> = owners.iter().map(Numbered::shown).collect();
    let text = format!(
        "the instances {} have the same number ({no}) and would receive each other's messages; stop the server and run \
         `frontdesk doctor --repair` on its data folder",
        names.join(" and ")
    );
    Err(StoreError::Corrupt(text))
}

/// Gives every instance its own number, in one transaction. Returns one sentence per change.
pub(super) fn separate(connection: &mut Connection) -> Result<Vec<String>, StoreError> {
    let transaction = connection.transaction().map_err(fault)?;
    let mut changes = Vec::new();
    for (no, mut owners) in shared_numbers(&transaction)? {
        let rows = rows_by_owner(&transaction, no, &owners)?;
        // The one with the most messages keeps the ledger, so fewer rows move. Rows that no verdict assigns stay there.
        let keeper = (0..owners.len()).max_by_key(|at| (rows[*at].len(), std::cmp::Reverse(*at))).unwrap_or(0);
        changes.push(format!("{} keeps number {no}", owners[keeper].shown()));
        for (at, owner) in owners.iter_mut().enumerate().filter(|(at, _)| *at != keeper) {
            let drawn = draw(&transaction)?;
            let moved = move_rows(&transaction, no, drawn, &rows[at])?;
            owner.json["no"] = drawn.0.into();
            let put = "UPDATE record SET json = ?2, version = version + 1 WHERE kind = 'instance' AND key = ?1";
            transaction.execute(put, (&owner.key, owner.json.to_string())).map_err(fault)?;
            changes.push(format!("{} now has number {drawn}; {moved} messages were moved to it", owner.shown()));
        }
        // The owner of an alarm is unknown, and it could be sent to the wrong agent. Agents arm their alarms at start.
        let ended = "INSERT INTO shot_end (instance, job_id, fire_at, schedule_id, outcome, attempts, at_ms, note)
                     SELECT instance, job_id, fire_at, schedule_id, 'cancelled', attempts, armed_ms,
                            'cancelled by repair: its owner cannot be told' FROM shot WHERE instance = ?1 AND state <> 'fired'";
        let alarms = transaction.execute(ended, [signed(no)]).map_err(fault)?;
        for sql in ["DELETE FROM shot WHERE instance = ?1", "DELETE FROM presence WHERE instance = ?1"] {
            transaction.execute(sql, [signed(no)]).map_err(fault)?;
        }
        if alarms > 0 {
            changes.push(format!(
                "{alarms} alarms of number {no}, armed or dead, were cancelled; their agents must arm them again"
            ));
        }
    }
    transaction.commit().map_err(fault)?;
    Ok(changes)
}

fn draw(connection: &Connection) -> Result<InstanceNo, StoreError> {
    let sql = "UPDATE meta SET value = value + 1 WHERE key = 'last_instance' RETURNING value";
    connection.query_row(sql, [], |row| row.get(0)).map(unsigned).map_err(fault)
}

/// Rows of a shared ledger by owner: by the tenant of the event and, within a tenant, by the instances that the
/// verdict names. An event for several of them has a row for each.
fn rows_by_owner(connection: &Connection, no: InstanceNo, owners: &[Numbered]) -> Result<Vec<Vec<Seq>>, StoreError> {
    let sql = "SELECT m.seq, e.id, e.tenant, e.verdict FROM mail m JOIN event e ON e.id = m.event
               WHERE m.instance = ?1 ORDER BY m.seq";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    let mut rows = query.query([signed(no)]).map_err(fault)?;
    let mut found = vec![Vec::new(); owners.len()];
    let mut given: HashMap<i64, usize> = HashMap::new();
    while let Some(row) = rows.next().map_err(fault)? {
        let (seq, event): (i64, i64) = (row.get(0).map_err(fault)?, row.get(1).map_err(fault)?);
        let (tenant, verdict): (String, String) = (row.get(2).map_err(fault)?, row.get(3).map_err(fault)?);
        let of_tenant: Vec<usize> = (0..owners.len()).filter(|at| owners[*at].tenant == tenant).collect();
        let named = match of_tenant.as_slice() {
            [_] => of_tenant,
            _ => of_tenant.into_iter().filter(|at| names(&verdict, &owners[*at].name)).collect(),
        };
        let turn = given.entry(event).or_default();
        if let Some(at) = named.get(*turn % named.len().max(1)) {
            found[*at].push(unsigned(seq));
        }
        *turn += 1;
    }
    Ok(found)
}

/// Whether the verdict delivered the event to this instance.
fn names(verdict: &str, instance: &str) -> bool {
    let verdict: Value = serde_json::from_str(verdict).unwrap_or_default();
    let lines = verdict[2].as_array().cloned().unwrap_or_default();
    lines.iter().any(|line| line[0] == instance && line[1] == true)
}

/// Moves rows into another ledger and keeps their state; the gaps that they leave count as settled.
fn move_rows(connection: &Connection, from: InstanceNo, to: InstanceNo, rows: &[Seq]) -> Result<usize, StoreError> {
    let mut left = read_position(connection, from)?;
    let mut there = Position::default();
    connection
        .execute("INSERT INTO position (instance, through, above, sent) VALUES (?1, 0, '[]', 0)", [signed(to)])
        .map_err(fault)?;
    for (at, seq) in rows.iter().enumerate() {
        let new_seq = Seq(at as u64 + 1);
        let sql = "UPDATE mail SET instance = ?3, seq = ?4 WHERE instance = ?1 AND seq = ?2";
        connection.execute(sql, (signed(from), signed(*seq), signed(to), signed(new_seq))).map_err(fault)?;
        if left.settled(*seq) {
            there.merge(&Position { above: vec![new_seq], ..Position::default() });
        }
        if *seq <= left.sent {
            there.sent = new_seq;
        }
    }
    left.merge(&Position { above: rows.to_vec(), ..Position::default() });
    write_position(connection, from, &left)?;
    write_position(connection, to, &there)?;
    Ok(rows.len())
}
