//! Media routes: files that are stored for about an hour, and while mail that refers to them is unsettled. Ids are
//! random, and only the tenant of a file can read it. A file of a platform is fetched from there by the first request
//! for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Json;
use axum::body::{Body, HttpBody as _};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use frontdesk_core::media::{FetchError, Found, UNKNOWN_MIME, clean_filename, clean_mime};
use frontdesk_core::port::media::{MediaBody, MediaItem, MediaPut};
use frontdesk_wire::api::MediaReply;
use frontdesk_wire::{Code, TenantId};
use futures_util::{StreamExt as _, stream};

use super::App;
use super::auth::{ChatTenant, Gateway};
use super::error::Refusal;

/// When a platform that failed may be asked again.
const RETRY_AFTER_S: u32 = 10;

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

async fn put(app: &App, tenant: TenantId, headers: &HeaderMap, body: Body) -> Result<Json<MediaReply>, Refusal> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let max = app.desk.media().max_bytes();
    if body.size_hint().lower() > max as u64 {
        return Err(Refusal::new(Code::TooLarge, format!("the file is larger than {max} bytes")));
    }
    let mime = text("content-type").and_then(clean_mime).unwrap_or(UNKNOWN_MIME).to_owned();
    let filename = text("x-media-filename").and_then(decode_filename);
    let busy = || Refusal::new(Code::RateLimited, "too many uploads in progress for this tenant; try again later");
    let _one_of_few = app.uploads.take(&tenant, 1).await.ok_or_else(busy)?;
    let Some((pieces, is_over)) = bounded(body, max).await? else {
        return Err(Refusal::new(Code::BadRequest, "the file is empty"));
    };
    let (id, put) = app.desk.media().put(tenant, mime, filename, pieces).await?;
    match put {
        MediaPut::Stored(size) => Ok(Json(MediaReply { id, size })),
        MediaPut::Aborted if is_over.load(Ordering::Acquire) => {
            Err(Refusal::new(Code::TooLarge, format!("the file is larger than {max} bytes")))
        }
        MediaPut::Aborted => Err(Refusal::new(Code::BadRequest, "the request body was incomplete or stalled")),
        MediaPut::Full(used) => Err(full(app, used)),
    }
}

fn full(app: &App, used: u64) -> Refusal {
    let max = app.desk.media().tenant_max_bytes();
    let text = format!(
        "this tenant stores {used} bytes, which includes files of messages that no agent has acked yet; wait, drop such \
         messages (frontdesk mail drop), or raise media.per_tenant_bytes ({max})"
    );
    Refusal::new(Code::TooLarge, text)
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
    let flag = is_over.clone();
    let begun = (Box::pin(stream::iter([Ok(first)]).chain(pieces)), 0);
    let all = stream::try_unfold(begun, move |(mut pieces, size)| {
        let flag = flag.clone();
        async move {
            let Some(piece) = pieces.next().await else { return Ok(None) };
            let piece = piece.map_err(std::io::Error::other)?;
            let size = size + piece.len();
            if size > max {
                flag.store(true, Ordering::Release);
                return Err(std::io::ErrorKind::FileTooLarge.into());
            }
            Ok(Some((piece, (pieces, size))))
        }
    });
    Ok(Some((Box::pin(all), is_over)))
}

async fn get(app: &App, tenant: &TenantId, id: &str) -> Result<Response, Refusal> {
    let (item, body) = match app.desk.media().find(tenant, id).await? {
        Found::Here(item, body) => (item, body),
        Found::Remote => fetch(app, tenant, id).await?,
        Found::Nowhere => return Err(Refusal::new(Code::NotFound, FetchError::Absent.to_string())),
    };
    Ok(show(item, body))
}

/// Runs to its end also if the client disconnects: its next attempt finds the file here.
async fn fetch(app: &App, tenant: &TenantId, id: &str) -> Result<(MediaItem, MediaBody), Refusal> {
    let (desk, stop, tenant, id) = (app.desk.clone(), app.stop.clone(), tenant.clone(), id.to_owned());
    let work = async move {
        tokio::select! {
            fetched = desk.media().fetch(&tenant, &id) => fetched,
            () = stop.cancelled() => Err(FetchError::Unavailable("the server is stopping; try again later".into())),
        }
    };
    let fetched = app.sessions.spawn(work).await.map_err(|error| {
        tracing::error!(%error, "fetching a file from its platform panicked");
        Refusal::new(Code::Internal, "internal error while fetching the file, see the server log")
    })?;
    fetched.map_err(|error| match error {
        FetchError::Absent => Refusal::new(Code::NotFound, error.to_string()),
        FetchError::Gone(_) => Refusal::new(Code::Gone, error.to_string()),
        FetchError::Unavailable(_) => Refusal::new(Code::Unavailable, error.to_string()).retry_after(RETRY_AFTER_S),
        FetchError::TooLarge(_) => Refusal::new(Code::TooLarge, error.to_string()),
        FetchError::Full(used) => full(app, used),
        FetchError::Busy => Refusal::new(Code::RateLimited, error.to_string()).retry_after(1),
        FetchError::Store(error) => error.into(),
    })
}

pub(super) fn show(item: MediaItem, body: MediaBody) -> Response {
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
    (headers, [(header::CONTENT_LENGTH, length)], Body::from_stream(body)).into_response()
}

/// Browsers percent-encode the name. Path components are removed.
fn decode_filename(raw: &str) -> Option<String> {
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
    clean_filename(&String::from_utf8_lossy(&bytes))
}

#[cfg(test)]
mod tests {
    use super::decode_filename;

    #[test]
    fn a_filename_is_decoded_once_and_keeps_no_path() {
        for (raw, name) in [
            ("caf%C3%A9.png", Some("café.png")),
            ("..%2F..%2Fetc%2Fpasswd", Some("passwd")),
            ("a%2541", Some("a%41")),
            ("100%", Some("100%")),
            ("a%0Ab", Some("ab")),
            ("%2F", None),
        ] {
            assert_eq!(decode_filename(raw).as_deref(), name, "{raw}");
        }
    }
}
