//! The admin API, used by the command line.

mod agents;
mod tail;

use std::collections::HashMap;
use std::time::Duration;

use axum::Json as Reply;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{delete, get, post, put};
use frontdesk_core::directory::facts::{Gateway, Scope};
use frontdesk_core::mail_id;
use frontdesk_core::port::alarms::Alarm;
use frontdesk_core::port::platform::BotFinding;
use frontdesk_core::port::store::{DeskRecord, Mail, MailState, Presence};
use frontdesk_wire::api::{
    BindingNew, BotNew, DropMail, EnrollmentNew, Explanation, GatewayMade, GatewayNew, GrantName, Rotated, RouteNew,
    TenantNew, TokenMade, TokenNew,
};
use frontdesk_wire::cron::AlarmHistory;
use frontdesk_wire::{BotId, Code, GatewayId, InstanceId, InstanceNo, JobId, Seq, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::auth::Admin;
use super::body::Json;
use super::error::Refusal;

/// Armed alarms per response.
const ARMED_PAGE: usize = 1_000;
/// Dead alarms per response.
const DEAD_PAGE: usize = 1_000;

type Answer<T> = Result<Reply<T>, Refusal>;
type Made<T> = Result<(StatusCode, Reply<T>), Refusal>;

pub(super) fn router() -> Router<App> {
    Router::new()
        .route("/tenants", get(tenants).post(create_tenant))
        .route("/tenants/{id}/skills", put(skill_rules))
        .route("/dispatches", get(dispatches))
        .route("/tokens", get(tokens).post(create_token))
        .route("/tokens/{id}", delete(revoke_token))
        .route("/enrollment-tokens", post(create_enrollment))
        .route("/bots", get(bots).post(add_bot))
        .route("/bots/{platform}/{id}", delete(remove_bot))
        .route("/bots/{platform}/{id}/check", get(check_bot))
        .route("/routes", get(routes).post(add_route))
        .route("/routes/{platform}/{key}", delete(remove_route))
        .route("/bindings", get(bindings).post(bind).delete(unbind))
        .route("/grants", get(grants).delete(remove_grant))
        .route("/gateways", get(gateways).post(add_gateway))
        .route("/gateways/{id}", get(gateway))
        .route("/gateways/{id}/rotate", post(rotate))
        .route("/gateways/{id}/revoke", post(revoke))
        .route("/agents", get(agents::list))
        .route("/agents/{id}", get(agents::show).delete(agents::remove))
        .route("/agents/{id}/say", post(agents::say))
        .route("/agents/{id}/inbox", get(agents::inbox))
        .route("/instances", get(instances))
        .route("/instances/{id}/mail", get(mail))
        .route("/mail/{id}", get(mail_row))
        .route("/mail/{id}/replay", post(replay))
        .route("/mail/{id}/drop", post(drop_mail))
        .route("/instances/{id}/alarms", get(alarms))
        .route("/instances/{id}/alarms/history", get(alarm_history))
        .route("/alarms/dead", get(dead_alarms))
        .route("/alarms/{id}/replay", post(replay_alarm))
        .route("/signing-keys/rotate", post(rotate_signing_key))
        .route("/events/{id}/explain", get(explain))
        .route("/events/stream", get(tail::tail))
        .route("/journal", get(journal))
        .route("/chat-link", post(chat_link))
        .route("/desks", get(desks))
        .route("/doctor", get(doctor))
        .route("/backup", post(backup))
}

#[derive(Deserialize)]
struct Of {
    tenant: Option<TenantId>,
    instance: Option<String>,
}

// ---- tenants and tokens -----------------------------------------------------------------------

async fn tenants(_: Admin, State(app): State<App>) -> Reply<Value> {
    let all: Vec<Value> = app
        .desk
        .directory()
        .read(|view| view.tenants().map(|it| json!({ "name": it.name, "created_at": it.created_ms })).collect());
    Reply(json!({ "tenants": all }))
}

async fn create_tenant(_: Admin, State(app): State<App>, Json(ask): Json<TenantNew>) -> Made<Value> {
    app.desk.directory().create_tenant(&ask.name).await?;
    Ok((StatusCode::CREATED, Reply(json!({ "id": ask.name, "name": ask.name }))))
}

async fn tokens(_: Admin, State(app): State<App>, Query(of): Query<Of>) -> Reply<Value> {
    let all: Vec<Value> = app.desk.directory().read(|view| {
        let of_tenant = view.tokens().filter(|it| of.tenant.as_ref().is_none_or(|t| it.tenant == *t));
        let show = |it: &std::sync::Arc<frontdesk_core::directory::facts::Token>| {
            json!({ "id": it.id, "tenant": it.tenant, "scope": it.scope, "instance": it.instance,
                    "created_at": it.created_ms, "expires_at": it.expires_ms })
        };
        of_tenant.map(show).collect()
    });
    Reply(json!({ "tokens": all }))
}

async fn create_token(_: Admin, State(app): State<App>, Json(ask): Json<TokenNew>) -> Made<TokenMade> {
    let scope = Scope::parse(&ask.scope).ok_or_else(|| {
        Refusal::new(
            Code::BadRequest,
            format!("scope {:?} is unknown; use identity, agents, operator or chat", ask.scope),
        )
    })?;
    let made = app.desk.directory().create_token(&ask.tenant, scope, ask.instance, ask.ttl_s).await?;
    Ok((StatusCode::CREATED, Reply(made)))
}

async fn revoke_token(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<StatusCode, Refusal> {
    app.desk.directory().revoke_token(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn create_enrollment(_: Admin, State(app): State<App>, Json(ask): Json<EnrollmentNew>) -> Made<TokenMade> {
    Ok((StatusCode::CREATED, Reply(app.desk.directory().create_enrollment(&ask.tenant, ask.ttl_s).await?)))
}

/// Creates a one-time link to the chat page of a tenant.
async fn chat_link(_: Admin, State(app): State<App>, Json(ask): Json<TenantNew>) -> Made<Value> {
    let known = app.desk.directory().read(|view| view.tenant(&ask.name).is_some());
    if !known {
        return Err(Refusal::new(Code::NotFound, format!("tenant {:?} not found", ask.name)));
    }
    let code = app.pages.new_code(app.desk.env(), &ask.name);
    Ok((StatusCode::CREATED, Reply(json!({ "url": format!("{}/chat?code={code}", app.public_url) }))))
}

// ---- bots, routes, links ----------------------------------------------------------------------

async fn bots(_: Admin, State(app): State<App>) -> Answer<Value> {
    let failing = crate::doctor::Failing::of(&app).await?;
    let all: Vec<Value> = app.desk.directory().read(|view| {
        let show = |it: &std::sync::Arc<frontdesk_core::directory::facts::Bot>| {
            let failure = failing.listener(&it.platform, &it.id);
            json!({ "platform": it.platform, "id": it.id, "tenant": it.tenant, "settings": it.settings,
                    "secrets": it.secrets.keys().collect::<Vec<_>>(), "problem": failure.map(|failure| failure.why) })
        };
        view.bots().map(show).collect()
    });
    Ok(Reply(json!({ "bots": all })))
}

async fn add_bot(_: Admin, State(app): State<App>, Json(ask): Json<BotNew>) -> Made<Value> {
    let made = json!({ "platform": ask.platform, "id": ask.id });
    app.desk.directory().bots().add(ask).await?;
    Ok((StatusCode::CREATED, Reply(made)))
}

/// Time for the vendor to say what it knows.
const CHECK_TIME: Duration = Duration::from_secs(20);

/// What the vendor says about a bot, and why its listener failed.
async fn check_bot(
    _: Admin,
    State(app): State<App>,
    Path((platform, id)): Path<(String, BotId)>,
) -> Result<Reply<Value>, Refusal> {
    let absent = || Refusal::new(Code::NotFound, format!("no {platform} bot {id:?} was added"));
    let bot = app.desk.directory().bots().added(&platform, &id).ok_or_else(absent)?;
    let found = app.desk.platforms().get(&platform).cloned();
    let found =
        found.ok_or_else(|| Refusal::new(Code::NotFound, format!("this server has no platform {platform:?}")))?;
    let mut findings = match tokio::time::timeout(CHECK_TIME, found.inspect(&bot)).await {
        Ok(findings) => findings,
        Err(_) => vec![BotFinding::new("vendor", false, "the vendor did not answer within 20 s")],
    };
    if let Some(failure) = crate::doctor::Failing::of(&app).await?.listener(&platform, &id) {
        findings.push(BotFinding::new("listener", false, failure.why));
    }
    findings.extend(crate::doctor::command_conflicts(&app, &platform, &bot));
    let ok = findings.iter().all(|found| found.ok);
    Ok(Reply(json!({ "ok": ok, "findings": findings })))
}

async fn remove_bot(
    _: Admin,
    State(app): State<App>,
    Path((platform, id)): Path<(String, BotId)>,
) -> Result<StatusCode, Refusal> {
    app.desk.directory().bots().remove(&platform, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn routes(_: Admin, State(app): State<App>) -> Reply<Value> {
    let all: Vec<Value> = app.desk.directory().read(|view| {
        view.routes().map(|it| json!({ "platform": it.platform, "key": it.key, "tenant": it.tenant })).collect()
    });
    Reply(json!({ "routes": all }))
}

async fn add_route(_: Admin, State(app): State<App>, Json(ask): Json<RouteNew>) -> Made<Value> {
    let made = json!({ "id": ask.key, "platform": ask.platform, "tenant": ask.tenant });
    app.desk.directory().add_route(ask).await?;
    Ok((StatusCode::CREATED, Reply(made)))
}

async fn remove_route(
    _: Admin,
    State(app): State<App>,
    Path((platform, key)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    app.desk.directory().remove_route(&platform, &key).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn bindings(_: Admin, State(app): State<App>, Query(of): Query<Of>) -> Reply<Value> {
    let all: Vec<Value> = app.desk.directory().read(|view| {
        let of_tenant = view.bindings().filter(|it| of.tenant.as_ref().is_none_or(|t| it.tenant == *t));
        let show = |it: &std::sync::Arc<frontdesk_core::directory::facts::Binding>| {
            json!({ "platform": it.platform, "user_id": it.user_id, "tenant": it.tenant, "instance": it.instance,
                    "at": it.at_ms })
        };
        of_tenant.map(show).collect()
    });
    Reply(json!({ "bindings": all }))
}

async fn bind(_: Admin, State(app): State<App>, Json(ask): Json<BindingNew>) -> Made<Value> {
    let made = json!({ "platform": ask.platform, "user_id": ask.user_id, "instance": ask.instance });
    app.desk.directory().bind(ask).await?;
    Ok((StatusCode::CREATED, Reply(made)))
}

async fn unbind(_: Admin, State(app): State<App>, Json(ask): Json<BindingNew>) -> Result<StatusCode, Refusal> {
    app.desk.directory().unbind(ask).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn grants(_: Admin, State(app): State<App>, Query(of): Query<Of>) -> Reply<Value> {
    let all: Vec<Value> = app.desk.directory().read(|view| {
        let of_tenant = view.grants().filter(|it| of.tenant.as_ref().is_none_or(|t| it.tenant == *t));
        let show = |it: &std::sync::Arc<frontdesk_core::directory::facts::Grant>| {
            json!({ "tenant": it.tenant, "platform": it.platform, "scope_id": it.scope, "channel_id": it.channel,
                    "instance": it.instance, "at": it.at_ms })
        };
        of_tenant.map(show).collect()
    });
    Reply(json!({ "grants": all }))
}

async fn remove_grant(_: Admin, State(app): State<App>, Json(ask): Json<GrantName>) -> Result<StatusCode, Refusal> {
    app.desk.directory().remove_grant(&ask).await?;
    Ok(StatusCode::NO_CONTENT)
}

// ---- gateways and instances -------------------------------------------------------------------

fn show_gateway(app: &App, it: &Gateway, presences: &HashMap<InstanceNo, Presence>) -> Value {
    let served = app.desk.delivery().served();
    let instance = app.desk.directory().read(|view| view.instance(&it.tenant, &it.instance).map(|it| it.no));
    let is_serving = |no: InstanceNo| served.is_served_by(no, &it.id, &presences.get(&no).cloned().unwrap_or_default());
    let identities: Vec<Value> =
        (it.platforms.iter()).map(|(platform, bot)| json!({ "platform": platform, "botId": bot })).collect();
    json!({
        "id": it.id, "tenant": it.tenant, "instance": it.instance, "connected": instance.is_some_and(is_serving), "platforms": identities,
        "secrets": it.secrets.iter().map(|s| json!({ "id": s.id, "created_at": s.created_ms, "retires_at": s.retires_ms })).collect::<Vec<_>>(),
        "created_at": it.created_ms, "revoked_at": it.revoked_ms,
    })
}

async fn gateways(_: Admin, State(app): State<App>) -> Answer<Value> {
    let all: Vec<_> = app.desk.directory().read(|view| view.gateways().cloned().collect());
    let presences = app.desk.delivery().served().presences().await?;
    let shown: Vec<Value> = all.iter().map(|it| show_gateway(&app, it, &presences)).collect();
    Ok(Reply(json!({ "gateways": shown })))
}

async fn add_gateway(_: Admin, State(app): State<App>, Json(ask): Json<GatewayNew>) -> Made<GatewayMade> {
    Ok((StatusCode::CREATED, Reply(app.desk.directory().add_gateway(ask).await?)))
}

async fn gateway(_: Admin, State(app): State<App>, Path(id): Path<GatewayId>) -> Answer<Value> {
    let found = app.desk.directory().read(|view| view.gateway(&id).cloned());
    let found = found.ok_or_else(|| Refusal::new(Code::NotFound, format!("gateway {id:?} not found")))?;
    Ok(Reply(show_gateway(&app, &found, &app.desk.delivery().served().presences().await?)))
}

async fn rotate(_: Admin, State(app): State<App>, Path(id): Path<GatewayId>) -> Answer<Rotated> {
    Ok(Reply(app.desk.directory().rotate(&id).await?))
}

async fn revoke(_: Admin, State(app): State<App>, Path(id): Path<GatewayId>) -> Answer<Value> {
    app.desk.directory().revoke(&id).await?;
    let unconfirmed = app.desk.cluster().unconfirmed().await?;
    Ok(Reply(json!({ "id": id, "revoked": true, "unconfirmed": unconfirmed })))
}

/// The servers that share the store, with what each of them does.
async fn desks(_: Admin, State(app): State<App>) -> Answer<Value> {
    // The store lists the live ones. Its clock decides, which may differ from that of this server.
    let show = |(it, duties): (DeskRecord, Vec<String>)| {
        json!({
            "number": it.number, "name": it.name, "version": it.version, "lease_expires_at_ms": it.lease_until_ms,
            "live": true, "leaving": it.is_leaving, "sockets": it.sockets, "duties": duties,
        })
    };
    let all = app.desk.lease().desks().await?;
    Ok(Reply(json!({ "desks": all.into_iter().map(show).collect::<Vec<_>>() })))
}

async fn instances(_: Admin, State(app): State<App>) -> Answer<Value> {
    let all: Vec<_> = app.desk.directory().read(|view| view.instances().cloned().collect());
    let waiting = app.desk.delivery().waiting().await?;
    let presences = app.desk.delivery().served().presences().await?;
    let show = |it: &std::sync::Arc<frontdesk_core::directory::facts::Instance>| {
        let presence = presences.get(&it.no).cloned().unwrap_or_default();
        let waits = waiting.iter().find(|row| row.instance == it.no);
        json!({
            "kind": "instance", "instance": it.name, "tenant": it.tenant, "connected": app.desk.delivery().served().is_connected(it.no, &presence),
            "idle": presence.idle, "seen_at": presence.seen_ms, "wake_url": it.wake_url.is_some(),
            "waiting": waits.map_or(0, |row| row.count), "waiting_since": waits.map(|row| row.oldest_ms),
        })
    };
    let mut agents = app.desk.agents().agents_shown(None)?;
    agents.retain(|it| it.kind == "agent");
    Ok(Reply(json!({ "instances": all.iter().map(show).collect::<Vec<_>>(), "agents": agents })))
}

// ---- mail and events --------------------------------------------------------------------------

#[derive(Deserialize)]
struct MailQuery {
    tenant: Option<TenantId>,
    state: Option<MailState>,
    #[serde(default)]
    before: Seq,
}

fn show_mail(mail: &Mail) -> Value {
    let d = &mail.delivery;
    json!({
        "id": mail_id(mail.instance, mail.seq), "seq": mail.seq, "state": mail.state, "reason": mail.reason,
        "event_id": d.event.to_string(), "at": d.at_ms, "platform": d.platform, "chat_id": d.chat_id,
        "message_id": d.message_id, "session_key": d.session_key,
    })
}

async fn mail(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<InstanceId>,
    Query(query): Query<MailQuery>,
) -> Answer<Value> {
    let instance = app.desk.directory().find_instance(&id, query.tenant.as_ref())?;
    let rows = app.desk.delivery().mail(instance.no, query.state, query.before).await?;
    Ok(Reply(json!({ "mail": rows.iter().map(show_mail).collect::<Vec<_>>() })))
}

async fn mail_row(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Answer<Value> {
    let row = app.desk.delivery().mail_row(&id).await?;
    let mut shown = show_mail(&row);
    shown["event"] = serde_json::from_str(&row.delivery.json).unwrap_or_default();
    Ok(Reply(shown))
}

async fn replay(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Answer<Value> {
    Ok(Reply(json!({ "id": app.desk.delivery().replay_mail(&id).await? })))
}

async fn drop_mail(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
    Json(ask): Json<DropMail>,
) -> Answer<Value> {
    app.desk.delivery().drop_mail(&id, &ask.reason).await?;
    Ok(Reply(json!({ "id": id, "state": "dead", "reason": ask.reason })))
}

// ---- alarms -----------------------------------------------------------------------------------

#[derive(Deserialize)]
struct AlarmQuery {
    tenant: Option<TenantId>,
    job_id: Option<JobId>,
}

fn show_alarm(it: &Alarm) -> Value {
    json!({ "id": it.id, "job_id": it.job_id, "fire_at": it.fire_at, "schedule_id": it.schedule_id,
            "next_at": it.next_ms, "attempts": it.attempts, "callback": it.callback, "note": it.note })
}

async fn alarms(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<InstanceId>,
    Query(q): Query<AlarmQuery>,
) -> Answer<Value> {
    let instance = app.desk.directory().find_instance(&id, q.tenant.as_ref())?;
    let armed = app.desk.cron().armed(instance.no, ARMED_PAGE).await?;
    Ok(Reply(json!({ "alarms": armed.iter().map(show_alarm).collect::<Vec<_>>() })))
}

async fn alarm_history(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<InstanceId>,
    Query(q): Query<AlarmQuery>,
) -> Answer<AlarmHistory> {
    let instance = app.desk.directory().find_instance(&id, q.tenant.as_ref())?;
    Ok(Reply(app.desk.cron().alarm_history(&instance, q.job_id.as_ref()).await?))
}

async fn dead_alarms(_: Admin, State(app): State<App>) -> Answer<Value> {
    let dead = app.desk.cron().dead(DEAD_PAGE).await?;
    let show = |it: &Alarm| {
        let owner = app.desk.directory().read(|view| view.instance_no(it.instance).cloned());
        let mut shown = show_alarm(it);
        shown["tenant"] = json!(owner.as_ref().map(|it| &it.tenant));
        shown["instance"] = json!(owner.as_ref().map(|it| &it.name));
        shown
    };
    Ok(Reply(json!({ "alarms": dead.iter().map(show).collect::<Vec<_>>() })))
}

async fn replay_alarm(_: Admin, State(app): State<App>, Path(id): Path<u64>) -> Answer<Value> {
    app.desk.cron().revive_alarm(id).await?;
    Ok(Reply(json!({ "id": id, "state": "armed" })))
}

/// A new key signs alarm calls from now on; the previous one stays in the JWKS for one day.
async fn rotate_signing_key(_: Admin, State(app): State<App>) -> Answer<Value> {
    let id = app.desk.cron().keys().rotate().await?;
    Ok(Reply(json!({ "id": id })))
}

async fn explain(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Answer<Explanation> {
    Ok(Reply(app.desk.explanations().explain(&id).await?))
}

async fn journal(_: Admin, State(app): State<App>, Query(of): Query<Of>) -> Answer<Value> {
    Ok(Reply(json!({ "actions": app.desk.outbound().entries(of.tenant.as_ref(), 200).await? })))
}

/// Dispatches per response.
const DISPATCH_PAGE: usize = 200;

/// Recent messages between agents, with the result of each connector.
async fn dispatches(_: Admin, State(app): State<App>, Query(of): Query<Of>) -> Answer<Value> {
    let tenants: Vec<TenantId> = match of.tenant {
        Some(tenant) => vec![tenant],
        None => app.desk.directory().read(|view| view.tenants().map(|it| it.name.clone()).collect()),
    };
    let mut found = Vec::new();
    for tenant in tenants {
        let said = app.desk.inboxes().dispatches(&tenant, DISPATCH_PAGE).await;
        for it in said.map_err(|fault| Refusal::new(Code::Unavailable, fault.message))? {
            let mut shown = serde_json::to_value(&it).unwrap_or_default();
            shown["tenant"] = json!(tenant);
            found.push(shown);
        }
    }
    found.sort_by_key(|it| std::cmp::Reverse(it["at"].as_u64()));
    found.truncate(DISPATCH_PAGE);
    Ok(Reply(json!({ "dispatches": found })))
}

#[derive(Deserialize)]
struct SkillRulesPut {
    secured: bool,
    #[serde(default)]
    public_key_pem: String,
}

async fn skill_rules(
    _: Admin,
    State(app): State<App>,
    Path(tenant): Path<TenantId>,
    Json(put): Json<SkillRulesPut>,
) -> Answer<Value> {
    app.desk.tenant_stores().set_skill_rules(&tenant, put.secured, &put.public_key_pem).await?;
    Ok(Reply(json!({ "tenant": tenant, "secured": put.secured })))
}

// ---- maintenance ------------------------------------------------------------------------------

async fn doctor(_: Admin, State(app): State<App>) -> Answer<Value> {
    Ok(Reply(crate::doctor::examine(&app).await))
}

#[derive(Deserialize)]
struct BackupTo {
    file: std::path::PathBuf,
}

async fn backup(_: Admin, State(app): State<App>, Json(ask): Json<BackupTo>) -> Answer<Value> {
    if !ask.file.is_absolute() {
        return Err(Refusal::new(Code::BadRequest, "file must be an absolute path on the server's machine"));
    }
    let bytes = app
        .desk
        .upkeep()
        .backup(&ask.file)
        .await
        .map_err(|error| Refusal::new(Code::Unavailable, error.to_string()))?;
    Ok(Reply(json!({ "file": ask.file, "bytes": bytes })))
}
