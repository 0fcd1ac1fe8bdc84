//! Whether a request comes from Meta: HMAC-SHA256 over the raw body with the secret of the app.

use aws_lc_rs::hmac;
use frontdesk_wire::secret::same_bytes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Forged {
    #[error("X-Hub-Signature-256 is missing, present twice, or does not begin with sha256=")]
    NoSignature,
    #[error("the signature does not match the body; check the app_secret of the bot")]
    Wrong,
}

/// `header` is `sha256=` and 64 lowercase hexadecimal digits.
pub fn verify(app_secret: &str, header: Option<&str>, body: &[u8]) -> Result<(), Forged> {
    let given = header.and_then(|text| text.strip_prefix(PREFIX)).ok_or(Forged::NoSignature)?;
    match same_bytes(digits(app_secret, body).as_bytes(), given.as_bytes()) {
        true => Ok(()),
        false => Err(Forged::Wrong),
    }
}

const PREFIX: &str = "sha256=";

fn digits(app_secret: &str, body: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, app_secret.as_bytes());
    hex::encode(hmac::sign(&key, body))
}

/// The header, as Meta makes it.
pub fn sign(app_secret: &str, body: &[u8]) -> String {
    format!("{PREFIX}{}", digits(app_secret, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signed_bytes_pass() {
        let body = r#"{"object":"whatsapp_business_account","entry":[{"text":"\u00e4\u00f6"}]}"#.as_bytes();
        let good = "sha256=7998e8dec4f42d27ceb29dbfabdb0b81f8c2b365caf8b1e0ab2c5c25bf5b20d6";
        assert_eq!(verify("app-secret", Some(good), body), Ok(()));
        assert_eq!(sign("app-secret", body), good);
        let spaced = [body, b" "].concat();
        for (secret, header, body) in
            [("app-secret", good, &spaced[..]), ("other", good, body), ("app-secret", &good[..70], body)]
        {
            assert_eq!(verify(secret, Some(header), body), Err(Forged::Wrong), "{secret} {header}");
        }
        assert_eq!(
            verify("app-secret", Some(&good.to_uppercase().replace("SHA256=", "sha256=")), body),
            Err(Forged::Wrong)
        );
        for header in [None, Some(""), Some(&good[7..]), Some("sha1=ab"), Some("SHA256=ab")] {
            assert_eq!(verify("app-secret", header, body), Err(Forged::NoSignature), "{header:?}");
        }
    }
}
