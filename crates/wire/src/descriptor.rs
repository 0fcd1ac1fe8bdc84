//! What a platform supports, sent to the gateway after each hello.
//!
//! All fields are always sent, because an incomplete descriptor ends the client's reader.

use serde::{Deserialize, Serialize};

pub const CONTRACT_VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Descriptor {
    pub contract_version: u32,
    pub platform: String,
    pub label: String,
    pub max_message_length: usize,
    pub supports_draft_streaming: bool,
    pub supports_edit: bool,
    pub supports_threads: bool,
    pub markdown_dialect: String,
    pub len_unit: LenUnit,
    #[serde(default)]
    pub emoji: String,
    #[serde(default)]
    pub platform_hint: String,
    #[serde(default)]
    pub pii_safe: bool,
    #[serde(default)]
    pub supports_context: bool,
    #[serde(default)]
    pub supports_inchannel_continuable: bool,
    #[serde(default)]
    pub supports_block_formatting: bool,
    #[serde(default)]
    pub supported_ops: Vec<String>,
}

impl Descriptor {
    /// A platform of plain text that supports no op. Each one adds what it has.
    pub fn plain(platform: impl Into<String>, label: impl Into<String>, max_message_length: usize) -> Self {
        Self {
            contract_version: CONTRACT_VERSION,
            platform: platform.into(),
            label: label.into(),
            max_message_length,
            supports_draft_streaming: false,
            supports_edit: false,
            supports_threads: false,
            markdown_dialect: "plain".into(),
            len_unit: LenUnit::Chars,
            emoji: String::new(),
            platform_hint: String::new(),
            pii_safe: false,
            supports_context: false,
            supports_inchannel_continuable: false,
            supports_block_formatting: false,
            supported_ops: Vec::new(),
        }
    }

    pub fn supports(&self, op: &str) -> bool {
        self.supported_ops.iter().any(|known| known == op)
    }
}

/// How a platform measures the length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LenUnit {
    Chars,
    Utf16,
}

impl LenUnit {
    pub fn measure(self, text: &str) -> usize {
        match self {
            Self::Chars => text.chars().count(),
            Self::Utf16 => text.chars().map(char::len_utf16).sum(),
        }
    }
}
