//! What several platforms need.

pub mod standard_webhooks;
