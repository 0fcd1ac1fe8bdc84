//! Calls of the open API. The access token of the app is asked for once, and again when it ends or is refused.

use std::sync::Arc;

use frontdesk_core::port::outcall::{Answer, Body, Call, HttpMethod, OpenAnswer};
use frontdesk_core::port::platform::Bot;
use frontdesk_wire::Secret;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::Feishu;
use super::account::{app_id, base};
use super::failure::{ApiError, no_answer, read};
use super::refusals::OF_TOKEN;
use super::value::text_of;

/// The longest answers are pages of members, and messages with their content.
const ANSWER_MAX_BYTES: usize = 2 << 20;
/// A token is not used for as long as this before it ends.
const TOKEN_MARGIN_MS: u64 = 600_000;
const TOKEN_MAX_BYTES: usize = 4 << 10;
/// What is read of an answer that is no file.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

/// Bot, app and a mark of its secret.
pub(super) type TokenKey = (String, String, String);
/// Whoever asks for a token holds it, so that others wait for the same one.
pub(super) type HeldToken = Arc<Mutex<Option<Token>>>;

pub(super) struct Token {
    secret: Arc<Secret>,
    until_ms: u64,
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

    fn held_token(&self, bot: &Bot) -> HeldToken {
        let secret = bot.secret("app_secret").map(Secret::expose).unwrap_or_default();
        let mark = hex::encode(frontdesk_core::short_hash(&[base(bot), secret]));
        let (key, now_ms) = ((bot.id.clone(), app_id(bot).to_owned(), mark), self.env.now_ms());
        self.tokens.get_or_put(key, now_ms, HeldToken::default)
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

    /// A form with a file, which is made again for a second attempt.
    pub(super) async fn upload<'b>(&self, path: &str, body: impl Fn() -> Body<'b>) -> Result<Value, ApiError> {
        let token = self.token(None).await?;
        let told = match self.once(HttpMethod::Post, path, body(), &token).await {
            Err(error) if error.is(&OF_TOKEN) => {
                let token = self.token(Some(&token)).await?;
                self.once(HttpMethod::Post, path, body(), &token).await
            }
            told => told,
        };
        told.map(|mut value| value["data"].take())
    }

    /// Beside `data`: some old calls answer without it.
    pub(super) async fn ask_whole(&self, path: &str) -> Result<Value, ApiError> {
        let token = self.token(None).await?;
        let told = self.once(HttpMethod::Get, path, Body::Empty, &token).await;
        match told {
            Err(error) if error.is(&OF_TOKEN) => {
                let token = self.token(Some(&token)).await?;
                self.once(HttpMethod::Get, path, Body::Empty, &token).await
            }
            told => told,
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
        let answer = Answer { status, headers, body: bytes };
        Err(read(&answer).err().unwrap_or(ApiError::NoAnswer { may_be_done: false, why: format!("status {status}") }))
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
    async fn token(&self, refused: Option<&Secret>) -> Result<Arc<Secret>, ApiError> {
        let held = self.feishu.held_token(self.bot);
        let mut held = held.lock().await;
        let now_ms = self.feishu.env.now_ms();
        let is_refused = |token: &Secret| refused.is_some_and(|refused| refused.expose() == token.expose());
        if let Some(token) = held.as_ref().filter(|it| now_ms < it.until_ms && !is_refused(&it.secret)) {
            return Ok(token.secret.clone());
        }
        *held = None;
        let token = self.new_token(now_ms).await.map_err(ApiError::of_question)?;
        let secret = token.secret.clone();
        *held = Some(token);
        Ok(secret)
    }

    async fn new_token(&self, now_ms: u64) -> Result<Token, ApiError> {
        let secret = self.bot.secret("app_secret").map(Secret::expose).unwrap_or_default();
        let url = format!("{}/open-apis/auth/v3/tenant_access_token/internal", base(self.bot));
        let json = json!({ "app_id": app_id(self.bot), "app_secret": secret }).to_string();
        let call = Call { trusted: self.bot.setting("base_url"), ..Call::post(&url, &json, ANSWER_MAX_BYTES) };
        let answer = self.feishu.outcall.call(call).await.map_err(|error| no_answer(&error))?;
        let told = read(&answer)?;
        let token = text_of(&told, "tenant_access_token");
        let is_token =
            (1..=TOKEN_MAX_BYTES).contains(&token.len()) && token.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_token {
            return Err(ApiError::NoAnswer { may_be_done: false, why: "it told no access token".into() });
        }
        let lasts_ms = told["expire"].as_u64().unwrap_or_default().min(86_400).saturating_mul(1_000);
        // A short one is used for half of its time.
        let margin_ms = TOKEN_MARGIN_MS.min(lasts_ms / 2);
        Ok(Token { secret: Arc::new(Secret::new(token)), until_ms: now_ms + lasts_ms - margin_ms })
    }
}
