//! A process that is killed while it writes skills and data: answered writes are stored, nothing is incomplete, and the
//! word index agrees with the rows.
//!
//! The child is this program; an environment variable makes it run `child_writes`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use frontdesk_core::agents::AgentsCaller;
use frontdesk_core::port::data::DataQuery;
use frontdesk_core::port::skills::SkillQuery;
use frontdesk_core::port::store::Store;
use frontdesk_core::{Desk, Rules};
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::desk::desk_over;
use frontdesk_wire::agents::{DataStore as _, DataWrite, SkillNote, SkillStatus, SkillStore as _};

const FOLDER: &str = "FRONTDESK_SHELF_FOLDER";
/// Number of kills, each after some more answers.
const KILLS: u64 = 6;

fn open(folder: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(folder, 1).unwrap())
}

async fn desk(folder: &Path, seed: u64) -> Arc<Desk> {
    desk_over(open(folder), Arc::new(TestEnv::new(seed)), Rules::default()).await
}

#[tokio::test]
#[ignore = "run as a child process by answered_writes_survive_a_kill"]
async fn child_writes() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let desk = desk(Path::new(&folder), u64::from(std::process::id())).await;
    let tenant = "acme".into();
    let who = AgentsCaller::operator(&tenant);
    let (skills, data) = (desk.tenant_stores().skills(who), desk.tenant_stores().data(who));
    let status = [SkillStatus::Draft, SkillStatus::Approved, SkillStatus::Disabled];
    let round = u64::from(std::process::id());
    for number in 0_usize.. {
        let name = format!("skill{}", number % 3);
        let body = format!("# Skill: {name}\n# Status: Draft\nround {round} number {number}\n");
        let content = format!("word{round}x{number} is a word");
        let entry = DataWrite { content, ..DataWrite::default() };
        let note = SkillNote::default();
        let (written, stored) = tokio::join!(data.write(&entry), skills.store(&name, &body, &note));
        // One complete line, printed when both are durable.
        let line = format!("DONE {} word{round}x{number} {name} {}\n", written.unwrap().id, stored.unwrap().version);
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        skills.update_status(&name, status[number % 3]).await.unwrap();
    }
}

#[tokio::test]
async fn answered_writes_survive_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut answered: Vec<[String; 4]> = Vec::new();
    for kill in 1..=KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "child_writes", "--nocapture", "--test-threads=1"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut take = |line: String| {
            let Some((_, rest)) = line.split_once("DONE ") else { return };
            let parts: Vec<String> = rest.split(' ').map(str::to_owned).collect();
            if let Ok(parts) = parts.try_into() {
                answered.push(parts);
            }
        };
        for _ in 0..kill * 7 {
            take(lines.next().unwrap().unwrap());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.map_while(Result::ok).for_each(take);
        check(&*open(folder.path()), &answered).await;
    }
    assert!(answered.len() > 100, "{}", answered.len());
}

async fn check(store: &dyn Store, answered: &[[String; 4]]) {
    for [id, word, name, version] in answered {
        assert!(store.data_get(&"acme".into(), id, 0).await.unwrap().is_some(), "an answered row");
        let query = DataQuery { phrases: vec![word.clone()], limit: 9, ..DataQuery::default() };
        let found: Vec<String> =
            store.data_query(&"acme".into(), query).await.unwrap().into_iter().map(|row| row.id).collect();
        assert_eq!(found, std::slice::from_ref(id), "the index entry of an answered row");
        let body = store.skill(&"acme".into(), name, Some(version)).await.unwrap().expect("an answered version");
        let number = word.split_once('x').unwrap().1;
        assert!(body.source.contains(&format!("number {number}\n")), "the body of the version");
    }
    let everything = SkillQuery { limit: 99, ..SkillQuery::default() };
    for head in store.skill_query(&"acme".into(), everything).await.unwrap() {
        let versions = store.skill_versions(&"acme".into(), &head.name).await.unwrap();
        let last = versions.last().unwrap();
        assert_eq!((&last.content_hash, last.status), (&head.content_hash, head.status), "head and history agree");
        for version in &versions {
            assert!(store.skill(&"acme".into(), &head.name, Some(&version.version)).await.unwrap().is_some());
        }
    }
    assert_ne!(store.skill_token(&"acme".into()).await.unwrap(), store.skill_token(&"nobody".into()).await.unwrap());
    assert_eq!(store.report().await.unwrap().faults, [""; 0]);
}
