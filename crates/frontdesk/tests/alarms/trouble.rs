//! Invalid input, faulty hosts and unauthorized callers: whatever one agent does, others are fired in time, and no
//! alarm is lost silently.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::Env as _;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::harness::{Harness, Reply, TIME_LIMIT};
use super::sink::{Sink, now_ms};

/// Limit for concurrent fires to one host.
const PER_HOST: usize = 128;
const FAR: &str = "2099-01-01T00:00:00Z";
/// Concurrent requests of a test.
const AT_ONCE: usize = 64;
const KEY: &[u8] = b"a scheduler's key";

/// An agent with its identity.
struct Agent<'a> {
    harness: &'a Harness,
    identity: String,
}

async fn agent<'a>(harness: &'a Harness, tenant: &str, instance: &str) -> Agent<'a> {
    let made = harness.admin("POST", "/tenants", &json!({ "name": tenant })).await;
    assert!([201, 409].contains(&made.status), "{}", made.text());
    let ask = json!({ "tenant": tenant, "scope": "identity", "instance": instance });
    let made = harness.admin("POST", "/tokens", &ask).await.expect(201);
    Agent { harness, identity: made["token"].as_str().unwrap().to_owned() }
}

impl Agent<'_> {
    async fn ask(&self, job: &str, fire_at: &str, url: &str, misfire: Value) -> Reply {
        let mut body = json!({ "job_id": job, "fire_at": fire_at, "agent_callback_url": url,
                               "dedup_key": format!("{job}:{fire_at}") });
        if !misfire.is_null() {
            body["misfire"] = misfire;
        }
        self.harness.post("/api/agent-cron/provision", &self.identity, &body).await
    }

    async fn arm(&self, job: &str, fire_at: &str, url: &str) -> String {
        let reply = self.ask(job, fire_at, url, Value::Null).await.expect(200);
        reply["schedule_id"].as_str().unwrap().to_owned()
    }

    /// Arms many jobs `PREFIX-N` for one time.
    async fn arm_many(&self, prefix: &str, count: usize, fire_at: &str, url: &str) {
        let arming =
            (0..count).map(|number| async move { self.arm(&format!("{prefix}-{number}"), fire_at, url).await });
        futures_util::stream::iter(arming).buffer_unordered(AT_ONCE).collect::<Vec<_>>().await;
    }

    async fn armed(&self) -> Vec<Value> {
        let list = self.harness.get("/api/agent-cron/list", &self.identity).await.expect(200);
        list["armed"].as_array().unwrap().clone()
    }

    async fn none_armed(&self) {
        let waiting = async { while !self.armed().await.is_empty() {} };
        timeout(TIME_LIMIT, waiting).await.expect("some alarms stay armed");
    }

    async fn history(&self, job: &str) -> Vec<Value> {
        let path = format!("/api/agent-cron/history?job_id={job}");
        self.harness.get(&path, &self.identity).await.expect(200)["history"].as_array().unwrap().clone()
    }

    /// Waits for the latest result of a job.
    async fn ended(&self, job: &str) -> Value {
        let waiting = async {
            loop {
                if let Some(latest) = self.history(job).await.first() {
                    return latest.clone();
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(TIME_LIMIT, waiting).await.unwrap_or_else(|_| panic!("{job} has no result"))
    }
}

fn iso(at_ms: u64) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(at_ms).unwrap()).unwrap().to_string()
}

// ---- hosts ------------------------------------------------------------------------------------

#[derive(Debug, Clone, Copy)]
enum Manner {
    /// Accepts the request and never responds.
    Hang,
    /// Responds very slowly, byte by byte.
    Drip,
    /// Responds with 202 and an endless body.
    Flood,
    /// Closes the connection before the request.
    Close,
    /// Closes the connection in the middle of its response.
    BreakOff,
}

/// A host with a faulty behaviour.
struct BadHost {
    url: String,
    asked: Arc<Notify>,
    /// The server has closed its connection: it no longer waits for this host.
    left: Arc<AtomicBool>,
    serving: JoinHandle<()>,
}

impl BadHost {
    async fn open(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, left) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (arrived, gone) = (asked.clone(), left.clone());
        let serving = tokio::spawn(async move {
            let mut answers = tokio::task::JoinSet::new(); // aborted with the host
            while let Ok((stream, _)) = listener.accept().await {
                let (arrived, gone) = (arrived.clone(), gone.clone());
                answers.spawn(async move {
                    let _ = misbehave(stream, manner, arrived).await;
                    gone.store(true, Ordering::SeqCst);
                });
            }
        });
        Self { url, asked, left, serving }
    }

    fn was_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }
}

impl Drop for BadHost {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Ends on errors, because the server may close the connection at any time.
async fn misbehave(mut stream: TcpStream, manner: Manner, asked: Arc<Notify>) -> Option<()> {
    if matches!(manner, Manner::Close) {
        asked.notify_one();
        return None;
    }
    stream.read_u8().await.ok()?;
    asked.notify_one();
    match manner {
        Manner::Hang | Manner::Close => {
            while stream.read_u8().await.is_ok() {}
            None
        }
        Manner::Drip => {
            stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 100000\r\n\r\n").await.ok()?;
            loop {
                stream.write_all(b"x").await.ok()?;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Manner::Flood => {
            stream.write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 1000000000000\r\n\r\n").await.ok()?;
            let much = vec![b'x'; 65_536];
            loop {
                stream.write_all(&much).await.ok()?;
            }
        }
        Manner::BreakOff => {
            stream.write_all(b"HTTP/1.1 202 Acc").await.ok()?;
            None
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn faulty_hosts_do_not_delay_others() {
    let (harness, clock) = Harness::still().await;
    let (bad, good) = (agent(&harness, "home", "bad").await, agent(&harness, "home", "good").await);
    let mut hosts = Vec::new();
    for manner in [Manner::Hang, Manner::Drip, Manner::Flood, Manner::Close, Manner::BreakOff] {
        hosts.push((manner, BadHost::open(manner).await));
    }
    let sink = Sink::open().await;
    // The alarms of the faulty hosts are due before that of the good one.
    let due_ms = clock.now_ms() + 1_000;
    for (manner, host) in &hosts {
        bad.arm_many(&format!("{manner:?}"), 100, &iso(due_ms), &host.url).await;
    }
    good.arm_many("good", 100, &iso(due_ms + 1), &sink.url).await;
    clock.advance_ms(2_000);
    sink.wait(100).await;
    assert!(!hosts[0].1.was_left(), "the good host waited for the hanging one");
    for (manner, host) in &hosts {
        let asked = timeout(TIME_LIMIT, host.asked.notified()).await;
        assert!(asked.is_ok(), "{manner:?} was never called");
    }
    for (_, host) in &hosts {
        host.serving.abort();
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_reason_of_a_faulty_host_is_readable() {
    let harness = Harness::open().await;
    let agent = agent(&harness, "home", "bad").await;
    let never = json!({ "grace_s": 0 });
    for manner in [Manner::Close, Manner::BreakOff] {
        let host = BadHost::open(manner).await;
        let job = format!("{manner:?}");
        agent.ask(&job, &iso(now_ms()), &host.url, never.clone()).await.expect(200);
        let end = agent.ended(&job).await;
        assert_eq!(end["outcome"], "dead", "{end}");
        assert!(end["note"].as_str().unwrap().contains("given up after 1 tries"), "{end}");
        assert!(!end["note"].as_str().unwrap().contains("127.0.0.1"), "must not contain addresses: {end}");
    }
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_2xx_status_completes_a_fire_whatever_the_body_does() {
    let harness = Harness::open().await;
    let agent = agent(&harness, "home", "bad").await;
    let host = BadHost::open(Manner::Flood).await;
    agent.ask("flood", &iso(now_ms()), &host.url, json!({ "grace_s": 0 })).await.expect(200);
    let end = agent.ended("flood").await;
    assert_eq!((&end["outcome"], &end["attempts"]), (&json!("fired"), &json!(1)), "{end}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_many_alarms_does_not_delay_another() {
    let (harness, clock) = Harness::still().await;
    let (big, small) = (agent(&harness, "big", "b").await, agent(&harness, "small", "s").await);
    let (slow, quick) = (Sink::open().await, Sink::open().await);
    slow.hold();
    big.arm_many("big", 2_000, &iso(clock.now_ms() + 1_000), &slow.url).await;
    clock.advance_ms(2_000);
    slow.wait(PER_HOST).await;
    small.arm("elsewhere", &iso(clock.now_ms()), &quick.url).await;
    quick.wait(1).await;
    assert_eq!(slow.fires().len(), PER_HOST, "the limit of one host, with no fire finished yet");
    // At the same slow host it gets the next free slot, and does not wait for two thousand others.
    small.arm("there-too", &iso(clock.now_ms()), &slow.url).await;
    slow.release();
    let fires = slow.wait(2_001).await;
    let place = fires.iter().position(|fire| fire.job() == "there-too").unwrap();
    assert!(place < PER_HOST + 256, "it was fired as number {place}");
    harness.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_many_hanging_hosts_does_not_delay_another() {
    let (harness, clock) = Harness::still().await;
    let (big, small) = (agent(&harness, "big", "b").await, agent(&harness, "small", "s").await);
    let quick = Sink::open().await;
    let mut hosts = Vec::new();
    // More than the total limit of concurrent fires.
    for number in 0..20 {
        let host = BadHost::open(Manner::Hang).await;
        big.arm_many(&format!("hang-{number}"), 64, &iso(clock.now_ms() + 1_000), &host.url).await;
        hosts.push(host);
    }
    clock.advance_ms(2_000);
    for host in &hosts[..8] {
        timeout(TIME_LIMIT, host.asked.notified()).await.expect("the host was not called");
    }
    small.arm("alone", &iso(clock.now_ms()), &quick.url).await;
    quick.wait(1).await;
    assert!(!hosts.iter().any(BadHost::was_left), "it waited for a hanging host");
    drop(hosts);
    harness.finish().await;
}

// ---- input ------------------------------------------------------------------------------------

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_provisions_of_one_job_leave_one_alarm() {
    let harness = Harness::open().await;
    let agent = agent(&harness, "home", "eager").await;
    let sink = Sink::open().await;
    // Within the in-memory window, so that every replaced alarm has an entry there.
    let base_ms = now_ms() + 600_000;
    let arming = (0..10_000u64).map(|number| {
        let (agent, sink) = (&agent, &sink);
        async move {
            let fire_at = iso(base_ms + number % 500);
            (agent.arm("tea", &fire_at, &sink.url).await, fire_at)
        }
    });
    let given: Vec<(String, String)> = futures_util::stream::iter(arming).buffer_unordered(AT_ONCE).collect().await;
    let armed = agent.armed().await;
    assert_eq!(armed.len(), 1, "{armed:?}");
    let (id, at) = (armed[0]["schedule_id"].as_str().unwrap(), armed[0]["fire_at"].as_str().unwrap());
    assert!(
        given.iter().any(|(given_id, given_at)| given_id == id && given_at == at),
        "not one of the provisioned alarms"
    );
    // This alarm is fired once.
    agent.arm("tea", &iso(now_ms()), &sink.url).await;
    sink.wait(1).await;
    agent.arm("last", &iso(now_ms()), &sink.url).await;
    sink.wait(2).await;
    assert_eq!(agent.ended("last").await["outcome"], "fired");
    agent.none_armed().await;
    let jobs: Vec<String> = sink.fires().iter().map(|fire| fire.job().to_owned()).collect();
    assert_eq!(jobs, ["tea", "last"]);
    harness.finish().await;
}

#[tokio::test]
async fn concurrent_provisions_of_the_same_time_are_one_alarm() {
    let (harness, clock) = Harness::still().await;
    let agent = agent(&harness, "home", "eager").await;
    let sink = Sink::open().await;
    let fire_at = iso(clock.now_ms() + 300);
    let arming = (0..500).map(|_| agent.arm("tea", &fire_at, &sink.url));
    let mut ids: Vec<String> = futures_util::stream::iter(arming).buffer_unordered(AT_ONCE).collect().await;
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    clock.advance_ms(300);
    sink.wait(1).await;
    agent.ended("tea").await;
    agent.arm("last", &iso(clock.now_ms()), &sink.url).await;
    assert_eq!(sink.wait(2).await.len(), 2);
    harness.finish().await;
}

#[tokio::test]
async fn any_time_with_an_offset_is_accepted_and_past_times_fire_now() {
    let harness = Harness::open().await;
    let agent = agent(&harness, "home", "old").await;
    let sink = Sink::open().await;
    let past = [
        "1969-12-31T23:59:59Z",
        "1969-07-20T20:17:40+00:00",
        "0001-01-01T00:00:00Z",
        "2016-12-31T23:59:60Z", // a leap second
        "2026-01-01T00:00:00.000000001-11:45",
        "2026-01-01t00:00:00z",
    ];
    for (number, fire_at) in past.iter().enumerate() {
        agent.arm(&format!("past-{number}"), fire_at, &sink.url).await;
    }
    let fires = sink.wait(past.len()).await;
    for (number, fire_at) in past.iter().enumerate() {
        let job = format!("past-{number}");
        let fire = fires.iter().find(|fire| fire.job() == job).unwrap();
        assert_eq!(fire.body["fire_at"], *fire_at, "returned unchanged");
        assert_eq!(agent.ended(&job).await["outcome"], "fired");
    }
    let future =
        ["9999-12-30T00:00:00Z", "9999-12-30T00:00:00+14:00", "2099-06-30T23:59:60+05:30", "2099-01-01T00:00:00-12:00"];
    for (number, fire_at) in future.iter().enumerate() {
        agent.arm(&format!("future-{number}"), fire_at, &sink.url).await;
        assert_eq!(agent.armed().await[number]["fire_at"], *fire_at);
    }
    assert_eq!(sink.fires().len(), past.len());
    harness.finish().await;
}

/// The last second that Python's datetime can represent.
#[tokio::test]
async fn the_last_day_of_the_calendar_is_accepted() {
    let harness = Harness::open().await;
    let agent = agent(&harness, "home", "patient").await;
    let reply = agent.ask("last", "9999-12-31T23:59:59+00:00", "http://127.0.0.1:9", Value::Null).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    harness.finish().await;
}

#[tokio::test]
async fn the_latest_callback_url_is_used() {
    let (harness, clock) = Harness::still().await;
    let agent = agent(&harness, "home", "odd").await;
    let sink = Sink::open().await;
    // A trailing slash makes no difference, and the latest URL is used.
    agent.arm("moved", &iso(clock.now_ms() + 400), "http://127.0.0.1:9").await;
    let fire_at = agent.armed().await[0]["fire_at"].as_str().unwrap().to_owned();
    agent.arm("moved", &fire_at, &format!("{}/", sink.url)).await;
    clock.advance_ms(400);
    assert_eq!(sink.wait(1).await[0].job(), "moved");
    harness.finish().await;
}

#[tokio::test]
async fn a_callback_must_be_a_base_url_without_query_or_fragment() {
    let harness = Harness::open().await;
    let agent = agent(&harness, "home", "odd").await;
    let sink = Sink::open().await;
    for url in [format!("{}/?to=", sink.url), format!("{}/#", sink.url)] {
        let reply = agent.ask("odd", FAR, &url, Value::Null).await;
        assert_eq!(reply.status, 400, "{url:?} was accepted, but fires would go elsewhere");
    }
    harness.finish().await;
}

/// The grace time is counted in whole seconds, so nothing is late within the first.
const LATE_MS: u64 = 1_050;

// ---- misfires ---------------------------------------------------------------------------------

#[tokio::test]
async fn alarms_missed_while_the_server_was_down_are_fired_or_skipped() {
    let (harness, clock) = Harness::still().await;
    let sink = Sink::open().await;
    let due_ms = clock.now_ms() + 2_000;
    let identity = {
        let agent = agent(&harness, "home", "sleeper").await;
        agent.arm("late", &iso(due_ms), &sink.url).await;
        agent.arm("tomorrow", FAR, &sink.url).await;
        let picky = json!({ "grace_s": 0, "on_miss": "skip" });
        agent.ask("picky", &iso(due_ms), &sink.url, picky).await.expect(200);
        let lenient = json!({ "grace_s": 3600, "on_miss": "skip" });
        agent.ask("lenient", &iso(due_ms), &sink.url, lenient).await.expect(200);
        agent.identity
    };
    let folder = harness.finish().await;
    clock.set_ms(due_ms + LATE_MS);
    assert_eq!(sink.fires().len(), 0);
    let harness = Harness::by(clock, folder, |_| {}).await;
    let agent = Agent { harness: &harness, identity };
    let mut jobs: Vec<String> = sink.wait(2).await.iter().map(|fire| fire.job().to_owned()).collect();
    jobs.sort();
    assert_eq!(jobs, ["late", "lenient"]);
    let end = agent.ended("picky").await;
    assert_eq!(end["outcome"], "skipped", "{end}");
    assert!(end["note"].as_str().unwrap().contains("too late"), "{end}");
    for job in ["late", "lenient"] {
        assert_eq!(agent.ended(job).await["outcome"], "fired");
    }
    assert_eq!(agent.armed().await.len(), 1, "tomorrow's");
    assert_eq!(sink.fires().len(), 2);
    assert_eq!(harness.metric("frontdesk_alarms_ended_total{why=\"skipped\"}").await, 1);
    harness.finish().await;
}

#[tokio::test]
async fn a_job_without_late_fires_is_fired_if_on_time() {
    let (harness, clock) = Harness::still().await;
    let agent = agent(&harness, "home", "picky").await;
    let sink = Sink::open().await;
    let picky = json!({ "grace_s": 0, "on_miss": "skip" });
    let due_ms = clock.now_ms() + 200;
    for number in 0..5 {
        agent.ask(&format!("tea-{number}"), &iso(due_ms), &sink.url, picky.clone()).await.expect(200);
    }
    // As late as the loop's own interval can make it, and still within the grace time.
    clock.set_ms(due_ms + LATE_MS - 100);
    for number in 0..5 {
        let end = agent.ended(&format!("tea-{number}")).await;
        assert_eq!(end["outcome"], "fired", "the server was running all the time: {end}");
    }
    harness.finish().await;
}

#[tokio::test]
async fn a_skipped_alarm_counts_no_attempts() {
    let (harness, clock) = Harness::still().await;
    let sink = Sink::open().await;
    let due_ms = clock.now_ms() + 1_000;
    let agent = agent(&harness, "home", "picky").await;
    let picky = json!({ "grace_s": 0, "on_miss": "skip" });
    agent.ask("tea", &iso(due_ms), &sink.url, picky).await.expect(200);
    let identity = agent.identity;
    let folder = harness.finish().await;
    clock.set_ms(due_ms + LATE_MS);
    let harness = Harness::by(clock, folder, |_| {}).await;
    let agent = Agent { harness: &harness, identity };
    let end = agent.ended("tea").await;
    assert_eq!((&end["outcome"], &end["attempts"]), (&json!("skipped"), &json!(0)), "{end}");
    assert_eq!(sink.fires().len(), 0);
    harness.finish().await;
}

// ---- the webhook for an external scheduler ----------------------------------------------------

struct SchedulerCall<'a> {
    id: &'a str,
    at_s: u64,
    key: &'a [u8],
    body: String,
}

fn scheduler_call<'a>(id: &'a str, job: &str, fire_at: &str) -> SchedulerCall<'a> {
    let body = json!({ "agent_id": "sleeper", "job_id": job, "fire_at": fire_at }).to_string();
    SchedulerCall { id, at_s: now_ms() / 1000, key: KEY, body }
}

impl SchedulerCall<'_> {
    /// The request of a scheduler.
    fn request(&self, harness: &Harness) -> reqwest::RequestBuilder {
        let signed = format!("{}.{}.{}", self.id, self.at_s, self.body);
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, self.key), signed.as_bytes());
        harness
            .request("POST", "/api/agent-cron/relay")
            .header("webhook-id", self.id)
            .header("webhook-timestamp", self.at_s.to_string())
            .header("webhook-signature", format!("v1,{}", STANDARD.encode(tag)))
            .body(self.body.clone())
    }

    async fn say(&self, harness: &Harness) -> Reply {
        harness.send(self.request(harness)).await
    }
}

async fn with_scheduler() -> Harness {
    Harness::with(|config| config.cron.relay_keys = vec![format!("whsec_{}", STANDARD.encode(KEY))]).await
}

#[tokio::test]
async fn a_known_scheduler_fires_an_alarm_once() {
    let harness = with_scheduler().await;
    let agent = agent(&harness, "home", "sleeper").await;
    let sink = Sink::open().await;
    agent.arm("tea", FAR, &sink.url).await;
    sink.hold();
    let call = scheduler_call("w1", "tea", FAR);
    let request = tokio::spawn(call.request(&harness).send());
    sink.wait(1).await;
    assert!(!request.is_finished(), "responded before the agent accepted the fire");
    sink.release();
    assert_eq!(request.await.unwrap().unwrap().status(), 200);
    let end = agent.ended("tea").await;
    assert_eq!((&end["outcome"], &end["note"]), (&json!("fired"), &json!("answered 202")));
    assert_eq!(sink.fires()[0].body, json!({ "job_id": "tea", "fire_at": FAR }));
    assert_eq!(agent.armed().await, Vec::<Value>::new());
    call.say(&harness).await.error(401);
    // A second call succeeds without a fire, because the alarm was already fired.
    assert_eq!(scheduler_call("w2", "tea", FAR).say(&harness).await.expect(200), json!({ "ok": true }));
    scheduler_call("w3", "tea", "2098-01-01T00:00:00Z").say(&harness).await.error(404);
    scheduler_call("w4", "nothing", FAR).say(&harness).await.error(404);
    let nobody = json!({ "agent_id": "nobody", "job_id": "tea", "fire_at": FAR }).to_string();
    SchedulerCall { body: nobody, ..scheduler_call("w5", "tea", FAR) }.say(&harness).await.error(404);
    assert_eq!(sink.fires().len(), 1);
    harness.finish().await;
}

/// As a database of the first release may have them: no token can tell them apart, so neither is called, and neither keeps
/// the other's alarms from the webhook.
#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_with_one_name_neither_use_nor_block_each_others_alarms() {
    let harness = with_scheduler().await;
    let (ours, theirs) = (agent(&harness, "home", "sleeper").await, agent(&harness, "rival", "sleeper").await);
    for tenant in ["home", "rival"] {
        harness.namesake(tenant, "sleeper").await;
    }
    let sink = Sink::open().await;
    ours.arm("tea", FAR, "relay:").await;
    theirs.arm("post", FAR, "relay:").await;
    ours.arm("called", FAR, &sink.url).await;
    assert_eq!(scheduler_call("n1", "tea", FAR).say(&harness).await.expect(200), json!({ "ok": true }));
    assert_eq!(scheduler_call("n2", "post", FAR).say(&harness).await.expect(200), json!({ "ok": true }));
    assert_eq!(ours.ended("tea").await["outcome"], "fired");
    assert_eq!(theirs.ended("post").await["outcome"], "fired");
    let response = scheduler_call("n3", "called", FAR).say(&harness).await.error(502);
    assert!(response.contains("another tenant has an instance of this name"), "{response}");
    assert_eq!(sink.fires().len(), 0, "no token was made that is good for both");
    harness.finish().await;
}

#[tokio::test]
async fn an_unknown_caller_fires_nothing() {
    let harness = with_scheduler().await;
    let agent = agent(&harness, "home", "sleeper").await;
    let sink = Sink::open().await;
    agent.arm("tea", FAR, &sink.url).await;
    let now_s = now_ms() / 1000;
    let forged = SchedulerCall { key: b"a wrong key", ..scheduler_call("f1", "tea", FAR) };
    let stale = SchedulerCall { at_s: now_s - 301, ..scheduler_call("f2", "tea", FAR) };
    let early = SchedulerCall { at_s: now_s + 310, ..scheduler_call("f3", "tea", FAR) };
    for bad in [&forged, &stale, &early] {
        let text = bad.say(&harness).await.error(401);
        assert_eq!(text, "this call is not signed with a known scheduler key", "every refusal looks the same");
    }
    let good = scheduler_call("f4", "tea", FAR);
    let bare = harness.request("POST", "/api/agent-cron/relay").body(good.body.clone());
    assert_eq!(harness.send(bare).await.status, 401, "no signature");
    let changed = good.request(&harness).body(good.body.replace("tea", "teb"));
    assert_eq!(harness.send(changed).await.status, 401, "another body");
    let mut other_id = good.request(&harness).build().unwrap();
    other_id.headers_mut().insert("webhook-id", "f6".parse().unwrap());
    let other_id = harness.client.execute(other_id).await.unwrap();
    assert_eq!(other_id.status(), 401, "another id");
    let agents_own = harness.post("/api/agent-cron/relay", &agent.identity, &json!({ "job_id": "tea" })).await;
    assert_eq!(agents_own.status, 401, "an agent is not a scheduler");
    let long =
        SchedulerCall { body: format!("{{\"x\":\"{}\"}}", "y".repeat(100_000)), ..scheduler_call("f7", "tea", FAR) };
    assert!([400, 413].contains(&long.say(&harness).await.status));
    let odd = SchedulerCall { body: "[]".into(), ..scheduler_call("f8", "tea", FAR) };
    assert_eq!(odd.say(&harness).await.status, 400);
    assert_eq!((sink.fires().len(), agent.armed().await.len()), (0, 1));
    assert_eq!(good.say(&harness).await.status, 200, "the valid call still works");
    assert_eq!(sink.fires().len(), 1);
    harness.finish().await;

    let closed = Harness::open().await;
    assert_eq!(good.say(&closed).await.status, 401, "without keys every call is refused");
    closed.finish().await;
}

#[tokio::test]
async fn a_scheduler_learns_that_the_agent_refused_and_can_retry() {
    let harness = with_scheduler().await;
    let agent = agent(&harness, "home", "sleeper").await;
    let sink = Sink::open().await;
    sink.answer(&[500]);
    agent.arm("tea", FAR, &sink.url).await;
    let call = scheduler_call("r1", "tea", FAR);
    let response = call.say(&harness).await.error(502);
    assert!(response.contains("answered 500"), "{response}");
    assert_eq!(call.say(&harness).await.status, 200, "the same call again");
    assert_eq!(agent.ended("tea").await["outcome"], "fired");
    agent.arm("last", &iso(now_ms()), &sink.url).await;
    sink.wait(3).await;
    agent.ended("last").await;
    assert_eq!(sink.fires().len(), 3);
    harness.finish().await;
}

#[tokio::test]
async fn concurrent_scheduler_calls_fire_an_alarm_once() {
    let harness = with_scheduler().await;
    let agent = agent(&harness, "home", "sleeper").await;
    let sink = Sink::open().await;
    agent.arm("tea", FAR, &sink.url).await;
    sink.hold();
    let first = tokio::spawn(scheduler_call("t1", "tea", FAR).request(&harness).send());
    sink.wait(1).await;
    // The second must be answered while the first is in progress; if it fires too, the sink holds it.
    let second = timeout(TIME_LIMIT, scheduler_call("t2", "tea", FAR).say(&harness)).await;
    let fires = sink.fires().len();
    sink.release();
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    assert_eq!(fires, 1, "both calls fired");
    assert_eq!(second.expect("the second call was not answered").status, 409);
    harness.finish().await;
}

#[tokio::test]
async fn an_alarm_whose_scheduler_disconnected_is_not_lost() {
    let harness = with_scheduler().await;
    let agent = agent(&harness, "home", "sleeper").await;
    let sink = Sink::open().await;
    let due_ms = now_ms() + 1_500;
    agent.arm("tea", &iso(due_ms), &sink.url).await;
    sink.hold();
    let call = scheduler_call("h1", "tea", &iso(due_ms));
    let request = tokio::spawn(call.request(&harness).send());
    sink.wait(1).await;
    request.abort(); // the scheduler disconnects during its call
    let _ = request.await;
    sink.release();
    // Either that fire counts, or the alarm is fired at its own time. The result must be stored.
    let end = agent.ended("tea").await;
    assert_eq!(end["outcome"], "fired", "{end}");
    harness.finish().await;
}
