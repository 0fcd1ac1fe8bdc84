//! Who is calling. The only place where a bearer becomes a `Caller`, an `Identity` or a tenant.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use frontdesk_core::desk::{Caller, Guest, Identity, Unproven};
use frontdesk_core::registry::facts::Scope;
use frontdesk_wire::Code;
use frontdesk_wire::secret::same_bytes;

use super::App;
use super::error::Refusal;
use super::page::SESSION_COOKIE;
use crate::identity::Unknown;

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A gateway, by its upgrade token.
pub(crate) fn gateway(app: &App, headers: &HeaderMap) -> Result<Caller, Unproven> {
    bearer(headers).map_or(Err(Unproven::Unauthorized), |token| app.desk.prove_gateway(token))
}

pub(crate) struct Gateway(pub(crate) Caller);

impl FromRequestParts<App> for Gateway {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        gateway(app, &parts.headers).map(Self).map_err(|_| Refusal::unauthorized().plain())
    }
}

/// An instance that manages its own affairs: by its gateway's upgrade token, or by a signed word about it.
pub(crate) struct Managed(pub(crate) Guest);

impl FromRequestParts<App> for Managed {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let unauthorized = || Refusal::unauthorized().plain();
        let token = bearer(&parts.headers).ok_or_else(unauthorized)?;
        if !token.contains('.') {
            // An upgrade token is base64url and has no dots; a signed word has two.
            return app.desk.prove_gateway(token).map(|caller| Self(caller.guest())).map_err(|_| unauthorized());
        }
        let signed = app.agent_jwt.as_ref().ok_or_else(unauthorized)?;
        let instance = signed.prove(token).await.map_err(|why| {
            tracing::info!(%why, "a signed token was refused at /manage");
            unauthorized()
        })?;
        app.desk.prove_instance(&instance, signed.tenant.as_deref()).map(Self).ok_or_else(unauthorized)
    }
}

/// Whoever holds an identity token, for provision and enroll.
pub(crate) struct Proven(pub(crate) Identity);

impl FromRequestParts<App> for Proven {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let token = bearer(&parts.headers).ok_or_else(|| Refusal::unauthorized().plain())?;
        let code = match app.identities.prove(&app.desk, token).await {
            Ok(identity) => return Ok(Self(identity)),
            Err(Unknown::Nobody) => return Err(Refusal::unauthorized().plain()),
            Err(why @ Unknown::Stranger(_)) => (Code::Forbidden, why),
            Err(why @ Unknown::Down) => (Code::Unavailable, why),
        };
        Err(Refusal::new(code.0, code.1.to_string()).plain())
    }
}

pub(crate) struct Admin;

impl FromRequestParts<App> for Admin {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let given = bearer(&parts.headers).unwrap_or_default();
        let good = same_bytes(given.as_bytes(), app.admin_token.expose().as_bytes());
        if good { Ok(Self) } else { Err(Refusal::unauthorized()) }
    }
}

/// The tenant of the built-in chat: by a token of scope `chat`, or by the page's cookie.
pub(crate) struct ChatTenant(pub(crate) String);

impl FromRequestParts<App> for ChatTenant {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let by_token = bearer(&parts.headers).and_then(|token| app.desk.prove_token(token, Scope::Chat));
        if let Some(token) = by_token {
            return Ok(Self(token.tenant));
        }
        let by_cookie = cookie(&parts.headers, SESSION_COOKIE).and_then(|session| app.pages.tenant(session));
        by_cookie.map(Self).ok_or_else(Refusal::unauthorized)
    }
}

pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}
