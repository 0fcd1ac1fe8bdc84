//! Writes a file.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::{
    FORMAT, Header, PortableError, Progress, REPORT_BYTES, Report, Sum, TABLES, VERSION, Value, described_tables,
    end_of,
};

/// A file that is being written. Dropped before its end it is deleted: a part of a store must not be taken for all of it.
pub struct ExportFile {
    path: PathBuf,
    out: BufWriter<File>,
    line: Vec<u8>,
    header: Sum,
    sums: Vec<Sum>,
    progress: Progress,
    report: Report,
    is_finished: bool,
}

impl ExportFile {
    /// Creates the file, readable by its owner only. It must not exist.
    pub fn create(path: &Path, report: Report) -> Result<Self, PortableError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| PortableError::File(path.display().to_string(), error))?;
        Ok(Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(1 << 20, file),
            line: Vec::new(),
            header: Sum::new(),
            sums: Sum::of_tables(),
            progress: Progress::default(),
            report,
            is_finished: false,
        })
    }

    pub(crate) fn begin(&mut self, epoch: u32, key_check: Option<String>) -> Result<(), PortableError> {
        let header = Header { format: FORMAT.into(), version: VERSION, epoch, key_check, tables: described_tables() };
        self.put(&header)?;
        self.header.add(&self.line);
        Ok(())
    }

    /// A row of the table at this place of [`TABLES`]. Tables must come in their order.
    pub(crate) fn row(&mut self, table: usize, row: &[Value]) -> Result<(), PortableError> {
        debug_assert_eq!(row.len(), TABLES[table].columns.len());
        self.put(&Line(TABLES[table].name, row))?;
        self.sums[table].add(&self.line);
        self.progress.rows += 1;
        Ok(())
    }

    /// Returns when the file is on disk.
    pub(crate) fn finish(mut self) -> Result<Progress, PortableError> {
        let sums = std::mem::take(&mut self.sums);
        let header = std::mem::replace(&mut self.header, Sum::new());
        self.put(&end_of(sums, header))?;
        let synced = self.out.flush().and_then(|()| self.out.get_ref().sync_all());
        synced.map_err(|error| self.unusable(error))?;
        self.is_finished = true;
        Ok(self.progress)
    }

    fn put(&mut self, line: &impl serde::Serialize) -> Result<(), PortableError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line).map_err(|error| self.unusable(error.into()))?;
        self.line.push(b'\n');
        self.out.write_all(&self.line).map_err(|error| self.unusable(error))?;
        let before = self.progress.bytes / REPORT_BYTES;
        self.progress.bytes += self.line.len() as u64;
        if self.progress.bytes / REPORT_BYTES > before {
            (self.report)(self.progress);
        }
        Ok(())
    }

    fn unusable(&self, error: std::io::Error) -> PortableError {
        PortableError::File(self.path.display().to_string(), error)
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = std::fs::remove_file(&self.path); // the caller reports why it ended
        }
    }
}

/// The name of the table, then its values.
struct Line<'a>(&'static str, &'a [Value]);

impl serde::Serialize for Line<'_> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(std::iter::once(Part::Name(self.0)).chain(self.1.iter().map(Part::Value)))
    }
}

#[derive(serde::Serialize)]
#[serde(untagged)]
enum Part<'a> {
    Name(&'static str),
    Value(&'a Value),
}
