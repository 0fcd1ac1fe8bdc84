//! Calls to the homeserver, and why they fail.

use std::collections::BTreeSet;
use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError};
use serde_json::Value;

use super::account::{Account, Mode};

/// An answer to a small question.
const ANSWER_MAX_BYTES: usize = 512 << 10;
/// Joining a room of another server takes long, because the homeserver asks several servers.
const JOIN_TIME: Duration = Duration::from_secs(30);
/// Pause after a rate limit without a time.
const LIMITED_MS: u64 = 5_000;
/// Shortest pause after a rate limit, even if the homeserver asks for less.
const LIMITED_MIN_MS: u64 = 500;
/// A listener waits no longer than this because of a limit, then it asks again.
const LIMITED_MAX_MS: u64 = 60_000;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    #[error("the homeserver did not answer: {why}")]
    Unreachable { why: String, may_have_happened: bool },
    #[error("the homeserver limits the rate of requests; it asks to wait {retry_after_ms} ms")]
    Limited { retry_after_ms: u64 },
    #[error("the homeserver refused the request: {errcode} (status {status}): {error}")]
    Refused { status: u16, errcode: String, error: String },
    #[error("the answer of the homeserver is over {0} bytes")]
    TooLarge(usize),
    /// Will not work later either, and says nothing about the token.
    #[error("{0}")]
    Final(String),
}

impl Fault {
    /// Refused because there is no such thing, or none that the bot may see.
    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 403 | 404, .. })
    }

    pub(super) fn is(&self, code: &str) -> bool {
        matches!(self, Self::Refused { errcode, .. } if errcode == code)
    }

    /// The token does not work, and will not work later. See `token_checked` for when that is certain.
    pub(super) fn is_token(&self) -> bool {
        matches!(self, Self::Refused { status: 401, .. })
            || ["M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED"].iter().any(|code| self.is(code))
    }

    /// The homeserver could not be reached or limited the rate: the request itself may be fine.
    pub(super) fn is_elsewhere(&self) -> bool {
        matches!(self, Self::Limited { .. } | Self::Unreachable { may_have_happened: false, .. })
    }

    /// Whether the same request may work later.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Limited { .. } => true,
            Self::Refused { status, .. } => *status >= 500,
            Self::TooLarge(_) | Self::Final(_) => false,
        }
    }
}

impl From<OutcallError> for Fault {
    fn from(error: OutcallError) -> Self {
        match error {
            OutcallError::TooLarge(max) => Self::TooLarge(max),
            error => Self::Unreachable { why: error.to_string(), may_have_happened: error.may_have_been_sent() },
        }
    }
}

/// What a request carries besides its path.
pub(super) struct Ask<'a> {
    pub(super) method: HttpMethod,
    pub(super) json: Option<&'a Value>,
    pub(super) time: Option<Duration>,
    pub(super) max_bytes: usize,
}

impl Ask<'_> {
    pub(super) const GET: Self = Self { method: HttpMethod::Get, json: None, time: None, max_bytes: ANSWER_MAX_BYTES };
}

pub(super) struct Client<'a> {
    pub(super) outcall: &'a dyn Outcall,
    pub(super) account: &'a Account<'a>,
    /// A listener waits while the homeserver limits it. An action does not: its scheduler does.
    pub(super) is_patient: bool,
}

impl<'a> Client<'a> {
    pub(super) fn new(outcall: &'a dyn Outcall, account: &'a Account<'a>) -> Self {
        Self { outcall, account, is_patient: false }
    }

    /// `parts` are the segments below `/_matrix`, each of which is encoded.
    pub(super) fn url(&self, parts: &[&str], query: &[(&str, &str)]) -> String {
        let mut url = format!("{}/_matrix", self.account.base);
        for part in parts {
            url.push('/');
            // These are taken as steps in the path, however they are encoded. No id is like that.
            encode(&mut url, if matches!(*part, "." | "..") { "_" } else { part });
        }
        // An application service says as which of its users it acts.
        let acting_as = (self.account.mode == Mode::AppService).then_some(("user_id", self.account.user_id));
        for (index, (name, value)) in query.iter().copied().chain(acting_as).enumerate() {
            url.push(if index == 0 { '?' } else { '&' });
            url.push_str(name);
            url.push('=');
            encode(&mut url, value);
        }
        url
    }

    /// A call with the token, to the homeserver and nowhere else.
    pub(super) fn call<'b>(&'b self, method: HttpMethod, url: &'b str, body: Body<'b>, max_bytes: usize) -> Call<'b> {
        let (bearer, trusted) = (Some(self.account.token), Some(self.account.base));
        Call { method, url, bearer, body, trusted, max_bytes, ..Call::default() }
    }

    pub(super) async fn get(&self, parts: &[&str], query: &[(&str, &str)]) -> Result<Value, Fault> {
        self.ask(&self.url(parts, query), &Ask::GET).await
    }

    pub(super) async fn post(&self, parts: &[&str], json: &Value) -> Result<Value, Fault> {
        self.ask(&self.url(parts, &[]), &Ask { method: HttpMethod::Post, json: Some(json), ..Ask::GET }).await
    }

    /// The same, for what makes the homeserver ask other servers.
    pub(super) async fn post_long(&self, parts: &[&str], json: &Value) -> Result<Value, Fault> {
        let ask = Ask { method: HttpMethod::Post, json: Some(json), time: Some(JOIN_TIME), ..Ask::GET };
        self.ask(&self.url(parts, &[]), &ask).await
    }

    pub(super) async fn put(&self, parts: &[&str], json: &Value) -> Result<Value, Fault> {
        self.ask(&self.url(parts, &[]), &Ask { method: HttpMethod::Put, json: Some(json), ..Ask::GET }).await
    }

    /// A PUT whose path has a transaction id, so that repeating it has no second effect. It is repeated once if the answer
    /// was lost. A homeserver that carried out the first attempt returns its result to the second one before it checks
    /// anything else, so a refusal of the second attempt proves that the first one failed. Without an answer, or with a
    /// rate limit (which is checked earlier), the first attempt may have succeeded.
    pub(super) async fn put_once(&self, parts: &[&str], json: &Value) -> Result<Value, Fault> {
        match self.put(parts, json).await {
            Err(Fault::Unreachable { may_have_happened: true, .. } | Fault::Refused { status: 500.., .. }) => {
                self.put(parts, json).await.map_err(|fault| match fault {
                    // Matrix error codes come from the homeserver itself, not from a proxy in front of it.
                    Fault::Refused { status: 400..500, ref errcode, .. }
                        if errcode.starts_with("M_") && !fault.is_token() =>
                    {
                        fault
                    }
                    fault => Fault::Unreachable { why: fault.to_string(), may_have_happened: true },
                })
            }
            other => other,
        }
    }

    /// Joins a room. `via` are servers that may know it.
    pub(super) async fn join(&self, room_id: &str, via: &BTreeSet<&str>) -> Result<Value, Fault> {
        // Older homeservers know the parameter by its earlier name.
        let query: Vec<_> = via.iter().flat_map(|server| [("via", *server), ("server_name", *server)]).collect();
        let url = self.url(&["client", "v3", "join", room_id], &query);
        let body = Value::Object(serde_json::Map::new());
        self.ask(&url, &Ask { method: HttpMethod::Post, json: Some(&body), time: Some(JOIN_TIME), ..Ask::GET }).await
    }

    pub(super) async fn ask(&self, url: &str, ask: &Ask<'_>) -> Result<Value, Fault> {
        self.ask_sized(url, ask).await.map(|(answer, _)| answer)
    }

    /// The answer, and how many bytes it had.
    pub(super) async fn ask_sized(&self, url: &str, ask: &Ask<'_>) -> Result<(Value, usize), Fault> {
        let json = ask.json.map(Value::to_string);
        loop {
            let body = json.as_deref().map_or(Body::Empty, Body::Json);
            let call = Call { time: ask.time, ..self.call(ask.method, url, body, ask.max_bytes) };
            let answer = self.outcall.call(call).await?;
            match read(&answer) {
                Err(Fault::Limited { retry_after_ms }) if self.is_patient => {
                    let wait_ms = retry_after_ms.min(LIMITED_MAX_MS);
                    tracing::debug!(
                        bot = self.account.bot.id.as_str(),
                        wait_ms,
                        "the homeserver limited the rate of requests"
                    );
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
                read => return read.map(|json| (json, answer.body.len())),
            }
        }
    }
}

pub(super) fn read(answer: &HttpAnswer) -> Result<Value, Fault> {
    let json = serde_json::from_slice::<Value>(&answer.body);
    if (200..300).contains(&answer.status) {
        let why = "its answer is not JSON".to_owned();
        return json.map_err(|_| Fault::Unreachable { why, may_have_happened: true });
    }
    let json = json.unwrap_or_default();
    Err(fault(answer.status, &json, answer.header("retry-after")))
}

pub(super) fn fault(status: u16, json: &Value, retry_after: Option<&str>) -> Fault {
    let text = |name: &str| json[name].as_str().unwrap_or_default().chars().take(300).collect::<String>();
    let errcode = text("errcode");
    if status == 429 || errcode == "M_LIMIT_EXCEEDED" {
        let seconds = retry_after.and_then(|text| text.parse::<u64>().ok());
        let wait_ms = json["retry_after_ms"].as_u64().or_else(|| seconds.map(|s| s.saturating_mul(1_000)));
        return Fault::Limited { retry_after_ms: wait_ms.unwrap_or(LIMITED_MS).max(LIMITED_MIN_MS) };
    }
    let errcode = if errcode.is_empty() { "no error code".into() } else { errcode };
    Fault::Refused { status, errcode, error: text("error") }
}

/// Everything but unreserved characters, for a segment of a path and for a value of a query.
pub(super) fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
}
