//! Answers that may be large. They count against the budget of their tenant until they were read.

use axum::Json as Reply;
use axum::body::HttpBody as _;
use axum::response::{IntoResponse as _, Response};
use frontdesk_wire::agents::{Class, Fault};
use serde::Serialize;

use super::Refused;
use super::auth::Api;
use crate::edge::App;
use crate::edge::flow::{PAGE_KIB, Spent, holding, shrunk};

/// For a skill, or a row of data.
pub(super) const ROW_KIB: usize = 2 * PAGE_KIB;
/// For many of them. Few answers have more, so that most queries of a tenant do not wait for each other.
pub(super) const ROWS_KIB: usize = 4 * PAGE_KIB;

/// Budget for an answer that is to be made. `kib`: what nearly all answers of this kind need.
pub(super) async fn reserve(app: &App, who: &Api, kib: usize) -> Result<Spent, Fault> {
    let busy = "too many unread responses are buffered for this tenant; read them, then try again";
    let spent = app.answers.take(&who.tenant, kib).await;
    spent.ok_or_else(|| Fault::new(Class::RateLimitedError, busy))
}

/// The budget for an answer of this size, which is made now.
pub(super) async fn resize(app: &App, who: &Api, mut spent: Spent, bytes: usize) -> Result<Spent, Fault> {
    let more = (bytes / 1024 + 1).saturating_sub(spent.num_permits());
    if more > 0 {
        spent.merge(reserve(app, who, app.answers.at_most(more, &spent)).await?);
    }
    Ok(shrunk(spent, bytes))
}

/// Makes an answer once there is budget for it.
pub(super) async fn answer<T: Serialize>(
    app: &App,
    who: &Api,
    kib: usize,
    made: impl Future<Output = Result<T, Fault>>,
) -> Result<Response, Refused> {
    let spent = reserve(app, who, kib).await?;
    let response = Reply(made.await?).into_response();
    let bytes = usize::try_from(response.body().size_hint().lower()).unwrap_or(usize::MAX);
    Ok(holding(response, resize(app, who, spent, bytes).await?))
}
