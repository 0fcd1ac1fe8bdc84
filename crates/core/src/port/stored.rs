//! Results of the verbs of a store.

use super::BoxFuture;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Disk full, locked, closed: nothing was written, and it may work again later.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The answer was lost: it may have been written.
    #[error("the store did not answer, and it is not known whether this was written: {0}")]
    Unknown(String),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A record that this version cannot read is in the way: nothing was written.
    #[error("{0}")]
    Newer(String),
    /// Another writer changed the record in between.
    #[error("the record was changed concurrently")]
    Conflict,
}

impl StoreError {
    /// The text for the caller, without details of the store. A real failure is logged with them.
    pub fn refusal(&self) -> String {
        let text = match self {
            Self::Conflict => return "the record was changed concurrently; try again".into(),
            Self::Newer(why) => return why.clone(),
            Self::Unknown(_) => "the store did not answer; it is not known whether this was stored",
            Self::Unavailable(_) | Self::Corrupt(_) => "the store is unavailable; nothing was stored, try again later",
        };
        tracing::error!(error = %self, "store operation failed");
        text.into()
    }
}

pub type Stored<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Texts of users and agents are read in pages: a page with this many bytes ends, however few rows it has. A client
/// that asks for pages and does not read them holds no more than this.
pub const PAGE_MAX_BYTES: usize = 512 << 10;
