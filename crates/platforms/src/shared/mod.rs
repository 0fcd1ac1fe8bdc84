//! What several platforms need.

pub(crate) mod fit;
pub mod markdown;
pub(crate) mod source_file;
pub mod standard_webhooks;
