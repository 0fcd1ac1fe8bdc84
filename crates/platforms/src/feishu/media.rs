//! Files both ways.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use frontdesk_core::port::media::MediaBody;
use frontdesk_core::port::outcall::{Body, Part, PartValue};
use frontdesk_core::port::platform::{Acted, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, Secret, TenantId};
use futures_util::StreamExt as _;
use serde_json::json;

use super::Feishu;
use super::account::is_id;
use super::failure::ApiError;
use super::refusals::{OF_ANCHOR, OF_CHAT, OF_TOKEN};
use super::send::{Sending, partial};
use super::text::{one_message, parts};
use super::value::text_of;
use crate::shared::source_file::{self, SourceFile};
use crate::shared::transfers::{Transfer, Transfers};

const IMAGE_MAX_BYTES: usize = 10 << 20;
/// As large as the files that gateways can hand over; Feishu takes 30 MB.
const FILE_MAX_BYTES: usize = 25 << 20;
const DOWNLOAD_MAX_BYTES: usize = 100 << 20;
/// Files of unknown size that are in memory at the same time, in total and per tenant. Feishu wants the size first.
pub(super) const HELD_MAX: usize = 4;
pub(super) const HELD_PER_TENANT: usize = 2;
const TOO_MANY_FILES: &str = "too many uploads of unknown size are in progress; nothing was sent; try again later, or serve \
                              the file with Content-Length";

/// How a file is uploaded and shown.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// The `file_type` of the upload; empty for pictures, which have a call of their own.
    file_type: &'static str,
    message: &'static str,
}

const IMAGE: Kind = Kind { file_type: "", message: "image" };

/// By its type, and by the end of its name.
fn kind_of(mime: &str, name: &str, size: u64) -> Kind {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_lowercase()).unwrap_or_default();
    let is_picture =
        matches!(mime, "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/bmp" | "image/tiff");
    let file = |file_type| Kind { file_type, message: "file" };
    match (mime, end.as_str()) {
        _ if is_picture && size <= IMAGE_MAX_BYTES as u64 => IMAGE,
        ("audio/ogg" | "audio/opus", _) | (_, "ogg" | "opus") => Kind { file_type: "opus", message: "audio" },
        ("video/mp4", _) | (_, "mp4" | "mov" | "avi" | "m4v") => Kind { file_type: "mp4", message: "media" },
        (_, "pdf") => file("pdf"),
        (_, "doc" | "docx") => file("doc"),
        (_, "xls" | "xlsx") => file("xls"),
        (_, "ppt" | "pptx") => file("ppt"),
        _ => file("stream"),
    }
}

impl Feishu {
    pub(super) async fn send_media(
        &self,
        sending: &Sending<'_>,
        media_kind: &str,
        source_url: &str,
        caption: Option<&str>,
        filename: Option<&str>,
        reply_to: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let (key, kind) = match self.uploaded(sending, media_kind, source_url, filename).await? {
            Ok(uploaded) => uploaded,
            // Users do not see a file before a message names it.
            Err(error) => return Ok(error.of_question().into()),
        };
        let caption = caption.filter(|caption| !caption.trim().is_empty());
        // A short caption and its picture are one message.
        if let Some(out) = caption.and_then(one_message).filter(|_| kind == IMAGE) {
            let rows = json!([[{ "tag": "md", "text": out.card }], [{ "tag": "img", "image_key": key }]]);
            let content = json!({ "zh_cn": { "content": rows } }).to_string();
            return Ok(Sending::acted(sending.post("post", &content, reply_to).await));
        }
        let content = match kind == IMAGE {
            true => json!({ "image_key": key }),
            false => json!({ "file_key": key }),
        };
        let acted = Sending::acted(sending.post(kind.message, &content.to_string(), reply_to).await);
        if !acted.result.success {
            return Ok(acted);
        }
        let message_id = acted.result.message_id.clone();
        for part in caption.map(parts).unwrap_or_default() {
            let Some(out) = one_message(&part) else { continue };
            let more = Sending::acted(sending.post_text(&out, None).await);
            if !more.result.success {
                return Ok(partial(more, message_id.as_deref(), "the file went out"));
            }
        }
        Ok(acted)
    }

    /// The key of the file at Feishu. It passes through in pieces, so that it is opened again if the token was refused.
    async fn uploaded(
        &self,
        sending: &Sending<'_>,
        media_kind: &str,
        source_url: &str,
        filename: Option<&str>,
    ) -> Result<Result<(String, Kind), ApiError>, ActionResult> {
        let mut refused: Option<Arc<Secret>> = None;
        loop {
            let token = match sending.api.token(refused.as_deref()).await {
                Ok(token) => token,
                Err(error) => return Ok(Err(error)),
            };
            let file = self.sources.open(sending.acting_as.tenant, source_url, FILE_MAX_BYTES).await?;
            let (file, length, _held) = sized(file, sending.acting_as.tenant, &self.held_files).await?;
            let name = filename.map(str::to_owned).or_else(|| file.filename.clone());
            let name = name.filter(|name| !name.trim().is_empty());
            let name = name.unwrap_or_else(|| default_name(&file.mime).to_owned());
            let kind = match media_kind {
                "document" => Kind { message: "file", ..kind_of("", &name, length) },
                _ => kind_of(&file.mime, &name, length),
            };
            match upload(sending, &kind, &name, file, length, &token).await {
                Err(error) if error.is(&OF_TOKEN) && refused.is_none() => refused = Some(token),
                outcome => return Ok(outcome.map(|key| (key, kind))),
            }
        }
    }

    /// The handle names message, file, kind and name.
    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let mut parts = handle.expose().splitn(4, '/');
        let (message, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (kind, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !is_id(message) || !is_id(key) || !matches!(kind, "image" | "file") {
            return Err(MediaFault::Gone("its handle is malformed".into()));
        }
        let path = format!("/open-apis/im/v1/messages/{message}/resources/{key}?type={kind}");
        let api = self.api(bot);
        let opened = api.open(&path, DOWNLOAD_MAX_BYTES).await.map_err(|error| fault(&error))?;
        let mime = opened.header("content-type").unwrap_or("application/octet-stream").to_owned();
        let filename = Some(name.to_owned()).filter(|name| !name.is_empty());
        Ok(RemoteMedia { mime, filename, body: opened.body })
    }
}

fn fault(error: &ApiError) -> MediaFault {
    let is_gone = error.is(&OF_ANCHOR) || error.is(&OF_CHAT) || error.is(&[234_003, 234_037, 234_038]);
    match is_gone {
        true => MediaFault::Gone(error.text()),
        false => MediaFault::Unavailable(error.text()),
    }
}

async fn upload(
    sending: &Sending<'_>,
    kind: &Kind,
    name: &str,
    file: SourceFile,
    length: u64,
    token: &Secret,
) -> Result<String, ApiError> {
    let (is_image, mime) = (*kind == IMAGE, file.mime);
    let text = |name, value| Part { name, value: PartValue::Text(value) };
    let value = PartValue::File { filename: name, mime: &mime, length: Some(length), body: file.body };
    let form = Body::Multipart(match is_image {
        true => vec![text("image_type", "message"), Part { name: "image", value }],
        false => vec![text("file_type", kind.file_type), text("file_name", name), Part { name: "file", value }],
    });
    let (path, field) = match is_image {
        true => ("/open-apis/im/v1/images", "image_key"),
        false => ("/open-apis/im/v1/files", "file_key"),
    };
    let response = sending.api.upload(path, form, token).await?;
    match text_of(&response, field) {
        key if is_id(key) => Ok(key.to_owned()),
        _ => Err(ApiError::unusable(false, "it returned no key for the file")),
    }
}

/// Feishu wants the size before the bytes. A file of unknown size is read into memory, which the permit limits.
async fn sized(
    file: SourceFile,
    tenant: &TenantId,
    held_files: &Transfers,
) -> Result<(SourceFile, u64, Option<Transfer>), ActionResult> {
    let (length, file, held) = if let Some(size) = file.size {
        (size, file, None)
    } else {
        let busy = || ActionResult::refused(Code::RateLimited, TOO_MANY_FILES);
        let held = held_files.begin(tenant).await.ok_or_else(busy)?;
        let bytes = whole(file.body).await?;
        let length = bytes.len() as u64;
        let body = Box::pin(futures_util::stream::iter([Ok(bytes)]));
        (length, SourceFile { size: Some(length), body, ..file }, Some(held))
    };
    match length {
        0 => {
            let text = "the file is empty, and Feishu accepts no empty files";
            Err(ActionResult::refused(Code::BadRequest, text))
        }
        length if length > FILE_MAX_BYTES as u64 => Err(too_large()),
        length => Ok((file, length, held)),
    }
}

fn too_large() -> ActionResult {
    let text = format!("files of at most {FILE_MAX_BYTES} bytes can be sent to Feishu from here");
    ActionResult::refused(Code::TooLarge, text)
}

async fn whole(mut body: MediaBody) -> Result<Bytes, ActionResult> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await {
        let failed = |error| ActionResult::refused(Code::PlatformFailed, format!("source_url: {error}"));
        bytes.extend_from_slice(&piece.map_err(failed)?);
        if bytes.len() > FILE_MAX_BYTES {
            return Err(too_large());
        }
    }
    Ok(bytes.freeze())
}

fn default_name(mime: &str) -> &'static str {
    match mime {
        "audio/ogg" | "audio/opus" => "file.opus", // as Feishu calls both
        _ => source_file::default_name(mime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shown_as_what_they_are() {
        for (mime, name, size, file_type, message) in [
            ("image/png", "a.png", 5, "", "image"),
            ("image/png", "a.png", 11 << 20, "stream", "file"),
            ("image/svg+xml", "a.svg", 5, "stream", "file"),
            ("audio/ogg", "a", 5, "opus", "audio"),
            ("audio/mpeg", "a.mp3", 5, "stream", "file"),
            ("video/mp4", "a.mp4", 5, "mp4", "media"),
            ("application/pdf", "a.PDF", 5, "pdf", "file"),
            ("application/octet-stream", "a.docx", 5, "doc", "file"),
            ("text/plain", "a.txt", 5, "stream", "file"),
        ] {
            assert_eq!(kind_of(mime, name, size), Kind { file_type, message }, "{mime} {name}");
        }
    }
}
