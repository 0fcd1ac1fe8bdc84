//! The bus over Redis or Valkey: PUBLISH on one connection, SUBSCRIBE on another.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::bus::To;
use frontdesk_core::port::store::StoreError;
use futures_util::StreamExt as _;
use redis::{Client, RedisError, Value};
use tokio::time::MissedTickBehavior;

use super::queues::{NetworkBus, Queues};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A server that does not answer in this time is taken for gone.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// How often the receiving connection is asked for an answer: a peer that vanished without a close looks like a
/// connection without messages.
const PING_EVERY: Duration = Duration::from_secs(1);

/// `epoch` is that of the store: hints of servers of another one on the same Redis are not received.
pub fn redis_bus(url: &str, epoch: u32) -> Result<NetworkBus, StoreError> {
    let client = Client::open(url)
        .map_err(|error| StoreError::Unavailable(format!("the address of the bus is not valid: {error}")))?;
    NetworkBus::start(Queues::new(epoch), move |queues| run(client, queues))
}

/// Connects, and again when the connection was lost.
async fn run(client: Client, queues: Arc<Queues>) {
    let mut pause = PAUSE_MIN;
    loop {
        let Err(error) = serve(&client, &queues, &mut pause).await;
        tracing::warn!(%error, "the bus over Redis was lost; connecting again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn serve(client: &Client, queues: &Queues, pause: &mut Duration) -> Result<Infallible, RedisError> {
    let mut publisher = in_time(client.get_multiplexed_async_connection()).await?;
    let (mut channels, mut messages) = in_time(client.get_async_pubsub()).await?.split();
    let mut me = queues.me();
    let mut listening = *me.borrow_and_update();
    in_time(channels.subscribe(queues.channel(To::All))).await?;
    in_time(channels.subscribe(queues.channel(To::Desk(listening)))).await?;
    queues.missed(); // hints sent until now did not arrive
    *pause = PAUSE_MIN;
    let mut ping = tokio::time::interval(PING_EVERY);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            outgoing = queues.next_messages() => {
                let mut pipe = redis::pipe();
                for (channel, text) in outgoing {
                    pipe.publish(channel, text).ignore();
                }
                in_time(pipe.query_async::<()>(&mut publisher)).await?;
            }
            Ok(()) = me.changed() => {
                let now = *me.borrow_and_update();
                in_time(channels.subscribe(queues.channel(To::Desk(now)))).await?;
                in_time(channels.unsubscribe(queues.channel(To::Desk(listening)))).await?;
                listening = now;
            }
            received = messages.next() => match received {
                Some(message) => queues.received(&message.get_payload::<String>()?),
                None => return Err(lost("the connection ended")),
            },
            _ = ping.tick() => drop(in_time(channels.ping::<Value>()).await?),
        }
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, RedisError>>) -> Result<T, RedisError> {
    let answered = tokio::time::timeout(ANSWER_MAX, asked).await;
    answered.unwrap_or_else(|_| Err(lost("Redis did not answer in time")))
}

fn lost(why: &'static str) -> RedisError {
    std::io::Error::new(std::io::ErrorKind::TimedOut, why).into()
}
