//! `/control/...`: other programs act as users, queue faults, and read what happened.
//!
//! | request | what it does |
//! |---|---|
//! | `POST act` | one act, or a list of them |
//! | `POST faults` | one rule for REST calls, or a list of them |
//! | `POST socket` | `{"bot": B, "fault": ...}`: something happens to the sockets of a bot |
//! | `POST gateway` | other settings of the gateway |
//! | `POST limits` | other rate limits; `{"enabled": false}` for none |
//! | `POST endpoint` | `{"bot": B, "url": U}`: proves the endpoint as the vendor does, and sets it if it passes |
//! | `POST clock` | `{"advance_ms": n}`; sockets are not closed for heartbeats that this makes late |
//! | `POST reset` | forgets everything, also what was added to the clock |
//! | `GET calls?after=N&method=M&count=K&wait_ms=T` | calls behind number N; waits until K of method M are there |
//! | `GET channel?id=C` | a channel as users see it |
//! | `GET interaction?id=I&wait_ms=T` | state of an interaction; waits until it is answered |
//! | `GET commands?bot=B&guild=G` | commands that are registered |
//! | `GET state?bot=B` | sessions, faults that wait, calls that were refused for their rate |

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::calls::CallRecord;
use super::super::gateway::SocketFault;
use super::super::people::Act;
use super::super::snowflake::Id;
use super::{Site, endpoints};
use crate::fakes::serving::http::{Reply, Request};

const MAX_WAIT_MS: u64 = 60_000;

#[derive(serde::Deserialize)]
struct ToSocket {
    bot: Id,
    #[serde(flatten)]
    fault: SocketFault,
}

pub(super) async fn answer(site: &Site, request: &Request) -> Reply {
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
    let name = request.path.trim_start_matches("/control/");
    let result = match (request.method.as_str(), name) {
        ("GET", "calls") => Ok(calls(site, &query).await),
        ("GET", "interaction") => interaction(site, &query).await,
        ("GET", _) => read(site, name, &query),
        ("POST", "endpoint") => endpoint(site, &request.body).await,
        ("POST", _) => write(site, name, &request.body),
        _ => Err("only GET and POST are known here".to_owned()),
    };
    match result {
        Ok(result) => Reply::json(200, &json!({"ok": true, "result": result})),
        Err(error) => Reply::json(400, &json!({"ok": false, "error": error})),
    }
}

fn number<T: std::str::FromStr>(query: &BTreeMap<String, String>, name: &str) -> Option<T> {
    query.get(name)?.parse().ok()
}

fn wait(query: &BTreeMap<String, String>) -> Duration {
    Duration::from_millis(number(query, "wait_ms").unwrap_or(0).min(MAX_WAIT_MS))
}

fn read(site: &Site, name: &str, query: &BTreeMap<String, String>) -> Result<Value, String> {
    let bot = number(query, "bot");
    match name {
        "channel" => {
            let id = number(query, "id").ok_or("id is missing")?;
            site.fake.channel(id).ok_or_else(|| format!("channel {id} does not exist"))
        }
        "commands" => {
            let guild = number(query, "guild").unwrap_or(0);
            Ok(Value::Array(site.fake.commands(bot.ok_or("bot is missing")?, guild)))
        }
        "state" => {
            let (invalid, bans) = site.fake.invalid_requests();
            Ok(json!({"sessions": site.fake.sessions(bot), "faults_waiting": site.fake.faults_waiting(),
                "refused_for_rate": site.fake.refused_for_rate(), "invalid_requests": invalid, "bans": bans,
                "now_ms": site.clock.now_ms()}))
        }
        _ => Err(format!("GET /control/{name} is not known")),
    }
}

async fn calls(site: &Site, query: &BTreeMap<String, String>) -> Value {
    let after = number(query, "after").unwrap_or(0);
    let count = number(query, "count").unwrap_or(0);
    let found = || -> Vec<CallRecord> {
        let mut records = site.fake.calls_after(after);
        if let Some(method) = query.get("method") {
            records.retain(|record| record.method.eq_ignore_ascii_case(method));
        }
        records
    };
    let enough = site.fake.wait_for(|_| Some(found()).filter(|records| records.len() >= count));
    let records = tokio::time::timeout(wait(query), enough).await;
    json!(records.unwrap_or_else(|_| found()))
}

/// Answered over REST, or by the endpoint.
async fn interaction(site: &Site, query: &BTreeMap<String, String>) -> Result<Value, String> {
    let id = number(query, "id").ok_or("id is missing")?;
    let is_answered = |it: &Value| !it["answer"].is_null() || !it["endpoint"].is_null();
    let answered = site.fake.wait_for(|fake| fake.interaction(id).filter(is_answered));
    let found = tokio::time::timeout(wait(query), answered).await.ok();
    found.or_else(|| site.fake.interaction(id)).ok_or_else(|| format!("interaction {id} does not exist"))
}

async fn endpoint(site: &Site, body: &[u8]) -> Result<Value, String> {
    let given: Value = parsed(body)?;
    let bot = given["bot"].as_u64().ok_or("bot is missing")?;
    let url = given["url"].as_str().ok_or("url is missing")?;
    endpoints::prove(site, bot, url).await?;
    let act = Act::SetEndpoint { bot, url: Some(url.to_owned()) };
    site.fake.act(site.clock.now_ms(), act).map_err(|error| error.to_string())
}

fn write(site: &Site, name: &str, body: &[u8]) -> Result<Value, String> {
    match name {
        "act" => {
            let is_list = matches!(serde_json::from_slice(body), Ok(Value::Array(_)));
            let mut results = Vec::new();
            for act in some(body)? {
                results.push(site.fake.act(site.clock.now_ms(), act).map_err(|error| error.to_string())?);
            }
            return Ok(if is_list { Value::Array(results) } else { results.pop().unwrap_or_default() });
        }
        "faults" => some(body)?.into_iter().for_each(|rule| site.fake.fault(rule)),
        "socket" => {
            let given: ToSocket = parsed(body)?;
            return Ok(site.fake.socket_fault(given.bot, &given.fault).into());
        }
        "gateway" => site.fake.set_gateway(parsed(body)?),
        "limits" => site.fake.set_limits(parsed(body)?),
        "clock" => {
            let given: Value = parsed(body)?;
            let by_ms = given["advance_ms"].as_u64().ok_or("advance_ms must be a number from 0")?;
            site.fake.forgive_beats(by_ms);
            site.clock.advance_ms(by_ms);
            return Ok(site.clock.now_ms().into());
        }
        "reset" => {
            site.fake.reset();
            site.clock.reset();
        }
        _ => return Err(format!("POST /control/{name} is not known")),
    }
    Ok(true.into())
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not valid: {error}"))
}

/// One item or a list of them.
fn some<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, String> {
    if body.trim_ascii_start().starts_with(b"[") { parsed(body) } else { parsed(body).map(|item| vec![item]) }
}
