//! One folder a platform. A platform verifies, strips credentials, normalizes and acts; it decides nothing about who may
//! have what, and never sees another platform.

pub mod chat;
pub mod hooks;
pub mod shared;

use std::sync::Arc;

use frontdesk_core::port::platform::Platform;

/// What is in the box, besides the built-in chat, which the edge serves itself. A new platform is one line here and one
/// above.
pub fn in_the_box() -> Vec<Arc<dyn Platform>> {
    vec![Arc::new(hooks::Hooks::default())]
}
