//! Servers that do not answer, answer late, or fall silent. The clock is moved, so that no test waits.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use frontdesk_client::agent::Failure;
use frontdesk_client::transport::BoxFuture;
use frontdesk_client::{Agent, Dial, RelayTransport as _, Serve, SocketTransport, TransportError, Turn};
use frontdesk_wire::Secret;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use tokio_websockets::{Message, ServerBuilder, WebSocketStream};

/// Longer than any limit of the client.
const LONG: Duration = Duration::from_mins(10);

async fn server() -> (TcpListener, Dial) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let identities = vec![("relay".into(), String::new())];
    (listener, Dial { url, gateway_id: "g".into(), secret: Secret::new("s"), identities })
}

async fn taken(listener: &TcpListener) -> TcpStream {
    timeout(LONG, listener.accept()).await.expect("the client does not dial again").unwrap().0
}

async fn upgraded(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (_, mut socket) = ServerBuilder::new().accept(taken(listener).await).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().as_text().unwrap().contains("hello"));
    socket
}

async fn describe(socket: &mut WebSocketStream<TcpStream>) {
    let descriptor = frontdesk_wire::Descriptor::plain("relay", "Chat", 100);
    let line = serde_json::json!({ "type": "descriptor", "descriptor": descriptor });
    socket.send(Message::text(format!("{line}\n"))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_answer_is_dialed_again() {
    let (listener, dial) = server().await;
    let transport = SocketTransport::new(dial);
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
    let (listener, dial) = server().await;
    let transport = SocketTransport::new(dial);
    let connecting = async {
        let mut socket = upgraded(&listener).await;
        describe(&mut socket).await;
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

struct Idle;

impl Serve for Idle {
    fn message(self: Arc<Self>, _: Turn) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn connections_that_are_cut_again_and_again_do_not_keep_it_awake() {
    const SLEEP_AFTER: Duration = Duration::from_secs(50);
    let (listener, dial) = server().await;
    let agent = Agent::new(dial, 1);
    let began = Instant::now();
    let serving = tokio::spawn(async move { agent.serve(Arc::new(Idle), Some(SLEEP_AFTER)).await });
    for _ in 0..10 {
        let mut socket = upgraded(&listener).await;
        describe(&mut socket).await;
        if let Ok(frame) = timeout(Duration::from_secs(20), socket.next()).await {
            assert!(frame.unwrap().unwrap().as_text().unwrap().contains("going_idle"));
            assert!(began.elapsed() >= SLEEP_AFTER, "it sleeps after {:?}", began.elapsed());
            return serving.abort();
        }
    }
    panic!("it does not sleep");
}

/// What waits for the agent comes after the descriptor, so it must not sleep before that.
#[tokio::test(start_paused = true)]
async fn the_time_before_sleep_begins_with_each_connection() {
    const SLEEP_AFTER: Duration = Duration::from_secs(5);
    let (listener, dial) = server().await;
    let agent = Agent::new(dial, 1);
    let serving = tokio::spawn(async move { agent.serve(Arc::new(Idle), Some(SLEEP_AFTER)).await });
    let mut first = upgraded(&listener).await;
    sleep(SLEEP_AFTER * 3).await;
    describe(&mut first).await;
    let early = timeout(SLEEP_AFTER * 4 / 5, first.next()).await;
    assert!(early.is_err(), "it sleeps after a late descriptor: {early:?}");
    drop(first);
    let mut second = upgraded(&listener).await;
    sleep(SLEEP_AFTER * 3).await;
    let described = Instant::now();
    describe(&mut second).await;
    let frame = timeout(LONG, second.next()).await.expect("it does not sleep").unwrap().unwrap();
    assert!(frame.as_text().unwrap().contains("going_idle"), "{frame:?}");
    assert!(described.elapsed() >= SLEEP_AFTER, "it sleeps {:?} after a connect", described.elapsed());
    serving.abort();
}
