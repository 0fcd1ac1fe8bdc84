//! Reads a file, and refuses one that was changed or cut off.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use super::{
    End, FORMAT, Header, LINE_MAX_BYTES, PortableError, Progress, REPORT_BYTES, Report, Row, Sum, TABLES, VERSION,
    Value, described_tables, end_of,
};

pub struct ImportFile {
    path: PathBuf,
    input: BufReader<File>,
    line: Vec<u8>,
    number: u64,
    header: Header,
    header_sum: Sum,
    sums: Vec<Sum>,
    /// The table of the last row.
    table: usize,
    progress: Progress,
    report: Report,
    is_finished: bool,
}

/// Only the fields that tell formats apart, so that a newer one is recognised whatever else it has.
#[derive(serde::Deserialize)]
struct Format {
    format: String,
    version: u32,
}

impl ImportFile {
    pub fn open(path: &Path, report: Report) -> Result<Self, PortableError> {
        let file = File::open(path).map_err(|error| PortableError::File(path.display().to_string(), error))?;
        let header = Header { format: String::new(), version: 0, epoch: 0, key_check: None, tables: Vec::new() };
        let mut it = Self {
            path: path.to_owned(),
            input: BufReader::with_capacity(1 << 20, file),
            line: Vec::new(),
            number: 0,
            header,
            header_sum: Sum::new(),
            sums: Sum::of_tables(),
            table: 0,
            progress: Progress::default(),
            report,
            is_finished: false,
        };
        it.read_header()?;
        Ok(it)
    }

    /// Reads the whole file, so that nothing is written from one that is incomplete.
    pub fn check(mut self) -> Result<Progress, PortableError> {
        while self.next()?.is_some() {}
        Ok(self.progress)
    }

    pub fn epoch(&self) -> u32 {
        self.header.epoch
    }

    pub fn key_check(&self) -> Option<&str> {
        self.header.key_check.as_deref()
    }

    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    fn read_header(&mut self) -> Result<(), PortableError> {
        if !self.read_line()? {
            return Err(self.refused("is empty"));
        }
        let format: Result<Format, _> = serde_json::from_slice(&self.line);
        let Some(format) = format.ok().filter(|it| it.format == FORMAT) else {
            return Err(self.refused("was not written by `frontdesk export`"));
        };
        if format.version > VERSION {
            let found = format.version;
            return Err(self.refused(&format!(
                "has version {found} of the format; this version of Frontdesk reads up to {VERSION}: use a newer one"
            )));
        }
        self.header = serde_json::from_slice(&self.line).map_err(|_| self.changed("its header is not valid"))?;
        if self.header.tables != described_tables() {
            return Err(self.changed("its header lists tables that differ from this version of the format"));
        }
        self.header_sum.add(&self.line);
        Ok(())
    }

    /// The next row with the place of its table in [`TABLES`]. `None`: all rows were read, and the file is whole.
    pub(crate) fn next(&mut self) -> Result<Option<(usize, Row)>, PortableError> {
        if self.is_finished {
            return Ok(None);
        }
        if !self.read_line()? {
            return Err(self.refused("is cut off: its last line is missing"));
        }
        if self.line.first() == Some(&b'{') {
            return self.read_end().map(|()| None);
        }
        let (table, row) = self.parsed().ok_or_else(|| {
            let number = self.number;
            self.changed(&format!("line {number} is not a valid row"))
        })?;
        if table < self.table {
            return Err(self.changed("its tables are not in order"));
        }
        self.table = table;
        self.sums[table].add(&self.line);
        self.progress.rows += 1;
        Ok(Some((table, row)))
    }

    fn parsed(&self) -> Option<(usize, Row)> {
        let values: Vec<serde_json::Value> = serde_json::from_slice(&self.line).ok()?;
        let mut values = values.into_iter();
        let name = values.next()?;
        let table = TABLES.iter().position(|table| name == table.name)?;
        let columns = TABLES[table].columns;
        let row: Row = columns.iter().zip(&mut values).map(|(it, json)| Value::of(it, json)).collect::<Option<_>>()?;
        (row.len() == columns.len() && values.next().is_none()).then_some((table, row))
    }

    fn read_end(&mut self) -> Result<(), PortableError> {
        let end: End = serde_json::from_slice(&self.line).map_err(|_| self.changed("its last line is not valid"))?;
        let found = end_of(std::mem::take(&mut self.sums), std::mem::replace(&mut self.header_sum, Sum::new()));
        if end.header != found.header {
            return Err(self.changed("the checksum of its header differs"));
        }
        let differs = end.end.iter().zip(&found.end).find(|(expected, found)| expected != found);
        if let Some((expected, found)) = differs {
            let (table, rows) = (&found.table, (expected.rows, found.rows));
            let why =
                format!("table {table:?} should have {} rows, {} were read, or their checksum differs", rows.0, rows.1);
            return Err(self.changed(&why));
        }
        if end.end.len() != found.end.len() {
            return Err(self.changed("its last line does not name all tables"));
        }
        if self.read_line()? {
            return Err(self.changed("there is data after its last line"));
        }
        self.is_finished = true;
        Ok(())
    }

    /// False at the end of the file. A line without its end was cut off.
    fn read_line(&mut self) -> Result<bool, PortableError> {
        self.line.clear();
        self.number += 1;
        let read = self.input.by_ref().take(LINE_MAX_BYTES).read_until(b'\n', &mut self.line);
        read.map_err(|error| PortableError::File(self.path.display().to_string(), error))?;
        if self.line.is_empty() {
            return Ok(false);
        }
        if self.line.last() != Some(&b'\n') {
            return Err(self.refused("is cut off in the middle of a line"));
        }
        let before = self.progress.bytes / REPORT_BYTES;
        self.progress.bytes += self.line.len() as u64;
        if self.progress.bytes / REPORT_BYTES > before {
            (self.report)(self.progress);
        }
        Ok(true)
    }

    fn changed(&self, why: &str) -> PortableError {
        self.refused(&format!("is damaged or was changed: {why}"))
    }

    fn refused(&self, why: &str) -> PortableError {
        PortableError::Refused(format!("{} {why}", self.path.display()))
    }
}
