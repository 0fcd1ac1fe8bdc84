//! Files both ways. They pass through in pieces.

use frontdesk_core::port::outcall::{Part, PartValue};
use frontdesk_core::port::platform::{Acted, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, Secret, TenantId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::act::{Partial as _, Sent, Target};
use super::api::Api;
use super::text::{CAPTION_MAX, one_message};
use super::{DOWNLOAD_MAX_BYTES, Telegram};
use crate::shared::source_file::{SourceFile, default_name};

/// The Bot API takes no larger uploads, and shows no larger pictures.
const UPLOAD_MAX_BYTES: usize = 50 << 20;
const PHOTO_MAX_BYTES: u64 = 10 << 20;

#[derive(Deserialize)]
struct Found {
    #[serde(default)]
    file_path: Option<String>,
}

impl Telegram {
    #[allow(clippy::too_many_arguments)] // the fields of one action
    pub(super) async fn send_media(
        &self,
        api: &Api<'_>,
        tenant: &TenantId,
        target: Target<'_>,
        kind: &str,
        source_url: &str,
        caption: Option<&str>,
        filename: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let file = self.files.open(tenant, source_url, UPLOAD_MAX_BYTES).await?;
        if file.size.is_some_and(|size| size > UPLOAD_MAX_BYTES as u64) {
            let text = format!("Telegram takes files of at most {UPLOAD_MAX_BYTES} bytes");
            return Err(ActionResult::refused(Code::TooLarge, text));
        }
        let is_picture = file.size.is_some_and(|size| size <= PHOTO_MAX_BYTES) && !file.mime.contains("svg");
        let (method, field) = match kind {
            "image" if file.mime == "image/gif" => ("sendAnimation", "animation"), // a photo would not move
            "image" if is_picture => ("sendPhoto", "photo"),
            "voice" if file.mime.starts_with("audio/") => ("sendVoice", "voice"),
            "audio" => ("sendAudio", "audio"),
            "video" => ("sendVideo", "video"),
            _ => ("sendDocument", "document"),
        };
        let caption = caption.filter(|caption| !caption.trim().is_empty());
        let mut fields = target.parameters();
        let rendered = caption.and_then(|caption| one_message(caption, CAPTION_MAX));
        if let Some(rendered) = &rendered {
            // Without markup: an upload that is refused for its markup cannot be repeated, its bytes are gone.
            fields.insert("caption".into(), rendered.plain.clone().into());
        }
        let texts: Vec<(String, String)> = fields
            .into_iter()
            .map(|(name, value)| match value {
                Value::String(text) => (name, text),
                other => (name, other.to_string()),
            })
            .collect();
        let mut parts: Vec<Part<'_>> =
            texts.iter().map(|(name, text)| Part { name, value: PartValue::Text(text) }).collect();
        let SourceFile { mime, filename: known, size, body } = file;
        // Telegram shows a name with every document.
        let filename = filename.map(str::to_owned).or(known).unwrap_or_else(|| default_name(&mime).to_owned());
        parts.push(Part {
            name: field,
            value: PartValue::File { filename: &filename, mime: &mime, length: size, body },
        });
        let sent: Sent = match api.upload(method, parts).await {
            Ok(sent) => sent,
            Err(error) => return Ok(error.into()),
        };
        let message_id = sent.id();
        if let (Some(caption), None) = (caption, &rendered) {
            return Ok(self.send_caption(api, target, caption, &message_id).await);
        }
        Ok(ActionResult::sent(message_id).into())
    }

    /// A caption that is too long follows as a message of its own.
    async fn send_caption(&self, api: &Api<'_>, target: Target<'_>, caption: &str, message_id: &str) -> Acted {
        for part in super::text::parts(caption) {
            if let Err(error) = super::act::send_plainly(api, &target, &part).await {
                return Acted::from(error).partial(message_id, "the file went out");
            }
        }
        ActionResult::sent(message_id).into()
    }

    /// The path of a file is valid for an hour, its id for good: the path is asked for each time.
    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = || MediaFault::Gone("the bot was removed".into());
        let api = Api::of(&*self.outcall, bot).ok_or_else(gone)?;
        let found: Found = api.call("getFile", &json!({ "file_id": handle.expose() })).await.map_err(|error| {
            let text = error.text().replace(handle.expose(), "***");
            match error.says(&["wrong file", "invalid file", "file is too big", "file_id", "file id"]) {
                true => MediaFault::Gone(text),
                false => MediaFault::Unavailable(text),
            }
        })?;
        let path = found.file_path.ok_or_else(|| MediaFault::Gone("Telegram names no path for it".into()))?;
        let url = api.file_url(&path);
        let answer = self.outcall.open(api.file_call(&url, DOWNLOAD_MAX_BYTES)).await;
        let answer = answer.map_err(|error| MediaFault::Unavailable(api.no_answer(&error).text()))?;
        match answer.status {
            200..300 => {
                let mime = answer.header("content-type").unwrap_or("application/octet-stream").to_owned();
                Ok(RemoteMedia { mime, filename: None, body: answer.body })
            }
            404 | 410 => Err(MediaFault::Gone(format!("status {}", answer.status))),
            status => Err(MediaFault::Unavailable(format!("status {status}"))),
        }
    }
}
