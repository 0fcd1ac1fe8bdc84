//! What several platforms need.

pub(crate) mod bounded_cache;
pub mod cbc;
pub(crate) mod draft;
pub(crate) mod fit;
pub(crate) mod form;
pub mod markdown;
pub(crate) mod missing_bot;
pub(crate) mod recent;
pub(crate) mod refusal;
pub mod sample;
pub(crate) mod source_file;
pub mod standard_webhooks;
pub(crate) mod text;
pub(crate) mod tokens;
pub(crate) mod transfers;
pub(crate) mod unanswered;
pub(crate) mod undelivered;
pub(crate) mod vendor_url;
