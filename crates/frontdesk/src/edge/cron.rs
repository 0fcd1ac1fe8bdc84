//! The cron API: agents arm one alarm per job, list and cancel them; the public keys need no authentication. The
//! contract requires errors as `{"error": "..."}`.

use axum::Json as Reply;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use frontdesk_core::directory::ProvenInstance;
use frontdesk_core::port::store::StoreError;
use frontdesk_core::{DeskError, Rules};
use frontdesk_wire::cron::{ArmedAlarm, CancelAlarm, ProvisionAlarm, Provisioned, RelayBody, SigningAlg};
use frontdesk_wire::{Code, JobId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::auth::Proven;
use super::body::{Json, whole};
use super::error::Refusal;
use super::flow::{PAGE_KIB, holding};

/// Memory of a list that is not read: a page, and the one that is being sent.
const LIST_KIB: usize = 256;
/// Calls of the scheduler have short bodies.
const RELAY_MAX_BYTES: usize = 16 * 1024;

/// `[cron]`: rules of the alarms, and the keys of an external scheduler.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub misfire_grace_s: u64,
    pub jitter_ms: u64,
    pub alg: SigningAlg,
    pub relay_keys: Vec<String>,
    pub armed_per_tenant: u64,
}

impl Settings {
    pub(crate) fn apply(&self, rules: &mut Rules) {
        rules.misfire_grace_ms = self.misfire_grace_s.saturating_mul(1000);
        rules.fire_jitter_ms = self.jitter_ms;
        rules.fire_alg = self.alg;
        rules.armed_max = self.armed_per_tenant;
    }
}

type Answer<T> = Result<Reply<T>, Refusal>;

fn plain(error: DeskError) -> Refusal {
    Refusal::from(error).plain()
}

async fn proven(app: &App, who: &Proven) -> Result<ProvenInstance, Refusal> {
    app.desk.directory().proven_instance(&who.0).await.map_err(plain)
}

pub(crate) async fn provision(
    State(app): State<App>,
    who: Proven,
    Json(ask): Json<ProvisionAlarm>,
) -> Answer<Provisioned> {
    let proven = proven(&app, &who).await?;
    app.desk.cron().provision_alarm(&proven, ask).await.map(Reply).map_err(plain)
}

pub(crate) async fn cancel(State(app): State<App>, who: Proven, Json(ask): Json<CancelAlarm>) -> Answer<Value> {
    let proven = proven(&app, &who).await?;
    app.desk.cron().cancel_alarm(&proven, &ask).await.map_err(plain)?;
    Ok(Reply(json!({ "ok": true })))
}

/// The contract requires all armed alarms in one response. They are read and sent page by page; if a page cannot be
/// read, the response is cut off, so that it is not mistaken for a complete one.
pub(crate) async fn list(State(app): State<App>, who: Proven) -> Result<Response, Refusal> {
    let proven = proven(&app, &who).await?;
    let spent = app.answers.take(&proven.tenant, LIST_KIB).await.map_err(|it| Refusal::from(it).plain())?;
    let (first, next) =
        app.desk.cron().armed_page(proven.instance.no, &JobId::default()).await.map_err(|error| plain(error.into()))?;
    let head = format!("{{\"armed\":[{}", in_a_row(&first, true));
    let (desk, instance) = (app.desk.clone(), proven.instance.no);
    let rest = stream::try_unfold((Some(next), first.is_empty()), move |(at, is_first)| {
        let desk = desk.clone();
        async move {
            match at {
                None => Ok::<_, StoreError>(None),
                Some(None) => Ok(Some(("]}".to_owned(), (None, is_first)))),
                // A page may be empty although further ones are not.
                Some(Some(after)) => {
                    let (page, next) = desk.cron().armed_page(instance, &after).await?;
                    Ok(Some((in_a_row(&page, is_first), (Some(next), is_first && page.is_empty()))))
                }
            }
        }
    });
    let rest = rest.try_filter(|part| std::future::ready(!part.is_empty()));
    let body = Body::from_stream(stream::iter([Ok(head)]).chain(rest));
    let response = ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response();
    Ok(holding(response, spent))
}

/// Elements of a list. `is_first`: none was written before them.
fn in_a_row(alarms: &[ArmedAlarm], is_first: bool) -> String {
    let each: Vec<String> = alarms.iter().map(|it| serde_json::to_string(it).unwrap_or_default()).collect();
    let comma = if is_first || each.is_empty() { "" } else { "," };
    format!("{comma}{}", each.join(","))
}

#[derive(Deserialize)]
pub(crate) struct OfJob {
    job_id: Option<JobId>,
}

pub(crate) async fn history(State(app): State<App>, who: Proven, Query(of): Query<OfJob>) -> Result<Response, Refusal> {
    let proven = proven(&app, &who).await?;
    let ended = async { Ok(app.desk.cron().alarm_history(&proven.instance, of.job_id.as_ref()).await?) };
    app.answers.answer(&proven.tenant, PAGE_KIB, ended).await.map_err(Refusal::plain)
}

/// An external scheduler reports that an alarm is due. Responds with 2xx only after the agent has accepted it.
pub(crate) async fn relay(State(app): State<App>, request: Request) -> Answer<Value> {
    let headers = request.headers().clone();
    let body = whole(request, RELAY_MAX_BYTES).await.map_err(Refusal::plain)?;
    let id = app.scheduler_webhook.check(&headers, &body, app.desk.env().now_s()).map_err(|why| {
        tracing::warn!(%why, "scheduler webhook call refused");
        Refusal::new(Code::Unauthorized, "this call is not signed with a known scheduler key").plain()
    })?;
    let fire = async {
        let ask: RelayBody = serde_json::from_slice(&body)
            .map_err(|error| Refusal::new(Code::BadRequest, format!("invalid request body: {error}")))?;
        app.desk.cron().fire_for(&ask).await.map_err(Refusal::from)
    };
    match fire.await {
        Ok(()) => Ok(Reply(json!({ "ok": true }))),
        Err(refusal) => {
            app.scheduler_webhook.give_back(&id);
            Err(refusal.plain())
        }
    }
}

/// Public keys. They can be cached, because a rotated key stays valid for one day.
pub(crate) async fn jwks(State(app): State<App>) -> Response {
    let cache = HeaderValue::from_static("public, max-age=300");
    ([(header::CACHE_CONTROL, cache)], Reply(app.desk.cron().keys().jwks())).into_response()
}
