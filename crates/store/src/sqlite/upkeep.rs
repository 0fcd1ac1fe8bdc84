//! Health, integrity check, and backup. Operations on the whole file have their own thread and connection.

use std::path::Path;

use frontdesk_core::port::store::{Purged, Retention, StoreError, StoreReport, Stored, Upkeep};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use tokio::sync::oneshot;

use super::threads::Books;
use super::{SqliteStore, connect, fault, gone, private, unsigned};

pub(super) use super::retention::Round;

impl Upkeep for SqliteStore {
    fn health(&self) -> Stored<'_, ()> {
        let work = |books: &mut Books| {
            let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES ('health', random())";
            books.connection.execute(sql, []).map(drop).map_err(fault)
        };
        self.writer.write(work, |()| {})
    }

    fn report(&self) -> Stored<'_, StoreReport> {
        let path = self.path.clone();
        self.alone(move |connection| {
            let mut check = connection.prepare("PRAGMA integrity_check(20)").map_err(fault)?;
            let found: Vec<String> =
                check.query_map([], |row| row.get(0)).and_then(Iterator::collect).map_err(fault)?;
            let waiting = "SELECT COALESCE(SUM(MAX(0, last - through -
                             (SELECT COUNT(*) FROM json_each(above) WHERE value <= last))), 0)
                           FROM (SELECT through, above, COALESCE((SELECT MAX(m.seq) FROM mail m
                                   WHERE m.instance = p.instance), 0) AS last FROM position p)";
            let rows_waiting: i64 = connection.query_row(waiting, [], |row| row.get(0)).map_err(fault)?;
            let size = |end: &str| {
                let mut name = path.as_os_str().to_owned();
                name.push(end);
                std::fs::metadata(name).map_or(0, |meta| meta.len())
            };
            Ok(StoreReport {
                backend: "sqlite".into(),
                rows_waiting: unsigned(rows_waiting),
                bytes: size("") + size("-wal"),
                faults: found.into_iter().filter(|line| line != "ok").collect(),
                risks: Vec::new(),
            })
        })
    }

    fn backup<'a>(&'a self, to: &'a Path) -> Stored<'a, u64> {
        let to = to.to_owned();
        self.alone(move |source| {
            if to.exists() {
                return Err(StoreError::Unavailable(format!("{} exists already", to.display())));
            }
            private::make_file(&to)?;
            copy(source, &to).inspect_err(|_| {
                let _ = std::fs::remove_file(&to); // a partial copy looks like a backup, and blocks the next attempt
            })?;
            let bytes = std::fs::File::open(&to).and_then(|file| file.sync_all().and(file.metadata()));
            bytes.map(|meta| meta.len()).map_err(|error| private::unusable(&to, &error))
        })
    }

    fn purge(&self, keep: Retention) -> Stored<'_, Purged> {
        Box::pin(async move { self.round.lock().await.step(self, keep).await })
    }
}

/// Copies all pages in one step, from one snapshot: a copy in several steps restarts after every write.
fn copy(source: &Connection, to: &Path) -> Result<(), StoreError> {
    let mut target = Connection::open(to).map_err(fault)?;
    let copy = Backup::new(source, &mut target).map_err(fault)?;
    match copy.step(-1).map_err(fault)? {
        StepResult::Done => Ok(()),
        _ => Err(StoreError::Unavailable("the database is locked by another program; try again".into())),
    }
}

impl SqliteStore {
    /// Runs long work on its own connection and thread, so that nothing waits behind it. One at a time.
    fn alone<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Stored<'_, T> {
        let path = self.path.clone();
        Box::pin(async move {
            let turn = self.whole_file.clone().acquire_owned().await.map_err(|_| gone())?;
            let (answer, answered) = oneshot::channel();
            let thread = std::thread::Builder::new().name("store-care".into()).spawn(move || {
                let done = connect(&path, true).and_then(|connection| work(&connection));
                drop(turn);
                let _ = answer.send(done); // the caller may be gone
            });
            thread.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            answered.await.map_err(|_| gone())?
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use frontdesk_testkit::store_suite::{accept, acceptance, owed};
    use futures_util::FutureExt as _;

    use super::*;
    use crate::read_queue::of_tenant;

    /// 40 MB: an integrity check looks up each of these rows in the index.
    const BALLAST: &str = "CREATE TABLE ballast (id INTEGER PRIMARY KEY, text TEXT NOT NULL);
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 200000)
        INSERT INTO ballast SELECT n, hex(randomblob(50)) FROM number;
        CREATE INDEX ballast_text ON ballast (text);";

    #[tokio::test]
    async fn reads_and_writes_go_on_during_an_integrity_check() {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path(), 1).unwrap();
        let fill = |books: &mut Books| books.connection.execute_batch(BALLAST).map_err(fault);
        store.writer.write(fill, |()| {}).await.unwrap();
        // One of the two readers is occupied: a check on the other one would stop all reads.
        let (occupied, is_occupied) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let mut reader = store.readers.read(of_tenant("a"), move |_| {
            let _ = occupied.send(());
            let _ = released.recv(); // an error: the test is over
            Ok(())
        });
        assert!(reader.as_mut().now_or_never().is_none());
        is_occupied.recv().unwrap();

        let (mut written, mut meanwhile) = (0, 0);
        // A disk that is busy may take longer for a commit than the check takes.
        for _ in 0..20 {
            let mut check = store.report();
            assert!(check.as_mut().now_or_never().is_none(), "the check has begun");
            let report = loop {
                written += 1;
                accept(&store, acceptance(written, &[7])).await;
                assert_eq!(owed(&store, 7).await.len() as u64, written);
                if let Some(report) = check.as_mut().now_or_never() {
                    break report.unwrap();
                }
                meanwhile += 1;
            };
            assert_eq!(report.faults, [""; 0]);
            if meanwhile > 0 {
                break;
            }
        }
        assert!(meanwhile > 0, "no write and read ended before the check");
        drop(release);
        reader.await.unwrap();
    }
}
