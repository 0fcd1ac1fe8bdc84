//! JWTs (RS256) with `aud = agent:{instanceId}`, with which a portal manages an agent.

use std::sync::Arc;

use anyhow::bail;
use frontdesk_core::Env;
use frontdesk_core::port::outcall::Outcall;
use frontdesk_wire::{InstanceId, TenantId};
use jsonwebtoken::Algorithm;
use serde::Deserialize;

use super::keyset::{KeySet, Unproven};

/// `[manage]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManageSettings {
    pub jwks: String,
    pub issuer: String,
    pub tenant: String,
}

impl ManageSettings {
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if !self.jwks.is_empty() && self.issuer.is_empty() {
            bail!("manage.jwks needs manage.issuer, the expected `iss` of the tokens");
        }
        Ok(())
    }
}

pub struct AgentJwt {
    keys: KeySet,
    issuer: String,
    /// The only tenant whose agents these tokens may name.
    pub tenant: Option<TenantId>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: u64,
    #[serde(default)]
    nbf: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

impl AgentJwt {
    /// `None`: not configured, so every token is refused.
    pub async fn open(
        settings: &ManageSettings,
        env: Arc<dyn Env>,
        outcall: Arc<dyn Outcall>,
    ) -> anyhow::Result<Option<Self>> {
        if settings.jwks.is_empty() {
            return Ok(None);
        }
        let keys = KeySet::open(&settings.jwks, &[Algorithm::RS256], env, outcall).await;
        let keys = keys.map_err(|error| error.context("manage.jwks"))?;
        let tenant = Some(settings.tenant.clone()).filter(|tenant| !tenant.is_empty());
        Ok(Some(Self { keys, issuer: settings.issuer.clone(), tenant: tenant.map(TenantId::from) }))
    }

    /// The instance that the token names.
    pub async fn prove(&self, token: &str) -> Result<InstanceId, Unproven> {
        let claims: Claims = self.keys.read(token).await?;
        if claims.iss != self.issuer {
            return Err(Unproven::Issuer);
        }
        self.keys.check_time(claims.exp, claims.nbf)?;
        let about = match claims.aud {
            Audience::One(one) => one,
            Audience::Several(mut all) if all.len() == 1 => all.remove(0),
            Audience::Several(_) => return Err(Unproven::Audience),
        };
        let instance = about.strip_prefix("agent:").filter(|name| !name.is_empty());
        instance.map(InstanceId::from).ok_or(Unproven::Audience)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use aws_lc_rs::rsa::{KeyPair, KeySize};
    use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use frontdesk_core::port::BoxFuture;
    use frontdesk_core::port::outcall::{Call, HttpAnswer, OutcallError};
    use frontdesk_testkit::TestEnv;
    use serde_json::{Value, json};

    use super::super::keyset::{KEYS_LIFE_MS, LEEWAY_S, LOOK_AGAIN_MS};
    use super::*;

    const TOKEN_TOO_LONG: usize = 8 * 1024 + 1;
    const NOW_S: u64 = 1_800_000_000;

    struct Signer(KeyPair);

    impl Signer {
        fn new() -> Self {
            Self(KeyPair::generate(KeySize::Rsa2048).unwrap())
        }

        fn jwk(&self, id: &str) -> Value {
            let public = self.0.public_key();
            let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
            let (n, e) = (public.modulus(), public.exponent());
            json!({ "kty": "RSA", "kid": id, "use": "sig", "alg": "RS256",
                    "n": b64(n.big_endian_without_leading_zero()), "e": b64(e.big_endian_without_leading_zero()) })
        }

        fn sign(&self, header: &Value, claims: &Value) -> String {
            let b64 = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let message = format!("{}.{}", b64(header), b64(claims));
            let mut signature = vec![0; self.0.public_modulus_len()];
            #[allow(clippy::disallowed_methods)] // required by the library
            let random = aws_lc_rs::rand::SystemRandom::new();
            self.0.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).unwrap();
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
        }
    }

    /// Serves one key set and counts the requests.
    struct Served {
        keys: std::sync::Mutex<Value>,
        asked: AtomicU64,
    }

    impl Outcall for Served {
        fn check(&self, _: &str) -> Result<(), OutcallError> {
            Ok(())
        }

        fn call<'a>(&'a self, _: Call<'a>) -> BoxFuture<'a, Result<HttpAnswer, OutcallError>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let body = self.keys.lock().unwrap().to_string().into_bytes();
            Box::pin(async move { Ok(HttpAnswer { body, ..HttpAnswer::of(200) }) })
        }
    }

    fn at_now() -> Arc<TestEnv> {
        let env = TestEnv::default();
        env.set_ms(NOW_S * 1000);
        Arc::new(env)
    }

    async fn open(keys: Value) -> (AgentJwt, Arc<TestEnv>, Arc<Served>) {
        let env = at_now();
        let served = Arc::new(Served { keys: std::sync::Mutex::new(keys), asked: AtomicU64::new(0) });
        let settings =
            ManageSettings { jwks: "https://portal/keys".into(), issuer: "portal".into(), tenant: String::new() };
        let jwks = AgentJwt::open(&settings, env.clone(), served.clone()).await.unwrap().unwrap();
        (jwks, env, served)
    }

    fn header() -> Value {
        json!({ "alg": "RS256", "typ": "JWT", "kid": "k1" })
    }

    fn claims() -> Value {
        json!({ "iss": "portal", "aud": "agent:home", "exp": NOW_S + 60, "iat": NOW_S })
    }

    fn with(mut base: Value, field: &str, value: Value) -> Value {
        base[field] = value;
        base
    }

    #[tokio::test]
    async fn a_valid_token_names_its_agent_and_others_are_refused() {
        let (signer, stranger) = (Signer::new(), Signer::new());
        let (jwks, _, _) = open(json!({ "keys": [signer.jwk("k1")] })).await;
        assert_eq!(jwks.prove(&signer.sign(&header(), &claims())).await, Ok("home".into()));
        let one = with(claims(), "aud", json!(["agent:home"]));
        assert_eq!(jwks.prove(&signer.sign(&header(), &one)).await, Ok("home".into()));
        for (field, value, why) in [
            ("iss", json!("somebody"), Unproven::Issuer),
            ("aud", json!("home"), Unproven::Audience),
            ("aud", json!("agent:"), Unproven::Audience),
            ("aud", json!("service:home"), Unproven::Audience),
            ("aud", json!(["agent:home", "agent:other"]), Unproven::Audience),
            ("aud", json!([]), Unproven::Audience),
            ("exp", json!(NOW_S - LEEWAY_S), Unproven::Time),
            ("exp", json!("soon"), Unproven::Form),
            ("exp", Value::Null, Unproven::Form),
            ("nbf", json!(NOW_S + LEEWAY_S + 1), Unproven::Time),
        ] {
            let token = signer.sign(&header(), &with(claims(), field, value.clone()));
            assert_eq!(jwks.prove(&token).await, Err(why), "{field} {value}");
        }
        for (alg, why) in [
            ("none", Unproven::Algorithm),
            ("HS256", Unproven::Algorithm),
            ("RS512", Unproven::Algorithm),
            ("ES256", Unproven::Algorithm),
        ] {
            let token = signer.sign(&with(header(), "alg", json!(alg)), &claims());
            assert_eq!(jwks.prove(&token).await, Err(why), "{alg}");
        }
        let unsigned = signer.sign(&with(header(), "alg", json!("none")), &claims());
        let unsigned = format!("{}.", unsigned.rsplit_once('.').unwrap().0);
        assert_eq!(jwks.prove(&unsigned).await, Err(Unproven::Algorithm));
        assert_eq!(jwks.prove(&stranger.sign(&header(), &claims())).await, Err(Unproven::Signature));
        let changed = signer.sign(&header(), &claims());
        let parts: Vec<&str> = changed.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(with(claims(), "aud", json!("agent:other")).to_string());
        assert_eq!(jwks.prove(&format!("{}.{other}.{}", parts[0], parts[2])).await, Err(Unproven::Signature));
        for bad in ["", ".", "..", "a.b.c", &"x".repeat(TOKEN_TOO_LONG)] {
            assert!(jwks.prove(bad).await.is_err());
        }
    }

    /// Algorithm confusion: the text of the public key used as an HMAC secret.
    #[tokio::test]
    async fn the_public_key_is_not_accepted_as_hmac_secret() {
        let signer = Signer::new();
        let (jwks, _, _) = open(json!({ "keys": [signer.jwk("k1")] })).await;
        let secret = signer.jwk("k1")["n"].as_str().unwrap().to_owned();
        let b64 = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", b64(&with(header(), "alg", json!("HS256"))), b64(&claims()));
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(aws_lc_rs::hmac::sign(&key, message.as_bytes()));
        assert_eq!(jwks.prove(&format!("{message}.{signature}")).await, Err(Unproven::Algorithm));
    }

    #[tokio::test]
    async fn an_unknown_key_id_refreshes_the_key_set_at_a_limited_rate() {
        let (old, new) = (Signer::new(), Signer::new());
        let (jwks, env, served) = open(json!({ "keys": [old.jwk("k1")] })).await;
        let asked = || served.asked.load(Ordering::SeqCst);
        assert_eq!(asked(), 1);
        let rotated = new.sign(&with(header(), "kid", json!("k2")), &claims());
        *served.keys.lock().unwrap() = json!({ "keys": [old.jwk("k1"), new.jwk("k2")] });
        assert_eq!(jwks.prove(&rotated).await, Err(Unproven::Key), "the keys were read just now");
        assert_eq!(asked(), 1);
        env.advance_ms(LOOK_AGAIN_MS + 1);
        assert_eq!(jwks.prove(&rotated).await, Ok("home".into()));
        for number in 0..50 {
            let unknown = new.sign(&with(header(), "kid", json!(number.to_string())), &claims());
            assert_eq!(jwks.prove(&unknown).await, Err(Unproven::Key));
        }
        assert_eq!(asked(), 2);
        // A removed key is noticed when the cached keys expire.
        *served.keys.lock().unwrap() = json!({ "keys": [new.jwk("k2")] });
        env.advance_ms(20_000);
        assert_eq!(
            jwks.prove(&old.sign(&header(), &with(claims(), "exp", json!(NOW_S + 9_999)))).await,
            Ok("home".into())
        );
        env.advance_ms(KEYS_LIFE_MS);
        let late = old.sign(&header(), &with(claims(), "exp", json!(NOW_S + 9_999)));
        assert_eq!(jwks.prove(&late).await, Err(Unproven::Key));
        // A clock that is set back does not delay that.
        env.set_ms(env.now_ms() - 600_000);
        *served.keys.lock().unwrap() = json!({ "keys": [new.jwk("k2"), old.jwk("k3")] });
        env.advance_ms(LOOK_AGAIN_MS + 1);
        let third = old.sign(&with(header(), "kid", json!("k3")), &with(claims(), "exp", json!(NOW_S + 9_999)));
        assert_eq!(jwks.prove(&third).await, Ok("home".into()));
    }

    #[tokio::test]
    async fn only_rsa_signing_keys_are_used_and_an_invalid_file_fails_the_start() {
        let signer = Signer::new();
        let encryption = with(signer.jwk("k2"), "use", json!("enc"));
        let (jwks, _, _) = open(json!({ "keys": [signer.jwk("k1"), encryption] })).await;
        let by_encryption_key = signer.sign(&with(header(), "kid", json!("k2")), &claims());
        assert_eq!(jwks.prove(&by_encryption_key).await, Err(Unproven::Key));
        let folder = tempfile::tempdir().unwrap();
        let read = async |path: &Path| {
            let settings =
                ManageSettings { jwks: path.display().to_string(), issuer: "portal".into(), tenant: String::new() };
            let served = Arc::new(Served { keys: std::sync::Mutex::default(), asked: AtomicU64::new(0) });
            AgentJwt::open(&settings, at_now(), served).await
        };
        let file = folder.path().join("keys.json");
        let text = |result: anyhow::Result<Option<AgentJwt>>| format!("{:#}", result.err().unwrap());
        assert!(text(read(&file).await).contains("cannot read"));
        for bad in ["", "{}", "[]", "{\"keys\":[]}", "{\"keys\":[{\"kty\":\"RSA\",\"n\":\"!\",\"e\":\"AQAB\"}]}"] {
            std::fs::write(&file, bad).unwrap();
            assert!(text(read(&file).await).contains("manage.jwks"), "{bad}");
        }
        std::fs::write(&file, json!({ "keys": [signer.jwk("k1")] }).to_string()).unwrap();
        let jwks = read(&file).await.unwrap().unwrap();
        assert_eq!(jwks.prove(&signer.sign(&header(), &claims())).await, Ok("home".into()));
    }
}
