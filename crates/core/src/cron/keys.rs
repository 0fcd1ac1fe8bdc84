//! Keys that sign alarm calls: created at the first start, stored encrypted in the directory, rotated on request.

use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::Secret;
use frontdesk_wire::cron::{PURPOSE, SigningAlg};
use serde_json::{Value, json};

use super::signing::{FireClaims, SigningKey, new_key};
use crate::base::Base;
use crate::directory::facts::{Fact, Instance, SigningKeyRecord};
use crate::directory::{DirectoryPlane, Draft, View};
use crate::env::Env;
use crate::error::DeskError;
use crate::port::store::StoreError;
use crate::rules::Rules;
use crate::vault::Sealer;

/// Lifetime of the token in an alarm call.
const TOKEN_S: u64 = 90;
/// A key stays published for this long after a rotation, so that tokens it signed can be verified.
const RETIRED_KEY_MS: u64 = 86_400_000;

pub struct SigningKeys {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    sealer: Arc<Sealer>,
    rules: Arc<Rules>,
    /// Each with the time at which it retires.
    held: RwLock<Vec<(Arc<SigningKey>, Option<u64>)>>,
}

impl SigningKeys {
    pub(super) async fn open(
        base: &Base,
        directory: &Arc<DirectoryPlane>,
        sealer: &Arc<Sealer>,
    ) -> Result<Self, StoreError> {
        let keys = Self {
            env: base.env.clone(),
            directory: directory.clone(),
            sealer: sealer.clone(),
            rules: base.rules.clone(),
            held: RwLock::default(),
        };
        keys.make_first().await?;
        Ok(keys)
    }

    pub(super) fn fire_token(&self, instance: &Instance) -> Result<Secret, String> {
        let is_shared = |view: &View| view.live_instances_named(&instance.name).any(|it| it.no != instance.no);
        if self.directory.read(is_shared) {
            let why = "another tenant has an instance of this name, and the token of the call would be valid for both: \
                       provision it under another name, or arm its alarms with the callback \"relay:\"";
            return Err(why.into());
        }
        let key = self.live().first().cloned().ok_or("no signing key is available")?;
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
        key.sign(&claims).map(Secret::new).map_err(|error| error.to_string())
    }

    /// Public keys with which agents verify alarm calls.
    pub fn jwks(&self) -> Value {
        json!({ "keys": self.live().iter().map(|key| key.jwk()).collect::<Vec<_>>() })
    }

    /// Keys that are valid now; the first one signs.
    fn live(&self) -> Vec<Arc<SigningKey>> {
        let now_ms = self.env.now_ms();
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let live = held.iter().filter(|(_, retires_ms)| retires_ms.is_none_or(|at| at > now_ms));
        live.map(|(key, _)| key.clone()).collect()
    }

    /// Loads the keys. Creates one at the first start and after a change of the algorithm.
    async fn make_first(&self) -> Result<(), StoreError> {
        let alg = self.rules.fire_alg;
        // One that cannot be read by this version signs at newer servers: no second one is made beside it.
        let has_one = self
            .directory
            .read(|view| view.unreadable().has_kind("signing_key") || view.signing_keys().any(|key| is_live(key, alg)));
        match has_one {
            true => self.read(),
            // Several servers may start at the same time; only one of them creates the key.
            false => match self.make(|view| !view.signing_keys().any(|key| is_live(key, alg))).await {
                Ok(_) => Ok(()),
                Err(DeskError::Store(error)) => Err(error),
                Err(error) => Err(StoreError::Unavailable(error.to_string())),
            },
        }
    }

    /// Creates a new key, which signs from now on; earlier keys stay valid for a day. Returns its id.
    pub async fn rotate(&self) -> Result<String, DeskError> {
        self.make(|_| true).await
    }

    async fn make(&self, is_wanted: impl Fn(&View) -> bool) -> Result<String, DeskError> {
        let (alg, now_ms) = (self.rules.fire_alg, self.env.now_ms());
        let made = new_key(alg).map_err(|error| DeskError::BadRequest(error.to_string()))?;
        let kid = self.env.random_hex(8);
        let text = Secret::new(STANDARD.encode(&*made));
        let sealed = hex::encode(self.sealer.seal(&*self.env, &text, &["signing key", &kid]));
        let fresh = SigningKeyRecord { kid: kid.clone(), alg, sealed, made_ms: now_ms, retires_ms: None };
        let decide = |view: &View, draft: &mut Draft| {
            if !is_wanted(view) {
                return Ok(());
            }
            for old in view.signing_keys() {
                match old.retires_ms {
                    None => {
                        let retired = SigningKeyRecord { retires_ms: Some(now_ms + RETIRED_KEY_MS), ..(**old).clone() };
                        draft.put(Fact::SigningKey(retired));
                    }
                    Some(at) if at <= now_ms => draft.remove(&Fact::SigningKey((**old).clone())),
                    Some(_) => {}
                }
            }
            draft.put(Fact::SigningKey(fresh.clone()));
            Ok::<_, DeskError>(())
        };
        self.directory.write(decide).await.map_err(DeskError::from)?;
        self.read()?;
        Ok(kid)
    }

    /// Loads the valid keys; the one that signs comes first.
    pub(super) fn read(&self) -> Result<(), StoreError> {
        let now_ms = self.env.now_ms();
        let mut keys: Vec<Arc<SigningKeyRecord>> = self.directory.read(|view| view.signing_keys().cloned().collect());
        keys.retain(|key| key.retires_ms.is_none_or(|at| at > now_ms));
        keys.sort_by_key(|key| (key.retires_ms.is_some(), std::cmp::Reverse(key.made_ms)));
        let open = |key: &Arc<SigningKeyRecord>| {
            let sealed = hex::decode(&key.sealed).ok()?;
            let text = self.sealer.open(&sealed, &["signing key", &key.kid]).ok()?;
            let pkcs8 = zeroize::Zeroizing::new(STANDARD.decode(text.expose()).ok()?);
            Some((SigningKey::open(&key.kid, key.alg, &pkcs8).ok()?, key.retires_ms))
        };
        let opened: Option<Vec<_>> = keys.iter().map(open).collect();
        let opened = opened.ok_or_else(|| {
            StoreError::Corrupt("a signing key cannot be decrypted; is this the right master.key?".into())
        })?;
        *self.held.write().unwrap_or_else(PoisonError::into_inner) = opened;
        Ok(())
    }
}

fn is_live(key: &SigningKeyRecord, alg: SigningAlg) -> bool {
    key.alg == alg && key.retires_ms.is_none()
}
