//! The Rust client against a complete server: jobs are armed, fired by webhook or socket, run once and armed again; and
//! the webhook accepts only the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use frontdesk_client::cron::{
    Clock, CronDesk as _, CronDeskError, FireVerifier, HttpCronDesk, Job, JobStore, MemoryJobs, Provider, Timing,
    UrlKeys, Work, door, machine_clock,
};
use frontdesk_client::{Dial, Handler, Inbound, RelayTransport as _, SocketTransport};
use frontdesk_core::cron::signing::{FireClaims, SigningKey, new_key};
use frontdesk_wire::Secret;
use frontdesk_wire::cron::SigningAlg;
use frontdesk_wire::cron::{BY_RELAY, PURPOSE};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::harness::{GatewayAccount, Harness, TIME_LIMIT};
use super::sink::Sink;

/// An agent with its jobs, its provider and, if it has an address, its webhook.
struct Agent {
    provider: Arc<Provider>,
    jobs: Arc<MemoryJobs>,
    desk: Arc<HttpCronDesk>,
    /// Ids of jobs, in the order in which they ran.
    ran: mpsc::UnboundedReceiver<String>,
    url: String,
    /// Seconds by which the verifier's clock is ahead.
    ahead_s: Arc<AtomicI64>,
    serving: Option<JoinHandle<()>>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Some(serving) = &self.serving {
            serving.abort();
        }
    }
}

async fn identity(harness: &Harness, instance: &str) -> String {
    let ask = json!({ "tenant": "home", "scope": "identity", "instance": instance });
    harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned()
}

/// Serves until aborted. Opened first, because the agent must know its own address.
async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

fn serve(listener: TcpListener, router: Router) -> JoinHandle<()> {
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() })
}

fn keys_of(url: &str) -> UrlKeys {
    UrlKeys::new(format!("{url}/.well-known/jwks.json")).unwrap()
}

impl Agent {
    async fn open(harness: &Harness, instance: &str) -> Self {
        let (listener, url) = listen().await;
        let mut agent = Self::at(harness, instance, &url).await;
        let ahead_s = agent.ahead_s.clone();
        let clock: Clock = Arc::new(move || now() + SignedDuration::from_secs(ahead_s.load(Ordering::SeqCst)));
        let verifier = FireVerifier::new(Box::new(keys_of(&harness.url)), &harness.url, instance, clock);
        agent.serving = Some(serve(listener, door::router(agent.provider.clone(), Arc::new(verifier))));
        agent
    }

    async fn at(harness: &Harness, instance: &str, callback: &str) -> Self {
        let jobs = Arc::new(MemoryJobs::default());
        let desk = HttpCronDesk::new(&harness.url, Secret::new(identity(harness, instance).await)).unwrap();
        let desk = Arc::new(desk);
        let (tell, ran) = mpsc::unbounded_channel();
        let work: Work = Arc::new(move |job| {
            drop(tell.send(job.id));
            Box::pin(std::future::ready(()))
        });
        let provider = Provider::new(jobs.clone(), Some(desk.clone()), callback, work, machine_clock());
        let ahead_s = Arc::default();
        Self { provider: Arc::new(provider), jobs, desk, ran, url: callback.into(), ahead_s, serving: None }
    }

    /// Waits for the next run.
    async fn ran(&mut self) -> String {
        timeout(TIME_LIMIT, self.ran.recv()).await.expect("no job ran").unwrap()
    }

    async fn armed(&self) -> Vec<(String, String)> {
        self.desk.list().await.unwrap().into_iter().map(|alarm| (alarm.job_id.into(), alarm.fire_at)).collect()
    }

    /// What the jobs want, in the form in which the server lists it.
    fn wanted(&self) -> Vec<(String, String)> {
        let jobs = self.jobs.load().unwrap();
        jobs.iter().filter_map(|job| Some((job.id.clone(), job.wanted()?.to_string()))).collect()
    }

    /// Waits until the server has armed exactly what the jobs want, and nothing at the time `but_not`.
    async fn in_step(&self, but_not: Option<Timestamp>) -> Vec<(String, String)> {
        let waiting = async {
            loop {
                let (armed, wanted) = (self.armed().await, self.wanted());
                let old = but_not.is_some_and(|at| armed.iter().any(|(_, armed_at)| *armed_at == at.to_string()));
                if armed == wanted && !old {
                    return armed;
                }
                tokio::task::yield_now().await;
            }
        };
        let Ok(armed) = timeout(TIME_LIMIT, waiting).await else {
            panic!("armed {:?}, wanted {:?}", self.armed().await, self.wanted())
        };
        armed
    }

    /// Calls the webhook like the server does.
    async fn knock(&self, harness: &Harness, bearer: &str, body: &str) -> super::harness::Reply {
        let mut request = harness.client.post(format!("{}/api/cron/fire", self.url)).body(body.to_owned());
        if !bearer.is_empty() {
            request = request.header("authorization", bearer);
        }
        harness.send(request).await
    }
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn in_ms(ms: i64) -> Timestamp {
    now() + SignedDuration::from_millis(ms)
}

/// A job with this interval and first run.
fn recurring(id: &str, seconds: i64, first: Timestamp) -> Job {
    Job { next_run_at: Some(first), ..Job::new(id, Timing::Every { seconds }, first) }
}

async fn fired(harness: &Harness, instance: &str, job: &str, count: usize) {
    let identity = identity(harness, instance).await;
    let path = format!("/api/agent-cron/history?job_id={job}");
    let waiting = async {
        loop {
            let response = harness.get(&path, &identity).await.expect(200);
            // A fast agent arms the next run before the server has stored the end of the last, which is then
            // "replaced".
            let (fired, other): (Vec<&Value>, Vec<&Value>) =
                response["history"].as_array().unwrap().iter().partition(|it| it["outcome"] == "fired");
            assert!(other.iter().all(|it| it["outcome"] == "replaced"), "{response}");
            if fired.len() >= count {
                assert_eq!(fired.len(), count, "{response}");
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(TIME_LIMIT, waiting).await.expect("the job was not fired");
}

#[tokio::test]
async fn a_job_is_fired_by_webhook_runs_once_and_the_next_run_is_armed() {
    let harness = Harness::open().await;
    let mut agent = Agent::open(&harness, "home").await;
    let first = in_ms(3_000);
    agent.provider.put(recurring("tea", 600, first)).await.unwrap();
    assert_eq!(agent.armed().await, [("tea".to_owned(), first.to_string())]);
    assert_eq!(agent.ran().await, "tea");
    assert!(now() >= first, "it ran before its time");
    let armed = agent.in_step(Some(first)).await;
    let next: Timestamp = armed[0].1.parse().unwrap();
    let gap = next.duration_since(first);
    assert!((600..640).contains(&gap.as_secs()), "{gap:?}");
    fired(&harness, "home", "tea", 1).await;

    // The same call again, with a valid token, is accepted and does nothing.
    let sink = Sink::open().await;
    let body = json!({ "job_id": "probe", "fire_at": now().to_string(), "agent_callback_url": sink.url });
    let probe = harness.post("/api/agent-cron/provision", &identity(&harness, "home").await, &body).await;
    assert_eq!(probe.status, 200);
    let bearer = format!("Bearer {}", sink.wait(1).await[0].token);
    let again = json!({ "job_id": "tea", "fire_at": first.to_string() }).to_string();
    let answer = agent.knock(&harness, &bearer, &again).await.expect(202);
    assert_eq!(answer, json!({ "status": "accepted", "job_id": "tea" }));
    let unknown = agent.knock(&harness, &bearer, r#"{"job_id":"never-there"}"#).await;
    assert_eq!(unknown.status, 202);
    agent.provider.put(Job::new("after", Timing::At { time: now() }, now())).await.unwrap();
    assert_eq!(agent.ran().await, "after", "the second fire of tea ran it");
    harness.finish().await;
}

#[tokio::test]
async fn a_job_with_an_end_leaves_nothing_armed() {
    let harness = Harness::open().await;
    let mut agent = Agent::open(&harness, "home").await;
    agent.provider.put(Job::new("once", Timing::At { time: in_ms(200) }, now())).await.unwrap();
    assert_eq!(agent.ran().await, "once");
    agent.provider.put(recurring("twice", 1, in_ms(100)).times(2)).await.unwrap();
    assert_eq!((agent.ran().await, agent.ran().await), ("twice".into(), "twice".into()));
    fired(&harness, "home", "twice", 2).await;
    fired(&harness, "home", "once", 1).await;
    assert_eq!(agent.jobs.load().unwrap(), []);
    assert_eq!(agent.in_step(None).await, []);
    harness.finish().await;
}

#[tokio::test]
async fn a_paused_job_is_not_armed_and_a_foreign_identity_sees_nothing() {
    let harness = Harness::open().await;
    let agent = Agent::open(&harness, "home").await;
    agent.provider.put(recurring("tea", 600, in_ms(600_000))).await.unwrap();
    agent.provider.put(recurring("post", 600, in_ms(700_000))).await.unwrap();
    assert!(agent.provider.pause("tea", true).await.unwrap());
    assert_eq!(agent.in_step(None).await.len(), 1);
    // Another process of the same agent, without jobs, cancels alarms that no job wants.
    let other = Agent::at(&harness, "home", &agent.url).await;
    other.provider.reconcile().await.unwrap();
    assert_eq!(agent.armed().await, []);
    let stranger = HttpCronDesk::new(&harness.url, Secret::new("fd_nobody")).unwrap();
    let refused = stranger.list().await.unwrap_err();
    assert!(matches!(refused, CronDeskError::Refused { status: 401, .. }), "{refused}");
    harness.finish().await;
}

#[tokio::test]
async fn a_rotated_key_is_fetched_by_a_webhook_that_knows_the_old_one() {
    let harness = Harness::open().await;
    let mut agent = Agent::open(&harness, "home").await;
    agent.provider.put(Job::new("one", Timing::At { time: now() }, now())).await.unwrap();
    assert_eq!(agent.ran().await, "one");
    harness.admin("POST", "/signing-keys/rotate", &Value::Null).await.expect(200);
    // Keys are not fetched again within ten seconds, so the webhook's clock is moved.
    agent.ahead_s.store(11, Ordering::SeqCst);
    agent.provider.put(Job::new("two", Timing::At { time: now() }, now())).await.unwrap();
    assert_eq!(agent.ran().await, "two");
    fired(&harness, "home", "two", 1).await;
    harness.finish().await;
}

#[tokio::test]
async fn a_job_whose_agent_died_between_202_and_claim_still_runs() {
    let harness = Harness::open().await;
    // The webhook accepted, then the process died before it claimed the job.
    let gone = Sink::open().await;
    let before = Agent::at(&harness, "home", &gone.url).await;
    let job = recurring("tea", 600, now());
    before.provider.put(job.clone()).await.unwrap();
    gone.wait(1).await;
    fired(&harness, "home", "tea", 1).await;
    // The next process finds the job unchanged, which is overdue.
    let mut after = Agent::open(&harness, "home").await;
    after.jobs.put(job).unwrap();
    after.provider.start().await.unwrap();
    assert_eq!(after.ran().await, "tea");
    harness.finish().await;
}

// ---- by socket --------------------------------------------------------------------------------

fn transport(harness: &Harness, account: &GatewayAccount) -> SocketTransport {
    SocketTransport::new(Dial {
        url: harness.url.clone(),
        gateway_id: account.gateway.clone(),
        secret: Secret::new(account.secret.as_str()),
        identities: vec![("relay".into(), String::new())],
    })
}

/// Passes fires to the provider and records whether each ran.
fn taker(provider: Arc<Provider>) -> (Handler, mpsc::UnboundedReceiver<bool>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let handler: Handler = Arc::new(move |inbound| {
        let (provider, sender) = (provider.clone(), sender.clone());
        Box::pin(async move {
            let Inbound::Forward(forward) = inbound else { panic!("not a forward: {inbound:?}") };
            let body = Provider::relayed(&forward).expect("the forward is not a fire");
            let _ = sender.send(provider.fire(&body).await.unwrap()); // the receiver may be gone
            true
        })
    });
    (handler, receiver)
}

#[tokio::test]
async fn an_agent_without_an_address_can_use_cron() {
    let harness = Harness::open().await;
    let account = harness.add_gateway("sleeper").await;
    let mut agent = Agent::at(&harness, "sleeper", BY_RELAY).await;
    // Fired while the agent is disconnected: the fire waits like any other row.
    let first = in_ms(100);
    agent.provider.put(recurring("tea", 600, first)).await.unwrap();
    fired(&harness, "sleeper", "tea", 1).await;
    let (handler, mut took) = taker(agent.provider.clone());
    let socket = transport(&harness, &account);
    socket.set_inbound_handler(handler);
    timeout(TIME_LIMIT, socket.connect()).await.expect("timed out").expect("connecting failed");
    assert_eq!(agent.ran().await, "tea");
    assert_eq!(timeout(TIME_LIMIT, took.recv()).await.unwrap(), Some(true));
    agent.in_step(Some(first)).await;
    // Fired while the agent is connected.
    agent.provider.put(Job::new("once", Timing::At { time: in_ms(100) }, now())).await.unwrap();
    assert_eq!(agent.ran().await, "once");
    assert_eq!(timeout(TIME_LIMIT, took.recv()).await.unwrap(), Some(true));
    let all_acked = async {
        while harness.mail(&account).await.iter().any(|row| row["state"] != "acked") {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIME_LIMIT, all_acked).await.expect("both fires are acked");
    assert_eq!(harness.mail(&account).await.len(), 2);
    socket.disconnect().await;
    harness.finish().await;
}

// ---- authentication of the webhook ------------------------------------------------------------

/// A webhook that trusts our test key as the server's, so that a test can make exactly one thing wrong.
struct Trusting {
    harness: Harness,
    agent: Agent,
    key: Arc<SigningKey>,
    publishing: JoinHandle<()>,
}

impl Trusting {
    async fn open(alg: SigningAlg) -> Self {
        let harness = Harness::open().await;
        let key = SigningKey::open("ours", alg, &new_key(alg).unwrap()).unwrap();
        let keys = json!({ "keys": [key.jwk()] });
        let (listener, keys_url) = listen().await;
        let publish = get(move || std::future::ready(Json(keys.clone())));
        let publishing = serve(listener, Router::new().route("/.well-known/jwks.json", publish));
        let (listener, url) = listen().await;
        let mut agent = Agent::at(&harness, "home", &url).await;
        let verifier = FireVerifier::new(Box::new(keys_of(&keys_url)), &harness.url, "home", machine_clock());
        agent.serving = Some(serve(listener, door::router(agent.provider.clone(), Arc::new(verifier))));
        Self { harness, agent, key, publishing }
    }

    fn claims(&self) -> FireClaims<'_> {
        let now_s = u64::try_from(now().as_second()).unwrap();
        FireClaims {
            iss: &self.harness.url,
            aud: "agent:home".into(),
            purpose: PURPOSE,
            iat: now_s,
            nbf: now_s,
            exp: now_s + 90,
            jti: "x".into(),
        }
    }

    fn token(&self, change: impl FnOnce(&mut FireClaims<'_>)) -> String {
        let mut claims = self.claims();
        change(&mut claims);
        self.key.sign(&claims).unwrap()
    }

    async fn status(&self, bearer: &str) -> u16 {
        self.agent.knock(&self.harness, bearer, r#"{"job_id":"tea"}"#).await.status
    }

    async fn finish(self) {
        self.publishing.abort();
        self.harness.finish().await;
    }
}

#[tokio::test]
async fn the_webhook_accepts_only_tokens_of_the_server() {
    for alg in [SigningAlg::ES256, SigningAlg::RS256] {
        let scene = Trusting::open(alg).await;
        let good = scene.token(|_| {});
        assert_eq!(scene.status(&format!("Bearer {good}")).await, 202, "{alg:?}");
        let old = scene.token(|claims| claims.exp = claims.iat - 20);
        assert_eq!(scene.status(&format!("Bearer {old}")).await, 202, "small clock differences are tolerated");

        let forger = SigningKey::open("ours", alg, &new_key(alg).unwrap()).unwrap();
        let forged = forger.sign(&scene.claims()).unwrap();
        let (head, _) = good.rsplit_once('.').unwrap();
        let (_, strange) = forged.rsplit_once('.').unwrap();
        let (header, rest) = good.split_once('.').unwrap();
        let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none","kid":"ours"}"#);
        for (what, token) in [
            ("no token", String::new()),
            ("not a token", "nonsense".into()),
            ("a very long one", "x".repeat(60_000)),
            ("the same name, another key", forged.clone()),
            ("another key's signature", format!("{head}.{strange}")),
            ("no signature", format!("{head}.")),
            ("no algorithm", format!("{none}.{rest}")),
            ("a header only", header.into()),
            ("another audience", scene.token(|claims| claims.aud = "agent:other".into())),
            ("an audience that only begins like ours", scene.token(|claims| claims.aud = "agent:home2".into())),
            ("another purpose", scene.token(|claims| claims.purpose = "session")),
            ("no purpose", scene.token(|claims| claims.purpose = "")),
            ("another issuer", scene.token(|claims| claims.iss = "https://desk.example")),
            ("expired", scene.token(|claims| claims.exp = claims.iat - 31)),
            ("not yet good", scene.token(|claims| claims.nbf = claims.iat + 60)),
        ] {
            let status = scene.status(&format!("Bearer {token}")).await;
            assert_eq!(status, 401, "{what}, {alg:?}");
        }
        assert_eq!(scene.status("").await, 401, "no header");
        assert_eq!(scene.status(&format!("Basic {good}")).await, 401);
        scene.finish().await;
    }
}

#[tokio::test]
async fn the_webhook_checks_the_token_before_the_job() {
    let mut scene = Trusting::open(SigningAlg::ES256).await;
    let good = format!("Bearer {}", scene.token(|_| {}));
    for body in
        ["", "{", "{}", "[]", "null", r#"{"job_id":""}"#, r#"{"job_id":7}"#, r#"{"fire_at":"2026-01-01T00:00:00Z"}"#]
    {
        let reply = scene.agent.knock(&scene.harness, &good, body).await;
        assert!(!reply.error(400).is_empty(), "{body}");
        assert_eq!(scene.agent.knock(&scene.harness, "Bearer x", body).await.status, 401, "{body}");
    }
    // The server's real key is not trusted here: its fire is refused and stays armed.
    scene.agent.provider.put(recurring("tea", 600, now())).await.unwrap();
    let refused = async { while scene.harness.metric("frontdesk_alarm_tries_total{why=\"refused\"}").await == 0 {} };
    timeout(TIME_LIMIT, refused).await.expect("the server's fire was not refused");
    assert_eq!(scene.agent.armed().await.len(), 1);
    assert!(scene.agent.ran.try_recv().is_err(), "a refused fire ran");
    scene.finish().await;
}
