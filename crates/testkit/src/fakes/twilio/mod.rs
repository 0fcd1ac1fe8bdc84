//! A fake of Twilio's Messages resource, with phones of people behind it. It signs what it sends to webhooks, fetches the
//! files that it is asked to send, and keeps a list of who said STOP.

mod server;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

pub use server::Server;

use super::serving::call::call;
use super::serving::faults::Fault;

pub const ACCOUNT: &str = "AC0123456789abcdef0123456789abcdef";
pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const BODY_MAX: usize = 1_600;
const FILES_MAX: usize = 10;
const RECORDS_MAX: usize = 20_000;

/// A message that was sent by the API.
#[derive(Debug, Clone, Serialize)]
pub struct Sent {
    pub sid: String,
    pub from: Option<String>,
    pub service: Option<String>,
    pub to: String,
    pub body: String,
    pub status: String,
    pub error_code: Option<u32>,
    pub callback: Option<String>,
    /// Status, and bytes as text, of each file as it was fetched.
    pub files: Vec<(u16, String)>,
}

#[derive(Debug, Clone, Serialize)]
pub struct CallRecord {
    pub method: String,
    pub path: String,
    pub form: BTreeMap<String, String>,
    pub status: u16,
}

/// A file that a person sends.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct File {
    pub mime: String,
    pub content: String,
}

#[derive(Default)]
struct State {
    count: u64,
    numbers: Vec<String>,
    /// Where messages to our numbers go.
    webhook: Option<String>,
    sent: Vec<Sent>,
    /// By message and file.
    files: BTreeMap<(String, String), File>,
    stopped: HashSet<(String, String)>,
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
pub struct FakeTwilio {
    shared: Arc<Shared>,
}

/// Why Twilio refuses a call.
struct Refused(u16, u32, &'static str);

impl FakeTwilio {
    /// An account with this number.
    pub fn new(number: &str) -> Self {
        let fake = Self::default();
        fake.state().numbers.push(number.to_owned());
        fake
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

    pub fn calls(&self) -> Vec<CallRecord> {
        self.state().calls.clone()
    }

    pub fn sent(&self) -> Vec<Sent> {
        self.state().sent.clone()
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

    fn fresh(&self, prefix: &str) -> String {
        let mut state = self.state();
        state.count += 1;
        format!("{prefix}{:032x}", state.count)
    }

    fn record(&self, record: CallRecord) {
        self.change(|state| {
            if state.calls.len() < RECORDS_MAX {
                state.calls.push(record);
            }
        });
    }

    /// A new message, as the API takes it.
    async fn create(&self, form: &[(String, String)]) -> Result<Value, Refused> {
        let all = |name: &str| -> Vec<String> {
            form.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
        };
        let one = |name: &str| all(name).into_iter().next().filter(|value| !value.is_empty());
        let urls = all("MediaUrl");
        let (to, body) = (one("To").ok_or(Refused(400, 21_604, "A 'To' phone number is required."))?, one("Body"));
        let (from, service) = (one("From"), one("MessagingServiceSid"));
        let digits = to.strip_prefix('+').unwrap_or_default();
        if !(7..=15).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Refused(400, 21_211, "The 'To' number is not a valid phone number."));
        }
        match (&from, &service) {
            (None, None) => return Err(Refused(400, 21_603, "A 'From' phone number is required.")),
            (Some(from), _) if !self.state().numbers.contains(from) => {
                return Err(Refused(
                    400,
                    21_606,
                    "The 'From' phone number provided is not a valid message-capable number.",
                ));
            }
            _ => {}
        }
        if body.is_none() && urls.is_empty() {
            return Err(Refused(400, 21_602, "Message body is required."));
        }
        if body.as_ref().is_some_and(|body| body.encode_utf16().count() > BODY_MAX) {
            return Err(Refused(400, 21_617, "The concatenated message body exceeds the 1600 character limit."));
        }
        if urls.len() > FILES_MAX {
            return Err(Refused(400, 21_623, "Number of media files exceeds the limit."));
        }
        let callback = one("StatusCallback");
        if callback.as_ref().is_some_and(|url| url::Url::parse(url).is_err()) {
            return Err(Refused(400, 21_609, "The 'StatusCallback' URL is not a valid URL."));
        }
        let ours = from.clone().or_else(|| service.clone()).unwrap_or_default();
        if self.state().stopped.contains(&(ours, to.clone())) {
            return Err(Refused(400, 21_610, "Attempt to send to unsubscribed recipient."));
        }
        let sid = self.fresh(if urls.is_empty() { "SM" } else { "MM" });
        let mut files = Vec::new();
        for url in &urls {
            let (status, bytes) = call("GET", url, &[], &[]).await.unwrap_or((0, Vec::new()));
            files.push((status, String::from_utf8_lossy(&bytes).into_owned()));
        }
        let status = if service.is_some() { "accepted" } else { "queued" }.to_owned();
        let body = body.unwrap_or_default();
        let sent = Sent { sid, from, service, to, body, status, error_code: None, callback, files };
        let shown = shown(&sent);
        self.change(|state| state.sent.push(sent));
        Ok(shown)
    }

    // ---- people and carriers ---------------------------------------------------------------

    /// A person sends a message; returns what the webhook answered.
    pub async fn say(&self, from: &str, to: &str, body: &str, files: &[File]) -> Result<(u16, String), String> {
        let sid = self.fresh(if files.is_empty() { "SM" } else { "MM" });
        self.say_as(&sid, from, to, body, files).await
    }

    /// The same message again, as after an answer that was lost.
    pub async fn say_as(
        &self,
        sid: &str,
        from: &str,
        to: &str,
        body: &str,
        files: &[File],
    ) -> Result<(u16, String), String> {
        let mut form = vec![
            ("ToCountry", "US".to_owned()),
            ("SmsMessageSid", sid.to_owned()),
            ("NumMedia", files.len().to_string()),
            ("SmsSid", sid.to_owned()),
            ("SmsStatus", "received".to_owned()),
            ("Body", body.to_owned()),
            ("To", to.to_owned()),
            ("NumSegments", "1".to_owned()),
            ("MessageSid", sid.to_owned()),
            ("AccountSid", ACCOUNT.to_owned()),
            ("From", from.to_owned()),
            ("ApiVersion", "2010-04-01".to_owned()),
        ];
        let names: Vec<[String; 2]> =
            (0..files.len()).map(|at| [format!("MediaUrl{at}"), format!("MediaContentType{at}")]).collect();
        for (file, [url, mime]) in files.iter().zip(&names) {
            let id = self.fresh("ME");
            let at = format!("https://api.twilio.com/2010-04-01/Accounts/{ACCOUNT}/Messages/{sid}/Media/{id}");
            form.extend([(url.as_str(), at), (mime.as_str(), file.mime.clone())]);
            self.change(|state| state.files.insert((sid.to_owned(), id), file.clone()));
        }
        match body.trim().to_ascii_uppercase().as_str() {
            "STOP" => _ = self.change(|state| state.stopped.insert((to.to_owned(), from.to_owned()))),
            "START" => _ = self.change(|state| state.stopped.remove(&(to.to_owned(), from.to_owned()))),
            _ => {}
        }
        let url = self.state().webhook.clone().ok_or("no webhook is set")?;
        post(&url, &form).await
    }

    /// The carrier reports the outcome of a message; returns what the callback answered.
    pub async fn report(&self, sid: &str, status: &str, error: Option<u32>) -> Result<(u16, String), String> {
        let found = self.change(|state| {
            let sent = state.sent.iter_mut().find(|sent| sent.sid == sid)?;
            (sent.status, sent.error_code) = (status.to_owned(), error);
            Some(sent.clone())
        });
        let sent = found.ok_or("no such message")?;
        let mut form = vec![
            ("SmsSid", sid.to_owned()),
            ("SmsStatus", status.to_owned()),
            ("MessageStatus", status.to_owned()),
            ("To", sent.to),
            ("MessageSid", sid.to_owned()),
            ("AccountSid", ACCOUNT.to_owned()),
            ("From", sent.from.unwrap_or_default()),
            ("ApiVersion", "2010-04-01".to_owned()),
        ];
        form.extend(error.map(|code| ("ErrorCode", code.to_string())));
        post(&sent.callback.ok_or("it has no callback")?, &form).await
    }
}

async fn post(url: &str, form: &[(&str, String)]) -> Result<(u16, String), String> {
    let mut sorted: Vec<(&str, &str)> = form.iter().map(|(name, value)| (*name, value.as_str())).collect();
    sorted.sort_unstable();
    let text: String = sorted.iter().flat_map(|(name, value)| [*name, *value]).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, TOKEN.as_bytes());
    let signature = STANDARD.encode(hmac::sign(&key, format!("{url}{text}").as_bytes()));
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let mime = "application/x-www-form-urlencoded; charset=UTF-8";
    let headers = [("Content-Type", mime), ("X-Twilio-Signature", &signature), ("User-Agent", "TwilioProxy/1.1")];
    let (status, answer) = call("POST", url, &headers, body.as_bytes()).await?;
    Ok((status, String::from_utf8_lossy(&answer).into_owned()))
}

/// A message as the API shows it.
fn shown(sent: &Sent) -> Value {
    let uri = format!("/2010-04-01/Accounts/{ACCOUNT}/Messages/{}", sent.sid);
    json!({
        "account_sid": ACCOUNT,
        "api_version": "2010-04-01",
        "body": sent.body,
        "date_created": "Fri, 24 May 2019 17:44:46 +0000",
        "date_sent": null,
        "date_updated": "Fri, 24 May 2019 17:44:46 +0000",
        "direction": "outbound-api",
        "error_code": sent.error_code,
        "error_message": null,
        "from": sent.from,
        "messaging_service_sid": sent.service,
        "num_media": sent.files.len().to_string(),
        "num_segments": "1",
        "price": null,
        "price_unit": "USD",
        "sid": sent.sid,
        "status": sent.status,
        "subresource_uris": { "media": format!("{uri}/Media.json") },
        "to": sent.to,
        "uri": format!("{uri}.json"),
    })
}
