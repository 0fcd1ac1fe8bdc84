//! The signature of requests: version `v0`, HMAC-SHA256 over the time and the raw body.

use aws_lc_rs::hmac;
use frontdesk_wire::Secret;

/// How far the time of a request may be from ours. Older ones may be replays.
pub const WINDOW_S: u64 = 300;

/// Why a request is not genuine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error("x-slack-request-timestamp or x-slack-signature is missing, malformed or present twice")]
    Headers,
    #[error("x-slack-request-timestamp is more than 300 s away from the server's clock")]
    Stale,
    #[error("the signature does not match; check the signing secret of the bot")]
    Signature,
}

/// Checks the raw body. `headers` have names in lowercase. A header that comes twice is refused: it is not known which of the
/// two others would read.
pub fn verify(key: &Secret, headers: &[(String, String)], body: &[u8], now_s: u64) -> Result<(), Forged> {
    let header = |name: &str| {
        let mut all = headers.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str());
        match (all.next(), all.next()) {
            (Some(value), None) => Ok(value),
            _ => Err(Forged::Headers),
        }
    };
    let (stamp, given) = (header("x-slack-request-timestamp")?, header("x-slack-signature")?);
    let is_number = !stamp.is_empty() && stamp.len() <= 12 && stamp.bytes().all(|byte| byte.is_ascii_digit());
    let sent_s: u64 = stamp.parse().ok().filter(|_| is_number).ok_or(Forged::Headers)?;
    let given = given.strip_prefix("v0=").filter(|hex| is_lower_hex(hex)).ok_or(Forged::Headers)?;
    let given = hex::decode(given).map_err(|_| Forged::Headers)?;
    if sent_s.abs_diff(now_s) > WINDOW_S {
        return Err(Forged::Stale);
    }
    // Compared in constant time. An empty key must never verify a request.
    let message = [b"v0:", stamp.as_bytes(), b":", body].concat();
    let is_genuine = !key.expose().is_empty() && hmac::verify(&hmac_key(key), &message, &given).is_ok();
    if is_genuine { Ok(()) } else { Err(Forged::Signature) }
}

/// As the vendor writes it. Another spelling of the same bytes is another header.
fn is_lower_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// The value of `x-slack-signature`, for tests.
pub fn sign(key: &Secret, stamp_s: u64, body: &[u8]) -> String {
    let message = [b"v0:", stamp_s.to_string().as_bytes(), b":", body].concat();
    format!("v0={}", hex::encode(hmac::sign(&hmac_key(key), &message)))
}

fn hmac_key(key: &Secret) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, key.expose().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The worked example in the vendor's own documents.
    const KEY: &str = "8f742231b10e8888abcd99yyyzzz85a5";
    const STAMP_S: u64 = 1_531_420_618;
    const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&\
                        channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&\
                        response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F\
                        96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    const SIGNATURE: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";

    fn check(headers: &[(&str, &str)], body: &[u8], now_s: u64) -> Result<(), Forged> {
        let headers: Vec<_> = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        verify(&Secret::new(KEY), &headers, body, now_s)
    }

    fn signed(stamp: &str, signature: &str, now_s: u64) -> Result<(), Forged> {
        let headers = [("x-slack-request-timestamp", stamp), ("x-slack-signature", signature)];
        check(&headers, BODY.as_bytes(), now_s)
    }

    #[test]
    fn the_published_example_verifies() {
        assert_eq!(signed("1531420618", SIGNATURE, STAMP_S), Ok(()));
        assert_eq!(sign(&Secret::new(KEY), STAMP_S, BODY.as_bytes()), SIGNATURE);
    }

    #[test]
    fn five_minutes_and_not_more() {
        for now_s in [STAMP_S - WINDOW_S, STAMP_S + WINDOW_S] {
            assert_eq!(signed("1531420618", SIGNATURE, now_s), Ok(()));
        }
        for now_s in [STAMP_S - WINDOW_S - 1, STAMP_S + WINDOW_S + 1, 0, u64::MAX] {
            assert_eq!(signed("1531420618", SIGNATURE, now_s), Err(Forged::Stale));
        }
    }

    #[test]
    fn any_other_bit_is_refused() {
        for at in 0..BODY.len() {
            let mut body = BODY.as_bytes().to_vec();
            body[at] ^= 1;
            let headers = [("x-slack-request-timestamp", "1531420618"), ("x-slack-signature", SIGNATURE)];
            assert_eq!(check(&headers, &body, STAMP_S), Err(Forged::Signature));
        }
        assert_eq!(signed("1531420619", SIGNATURE, STAMP_S), Err(Forged::Signature));
        let other = SIGNATURE.replace("a2114d", "a2114e");
        assert_eq!(signed("1531420618", &other, STAMP_S), Err(Forged::Signature));
        let empty = sign(&Secret::new(""), STAMP_S, BODY.as_bytes());
        let headers: Vec<_> = [("x-slack-request-timestamp", "1531420618"), ("x-slack-signature", empty.as_str())]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        assert_eq!(verify(&Secret::new(""), &headers, BODY.as_bytes(), STAMP_S), Err(Forged::Signature));
    }

    #[test]
    fn headers_are_there_once_and_well_formed() {
        let (stamp, signature) = (("x-slack-request-timestamp", "1531420618"), ("x-slack-signature", SIGNATURE));
        for headers in [&[][..], &[stamp], &[signature], &[stamp, stamp, signature], &[stamp, signature, signature]] {
            assert_eq!(check(headers, BODY.as_bytes(), STAMP_S), Err(Forged::Headers), "{headers:?}");
        }
        let upper = SIGNATURE.to_uppercase().replace("V0", "v0");
        for (stamp, signature) in [
            ("", SIGNATURE),
            ("+1531420618", SIGNATURE),
            ("1531420618.0", SIGNATURE),
            (" 1531420618", SIGNATURE),
            ("1531420618", ""),
            ("1531420618", &SIGNATURE[3..]),
            ("1531420618", &SIGNATURE[..60]),
            ("1531420618", &SIGNATURE.replace("v0=", "v1=")),
            ("1531420618", upper.as_str()),
        ] {
            assert_eq!(signed(stamp, signature, STAMP_S), Err(Forged::Headers), "{stamp} {signature}");
        }
    }
}
