//! The servers that share a store. In code a desk is one start of a server process: it has a number that is never reused,
//! a lease, and duties that only one desk has at a time.

use frontdesk_wire::DeskNo;

use super::stored::Stored;

/// How long a lease is valid without being renewed.
pub const LEASE_MS: u64 = 5_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeskRecord {
    pub number: DeskNo,
    pub name: String,
    pub version: String,
    pub lease_until_ms: u64,
    /// The version of the directory that it has read.
    pub directory_seen: u64,
    /// Sessions that it serves.
    pub sockets: u64,
    /// It is stopping: it takes no duties, and its sessions move to other servers.
    pub is_leaving: bool,
    /// What it reports of itself (`cluster/report.rs`); empty at first.
    pub report: String,
}

impl DeskRecord {
    /// The record of a server that has just enlisted.
    pub fn new(number: DeskNo, name: String, version: String, lease_until_ms: u64) -> Self {
        let (directory_seen, sockets, is_leaving, report) = (0, 0, false, String::new());
        Self { number, name, version, lease_until_ms, directory_seen, sockets, is_leaving, report }
    }
}

/// For how long a server that ended without resigning is remembered.
pub const ABSENT_MS: u64 = 3_600_000;

/// What a server learns when it renews its lease.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renewal {
    pub directory_version: u64,
    /// All servers with a valid lease, this one included, sorted by number.
    pub live: Vec<DeskNo>,
    /// Those of them that are stopping, and take no duties.
    pub leaving: Vec<DeskNo>,
}

/// A lease only decides which server tries; the stored row decides which one succeeds. Each duty therefore has a token that
/// rises with every holder, and each write of a holder names its token.
///
/// `now_ms` is the caller's wall clock; a store that has a clock of its own uses that one.
pub trait Desks: Send + Sync {
    /// A new server, with a lease. Its number is higher than any before.
    fn enlist(&self, name: String, version: String, now_ms: u64) -> Stored<'_, DeskNo>;
    /// `Conflict`: the lease ran out, and others may have taken over. The server must stop acting and enlist again.
    /// `seen` is the version of the directory that it has read.
    fn renew(&self, me: DeskNo, seen: u64, now_ms: u64) -> Stored<'_, Renewal>;
    /// Takes or keeps a duty that no live server has. `None`: another live server has it.
    fn take_duty(&self, me: DeskNo, duty: String, now_ms: u64) -> Stored<'_, Option<u64>>;
    fn drop_duty(&self, me: DeskNo, duty: String) -> Stored<'_, ()>;
    /// The server is stopping: its duties are free at once, and it takes no more. It keeps its lease while it serves
    /// sessions.
    fn leave(&self, me: DeskNo) -> Stored<'_, ()>;
    /// The server ends: its lease and its duties are free at once.
    fn resign(&self, me: DeskNo) -> Stored<'_, ()>;
    /// Stores what the server reports of itself, for requests at other servers.
    fn put_report(&self, me: DeskNo, report: String) -> Stored<'_, ()>;
    /// Servers whose lease expired within the last [`ABSENT_MS`], with the milliseconds since then: the last one of each
    /// name, unless a server of that name is live.
    fn absent(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, u64)>>;
    /// The live servers, by the clock of the store.
    fn desks(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, Vec<String>)>>;
}
