//! Routes for agents, their messages and replies.

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json as Reply};
use frontdesk_core::agents::{AnswerChannel, BufferedReply, Question, Reservation};
use frontdesk_wire::agents::{
    AgentDescriptor, AgentList, AgentPut, AgentState, Class, DeliveryPayload, DeliveryReceipt, Fault, Notified,
    NotifyPost, Replied, ReplyPost, WakeOpts, WakeReceipt,
};
use frontdesk_wire::{InboxSeq, InstanceId};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::auth::Api;
use super::body::{Json, Raw};
use super::{Answer, Refused, answer};
use crate::edge::App;
use crate::edge::body_memory::BodyReservation;
use crate::edge::flow::{PAGE_KIB, holding};

/// Default timeout of an exchange.
pub(super) const TIMEOUT_MS: u64 = 30_000;

pub(crate) async fn health(_: Api) -> Reply<Value> {
    Reply(json!({ "status": "ok" }))
}

pub(crate) async fn list(State(app): State<App>, who: Api) -> Result<Response, Refused> {
    answer(&app, &who, PAGE_KIB, async { Ok(AgentList { agents: app.desk.agents().list(&who.tenant) }) }).await
}

pub(crate) async fn show(State(app): State<App>, who: Api, Path(id): Path<String>) -> Answer<AgentDescriptor> {
    let found = app.desk.agents().descriptor(&who.tenant, &InstanceId::from(id.as_str()));
    found.map(Reply).ok_or_else(|| Fault::unknown_agent(&id).into())
}

pub(crate) async fn put(
    State(app): State<App>,
    who: Api,
    Path(id): Path<InstanceId>,
    Json(put): Json<AgentPut>,
) -> Answer<AgentDescriptor> {
    Ok(Reply(app.desk.agents().put_agent(who.as_caller(), &id, put).await?))
}

pub(crate) async fn delete(
    State(app): State<App>,
    who: Api,
    Path(id): Path<InstanceId>,
) -> Result<StatusCode, Refused> {
    app.desk.agents().delete_agent(who.as_caller(), &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn status(State(app): State<App>, who: Api, Path(id): Path<String>) -> Reply<AgentState> {
    let status = app.desk.agents().status(&who.tenant, &id);
    Reply(AgentState { agent_id: id, status })
}

pub(crate) async fn deliver(
    State(app): State<App>,
    who: Api,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Raw,
) -> Answer<DeliveryReceipt> {
    let signatures = headers.get_all("x-signature").iter().map(http::HeaderValue::as_bytes);
    app.desk.agents().verify_delivery(&who.tenant, &id, &body.0, signatures)?;
    let payload = read_payload(&app, &who, &id, body.json()?)?;
    Ok(Reply(app.desk.messages().deliver(who.as_caller(), &id, &payload).await?))
}

/// The kind is checked first, because an unknown kind has its own fault class.
fn read_payload(app: &App, who: &Api, id: &str, body: Value) -> Result<DeliveryPayload, Fault> {
    let Value::Object(body) = body else { return Err(Fault::invalid("the request body must be a JSON object")) };
    check_named(app, who, id, &body)?;
    match body.get("kind") {
        Some(Value::String(kind)) if kind == "augment" || kind == "template" => {}
        Some(Value::String(kind)) => {
            let shown: String = kind.chars().take(40).collect();
            let text = format!("kind {shown:?} is not supported; use augment or template");
            return Err(Fault::new(Class::UnsupportedKindError, text));
        }
        _ => return Err(Fault::invalid("kind must be augment or template")),
    }
    let payload: DeliveryPayload = serde_json::from_value(Value::Object(body))
        .map_err(|error| Fault::invalid(format!("invalid request body: {error}")))?;
    if payload.meta().dispatch_id.is_empty() {
        return Err(Fault::invalid("meta.dispatch_id must not be empty"));
    }
    Ok(payload)
}

fn check_named(app: &App, who: &Api, id: &str, body: &Map<String, Value>) -> Result<(), Fault> {
    match body.get("agent_id") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(named)) => app.desk.inboxes().check_named(&who.tenant, id, named),
        Some(_) => Err(Fault::invalid("agent_id must be a string")),
    }
}

pub(crate) async fn wake(
    State(app): State<App>,
    who: Api,
    Path(id): Path<String>,
    Json(body): Json<Map<String, Value>>,
) -> Answer<WakeReceipt> {
    app.desk.inboxes().inbox_of(&who.tenant, &id)?; // an unknown agent is reported before any other error
    check_named(&app, &who, &id, &body)?;
    let opts = read_wake(body)?;
    Ok(Reply(app.desk.messages().wake(who.as_caller(), &id, &opts).await?))
}

pub(crate) fn read_wake(mut body: Map<String, Value>) -> Result<WakeOpts, Fault> {
    if body.get("when").is_some_and(|when| !when.is_null() && !when.is_i64() && *when != json!("immediate")) {
        return Err(Fault::invalid("when must be \"immediate\" or a time in unix milliseconds"));
    }
    body.retain(|_, value| !value.is_null());
    let fit = serde_json::from_value(Value::Object(body));
    fit.map_err(|error| Fault::invalid(format!("invalid request body: {error}")))
}

pub(crate) async fn exchange(
    State(app): State<App>,
    who: Api,
    Path(id): Path<String>,
    Extension(held): Extension<BodyReservation>,
    Json(body): Json<Value>,
) -> Result<Response, Refused> {
    app.desk.inboxes().inbox_of(&who.tenant, &id)?;
    let timeout_ms = match body.get("timeout_ms") {
        None | Some(Value::Null) => TIMEOUT_MS,
        Some(given) => given.as_u64().ok_or_else(|| Fault::invalid("timeout_ms must be a number of milliseconds"))?,
    };
    let payload = read_payload(&app, &who, &id, body)?;
    let question = Question { payload, held: Box::new(held) };
    let BufferedReply { reply, reservation } = ask(&app, who, id, question, timeout_ms, 1).await?;
    Ok(holding(Reply(reply).into_response(), reservation))
}

/// Runs in its own task: a client that disconnects frees its slot, and the exchange runs to completion. The answer counts
/// against the budget of its tenant until it was read. A server that is stopping does not wait for the answer.
///
/// `copies`: how often the answer is in memory until then.
pub(crate) async fn ask(
    app: &App,
    who: Api,
    id: String,
    question: Question,
    timeout_ms: u64,
    copies: usize,
) -> Result<BufferedReply, Fault> {
    let (asker, mut answer) = oneshot::channel();
    let (desk, app_of_reply, tenant) = (app.desk.clone(), app.clone(), who.tenant.clone());
    let reservation = move |bytes: usize| {
        let spent = app_of_reply.replies.take_now(&tenant, copies * bytes / 1024 + 1)?;
        Some(Box::new(spent) as Reservation)
    };
    let line = AnswerChannel::new(asker, reservation);
    app.sessions.spawn(async move { desk.exchanges().ask(who.as_caller(), &id, question, timeout_ms, line).await });
    tokio::select! {
        biased;
        result = &mut answer => result.unwrap_or_else(|_| {
            Err(Fault::new(Class::InternalError, "the exchange failed with an internal error; see the server log"))
        }),
        () = app.stop.cancelled() => {
            answer.close(); // an answer that is accepted from now on goes to the inbox of the agent that asked
            answer.try_recv().unwrap_or_else(|_| Err(stopping()))
        }
    }
}

fn stopping() -> Fault {
    let text = "the server is stopping and no longer waits for the answer; if the question was stored, it stays in the inbox, and a \
                late answer goes to the inbox of the agent that asked, if it was one";
    Fault::new(Class::UnavailableError, text)
}

pub(crate) async fn reply(
    State(app): State<App>,
    who: Api,
    Path(id): Path<String>,
    Json(post): Json<ReplyPost>,
) -> Answer<Replied> {
    Ok(Reply(app.desk.exchanges().reply(who.as_caller(), &id, &post.correlation_id, post.content).await?))
}

#[derive(Deserialize)]
pub(crate) struct After {
    #[serde(default)]
    after: InboxSeq,
}

pub(crate) async fn inbox(
    State(app): State<App>,
    who: Api,
    Path(id): Path<String>,
    Query(After { after }): Query<After>,
) -> Result<Response, Refused> {
    answer(&app, &who, PAGE_KIB, app.desk.inboxes().inbox(who.as_caller(), &id, after)).await
}

pub(crate) async fn notify(State(app): State<App>, who: Api, Json(post): Json<NotifyPost>) -> Answer<Notified> {
    Ok(Reply(app.desk.messages().notify(who.as_caller(), post).await?))
}
