//! Calls of the open API. The access token of the app is asked for once, and again when it ends or is refused.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::outcall::{Body, Call, HttpAnswer, HttpMethod, OpenAnswer};
use frontdesk_core::port::platform::Bot;
use frontdesk_wire::Secret;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::Feishu;
use super::account::{app_id, base};
use super::failure::{ApiError, no_answer, read};
use super::refusals::OF_TOKEN;
use super::value::text_of;
use crate::shared::tokens::{Granted, Tokens};

/// The longest answers are pages of members, and messages with their content.
const ANSWER_MAX_BYTES: usize = 2 << 20;
/// A token is replaced this long before it expires.
const TOKEN_MARGIN_MS: u64 = 600_000;
const TOKEN_MAX_BYTES: usize = 4 << 10;
/// Bytes read of an error response to a download.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

/// After a failure no token is requested for this time.
const TOKEN_FAILED_MS: u64 = 3_000;
/// Time limits for one token request, and for the whole wait including requests of other callers. Together with the call
/// itself they stay below the 25 s of an action, so that the action returns the real reason.
const TOKEN_ASK_TIME: Duration = Duration::from_secs(6);
const TOKEN_WAIT_TIME: Duration = Duration::from_secs(8);

/// The cache of access tokens; its keys are bot, app and secret.
pub(super) fn no_tokens() -> Tokens<ApiError> {
    Tokens::new(TOKEN_MARGIN_MS, TOKEN_FAILED_MS)
}

/// The API as one bot.
#[derive(Clone, Copy)]
pub(super) struct Api<'a> {
    feishu: &'a Feishu,
    pub(super) bot: &'a Bot,
}

impl Feishu {
    pub(super) fn api<'a>(&'a self, bot: &'a Bot) -> Api<'a> {
        Api { feishu: self, bot }
    }
}

impl Api<'_> {
    /// A call that only asks.
    pub(super) async fn ask(&self, path: &str) -> Result<Value, ApiError> {
        self.call(HttpMethod::Get, path, None).await.map_err(ApiError::of_question)
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        self.call(HttpMethod::Post, path, Some(body)).await
    }

    pub(super) async fn call(&self, method: HttpMethod, path: &str, body: Option<&Value>) -> Result<Value, ApiError> {
        let json = body.map(Value::to_string);
        let mut refused: Option<Arc<Secret>> = None;
        loop {
            let token = self.token(refused.as_deref()).await?;
            let body = json.as_deref().map_or(Body::Empty, Body::Json);
            match self.once(method, path, body, &token).await {
                Err(error) if error.is(&OF_TOKEN) && refused.is_none() => refused = Some(token),
                outcome => return outcome.map(|mut value| value["data"].take()),
            }
        }
    }

    /// A form with a file. The file can be read only once, so the caller must open it again if the token is refused.
    pub(super) async fn upload(&self, path: &str, body: Body<'_>, token: &Secret) -> Result<Value, ApiError> {
        let outcome = self.once(HttpMethod::Post, path, body, token).await;
        outcome.map(|mut value| value["data"].take())
    }

    /// The whole answer: some old calls return their result beside `data`.
    pub(super) async fn ask_whole(&self, path: &str) -> Result<Value, ApiError> {
        let token = self.token(None).await?;
        let outcome = self.once(HttpMethod::Get, path, Body::Empty, &token).await;
        match outcome {
            Err(error) if error.is(&OF_TOKEN) => {
                let token = self.token(Some(&token)).await?;
                self.once(HttpMethod::Get, path, Body::Empty, &token).await
            }
            outcome => outcome,
        }
        .map_err(ApiError::of_question)
    }

    /// A file. `Err`: what Feishu answered instead.
    pub(super) async fn open(&self, path: &str, max_bytes: usize) -> Result<OpenAnswer, ApiError> {
        let token = self.token(None).await?;
        match self.open_once(path, max_bytes, &token).await {
            Err(error) if error.is(&OF_TOKEN) => {
                let token = self.token(Some(&token)).await?;
                self.open_once(path, max_bytes, &token).await
            }
            opened => opened,
        }
    }

    async fn open_once(&self, path: &str, max_bytes: usize, token: &Secret) -> Result<OpenAnswer, ApiError> {
        let url = format!("{}{path}", base(self.bot));
        let trusted = self.bot.setting("base_url");
        let call = Call { url: &url, bearer: Some(token), trusted, max_bytes, ..Call::default() };
        let opened = self.feishu.outcall.open(call).await.map_err(|error| no_answer(&error))?;
        if (200..300).contains(&opened.status) {
            return Ok(opened);
        }
        let OpenAnswer { status, headers, mut body } = opened;
        let mut bytes = Vec::new();
        while let Some(Ok(piece)) = body.next().await {
            bytes.extend_from_slice(&piece);
            if bytes.len() > REFUSAL_MAX_BYTES {
                break;
            }
        }
        let answer = HttpAnswer { status, headers, body: bytes };
        Err(read(&answer).err().unwrap_or(ApiError::unusable(false, &format!("status {status}"))))
    }

    async fn once(&self, method: HttpMethod, path: &str, body: Body<'_>, token: &Secret) -> Result<Value, ApiError> {
        let url = format!("{}{path}", base(self.bot));
        let call = Call {
            method,
            url: &url,
            bearer: Some(token),
            body,
            trusted: self.bot.setting("base_url"),
            max_bytes: ANSWER_MAX_BYTES,
            ..Call::default()
        };
        let answer = self.feishu.outcall.call(call).await.map_err(|error| no_answer(&error))?;
        read(&answer)
    }

    /// The one that is held, unless it is the refused one. Nothing was sent if there is none.
    pub(super) async fn token(&self, refused: Option<&Secret>) -> Result<Arc<Secret>, ApiError> {
        let secret = self.bot.secret("app_secret").map(Secret::expose).unwrap_or_default();
        let key = frontdesk_core::short_hash(&[&self.bot.id, app_id(self.bot), base(self.bot), secret]);
        let late = || ApiError::unusable(false, "it returned no access token in time");
        let ask = async {
            let outcome = timeout(TOKEN_ASK_TIME, self.new_token()).await;
            outcome.unwrap_or_else(|_| Err(late())).map_err(ApiError::of_question)
        };
        let token = self.feishu.tokens.get(key, self.feishu.env.steady_ms(), refused, ask);
        timeout(TOKEN_WAIT_TIME, token).await.unwrap_or_else(|_| Err(late()))
    }

    async fn new_token(&self) -> Result<Granted, ApiError> {
        let secret = self.bot.secret("app_secret").map(Secret::expose).unwrap_or_default();
        let url = format!("{}/open-apis/auth/v3/tenant_access_token/internal", base(self.bot));
        let json = json!({ "app_id": app_id(self.bot), "app_secret": secret }).to_string();
        let call = Call { trusted: self.bot.setting("base_url"), ..Call::post(&url, &json, ANSWER_MAX_BYTES) };
        let answer = self.feishu.outcall.call(call).await.map_err(|error| no_answer(&error))?;
        let response = read(&answer)?;
        let token = text_of(&response, "tenant_access_token");
        let is_token =
            (1..=TOKEN_MAX_BYTES).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(ApiError::unusable(false, "it returned no access token"));
        }
        let valid_ms = response["expire"].as_u64().unwrap_or_default().min(86_400).saturating_mul(1_000);
        Ok(Granted { token: Secret::new(token), valid_ms })
    }
}
