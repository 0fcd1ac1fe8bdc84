//! `kill -9` at random points, many times, under traffic: no accepted message is lost, none is out of order, and no
//! acked one is sent again. What a server knows of a gateway that does not ack survives a kill as well.
//!
//! `CRASH_ROUNDS` and `CRASH_SEED` change the number of kills and their points.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use process::{Api, Desk, Dice, GatewayAccount, Received, Socket, person, until};
use rusqlite::{Connection, OpenFlags};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const INSTANCES: [&str; 3] = ["ann", "ben", "cleo"];
const POSTERS: u64 = 6;
const ROUNDS: u64 = 200;
const SEED: u64 = 20_260_601;
/// Time for all remaining deliveries after the last kill.
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// What the gateway of one instance received, over all its sockets.
#[derive(Default)]
struct Book {
    /// Message ids in the order of their first arrival, with their row number.
    first: Vec<(String, u64)>,
    /// The buffer id of each message, which must not change.
    buffer_ids: HashMap<String, String>,
    /// Messages that the ledger reported as acked.
    signed_for: HashSet<String>,
    again: u64,
    wrong: Vec<String>,
}

impl Book {
    fn note(&mut self, message_id: String, buffer_id: String) {
        if self.signed_for.contains(&message_id) {
            self.wrong.push(format!("{message_id} came again after its ack was in the ledger"));
        }
        match self.buffer_ids.get(&message_id) {
            Some(known) if *known == buffer_id => self.again += 1,
            Some(known) => self.wrong.push(format!("{message_id} has two rows, {known} and {buffer_id}")),
            None => {
                let row = buffer_id.rsplit('-').next().and_then(|row| u64::from_str_radix(row, 16).ok());
                self.first.push((message_id.clone(), row.expect("a buffer id ends with a row number")));
                self.buffer_ids.insert(message_id, buffer_id);
            }
        }
    }
}

/// Shared by all tasks.
struct Run {
    api: Api,
    /// Whether the server is up; clients wait for it instead of polling.
    up: watch::Receiver<bool>,
    /// No more messages are posted, and every row is acked at once.
    calm: AtomicBool,
    books: [Mutex<Book>; 3],
    failed_posts: AtomicU64,
}

impl Run {
    async fn wait_until_up(&self) {
        let _ = self.up.clone().wait_for(|up| *up).await; // closed at the end of the test
    }
}

/// An accepted message: poster, number, instance and event.
struct Accepted {
    poster: u64,
    number: u64,
    instance: usize,
    event_id: String,
}

impl Accepted {
    fn id(&self) -> String {
        format!("p{}-{}", self.poster, self.number)
    }
}

fn chat(poster: u64, instance: usize) -> String {
    format!("c{poster}-{}", INSTANCES[instance])
}

/// Posts one message after the other, each until the server has accepted it.
async fn post(run: Arc<Run>, poster: u64, mut dice: Dice) -> Vec<Accepted> {
    let api = run.api.apart();
    let mut all = Vec::new();
    while !run.calm.load(Ordering::SeqCst) {
        let instance = usize::try_from(dice.below(3)).unwrap();
        let number = all.len() as u64;
        let mut one = Accepted { poster, number, instance, event_id: String::new() };
        let id = one.id();
        let (chat, user) = (chat(poster, instance), person(INSTANCES[instance]));
        loop {
            run.wait_until_up().await;
            if let Ok(answer) = api.try_post(&chat, &user, &id, &id).await {
                assert_eq!(answer["verdict"]["outcome"], "delivered");
                answer["event_id"].as_str().unwrap().clone_into(&mut one.event_id);
                break;
            }
            run.failed_posts.fetch_add(1, Ordering::Relaxed);
            sleep(Duration::from_millis(5)).await;
        }
        all.push(one);
        sleep(dice.millis(0, 1)).await;
    }
    all
}

/// Reconnects forever; acks most rows at once, some late, some not at all, and sometimes disconnects.
async fn serve(run: Arc<Run>, instance: usize, account: GatewayAccount, mut dice: Dice) {
    loop {
        run.wait_until_up().await;
        let Ok(mut socket) = Socket::dial(&run.api.url, &account).await else {
            sleep(Duration::from_millis(5)).await;
            continue;
        };
        // A late ack is sent only on the socket on which its row came.
        let mut late: Vec<(Instant, String)> = Vec::new();
        loop {
            let next = late.iter().map(|(at, _)| *at).min();
            let due = async {
                match next {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let said = tokio::select! {
                received = socket.receive() => match received {
                    Received::Row { buffer_id, message_id, text, .. } => {
                        assert_eq!(text, message_id, "the text of a message must be its id");
                        run.books[instance].lock().unwrap().note(message_id, buffer_id.clone());
                        match dice.below(100) {
                            _ if run.calm.load(Ordering::SeqCst) => socket.ack(&buffer_id).await,
                            0..80 => socket.ack(&buffer_id).await,
                            80..90 => {
                                late.push((Instant::now() + dice.millis(1, 60), buffer_id));
                                Ok(())
                            }
                            90..99 => Ok(()),
                            _ => break,
                        }
                    }
                    Received::Frame(_) => Ok(()),
                    Received::Closed(_) => break,
                },
                () = due => {
                    let now = Instant::now();
                    let mut said = Ok(());
                    for (_, buffer_id) in late.extract_if(.., |(at, _)| *at <= now) {
                        said = said.and(socket.ack(&buffer_id).await);
                    }
                    said
                }
            };
            if said.is_err() {
                break;
            }
        }
    }
}

/// Records what the ledger reports as acked: none of it may be sent again.
async fn observe(run: &Run) {
    for (instance, book) in INSTANCES.iter().zip(&run.books) {
        if let Ok(rows) = run.api.try_mail(instance, "acked", 0).await {
            let ids = rows.iter().map(|row| row["message_id"].as_str().unwrap().to_owned());
            book.lock().unwrap().signed_for.extend(ids);
        }
    }
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_accepted_is_lost_or_repeated_through_many_kills() {
    let (rounds, seed) = (setting("CRASH_ROUNDS", ROUNDS), setting("CRASH_SEED", SEED));
    let began = Instant::now();
    let mut dice = Dice::new(seed);
    let mut desk = Desk::start(&[("LOG_FILTER", "warn")]).await;
    let (up, is_up) = watch::channel(true);
    let run = Arc::new(Run {
        api: desk.api.clone(),
        up: is_up,
        calm: AtomicBool::new(false),
        books: Default::default(),
        failed_posts: AtomicU64::new(0),
    });
    let mut gateways = JoinSet::new();
    for (number, instance) in INSTANCES.iter().enumerate() {
        let account = desk.api.add_gateway(instance, None).await;
        gateways.spawn(serve(run.clone(), number, account, Dice::new(seed ^ (number as u64 + 1))));
    }
    let mut posters = JoinSet::new();
    for poster in 0..POSTERS {
        posters.spawn(post(run.clone(), poster, Dice::new(seed ^ (poster + 100))));
    }

    let mut starts = Duration::ZERO;
    let mut stumbles = 0;
    for _ in 0..rounds {
        let traffic = dice.millis(20, 150);
        sleep(traffic / 2).await;
        match dice.below(4) {
            0 => observe(&run).await, // and killed immediately
            1 => {
                observe(&run).await;
                sleep(traffic / 2).await;
            }
            _ => sleep(traffic / 2).await,
        }
        up.send_replace(false);
        desk.kill().await;
        if dice.one_in(10) {
            desk.stumble(dice.millis(1, 120)).await;
            stumbles += 1;
        }
        let start = Instant::now();
        desk.start_again().await;
        starts += start.elapsed();
        up.send_replace(true);
        let wrong = run.books.iter().find_map(|book| book.lock().unwrap().wrong.first().cloned());
        assert_eq!(wrong, None, "seed {seed}");
        assert!(gateways.try_join_next().is_none(), "a gateway has ended");
    }

    // The posters finish their last message; one more restart makes all unacked rows come again.
    run.calm.store(true, Ordering::SeqCst);
    let posted = timeout(DRAIN_TIME, posters.join_all()).await.expect("the last messages were not accepted");
    let accepted: Vec<Accepted> = posted.into_iter().flatten().collect();
    desk.kill().await;
    desk.start_again().await;
    let drained = Instant::now();
    for instance in INSTANCES {
        let none_waits = async || (desk.api.waiting(instance).await == 0).then_some(());
        until(&format!("all mail of {instance} is acked"), DRAIN_TIME, none_waits).await;
    }
    let drained = drained.elapsed();
    gateways.abort_all();

    let again = check_books(&run, &accepted, seed);
    check_ledger(&desk.api, &accepted).await;
    check_chats(&desk.api, &accepted).await;
    let signed_for: usize = run.books.iter().map(|book| book.lock().unwrap().signed_for.len()).sum();
    println!(
        "{} messages, {} kills ({stumbles} of a desk that was just starting), {again} redeliveries, {} posts tried again, \
         {signed_for} rows watched after their ack; a start took {:?}, the rest drained in {drained:?}, all in {:?}",
        accepted.len(),
        rounds + stumbles + 1,
        run.failed_posts.load(Ordering::Relaxed),
        starts / u32::try_from(rounds.max(1)).unwrap(),
        began.elapsed(),
    );
}

/// Checks what the gateways received. Returns how often a row came again.
fn check_books(run: &Run, accepted: &[Accepted], seed: u64) -> u64 {
    let mut again = 0;
    for (number, book) in run.books.iter().enumerate() {
        let book = book.lock().unwrap();
        let name = INSTANCES[number];
        assert_eq!(book.wrong, [""; 0], "{name}, seed {seed}");
        again += book.again;
        let expected: HashSet<String> =
            accepted.iter().filter(|one| one.instance == number).map(Accepted::id).collect();
        let arrived: HashSet<String> = book.first.iter().map(|(id, _)| id.clone()).collect();
        let lost: Vec<&String> = expected.difference(&arrived).collect();
        assert!(lost.is_empty(), "{name} never got {lost:?}, seed {seed}");
        let strange: Vec<&String> = arrived.difference(&expected).collect();
        assert!(strange.is_empty(), "{name} got {strange:?}, which belong to others");
        let jump = book.first.windows(2).find(|pair| pair[0].1 >= pair[1].1);
        assert_eq!(jump, None, "{name} got rows out of order, seed {seed}");
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for (id, _) in &book.first {
            let (poster, number) = id.split_once('-').unwrap();
            let number: u64 = number.parse().unwrap();
            let before = last.insert(poster, number);
            assert!(before.is_none_or(|before| before < number), "{name} got {id} after {before:?}, seed {seed}");
        }
    }
    again
}

/// Checks the ledger: one row and one event per message, every row acked.
async fn check_ledger(api: &Api, accepted: &[Accepted]) {
    let mut events = HashSet::new();
    for (number, instance) in INSTANCES.iter().enumerate() {
        let rows = api.mail(instance, "").await;
        let unsettled: Vec<_> = rows.iter().filter(|row| row["state"] != "acked").collect();
        assert!(unsettled.is_empty(), "{instance} still has waiting rows {unsettled:?}");
        let posted: HashMap<String, &str> =
            accepted.iter().filter(|one| one.instance == number).map(|one| (one.id(), one.event_id.as_str())).collect();
        assert_eq!(rows.len(), posted.len(), "one row for each message to {instance}");
        for row in &rows {
            let (id, event) = (row["message_id"].as_str().unwrap(), row["event_id"].as_str().unwrap());
            assert_eq!(posted.get(id), Some(&event), "the poster of {id} got another event id");
            assert!(events.insert(event.to_owned()), "{event} has two messages");
        }
    }
}

/// Checks the chat histories: each message once, in the order in which it was posted.
async fn check_chats(api: &Api, accepted: &[Accepted]) {
    for poster in 0..POSTERS {
        for instance in 0..INSTANCES.len() {
            let of_chat = accepted.iter().filter(|one| one.poster == poster && one.instance == instance);
            let expected: Vec<String> = of_chat.map(Accepted::id).collect();
            let lines = api.history(&chat(poster, instance)).await;
            let shown: Vec<&str> = lines.iter().map(|line| line["message_id"].as_str().unwrap()).collect();
            assert_eq!(shown, expected, "the history of {}", chat(poster, instance));
        }
    }
}

// ---- a gateway that never acks ----------------------------------------------------------------

/// The instance of a gateway of version 0.17, which does not ack.
const OLD: &str = "old";
/// After a minute an answered row without ack is evidence. Then all rows that it got are settled.
const EVIDENCE_TIME: Duration = Duration::from_secs(90);
/// With the evidence, a row is settled after 10 s. Without it, a row that is not answered is never settled.
const SETTLE_TIME: Duration = Duration::from_secs(40);

/// Whether the evidence is in the database, where a kill does not reach it.
fn is_evidence_stored(desk: &Desk) -> bool {
    let file = desk.folder().join("frontdesk.db");
    let database = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let sql = "SELECT COUNT(*) FROM presence WHERE never_acks = 1";
    let count: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    count == 1
}

/// Reads until this many rows are settled, and gets no further row meanwhile. Reading answers the pings of the server.
async fn settled_without_acks(desk: &Desk, socket: &mut Socket, rows: usize, within: Duration) {
    let settled = until("rows are settled without acks", within, async || {
        (is_evidence_stored(desk) && desk.api.mail(OLD, "acked").await.len() == rows).then_some(())
    });
    let unexpected = async {
        loop {
            match socket.receive().await {
                Received::Frame(_) => {}
                other => return other,
            }
        }
    };
    tokio::select! {
        () = settled => {}
        other = unexpected => panic!("{other:?} before {rows} rows were settled\n{}", desk.log()),
    }
}

/// Posts a message, which must be the next row on the socket: nothing is sent again before it.
async fn post_and_take(desk: &Desk, socket: &mut Socket, id: &str) {
    desk.api.post("c", &person(OLD), id, id).await;
    let (_, taken) = socket.row(Duration::from_secs(10)).await.unwrap_or_else(|| panic!("{id} was not received"));
    assert_eq!(taken, id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_that_a_gateway_never_acks_survives_a_kill() {
    let mut desk = Desk::start(&[("LOG_FILTER", "warn")]).await;
    let account = desk.api.add_gateway(OLD, None).await;
    let mut socket = Socket::dial(&desk.api.url, &account).await.unwrap();
    for id in ["m1", "m2", "m3"] {
        post_and_take(&desk, &mut socket, id).await;
    }
    let action = json!({ "op": "send", "chat_id": "c", "content": "done" });
    let answer = json!({ "type": "outbound", "requestId": "r1", "action": action });
    socket.say(&format!("{answer}\n")).await.unwrap();
    assert!(!is_evidence_stored(&desk), "an answer alone is no evidence");
    settled_without_acks(&desk, &mut socket, 3, EVIDENCE_TIME).await;

    desk.kill().await;
    desk.start_again().await;
    let mut socket = Socket::dial(&desk.api.url, &account).await.unwrap();
    post_and_take(&desk, &mut socket, "m4").await;
    // This row is not answered: only what was known before the kill settles it.
    settled_without_acks(&desk, &mut socket, 4, SETTLE_TIME).await;

    desk.kill().await;
    desk.start_again().await;
    let mut socket = Socket::dial(&desk.api.url, &account).await.unwrap();
    post_and_take(&desk, &mut socket, "m5").await;
}
