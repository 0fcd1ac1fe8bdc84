//! Provision, enroll, and the settings that an agent manages itself. The contract requires errors of the form
//! `{"error": "..."}`.
//!
//! The instance is the authenticated one. An instance named in a body is ignored.

use axum::Json as Reply;
use axum::extract::{Query, State};
use frontdesk_wire::api::{
    DmDefaultAsk, EnrollRequest, Explanation, LinkAsk, LinkOffer, PrincipalAsk, ProvisionReply, ProvisionRequest,
    RelevancePolicy, ScopeAsk,
};
use frontdesk_wire::{ChatId, Code, MessageId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::auth::{Gateway, Managed, Proven};
use super::body::Json;
use super::error::Refusal;

type Answer<T> = Result<Reply<T>, Refusal>;

fn done() -> Reply<Value> {
    Reply(json!({ "ok": true }))
}

fn plain(error: frontdesk_core::DeskError) -> Refusal {
    Refusal::from(error).plain()
}

pub(crate) async fn provision(
    State(app): State<App>,
    Proven(who): Proven,
    Json(ask): Json<ProvisionRequest>,
) -> Answer<ProvisionReply> {
    app.desk.directory().provision(&who, ask).await.map(Reply).map_err(plain)
}

pub(crate) async fn enroll(
    State(app): State<App>,
    Proven(who): Proven,
    Json(ask): Json<EnrollRequest>,
) -> Answer<ProvisionReply> {
    app.desk.directory().enroll(&who, ask).await.map(Reply).map_err(plain)
}

pub(crate) async fn policy(
    State(app): State<App>,
    Gateway(caller): Gateway,
    Json(policy): Json<RelevancePolicy>,
) -> Answer<Value> {
    app.desk.management().set_policy(&caller.proven_instance(), policy).await.map_err(plain)?;
    Ok(done())
}

pub(crate) async fn link(State(app): State<App>, Managed(who): Managed, Json(ask): Json<LinkAsk>) -> Answer<LinkOffer> {
    app.desk.management().offer_link(&who, ask).await.map(Reply).map_err(plain)
}

pub(crate) async fn scope(State(app): State<App>, Managed(who): Managed, Json(ask): Json<ScopeAsk>) -> Answer<Value> {
    app.desk.management().claim_scope(&who, ask).await.map_err(plain)?;
    Ok(done())
}

pub(crate) async fn release(State(app): State<App>, Managed(who): Managed, Json(ask): Json<ScopeAsk>) -> Answer<Value> {
    app.desk.management().release_scope(&who, ask).await.map_err(plain)?;
    Ok(done())
}

pub(crate) async fn principal(
    State(app): State<App>,
    Managed(who): Managed,
    Json(ask): Json<PrincipalAsk>,
) -> Answer<Value> {
    app.desk.management().set_principal(&who, ask).await.map_err(plain)?;
    Ok(done())
}

pub(crate) async fn dm_default(
    State(app): State<App>,
    Managed(who): Managed,
    Json(ask): Json<DmDefaultAsk>,
) -> Answer<Value> {
    app.desk.management().set_dm_default(&who, ask).await.map_err(plain)?;
    Ok(done())
}

pub(crate) async fn deprovision(State(app): State<App>, Managed(who): Managed) -> Answer<Value> {
    app.desk.deprovision(&who).await.map_err(plain)?;
    Ok(done())
}

#[derive(Deserialize)]
pub(crate) struct Which {
    #[serde(default)]
    message_id: MessageId,
    chat_id: Option<ChatId>,
}

/// Why this agent did, or did not, receive a message.
pub(crate) async fn why(
    State(app): State<App>,
    Managed(who): Managed,
    Query(which): Query<Which>,
) -> Answer<Explanation> {
    if which.message_id.is_empty() {
        return Err(Refusal::new(Code::BadRequest, "the query parameter message_id is missing").plain());
    }
    app.desk.explanations().why(&who, &which.message_id, which.chat_id.as_ref()).await.map(Reply).map_err(plain)
}
