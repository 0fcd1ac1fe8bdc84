//! How events reach the app: on its sockets, or by requests that are signed, encrypted and repeated.

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::state::State;

/// Attempts of one event.
const ATTEMPTS_MAX: u32 = 4;
/// Before an event that was not taken comes again. The real one waits 15 s or more.
const AGAIN_MS: u64 = 200;

/// Something that the app is to be told.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    pub id: String,
    pub kind: String,
    pub payload: Value,
    /// Not for the address of the app.
    pub by_socket: bool,
    pub attempt: u32,
    pub not_before_ms: u64,
}

/// The value of `X-Lark-Signature`.
pub fn signature(key: &str, stamp_s: u64, nonce: &str, body: &[u8]) -> String {
    hex::encode(digest(&SHA256, &[format!("{stamp_s}{nonce}{key}").as_bytes(), body].concat()))
}

/// The body of a request: encrypted where the app has a key.
pub fn sealed(key: &str, payload: &Value) -> String {
    if key.is_empty() {
        return payload.to_string();
    }
    let plain = payload.to_string().into_bytes();
    let pad = 16 - plain.len() % 16;
    let mut bytes = [plain, vec![u8::try_from(pad).unwrap_or_default(); pad]].concat();
    let iv: [u8; 16] = digest(&SHA256, &bytes).as_ref()[..16].try_into().unwrap_or_default();
    let hashed = digest(&SHA256, key.as_bytes());
    let sealed = UnboundCipherKey::new(&AES_256, hashed.as_ref())
        .and_then(EncryptingKey::cbc)
        .and_then(|key| key.less_safe_encrypt(&mut bytes, EncryptionContext::Iv128((&iv).into())).map(|_| ()));
    debug_assert!(sealed.is_ok(), "blocks are whole");
    json!({ "encrypt": BASE64_STANDARD.encode([&iv[..], &bytes].concat()) }).to_string()
}

impl State {
    /// Tells the app an event; the id of the delivery.
    pub(super) fn tell(&mut self, now_ms: u64, kind: &str, event: Value) -> String {
        let number = self.number();
        let header = json!({
            "event_id": format!("event{number}"), "event_type": kind, "create_time": now_ms.to_string(),
            "token": self.app.verification_token, "app_id": self.app.id, "tenant_key": "tenant1",
        });
        let payload = json!({ "schema": "2.0", "header": header, "event": event });
        self.push(kind, payload)
    }

    pub(super) fn push(&mut self, kind: &str, payload: Value) -> String {
        let by_socket = self.app.request_url.is_empty();
        let id = format!("delivery{}", self.number());
        let pending = Pending { id: id.clone(), kind: kind.into(), payload, by_socket, attempt: 0, not_before_ms: 0 };
        if !by_socket && self.app.also_sockets {
            let id = format!("delivery{}", self.number());
            self.pending.push_back(Pending { id, by_socket: true, ..pending.clone() });
        }
        self.pending.push_back(pending);
        id
    }

    /// Feishu does not repeat an event whose user waits.
    fn again(&mut self, mut pending: Pending, now_ms: u64) {
        pending.attempt += 1;
        if pending.kind != "card.action.trigger" && pending.attempt < ATTEMPTS_MAX {
            pending.not_before_ms = now_ms + AGAIN_MS;
            self.pending.push_back(pending);
        }
    }

    /// What is due, if the app takes requests.
    pub(super) fn due_requests(&mut self, now_ms: u64) -> Vec<Pending> {
        self.due(now_ms, false)
    }

    fn due(&mut self, now_ms: u64, by_socket: bool) -> Vec<Pending> {
        let is_due = |pending: &Pending| pending.by_socket == by_socket && pending.not_before_ms <= now_ms;
        let (due, later): (Vec<Pending>, Vec<Pending>) = self.pending.drain(..).partition(is_due);
        self.pending = later.into();
        due
    }

    pub(super) fn answered(&mut self, now_ms: u64, pending: Pending, status: u16, body: &Value) {
        self.note_delivery(json!({
            "id": pending.id, "type": pending.kind, "attempt": pending.attempt, "status": status, "body": body,
        }));
        self.apply(&pending, body);
        if !(200..300).contains(&status) {
            self.again(pending, now_ms);
        }
    }

    /// The card that the app answers a press with.
    fn apply(&mut self, pending: &Pending, body: &Value) {
        if pending.kind != "card.action.trigger" || !body["card"]["data"].is_object() {
            return;
        }
        let id = pending.payload["event"]["context"]["open_message_id"].as_str().unwrap_or_default().to_owned();
        if let Some(message) = self.message(&id) {
            message.content = body["card"]["data"].clone();
        }
    }

    pub(super) fn connect(&mut self) -> u64 {
        let id = self.number();
        self.sockets.insert(id, false);
        id
    }

    /// What a socket is to say now. An event goes to one of them: the newest.
    pub(super) fn events(&mut self, now_ms: u64, socket: u64) -> Vec<Pending> {
        if self.sockets.keys().next_back() != Some(&socket) || self.sockets[&socket] {
            return Vec::new();
        }
        let due = self.due(now_ms, true);
        self.in_flight.extend(due.iter().map(|pending| (socket, pending.clone())));
        due
    }

    pub(super) fn acknowledged(&mut self, now_ms: u64, id: &str, response: &Value) {
        let Some(at) = self.in_flight.iter().position(|(_, pending)| pending.id == id) else { return };
        let (_, pending) = self.in_flight.remove(at);
        let status = response["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or_default();
        let data = response["data"].as_str().and_then(|data| BASE64_STANDARD.decode(data).ok()).unwrap_or_default();
        let body = serde_json::from_slice(&data).unwrap_or_default();
        self.answered(now_ms, pending, status, &body);
    }

    /// What it did not acknowledge comes again on another one.
    pub(super) fn disconnected(&mut self, now_ms: u64, socket: u64) {
        self.sockets.remove(&socket);
        let (lost, kept) = std::mem::take(&mut self.in_flight).into_iter().partition(|(of, _)| *of == socket);
        self.in_flight = kept;
        let lost: Vec<(u64, Pending)> = lost;
        for (_, pending) in lost {
            self.again(pending, now_ms);
        }
    }
}
