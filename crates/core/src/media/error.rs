//! Why a file of a platform is not served.

use crate::port::store::StoreError;

/// Why a file cannot be had. The text is for the agent; it never contains the handle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("file not found or expired")]
    Absent,
    /// A later attempt cannot succeed.
    #[error("{0}")]
    Gone(String),
    /// A later attempt may succeed.
    #[error("{0}")]
    Unavailable(String),
    #[error("the file is larger than {0} bytes")]
    TooLarge(usize),
    /// The tenant has this many bytes of files already.
    #[error("this tenant stores {0} bytes of files, and there is no room for more")]
    Full(u64),
    #[error("too many files are being fetched from their platforms; try again later")]
    Busy,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl FetchError {
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Gone(_) => "gone",
            Self::Unavailable(_) => "unavailable",
            Self::TooLarge(_) => "too_large",
            Self::Full(_) => "full",
            Self::Busy => "busy",
            Self::Store(_) => "store",
        }
    }
}
