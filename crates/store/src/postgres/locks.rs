//! Advisory locks: for bounds over many rows, which no single row could keep. Postgres has them per database; these are
//! per schema, so that two stores in one database do not share them.

use frontdesk_core::short_hash;

use super::connection::{Connection, Fault};

/// Waits for the lock of this name, and holds it until the transaction ends. Names with the same hash share a lock,
/// which does no harm.
pub(super) async fn lock(connection: &Connection, name: &[&str]) -> Result<(), Fault> {
    let sql = "SELECT pg_advisory_xact_lock($1 # hashtextextended(current_schema()::text, 0))";
    connection.execute(sql, &[&key(name)]).await.map(drop)
}

/// False: another session holds it.
pub(super) async fn try_lock(connection: &Connection, name: &[&str]) -> Result<bool, Fault> {
    let sql = "SELECT pg_try_advisory_xact_lock($1 # hashtextextended(current_schema()::text, 0))";
    Ok(connection.query_one(sql, &[&key(name)]).await?.get(0))
}

/// The number of a lock. Several locks must be taken in the order of their numbers, to avoid deadlocks.
pub(super) fn key(name: &[&str]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = short_hash(name);
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}
