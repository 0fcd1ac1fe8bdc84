//! Admin routes for agents: list, inboxes, messages.

use axum::Json as Reply;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use frontdesk_core::agents::AgentsCaller;
use frontdesk_wire::agents::{Class, DeliveryMeta, DeliveryPayload, Fault, Inbox, Origin, WakeOpts};
use frontdesk_wire::{Code, InboxSeq, InstanceId, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Answer;
use crate::edge::App;
use crate::edge::auth::Admin;
use crate::edge::body::Json;
use crate::edge::error::Refusal;

#[derive(Deserialize)]
pub(super) struct OfTenant {
    tenant: TenantId,
    #[serde(default)]
    after: InboxSeq,
}

#[derive(Deserialize)]
pub(super) struct Which {
    tenant: Option<TenantId>,
}

#[derive(Deserialize)]
pub(super) struct SayPost {
    tenant: TenantId,
    text: String,
    from: Option<String>,
    #[serde(default)]
    wake: bool,
}

fn refused(fault: Fault) -> Refusal {
    let code = match fault.class {
        Class::UnknownAgentError => Code::NotFound,
        Class::DeliveryFailedError => Code::PlatformFailed,
        class => match class.status() {
            400 | 422 => Code::BadRequest,
            403 => Code::Forbidden,
            404 => Code::NotFound,
            409 => Code::Conflict,
            413 => Code::TooLarge,
            429 => Code::RateLimited,
            503 => Code::Unavailable,
            504 => Code::Timeout,
            _ => Code::Internal,
        },
    };
    Refusal::new(code, fault.message)
}

pub(super) async fn list(_: Admin, State(app): State<App>, Query(which): Query<Which>) -> Answer<Value> {
    Ok(Reply(json!({ "agents": app.desk.agents().agents_shown(which.tenant.as_ref())? })))
}

pub(super) async fn show(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<InstanceId>,
    Query(of): Query<OfTenant>,
) -> Answer<Value> {
    let mut shown = json!(app.desk.agents().agent_shown(&of.tenant, &id)?);
    let newest = match app.desk.inboxes().inbox_of(&of.tenant, &id).map_err(refused)?.1 {
        Some(no) => app.desk.inboxes().newest(no).await?,
        None => InboxSeq::NONE,
    };
    shown["newest"] = json!(newest);
    Ok(Reply(shown))
}

pub(super) async fn remove(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<InstanceId>,
    Query(of): Query<OfTenant>,
) -> Result<StatusCode, Refusal> {
    let who = AgentsCaller::operator(&of.tenant);
    app.desk.agents().delete_agent(who, &id).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Delivers to the inbox, or wakes. The receipt tells which.
pub(super) async fn say(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
    Json(post): Json<SayPost>,
) -> Answer<Value> {
    let desk = &app.desk;
    let from = post.from.filter(|name| !name.is_empty());
    let who = AgentsCaller { caller: from.as_deref(), ..AgentsCaller::operator(&post.tenant) };
    if post.wake {
        let opts = WakeOpts { context: Some(post.text), ..WakeOpts::default() };
        return Ok(Reply(json!(desk.messages().wake(who, &id, &opts).await.map_err(refused)?)));
    }
    let origin = Origin { trigger_kind: Some("cli".into()), caller_agent_id: from.clone(), ..Origin::default() };
    let (dispatch_id, sent_at) = (desk.env().uuid_v4(), desk.env().now_ms());
    let meta = DeliveryMeta { dispatch_id, sent_at, origin, ..DeliveryMeta::default() };
    let payload = DeliveryPayload::Augment { content: post.text, meta };
    Ok(Reply(json!(desk.messages().deliver(who, &id, &payload).await.map_err(refused)?)))
}

pub(super) async fn inbox(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
    Query(of): Query<OfTenant>,
) -> Answer<Inbox> {
    Ok(Reply(app.desk.inboxes().read_inbox_as_operator(&of.tenant, &id, of.after).await.map_err(refused)?))
}
