//! The keys that sign fires: made at the first start, sealed in the directory, rotated on request.

use std::sync::{Arc, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::Secret;
use frontdesk_wire::cron::PURPOSE;
use serde_json::{Value, json};

use super::CronPlane;
use super::signing::{FireClaims, Signet, new_key};
use crate::directory::facts::{Fact, Instance, SigningKey};
use crate::directory::{Draft, View};
use crate::error::DeskError;
use crate::port::store::StoreError;

/// A fire's token is good for this long.
const TOKEN_S: u64 = 90;
/// Tokens that were signed just before a rotation must be checkable for a while.
const RETIRED_KEY_MS: u64 = 86_400_000;

impl CronPlane {
    pub(super) fn fire_token(&self, instance: &Instance) -> Result<Secret, String> {
        let signet = self.signets().first().cloned().ok_or("there is no signing key")?;
        let now_s = self.env.now_s();
        let claims = FireClaims {
            iss: &self.rules.issuer,
            aud: format!("agent:{}", instance.name),
            purpose: PURPOSE,
            iat: now_s,
            nbf: now_s,
            exp: now_s + TOKEN_S,
            jti: self.env.random_hex(16),
        };
        signet.sign(&claims).map(Secret::new).map_err(|error| error.to_string())
    }

    /// Public keys by which agents check fires.
    pub fn jwks(&self) -> Value {
        json!({ "keys": self.signets().iter().map(|signet| signet.jwk()).collect::<Vec<_>>() })
    }

    /// Those that may be used or checked now, the one that signs first.
    fn signets(&self) -> Vec<Arc<Signet>> {
        let now_ms = self.env.now_ms();
        let held = self.clock.signets.read().unwrap_or_else(PoisonError::into_inner);
        let live = held.iter().filter(|(_, retires_ms)| retires_ms.is_none_or(|at| at > now_ms));
        live.map(|(signet, _)| signet.clone()).collect()
    }

    /// Opens the keys; the first start, and a change of the algorithm, make one.
    pub(super) async fn cut_signet(&self) -> Result<(), StoreError> {
        let alg = self.rules.fire_alg;
        let has_one = self
            .directory
            .read(|view| view.signing_keys.values().any(|key| key.alg == alg && key.retires_ms.is_none()));
        match has_one {
            true => self.read_signets(),
            false => match self.rotate_signet().await {
                Ok(_) => Ok(()),
                Err(DeskError::Store(error)) => Err(error),
                Err(error) => Err(StoreError::Unavailable(error.to_string())),
            },
        }
    }

    /// A new key signs from now on; those before it can be checked for a day more. Returns its id.
    pub async fn rotate_signet(&self) -> Result<String, DeskError> {
        let (alg, now_ms) = (self.rules.fire_alg, self.env.now_ms());
        let made = new_key(alg).map_err(|error| DeskError::BadRequest(error.to_string()))?;
        let kid = self.env.random_hex(8);
        let text = Secret::new(STANDARD.encode(&*made));
        let sealed = hex::encode(self.sealer.seal(&*self.env, &text, &["signing key", &kid]));
        let fresh = SigningKey { kid: kid.clone(), alg, sealed, made_ms: now_ms, retires_ms: None };
        let decide = |view: &View, draft: &mut Draft| {
            for old in view.signing_keys.values() {
                match old.retires_ms {
                    None => {
                        let retired = SigningKey { retires_ms: Some(now_ms + RETIRED_KEY_MS), ..(**old).clone() };
                        draft.put(Fact::SigningKey(retired));
                    }
                    Some(at) if at <= now_ms => draft.remove(&Fact::SigningKey((**old).clone())),
                    Some(_) => {}
                }
            }
            draft.put(Fact::SigningKey(fresh));
            Ok::<_, DeskError>(())
        };
        self.directory.write(decide).await.map_err(DeskError::from)?;
        self.read_signets()?;
        Ok(kid)
    }

    /// The one that signs first, then those that can still be checked.
    fn read_signets(&self) -> Result<(), StoreError> {
        let now_ms = self.env.now_ms();
        let mut keys: Vec<Arc<SigningKey>> = self.directory.read(|view| view.signing_keys.values().cloned().collect());
        keys.retain(|key| key.retires_ms.is_none_or(|at| at > now_ms));
        keys.sort_by_key(|key| (key.retires_ms.is_some(), std::cmp::Reverse(key.made_ms)));
        let open = |key: &Arc<SigningKey>| {
            let sealed = hex::decode(&key.sealed).ok()?;
            let text = self.sealer.open(&sealed, &["signing key", &key.kid]).ok()?;
            let pkcs8 = zeroize::Zeroizing::new(STANDARD.decode(text.expose()).ok()?);
            Some((Signet::open(&key.kid, key.alg, &pkcs8).ok()?, key.retires_ms))
        };
        let opened: Option<Vec<_>> = keys.iter().map(open).collect();
        let opened = opened
            .ok_or_else(|| StoreError::Corrupt("a signing key does not open; is this the right master.key?".into()))?;
        *self.clock.signets.write().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(())
    }
}
