//! Events of a room that no poll or transaction brought: read page by page, within bounds. What is beyond them is
//! reported as missed.

use frontdesk_core::port::platform::Gap;
use serde_json::Value;

use super::Homeservers;
use super::client::{Ask, Client, Fault};
use super::deadline::Deadline;
use super::event::beginning;
use super::gather::Gathered;

/// Events of one room that are read back, in count and in bytes.
const EVENTS_MAX: usize = 500;
const BYTES_MAX: usize = 8 << 20;
/// Events per page; the second number is tried if a page of the first is too large.
const PAGE: [&str; 2] = ["100", "10"];
const PAGE_MAX_BYTES: usize = 4 << 20;
/// Pages without events in a row. A homeserver sends such a page if the bot may see none of its events.
const EMPTY_MAX: u32 = 5;

/// Where to read from, backwards.
enum From {
    Now,
    Token(String),
    Nowhere,
}

struct Backfill<'a> {
    client: &'a Client<'a>,
    room_id: &'a str,
    /// Reading ends at this token.
    to: Option<&'a str>,
    deadline: Deadline,
    /// Newest first while they are collected.
    events: Vec<Value>,
    bytes: usize,
    /// Pages without events since the latest one that had some.
    empty: u32,
}

impl Homeservers {
    /// The new events of a room, oldest first, with those that the answer left out.
    pub(super) async fn timeline(
        &self,
        client: &Client<'_>,
        room_id: &str,
        timeline: &Value,
        since: &str,
        deadline: Deadline,
        into: &mut Gathered,
    ) -> Result<Vec<Value>, Fault> {
        let mut events: Vec<Value> = timeline["events"].as_array().cloned().unwrap_or_default();
        events.reverse();
        let from = match timeline["prev_batch"].as_str().filter(|_| timeline["limited"] == true) {
            Some(token) => From::Token(token.to_owned()),
            None => From::Nowhere,
        };
        let reading = Backfill { client, room_id, to: Some(since), deadline, events, bytes: 0, empty: 0 };
        self.read_back(reading, from, into).await
    }

    /// Events between two tokens. Up to now, if `until` is empty.
    pub(super) async fn missed(
        &self,
        client: &Client<'_>,
        room_id: &str,
        since: &str,
        until: &str,
        deadline: Deadline,
        into: &mut Gathered,
    ) -> Result<Vec<Value>, Fault> {
        let reading = Backfill { client, room_id, to: Some(since), deadline, events: Vec::new(), bytes: 0, empty: 0 };
        let from = if until.is_empty() { From::Now } else { From::Token(until.to_owned()) };
        self.read_back(reading, from, into).await
    }

    /// Reads messages between the invitation and the join: only later ones are pushed. A message that comes both ways
    /// is stored once.
    pub(super) async fn earlier(
        &self,
        client: &Client<'_>,
        room_id: &str,
        deadline: Deadline,
        into: &mut Gathered,
    ) -> Result<Vec<Value>, Fault> {
        let reading = Backfill { client, room_id, to: None, deadline, events: Vec::new(), bytes: 0, empty: 0 };
        let mut events = self.read_back(reading, From::Now, into).await?;
        // The rest of what happened in the room is pushed.
        events.retain(|event| event["state_key"].is_null());
        Ok(events)
    }

    async fn read_back(
        &self,
        mut reading: Backfill<'_>,
        mut from: From,
        into: &mut Gathered,
    ) -> Result<Vec<Value>, Fault> {
        let (me, room_id) = (reading.client.account.user_id, reading.room_id);
        let mut began = beginning(&reading.events, me);
        while began.is_none() && !matches!(from, From::Nowhere) {
            let until_ms = reading.events.last().and_then(|it| it["origin_server_ts"].as_u64());
            let until_ms = until_ms.unwrap_or_else(|| self.env.now_ms());
            let mut missed = |reason: String| into.gaps.push(Gap { since_ms: 0, until_ms, reason });
            if reading.events.len() >= EVENTS_MAX || reading.bytes >= BYTES_MAX {
                let count = reading.events.len();
                missed(format!("room {room_id}: only the latest {count} events of a longer time were read"));
                break;
            }
            if reading.empty >= EMPTY_MAX {
                missed(format!("room {room_id}: earlier events were not found within {EMPTY_MAX} empty pages"));
                break;
            }
            from = match reading.page(&from).await {
                Ok(Some(next)) => next,
                Ok(None) => {
                    missed(format!("room {room_id}: earlier events could not be read now"));
                    break;
                }
                Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
                Err(fault) => {
                    missed(format!("room {room_id}: earlier events cannot be read: {fault}"));
                    break;
                }
            };
            began = beginning(&reading.events, me);
        }
        let mut events = reading.events;
        events.truncate(began.unwrap_or(events.len()));
        events.reverse();
        Ok(events)
    }
}

impl Backfill<'_> {
    /// Where the next page begins. `None`: it was not read.
    async fn page(&mut self, from: &From) -> Result<Option<From>, Fault> {
        let Some((mut page, bytes)) = self.deadline.ask(self.fetch(from)).await? else { return Ok(None) };
        let events = match page["chunk"].take() {
            Value::Array(events) => events,
            _ => Vec::new(),
        };
        let end = page["end"].as_str().filter(|end| !matches!(from, From::Token(token) if token == end));
        let next = end.map_or(From::Nowhere, |end| From::Token(end.to_owned()));
        self.empty = if events.is_empty() { self.empty + 1 } else { 0 };
        self.bytes += bytes;
        self.events.extend(events);
        Ok(Some(next))
    }

    async fn fetch(&self, from: &From) -> Result<(Value, usize), Fault> {
        let mut found = Err(Fault::TooLarge(PAGE_MAX_BYTES));
        for limit in PAGE {
            let mut query = vec![("dir", "b")];
            if let From::Token(token) = from {
                query.push(("from", token));
            }
            query.push(("limit", limit));
            query.extend(self.to.map(|to| ("to", to)));
            let url = self.client.url(&["client", "v3", "rooms", self.room_id, "messages"], &query);
            found = self.client.ask_sized(&url, &Ask { max_bytes: PAGE_MAX_BYTES, ..Ask::GET }).await;
            if !matches!(found, Err(Fault::TooLarge(_))) {
                break;
            }
        }
        found
    }
}
