//! Files both ways. They pass through in pieces.

use frontdesk_core::port::outcall::{Call, Part, PartValue};
use frontdesk_core::port::platform::{Acted, ActingAs, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, Secret};
use serde::Deserialize;
use serde_json::json;

use super::WhatsApp;
use super::act::{Target, acted, partial};
use super::api::Api;
use super::text::{SHORT_MAX, one_message};
use crate::shared::source_file::{SourceFile, default_name};
use crate::shared::vendor_url::is_of_vendor;

/// Of any file, and so of a document.
const DOCUMENT_MAX_BYTES: u64 = 100 << 20;
const DOWNLOAD_MAX_BYTES: usize = 100 << 20;

#[derive(Deserialize)]
struct Uploaded {
    id: String,
}

#[derive(Deserialize)]
struct Found {
    url: String,
    #[serde(default)]
    mime_type: Option<String>,
}

/// The kind of message that shows a file, and the most bytes that it takes. Other types are documents.
fn kind_of(asked: &str, mime: &str) -> (&'static str, u64) {
    match (asked, mime) {
        ("document", _) => ("document", DOCUMENT_MAX_BYTES),
        (_, "image/jpeg" | "image/png") => ("image", 5 << 20),
        (_, "video/mp4" | "video/3gpp") => ("video", 16 << 20),
        (_, "audio/aac" | "audio/mp4" | "audio/mpeg" | "audio/amr" | "audio/ogg") => ("audio", 16 << 20),
        _ => ("document", DOCUMENT_MAX_BYTES),
    }
}

impl WhatsApp {
    #[allow(clippy::too_many_arguments)] // the fields of one action
    pub(super) async fn send_media(
        &self,
        api: &Api<'_>,
        acting_as: ActingAs<'_>,
        target: Target<'_>,
        asked: &str,
        source_url: &str,
        caption: Option<&str>,
        filename: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let file = self.files.open(acting_as.tenant, source_url, DOWNLOAD_MAX_BYTES).await?;
        let SourceFile { mime, filename: known, size, body } = file;
        let (mut kind, max) = kind_of(asked, &mime);
        if size.is_none_or(|size| size > max) {
            kind = "document";
        }
        if size.is_some_and(|size| size > DOCUMENT_MAX_BYTES) {
            let text = format!("WhatsApp takes files of at most {DOCUMENT_MAX_BYTES} bytes");
            return Err(ActionResult::refused(Code::TooLarge, text));
        }
        let filename = filename.map(str::to_owned).or(known).unwrap_or_else(|| default_name(&mime).to_owned());
        let parts = vec![
            Part { name: "messaging_product", value: PartValue::Text("whatsapp") },
            Part { name: "type", value: PartValue::Text(&mime) },
            Part { name: "file", value: PartValue::File { filename: &filename, mime: &mime, length: size, body } },
        ];
        let uploaded: Uploaded = match api.upload(parts).await {
            Ok(uploaded) => uploaded,
            Err(error) => return Ok(unsent(error.into())),
        };
        let caption = caption.filter(|caption| !caption.trim().is_empty());
        let shown = caption.filter(|_| kind != "audio").and_then(|caption| one_message(caption, SHORT_MAX));
        let mut content = json!({ "id": uploaded.id });
        if let Some(caption) = &shown {
            content["caption"] = caption.as_str().into();
        }
        if kind == "document" {
            content["filename"] = filename.into();
        }
        let sent = acted(api.send(&target.message(kind, content)).await, target.key);
        match (caption, &shown, sent.result.message_id.clone()) {
            // A caption that does not fit follows as a message of its own.
            (Some(caption), None, Some(message_id)) if sent.result.success => {
                let target = Target { reply_to: None, ..target };
                let said = self.send_parts(api, acting_as.bot, target, caption).await;
                let said = said.unwrap_or_else(Acted::from);
                Ok(if said.result.success { sent } else { partial(said, &message_id, "the file went out") })
            }
            _ => Ok(sent),
        }
    }

    /// The URL of a file is valid for minutes, its id for weeks: the URL is asked for each time.
    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = || MediaFault::Gone("the bot was removed".into());
        let api = Api::of(&*self.outcall, bot).ok_or_else(gone)?;
        let id = handle.expose();
        if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b)) {
            return Err(MediaFault::Gone("its id is not one of WhatsApp".into()));
        }
        let path = format!("{id}?phone_number_id={}", api.phone_number_id);
        let found: Found = api.get(&path).await.map_err(|error| {
            let text = error.text().replace(id, "***");
            match error.status() {
                Some(400 | 404) => MediaFault::Gone(text),
                _ => MediaFault::Unavailable(text),
            }
        })?;
        if !is_of_meta(&found.url, api.own_base()) {
            return Err(MediaFault::Gone("its URL is not one of WhatsApp".into()));
        }
        let call =
            Call { bearer: Some(api.token()), trusted: api.own_base(), ..Call::get(&found.url, DOWNLOAD_MAX_BYTES) };
        let answer = self.outcall.open(call).await;
        let answer = answer.map_err(|error| MediaFault::Unavailable(api.no_answer(&error).text()))?;
        match answer.status {
            200..300 => {
                let content_type = answer.header("content-type").map(str::to_owned);
                let mime = found.mime_type.or(content_type).unwrap_or_else(|| "application/octet-stream".into());
                Ok(RemoteMedia { mime, filename: None, body: answer.body })
            }
            404 | 410 => Err(MediaFault::Gone(format!("status {}", answer.status))),
            status => Err(MediaFault::Unavailable(format!("status {status}"))),
        }
    }
}

/// The upload alone is not visible to the user, so a failed upload means that nothing was sent.
fn unsent(mut acted: Acted) -> Acted {
    if acted.result.ambiguous {
        let why = acted.result.error.take().unwrap_or_default();
        acted.result = ActionResult::refused(Code::Unavailable, format!("{why}; the file was not sent"));
    }
    acted
}

/// Whether the token may be sent there.
fn is_of_meta(url: &str, own_base: Option<&str>) -> bool {
    is_of_vendor(url, own_base, |host| {
        [".fbsbx.com", ".facebook.com", ".whatsapp.net", ".fbcdn.net"].iter().any(|end| host.ends_with(end))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_what_whatsapp_can_show() {
        for (asked, mime, kind) in [
            ("image", "image/png", "image"),
            ("image", "image/gif", "document"),
            ("voice", "audio/ogg", "audio"),
            ("audio", "audio/wav", "document"),
            ("video", "video/mp4", "video"),
            ("document", "image/png", "document"),
            ("image", "text/html", "document"),
        ] {
            assert_eq!(kind_of(asked, mime).0, kind, "{asked} {mime}");
        }
    }

    #[test]
    fn the_token_goes_to_meta_only() {
        for (url, base, is_ours) in [
            ("https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=1", None, true),
            ("https://fbsbx.com.evil.example/x", None, false),
            ("https://evil.example/.fbsbx.com", None, false),
            ("https://a.fbsbx.com@evil.example/", None, false),
            ("http://lookaside.fbsbx.com/x", None, false),
            ("http://127.0.0.1:9/file", Some("http://127.0.0.1:9"), true),
            ("http://127.0.0.1:91/file", Some("http://127.0.0.1:9"), false),
            ("https://lookaside.fbsbx.com/x", Some("http://127.0.0.1:9"), false),
        ] {
            assert_eq!(is_of_meta(url, base), is_ours, "{url} {base:?}");
        }
    }

    #[test]
    fn an_upload_without_an_answer_has_sent_nothing() {
        let lost = ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, "no answer") };
        let result = unsent(lost.into()).result;
        assert_eq!((result.ambiguous, result.code), (false, Some(Code::Unavailable)));
    }
}
