//! A server that shares its database is asked to stop: it reports that first, gives its duties to another one, closes
//! its sockets over time, and nothing is lost meanwhile.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_testkit::fakes::telegram::{FakeTelegram, Limits};
use process::cluster::{Cluster, SOON, dial};
use process::{Api, GatewayAccount, Received, Socket, TENANT, person, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

const GATEWAYS: usize = 50;
const POSTERS: usize = 4;
const SECOND: Duration = Duration::from_secs(1);
const BOT_TOKEN: &str = "7001:AAbbCCddEEffGGhhIIjjKKllMMnnOOppQQr";
const DUTY: &str = "listen telegram tg";

/// What a gateway received: the messages in order, and the row of each.
type Book = (Vec<String>, HashMap<String, String>);

#[derive(Default)]
struct Run {
    books: Vec<Mutex<Book>>,
    /// When each socket was closed, and with which code.
    closed: Mutex<Vec<(Instant, Option<u16>)>>,
    rows_again: AtomicUsize,
    is_calm: AtomicBool,
}

impl Run {
    fn note(&self, gateway: usize, message_id: String, buffer_id: &str) {
        let mut book = self.books[gateway].lock().unwrap();
        match book.1.insert(message_id.clone(), buffer_id.to_owned()) {
            None => book.0.push(message_id),
            Some(known) => {
                assert_eq!(known, buffer_id, "two rows of one message");
                self.rows_again.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

fn name(gateway: usize) -> String {
    format!("g{gateway}")
}

/// Serves its socket, and goes to the other server when it is closed.
async fn serve(run: Arc<Run>, gateway: usize, mut socket: Socket, elsewhere: String, account: GatewayAccount) {
    loop {
        match socket.receive().await {
            Received::Row { buffer_id, message_id, .. } => {
                run.note(gateway, message_id, &buffer_id);
                let _ = socket.ack(&buffer_id).await; // if it is closed, the row comes again
            }
            Received::Frame(_) => {}
            Received::Closed(code) => {
                run.closed.lock().unwrap().push((Instant::now(), code));
                let began = Instant::now();
                socket = loop {
                    match Socket::dial(&elsewhere, &account).await {
                        Ok(socket) => break socket,
                        Err(error) => {
                            assert!(began.elapsed() < SOON, "the other server refuses the gateway: {error:#}");
                        }
                    }
                    tokio::time::sleep(SECOND / 20).await;
                };
            }
        }
    }
}

/// Posts to both servers in turn; what one does not take goes to the other. Returns how many it posted for each of its gateways.
async fn post(run: Arc<Run>, poster: usize, apis: Arc<[Api; 2]>) -> (usize, usize) {
    for number in 0.. {
        if run.is_calm.load(Ordering::SeqCst) {
            return (poster, number);
        }
        for gateway in (poster..GATEWAYS).step_by(POSTERS) {
            let (user, id) = (person(&name(gateway)), format!("m{number}"));
            let chat = format!("c{gateway}");
            let (began, mut at) = (Instant::now(), number % 2);
            while let Err(error) = apis[at].try_post(&chat, &user, &id, &id).await {
                assert!(began.elapsed() < SOON, "{id}: {error:#}");
                at = 1 - at;
                tokio::time::sleep(SECOND / 20).await;
            }
        }
    }
    unreachable!("it ends when it is calm")
}

/// A bot whose listener runs at one of the servers. Returns which.
async fn add_bot(cluster: &Cluster, base_url: &str) -> usize {
    let api = &cluster.desks[0].api;
    let settings = json!({ "base_url": base_url });
    let bot = json!({
        "platform": "telegram", "id": "tg", "tenant": TENANT, "secrets": { "token": BOT_TOKEN }, "settings": settings,
    });
    let (status, added) = api.answer(Method::POST, "/admin/v1/bots", &api.admin, Some(&bot)).await;
    assert_eq!(status, 201, "{added}");
    let holder = until("a server listens", SOON, async || holder(&desks(api).await)).await;
    usize::from(holder == "desk-b")
}

async fn desks(api: &Api) -> Vec<Value> {
    api.look("/admin/v1/desks").await["desks"].as_array().unwrap().clone()
}

fn holder(desks: &[Value]) -> Option<String> {
    let has = |desk: &&Value| desk["duties"].as_array().unwrap().iter().any(|duty| duty == DUTY);
    desks.iter().find(has).map(|desk| desk["name"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_and_duties_move_before_the_server_ends_and_nothing_is_lost() {
    let fake = FakeTelegram::new();
    fake.set_limits(Limits::off());
    let telegram = fake.serve().await.unwrap();
    let add = json!({"act": "add_bot", "id": 7001, "token": BOT_TOKEN, "username": "desk_bot"});
    telegram.fake.act(0, serde_json::from_value(add).unwrap()).unwrap();
    let mut cluster = Cluster::start(&["desk-a", "desk-b"], &[]).await;
    let from = add_bot(&cluster, &telegram.base_url).await;
    let to = 1 - from;
    let (old, new) = (cluster.desks[from].api.clone(), cluster.desks[to].api.clone());
    let run = Arc::new(Run { books: (0..GATEWAYS).map(|_| Mutex::default()).collect(), ..Run::default() });
    let (mut gateways, mut posters) = (JoinSet::new(), JoinSet::new());
    let mut last = None;
    for gateway in 0..GATEWAYS {
        let account = old.add_gateway(&name(gateway), None).await;
        let socket = dial(&cluster.desks[from], &account).await;
        gateways.spawn(serve(run.clone(), gateway, socket, new.url.clone(), account.clone()));
        last = Some(account);
    }
    let known = async || (new.look("/admin/v1/bindings").await["bindings"].as_array()?.len() == GATEWAYS).then_some(());
    until("the links are known", SOON, known).await;
    let apis = Arc::new([old.clone(), new.clone()]);
    for poster in 0..POSTERS {
        posters.spawn(post(run.clone(), poster, apis.clone()));
    }
    let flowing = async || run.books.iter().all(|book| !book.lock().unwrap().0.is_empty()).then_some(());
    until("mail flows", SOON, flowing).await;

    let began = Instant::now();
    cluster.desks[from].signal("TERM");
    let stopping = async || {
        let (status, body) = old.ask(Method::GET, "/readyz", "", None).await.unwrap();
        (status == 503).then_some(body)
    };
    let body = until("it says that it is stopping", SOON, stopping).await;
    assert_eq!(body["detail"], "this server is stopping", "{body}");
    assert!(run.closed.lock().unwrap().len() < GATEWAYS / 2, "first it says so");
    old.post("still", &person("g0"), "still", "accepted").await;
    let refused = Socket::dial(&old.url, &last.unwrap()).await.err().expect("no new socket").to_string();
    assert!(refused.contains("503"), "{refused}");
    let moved = until("the duties are taken over", SOON, async || {
        let all = desks(&new).await;
        (holder(&all)? == format!("desk-{}", ["a", "b"][to])).then_some(all)
    });
    let moved = moved.await;
    assert_eq!(moved.len(), 2, "before the server has ended: {moved:?}");
    assert_eq!((&moved[from]["leaving"], &moved[from]["duties"]), (&json!(true), &json!([])), "{moved:?}");

    let status = cluster.desks[from].ended(Duration::from_secs(20)).await;
    assert!(status.is_some_and(|status| status.success()), "{status:?}\n{}", cluster.logs());
    let closed = async || Some(run.closed.lock().unwrap().clone()).filter(|closed| closed.len() == GATEWAYS);
    let closed = until("all sockets are closed", SOON, closed).await;
    assert!(closed.iter().all(|(_, code)| *code == Some(1001)), "{closed:?}");
    let mut at: Vec<Duration> = closed.iter().map(|(at, _)| *at - began).collect();
    at.sort();
    let within_a_second = |first: &Duration| at.iter().filter(|it| *first <= **it && **it < *first + SECOND).count();
    // A fifth of them each second; a machine that is busy catches up.
    assert!(
        at.iter().map(within_a_second).max().unwrap() <= GATEWAYS * 4 / 5,
        "at most four fifths of them within one second: {at:?}"
    );
    assert!(at[GATEWAYS - 1] >= at[0] + 2 * SECOND, "spread over some seconds: {at:?}");

    run.is_calm.store(true, Ordering::SeqCst);
    let mut posted = [0; POSTERS];
    while let Some(ended) = posters.join_next().await {
        let (poster, count) = ended.unwrap();
        posted[poster] = count;
    }
    for gateway in 0..GATEWAYS {
        until("all is delivered", SOON, async || (new.waiting(&name(gateway)).await == 0).then_some(())).await;
        let rows = new.mail(&name(gateway), "").await.len();
        let book = run.books[gateway].lock().unwrap();
        let mine: Vec<String> = book.0.iter().filter(|id| *id != "still").cloned().collect();
        let expected: Vec<String> = (0..posted[gateway % POSTERS]).map(|number| format!("m{number}")).collect();
        assert_eq!(mine, expected, "in order, each once");
        assert_eq!(rows, book.0.len(), "one row per message");
    }
    let again = run.rows_again.load(Ordering::SeqCst);
    assert!(again < GATEWAYS, "acks on their way are waited for: {again} rows came again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_alone_stops_at_once_and_a_second_signal_ends_the_wait() {
    let mut cluster = Cluster::start(&["desk-a", "desk-b"], &[("SERVER_DRAIN_S", "60")]).await;
    let a = cluster.desks[0].api.clone();
    cluster.desks[0].signal("TERM");
    let stopping = async || (a.ask(Method::GET, "/readyz", "", None).await.ok()?.0 == 503).then_some(());
    until("it is stopping", SOON, stopping).await;
    cluster.desks[0].signal("TERM");
    assert!(cluster.desks[0].ended(SOON).await.is_some_and(|status| status.success()), "{}", cluster.logs());

    let b = cluster.desks[1].api.clone();
    until("the first is gone", SOON, async || (desks(&b).await.len() == 1).then_some(())).await;
    cluster.desks[1].signal("TERM");
    assert!(cluster.desks[1].ended(SOON).await.is_some_and(|status| status.success()), "{}", cluster.logs());
}
