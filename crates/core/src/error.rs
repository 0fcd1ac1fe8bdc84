//! Why a request is refused.

use crate::port::store::StoreError;

/// Why the desk says no. The text is for the caller; it never holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum DeskError {
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("{0}")]
    RateLimited(String),
    /// Somebody whom we asked said no.
    #[error("{0}")]
    Elsewhere(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
