//! Discord's REST API as one bot.

use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, Outcall, OutcallError, Part};
use frontdesk_core::port::platform::{Acted, Bot, Pace};
use frontdesk_wire::{ActionResult, Code, Secret};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::invalid::InvalidRequests;
use crate::shared::unanswered;

pub(super) const BASE_URL: &str = "https://discord.com/api/v10";
/// A page of 100 messages with the longest texts.
const ANSWER_MAX_BYTES: usize = 4 << 20;
const UPLOAD_TIME: Duration = Duration::from_secs(30);

/// Bucket name for a limit of the whole bot.
pub(super) const WHOLE_BOT: &str = "*";

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApiError {
    /// Discord refused it, and nothing was changed.
    Refused { status: u16, code: i64, message: String },
    /// Nothing was done. Without a bucket the whole bot has to wait.
    Limited { retry_after_ms: u64, is_global: bool },
    /// No answer, or one that cannot be read. It may have been done if `may_be_done`.
    NoAnswer { may_be_done: bool, why: String },
    /// Not sent: too many requests were refused lately, and Discord bans addresses for that.
    TooManyRefused,
}

impl ApiError {
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// A read has no effect at Discord.
    pub(super) fn of_question(self) -> Self {
        match self {
            Self::NoAnswer { why, .. } => Self::NoAnswer { may_be_done: false, why },
            error => error,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Refused { status, code, message } => format!("Discord refused it: {message} ({status}, code {code})"),
            Self::Limited { retry_after_ms, .. } => {
                format!("Discord limits the rate; it asks to wait {} s", retry_after_ms.div_ceil(1_000))
            }
            Self::NoAnswer { why, .. } => format!("Discord did not answer: {why}"),
            Self::TooManyRefused => {
                "Discord refused too many requests of this server in the last ten minutes, and would \
                                     ban its address for more; nothing was sent"
                    .to_owned()
            }
        }
    }
}

impl From<ApiError> for Acted {
    fn from(error: ApiError) -> Self {
        let text = error.text();
        match error {
            ApiError::Limited { retry_after_ms, is_global } => {
                let bucket = is_global.then(|| WHOLE_BOT.to_owned());
                let pace = Pace { retry_after_ms: Some(retry_after_ms), bucket, ..Pace::default() };
                Self { result: ActionResult::refused(Code::RateLimited, text), pace, receipt_id: None }
            }
            ApiError::Refused { status, .. } => {
                let code = match status {
                    404 => Code::NotFound,
                    413 => Code::TooLarge,
                    400 => Code::BadRequest,
                    403 => Code::Forbidden,
                    _ => Code::PlatformFailed,
                };
                ActionResult::refused(code, text).into()
            }
            ApiError::NoAnswer { may_be_done, .. } => unanswered::result(may_be_done, text).into(),
            ApiError::TooManyRefused => ActionResult::refused(Code::Unavailable, text).into(),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Refusal {
    code: i64,
    message: String,
    retry_after: f64,
    global: bool,
}

/// An answer, and how long its route is used up.
pub(super) struct Answered<T> {
    pub(super) value: T,
    pub(super) pause_ms: Option<u64>,
    /// The limit that the request counted for.
    pub(super) bucket: Option<String>,
}

pub(super) struct Api<'a> {
    outcall: &'a dyn Outcall,
    invalid: &'a InvalidRequests,
    now_ms: u64,
    /// Given by the operator, who may name a private address.
    own_base: Option<&'a str>,
    authorization: String,
    token: &'a Secret,
    bot: &'a str,
}

impl<'a> Api<'a> {
    /// `None`: the bot has no token.
    pub(super) fn of(
        outcall: &'a dyn Outcall,
        invalid: &'a InvalidRequests,
        now_ms: u64,
        bot: &'a Bot,
    ) -> Option<Self> {
        let token = bot.secret("token")?;
        let authorization = format!("Bot {}", token.expose());
        Some(Self { outcall, invalid, now_ms, own_base: bot.setting("base_url"), authorization, token, bot: &bot.id })
    }

    fn base(&self) -> &str {
        self.own_base.unwrap_or(BASE_URL).trim_end_matches('/')
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ApiError> {
        self.get_paced(path).await.map(|answered| answered.value)
    }

    /// With the pause that the route needs after it.
    pub(super) async fn get_paced<T: DeserializeOwned>(&self, path: &str) -> Result<Answered<T>, ApiError> {
        // A read has no effect at Discord.
        let asked = self.call(HttpMethod::Get, path, Body::Empty, None).await;
        asked.map_err(ApiError::of_question)
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        method: HttpMethod,
        path: &str,
        json: &Value,
    ) -> Result<Answered<T>, ApiError> {
        let json = json.to_string();
        self.call(method, path, Body::Json(&json), None).await
    }

    /// Without a body.
    pub(super) async fn bare(&self, method: HttpMethod, path: &str) -> Result<Answered<Value>, ApiError> {
        self.call(method, path, Body::Empty, None).await
    }

    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        parts: Vec<Part<'_>>,
    ) -> Result<Answered<T>, ApiError> {
        self.call(HttpMethod::Post, path, Body::Multipart(parts), Some(UPLOAD_TIME)).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: HttpMethod,
        path: &str,
        body: Body<'_>,
        time: Option<Duration>,
    ) -> Result<Answered<T>, ApiError> {
        let headers = [("authorization", self.authorization.as_str())];
        let is_vital = method == HttpMethod::Get;
        self.exchange(method, path, &headers, body, time, is_vital).await
    }

    /// With the token of an interaction, which stands in the path. It is enough: the token of the bot is not sent. No
    /// error repeats it.
    pub(super) async fn by_token<T: DeserializeOwned>(
        &self,
        method: HttpMethod,
        head: &str,
        token: &Secret,
        tail: &str,
        json: Option<&Value>,
    ) -> Result<Answered<T>, ApiError> {
        let path = format!("{head}{}{tail}", token.expose());
        let json = json.map(Value::to_string);
        let body = json.as_deref().map_or(Body::Empty, Body::Json);
        self.exchange(method, &path, &[], body, None, true).await.map_err(|error| match error {
            ApiError::NoAnswer { may_be_done, why } => {
                ApiError::NoAnswer { may_be_done, why: why.replace(token.expose(), "***") }
            }
            ApiError::Refused { status, code, message } => {
                ApiError::Refused { status, code, message: message.replace(token.expose(), "***") }
            }
            error => error,
        })
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: HttpMethod,
        path: &str,
        headers: &[(&str, &str)],
        body: Body<'_>,
        time: Option<Duration>,
        is_vital: bool,
    ) -> Result<Answered<T>, ApiError> {
        if !self.invalid.may_call(self.bot, is_vital, self.now_ms) {
            return Err(ApiError::TooManyRefused);
        }
        let url = format!("{}{path}", self.base());
        let call = Call {
            method,
            url: &url,
            body,
            headers,
            trusted: self.own_base,
            time,
            max_bytes: ANSWER_MAX_BYTES,
            ..Call::default()
        };
        let answer = self.outcall.call(call).await.map_err(|error| self.no_answer(&error))?;
        if matches!(answer.status, 401 | 403)
            || (answer.status == 429 && answer.header("x-ratelimit-scope") != Some("shared"))
        {
            self.invalid.note(self.bot, self.now_ms);
        }
        read(&answer)
    }

    /// A file of Discord. With another base URL they are at its origin.
    pub(super) fn file_call<'u>(&'u self, url: &'u str, max_bytes: usize) -> Call<'u> {
        Call { url, trusted: self.own_base, max_bytes, ..Call::default() }
    }

    fn no_answer(&self, error: &OutcallError) -> ApiError {
        let why = error.to_string().replace(self.token.expose(), "***");
        ApiError::NoAnswer { may_be_done: error.may_have_been_sent(), why }
    }
}

fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<Answered<T>, ApiError> {
    let unreadable = |why: String| ApiError::NoAnswer { may_be_done: true, why };
    match answer.status {
        200..300 => {
            let body: &[u8] = if answer.body.is_empty() { b"null" } else { &answer.body };
            let value = serde_json::from_slice(body)
                .map_err(|error| unreadable(format!("the response could not be read: {error}")))?;
            let bucket = answer.header("x-ratelimit-bucket").map(str::to_owned);
            Ok(Answered { value, pause_ms: used_up_ms(answer), bucket })
        }
        429 => {
            let Refusal { retry_after, global, .. } = serde_json::from_slice(&answer.body).unwrap_or_default();
            let seconds =
                if retry_after > 0.0 { retry_after } else { seconds_of(answer, "retry-after").unwrap_or(1.0) };
            let is_global = global || answer.header("x-ratelimit-scope") == Some("global");
            Err(ApiError::Limited { retry_after_ms: as_ms(seconds), is_global })
        }
        status @ 400..500 => {
            let Refusal { code, message, .. } = serde_json::from_slice(&answer.body).unwrap_or_default();
            let message = if message.is_empty() { "no reason was given".to_owned() } else { message };
            Err(ApiError::Refused { status, code, message })
        }
        status => Err(unreadable(format!("status {status}"))),
    }
}

/// The route has nothing left until then.
fn used_up_ms(answer: &HttpAnswer) -> Option<u64> {
    let is_empty = answer.header("x-ratelimit-remaining") == Some("0");
    seconds_of(answer, "x-ratelimit-reset-after").filter(|_| is_empty).map(as_ms)
}

fn seconds_of(answer: &HttpAnswer, header: &str) -> Option<f64> {
    answer.header(header)?.parse().ok()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded before")]
fn as_ms(seconds: f64) -> u64 {
    (seconds.clamp(0.0, 86_400.0) * 1_000.0).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str, headers: &[(&str, &str)]) -> HttpAnswer {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        HttpAnswer { status, body: body.as_bytes().to_vec(), headers }
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        let refused = read::<Value>(&answer(404, r#"{"message":"Unknown Channel","code":10003}"#, &[])).err().unwrap();
        assert!(refused.text().contains("Unknown Channel") && refused.text().contains("10003"));
        let acted = Acted::from(refused);
        assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::NotFound), false));
        for (status, body) in [(502, "<html>"), (500, "{}"), (200, "{\"id\":")] {
            let acted = Acted::from(read::<Value>(&answer(status, body, &[])).err().unwrap());
            assert_eq!((acted.result.code, acted.result.ambiguous), (Some(Code::Unknown), true), "{status} {body}");
        }
    }

    #[test]
    fn limits_are_read_from_body_and_headers() {
        let body = r#"{"message":"You are being rate limited.","retry_after":1.5,"global":false}"#;
        let limited = read::<Value>(&answer(429, body, &[])).err().unwrap();
        assert_eq!(limited, ApiError::Limited { retry_after_ms: 1_500, is_global: false });
        let headers = [("retry-after", "65"), ("x-ratelimit-scope", "global")];
        let limited = read::<Value>(&answer(429, "<html>", &headers)).err().unwrap();
        assert_eq!(limited, ApiError::Limited { retry_after_ms: 65_000, is_global: true });
        let headers = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset-after", "0.25")];
        assert_eq!(read::<Value>(&answer(204, "", &headers)).unwrap().pause_ms, Some(250));
        assert_eq!(read::<Value>(&answer(200, "{}", &[("x-ratelimit-remaining", "3")])).unwrap().pause_ms, None);
    }
}
