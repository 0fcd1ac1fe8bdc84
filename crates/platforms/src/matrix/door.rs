//! The door of an application service: transactions that the homeserver pushes until they are answered with 200.
//!
//! A transaction that comes again has the same id and the same events. Each event is stored once by its own id, so a
//! repeated transaction stores nothing, also after a restart and at another server of the same store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Bot, Door, DoorAnswer, Method, RawRequest, ReceivedRequest, Reply};
use frontdesk_wire::secret::same_bytes;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::Homeservers;
use super::account::{Account, Mode};
use super::client::{Client, Fault};
use super::deadline::Deadline;
use super::gather::{Gathered, Origin};
use super::inspect::token_checked;
use super::lock::locked;
use super::task::Task;

const TRANSACTIONS: &str = "/_matrix/app/v1/transactions/{txn}";
/// Attempts of one transaction that reached the homeserver.
const ATTEMPTS_MAX: u32 = 3;
/// Transactions whose attempts are counted; the homeserver has one under way at a time.
const TRANSACTIONS_MAX: usize = 1_000;
const ROOMS_AT_ONCE: usize = 16;
/// A hundred events of the longest size, which is what Synapse sends at most, each with the state that it replaces and what
/// the homeserver adds. A longer one would be repeated without end. The body is read only after the token was verified.
const BODY_MAX_BYTES: usize = 32 << 20;

pub(super) const DOORS: [Door; 2] = [
    Door {
        method: Method::Put,
        path: TRANSACTIONS,
        summary: "Take events that a homeserver pushes to its application service",
        max_bytes: BODY_MAX_BYTES,
    },
    Door {
        method: Method::Post,
        path: "/_matrix/app/v1/ping",
        summary: "Answer the homeserver that checks whether its application service is there",
        max_bytes: 4 << 10,
    },
];

fn refused(status: u16, errcode: &str, error: &str) -> Reply {
    Reply::json(status, &json!({ "errcode": errcode, "error": error }))
}

/// The token that the homeserver shows: in the header, and in the query if it is an older one.
fn token_of(request: &RawRequest) -> Option<String> {
    let header = request.only_header("authorization").and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    header.or_else(|| {
        let value = request.query.split('&').find_map(|pair| pair.strip_prefix("access_token="))?;
        decoded(value)
    })
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => u8::from_str_radix(std::str::from_utf8(&[bytes.next()?, bytes.next()?]).ok()?, 16).ok()?,
            b'+' => b' ',
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// The bot whose homeserver sent this. All of them are compared, each in constant time.
pub(super) fn bot_of<'a>(bots: &'a [Arc<Bot>], request: &RawRequest) -> Option<&'a Arc<Bot>> {
    let shown = token_of(request)?;
    let is_right = |bot: &Bot| {
        let is_pushed = Account::of(bot).is_ok_and(|account| account.mode == Mode::AppService);
        let same = bot.secret("hs_token").is_some_and(|it| same_bytes(it.expose().as_bytes(), shown.as_bytes()));
        is_pushed && same
    };
    bots.iter().fold(None, |found, bot| if is_right(bot) { found.or(Some(bot)) } else { found })
}

impl Homeservers {
    pub(super) async fn take(&self, bot: Option<&Bot>, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let Some(bot) = bot else {
            let text = "no bot in mode appservice has this hs_token";
            return Err(refused(if token_of(request).is_some() { 403 } else { 401 }, "M_FORBIDDEN", text));
        };
        let done = || Reply::json(200, &json!({}));
        if request.door != TRANSACTIONS {
            return Ok(ReceivedRequest::nothing(done()));
        }
        let not_json = |_| refused(400, "M_NOT_JSON", "the body is not JSON");
        let mut body: Value = serde_json::from_slice(&request.body).map_err(not_json)?;
        let Some(Value::Array(events)) = body.get_mut("events").map(Value::take) else {
            return Err(refused(400, "M_BAD_JSON", "the body has no list of events"));
        };
        let account = Account::of(bot).map_err(|why| refused(503, "M_UNKNOWN", &why))?;
        let client = Client::new(&*self.outcall, &account);
        let txn = request.parameters.get("txn").map(String::as_str).unwrap_or_default();
        let is_last = self.attempts.is_last(&bot.id, txn);
        match self.take_events(&client, events, is_last).await {
            Ok(Gathered { intakes, changes, gaps, .. }) => {
                self.attempts.end(&bot.id, txn);
                Ok(ReceivedRequest { changes, gaps, ..ReceivedRequest::events(intakes, DoorAnswer::Fixed(done())) })
            }
            Err(fault) => {
                if !fault.is_elsewhere() {
                    self.attempts.count(&bot.id, txn);
                }
                // The homeserver sends the transaction again.
                tracing::warn!(%fault, bot = bot.id.as_str(), txn, "handling a transaction failed");
                Err(refused(503, "M_UNKNOWN", &format!("the transaction was not stored; send it again: {fault}")))
            }
        }
    }

    /// Rooms are read at the same time, so that a slow one does not delay the others.
    async fn take_events(&self, client: &Client<'_>, events: Vec<Value>, is_last: bool) -> Result<Gathered, Fault> {
        let mut rooms: Vec<(String, Vec<Value>)> = Vec::new();
        for event in events {
            let Some(room_id) = event["room_id"].as_str() else { continue };
            match rooms.iter_mut().find(|(known, _)| known == room_id) {
                Some((_, of_room)) => of_room.push(event),
                None => rooms.push((room_id.to_owned(), vec![event])),
            }
        }
        let read = |(room_id, events): (String, Vec<Value>)| -> BoxFuture<'_, Result<Gathered, Fault>> {
            Box::pin(async move { self.take_room_events(client, &room_id, &events, is_last).await })
        };
        let mut all = at_once(rooms.into_iter().map(read).collect()).await?;
        // A room that moves takes its routes with it, so what the other tasks bring is there before.
        let is_move = |task: &Task| matches!(task, Task::Moved { .. });
        let (moves, others): (Vec<Task>, Vec<Task>) = std::mem::take(&mut all.tasks).into_iter().partition(is_move);
        for tasks in [others, moves] {
            let give = |task: Task| -> BoxFuture<'_, Result<Gathered, Fault>> {
                Box::pin(self.give_task(client, task, is_last))
            };
            all.absorb(at_once(tasks.into_iter().map(give).collect()).await?);
        }
        Ok(all)
    }

    /// What cannot be looked up in time is left to the listener, which has more time. If it runs at another server, the
    /// homeserver sends the transaction again; the last time it is taken with what is known.
    async fn take_room_events(
        &self,
        client: &Client<'_>,
        room_id: &str,
        events: &[Value],
        is_last: bool,
    ) -> Result<Gathered, Fault> {
        let bot = &client.account.bot.id;
        let mut gathered = Gathered::default();
        let read = self.gather(client, room_id, events, Origin::Pushed, Deadline::first(), &mut gathered).await;
        let Err(fault) = token_checked(client, read).await else { return Ok(gathered) };
        // Who came or went after the event that failed is not known yet.
        self.rooms.forget(bot, room_id);
        if fault.is_token() || fault.is_elsewhere() {
            return Err(fault);
        }
        let behind = Task::Behind { room_id: room_id.to_owned(), since: String::new() };
        if self.tasks.hand_over(bot, &behind).await {
            tracing::warn!(%fault, bot = bot.as_str(), room_id, "reading a room of a transaction failed; the listener reads it");
            return Ok(gathered);
        }
        if !is_last {
            return Err(fault);
        }
        let mut gathered = Gathered::default();
        let read = self.gather(client, room_id, events, Origin::Pushed, Deadline::last_now(), &mut gathered).await;
        match token_checked(client, read).await {
            // Otherwise a transaction that can never succeed would be repeated without end.
            Err(fault @ Fault::Final(_)) => gathered.gaps.push(behind.loss(&fault, self.env.now_ms())),
            other => other?,
        }
        Ok(gathered)
    }

    /// The listener does it. If that runs at another server, or is busy, it is done here: no task does harm twice.
    async fn give_task(&self, client: &Client<'_>, task: Task, is_last: bool) -> Result<Gathered, Fault> {
        let mut gathered = Gathered::default();
        if self.tasks.hand_over(&client.account.bot.id, &task).await {
            return Ok(gathered);
        }
        let mut next = Some(task);
        while let Some(task) = next.take() {
            let deadline = if is_last { Deadline::last_now() } else { Deadline::first() };
            match self.try_task(client, &task, "", deadline, &mut gathered).await {
                Ok(more) => next = more,
                Err(fault) if is_last && !fault.is_elsewhere() && !fault.is_token() => {
                    gathered.gaps.push(task.loss(&fault, self.env.now_ms()));
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(gathered)
    }
}

/// In the order of the list.
async fn at_once(all: Vec<BoxFuture<'_, Result<Gathered, Fault>>>) -> Result<Gathered, Fault> {
    let mut gathered = Gathered::default();
    let mut reading = stream::iter(all).buffered(ROOMS_AT_ONCE);
    while let Some(read) = reading.next().await {
        gathered.absorb(read?);
    }
    Ok(gathered)
}

/// How often each transaction failed. The homeserver sends nothing else before it is taken, so one that fails because of
/// what a single room needs is taken in the end without that.
#[derive(Default)]
pub(super) struct Attempts(Mutex<HashMap<(String, String), u32>>);

impl Attempts {
    fn is_last(&self, bot: &str, txn: &str) -> bool {
        let failed = locked(&self.0).get(&(bot.to_owned(), txn.to_owned())).copied().unwrap_or_default();
        failed + 1 >= ATTEMPTS_MAX
    }

    fn count(&self, bot: &str, txn: &str) {
        let mut counts = locked(&self.0);
        if counts.len() >= TRANSACTIONS_MAX {
            counts.clear();
        }
        *counts.entry((bot.to_owned(), txn.to_owned())).or_default() += 1;
    }

    fn end(&self, bot: &str, txn: &str) {
        locked(&self.0).remove(&(bot.to_owned(), txn.to_owned()));
    }
}

/// Transactions are distinguished by their token alone, so two bots cannot have the same one.
pub(super) fn clash(bot: &Bot, others: &[Arc<Bot>]) -> Result<(), String> {
    let is_pushed = |bot: &Bot| Account::of(bot).is_ok_and(|account| account.mode == Mode::AppService);
    let Some(own) = bot.secret("hs_token").filter(|_| is_pushed(bot)) else { return Ok(()) };
    let is_same = |other: &&Arc<Bot>| {
        let known = other.secret("hs_token").filter(|_| is_pushed(other));
        known.is_some_and(|it| same_bytes(it.expose().as_bytes(), own.expose().as_bytes()))
    };
    match others.iter().filter(|other| other.id != bot.id).find(is_same) {
        None => Ok(()),
        Some(other) => Err(format!(
            "the bot {:?} has the same hs_token; each bot needs a registration of its own at the homeserver, with tokens \
             of its own",
            other.id
        )),
    }
}
