//! `/api/v10/...` and files.

use std::time::Duration;

use serde_json::Value;

use super::super::answer::{ApiError, Response, Transport};
use super::super::rest::{RestRequest, Upload};
use super::{Site, endpoints};
use crate::fakes::serving::http::{Reply, Request};
use crate::fakes::serving::multipart;

/// `None`: the connection is to be closed without an answer.
pub(super) async fn answer(site: &Site, request: &Request) -> Option<Reply> {
    let path = request.path.trim_start_matches('/');
    if path.starts_with("attachments/") {
        return Some(match site.fake.file(site.clock.now_ms(), path, &request.query) {
            Some((bytes, mime)) => Reply::new(200, mime, bytes.to_vec()),
            None => Reply::new(404, "text/plain", b"This content is no longer available.".to_vec()),
        });
    }
    let called = path.strip_prefix("api/v10/").or_else(|| path.strip_prefix("api/v9/"));
    let Some(called) = called else { return render(Response::of(Err(ApiError::not_found()))).await };
    let request = match read(request, called) {
        Ok(request) => request,
        Err(error) => return render(Response::of(Err(error))).await,
    };
    let url = request.body["interactions_endpoint_url"].as_str().filter(|url| !url.is_empty());
    if request.method == "PATCH"
        && called == "applications/@me"
        && let Some(url) = url
    {
        let bot = site.fake.bot_of(request.authorization.as_deref().unwrap_or_default());
        if let Some(bot) = bot
            && endpoints::prove(site, bot, url).await.is_err()
        {
            let text = "The specified interactions endpoint url could not be verified.";
            let code = "APPLICATION_INTERACTIONS_ENDPOINT_URL_INVALID";
            return render(Response::of(Err(ApiError::form("interactions_endpoint_url", code, text)))).await;
        }
    }
    render(site.fake.handle(site.clock.now_ms(), &request)).await
}

fn read(request: &Request, path: &str) -> Result<RestRequest, ApiError> {
    let mime = request.header("content-type").unwrap_or_default();
    let broken = || ApiError::new(400, 50109, "The request body contains invalid JSON.");
    let (mut body, mut files) = (Value::Null, Vec::new());
    if mime.starts_with("multipart/form-data") {
        for part in multipart::read(mime, &request.body).ok_or_else(broken)? {
            match part.filename {
                Some(filename) => {
                    let bytes = part.content.to_vec();
                    files.push(Upload { field: part.field, filename, mime: part.mime, bytes });
                }
                None if part.field == "payload_json" => {
                    body = serde_json::from_slice(part.content).map_err(|_| broken())?;
                }
                None => {}
            }
        }
    } else if !request.body.is_empty() {
        if !mime.starts_with("application/json") {
            let text = "Expected \"Content-Type\" header to be one of {'application/json'}.";
            return Err(ApiError::form("_misc", "CONTENT_TYPE_INVALID", text));
        }
        body = serde_json::from_slice(&request.body).map_err(|_| broken())?;
    }
    Ok(RestRequest {
        method: request.method.clone(),
        path: path.to_owned(),
        query: url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect(),
        authorization: request.header("authorization").map(str::to_owned),
        body,
        files,
    })
}

async fn render(response: Response) -> Option<Reply> {
    if response.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(response.delay_ms)).await;
    }
    let mut reply = match response.transport {
        Transport::Html(page) => Reply::new(response.status, "text/html", page.into_bytes()),
        Transport::Dropped => return None,
        Transport::Whole | Transport::Cut if response.status == 204 => Reply::new(204, "text/html", Vec::new()),
        Transport::Whole => Reply::json(response.status, &response.body),
        Transport::Cut => {
            let mut reply = Reply::json(response.status, &response.body);
            reply.body.truncate(reply.body.len() / 2);
            reply
        }
    };
    reply.headers = response.headers;
    Some(reply)
}
