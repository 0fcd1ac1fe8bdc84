//! Public keys of issuers, read from a file or URL and cached. An unknown key id causes a refresh, but with a minimum
//! interval, however many requests come.
//!
//! The algorithm is taken from the key, never from the token.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use anyhow::{Context as _, bail};
use frontdesk_core::Env;
use frontdesk_core::port::outcall::Outcall;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::de::DeserializeOwned;

const TOKEN_MAX_BYTES: usize = 8 * 1024;
const KEYS_MAX_BYTES: usize = 256 * 1024;
/// Cached keys are refreshed after this time, so that a removed key is noticed.
pub(super) const KEYS_LIFE_MS: u64 = 600_000;
/// Minimum time between two refreshes, however many unknown key ids come.
pub(super) const LOOK_AGAIN_MS: u64 = 10_000;
/// Tolerated clock difference.
pub(super) const LEEWAY_S: u64 = 30;

/// Why a token was refused. Only logged; the caller learns only that it was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    #[error("the token is not a well-formed JWT")]
    Form,
    #[error("the token's algorithm does not match the key")]
    Algorithm,
    #[error("the token's key id is not in the issuer's key set")]
    Key,
    #[error("the signature does not match")]
    Signature,
    #[error("the token has another issuer")]
    Issuer,
    #[error("the token has another audience")]
    Audience,
    #[error("the token has expired or is not valid yet")]
    Time,
}

pub(super) struct KeySet {
    source: KeySource,
    /// Accepted algorithms.
    algorithms: &'static [Algorithm],
    env: Arc<dyn Env>,
    outcall: Arc<dyn Outcall>,
    keys: RwLock<Keys>,
    /// One refresh at a time; other callers wait for its result.
    looking: tokio::sync::Mutex<()>,
}

enum KeySource {
    File(PathBuf),
    Url(String),
}

type Key = (DecodingKey, Algorithm);

#[derive(Default)]
struct Keys {
    by_id: HashMap<String, Key>,
    /// When the keys were last read, and when reading was last attempted.
    read_ms: u64,
    tried_ms: u64,
}

impl KeySet {
    /// A file that cannot be read is an error at start. A URL may become available later.
    pub(super) async fn open(
        at: &str,
        algorithms: &'static [Algorithm],
        env: Arc<dyn Env>,
        outcall: Arc<dyn Outcall>,
    ) -> anyhow::Result<Self> {
        let source = match at.starts_with("https://") || at.starts_with("http://") {
            true => KeySource::Url(at.to_owned()),
            false => KeySource::File(at.into()),
        };
        let (keys, looking) = (RwLock::default(), tokio::sync::Mutex::new(()));
        let set = Self { source, algorithms, env, outcall, keys, looking };
        match set.look().await {
            Ok(()) => {}
            Err(error) if matches!(set.source, KeySource::File(_)) => return Err(error),
            // Until then all its tokens are refused.
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "loading the public keys failed; retrying on use");
            }
        }
        Ok(set)
    }

    /// The claims of a token if a key of this set signed it. The caller checks time, issuer and audience.
    pub(super) async fn read<T: DeserializeOwned>(&self, token: &str) -> Result<T, Unproven> {
        if token.len() > TOKEN_MAX_BYTES {
            return Err(Unproven::Form);
        }
        let header = jsonwebtoken::decode_header(token).map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::InvalidAlgorithmName | jsonwebtoken::errors::ErrorKind::Json(_) => {
                Unproven::Algorithm // includes "none", which the library does not know
            }
            _ => Unproven::Form,
        })?;
        if !self.algorithms.contains(&header.alg) {
            return Err(Unproven::Algorithm);
        }
        let (key, algorithm) = self.key(header.kid.as_deref().unwrap_or_default()).await.ok_or(Unproven::Key)?;
        if header.alg != algorithm {
            return Err(Unproven::Algorithm);
        }
        let mut rules = Validation::new(algorithm);
        // The caller checks these, with the clock of `Env`.
        (rules.validate_exp, rules.validate_nbf, rules.validate_aud) = (false, false, false);
        rules.required_spec_claims.clear();
        let read = jsonwebtoken::decode::<T>(token, &key, &rules).map_err(|error| match error.kind() {
            jsonwebtoken::errors::ErrorKind::InvalidSignature => Unproven::Signature,
            _ => Unproven::Form,
        })?;
        Ok(read.claims)
    }

    /// Checks that the token is valid at this time.
    pub(super) fn check_time(&self, exp: u64, nbf: Option<u64>) -> Result<(), Unproven> {
        let now_s = self.env.now_s();
        let begun = nbf.is_none_or(|nbf| nbf <= now_s + LEEWAY_S);
        if begun && exp.saturating_add(LEEWAY_S) > now_s { Ok(()) } else { Err(Unproven::Time) }
    }

    async fn key(&self, id: &str) -> Option<Key> {
        let now_ms = self.env.steady_ms();
        let (known, old, tried) = {
            let keys = self.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner);
            (keys.by_id.get(id).cloned(), now_ms.saturating_sub(keys.read_ms) > KEYS_LIFE_MS, keys.tried_ms)
        };
        let may_look = now_ms.saturating_sub(tried) > LOOK_AGAIN_MS;
        if (known.is_some() && !old) || !may_look {
            return known;
        }
        let _one_at_a_time = self.looking.lock().await;
        let tried = self.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner).tried_ms;
        if now_ms.saturating_sub(tried) > LOOK_AGAIN_MS
            && let Err(error) = self.look().await
        {
            tracing::warn!(
                error = format!("{error:#}"),
                "refreshing the public keys failed; the previous keys stay in use"
            );
        }
        self.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner).by_id.get(id).cloned()
    }

    async fn look(&self) -> anyhow::Result<()> {
        let now_ms = self.env.steady_ms();
        self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner).tried_ms = now_ms;
        let bytes = match &self.source {
            KeySource::File(path) => {
                tokio::fs::read(path).await.with_context(|| format!("cannot read {}", path.display()))?
            }
            KeySource::Url(url) => {
                let answer = self.outcall.get(url, KEYS_MAX_BYTES).await.with_context(|| url.clone())?;
                if answer.status != 200 {
                    bail!("{url} returned status {}", answer.status);
                }
                answer.body
            }
        };
        let by_id = parse(&bytes, self.algorithms)?;
        *self.keys.write().unwrap_or_else(std::sync::PoisonError::into_inner) =
            Keys { by_id, read_ms: now_ms, tried_ms: now_ms };
        Ok(())
    }
}

/// The signing keys with accepted algorithms, by key id.
fn parse(bytes: &[u8], algorithms: &[Algorithm]) -> anyhow::Result<HashMap<String, Key>> {
    let set: JwkSet = serde_json::from_slice(bytes).context("not a valid JWKS")?;
    let mut by_id = HashMap::new();
    for key in &set.keys {
        let signs = key.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let Some(algorithm) = algorithm_of(key).filter(|it| signs && algorithms.contains(it)) else { continue };
        let id = key.common.key_id.clone().unwrap_or_default();
        let parsed = DecodingKey::from_jwk(key).context("the JWKS has an invalid key")?;
        by_id.insert(id, (parsed, algorithm));
    }
    if by_id.is_empty() {
        bail!("the JWKS has no usable signing key");
    }
    Ok(by_id)
}

fn algorithm_of(key: &Jwk) -> Option<Algorithm> {
    let named = match key.common.key_algorithm {
        None => None,
        Some(KeyAlgorithm::RS256) => Some(Algorithm::RS256),
        Some(KeyAlgorithm::RS384) => Some(Algorithm::RS384),
        Some(KeyAlgorithm::RS512) => Some(Algorithm::RS512),
        Some(KeyAlgorithm::ES256) => Some(Algorithm::ES256),
        Some(KeyAlgorithm::ES384) => Some(Algorithm::ES384),
        Some(KeyAlgorithm::EdDSA) => Some(Algorithm::EdDSA),
        Some(_) => return None,
    };
    let usual = match &key.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::EllipticCurve(curve) if curve.curve == EllipticCurve::P384 => Algorithm::ES384,
        AlgorithmParameters::OctetKeyPair(_) => Algorithm::EdDSA,
        _ => return None,
    };
    Some(named.unwrap_or(usual))
}
