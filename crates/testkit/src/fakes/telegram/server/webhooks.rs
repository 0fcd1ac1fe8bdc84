//! Updates go to webhooks, one at a time for each bot.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::super::engine::Delivery;
use super::super::methods::is_loopback;
use super::Site;
use crate::fakes::serving::http::Connection;

const MAX_ANSWER: Duration = Duration::from_mins(1);
/// How often the clock is read while a retry waits, because a test may move it.
const CLOCK_STEP_MS: u64 = 50;

pub(super) async fn run(site: Site) {
    let mut changes = site.fake.changes();
    let mut in_flight = JoinSet::new();
    loop {
        changes.borrow_and_update();
        let (due, next_ms) = site.fake.due_deliveries(site.clock.now_ms());
        for delivery in due {
            let site = site.clone();
            in_flight.spawn(async move {
                let outcome = match tokio::time::timeout(MAX_ANSWER, deliver(&delivery)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err("Read timeout expired".to_owned()),
                };
                site.fake.delivered(site.clock.now_ms(), &delivery, outcome);
            });
        }
        let pause = next_ms.map(|at| at.saturating_sub(site.clock.now_ms()).clamp(1, CLOCK_STEP_MS));
        tokio::select! {
            _ = changes.changed() => {}
            Some(_) = in_flight.join_next() => {}
            () = tokio::time::sleep(Duration::from_millis(pause.unwrap_or_default())), if pause.is_some() => {}
        }
    }
}

async fn deliver(delivery: &Delivery) -> Result<(u16, Vec<u8>), String> {
    let url = url::Url::parse(&delivery.url).map_err(|_| "the URL is not valid".to_owned())?;
    if url.scheme() != "http" || !is_loopback(&url) {
        return Err("this fake delivers only to http URLs of the loopback interface".to_owned());
    }
    tokio::time::sleep(Duration::from_millis(delivery.delay_ms)).await;
    let port = url.port_or_known_default().unwrap_or(80);
    let host = if matches!(url.host(), Some(url::Host::Ipv6(_))) { "::1" } else { "127.0.0.1" };
    let stream = TcpStream::connect((host, port)).await.map_err(|_| "Connection refused".to_owned())?;
    let mut target = url.path().to_owned();
    if let Some(query) = url.query() {
        target = format!("{target}?{query}");
    }
    let secret = match &delivery.secret {
        Some(secret) => format!("X-Telegram-Bot-Api-Secret-Token: {secret}\r\n"),
        None => String::new(),
    };
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n{secret}\r\n",
        delivery.body.len()
    );
    let request = [head.as_bytes(), delivery.body.as_bytes()].concat();
    Connection::new(stream).ask(&request).await.map_err(|error| format!("Connection broke: {error}"))
}
