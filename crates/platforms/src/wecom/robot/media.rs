//! Files both ways: out in chunks over the socket, in by a link of a few minutes, sealed with a key of the message.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use frontdesk_core::port::media::{MediaBody, body_of, read_whole};
use frontdesk_core::port::outcall::Call;
use frontdesk_core::port::platform::{Acted, ActingAs, Bot, MediaFault, RemoteMedia};
use frontdesk_core::split;
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::{ActionResult, Code, Secret};
use futures_util::{StreamExt as _, stream};
use md5::{Digest as _, Md5};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::act::partial;
use super::backlog::FileLink;
use super::frame::{UPLOAD_BEGIN, UPLOAD_CHUNK, UPLOAD_END};
use super::held::HeldFile;
use super::link::LinkError;
use super::{MESSAGE_MAX, Robot, own_base};
use crate::shared::cbc;
use crate::shared::source_file::SourceFile;
use crate::wecom::crypt::{CIPHER_BLOCK, padding, vector};

/// Of any file.
const FILE_MAX_BYTES: usize = 20 << 20;
const FILE_MIN_BYTES: usize = 6;
const CHUNK_BYTES: usize = 512 << 10;
const DOWNLOAD_MAX_BYTES: usize = 100 << 20;
/// For a file that is kept.
const HOLD_TIME: Duration = Duration::from_mins(1);
/// Links to files end this long after the message.
const LINK_MS: u64 = 5 * 60_000;
/// The last bytes may be padding.
const HELD_BYTES: usize = 32;

/// Keys come with and without the signs that pad base64.
const KEY_BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// By which a file is fetched.
#[derive(Serialize, Deserialize)]
pub(super) struct Handle {
    pub(super) url: String,
    pub(super) aeskey: String,
}

/// The kind of message that shows a file. Other types, and what is too long for its kind, are files.
fn kind_of(asked: &str, mime: &str, size: usize) -> &'static str {
    let (kind, max) = match (asked, mime) {
        ("document", _) => ("file", usize::MAX),
        (_, "image/jpeg" | "image/png" | "image/gif") => ("image", 10 << 20),
        (_, "video/mp4") => ("video", 10 << 20),
        (_, "audio/amr") => ("voice", 2 << 20),
        _ => ("file", usize::MAX),
    };
    if size <= max { kind } else { "file" }
}

impl Robot {
    pub(super) async fn send_media(
        &self,
        acting_as: ActingAs<'_>,
        chat_id: &str,
        reply_to: Option<&str>,
        (asked, source_url, filename): (&str, &str, Option<&str>),
        caption: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let busy = || {
            let text = "too many files are on their way to WeCom; nothing was sent, try again in a few seconds";
            ActionResult::refused(Code::Unavailable, text)
        };
        let upload = self.uploads.begin(acting_as.tenant).await.ok_or_else(busy)?;
        let SourceFile { mime, filename: known, size, body } =
            self.files.open(acting_as.tenant, source_url, FILE_MAX_BYTES).await?;
        let wrong_size = |size: u64| {
            let text = format!("WeCom takes files of {FILE_MIN_BYTES} to {FILE_MAX_BYTES} bytes, and this has {size}");
            let code = if size < FILE_MIN_BYTES as u64 { Code::BadRequest } else { Code::TooLarge };
            ActionResult::refused(code, text)
        };
        if let Some(size) = size.filter(|size| *size > FILE_MAX_BYTES as u64) {
            return Err(wrong_size(size));
        }
        // The checksum stands before the bytes.
        let bytes = read_whole(body)
            .await
            .map_err(|error| ActionResult::refused(Code::Unavailable, format!("the file cannot be read: {error}")))?;
        if !(FILE_MIN_BYTES..=FILE_MAX_BYTES).contains(&bytes.len()) {
            return Err(wrong_size(bytes.len() as u64));
        }
        let kind = kind_of(asked, &mime, bytes.len());
        let filename = filename.map(str::to_owned).or(known).unwrap_or_else(|| "file".into());
        let media_id = match self.upload(bot, kind, &filename, &bytes).await {
            Ok(media_id) => media_id,
            Err(error) => return Ok(error.undone().into()),
        };
        drop((bytes, upload));
        let sent = self.say(bot, chat_id, reply_to, json!({ "msgtype": kind, kind: { "media_id": media_id } })).await;
        let Some(caption) = caption.filter(|caption| !caption.trim().is_empty() && sent.result.success) else {
            return Ok(sent);
        };
        // There are no captions: it follows as a message of its own.
        for text in split::split(caption, MESSAGE_MAX, LenUnit::Chars) {
            let said = self.send_whole(bot, chat_id, reply_to, &text).await;
            if !said.result.success {
                return Ok(partial(said, sent.result.message_id.map(Into::into), "the file went out"));
            }
        }
        Ok(sent)
    }

    async fn upload(&self, bot: &Bot, kind: &str, filename: &str, bytes: &[u8]) -> Result<String, LinkError> {
        let ask = async |cmd: &str, body: Value| {
            let answer = self.links.ask(&bot.id, cmd, &self.new_req_id(cmd), &body).await?;
            Ok::<Value, LinkError>(answer.body)
        };
        let named = |body: &Value, name: &str| {
            let found = body[name].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
            found.ok_or_else(|| LinkError::NotSent(format!("the answer to the upload has no {name}")))
        };
        let begin = json!({ "type": kind, "filename": filename, "total_size": bytes.len(),
            "total_chunks": bytes.len().div_ceil(CHUNK_BYTES), "md5": hex::encode(Md5::digest(bytes)) });
        let upload_id = named(&ask(UPLOAD_BEGIN, begin).await?, "upload_id")?;
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate() {
            let data = STANDARD.encode(chunk);
            ask(UPLOAD_CHUNK, json!({ "upload_id": upload_id, "chunk_index": index, "base64_data": data })).await?;
        }
        named(&ask(UPLOAD_END, json!({ "upload_id": upload_id })).await?, "media_id")
    }

    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = |why: &str| MediaFault::Gone(why.into());
        let Handle { url, aeskey } =
            serde_json::from_str(handle.expose()).map_err(|_| gone("its address cannot be read"))?;
        let key = match aeskey.as_str() {
            "" => None,
            text => Some(key_of(text).ok_or_else(|| gone("its key cannot be read"))?),
        };
        let found = match self.held.get(&bot.id, &url, self.env.steady_ms()) {
            Some(HeldFile { mime, filename, bytes }) => RemoteMedia { mime, filename, body: body_of(bytes) },
            None => self.open_link(bot, &url).await?,
        };
        Ok(match key {
            Some(key) => RemoteMedia { body: decrypted(key, found.body), ..found },
            None => found,
        })
    }

    /// What is behind a link, as it comes.
    async fn open_link(&self, bot: &Bot, url: &str) -> Result<RemoteMedia, MediaFault> {
        let trusted = own_base(bot);
        let call = Call { trusted: trusted.as_deref(), ..Call::get(url, DOWNLOAD_MAX_BYTES) };
        let answer = self.outcall.open(call).await;
        let answer = answer.map_err(|error| MediaFault::Unavailable(error.to_string().replace(url, "***")))?;
        match answer.status {
            200..300 => {
                let mime = answer.header("content-type").unwrap_or("application/octet-stream");
                let mime = mime.split(';').next().unwrap_or_default().trim().to_owned();
                let filename = answer.header("content-disposition").and_then(filename_of);
                Ok(RemoteMedia { mime, filename, body: answer.body })
            }
            status @ (400..=404 | 410) => {
                Err(MediaFault::Gone(format!("status {status}; WeCom keeps a link to a file for five minutes")))
            }
            status => Err(MediaFault::Unavailable(format!("status {status}"))),
        }
    }

    /// Keeps a file whose link ends soon. One that cannot be kept is fetched when an agent asks, if it is still there.
    pub(super) async fn hold(&self, bot: &Bot, FileLink { handle, came_ms }: FileLink) {
        let Ok(Handle { url, .. }) = serde_json::from_str::<Handle>(&handle) else { return };
        let fetch = async {
            let RemoteMedia { mime, filename, mut body } = self.open_link(bot, &url).await.ok()?;
            let mut bytes = Vec::new();
            while let Some(piece) = body.next().await {
                bytes.extend_from_slice(&piece.ok()?);
                if bytes.len() > FILE_MAX_BYTES {
                    return None;
                }
            }
            Some(HeldFile { mime, filename, bytes: bytes.into() })
        };
        let owner = match &bot.tenant {
            Some(tenant) => format!("tenant {tenant}"),
            None => format!("robot {}", bot.id),
        };
        // No longer than that, if the clock was set back.
        let wait_ms = (came_ms + LINK_MS).saturating_sub(self.env.now_ms()).min(LINK_MS);
        let wait = Duration::from_millis(wait_ms);
        if let Some(_place) = self.holds.begin_within(&owner, wait).await
            && let Ok(Some(file)) = timeout(HOLD_TIME, fetch).await
        {
            self.held.put(&bot.id, url, file, self.env.steady_ms());
        } else {
            tracing::debug!(bot = bot.id.as_str(), "a file of WeCom was not kept for later");
        }
    }
}

fn key_of(text: &str) -> Option<[u8; 32]> {
    KEY_BASE64.decode(text).ok()?.try_into().ok()
}

fn filename_of(disposition: &str) -> Option<String> {
    let (_, rest) = disposition.split_once("filename=")?;
    let name = rest.split(';').next().unwrap_or_default().trim().trim_matches('"');
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

/// The file without its seal, in pieces. The end is held back until it is known that it is the end.
fn decrypted(key: [u8; 32], body: MediaBody) -> MediaBody {
    let broken = || std::io::Error::other("the file cannot be decrypted");
    let mut iv = vector(&key);
    let mut held: Vec<u8> = Vec::new();
    let pieces = body.map(Some).chain(stream::iter([None]));
    let decrypt = move |piece: Option<std::io::Result<Bytes>>| {
        let is_end = piece.is_none();
        if let Some(piece) = piece {
            held.extend_from_slice(&piece?);
        }
        // All whole blocks but the last ones, which may be padding.
        let whole = match is_end {
            true => held.len(),
            false => held.len().saturating_sub(HELD_BYTES) / CIPHER_BLOCK * CIPHER_BLOCK,
        };
        if whole == 0 && !is_end {
            return Ok(Bytes::new());
        }
        let sealed: Vec<u8> = held.drain(..whole).collect();
        let mut plain = cbc::decrypt(&key, &iv, &sealed).ok_or_else(broken)?;
        if let Some(last) = sealed.last_chunk::<CIPHER_BLOCK>() {
            iv = *last;
        }
        if is_end {
            let padded = padding(&plain).ok_or_else(broken)?;
            plain.truncate(plain.len() - padded);
        }
        Ok(Bytes::from(plain))
    };
    Box::pin(pieces.map(decrypt).filter(|piece| {
        let is_shown = !piece.as_ref().is_ok_and(Bytes::is_empty);
        std::future::ready(is_shown)
    }))
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};
    use aws_lc_rs::iv::FixedLength;

    use super::*;

    fn sealed(key: &[u8; 32], plain: &[u8]) -> Vec<u8> {
        let padded = 32 - plain.len() % 32;
        let mut whole = [plain, &vec![u8::try_from(padded).unwrap(); padded]].concat();
        let sealing = EncryptingKey::cbc(UnboundCipherKey::new(&AES_256, key).unwrap()).unwrap();
        sealing.less_safe_encrypt(&mut whole, EncryptionContext::Iv128(FixedLength::from(vector(key)))).unwrap();
        whole
    }

    fn pieces(bytes: &[u8], size: usize) -> MediaBody {
        let all: Vec<_> = bytes.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Box::pin(stream::iter(all))
    }

    #[tokio::test]
    async fn a_file_is_decrypted_in_pieces_of_any_size() {
        let key = [7; 32];
        for length in [0, 1, 15, 16, 31, 32, 33, 1_000] {
            let plain: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let sealed = sealed(&key, &plain);
            for size in [1, 7, 16, 31, 32, 33, 64, 5_000] {
                let body = decrypted(key, pieces(&sealed, size));
                assert_eq!(read_whole(body).await.unwrap(), plain, "{length} in pieces of {size}");
            }
            assert!(read_whole(decrypted(key, pieces(&sealed[..sealed.len() - 1], 9))).await.is_err(), "cut off");
            assert!(read_whole(decrypted([8; 32], pieces(&sealed, 9))).await.is_err(), "another key");
        }
        assert!(read_whole(decrypted(key, pieces(&[], 1))).await.is_err());
    }

    #[test]
    fn keys_and_names_are_read_as_they_come() {
        let text = STANDARD.encode([9; 32]);
        assert_eq!((key_of(&text), key_of(text.trim_end_matches('='))), (Some([9; 32]), Some([9; 32])));
        assert_eq!((key_of("short"), key_of("")), (None, None));
        assert_eq!(filename_of("attachment; filename=\"a b.pdf\"; x=1").as_deref(), Some("a b.pdf"));
        assert_eq!(filename_of("attachment"), None);
        assert_eq!(kind_of("voice", "audio/ogg", 1), "file");
    }
}
