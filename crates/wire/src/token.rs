//! The upgrade token: `base64url("{gatewayId}:{exp}:{hexHMAC}")`, HMAC-SHA256 with the text of the secret as key.
//!
//! It authenticates a gateway, never a tenant: the tenant comes from the stored record of the gateway.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::ids::GatewayId;
use crate::secret::Secret;

/// Tolerated clock difference: a token is accepted for this long after its expiry.
pub const SKEW_S: u64 = 120;
/// Longer than any valid token; limits what unauthenticated clients can make us decode.
const TOKEN_MAX_BYTES: usize = 2048;

/// A parsed token whose signature was not verified yet.
pub struct Claimed {
    pub gateway_id: GatewayId,
    exp: u64,
    signed: String,
    signature: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proof {
    Good,
    /// The signature is valid, but the token has expired.
    Expired,
    Bad,
}

/// `exp_s` in unix seconds; 0 means never.
pub fn mint(gateway_id: &str, secret: &Secret, exp_s: u64) -> String {
    let signed = format!("{gateway_id}:{exp_s}");
    let tag = hmac::sign(&key(secret), signed.as_bytes());
    URL_SAFE_NO_PAD.encode(format!("{signed}:{}", hex::encode(tag)))
}

/// Parses a token. Split from the right, because gateway ids may contain colons.
pub fn claim(token: &str) -> Option<Claimed> {
    if token.len() > TOKEN_MAX_BYTES {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(token.trim_end_matches('=')).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (signed, signature) = text.rsplit_once(':')?;
    let (gateway_id, exp) = signed.rsplit_once(':')?;
    if gateway_id.is_empty() || !exp.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(Claimed {
        gateway_id: gateway_id.into(),
        exp: exp.parse().ok()?,
        signature: hex::decode(signature).ok()?,
        signed: signed.to_owned(),
    })
}

impl Claimed {
    /// Compares with all valid secrets, each in constant time.
    pub fn prove<'a>(&self, secrets: impl IntoIterator<Item = &'a Secret>, now_s: u64) -> Proof {
        let mut good = false;
        for secret in secrets {
            good |= hmac::verify(&key(secret), self.signed.as_bytes(), &self.signature).is_ok();
        }
        match good {
            false => Proof::Bad,
            true if self.exp != 0 && now_s > self.exp.saturating_add(SKEW_S) => Proof::Expired,
            true => Proof::Good,
        }
    }
}

fn key(secret: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.expose().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prove(token: &str, secrets: &[Secret], now_s: u64) -> Proof {
        claim(token).map_or(Proof::Bad, |c| c.prove(secrets, now_s))
    }

    #[test]
    fn a_minted_token_proves_its_gateway_even_with_colons() {
        let secret = Secret::new("s3");
        let token = mint("a:b:c", &secret, 0);
        let claimed = claim(&token).expect("well formed");
        assert_eq!(claimed.gateway_id, "a:b:c");
        assert_eq!(claimed.prove([&secret], 9_999_999_999), Proof::Good);
    }

    #[test]
    fn the_token_of_the_python_client_is_understood() {
        // make_upgrade_token("gw-1", "secret", ttl) with the clock at 1_700_000_000 and ttl 300.
        let token = "Z3ctMToxNzAwMDAwMzAwOjM4M2QwMjRjOWY5YThjNjg0YjZiYWE0NTEzNzNjMzRjMTQ4MDg0ZmVlOTUzMjBjNmQ0YzhlMzM0MGU3MTU3MTg";
        assert_eq!(prove(token, &[Secret::new("secret")], 1_700_000_000), Proof::Good);
    }

    #[test]
    fn expiry_is_checked_with_skew_and_after_the_signature() {
        let secret = Secret::new("s");
        let token = mint("g", &secret, 1000);
        assert_eq!(prove(&token, std::slice::from_ref(&secret), 1000 + SKEW_S), Proof::Good);
        assert_eq!(prove(&token, std::slice::from_ref(&secret), 1001 + SKEW_S), Proof::Expired);
        assert_eq!(prove(&token, &[Secret::new("other")], 1001 + SKEW_S), Proof::Bad);
    }

    #[test]
    fn any_valid_secret_is_accepted() {
        let token = mint("g", &Secret::new("old"), 0);
        assert_eq!(prove(&token, &[Secret::new("new"), Secret::new("old")], 5), Proof::Good);
        assert_eq!(prove(&token, &[], 5), Proof::Bad);
    }

    #[test]
    fn garbage_is_refused_without_a_panic() {
        let good = mint("g", &Secret::new("s"), 0);
        for bad in ["", "=", "%%%", "Zw", &good[..good.len() - 3], "OjA6YWI", &"A".repeat(5000), "ZzoxOng6Z2c"] {
            assert_eq!(prove(bad, &[Secret::new("s")], 0), Proof::Bad, "{bad}");
        }
    }
}
