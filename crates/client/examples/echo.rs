//! An echo agent that sleeps: it answers, disconnects when idle, and is woken by a call of its wake URL.
//!
//! `cargo run -p frontdesk-client --example echo -- URL GATEWAY_ID SECRET WAKE_ADDRESS`
//! (provision the gateway with the wake URL `http://WAKE_ADDRESS/wake`)

use std::sync::Arc;
use std::time::Duration;

use frontdesk_client::agent::Failure;
use frontdesk_client::transport::BoxFuture;
use frontdesk_client::wake::WakeListener;
use frontdesk_client::{Agent, Dial, Serve, Turn};
use frontdesk_wire::{Act, Secret};

struct Echo(Arc<Agent>);

impl Serve for Echo {
    fn message(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move {
            let (chat_id, reply_to) = (turn.event.source.chat_id.clone(), turn.event.message_id.clone());
            let content = format!("echo: {}", turn.event.text);
            self.0.act(&turn.event, Act::Send { chat_id, content, reply_to }).await?;
            Ok(()) // acked now; an error would mean: delivered again
        })
    }
}

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
    loop {
        let agent = Agent::new(dial.clone(), 16);
        agent.serve(Arc::new(Echo(agent.clone())), Some(Duration::from_secs(20))).await?;
        println!("asleep");
        listener.called().await;
        println!("woken");
    }
}
