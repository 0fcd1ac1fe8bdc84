//! A store as a file, in a form that every backend writes and reads: `frontdesk export` and `frontdesk import`.
//!
//! The file has one JSON text per line: a header, the rows of one table after the other, and an end with the number of rows
//! and a checksum per table. It is written and read as a stream. A file that was cut off or changed is refused.
//!
//! State of running servers is not in it: leases, sessions, claims of wakes, uploads in progress. Deletions in the
//! directory are not either: an import raises the floor to the version of the directory, so that a server that has seen
//! less reads all of it.

mod reader;
mod tables;
mod value;
mod writer;

use frontdesk_core::port::store::StoreError;

pub use reader::ImportFile;
pub(crate) use tables::{Kind, TABLES, Table};
pub(crate) use value::{Row, Value};
pub use writer::ExportFile;

/// Version of the format.
pub const VERSION: u32 = 1;
const FORMAT: &str = "frontdesk export";
/// Bytes of a file that are in one row.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// Bytes between two reports of progress.
const REPORT_BYTES: u64 = 32 << 20;
/// A longer line was not written by us: the largest rows are texts of a few megabytes.
const LINE_MAX_BYTES: u64 = 256 << 20;

#[derive(Debug, thiserror::Error)]
pub enum PortableError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}: {1}")]
    File(String, #[source] std::io::Error),
    /// The file or the target cannot be used.
    #[error("{0}")]
    Refused(String),
}

/// How far an export or import has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub rows: u64,
    pub bytes: u64,
}

/// Called from time to time.
pub type Report = Box<dyn FnMut(Progress) + Send>;

/// First line of a file.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: String,
    version: u32,
    epoch: u32,
    /// Derived from the master key of the servers, which opens the sealed secrets in the rows.
    key_check: Option<String>,
    /// Name, and columns with their types, in the order of the file.
    tables: Vec<(String, Vec<String>)>,
}

/// Last line of a file.
#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct End {
    end: Vec<TableSum>,
    /// SHA-256 of the first line.
    header: String,
}

#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct TableSum {
    table: String,
    rows: u64,
    /// SHA-256 of the lines of the table.
    sha256: String,
}

/// Counts and sums up the lines of a table.
struct Sum {
    rows: u64,
    digest: aws_lc_rs::digest::Context,
}

impl Sum {
    fn new() -> Self {
        Self { rows: 0, digest: aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256) }
    }

    fn add(&mut self, line: &[u8]) {
        self.rows += 1;
        self.digest.update(line);
    }

    fn of_tables() -> Vec<Self> {
        TABLES.iter().map(|_| Self::new()).collect()
    }
}

fn end_of(sums: Vec<Sum>, header: Sum) -> End {
    let digest_hex = |sum: Sum| hex::encode(sum.digest.finish());
    let end = TABLES.iter().zip(sums).map(|(table, sum)| TableSum {
        table: table.name.to_owned(),
        rows: sum.rows,
        sha256: digest_hex(sum),
    });
    End { end: end.collect(), header: digest_hex(header) }
}

fn described_tables() -> Vec<(String, Vec<String>)> {
    TABLES
        .iter()
        .map(|table| (table.name.to_owned(), table.columns.iter().map(tables::Column::described).collect()))
        .collect()
}
