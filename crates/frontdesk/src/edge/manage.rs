//! Joining, policies, leaving: the gateway's own records. The contract fixes `{"error": "..."}` here.

use axum::Json as Reply;
use axum::extract::State;
use frontdesk_wire::api::{EnrollRequest, ProvisionReply, ProvisionRequest, RelevancePolicy};
use serde_json::{Value, json};

use super::App;
use super::auth::{Gateway, Proven};
use super::body::Json;
use super::error::Refusal;

type Answer<T> = Result<Reply<T>, Refusal>;

fn plain(error: frontdesk_core::desk::DeskError) -> Refusal {
    Refusal::from(error).plain()
}

pub(crate) async fn provision(
    State(app): State<App>,
    Proven(who): Proven,
    Json(ask): Json<ProvisionRequest>,
) -> Answer<ProvisionReply> {
    app.desk.provision(&who, ask).await.map(Reply).map_err(plain)
}

pub(crate) async fn enroll(
    State(app): State<App>,
    Proven(who): Proven,
    Json(ask): Json<EnrollRequest>,
) -> Answer<ProvisionReply> {
    app.desk.enroll(&who, ask).await.map(Reply).map_err(plain)
}

/// The gateway is the source of truth and says it again at every start: a full replace.
pub(crate) async fn policy(
    State(app): State<App>,
    Gateway(caller): Gateway,
    Json(policy): Json<RelevancePolicy>,
) -> Answer<Value> {
    app.desk.set_policy(&caller, policy).await.map_err(plain)?;
    Ok(Reply(json!({ "ok": true })))
}

pub(crate) async fn deprovision(State(app): State<App>, Gateway(caller): Gateway) -> Answer<Value> {
    app.desk.deprovision(&caller).await.map_err(plain)?;
    Ok(Reply(json!({ "ok": true })))
}
