//! A socket of the gateway.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::{Compress, Compression, FlushCompress, Status};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::TcpStream;
use tokio_websockets::{CloseCode, Message, ServerBuilder, WebSocketStream};

use super::super::gateway::Out;
use super::Site;
use crate::fakes::serving::http::{Connection, Reply, Request};

/// How often the clock is read for late heartbeats, because a test may move it.
const CLOCK_STEP: Duration = Duration::from_millis(100);
/// The protocol's own constant (RFC 6455).
const ACCEPT_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(super) async fn run(site: Site, mut connection: Connection<TcpStream>, request: &Request) {
    let query: Vec<(String, String)> = url::form_urlencoded::parse(request.query.as_bytes()).into_owned().collect();
    let asked = |name: &str| query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let Some(id) = site.fake.connect(site.clock.now_ms()) else {
        // The client sees a broken handshake, as when the gateway is overloaded.
        let _ = connection.reply(&Reply::new(503, "text/plain", b"no healthy upstream".to_vec())).await;
        return;
    };
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT_GUID}").as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        BASE64_STANDARD.encode(accept.as_ref())
    );
    let mut code = None;
    if let Ok(stream) = connection.upgraded(&head).await {
        let mut socket = ServerBuilder::new().serve(stream);
        let version = asked("v").unwrap_or("10");
        let encoding = asked("encoding").unwrap_or("json");
        let compress = asked("compress");
        if !matches!(version, "9" | "10") {
            let _ = socket.send(close(4012, "Invalid API version.")).await;
        } else if encoding != "json" || compress.is_some_and(|it| it != "zlib-stream") {
            let _ = socket.send(close(4002, "This fake knows only JSON, plain or as zlib-stream.")).await;
        } else {
            let stream = compress.map(|_| Compress::new(Compression::default(), true));
            code = converse(&site, id, &mut socket, stream).await;
        }
    }
    site.fake.disconnected(site.clock.now_ms(), id, code);
}

fn close(code: u16, reason: &str) -> Message {
    Message::close(CloseCode::try_from(code).ok(), reason)
}

/// Returns the code of the client's close frame.
async fn converse(
    site: &Site,
    id: u64,
    socket: &mut WebSocketStream<TcpStream>,
    mut stream: Option<Compress>,
) -> Option<u16> {
    let mut changes = site.fake.changes();
    loop {
        changes.borrow_and_update();
        for out in site.fake.take_out(site.clock.now_ms(), id) {
            match out {
                Out::Frame(frame) => {
                    let message = match stream.as_mut() {
                        Some(stream) => Message::binary(deflated(stream, frame.to_string().as_bytes())),
                        None => Message::text(frame.to_string()),
                    };
                    socket.send(message).await.ok()?;
                }
                Out::Close(code, reason) => {
                    let _ = socket.send(close(code, reason)).await;
                    let _ = tokio::time::timeout(CLOCK_STEP, socket.next()).await;
                    return Some(code);
                }
                Out::Cut => return None,
                Out::Pause { ms } => tokio::time::sleep(Duration::from_millis(ms)).await,
            }
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(CLOCK_STEP) => {}
            message = socket.next() => {
                let message = message?.ok()?;
                // Clients send JSON as text or as bytes.
                if message.is_text() || message.is_binary() {
                    let text = String::from_utf8_lossy(message.as_payload());
                    site.fake.receive(site.clock.now_ms(), id, &text);
                } else if let Some((code, _)) = message.as_close() {
                    return Some(code.into());
                }
            }
        }
    }
}

/// One message of the stream: it ends with a flush, so that the client can read it at once.
fn deflated(stream: &mut Compress, text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 2 + 64);
    let start = stream.total_in();
    loop {
        let done = usize::try_from(stream.total_in() - start).unwrap_or(text.len());
        let status = stream.compress_vec(&text[done..], &mut out, FlushCompress::Sync);
        let is_all = stream.total_in() - start == text.len() as u64;
        // Room that is left over says that the flush is complete.
        if is_all && out.len() < out.capacity() || matches!(status, Err(_) | Ok(Status::StreamEnd)) {
            return out;
        }
        out.reserve(out.capacity().max(64));
    }
}

#[cfg(test)]
mod tests {
    use flate2::{Decompress, FlushDecompress};

    use super::*;

    #[test]
    fn every_message_of_a_stream_can_be_read_alone() {
        let mut stream = Compress::new(Compression::default(), true);
        let mut reader = Decompress::new(true);
        for length in [1, 70, 1_000, 200_000] {
            let text: Vec<u8> = (0..length).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            let packed = deflated(&mut stream, &text);
            assert!(packed.ends_with(&[0, 0, 0xff, 0xff]), "{length}");
            let mut read = Vec::with_capacity(text.len() + 16);
            reader.decompress_vec(&packed, &mut read, FlushDecompress::Sync).unwrap();
            assert_eq!(read, text);
        }
    }
}
