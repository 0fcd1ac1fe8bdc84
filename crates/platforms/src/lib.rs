//! One folder per platform. A platform verifies, removes credentials, normalizes and acts; it does not decide who may
//! receive what, and does not use another platform.

pub mod chat;
pub mod discord;
pub mod feishu;
pub mod hooks;
mod kit;
pub mod matrix;
pub mod shared;
pub mod signal;
pub mod slack;
pub mod telegram;
pub mod twilio;
pub mod wecom;
pub mod whatsapp;

use std::sync::Arc;

use frontdesk_core::port::platform::Platform;

pub use kit::{Kit, Listed, NoMedia, SettingsError};

/// The bundled platforms, besides the built-in chat, which the edge serves itself. A new platform is one line here and
/// one above.
const LISTED: &[Listed] = &[
    discord::LISTED,
    feishu::LISTED,
    hooks::LISTED,
    matrix::LISTED,
    signal::LISTED,
    slack::LISTED,
    telegram::LISTED,
    twilio::LISTED,
    wecom::app::LISTED,
    wecom::robot::LISTED,
    whatsapp::LISTED,
];

/// Bots whose vendors send messages as requests, for benchmarks and tests.
pub fn samples() -> Vec<Box<dyn shared::sample::Sample>> {
    LISTED.iter().filter_map(|it| it.sample).map(|make| make()).collect()
}

/// All bundled platforms, with their settings.
pub fn in_the_box(kit: &Kit) -> Result<Vec<Arc<dyn Platform>>, SettingsError> {
    kit::open_all(LISTED, kit)
}

/// The sections of all platforms with their defaults and comments, in TOML.
pub fn default_settings() -> String {
    let sections: Vec<&str> = LISTED.iter().map(|it| it.defaults).filter(|text| !text.is_empty()).collect();
    sections.join("\n")
}
