//! Servers that do not answer, or fall silent. The clock is moved, so that no test waits.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use frontdesk_client::{Dial, RelayTransport as _, SocketTransport, TransportError};
use frontdesk_wire::Secret;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_websockets::{Message, ServerBuilder, WebSocketStream};

/// Longer than any limit of the client.
const LONG: Duration = Duration::from_mins(10);

async fn server() -> (TcpListener, SocketTransport) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let identities = vec![("relay".into(), String::new())];
    let dial = Dial { url, gateway_id: "g".into(), secret: Secret::new("s"), identities };
    (listener, SocketTransport::new(dial))
}

async fn taken(listener: &TcpListener) -> TcpStream {
    timeout(LONG, listener.accept()).await.expect("the client does not dial again").unwrap().0
}

async fn upgraded(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (_, mut socket) = ServerBuilder::new().accept(taken(listener).await).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().as_text().unwrap().contains("hello"));
    socket
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_dialed_again() {
    let (listener, transport) = server().await;
    let dialed = async {
        let _never_answered = taken(&listener).await;
        let _no_descriptor = upgraded(&listener).await;
        taken(&listener).await
    };
    let (up, _third) = tokio::join!(transport.connect(), dialed);
    assert_eq!(up, Err(TransportError::Timeout));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_falls_silent_is_asked_and_then_dialed_again() {
    let (listener, transport) = server().await;
    let connecting = async {
        let mut socket = upgraded(&listener).await;
        let descriptor = frontdesk_wire::Descriptor::plain("relay", "Chat", 100);
        let line = serde_json::json!({ "type": "descriptor", "descriptor": descriptor });
        socket.send(Message::text(format!("{line}\n"))).await.unwrap();
        socket
    };
    let (up, mut socket) = tokio::join!(transport.connect(), connecting);
    assert_eq!(up, Ok(()));
    // One that answers is not left: its answers are made while it reads.
    for _ in 0..5 {
        let ping = timeout(LONG, socket.next()).await.expect("the client does not ask").unwrap().unwrap();
        assert!(ping.is_ping(), "{ping:?}");
        socket.flush().await.unwrap();
    }
    let _next = taken(&listener).await;
    drop(socket);
}
