//! An echo agent that sleeps: it answers, goes dormant when idle, and is woken by a call of its wake URL.
//!
//! `cargo run -p frontdesk-client --example echo -- URL GATEWAY_ID SECRET WAKE_ADDRESS`
//! (provision the gateway with the wake URL `http://WAKE_ADDRESS/wake`)

use std::sync::Arc;
use std::time::Duration;

use frontdesk_client::wake::WakeListener;
use frontdesk_client::{Dial, Inbound, RelayTransport, SocketTransport};
use frontdesk_wire::{Act, Secret};
use tokio::sync::Notify;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or(format!("missing {what}"));
    let dial = Dial {
        url: next("URL")?,
        gateway_id: next("GATEWAY_ID")?,
        secret: Secret::new(next("SECRET")?),
        identities: vec![("relay".into(), String::new())],
    };
    let listener = WakeListener::listen(next("WAKE_ADDRESS")?.parse()?).await?;
    let transport = Arc::new(SocketTransport::new(dial));
    let busy = Arc::new(Notify::new());

    let (echo, noted) = (transport.clone(), busy.clone());
    transport.set_inbound_handler(Arc::new(move |inbound| {
        let (echo, noted) = (echo.clone(), noted.clone());
        Box::pin(async move {
            noted.notify_one();
            let Inbound::Event(event) = inbound else { return };
            let act = Act::Send {
                chat_id: event.source.chat_id,
                content: format!("echo: {}", event.text),
                reply_to: event.message_id,
            };
            if let Err(error) = echo.send_outbound(act.into()).await {
                eprintln!("the answer did not go out: {error}");
            }
        })
    }));
    transport.connect().await?;
    loop {
        while tokio::time::timeout(Duration::from_secs(20), busy.notified()).await.is_ok() {}
        transport.go_dormant().await;
        println!("asleep");
        listener.called().await;
        println!("woken");
        transport.wake();
    }
}
