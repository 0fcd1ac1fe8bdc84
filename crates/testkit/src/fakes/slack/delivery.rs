//! How events reach the app: on its sockets, or by requests that are signed and repeated.

use aws_lc_rs::hmac;
use serde_json::{Value, json};

use super::state::State;

/// Attempts of one event.
const ATTEMPTS_MAX: u32 = 4;
/// Before an event that was not taken comes again. The real one waits a minute or more.
const AGAIN_MS: u64 = 200;

/// An event for the app.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    pub id: String,
    /// `events_api`, `slash_commands` or `interactive`
    pub kind: String,
    pub payload: Value,
    /// Not for the addresses of the app.
    pub by_socket: bool,
    pub attempt: u32,
    pub not_before_ms: u64,
    pub reason: String,
}

/// The value of `X-Slack-Signature`.
pub fn signature(secret: &str, stamp_s: u64, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let message = [format!("v0:{stamp_s}:").as_bytes(), body].concat();
    format!("v0={}", hex::encode(hmac::sign(&key, &message)))
}

impl State {
    pub(super) fn tell(&mut self, kind: &str, payload: Value) -> String {
        let by_socket = self.app.request_url.is_empty();
        let id = self.push(kind, payload.clone(), by_socket);
        if !by_socket && self.app.also_sockets {
            self.push(kind, payload, true);
        }
        id
    }

    fn push(&mut self, kind: &str, payload: Value, by_socket: bool) -> String {
        let id = format!("env-{}", self.number());
        let (kind, reason) = (kind.to_owned(), String::new());
        let pending = Pending { id: id.clone(), kind, payload, by_socket, attempt: 0, not_before_ms: 0, reason };
        self.pending.push_back(pending);
        id
    }

    /// Slack does not repeat an event whose user waits.
    fn again(&mut self, mut pending: Pending, now_ms: u64, reason: &str) {
        pending.attempt += 1;
        if pending.kind == "events_api" && pending.attempt < ATTEMPTS_MAX {
            pending.not_before_ms = now_ms + AGAIN_MS;
            pending.reason = reason.into();
            self.pending.push_back(pending);
        }
    }

    /// What is due, if the app takes requests.
    pub(super) fn due_requests(&mut self, now_ms: u64) -> Vec<Pending> {
        let is_due = |pending: &Pending| !pending.by_socket && pending.not_before_ms <= now_ms;
        let (due, later): (Vec<Pending>, Vec<Pending>) = self.pending.drain(..).partition(is_due);
        self.pending = later.into();
        due
    }

    pub(super) fn answered(&mut self, now_ms: u64, pending: Pending, status: u16, body: &str) {
        self.note_delivery(json!({
            "id": pending.id, "type": pending.kind, "attempt": pending.attempt, "status": status, "body": body,
        }));
        if !(200..300).contains(&status) {
            self.again(pending, now_ms, if status == 0 { "http_timeout" } else { "http_error" });
        }
    }

    pub(super) fn connect(&mut self) -> u64 {
        let id = self.number();
        let hello = json!({
            "type": "hello", "num_connections": self.sockets.len() + 1, "connection_info": { "app_id": self.app.id },
            "debug_info": { "host": "fake", "approximate_connection_time": 18_060 },
        });
        self.sockets.insert(id, [hello].into());
        id
    }

    /// The next text of a socket. An event goes to one of them: the newest.
    pub(super) fn frames(&mut self, now_ms: u64, socket: u64) -> Vec<Value> {
        let Some(queue) = self.sockets.get_mut(&socket) else { return Vec::new() };
        let mut frames: Vec<Value> = queue.drain(..).collect();
        let is_newest = self.sockets.keys().next_back() == Some(&socket);
        if !is_newest {
            return frames;
        }
        let is_due = |pending: &Pending| pending.by_socket && pending.not_before_ms <= now_ms;
        let (due, later): (Vec<Pending>, Vec<Pending>) = self.pending.drain(..).partition(is_due);
        self.pending = later.into();
        for pending in due {
            let mut frame = json!({
                "envelope_id": pending.id, "type": pending.kind, "payload": pending.payload,
                "accepts_response_payload": pending.kind != "events_api",
            });
            if pending.kind == "events_api" {
                frame["retry_attempt"] = pending.attempt.into();
                frame["retry_reason"] = pending.reason.as_str().into();
            }
            frames.push(frame);
            self.in_flight.push((socket, pending));
        }
        frames
    }

    pub(super) fn acknowledged(&mut self, frame: &Value) {
        let id = frame["envelope_id"].as_str().unwrap_or_default();
        let Some(at) = self.in_flight.iter().position(|(_, pending)| pending.id == id) else { return };
        let (_, pending) = self.in_flight.remove(at);
        self.note_delivery(json!({
            "id": pending.id, "type": pending.kind, "attempt": pending.attempt, "status": 200,
            "body": frame["payload"].clone(),
        }));
    }

    /// What it did not acknowledge comes again on another one.
    pub(super) fn disconnected(&mut self, now_ms: u64, socket: u64) {
        self.sockets.remove(&socket);
        let (lost, kept) = std::mem::take(&mut self.in_flight).into_iter().partition(|(of, _)| *of == socket);
        self.in_flight = kept;
        let lost: Vec<(u64, Pending)> = lost;
        for (_, pending) in lost {
            self.again(pending, now_ms, "timeout");
        }
    }
}
