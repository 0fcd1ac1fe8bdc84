//! Locks that are no rows: for bounds over many rows, which no single row could keep.

use frontdesk_core::short_hash;

use super::connection::{Connection, Fault};

/// Waits for the lock of this name, and holds it until the transaction ends. Names that share a hash share a lock, which
/// does no harm.
pub(super) async fn lock(connection: &Connection, name: &[&str]) -> Result<(), Fault> {
    connection.execute("SELECT pg_advisory_xact_lock($1)", &[&key(name)]).await.map(drop)
}

/// False: somebody else holds it.
pub(super) async fn try_lock(connection: &Connection, name: &[&str]) -> Result<bool, Fault> {
    Ok(connection.query_one("SELECT pg_try_advisory_xact_lock($1)", &[&key(name)]).await?.get(0))
}

/// The number of a lock. Locks that are taken together are taken in the order of their numbers.
pub(super) fn key(name: &[&str]) -> i64 {
    let [a, b, c, d, e, f, g, h, ..] = short_hash(name);
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}
