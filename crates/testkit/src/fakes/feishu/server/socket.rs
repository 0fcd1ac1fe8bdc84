//! A persistent connection.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_websockets::{Message, ServerBuilder, WebSocketStream};

use super::super::delivery::Pending;
use super::super::frames::Frame;
use super::Site;
use crate::fakes::serving::http::{Connection, Request};

const CLOCK_STEP: Duration = Duration::from_millis(100);
/// The protocol's own constant (RFC 6455).
const ACCEPT_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(super) async fn run(site: Site, connection: Connection<TcpStream>, request: &Request) {
    let secret = site.fake.state().app.secret.clone();
    if !request.query.contains(&format!("access_key={secret}&")) {
        let head =
            "HTTP/1.1 403 Forbidden\r\nhandshake-status: 403\r\nhandshake-msg: forbidden\r\ncontent-length: 0\r\n\r\n";
        let _ = connection.upgraded(head).await; // it is closed in any case
        return;
    }
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let accept = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{ACCEPT_GUID}").as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        BASE64_STANDARD.encode(accept.as_ref())
    );
    let Ok(stream) = connection.upgraded(&head).await else { return };
    let id = site.fake.change(super::super::state::State::connect);
    converse(&site, id, &mut ServerBuilder::new().serve(stream)).await;
    let now_ms = site.clock.now_ms();
    site.fake.change(|state| state.disconnected(now_ms, id));
}

async fn converse(site: &Site, id: u64, socket: &mut WebSocketStream<TcpStream>) -> Option<()> {
    let mut changes = site.fake.changes();
    loop {
        changes.borrow_and_update();
        let (events, part_bytes) = {
            let mut state = site.fake.state();
            (state.events(site.clock.now_ms(), id), state.app.part_bytes)
        };
        for pending in events {
            for frame in frames(&pending, part_bytes) {
                socket.send(Message::binary(frame.encode())).await.ok()?;
            }
        }
        if site.fake.state().sockets.get(&id).copied() != Some(false) {
            let _ = socket.send(Message::close(None, "")).await; // it ends in any case
            return None;
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(CLOCK_STEP) => {}
            message = socket.next() => {
                let message = message?.ok()?;
                if message.is_close() {
                    return None;
                }
                if message.is_binary() {
                    answer(site, socket, &Frame::decode(message.as_payload())?).await?;
                }
            }
        }
    }
}

async fn answer(site: &Site, socket: &mut WebSocketStream<TcpStream>, frame: &Frame) -> Option<()> {
    if frame.method == 1 {
        let (now_ms, response) =
            (site.clock.now_ms(), serde_json::from_slice::<Value>(&frame.payload).unwrap_or_default());
        site.fake.change(|state| state.acknowledged(now_ms, frame.header("message_id"), &response));
        return Some(());
    }
    let (is_silent, ping_s) = {
        let state = site.fake.state();
        (state.is_silent, state.app.ping_s)
    };
    if frame.header("type") == "ping" && !is_silent {
        let ping_s = if ping_s == 0 { 120 } else { ping_s };
        let config =
            json!({ "ReconnectCount": -1, "ReconnectInterval": 1, "ReconnectNonce": 0, "PingInterval": ping_s });
        let headers = vec![("type".to_owned(), "pong".to_owned())];
        let pong =
            Frame { service: frame.service, headers, payload: config.to_string().into_bytes(), ..Frame::default() };
        socket.send(Message::binary(pong.encode())).await.ok()?;
    }
    Some(())
}

/// The frames of one event: several if it is long, the last one first.
fn frames(pending: &Pending, part_bytes: usize) -> Vec<Frame> {
    let payload = pending.payload.to_string().into_bytes();
    let size = if part_bytes == 0 { payload.len().max(1) } else { part_bytes };
    let parts: Vec<&[u8]> = payload.chunks(size).collect();
    let frame = |(seq, part): (usize, &&[u8])| {
        let headers = [
            ("type", "event".to_owned()),
            ("message_id", pending.id.clone()),
            ("sum", parts.len().to_string()),
            ("seq", seq.to_string()),
            ("trace_id", format!("trace-{}", pending.id)),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
        Frame { seq_id: 1, log_id: 2, service: 33_554_678, method: 1, headers, payload: part.to_vec() }
    };
    parts.iter().enumerate().map(frame).rev().collect()
}
