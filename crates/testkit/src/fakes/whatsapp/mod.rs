//! A fake of the Graph API for one phone number of `WhatsApp`, with people behind it. It signs what it sends to the webhook,
//! and refuses what Meta refuses: too many buttons, texts that are too long, and texts after 24 hours.

mod check;
mod server;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::hmac;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

pub use server::Server;

use super::serving::call::call;
use super::serving::faults::Fault;

pub const NUMBER_ID: &str = "106540352242922";
/// As Meta shows it.
pub const NUMBER: &str = "15559990000";
pub const TOKEN: &str = "EAAfakeTokenOfTheSystemUser";
pub const APP_SECRET: &str = "0123456789abcdef0123456789abcdef";
const RECORDS_MAX: usize = 20_000;

#[derive(Debug, Clone, Serialize)]
pub struct CallRecord {
    pub method: String,
    pub path: String,
    /// JSON, or the fields of a form without its files.
    pub body: Value,
    pub status: u16,
}

/// A message that was sent by the API.
#[derive(Debug, Clone, Serialize)]
pub struct Sent {
    pub id: String,
    pub to: String,
    pub message: Value,
}

#[derive(Debug, Clone)]
struct File {
    mime: String,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct State {
    count: u64,
    webhook: Option<String>,
    /// Messages of people, which can be answered.
    received: HashSet<String>,
    sent: Vec<Sent>,
    files: BTreeMap<String, File>,
    /// People who have not written for 24 hours.
    closed: HashSet<String>,
    calls: Vec<CallRecord>,
    faults: VecDeque<Fault>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<u64>,
}

/// A handle; clones share one state.
#[derive(Clone, Default)]
pub struct FakeWhatsApp {
    shared: Arc<Shared>,
}

/// Why Meta refuses a call.
pub(super) struct Refused(u16, i64, String);

impl FakeWhatsApp {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, with: impl FnOnce(&mut State) -> T) -> T {
        let result = with(&mut self.state());
        self.shared.changes.send_modify(|count| *count += 1);
        result
    }

    pub fn set_webhook(&self, url: &str) {
        self.change(|state| state.webhook = Some(url.to_owned()));
    }

    pub fn fault(&self, fault: Fault) {
        self.change(|state| state.faults.push_back(fault));
    }

    /// The person has not written for 24 hours.
    pub fn close_window(&self, person: &str) {
        self.change(|state| state.closed.insert(person.to_owned()));
    }

    pub fn calls(&self) -> Vec<CallRecord> {
        self.state().calls.clone()
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
    }

    /// The bytes of a file that was uploaded, or that a person sent.
    pub fn file(&self, id: &str) -> Option<Vec<u8>> {
        self.state().files.get(id).map(|file| file.bytes.clone())
    }

    /// Returns the first value that `probe` finds, now or after a change.
    pub async fn wait_for<T>(&self, mut probe: impl FnMut(&Self) -> Option<T>) -> T {
        let mut changes = self.shared.changes.subscribe();
        loop {
            changes.borrow_and_update();
            if let Some(found) = probe(self) {
                return found;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    fn fresh(&self) -> u64 {
        self.change(|state| {
            state.count += 1;
            state.count
        })
    }

    fn record(&self, record: CallRecord) {
        self.change(|state| {
            if state.calls.len() < RECORDS_MAX {
                state.calls.push(record);
            }
        });
    }

    fn put_file(&self, mime: &str, bytes: Vec<u8>) -> String {
        let id = format!("9{:015}", self.fresh());
        self.change(|state| state.files.insert(id.clone(), File { mime: mime.to_owned(), bytes }));
        id
    }

    /// `POST /messages`.
    fn post_message(&self, body: &Value) -> Result<Value, Refused> {
        let bad = |text: &str| Refused(400, 131_009, text.to_owned());
        if body["messaging_product"] != "whatsapp" {
            return Err(Refused(400, 100, "(#100) The parameter messaging_product is required.".into()));
        }
        if body["status"] == "read" {
            let id = body["message_id"].as_str().unwrap_or_default();
            return match self.state().received.contains(id) {
                true => Ok(json!({ "success": true })),
                false => Err(bad("Parameter value is not valid: message_id")),
            };
        }
        check::message(body)?;
        let to = body["to"].as_str().unwrap_or_default().trim_start_matches('+').to_owned();
        if let Some(id) =
            ["image", "video", "audio", "document", "sticker"].iter().find_map(|kind| body[kind]["id"].as_str())
            && !self.state().files.contains_key(id)
        {
            return Err(bad("Media ID is not valid"));
        }
        if body["type"] != "template" && self.state().closed.contains(&to) {
            return Err(Refused(400, 131_047, "Re-engagement message: more than 24 hours have passed".into()));
        }
        let id = format!("wamid.{:016X}", self.fresh());
        let answer = json!({ "messaging_product": "whatsapp", "contacts": [{ "input": to, "wa_id": to }],
            "messages": [{ "id": id }] });
        self.change(|state| state.sent.push(Sent { id, to, message: body.clone() }));
        Ok(answer)
    }

    // ---- people and Meta -------------------------------------------------------------------

    /// A person sends this: `{"type": "text", "text": {...}}`. Returns its id, and what the webhook answered.
    pub async fn say(&self, from: &str, name: &str, content: &Value) -> Result<(String, u16), String> {
        let id = format!("wamid.{:016X}", self.fresh());
        let status = self.say_all(name, &[(id.clone(), from.to_owned(), content.clone())]).await?;
        Ok((id, status))
    }

    /// Several messages (id, sender, content) in one webhook; an id that was there is the same message again.
    pub async fn say_all(&self, name: &str, messages: &[(String, String, Value)]) -> Result<u16, String> {
        let mut shown = Vec::new();
        let mut contacts = Vec::new();
        for (id, from, content) in messages {
            let mut message =
                json!({ "from": from, "from_user_id": user_id(from), "id": id, "timestamp": "1700000000" });
            if let (Value::Object(fields), Value::Object(content)) = (&mut message, content) {
                fields.extend(content.clone());
            }
            shown.push(message);
            contacts.push(json!({ "profile": { "name": name }, "wa_id": from, "user_id": user_id(from) }));
            self.change(|state| {
                state.received.insert(id.clone());
                state.closed.remove(from);
            });
        }
        self.notify(json!({ "contacts": contacts, "messages": shown })).await
    }

    /// A file of a person: its id, for a message.
    pub fn attach(&self, mime: &str, bytes: &[u8]) -> String {
        self.put_file(mime, bytes.to_vec())
    }

    /// Meta reports the outcome of a message.
    pub async fn report(&self, id: &str, status: &str, error: Option<(i64, &str)>) -> Result<u16, String> {
        let sent = self.sent().into_iter().find(|sent| sent.id == id).ok_or("no such message")?;
        let mut shown = json!({ "id": id, "status": status, "timestamp": "1700000001", "recipient_id": sent.to,
            "recipient_user_id": user_id(&sent.to) });
        if let Some(data) = sent.message.get("biz_opaque_callback_data") {
            shown["biz_opaque_callback_data"] = data.clone();
        }
        if let Some((code, title)) = error {
            shown["errors"] =
                json!([{ "code": code, "title": title, "message": title, "error_data": { "details": title } }]);
        }
        let contacts = json!([{ "profile": { "name": "" }, "wa_id": sent.to, "user_id": user_id(&sent.to) }]);
        self.notify(json!({ "contacts": contacts, "statuses": [shown] })).await
    }

    async fn notify(&self, rest: Value) -> Result<u16, String> {
        let mut value = json!({ "messaging_product": "whatsapp",
            "metadata": { "display_phone_number": NUMBER, "phone_number_id": NUMBER_ID } });
        if let (Value::Object(fields), Value::Object(rest)) = (&mut value, rest) {
            fields.extend(rest);
        }
        let body = json!({ "object": "whatsapp_business_account",
            "entry": [{ "id": "0", "changes": [{ "value": value, "field": "messages" }] }] });
        let body = body.to_string();
        let signature = format!("sha256={}", hex::encode(hmac::sign(&key(), body.as_bytes())));
        let url = self.state().webhook.clone().ok_or("no webhook is set")?;
        let headers = [("Content-Type", "application/json"), ("X-Hub-Signature-256", signature.as_str())];
        call("POST", &url, &headers, body.as_bytes()).await.map(|(status, _)| status)
    }
}

/// The id of a person for this business.
fn user_id(person: &str) -> String {
    format!("US.{person}")
}

fn key() -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, APP_SECRET.as_bytes())
}
