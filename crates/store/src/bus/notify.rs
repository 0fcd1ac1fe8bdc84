//! The bus over Postgres: NOTIFY, on a connection of its own and never in a transaction that carries mail, which would
//! queue all commits behind each other.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::port::bus::To;
use frontdesk_core::port::store::StoreError;

use super::queues::{NetworkBus, Queues};
use crate::postgres::connection::{Fault, Target};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A server that does not answer in this time counts as gone.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// `epoch` is that of the store: hints of servers of another one in the same database are not received.
pub fn notify_bus(url: &str, epoch: u32) -> Result<NetworkBus, StoreError> {
    let target = Target::of(url)?;
    NetworkBus::start(Queues::new(epoch), move |queues| run(target, queues))
}

/// Connects, and again when the connection was lost.
async fn run(target: Target, queues: Arc<Queues>) {
    let mut pause = PAUSE_MIN;
    loop {
        match serve(&target, &queues, &mut pause).await {
            Ok(never) => match never {},
            Err(fault) => {
                tracing::warn!(error = %fault.unwritten(), "the bus over Postgres was lost; connecting again");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

async fn serve(target: &Target, queues: &Arc<Queues>, pause: &mut Duration) -> Result<std::convert::Infallible, Fault> {
    let inbox = queues.clone();
    let connection = target.connect_listening(move |message| inbox.received(message)).await?;
    in_time(connection.batch("SET synchronous_commit = off")).await?;
    let mut me = queues.me();
    let mut listening = *me.borrow_and_update();
    let (all, mine) = (queues.channel(To::All), queues.channel(To::Desk(listening)));
    in_time(connection.batch(&format!("LISTEN {all}; LISTEN {mine}"))).await?;
    queues.missed(); // hints sent until now did not arrive
    *pause = PAUSE_MIN;
    loop {
        tokio::select! {
            messages = queues.next_messages() => {
                let (channels, texts): (Vec<String>, Vec<String>) = messages.into_iter().unzip();
                let sql = "SELECT pg_notify(c, t) FROM unnest($1::text[], $2::text[]) AS m (c, t)";
                in_time(connection.execute(sql, &[&channels, &texts])).await?;
            }
            Ok(()) = me.changed() => {
                let now = *me.borrow_and_update();
                let (old, new) = (queues.channel(To::Desk(listening)), queues.channel(To::Desk(now)));
                listening = now;
                in_time(connection.batch(&format!("UNLISTEN {old}; LISTEN {new}"))).await?;
            }
            () = connection.ended() => return Err(Fault::Lost("the connection ended".into())),
        }
    }
}

async fn in_time<T>(asked: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
    let answered = tokio::time::timeout(ANSWER_MAX, asked).await;
    answered.unwrap_or_else(|_| Err(Fault::Lost("Postgres did not answer in time".into())))
}
