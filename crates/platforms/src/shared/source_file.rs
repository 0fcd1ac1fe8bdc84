//! The file of a `send_media` action: one of this server, or one at a public URL.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_core::media;
use frontdesk_core::port::media::{MediaBody, MediaItem, MediaStore};
use frontdesk_core::port::outcall::{Call, Outcall, OutcallError};
use frontdesk_wire::{ActionResult, Code, TenantId};

use crate::Kit;

/// For the whole file. The action that it belongs to ends after 25 s.
const FETCH_TIME: Duration = Duration::from_secs(20);

/// A file to be sent, read in pieces.
pub(crate) struct SourceFile {
    /// As the source names it.
    pub(crate) mime: String,
    pub(crate) filename: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) body: MediaBody,
}

/// A name for a file that has none, by its type.
pub(crate) fn default_name(mime: &str) -> &'static str {
    match mime {
        "image/png" => "file.png",
        "image/jpeg" => "file.jpg",
        "image/webp" => "file.webp",
        "image/gif" => "file.gif",
        "audio/ogg" => "file.ogg",
        "audio/mpeg" => "file.mp3",
        "video/mp4" => "file.mp4",
        "application/pdf" => "file.pdf",
        "text/plain" => "file.txt",
        _ => "file.bin",
    }
}

/// Where such files are.
pub(crate) struct SourceFiles {
    env: Arc<dyn Env>,
    media: Arc<dyn MediaStore>,
    outcall: Arc<dyn Outcall>,
    public_url: String,
}

impl SourceFiles {
    pub(crate) fn new(kit: &Kit) -> Self {
        let (env, media, outcall) = (kit.env.clone(), kit.media.clone(), kit.outcall.clone());
        Self { env, media, outcall, public_url: kit.public_url.clone() }
    }

    /// `Err` says why there is no such file; nothing was sent.
    pub(crate) async fn open(
        &self,
        tenant: &TenantId,
        url: &str,
        max_bytes: usize,
    ) -> Result<SourceFile, ActionResult> {
        if let Some(id) = media::id_in(&self.public_url, url) {
            let found = self.media.media_get(tenant, id, self.env.now_ms()).await.map_err(|error| {
                ActionResult::refused(Code::Unavailable, format!("the file cannot be read: {error}"))
            })?;
            let absent = || ActionResult::refused(Code::NotFound, "file not found or expired");
            let (MediaItem { mime, filename, size, .. }, body) = found.ok_or_else(absent)?;
            return Ok(SourceFile { mime, filename, size: Some(size), body });
        }
        let file = fetch(&*self.outcall, url, max_bytes).await?;
        let mime = file.mime.split(';').next().unwrap_or_default().trim().to_owned(); // as vendors take it
        Ok(SourceFile { mime, ..file })
    }
}

/// The file at a public URL. Its type has the parameters that the server gave, such as a charset.
pub(crate) async fn fetch(outcall: &dyn Outcall, url: &str, max_bytes: usize) -> Result<SourceFile, ActionResult> {
    let call = Call { time: Some(FETCH_TIME), ..Call::get(url, max_bytes) };
    let answer = outcall.open(call).await.map_err(|error| {
        let code = match error {
            OutcallError::Refused | OutcallError::BadUrl(_) => Code::UrlRefused,
            OutcallError::TooLarge(_) => Code::TooLarge,
            OutcallError::NotSent(_) | OutcallError::Failed(_) | OutcallError::TimedOut => Code::PlatformFailed,
        };
        ActionResult::refused(code, format!("source_url: {error}"))
    })?;
    if !(200..300).contains(&answer.status) {
        let text = format!("source_url returned status {}", answer.status);
        return Err(ActionResult::refused(Code::PlatformFailed, text));
    }
    let mime = answer.header("content-type").unwrap_or("application/octet-stream").to_owned();
    let size = answer.header("content-length").and_then(|length| length.parse().ok());
    Ok(SourceFile { mime, filename: None, size, body: answer.body })
}
