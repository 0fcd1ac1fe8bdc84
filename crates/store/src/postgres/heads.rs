//! Positions: which rows of each ledger are settled.

use std::collections::BTreeMap;

use frontdesk_core::port::store::{Position, Settlement, StoreError, Stored};
use frontdesk_wire::{InstanceNo, Seq};

use super::connection::{Connection, Fault};
use super::groups::Group;
use super::worker::{Database, panicked};
use super::{PostgresStore, signed, unsigned};

/// Settlements per transaction.
const GROUP_MAX: usize = 512;

pub(super) type Settles = Group<(InstanceNo, Settlement), bool>;

impl PostgresStore {
    pub(super) fn settle_grouped(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool> {
        let settles = self.settles.clone();
        self.worker.ask(async move |database: &Database| {
            let answered = settles.add((instance, settlement));
            settle_group(database, &settles).await?;
            answered.await.map_err(panicked)?
        })
    }
}

/// Settles the rows of all waiting callers. An earlier call may have included those of this caller already.
async fn settle_group(database: &Database, settles: &Settles) -> Result<(), StoreError> {
    let _turn = database.settle_turn.lock().await;
    let group = settles.take(GROUP_MAX, |_| 1);
    if group.is_empty() {
        return Ok(());
    }
    let asked: Vec<_> = group.iter().map(|it| &it.what).collect();
    let settled = database.settlements.transaction(async |connection| settle(connection, &asked).await).await;
    match settled {
        Ok(mine) => group.into_iter().zip(mine).for_each(|(it, mine)| it.answer(Ok(mine))),
        Err(error) => group.into_iter().for_each(|it| it.answer(Err(error.clone()))),
    }
    Ok(())
}

/// For each, whether its session serves the instance.
async fn settle(connection: &Connection, asked: &[&(InstanceNo, Settlement)]) -> Result<Vec<bool>, Fault> {
    let mut instances: Vec<i64> = asked.iter().map(|(instance, _)| signed(*instance)).collect();
    instances.sort_unstable();
    instances.dedup();
    // Inferred settlements count only from the session that serves: the head is locked, so that no other session begins
    // meanwhile. An ack is a fact, and needs no lock that would delay new rows.
    let mut inferring: Vec<i64> =
        asked.iter().filter(|(_, it)| it.inferred.is_some()).map(|(instance, _)| signed(*instance)).collect();
    inferring.sort_unstable();
    inferring.dedup();
    if !inferring.is_empty() {
        let sql = "SELECT 1 FROM head WHERE instance = ANY($1) ORDER BY instance FOR SHARE";
        connection.execute(sql, &[&inferring]).await?;
    }
    let rows = connection.query("SELECT instance, session FROM head WHERE instance = ANY($1)", &[&instances]).await?;
    let sessions: BTreeMap<i64, i64> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    let mut positions = lock_positions(connection, &instances).await?;
    let mut mine = Vec::with_capacity(asked.len());
    for (instance, it) in asked {
        let instance = signed(*instance);
        let is_mine = sessions.get(&instance).copied().unwrap_or(0) == signed(it.session);
        let position = positions.entry(instance).or_default();
        position.merge(&it.acked);
        if let Some(inferred) = it.inferred.as_ref().filter(|_| is_mine) {
            position.merge(inferred);
        }
        mine.push(is_mine);
    }
    write_positions(connection, &positions).await?;
    Ok(mine)
}

/// Positions, made where there are none, and locked in the order of their ledgers.
pub(super) async fn lock_positions(
    connection: &Connection,
    instances: &[i64],
) -> Result<BTreeMap<i64, Position>, Fault> {
    let sql = "INSERT INTO position (instance, through, above, sent)
               SELECT instance, 0, '{}', 0 FROM unnest($1::bigint[]) AS i (instance) ORDER BY instance
               ON CONFLICT (instance) DO NOTHING";
    connection.execute(sql, &[&instances]).await?;
    let sql = "SELECT instance, through, above, sent FROM position WHERE instance = ANY($1)
               ORDER BY instance FOR UPDATE";
    let rows = connection.query(sql, &[&instances]).await?;
    let position = |row: &tokio_postgres::Row| (row.get(0), position_of(row.get(1), row.get(2), row.get(3)));
    Ok(rows.iter().map(position).collect())
}

pub(super) async fn write_positions(connection: &Connection, positions: &BTreeMap<i64, Position>) -> Result<(), Fault> {
    // Lists of different lengths cannot be columns of one array, so they are passed as text.
    let text = |above: &[Seq]| {
        let numbers: Vec<String> = above.iter().map(|seq| seq.0.to_string()).collect();
        format!("{{{}}}", numbers.join(","))
    };
    let instances: Vec<i64> = positions.keys().copied().collect();
    let through: Vec<i64> = positions.values().map(|position| signed(position.through)).collect();
    let above: Vec<String> = positions.values().map(|position| text(&position.above)).collect();
    let sent: Vec<i64> = positions.values().map(|position| signed(position.sent)).collect();
    let sql = "UPDATE position p SET through = n.through, above = n.above::bigint[], sent = n.sent
               FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS n (instance, through, above, sent)
               WHERE p.instance = n.instance";
    connection.execute(sql, &[&instances, &through, &above, &sent]).await.map(drop)
}

pub(super) async fn read_position(connection: &Connection, instance: i64) -> Result<Position, Fault> {
    let sql = "SELECT through, above, sent FROM position WHERE instance = $1";
    let found = connection.query_opt(sql, &[&instance]).await?;
    Ok(found.map(|row| position_of(row.get(0), row.get(1), row.get(2))).unwrap_or_default())
}

fn position_of(through: i64, above: Vec<i64>, sent: i64) -> Position {
    Position { through: unsigned(through), above: above.into_iter().map(unsigned).collect(), sent: unsigned(sent) }
}
