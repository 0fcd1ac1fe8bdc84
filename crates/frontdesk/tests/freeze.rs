//! A gateway that freezes (SIGSTOP) for a minute under traffic: the server notices it within ten seconds, loses
//! nothing, and delivers everything to the next socket.
//!
//! The gateway is a separate process: this program. An environment variable makes it run the `gateway_process` test,
//! which otherwise does nothing.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use process::{Api, Desk, GatewayAccount, Received, Socket, person, signal, until};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const FREEZE_TIME: Duration = Duration::from_mins(1);
/// Twice the ack limit and the time of the probe: other tests keep the machine busy.
const NOTICE_TIME: Duration = Duration::from_secs(20);
const CATCH_UP_TIME: Duration = Duration::from_secs(30);
const POST_EVERY: Duration = Duration::from_millis(500);
const REDIAL_PAUSE: Duration = Duration::from_millis(500);
const UNRESPONSIVE: &str = "frontdesk_sockets_closed_total{why=\"no acks and no pongs\"}";
const REPLACED: &str = "frontdesk_sockets_closed_total{why=\"replaced by a newer socket of this gateway\"}";
/// After this time a child ends by itself, if its test has failed.
const CHILD_TIME: Duration = Duration::from_mins(3);

// ---- the gateway's process --------------------------------------------------------------------

/// Receives rows, writes each as `BUFFER_ID MESSAGE_ID`, acks it, and reconnects when its socket ends.
#[test]
#[ignore = "run as a child process by the other tests"]
fn gateway_process() {
    let setting = |name: &str| std::env::var(format!("GATEWAY_{name}")).ok();
    let (Some(url), Some(gateway), Some(secret), Some(file)) =
        (setting("URL"), setting("ID"), setting("SECRET"), setting("FILE"))
    else {
        return;
    };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).unwrap();
    let account = GatewayAccount { gateway, secret };
    let work = async {
        loop {
            if let Ok(mut socket) = Socket::dial(&url, &account).await {
                loop {
                    match socket.receive().await {
                        Received::Row { buffer_id, message_id, .. } => {
                            writeln!(file, "{buffer_id} {message_id}").unwrap();
                            if socket.ack(&buffer_id).await.is_err() {
                                break;
                            }
                        }
                        Received::Frame(_) => {}
                        Received::Closed(_) => break,
                    }
                }
            }
            sleep(REDIAL_PAUSE).await;
        }
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]); // returns when the parent has ended
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _ = runtime.block_on(async { timeout(CHILD_TIME, work).await });
}

/// Handle of such a process.
struct Gateway {
    child: Child,
    file: PathBuf,
}

impl Gateway {
    fn start(api: &Api, account: &GatewayAccount, file: PathBuf) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "gateway_process", "--ignored", "--nocapture"])
            .envs([("GATEWAY_URL", &api.url), ("GATEWAY_ID", &account.gateway), ("GATEWAY_SECRET", &account.secret)])
            .env("GATEWAY_FILE", &file)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child, file }
    }

    /// (buffer id, message id) of each received row, in order.
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

/// A user who posts a message every half second until stopped.
struct Traffic {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Vec<String>>,
}

impl Traffic {
    fn start(api: &Api, instance: &'static str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (api, stopped) = (api.clone(), stop.clone());
        let task = tokio::spawn(async move {
            let mut posted = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                let id = format!("steady-{}", posted.len());
                api.post("steady", &person(instance), &id, "hello").await;
                posted.push(id);
                sleep(POST_EVERY).await;
            }
            posted
        });
        Self { stop, task }
    }

    /// All posted messages, which the server has accepted.
    async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.unwrap()
    }
}

/// Twenty large messages at once: more than the network buffers for a peer that does not read.
async fn burst(api: &Api, instance: &str) -> Vec<String> {
    let text = "🧊".repeat(30_000);
    let mut posted = Vec::new();
    for number in 0..20 {
        let id = format!("burst-{number}");
        api.post("burst", &person(instance), &id, &text).await;
        posted.push(id);
    }
    posted
}

async fn wait_for_rows(gateway: &Gateway, count: usize) {
    let some = async || (gateway.taken().len() >= count).then_some(());
    until("the gateway receives rows", CATCH_UP_TIME, some).await;
}

async fn wait_until_settled(api: &Api, instance: &str) {
    let none_waits = async || (api.waiting(instance).await == 0).then_some(());
    until("no row waits", CATCH_UP_TIME, none_waits).await;
}

/// Messages first arrive in the order of their rows, and each has one buffer id.
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

async fn mail_ids(api: &Api, instance: &str, state: &str) -> BTreeSet<String> {
    api.mail(instance, state).await.iter().map(|row| row["message_id"].as_str().unwrap().to_owned()).collect()
}

async fn stage(instance: &'static str, folder: &Path) -> (Desk, GatewayAccount, Gateway, Traffic) {
    let desk = Desk::start(&[]).await;
    let account = desk.api.add_gateway(instance, None).await;
    let gateway = Gateway::start(&desk.api, &account, folder.join("first"));
    let traffic = Traffic::start(&desk.api, instance);
    wait_for_rows(&gateway, 4).await;
    (desk, account, gateway, traffic)
}

// ---- the tests --------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_gateway_is_noticed_and_gets_everything_when_it_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, _account, gateway, traffic) = stage("ann", folder.path()).await;
    let api = &desk.api;

    gateway.freeze().await;
    let frozen = Instant::now();
    let before = gateway.taken().len();
    let mut posted = burst(api, "ann").await;
    until("the server closes the frozen socket", NOTICE_TIME, async || (!api.connected("ann").await).then_some(()))
        .await;
    let noticed = frozen.elapsed();
    assert!(noticed > Duration::from_secs(5), "after {noticed:?} it could still have been slow only");
    // The session ends a moment after it stops serving the instance.
    let counted =
        async || (api.metric("frontdesk_sockets_open").await == 0 && api.metric(UNRESPONSIVE).await == 1).then_some(());
    until("the closed socket is counted as unresponsive", NOTICE_TIME, counted).await;

    sleep_until(frozen + FREEZE_TIME).await;
    assert_eq!(gateway.taken().len(), before, "a frozen process receives nothing");
    let waiting = api.waiting("ann").await;
    assert!(waiting >= 20, "only {waiting} rows wait");
    gateway.thaw().await;
    let thawed = Instant::now();
    until("the gateway reconnects", CATCH_UP_TIME, async || api.connected("ann").await.then_some(())).await;
    posted.extend(traffic.end().await);
    wait_until_settled(api, "ann").await;
    let caught_up = thawed.elapsed();

    let taken = gateway.taken();
    check_order(&taken);
    let lost: Vec<&String> = posted.iter().filter(|id| !taken.iter().any(|(_, taken)| taken == *id)).collect();
    assert!(lost.is_empty(), "never received: {lost:?}");
    assert_eq!(mail_ids(api, "ann", "acked").await.len(), posted.len());
    println!(
        "frozen: noticed after {noticed:?}; {} messages, {waiting} waited, {} came twice; complete after {caught_up:?}",
        posted.len(),
        taken.len() - posted.len(),
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_over_from_a_frozen_gateway_and_keeps_what_it_acked() {
    let folder = tempfile::tempdir().unwrap();
    let (desk, account, mut first, traffic) = stage("ben", folder.path()).await;
    let api = &desk.api;

    first.freeze().await;
    let frozen = Instant::now();
    let before = first.taken().len();
    let mut posted = burst(api, "ben").await;
    sleep_until(frozen + Duration::from_secs(2)).await;
    assert!(api.connected("ben").await, "too early to know that the first is frozen");
    let successor = Gateway::start(api, &account, folder.path().join("second"));
    let dialed = Instant::now();
    until("the successor has the burst", CATCH_UP_TIME, async || {
        let taken = successor.taken();
        posted.iter().all(|id| taken.iter().any(|(_, taken)| taken == id)).then_some(())
    })
    .await;
    let took_over = dialed.elapsed();
    until("the frozen socket is closed", Duration::from_secs(5), async || {
        (api.metric(REPLACED).await == 1).then_some(())
    })
    .await;

    let written_to_first = mail_ids(api, "ben", "").await;

    sleep_until(frozen + FREEZE_TIME).await;
    assert_eq!(first.taken().len(), before, "a frozen process receives nothing");
    // Rows that the ledger reports as acked here are final; the steady traffic continues.
    let settled = mail_ids(api, "ben", "acked").await;
    let before_thaw = successor.taken().len();
    first.thaw().await;
    // Both processes now replace each other's socket; the newest wins each time.
    until("the sockets have replaced each other several times", CATCH_UP_TIME, async || {
        (api.metric(REPLACED).await >= 4).then_some(())
    })
    .await;
    first.child.kill().await.unwrap();
    posted.extend(traffic.end().await);
    wait_until_settled(api, "ben").await;

    let (by_first, by_second) = (first.taken(), successor.taken());
    let again: Vec<_> = by_second[before_thaw..].iter().filter(|(_, id)| settled.contains(id)).collect();
    assert!(again.is_empty(), "acked before resuming, but sent to the successor again: {again:?}");
    // The first still has in its buffers what was sent to it while it was frozen, once.
    let mut stale = BTreeSet::new();
    for (_, id) in by_first[before..].iter().filter(|(_, id)| settled.contains(id)) {
        assert!(written_to_first.contains(id) && stale.insert(id), "{id} was acked, but sent to the first again");
    }
    let both: BTreeSet<String> = by_first.iter().chain(&by_second).map(|(_, id)| id.clone()).collect();
    let lost: Vec<&String> = posted.iter().filter(|id| !both.contains(*id)).collect();
    assert!(lost.is_empty(), "never received: {lost:?}");
    check_order(&by_first);
    check_order(&by_second);
    assert_eq!(mail_ids(api, "ben", "acked").await.len(), posted.len());
    println!(
        "successor: had the burst {took_over:?} after it was started; {} messages, {} settled before the thaw and none \
         of them again, {} stale in the buffers of the first",
        posted.len(),
        settled.len(),
        stale.len(),
    );
}
