//! Calls of the server API as one app.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, OpenAnswer, Outcall, OutcallError, Part};
use frontdesk_core::port::platform::Bot;
use frontdesk_core::{Env, short_hash};
use frontdesk_wire::Secret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::failed::ApiError;
use super::tokens::{Granted, Tokens};
use crate::shared::unanswered;

pub(super) const BASE_URL: &str = "https://qyapi.weixin.qq.com";
const ANSWER_MAX_BYTES: usize = 1 << 20;
const CALL_TIME: Duration = Duration::from_secs(10);
const UPLOAD_TIME: Duration = Duration::from_secs(20);
/// Of a token whose lifetime the vendor does not give.
const VALID_S: u64 = 7_200;

/// How each answer begins.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Head {
    errcode: i64,
    errmsg: String,
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
}

pub(super) struct Api<'a> {
    env: &'a dyn Env,
    outcall: &'a dyn Outcall,
    tokens: &'a Tokens,
    /// Given by the operator, who may name a private address.
    own_base: Option<&'a str>,
    corp_id: &'a str,
    pub(super) agent_id: u32,
    secret: &'a Secret,
}

impl<'a> Api<'a> {
    /// `None`: the bot is not complete.
    pub(super) fn of(app: &'a super::App, bot: &'a Bot) -> Option<Self> {
        Some(Self {
            env: &*app.env,
            outcall: &*app.outcall,
            tokens: &app.tokens,
            own_base: bot.setting("base_url"),
            corp_id: bot.setting("corp_id")?,
            agent_id: bot.setting("agent_id")?.parse().ok()?,
            secret: bot.secret("secret")?,
        })
    }

    fn url(&self, path: &str, query: &str) -> String {
        format!("{}/cgi-bin/{path}?{query}", self.own_base.unwrap_or(BASE_URL).trim_end_matches('/'))
    }

    /// The token that all calls carry. `refused` is one that was not accepted.
    pub(super) async fn token(&self, refused: Option<&Secret>) -> Result<Arc<Secret>, ApiError> {
        let key = short_hash(&[self.own_base.unwrap_or_default(), self.corp_id, self.secret.expose()]);
        let asked = self.tokens.get(key, self.env.steady_ms(), refused, self.new_token()).await;
        asked.map_err(ApiError::undone)
    }

    async fn new_token(&self) -> Result<Granted, ApiError> {
        let query = format!("corpid={}&corpsecret={}", encoded(self.corp_id), encoded(self.secret.expose()));
        let url = self.url("gettoken", &query);
        let call = Call { time: Some(CALL_TIME), ..self.call_of(&url, Body::Empty) };
        let answer = self.outcall.call(call).await.map_err(|error| self.no_answer(&error, self.secret))?;
        let Token { access_token, expires_in } = self.read(&answer, self.secret)?;
        if access_token.is_empty() {
            return Err(ApiError::NoAnswer { may_be_done: false, why: "the answer has no access_token".into() });
        }
        let valid_ms = expires_in.unwrap_or(VALID_S).min(VALID_S) * 1_000;
        Ok(Granted { token: Secret::new(access_token), valid_ms })
    }

    fn call_of<'b>(&self, url: &'b str, body: Body<'b>) -> Call<'b>
    where
        'a: 'b,
    {
        let method = if matches!(body, Body::Empty) { HttpMethod::Get } else { HttpMethod::Post };
        Call { method, url, body, trusted: self.own_base, max_bytes: ANSWER_MAX_BYTES, ..Call::default() }
    }

    /// A call with a token, which is made again with a new one if it was refused for the old one.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &str,
        body: Option<&Value>,
    ) -> Result<T, ApiError> {
        let json = body.map(Value::to_string);
        let mut refused: Option<Arc<Secret>> = None;
        loop {
            let token = self.token(refused.as_deref()).await?;
            let url = self.url(path, &format!("access_token={}{query}", encoded(token.expose())));
            let body = json.as_deref().map_or(Body::Empty, Body::Json);
            let call = Call { time: Some(CALL_TIME), ..self.call_of(&url, body) };
            let answer = self.outcall.call(call).await.map_err(|error| self.no_answer(&error, &token))?;
            match self.read(&answer, &token) {
                Err(error) if error.is_of_token() && refused.is_none() => refused = Some(token),
                outcome => return outcome,
            }
        }
    }

    /// `Err(None)`: the token was refused, and the file has to be sent again with another one.
    pub(super) async fn upload<T: DeserializeOwned>(
        &self,
        token: &Secret,
        kind: &str,
        part: Part<'_>,
    ) -> Result<T, Option<ApiError>> {
        let url = self.url("media/upload", &format!("access_token={}&type={kind}", encoded(token.expose())));
        let body = Body::Multipart(vec![part]);
        let call = Call {
            method: HttpMethod::Post,
            url: &url,
            body,
            trusted: self.own_base,
            max_bytes: ANSWER_MAX_BYTES,
            time: Some(UPLOAD_TIME),
            ..Call::default()
        };
        let answer = self.outcall.call(call).await.map_err(|error| Some(self.no_answer(&error, token)))?;
        self.read(&answer, token).map_err(|error| Some(error).filter(|error| !error.is_of_token()))
    }

    /// A file, or why there is none. `Err(None)` as above.
    pub(super) async fn download(
        &self,
        token: &Secret,
        media_id: &str,
        max_bytes: usize,
    ) -> Result<OpenAnswer, Option<ApiError>> {
        let query = format!("access_token={}&media_id={}", encoded(token.expose()), encoded(media_id));
        let url = self.url("media/get", &query);
        let call = Call { max_bytes, ..self.call_of(&url, Body::Empty) };
        let answer = self.outcall.open(call).await.map_err(|error| Some(self.no_answer(&error, token)))?;
        let is_file = (200..300).contains(&answer.status)
            && (answer.header("content-disposition").is_some() || !is_text(answer.header("content-type")));
        if is_file {
            return Ok(answer);
        }
        let (status, body) = (answer.status, beginning(answer).await);
        let refusal = self.read::<Head>(&HttpAnswer { body, ..HttpAnswer::of(status) }, token);
        let error = refusal.err().unwrap_or_else(|| unreadable(status));
        Err(Some(error).filter(|error| !error.is_of_token()))
    }

    /// Secrets that were sent are not in the error text.
    fn read<T: DeserializeOwned>(&self, answer: &HttpAnswer, sent: &Secret) -> Result<T, ApiError> {
        let clean = |text: &str| text.replace(sent.expose(), "***").replace(self.secret.expose(), "***");
        read(answer).map_err(|error| match error {
            ApiError::Refused { code, message } => ApiError::Refused { code, message: clean(&message) },
            other => other,
        })
    }

    fn no_answer(&self, error: &OutcallError, sent: &Secret) -> ApiError {
        let why = error.to_string().replace(sent.expose(), "***").replace(self.secret.expose(), "***");
        ApiError::NoAnswer { may_be_done: error.may_have_been_sent(), why }
    }
}

/// The first bytes of an error response to a download.
async fn beginning(answer: OpenAnswer) -> Vec<u8> {
    use futures_util::StreamExt as _;
    let (mut body, mut whole) = (answer.body, Vec::new());
    while let Some(Ok(piece)) = body.next().await {
        whole.extend_from_slice(&piece);
        if whole.len() > 64 << 10 {
            break;
        }
    }
    whole
}

fn is_text(mime: Option<&str>) -> bool {
    mime.is_none_or(|mime| mime.starts_with("application/json") || mime.starts_with("text/"))
}

fn unreadable(status: u16) -> ApiError {
    ApiError::NoAnswer { may_be_done: true, why: unanswered::without_body(status) }
}

fn read<T: DeserializeOwned>(answer: &HttpAnswer) -> Result<T, ApiError> {
    match answer.status {
        200..300 => {
            let value: Value = serde_json::from_slice(&answer.body).map_err(|_| unreadable(answer.status))?;
            if !value.is_object() {
                return Err(unreadable(answer.status));
            }
            let Head { errcode, errmsg } = Head::deserialize(&value).map_err(|_| unreadable(answer.status))?;
            match errcode {
                0 => serde_json::from_value(value).map_err(|_| unreadable(answer.status)),
                code => Err(ApiError::Refused { code, message: errmsg }),
            }
        }
        status @ 300..500 => Err(ApiError::Status(status)),
        status => Err(ApiError::NoAnswer { may_be_done: true, why: format!("status {status}") }),
    }
}

/// As a value in a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            true => out.push(byte.into()),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use frontdesk_core::port::platform::Acted;
    use frontdesk_wire::Code;

    use super::*;

    fn acted(status: u16, body: &str) -> Acted {
        let answer = HttpAnswer { body: body.as_bytes().to_vec(), ..HttpAnswer::of(status) };
        read::<Token>(&answer).err().unwrap().into()
    }

    #[test]
    fn refusals_differ_from_unknown_outcomes() {
        for (code, wanted) in [
            (60_020, Code::Forbidden),
            (81_013, Code::NotFound),
            (45_009, Code::RateLimited),
            (48_002, Code::Forbidden),
            (-1, Code::Unavailable),
            (12_345, Code::PlatformFailed),
        ] {
            let result = acted(200, &format!(r#"{{"errcode":{code},"errmsg":"no"}}"#)).result;
            assert_eq!((result.code, result.ambiguous), (Some(wanted), false), "{code}");
        }
        for (status, body) in [(500, "{}"), (502, "<html>"), (200, ""), (200, "[]"), (200, r#"{"errcode":"x"}"#)] {
            let result = acted(status, body).result;
            assert_eq!((result.code, result.ambiguous), (Some(Code::Unknown), true), "{status} {body}");
        }
        for status in [302, 403, 404] {
            assert_eq!(acted(status, "<html>").result.code, Some(Code::PlatformFailed));
        }
        assert_eq!(acted(200, r#"{"errcode":45009,"errmsg":"x"}"#).pace.retry_after_ms, Some(60_000));
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(encoded("a-_.~Z9"), "a-_.~Z9");
        assert_eq!(encoded("a b&c=d/é+"), "a%20b%26c%3Dd%2F%C3%A9%2B");
    }
}
