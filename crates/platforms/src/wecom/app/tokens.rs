//! The access token of an app.

use super::failed::ApiError;

pub(super) use crate::shared::tokens::Granted;

pub(super) type Tokens = crate::shared::tokens::Tokens<ApiError>;
