//! Rules for skills: one head per name, all versions, and a token that changes with the heads.

use std::sync::Arc;

use frontdesk_core::port::skills::{Expect, PAGE_MAX_BYTES, SkillQuery, SkillWrite, VERSIONS_MAX};
use frontdesk_core::port::store::{Store, StoreError};
use frontdesk_core::sha256_hex;
use frontdesk_wire::agents::{SkillMeta, SkillStatus, VersionInfo};

use super::Harness;

/// A draft of `acme` under a free name, with all fields set.
pub fn write(name: &str, source: &str) -> SkillWrite {
    let content_hash = sha256_hex(source);
    let version = content_hash[..12].to_owned();
    let bag = serde_json::from_str(r#"{"z":1,"a":{"deep":[null]}}"#).unwrap();
    SkillWrite {
        tenant: "acme".into(),
        expect: Expect::Absent,
        meta: SkillMeta {
            name: name.into(),
            version: version.clone(),
            content_hash: content_hash.clone(),
            status: SkillStatus::Draft,
            description: Some("what it does".into()),
            tags: vec!["one".into(), "two".into()],
            created_at: 10,
            updated_at: 10,
            status_changed_at: Some(10),
            author: Some("ada".into()),
            metadata_bag: Some(bag),
        },
        source: source.into(),
        version: VersionInfo {
            name: name.into(),
            version,
            content_hash,
            status: SkillStatus::Draft,
            previous_status: None,
            changed_at: 10,
            changed_by: Some("ada".into()),
        },
    }
}

/// A new version over a head with body `before`.
fn over(name: &str, before: &str, source: &str, at_s: u64) -> SkillWrite {
    let mut next = write(name, source);
    next.expect = Expect::Hash(sha256_hex(before));
    (next.meta.created_at, next.meta.updated_at, next.version.changed_at) = (at_s, at_s, at_s);
    next
}

fn approved(mut write: SkillWrite) -> SkillWrite {
    (write.meta.status, write.version.status) = (SkillStatus::Approved, SkillStatus::Approved);
    write.version.previous_status = Some(SkillStatus::Draft);
    write
}

async fn put(store: &dyn Store, write: SkillWrite) {
    store.skill_put(write).await.unwrap();
}

async fn body(store: &dyn Store, name: &str, version: Option<&str>) -> Option<String> {
    store.skill(&"acme".into(), name, version).await.unwrap().map(|found| found.source)
}

async fn names(store: &dyn Store, query: SkillQuery) -> Vec<String> {
    store.skill_query(&"acme".into(), query).await.unwrap().into_iter().map(|meta| meta.name).collect()
}

fn any() -> SkillQuery {
    SkillQuery { limit: 999, ..SkillQuery::default() }
}

async fn token(store: &dyn Store) -> String {
    store.skill_token(&"acme".into()).await.unwrap()
}

fn version_of(source: &str) -> String {
    sha256_hex(source)[..12].to_owned()
}

pub async fn a_skill_is_given_back_byte_for_byte(Harness { store, .. }: Harness) {
    let source = "\u{feff}# Skill: a\r\n\0\t \r\r\n\u{1F600}e\u{301}\n\n\n  ";
    let one = write("a", source);
    put(&*store, one.clone()).await;
    let found = store.skill(&"acme".into(), "a", None).await.unwrap().unwrap();
    assert_eq!(found.source.as_bytes(), source.as_bytes());
    assert_eq!((found.name.as_str(), found.metadata), ("a", one.meta.clone()));
    assert_eq!((found.version, found.content_hash), (one.meta.version.clone(), one.meta.content_hash.clone()));
    assert_eq!(store.skill_meta(&"acme".into(), "a").await.unwrap(), Some(one.meta));
    assert_eq!(store.skill(&"acme".into(), "b", None).await.unwrap(), None);
    assert_eq!(store.skill_meta(&"acme".into(), "b").await.unwrap(), None);
    let mut bare = write("bare", "");
    (bare.meta.description, bare.meta.author, bare.meta.metadata_bag) = (None, None, None);
    (bare.meta.tags, bare.meta.status_changed_at, bare.version.changed_by) = (vec![], None, None);
    put(&*store, bare.clone()).await;
    assert_eq!(store.skill_meta(&"acme".into(), "bare").await.unwrap(), Some(bare.meta));
    assert_eq!(store.skill_versions(&"acme".into(), "bare").await.unwrap(), [bare.version]);
    assert_eq!(body(&*store, "bare", None).await.as_deref(), Some(""));
}

pub async fn a_write_is_compared_and_set(Harness { store, .. }: Harness) {
    put(&*store, write("a", "1")).await;
    assert_eq!(store.skill_put(write("a", "2")).await, Err(StoreError::Conflict), "the name exists");
    assert_eq!(store.skill_put(over("a", "other", "2", 20)).await, Err(StoreError::Conflict));
    assert_eq!(store.skill_put(over("b", "1", "2", 20)).await, Err(StoreError::Conflict), "the head does not exist");
    put(&*store, over("a", "1", "2", 20)).await;
    assert_eq!(body(&*store, "a", None).await.as_deref(), Some("2"));
}

pub async fn another_authors_head_is_a_conflict(Harness { store, .. }: Harness) {
    let mut nobodys = write("a", "1");
    nobodys.meta.author = None;
    put(&*store, nobodys).await;
    put(&*store, over("a", "1", "2", 20)).await; // belongs to ada from now on
    let mut bobs = over("a", "2", "3", 30);
    bobs.meta.author = Some("bob".into());
    assert_eq!(store.skill_put(bobs).await, Err(StoreError::Conflict));
    let mut nobodys = over("a", "2", "3", 30);
    nobodys.meta.author = None;
    assert_eq!(store.skill_put(nobodys).await, Err(StoreError::Conflict));
    put(&*store, over("a", "2", "3", 30)).await;
}

pub async fn of_many_skill_writers_one_wins(Harness { store, .. }: Harness) {
    put(&*store, write("a", "0")).await;
    let tries = (1..=20).map(|number| {
        let store: Arc<dyn Store> = store.clone();
        tokio::spawn(async move { store.skill_put(over("a", "0", &number.to_string(), 20)).await.is_ok() })
    });
    let mut won = 0;
    for one in tries.collect::<Vec<_>>() {
        won += u32::from(one.await.unwrap());
    }
    assert_eq!(won, 1);
    assert_eq!(store.skill_versions(&"acme".into(), "a").await.unwrap().len(), 2);
}

pub async fn a_conflict_leaves_no_trace(harness: Harness) {
    put(&*harness.store, write("a", "1")).await;
    let before = (token(&*harness.store).await, harness.store.skill(&"acme".into(), "a", None).await.unwrap());
    // A conflict does not roll back other writes of the same group.
    let refused = harness.store.skill_put(over("a", "other", "2", 20));
    let kept = harness.store.skill_put(SkillWrite { tenant: "other".into(), ..write("b", "1") });
    let (refused, kept) = tokio::join!(refused, kept);
    assert_eq!((refused, kept), (Err(StoreError::Conflict), Ok(())));
    let harness = harness.reopened();
    assert_eq!((token(&*harness.store).await, harness.store.skill(&"acme".into(), "a", None).await.unwrap()), before);
    assert_eq!(harness.store.skill_versions(&"acme".into(), "a").await.unwrap().len(), 1);
    assert_eq!(body(&*harness.store, "a", Some(&version_of("2"))).await, None);
    assert!(harness.store.skill(&"other".into(), "b", None).await.unwrap().is_some());
}

pub async fn old_versions_are_kept(harness: Harness) {
    put(&*harness.store, write("a", "1")).await;
    put(&*harness.store, over("a", "1", "2", 20)).await;
    put(&*harness.store, over("a", "2", "3", 30)).await;
    let harness = harness.reopened();
    for source in ["1", "2", "3"] {
        let version = version_of(source);
        let found = harness.store.skill(&"acme".into(), "a", Some(&version)).await.unwrap().unwrap();
        assert_eq!((found.source.as_str(), &found.version), (source, &version));
        assert_eq!(found.content_hash, sha256_hex(source));
        assert_eq!(found.metadata.version, version_of("3"), "the metadata are those of the head");
    }
    assert_eq!(body(&*harness.store, "a", Some("000000000000")).await, None);
    assert_eq!(body(&*harness.store, "a", Some("")).await, None);
}

pub async fn the_newest_row_of_a_version_counts(Harness { store, .. }: Harness) {
    put(&*store, write("a", "1")).await;
    put(&*store, over("a", "1", "2", 20)).await;
    put(&*store, over("a", "2", "1", 30)).await; // the first body again
    assert_eq!(body(&*store, "a", None).await.as_deref(), Some("1"));
    assert_eq!(body(&*store, "a", Some(&version_of("1"))).await.as_deref(), Some("1"));
    assert_eq!(body(&*store, "a", Some(&version_of("2"))).await.as_deref(), Some("2"));
    assert_eq!(store.skill_versions(&"acme".into(), "a").await.unwrap().len(), 3);
    // Versions are short: if two bodies share one, the later body is returned.
    let mut twin = over("a", "1", "twin", 40);
    (twin.meta.version, twin.version.version) = (version_of("2"), version_of("2"));
    put(&*store, twin).await;
    assert_eq!(body(&*store, "a", Some(&version_of("2"))).await.as_deref(), Some("twin"));
}

pub async fn versions_are_listed_oldest_first(Harness { store, .. }: Harness) {
    let writes = [write("a", "1"), approved(over("a", "1", "2", 20)), over("a", "2", "2", 20)];
    for one in writes.clone() {
        put(&*store, one).await;
    }
    put(&*store, write("aa", "1")).await;
    let listed = store.skill_versions(&"acme".into(), "a").await.unwrap();
    assert_eq!(listed, writes.map(|write| write.version));
    assert_eq!(listed[1].previous_status, Some(SkillStatus::Draft));
    assert_eq!(store.skill_versions(&"acme".into(), "free").await.unwrap(), []);
}

pub async fn the_creation_time_is_kept(Harness { store, .. }: Harness) {
    put(&*store, write("a", "1")).await;
    put(&*store, over("a", "1", "2", 20)).await;
    let meta = store.skill_meta(&"acme".into(), "a").await.unwrap().unwrap();
    assert_eq!((meta.created_at, meta.updated_at), (10, 20));
}

pub async fn a_long_history_keeps_its_newest_versions(Harness { store, .. }: Harness) {
    // The body of the third version comes again, so it stays when that version goes.
    let text = |number: usize| format!("# body {}", if number == VERSIONS_MAX { 2 } else { number });
    put(&*store, write("a", &text(0))).await;
    for number in 1..VERSIONS_MAX + 5 {
        put(&*store, over("a", &text(number - 1), &text(number), 20)).await;
    }
    let kept = store.skill_versions(&"acme".into(), "a").await.unwrap();
    assert_eq!((kept.len(), kept[0].version.as_str()), (VERSIONS_MAX, version_of(&text(5)).as_str()));
    for (number, is_there) in [(0, false), (2, true), (4, false), (5, true), (VERSIONS_MAX + 4, true)] {
        let found = body(&*store, "a", Some(&version_of(&text(number)))).await;
        assert_eq!(found, is_there.then(|| text(number)), "version {number}");
    }
}

pub async fn a_deleted_skill_is_gone_with_its_history(harness: Harness) {
    put(&*harness.store, write("a", "1")).await;
    put(&*harness.store, over("a", "1", "2", 20)).await;
    put(&*harness.store, write("ab", "1")).await;
    assert!(harness.store.skill_delete(&"acme".into(), "a").await.unwrap());
    assert!(!harness.store.skill_delete(&"acme".into(), "a").await.unwrap(), "it was already deleted");
    assert!(!harness.store.skill_delete(&"other".into(), "ab").await.unwrap(), "it belongs to another tenant");
    let harness = harness.reopened();
    assert_eq!(body(&*harness.store, "a", None).await, None);
    assert_eq!(body(&*harness.store, "a", Some(&version_of("1"))).await, None);
    assert_eq!(harness.store.skill_versions(&"acme".into(), "a").await.unwrap(), []);
    assert_eq!(names(&*harness.store, any()).await, ["ab"]);
    let mut bobs = write("a", "3");
    bobs.meta.author = Some("bob".into());
    put(&*harness.store, bobs).await;
    assert_eq!(
        harness.store.skill_versions(&"acme".into(), "a").await.unwrap().len(),
        1,
        "the name is free, without history"
    );
    assert_eq!(body(&*harness.store, "a", Some(&version_of("1"))).await, None);
}

pub async fn the_token_moves_with_the_heads(harness: Harness) {
    let store = &harness.store;
    let mut seen = vec![token(&**store).await];
    let step = async |seen: &mut Vec<String>, what: &str| {
        let now = token(&**store).await;
        assert!(!seen.contains(&now), "{what}");
        seen.push(now);
    };
    put(&**store, write("a", "1")).await;
    step(&mut seen, "a new skill").await;
    put(&**store, over("a", "1", "2", 20)).await;
    step(&mut seen, "another body, the same status").await;
    put(&**store, approved(over("a", "2", "2", 20))).await;
    step(&mut seen, "another status, the same body").await;
    put(&**store, write("b", "2")).await;
    step(&mut seen, "the same body under another name").await;
    store.skill_delete(&"acme".into(), "b").await.unwrap();
    step(&mut seen, "a deletion").await;
    let last = token(&**store).await;
    let harness = harness.reopened();
    assert_eq!(token(&*harness.store).await, last, "a restart does not change it");
}

pub async fn the_token_stays_where_nothing_changed(Harness { store, .. }: Harness) {
    put(&*store, write("a", "1")).await;
    let before = token(&*store).await;
    let mut again = over("a", "1", "1", 20);
    (again.meta.description, again.meta.tags) = (Some("other words".into()), vec![]);
    put(&*store, again).await;
    assert_eq!(store.skill_versions(&"acme".into(), "a").await.unwrap().len(), 2, "it is in the history");
    store.skill_put(write("a", "2")).await.unwrap_err();
    store.skill_delete(&"acme".into(), "nothing").await.unwrap();
    put(&*store, SkillWrite { tenant: "other".into(), ..write("a", "1") }).await;
    assert_eq!(token(&*store).await, before);
}

pub async fn heads_are_found_in_the_order_of_names(Harness { store, .. }: Harness) {
    for name in ["b", "a.b", "B", "a", "a-b", "9", "ab", "a_b"] {
        put(&*store, write(name, "1")).await;
    }
    let order = ["9", "B", "a", "a-b", "a.b", "a_b", "ab", "b"];
    assert_eq!(names(&*store, any()).await, order);
    let page = async |offset, limit| names(&*store, SkillQuery { offset, limit, ..any() }).await;
    assert_eq!(page(0, 3).await, order[..3]);
    assert_eq!(page(3, 3).await, order[3..6]);
    assert_eq!(page(6, 3).await, order[6..]);
    assert_eq!(page(8, 3).await, [""; 0]);
    assert_eq!(page(usize::MAX, usize::MAX).await, [""; 0]);
    assert_eq!(page(0, 0).await, [""; 0]);
}

pub async fn heads_are_found_by_each_filter(Harness { store, .. }: Harness) {
    put(&*store, write("plain", "1")).await;
    let mut other = approved(write("other", "2"));
    (other.meta.author, other.meta.tags, other.meta.updated_at) = (None, vec!["two".into()], 99);
    put(&*store, other).await;
    let found = async |query| names(&*store, query).await;
    let statuses = Some(vec![SkillStatus::Approved, SkillStatus::Disabled]);
    assert_eq!(found(SkillQuery { statuses, ..any() }).await, ["other"]);
    let none = SkillQuery { statuses: Some(Vec::new()), ..any() };
    assert_eq!(found(none).await, [""; 0], "an empty list of statuses matches nothing");
    assert_eq!(found(SkillQuery { author: Some("ada".into()), ..any() }).await, ["plain"]);
    assert_eq!(found(SkillQuery { author: Some("a".into()), ..any() }).await, [""; 0], "authors match exactly");
    let pattern = regex::Regex::new("^o.h").unwrap();
    assert_eq!(found(SkillQuery { name: Some(pattern), ..any() }).await, ["other"]);
    assert_eq!(found(SkillQuery { tags: vec!["two".into()], ..any() }).await, ["other", "plain"]);
    assert_eq!(
        found(SkillQuery { tags: vec!["two".into(), "one".into()], ..any() }).await,
        ["plain"],
        "all tags are required"
    );
    assert_eq!(found(SkillQuery { since_s: 99, ..any() }).await, ["other"]);
    assert_eq!(found(SkillQuery { since_s: 100, ..any() }).await, [""; 0]);
    let second = SkillQuery { tags: vec!["two".into()], offset: 1, limit: 1, ..any() };
    assert_eq!(found(second).await, ["plain"], "the offset counts matches");
}

/// One page is bounded in bytes, however many and large the heads are; the rest follows in further pages.
pub async fn a_page_of_heads_is_limited_in_bytes(Harness { store, .. }: Harness) {
    let all: Vec<String> = (10..40).map(|number| format!("s{number}")).collect();
    for name in &all {
        let mut large = write(name, name);
        large.meta.tags = vec!["x".repeat(1 << 20)];
        put(&*store, large).await;
    }
    let page = async |offset| names(&*store, SkillQuery { offset, ..any() }).await;
    let first = page(0).await;
    assert_eq!(first.len(), PAGE_MAX_BYTES >> 20, "the page ends when it is large enough");
    assert_eq!([first.clone(), page(first.len()).await].concat(), all);
    assert_eq!(names(&*store, SkillQuery { limit: 2, ..any() }).await, all[..2]);
}

pub async fn skills_of_tenants_are_separate(Harness { store, .. }: Harness) {
    put(&*store, write("a", "1")).await;
    let before = token(&*store).await;
    let mut theirs = SkillWrite { tenant: "other".into(), ..write("a", "2") };
    theirs.meta.author = Some("eve".into());
    put(&*store, theirs).await;
    assert_eq!(body(&*store, "a", None).await.as_deref(), Some("1"));
    assert_eq!(body(&*store, "a", Some(&version_of("2"))).await, None);
    assert_eq!(store.skill_versions(&"acme".into(), "a").await.unwrap().len(), 1);
    assert_eq!(store.skill_query(&"other".into(), any()).await.unwrap().len(), 1);
    assert_eq!(store.skill_query(&"third".into(), any()).await.unwrap(), []);
    assert_eq!(token(&*store).await, before);
    store.skill_delete(&"other".into(), "a").await.unwrap();
    assert_eq!(body(&*store, "a", None).await.as_deref(), Some("1"));
}

pub async fn skills_survive(harness: Harness) {
    let one = write("a", "# Skill: a\r\n");
    put(&*harness.store, one.clone()).await;
    let harness = harness.reopened();
    let found = harness.store.skill(&"acme".into(), "a", None).await.unwrap().unwrap();
    assert_eq!((found.source, found.metadata), (one.source, one.meta));
    assert_eq!(harness.store.skill_versions(&"acme".into(), "a").await.unwrap(), [one.version]);
}
