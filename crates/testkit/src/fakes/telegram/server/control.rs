//! `/control/...`: other programs act as users, queue faults, and read what happened.
//!
//! | request | what it does |
//! |---|---|
//! | `POST act` | one act, or a list of them |
//! | `POST faults` | one rule, or a list of them |
//! | `POST limits` | other rate limits; `{"enabled": false}` for none |
//! | `POST clock` | `{"advance_ms": n}` |
//! | `POST reset` | forgets everything |
//! | `GET calls?after=N&method=M&count=K&wait_ms=T` | calls behind number N; waits until K of method M are there |
//! | `GET chat?bot=B&chat=C` | a chat as a user sees it |
//! | `GET callback?id=Q` | the answer to a pressed button |
//! | `GET state?bot=B` | updates and faults that wait, calls that were refused for their rate |

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::calls::CallRecord;
use super::Site;
use crate::fakes::serving::http::{Reply, Request};

const MAX_WAIT_MS: u64 = 60_000;

pub(super) async fn answer(site: &Site, request: &Request) -> Reply {
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
    let name = request.path.trim_start_matches("/control/");
    let result = match (request.method.as_str(), name) {
        ("GET", "calls") => Ok(calls(site, &query).await),
        ("GET", _) => read(site, name, &query),
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

fn read(site: &Site, name: &str, query: &BTreeMap<String, String>) -> Result<Value, String> {
    let bot = number(query, "bot").unwrap_or_default();
    match name {
        "chat" => {
            let chat = number(query, "chat").ok_or("chat is missing")?;
            site.fake.chat(bot, chat).ok_or_else(|| format!("chat {chat} does not exist"))
        }
        "callback" => Ok(query.get("id").and_then(|id| site.fake.callback_answer(id)).unwrap_or_default()),
        "state" => Ok(json!({"updates_waiting": site.fake.updates_waiting(bot),
            "faults_waiting": site.fake.faults_waiting(), "refused_for_rate": site.fake.refused_for_rate(),
            "now_ms": site.clock.now_ms()})),
        _ => Err(format!("GET /control/{name} is not known")),
    }
}

async fn calls(site: &Site, query: &BTreeMap<String, String>) -> Value {
    let after = number(query, "after").unwrap_or(0);
    let count = number(query, "count").unwrap_or(0);
    let wait_ms: u64 = number(query, "wait_ms").unwrap_or(0).min(MAX_WAIT_MS);
    let found = || -> Vec<CallRecord> {
        let mut records = site.fake.calls_after(after);
        if let Some(method) = query.get("method") {
            records.retain(|record| record.method.eq_ignore_ascii_case(method));
        }
        records
    };
    let enough = site.fake.wait_for(|_| Some(found()).filter(|records| records.len() >= count));
    let records = tokio::time::timeout(Duration::from_millis(wait_ms), enough).await;
    json!(records.unwrap_or_else(|_| found()))
}

fn write(site: &Site, name: &str, body: &[u8]) -> Result<Value, String> {
    match name {
        "act" => {
            let is_list = matches!(serde_json::from_slice(body), Ok(Value::Array(_)));
            let acts = some(body)?;
            let mut results = Vec::new();
            for act in acts {
                results.push(site.fake.act(site.clock.now_ms(), act).map_err(|error| error.to_string())?);
            }
            Ok(if is_list { Value::Array(results) } else { results.pop().unwrap_or_default() })
        }
        "faults" => {
            for rule in some(body)? {
                site.fake.fault(rule);
            }
            Ok(true.into())
        }
        "limits" => {
            site.fake.set_limits(parsed(body)?);
            Ok(true.into())
        }
        "clock" => {
            let given: Value = parsed(body)?;
            let by_ms = given["advance_ms"].as_u64().ok_or("advance_ms must be a number from 0")?;
            site.clock.advance_ms(by_ms);
            Ok(site.clock.now_ms().into())
        }
        "reset" => {
            site.fake.reset();
            Ok(true.into())
        }
        _ => Err(format!("POST /control/{name} is not known")),
    }
}

fn parsed<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not valid: {error}"))
}

/// One item or a list of them.
fn some<T: DeserializeOwned>(body: &[u8]) -> Result<Vec<T>, String> {
    if body.trim_ascii_start().starts_with(b"[") { parsed(body) } else { parsed(body).map(|item| vec![item]) }
}
