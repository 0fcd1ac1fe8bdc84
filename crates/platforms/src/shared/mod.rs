//! What several platforms need.

pub mod markdown;
pub mod standard_webhooks;
