//! Skills as texts: what a body says of itself, how its status is changed, and who approved it.
//!
//! Pure: nothing here knows of stores or tenants.

pub mod approval;
pub mod status;

pub use approval::{ApprovalKey, BadKey};
pub use status::{content_hash, description, is_name, status_of, tags, version_of, with_status};
