//! `/sync`: the long poll of a plain account, and the check of an application service. The token is saved after the events
//! before it are stored, or noted as still to be read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Change, Gap, Inlet};
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::Homeservers;
use super::account::Mode;
use super::client::{Ask, Client, Fault};
use super::deadline::Deadline;
use super::gather::{Gathered, Origin};
use super::inspect::token_checked;
use super::store::{Stop, note, save, store};
use super::task::{Cursor, Task};

/// The homeserver holds the poll for this long if nothing happens.
pub(super) const POLL_MS: u64 = 20_000;
const POLL_TIME: Duration = Duration::from_secs(30);
const POLL_MAX_BYTES: usize = 8 << 20;
/// Events of one room in one answer; the next lower number is tried if the answer is too large.
const TIMELINE: [u32; 3] = [50, 10, 1];
/// Rooms that are read at once.
const ROOMS_AT_ONCE: usize = 8;

/// The answer to a poll.
pub(super) struct News {
    answer: Value,
    next: String,
    /// Why the sync was started without a token; messages before it are missed.
    anew: Option<String>,
}

/// The next answer. A token that the homeserver rejects, or whose answer is too large even with the smallest timeline,
/// would fail forever: the sync starts without a token, and the gap is reported.
pub(super) async fn next_news(client: &Client<'_>, since: Option<String>, wait_ms: u64) -> Result<News, Fault> {
    let mut anew = None;
    let answer = match ask(client, since.as_deref(), wait_ms).await {
        Err(fault) if since.is_some() && is_about_token(&fault) => {
            let answer = ask(client, None, 0).await?;
            anew = Some(format!("the sync was started anew, because the homeserver rejected its token: {fault}"));
            answer
        }
        other => other?,
    };
    let missing = || Fault::Unreachable { why: "its answer has no next_batch".into(), may_have_happened: false };
    let next = answer["next_batch"].as_str().ok_or_else(missing)?.to_owned();
    if since.is_some_and(|since| is_backwards(&since, &next)) && anew.is_none() {
        anew = Some(
            "the homeserver returned an older position than before, as after a restore; messages may be missing".into(),
        );
    }
    Ok(News { answer, next, anew })
}

/// Synapse accepts a token that is newer than its own position (after a restore): it returns no events and an earlier
/// token. The tokens of other homeservers have no known format and are not compared.
fn is_backwards(since: &str, next: &str) -> bool {
    let position = |token: &str| token.strip_prefix('s')?.split_once('_')?.0.parse::<u64>().ok();
    position(since).zip(position(next)).is_some_and(|(since, next)| next < since)
}

fn is_about_token(fault: &Fault) -> bool {
    match fault {
        Fault::TooLarge(_) => true,
        // Matrix error codes come from the homeserver itself, not from a proxy in front of it.
        Fault::Refused { status: 400..500, errcode, .. } => {
            errcode.starts_with("M_") && !fault.is_token() && !fault.is_absent()
        }
        _ => false,
    }
}

async fn ask(client: &Client<'_>, since: Option<&str>, wait_ms: u64) -> Result<Value, Fault> {
    let wait_ms = if since.is_some() { wait_ms } else { 0 }.to_string();
    let mut result = Err(Fault::TooLarge(0));
    // Of the first answer only the token and the invitations count.
    let limits = if since.is_some() { &TIMELINE[..] } else { &TIMELINE[TIMELINE.len() - 1..] };
    for limit in limits {
        let none = json!({ "types": [], "not_types": ["*"] });
        let timeline = match since {
            Some(_) => json!({ "limit": limit, "lazy_load_members": true }),
            None => json!({ "limit": limit, "types": [], "not_types": ["*"] }),
        };
        let room = json!({ "timeline": timeline, "state": none, "ephemeral": none, "account_data": none });
        let filter = json!({ "presence": none, "account_data": none, "room": room }).to_string();
        let mut query = vec![("filter", filter.as_str()), ("timeout", wait_ms.as_str())];
        // Such a poll would show the bot as online, and as away soon after.
        query.extend((client.account.mode == Mode::AppService).then_some(("set_presence", "offline")));
        query.extend(since.map(|since| ("since", since)));
        let url = client.url(&["client", "v3", "sync"], &query);
        let ask = Ask { time: Some(POLL_TIME), max_bytes: POLL_MAX_BYTES, ..Ask::GET };
        result = client.ask(&url, &ask).await;
        if !matches!(result, Err(Fault::TooLarge(_))) {
            break;
        }
    }
    result
}

/// The invitation itself is the last one. What is before it comes from the server of the inviter, unchecked.
fn invitation(room_id: &str, room: &Value, me: &str) -> Option<Task> {
    let is_own =
        |it: &&Value| it["type"] == "m.room.member" && it["state_key"] == me && it["content"]["membership"] == "invite";
    let own = room["invite_state"]["events"].as_array()?.iter().rev().find(is_own)?;
    let (inviter, is_direct) = (own["sender"].as_str()?.to_owned(), own["content"]["is_direct"] == true);
    Some(Task::Invited { room_id: room_id.to_owned(), inviter, is_direct })
}

/// One room of an answer.
#[derive(Clone, Copy)]
struct RoomNews<'a> {
    room_id: &'a str,
    timeline: &'a Value,
    since: &'a str,
    is_left: bool,
    /// How many rooms may still be read later.
    free: &'a AtomicUsize,
}

impl Homeservers {
    /// Stores the content of an answer, then saves its token. Returns new tasks. A room that cannot be read in time
    /// becomes one, so that it does not delay the others.
    pub(super) async fn take_news(
        &self,
        client: &Client<'_>,
        cursor: &mut Cursor,
        news: News,
        inlet: &dyn Inlet,
    ) -> Result<Vec<Task>, Stop> {
        let News { answer, next, anew } = news;
        // The token stays until the next one is saved: after a failure the same answer is asked for again.
        let since = cursor.since.clone().filter(|_| anew.is_none());
        let rooms = |kind: &str| answer["rooms"][kind].as_object().into_iter().flatten();
        let me = client.account.user_id;
        let free = AtomicUsize::new(cursor.free_behind());
        let mut tasks: Vec<Task> =
            rooms("invite").filter_map(|(room_id, room)| invitation(room_id, room, me)).collect();
        // Without a token it is the first poll: what was said before is not for us.
        if let Some(since) = &since {
            let both = rooms("leave").map(|room| (true, room)).chain(rooms("join").map(|room| (false, room)));
            let (behind, fresh): (Vec<_>, Vec<_>) = both.partition(|(_, (room_id, _))| cursor.is_behind(room_id));
            cursor.skipped.extend(behind.into_iter().map(|(_, (room_id, _))| room_id.clone()));
            let mut news: Vec<BoxFuture<'_, _>> = Vec::new();
            for (is_left, (room_id, room)) in fresh {
                let room = RoomNews { room_id, timeline: &room["timeline"], since, is_left, free: &free };
                news.push(Box::pin(self.take_room(client, room, inlet)));
            }
            let mut reading = stream::iter(news).buffer_unordered(ROOMS_AT_ONCE);
            while let Some(read) = reading.next().await {
                tasks.extend(read?);
            }
        }
        if let Some(reason) = anew {
            inlet.gap(Gap { since_ms: 0, until_ms: self.env.now_ms(), reason });
        }
        cursor.since = Some(next);
        let tasks = note(cursor, tasks, inlet, self.env.now_ms());
        save(cursor, inlet).await?;
        Ok(tasks)
    }

    async fn take_room(&self, client: &Client<'_>, news: RoomNews<'_>, inlet: &dyn Inlet) -> Result<Vec<Task>, Stop> {
        let RoomNews { room_id, since, free, .. } = news;
        let mut read = token_checked(client, self.read_room(client, news, Deadline::first()).await).await;
        if let Err(fault) = &read {
            // If the homeserver cannot be reached, no room can be read, and the same answer comes again.
            if !fault.is_token() && !fault.is_elsewhere() {
                tracing::warn!(%fault, bot = client.account.bot.id.as_str(), room_id, "reading a room failed");
                if free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(1)).is_ok() {
                    return Ok(vec![Task::Behind { room_id: room_id.to_owned(), since: since.to_owned() }]);
                }
                // Too many rooms are late already: this one is stored without what takes too long.
                read = token_checked(client, self.read_room(client, news, Deadline::last_now()).await).await;
            }
        }
        store(read?, inlet).await
    }

    async fn read_room(&self, client: &Client<'_>, news: RoomNews<'_>, deadline: Deadline) -> Result<Gathered, Fault> {
        let RoomNews { room_id, timeline, since, is_left, .. } = news;
        let mut gathered = Gathered::default();
        let events = match is_left {
            // What was said before the bot was removed. The rest of it cannot be asked for by who is not in the room.
            true => {
                if timeline["limited"] == true {
                    let reason = format!(
                        "room {room_id}: the bot is no longer in it, and only the latest events before that were read"
                    );
                    gathered.gaps.push(Gap { since_ms: 0, until_ms: self.env.now_ms(), reason });
                }
                let said = timeline["events"].as_array().into_iter().flatten();
                said.filter(|it| it["state_key"].is_null()).cloned().collect()
            }
            false => self.timeline(client, room_id, timeline, since, deadline, &mut gathered).await?,
        };
        if is_left || timeline["limited"] == true {
            self.rooms.forget(&client.account.bot.id, room_id);
            gathered.changes.push(Change::Chat(room_id.into()));
        }
        self.gather(client, room_id, &events, Origin::Asked, deadline, &mut gathered).await?;
        Ok(gathered)
    }
}
