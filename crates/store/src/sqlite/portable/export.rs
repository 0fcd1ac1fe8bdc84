//! From a database to a file. A read transaction on a connection of its own is one snapshot, also while a server writes.

use std::collections::HashSet;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use rusqlite::Connection;

use super::{select, value};
use crate::portable::{CHUNK_BYTES, ExportFile, PortableError, Progress, Row, TABLES, Value};
use crate::sqlite::{FILE, SqliteStore, connect, fault, private, schema};

impl SqliteStore {
    /// Writes everything in a data folder to a file. `key_check` tells the master key of its servers. Also returns how
    /// many files were deleted meanwhile, or are lost: they and what refers to them are left out.
    pub fn export(
        folder: &Path,
        key_check: Option<String>,
        mut file: ExportFile,
    ) -> Result<(Progress, usize), PortableError> {
        let path = folder.join(FILE);
        if !Self::is_in(folder) {
            return Err(PortableError::Refused(format!("{} has no database to export", folder.display())));
        }
        let connection = connect(&path, true)?;
        let moment = connection.unchecked_transaction().map_err(fault)?;
        file.begin(schema::check(&moment)?, key_check)?;
        let mut absent = HashSet::new();
        for (at, table) in TABLES.iter().enumerate() {
            match table.name {
                "media_chunk" => absent = media_chunks(&moment, at, &folder.join("media"), &mut file)?,
                "media" => media(&moment, at, &absent, &mut file)?,
                name => rows(&moment, at, |row| {
                    let is_of_absent = name == "media_mail" && absent.contains(row[0].text());
                    if is_of_absent { Ok(()) } else { file.row(at, &row) }
                })?,
            }
        }
        Ok((file.finish()?, absent.len()))
    }
}

fn rows(
    connection: &Connection,
    at: usize,
    mut each: impl FnMut(Row) -> Result<(), PortableError>,
) -> Result<(), PortableError> {
    let table = &TABLES[at];
    let mut query = connection.prepare(&select(table)).map_err(fault)?;
    let mut found = query.query([]).map_err(fault)?;
    while let Some(row) = found.next().map_err(fault)? {
        let values = table.columns.iter().enumerate().map(|(at, column)| value(column.kind, row, at));
        each(values.collect::<rusqlite::Result<_>>().map_err(fault)?)?;
    }
    Ok(())
}

/// The bytes of files in the folder. Returns the ids of those that are not there: retention deletes files of rows that
/// this snapshot still has.
fn media_chunks(
    connection: &Connection,
    at: usize,
    folder: &Path,
    out: &mut ExportFile,
) -> Result<HashSet<String>, PortableError> {
    let (mut absent, mut count) = (HashSet::new(), 0);
    let sql = "SELECT id FROM media WHERE id NOT IN (SELECT id FROM media_remote) ORDER BY id";
    let mut query = connection.prepare(sql).map_err(fault)?;
    let mut found = query.query([]).map_err(fault)?;
    while let Some(row) = found.next().map_err(fault)? {
        let id: String = row.get(0).map_err(fault)?;
        let path = folder.join(&id);
        let mut file = match std::fs::File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                absent.insert(id);
                continue;
            }
            Err(error) => return Err(private::unusable(&path, &error).into()),
        };
        count += 1;
        for no in 0.. {
            let mut bytes = Vec::with_capacity(CHUNK_BYTES);
            let read = file.by_ref().take(CHUNK_BYTES as u64).read_to_end(&mut bytes);
            if read.map_err(|error| private::unusable(&path, &error))? == 0 {
                break;
            }
            out.row(at, &[Value::Text(id.clone()), Value::Int(count), Value::Int(no), Value::Bytes(bytes)])?;
        }
    }
    Ok(absent)
}

fn media(
    connection: &Connection,
    at: usize,
    absent: &HashSet<String>,
    out: &mut ExportFile,
) -> Result<(), PortableError> {
    let mut count = 0;
    rows(connection, at, |mut row| {
        if absent.contains(row[0].text()) {
            return Ok(());
        }
        if let Some(file @ Value::Int(_)) = row.last_mut() {
            count += 1;
            *file = Value::Int(count);
        }
        out.row(at, &row)
    })
}
