//! A socket of Socket Mode.

use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_websockets::{Message, ServerBuilder, WebSocketStream};

use super::{Site, with_origin};
use crate::fakes::serving::http::{Connection, Request};

const CLOCK_STEP: Duration = Duration::from_millis(100);
/// After this many steps the client is pinged.
const PING_STEPS: u32 = 50;
/// Steps between the notice and the end.
const LEAVING_STEPS: u32 = 10;
/// The protocol's own constant (RFC 6455).
const ACCEPT_GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(super) async fn run(site: Site, connection: Connection<TcpStream>, request: &Request) {
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
    let (mut steps, mut leaves_after): (u32, Option<u32>) = (0, None);
    loop {
        changes.borrow_and_update();
        let frames = site.fake.state().frames(site.clock.now_ms(), id);
        for frame in frames {
            if frame["type"] == "disconnect" {
                leaves_after = Some(LEAVING_STEPS);
            }
            socket.send(Message::text(with_origin(site, &frame))).await.ok()?;
        }
        if leaves_after == Some(0) {
            let _ = socket.send(Message::close(None, "")).await;
            return None;
        }
        tokio::select! {
            _ = changes.changed() => {}
            () = tokio::time::sleep(CLOCK_STEP) => {
                steps += 1;
                leaves_after = leaves_after.map(|left| left.saturating_sub(1));
                if steps.is_multiple_of(PING_STEPS) {
                    socket.send(Message::ping("Ping from fake")).await.ok()?;
                }
            }
            message = socket.next() => {
                let message = message?.ok()?;
                if let Some(text) = message.as_text() {
                    let frame: Value = serde_json::from_str(text).unwrap_or_default();
                    site.fake.change(|state| state.acknowledged(&frame));
                } else if message.is_close() {
                    return None;
                }
            }
        }
    }
}
