//! Events, commands and buttons go to the addresses of the app, signed.

use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpStream;

use super::super::delivery::{Pending, signature};
use super::{Site, with_origin};
use crate::fakes::serving::http::Connection;

/// The real one waits for three seconds.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How often the clock is read, because a test may move it.
const CLOCK_STEP: Duration = Duration::from_millis(50);

/// One after the other, so that tests know the order. The real one keeps none.
pub(super) async fn run(site: Site) {
    let mut changes = site.fake.changes();
    loop {
        changes.borrow_and_update();
        let due = site.fake.state().due_requests(site.clock.now_ms());
        for pending in due {
            let outcome = tokio::time::timeout(ANSWER_MAX, deliver(&site, &pending)).await;
            let (status, body) = match outcome {
                Ok(Ok((status, body))) => (status, String::from_utf8_lossy(&body).into_owned()),
                Ok(Err(error)) => (0, error),
                Err(_) => (0, "timeout".to_owned()),
            };
            let now_ms = site.clock.now_ms();
            site.fake.change(|state| state.answered(now_ms, pending, status, &body));
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(CLOCK_STEP) => {}
        }
    }
}

async fn deliver(site: &Site, pending: &Pending) -> Result<(u16, Vec<u8>), String> {
    let app = site.fake.state().app.clone();
    let json = with_origin(site, &pending.payload);
    let (path, mime, body) = match pending.kind.as_str() {
        "events_api" => ("events", "application/json", json),
        "slash_commands" => {
            let fields: Value = serde_json::from_str(&json).unwrap_or_default();
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            for (name, value) in fields.as_object().into_iter().flatten() {
                form.append_pair(name, value.as_str().unwrap_or_default());
            }
            ("commands", "application/x-www-form-urlencoded", form.finish())
        }
        _ => {
            let mut form = url::form_urlencoded::Serializer::new(String::new());
            form.append_pair("payload", &json);
            ("interactions", "application/x-www-form-urlencoded", form.finish())
        }
    };
    let url = url::Url::parse(&format!("{}/{path}", app.request_url)).map_err(|error| error.to_string())?;
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(80));
    if host != "127.0.0.1" {
        return Err("this fake delivers only to the loopback interface".to_owned());
    }
    let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
    let stamp_s = site.clock.now_ms() / 1_000;
    let mut head = format!(
        "POST {} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: {mime}\r\nContent-Length: {}\r\nConnection: close\r\n\
         User-Agent: Slackbot 1.0 (+https://api.slack.com/robots)\r\nX-Slack-Request-Timestamp: {stamp_s}\r\n\
         X-Slack-Signature: {}\r\n",
        url.path(),
        body.len(),
        signature(&app.signing_secret, stamp_s, body.as_bytes())
    );
    if pending.attempt > 0 {
        let (number, reason) = (pending.attempt, &pending.reason);
        head.push_str(&format!("X-Slack-Retry-Num: {number}\r\nX-Slack-Retry-Reason: {reason}\r\n"));
    }
    let request = [head.as_bytes(), b"\r\n", body.as_bytes()].concat();
    Connection::new(stream).ask(&request).await.map_err(|error| error.to_string())
}
