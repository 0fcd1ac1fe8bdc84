//! `/control/...`: other programs act as users, queue faults, and read what happened.
//!
//! | request | what it does |
//! |---|---|
//! | `POST act` | one act, or a list of them |
//! | `POST faults` | one rule, or a list of them |
//! | `POST clock` | `{"advance_ms": n}` |
//! | `POST reset` | forgets everything |
//! | `GET calls?after=N&method=M&count=K&wait_ms=T` | calls behind number N; waits until K of method M are there |
//! | `GET messages?channel=C` | a channel as people see it |
//! | `GET responses` | what was posted to response URLs |
//! | `GET deliveries?count=K&wait_ms=T` | results of events |
//! | `GET state` | events that wait, open sockets |

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Site;
use crate::fakes::serving::http::{Reply, Request};

const WAIT_MAX_MS: u64 = 60_000;

pub(super) async fn answer(site: &Site, request: &Request) -> Reply {
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
    let name = request.path.trim_start_matches("/control/");
    let result = match request.method.as_str() {
        "GET" => read(site, name, &query).await,
        "POST" => write(site, name, &request.body),
        _ => Err("only GET and POST are known here".to_owned()),
    };
    match result {
        Ok(result) => Reply::json(200, &json!({ "ok": true, "result": result })),
        Err(error) => Reply::json(400, &json!({ "ok": false, "error": error })),
    }
}

async fn read(site: &Site, name: &str, query: &BTreeMap<String, String>) -> Result<Value, String> {
    let number = |name: &str| query.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let found = || -> Option<Vec<Value>> {
        Some(match name {
            "calls" => {
                let calls = site.fake.calls_after(number("after"));
                let is_meant = |method: &String| query.get("method").is_none_or(|wanted| wanted == method);
                calls.iter().filter(|call| is_meant(&call.method)).map(|call| json!(call)).collect()
            }
            "messages" => site.fake.messages(query.get("channel").map_or("", String::as_str)),
            "responses" => site.fake.responses(),
            "deliveries" => site.fake.deliveries(),
            _ => return None,
        })
    };
    if name == "state" {
        return Ok(json!({ "waiting": site.fake.waiting(), "sockets": site.fake.sockets() }));
    }
    let count = usize::try_from(number("count")).unwrap_or_default();
    let enough = site.fake.wait_for(|_| found().filter(|all| all.len() >= count));
    let waited = tokio::time::timeout(Duration::from_millis(number("wait_ms").min(WAIT_MAX_MS)), enough).await;
    let all = waited.ok().or_else(found).ok_or_else(|| format!("GET /control/{name} is not known"))?;
    Ok(all.into())
}

fn write(site: &Site, name: &str, body: &[u8]) -> Result<Value, String> {
    match name {
        "act" => {
            let is_list = matches!(serde_json::from_slice(body), Ok(Value::Array(_)));
            let mut results = Vec::new();
            for act in some(body)? {
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
        "clock" => {
            let given: Value = parsed(body)?;
            site.clock.advance_ms(given["advance_ms"].as_u64().ok_or("advance_ms must be a number from 0")?);
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
