//! Faults that must not happen, to show that the invariants find them.

use frontdesk_core::port::store::Acceptance;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// Some events are accepted, and their rows are not written.
    ForgetRows,
    /// What a session only inferred counts as acked, whoever serves the instance.
    BelieveInferred,
    /// A session begins at the beginning of its ledger.
    ForgetPositions,
    /// Every desk may wake every agent.
    GrantEveryWake,
    /// Open entries of live desks are doubted as well.
    DoubtEverybody,
    /// A desk reads the version of the directory, but no change of a gateway.
    MissRevocations,
}

impl Sabotage {
    pub const ALL: [Self; 6] = [
        Self::ForgetRows,
        Self::BelieveInferred,
        Self::ForgetPositions,
        Self::GrantEveryWake,
        Self::DoubtEverybody,
        Self::MissRevocations,
    ];
}

pub(super) fn without_rows(mut batch: Vec<Acceptance>) -> Vec<Acceptance> {
    for one in &mut batch {
        one.receivers.clear();
    }
    batch
}
