//! `/bot{token}/{method}` and `/file/bot{token}/{path}`.

use std::time::Duration;

use serde_json::json;

use super::super::FakeTelegram;
use super::super::answer::{ApiError, Response, Transport};
use super::super::params::Params;
use super::{Site, body, not_found};
use crate::fakes::serving::http::{Reply, Request};

/// The vendor's longest.
const MAX_POLL_S: u64 = 50;

/// `None`: the connection is to be closed without an answer.
pub(super) async fn answer(site: &Site, request: &Request) -> Option<Reply> {
    if let Some(rest) = request.path.strip_prefix("/file/bot") {
        return Some(download(site, rest));
    }
    let called = request.path.strip_prefix("/bot").and_then(|rest| rest.split_once('/'));
    let Some((token, method)) = called else { return Some(not_found()) };
    let (params, files) = match body::read(request) {
        Ok(read) => read,
        Err(why) => return render(Response::of(Err(ApiError::new(400, why)))).await,
    };
    let response = if method.eq_ignore_ascii_case("getUpdates") {
        poll(&site.fake, || site.clock.now_ms(), token, &params).await
    } else {
        site.fake.handle(site.clock.now_ms(), token, method, &params, &files)
    };
    render(response).await
}

async fn render(response: Response) -> Option<Reply> {
    if response.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(response.delay_ms)).await;
    }
    match response.transport {
        Transport::Whole => Some(Reply::json(response.status, &response.body)),
        Transport::Html(page) => Some(Reply::new(response.status, "text/html", page.into_bytes())),
        Transport::Dropped => None,
        Transport::Cut => {
            let mut reply = Reply::json(response.status, &response.body);
            reply.body.truncate(reply.body.len() / 2);
            Some(reply)
        }
    }
}

/// Waits for updates as long as the call says, and ends when another poll takes its place.
pub(in super::super) async fn poll(
    fake: &FakeTelegram,
    now_ms: impl Fn() -> u64,
    token: &str,
    params: &Params,
) -> Response {
    let timeout_s = params.int("timeout").and_then(|it| u64::try_from(it).ok()).unwrap_or(0).min(MAX_POLL_S);
    let mut changes = fake.changes();
    let poll = match fake.begin_poll(token) {
        Ok(poll) => poll,
        Err(error) => return Response::of(Err(error)),
    };
    let end = tokio::time::sleep(Duration::from_secs(timeout_s));
    tokio::pin!(end);
    let mut is_over = timeout_s == 0;
    loop {
        changes.borrow_and_update();
        if let Some(response) = fake.try_poll(now_ms(), &poll, params, is_over) {
            return response;
        }
        if is_over {
            // The bot is gone: the fake was reset.
            return Response::of(Err(ApiError::new(401, "Unauthorized")));
        }
        tokio::select! {
            () = &mut end => is_over = true,
            _ = changes.changed() => {}
        }
    }
}

fn download(site: &Site, rest: &str) -> Reply {
    let Some((token, path)) = rest.split_once('/') else { return not_found() };
    match site.fake.file(token, path) {
        Ok((bytes, mime)) => Reply::new(200, mime, bytes.to_vec()),
        Err(error) => {
            let body = json!({"ok": false, "error_code": error.code, "description": error.description});
            Reply::json(error.code, &body)
        }
    }
}
