//! From a file to a database. It is built in a folder of its own and moved to its place when it is complete.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use frontdesk_core::port::store::StoreError;
use rusqlite::{Connection, params_from_iter};

use super::insert;
use crate::portable::{ImportFile, PortableError, Progress, Row, TABLES, Value};
use crate::sqlite::data::{self, Columns, ROW_BITS};
use crate::sqlite::{FILE, SqliteStore, connect, fault, lock, private, schema};

const WORK: &str = "import.tmp";

impl SqliteStore {
    /// Creates the database and the media of a data folder that has none. If it fails, the folder stays as it was.
    pub fn import(folder: &Path, file: ImportFile) -> Result<Progress, PortableError> {
        private::make_folder(folder)?;
        let _lock = lock(folder)?;
        check_empty(folder)?;
        let work = Work::begin(folder)?;
        let progress = build(&work.0, file)?;
        let moved = [("media", "media"), (FILE, FILE)].iter().try_for_each(|(from, to)| {
            fs::rename(work.0.join(from), folder.join(to))?;
            // The database comes last: without it the folder counts as empty.
            File::open(folder)?.sync_all()
        });
        moved.map_err(|error| private::unusable(folder, &error))?;
        Ok(progress)
    }
}

fn check_empty(folder: &Path) -> Result<(), PortableError> {
    let refused = |why: &str| Err(PortableError::Refused(format!("{} {why}", folder.display())));
    if SqliteStore::is_in(folder) {
        return refused("has a database already; import into a data folder without one");
    }
    if ["frontdesk.db-wal", "frontdesk.db-shm"].iter().any(|name| folder.join(name).exists()) {
        return refused("has files of a database that is gone (frontdesk.db-wal, frontdesk.db-shm); remove them first");
    }
    if fs::read_dir(folder.join("media")).is_ok_and(|mut files| files.next().is_some()) {
        return refused("has media already; import into an empty data folder");
    }
    Ok(())
}

/// The folder in which the database is built; it goes with its content.
struct Work(PathBuf);

impl Work {
    fn begin(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(WORK);
        let _ = fs::remove_dir_all(&path); // left by an import that was killed
        private::make_folder(&path.join("media"))?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // the next import removes it
    }
}

fn build(folder: &Path, mut file: ImportFile) -> Result<Progress, PortableError> {
    let path = folder.join(FILE);
    private::make_file(&path)?;
    let mut connection = connect(&path, false)?;
    schema::migrate(&mut connection, file.epoch(), |_| Ok(()))?;
    // No reader opens it before it is complete and synced, so journal and syncs are off until then.
    let fast = "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;";
    connection.execute_batch(fast).map_err(fault)?;
    connection
        .execute_batch("CREATE TEMP TABLE last (instance INTEGER PRIMARY KEY, last_seq INTEGER NOT NULL); BEGIN")
        .map_err(fault)?;
    let mut import = Import::of(&connection, folder.join("media"));
    while let Some((table, row)) = file.next()? {
        import.row(table, row)?;
    }
    import.end()?;
    connection.execute_batch("COMMIT; PRAGMA journal_mode=WAL;").map_err(fault)?;
    connection.close().map_err(|(_, error)| fault(error))?;
    let synced = File::open(&path).and_then(|file| file.sync_all());
    let synced = synced.and_then(|()| File::open(folder.join("media"))?.sync_all());
    synced.map_err(|error| private::unusable(&path, &error))?;
    Ok(file.progress())
}

struct Import<'a> {
    connection: &'a Connection,
    media: PathBuf,
    /// Statements by table.
    inserts: Vec<String>,
    /// They are written last.
    counters: Vec<Row>,
    /// The media file that is being written.
    open: Option<(String, File)>,
    /// The ledger of the last row of mail, and its newest event so far.
    newest: (i64, i64),
    /// Rows up to this event do not rise with their events.
    unordered: i64,
}

impl<'a> Import<'a> {
    fn of(connection: &'a Connection, media: PathBuf) -> Self {
        Self {
            connection,
            media,
            inserts: TABLES.iter().map(insert).collect(),
            counters: Vec::new(),
            open: None,
            newest: (0, 0),
            unordered: 0,
        }
    }

    fn row(&mut self, table: usize, mut row: Row) -> Result<(), PortableError> {
        match TABLES[table].name {
            "counter" => {
                self.counters.push(row);
                return Ok(());
            }
            "media_chunk" => return self.media_chunk(&row),
            "data_row" => return self.data_row(&row),
            "media" => {
                self.media_row(&row)?;
                row.pop();
            }
            "ledger" => self.note_last_number(&row)?,
            "mail" => self.note_order(row[0].int(), row[2].int()),
            _ => {}
        }
        let mut insert = self.connection.prepare_cached(&self.inserts[table]).map_err(fault)?;
        insert.execute(params_from_iter(row)).map(drop).map_err(refused_row(TABLES[table].name))
    }

    /// With several servers, rows of a ledger need not rise with their events; retention must know.
    fn note_order(&mut self, instance: i64, event: i64) {
        let newest = if self.newest.0 == instance { self.newest.1 } else { 0 };
        if event < newest {
            self.unordered = self.unordered.max(newest);
        }
        self.newest = (instance, newest.max(event));
    }

    fn data_row(&self, row: &Row) -> Result<(), PortableError> {
        let (tenant, no, json, text) = (row[0].text(), row[1].int(), row[5].text(), row[6].text());
        let parsed = serde_json::from_str(json)
            .map_err(|error| PortableError::Refused(format!("a data row is not valid: {error}")))?;
        if !(1..1 << ROW_BITS).contains(&no) {
            return Err(PortableError::Refused(format!("the number {no} of a data row is out of range")));
        }
        let it = Columns { row: &parsed, json, has_detail: row[4] == Value::Bool(true), text };
        data::restore(self.connection, &tenant.into(), no, &it).map_err(PortableError::Store)
    }

    fn media_chunk(&mut self, row: &Row) -> Result<(), PortableError> {
        let id = row[0].text();
        if self.open.as_ref().is_none_or(|(open, _)| open != id) {
            self.close()?;
            self.open = Some((id.to_owned(), self.create(id)?));
        }
        let Some((_, file)) = &mut self.open else { return Ok(()) };
        file.write_all(row[3].bytes()).map_err(|error| PortableError::File(self.media.display().to_string(), error))
    }

    /// A file without bytes has no chunks.
    fn media_row(&mut self, row: &Row) -> Result<(), PortableError> {
        self.close()?;
        let (id, has_bytes) = (row[0].text(), matches!(row[6], Value::Int(_)));
        if has_bytes && !self.media.join(id).exists() {
            self.create(id)?;
        }
        Ok(())
    }

    fn create(&self, id: &str) -> Result<File, PortableError> {
        // The name of a file comes from outside here.
        let is_name = id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if id.is_empty() || id.starts_with('.') || !is_name {
            return Err(PortableError::Refused(format!("{id:?} is not a valid file id")));
        }
        let path = self.media.join(id);
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        made.map_err(|error| PortableError::File(path.display().to_string(), error))
    }

    fn close(&mut self) -> Result<(), PortableError> {
        let Some((id, file)) = self.open.take() else { return Ok(()) };
        file.sync_all().map_err(|error| PortableError::File(self.media.join(id).display().to_string(), error))
    }

    fn end(&mut self) -> Result<(), PortableError> {
        self.close()?;
        let last = |name: &str| self.counters.iter().find(|row| row[0].text() == name).map_or(0, |row| row[1].int());
        let put = |key: &str, value: i64| {
            let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
            self.connection.execute(sql, (key, value)).map(drop).map_err(fault)
        };
        put("directory_version", last("directory"))?;
        put("directory_floor", last("directory"))?;
        put("last_instance", last("instance"))?;
        // Later events get places above those that readers have saved.
        put("last_event", last("event").max(last("place")))?;
        for (name, key) in
            [("session", "last session"), ("desk", "last desk"), ("fragment", "last fragment"), ("claim", "last claim")]
        {
            if last(name) > 0 {
                put(key, last(name))?;
            }
        }
        if self.unordered > 0 {
            put("unordered through", self.unordered)?;
        }
        self.connection.execute("DELETE FROM sqlite_sequence WHERE name = 'alarm'", []).map_err(fault)?;
        let sql = "INSERT INTO sqlite_sequence (name, seq) SELECT 'alarm', MAX(?1, COALESCE(MAX(id), 0)) FROM alarm";
        self.connection.execute(sql, [last("alarm")]).map(drop).map_err(fault)?;
        self.keep_last_numbers()
    }

    /// The last number of a ledger is not stored here: it follows from its rows. A number without a row counts as settled,
    /// so that it is not given out again.
    fn keep_last_numbers(&self) -> Result<(), PortableError> {
        let sql = "UPDATE position SET above = json_insert(above, '$[#]',
                     (SELECT last_seq FROM temp.last l WHERE l.instance = position.instance))
                   WHERE instance IN (SELECT l.instance FROM temp.last l WHERE l.last_seq >
                     COALESCE((SELECT MAX(seq) FROM mail m WHERE m.instance = l.instance), 0))";
        self.connection.execute(sql, []).map(drop).map_err(fault)?;
        Ok(())
    }

    fn note_last_number(&self, row: &Row) -> Result<(), PortableError> {
        let (last_seq, through) = (row[1].int(), row[2].int());
        let above = if let Value::Ints(above) = &row[3] { above.as_slice() } else { &[] };
        if above.iter().copied().chain([through]).all(|settled| settled < last_seq) {
            let sql = "INSERT INTO temp.last (instance, last_seq) VALUES (?1, ?2)";
            self.connection.execute(sql, (row[0].int(), last_seq)).map_err(fault)?;
        }
        Ok(())
    }
}

fn refused_row(table: &'static str) -> impl Fn(rusqlite::Error) -> PortableError {
    move |error| match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::ConstraintViolation) => {
            PortableError::Refused(format!("a row of table {table:?} contradicts another one: {error}"))
        }
        _ => fault(error).into(),
    }
}
