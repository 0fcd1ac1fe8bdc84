//! Interactions go to endpoints. Each has three seconds, and is never sent again.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::super::interactions::{ANSWER_MS, Post};
use super::super::snowflake::Id;
use super::Site;
use crate::fakes::serving::http::Connection;

pub(super) async fn run(site: Site) {
    let mut changes = site.fake.changes();
    let mut in_flight = JoinSet::new();
    loop {
        changes.borrow_and_update();
        for post in site.fake.take_posts() {
            let site = site.clone();
            in_flight.spawn(async move {
                let (outcome, latency) = send(&post).await;
                site.fake.answered(site.clock.now_ms(), post.interaction, latency, outcome);
            });
        }
        tokio::select! {
            _ = changes.changed() => {}
            Some(_) = in_flight.join_next() => {}
        }
    }
}

/// A valid PING must get a PONG and one with a bad signature must get 401, before an address is accepted.
pub(super) async fn prove(site: &Site, bot: Id, url: &str) -> Result<(), String> {
    let bad = site.fake.ping(site.clock.now_ms(), bot, url, true);
    match send(&bad).await.0 {
        Ok((401, _)) => {}
        Ok((status, _)) => return Err(format!("a bad signature was answered with {status} and not with 401")),
        Err(why) => return Err(why),
    }
    let good = site.fake.ping(site.clock.now_ms(), bot, url, false);
    let (status, body) = send(&good).await.0?;
    let is_pong = serde_json::from_slice::<serde_json::Value>(&body).is_ok_and(|body| body["type"] == 1);
    if status == 200 && is_pong {
        Ok(())
    } else {
        Err(format!("a PING was answered with {status} and not with a PONG"))
    }
}

type Outcome = Result<(u16, Vec<u8>), String>;

/// The outcome and how many milliseconds it took.
#[allow(clippy::disallowed_methods, reason = "the time that an answer takes is real, whatever the fake is told")]
async fn send(post: &Post) -> (Outcome, u64) {
    let began = std::time::Instant::now();
    let outcome = match tokio::time::timeout(Duration::from_millis(ANSWER_MS), exchange(post)).await {
        Ok(outcome) => outcome,
        Err(_) => Err("no answer within 3 s".to_owned()),
    };
    (outcome, u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
}

async fn exchange(post: &Post) -> Outcome {
    let url = url::Url::parse(&post.url).map_err(|_| "the URL is not valid".to_owned())?;
    let is_loopback = match url.host() {
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if url.scheme() != "http" || !is_loopback {
        return Err("this fake sends only to http URLs of the loopback interface".to_owned());
    }
    let port = url.port_or_known_default().unwrap_or(80);
    let host = if matches!(url.host(), Some(url::Host::Ipv6(_))) { "::1" } else { "127.0.0.1" };
    let stream = TcpStream::connect((host, port)).await.map_err(|_| "connection refused".to_owned())?;
    let mut target = url.path().to_owned();
    if let Some(query) = url.query() {
        target = format!("{target}?{query}");
    }
    let signed: Vec<String> = post.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let signed = signed.concat();
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: Discord-Interactions/1.0 \
         (+https://discord.com)\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n{signed}\r\n",
        post.body.len()
    );
    let request = [head.as_bytes(), &post.body].concat();
    Connection::new(stream).ask(&request).await.map_err(|error| format!("the connection broke: {error}"))
}
