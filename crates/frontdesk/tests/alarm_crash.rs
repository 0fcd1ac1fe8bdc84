//! `kill -9` at random points while ten thousand alarms come due: each is fired at least once, none before its time,
//! and none again after its result was stored.
//!
//! `CRASH_SEED` changes the points, `CRASH_ALARMS` the number of alarms.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "the test compares with the system clock, as an agent does")]

mod process;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::port::alarms::Alarms as _;
use frontdesk_store::sqlite::SqliteStore;
use frontdesk_wire::InstanceNo;
use process::{Api, Desk, Dice, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

const SEED: u64 = 20_260_701;
const ALARMS: u64 = 10_000;
const KILLS: u64 = 16;
const INSTANCES: [&str; 4] = ["ann", "ben", "cleo", "dora"];
const ARMERS: u64 = 24;
/// Alarms come due within this time after arming: before, between and after the kills.
const SPREAD_MS: u64 = 8_000;
/// Limit for the refusals of one job, which bounds the delay of its third attempt.
const REFUSALS: u8 = 2;
/// Long enough for a disk that others keep busy: each arming is a commit.
const DRAIN_TIME: Duration = Duration::from_mins(3);

/// What the webhooks of the agents received.
#[derive(Default)]
struct Book {
    seen: HashMap<String, Seen>,
    /// Jobs that were stored as fired, read after a kill.
    written_down: HashSet<String>,
    fires: u64,
    taken: usize,
    wrong: Vec<String>,
}

#[derive(Default)]
struct Seen {
    refused: u8,
    taken: bool,
}

struct Run {
    api: Api,
    /// Whether the server is up; clients wait for it instead of polling.
    up: watch::Receiver<bool>,
    book: Mutex<Book>,
    came: Notify,
    armed_again: AtomicU64,
}

fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap()
}

/// Response of a webhook to one fire.
enum Answer {
    Take,
    Refuse,
    /// Closes the connection without a response.
    HangUp,
}

impl Run {
    fn note(&self, body: &Value, dice: &mut Dice) -> Answer {
        let at_ms = now_ms();
        let (job, fire_at) = (body["job_id"].as_str().unwrap(), body["fire_at"].as_str().unwrap());
        let due: jiff::Timestamp = fire_at.parse().unwrap();
        let due_ms = u64::try_from(due.as_millisecond()).unwrap();
        let mut book = self.book.lock().unwrap();
        book.fires += 1;
        if at_ms < due_ms {
            book.wrong.push(format!("{job} came {} ms early", due_ms - at_ms));
        }
        if book.written_down.contains(job) {
            book.wrong.push(format!("{job} came again although its end was written down before a kill"));
        }
        let seen = book.seen.entry(job.to_owned()).or_default();
        let refuse = seen.refused < REFUSALS && dice.one_in(8);
        if refuse {
            seen.refused += 1;
            return if dice.one_in(2) { Answer::Refuse } else { Answer::HangUp };
        }
        let first = !std::mem::replace(&mut seen.taken, true);
        book.taken += usize::from(first);
        drop(book);
        self.came.notify_waiters();
        Answer::Take
    }

    fn taken(&self) -> usize {
        self.book.lock().unwrap().taken
    }

    fn check(&self, seed: u64) {
        assert_eq!(self.book.lock().unwrap().wrong, [""; 0], "seed {seed}");
    }

    /// Waits until this many jobs were accepted by their webhooks.
    async fn all_taken(&self, count: usize, seed: u64) {
        let waiting = async {
            loop {
                let came = self.came.notified();
                if self.taken() >= count {
                    return;
                }
                came.await;
            }
        };
        let in_time = timeout(DRAIN_TIME, waiting).await.is_ok();
        assert!(in_time, "{} of {count} alarms were fired, seed {seed}", self.taken());
    }
}

/// Opens the webhook of an agent on loopback; returns its address.
async fn open_webhook(run: Arc<Run>, seed: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut number = seed;
        while let Ok((stream, _)) = listener.accept().await {
            number += 1;
            tokio::spawn(serve(stream, run.clone(), Dice::new(number)));
        }
    });
    url
}

/// Handles the requests of one connection in order; a killed server ends it at any point.
async fn serve(stream: TcpStream, run: Arc<Run>, mut dice: Dice) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(given) = line.strip_prefix("content-length:") {
                length = given.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        let status = match run.note(&body, &mut dice) {
            Answer::Take => "202 Accepted",
            Answer::Refuse => "503 Service Unavailable",
            Answer::HangUp => return None,
        };
        let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok()?;
    }
}

/// The owner of the alarms, and their callback.
#[derive(Clone)]
struct Agent {
    identity: String,
    url: String,
}

async fn arm(run: &Run, agent: &Agent, job: &str, due_ms: u64) {
    let due = jiff::Timestamp::from_millisecond(i64::try_from(due_ms).unwrap()).unwrap();
    let fire_at = due.to_string();
    let body = json!({ "job_id": job, "fire_at": fire_at, "agent_callback_url": agent.url,
                       "dedup_key": format!("{job}:{fire_at}") });
    loop {
        let _ = run.up.clone().wait_for(|up| *up).await; // closed at the end of the test
        match run.api.ask(Method::POST, "/api/agent-cron/provision", &agent.identity, Some(&body)).await {
            Ok((200, _)) => return,
            Ok((500.., _)) | Err(_) => drop(run.armed_again.fetch_add(1, Ordering::Relaxed)),
            Ok((status, answer)) => panic!("an alarm was refused: {status} {answer}"),
        }
        tokio::task::yield_now().await;
    }
}

/// The stored results after a kill. Read from a copy, so that the next start finds the data unchanged.
async fn left_behind(folder: &Path) -> Vec<frontdesk_core::port::alarms::EndedAlarm> {
    let copy = tempfile::tempdir().unwrap();
    for name in ["frontdesk.db", "frontdesk.db-wal"] {
        let _ = std::fs::copy(folder.join(name), copy.path().join(name)); // the file may not exist
    }
    let store = SqliteStore::open(copy.path(), 0).unwrap();
    let mut ended = Vec::new();
    for instance in 0..=16 {
        ended.extend(store.ended_alarms(InstanceNo(instance), None, 1_000_000).await.unwrap());
    }
    ended
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_alarm_is_fired_and_none_after_its_result_was_stored() {
    let (seed, alarms) = (setting("CRASH_SEED", SEED), setting("CRASH_SHOTS", ALARMS));
    let began = Instant::now();
    let mut dice = Dice::new(seed);
    let mut desk = Desk::start(&[]).await;
    let (up, is_up) = watch::channel(true);
    let run = Arc::new(Run {
        api: desk.api.clone(),
        up: is_up,
        book: Mutex::default(),
        came: Notify::new(),
        armed_again: AtomicU64::new(0),
    });
    let mut agents = Vec::new();
    for (number, instance) in (0..).zip(INSTANCES) {
        let url = open_webhook(run.clone(), seed ^ (number << 32)).await;
        agents.push(Agent { identity: desk.api.identity_of(instance).await, url });
    }

    let mut armers = JoinSet::new();
    for armer in 0..ARMERS {
        let (run, agents, mut dice) = (run.clone(), agents.clone(), Dice::new(seed ^ (armer + 1)));
        armers.spawn(async move {
            for number in (armer..alarms).step_by(usize::try_from(ARMERS).unwrap()) {
                let agent = &agents[usize::try_from(number).unwrap() % agents.len()];
                arm(&run, agent, &format!("job-{number}"), now_ms() + dice.below(SPREAD_MS)).await;
            }
        });
    }
    let mut watched = 0;
    for _ in 0..KILLS {
        sleep(dice.millis(100, 900)).await;
        up.send_replace(false);
        desk.kill().await;
        let fired = left_behind(desk.folder()).await.into_iter().filter(|it| it.outcome == "fired");
        {
            let mut book = run.book.lock().unwrap();
            book.written_down.extend(fired.map(|it| it.job_id.into()));
            watched = book.written_down.len();
        }
        if dice.one_in(4) {
            desk.stumble(dice.millis(0, 80)).await;
        }
        desk.start_again().await;
        up.send_replace(true);
        run.check(seed);
    }
    timeout(DRAIN_TIME, armers.join_all()).await.expect("not all alarms were armed");
    run.all_taken(usize::try_from(alarms).unwrap(), seed).await;
    for agent in &agents {
        let none_armed = async || {
            let listed = desk.api.ask(Method::GET, "/api/agent-cron/list", &agent.identity, None).await.unwrap();
            (listed.1["armed"] == json!([])).then_some(())
        };
        until("no alarm is armed", DRAIN_TIME, none_armed).await;
    }

    // One more kill: every alarm has one result and is not fired again.
    desk.kill().await;
    let mut ends: HashMap<String, Vec<String>> = HashMap::new();
    for it in left_behind(desk.folder()).await {
        ends.entry(it.job_id.into()).or_default().push(it.outcome);
    }
    assert_eq!(u64::try_from(ends.len()).unwrap(), alarms, "seed {seed}");
    let odd: Vec<_> = ends.iter().filter(|(_, outcomes)| **outcomes != ["fired"]).collect();
    assert!(odd.is_empty(), "alarms with a result other than one `fired`: {odd:?}, seed {seed}");
    run.book.lock().unwrap().written_down.extend(ends.into_keys());
    desk.start_again().await;
    for (number, agent) in agents.iter().enumerate() {
        // Any remaining fire would come before this one.
        arm(&run, agent, &format!("last-{number}"), now_ms()).await;
    }
    run.all_taken(usize::try_from(alarms).unwrap() + agents.len(), seed).await;
    run.check(seed);
    println!(
        "{alarms} alarms, {KILLS} kills, {} fires, {watched} results checked over restarts, {} armings retried, in {:?}",
        run.book.lock().unwrap().fires,
        run.armed_again.load(Ordering::Relaxed),
        began.elapsed(),
    );
}
