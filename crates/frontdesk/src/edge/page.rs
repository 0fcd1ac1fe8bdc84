//! Pages: the built-in chat and the API documentation. They load nothing from other sites.
//!
//! The chat opens with a one-time link, a chat token, or, on this machine only, without either.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::hmac;
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use frontdesk_core::Env;
use frontdesk_core::directory::facts::{Scope, Token};
use frontdesk_wire::{Code, TenantId};
use serde::{Deserialize, Serialize};

use super::App;
use super::auth::{SESSION_COOKIE, bearer, chat_session, cookie, tenant_of_this_machine};
use super::body::Json;
use super::error::Refusal;

const CODE_TTL_MS: u64 = 3_600_000;
const SESSION_TTL_MS: u64 = 7 * 86_400_000;
/// Part of the signed text, so that a link cannot be used as a session.
const CODE: &str = "code";
const SESSION: &str = "session";
const CSP: &str =
    "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const ASSETS: [(&str, &str, &str); 7] = [
    ("chat.css", "text/css; charset=utf-8", include_str!("../../assets/chat/chat.css")),
    ("chat.js", "text/javascript; charset=utf-8", include_str!("../../assets/chat/chat.js")),
    ("desk.js", "text/javascript; charset=utf-8", include_str!("../../assets/chat/desk.js")),
    ("messages.js", "text/javascript; charset=utf-8", include_str!("../../assets/chat/messages.js")),
    ("parts.js", "text/javascript; charset=utf-8", include_str!("../../assets/chat/parts.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../assets/chat/icon.svg")),
    ("docs.js", "text/javascript; charset=utf-8", include_str!("../../assets/chat/docs.js")),
];
const CHAT_PAGE: &str = include_str!("../../assets/chat/index.html");
const DOCS_PAGE: &str = include_str!("../../assets/chat/docs.html");

/// One-time links and page sessions. Both are signed texts, so that every server that has the same master key accepts
/// them, also after a restart. The store records which links were used.
pub struct Pages {
    key: hmac::Key,
    /// The tenant whose chat opens on this machine without a link.
    local_tenant: OnceLock<TenantId>,
}

/// The content of a link or a session.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pass {
    tenant: TenantId,
    until_ms: u64,
    /// The token of the session, which ends with it. `None`: it was opened on this machine without one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    token: Option<String>,
    nonce: String,
}

impl Pages {
    /// `key` is derived from the master key.
    pub fn new(key: &str) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), local_tenant: OnceLock::new() }
    }

    /// The content, and its signature for this use.
    fn sign(&self, usage: &str, pass: &Pass) -> String {
        let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(pass).unwrap_or_default());
        let signature = hmac::sign(&self.key, format!("{usage}.{text}").as_bytes());
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn read(&self, usage: &str, signed: &str, now_ms: u64) -> Option<Pass> {
        let (text, signature) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        hmac::verify(&self.key, format!("{usage}.{text}").as_bytes(), &signature).ok()?;
        let pass: Pass = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        (pass.until_ms > now_ms).then_some(pass)
    }

    /// Creates a one-time code that opens the chat of a tenant.
    pub fn new_code(&self, env: &dyn Env, tenant: &TenantId) -> String {
        let until_ms = env.now_ms() + CODE_TTL_MS;
        self.sign(CODE, &Pass { tenant: tenant.clone(), until_ms, token: None, nonce: env.random_hex(16) })
    }

    pub(crate) fn local_tenant(&self) -> Option<&TenantId> {
        self.local_tenant.get()
    }

    pub fn open_locally(&self, tenant: &TenantId) {
        let _ = self.local_tenant.set(tenant.clone()); // set once, at the start
    }

    /// Starts a session and returns its lifetime, which is limited by that of the token.
    fn begin(&self, env: &dyn Env, tenant: &TenantId, token: Option<&Token>) -> (String, u64) {
        let now_ms = env.now_ms();
        let expires_ms = token.and_then(|token| token.expires_ms).unwrap_or(u64::MAX);
        let until_ms = (now_ms + SESSION_TTL_MS).min(expires_ms);
        let (token, nonce) = (token.map(|token| token.id.clone()), env.random_hex(16));
        let session = self.sign(SESSION, &Pass { tenant: tenant.clone(), until_ms, token, nonce });
        (session, until_ms.saturating_sub(now_ms))
    }

    /// The tenant of an unexpired session, and its token.
    pub(crate) fn session(&self, session: &str, now_ms: u64) -> Option<(TenantId, Option<String>)> {
        self.read(SESSION, session, now_ms).map(|pass| (pass.tenant, pass.token))
    }
}

/// The token for the session that a code opens, if the code was not used before. The operator can list and revoke it.
async fn redeem(app: &App, code: &str) -> Result<Option<Arc<Token>>, Refusal> {
    let Some(pass) = app.pages.read(CODE, code, app.desk.env().now_ms()) else { return Ok(None) };
    if !app.desk.inbound().claim_once(&pass.tenant, "page code", &pass.nonce).await? {
        return Ok(None);
    }
    let directory = app.desk.directory();
    let made = directory.create_token(&pass.tenant, Scope::Chat, None, Some(SESSION_TTL_MS / 1000)).await?;
    Ok(directory.read(|view| view.token(&made.id).cloned()))
}

/// Runs to its end also if the client disconnects: a link that is used up without a session would be lost.
async fn redeem_to_end(app: &App, code: String) -> Result<Option<Arc<Token>>, Refusal> {
    let of_work = app.clone();
    let work = app.sessions.spawn(async move { redeem(&of_work, &code).await });
    work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "opening a chat link panicked");
        Err(Refusal::new(Code::Internal, "internal error while opening the link, see the server log"))
    })
}

#[derive(Deserialize)]
pub(crate) struct Opening {
    code: Option<String>,
}

/// The chat page. A one-time code, or a request from this machine, opens a session.
pub(crate) async fn open(
    State(app): State<App>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(opening): Query<Opening>,
    headers: HeaderMap,
) -> Response {
    if let Some(code) = opening.code {
        return match redeem_to_end(&app, code).await {
            Err(refusal) => refusal.into_response(),
            Ok(Some(token)) => {
                (session_cookie(&app, &token.tenant, Some(&token)), Redirect::to("/chat")).into_response()
            }
            // A used link must not lock out a user who has a session.
            Ok(None) if signed_in(&app, &headers) => Redirect::to("/chat").into_response(),
            Ok(None) => {
                let text = "this link was already used or has expired; use the newest link that the server printed, or \
                            create a token with `frontdesk token create --tenant T --scope chat`";
                Refusal::new(Code::Forbidden, text).into_response()
            }
        };
    }
    let page = html(CHAT_PAGE);
    if signed_in(&app, &headers) || !is_local(peer, &headers) {
        return page; // without a session the page asks for a token
    }
    match tenant_of_this_machine(&app) {
        Some(tenant) => (session_cookie(&app, &tenant, None), page).into_response(),
        None => page,
    }
}

#[derive(Deserialize)]
pub(crate) struct Login {
    token: String,
}

pub(crate) async fn login(State(app): State<App>, Json(login): Json<Login>) -> Result<Response, Refusal> {
    let token = app
        .desk
        .directory()
        .prove_token(login.token.trim(), Scope::Chat)
        .ok_or_else(|| Refusal::new(Code::Unauthorized, "not a valid token of scope chat"))?;
    Ok((session_cookie(&app, &token.tenant, Some(&token)), StatusCode::NO_CONTENT).into_response())
}

pub(crate) async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|(known, ..)| *known == name) {
        Some((_, kind, text)) => with_policy(kind, text),
        None => Refusal::new(Code::NotFound, "no such path").into_response(),
    }
}

pub(crate) async fn docs() -> Response {
    html(DOCS_PAGE)
}

pub(crate) async fn root() -> Redirect {
    Redirect::to("/chat")
}

fn signed_in(app: &App, headers: &HeaderMap) -> bool {
    bearer(headers).is_some()
        || cookie(headers, SESSION_COOKIE).is_some_and(|session| chat_session(app, session).is_some())
}

/// Whether the request comes from this machine and names this machine. Excludes proxies and DNS rebinding.
fn is_local(peer: SocketAddr, headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let forwarded = ["forwarded", "x-forwarded-for", "x-real-ip"].iter().any(|name| headers.contains_key(*name));
    peer.ip().is_loopback() && ["127.0.0.1", "localhost", "[::1]"].contains(&name) && !forwarded
}

fn session_cookie(app: &App, tenant: &TenantId, token: Option<&Token>) -> [(header::HeaderName, HeaderValue); 1] {
    let (session, good_ms) = app.pages.begin(app.desk.env(), tenant, token);
    let secure = if app.public_url.starts_with("https://") { "; Secure" } else { "" };
    let text = format!(
        "{SESSION_COOKIE}={session}; Path=/chat; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
        good_ms / 1000
    );
    // Base64, a dot and fixed text: always a valid header.
    [(header::SET_COOKIE, HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("")))]
}

fn html(page: &'static str) -> Response {
    with_policy("text/html; charset=utf-8", page)
}

fn with_policy(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CONTENT_SECURITY_POLICY, CSP),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    (headers, text).into_response()
}
