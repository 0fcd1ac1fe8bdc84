//! Media routes: files that are stored for about an hour. Ids are random, and only the tenant that uploaded a file can
//! read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use frontdesk_core::port::media::{MediaBody, MediaPut};
use frontdesk_wire::Code;
use frontdesk_wire::api::MediaReply;
use futures_util::{StreamExt as _, stream};

use super::App;
use super::auth::{ChatTenant, Gateway};
use super::body::waits_to_send;
use super::error::Refusal;
use super::flow::discard;

const FILENAME_MAX_CHARS: usize = 200;

pub(crate) async fn put_by_gateway(
    State(app): State<App>,
    Gateway(caller): Gateway,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<MediaReply>, Refusal> {
    put(&app, caller.tenant, &headers, body).await.map_err(Refusal::plain)
}

pub(crate) async fn put_by_chat(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<MediaReply>, Refusal> {
    put(&app, tenant, &headers, body).await
}

pub(crate) async fn get_by_gateway(
    State(app): State<App>,
    Gateway(caller): Gateway,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    get(&app, &caller.tenant, &id).await.map_err(Refusal::plain)
}

pub(crate) async fn get_by_chat(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    get(&app, &tenant, &id).await
}

async fn put(app: &App, tenant: String, headers: &HeaderMap, body: Body) -> Result<Json<MediaReply>, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let max = app.desk.media().max_bytes();
    if body.size_hint().lower() > max as u64 {
        if !waits_to_send(headers) {
            discard(body).await;
        }
        return Err(Refusal::new(Code::TooLarge, format!("the file is larger than {max} bytes")));
    }
    let mime = text("content-type").filter(|mime| mime.contains('/')).unwrap_or("application/octet-stream").to_owned();
    let filename = text("x-media-filename").map(decode_filename).filter(|name| !name.is_empty());
    let busy = || Refusal::new(Code::RateLimited, "too many uploads in progress for this tenant; try again later");
    let _one_of_few = app.uploads.take(&tenant, 1).await.ok_or_else(busy)?;
    let Some((pieces, is_over)) = bounded(body, max).await? else {
        return Err(Refusal::new(Code::BadRequest, "the file is empty"));
    };
    let tenant_max = app.desk.media().tenant_max_bytes();
    let (id, put) = app.desk.media().put(tenant, mime, filename, pieces).await?;
    match put {
        MediaPut::Kept(size) => Ok(Json(MediaReply { id, size })),
        MediaPut::Aborted if is_over.load(Ordering::Acquire) => {
            Err(Refusal::new(Code::TooLarge, format!("the file is larger than {max} bytes")))
        }
        MediaPut::Aborted => Err(Refusal::new(Code::BadRequest, "the request body was incomplete or stalled")),
        MediaPut::Full(used) => {
            let text = format!(
                "this tenant stores {used} bytes; wait for expiry, or raise media.per_tenant_bytes ({tenant_max})"
            );
            Err(Refusal::new(Code::TooLarge, text))
        }
    }
}

type Bounded = (MediaBody, Arc<AtomicBool>);

/// The chunks of a body, cut off at the limit; the flag tells that this happened. `None`: the body is empty.
async fn bounded(body: Body, max: usize) -> Result<Option<Bounded>, Refusal> {
    let broken = |_| Refusal::new(Code::BadRequest, "the request body was incomplete or stalled");
    let mut pieces = body.into_data_stream();
    let first = loop {
        match pieces.next().await.transpose().map_err(broken)? {
            None => return Ok(None),
            Some(piece) if piece.is_empty() => {}
            Some(piece) => break piece,
        }
    };
    let is_over = Arc::new(AtomicBool::new(false));
    let told = is_over.clone();
    let begun = (Box::pin(stream::iter([Ok(first)]).chain(pieces)), 0);
    let all = stream::try_unfold(begun, move |(mut pieces, size)| {
        let told = told.clone();
        async move {
            let Some(piece) = pieces.next().await else { return Ok(None) };
            let piece = piece.map_err(std::io::Error::other)?;
            let size = size + piece.len();
            if size > max {
                told.store(true, Ordering::Release);
                discard(Body::from_stream(pieces)).await;
                return Err(std::io::ErrorKind::FileTooLarge.into());
            }
            Ok(Some((piece, (pieces, size))))
        }
    });
    Ok(Some((Box::pin(all), is_over)))
}

async fn get(app: &App, tenant: &str, id: &str) -> Result<Response, Refusal> {
    let found = app.desk.media().get(tenant, id).await?;
    let (item, body) = found.ok_or_else(|| Refusal::new(Code::NotFound, "file not found or expired"))?;
    let inline = ["image/png", "image/jpeg", "image/gif", "image/webp"].contains(&item.mime.as_str())
        || item.mime.starts_with("audio/")
        || item.mime.starts_with("video/");
    let shown = if inline { "inline" } else { "attachment" };
    let name: String =
        item.filename.unwrap_or_default().chars().filter(|c| c.is_ascii_graphic() && *c != '"').collect();
    let headers = [
        (header::CONTENT_TYPE, item.mime),
        (header::CONTENT_DISPOSITION, format!("{shown}; filename=\"{name}\"")),
        // Untrusted content: it must never run as a page of this server.
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".into()),
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'".into()),
        (header::CACHE_CONTROL, "private, max-age=600".into()),
    ];
    let length = item.size.to_string();
    Ok((headers, [(header::CONTENT_LENGTH, length)], Body::from_stream(body)).into_response())
}

/// Browsers percent-encode the name. Path components are removed.
fn decode_filename(raw: &str) -> String {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|pair| std::str::from_utf8(pair).ok());
        if let Some(byte) = hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            bytes.push(byte);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let name = text.rsplit(['/', '\\']).next().unwrap_or_default();
    name.chars().filter(|c| !c.is_control()).take(FILENAME_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::decode_filename;

    #[test]
    fn a_filename_is_decoded_once_and_keeps_no_path() {
        assert_eq!(decode_filename("caf%C3%A9.png"), "café.png");
        assert_eq!(decode_filename("..%2F..%2Fetc%2Fpasswd"), "passwd");
        assert_eq!(decode_filename("a%2541"), "a%41");
        assert_eq!(decode_filename("100%"), "100%");
        assert_eq!(decode_filename("a%0Ab"), "ab");
    }
}
