//! Two servers on one Postgres: bounds and claims hold for both together, and retention leaves alone what the other does.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_core::port::alarms::{Concluded, Conclusion};
use frontdesk_core::port::data::{Data as _, DataQuery};
use frontdesk_core::port::fragments::FRAGMENTS_MAX;
use frontdesk_core::port::media::{MediaItem, MediaPut, body_of, read_whole};
use frontdesk_core::port::store::{
    ABSENT_MS, Change, Fragment, Held, LEASE_MS, Retention, Sessions as _, Store, StoreError,
};
use frontdesk_core::{Env as _, port::data::FILTERS};
use frontdesk_store::memory::MemoryStore;
use frontdesk_store::postgres::{Clock, PostgresStore};
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::postgres::TestSchema;
use frontdesk_testkit::store_suite::alarms::alarm;
use frontdesk_testkit::store_suite::data::row;
use frontdesk_testkit::store_suite::media::item;
use frontdesk_testkit::store_suite::{accept, acceptance, purge};
use frontdesk_wire::agents::PortableData;
use frontdesk_wire::{DeskNo, InstanceNo, TenantId};
use serde_json::json;
use tokio::task::JoinSet;

fn open(schema: &TestSchema) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(&schema.url(), 1, Clock::Caller).unwrap())
}

fn two(schema: &TestSchema) -> [Arc<PostgresStore>; 2] {
    [open(schema), open(schema)]
}

/// Fails unless the table is empty.
fn assert_empty(schema: &TestSchema, table: &str) {
    schema.run(&format!(
        "DO $$ BEGIN IF EXISTS (SELECT 1 FROM {table}) THEN RAISE EXCEPTION '{table} is not empty'; END IF; END $$"
    ));
}

/// Runs something `count` times at once, in turn on both servers.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &[Arc<PostgresStore>; 2],
    count: usize,
    work: impl Fn(Arc<PostgresStore>, usize) -> F,
) -> Vec<T> {
    let mut all = JoinSet::new();
    for number in 0..count {
        all.spawn(work(stores[number % 2].clone(), number));
    }
    all.join_all().await
}

#[tokio::test]
async fn fragments_of_a_bot_are_limited_for_both() {
    let schema = TestSchema::create();
    let stores = two(&schema);
    schema.run(&format!(
        "INSERT INTO fragment (platform, bot, id, chat_id, grp, at_ms, sealed)
         SELECT 'p', 'b', 'old-' || n, 'c', 'g', 1, 'x' FROM generate_series(1, {}) n",
        FRAGMENTS_MAX - 5
    ));
    let held = at_once(&stores, 20, |store, number| async move {
        let [platform, bot, chat_id, group] = ["p", "b", "c", "g"].map(str::to_owned);
        let fragment = Fragment {
            platform,
            bot: bot.into(),
            chat_id: chat_id.into(),
            group,
            id: number.to_string(),
            at_ms: 1,
            sealed: vec![1],
        };
        frontdesk_core::port::store::Fragments::hold(&*store, fragment).await.unwrap()
    });
    assert_eq!(held.await.into_iter().filter(|held| *held == Held::New).count(), 5);
}

#[tokio::test]
async fn a_quiet_group_is_claimed_by_one() {
    let schema = TestSchema::create();
    let stores = two(&schema);
    schema.run(
        "INSERT INTO fragment (platform, bot, id, chat_id, grp, at_ms, sealed)
         SELECT 'p', 'b-' || n % 7, n, 'c', 'g-' || n % 50, 1, 'x' FROM generate_series(1, 300) n",
    );
    let claims = at_once(&stores, 8, |store, _| async move {
        frontdesk_core::port::store::Fragments::claim_quiet(&*store, 10, 0, 20).await.unwrap().0
    });
    let claims: Vec<_> = claims.await.into_iter().flatten().collect();
    let mut ids: Vec<_> = claims.iter().flat_map(|claim| &claim.fragments).map(|it| it.id.clone()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "nothing is claimed twice");
    assert!(count > 0);
}

#[tokio::test]
async fn the_bytes_of_a_tenant_are_limited_for_both() {
    let schema = TestSchema::create();
    let stores = two(&schema);
    let put = at_once(&stores, 12, |store, number| async move {
        let item = MediaItem { id: format!("m-{number}"), ..item("m", 0) };
        frontdesk_core::port::media::MediaStore::media_put(&*store, item, body_of(vec![7; 300_000]), 1_000_000)
            .await
            .unwrap()
    });
    let stored = put.await.into_iter().filter(|put| *put == MediaPut::Stored(300_000)).count();
    assert_eq!(stored, 3);
    assert_empty(&schema, "media_upload");
}

#[tokio::test]
async fn a_large_file_comes_back_in_pieces_and_leaves_nothing() {
    let schema = TestSchema::create();
    let store: Arc<dyn Store> = open(&schema);
    let bytes: Vec<u8> = (0..700_001_u32).flat_map(u32::to_le_bytes).collect();
    let pieces: Vec<_> = bytes.chunks(70_003).map(|piece| Ok(piece.to_vec().into())).collect();
    let body = Box::pin(futures_util::stream::iter(pieces));
    assert_eq!(store.media_put(item("m", 0), body, 0).await.unwrap(), MediaPut::Stored(bytes.len() as u64));
    let (_, body) = store.media_get(&"acme".into(), "m", 0).await.unwrap().unwrap();
    assert!(read_whole(body).await.unwrap() == bytes);
    let (_, late) = store.media_get(&"acme".into(), "m", 0).await.unwrap().unwrap();
    assert_eq!(purge(&*store, Retention { now_ms: 500, ..Retention::default() }).await, 1);
    assert!(read_whole(late).await.is_err(), "it is not cut short silently");
    assert_empty(&schema, "media_chunk");
    assert_empty(&schema, "media_upload");
    let pieces = [Ok(vec![1; 600_000].into()), Err(std::io::Error::other("disconnected"))];
    let broken = Box::pin(futures_util::stream::iter(pieces));
    assert_eq!(store.media_put(item("m", 0), broken, 0).await.unwrap(), MediaPut::Aborted);
    assert_empty(&schema, "media_chunk");
}

#[tokio::test]
async fn uploads_that_stopped_are_deleted_and_others_are_not() {
    let schema = TestSchema::create();
    let store: Arc<dyn Store> = open(&schema);
    schema.run(
        "INSERT INTO media_upload (upload, seen_at) VALUES (901, now() - interval '2 hours'), (902, now());
         INSERT INTO media_chunk SELECT 901, n, 'x' FROM generate_series(0, 99) n;
         INSERT INTO media_chunk VALUES (902, 0, 'x')",
    );
    assert_eq!(purge(&*store, Retention::default()).await, 0);
    schema.run("DELETE FROM media_chunk WHERE upload = 902; DELETE FROM media_upload WHERE upload = 902");
    assert_empty(&schema, "media_chunk");
    assert_empty(&schema, "media_upload");
}

#[tokio::test]
async fn a_body_does_not_keep_the_store_open() {
    let schema = TestSchema::create();
    let store: Arc<dyn Store> = open(&schema);
    store.media_put(item("m", 0), body_of("hi"), 0).await.unwrap();
    let (_, body) = store.media_get(&"acme".into(), "m", 0).await.unwrap().unwrap();
    drop(store);
    assert!(read_whole(body).await.is_err());
}

#[tokio::test]
async fn a_job_is_armed_once_and_its_alarm_is_claimed_once() {
    use frontdesk_core::port::alarms::Alarms;
    let schema = TestSchema::create();
    let stores = two(&schema);
    let armings = at_once(&stores, 20, |store, _| async move {
        // In both orders, so that a lock taken in the order of asking would end in a deadlock.
        Alarms::arm(&*store, vec![alarm(2, 100), alarm(1, 100), alarm(3, 100)]).await.unwrap()
    });
    let armings: Vec<_> = armings.await.into_iter().flatten().collect();
    assert_eq!(armings.iter().filter(|arming| arming.fresh).count(), 3);
    let ids: Vec<u64> = armings.iter().take(3).map(|arming| arming.id).collect();
    let taken = at_once(&stores, 10, |store, number| {
        let mut ids = ids.clone();
        ids.rotate_left(number % 3);
        async move { Alarms::claim_alarms(&*store, ids, 100, 100, 1_000).await.unwrap() }
    });
    let taken: Vec<_> = taken.await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 3);
    let ends = at_once(&stores, 6, |store, _| {
        let ends = taken.iter().map(|alarm| (alarm.clone(), Conclusion::Fired { note: String::new() })).collect();
        async move { Alarms::conclude(&*store, ends, 150).await.unwrap() }
    });
    let ended = ends.await.into_iter().flatten().filter(|end| *end == Concluded::Ended).count();
    assert_eq!(ended, 3, "each ends once");
}

#[tokio::test]
async fn a_line_is_appended_once_and_leaves_no_gap() {
    use frontdesk_core::port::store::ChatLog;
    let schema = TestSchema::create();
    let stores = two(&schema);
    let lines = at_once(&stores, 40, |store, number| async move {
        ChatLog::chat_append(
            &*store,
            &"acme".into(),
            &"c".into(),
            &(format!("m-{}", number / 4)).into(),
            "{}".into(),
            1,
        )
        .await
        .unwrap()
    });
    let mut fresh: Vec<u64> = lines.await.into_iter().filter(|(_, fresh)| *fresh).map(|(seq, _)| seq).collect();
    fresh.sort_unstable();
    assert_eq!(fresh, (1..=10).collect::<Vec<_>>());
    assert_eq!(stores[0].chat_get(&"acme".into(), &"c".into()).await.unwrap().unwrap().last_seq, 10);
}

#[tokio::test]
async fn skills_of_two_writers_share_one_chain_of_tokens() {
    use frontdesk_core::port::skills::Skills;
    let schema = TestSchema::create();
    let stores = two(&schema);
    let put = at_once(&stores, 20, |store, number| async move {
        let write = frontdesk_testkit::store_suite::skills::write(&format!("s-{}", number / 2), &number.to_string());
        Skills::skill_put(&*store, write).await
    });
    let put = put.await;
    assert_eq!(put.iter().filter(|put| put.is_ok()).count(), 10);
    assert!(put.iter().all(|put| matches!(put, Ok(()) | Err(StoreError::Conflict))), "{put:?}");
}

#[tokio::test]
async fn old_deletions_of_the_directory_are_forgotten_after_a_day() {
    let schema = TestSchema::create();
    let store: Arc<dyn Store> = open(&schema);
    let change = |key: &str, json: Option<&str>| {
        vec![Change { kind: "k".into(), key: key.into(), json: json.map(str::to_owned) }]
    };
    for (seen, change) in [change("a", Some("1")), change("b", Some("1")), change("a", None)].into_iter().enumerate() {
        store.amend(seen as u64, change, Box::new(|_| {})).await.unwrap();
    }
    purge(&*store, Retention::default()).await;
    let changes = store.changed_since(2).await.unwrap();
    assert_eq!((changes.whole, changes.records.len()), (false, 1), "the deletion is told");
    schema.run("UPDATE tombstone SET at_ms = at_ms - 90000000");
    assert_eq!(purge(&*store, Retention::default()).await, 1);
    let changes = store.changed_since(2).await.unwrap();
    assert_eq!((changes.whole, changes.records.len(), changes.version), (true, 1, 3), "everything is told");
    assert!(!store.changed_since(3).await.unwrap().whole, "a server that knows it needs nothing");
}

/// Two servers may both run a round if the duty moves; neither fails, and nothing owed is lost.
#[tokio::test]
async fn rounds_of_both_get_along_with_what_comes_in() {
    let schema = TestSchema::create();
    let stores = two(&schema);
    let far = u64::from(u32::MAX);
    let keep = Retention { now_ms: far, events_before_ms: far, verdicts_before_ms: far, ..Retention::default() };
    let purging: Vec<_> = stores
        .iter()
        .map(|store| {
            let store: Arc<dyn Store> = store.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    purge(&*store, keep).await;
                }
            })
        })
        .collect();
    for (number, store) in (0..300).zip(stores.iter().cycle()) {
        let store: Arc<dyn Store> = store.clone();
        let made = accept(&*store, acceptance(number, &[7, 8])).await;
        store
            .settle(made.rows[0].instance, frontdesk_testkit::store_suite::settled(&[made.rows[0].seq.0]).into())
            .await
            .unwrap();
    }
    for one in purging {
        one.await.unwrap();
    }
    let store: Arc<dyn Store> = stores[0].clone();
    purge(&*store, keep).await;
    assert_eq!(frontdesk_testkit::store_suite::owed(&*store, 8).await.len(), 300);
    assert_eq!(store.mail(InstanceNo(7), None, frontdesk_wire::Seq(0), 999).await.unwrap(), []);
    assert_eq!(store.report().await.unwrap().faults, [""; 0]);
}

/// Words of a few letters, so that they meet often.
fn text(env: &TestEnv, words: usize) -> String {
    const PARTS: [&str; 13] = ["a", "B", "é", "b-c", "a b", "c", "☃", "\u{301}", "Ω", "C", "3.5", "\"", "a"];
    let mut raw = vec![0; words];
    env.fill(&mut raw);
    let parts: Vec<&str> = raw.iter().map(|dice| PARTS[*dice as usize % PARTS.len()]).collect();
    parts.join(if words.is_multiple_of(2) { " " } else { ", " })
}

#[tokio::test]
async fn data_are_found_as_in_the_embedded_store() {
    let schema = TestSchema::create();
    let (theirs, ours) = (MemoryStore::new(1), open(&schema));
    let env = TestEnv::new(11);
    for number in 0..400 {
        let mut one = row(&number.to_string(), &text(&env, 1 + number % 40));
        if number % 9 == 0 {
            one = row(&number.to_string(), &text(&env, 900)); // too long to count hits in
        }
        one.curated.insert(FILTERS[2].into(), json!(number % 3));
        one.expires_at = (number % 10 == 0).then_some(50);
        theirs.data_put(&"acme".into(), one.clone()).await.unwrap();
        ours.data_put(&"acme".into(), one).await.unwrap();
    }
    let mut found = 0;
    for number in 0..150 {
        let phrases: Vec<String> = (0..number % 4).map(|_| text(&env, 1 + number % 3)).collect();
        let filters = match number % 5 {
            0 => vec![(FILTERS[2].to_owned(), vec![json!(1), json!(2)])],
            1 => vec![(FILTERS[2].to_owned(), vec![json!(0)])],
            _ => Vec::new(),
        };
        let query = DataQuery { phrases, filters, limit: 1 + number % 300, now_s: 100 };
        let all = |found: Vec<PortableData>| found.into_iter().map(|row| (row.id, row.score)).collect::<Vec<_>>();
        let acme = TenantId::from("acme");
        let (theirs, ours) = (theirs.data_query(&acme, query.clone()), ours.data_query(&acme, query.clone()));
        let (theirs, ours) = (all(theirs.await.unwrap()), all(ours.await.unwrap()));
        assert_eq!(ours, theirs, "{query:?}");
        found += ours.len();
    }
    assert!(found > 1_000, "{found}");
}

/// A list of live servers may be some seconds old: one that is not in it and has a lease is live as well.
#[tokio::test]
async fn a_claim_by_an_old_list_takes_no_wake_from_a_newer_server() {
    let schema = TestSchema::create();
    let store: Arc<dyn Store> = Arc::new(PostgresStore::open(&schema.url(), 1, Clock::Database).unwrap());
    let old = store.enlist("old".into(), "1".into(), 0).await.unwrap();
    let newer = store.enlist("newer".into(), "1".into(), 0).await.unwrap();
    let claim = |desk, live| store.claim_wake(InstanceNo(7), desk, live, 60_000, 0);
    assert!(claim(newer, vec![old, newer]).await.unwrap());
    assert!(!claim(old, vec![old]).await.unwrap(), "it has a lease");
    store.resign(newer).await.unwrap();
    assert!(claim(old, vec![old]).await.unwrap(), "it is gone");
}

/// A server that ended without resigning is remembered for a while, until one of its name is back.
#[tokio::test]
async fn servers_that_are_away_are_told() {
    let schema = TestSchema::create();
    let stores: [Arc<dyn Store>; 2] = [open(&schema), Arc::new(MemoryStore::new(1))];
    for store in stores {
        let enlist = async |name: &str, now_ms| store.enlist(name.into(), "1".into(), now_ms).await.unwrap();
        let absent = async |now_ms| {
            let found = store.absent(now_ms).await.unwrap();
            found.into_iter().map(|(it, ago_ms)| (it.name, ago_ms)).collect::<Vec<_>>()
        };
        let (now, later) = (1_000_000, 1_000_000 + LEASE_MS);
        let ends = enlist("a", now).await;
        enlist("b", now).await;
        enlist("b", now).await;
        let named = |name: &str, ago_ms: u64| [(name.to_owned(), ago_ms)];
        assert_eq!(absent(now).await, []);
        store.resign(ends).await.unwrap();
        assert_eq!(absent(later).await, named("b", 0), "the one that resigned is not missed");
        enlist("b", later).await;
        assert_eq!(absent(later).await, [], "it is back");
        assert_eq!(absent(later + LEASE_MS + 5).await, named("b", 5), "by the clock of the store");
        assert_eq!(absent(later + LEASE_MS + ABSENT_MS).await, [], "nobody waits for it any more");
    }
}

#[tokio::test]
async fn the_gateway_of_a_session_is_known_to_all() {
    let schema = TestSchema::create();
    let [one, other] = two(&schema);
    let attached = one.attach(InstanceNo(7), DeskNo(1), "gw-a".into(), 5).await.unwrap();
    assert_eq!(attached.before.gateway, "");
    let seen = other.presence(InstanceNo(7)).await.unwrap();
    assert_eq!((seen.served_by, seen.gateway.as_str()), (DeskNo(1), "gw-a"));
    let next = other.attach(InstanceNo(7), DeskNo(2), "gw-b".into(), 6).await.unwrap();
    assert_eq!(next.before.gateway, "gw-a");
    assert_eq!(one.presence(InstanceNo(7)).await.unwrap().gateway, "gw-b");
}
