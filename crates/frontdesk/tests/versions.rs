//! Two versions of the server over one Postgres: rows and hints of a newer one do not stop the older ones. SQL
//! statements stand for the newer one.
#![allow(clippy::unwrap_used, reason = "tests")]

mod process;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use process::cluster::{Cluster, SOON, dial};
use process::{Api, Received, Socket, person, until};
use reqwest::Method;
use serde_json::Value;

/// What a newer version does: a schema that older ones can use, a record of a kind that they do not know, one of a known kind
/// that they cannot read, and a hint that they do not know.
const NEWER: &str = r#"
    INSERT INTO meta (key, value) VALUES ('migration 100', 'a checksum');
    ALTER TABLE desk ADD COLUMN mood text;
    UPDATE counter SET value = value + 1 WHERE name = 'directory';
    CREATE TABLE before AS SELECT * FROM record WHERE kind = 'gateway' AND key = 'ann';
    UPDATE record SET json = '{"id": "ann", "secrets": "in another form"}',
           version = (SELECT value FROM counter WHERE name = 'directory') WHERE kind = 'gateway' AND key = 'ann';
    INSERT INTO record (kind, key, version, json)
           SELECT 'horoscope', 'ann', value, '{}' FROM counter WHERE name = 'directory';
    SELECT pg_notify('frontdesk_' || lpad(to_hex(value::bigint), 8, '0') || '_all', hint)
           FROM meta, unnest(ARRAY['{"something_new": [1, 2]}', 'not even JSON']) AS hint WHERE key = 'epoch'"#;
/// The record as it was before.
const OLDER: &str = "
    UPDATE counter SET value = value + 1 WHERE name = 'directory';
    UPDATE record SET json = (SELECT json FROM before), version = (SELECT value FROM counter WHERE name = 'directory')
           WHERE kind = 'gateway' AND key = 'ann'";

async fn finding(api: &Api) -> Option<Value> {
    let report = api.look("/admin/v1/doctor").await;
    let found = report["findings"].as_array().unwrap().iter().find(|it| it["check"] == "directory").cloned();
    found.inspect(|_| assert_eq!(report["ok"], false, "{report}"))
}

/// Until the socket is closed: the code.
async fn closed(socket: &mut Socket) -> Option<u16> {
    let closing = async {
        loop {
            if let Received::Closed(code) = socket.receive().await {
                return code;
            }
        }
    };
    tokio::time::timeout(SOON, closing).await.expect("the socket is closed")
}

/// Posts for Ben to both servers in turn, one after another. Returns how many.
async fn post(apis: [Api; 2], is_over: Arc<AtomicBool>) -> usize {
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            return number;
        }
        let id = format!("m{number}");
        apis[number % 2].post("c-ben", &person("ben"), &id, &id).await;
    }
    unreachable!("it ends when it is over")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_newer_server_writes_does_not_stop_an_older_one() {
    let mut cluster = Cluster::start(&["desk-a", "desk-b"], &[]).await;
    let (a, b) = (cluster.desks[0].api.clone(), cluster.desks[1].api.clone());
    let (ann, ben) = (a.add_gateway("ann", None).await, a.add_gateway("ben", None).await);
    let mut of_ann = dial(&cluster.desks[0], &ann).await;
    let mut of_ben = dial(&cluster.desks[1], &ben).await;
    let known = async || (b.look("/admin/v1/bindings").await["bindings"].as_array()?.len() == 2).then_some(());
    until("the links are known", SOON, known).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let posting = tokio::spawn(post([a.clone(), b.clone()], is_over.clone()));
    assert_eq!(of_ben.take(4).await, ["m0", "m1", "m2", "m3"]);

    cluster.schema.run(NEWER);
    assert_eq!(closed(&mut of_ann).await, Some(1013), "try later, and not: revoked\n{}", cluster.logs());
    for api in [&a, &b] {
        let found = until("doctor says so", SOON, async || finding(api).await).await;
        assert!(found["text"].as_str().unwrap().contains("gateway \"ann\""), "{found}");
        assert_eq!(api.metric("frontdesk_directory_unreadable").await, 1);
        let refused = Socket::dial(&api.url, &ann).await.err().expect("its secret cannot be read here");
        assert!(refused.to_string().contains("1013"), "{refused}");
        let path = "/admin/v1/gateways/ann/revoke";
        let (status, refused) = api.ask(Method::POST, path, &api.admin, None).await.unwrap();
        let why = refused["detail"].as_str().unwrap();
        assert!(status == 503 && why.contains("cannot be read by this server"), "it is not overwritten: {refused}");
    }
    // Her messages are still accepted, and wait.
    a.post("c-ann", &person("ann"), "for-ann", "hello").await;
    assert_eq!(a.waiting("ann").await, 1);
    // The mail of others flows, also over the bus.
    let before: Vec<String> = (4..40).map(|number| format!("m{number}")).collect();
    assert_eq!(of_ben.take(36).await, before);
    for api in [&a, &b] {
        assert_eq!(api.metric("frontdesk_bus_deaf").await, 0);
    }

    // One that starts now finds the same. Its sockets move to the other one meanwhile.
    is_over.store(true, Ordering::SeqCst);
    let posted = posting.await.unwrap();
    of_ben.take(posted - 40).await;
    cluster.desks[0].signal("TERM");
    assert!(cluster.desks[0].ended(Duration::from_secs(20)).await.is_some_and(|status| status.success()));
    cluster.desks[0].start_again().await;
    assert!(finding(&a).await.is_some());
    a.post("c-ben", &person("ben"), "after", "after").await;
    assert_eq!(of_ben.take(1).await, ["after"]);

    cluster.schema.run(OLDER);
    let mut of_ann = dial(&cluster.desks[0], &ann).await;
    assert_eq!(of_ann.take(1).await, ["for-ann"], "{}", cluster.logs());
    until("doctor is content", SOON, async || finding(&b).await.is_none().then_some(())).await;

    // A version that needs a schema which this one does not know keeps it out.
    cluster.schema.run("UPDATE meta SET value = '100' WHERE key = 'needs'");
    let said = cluster.refused_start();
    assert!(said.contains("needs version 100 of its schema; this version of Frontdesk knows up to "), "{said}");
    // Those that run cannot work with what it changed: they stop, and say why.
    for desk in &cluster.desks {
        let is_stopped = async || (desk.api.ask(Method::GET, "/readyz", "", None).await.ok()?.0 == 503).then_some(());
        until("a running server is not ready any more", SOON, is_stopped).await;
    }
    let is_told = async || cluster.logs().contains("needs version 100 of its schema").then_some(());
    until("the log says why", SOON, is_told).await;
}
