//! Secrets at rest: AES-256-GCM with one key per record, derived from the master key and a random salt.
//!
//! A sealed text opens only with the same associated data (tenant, kind, id), so it is useless in another row. The
//! first byte is the layout, the next four identify the master key, for rotation.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use frontdesk_wire::{ChatId, InstanceNo, MessageId, Secret, SessionKey};
use zeroize::Zeroizing;

use crate::env::Env;

const LAYOUT: u8 = 1;
const SALT_BYTES: usize = 24;
const HEAD_BYTES: usize = 1 + 4 + SALT_BYTES;

#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the secret was encrypted with another master key ({0})")]
    ForeignKey(String),
    #[error("decryption failed: wrong key, or the stored text was changed")]
    Broken,
}

/// The name under which a capability is found when its receiver answers with a plain message in the same chat.
pub(crate) fn answer_key(receiver: InstanceNo, chat_id: &ChatId, reply_to: Option<&MessageId>) -> SessionKey {
    format!("answer {receiver} {chat_id} {}", reply_to.map_or("", MessageId::as_str)).into()
}

pub struct Sealer {
    master: Zeroizing<[u8; 32]>,
    key_id: [u8; 4],
}

impl Sealer {
    pub fn new(master: Zeroizing<[u8; 32]>) -> Self {
        let mut key_id = [0; 4];
        key_id.copy_from_slice(&digest(&SHA256, &*master).as_ref()[..4]);
        Self { master, key_id }
    }

    pub fn seal(&self, env: &dyn Env, secret: &Secret, context: &[&str]) -> Vec<u8> {
        let mut salt = [0; SALT_BYTES];
        env.fill(&mut salt);
        let mut body = secret.expose().as_bytes().to_vec();
        let mut sealed = Vec::with_capacity(HEAD_BYTES + body.len() + 16);
        sealed.push(LAYOUT);
        sealed.extend_from_slice(&self.key_id);
        sealed.extend_from_slice(&salt);
        // Can fail only for texts of many gigabytes; secrets are short.
        if self.key(&salt).seal_in_place_append_tag(nonce(), aad(context), &mut body).is_ok() {
            sealed.extend_from_slice(&body);
        }
        sealed
    }

    pub fn open(&self, sealed: &[u8], context: &[&str]) -> Result<Secret, SealError> {
        if sealed.len() < HEAD_BYTES || sealed[0] != LAYOUT {
            return Err(SealError::Broken);
        }
        if sealed[1..5] != self.key_id {
            return Err(SealError::ForeignKey(hex::encode(&sealed[1..5])));
        }
        let mut body = sealed[HEAD_BYTES..].to_vec();
        let key = self.key(&sealed[5..HEAD_BYTES]);
        let plain = key.open_in_place(nonce(), aad(context), &mut body).map_err(|_| SealError::Broken)?;
        let text = std::str::from_utf8(plain).map_err(|_| SealError::Broken)?;
        Ok(Secret::new(text))
    }

    /// A key derived from the master key and these texts, as lowercase hex.
    pub fn derive(&self, context: &[&str]) -> String {
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &*self.master);
        hex::encode(aws_lc_rs::hmac::sign(&key, aad(context).as_ref()))
    }

    fn key(&self, salt: &[u8]) -> LessSafeKey {
        let pseudo_random = Salt::new(HKDF_SHA256, salt).extract(&*self.master);
        let info: [&[u8]; 1] = [b"frontdesk seal 1"];
        let key = pseudo_random.expand(&info, &AES_256_GCM).map(UnboundKey::from);
        LessSafeKey::new(key.unwrap_or_else(|_| unreachable!("HKDF can derive 32 bytes")))
    }
}

/// Each record has its own key, so a fixed nonce is used only once per key.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn aad(context: &[&str]) -> Aad<Vec<u8>> {
    let mut joined = Vec::new();
    for part in context {
        joined.extend_from_slice(&(part.len() as u64).to_be_bytes());
        joined.extend_from_slice(part.as_bytes());
    }
    Aad::from(joined)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dice;
    impl Env for Dice {
        fn now_ms(&self) -> u64 {
            0
        }
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    #[test]
    fn a_secret_opens_only_with_the_same_key_and_context() {
        let sealer = Sealer::new(Zeroizing::new([1; 32]));
        let sealed = sealer.seal(&Dice, &Secret::new("token"), &["acme", "kind", "1"]);
        assert!(!sealed.windows(5).any(|w| w == b"token"));
        assert_eq!(sealer.open(&sealed, &["acme", "kind", "1"]).map(|s| s.expose().to_owned()).unwrap(), "token");
        assert!(matches!(sealer.open(&sealed, &["other", "kind", "1"]), Err(SealError::Broken)));
        assert!(matches!(sealer.open(&sealed, &["acmekind", "", "1"]), Err(SealError::Broken)));
        let other = Sealer::new(Zeroizing::new([2; 32]));
        assert!(matches!(other.open(&sealed, &["acme", "kind", "1"]), Err(SealError::ForeignKey(_))));
        let mut bent = sealed.clone();
        *bent.last_mut().unwrap() ^= 1;
        assert!(matches!(sealer.open(&bent, &["acme", "kind", "1"]), Err(SealError::Broken)));
        assert!(matches!(sealer.open(&[], &[]), Err(SealError::Broken)));
    }
}
