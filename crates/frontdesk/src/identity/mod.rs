//! Identity of a bearer token: a token created by the admin, a signed token of an issuer, or an account that is asked
//! about it. The same verifiers serve provision, enroll and cron.
//!
//! Tenant and instance come from the verified identity and our records, never from a request body.

mod agent_jwt;
mod introspect;
mod keyset;

use std::sync::Arc;

use anyhow::bail;
use frontdesk_core::directory::Identity;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_core::{Desk, Env};
use frontdesk_wire::InstanceId;
use jsonwebtoken::Algorithm;
use serde::Deserialize;
use serde_json::{Map, Value};

pub(crate) use agent_jwt::{AgentJwt, ManageSettings};
use introspect::Introspect;
use keyset::{KeySet, Unproven};

/// Sessions are mapped to instances by links on this pseudo platform.
const SESSION_PLATFORM: &str = "session";
const ALGORITHMS: &[Algorithm] =
    &[Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];

/// How bearer tokens are verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VerifierKind {
    Static,
    Oidc,
    Introspect,
}

/// `[identity]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub verifier: VerifierKind,
    pub issuer: String,
    pub jwks: String,
    pub audience: String,
    pub tenant_claim: String,
    pub url: String,
}

impl Settings {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        match self.verifier {
            VerifierKind::Oidc if self.issuer.is_empty() || self.jwks.is_empty() => {
                bail!("identity.verifier = \"oidc\" needs identity.issuer and identity.jwks")
            }
            VerifierKind::Oidc if self.audience.is_empty() => bail!(
                "identity.verifier = \"oidc\" needs identity.audience: without it every token of the issuer would be \
                 accepted, also those made for other services"
            ),
            VerifierKind::Introspect if self.url.is_empty() => {
                bail!("identity.verifier = \"introspect\" needs identity.url")
            }
            _ => Ok(()),
        }
    }
}

/// Why a bearer token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    #[error("a valid bearer token is required")]
    Invalid,
    /// Verified, but without a tenant on this server.
    #[error("{0}")]
    NoTenant(String),
    /// The identity provider failed or returned an invalid response; the token may be valid.
    #[error("the identity provider is unavailable; try again later")]
    Down,
}

pub struct Verifier {
    kind: Kind,
    tenant_claim: String,
}

enum Kind {
    Static,
    Oidc { keys: KeySet, issuer: String, audience: String },
    Introspect(Introspect),
}

/// Claims of a token or an account.
type Claims = Map<String, Value>;

impl Verifier {
    pub async fn open(settings: &Settings, env: Arc<dyn Env>, outcall: Arc<dyn Outcall>) -> anyhow::Result<Self> {
        let kind = match settings.verifier {
            VerifierKind::Static => Kind::Static,
            VerifierKind::Oidc => {
                let keys = KeySet::open(&settings.jwks, ALGORITHMS, env, outcall).await;
                let keys = keys.map_err(|error| error.context("identity.jwks"))?;
                Kind::Oidc { keys, issuer: settings.issuer.clone(), audience: settings.audience.clone() }
            }
            VerifierKind::Introspect => {
                let used = ["client_id", "azp", "sid", &settings.tenant_claim].map(str::to_owned).to_vec();
                Kind::Introspect(Introspect::new(settings.url.clone(), used, env, outcall))
            }
        };
        Ok(Self { kind, tenant_claim: settings.tenant_claim.clone() })
    }

    /// Tokens created by the admin are accepted with every verifier.
    pub async fn prove(&self, desk: &Desk, bearer: &str) -> Result<Identity, Unknown> {
        if let Some(identity) = desk.directory().prove_identity(bearer) {
            return Ok(identity);
        }
        let claims = match &self.kind {
            Kind::Static => return Err(Unknown::Invalid),
            Kind::Oidc { keys, issuer, audience } => oidc(keys, issuer, audience, bearer).await.map_err(|why| {
                tracing::info!(%why, "identity token refused");
                Unknown::Invalid
            })?,
            Kind::Introspect(account) => account.ask(bearer).await?,
        };
        self.identity(desk, &claims)
    }

    fn identity(&self, desk: &Desk, claims: &Claims) -> Result<Identity, Unknown> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let tenant = text(&self.tenant_claim).ok_or_else(|| {
            let text = "names the tenant; add it at the identity provider, or change identity.tenant_claim";
            Unknown::NoTenant(format!("the identity has no claim {:?}, which {text}", self.tenant_claim))
        })?;
        desk.directory().read(|view| {
            if view.tenant(&tenant.into()).is_none() {
                let text = format!("the tenant {tenant:?} of this identity does not exist on this server; create it, or correct the claim");
                return Err(Unknown::NoTenant(text));
            }
            let client = ["client_id", "azp"].into_iter().filter_map(text).find_map(|id| id.strip_prefix("agent:"));
            let by_session = || {
                let links = view.links(&tenant.into(), SESSION_PLATFORM, &text("sid")?.into());
                links.last().map(|link| link.instance.as_str())
            };
            let instance = client.filter(|id| !id.is_empty()).or_else(by_session).map(InstanceId::from);
            Ok(Identity { tenant: tenant.into(), instance })
        })
    }
}

async fn oidc(keys: &KeySet, issuer: &str, audience: &str, token: &str) -> Result<Claims, Unproven> {
    let claims: Claims = keys.read(token).await?;
    if claims.get("iss").and_then(Value::as_str) != Some(issuer) {
        return Err(Unproven::Issuer);
    }
    let number = |name: &str| claims.get(name).and_then(Value::as_u64);
    keys.check_time(number("exp").ok_or(Unproven::Form)?, number("nbf"))?;
    let meant = match claims.get("aud") {
        _ if audience.is_empty() => true,
        Some(Value::String(one)) => one == audience,
        Some(Value::Array(all)) => all.iter().any(|one| one.as_str() == Some(audience)),
        _ => false,
    };
    if meant { Ok(claims) } else { Err(Unproven::Audience) }
}
