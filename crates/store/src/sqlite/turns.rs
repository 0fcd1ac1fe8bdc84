//! One turn at reading does a bounded amount of work, however much a tenant has stored: the turns of others come after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk_core::port::alarms::{AGENT_NUMBERS, Alarms as _};
use frontdesk_core::port::skills::{SkillQuery, Skills as _};
use frontdesk_core::port::store::{Events as _, Ledger as _};
use frontdesk_wire::{InstanceNo, JobId};
use tempfile::TempDir;

use super::{FILE, SqliteStore, fault, instructions};

/// Instructions of a reader that prepares its statements. Those of a read that is not bounded are ten times as many.
const PREPARING: u64 = 2_000;

struct Scene {
    store: SqliteStore,
    executed: Arc<AtomicU64>,
    _folder: TempDir,
}

/// A store with the rows that this statement makes for each number up to `count`.
async fn scene(rows: &str, count: u32) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let executed = instructions::count(&folder.path().join(FILE));
    let store = SqliteStore::open(folder.path(), 1).unwrap();
    let sql = format!(
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count}) {rows} FROM number"
    );
    store.writer.write(move |books| books.connection.execute_batch(&sql).map_err(fault), |()| {}).await.unwrap();
    Scene { store, executed, _folder: folder }
}

/// The work with the first number of rows, and with the second, which is more than one turn may look at.
async fn assert_bounded<T>(rows: &str, some: u32, many: u32, read: impl AsyncFn(&SqliteStore) -> T) -> (T, T) {
    let mut found = Vec::new();
    for count in [some, many] {
        let scene = scene(rows, count).await;
        read(&scene.store).await; // one of the readers has loaded the schema and prepared its statements
        scene.executed.store(0, Ordering::Relaxed);
        let answer = read(&scene.store).await;
        found.push((answer, scene.executed.load(Ordering::Relaxed)));
    }
    let ((first, few), (second, more)) = (found.remove(0), found.remove(0));
    assert!(more <= 2 * few + PREPARING, "{few} instructions with {some} rows, {more} with {many}");
    (first, second)
}

const EVENTS: &str = "INSERT INTO event (id, dedup, tenant, at_ms, passthrough, platform, bot, chat_id, session_key,
    message_id, json, verdict, attempt)
    SELECT n, CAST('m' || n AS BLOB), 'acme', 1, 0, 'p', 'b', 'c', 'k', 'm' || n, '{}', '[]', 0";

#[tokio::test]
async fn a_look_up_by_the_beginning_of_all_message_ids_takes_several_turns() {
    let scene = scene(EVENTS, 60_000).await;
    let turns = scene.store.readers.turns();
    let found = scene.store.event_named(&"other".into(), b"m".to_vec(), &"m".into(), None).await.unwrap();
    assert_eq!((found, scene.store.readers.turns() - turns), (None, 13), "5,000 keys in each, and the end");
}

#[tokio::test]
async fn a_search_in_a_large_backlog_ends() {
    let rows = format!(
        "{EVENTS} FROM number; WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number
        WHERE n < (SELECT MAX(id) FROM event)) INSERT INTO mail (instance, seq, event) SELECT 7, n, n"
    );
    let read = async |store: &SqliteStore| store.owes(InstanceNo(7), &"m0".into()).await.unwrap();
    assert_eq!(assert_bounded(&rows, 9_999, 60_000, read).await, (false, false));
}

/// All of them fired.
fn alarms(instance: u64) -> String {
    format!(
        "INSERT INTO alarm (id, instance, job_id, fire_at, due_ms, next_ms, armed_ms, first_ms, attempts, grace_ms,
         skip_missed, callback, schedule_id, state, note)
         SELECT n, {instance}, printf('j%08d', n), 'at', 1, 1, 1, 1, 1, 1, 0, 'c', 's', 'fired', ''"
    )
}

#[tokio::test]
async fn alarms_that_fired_are_skipped_a_part_at_a_time() {
    let page = async |store: &SqliteStore| store.armed(InstanceNo(7), &JobId::default(), 9).await.unwrap();
    let (some, many) = assert_bounded(&alarms(7), 4_999, 60_000, page).await;
    assert_eq!((some.alarms, some.next), (vec![], None));
    assert_eq!((many.alarms, many.next), (vec![], Some("j00005000".into())));
}

#[tokio::test]
async fn planned_wakes_that_were_carried_out_are_not_read() {
    let agent = AGENT_NUMBERS | 7;
    let page = async |store: &SqliteStore| store.armed(InstanceNo(agent), &JobId::default(), 9).await.unwrap();
    let (some, many) = assert_bounded(&alarms(agent), 10, 60_000, page).await;
    assert_eq!((some.next, many.next), (None, None));
    let count = async |store: &SqliteStore| store.armed_counts().await.unwrap();
    assert_eq!(assert_bounded(&alarms(agent), 10, 60_000, count).await, (vec![], vec![]));
}

/// The whole query reads all heads, and each of its turns a part of them.
#[tokio::test]
async fn a_query_for_skills_takes_several_turns() {
    let rows = "INSERT INTO skill (tenant, name, version, content_hash, status, tags, created_at, updated_at)
        SELECT 'acme', printf('s%08d', n), 'v', 'h', 'Draft', '[]', 1, 1";
    let scene = scene(rows, 1_000).await;
    let query = SkillQuery { author: Some("nobody".into()), limit: 9, ..SkillQuery::default() };
    let turns = scene.store.readers.turns();
    assert_eq!(scene.store.skill_query(&"acme".into(), query).await.unwrap(), []);
    assert_eq!(scene.store.readers.turns() - turns, 4, "256 heads in each");
}
