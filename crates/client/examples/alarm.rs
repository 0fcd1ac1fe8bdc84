//! An agent that sleeps between its jobs. It has no public address: fires come down its relay socket, and
//! its wake URL is called when one waits. Its identity token is of the same instance as its gateway.
//!
//! `cargo run -p frontdesk-client --example alarm -- URL GATEWAY_ID SECRET IDENTITY WAKE_ADDRESS "every 1m"`

use std::sync::Arc;
use std::time::Duration;

use frontdesk_client::cron::{FileJobs, HttpCronDesk, Job, Provider, Timing, Work, machine_clock};
use frontdesk_client::wake::WakeListener;
use frontdesk_client::{Dial, Inbound, RelayTransport, SocketTransport};
use frontdesk_wire::Secret;
use tokio::sync::Notify;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or(format!("missing {what}"));
    let (url, gateway_id, secret) = (next("URL")?, next("GATEWAY_ID")?, Secret::new(next("SECRET")?));
    let desk = Arc::new(HttpCronDesk::new(&url, Secret::new(next("IDENTITY")?))?);
    let listener = WakeListener::listen(next("WAKE_ADDRESS")?.parse()?).await?;
    let timing = Timing::parse(&next("TIMING")?, "UTC", machine_clock()())?;
    let work: Work = Arc::new(|job| Box::pin(async move { println!("{} runs", job.id) }));
    let jobs = Arc::new(FileJobs::new("jobs.json"));
    let provider = Arc::new(Provider::new(jobs, Some(desk), "relay:", work, machine_clock()));
    let identities = vec![("relay".into(), String::new())];
    let transport = SocketTransport::new(Dial { url, gateway_id, secret, identities });

    let busy = Arc::new(Notify::new());
    let (taker, noted) = (provider.clone(), busy.clone());
    transport.set_inbound_handler(Arc::new(move |inbound| {
        let (provider, noted) = (taker.clone(), noted.clone());
        Box::pin(async move {
            let fire = if let Inbound::Forward(forward) = &inbound { Provider::relayed(forward) } else { None };
            if let Some(fire) = fire
                && let Err(error) = provider.fire(&fire).await
            {
                eprintln!("{} could not run: {error}", fire.job_id);
            }
            noted.notify_one();
            true
        })
    }));
    provider.put(Job::new("tea", timing, machine_clock()())).await?;
    transport.connect().await?;
    loop {
        while tokio::time::timeout(Duration::from_secs(5), busy.notified()).await.is_ok() {}
        println!("asleep");
        transport.go_dormant().await;
        listener.called().await;
        transport.wake();
    }
}
