//! Three servers as processes over one Postgres, and faults under traffic: `kill -9`, SIGSTOP, Postgres restarted, one-way
//! cuts between a server and Postgres, a standby promoted. No accepted message is lost, each gateway gets its messages in
//! order, and none that the ledger reported as acked comes again.
//!
//! `FAULTS_GATEWAYS` changes the number of gateways.
#![allow(clippy::unwrap_used, reason = "tests")]

mod postgres;
#[path = "../process/mod.rs"]
mod process;
mod standby;
mod traffic;

use std::time::Duration;

use frontdesk_testkit::proxy::{CUT_TO_CLIENT, CUT_TO_SERVER, Proxy};
use tokio::time::sleep;

use self::postgres::Postgres;
use self::process::Desk;
use self::traffic::Traffic;

const GATEWAYS: usize = 300;
const POSTERS: u64 = 8;

/// One server for each address of the store; they share keys, which are in this folder.
async fn desks_at(urls: &[String], keys: &tempfile::TempDir) -> Vec<Desk> {
    let file = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
    let (master, admin) = (file("master.key"), file("admin.token"));
    let mut desks = Vec::new();
    for (number, url) in urls.iter().enumerate() {
        let settings = [
            ("STORE_URL", url.as_str()),
            ("KEYS_MASTER_FILE", &master),
            ("KEYS_ADMIN_TOKEN_FILE", &admin),
            ("PUBLIC_URL", "http://desk.example"),
            ("DESK_NAME", &format!("desk-{number}")),
            ("LOG_FILTER", "warn"),
        ];
        desks.push(Desk::start(&settings).await);
    }
    desks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_or_repeated_through_faults_of_servers_and_of_postgres() {
    let gateways = std::env::var("FAULTS_GATEWAYS").map_or(GATEWAYS, |text| text.parse().unwrap());
    let (postgres, keys) = (Postgres::start(&[]), tempfile::tempdir().unwrap());
    let (mut proxies, mut urls) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (proxy, url) = Proxy::before(&postgres.url).await;
        proxies.push(proxy);
        urls.push(url);
    }
    let mut desks = desks_at(&urls, &keys).await;
    let mut traffic = Traffic::start(&desks, gateways, POSTERS).await;
    sleep(Duration::from_secs(2)).await;
    traffic.recovered(&desks, "at first").await;

    traffic.observe(1).await;
    desks[0].kill().await;
    sleep(Duration::from_secs(3)).await;
    desks[0].start_again().await;
    traffic.recovered(&desks, "kill -9").await;

    traffic.observe(0).await;
    desks[1].signal("STOP");
    sleep(Duration::from_secs(15)).await;
    desks[1].signal("CONT");
    traffic.recovered(&desks, "SIGSTOP for 15 s").await;

    traffic.observe(2).await;
    postgres.restart();
    traffic.recovered(&desks, "Postgres restarted").await;

    for (what, cut) in [("answers of Postgres cut", CUT_TO_CLIENT), ("requests to Postgres cut", CUT_TO_SERVER)] {
        traffic.observe(0).await;
        proxies[2].cut(cut);
        sleep(Duration::from_secs(12)).await;
        proxies[2].cut(0);
        proxies[2].hang_up();
        traffic.recovered(&desks, what).await;
    }
    traffic.finish(&desks).await;
}
