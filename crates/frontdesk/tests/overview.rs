//! Several servers over one Postgres: each can report on all of them.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "a test is a client of the server, not a part of it")]

mod process;

use process::cluster::{Cluster, SOON, dial};
use process::{Api, TENANT, person, until};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

/// An open `tail`.
struct Tail {
    response: reqwest::Response,
    held: String,
}

impl Tail {
    async fn open(api: &Api) -> Self {
        let request = api.client.get(format!("{}/admin/v1/events/stream", api.url)).bearer_auth(&api.admin);
        Self { response: request.send().await.unwrap(), held: String::new() }
    }

    async fn next(&mut self) -> Value {
        loop {
            if let Some((line, rest)) = self.held.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.held = rest;
                if let Some(data) = line.strip_prefix("data:") {
                    return serde_json::from_str(data.trim()).unwrap();
                }
                continue;
            }
            let chunk = self.response.chunk().await.unwrap().expect("the stream goes on");
            self.held.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// The first entry with this step and message.
    async fn find(&mut self, step: &str, message_id: &str) -> Option<Value> {
        let found = async {
            loop {
                let entry = self.next().await;
                if entry["step"] == step && entry["message_id"] == message_id {
                    return entry;
                }
            }
        };
        timeout(SOON, found).await.ok()
    }
}

async fn findings(api: &Api, check: &str) -> Vec<String> {
    let report = api.look("/admin/v1/doctor").await;
    let of_check = report["findings"].as_array().unwrap().iter().filter(|it| it["check"] == check);
    of_check.map(|it| format!("{} {}", it["ok"], it["text"].as_str().unwrap())).collect()
}

async fn finding(api: &Api, check: &str, part: &str) -> String {
    let look = async || findings(api, check).await.into_iter().find(|text| text.contains(part));
    until(part, SOON, look).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_and_gateways_tell_of_all_servers() {
    let cluster = Cluster::start(&["desk-a", "desk-b"], &[]).await;
    let (a, b) = (&cluster.desks[0].api, &cluster.desks[1].api);
    let (mut here, mut elsewhere) = (Tail::open(a).await, Tail::open(b).await);
    let account = a.add_gateway("ann", None).await;
    let mut socket = dial(&cluster.desks[0], &account).await;
    let known = async || (b.look("/admin/v1/bindings").await["bindings"].as_array()?.len() == 1).then_some(());
    until("the link is known", SOON, known).await;
    for api in [a, b] {
        until("it is connected", SOON, async || api.connected("ann").await.then_some(())).await;
        let listed = api.look("/admin/v1/gateways").await;
        assert_eq!(listed["gateways"][0]["connected"], true, "{listed}");
        let live = async || (api.metric("frontdesk_desks_live").await == 2).then_some(());
        until("both are counted", SOON, live).await;
    }

    // What the second one does is reported as soon as the first one knows of the watcher.
    let mut number = 0;
    let mut seen_elsewhere = None;
    while seen_elsewhere.is_none() {
        assert!(number < 100, "{}", cluster.logs());
        let id = format!("m{number}");
        a.post("c", &person("ann"), &id, &id).await;
        assert_eq!(socket.take(1).await, std::slice::from_ref(&id));
        let entry = here.find("accepted", &id).await.expect("of its own");
        assert_eq!(entry["desk"], "desk-a", "{entry}");
        let seen = timeout(std::time::Duration::from_millis(500), elsewhere.find("accepted", &id)).await;
        seen_elsewhere = seen.ok().flatten();
        number += 1;
    }
    assert_eq!(seen_elsewhere.unwrap()["desk"], "desk-a");
    // From then on all of it.
    for step in number..number + 20 {
        let (id, at) = (format!("m{step}"), step % 2);
        cluster.desks[at].api.post("c", &person("ann"), &id, &id).await;
        for tail in [&mut here, &mut elsewhere] {
            let entry = tail.find("accepted", &id).await.unwrap_or_else(|| panic!("{id}\n{}", cluster.logs()));
            assert_eq!(entry["desk"], format!("desk-{}", ["a", "b"][at]), "{entry}");
        }
    }
    socket.hang_up().await;
    for api in [a, b] {
        until("it is gone", SOON, async || (!api.connected("ann").await).then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_tells_of_all_servers() {
    let mut cluster = Cluster::start(&["desk-a", "desk-b"], &[]).await;
    let (a, b) = (cluster.desks[0].api.clone(), cluster.desks[1].api.clone());
    finding(&a, "desks", "true 2 servers are live: desk-a, desk-b").await;
    // A bot whose vendor does not answer: one of the servers listens in vain, and both tell.
    let bot = json!({
        "platform": "telegram", "id": "lost", "tenant": TENANT,
        "settings": { "base_url": "http://127.0.0.1:9" }, "secrets": { "token": "123456:ABC-DEF1234ghIkl-zyx57W2v1u123ew11" },
    });
    let (status, added) = a.answer(Method::POST, "/admin/v1/bots", &a.admin, Some(&bot)).await;
    assert_eq!(status, 201, "{added}");
    let mut elsewhere = 0;
    for api in [&a, &b] {
        let text = finding(api, "bot", "telegram bot \"lost\" does not listen").await;
        elsewhere += usize::from(text.contains("at the server"));
        let listed = async || {
            let bots = api.look("/admin/v1/bots").await;
            bots["bots"][0]["problem"].is_string().then_some(())
        };
        until("the list says so", SOON, listed).await;
        let check = api.look("/admin/v1/bots/telegram/lost/check").await;
        let has = check["findings"].as_array().unwrap().iter().any(|it| it["check"] == "listener");
        assert!(has, "{check}");
    }
    assert_eq!(elsewhere, 1, "one of them listens");
    let (status, _) = a.answer(Method::DELETE, "/admin/v1/bots/telegram/lost", &a.admin, None).await;
    assert_eq!(status, 204);
    for api in [&a, &b] {
        until("nothing fails", SOON, async || findings(api, "bot").await.is_empty().then_some(())).await;
    }

    // As a server of another version that gets nothing from the bus would tell.
    cluster
        .schema
        .run(r#"UPDATE desk SET version = '9.9', report = '{"is_cut_off": true, "more": 1}' WHERE name = 'desk-b'"#);
    finding(&a, "desks", "false \"desk-b\" gets nothing from the bus").await;
    finding(&a, "desks", "true \"desk-b\" has version 9.9, this server").await;

    cluster.desks[1].kill().await;
    finding(&a, "desks", "false \"desk-b\" ended without a shutdown: its lease expired").await;
    let live = async || (a.metric("frontdesk_desks_live").await == 1).then_some(());
    until("one is left", SOON, live).await;
    cluster.desks[1].start_again().await;
    let back = async || {
        let all = findings(&a, "desks").await;
        all.iter().all(|text| text.starts_with("true")).then_some(())
    };
    until("it is back", SOON, back).await;
}
