//! Files both ways.

use bytes::{Bytes, BytesMut};
use frontdesk_core::port::outcall::{Body, Part, PartValue};
use frontdesk_core::port::platform::{Acted, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, Secret};
use futures_util::StreamExt as _;
use serde_json::json;

use super::Feishu;
use super::account::is_id;
use super::failure::ApiError;
use super::refusals::{OF_ANCHOR, OF_CHAT};
use super::send::{Sending, partial};
use super::text::{one_message, parts};
use super::value::text_of;
use crate::shared::source_file::SourceFile;

const IMAGE_MAX_BYTES: usize = 10 << 20;
/// As large as the files that gateways can hand over; Feishu takes 30 MB.
const FILE_MAX_BYTES: usize = 25 << 20;
const DOWNLOAD_MAX_BYTES: usize = 100 << 20;

/// How a file is uploaded and shown.
#[derive(Debug, PartialEq, Eq)]
struct Kind {
    /// Its name in the call, empty for pictures.
    file_type: &'static str,
    message: &'static str,
}

const IMAGE: Kind = Kind { file_type: "", message: "image" };

/// By its type, and by the end of its name.
fn kind_of(mime: &str, name: &str, size: Option<u64>) -> Kind {
    let end = name.rsplit_once('.').map(|(_, end)| end.to_lowercase()).unwrap_or_default();
    let is_picture =
        matches!(mime, "image/png" | "image/jpeg" | "image/gif" | "image/webp" | "image/bmp" | "image/tiff");
    let file = |file_type| Kind { file_type, message: "file" };
    match (mime, end.as_str()) {
        _ if is_picture && size.is_none_or(|size| size <= IMAGE_MAX_BYTES as u64) => IMAGE,
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
        let file = self.sources.open(sending.acting_as.tenant, source_url, FILE_MAX_BYTES).await?;
        let name = filename.map(str::to_owned).or_else(|| file.filename.clone());
        let name = name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| default_name(&file.mime).to_owned());
        let kind = match media_kind {
            "document" => Kind { message: "file", ..kind_of("", &name, None) },
            _ => kind_of(&file.mime, &name, file.size),
        };
        let (mime, bytes) = (file.mime.clone(), whole(file).await?);
        let key = match upload(sending, &kind, &name, &mime, bytes).await {
            Ok(key) => key,
            // Nobody sees a file before a message names it.
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

    /// The handle names message, file, kind and name.
    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let mut parts = handle.expose().splitn(4, '/');
        let (message, key) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (kind, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if !is_id(message) || !is_id(key) || !matches!(kind, "image" | "file") {
            return Err(MediaFault::Gone("its handle cannot be read".into()));
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

async fn upload(sending: &Sending<'_>, kind: &Kind, name: &str, mime: &str, bytes: Bytes) -> Result<String, ApiError> {
    let is_image = *kind == IMAGE;
    let form = || {
        let text = |name, value| Part { name, value: PartValue::Text(value) };
        let length = Some(bytes.len() as u64);
        let body = Box::pin(futures_util::stream::iter([Ok(bytes.clone())]));
        let value = PartValue::File { filename: name, mime, length, body };
        Body::Multipart(match is_image {
            true => vec![text("image_type", "message"), Part { name: "image", value }],
            false => vec![text("file_type", kind.file_type), text("file_name", name), Part { name: "file", value }],
        })
    };
    let (path, field) = match is_image {
        true => ("/open-apis/im/v1/images", "image_key"),
        false => ("/open-apis/im/v1/files", "file_key"),
    };
    let told = sending.api.upload(path, form).await?;
    match text_of(&told, field) {
        key if is_id(key) => Ok(key.to_owned()),
        _ => Err(ApiError::unusable(false, "it named no key for the file")),
    }
}

/// Feishu wants to know the length before.
async fn whole(file: SourceFile) -> Result<Bytes, ActionResult> {
    let too_large = || {
        let text = format!("files of at most {FILE_MAX_BYTES} bytes can be sent to Feishu from here");
        ActionResult::refused(Code::TooLarge, text)
    };
    if file.size.is_some_and(|size| size > FILE_MAX_BYTES as u64) {
        return Err(too_large());
    }
    let (mut bytes, mut body) = (BytesMut::new(), file.body);
    while let Some(piece) = body.next().await {
        let failed = |error| ActionResult::refused(Code::PlatformFailed, format!("source_url: {error}"));
        bytes.extend_from_slice(&piece.map_err(failed)?);
        if bytes.len() > FILE_MAX_BYTES {
            return Err(too_large());
        }
    }
    if bytes.is_empty() {
        return Err(ActionResult::refused(Code::BadRequest, "the file is empty, and Feishu takes none of that kind"));
    }
    Ok(bytes.freeze())
}

fn default_name(mime: &str) -> &'static str {
    match mime {
        "image/png" => "file.png",
        "image/jpeg" => "file.jpg",
        "image/webp" => "file.webp",
        "image/gif" => "file.gif",
        "audio/ogg" | "audio/opus" => "file.opus",
        "audio/mpeg" => "file.mp3",
        "video/mp4" => "file.mp4",
        "application/pdf" => "file.pdf",
        "text/plain" => "file.txt",
        _ => "file.bin",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_shown_as_what_they_are() {
        for (mime, name, size, file_type, message) in [
            ("image/png", "a.png", Some(5), "", "image"),
            ("image/png", "a.png", Some(11 << 20), "stream", "file"),
            ("image/svg+xml", "a.svg", None, "stream", "file"),
            ("audio/ogg", "a", None, "opus", "audio"),
            ("audio/mpeg", "a.mp3", None, "stream", "file"),
            ("video/mp4", "a.mp4", None, "mp4", "media"),
            ("application/pdf", "a.PDF", None, "pdf", "file"),
            ("application/octet-stream", "a.docx", None, "doc", "file"),
            ("text/plain", "a.txt", None, "stream", "file"),
        ] {
            assert_eq!(kind_of(mime, name, size), Kind { file_type, message }, "{mime} {name}");
        }
    }
}
