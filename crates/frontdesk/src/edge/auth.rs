//! Authentication: the only place where a bearer token becomes a `Caller`, an `Identity` or a tenant.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use frontdesk_core::directory::facts::Scope;
use frontdesk_core::directory::{Caller, Identity, ProvenInstance, Unproven};
use frontdesk_wire::Code;
use frontdesk_wire::TenantId;
use frontdesk_wire::secret::same_bytes;
use url::Url;

use super::App;
use super::body_memory::BodyReservation;
use super::error::Refusal;
use crate::identity::Unknown;

pub(crate) const SESSION_COOKIE: &str = "frontdesk_chat";

pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// A gateway, authenticated by its upgrade token.
pub(crate) fn gateway(app: &App, token: Option<&str>) -> Result<Caller, Unproven> {
    token.map_or(Err(Unproven::Unauthorized), |token| app.desk.directory().prove_gateway(token))
}

/// An unknown caller is unauthorized; a server that cannot tell asks for a later retry.
fn refused(why: Unproven) -> Refusal {
    match why {
        Unproven::Unavailable => Refusal::new(Code::Unavailable, why.to_string()).plain(),
        Unproven::Expired | Unproven::Unauthorized => Refusal::unauthorized().plain(),
    }
}

pub(crate) struct Gateway(pub(crate) Caller);

impl FromRequestParts<App> for Gateway {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let caller = gateway(app, bearer(&parts.headers)).map_err(refused)?;
        BodyReservation::prove(parts, &caller.tenant);
        Ok(Self(caller))
    }
}

/// An instance that manages itself, authenticated by its gateway's upgrade token or by a JWT about it.
pub(crate) struct Managed(pub(crate) ProvenInstance);

impl FromRequestParts<App> for Managed {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let instance = managed(parts, app).await?;
        BodyReservation::prove(parts, &instance.tenant);
        Ok(Self(instance))
    }
}

async fn managed(parts: &Parts, app: &App) -> Result<ProvenInstance, Refusal> {
    let unauthorized = || Refusal::unauthorized().plain();
    let token = bearer(&parts.headers).ok_or_else(unauthorized)?;
    if !token.contains('.') {
        // Upgrade tokens are base64url without dots; a JWT has two dots.
        return app.desk.directory().prove_gateway(token).map(|caller| caller.proven_instance()).map_err(refused);
    }
    let signed = app.agent_jwt.as_ref().ok_or_else(unauthorized)?;
    let instance = signed.prove(token).await.map_err(|why| {
        tracing::info!(%why, "signed token refused at /manage");
        unauthorized()
    })?;
    app.desk.directory().prove_instance(&instance, signed.tenant.as_ref()).ok_or_else(unauthorized)
}

/// The holder of an identity token, for provision and enroll.
pub(crate) struct Proven(pub(crate) Identity);

impl FromRequestParts<App> for Proven {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let token = bearer(&parts.headers).ok_or_else(|| Refusal::unauthorized().plain())?;
        let code = match app.identities.prove(&app.desk, token).await {
            Ok(identity) => {
                BodyReservation::prove(parts, &identity.tenant);
                return Ok(Self(identity));
            }
            Err(Unknown::Invalid) => return Err(Refusal::unauthorized().plain()),
            Err(why @ Unknown::NoTenant(_)) => (Code::Forbidden, why),
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
        if !good {
            return Err(Refusal::unauthorized());
        }
        BodyReservation::prove_operator(parts);
        Ok(Self)
    }
}

/// A client of the built-in chat, with a token of scope `chat` or the page's cookie.
pub(crate) struct ChatCaller {
    pub(crate) tenant: TenantId,
    proof: ChatProof,
}

enum ChatProof {
    /// Id of the token.
    Token(String),
    /// Value of the cookie.
    Session(String),
}

impl ChatCaller {
    /// Whether the proof is still valid: a stream ends when the token that opened it does.
    pub(crate) fn is_still_good(&self, app: &App) -> bool {
        match &self.proof {
            ChatProof::Token(id) => app.desk.directory().is_live_token(id),
            ChatProof::Session(session) => chat_session(app, session).is_some(),
        }
    }
}

impl FromRequestParts<App> for ChatCaller {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        let by_token = bearer(&parts.headers).and_then(|token| app.desk.directory().prove_token(token, Scope::Chat));
        if let Some(token) = by_token {
            BodyReservation::prove(parts, &token.tenant);
            return Ok(Self { tenant: token.tenant, proof: ChatProof::Token(token.id) });
        }
        let session = cookie(&parts.headers, SESSION_COOKIE).ok_or_else(Refusal::unauthorized)?;
        let tenant = chat_session(app, session).ok_or_else(Refusal::unauthorized)?;
        BodyReservation::prove(parts, &tenant);
        Ok(Self { tenant, proof: ChatProof::Session(session.to_owned()) })
    }
}

/// The tenant of a page session that has not expired and whose token is still valid. One without a token is valid for as
/// long as it could be opened again.
pub(crate) fn chat_session(app: &App, session: &str) -> Option<TenantId> {
    let (tenant, token) = app.pages.session(session, app.desk.env().now_ms())?;
    let is_good = match token {
        Some(id) => app.desk.directory().is_live_token(&id),
        None => tenant_of_this_machine(app).is_some_and(|it| it == tenant),
    };
    is_good.then_some(tenant)
}

/// The tenant whose chat opens without link or token. None if there are several tenants, or if the public URL is not a
/// loopback address (a local peer could then be a proxy for remote users).
pub(crate) fn tenant_of_this_machine(app: &App) -> Option<TenantId> {
    let tenant = app.pages.local_tenant()?;
    let is_only_one = app.desk.directory().read(|view| view.tenants().len() == 1 && view.tenant(tenant).is_some());
    let host = Url::parse(&app.public_url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    let is_loopback = host == "localhost"
        || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    (is_only_one && is_loopback).then(|| tenant.clone())
}

/// The tenant of a chat client.
pub(crate) struct ChatTenant(pub(crate) TenantId);

impl FromRequestParts<App> for ChatTenant {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Refusal> {
        ChatCaller::from_request_parts(parts, app).await.map(|caller| Self(caller.tenant))
    }
}

pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}
