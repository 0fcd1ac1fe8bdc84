//! Files both ways, as base64 inside JSON. They pass through in pieces.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use frontdesk_core::port::media::{MediaBody, body_of};
use frontdesk_core::port::outcall::{Body, Call, HttpAnswer};
use frontdesk_core::port::platform::{Acted, Bot, MediaFault, RemoteMedia};
use frontdesk_wire::{ActionResult, Code, Secret, TenantId};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Signal;
use super::act::{sent, target};
use super::api::{Daemon, RpcError, no_answer, read};
use super::ids::recipient;
use crate::shared::source_file::SourceFile;

/// Of one file, in both directions. Signal's own limit.
const FILE_MAX_BYTES: usize = 100 << 20;
/// The same in base64, with the JSON around it.
const ANSWER_MAX_BYTES: usize = FILE_MAX_BYTES / 3 * 4 + (64 << 10);
/// The answer names its data after so much at most.
const HEAD_MAX_BYTES: usize = 8 << 10;
/// In a JSON text, where base64 goes.
const PLACE: &str = "\u{FDD5}";

/// By which a file is found again.
#[derive(Serialize, Deserialize)]
pub(super) struct Handle {
    pub(super) id: String,
    pub(super) chat_id: String,
}

impl Signal {
    #[allow(clippy::too_many_arguments)] // the fields of one action
    pub(super) async fn send_media(
        &self,
        daemon: &Daemon<'_>,
        tenant: &TenantId,
        chat_id: &str,
        source_url: &str,
        caption: Option<&str>,
        filename: Option<&str>,
        reply_to: Option<&str>,
    ) -> Result<Acted, ActionResult> {
        let SourceFile { mime, filename: known, size, body } =
            self.files.open(tenant, source_url, FILE_MAX_BYTES).await?;
        if size.is_some_and(|size| size > FILE_MAX_BYTES as u64) {
            let text = format!("Signal takes files of at most {FILE_MAX_BYTES} bytes");
            return Err(ActionResult::refused(Code::TooLarge, text));
        }
        let name = filename.map(str::to_owned).or(known).unwrap_or_else(|| "file".into());
        let uri = format!("data:{};filename={};base64,{PLACE}", plain(&mime), plain(&name));
        let mut params = target(daemon, chat_id, caption.unwrap_or_default(), reply_to)?;
        params["attachments"] = json!([uri]);
        let request = daemon.request("send", params).to_string();
        let Some((before, after)) = request.split_once(PLACE) else {
            return Err(ActionResult::refused(Code::Internal, "the request has no place for the file"));
        };
        let length = size.map(|size| (before.len() + after.len()) as u64 + size.div_ceil(3) * 4);
        let (before, after) = (body_of(before.to_owned()), body_of(after.to_owned()));
        let body: MediaBody = Box::pin(before.chain(encoded(body)).chain(after));
        let url = daemon.rpc_url();
        let call = daemon.call_of(&url, Body::Stream { mime: "application/json", length, body });
        let answer = self.outcall.call(call).await;
        Ok(sent(answer.map_err(|error| no_answer(&error)).and_then(|answer| read(&answer))))
    }

    pub(super) async fn fetch(&self, bot: &Bot, handle: &Secret) -> Result<RemoteMedia, MediaFault> {
        let gone = |why: &str| MediaFault::Gone(why.into());
        let daemon = Daemon::of(&*self.outcall, bot).ok_or_else(|| gone("the bot was removed"))?;
        let Handle { id, chat_id } =
            serde_json::from_str(handle.expose()).map_err(|_| gone("its handle is malformed"))?;
        let mut params = recipient(&chat_id);
        params["id"] = id.into();
        // Its recipient is one, not a list.
        if let Some(Value::Array(list)) = params.get_mut("recipient").map(Value::take) {
            params["recipient"] = list.into_iter().next().unwrap_or_default();
        }
        let request = daemon.request("getAttachment", params).to_string();
        let url = daemon.rpc_url();
        let call = Call { max_bytes: ANSWER_MAX_BYTES, ..daemon.call_of(&url, Body::Json(&request)) };
        let answer = self.outcall.open(call).await;
        let answer = answer.map_err(|error| MediaFault::Unavailable(no_answer(&error).text()))?;
        let body = decoded(answer.status, answer.body).await?;
        Ok(RemoteMedia { mime: "application/octet-stream".into(), filename: None, body })
    }
}

/// Without what separates the parts of a data URI, or marks the place of the file.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || ";,%\"\\".contains(c) || PLACE.contains(c) { '_' } else { c }).collect()
}

/// Bytes as base64. Three of them make four characters, so one or two may wait for the next piece.
fn encoded(body: MediaBody) -> MediaBody {
    let pieces = body.map(Some).chain(stream::iter([None]));
    let encode = |left: &mut Vec<u8>, piece: Option<std::io::Result<Bytes>>| {
        let text = match piece {
            Some(Err(error)) => Err(error),
            Some(Ok(piece)) => {
                left.extend_from_slice(&piece);
                let whole = left.len() / 3 * 3;
                Ok(STANDARD.encode(left.drain(..whole).as_slice()))
            }
            None => Ok(STANDARD.encode(&*left)),
        };
        std::future::ready(Some(text.map(Bytes::from)))
    };
    Box::pin(pieces.scan(Vec::new(), encode))
}

/// The file in an answer, which is `{..."data":"BASE64"...}`, or why there is none.
async fn decoded(status: u16, mut body: MediaBody) -> Result<MediaBody, MediaFault> {
    const DATA: &[u8] = b"\"data\":\"";
    let broken = |error: std::io::Error| MediaFault::Unavailable(format!("the answer broke off: {error}"));
    let mut head: Vec<u8> = Vec::new();
    let start = loop {
        if let Some(at) = head.windows(DATA.len()).position(|part| part == DATA) {
            break at + DATA.len();
        }
        let piece = if head.len() < HEAD_MAX_BYTES { body.try_next().await.map_err(broken)? } else { None };
        let Some(piece) = piece else { return Err(refusal(status, head)) };
        head.extend_from_slice(&piece);
    };
    let first = Bytes::from(head.split_off(start));
    let pieces = body_of(first).chain(body).map(Some).chain(stream::iter([None]));
    let decode = |(left, is_over): &mut (Vec<u8>, bool), piece: Option<std::io::Result<Bytes>>| {
        let step = match piece {
            _ if *is_over => None,
            Some(Err(error)) => Some(Err(error)),
            Some(Ok(piece)) => {
                let end = piece.iter().position(|byte| *byte == b'"');
                *is_over = end.is_some();
                left.extend_from_slice(&piece[..end.unwrap_or(piece.len())]);
                let whole = if *is_over { left.len() } else { left.len() / 4 * 4 };
                let bytes = STANDARD.decode(left.drain(..whole).as_slice());
                Some(bytes.map(Bytes::from).map_err(std::io::Error::other))
            }
            None => Some(Err(std::io::Error::other("the answer ended in the middle of the file"))),
        };
        std::future::ready(step)
    };
    Ok(Box::pin(pieces.scan((Vec::new(), false), decode)))
}

fn refusal(status: u16, body: Vec<u8>) -> MediaFault {
    match read::<Value>(&HttpAnswer { status, body, ..HttpAnswer::default() }) {
        Err(error @ RpcError::Refused { .. }) => MediaFault::Gone(error.text()),
        Err(error) => MediaFault::Unavailable(error.text()),
        Ok(_) => MediaFault::Gone("signal-cli has no data for it".into()),
    }
}

#[cfg(test)]
mod tests {
    use frontdesk_core::port::media::read_whole;

    use super::*;

    fn pieces(bytes: &[u8], size: usize) -> MediaBody {
        let all: Vec<_> = bytes.chunks(size.max(1)).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        Box::pin(stream::iter(all))
    }

    #[tokio::test]
    async fn a_file_is_the_same_after_both_ways() {
        for length in [0, 1, 2, 3, 4, 5, 1_000] {
            let file: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
            for size in [1, 2, 3, 4, 7, 2_000] {
                let text = read_whole(encoded(pieces(&file, size))).await.unwrap();
                assert_eq!(String::from_utf8(text.clone()).unwrap(), STANDARD.encode(&file));
                let answer = [b"{\"jsonrpc\":\"2.0\",\"result\":{\"data\":\"", &*text, b"\"},\"id\":\"x\"}"].concat();
                let body = decoded(200, pieces(&answer, size)).await.unwrap();
                assert_eq!(read_whole(body).await.unwrap(), file, "{length} in pieces of {size}");
            }
        }
    }

    #[tokio::test]
    async fn an_answer_without_a_file_is_a_fault() {
        let fault = async |status, text: &str| decoded(status, pieces(text.as_bytes(), 5)).await.err();
        let refused = r#"{"error":{"code":-1,"message":"Attachment not found"}}"#;
        assert!(matches!(fault(200, refused).await, Some(MediaFault::Gone(why)) if why.contains("not found")));
        assert!(matches!(fault(502, "<html>").await, Some(MediaFault::Unavailable(_))));
        assert!(matches!(fault(200, "").await, Some(MediaFault::Unavailable(_))));
        let cut = decoded(200, pieces(b"{\"data\":\"AAAA", 5)).await.unwrap();
        assert!(read_whole(cut).await.is_err());
        let wrong = decoded(200, pieces(b"{\"data\":\"A*AA\"", 50)).await.unwrap();
        assert!(read_whole(wrong).await.is_err());
    }
}
