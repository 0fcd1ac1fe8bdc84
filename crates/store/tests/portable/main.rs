//! Export and import: everything goes from one backend to the other and back, or nothing is written.
#![allow(clippy::unwrap_used, reason = "tests")]

mod fill;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frontdesk_core::port::data::DataQuery;
use frontdesk_core::port::media::read_whole;
use frontdesk_core::port::store::{Retention, Store};
use frontdesk_store::portable::{ExportFile, ImportFile, PortableError};
use frontdesk_store::postgres::{Clock, PostgresStore};
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::postgres::TestSchema;
use frontdesk_testkit::store_suite::{accept, accept_many, acceptance, owed, purge};
use frontdesk_wire::{EventId, InboxSeq, InstanceNo, Seq};
use proptest::prelude::{ProptestConfig, Strategy as _, any, prop, prop_oneof, proptest};
use tempfile::TempDir;

const PLAIN: &str = "plain";
const ODD: &str = "\0 \u{10ffff}0 \u{fffe} \u{1f600} \"\\\n\u{2028} ä";

/// A place for files.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn sqlite_export(&self, data: &Path, name: &str) -> Result<PathBuf, PortableError> {
        let path = self.at(name);
        SqliteStore::export(data, Some("check".into()), ExportFile::create(&path, Box::new(|_| {}))?)?;
        Ok(path)
    }

    fn postgres_export(&self, schema: &TestSchema, name: &str) -> Result<PathBuf, PortableError> {
        let path = self.at(name);
        PostgresStore::export(&schema.url(), ExportFile::create(&path, Box::new(|_| {}))?)?;
        Ok(path)
    }
}

fn open(path: &Path) -> Result<ImportFile, PortableError> {
    ImportFile::open(path, Box::new(|_| {}))
}

fn into_sqlite(path: &Path, data: &Path) -> Result<(), PortableError> {
    SqliteStore::import(data, open(path)?).map(drop)
}

fn into_postgres(path: &Path, schema: &TestSchema) -> Result<(), PortableError> {
    PostgresStore::import(&schema.url(), open(path)?).map(drop)
}

/// Lines by table, in the canonical order: that of the lines.
fn tables(path: &Path) -> BTreeMap<String, Vec<String>> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with('[')) {
        let name = line[2..].split('"').next().unwrap().to_owned();
        tables.entry(name).or_default().push(line.to_owned());
    }
    for lines in tables.values_mut() {
        lines.sort();
    }
    tables
}

/// The same rows in every table.
fn assert_same(one: &Path, other: &Path) {
    let (one, other) = (tables(one), tables(other));
    assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>());
    for (name, lines) in &one {
        assert_eq!(lines, &other[name], "table {name}");
    }
}

fn sqlite(data: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(data, 77).unwrap())
}

fn postgres(schema: &TestSchema) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(&schema.url(), 88, Clock::Caller).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_to_postgres_and_back() {
    for odd in [PLAIN, ODD] {
        let (files, schema) = (Folder::new(), TestSchema::create());
        let (data, copy) = (files.at("data"), files.at("copy"));
        let store = sqlite(&data);
        fill::fill(&*store, odd).await;
        let first = files.sqlite_export(&data, "first").unwrap(); // the store is in use
        drop(store);
        assert_eq!(std::fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
        let found = tables(&first);
        assert_eq!(found.len(), 29, "every table has rows: {:?}", found.keys());
        into_postgres(&first, &schema).unwrap();
        let second = files.postgres_export(&schema, "second").unwrap();
        assert_same(&first, &second);
        into_sqlite(&second, &copy).unwrap();
        let third = files.sqlite_export(&copy, "third").unwrap();
        assert_same(&first, &third);
        if odd == PLAIN {
            let read = |path| std::fs::read(path).unwrap();
            assert!(read(&first) == read(&third) && read(&first) == read(&second), "byte by byte");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_goes_on_where_it_was() {
    let (files, schema) = (Folder::new(), TestSchema::create());
    let data = files.at("data");
    let store = sqlite(&data);
    fill::fill(&*store, ODD).await;
    let before = facts(&*store).await;
    let newest = store.accept(vec![acceptance(900, &[])]).await.unwrap()[0].event;
    let session = store.attach(InstanceNo(8), frontdesk_wire::DeskNo(1), "gw".into(), 1).await.unwrap().session;
    drop(store);
    into_postgres(&files.sqlite_export(&data, "one").unwrap(), &schema).unwrap();

    let store = postgres(&schema);
    assert_facts(&*store, &before).await;
    assert_eq!(store.epoch(), 77, "as it was made");
    // Numbers continue, a duplicate is recognised, and no server serves what the exporting server served.
    let again = accept(&*store, acceptance(900, &[])).await;
    assert_eq!((again.event, again.fresh), (newest, false));
    let next = accept(&*store, acceptance(901, &[7])).await;
    assert!(next.event > newest, "{next:?}");
    assert_eq!(next.rows[0].served_by, frontdesk_wire::DeskNo(0));
    assert!(store.attach(InstanceNo(8), frontdesk_wire::DeskNo(1), "gw".into(), 1).await.unwrap().session > session);
    assert_eq!(store.draw_numbers(1).await.unwrap(), 28, "7, then 20 more, then this");
    let found = store.changed_since(1).await.unwrap();
    assert!(found.whole && found.version == 2, "who has seen less than the import reads all: {found:?}");
}

async fn assert_facts(store: &dyn Store, before: &[String]) {
    for (now, before) in facts(store).await.iter().zip(before) {
        assert_eq!(now, before);
    }
}

/// What the ports say, where it does not depend on the backend.
async fn facts(store: &dyn Store) -> Vec<String> {
    let mut facts = Vec::new();
    for instance in [7, 8] {
        facts.push(format!("{:?}", owed(store, instance).await));
        facts.push(format!("{:?}", store.mail(InstanceNo(instance), None, Seq(0), 99).await.unwrap()));
    }
    for agent in [9, 10] {
        facts.push(format!("{:?}", store.messages(InstanceNo(agent), InboxSeq(0), 99).await.unwrap()));
    }
    facts.push(format!("{:?}", store.skill_token(&"acme".into()).await.unwrap()));
    facts.push(format!("{:?}", store.armed(InstanceNo(7), &"".into(), 99).await.unwrap()));
    facts.push(format!("{:?}", store.entries(None, 99).await.unwrap()));
    facts.push(format!("{:?}", store.chat_since(&"acme".into(), &"room".into(), 0, 99).await.unwrap()));
    let words = DataQuery { phrases: vec!["words of".into()], limit: 9, now_s: 1, ..DataQuery::default() };
    let tagged =
        DataQuery { filters: vec![("domain_tags".into(), vec!["tag".into()])], phrases: vec![], ..words.clone() };
    for query in [words, tagged] {
        let mut found = store.data_query(&"acme".into(), query).await.unwrap();
        for row in &mut found {
            row.score = None; // a backend may count an odd letter as two
        }
        facts.push(format!("{found:?}"));
    }
    facts.push(format!("{:?}", store.media_total(&"acme".into()).await.unwrap()));
    for id in ["big", "empty", "small"] {
        let (item, body) = store.media_get(&"acme".into(), id, 0).await.unwrap().unwrap();
        let bytes = read_whole(body).await.unwrap();
        facts.push(format!("{item:?} {} {:?}", bytes.len(), frontdesk_core::short_hash(&[&format!("{bytes:?}")])));
    }
    facts
}

/// Places are drawn twice for a message that is not the first of its inbox in Postgres, so they run ahead of events.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_with_a_saved_place_misses_nothing_in_the_embedded_store() {
    let (files, schema) = (Folder::new(), TestSchema::create());
    let store = postgres(&schema);
    fill::fill(&*store, PLAIN).await;
    schema.run(
        "UPDATE inbox_message SET place = 1000 - place WHERE agent = 9; UPDATE inbox_message SET place = place + 50 WHERE agent = 10;
         SELECT setval('inbox_place', 2000)",
    );
    let before = facts(&*store).await;
    let saved = store.messages(InstanceNo(9), InboxSeq(0), 1).await.unwrap()[0].place;
    let rest: Vec<EventId> =
        store.messages(InstanceNo(9), saved, 99).await.unwrap().into_iter().map(|it| it.event).collect();
    assert!(!rest.is_empty());
    drop(store);
    let first = files.postgres_export(&schema, "first").unwrap();
    let data = files.at("data");
    into_sqlite(&first, &data).unwrap();
    let store = sqlite(&data);
    assert_facts(&*store, &before).await;
    let found = store.messages(InstanceNo(9), saved, 99).await.unwrap();
    assert_eq!(found.iter().map(|it| it.event).collect::<Vec<_>>(), rest);
    for it in &found {
        assert_eq!(store.message_of(it.event).await.unwrap().as_ref(), Some(it));
        let mut noted = it.message.clone();
        noted.receipts = "[1]".into();
        store.note_receipts(it.event, None, noted).await.unwrap();
        assert_eq!(store.message_of(it.event).await.unwrap().unwrap().message.receipts, "[1]");
    }
    let mut next = acceptance(950, &[]);
    next.message = Some(found[0].message.clone());
    let next = accept(&*store, next).await;
    assert!(next.place > InboxSeq(2000), "above all places of before: {next:?}");
    assert_eq!(store.messages(InstanceNo(9), InboxSeq(1_999), 9).await.unwrap().len(), 1);
}

/// With several servers the rows of a ledger need not rise with their events.
#[tokio::test(flavor = "multi_thread")]
async fn retention_keeps_events_that_were_imported_out_of_order() {
    let (files, schema) = (Folder::new(), TestSchema::create());
    let store = postgres(&schema);
    accept_many(&*store, 450, 7).await; // more than retention looks at in one step
    schema.run("UPDATE mail SET event = 451 - event WHERE instance = 7");
    drop(store);
    let data = files.at("data");
    into_sqlite(&files.postgres_export(&schema, "first").unwrap(), &data).unwrap();
    let store = sqlite(&data);
    let far = 1 << 50;
    let all = Retention { events_before_ms: far, verdicts_before_ms: far, now_ms: far, ..Retention::default() };
    purge(&*store, all).await;
    assert_eq!(owed(&*store, 7).await, (1..=450).collect::<Vec<u64>>(), "each with its event");
}

fn refusal(result: Result<(), PortableError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_is_refused_and_leaves_nothing() {
    let (files, schema) = (Folder::new(), TestSchema::create());
    let data = files.at("data");
    let store = sqlite(&data);
    fill::fill(&*store, PLAIN).await;
    drop(store);
    let whole = std::fs::read(files.sqlite_export(&data, "whole").unwrap()).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap();
    let event = text.find("\n[\"event\"").unwrap() + 1;
    let last = text[..text.len() - 1].rfind('\n').unwrap() + 1;
    let changed = |at: usize, to: u8| {
        let mut bytes = whole.clone();
        assert_ne!(bytes[at], to);
        bytes[at] = to;
        bytes
    };
    let digit = event + text[event..].find("plain").unwrap();
    let without_line = [&whole[..event], &whole[event + text[event..].find('\n').unwrap() + 1..]].concat();
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", Vec::new(), "is empty"),
        ("foreign", b"{\"hello\":1}\n".to_vec(), "not written by `frontdesk export`"),
        ("in_a_line", whole[..whole.len() / 2].to_vec(), "is cut off"),
        ("no_end", whole[..last].to_vec(), "its last line is missing"),
        ("a_text", changed(digit, b'P'), "table \"event\""),
        ("a_line", without_line, "table \"event\""),
        ("the_epoch", text.replacen("\"epoch\":77", "\"epoch\":78", 1).into_bytes(), "checksum of its header"),
        ("newer", text.replacen("\"version\":1", "\"version\":2", 1).into_bytes(), "use a newer one"),
        ("more", [&whole[..], b"{}\n"].concat(), "data after its last line"),
    ];
    for (name, bytes, reason) in cases {
        let path = files.at(name);
        std::fs::write(&path, bytes).unwrap();
        let target = files.at(&format!("into {name}"));
        for why in [refusal(into_sqlite(&path, &target)), refusal(into_postgres(&path, &schema))] {
            assert!(why.contains(reason), "{name}: {why}");
        }
        let left: Vec<_> =
            std::fs::read_dir(&target).map(|all| all.flatten().map(|it| it.file_name()).collect()).unwrap_or_default();
        assert!(left.iter().all(|name| name == "frontdesk.lock"), "{name}: {left:?}");
        let why = refusal(files.postgres_export(&schema, "nothing").map(drop));
        assert!(why.contains("no tables of Frontdesk"), "{name}: {why}");
        assert!(!files.at("nothing").exists(), "an export that failed leaves no file");
    }
    // The same targets take the whole file.
    let path = files.at("whole");
    into_sqlite(&path, &files.at("into a_text")).unwrap();
    into_postgres(&path, &schema).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_empty_store_that_nobody_uses_takes_an_import() {
    let (files, schema) = (Folder::new(), TestSchema::create());
    let data = files.at("data");
    let store = sqlite(&data);
    fill::fill(&*store, PLAIN).await;
    let path = files.sqlite_export(&data, "one").unwrap();
    assert!(refusal(into_sqlite(&path, &data)).contains("in use by another Frontdesk server"));
    drop(store);
    assert!(refusal(into_sqlite(&path, &data)).contains("has a database already"));
    let with_media = files.at("with media");
    std::fs::create_dir_all(with_media.join("media")).unwrap();
    std::fs::write(with_media.join("media/x"), "x").unwrap();
    assert!(refusal(into_sqlite(&path, &with_media)).contains("has media already"));

    let shared = PostgresStore::open(&schema.url(), 5, Clock::Database).unwrap();
    let me = frontdesk_core::port::store::Desks::enlist(&shared, "desk-a".into(), "1".into(), 0).await.unwrap();
    assert!(refusal(into_postgres(&path, &schema)).contains("the server \"desk-a\" uses this database"));
    frontdesk_core::port::store::Desks::resign(&shared, me).await.unwrap();
    accept(&shared, acceptance(1, &[])).await;
    assert!(refusal(into_postgres(&path, &schema)).contains("not empty: its table \"event\" has rows"));
    let why = refusal(files.sqlite_export(&data, "one").map(drop));
    assert!(why.contains("exists"), "a file is not written over: {why}");
    assert!(path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_retention_deleted_is_left_out() {
    let files = Folder::new();
    let data = files.at("data");
    let store = sqlite(&data);
    fill::fill(&*store, PLAIN).await;
    std::fs::remove_file(data.join("media/big")).unwrap();
    let path = files.at("one");
    let file = ExportFile::create(&path, Box::new(|_| {})).unwrap();
    assert_eq!(SqliteStore::export(&data, None, file).unwrap().1, 1);
    into_sqlite(&path, &files.at("copy")).unwrap();
    let store = sqlite(&files.at("copy"));
    assert_eq!(store.media_item(&"acme".into(), "big", 0).await.unwrap(), None);
    assert!(store.media_get(&"acme".into(), "small", 0).await.unwrap().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn texts_of_any_kind_survive(odd in prop::collection::vec(
        prop_oneof![any::<char>(), prop::sample::select(vec!['\0', '\u{10ffff}', '\u{fffe}', '0', '1', '\u{1f600}', '"', '\\'])], 0..12)
        .prop_map(|letters| letters.into_iter().collect::<String>()))
    {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _inside = runtime.enter();
        let (files, schema) = (Folder::new(), TestSchema::create());
        let data = files.at("data");
        let store = sqlite(&data);
        runtime.block_on(fill::fill(&*store, &odd));
        drop(store);
        let first = files.sqlite_export(&data, "first").unwrap();
        into_postgres(&first, &schema).unwrap();
        let second = files.postgres_export(&schema, "second").unwrap();
        assert_same(&first, &second);
        into_sqlite(&second, &files.at("copy")).unwrap();
        assert_same(&first, &files.sqlite_export(&files.at("copy"), "third").unwrap());
    }
}
