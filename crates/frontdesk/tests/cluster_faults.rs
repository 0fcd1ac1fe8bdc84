//! Three servers as processes over one Postgres, and faults under traffic: `kill -9`, SIGSTOP, Postgres restarted, one-way
//! cuts between a server and Postgres. No accepted message is lost, each gateway gets its messages in order, and none that
//! the ledger reported as acked comes again.
//!
//! `FAULTS_GATEWAYS` changes the number of gateways.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_testkit::proxy::{CUT_TO_CLIENT, CUT_TO_SERVER, Proxy};
use process::{Api, Desk, Dice, GatewayAccount, Received, Socket, person, until};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const GATEWAYS: u64 = 300;
const POSTERS: u64 = 8;
/// Until all is delivered again after a fault. It is printed how long it took.
const PATIENCE: Duration = Duration::from_mins(1);

/// A private Postgres that this test may end.
struct Postgres {
    folder: tempfile::TempDir,
    port: String,
}

impl Postgres {
    fn script(args: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/postgres");
        let said = std::process::Command::new(script).args(args).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The owner of the server's folder is another user when the tests run as root.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), mode).unwrap();
        let url = Self::script(&["start", folder.path().join("server").to_str().unwrap()]);
        let port = url.rsplit_once(':').unwrap().1.split('/').next().unwrap().to_owned();
        Self { folder, port }
    }

    fn server(&self) -> PathBuf {
        self.folder.path().join("server")
    }

    /// Ends it as a crash would, and starts it again on the same port.
    fn restart(&self) {
        let folder = self.server();
        Self::script(&["stop", folder.to_str().unwrap()]);
        Self::script(&["start", folder.to_str().unwrap(), &format!("port={}", self.port)]);
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        Self::script(&["stop", self.server().to_str().unwrap()]);
    }
}

/// What the gateway of one instance received, over all its sockets.
#[derive(Default)]
struct Book {
    first: Vec<String>,
    buffer_ids: HashMap<String, String>,
    /// Messages that the ledger reported as acked.
    signed_for: HashSet<String>,
    again: u64,
}

struct Run {
    apis: Vec<Api>,
    books: Vec<Mutex<Book>>,
    wrong: Mutex<Vec<String>>,
    calm: AtomicBool,
    posted: AtomicU64,
    failed_posts: AtomicU64,
    rows_again: AtomicU64,
}

impl Run {
    fn note(&self, gateway: usize, message_id: &str, buffer_id: &str) {
        let mut book = self.books[gateway].lock().unwrap();
        let mut wrong = self.wrong.lock().unwrap();
        if book.signed_for.contains(message_id) {
            wrong.push(format!("{message_id} came again after its ack was in the ledger"));
        }
        match book.buffer_ids.get(message_id) {
            Some(known) if known == buffer_id => {
                book.again += 1;
                self.rows_again.fetch_add(1, Ordering::Relaxed);
            }
            Some(known) => wrong.push(format!("{message_id} has two rows, {known} and {buffer_id}")),
            None => {
                book.first.push(message_id.to_owned());
                book.buffer_ids.insert(message_id.to_owned(), buffer_id.to_owned());
            }
        }
    }
}

fn name(gateway: usize) -> String {
    format!("g{gateway}")
}

/// Dials one server after the other, for ever; acks most rows at once, and leaves some to the next socket.
async fn serve(run: Arc<Run>, gateway: usize, account: GatewayAccount, mut dice: Dice) {
    loop {
        let at = usize::try_from(dice.below(run.apis.len() as u64)).unwrap();
        let Ok(mut socket) = Socket::dial(&run.apis[at].url, &account).await else {
            sleep(dice.millis(50, 250)).await;
            continue;
        };
        loop {
            match socket.receive().await {
                Received::Row { buffer_id, message_id, .. } => {
                    run.note(gateway, &message_id, &buffer_id);
                    let is_calm = run.calm.load(Ordering::SeqCst);
                    if !is_calm && dice.one_in(200) {
                        break; // it goes elsewhere, without an ack
                    }
                    if socket.ack(&buffer_id).await.is_err() {
                        break;
                    }
                }
                Received::Frame(_) => {}
                Received::Closed(_) => break,
            }
        }
        sleep(dice.millis(5, 50)).await;
    }
}

/// Posts one message after the other to a random gateway through a random server, each until one has accepted it.
async fn post(run: Arc<Run>, poster: u64, mut dice: Dice) -> Vec<(usize, String)> {
    let apis: Vec<Api> = run.apis.iter().map(Api::apart).collect();
    let mut all = Vec::new();
    while !run.calm.load(Ordering::SeqCst) {
        let gateway = usize::try_from(dice.below(run.books.len() as u64)).unwrap();
        let id = format!("p{poster}-{}", all.len());
        loop {
            let at = usize::try_from(dice.below(apis.len() as u64)).unwrap();
            let (chat, user) = (format!("c{poster}"), person(&name(gateway)));
            let posting = apis[at].try_post(&chat, &user, &id, &id);
            match tokio::time::timeout(Duration::from_secs(15), posting).await {
                Ok(Ok(_)) => break,
                _ => run.failed_posts.fetch_add(1, Ordering::Relaxed),
            };
            sleep(dice.millis(5, 50)).await;
        }
        run.posted.fetch_add(1, Ordering::Relaxed);
        all.push((gateway, id));
        sleep(dice.millis(2, 10)).await;
    }
    all
}

struct Cluster {
    desks: Vec<Desk>,
    proxies: Vec<Proxy>,
    _keys: tempfile::TempDir,
    postgres: Postgres,
}

impl Cluster {
    async fn start(count: usize) -> Self {
        let (postgres, keys) = (Postgres::start(), tempfile::tempdir().unwrap());
        let file = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
        let (master, admin) = (file("master.key"), file("admin.token"));
        let (mut desks, mut proxies) = (Vec::new(), Vec::new());
        for number in 0..count {
            let proxy = Proxy::to(format!("127.0.0.1:{}", postgres.port)).await;
            let url = format!("postgres://frontdesk@{}/postgres", proxy.address);
            let settings = [
                ("STORE_URL", url.as_str()),
                ("KEYS_MASTER_FILE", &master),
                ("KEYS_ADMIN_TOKEN_FILE", &admin),
                ("PUBLIC_URL", "http://desk.example"),
                ("DESK_NAME", &format!("desk-{number}")),
                ("LOG_FILTER", "warn"),
            ];
            desks.push(Desk::start(&settings).await);
            proxies.push(proxy);
        }
        Self { desks, proxies, _keys: keys, postgres }
    }

    fn logs(&self) -> String {
        self.desks.iter().map(Desk::log).collect::<Vec<_>>().join("\n---\n")
    }

    /// Every server accepts, and what is accepted from now on arrives.
    async fn recovered(&self, run: &Run, what: &str) {
        let began = Instant::now();
        for (number, desk) in self.desks.iter().enumerate() {
            let api = desk.api.apart();
            for round in 0.. {
                let id = format!("{what}-{number}-{round}");
                let user = person("probe");
                let posting = api.try_post("probe", &user, &id, &id);
                if matches!(tokio::time::timeout(Duration::from_secs(15), posting).await, Ok(Ok(_))) {
                    break;
                }
                assert!(began.elapsed() < PATIENCE, "{what}: desk-{number} accepts nothing\n{}", self.logs());
                sleep(Duration::from_millis(50)).await;
            }
        }
        let accepted = began.elapsed();
        let arrived = async || {
            let last = run.posted.load(Ordering::SeqCst);
            sleep(Duration::from_millis(100)).await;
            (run.posted.load(Ordering::SeqCst) > last).then_some(())
        };
        until(&format!("{what}: posters go on"), PATIENCE, arrived).await;
        let wrong = run.wrong.lock().unwrap().first().cloned();
        assert_eq!(wrong, None, "{what}\n{}", self.logs());
        println!("{what}: all servers accept again after {} ms", accepted.as_millis());
    }
}

/// Records what the ledger reports as acked: none of it may be sent again.
async fn observe(run: &Run, api: &Api, dice: &mut Dice) {
    for _ in 0..20 {
        let gateway = usize::try_from(dice.below(run.books.len() as u64)).unwrap();
        if let Ok(rows) = api.try_mail(&name(gateway), "acked", 0).await {
            let ids = rows.iter().map(|row| row["message_id"].as_str().unwrap().to_owned());
            run.books[gateway].lock().unwrap().signed_for.extend(ids);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_through_faults_of_servers_and_of_postgres() {
    let gateways = std::env::var("FAULTS_GATEWAYS").map_or(GATEWAYS, |text| text.parse().unwrap());
    let mut cluster = Cluster::start(3).await;
    let apis: Vec<Api> = cluster.desks.iter().map(|desk| desk.api.clone()).collect();
    apis[0].add_gateway("probe", None).await;
    let mut accounts = Vec::new();
    for gateway in 0..usize::try_from(gateways).unwrap() {
        accounts.push(apis[gateway % 3].add_gateway(&name(gateway), None).await);
    }
    let run = Arc::new(Run {
        apis: apis.clone(),
        books: accounts.iter().map(|_| Mutex::default()).collect(),
        wrong: Mutex::default(),
        calm: AtomicBool::new(false),
        posted: AtomicU64::new(0),
        failed_posts: AtomicU64::new(0),
        rows_again: AtomicU64::new(0),
    });
    let mut dice = Dice::new(20_261_116);
    let mut serving = JoinSet::new();
    for (gateway, account) in accounts.into_iter().enumerate() {
        serving.spawn(serve(run.clone(), gateway, account, Dice::new(gateway as u64)));
    }
    let mut posting = JoinSet::new();
    for poster in 0..POSTERS {
        posting.spawn(post(run.clone(), poster, Dice::new(1_000 + poster)));
    }
    sleep(Duration::from_secs(2)).await;
    cluster.recovered(&run, "at first").await;

    observe(&run, &apis[1], &mut dice).await;
    cluster.desks[0].kill().await;
    sleep(Duration::from_secs(3)).await;
    cluster.desks[0].start_again().await;
    cluster.recovered(&run, "kill -9").await;

    observe(&run, &apis[0], &mut dice).await;
    cluster.desks[1].signal("STOP");
    sleep(Duration::from_secs(15)).await;
    cluster.desks[1].signal("CONT");
    cluster.recovered(&run, "SIGSTOP for 15 s").await;

    observe(&run, &apis[2], &mut dice).await;
    cluster.postgres.restart();
    cluster.recovered(&run, "Postgres restarted").await;

    for (what, cut) in [("answers of Postgres cut", CUT_TO_CLIENT), ("requests to Postgres cut", CUT_TO_SERVER)] {
        observe(&run, &apis[0], &mut dice).await;
        cluster.proxies[2].cut(cut);
        sleep(Duration::from_secs(12)).await;
        cluster.proxies[2].cut(0);
        cluster.proxies[2].hang_up();
        cluster.recovered(&run, what).await;
    }

    run.calm.store(true, Ordering::SeqCst);
    let posted: Vec<(usize, String)> = posting.join_all().await.into_iter().flatten().collect();
    let (api, ended) = (&apis[0], Instant::now());
    let none_waits = async || {
        let all = api.look("/admin/v1/instances").await;
        let waits = |it: &serde_json::Value| it["instance"] != "probe" && it["waiting"] != 0;
        (!all["instances"].as_array()?.iter().any(waits)).then_some(())
    };
    until("all mail is acked", PATIENCE, none_waits).await;
    let drained = ended.elapsed();
    for (gateway, id) in &posted {
        assert!(run.books[*gateway].lock().unwrap().buffer_ids.contains_key(id), "{id} was lost");
    }
    let received: usize = run.books.iter().map(|book| book.lock().unwrap().first.len()).sum();
    assert_eq!(received, posted.len(), "each once");
    for book in &run.books {
        // Of one poster's messages to one gateway the order is that in which they were accepted.
        let mut last: HashMap<String, u64> = HashMap::new();
        for id in &book.lock().unwrap().first {
            let (poster, number) = id.split_once('-').unwrap();
            let number: u64 = number.parse().unwrap();
            let before = last.insert(poster.to_owned(), number);
            assert!(before.is_none_or(|before| before < number), "{id} came after {before:?}\n{}", cluster.logs());
        }
    }
    assert_eq!(run.wrong.lock().unwrap().first(), None);
    println!(
        "{} messages to {gateways} gateways; {} posts failed and were repeated, {} rows were sent again before their ack; \
         drained in {} ms",
        posted.len(),
        run.failed_posts.load(Ordering::Relaxed),
        run.rows_again.load(Ordering::Relaxed),
        drained.as_millis(),
    );
}
