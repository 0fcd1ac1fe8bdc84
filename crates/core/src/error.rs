//! Why a request is refused. Shared by the planes.

use crate::port::store::StoreError;

/// A refusal. The text is for the caller and has no secret in it.
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
    /// The upstream that was asked refused or failed, such as a platform.
    #[error("{0}")]
    Elsewhere(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}
