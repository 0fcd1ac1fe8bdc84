//! Arming, listing, cancelling, replacing, firing and retrying alarms.

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};

use super::harness::Harness;
use super::sink::{Sink, now_ms};

/// The server, an agent's webhook and the agent's identity.
struct Scene {
    harness: Harness,
    sink: Sink,
    identity: String,
}

impl Scene {
    async fn open() -> Self {
        let harness = Harness::open().await;
        let identity = identity(&harness, "sleeper").await;
        Self { harness, sink: Sink::open().await, identity }
    }

    async fn arm(&self, job: &str, fire_at: &str) -> String {
        let reply = self.arm_with(job, fire_at, json!({})).await.expect(200);
        reply["schedule_id"].as_str().unwrap().to_owned()
    }

    async fn arm_with(&self, job: &str, fire_at: &str, more: Value) -> super::harness::Reply {
        let mut body = json!({ "job_id": job, "fire_at": fire_at, "agent_callback_url": self.sink.url,
                               "dedup_key": format!("{job}:{fire_at}") });
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        self.harness.post("/api/agent-cron/provision", &self.identity, &body).await
    }

    async fn armed(&self) -> Vec<Value> {
        let list = self.harness.get("/api/agent-cron/list", &self.identity).await.expect(200);
        list["armed"].as_array().unwrap().clone()
    }

    async fn history(&self, job: &str) -> Vec<Value> {
        let path = format!("/api/agent-cron/history?job_id={job}");
        let response = self.harness.get(&path, &self.identity).await.expect(200);
        response["history"].as_array().unwrap().clone()
    }

    /// Waits until the history of a job has this many entries.
    async fn ended(&self, job: &str, count: usize) -> Vec<Value> {
        let waiting = async {
            loop {
                let lines = self.history(job).await;
                if lines.len() >= count {
                    return lines;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(super::harness::TIME_LIMIT, waiting).await.expect("the history is too short")
    }
}

async fn identity(harness: &Harness, instance: &str) -> String {
    let ask = json!({ "tenant": "home", "scope": "identity", "instance": instance });
    harness.admin("POST", "/tokens", &ask).await.expect(201)["token"].as_str().unwrap().to_owned()
}

fn iso(at_ms: u64) -> String {
    jiff::Timestamp::from_millisecond(i64::try_from(at_ms).unwrap()).unwrap().to_string()
}

const FAR: &str = "2099-01-01T00:00:00.5+05:30";

#[tokio::test]
async fn an_alarm_is_fired_once_at_its_time_with_a_verifiable_token() {
    let scene = Scene::open().await;
    let due_ms = now_ms() + 300;
    let schedule = scene.arm("tea", &iso(due_ms)).await;
    let fires = scene.sink.wait(1).await;
    let fire = &fires[0];
    assert!(fire.at_ms >= due_ms, "{} is before {due_ms}", fire.at_ms);
    assert_eq!(fire.body, json!({ "job_id": "tea", "fire_at": iso(due_ms) }));
    let keys = scene.harness.get("/.well-known/jwks.json", "").await;
    assert!(keys.header("cache-control").contains("max-age"));
    let keys: JwkSet = serde_json::from_value(keys.expect(200)).unwrap();
    let header = decode_header(&fire.token).unwrap();
    let key = DecodingKey::from_jwk(keys.find(&header.kid.unwrap()).unwrap()).unwrap();
    let mut rules = Validation::new(jsonwebtoken::Algorithm::ES256);
    rules.set_audience(&["agent:sleeper"]);
    rules.set_issuer(&[&scene.harness.url]);
    let claims = decode::<Value>(&fire.token, &key, &rules).unwrap().claims;
    assert_eq!(claims["purpose"], "cron_fire");
    let life = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
    assert!((60..=120).contains(&life), "{life}");
    let past = scene.ended("tea", 1).await;
    assert_eq!((&past[0]["outcome"], &past[0]["attempts"]), (&json!("fired"), &json!(1)));
    assert_eq!(scene.armed().await, Vec::<Value>::new());
    // The same time again is the same alarm, which was already fired.
    assert_eq!(scene.arm("tea", &iso(due_ms)).await, schedule);
    scene.arm("after", &iso(now_ms())).await;
    assert_eq!(scene.sink.wait(2).await[1].job(), "after");
    scene.ended("after", 1).await;
    assert_eq!(scene.sink.fires().len(), 2);
    assert_eq!(scene.harness.metric("frontdesk_alarms_ended_total{why=\"fired\"}").await, 2);
    scene.harness.finish().await;
}

#[tokio::test]
async fn a_time_is_returned_unchanged_and_a_new_one_replaces_it() {
    let scene = Scene::open().await;
    let first = scene.arm("tea", FAR).await;
    assert_eq!(scene.arm("tea", FAR).await, first);
    assert_eq!(scene.armed().await, [json!({ "job_id": "tea", "fire_at": FAR, "schedule_id": first })]);
    let second = scene.arm("tea", "2099-01-02T00:00:00Z").await;
    assert_ne!(first, second);
    assert_eq!(scene.armed().await.len(), 1);
    assert_eq!(scene.history("tea").await[0]["outcome"], "replaced");
    for _ in 0..2 {
        let gone = scene.harness.post("/api/agent-cron/cancel", &scene.identity, &json!({ "job_id": "tea" })).await;
        assert_eq!(gone.expect(200), json!({ "ok": true }), "cancelling what is not there is fine");
    }
    assert_eq!(scene.armed().await, Vec::<Value>::new());
    // Agents do not see each other's jobs.
    scene.arm("tea", FAR).await;
    let other = identity(&scene.harness, "other").await;
    assert_eq!(scene.harness.get("/api/agent-cron/list", &other).await.expect(200)["armed"], json!([]));
    scene.harness.post("/api/agent-cron/cancel", &other, &json!({ "job_id": "tea" })).await.expect(200);
    assert_eq!(scene.armed().await.len(), 1);
    scene.harness.finish().await;
}

#[tokio::test]
async fn a_refused_fire_is_retried_until_accepted() {
    let scene = Scene::open().await;
    scene.sink.answer(&[503, 200]);
    scene.arm("tea", "2001-01-01T00:00:00Z").await; // a past time means now
    let fires = scene.sink.wait(2).await;
    assert!(fires[1].at_ms - fires[0].at_ms >= 1_000, "the retry came too early");
    assert_ne!(fires[0].token, fires[1].token, "each fire has its own token");
    let past = scene.ended("tea", 1).await;
    assert_eq!((&past[0]["outcome"], &past[0]["attempts"]), (&json!("fired"), &json!(2)));
    assert_eq!(scene.sink.fires().len(), 2);
    assert_eq!(scene.harness.metric("frontdesk_alarm_tries_total{why=\"refused\"}").await, 1);
    scene.harness.finish().await;
}

#[tokio::test]
async fn arming_again_during_a_fire_keeps_the_new_alarm() {
    let scene = Scene::open().await;
    scene.sink.hold();
    scene.arm("tea", &iso(now_ms())).await;
    scene.sink.wait(1).await;
    let next = scene.arm("tea", FAR).await;
    scene.sink.release();
    let past = scene.ended("tea", 2).await;
    assert_eq!((&past[0]["outcome"], &past[1]["outcome"]), (&json!("fired"), &json!("replaced")));
    let armed = scene.armed().await;
    assert_eq!((armed.len(), armed[0]["schedule_id"].as_str()), (1, Some(next.as_str())));
    scene.harness.finish().await;
}

#[tokio::test]
async fn a_dead_alarm_is_listed_and_can_be_replayed() {
    let scene = Scene::open().await;
    scene.sink.answer(&[500]);
    scene.arm_with("tea", &iso(now_ms()), json!({ "misfire": { "grace_s": 0 } })).await.expect(200);
    let past = scene.ended("tea", 1).await;
    assert_eq!(past[0]["outcome"], "dead");
    assert!(past[0]["note"].as_str().unwrap().contains("answered 500"), "{past:?}");
    assert_eq!(scene.armed().await, Vec::<Value>::new());
    let dead = scene.harness.admin("GET", "/alarms/dead", &Value::Null).await.expect(200);
    let one = &dead["alarms"][0];
    assert_eq!((&one["job_id"], &one["instance"]), (&json!("tea"), &json!("sleeper")));
    scene.harness.admin("POST", &format!("/alarms/{}/replay", one["id"]), &Value::Null).await.expect(200);
    scene.sink.wait(2).await;
    assert_eq!(scene.ended("tea", 2).await[0]["outcome"], "fired");
    let again = scene.harness.admin("POST", &format!("/alarms/{}/replay", one["id"]), &Value::Null).await;
    assert_eq!(again.problem(404), "not_found");
    scene.harness.finish().await;
}

#[tokio::test]
async fn the_operator_sees_fires_live_and_lists_alarms() {
    let scene = Scene::open().await;
    scene.sink.answer(&[503]);
    let mut tail = scene.harness.open_stream("/admin/v1/events/stream", &scene.harness.admin).await;
    scene.arm("tea", &iso(now_ms())).await;
    scene
        .harness
        .follow(&mut tail, &["fire_failed", "job tea: answered 503", "\"fired\"", "job tea: answered 202"])
        .await;
    let id = scene.arm("later", FAR).await;
    let listed = scene.harness.admin("GET", "/instances/sleeper/alarms", &Value::Null).await.expect(200);
    let one = &listed["alarms"][0];
    assert_eq!((one["schedule_id"].as_str(), &one["fire_at"]), (Some(id.as_str()), &json!(FAR)));
    let past =
        scene.harness.admin("GET", "/instances/sleeper/alarms/history?job_id=tea", &Value::Null).await.expect(200);
    assert_eq!((&past["history"][0]["outcome"], &past["history"][0]["attempts"]), (&json!("fired"), &json!(2)));
    let metrics = scene.harness.get("/metrics", "").await.text();
    assert!(metrics.contains("frontdesk_alarm_lateness_seconds_count 1"), "{metrics}");
    scene.harness.finish().await;
}

#[tokio::test]
async fn deprovision_removes_alarms_and_none_is_armed_until_the_instance_returns() {
    let scene = Scene::open().await;
    let account = scene.harness.add_gateway("sleeper").await;
    scene.arm("tea", FAR).await;
    scene.arm("post", FAR).await;
    scene.harness.post("/manage/deprovision", &account.bearer(), &json!({})).await.expect(200);
    let response = scene.arm_with("again", FAR, json!({})).await.error(403);
    assert!(response.contains("was deprovisioned") && response.contains("/relay/provision"), "{response}");
    let ask = json!({ "gatewayId": "sleeper", "platform": "relay" });
    scene.harness.post("/relay/provision", &scene.identity, &ask).await.expect(200);
    assert_eq!(scene.armed().await, Vec::<Value>::new());
    assert_eq!(scene.history("tea").await[0]["outcome"], "cancelled");
    scene.arm("again", FAR).await;
    scene.harness.finish().await;
}

#[tokio::test]
async fn invalid_requests_are_refused_and_change_nothing() {
    let scene = Scene::open().await;
    scene.arm("tea", FAR).await;
    let long = "j".repeat(1 << 20);
    let good = json!({ "job_id": "x", "fire_at": FAR, "agent_callback_url": scene.sink.url });
    for (field, value) in [
        ("fire_at", json!("tomorrow")),
        ("fire_at", json!("2026-06-18T12:00:00")),
        ("fire_at", json!(format!("2099-01-01T00:00:00Z{}", "[a=b]".repeat(100)))),
        ("fire_at", json!(17)),
        ("fire_at", Value::Null),
        ("job_id", json!("")),
        ("job_id", json!(long)),
        ("job_id", Value::Null),
        ("agent_callback_url", json!("ftp://x")),
        ("agent_callback_url", json!("http://10.0.0.1")),
        ("agent_callback_url", json!("http://169.254.169.254")),
        ("agent_callback_url", json!("http://user:pw@example.com")),
        ("agent_callback_url", json!("")),
        ("agent_callback_url", Value::Null),
        ("misfire", json!({ "on_miss": "sulk" })),
        ("misfire", json!({ "grace_s": -1 })),
    ] {
        let mut bad = good.clone();
        bad[field] = value.clone();
        let reply = scene.harness.post("/api/agent-cron/provision", &scene.identity, &bad).await;
        assert!(!reply.error(400).is_empty(), "{field} {value}");
    }
    for path in ["/api/agent-cron/provision", "/api/agent-cron/cancel"] {
        assert_eq!(scene.harness.post(path, "fd_nobody", &good).await.status, 401);
        let unbound = scene.harness.token("home", "identity").await;
        assert_eq!(scene.harness.post(path, &unbound, &good).await.status, 403, "a valid identity without an agent");
        let chat = scene.harness.token("home", "chat").await;
        assert_eq!(scene.harness.post(path, &chat, &good).await.status, 401);
    }
    assert_eq!(scene.harness.get("/api/agent-cron/list", "").await.status, 401);
    assert_eq!(scene.armed().await.len(), 1);
    scene.harness.finish().await;
}

#[tokio::test]
async fn an_agent_without_an_address_is_fired_on_its_socket() {
    let scene = Scene::open().await;
    let account = scene.harness.add_gateway("sleeper").await;
    let body = json!({ "job_id": "tea", "fire_at": iso(now_ms()), "agent_callback_url": "relay:" });
    scene.harness.post("/api/agent-cron/provision", &scene.identity, &body).await.expect(200);
    assert_eq!(scene.ended("tea", 1).await[0]["outcome"], "fired");
    let mut socket = scene.harness.socket(&account).await;
    let frame = socket.of("passthrough_forward").await.json;
    assert_eq!((&frame["forward"]["platform"], &frame["forward"]["path"]), (&json!("cron"), &json!("/api/cron/fire")));
    assert!(frame["bufferId"].is_string(), "the fire must be acked");
    let text = base64::Engine::decode(
        &base64::engine::general_purpose::STANDARD,
        frame["forward"]["bodyB64"].as_str().unwrap(),
    );
    let response: Value = serde_json::from_slice(&text.unwrap()).unwrap();
    assert_eq!(response["job_id"], "tea");
    scene.harness.finish().await;
}

#[tokio::test]
async fn a_rotated_key_stays_in_the_jwks() {
    let scene = Scene::open().await;
    let ids = async || {
        let keys = scene.harness.get("/.well-known/jwks.json", "").await.expect(200);
        keys["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let before = ids().await;
    let made = scene.harness.admin("POST", "/signing-keys/rotate", &Value::Null).await.expect(200);
    let after = ids().await;
    assert_eq!((before.len(), after.len()), (1, 2));
    assert!(after.contains(&before[0]));
    scene.arm("tea", &iso(now_ms())).await;
    let fire = scene.sink.wait(1).await.remove(0);
    assert_eq!(decode_header(&fire.token).unwrap().kid.as_deref(), made["id"].as_str(), "the new key signs");
    scene.harness.finish().await;
}
