//! Over sockets.

use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio_websockets::{ClientBuilder, Message};

use super::*;
use crate::TestEnv;

#[tokio::test]
async fn a_client_of_the_gateway_is_greeted_and_told() {
    let server = world().serve_with(Arc::new(TestEnv::new(1))).await.unwrap();
    let uri = format!("{}/?v=10&encoding=json", server.gateway_url).parse().unwrap();
    let (mut socket, _) = ClientBuilder::from_uri(uri).connect().await.unwrap();
    let identify = json!({"op": 2, "d": {"token": TOKEN, "intents": 1 << 9}}).to_string();
    socket.send(Message::text(identify)).await.unwrap();
    let mut ops = Vec::new();
    for _ in 0..2 {
        let message = socket.next().await.unwrap().unwrap();
        let frame: Value = serde_json::from_str(message.as_text().unwrap()).unwrap();
        ops.push(frame["op"].as_u64().unwrap());
    }
    assert_eq!(ops, [10, 0]);
    say(&server.fake, "hello");
    let message = socket.next().await.unwrap().unwrap();
    let frame: Value = serde_json::from_str(message.as_text().unwrap()).unwrap();
    assert_eq!(frame["t"], "MESSAGE_CREATE");
    server.fake.socket_fault(BOT, &SocketFault::Close { code: 4000 });
    let message = socket.next().await.unwrap().unwrap();
    assert_eq!(message.as_close().map(|(code, _)| u16::from(code)), Some(4000));
}
