//! Files both ways. They pass through in pieces.

use std::time::Duration;

use bytes::BytesMut;
use frontdesk_core::port::outcall::{Body, Call, HttpMethod};
use frontdesk_core::port::platform::{Acted, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, MessageId, Secret, TenantId};
use futures_util::StreamExt as _;
use serde_json::{Map, Value, json};

use super::Slack;
use super::account::{is_id, is_of_vendor};
use super::act::{Target, partial, post_text, sent};
use super::api::{Api, ApiError, no_answer};
use super::rich::{list_of, text_of};
use super::text::{one_message, parts};
use crate::shared::source_file::{SourceFile, default_name};

/// As large as the files that gateways can hand over. Slack takes more.
const UPLOAD_MAX_BYTES: usize = 25 << 20;
const DOWNLOAD_MAX_BYTES: usize = 100 << 20;
const UPLOAD_TIME: Duration = Duration::from_secs(20);
const UPLOAD_ANSWER_MAX_BYTES: usize = 64 << 10;
/// A longer caption follows as a message of its own.
const CAPTION_MAX_CHARS: usize = 4_000;

impl Slack {
    #[allow(clippy::too_many_arguments)] // the fields of one action
    pub(super) async fn send_media(
        &self,
        bot: &Bot,
        api: &Api<'_>,
        tenant: &TenantId,
        target: Target<'_>,
        source_url: &str,
        caption: Option<&str>,
        filename: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let file = self.files.open(tenant, source_url, UPLOAD_MAX_BYTES).await?;
        let too_large = || {
            let text = format!("files of at most {UPLOAD_MAX_BYTES} bytes can be sent to Slack from here");
            ActionResult::refused(Code::TooLarge, text)
        };
        if file.size.is_some_and(|size| size > UPLOAD_MAX_BYTES as u64) {
            return Err(too_large());
        }
        // Slack derives the kind of a file from its name.
        let name = filename.map(str::to_owned).or_else(|| file.filename.clone());
        let name = name.unwrap_or_else(|| default_name(&file.mime).to_owned());
        let (body, length) = sized(file, too_large).await?;
        let id = match self.upload(bot, api, &name, length, body).await {
            Ok(id) => id,
            // Users do not see a file before its upload is completed.
            Err(error) => return Ok(error.of_question().into()),
        };
        let caption = caption.filter(|caption| !caption.trim().is_empty());
        let rendered = caption.and_then(one_message).filter(|it| it.markup.chars().count() <= CAPTION_MAX_CHARS);
        let mut fields = Map::new();
        fields.insert("files".into(), json!([{ "id": id, "title": name }]));
        fields.insert("channel_id".into(), target.chat_id.into());
        if let Some(thread) = target.thread {
            fields.insert("thread_ts".into(), thread.into());
        }
        if let Some(rendered) = &rendered {
            fields.insert("initial_comment".into(), rendered.markup.clone().into());
        }
        let response = match api.post("files.completeUploadExternal", &Value::Object(fields)).await {
            Ok(response) => response,
            Err(error) => return Ok(error.into()),
        };
        let message_id = self.message_of(api, target.chat_id, &id, &response).await;
        for part in caption.filter(|_| rendered.is_none()).map(parts).unwrap_or_default() {
            let Some(rendered) = one_message(&part) else { continue };
            let mut fields = target.fields();
            fields.insert("text".into(), rendered.markup.into());
            let acted = sent(post_text(api, "chat.postMessage", fields).await);
            if !acted.result.success {
                return Ok(partial(acted, message_id.as_deref(), "the file went out"));
            }
        }
        Ok(ActionResult { message_id: message_id.map(MessageId::from), ..ActionResult::done() }.into())
    }

    async fn upload(
        &self,
        bot: &Bot,
        api: &Api<'_>,
        name: &str,
        length: u64,
        body: Body<'_>,
    ) -> Result<String, ApiError> {
        let length = length.to_string();
        let response = api.ask("files.getUploadURLExternal", &[("filename", name), ("length", &length)]).await?;
        let (url, id) = (text_of(&response, "upload_url"), text_of(&response, "file_id"));
        if !is_of_vendor(bot, url) || !is_id(id) {
            return Err(ApiError::NoAnswer { may_be_done: false, why: "it returned no address for the file".into() });
        }
        let call = Call {
            method: HttpMethod::Post,
            url,
            body,
            trusted: api.own_base,
            time: Some(UPLOAD_TIME),
            max_bytes: UPLOAD_ANSWER_MAX_BYTES,
            cut: true,
            ..Call::default()
        };
        let answer = self.outcall.call(call).await.map_err(|error| no_answer(&error))?;
        match answer.status {
            200..300 => Ok(id.to_owned()),
            status => {
                Err(ApiError::NoAnswer { may_be_done: false, why: format!("the upload ended with status {status}") })
            }
        }
    }

    /// Id of the message that shows the file. Slack creates it a moment later, so it may be unknown although the file was sent.
    async fn message_of(&self, api: &Api<'_>, chat_id: &str, file_id: &str, response: &Value) -> Option<String> {
        let known = list_of(response, "files").first().and_then(|file| shared_in(file, chat_id));
        if known.is_some() {
            return known;
        }
        let response = api.ask("files.info", &[("file", file_id)]).await.ok()?;
        shared_in(&response["file"], chat_id)
    }

    /// The handle names the workspace and the file. Addresses of files need the token, which goes to Slack only.
    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = |why: &str| MediaFault::Gone(why.to_owned());
        let (team, id) = handle.expose().split_once('/').ok_or_else(|| gone("its handle is malformed"))?;
        if !is_id(id) {
            return Err(gone("its handle is malformed"));
        }
        let api = self.api_of(bot, team).ok_or_else(|| gone("the app was removed from the workspace"))?;
        let response = api.ask("files.info", &[("file", id)]).await.map_err(|error| {
            let text = error.text();
            match error.is(&["file_not_found", "file_deleted", "access_denied"]) || error.is_of_token() {
                true => MediaFault::Gone(text),
                false => MediaFault::Unavailable(text),
            }
        })?;
        let file = &response["file"];
        let urls = [text_of(file, "url_private_download"), text_of(file, "url_private")];
        let url = urls.into_iter().find(|url| !url.is_empty()).ok_or_else(|| gone("Slack names no address for it"))?;
        if !is_of_vendor(bot, url) {
            return Err(gone("the file is not at Slack"));
        }
        let call = Call {
            url,
            bearer: Some(api.token),
            trusted: api.own_base,
            max_bytes: DOWNLOAD_MAX_BYTES,
            ..Call::default()
        };
        let answer = self.outcall.open(call).await;
        let answer = answer.map_err(|error| MediaFault::Unavailable(no_answer(&error).text()))?;
        let listed_mime = text_of(file, "mimetype");
        let mime = answer.header("content-type").unwrap_or("application/octet-stream").to_owned();
        match answer.status {
            // Without the scope Slack answers with a page to sign in.
            200..300 if mime.starts_with("text/html") && !listed_mime.starts_with("text/") => {
                Err(MediaFault::Unavailable(
                    "Slack answered with a page to sign in; the app needs the scope files:read".to_owned(),
                ))
            }
            200..300 => {
                let filename = Some(text_of(file, "name")).filter(|name| !name.is_empty()).map(str::to_owned);
                Ok(RemoteMedia { mime, filename, body: answer.body })
            }
            404 | 410 => Err(MediaFault::Gone(format!("status {}", answer.status))),
            status => Err(MediaFault::Unavailable(format!("status {status}"))),
        }
    }
}

/// Slack wants to know the length before. A file of unknown length is read first.
async fn sized<'a>(file: SourceFile, too_large: impl Fn() -> ActionResult) -> Result<(Body<'a>, u64), ActionResult> {
    let mime = "application/octet-stream";
    if let Some(size) = file.size {
        return Ok((Body::Stream { mime, length: Some(size), body: file.body }, size));
    }
    let (mut bytes, mut body) = (BytesMut::new(), file.body);
    while let Some(piece) = body.next().await {
        let failed = |error| ActionResult::refused(Code::PlatformFailed, format!("source_url: {error}"));
        bytes.extend_from_slice(&piece.map_err(failed)?);
        if bytes.len() > UPLOAD_MAX_BYTES {
            return Err(too_large());
        }
    }
    let length = bytes.len() as u64;
    Ok((Body::Bytes { mime, bytes: bytes.freeze() }, length))
}

fn shared_in(file: &Value, chat_id: &str) -> Option<String> {
    let of = |kind: &str| list_of(&file["shares"][kind], chat_id).first().map(|share| text_of(share, "ts").to_owned());
    of("public").or_else(|| of("private")).filter(|ts| !ts.is_empty())
}
