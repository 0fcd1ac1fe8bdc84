//! Gateways that are served by several servers, and users who write to them, while something else goes wrong.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::process::{Api, Desk, Dice, GatewayAccount, Received, Socket, person, until};

/// Until all is delivered again after a fault. It is printed how long it took.
const TIME_LIMIT: Duration = Duration::from_mins(1);

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
                Ok(Ok(answer)) => {
                    assert_eq!(answer["verdict"]["outcome"], "delivered", "{id}: {answer}");
                    break;
                }
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

/// The whole of it.
pub(crate) struct Traffic {
    run: Arc<Run>,
    dice: Dice,
    _serving: JoinSet<()>,
    posting: JoinSet<Vec<(usize, String)>>,
}

impl Traffic {
    pub(crate) async fn start(desks: &[Desk], gateways: usize, posters: u64) -> Self {
        let apis: Vec<Api> = desks.iter().map(|desk| desk.api.clone()).collect();
        apis[0].add_gateway("probe", None).await;
        let mut accounts = Vec::new();
        for gateway in 0..gateways {
            accounts.push(apis[gateway % apis.len()].add_gateway(&name(gateway), None).await);
        }
        let run = Arc::new(Run {
            apis,
            books: accounts.iter().map(|_| Mutex::default()).collect(),
            wrong: Mutex::default(),
            calm: AtomicBool::new(false),
            posted: AtomicU64::new(0),
            failed_posts: AtomicU64::new(0),
            rows_again: AtomicU64::new(0),
        });
        let (mut serving, mut posting) = (JoinSet::new(), JoinSet::new());
        for (gateway, account) in accounts.into_iter().enumerate() {
            serving.spawn(serve(run.clone(), gateway, account, Dice::new(gateway as u64)));
        }
        for poster in 0..posters {
            posting.spawn(post(run.clone(), poster, Dice::new(1_000 + poster)));
        }
        Self { run, dice: Dice::new(20_261_116), _serving: serving, posting }
    }

    /// Every server accepts, and what is accepted from now on arrives. Returns when all accepted.
    pub(crate) async fn recovered(&self, desks: &[Desk], what: &str) -> Instant {
        let (began, run) = (Instant::now(), &self.run);
        for (number, desk) in desks.iter().enumerate() {
            let api = desk.api.apart();
            for round in 0.. {
                let id = format!("{what}-{number}-{round}");
                let user = person("probe");
                let posting = api.try_post("probe", &user, &id, &id);
                if matches!(tokio::time::timeout(Duration::from_secs(15), posting).await, Ok(Ok(_))) {
                    break;
                }
                assert!(began.elapsed() < TIME_LIMIT, "{what}: desk-{number} accepts nothing\n{}", logs(desks));
                sleep(Duration::from_millis(50)).await;
            }
        }
        let accepted = Instant::now();
        let arrived = async || {
            let last = run.posted.load(Ordering::SeqCst);
            sleep(Duration::from_millis(100)).await;
            (run.posted.load(Ordering::SeqCst) > last).then_some(())
        };
        until(&format!("{what}: posters go on"), TIME_LIMIT, arrived).await;
        let wrong = run.wrong.lock().unwrap().first().cloned();
        assert_eq!(wrong, None, "{what}\n{}", logs(desks));
        println!("{what}: all servers accept again after {} ms", (accepted - began).as_millis());
        accepted
    }

    /// Records what the ledger reports as acked: none of it may be sent again.
    pub(crate) async fn observe(&mut self, at: usize) {
        let run = &self.run;
        for _ in 0..20 {
            let gateway = usize::try_from(self.dice.below(run.books.len() as u64)).unwrap();
            if let Ok(rows) = run.apis[at].try_mail(&name(gateway), "acked", 0).await {
                let ids = rows.iter().map(|row| row["message_id"].as_str().unwrap().to_owned());
                run.books[gateway].lock().unwrap().signed_for.extend(ids);
            }
        }
    }

    /// Waits until that many messages were accepted since now.
    pub(crate) async fn flows(&self, messages: u64) {
        let before = self.run.posted.load(Ordering::SeqCst);
        let posted = async || (self.run.posted.load(Ordering::SeqCst) >= before + messages).then_some(());
        until("messages are accepted", TIME_LIMIT, posted).await;
    }

    /// No more is posted. All that was accepted arrives, once and in order.
    pub(crate) async fn finish(self, desks: &[Desk]) {
        let run = &self.run;
        run.calm.store(true, Ordering::SeqCst);
        let posted: Vec<(usize, String)> = self.posting.join_all().await.into_iter().flatten().collect();
        let (api, ended) = (&run.apis[0], Instant::now());
        let none_waits = async || {
            let all = api.look("/admin/v1/instances").await;
            let waits = |it: &serde_json::Value| it["instance"] != "probe" && it["waiting"] != 0;
            (!all["instances"].as_array()?.iter().any(waits)).then_some(())
        };
        until("all mail is acked", TIME_LIMIT, none_waits).await;
        let drained = ended.elapsed();
        for (gateway, id) in &posted {
            if !run.books[*gateway].lock().unwrap().buffer_ids.contains_key(id) {
                let rows = api.mail(&name(*gateway), "").await;
                let row = rows.iter().find(|row| row["message_id"] == id.as_str());
                panic!("{id} was lost; in the ledger it is {row:?}\n{}", logs(desks));
            }
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
                assert!(before.is_none_or(|before| before < number), "{id} came after {before:?}\n{}", logs(desks));
            }
        }
        assert_eq!(run.wrong.lock().unwrap().first(), None);
        println!(
            "{} messages to {} gateways; {} posts failed and were repeated, {} rows were sent again before their ack; \
             drained in {} ms",
            posted.len(),
            run.books.len(),
            run.failed_posts.load(Ordering::Relaxed),
            run.rows_again.load(Ordering::Relaxed),
            drained.as_millis(),
        );
    }
}

fn logs(desks: &[Desk]) -> String {
    desks.iter().map(Desk::log).collect::<Vec<_>>().join("\n---\n")
}
