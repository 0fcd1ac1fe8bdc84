//! Verifies the token of an alarm call with the public keys of the server. They are kept for the life of the process,
//! and read again for an unknown key id, with a rate limit.

use std::collections::HashMap;
use std::sync::Mutex;

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;

use super::provider::Clock;
use crate::transport::BoxFuture;

const LEEWAY_S: i64 = 30;
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);
const TOKEN_MAX_BYTES: usize = 8 * 1024;
const TAKEN: [Algorithm; 5] =
    [Algorithm::ES256, Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::ES384];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAFire {
    #[error("the token is malformed")]
    Form,
    #[error("the signing key is not one of the server's")]
    Key,
    #[error("the signature is invalid")]
    Signature,
    #[error("the token is for another agent")]
    Audience,
    #[error("the token was issued by another server")]
    Issuer,
    #[error("the token is not for alarm calls")]
    Purpose,
    #[error("the token is expired or not yet valid")]
    Time,
}

/// Source of the keys.
pub trait KeySource: Send + Sync {
    fn keys(&self) -> BoxFuture<'_, Option<JwkSet>>;
}

/// `{base}/.well-known/jwks.json`.
pub struct UrlKeys {
    url: String,
    client: reqwest::Client,
}

impl UrlKeys {
    pub fn new(url: impl Into<String>) -> Option<Self> {
        #[allow(clippy::disallowed_methods)] // calls only the configured server
        let client = reqwest::Client::builder().timeout(std::time::Duration::from_secs(10)).build().ok()?;
        Some(Self { url: url.into(), client })
    }
}

impl KeySource for UrlKeys {
    fn keys(&self) -> BoxFuture<'_, Option<JwkSet>> {
        Box::pin(async move {
            let response = self.client.get(&self.url).send().await.ok()?.error_for_status().ok()?;
            serde_json::from_slice(&response.bytes().await.ok()?).ok()
        })
    }
}

pub struct FireVerifier {
    source: Box<dyn KeySource>,
    /// Base URL of the server, compared byte by byte.
    issuer: String,
    /// `agent:{instance}`.
    audience: String,
    clock: Clock,
    keys: Mutex<HashMap<String, (DecodingKey, Algorithm)>>,
    looked_at: tokio::sync::Mutex<Option<Timestamp>>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default)]
    purpose: Option<String>,
}

impl FireVerifier {
    pub fn new(source: Box<dyn KeySource>, issuer: &str, instance: &str, clock: Clock) -> Self {
        let audience = format!("agent:{instance}");
        let (keys, looked_at) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { source, issuer: issuer.into(), audience, clock, keys, looked_at }
    }

    pub async fn check(&self, token: &str) -> Result<(), NotAFire> {
        if token.len() > TOKEN_MAX_BYTES {
            return Err(NotAFire::Form);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| NotAFire::Form)?;
        let kid = header.kid.unwrap_or_default();
        let (key, algorithm) = self.key(&kid).await.ok_or(NotAFire::Key)?;
        if header.alg != algorithm {
            return Err(NotAFire::Form);
        }
        let mut rules = Validation::new(algorithm);
        // Times are checked with our own clock below, like the other claims.
        (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
        rules.required_spec_claims.clear();
        let claims = jsonwebtoken::decode::<Claims>(token, &key, &rules).map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::InvalidSignature => NotAFire::Signature,
            _ => NotAFire::Form,
        })?;
        let claims = claims.claims;
        let now_s = (self.clock)().as_second();
        if claims.aud != self.audience {
            return Err(NotAFire::Audience);
        }
        if claims.iss != self.issuer {
            return Err(NotAFire::Issuer);
        }
        if claims.purpose.as_deref() != Some(frontdesk_wire::cron::PURPOSE) {
            return Err(NotAFire::Purpose);
        }
        if claims.exp + LEEWAY_S <= now_s || claims.nbf.is_some_and(|nbf| nbf > now_s + LEEWAY_S) {
            return Err(NotAFire::Time);
        }
        Ok(())
    }

    async fn key(&self, kid: &str) -> Option<(DecodingKey, Algorithm)> {
        let known = || self.keys.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(kid).cloned();
        if let Some(key) = known() {
            return Some(key);
        }
        let mut looked_at = self.looked_at.lock().await;
        if let Some(key) = known() {
            return Some(key); // another caller read the keys in the meantime
        }
        let now = (self.clock)();
        if looked_at.is_some_and(|at| now.duration_since(at) < LOOK_AGAIN) {
            return None;
        }
        *looked_at = Some(now);
        let set = self.source.keys().await?;
        let usable = set.keys.iter().filter_map(|jwk| {
            let named = jwk.common.key_algorithm.as_ref()?.to_string().parse::<Algorithm>().ok()?;
            let algorithm = Some(named).filter(|named| TAKEN.contains(named))?;
            Some((jwk.common.key_id.clone().unwrap_or_default(), (DecodingKey::from_jwk(jwk).ok()?, algorithm)))
        });
        *self.keys.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = usable.collect();
        known()
    }
}
