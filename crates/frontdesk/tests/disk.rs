//! A full disk: the server reports it, accepts nothing, and continues without a restart when there is space again.
//!
//! Runs in a child process: this program with a small disk of its own. An environment variable makes it run the
//! `child_*` test, which otherwise does nothing.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls only the server")]

mod harness;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use harness::Harness;

/// Environment variable with the folder of the small disk.
const FOLDER: &str = "DESK_TEST_DISK";
/// More messages than fit on the disk, but fewer than a socket gets without acks.
const MANY: usize = 30;

#[test]
fn a_full_disk_refuses_with_a_reason_and_recovers_without_a_restart() {
    // A tmpfs in a mount namespace that ends with the child. Without root it needs a user namespace, which some
    // machines forbid.
    let mount = format!(r#"mount -t tmpfs -o size=8m tmpfs "${FOLDER}""#);
    let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--map-root-user", "--mount"]];
    let folder = tempfile::tempdir().unwrap();
    let works = |way: &&&[&str]| {
        let tried = Command::new("unshare").args(**way).args(["sh", "-c", &mount]).env(FOLDER, folder.path()).output();
        tried.is_ok_and(|it| it.status.success())
    };
    let Some(way) = ways.iter().find(works) else {
        println!("SKIPPED: this machine lets us mount no tmpfs (neither as root nor in a user namespace)");
        return;
    };
    let mut child = Command::new("unshare");
    child.args(*way).args(["sh", "-c", &format!("{mount} && exec \"$0\" \"$@\"")]);
    child.arg(std::env::current_exe().unwrap());
    child.args(["--ignored", "--exact", "child_fills_the_disk", "--nocapture", "--test-threads=1"]);
    let ended = child.env(FOLDER, folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("RECOVERED"), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run as a child process by a_full_disk_refuses_with_a_reason_and_recovers_without_a_restart"]
async fn child_fills_the_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let harness = Harness::with(|config| config.data_dir = folder.join("data")).await;
    let account = harness.add_gateway("g").await;
    let mut socket = harness.socket(&account).await;
    harness.say(&account, "c", "before").await;
    let event = socket.event().await;
    assert_eq!(event.text(), "before");
    socket.ack(&event).await;
    socket.settle().await;

    let ballast = folder.join("ballast");
    fill(&ballast);
    let mut kept = Vec::new();
    let refused = loop {
        assert!(kept.len() < MANY, "the disk never became full");
        let text = format!("{} {}", kept.len(), "x".repeat(2_000));
        let reply = harness.say_as(&account, "c", json!({ "user_id": account.user, "text": text })).await;
        if reply.status != 202 {
            break reply;
        }
        kept.push(text);
        let event = socket.event().await;
        assert_eq!(event.text(), kept[kept.len() - 1], "an accepted message is delivered");
    };
    assert_eq!(refused.problem(503), "unavailable");
    let ready = harness.get("/readyz", "").await;
    assert_eq!(ready.problem(503), "unavailable");
    assert!(ready.json()["detail"].as_str().unwrap().contains("full"), "{}", ready.text());
    assert_eq!(harness.get("/healthz", "").await.status, 200, "the process is alive");
    assert!(harness.metric("frontdesk_store_faults_total").await > 0);

    fs::remove_file(&ballast).unwrap();
    // The result of a check is cached for a second, because each check writes.
    let ready = async { while harness.get("/readyz", "").await.status != 200 {} };
    tokio::time::timeout(harness::TIME_LIMIT, ready).await.expect("not ready again");
    harness.say(&account, "c", "after").await;
    let mut again = harness.socket(&account).await;
    // Nothing was acked: exactly the messages that were answered with 202 are delivered.
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != "after") {
        let event = again.event().await;
        came.push(event.text().to_owned());
        again.ack(&event).await;
    }
    kept.push("after".into());
    assert_eq!(came, kept);
    let lines = harness.history(&account, "c").await;
    let shown: Vec<&str> = lines.iter().skip(1).filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(shown, kept, "the history has the accepted messages and no refused ones");
    harness.finish().await;
    println!("RECOVERED");
}

/// Writes until the disk is full.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let block = vec![1; 4096];
    while file.write_all(&block).is_ok() {}
}
