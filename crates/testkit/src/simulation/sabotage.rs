//! Faults that must not happen, to show that the invariants find them.

use std::sync::Arc;

use frontdesk_core::port::store::{Acceptance, Delivery, Seq, Store, StoreError};
use frontdesk_wire::InstanceNo;

use super::store::at_once;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Some events are accepted, and their rows are not written.
    ForgetRows,
    /// All rows that a session has written count as acked, whichever session serves the instance.
    BelieveWritten,
    /// A session begins at the beginning of its ledger, and reads rows that were settled.
    ForgetPositions,
    /// Every desk may wake every agent.
    GrantEveryWake,
    /// Open entries of live desks are marked unknown as well.
    MarkLiveEntriesUnknown,
    /// A desk reads the version of the directory, but no change of a gateway.
    MissRevocations,
}

pub(super) fn all_rows(
    store: &dyn Store,
    instance: InstanceNo,
    after: Seq,
    limit: usize,
) -> Result<Vec<(Seq, Arc<Delivery>)>, StoreError> {
    let mut rows = at_once(store.mail(instance, None, Seq::NONE, usize::MAX))?;
    rows.reverse();
    Ok(rows.into_iter().filter(|row| row.seq > after).take(limit).map(|row| (row.seq, row.delivery)).collect())
}

pub(super) fn without_rows(mut batch: Vec<Acceptance>) -> Vec<Acceptance> {
    for one in &mut batch {
        one.receivers.clear();
    }
    batch
}
