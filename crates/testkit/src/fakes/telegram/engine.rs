//! The way of a call: token, fault, rate limit, method, record.

use serde_json::{Value, json};

use super::answer::{ApiError, Response, Transport};
use super::calls::CallRecord;
use super::faults::Fault;
use super::limits::Load;
use super::methods::{Call, run, updates};
use super::params::{Params, Upload};
use super::state::{ChatKey, State};

const FIRST_RETRY_MS: u64 = 500;
const MAX_RETRY_MS: u64 = 60_000;

/// A `getUpdates` call that waits.
#[derive(Debug, Clone, Copy)]
pub struct Poll {
    bot: i64,
    number: u64,
}

/// An update on its way to a webhook.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub bot: i64,
    pub update_id: i64,
    pub url: String,
    pub secret: Option<String>,
    pub body: String,
    /// The body comes that much later.
    pub delay_ms: u64,
    /// It stays in the queue, and comes once more.
    again: bool,
}

pub(super) fn bot_of(state: &State, token: &str) -> Result<i64, ApiError> {
    let is_token = |(id, secret): (&str, &str)| id.parse::<i64>().is_ok() && !secret.is_empty();
    if !token.split_once(':').is_some_and(is_token) {
        return Err(ApiError::new(404, "Not Found"));
    }
    let known = state.bots.values().find(|bot| bot.token == token);
    known.map(|bot| bot.id).ok_or_else(|| ApiError::new(401, "Unauthorized"))
}

pub(super) fn call(
    state: &mut State,
    now_ms: u64,
    token: &str,
    method: &str,
    params: &Params,
    files: &[Upload],
) -> Response {
    if method.eq_ignore_ascii_case("getUpdates") {
        return match begin_poll(state, token) {
            Ok(poll) => try_poll(state, now_ms, &poll, params, true).unwrap_or_else(|| Response::of(Ok(json!([])))),
            Err(error) => Response::of(Err(error)),
        };
    }
    let bot = match bot_of(state, token) {
        Ok(bot) => bot,
        Err(error) => return Response::of(Err(error)),
    };
    let fault = state.faults.take(method);
    let response = fault.as_ref().and_then(before_effect).unwrap_or_else(|| {
        let answer = match take_rate(state, now_ms, bot, method, params) {
            Ok(()) => run(&mut Call { state, bot, now_ms, params, files }, method),
            Err(seconds) => Err(ApiError::too_many(seconds)),
        };
        after_effect(Response::of(answer), fault.as_ref())
    });
    let sizes = files.iter().map(|file| (file.field.clone(), file.bytes.len())).collect();
    record(state, now_ms, bot, method, params, sizes, &response, fault.as_ref());
    response
}

#[allow(clippy::too_many_arguments, reason = "the parts of one record")]
fn record(
    state: &mut State,
    at_ms: u64,
    bot: i64,
    method: &str,
    params: &Params,
    files: Vec<(String, usize)>,
    response: &Response,
    fault: Option<&Fault>,
) {
    let description = response.body["description"].as_str().map(str::to_owned);
    let params = Value::Object(params.0.clone());
    let fault = fault.map(|fault| format!("{fault:?}"));
    let (method, status) = (method.to_owned(), response.status);
    state.calls.push(CallRecord { number: 0, at_ms, bot, method, params, files, status, description, fault });
}

fn before_effect(fault: &Fault) -> Option<Response> {
    let (answer, transport) = match fault {
        Fault::RetryAfter { seconds } => (ApiError::too_many(*seconds), Transport::Whole),
        Fault::Status { code, description } => (ApiError::new(*code, description.as_str()), Transport::Whole),
        Fault::BadGateway => {
            let page = "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body></body>\r\n</html>\r\n";
            (ApiError::new(502, "Bad Gateway"), Transport::Html(page.to_owned()))
        }
        Fault::DropBefore => (ApiError::new(500, "dropped before it had an effect"), Transport::Dropped),
        _ => return None,
    };
    Some(Response { transport, ..Response::of(Err(answer)) })
}

fn after_effect(mut response: Response, fault: Option<&Fault>) -> Response {
    match fault {
        Some(Fault::DropAfter) => response.transport = Transport::Dropped,
        Some(Fault::Cut) => response.transport = Transport::Cut,
        Some(Fault::Slow { delay_ms }) => response.delay_ms = *delay_ms,
        Some(Fault::DuplicateUpdates) => {
            if let Some(list) = response.body["result"].as_array_mut() {
                *list = list.iter().flat_map(|update| [update.clone(), update.clone()]).collect();
            }
        }
        Some(Fault::ReverseUpdates) => {
            if let Some(list) = response.body["result"].as_array_mut() {
                list.reverse();
            }
        }
        _ => {}
    }
    response
}

/// Messages and edits take from all limits. Other calls are not limited here: the vendor names no numbers for them.
fn take_rate(state: &mut State, now_ms: u64, bot: i64, method: &str, params: &Params) -> Result<(), u64> {
    let method = method.to_lowercase();
    let is_note = matches!(method.as_str(), "sendchataction" | "sendmessagedraft");
    if is_note || !(method.starts_with("send") || method.starts_with("edit") || method == "copymessage") {
        return Ok(());
    }
    let Some(chat) = params.int("chat_id") else { return Ok(()) };
    let count = match method.as_str() {
        "sendmediagroup" => params.json("media").ok().flatten().and_then(|it| it.as_array().map(Vec::len)).unwrap_or(1),
        _ => 1,
    };
    let is_group = state.chat(ChatKey::seen_by(chat, bot)).is_some_and(|chat| chat.kind.is_group());
    let load = Load { bot, chat: Some((chat, count as u64)), is_group };
    let limits = state.limits.clone();
    state.meter.take(now_ms, &limits, load)
}

pub(super) fn begin_poll(state: &mut State, token: &str) -> Result<Poll, ApiError> {
    let id = bot_of(state, token)?;
    let bot = state.bots.get_mut(&id).ok_or_else(|| ApiError::new(401, "Unauthorized"))?;
    bot.queue.poll += 1;
    bot.queue.ended_by = "other getUpdates";
    Ok(Poll { bot: id, number: bot.queue.poll })
}

pub(super) fn try_poll(state: &mut State, now_ms: u64, poll: &Poll, params: &Params, at_end: bool) -> Option<Response> {
    let (bot, method) = (poll.bot, "getUpdates");
    let known = state.bots.get(&bot)?;
    let (response, fault) = if known.queue.poll != poll.number {
        (Response::of(Err(updates::ended(known))), None)
    } else if let Some(fault) = state.faults.take_if(method, Fault::is_before_effect) {
        (before_effect(&fault)?, Some(fault))
    } else {
        let response = Response::of(run(&mut Call { state, bot, now_ms, params, files: &[] }, method));
        let is_empty = response.result().as_array().is_some_and(Vec::is_empty);
        if is_empty && !at_end {
            return None;
        }
        let fault = if is_empty { None } else { state.faults.take_if(method, |fault| !fault.is_before_effect()) };
        (after_effect(response, fault.as_ref()), fault)
    };
    record(state, now_ms, bot, method, params, Vec::new(), &response, fault.as_ref());
    Some(response)
}

pub(super) fn due_deliveries(state: &mut State, now_ms: u64) -> (Vec<Delivery>, Option<u64>) {
    let mut due = Vec::new();
    let mut next: Option<u64> = None;
    for (id, bot) in &mut state.bots {
        let (Some(webhook), Some((update_id, update))) = (bot.webhook.as_mut(), bot.queue.next()) else { continue };
        if webhook.in_flight {
            continue;
        }
        if webhook.not_before_ms > now_ms {
            next = Some(next.map_or(webhook.not_before_ms, |at| at.min(webhook.not_before_ms)));
            continue;
        }
        webhook.in_flight = true;
        let fault = state.faults.take("webhook");
        let mut body = update.to_string();
        if fault == Some(Fault::Cut) {
            let half = (0..=body.len() / 2).rev().find(|at| body.is_char_boundary(*at)).unwrap_or_default();
            body.truncate(half);
        }
        let delay_ms = if let Some(Fault::Slow { delay_ms }) = fault { delay_ms } else { 0 };
        let again = fault == Some(Fault::DuplicateUpdates);
        let (url, secret) = (webhook.url.clone(), webhook.secret.clone());
        due.push(Delivery { bot: *id, update_id, url, secret, body, delay_ms, again });
    }
    (due, next)
}

pub(super) fn delivered(state: &mut State, now_ms: u64, delivery: &Delivery, outcome: Result<(u16, Vec<u8>), String>) {
    let Some(bot) = state.bots.get_mut(&delivery.bot) else { return };
    let failure = match &outcome {
        Ok((200..=299, _)) => None,
        Ok((status, _)) => Some(format!("Wrong response from the webhook: {status}")),
        Err(why) => Some(why.clone()),
    };
    if failure.is_none() && !delivery.again {
        bot.queue.remove(delivery.update_id);
    }
    let token = bot.token.clone();
    if let Some(webhook) = bot.webhook.as_mut() {
        webhook.in_flight = false;
        webhook.failures = if failure.is_some() { webhook.failures + 1 } else { 0 };
        if let Some(text) = failure {
            let wait_ms = FIRST_RETRY_MS.saturating_mul(1 << webhook.failures.min(10).saturating_sub(1));
            webhook.not_before_ms = now_ms + wait_ms.min(MAX_RETRY_MS);
            webhook.last_error = Some((now_ms, text));
            return;
        }
    }
    let Ok((_, body)) = outcome else { return };
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(&body) else { return };
    if let Some(Value::String(method)) = fields.remove("method") {
        call(state, now_ms, &token, &method, &Params(fields), &[]);
    }
}
