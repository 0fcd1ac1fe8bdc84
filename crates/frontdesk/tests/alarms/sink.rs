//! An agent's webhook on loopback: it records fires and responds as told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;

use super::harness::TIME_LIMIT;

#[derive(Debug, Clone)]
pub(crate) struct Fire {
    pub(crate) token: String,
    pub(crate) body: Value,
    pub(crate) at_ms: u64,
}

impl Fire {
    pub(crate) fn job(&self) -> &str {
        self.body["job_id"].as_str().unwrap()
    }
}

#[derive(Default)]
struct Seen {
    fires: Mutex<Vec<Fire>>,
    answers: Mutex<VecDeque<u16>>,
    came: Notify,
    /// Set while responses are held back.
    gate: Mutex<Option<Arc<Semaphore>>>,
}

pub(crate) struct Sink {
    pub(crate) url: String,
    seen: Arc<Seen>,
    serving: tokio::task::JoinHandle<()>,
}

pub(crate) fn now_ms() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap()
}

impl Sink {
    pub(crate) async fn open() -> Self {
        let seen = Arc::new(Seen::default());
        let router = Router::new().route("/api/cron/fire", post(take)).with_state(seen.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, serving }
    }

    /// Sets the next response statuses; afterwards it is 202 again.
    pub(crate) fn answer(&self, statuses: &[u16]) {
        self.seen.answers.lock().unwrap().extend(statuses);
    }

    /// Holds responses back until [`Sink::release`].
    pub(crate) fn hold(&self) {
        *self.seen.gate.lock().unwrap() = Some(Arc::new(Semaphore::new(0)));
    }

    pub(crate) fn release(&self) {
        if let Some(gate) = self.seen.gate.lock().unwrap().take() {
            gate.close();
        }
    }

    pub(crate) fn fires(&self) -> Vec<Fire> {
        self.seen.fires.lock().unwrap().clone()
    }

    /// Waits until this many fires have been received in total.
    pub(crate) async fn wait(&self, count: usize) -> Vec<Fire> {
        let waiting = async {
            loop {
                let came = self.seen.came.notified();
                if self.fires().len() >= count {
                    return self.fires();
                }
                came.await;
            }
        };
        timeout(TIME_LIMIT, waiting)
            .await
            .unwrap_or_else(|_| panic!("{} of {count} fires received", self.fires().len()))
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(State(seen): State<Arc<Seen>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fire = Fire {
        token: bearer.trim_start_matches("Bearer ").to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        at_ms: now_ms(),
    };
    seen.fires.lock().unwrap().push(fire);
    seen.came.notify_waiters();
    let gate = seen.gate.lock().unwrap().clone();
    if let Some(gate) = gate {
        let _ = gate.acquire().await; // closed means released
    }
    let status = seen.answers.lock().unwrap().pop_front().unwrap_or(202);
    StatusCode::from_u16(status).unwrap()
}
