//! The way of a REST call: token, fault, rate limit, handler, record.

mod body;
mod channels;
mod commands;
mod guilds;
mod messages;
mod reactions;
mod threads;
mod webhooks;

use serde_json::{Value, json};

use super::answer::{Answer, ApiError, Response, Transport};
use super::calls::CallRecord;
use super::faults::{Fault, Scope};
use super::limits::{Load, Refused, seconds};
use super::snowflake::Id;
use super::state::{Channel, State};
use super::{permissions, shapes};
pub(super) use body::draft;
pub(super) use messages::apply_edit;

/// A file of a multipart body.
#[derive(Debug, Clone)]
pub struct Upload {
    /// `files[0]` and the like.
    pub field: String,
    pub filename: String,
    pub mime: String,
    pub bytes: Vec<u8>,
}

/// A call as a client makes it.
#[derive(Debug, Clone, Default)]
pub struct RestRequest {
    pub method: String,
    /// Behind `/api/v10/`, decoded.
    pub path: String,
    pub query: Vec<(String, String)>,
    /// The header of that name.
    pub authorization: Option<String>,
    /// The JSON body, or `payload_json` of a multipart body.
    pub body: Value,
    pub files: Vec<Upload>,
}

impl RestRequest {
    /// With the token of a bot and a JSON body.
    pub fn new(method: &str, path: &str, token: &str, body: Value) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self {
            method: method.to_owned(),
            path: path.trim_start_matches('/').to_owned(),
            query: url::form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
            authorization: Some(format!("Bot {token}")),
            body,
            files: Vec::new(),
        }
    }

    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

pub(super) struct Call<'a> {
    pub(super) state: &'a mut State,
    pub(super) bot: Id,
    pub(super) now_ms: u64,
    pub(super) request: &'a RestRequest,
}

impl Call<'_> {
    /// A channel that the bot sees and in which it has these permissions.
    pub(super) fn channel(&self, id: &str, wanted: u64) -> Result<&Channel, ApiError> {
        let id = number(id, "channel_id")?;
        let channel = self.state.channels.get(&id).ok_or_else(ApiError::unknown_channel)?;
        if !permissions::sees(self.state, channel, self.bot) {
            return Err(ApiError::missing_access());
        }
        if !permissions::may(self.state, channel, self.bot, wanted) {
            return Err(ApiError::missing_permissions());
        }
        Ok(channel)
    }

    pub(super) fn guild(&self, id: &str) -> Result<Id, ApiError> {
        let id = number(id, "guild_id")?;
        let guild = self.state.guilds.get(&id).ok_or_else(ApiError::unknown_guild)?;
        // The vendor does not tell outsiders whether a guild exists.
        if guild.members.contains_key(&self.bot) { Ok(id) } else { Err(ApiError::unknown_guild()) }
    }
}

pub(super) fn number(text: &str, field: &str) -> Result<Id, ApiError> {
    let message = format!("Value \"{text}\" is not snowflake.");
    text.parse().map_err(|_| ApiError::form(field, "NUMBER_TYPE_COERCE", &message))
}

/// The name of a route: what varies is replaced.
fn route(method: &str, parts: &[&str]) -> String {
    let mut named = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |at| parts[at]);
        let is_token = matches!(parts[0], "webhooks" | "interactions") && at == 2;
        named.push(match *part {
            _ if is_token => ":token",
            _ if before == "reactions" => ":emoji",
            part if part.bytes().all(|byte| byte.is_ascii_digit()) => ":id",
            part => part,
        });
    }
    format!("{method} {}", named.join("/"))
}

/// The resource that has rate limits of its own.
fn major(parts: &[&str]) -> String {
    match parts {
        ["channels" | "guilds", id, ..] => (*id).to_owned(),
        ["webhooks" | "interactions", id, token, ..] => format!("{id}/{token}"),
        _ => String::new(),
    }
}

pub(super) fn call(state: &mut State, now_ms: u64, request: &RestRequest) -> Response {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() {
        return Response::of(Err(ApiError::not_found()));
    }
    let route = route(&request.method, &parts);
    let with_token = parts.len() > 2 && matches!(parts[0], "webhooks" | "interactions");
    let bot = bot_of(state, request.authorization.as_deref().unwrap_or_default());
    let fault = state.faults.take(&route);
    let mut refused = None;
    let response = fault.as_ref().and_then(|fault| before_effect(fault, &mut refused)).unwrap_or_else(|| {
        if bot.is_none() && !with_token {
            return Response::of(Err(ApiError::unauthorized()));
        }
        let major = major(&parts);
        let renames = route == "PATCH channels/:id" && request.body.get("name").is_some();
        let load = Load { bot: bot.filter(|_| !with_token), route: &route, major: &major, renames };
        let limits = state.limits.clone();
        let (headers, over) = state.meter.take(now_ms, &limits, load);
        refused = over;
        let mut response = match over {
            Some(over) => limited(over),
            None => Response::of(run(&mut Call { state, bot: bot.unwrap_or_default(), now_ms, request }, &parts)),
        };
        response.headers.extend(headers);
        after_effect(response, fault.as_ref())
    });
    let limits = state.limits.clone();
    state.meter.count_invalid(now_ms, &limits, response.status, refused.map(|refused| refused.scope));
    state.calls.push(CallRecord {
        number: 0,
        at_ms: now_ms,
        bot,
        method: route,
        path: request.path.clone(),
        params: request.body.clone(),
        files: request.files.iter().map(|file| (file.field.clone(), file.bytes.len())).collect(),
        status: response.status,
        code: response.body["code"].as_u64().filter(|_| !response.is_ok()),
        fault: fault.map(|fault| format!("{fault:?}")),
    });
    response
}

pub(super) fn bot_of(state: &State, authorization: &str) -> Option<Id> {
    let token = authorization.strip_prefix("Bot ")?;
    state.bots.values().find(|bot| bot.token == token).map(|bot| bot.id)
}

fn limited(refused: Refused) -> Response {
    let is_global = refused.scope == Scope::Global;
    let message = match refused.scope {
        Scope::Shared => "The resource is being rate limited.",
        _ => "You are being rate limited.",
    };
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let retry_after = refused.retry_after_ms as f64 / 1_000.0;
    let body = json!({"message": message, "retry_after": retry_after, "global": is_global, "code": 0});
    let mut headers = vec![
        ("Retry-After".to_owned(), refused.retry_after_ms.div_ceil(1_000).to_string()),
        ("X-RateLimit-Scope".to_owned(), refused.scope.name().to_owned()),
        // Clients take a 429 without it for a ban by the proxy.
        ("Via".to_owned(), "1.1 google".to_owned()),
    ];
    if is_global {
        headers.push(("X-RateLimit-Global".to_owned(), "true".to_owned()));
    }
    Response { headers, ..Response::of(Ok((429, body))) }
}

fn before_effect(fault: &Fault, refused: &mut Option<Refused>) -> Option<Response> {
    let page = |title: &str| Transport::Html(format!("<html><head><title>{title}</title></head></html>\r\n"));
    Some(match fault {
        Fault::RateLimited { retry_after_ms, scope } => {
            let over = Refused { scope: *scope, retry_after_ms: *retry_after_ms };
            *refused = Some(over);
            let mut response = limited(over);
            response.headers.push(("X-RateLimit-Reset-After".to_owned(), seconds(*retry_after_ms)));
            response
        }
        Fault::Status { status, code, message } => Response::of(Err(ApiError::new(*status, *code, message.as_str()))),
        Fault::BadGateway => Response { transport: page("502 Bad Gateway"), ..Response::of(Ok((502, Value::Null))) },
        Fault::Banned { retry_after_s } => Response {
            transport: page("Access denied"),
            headers: vec![("Retry-After".to_owned(), retry_after_s.to_string())],
            ..Response::of(Ok((429, Value::Null)))
        },
        Fault::DropBefore => Response { transport: Transport::Dropped, ..Response::of(Ok((500, Value::Null))) },
        Fault::DropAfter | Fault::Slow { .. } | Fault::Cut => return None,
    })
}

fn after_effect(mut response: Response, fault: Option<&Fault>) -> Response {
    match fault {
        Some(Fault::DropAfter) => response.transport = Transport::Dropped,
        Some(Fault::Cut) => response.transport = Transport::Cut,
        Some(Fault::Slow { delay_ms }) => response.delay_ms = *delay_ms,
        _ => {}
    }
    response
}

fn run(call: &mut Call<'_>, parts: &[&str]) -> Answer {
    let method = call.request.method.as_str();
    match (method, parts) {
        ("GET", ["gateway"]) => Ok((200, json!({"url": call.state.host.replacen("http", "ws", 1)}))),
        ("GET", ["gateway", "bot"]) => {
            let limit = call.state.gateway.start_limit(call.now_ms, call.bot);
            let url = call.state.host.replacen("http", "ws", 1);
            let shards = call.state.gateway.settings.shards;
            Ok((200, json!({"url": url, "shards": shards, "session_start_limit": limit})))
        }
        (_, ["users", ..]) => guilds::users(call, method, &parts[1..]),
        ("GET", ["oauth2", "applications", "@me"]) => guilds::application(call),
        (_, ["applications", "@me"]) => guilds::own_application(call, method),
        (_, ["applications", application, rest @ ..]) => commands::run(call, method, application, rest),
        (_, ["guilds", guild, rest @ ..]) => guilds::run(call, method, guild, rest),
        (_, ["channels", channel, "messages", message, "reactions", rest @ ..]) => {
            reactions::run(call, method, channel, message, rest)
        }
        (_, ["channels", channel, "messages", rest @ ..]) if rest.last() != Some(&"threads") => {
            messages::run(call, method, channel, rest)
        }
        ("POST", ["channels", channel, "messages", message, "threads"]) => threads::on(call, channel, message),
        ("POST", ["channels", channel, "threads"]) => threads::create(call, channel),
        (_, ["channels", channel, "thread-members", rest @ ..]) => threads::members(call, method, channel, rest),
        (_, ["channels", channel, rest @ ..]) => channels::run(call, method, channel, rest),
        ("POST", ["interactions", id, token, "callback"]) => webhooks::callback(call, id, token),
        (_, ["webhooks", application, token, rest @ ..]) => webhooks::run(call, method, application, token, rest),
        _ => Err(ApiError::not_found()),
    }
}

/// A message as the bot sees it over REST.
pub(super) fn shown(call: &Call<'_>, channel: Id, message: Id) -> Answer {
    let place = call.state.channels.get(&channel).ok_or_else(ApiError::unknown_channel)?;
    let stored = place.messages.get(&message).ok_or_else(ApiError::unknown_message)?;
    let mut value = shapes::message(call.state, channel, stored, call.bot);
    // Over REST the switch of the portal decides, not what the socket asked for.
    let intents = call.state.bots.get(&call.bot).map_or(0, |bot| bot.privileged);
    shapes::hide_from(&mut value, place, stored, super::gateway::Viewer { bot: call.bot, intents });
    Ok((200, value))
}
