//! A disk that is full: the desk says so, takes nothing, and goes on by itself when there is room again.
//!
//! It happens in a child: this same program with a small disk of its own, told by the environment to
//! play the `child_*` test, which does nothing when it is run by itself.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test is the client, and calls nobody but the desk")]

mod harness;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use harness::Harness;

/// Where the child finds its disk.
const FOLDER: &str = "DESK_TEST_DISK";
/// Messages after which a full disk must have said so; fewer than a socket takes without acks.
const MANY: usize = 30;

#[test]
fn a_full_disk_refuses_in_so_many_words_and_recovers_without_a_restart() {
    // A tmpfs in a mount namespace that ends with the child. Without root it takes a user namespace
    // too, which some machines forbid.
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
#[ignore = "a part played for a_full_disk_refuses_in_so_many_words_and_recovers_without_a_restart"]
async fn child_fills_the_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let folder = Path::new(&folder);
    let house = Harness::with(|config| config.data_dir = folder.join("data")).await;
    let seat = house.seat("g").await;
    let mut socket = house.socket(&seat).await;
    house.say(&seat, "c", "before").await;
    let event = socket.event().await;
    assert_eq!(event.text(), "before");
    socket.ack(&event).await;
    socket.settle().await;

    let ballast = folder.join("ballast");
    fill(&ballast);
    let mut kept = Vec::new();
    let refused = loop {
        assert!(kept.len() < MANY, "it never filled");
        let text = format!("{} {}", kept.len(), "x".repeat(2_000));
        let reply = house.say_as(&seat, "c", json!({ "user_id": seat.user, "text": text })).await;
        if reply.status != 202 {
            break reply;
        }
        kept.push(text);
        let event = socket.event().await;
        assert_eq!(event.text(), kept[kept.len() - 1], "what was accepted is delivered");
    };
    assert_eq!(refused.problem(503), "unavailable");
    let ready = house.get("/readyz", "").await;
    assert_eq!(ready.problem(503), "unavailable");
    assert!(ready.json()["detail"].as_str().unwrap().contains("full"), "{}", ready.text());
    assert_eq!(house.get("/healthz", "").await.status, 200, "it lives");
    assert!(house.metric("frontdesk_store_faults_total").await > 0);

    fs::remove_file(&ballast).unwrap();
    // What was said last holds for a second: a check is a write.
    let ready = async { while house.get("/readyz", "").await.status != 200 {} };
    tokio::time::timeout(harness::PATIENCE, ready).await.expect("ready again");
    house.say(&seat, "c", "after").await;
    let mut again = house.socket(&seat).await;
    // Nothing was acked since: all that was answered with 202 comes, and nothing else.
    let mut came = Vec::new();
    while came.last().is_none_or(|text| text != "after") {
        let event = again.event().await;
        came.push(event.text().to_owned());
        again.ack(&event).await;
    }
    kept.push("after".into());
    assert_eq!(came, kept);
    let lines = house.history(&seat, "c").await;
    let shown: Vec<&str> = lines.iter().skip(1).filter_map(|line| line["text"].as_str()).collect();
    assert_eq!(shown, kept, "the history shows what was taken and nothing that was refused");
    house.finish().await;
    println!("RECOVERED");
}

/// Writes until there is no room.
fn fill(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let block = vec![1; 4096];
    while file.write_all(&block).is_ok() {}
}
