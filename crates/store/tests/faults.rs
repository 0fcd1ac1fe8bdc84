//! External failures: damaged files, a full disk, a lock of another process, a killed process. Every `Ok` must be
//! stored afterwards and no `Err`, and temporary failures need no restart.
//!
//! Some tests use a child process: this program. An environment variable makes it run one of the `child_*` tests, which
//! otherwise do nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::media::body_of;
use frontdesk_core::port::store::{Acceptance, MediaItem, Position, Store, StoreError};
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::store_suite::{NotifiedRows, accept, accept_many, acceptance, numbers, owed};
use frontdesk_wire::{InstanceNo, Seq};
use rusqlite::Connection;
use tokio::task::JoinSet;

/// Environment variable with the folder of a child's store.
const FOLDER: &str = "FRONTDESK_FAULT_FOLDER";

fn open(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder, 1).unwrap())
}

fn refused(folder: &Path) -> StoreError {
    SqliteStore::open(folder, 1).err().expect("the store must not open")
}

fn database(folder: &Path) -> PathBuf {
    folder.join("frontdesk.db")
}

/// Waits until a dropped store has released its file and merged its write-ahead log, which is removed last.
async fn let_go(folder: &Path) {
    let log = folder.join("frontdesk.db-wal");
    let gone = async {
        while log.exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(20), gone).await;
    waited.unwrap_or_else(|_| panic!("the dropped store still holds {}", log.display()));
}

/// A folder with a closed store of some hundred pages.
async fn filled() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let long = |number| {
        let mut one = acceptance(number, &[7]);
        one.delivery.json = format!("\"{}\"", "x".repeat(2_000));
        one
    };
    store.accept((1..=200).map(long).collect()).await.unwrap();
    drop(store);
    let_go(folder.path()).await;
    folder
}

fn overwrite(path: &Path, from: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(from)).unwrap();
    file.write_all(bytes).unwrap();
}

// ---- damaged and foreign files --------------------------------------------------------------

#[tokio::test]
async fn a_file_that_is_not_a_database_is_reported_as_corrupt() {
    let folder = tempfile::tempdir().unwrap();
    let words = "These are the times that try men's souls. ".repeat(200);
    fs::write(database(folder.path()), &words).unwrap();
    let error = refused(folder.path());
    assert!(matches!(&error, StoreError::Corrupt(_)), "{error}");
    assert!(error.to_string().starts_with("the store is damaged: "), "{error}");
    assert_eq!(fs::read_to_string(database(folder.path())).unwrap(), words, "the file is unchanged");
}

#[tokio::test]
async fn a_database_without_its_first_page_is_reported_as_corrupt() {
    let folder = filled().await;
    overwrite(&database(folder.path()), 100, &[0xa5; 3_900]);
    let error = refused(folder.path());
    assert!(matches!(&error, StoreError::Corrupt(_)), "{error}");
}

#[tokio::test]
async fn a_truncated_database_is_reported_as_corrupt() {
    let folder = filled().await;
    let whole = fs::metadata(database(folder.path())).unwrap().len();
    let file = fs::OpenOptions::new().write(true).open(database(folder.path())).unwrap();
    file.set_len(whole / 2 / 4096 * 4096).unwrap();
    drop(file);
    corruption_is_reported(folder.path()).await;
}

#[tokio::test]
async fn random_pages_are_reported_as_corrupt_and_nothing_panics() {
    let folder = filled().await;
    let pages = fs::metadata(database(folder.path())).unwrap().len() / 4096;
    for page in 1..pages {
        overwrite(&database(folder.path()), page * 4096, &[0xa5; 4096]);
    }
    corruption_is_reported(folder.path()).await;
}

/// Opens or is refused; every further call succeeds or returns `Corrupt`, and at least one returns `Corrupt`.
async fn corruption_is_reported(folder: &Path) {
    let store = match SqliteStore::open(folder, 1) {
        Ok(store) => store,
        Err(error) => return assert!(matches!(error, StoreError::Corrupt(_)), "{error}"),
    };
    let store: Arc<dyn Store> = Arc::new(store);
    let mut errors = Vec::new();
    errors.extend(store.pending(InstanceNo(7), Seq(0), 999).await.err());
    errors.extend(store.mail(InstanceNo(7), None, Seq(0), 999).await.err());
    errors.extend(store.accept((900..950).map(|number| acceptance(number, &[7, 8])).collect()).await.err());
    errors.extend(store.settle(InstanceNo(7), Position { through: Seq(5), ..Position::default() }.into()).await.err());
    errors.extend(store.changed_since(0).await.err());
    errors.extend(store.chats(&"acme".into(), "", 9).await.err());
    errors.extend(store.health().await.err());
    assert!(!errors.is_empty(), "the corruption was not noticed");
    assert!(errors.iter().all(|error| matches!(error, StoreError::Corrupt(_))), "{errors:?}");
    match store.report().await {
        Ok(report) => assert!(!report.faults.is_empty()),
        Err(error) => assert!(matches!(error, StoreError::Corrupt(_)), "{error}"),
    }
    assert!(store.pending(InstanceNo(7), Seq(0), 999).await.is_err(), "the reader keeps running and reports it again");
}

#[tokio::test]
async fn noise_after_the_log_is_not_read() {
    let (folder, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = open(folder.path());
    accept_many(&*store, 50, 7).await;
    // As after a power failure in the middle of the next write.
    for name in ["frontdesk.db", "frontdesk.db-wal"] {
        fs::copy(folder.path().join(name), left.path().join(name)).unwrap();
    }
    let mut log = fs::OpenOptions::new().append(true).open(left.path().join("frontdesk.db-wal")).unwrap();
    log.write_all(&[0x5a; 10_000]).unwrap();
    drop(log);
    let again = open(left.path());
    assert_eq!(owed(&*again, 7).await, (1..=50).collect::<Vec<_>>());
    assert_eq!(numbers(&accept(&*again, acceptance(51, &[7])).await.rows), [(7, 51)]);
    assert_eq!(again.report().await.unwrap().faults, [""; 0]);
}

#[tokio::test]
async fn a_newer_database_is_refused_and_unchanged() {
    let folder = filled().await;
    let connection = Connection::open(database(folder.path())).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    let error = refused(folder.path());
    let text = error.to_string();
    assert!(matches!(error, StoreError::Unavailable(_)), "{text}");
    assert!(text.contains("version 999") && text.contains("newer"), "{text}");
    let connection = Connection::open(database(folder.path())).unwrap();
    let version: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 999);
}

#[tokio::test]
async fn a_database_made_by_other_migrations_is_refused() {
    let folder = filled().await;
    let connection = Connection::open(database(folder.path())).unwrap();
    connection.execute("UPDATE meta SET value = 'other' WHERE key = 'migration 1'", []).unwrap();
    drop(connection);
    let error = refused(folder.path());
    assert!(matches!(&error, StoreError::Corrupt(text) if text.contains("migration 1")), "{error}");
}

#[tokio::test]
async fn an_invalid_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = refused(&file);
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("file")), "{error}");
}

#[tokio::test]
async fn media_without_their_file_are_not_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.media_put(picture("9f"), body_of(vec![1]), 0).await.unwrap();
    fs::remove_file(folder.path().join("media/9f")).unwrap();
    assert!(store.media_get(&"acme".into(), "9f", 0).await.unwrap().is_none());
}

fn picture(id: &str) -> MediaItem {
    let (tenant, mime) = ("acme".to_owned(), "image/png".to_owned());
    MediaItem { id: id.into(), tenant: tenant.into(), mime, filename: None, size: 1, expires_ms: 500 }
}

// ---- locks of others ------------------------------------------------------------------------

#[tokio::test]
async fn a_second_store_on_one_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    accept_many(&*store, 3, 7).await;
    let error = refused(folder.path());
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(error.to_string().contains("in use by another Frontdesk server"), "{error}");
    accept(&*store, acceptance(4, &[7])).await;
    drop(store);
    assert_eq!(owed(&*open(folder.path()), 7).await, [1, 2, 3, 4], "free after the first was dropped");
}

#[tokio::test]
async fn a_lock_of_another_process_is_temporary() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let notified = NotifiedRows::on(&*store);
    accept(&*store, acceptance(1, &[7])).await;
    let mut holder = Playing::begin(folder.path(), "child_holds_the_lock", |command| command);
    holder.wait_for("LOCKED");

    let refused = store.accept(vec![acceptance(2, &[7])]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(matches!(store.health().await, Err(StoreError::Unavailable(_))), "health fails where an accept would");
    assert_eq!(owed(&*store, 7).await, [1], "reads still work");

    holder.tell("let go");
    holder.ends_well();
    store.health().await.unwrap();
    assert_eq!(
        numbers(&accept(&*store, acceptance(3, &[7])).await.rows),
        [(7, 2)],
        "no restart needed, and no number is lost"
    );
    assert_eq!(notified.rows(), [(7, 1), (7, 2)], "a refused row is not notified");
    drop(store);
    let again = open(folder.path());
    let ids: Vec<_> =
        again.pending(InstanceNo(7), Seq(0), 9).await.unwrap().iter().map(|(_, it)| it.message_id.clone()).collect();
    assert_eq!(ids, ["m-1", "m-3"]);
}

#[test]
#[ignore = "run as a child process by a_lock_of_another_process_is_temporary"]
fn child_holds_the_lock() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let connection = Connection::open(database(Path::new(&folder))).unwrap();
    connection.execute_batch("BEGIN EXCLUSIVE").unwrap();
    println!("LOCKED");
    std::io::stdin().lines().next();
    connection.execute_batch("ROLLBACK").unwrap();
}

// ---- the process dies -----------------------------------------------------------------------

#[tokio::test]
async fn answered_writes_survive_a_kill() {
    for lines in [1, 60, 250] {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Playing::begin(folder.path(), "child_writes_until_killed", |command| command);
        let mut answered = BTreeSet::new();
        while answered.len() < lines {
            answered.insert(writer.wait_for("OK "));
        }
        writer.kill();
        // Output from before the kill that was not read yet counts as well.
        answered.extend(writer.rest("OK "));

        let again = open(folder.path());
        let (seven, eight) = (again.pending(InstanceNo(7), Seq(0), 99_999).await.unwrap(), owed(&*again, 8).await);
        let seqs: Vec<u64> = seven.iter().map(|(seq, _)| seq.0).collect();
        assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gaps");
        assert_eq!(seqs, eight, "no incomplete event");
        let there: BTreeSet<String> = seven.iter().map(|(_, it)| it.message_id.to_string()).collect();
        assert!(answered.is_subset(&there), "lost: {:?}", answered.difference(&there).collect::<Vec<_>>());
        assert_eq!(again.report().await.unwrap().faults, [""; 0]);
        assert_eq!(numbers(&accept(&*again, acceptance(1_000_000, &[7])).await.rows), [(7, seqs.len() as u64 + 1)]);
    }
}

#[test]
#[ignore = "run as a child process by answered_writes_survive_a_kill"]
fn child_writes_until_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(Path::new(&folder));
        let mut writers = JoinSet::new();
        for lane in 0..4_u64 {
            let store = store.clone();
            writers.spawn(async move {
                // Bounded, so that a child without parent ends by itself.
                for number in 0..5_000 {
                    let number = number * 4 + lane;
                    accept(&*store, acceptance(number, &[7, 8])).await;
                    println!("OK m-{number}");
                }
            });
        }
        writers.join_all().await;
    });
}

// ---- the disk is full -----------------------------------------------------------------------

#[test]
fn a_full_disk_refuses_and_recovers() {
    // A small disk: a tmpfs in a mount namespace that ends with the child. Without root it needs a user namespace,
    // which some machines forbid.
    let mount = r#"mount -t tmpfs -o size=4m tmpfs "$FRONTDESK_FAULT_FOLDER""#;
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let folder = tempfile::tempdir().unwrap();
    let works = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).args(["sh", "-c", mount]).env(FOLDER, folder.path()).output();
        tried.is_ok_and(|it| it.status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        println!("SKIPPED: this machine lets us mount no tmpfs (neither as root nor in a user namespace)");
        return;
    };
    let mut child = Playing::begin(folder.path(), "child_fills_the_disk", |command| {
        let mut wrapped = Command::new("unshare");
        wrapped.args(*way).args(["sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped
    });
    child.wait_for("RECOVERED");
    child.ends_well();
}

#[test]
#[ignore = "run as a child process by a_full_disk_refuses_and_recovers"]
fn child_fills_the_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    fill_then_free(&folder.join("store"), || fs::remove_file(&ballast).unwrap());
    println!("RECOVERED");
}

#[test]
fn a_file_size_limit_refuses_and_recovers() {
    // The same with a limit for file sizes, which needs no privileges: the write fails with another error than on a
    // full disk.
    if !Command::new("prlimit").arg("--version").output().is_ok_and(|it| it.status.success()) {
        println!("SKIPPED: there is no prlimit to lift the limit with");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Playing::begin(folder.path(), "child_meets_the_limit", |command| {
        let mut wrapped = Command::new("sh");
        // An ignored signal stays ignored after exec. ulimit counts in units of 512 bytes here.
        wrapped.args(["-c", r#"trap "" XFSZ; ulimit -S -f 4096; exec "$0" "$@""#]);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped
    });
    child.wait_for("RECOVERED");
    child.ends_well();
}

#[test]
#[ignore = "run as a child process by a_file_size_limit_refuses_and_recovers"]
fn child_meets_the_limit() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    fill_then_free(Path::new(&folder), || {
        let me = std::process::id().to_string();
        let lifted = Command::new("prlimit").args(["--pid", &me, "--fsize=unlimited:"]).status();
        assert!(lifted.unwrap().success(), "lifting the limit failed");
    });
    println!("RECOVERED");
}

/// Accepts until the disk is full, continues for a while, frees space, and compares the answers with the content: in
/// the same store, and in a reopened one.
fn fill_then_free(folder: &Path, make_room: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let store = open(folder);
        let notified = NotifiedRows::on(&*store);
        let (mut kept, mut refusals, mut number) = (BTreeSet::new(), 0, 0);
        while refusals < 60 {
            // Concurrent calls share one commit; large and small, so that some may still fit.
            let mut asked = JoinSet::new();
            for _ in 0..6 {
                number += 1;
                let (store, number) = (store.clone(), number);
                asked.spawn(async move { (number, store.accept(vec![sized(number)]).await) });
            }
            for (number, answer) in asked.join_all().await {
                match answer {
                    Ok(done) => {
                        assert!(done[0].fresh);
                        kept.insert(format!("m-{number}"));
                    }
                    Err(error) => {
                        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
                        refusals += 1;
                    }
                }
            }
            assert!(number < 20_000, "the disk never became full");
        }
        assert!(!kept.is_empty());
        let big = vec![7; 3 << 20];
        let refused = store.media_put(picture("big"), body_of(big.clone()), 0).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(!folder.join("media/big").exists(), "a partial file would keep the disk full");
        assert_eq!(there(&*store).await, kept, "readers see exactly what was answered");

        make_room();
        store.health().await.unwrap();
        for number in 50_000..50_020 {
            accept(&*store, sized(number)).await;
            kept.insert(format!("m-{number}"));
        }
        // A refused message may be sent again, and is new.
        for number in 1..=10 {
            let again = accept(&*store, small(number)).await;
            assert_eq!(again.fresh, kept.insert(format!("m-{number}")), "{number}");
        }
        assert_eq!(there(&*store).await, kept, "without reopening");
        let added: BTreeSet<String> =
            notified.deliveries().iter().map(|new| new.delivery.message_id.to_string()).collect();
        assert_eq!(added, kept, "exactly the committed rows were notified");

        drop(store);
        let again = open(folder);
        assert_eq!(there(&*again).await, kept, "after reopening");
        assert_eq!(again.report().await.unwrap().faults, [""; 0]);
    });
}

fn small(number: u64) -> Acceptance {
    acceptance(number, &[7])
}

fn sized(number: u64) -> Acceptance {
    let mut one = small(number);
    let long = if number.is_multiple_of(3) { 60_000 } else { 200 };
    one.delivery.json = format!("\"{}\"", "x".repeat(long));
    one
}

async fn there(store: &dyn Store) -> BTreeSet<String> {
    let rows = store.pending(InstanceNo(7), Seq(0), usize::MAX).await.unwrap();
    let seqs: Vec<u64> = rows.iter().map(|(seq, _)| seq.0).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>(), "no gaps");
    rows.into_iter().map(|(_, delivery)| delivery.message_id.to_string()).collect()
}

// ---- children -------------------------------------------------------------------------------

/// This program again as a child, running one test. Killed when dropped.
struct Playing {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
    log: String,
}

impl Playing {
    fn begin(folder: &Path, part: &str, wrap: impl FnOnce(Command) -> Command) -> Self {
        let mut plain = Command::new(std::env::current_exe().unwrap());
        plain.args(["--ignored", "--exact", part, "--nocapture", "--test-threads=1"]);
        let mut command = wrap(plain);
        command.env(FOLDER, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self { child, said, log: String::new() }
    }

    /// Reads up to a line with this text and returns the rest of the line.
    fn wait_for(&mut self, words: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.said.read_line(&mut line).unwrap();
            assert!(read > 0, "the child ended before it printed {words:?}:\n{}", self.log);
            // The test runner may have left an unfinished line before the child's text.
            if let Some((_, rest)) = line.split_once(words) {
                return rest.trim_end().to_owned();
            }
            self.log.push_str(&line);
        }
    }

    fn rest(&mut self, words: &str) -> Vec<String> {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        let whole = rest.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.filter_map(|line| line.split_once(words)).map(|(_, rest)| rest.trim_end().to_owned()).collect()
    }

    fn tell(&mut self, words: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{words}").unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    fn ends_well(mut self) {
        self.rest("");
        assert!(self.child.wait().unwrap().success(), "{}", self.log);
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        let _ = self.child.kill(); // the child may already be gone
        let _ = self.child.wait();
    }
}

/// A purge that fails in the middle of a round starts a new one, and keeps waiting rows.
#[tokio::test]
async fn a_failed_purge_keeps_waiting_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for number in 1..=600 {
        let receivers: &[u64] = if number % 2 == 0 { &[7, 8] } else { &[7] };
        accept(&*store, acceptance(number, receivers)).await;
    }
    let all: Vec<u64> = (1..=600).collect();
    store
        .settle(InstanceNo(7), Position { above: all.into_iter().map(Seq).collect(), ..Position::default() }.into())
        .await
        .unwrap();
    let before = owed(&*store, 8).await;
    let keep = frontdesk_core::port::store::Retention {
        events_before_ms: u64::MAX >> 2,
        verdicts_before_ms: u64::MAX >> 2,
        ..Default::default()
    };
    store.purge(keep).await.unwrap(); // the round has started
    store.purge(keep).await.unwrap(); // and done its first step
    let other = Connection::open(folder.path().join("frontdesk.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert!(store.purge(keep).await.is_err(), "the file is locked by another connection");
    other.execute_batch("ROLLBACK").unwrap();
    frontdesk_testkit::store_suite::purge(&*store, keep).await;
    assert_eq!(owed(&*store, 8).await, before);
    assert_eq!(store.pending(InstanceNo(8), Seq(0), 999).await.unwrap().len(), 300, "with their events");
    assert_eq!(store.mail(InstanceNo(7), None, Seq(0), 999).await.unwrap(), [], "the rest was deleted");
}
