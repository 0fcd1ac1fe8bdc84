//! Files both ways. They pass through in pieces.

use std::sync::Arc;

use frontdesk_core::port::media::{body_of, read_whole};
use frontdesk_core::port::outcall::{Part, PartValue};
use frontdesk_core::port::platform::{Acted, ActingAs, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, Secret, TenantId};
use serde::Deserialize;
use serde_json::json;

use super::App;
use super::act::{partial, send, send_text};
use super::api::Api;
use super::failed::ApiError;
use super::text::parts;
use crate::shared::source_file::{self, SourceFile};
use crate::wecom::errors::FILE_GONE;

/// Of any file.
const FILE_MAX_BYTES: usize = 20 << 20;
/// The shortest file that `WeCom` takes.
const FILE_MIN_BYTES: u64 = 6;
const DOWNLOAD_MAX_BYTES: usize = 64 << 20;

#[derive(Deserialize)]
struct Uploaded {
    media_id: String,
}

/// The kind of message that shows a file. Other types, and what is too long for its kind, are files.
fn kind_of(asked: &str, mime: &str, size: u64) -> &'static str {
    let (kind, max) = match (asked, mime) {
        ("document", _) => ("file", u64::MAX),
        (_, "image/jpeg" | "image/png") => ("image", 10 << 20),
        (_, "video/mp4") => ("video", 10 << 20),
        (_, "audio/amr") => ("voice", 2 << 20),
        _ => ("file", u64::MAX),
    };
    if size <= max { kind } else { "file" }
}

/// A file is shown with its name. AMR is a voice message; WebP and GIF are no pictures here.
fn default_name(mime: &str) -> &'static str {
    match mime {
        "audio/amr" => "file.amr",
        "image/webp" | "image/gif" => "file.bin",
        _ => source_file::default_name(mime),
    }
}

impl App {
    #[allow(clippy::too_many_arguments)] // the fields of one action
    pub(super) async fn send_media(
        &self,
        api: &Api<'_>,
        acting_as: ActingAs<'_>,
        member: &str,
        asked: &str,
        source_url: &str,
        caption: Option<&str>,
        filename: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let uploaded = self.upload(api, acting_as.tenant, asked, source_url, filename).await?;
        let (kind, media_id) = match uploaded {
            Ok(uploaded) => uploaded,
            // The upload alone is not visible to the member, so the action can be repeated.
            Err(error) => return Ok(error.undone().into()),
        };
        let sent = send(api, member, kind, json!({ "media_id": media_id })).await;
        let Some(caption) = caption.filter(|caption| !caption.trim().is_empty() && sent.result.success) else {
            return Ok(sent);
        };
        // There are no captions: it follows as a message of its own.
        for text in parts(caption) {
            let said = send_text(api, member, &text).await.unwrap_or_else(Acted::from);
            if !said.result.success {
                return Ok(partial(said, sent.result.message_id.map(Into::into), "the file went out"));
            }
        }
        Ok(sent)
    }

    /// The kind and the id of the file. It is opened again if the token was refused: it can be read once only.
    async fn upload(
        &self,
        api: &Api<'_>,
        tenant: &TenantId,
        asked: &str,
        source_url: &str,
        filename: Option<&str>,
    ) -> Result<Result<(&'static str, String), ApiError>, ActionResult> {
        let mut refused: Option<Arc<Secret>> = None;
        for _ in 0..2 {
            let token = match api.token(refused.as_deref()).await {
                Ok(token) => token,
                Err(error) => return Ok(Err(error)),
            };
            let file = self.files.open(tenant, source_url, FILE_MAX_BYTES).await?;
            let SourceFile { mime, filename: known, size, body } = file;
            let unread = |error: std::io::Error| {
                ActionResult::refused(Code::Unavailable, format!("the file cannot be read: {error}"))
            };
            // The length is sent before the bytes, so it must be known.
            let (size, body) = if let Some(size) = size {
                (size, body)
            } else {
                let whole = read_whole(body).await.map_err(unread)?;
                (whole.len() as u64, body_of(whole))
            };
            if !(FILE_MIN_BYTES..=FILE_MAX_BYTES as u64).contains(&size) {
                let text =
                    format!("WeCom takes files of {FILE_MIN_BYTES} to {FILE_MAX_BYTES} bytes, and this has {size}");
                return Err(ActionResult::refused(Code::TooLarge, text));
            }
            let kind = kind_of(asked, &mime, size);
            let filename = filename.map(str::to_owned).or(known).unwrap_or_else(|| default_name(&mime).to_owned());
            let value = PartValue::File { filename: &filename, mime: &mime, length: Some(size), body };
            match api.upload::<Uploaded>(&token, kind, Part { name: "media", value }).await {
                Ok(Uploaded { media_id }) => return Ok(Ok((kind, media_id))),
                Err(Some(error)) => return Ok(Err(error)),
                Err(None) => refused = Some(token),
            }
        }
        Ok(Err(token_refused()))
    }

    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let api = Api::of(self, bot).ok_or_else(|| MediaFault::Gone("the bot was removed".into()))?;
        let fault = |error: ApiError| {
            let text = error.text().replace(handle.expose(), "***");
            match error.code() {
                Some(FILE_GONE) => MediaFault::Gone(text),
                _ => MediaFault::Unavailable(text),
            }
        };
        let mut refused: Option<Arc<Secret>> = None;
        for _ in 0..2 {
            let token = api.token(refused.as_deref()).await.map_err(fault)?;
            match api.download(&token, handle.expose(), DOWNLOAD_MAX_BYTES).await {
                Ok(answer) => {
                    let mime = answer.header("content-type").unwrap_or("application/octet-stream");
                    let mime = mime.split(';').next().unwrap_or_default().trim().to_owned();
                    return Ok(RemoteMedia { mime, filename: None, body: answer.body });
                }
                Err(Some(error)) => return Err(fault(error)),
                Err(None) => refused = Some(token),
            }
        }
        Err(fault(token_refused()))
    }
}

fn token_refused() -> ApiError {
    ApiError::Refused { code: 42_001, message: "access_token expired".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_wecom_can_show() {
        for (asked, mime, size, kind) in [
            ("image", "image/png", 10, "image"),
            ("image", "image/png", 11 << 20, "file"),
            ("image", "image/gif", 10, "file"),
            ("voice", "audio/amr", 10, "voice"),
            ("voice", "audio/amr", 3 << 20, "file"),
            ("voice", "audio/ogg", 10, "file"),
            ("video", "video/mp4", 10, "video"),
            ("document", "image/png", 10, "file"),
        ] {
            assert_eq!(kind_of(asked, mime, size), kind, "{asked} {mime} {size}");
        }
    }
}
