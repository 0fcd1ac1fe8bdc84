//! Keys that sign the tokens in alarm calls, and their public form for agents.
//!
//! Tokens are signed here with a parsed key that is kept, because JWT libraries parse the key for every signature,
//! which is too slow for bursts. Private keys are stored encrypted in the directory like other secrets.

use std::sync::Arc;

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use frontdesk_wire::cron::SigningAlg;
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

#[derive(Debug, thiserror::Error)]
#[error("a signing key could not be created or parsed")]
pub struct BadKey;

enum Key {
    Ec(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

pub struct SigningKey {
    pub kid: String,
    key: Key,
    /// The encoded header, the same for all tokens.
    header: String,
    random: SystemRandom,
}

/// Claims of the token in an alarm call.
#[derive(Serialize)]
pub struct FireClaims<'a> {
    pub iss: &'a str,
    pub aud: String,
    pub purpose: &'static str,
    pub iat: u64,
    pub nbf: u64,
    pub exp: u64,
    pub jti: String,
}

/// Keys and signatures need real randomness, so they do not use `Env`.
#[allow(clippy::disallowed_methods)]
fn randomness() -> SystemRandom {
    SystemRandom::new()
}

/// A new private key, as PKCS#8.
pub fn new_key(alg: SigningAlg) -> Result<Zeroizing<Vec<u8>>, BadKey> {
    let der = match alg {
        SigningAlg::ES256 => {
            let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &randomness());
            made.map_err(|_| BadKey)?.as_ref().to_vec()
        }
        SigningAlg::RS256 => {
            let made = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa2048).map_err(|_| BadKey)?;
            made.as_der().map_err(|_| BadKey)?.as_ref().to_vec()
        }
    };
    Ok(Zeroizing::new(der))
}

impl SigningKey {
    pub fn open(kid: &str, alg: SigningAlg, pkcs8: &[u8]) -> Result<Arc<Self>, BadKey> {
        let key = match alg {
            SigningAlg::ES256 => {
                Key::Ec(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8).map_err(|_| BadKey)?)
            }
            SigningAlg::RS256 => Key::Rsa(RsaKeyPair::from_pkcs8(pkcs8).map_err(|_| BadKey)?),
        };
        let header = json!({ "alg": alg, "typ": "JWT", "kid": kid }).to_string();
        let header = URL_SAFE_NO_PAD.encode(header);
        Ok(Arc::new(Self { kid: kid.into(), key, header, random: randomness() }))
    }

    pub fn sign(&self, claims: &FireClaims<'_>) -> Result<String, BadKey> {
        let claims = serde_json::to_string(claims).map_err(|_| BadKey)?;
        let mut token = format!("{}.{}", self.header, URL_SAFE_NO_PAD.encode(claims));
        let signature = match &self.key {
            Key::Ec(key) => {
                let signed = key.sign(&self.random, token.as_bytes()).map_err(|_| BadKey)?;
                URL_SAFE_NO_PAD.encode(signed.as_ref())
            }
            Key::Rsa(key) => {
                let mut signed = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &self.random, token.as_bytes(), &mut signed).map_err(|_| BadKey)?;
                URL_SAFE_NO_PAD.encode(signed)
            }
        };
        token.push('.');
        token.push_str(&signature);
        Ok(token)
    }

    /// The public key in JWK form.
    pub fn jwk(&self) -> Value {
        match &self.key {
            Key::Ec(key) => {
                // Uncompressed point: 0x04, then x and y of 32 bytes each.
                let point = key.public_key().as_ref();
                let part = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
                json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.kid,
                        "x": part(1), "y": part(33) })
            }
            Key::Rsa(key) => {
                let public = key.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({ "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid,
                        "n": URL_SAFE_NO_PAD.encode(n.big_endian_without_leading_zero()),
                        "e": URL_SAFE_NO_PAD.encode(e.big_endian_without_leading_zero()) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
    };

    use super::*;

    fn signed(alg: SigningAlg) -> (String, Value) {
        let key = SigningKey::open("k1", alg, &new_key(alg).unwrap()).unwrap();
        let claims = FireClaims {
            iss: "https://desk",
            aud: "agent:home".into(),
            purpose: frontdesk_wire::cron::PURPOSE,
            iat: 1,
            nbf: 1,
            exp: 91,
            jti: "x".into(),
        };
        (key.sign(&claims).unwrap(), key.jwk())
    }

    fn decoded(text: &str) -> Vec<u8> {
        URL_SAFE_NO_PAD.decode(text).unwrap()
    }

    #[test]
    fn tokens_verify_with_the_published_key() {
        let (token, jwk) = signed(SigningAlg::ES256);
        let (message, signature) = token.rsplit_once('.').unwrap();
        let mut point = vec![4];
        point.extend(decoded(jwk["x"].as_str().unwrap()));
        point.extend(decoded(jwk["y"].as_str().unwrap()));
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
        key.verify(message.as_bytes(), &decoded(signature)).unwrap();
        let header: Value = serde_json::from_slice(&decoded(message.split('.').next().unwrap())).unwrap();
        assert_eq!(header, json!({ "alg": "ES256", "typ": "JWT", "kid": "k1" }));

        let (token, jwk) = signed(SigningAlg::RS256);
        let (message, signature) = token.rsplit_once('.').unwrap();
        let (n, e) = (decoded(jwk["n"].as_str().unwrap()), decoded(jwk["e"].as_str().unwrap()));
        let key = RsaPublicKeyComponents { n, e };
        key.verify(&RSA_PKCS1_2048_8192_SHA256, message.as_bytes(), &decoded(signature)).unwrap();
    }

    #[test]
    fn a_key_of_another_kind_does_not_open() {
        let ec = new_key(SigningAlg::ES256).unwrap();
        assert!(SigningKey::open("k", SigningAlg::RS256, &ec).is_err());
        assert!(SigningKey::open("k", SigningAlg::ES256, b"nonsense").is_err());
    }
}
