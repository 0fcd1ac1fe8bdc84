//! The primary is lost, and its standby takes over.

use std::time::Duration;

use frontdesk_testkit::postgres::run;
use tokio::time::Instant;

use crate::desks_at;
use crate::postgres::Postgres;
use crate::process::{Desk, until};
use crate::traffic::Traffic;

const GATEWAYS: usize = 40;
const POSTERS: u64 = 4;
/// From the end of the primary until every server accepts messages again.
const GAP_MAX: Duration = Duration::from_secs(40);
/// The machine does not crash, and what a process wrote outlives it.
const FAST: &str = "fsync=off";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_when_a_synchronous_standby_takes_over() {
    let primary = Postgres::start(&["synchronous_standby_names=standby", FAST]);
    let (standby, keys) = (primary.standby(&[FAST]), tempfile::tempdir().unwrap());
    let hosts = format!("{},{}", primary.address(), standby.address());
    let url = format!("postgres://frontdesk@{hosts}/postgres?target_session_attrs=read-write");
    let desks = desks_at(&[url.clone(), url.clone(), url], &keys).await;
    let mut traffic = Traffic::start(&desks, GATEWAYS, POSTERS).await;
    traffic.flows(500).await;
    traffic.observe(0).await;

    let lost = Instant::now();
    primary.stop();
    standby.promote();
    let gap = traffic.recovered(&desks, "standby promoted").await - lost;
    println!("all servers accept again after {gap:?}");
    assert!(gap < GAP_MAX, "all servers accept again after {gap:?}");
    traffic.observe(1).await;
    traffic.flows(500).await;
    traffic.finish(&desks).await;
}

/// What `doctor` says about standbys.
async fn durability(desk: &Desk) -> Option<String> {
    let found = desk.api.look("/admin/v1/doctor").await;
    let finding = found["findings"].as_array().unwrap().iter().find(|it| it["check"] == "durability")?;
    assert_eq!((&finding["ok"], &found["ok"]), (&false.into(), &false.into()), "{found}");
    Some(finding["text"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_reports_that_no_standby_is_synchronous() {
    let (primary, keys) = (Postgres::start(&[FAST]), tempfile::tempdir().unwrap());
    // A role that may not see the state of others.
    run(&primary.url, "CREATE ROLE limited LOGIN; CREATE SCHEMA limited AUTHORIZATION limited".into());
    let limited = primary.url.replace("frontdesk@", "limited@") + "?options=-csearch_path%3Dlimited";
    let desks = desks_at(&[primary.url.clone(), limited], &keys).await;
    for desk in &desks {
        assert_eq!(durability(desk).await, None, "there is no standby");
    }
    let _standby = primary.standby(&[FAST]);
    for desk in &desks {
        let text = until("the standby is known", GAP_MAX, async || durability(desk).await).await;
        assert!(text.contains("\"standby\"") && text.contains("set synchronous_standby_names"), "{text}");
    }
    run(&primary.url, "ALTER SYSTEM SET synchronous_standby_names = 'standby'".into());
    run(&primary.url, "SELECT pg_reload_conf()".into());
    for desk in &desks {
        let is_gone = async || durability(desk).await.is_none().then_some(());
        until("the standby is synchronous", GAP_MAX, is_gone).await;
    }
}
