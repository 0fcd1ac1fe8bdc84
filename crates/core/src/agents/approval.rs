//! Approval in secured mode: a signature on the Status line. The server has only the public key, so it can verify
//! approvals and can never create one.

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use frontdesk_wire::agents::SkillStatus;

use super::skill_text::{canonical, second_word, with_status, with_status_alone};

/// DER prefix of an Ed25519 `SubjectPublicKeyInfo`; the 32 bytes of the key follow.
const SPKI_HEAD: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const KEY_BYTES: usize = 32;
const SIGNATURE_CHARS: usize = 86;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("not a PEM block of type PUBLIC KEY")]
    NotPem,
    #[error("not an Ed25519 public key")]
    NotEd25519,
}

/// Verifies approvals. The holder of the private key may approve skills.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalKey([u8; KEY_BYTES]);

impl ApprovalKey {
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let body = pem.trim().strip_prefix("-----BEGIN PUBLIC KEY-----").ok_or(BadKey::NotPem)?;
        let body = body.strip_suffix("-----END PUBLIC KEY-----").ok_or(BadKey::NotPem)?;
        let digits: String = body.split_ascii_whitespace().collect();
        let der = BASE64_STANDARD.decode(digits).map_err(|_| BadKey::NotPem)?;
        let key = der.strip_prefix(&SPKI_HEAD).ok_or(BadKey::NotEd25519)?;
        key.try_into().map(Self).map_err(|_| BadKey::NotEd25519)
    }

    /// Whether the body has a valid signature of this key, whatever its status.
    pub fn signed(&self, source: &str) -> bool {
        let Some(digits) = second_word(source).and_then(|word| word.strip_prefix("v3:")) else { return false };
        if digits.len() != SIGNATURE_CHARS {
            return false;
        }
        let Ok(signature) = BASE64_URL_SAFE_NO_PAD.decode(digits) else { return false };
        UnparsedPublicKey::new(&ED25519, &self.0).verify(canonical(source).as_bytes(), &signature).is_ok()
    }

    /// The body with status Approved and the signature that it already has. `None`: it has no valid signature.
    ///
    /// `with_status` removes blank lines after the Status line. If they were part of the signed text, they are kept.
    pub fn approved(&self, source: &str) -> Option<String> {
        let token = second_word(source).filter(|_| self.signed(source))?;
        let status = format!("{} {token}", SkillStatus::Approved.name());
        let rewritten = with_status(source, &status);
        Some(if self.signed(&rewritten) { rewritten } else { with_status_alone(source, &status) })
    }
}
