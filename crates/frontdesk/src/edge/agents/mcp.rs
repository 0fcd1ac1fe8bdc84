//! The agents API as MCP tools. Only this module uses rmcp. Every request is authenticated; a session id alone proves
//! nothing, and a session can be used only with the token that opened it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request};
use axum::response::{IntoResponse as _, Response};
use frontdesk_core::agents::{Question, Reservation};
use frontdesk_wire::agents::{
    AgentPut, Class, DataStore as _, DataWrite, DeliveryMeta, DeliveryPayload, Fault, Origin, QueryFilters,
    SkillFilter, SkillStore as _,
};
use frontdesk_wire::{InboxSeq, InstanceId, TenantId};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, Implementation,
    ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Map, Value, json};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Refused;
use super::auth::Api;
use super::messages::{TIMEOUT_MS, ask, read_wake};
use crate::edge::App;
use crate::edge::answers::{ROW_KIB, ROWS_KIB};
use crate::edge::body_memory::BodyReservation;
use crate::edge::flow::{PAGE_KIB, holding};

/// Unused sessions expire after this time; the client then opens another.
const SESSION_TIME: Duration = Duration::from_mins(30);
/// Limit for all sessions. Further ones are refused before any work.
const SESSIONS_MAX: usize = 10_000;
/// Limit per tenant, so that no tenant takes all sessions.
const TENANT_SESSIONS_MAX: usize = 2_500;
const BODY_MAX_BYTES: usize = 4 << 20;
/// Arguments of `data_read` that are not filters.
const DATA_OPTIONS: [&str; 4] = ["query", "mode", "limit", "permissive_filters"];

/// The MCP server.
pub(super) struct Tools {
    service: StreamableHttpService<Handler, LocalSessionManager>,
    sessions: Mutex<HashMap<String, Opened>>,
}

/// Owner of a session, and when it was last used.
struct Opened {
    tenant: TenantId,
    token_id: String,
    at_ms: u64,
}

impl Default for Tools {
    fn default() -> Self {
        let mut manager = LocalSessionManager::default();
        manager.session_config.keep_alive = Some(SESSION_TIME);
        // Answers are not kept: without a preamble no client knows an event id to resume from.
        manager.session_config.completed_cache_ttl = Duration::ZERO;
        // The client of the skill runtime takes the last frame as the answer and reads only data, so no preamble is
        // sent.
        manager.session_config.sse_retry = None;
        let config = StreamableHttpServerConfig::default()
            .disable_allowed_hosts() // a bearer token is required, which a page in a browser does not have
            .with_sse_retry(None)
            .with_max_request_body_bytes(BODY_MAX_BYTES);
        let service = StreamableHttpService::new(|| Ok(Handler), Arc::new(manager), config);
        Self { service, sessions: Mutex::default() }
    }
}

impl Tools {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Opened>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session of another token is treated as unknown.
    fn admit(&self, session: &str, who: &Api, now_ms: u64) -> bool {
        match self.sessions().get_mut(session) {
            Some(opened) if opened.token_id == who.token_id => {
                opened.at_ms = now_ms;
                true
            }
            _ => false,
        }
    }

    fn has_room(&self, tenant: &TenantId, now_ms: u64) -> bool {
        let mut sessions = self.sessions();
        let limit_ms = u64::try_from(SESSION_TIME.as_millis()).unwrap_or(u64::MAX);
        let own = |sessions: &HashMap<String, Opened>| sessions.values().filter(|it| it.tenant == *tenant).count();
        let room =
            |sessions: &HashMap<String, Opened>| sessions.len() < SESSIONS_MAX && own(sessions) < TENANT_SESSIONS_MAX;
        room(&sessions) || {
            sessions.retain(|_, opened| now_ms.saturating_sub(opened.at_ms) < limit_ms);
            room(&sessions)
        }
    }
}

/// Caller, app and reservations of a tool call, attached to its request. The call continues after the response has
/// started.
#[derive(Clone)]
struct Asker {
    app: App,
    who: Api,
    held: Option<BodyReservation>,
    /// The server waits for the call when it stops.
    in_progress: TaskTrackerToken,
    /// The answer's share of the budget, which the response keeps until it was read.
    spent: Arc<Mutex<Option<Reservation>>>,
}

pub(super) async fn serve(tools: Arc<Tools>, app: App, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    let who = match Api::from_request_parts(&mut parts, &app).await {
        Ok(who) => who,
        Err(refused) => return refused.into_response(),
    };
    let now_ms = app.desk.env().steady_ms();
    let session = parts.headers.get("mcp-session-id").map(|id| id.to_str().unwrap_or_default().to_owned());
    let refused = match &session {
        Some(id) if !tools.admit(id, &who, now_ms) => {
            Some(Fault::new(Class::NotFoundError, "session not found; send initialize again"))
        }
        None if !tools.has_room(&who.tenant, now_ms) => {
            Some(Fault::new(Class::RateLimitedError, "too many sessions are open; try again later"))
        }
        _ => None,
    };
    if let Some(fault) = refused {
        return Refused(fault).into_response();
    }
    let ended = parts.method == http::Method::DELETE;
    let is_json = parts.headers.get(http::header::CONTENT_TYPE).is_some_and(is_json);
    let (tenant, token_id) = (who.tenant.clone(), who.token_id.clone());
    let spent = Arc::default();
    let (held, in_progress) = (parts.extensions.remove::<BodyReservation>(), app.sessions.token());
    let body = match &held {
        Some(held) => held.clone().counted(body),
        None => body,
    };
    parts.extensions.insert(Asker { app, who, held, in_progress, spent: Arc::clone(&spent) });
    let response = tools.service.handle(Request::from_parts(parts, body)).await;
    if let (true, Some(id)) = (ended, &session) {
        tools.sessions().remove(id);
    }
    if let Some(opened) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok())
        && session.is_none()
    {
        tools.sessions().insert(opened.to_owned(), Opened { tenant, token_id, at_ms: now_ms });
    }
    match response.status() {
        http::StatusCode::ACCEPTED if ended => http::StatusCode::NO_CONTENT.into_response(),
        // rmcp returns this status for every unreadable body, whatever the content type.
        http::StatusCode::UNSUPPORTED_MEDIA_TYPE if is_json => {
            let text = "the body is not a JSON-RPC 2.0 message: one JSON object with jsonrpc, method, params and, for a \
                        call, id";
            Refused(Fault::invalid(text)).into_response()
        }
        _ => holding(response.map(Body::new), spent),
    }
}

fn is_json(content_type: &http::HeaderValue) -> bool {
    content_type.as_bytes().to_ascii_lowercase().starts_with(b"application/json")
}

#[derive(Clone)]
struct Handler;

impl rmcp::ServerHandler for Handler {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("frontdesk", env!("CARGO_PKG_VERSION"));
        info.instructions = Some("Agents, skills and data of one tenant.".into());
        info
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(TOOLS.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        TOOLS.iter().find(|tool| tool.name == name).cloned()
    }

    /// Failures are JSON-RPC errors, because the client of the skill runtime ignores `isError`.
    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asker = context.extensions.remove::<http::request::Parts>();
        let asker = asker.and_then(|mut parts| parts.extensions.remove::<Asker>());
        let Some(Asker { app, who, held, in_progress, spent }) = asker else {
            return Err(ErrorData::internal_error("the caller is not authenticated", None));
        };
        let arguments = call.arguments.unwrap_or_default();
        let waits = call.name == "agent_exchange";
        let (name, ct) = (call.name.into_owned(), context.ct);
        let reserved = match answer_kib(&name) {
            Some(kib) => Some(app.answers.reserve(&who.tenant, kib).await.map_err(|it| rpc_error(it.into()))?),
            None => None,
        };
        let running = Box::pin(run(app.clone(), who.clone(), held, spent.clone(), name, arguments));
        let answer = if waits {
            // Stops waiting when the client cancels; a late reply is delivered to the caller's inbox.
            tokio::select! {
                answer = running => answer,
                () = ct.cancelled() => Err(Fault::new(Class::TimeoutError, "the call was cancelled by the client")),
            }
        } else {
            running.await // rmcp runs a call to completion
        };
        drop(in_progress);
        let text = answer.map_err(rpc_error)?.to_string();
        if let Some(reserved) = reserved {
            // It is written as JSON once more.
            let fitted = app.answers.fit(&who.tenant, reserved, 2 * text.len()).await;
            let fitted = fitted.map_err(|it| rpc_error(it.into()))?;
            *spent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(fitted));
        }
        Ok(CallToolResponse::Complete(CallToolResult::success(vec![ContentBlock::text(text)])))
    }
}

fn rpc_error(fault: Fault) -> ErrorData {
    let code = match fault.class.status() {
        400 | 404 | 409 | 422 => ErrorCode::INVALID_PARAMS,
        _ => ErrorCode::INTERNAL_ERROR,
    };
    let data = Value::Object(fault.as_object());
    ErrorData::new(code, fault.to_string(), Some(data))
}

/// What the answer of a tool may take, if that is much.
fn answer_kib(tool: &str) -> Option<usize> {
    match tool {
        "agent_inbox" | "agents_list" | "cron_list" => Some(PAGE_KIB),
        "skill_read" | "data_get" => Some(ROW_KIB),
        "skill_list" | "data_read" => Some(ROWS_KIB),
        _ => None,
    }
}

/// `held`: what the arguments take; `spent`: what the answer does.
async fn run(
    app: App,
    who: Api,
    held: Option<BodyReservation>,
    spent: Arc<Mutex<Option<Reservation>>>,
    tool: String,
    mut given: Map<String, Value>,
) -> Result<Value, Fault> {
    let (app, who, tool) = (&app, &who, tool.as_str());
    check_arguments(tool, &given)?;
    // Null counts as absent, except for a filter: without it the result would contain rows that the caller excluded.
    let is_filter = |name: &str| tool == "data_read" && !DATA_OPTIONS.contains(&name);
    given.retain(|name, value| !value.is_null() || is_filter(name));
    let desk = &app.desk;
    let skills = || desk.tenant_stores().skills(who.as_caller());
    let data = || desk.tenant_stores().data(who.as_caller());
    match tool {
        "agents_list" => shown(&json!({ "agents": desk.agents().list(&who.tenant) })),
        "agent_status" => {
            let id = text(&mut given, "agent_id")?;
            shown(&json!({ "agent_id": id, "status": desk.agents().status(&who.tenant, &id) }))
        }
        "agent_deliver" => {
            let id = text(&mut given, "agent_id")?;
            let payload = payload_of(app, who, given)?;
            shown(&desk.messages().deliver(who.as_caller(), &id, &payload).await?)
        }
        "agent_wake" => {
            let id = text(&mut given, "agent_id")?;
            let opts = read_wake(given)?;
            shown(&desk.messages().wake(who.as_caller(), &id, &opts).await?)
        }
        "agent_register" => {
            let id = InstanceId::from(text(&mut given, "agent_id")?);
            let put: AgentPut = fit(Value::Object(given))?;
            shown(&desk.agents().put_agent(who.as_caller(), &id, put).await?)
        }
        "agent_inbox" => {
            let id = text(&mut given, "agent_id")?;
            let after: InboxSeq = given.remove("after").map(fit).transpose()?.unwrap_or_default();
            shown(&desk.inboxes().inbox(who.as_caller(), &id, after).await?)
        }
        "agent_reply" => {
            let (id, name) = (text(&mut given, "agent_id")?, text(&mut given, "correlation_id")?);
            let content = text(&mut given, "content")?;
            shown(&desk.exchanges().reply(who.as_caller(), &id, &name, content).await?)
        }
        "agent_exchange" => {
            let id = text(&mut given, "agent_id")?;
            let timeout_ms: Option<u64> = given.remove("timeout_ms").map(fit).transpose()?;
            let mut payload = payload_of(app, who, given)?;
            payload.meta_mut().correlation_id.get_or_insert_with(|| desk.env().uuid_v4());
            let question = Question { payload, held: Box::new(held) };
            // It is written as JSON once more.
            let buffered = ask(app, who.clone(), id, question, timeout_ms.unwrap_or(TIMEOUT_MS), 2).await?;
            *spent.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffered.reservation);
            shown(&buffered.reply)
        }
        "skill_read" => {
            let name = text(&mut given, "name")?;
            let version: Option<String> = given.remove("version").map(fit).transpose()?;
            shown(&skills().load(&name, version.as_deref()).await?)
        }
        "skill_write" => write_skill(app, who, given).await,
        "skill_list" => {
            let known: Option<String> = given.remove("if_none_match").map(fit).transpose()?;
            let version = skills().version().await?;
            if known.as_ref() == Some(&version) {
                return Ok(json!({ "not_modified": true, "catalog_version": version }));
            }
            let filter: SkillFilter = fit(Value::Object(given))?;
            shown(&json!({ "skills": skills().query(&filter).await?, "catalog_version": version }))
        }
        "data_read" => {
            let filters: QueryFilters = fit(Value::Object(given))?;
            shown(&json!({ "items": data().query(&filters).await? }))
        }
        "data_get" => {
            let id = text(&mut given, "id")?;
            shown(&data().get(&id).await?)
        }
        "data_write" => {
            let entry: DataWrite = fit(Value::Object(given))?;
            shown(&data().write(&entry).await?)
        }
        "cron_list" => {
            let (armed, more) = desk.agents().armed(who.as_caller()).await?;
            let show = |(name, alarm): &(InstanceId, frontdesk_core::port::alarms::Alarm)| json!({ "agent_id": name, "job_id": alarm.job_id, "fire_at": alarm.fire_at, "attempts": alarm.attempts });
            let mut list = json!({ "armed": armed.iter().map(show).collect::<Vec<_>>() });
            if more {
                list["more"] = true.into();
            }
            Ok(list)
        }
        _ => Err(Fault::new(Class::NotFoundError, format!("unknown tool {tool:?}"))),
    }
}

/// An unknown argument is an error, because ignoring it could change the meaning of a call. Filters and rows of data
/// are open: their stores check them.
fn check_arguments(tool: &str, given: &Map<String, Value>) -> Result<(), Fault> {
    let Some(known) = TOOLS.iter().find(|it| it.name == tool) else { return Ok(()) };
    if known.input_schema.get("additionalProperties") != Some(&Value::Bool(false)) {
        return Ok(());
    }
    let Some(Value::Object(takes)) = known.input_schema.get("properties") else { return Ok(()) };
    let Some(unknown) = given.keys().find(|name| !takes.contains_key(*name)) else { return Ok(()) };
    let shown: String = unknown.chars().take(80).collect();
    let takes: Vec<&str> = takes.keys().map(String::as_str).collect();
    let takes = if takes.is_empty() { "no arguments".into() } else { takes.join(", ") };
    Err(Fault::invalid(format!("{tool} has no argument {shown:?}; it takes {takes}")))
}

async fn write_skill(app: &App, who: &Api, mut given: Map<String, Value>) -> Result<Value, Fault> {
    let name = text(&mut given, "name")?;
    let source = text(&mut given, "source")?;
    let overwrite: bool = given.remove("overwrite").map(fit).transpose()?.unwrap_or_default();
    let skills = app.desk.tenant_stores().skills(who.as_caller());
    shown(&skills.store_draft(&name, &source, overwrite).await?)
}

/// The metadata is filled in here, because a tool call is an action of the agent itself.
fn payload_of(app: &App, who: &Api, mut given: Map<String, Value>) -> Result<DeliveryPayload, Fault> {
    let meta = DeliveryMeta {
        dispatch_id: app.desk.env().uuid_v4(),
        sent_at: app.desk.env().now_ms(),
        origin: Origin { trigger_kind: Some("agent".into()), caller_agent_id: who.caller.clone(), ..Origin::default() },
        event_type: given.remove("event_type").map(fit).transpose()?,
        correlation_id: given.remove("correlation_id").map(fit).transpose()?,
        ..DeliveryMeta::default()
    };
    let kind: String = given.remove("kind").map(fit).transpose()?.unwrap_or_else(|| "augment".into());
    match kind.as_str() {
        "augment" => Ok(DeliveryPayload::Augment { content: text(&mut given, "content")?, meta }),
        "template" => Ok(DeliveryPayload::Template { prompt: text(&mut given, "prompt")?, meta }),
        _ => Err(Fault::new(Class::UnsupportedKindError, "kind must be augment or template")),
    }
}

fn text(given: &mut Map<String, Value>, name: &str) -> Result<String, Fault> {
    match given.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Fault::invalid(format!("{name} must be a string"))),
        None => Err(Fault::invalid(format!("{name} is missing"))),
    }
}

fn fit<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, Fault> {
    serde_json::from_value(value).map_err(|error| Fault::invalid(format!("invalid argument: {error}")))
}

fn shown(answer: &impl serde::Serialize) -> Result<Value, Fault> {
    serde_json::to_value(answer).map_err(|error| Fault::new(Class::InternalError, error.to_string()))
}

/// Built once, because every call looks at them.
static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(tools);

fn tools() -> Vec<Tool> {
    let tool = |name: &'static str, about: &'static str, properties: Value, required: &[&str]| {
        let open = ["data_read", "data_write"].contains(&name);
        let schema = json!({ "type": "object", "properties": properties, "required": required,
            "additionalProperties": open });
        let Value::Object(schema) = schema else { unreachable!("made as an object") };
        Tool::new(name, about, schema)
    };
    let string = || json!({ "type": "string" });
    let one_or_many = |allowed: &[&str]| match allowed {
        [] => json!({ "type": ["string", "array"], "items": string() }),
        _ => json!({ "type": ["string", "array"], "items": { "type": "string", "enum": allowed },
            "description": format!("one or a list of {}", allowed.join(", ")) }),
    };
    let agent = json!({ "agent_id": string() });
    let filters = json!({ "query": string(), "mode": string(), "limit": { "type": "integer" },
        "permissive_filters": { "type": "boolean" } });
    vec![
        tool("agents_list", "List the agents that can receive messages", json!({}), &[]),
        tool("agent_status", "Get an agent's status: active, idle, asleep or unknown", agent, &["agent_id"]),
        tool(
            "agent_deliver",
            "Store a message durably in an agent's inbox without interrupting the agent",
            json!({ "agent_id": string(), "kind": { "enum": ["augment", "template"] }, "content": string(),
                "prompt": string(), "event_type": string(), "correlation_id": string() }),
            &["agent_id"],
        ),
        tool(
            "agent_wake",
            "Wake an agent now or at a given time; the receipt says whether it was interrupted",
            json!({ "agent_id": string(), "context": string(), "session_id": string(),
                "when": { "type": ["string", "integer"], "description": "\"immediate\" or unix milliseconds" } }),
            &["agent_id"],
        ),
        tool(
            "agent_exchange",
            "Ask an agent and wait for its reply; a reply after the timeout is delivered to the caller's inbox",
            json!({ "agent_id": string(), "content": string(),
                "timeout_ms": { "type": "integer", "description": "default 30000, maximum 600000" },
                "correlation_id": string() }),
            &["agent_id", "content"],
        ),
        tool(
            "agent_register",
            "Register or update an agent, so that others can reach it by name",
            json!({ "agent_id": string(), "agent_name": string(), "wake_url": string() }),
            &["agent_id"],
        ),
        tool(
            "agent_inbox",
            "List an agent's messages after a sequence number; repeat with the last seq for the next page",
            json!({ "agent_id": string(), "after": { "type": "integer" } }),
            &["agent_id"],
        ),
        tool(
            "agent_reply",
            "Reply to a question in the inbox, identified by its correlation_id",
            json!({ "agent_id": string(), "correlation_id": string(), "content": string() }),
            &["agent_id", "correlation_id", "content"],
        ),
        tool("skill_read", "Get the source of a skill", json!({ "name": string(), "version": string() }), &["name"]),
        tool(
            "skill_write",
            "Store a skill as Draft; replacing an existing one needs overwrite",
            json!({ "name": string(), "source": string(), "overwrite": { "type": "boolean" } }),
            &["name", "source"],
        ),
        tool(
            "skill_list",
            "List skills by status and author; with if_none_match, only if the catalog changed",
            json!({ "status": one_or_many(&["Draft", "Approved", "Disabled"]), "author": string(),
                "name_pattern": string(), "tag": one_or_many(&[]), "since": { "type": "integer" },
                "offset": { "type": "integer" }, "limit": { "type": "integer" }, "if_none_match": string() }),
            &[],
        ),
        tool("data_read", "Find rows that contain all words of a query", filters, &["query"]),
        tool("data_get", "Get one row by id, or null", json!({ "id": string() }), &["id"]),
        tool(
            "data_write",
            "Store a row in the data store",
            json!({ "content": string(), "tags": { "type": "array", "items": string() },
                "recipients": { "type": "array", "items": string() }, "expires_at": { "type": "integer" },
                "metadata": { "type": "object" } }),
            &["content"],
        ),
        tool("cron_list", "List armed alarms and scheduled wakes", json!({}), &[]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_with_too_many_sessions_leaves_room_for_others() {
        let tools = Tools::default();
        let open = |tenant: &TenantId, number: usize, at_ms: u64| {
            let opened = Opened { tenant: tenant.clone(), token_id: "t".into(), at_ms };
            tools.sessions().insert(format!("{tenant}-{number}"), opened);
        };
        for number in 0..TENANT_SESSIONS_MAX {
            assert!(tools.has_room(&"home".into(), 2));
            open(&"home".into(), number, 1 + number as u64 % 2);
        }
        assert!(!tools.has_room(&"home".into(), 2) && tools.has_room(&"other".into(), 2));
        let later_ms = 1 + u64::try_from(SESSION_TIME.as_millis()).unwrap();
        assert!(tools.has_room(&"home".into(), later_ms), "unused sessions have expired");
        assert_eq!(tools.sessions().len(), TENANT_SESSIONS_MAX / 2);
        for number in 0..SESSIONS_MAX {
            open(&number.to_string().into(), number, later_ms);
        }
        assert!(!tools.has_room(&"other".into(), later_ms));
    }
}
