//! From the raw bytes of a request to its payload: verified, decrypted, parsed.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::port::platform::{Bot, RawRequest, Reply};
use frontdesk_wire::Secret;
use serde_json::Value;

use super::signature::{self, NONCE, SIGNATURE, TIMESTAMP};
use super::value::text_of;
use crate::shared::cbc;

const BLOCK: usize = 16;

/// The payload of a genuine request.
pub fn open(bot: &Bot, request: &RawRequest) -> Result<Value, Reply> {
    let (key, token) = (bot.secret("encrypt_key"), bot.secret("verification_token"));
    if key.is_none() && token.is_none() {
        let text =
            "this bot takes no requests: it was added without --secret encrypt_key=... or verification_token=...";
        return Err(Reply::text(404, text));
    }
    let is_signed = [TIMESTAMP, NONCE, SIGNATURE].iter().any(|name| request.header(name).is_some());
    if let Some(key) = key.filter(|_| is_signed) {
        signature::verify(key, &request.headers, &request.body, request.now_ms / 1_000)
            .map_err(|forged| Reply::text(401, forged.to_string()))?;
    }
    let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object);
    let outer = parsed(&request.body).ok_or_else(|| Reply::text(400, "the body is not a JSON object"))?;
    let (payload, was_encrypted) = match (outer.get("encrypt").and_then(Value::as_str), key) {
        (None, _) => (outer, false),
        (Some(_), None) => {
            return Err(Reply::text(
                401,
                "the body is encrypted, and the bot has no encrypt_key; repeat `bot add` with it",
            ));
        }
        (Some(sealed), Some(key)) => {
            let plain = decrypt(key, sealed).and_then(|bytes| parsed(&bytes));
            let why = "the body cannot be decrypted; check the encrypt_key of the bot";
            (plain.ok_or_else(|| Reply::text(401, why))?, true)
        }
    };
    // The check of the address has no signature; its sender knows the key if it is encrypted with it.
    if key.is_some() && !is_signed && !(was_encrypted && is_challenge(&payload)) {
        return Err(Reply::text(401, "the request is not signed, and the bot has an encrypt_key"));
    }
    if let Some(token) = token {
        let given = [text_of(&payload["header"], "token"), text_of(&payload, "token")];
        let given = given.into_iter().find(|given| !given.is_empty());
        // Beside a signature it is only a second proof.
        let is_dispensable = key.is_some() && is_signed && given.is_none() && !is_challenge(&payload);
        if !is_dispensable && !given.is_some_and(|given| is_same(token, given)) {
            return Err(Reply::text(
                401,
                "the verification token does not match; check the verification_token of the bot",
            ));
        }
    }
    Ok(payload)
}

/// Whether Feishu only checks the address.
pub(super) fn is_challenge(payload: &Value) -> bool {
    text_of(payload, "type") == "url_verification" && payload.get("schema").is_none()
}

fn is_same(token: &Secret, given: &str) -> bool {
    verify_slices_are_equal(token.expose().as_bytes(), given.as_bytes()).is_ok()
}

fn key_of(key: &Secret) -> Option<[u8; 32]> {
    digest(&SHA256, key.expose().as_bytes()).as_ref().try_into().ok()
}

/// The first block is the initialization vector.
pub fn decrypt(key: &Secret, sealed: &str) -> Option<Vec<u8>> {
    let sealed = STANDARD.decode(sealed).ok()?;
    let (iv, rest) = sealed.split_first_chunk::<BLOCK>()?;
    let mut plain = cbc::decrypt(&key_of(key)?, iv, rest)?;
    let pad = usize::from(*plain.last()?);
    let rest = plain.len().checked_sub(pad).filter(|_| (1..=BLOCK).contains(&pad))?;
    if plain[rest..].iter().any(|byte| usize::from(*byte) != pad) {
        return None;
    }
    plain.truncate(rest);
    Some(plain)
}

/// Encrypts as Feishu does, for tests. The vector may be known.
pub fn encrypt(key: &Secret, iv: [u8; BLOCK], plain: &[u8]) -> Option<String> {
    use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
    let pad = BLOCK - plain.len() % BLOCK;
    let mut bytes = [plain, &vec![u8::try_from(pad).ok()?; pad]].concat();
    let key = EncryptingKey::cbc(UnboundCipherKey::new(&AES_256, &key_of(key)?).ok()?).ok()?;
    key.less_safe_encrypt(&mut bytes, EncryptionContext::Iv128((&iv).into())).ok()?;
    Some(STANDARD.encode([&iv[..], &bytes].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_example_is_decrypted() {
        // Of the vendor's documents, with the key "test key".
        let sealed = "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk=";
        assert_eq!(decrypt(&Secret::new("test key"), sealed).unwrap(), b"hello world");
    }

    #[test]
    fn what_is_encrypted_is_read_again_and_rubbish_is_not() {
        let key = Secret::new("k");
        for length in 0..64 {
            let plain: Vec<u8> = (0..length).collect();
            let sealed = encrypt(&key, [7; BLOCK], &plain).unwrap();
            assert_eq!(decrypt(&key, &sealed).unwrap(), plain);
        }
        for sealed in ["", "!!", "AAAA", "AAAAAAAAAAAAAAAAAAAAAA==", "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk"] {
            assert_eq!(decrypt(&key, sealed), None, "{sealed}");
        }
    }
}
