//! A secret text without `Debug` and `Display`, wiped when dropped.
//!
//! Secrets must never be formatted; [`Secret::expose`] marks every use of the value.

use serde::Deserialize;
use zeroize::Zeroizing;

#[derive(Clone, Deserialize)]
#[serde(from = "String")]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The value, for signing, encrypting or showing once.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Constant-time comparison: the time does not disclose how many bytes are equal.
pub fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(a, b).is_ok()
}
