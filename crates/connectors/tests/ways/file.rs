//! The file connector: names, folders outside of the base, and files that are complete or absent.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use frontdesk_connectors::FileDrop;
use frontdesk_testkit::TestEnv;
use frontdesk_testkit::conformance::agent_connector::{augment, template};
use frontdesk_wire::agents::{AgentConnector, Class, DeliveryPayload, Fault, WakeOpts};
use serde_json::{Value, json};
use tempfile::TempDir;

fn base() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn opened(base: &Path, dir: &str) -> Result<FileDrop, Fault> {
    FileDrop::open("ann", base, dir, Arc::new(TestEnv::default()))
}

/// Names in a folder, sorted.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[tokio::test]
async fn a_message_is_one_file_named_after_its_dispatch() {
    let base = base();
    let way = opened(base.path(), "ann/mail").unwrap();
    assert!(!base.path().join("ann").exists(), "created only when needed");
    let receipt = way.deliver("ann", &augment("d-1.a_B", "grüße\n")).await.unwrap();
    assert_eq!((receipt.delivered_at, receipt.delivery_id.as_deref()), (TestEnv::START_MS, Some("d-1.a_B.json")));
    assert!(!receipt.delivery_skipped && receipt.warnings.is_empty());
    let dir = base.path().join("ann/mail");
    let meta = json!({ "dispatch_id": "d-1.a_B", "sent_at": 1_700_000_000_000_u64, "origin": { "skill_name": "watcher", "trigger_kind": "cron" } });
    let whole = json!({ "agent_id": "ann", "kind": "augment", "content": "grüße\n", "meta": meta });
    assert_eq!(read(&dir.join("d-1.a_B.json")), whole);
    way.deliver("ann", &template("d-2", "do it")).await.unwrap();
    assert_eq!(read(&dir.join("d-2.json"))["prompt"], "do it");
    assert_eq!(names(&dir), ["d-1.a_B.json", "d-2.json"], "no temporary file is left");
}

#[tokio::test]
async fn a_dispatch_id_is_never_a_path() {
    let base = base();
    let way = opened(base.path(), "ann").unwrap();
    let dir = base.path().join("ann");
    let long = "x".repeat(129);
    for id in ["../../etc/passwd", "/etc/passwd", "..", ".", "", ".hidden", "a/b", "a\\b", "a\0b", "a b", "ä", &long] {
        let receipt = way.deliver("ann", &augment(id, id)).await.unwrap();
        let name = receipt.delivery_id.unwrap();
        let stem = name.strip_suffix(".json").unwrap();
        assert!(stem.len() == 64 && stem.bytes().all(|b| b.is_ascii_hexdigit()), "{id:?} became {name}");
        assert_eq!(read(&dir.join(&name))["meta"]["dispatch_id"], id);
    }
    // Computed with another implementation: sha256 of "../../etc/passwd".
    assert!(dir.join("3754d6cb3a38e1185e5b382d5f3ef3f118af75bf4bf0254d1fdb8437f51423e0.json").is_file());
    let most = "y".repeat(128);
    assert_eq!(way.deliver("ann", &augment(&most, "")).await.unwrap().delivery_id, Some(format!("{most}.json")));
    assert_eq!(names(base.path()), ["ann"]);
    assert_eq!(names(&dir).len(), 13);
}

#[tokio::test]
async fn rule_12_a_repeat_is_one_file_and_other_content_another() {
    let base = base();
    let env = Arc::new(TestEnv::default());
    let way = FileDrop::open("ann", base.path(), "ann", env.clone()).unwrap();
    let first = way.deliver("ann", &augment("d", "one")).await.unwrap();
    env.advance_ms(60_000);
    // Rule 32: different metadata does not make a different message.
    let mut later = augment("d", "one");
    if let DeliveryPayload::Augment { meta, .. } = &mut later {
        meta.sent_at += 5;
    }
    for payload in [augment("d", "one"), later] {
        let again = way.deliver("ann", &payload).await.unwrap();
        assert_eq!((again.delivered_at, &again.delivery_id), (first.delivered_at, &first.delivery_id));
        assert_eq!(again.warnings.len(), 1);
    }
    assert_eq!(names(&base.path().join("ann")).len(), 1);
    let other = way.deliver("ann", &augment("d", "two")).await.unwrap();
    let kind = way.deliver("ann", &template("d", "one")).await.unwrap();
    assert_eq!(other.delivered_at, TestEnv::START_MS + 60_000);
    let all = names(&base.path().join("ann"));
    assert_eq!(all.len(), 3);
    for receipt in [&other, &kind] {
        let name = receipt.delivery_id.clone().unwrap();
        assert!(all.contains(&name) && name.starts_with("d-") && receipt.warnings.is_empty(), "{name}");
    }
    let again = way.deliver("ann", &augment("d", "two")).await.unwrap();
    assert_eq!((again.delivery_id, again.warnings.len()), (other.delivery_id, 1));
}

#[tokio::test]
async fn one_dispatch_to_several_agents_of_a_folder_makes_one_file_each() {
    let base = base();
    let mut all = Vec::new();
    for agent in ["ann", "bob", "eve", "joe"] {
        let way = FileDrop::open(agent, base.path(), "all", Arc::new(TestEnv::default())).unwrap();
        let first = way.deliver(agent, &augment("d", "to you all")).await.unwrap();
        let again = way.deliver(agent, &augment("d", "to you all")).await.unwrap();
        assert_eq!((&again.delivery_id, again.warnings.len()), (&first.delivery_id, 1), "{agent}");
        let name = first.delivery_id.unwrap();
        assert_eq!(read(&base.path().join("all").join(&name))["agent_id"], agent);
        all.push(name);
    }
    all.sort();
    assert_eq!(names(&base.path().join("all")), all);
}

#[tokio::test]
async fn concurrent_repeats_of_a_message_make_one_file() {
    let base = base();
    let way = Arc::new(opened(base.path(), "deep/down/ann").unwrap());
    let tries: Vec<_> = (0..24)
        .map(|n| {
            let way = way.clone();
            let text = if n % 2 == 0 { "even" } else { "odd" };
            tokio::spawn(async move { way.deliver("ann", &augment("d", text)).await.unwrap() })
        })
        .collect();
    let mut fresh = 0;
    for one in tries {
        fresh += usize::from(one.await.unwrap().warnings.is_empty());
    }
    assert_eq!((fresh, names(&base.path().join("deep/down/ann")).len()), (2, 2));
}

#[test]
fn a_folder_outside_of_the_base_is_refused_at_open() {
    let (base, outside) = (base(), base());
    fs::create_dir(base.path().join("in")).unwrap();
    fs::write(base.path().join("plain"), "").unwrap();
    symlink(outside.path(), base.path().join("out")).unwrap();
    symlink("/nowhere/at/all", base.path().join("dangling")).unwrap();
    symlink(base.path().join("in"), base.path().join("alias")).unwrap();
    let beside = format!("{}-beside/x", base.path().display());
    let up = format!("{}/../x", base.path().display());
    let itself = base.path().display().to_string();
    for dir in [
        "",
        ".",
        "./",
        "..",
        "../x",
        "in/../../x",
        "in/..",
        "/etc",
        "/",
        "a\0b",
        &beside,
        &up,
        &itself,
        "out",
        "out/new",
        "dangling",
        "dangling/new",
        "plain",
        "plain/new",
    ] {
        let fault = opened(base.path(), dir).err().unwrap_or_else(|| panic!("{dir:?} was accepted"));
        assert_eq!((fault.class, &fault.fields["field"]), (Class::ValidationError, &json!("dir")), "{dir:?}");
        assert!(!fault.message.contains(outside.path().to_str().unwrap()), "{fault}");
    }
    let absolute = format!("{}/new/deep", base.path().display());
    for dir in ["in", "new", "new/deep/er", "alias", "alias/new", "...", "in//x", &absolute] {
        assert!(opened(base.path(), dir).is_ok(), "{dir}");
    }
    assert!(names(outside.path()).is_empty());
    assert!(opened(Path::new("/nowhere/at/all"), "x").err().unwrap().message.contains("file_base"));
}

#[tokio::test]
async fn a_folder_replaced_by_a_symlink_is_refused_at_delivery() {
    let (base, outside) = (base(), base());
    let way = opened(base.path(), "a/b").unwrap();
    way.deliver("ann", &augment("d-1", "one")).await.unwrap();
    fs::rename(base.path().join("a"), base.path().join("old")).unwrap();
    fs::create_dir(outside.path().join("b")).unwrap();
    symlink(outside.path(), base.path().join("a")).unwrap();
    for _ in 0..2 {
        let fault = way.deliver("ann", &augment("d-2", "two")).await.unwrap_err();
        assert_eq!(
            (fault.class, &fault.fields["cause_kind"]),
            (Class::DeliveryFailedError, &json!("client_validation"))
        );
        assert!(way.wake("ann", &WakeOpts::default()).await.is_err());
        assert!(way.health_check().await.is_err());
        // In the second round the folder below the symlink is missing and would have to be created.
        let _ = fs::remove_dir(outside.path().join("b"));
    }
    assert!(names(outside.path()).is_empty());
    // A symlink within the base is allowed.
    fs::remove_file(base.path().join("a")).unwrap();
    symlink(base.path().join("old"), base.path().join("a")).unwrap();
    way.deliver("ann", &augment("d-2", "two")).await.unwrap();
    assert_eq!(names(&base.path().join("old/b")), ["d-1.json", "d-2.json"]);
}

/// A symlink with the name of the file is neither written nor read through.
#[tokio::test]
async fn a_symlink_with_the_name_of_the_file_is_not_touched() {
    let (base, outside) = (base(), base());
    let way = opened(base.path(), "ann").unwrap();
    way.health_check().await.unwrap();
    let precious = outside.path().join("precious");
    fs::write(&precious, "keep").unwrap();
    symlink(&precious, base.path().join("ann/d-1.json")).unwrap();
    let receipt = way.deliver("ann", &augment("d-1", "one")).await.unwrap();
    assert_ne!(receipt.delivery_id.as_deref(), Some("d-1.json"));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "keep");
}

/// Files get their name by a rename, so the name appears together with the complete content.
#[tokio::test]
async fn a_reader_never_sees_a_partial_file() {
    let base = base();
    let way = Arc::new(opened(base.path(), "ann").unwrap());
    way.health_check().await.unwrap();
    let dir = base.path().join("ann");
    let text = "0123456789".repeat(100_000);
    let writer = {
        let (way, text) = (way.clone(), text.clone());
        tokio::spawn(async move {
            for n in 0..20 {
                way.deliver("ann", &augment(&format!("d-{n}"), &text)).await.unwrap();
            }
        })
    };
    let mut looked = 0;
    while !writer.is_finished() {
        for name in names(&dir).iter().filter(|name| !name.starts_with('.')) {
            assert_eq!(read(&dir.join(name))["content"].as_str().unwrap().len(), text.len(), "{name}");
            looked += 1;
        }
        tokio::task::yield_now().await;
    }
    writer.await.unwrap();
    assert!(looked > 0 || names(&dir).len() == 20);
    // A killed writer leaves a temporary file that readers ignore and that blocks nothing.
    fs::write(dir.join(".0123456789abcdef.part"), "{\"agent_id\":\"ann\",\"ki").unwrap();
    way.deliver("ann", &augment("d-20", "after")).await.unwrap();
    let visible: Vec<String> = names(&dir).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(visible.len(), 21);
}

const WRITER: &str = "FRONTDESK_TEST_FILE_WRITER";

/// A process that writes continuously is killed several times; every named file must be complete.
#[tokio::test]
async fn named_files_of_a_killed_process_are_complete() {
    let text = "0123456789".repeat(50_000);
    if let Ok(base) = std::env::var(WRITER) {
        let dice = Arc::new(TestEnv::new(std::process::id().into())); // a different seed for each process
        let way = FileDrop::open("ann", Path::new(&base), "ann", dice).unwrap();
        for n in 0_u64.. {
            way.deliver("ann", &augment(&format!("{}-{n}", std::process::id()), &text)).await.unwrap();
        }
    }
    let base = base();
    let dir = base.path().join("ann");
    let whole = |dir: &Path| names(dir).into_iter().filter(|name| !name.starts_with('.')).collect::<Vec<_>>();
    let mut before = 0;
    for round in 1..=8 {
        let mut writer = std::process::Command::new(std::env::current_exe().unwrap());
        writer.args(["--exact", "file::named_files_of_a_killed_process_are_complete"]).env(WRITER, base.path());
        let mut writer = writer.stdout(std::process::Stdio::null()).spawn().unwrap();
        let written = async {
            while !dir.is_dir() || whole(&dir).len() < before + round {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), written).await.unwrap();
        writer.kill().unwrap(); // SIGKILL
        writer.wait().unwrap();
        let found = whole(&dir);
        for name in &found {
            assert_eq!(read(&dir.join(name))["content"], text, "{name}");
        }
        before = found.len();
    }
}

#[tokio::test]
async fn section_5_a_wake_writes_a_file_and_does_not_wake() {
    let base = base();
    let way = opened(base.path(), "ann").unwrap();
    let opts = WakeOpts { context: Some("look".into()), ..WakeOpts::default() };
    for (agent, session) in [("ann", None), ("ann@kitchen", Some("kitchen"))] {
        let receipt = way.wake(agent, &opts).await.unwrap();
        assert!(!receipt.woken && receipt.session_id.is_none() && receipt.warnings.len() == 1);
        let dir = base.path().join("ann");
        let found = names(&dir);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("wake-"));
        let mut whole = json!({ "agent_id": "ann", "kind": "wake", "content": "look" });
        if let Some(session) = session {
            whole["session_id"] = session.into();
        }
        assert_eq!(read(&dir.join(&found[0])), whole);
        fs::remove_file(dir.join(&found[0])).unwrap();
    }
    assert_eq!(way.deliver("bob", &augment("d", "")).await.unwrap_err().class, Class::UnknownAgentError);
    assert!(names(&base.path().join("ann")).is_empty());
}

#[tokio::test]
async fn an_unwritable_folder_fails_health_check_and_delivery() {
    let base = base();
    let way = opened(base.path(), "ann").unwrap();
    way.health_check().await.unwrap();
    let dir = base.path().join("ann");
    assert!(names(&dir).is_empty(), "the probe file was removed");
    if fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0) {
        // Permissions do not restrict root. A file in place of the folder does.
        fs::remove_dir(&dir).unwrap();
        fs::write(&dir, "").unwrap();
    } else {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o500)).unwrap();
    }
    let unhealthy = way.health_check().await.unwrap_err();
    assert_eq!(unhealthy.class, Class::DeliveryFailedError, "{unhealthy}");
    assert!(way.deliver("ann", &augment("d", "hi")).await.is_err());
}
