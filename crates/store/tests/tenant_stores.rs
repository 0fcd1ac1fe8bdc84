//! Skills and data over every backend: the conformance suites for other stores, and tests of tenants, callers and
//! limits.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use frontdesk_core::DeskError;
use frontdesk_core::agents::{AgentsCaller, TenantData, TenantSkills};
use frontdesk_core::port::store::Store;
use frontdesk_core::{Desk, Rules};
use frontdesk_store::memory::MemoryStore;
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::conformance::skill_store::PUBLIC_KEY_PEM;
use frontdesk_testkit::desk::desk_over;
use frontdesk_testkit::{TestEnv, data_store_conformance, secured_skill_store_conformance, skill_store_conformance};
use frontdesk_wire::agents::{
    Class, DataStore, DataWrite, Fault, QueryFilters, SkillFilter, SkillNote, SkillStatus, SkillStore,
};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Harness {
    desk: Arc<Desk>,
    env: Arc<TestEnv>,
    folder: Option<TempDir>,
}

async fn harness(on_disk: bool, rules: Rules) -> Harness {
    let env = Arc::new(TestEnv::default());
    let folder = on_disk.then(|| tempfile::tempdir().unwrap());
    let store: Arc<dyn Store> = match &folder {
        Some(folder) => Arc::new(SqliteStore::open(folder.path(), 1).unwrap()),
        None => Arc::new(MemoryStore::new(1)),
    };
    let desk = desk_over(store, env.clone(), rules).await;
    for tenant in ["acme", "other"] {
        desk.directory().create_tenant(&tenant.into()).await.unwrap();
    }
    Harness { desk, env, folder }
}

impl Harness {
    fn skills(&self) -> TenantSkills {
        self.skills_of("acme", None)
    }

    /// As a caller of that name sees them.
    fn skills_of(&self, tenant: &str, caller: Option<&str>) -> TenantSkills {
        self.desk.tenant_stores().skills(AgentsCaller { caller, ..AgentsCaller::operator(&tenant.into()) })
    }

    fn data(&self) -> TenantData {
        self.data_of("acme", None)
    }

    fn data_of(&self, tenant: &str, caller: Option<&str>) -> TenantData {
        self.desk.tenant_stores().data(AgentsCaller { caller, ..AgentsCaller::operator(&tenant.into()) })
    }
}

fn secured() -> Rules {
    Rules { skills_secured: true, skills_public_key: PUBLIC_KEY_PEM.into(), ..Rules::default() }
}

async fn skills_in(on_disk: bool, rules: Rules) -> (Box<dyn SkillStore>, Harness) {
    let harness = harness(on_disk, rules).await;
    (Box::new(harness.skills()), harness)
}

async fn data_in(on_disk: bool) -> (Box<dyn DataStore>, Harness) {
    let harness = harness(on_disk, Rules::default()).await;
    (Box::new(harness.data()), harness)
}

skill_store_conformance!(memory_skills, || skills_in(false, Rules::default()));
skill_store_conformance!(sqlite_skills, || skills_in(true, Rules::default()));
secured_skill_store_conformance!(memory_secured, || skills_in(false, secured()));
secured_skill_store_conformance!(sqlite_secured, || skills_in(true, secured()));
data_store_conformance!(memory_data, || data_in(false));
data_store_conformance!(sqlite_data, || data_in(true));

async fn both() -> [Harness; 2] {
    [harness(false, Rules::default()).await, harness(true, Rules::default()).await]
}

fn by(author: &str) -> SkillNote {
    SkillNote { author: Some(author.into()), ..SkillNote::default() }
}

fn content(text: &str) -> DataWrite {
    DataWrite { content: text.into(), ..DataWrite::default() }
}

fn ask(query: &str) -> QueryFilters {
    QueryFilters { query: query.into(), ..QueryFilters::default() }
}

fn class<T: std::fmt::Debug>(answer: Result<T, Fault>) -> Class {
    answer.unwrap_err().class
}

#[tokio::test]
async fn rule_21_the_caller_is_the_author_if_none_is_named() {
    for harness in both().await {
        let skills = harness.skills();
        let ada = harness.skills_of("acme", Some("ada"));
        let none = SkillNote::default();
        // Without an author at first; the first named one becomes the author.
        let first = skills.store("a", "1", &none).await.unwrap();
        assert_eq!((first.changed_by, skills.metadata("a").await.unwrap().author), (None, None));
        let second = ada.store("a", "2", &none).await.unwrap();
        assert_eq!(second.changed_by.as_deref(), Some("ada"));
        assert_eq!(skills.metadata("a").await.unwrap().author.as_deref(), Some("ada"));
        let bob = harness.skills_of("acme", Some("bob"));
        let edited = bob.store("a", "3", &none).await.unwrap();
        assert_eq!(edited.changed_by.as_deref(), Some("bob"), "a caller header makes no claim, so it cannot conflict");
        assert_eq!(skills.metadata("a").await.unwrap().author.as_deref(), Some("ada"));
        assert_eq!(
            class(ada.store("a", "3", &by("bob")).await),
            Class::StorageConflictError,
            "the note takes precedence"
        );
        // An anonymous write does not change the author.
        skills.store("a", "4", &none).await.unwrap();
        assert_eq!(skills.metadata("a").await.unwrap().author.as_deref(), Some("ada"));
        let changed = bob.update_status("a", SkillStatus::Disabled).await.unwrap();
        assert_eq!(changed.changed_by.as_deref(), Some("bob"), "a status change is not a new body");
        assert_eq!(skills.metadata("a").await.unwrap().author.as_deref(), Some("ada"));
        let anonymous = harness.skills_of("acme", Some(""));
        anonymous.store("b", "1", &by("")).await.unwrap();
        assert_eq!(skills.metadata("b").await.unwrap().author, None, "an empty name counts as absent");
    }
}

#[tokio::test]
async fn a_caller_without_the_right_deletes_nothing_and_signs_for_nobody() {
    for harness in both().await {
        harness.skills().store("a", "1", &SkillNote::default()).await.unwrap();
        let (tenant, ada) = ("acme".into(), "ada".into());
        let bound = AgentsCaller { bound: Some(&ada), ..AgentsCaller::of(&tenant) };
        let (skills, data) = (harness.desk.tenant_stores().skills(bound), harness.desk.tenant_stores().data(bound));
        assert_eq!(class(skills.delete("a").await), Class::ForbiddenError);
        assert_eq!(class(skills.store("a", "2", &by("bob")).await), Class::ForbiddenError);
        let beside = json!({"content": "tea", "agent_id": "bob"});
        let within = json!({"content": "tea", "metadata": {"agent_id": "bob"}});
        for claim in [beside, within] {
            assert_eq!(class(data.write(&serde_json::from_value(claim).unwrap()).await), Class::ForbiddenError);
        }
        assert_eq!(skills.load("a", None).await.unwrap().source, "1");
        harness.skills().delete("a").await.unwrap();
    }
}

#[tokio::test]
async fn rule_20_times_are_seconds_of_the_server_clock() {
    for harness in both().await {
        let skills = harness.skills();
        let start = TestEnv::START_MS / 1_000;
        let made = skills.store("a", "# Status: Draft\n", &SkillNote::default()).await.unwrap();
        assert_eq!(made.changed_at, start);
        harness.env.advance_ms(5_000);
        skills.store("a", "# Status: Draft\n2", &SkillNote::default()).await.unwrap();
        let meta = skills.metadata("a").await.unwrap();
        assert_eq!((meta.created_at, meta.updated_at, meta.status_changed_at), (start, start + 5, Some(start)));
        harness.env.advance_ms(5_000);
        skills.update_status("a", SkillStatus::Approved).await.unwrap();
        let meta = skills.metadata("a").await.unwrap();
        assert_eq!((meta.created_at, meta.updated_at, meta.status_changed_at), (start, start + 10, Some(start + 10)));
        let since = SkillFilter { since: Some(start + 10), ..SkillFilter::default() };
        assert_eq!(skills.query(&since).await.unwrap().len(), 1);
        let later = SkillFilter { since: Some(start + 11), ..SkillFilter::default() };
        assert_eq!(skills.query(&later).await.unwrap(), []);
    }
}

#[tokio::test]
async fn rule_20_a_status_change_keeps_the_metadata() {
    for harness in both().await {
        let skills = harness.skills();
        let bag = json!({"x": 1}).as_object().cloned();
        let note = SkillNote { description: Some("noted".into()), metadata_bag: bag.clone(), ..by("ada") };
        skills.store("a", "# Description: in the body\n# Tags: t\n", &note).await.unwrap();
        skills.update_status("a", SkillStatus::Approved).await.unwrap();
        let meta = skills.metadata("a").await.unwrap();
        assert_eq!((meta.description.as_deref(), meta.author.as_deref()), (Some("noted"), Some("ada")));
        assert_eq!((meta.metadata_bag, meta.tags), (bag.clone(), vec!["t".to_owned()]));
        skills.store("a", "# Description: in the body\n", &SkillNote::default()).await.unwrap();
        let meta = skills.metadata("a").await.unwrap();
        assert_eq!((meta.description.as_deref(), meta.metadata_bag), (Some("in the body"), bag));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rule_20_concurrent_writers_of_a_skill_make_one_history() {
    for harness in both().await {
        let skills = harness.skills();
        let writers = (0..24).map(|number: u32| {
            let skills = skills.clone();
            tokio::spawn(async move {
                match number % 3 {
                    0 => skills.update_status("a", SkillStatus::Approved).await,
                    _ => skills.store("a", &format!("# Status: Draft\n{number}"), &SkillNote::default()).await,
                }
            })
        });
        let mut written = 0;
        for writer in writers.collect::<Vec<_>>() {
            match writer.await.unwrap() {
                Ok(_) => written += 1,
                Err(fault) => {
                    assert!(matches!(fault.class, Class::StorageConflictError | Class::SkillNotFoundError), "{fault}");
                }
            }
        }
        let versions = skills.versions("a").await.unwrap();
        assert_eq!(versions.len(), written, "one row for each answered write");
        let before = |at: usize| at.checked_sub(1).map(|at| versions[at].status);
        for (at, version) in versions.iter().enumerate().filter(|(_, version)| version.previous_status.is_some()) {
            assert_eq!(version.previous_status, before(at), "previous_status must equal the previous row");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rule_23_a_skill_being_created_is_complete_or_absent() {
    for harness in both().await {
        for number in 0..100 {
            let (skills, name) = (harness.skills(), format!("a{number}"));
            let (writer, written) = (skills.clone(), name.clone());
            let made = tokio::spawn(async move { writer.store(&written, "x", &SkillNote::default()).await });
            while let Err(fault) = skills.load(&name, None).await {
                assert_eq!(fault.class, Class::SkillNotFoundError, "no version was asked for: {fault}");
            }
            made.await.unwrap().unwrap();
        }
    }
}

#[tokio::test]
async fn rule_22_expensive_patterns_are_refused_at_once() {
    for harness in both().await {
        let skills = harness.skills();
        skills.store(&format!("{}.b", "a".repeat(200)), "x", &SkillNote::default()).await.unwrap();
        let ask = |pattern: &str| SkillFilter { name_pattern: Some(pattern.into()), ..SkillFilter::default() };
        for (pattern, says) in [
            ("((((a{100}){100}){100}){100})", "too large"),
            (r"(\w{100}){100}", "too large"),
            (&"a".repeat(257), "256"),
            ("(", "regular expression"),
            (r"(?=a)", "regular expression"),
            (r"(a)\1", "regular expression"),
        ] {
            let fault = skills.query(&ask(pattern)).await.unwrap_err();
            assert_eq!(fault.class, Class::ValidationError, "{pattern:.40}");
            assert!(fault.message.contains(says) && fault.message.contains("name_pattern"), "{fault}");
        }
        for pattern in ["^(a+)+$", "^(a|a)*$", "^(.*a){20}$", "^(a*)*b$"] {
            assert_eq!(skills.query(&ask(pattern)).await.unwrap(), [], "{pattern}");
        }
        for pattern in ["^(a+)+", r"^\w+\.b$", r"\d|b", "(?i)A{200}", "^[[:alpha:]]", ""] {
            assert_eq!(skills.query(&ask(pattern)).await.unwrap().len(), 1, "{pattern}");
        }
    }
}

#[tokio::test]
async fn texts_over_the_limits_are_refused_with_their_size() {
    for harness in both().await {
        let (skills, data) = (harness.skills(), harness.data());
        let (ten, one) = ("x".repeat(10 << 20), "x".repeat(1 << 20));
        let fault = skills.store("a", &ten, &SkillNote::default()).await.unwrap_err();
        assert_eq!((fault.class, fault.fields.get("max_bytes")), (Class::TooLargeError, Some(&json!(1 << 20))));
        assert_eq!(class(skills.load("a", None).await), Class::SkillNotFoundError, "nothing was stored");
        skills.store("a", &one, &SkillNote::default()).await.unwrap();
        assert_eq!(skills.load("a", None).await.unwrap().source, one);
        assert_eq!(class(data.write(&content(&ten)).await), Class::TooLargeError);
        let id = data.write(&content(&one)).await.unwrap().id;
        assert_eq!(data.get(&id).await.unwrap().unwrap().detail, Some(one));
        let metadata = json!({"own": "x".repeat(70_000)}).as_object().cloned();
        assert_eq!(class(data.write(&DataWrite { metadata, ..content("x") }).await), Class::TooLargeError);
        let tags = Some((0..20_000).map(|number| format!("tag {number}")).collect());
        assert_eq!(class(data.write(&DataWrite { tags, ..content("x") }).await), Class::TooLargeError);
        let bag = json!({"own": "x".repeat(70_000)}).as_object().cloned();
        let note = SkillNote { metadata_bag: bag, ..SkillNote::default() };
        assert_eq!(class(skills.store("b", "x", &note).await), Class::TooLargeError);
        assert_eq!(class(skills.store("b", "x", &by(&"x".repeat(300))).await), Class::ValidationError);
        assert_eq!(class(data.query(&ask(&"x".repeat(5_000))).await), Class::TooLargeError);
        let words: Vec<String> = (0..800).map(|number| format!("w{number}")).collect();
        data.write(&content(&words.join(" "))).await.unwrap();
        data.write(&content(&words[1..].join(" "))).await.unwrap();
        assert_eq!(data.query(&ask(&words.join(" "))).await.unwrap().len(), 1, "many words are allowed");
        let long = format!("# Description: {}\n# Tags: {}", "d".repeat(9_000), "t,".repeat(9_000));
        skills.store("c", &long, &SkillNote::default()).await.unwrap();
        assert_eq!(skills.metadata("c").await.unwrap().description.unwrap().len(), 2_000, "lists stay short");
    }
}

/// Without this a vault named beside the content would be dropped, and the row would be in none.
#[tokio::test]
async fn rule_36_fields_beside_the_content_are_kept() {
    for harness in both().await {
        let data = harness.data();
        let said = json!({"content": "tea", "vault": "v", "colour": "green", "metadata": {"cups": 2, "vault": "v"}});
        let id = data.write(&serde_json::from_value(said).unwrap()).await.unwrap().id;
        let row = data.get(&id).await.unwrap().unwrap();
        assert_eq!(
            (row.curated.get("vault"), &json!(row.metadata)),
            (Some(&json!("v")), &json!({"colour": "green", "cups": 2}))
        );
        let filters = json!({"vault": "v"}).as_object().cloned().unwrap();
        assert_eq!(data.query(&QueryFilters { filters, ..ask("tea") }).await.unwrap().len(), 1);
        let twice = json!({"content": "tea", "vault": "v", "metadata": {"vault": "w"}});
        assert_eq!(class(data.write(&serde_json::from_value(twice).unwrap()).await), Class::ValidationError);
    }
}

#[tokio::test]
async fn rule_25_filters_are_plain_values() {
    for harness in both().await {
        let data = harness.data_of("acme", Some("ada"));
        data.write(&content("tea")).await.unwrap();
        let with = |filters: Value| QueryFilters { filters: filters.as_object().cloned().unwrap(), ..ask("tea") };
        for filters in [
            json!({"vault": null}),
            json!({"vault": {"x": 1}}),
            json!({"vault": [["x"]]}),
            json!({"pinned": vec![1; 999]}),
        ] {
            assert_eq!(class(data.query(&with(filters.clone())).await), Class::ValidationError, "{filters}");
        }
        assert_eq!(data.query(&with(json!({"agent_id": "ada"}))).await.unwrap().len(), 1, "the caller's own");
        assert_eq!(data.query(&with(json!({"agent_id": []}))).await.unwrap(), []);
        let mixed = QueryFilters { permissive_filters: true, ..with(json!({"agent_id": "bob", "zodiac": null})) };
        assert_eq!(data.query(&mixed).await.unwrap(), [], "supported filters apply even with permissive_filters");
    }
}

#[tokio::test]
async fn rule_25_metadata_of_the_wrong_shape_is_refused() {
    for harness in both().await {
        let data = harness.data();
        for metadata in [
            json!({"tags": 7}),
            json!({"domain_tags": [1]}),
            json!({"recipients": {"a": 1}}),
            json!({"expires_at": "soon"}),
            json!({"expires_at": -1}),
        ] {
            let entry = DataWrite { metadata: metadata.as_object().cloned(), ..content("x") };
            assert_eq!(class(data.write(&entry).await), Class::ValidationError, "{metadata}");
        }
        assert_eq!(data.query(&ask("")).await.unwrap(), [], "nothing was stored");
        let metadata =
            json!({"tags": "one", "recipients": ["eve"], "expires_at": null, "created_at": 5}).as_object().cloned();
        let entry = DataWrite {
            tags: Some(vec!["two".into(), "one".into()]),
            recipients: Some(vec!["bob".into()]),
            metadata,
            ..content("x")
        };
        let id = data.write(&entry).await.unwrap().id;
        let row = data.get(&id).await.unwrap().unwrap();
        assert_eq!(row.domain_tags, Some(vec!["two".into(), "one".into()]));
        assert_eq!(row.curated, json!({"recipients": ["bob"]}).as_object().cloned().unwrap());
        assert_eq!((row.metadata, row.expires_at), (None, None));
        let uuid: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((uuid, id.as_bytes()[14]), (vec![8, 4, 4, 4, 12], b'4'), "{id}");
    }
}

#[tokio::test]
async fn rule_25_rows_expire_at_their_time() {
    for harness in both().await {
        let data = harness.data();
        let soon = TestEnv::START_MS / 1_000 + 10;
        let id = data.write(&DataWrite { expires_at: Some(soon), ..content("tea") }).await.unwrap().id;
        let metadata = json!({"expires_at": soon + 10}).as_object().cloned();
        data.write(&DataWrite { metadata, ..content("tea") }).await.unwrap();
        assert_eq!(data.query(&ask("tea")).await.unwrap().len(), 2);
        harness.env.advance_ms(10_000);
        assert_eq!(data.get(&id).await.unwrap(), None);
        assert_eq!(data.query(&ask("tea")).await.unwrap().len(), 1);
        harness.env.advance_ms(10_000);
        assert_eq!(data.query(&ask("")).await.unwrap(), []);
    }
}

#[tokio::test]
async fn rule_29_two_tenants_never_see_each_other() {
    for harness in both().await {
        let (ours, theirs) = (harness.skills(), harness.skills_of("other", None));
        ours.store("a", "ours", &by("ada")).await.unwrap();
        let token = ours.version().await.unwrap();
        assert_eq!(class(theirs.load("a", None).await), Class::SkillNotFoundError);
        assert_eq!(class(theirs.delete("a").await), Class::SkillNotFoundError);
        assert_eq!(theirs.query(&SkillFilter::default()).await.unwrap(), []);
        theirs.store("a", "theirs", &by("eve")).await.unwrap();
        assert_eq!(ours.load("a", None).await.unwrap().source, "ours");
        assert_eq!(ours.version().await.unwrap(), token, "changes of other tenants have no effect");
        let (ours, theirs) = (harness.data(), harness.data_of("other", None));
        let id = ours.write(&content("our secret")).await.unwrap().id;
        theirs.write(&content("their secret")).await.unwrap();
        assert_eq!(theirs.get(&id).await.unwrap(), None);
        for (data, summary) in [(&ours, "our secret"), (&theirs, "their secret")] {
            for query in ["secret", ""] {
                let rows = data.query(&ask(query)).await.unwrap();
                assert_eq!(rows.iter().map(|row| row.summary.as_str()).collect::<Vec<_>>(), [summary], "{query:?}");
            }
        }
    }
}

#[tokio::test]
async fn rule_34_a_tenants_rule_overrides_the_server_rule() {
    for harness in both().await {
        let desk = &harness.desk;
        for (secured, pem) in [(true, ""), (true, "nonsense"), (false, "nonsense")] {
            let refused = desk.tenant_stores().set_skill_rules(&"acme".into(), secured, pem).await;
            assert!(matches!(refused, Err(DeskError::BadRequest(_))), "{refused:?}");
        }
        assert!(desk.tenant_stores().set_skill_rules(&"nobody".into(), true, PUBLIC_KEY_PEM).await.is_err());
        desk.tenant_stores().set_skill_rules(&"acme".into(), true, PUBLIC_KEY_PEM).await.unwrap();
        let stored = async |tenant: &str| {
            harness
                .skills_of(tenant, None)
                .store("a", "# Status: Approved", &SkillNote::default())
                .await
                .unwrap()
                .status
        };
        assert_eq!((stored("acme").await, stored("other").await), (SkillStatus::Draft, SkillStatus::Approved));
        assert_eq!(harness.skills().manifest().await.unwrap().manifest["secured"], json!(true));
        desk.tenant_stores().set_skill_rules(&"acme".into(), false, "").await.unwrap();
        assert_eq!(stored("acme").await, SkillStatus::Approved);
    }
    let harness = harness(false, secured()).await;
    harness.desk.tenant_stores().set_skill_rules(&"acme".into(), false, "").await.unwrap();
    let bare = harness.skills().store("a", "# Status: Approved", &SkillNote::default()).await.unwrap();
    assert_eq!(bare.status, SkillStatus::Approved, "a tenant can disable the server's requirement");
}

#[tokio::test]
async fn rule_24_secured_without_a_key_approves_nothing() {
    let harness = harness(false, Rules { skills_secured: true, ..Rules::default() }).await;
    let skills = harness.skills();
    let stored = skills.store("a", "# Status: Approved", &SkillNote::default()).await.unwrap();
    assert_eq!(stored.status, SkillStatus::Draft);
    let fault = skills.update_status("a", SkillStatus::Approved).await.unwrap_err();
    assert_eq!(fault.class, Class::ApprovalRejectedError);
    assert!(fault.message.contains("no public key"), "{fault}");
}

/// Another connection locks the file: the write fails, stores nothing, and works again afterwards.
#[tokio::test]
async fn a_failed_write_stores_nothing() {
    let harness = harness(true, Rules::default()).await;
    let (skills, data) = (harness.skills(), harness.data());
    skills.store("a", "1", &SkillNote::default()).await.unwrap();
    let token = skills.version().await.unwrap();
    let path = harness.folder.as_ref().unwrap().path().join("frontdesk.db");
    let lock = rusqlite::Connection::open(path).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let note = SkillNote::default();
    let entry = content("tea");
    let (put, write) = tokio::join!(skills.store("a", "2", &note), data.write(&entry));
    for fault in [put.unwrap_err(), write.unwrap_err()] {
        assert_eq!(fault.class, Class::UnavailableError);
        assert!(fault.message.contains("nothing was stored") && !fault.message.contains("lock"), "{fault}");
    }
    assert_eq!(skills.load("a", None).await.unwrap().source, "1", "reads still work");
    lock.execute_batch("ROLLBACK").unwrap();
    assert_eq!((skills.version().await.unwrap(), data.query(&ask("")).await.unwrap()), (token, vec![]));
    skills.store("a", "2", &SkillNote::default()).await.unwrap();
    data.write(&content("tea")).await.unwrap();
    assert_eq!(data.query(&ask("tea")).await.unwrap().len(), 1);
}
