//! A gateway that freezes (SIGSTOP) for a minute under traffic: the desk notices within ten seconds,
//! loses nothing, and gives everything to whoever serves next.
//!
//! The gateway is a process of its own: this same program, told by the environment to play the
//! `gateway_process` test, which does nothing when it is run by itself.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use process::{Desk, Door, Heard, Seat, Socket, person, signal, until};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const FREEZE_TIME: Duration = Duration::from_mins(1);
/// The ack limit, and as much again to probe and to be sure.
const NOTICE_TIME: Duration = Duration::from_secs(10);
const CATCH_UP_TIME: Duration = Duration::from_secs(30);
const POST_EVERY: Duration = Duration::from_millis(500);
const REDIAL_PAUSE: Duration = Duration::from_millis(500);
const UNRESPONSIVE: &str = "frontdesk_sockets_closed_total{why=\"no acks and no pongs\"}";
const REPLACED: &str = "frontdesk_sockets_closed_total{why=\"replaced by a newer socket of this gateway\"}";
/// A child of a test that went wrong ends by itself.
const CHILD_TIME: Duration = Duration::from_mins(3);

// ---- the gateway's process --------------------------------------------------------------------

/// Takes rows, writes each down as `BUFFER_ID MESSAGE_ID`, acks it, and dials again when its socket ends.
#[test]
#[ignore = "the other tests start it as a process of its own"]
fn gateway_process() {
    let told = |name: &str| std::env::var(format!("GATEWAY_{name}")).ok();
    let (Some(url), Some(gateway), Some(secret), Some(file)) = (told("URL"), told("ID"), told("SECRET"), told("FILE"))
    else {
        return;
    };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    let seat = Seat { gateway, secret };
    let work = async {
        loop {
            if let Ok(mut socket) = Socket::dial(&url, &seat).await {
                loop {
                    match socket.hear().await {
                        Heard::Row { buffer_id, message_id, .. } => {
                            writeln!(file, "{buffer_id} {message_id}").unwrap();
                            if socket.ack(&buffer_id).await.is_err() {
                                break;
                            }
                        }
                        Heard::Frame(_) => {}
                        Heard::Closed(_) => break,
                    }
                }
            }
            sleep(REDIAL_PAUSE).await;
        }
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]); // it ends when whoever started us is gone
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _ = runtime.block_on(async { timeout(CHILD_TIME, work).await });
}

/// Such a process, as its test sees it.
struct Gateway {
    child: Child,
    file: PathBuf,
}

impl Gateway {
    fn start(door: &Door, seat: &Seat, file: PathBuf) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "gateway_process", "--ignored", "--nocapture"])
            .envs([("GATEWAY_URL", &door.url), ("GATEWAY_ID", &seat.gateway), ("GATEWAY_SECRET", &seat.secret)])
            .env("GATEWAY_FILE", &file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, file }
    }

    /// (buffer id, message id) of each row that came, in order.
    fn taken(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let row = |line: &str| line.split_once(' ').map(|(row, id)| (row.to_owned(), id.to_owned()));
        whole.lines().map(|line| row(line).unwrap()).collect()
    }

    async fn freeze(&self) {
        self.signal_and_see("STOP", |state| state == "T").await;
    }

    async fn thaw(&self) {
        self.signal_and_see("CONT", |state| state != "T").await;
    }

    async fn signal_and_see(&self, name: &str, reached: impl Fn(&str) -> bool) {
        let process = self.child.id().unwrap();
        signal(process, name);
        until("the signal has its effect", Duration::from_secs(5), async || {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
            let state = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').next()).unwrap();
            reached(state).then_some(())
        })
        .await;
    }
}

// ---- traffic ----------------------------------------------------------------------------------

/// A person who writes something every half second until told to stop.
struct Traffic {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<String>>,
}

impl Traffic {
    fn start(door: &Door, instance: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (door, stopped) = (door.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut posted = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let id = format!("steady-{}", posted.len());
                door.post("steady", &person(instance), &id, "hello").await;
                posted.push(id);
                sleep(POST_EVERY).await;
            }
            posted
        });
        Self { stop, task }
    }

    /// All that was posted, each of which the desk has taken.
    async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

/// Twenty at once, large ones: more than the network holds for somebody who does not read.
async fn burst(door: &Door, instance: &str) -> Vec<String> {
    let text = "🧊".repeat(30_000);
    let mut posted = Vec::new();
    for number in 0..20 {
        let id = format!("burst-{number}");
        door.post("burst", &person(instance), &id, &text).await;
        posted.push(id);
    }
    posted
}

async fn wait_for_rows(gateway: &Gateway, count: usize) {
    let some = async || (gateway.taken().len() >= count).then_some(());
    until("the gateway takes rows", CATCH_UP_TIME, some).await;
}

async fn wait_until_settled(door: &Door, instance: &str) {
    let none_waits = async || (door.waiting(instance).await == 0).then_some(());
    until("nothing waits any more", CATCH_UP_TIME, none_waits).await;
}

/// Each message's first arrival in the order of its row, and each under one buffer id.
fn check_order(rows: &[(String, String)]) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut newest = 0;
    for (row, id) in rows {
        if let Some(known) = first.insert(id, row) {
            assert_eq!(known, row, "{id} has two rows");
            continue;
        }
        let seq = u64::from_str_radix(row.rsplit('-').next().unwrap(), 16).unwrap();
        assert!(seq > newest, "{id} came out of order");
        newest = seq;
    }
}

async fn mail_ids(door: &Door, instance: &str, state: &str) -> BTreeSet<String> {
    door.mail(instance, state).await.iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect()
}

async fn stage(instance: &'static str, folder: &Path) -> (Desk, Seat, Gateway, Traffic) {
    let desk = Desk::start(&[]).await;
    let seat = desk.door.seat(instance, None).await;
    let gateway = Gateway::start(&desk.door, &seat, folder.join("first"));
    let traffic = Traffic::start(&desk.door, instance);
    wait_for_rows(&gateway, 4).await;
    (desk, seat, gateway, traffic)
}

// ---- the tests --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_gateway_is_noticed_and_gets_everything_when_it_thaws() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, _seat, gateway, traffic) = stage("ann", folder.path()).await;
    let door = &desk.door;

    gateway.freeze().await;
    let frozen = Instant::now();
    let before = gateway.taken().len();
    let mut posted = burst(door, "ann").await;
    until("the desk gives up the frozen socket", NOTICE_TIME, async || (!door.connected("ann").await).then_some(()))
        .await;
    let noticed = frozen.elapsed();
    assert!(noticed < NOTICE_TIME, "it took {noticed:?} from the first frame that nobody acked");
    assert!(noticed > Duration::from_secs(5), "after {noticed:?} it may still have been just slow");
    // The session ends a moment after it stopped serving the instance.
    let counted = async || {
        (door.metric("frontdesk_sockets_open").await == 0 && door.metric(UNRESPONSIVE).await == 1).then_some(())
    };
    until("the closed socket is counted as unresponsive", NOTICE_TIME, counted).await;

    sleep_until(frozen + FREEZE_TIME).await;
    assert_eq!(gateway.taken().len(), before, "a frozen process takes nothing");
    let waiting = door.waiting("ann").await;
    assert!(waiting >= 20, "only {waiting} rows wait");
    gateway.thaw().await;
    let thawed = Instant::now();
    until("the gateway dials again", CATCH_UP_TIME, async || door.connected("ann").await.then_some(())).await;
    posted.extend(traffic.end().await);
    wait_until_settled(door, "ann").await;
    let caught_up = thawed.elapsed();

    let taken = gateway.taken();
    check_order(&taken);
    let lost: Vec<&String> = posted.iter().filter(|id| !taken.iter().any(|(_, taken)| taken == *id)).collect();
    assert!(lost.is_empty(), "never came: {lost:?}");
    assert_eq!(mail_ids(door, "ann", "acked").await.len(), posted.len());
    println!(
        "frozen: noticed after {noticed:?}; {} messages, {waiting} waited, {} came twice; all there {caught_up:?} after the thaw",
        posted.len(),
        taken.len() - posted.len(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_over_from_a_frozen_gateway_and_keeps_what_it_signed_for() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, seat, mut first, traffic) = stage("ben", folder.path()).await;
    let door = &desk.door;

    first.freeze().await;
    let frozen = Instant::now();
    let before = first.taken().len();
    let mut posted = burst(door, "ben").await;
    sleep_until(frozen + Duration::from_secs(2)).await;
    assert!(door.connected("ben").await, "it is too early to be sure that the first is frozen");
    let successor = Gateway::start(door, &seat, folder.path().join("second"));
    let dialed = Instant::now();
    until("the successor has the burst", CATCH_UP_TIME, async || {
        let taken = successor.taken();
        posted.iter().all(|id| taken.iter().any(|(_, taken)| taken == id)).then_some(())
    })
    .await;
    let took_over = dialed.elapsed();
    until("the frozen socket is closed", Duration::from_secs(5), async || {
        (door.metric(REPLACED).await == 1).then_some(())
    })
    .await;

    let written_to_first = mail_ids(door, "ben", "").await;

    sleep_until(frozen + FREEZE_TIME).await;
    assert_eq!(first.taken().len(), before, "a frozen process takes nothing");
    // What the ledger calls acked here is settled for good; the steady traffic goes on meanwhile.
    let settled = mail_ids(door, "ben", "acked").await;
    let before_thaw = successor.taken().len();
    first.thaw().await;
    // Both want the seat now, and each time the newest wins.
    until("the seat has changed hands some times", CATCH_UP_TIME, async || {
        (door.metric(REPLACED).await >= 4).then_some(())
    })
    .await;
    first.child.kill().await.unwrap();
    posted.extend(traffic.end().await);
    wait_until_settled(door, "ben").await;

    let (by_first, by_second) = (first.taken(), successor.taken());
    let again: Vec<_> = by_second[before_thaw..].iter().filter(|(_, id)| settled.contains(id)).collect();
    assert!(again.is_empty(), "acked before the thaw, and yet given to the successor again: {again:?}");
    // The first still finds in its own buffers what was written to it while it was frozen, once.
    let mut stale = BTreeSet::new();
    for (_, id) in by_first[before..].iter().filter(|(_, id)| settled.contains(id)) {
        assert!(written_to_first.contains(id) && stale.insert(id), "{id} was acked and yet given to the first again");
    }
    let both: BTreeSet<String> = by_first.iter().chain(&by_second).map(|(_, id)| id.clone()).collect();
    let lost: Vec<&String> = posted.iter().filter(|id| !both.contains(*id)).collect();
    assert!(lost.is_empty(), "never came: {lost:?}");
    check_order(&by_first);
    check_order(&by_second);
    assert_eq!(mail_ids(door, "ben", "acked").await.len(), posted.len());
    println!(
        "successor: had the burst {took_over:?} after it was started; {} messages, {} settled before the thaw and none \
         of them again, {} stale in the buffers of the first",
        posted.len(),
        settled.len(),
        stale.len(),
    );
}
