//! AES-256 in CBC mode, as vendors seal what they send. The padding is left on: each vendor has its own.

use aws_lc_rs::cipher::{
    AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext, UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

/// `None`: it is empty, or not made of whole blocks.
pub fn decrypt(key: &[u8; 32], iv: &[u8; 16], ciphertext: &[u8]) -> Option<Vec<u8>> {
    if ciphertext.is_empty() || !ciphertext.len().is_multiple_of(iv.len()) {
        return None;
    }
    let key = DecryptingKey::cbc(UnboundCipherKey::new(&AES_256, key).ok()?).ok()?;
    let mut text = ciphertext.to_vec();
    key.decrypt(&mut text, DecryptionContext::Iv128(FixedLength::from(*iv))).ok()?;
    Some(text)
}

/// As vendors do it, for samples and tests. `None`: it is not made of whole blocks.
pub fn encrypt(key: &[u8; 32], iv: &[u8; 16], padded: &[u8]) -> Option<Vec<u8>> {
    let key = EncryptingKey::cbc(UnboundCipherKey::new(&AES_256, key).ok()?).ok()?;
    let mut text = padded.to_vec();
    key.less_safe_encrypt(&mut text, EncryptionContext::Iv128(FixedLength::from(*iv))).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST SP 800-38A, F.2.6.
    #[test]
    fn the_published_vector_is_decrypted() {
        let bytes = |text: &str| hex::decode(text).unwrap();
        let key = bytes("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4").try_into().unwrap();
        let iv = bytes("000102030405060708090a0b0c0d0e0f").try_into().unwrap();
        let sealed = bytes("f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d");
        let plain = bytes("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51");
        assert_eq!(decrypt(&key, &iv, &sealed), Some(plain.clone()));
        assert_eq!(encrypt(&key, &iv, &plain), Some(sealed.clone()));
        assert_eq!(encrypt(&key, &iv, &plain[1..]), None);
        for wrong in [&sealed[..0], &sealed[..1], &sealed[..31]] {
            assert_eq!(decrypt(&key, &iv, wrong), None);
        }
    }
}
