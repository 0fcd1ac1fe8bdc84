//! Tenants, gateways and the like as records under one version: every commit raises it, and many servers may write.

use super::stored::Stored;

/// One record of the directory: JSON under (kind, key).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub kind: String,
    pub key: String,
    /// The version of the directory that changed it last. Versions never begin again, also not after a deletion.
    pub version: u64,
    /// `None`: it was deleted.
    pub json: Option<String>,
}

/// A change of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub kind: String,
    pub key: String,
    /// `None` deletes it.
    pub json: Option<String>,
}

/// Changes of the directory since a version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// The directory is at this version now.
    pub version: u64,
    pub records: Vec<Record>,
    /// These are all records: deletions from before are no longer stored.
    pub whole: bool,
}

/// Called with the new version after a commit, to update memory.
pub type Applied = Box<dyn FnOnce(u64) + Send>;

pub trait Directory: Send + Sync {
    /// Records that changed after this version, with those that were deleted. After 0: everything.
    fn changed_since(&self, version: u64) -> Stored<'_, Changes>;
    /// All changes or none. `seen` is the version that the decision was made on: if the directory is at another one,
    /// it is a conflict, and the decision must be made again. Two records of instances or agents with the same number
    /// (`no`) are a conflict, whatever their keys. Returns the new version.
    ///
    /// `applied` is called where the commit is made, before other servers are notified: if the caller is dropped while
    /// it waits, both are done or neither. It must not block.
    fn amend(&self, seen: u64, changes: Vec<Change>, applied: Applied) -> Stored<'_, u64>;
    /// Draws this many numbers for ledgers of instances: the first of a run. A number is never given twice, also
    /// if it was not used.
    fn draw_numbers(&self, count: u64) -> Stored<'_, u64>;
}
