//! Files: fetched from the homeserver with the bot's token when an agent asks for them, and uploaded to it.

use std::time::Duration;

use frontdesk_core::port::media::{body_of, read_whole};
use frontdesk_core::port::outcall::{Body, Call, HttpMethod};
use frontdesk_core::port::platform::{ActingAs, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code};
use serde_json::Value;

use super::Homeservers;
use super::client::{Client, fault, read};
use super::failed::{Failed, unsent};
use crate::shared::source_file::SourceFile;
use crate::shared::transfers::Transfer;

/// The largest file that is fetched from the homeserver. The server's own limit for files applies as well.
const FILE_MAX_BYTES: usize = 100 << 20;
/// The largest file of a public URL that is sent.
const SOURCE_MAX_BYTES: usize = 25 << 20;
const FILE_TIME: Duration = Duration::from_secs(20);
const ERROR_MAX_BYTES: usize = 64 << 10;
/// Files of unknown length that are in memory at once, of all bots and of one.
pub(super) const HELD_MAX: usize = 16;
pub(super) const HELD_PER_BOT: usize = 2;
const TOO_MANY_FILES: &str = "too many uploads of unknown size are in progress for this bot; nothing was sent; try again \
                              later, or serve the file with Content-Length";

/// Server name and id of `mxc://server/id`.
fn parts_of(uri: &str) -> Option<(&str, &str)> {
    let (server, id) = uri.strip_prefix("mxc://")?.split_once('/')?;
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['/', '?', '#']) && text != "." && text != "..";
    (is_plain(server) && is_plain(id)).then_some((server, id))
}

pub(super) async fn fetch(client: &Client<'_>, uri: &str) -> Result<RemoteMedia, MediaFault> {
    let Some((server, id)) = parts_of(uri) else {
        return Err(MediaFault::Gone("the message names no file of a homeserver".into()));
    };
    let url = client.url(&["client", "v1", "media", "download", server, id], &[("timeout_ms", "15000")]);
    let call = client.call(HttpMethod::Get, &url, Body::Empty, FILE_MAX_BYTES);
    let answer = client.outcall.open(Call { time: Some(FILE_TIME), ..call }).await;
    let answer = answer.map_err(|error| MediaFault::Unavailable(error.to_string()))?;
    if (200..300).contains(&answer.status) {
        let mime = answer.header("content-type").unwrap_or("application/octet-stream").to_owned();
        return Ok(RemoteMedia { mime, filename: None, body: answer.body });
    }
    let status = answer.status;
    let retry_after = answer.header("retry-after").map(str::to_owned);
    let text = read_whole(answer.body).await.unwrap_or_default();
    let json: Value = serde_json::from_slice(&text[..text.len().min(ERROR_MAX_BYTES)]).unwrap_or_default();
    let fault = fault(status, &json, retry_after.as_deref());
    match status {
        403 | 404 | 410 => Err(MediaFault::Gone(fault.to_string())),
        _ => Err(MediaFault::Unavailable(fault.to_string())),
    }
}

impl Homeservers {
    /// The file of an action, with its length: homeservers take no upload of unknown length. One whose length is not known
    /// is in memory until the transfer is dropped.
    pub(super) async fn file(
        &self,
        acting_as: ActingAs<'_>,
        source_url: &str,
    ) -> Result<(SourceFile, Option<Transfer>), Failed> {
        let file = self.files.open(acting_as.tenant, source_url, SOURCE_MAX_BYTES).await?;
        if file.size.is_some() {
            return Ok((file, None));
        }
        let busy = || ActionResult::refused(Code::RateLimited, TOO_MANY_FILES);
        let held = self.held_files.begin(&acting_as.bot.id).await.ok_or_else(busy)?;
        let bytes = read_whole(file.body).await.map_err(|error| {
            ActionResult::refused(Code::PlatformFailed, format!("source_url: the answer is incomplete: {error}"))
        })?;
        Ok((SourceFile { size: Some(bytes.len() as u64), body: body_of(bytes), ..file }, Some(held)))
    }
}

/// The file at the homeserver, as an `mxc:` URI. A file without references does no harm, so this may be repeated.
pub(super) async fn upload(client: &Client<'_>, file: SourceFile, filename: &str) -> Result<String, Failed> {
    let url = client.url(&["media", "v3", "upload"], &[("filename", filename)]);
    let mime = file.mime.clone();
    let body = Body::Stream { mime: &mime, length: file.size, body: file.body };
    let call = client.call(HttpMethod::Post, &url, body, ERROR_MAX_BYTES);
    let answer = client.outcall.call(Call { time: Some(FILE_TIME), ..call }).await;
    let answer = answer.map_err(|error| {
        let text = format!("the file was not uploaded: {error}");
        ActionResult::refused(Code::Unavailable, text)
    })?;
    let json = read(&answer).map_err(unsent)?; // nothing is in the room yet
    let absent = || ActionResult::refused(Code::PlatformFailed, "the homeserver returned no address for the file");
    Ok(json["content_uri"].as_str().ok_or_else(absent)?.to_owned())
}
