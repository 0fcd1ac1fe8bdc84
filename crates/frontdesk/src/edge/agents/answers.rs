//! Answers that may be large. They count against the budget of their tenant until they were read.

use axum::Json as Reply;
use axum::body::HttpBody as _;
use axum::response::{IntoResponse as _, Response};
use frontdesk_core::port::{data, skills};
use frontdesk_wire::agents::{Class, Fault};
use serde::Serialize;

use super::Refused;
use super::auth::Api;
use crate::edge::App;
use crate::edge::flow::{PAGE_KIB, Spent, holding, shrunk};

// At most, with the JSON around the texts.
pub(super) const ROW_KIB: usize = 2 * PAGE_KIB;
pub(super) const ROWS_KIB: usize = 2 * data::ANSWER_MAX_BYTES / 1024;
pub(super) const SKILLS_KIB: usize = 2 * skills::PAGE_MAX_BYTES / 1024;

/// Budget for an answer of at most that size.
pub(super) async fn reserve(app: &App, who: &Api, most_kib: usize) -> Result<Spent, Fault> {
    let busy = "too many unread responses are buffered for this tenant; read them, then try again";
    let spent = app.answers.take(&who.tenant, most_kib).await;
    spent.ok_or_else(|| Fault::new(Class::RateLimitedError, busy))
}

/// Makes an answer of at most that size once there is budget for it.
pub(super) async fn answer<T: Serialize>(
    app: &App,
    who: &Api,
    most_kib: usize,
    made: impl Future<Output = Result<T, Fault>>,
) -> Result<Response, Refused> {
    let spent = reserve(app, who, most_kib).await?;
    let response = Reply(made.await?).into_response();
    let bytes = response.body().size_hint().lower();
    Ok(holding(response, shrunk(spent, usize::try_from(bytes).unwrap_or(usize::MAX))))
}
