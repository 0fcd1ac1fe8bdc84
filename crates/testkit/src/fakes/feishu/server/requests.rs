//! Events go to the address of the app, signed and encrypted.

use std::time::Duration;

use serde_json::Value;

use super::super::delivery::{Pending, sealed, signature};
use super::Site;
use crate::fakes::serving::call::call;

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
                Ok(Ok((status, body))) => {
                    let text = || Value::from(String::from_utf8_lossy(&body).into_owned());
                    (status, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
                }
                Ok(Err(error)) => (0, error.into()),
                Err(_) => (0, "timeout".into()),
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
    let body = sealed(&app.encrypt_key, &pending.payload);
    let stamp_s = site.clock.now_ms() / 1_000;
    let nonce = format!("nonce{}", pending.id);
    let (stamp, signature) = (stamp_s.to_string(), signature(&app.encrypt_key, stamp_s, &nonce, body.as_bytes()));
    let mut headers = vec![("Content-Type", "application/json; charset=utf-8"), ("User-Agent", "Go-http-client/1.1")];
    // The check of the address is not signed.
    if !app.encrypt_key.is_empty() && pending.kind != "url_verification" {
        headers.push(("X-Lark-Request-Timestamp", &stamp));
        headers.push(("X-Lark-Request-Nonce", &nonce));
        headers.push(("X-Lark-Signature", &signature));
    }
    call("POST", &app.request_url, &headers, body.as_bytes()).await
}
