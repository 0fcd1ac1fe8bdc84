//! A plain account: `/sync` as a long poll. The token is saved after the events before it are stored.

use std::time::Duration;

use frontdesk_core::intake::Verified;
use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Bot, BotFinding, Change, Ended, Gap, Inlet};
use serde_json::{Value, json};

use super::Homeservers;
use super::account::{Account, Mode};
use super::client::{Ask, Client, Fault};
use super::event::beginning;
use super::gather::Gathered;

/// The homeserver holds the poll for this long if nothing happens.
const POLL_MS: &str = "20000";
const POLL_TIME: Duration = Duration::from_secs(30);
const POLL_MAX_BYTES: usize = 16 << 20;
/// Events of one room in one answer, and if such an answer is too large.
const TIMELINE: [u32; 3] = [50, 10, 1];
/// Events of one room that are fetched if an answer left some out. What is before them is reported as missed.
const BACKFILL_MAX: usize = 500;
const BACKFILL_PAGE: &str = "100";
const BACKFILL_MAX_BYTES: usize = 8 << 20;
/// Events that are stored in one commit.
const BATCH: usize = 64;

enum Stop {
    Fault(Fault),
    Store(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Homeservers {
    pub(super) async fn listen_as(&self, account: &Account<'_>, cursor: Option<String>, inlet: &dyn Inlet) -> Ended {
        let mut client = Client::new(&*self.outcall, account);
        client.is_patient = true;
        if let Err(fault) = greet(&client).await {
            return ended(fault);
        }
        if account.mode == Mode::AppService {
            return Ended::Never;
        }
        match self.poll(&client, cursor, inlet).await {
            Stop::Fault(fault) => ended(fault),
            Stop::Store(why) => Ended::Lost(format!("the events were not stored: {why}")),
        }
    }

    /// Polls until something fails.
    async fn poll(&self, client: &Client<'_>, mut since: Option<String>, inlet: &dyn Inlet) -> Stop {
        loop {
            match self.poll_once(client, since.as_deref(), inlet).await {
                Ok(next) => since = Some(next),
                Err(stop) => return stop,
            }
        }
    }

    async fn poll_once(&self, client: &Client<'_>, since: Option<&str>, inlet: &dyn Inlet) -> Result<String, Stop> {
        let answer = ask(client, since).await?;
        let missing = || Fault::Unreachable { why: "its answer has no next_batch".into(), may_have_happened: false };
        let next = answer["next_batch"].as_str().ok_or_else(missing)?.to_owned();
        let rooms = |kind: &str| answer["rooms"][kind].as_object().into_iter().flatten();
        let mut gathered = Gathered::default();
        for (room_id, room) in rooms("invite") {
            let state = room["invite_state"]["events"].as_array().map_or(&[][..], Vec::as_slice);
            let me = client.account.user_id;
            // The invitation itself is the last one. What is before it comes from the server of the inviter, unchecked.
            let is_invitation = |it: &&Value| {
                it["type"] == "m.room.member" && it["state_key"] == me && it["content"]["membership"] == "invite"
            };
            let own = state.iter().rev().find(is_invitation);
            if let Some((own, inviter)) = own.and_then(|own| Some((own, own["sender"].as_str()?))) {
                self.invited(client, room_id, inviter, own["content"]["is_direct"] == true).await?;
            }
        }
        for (room_id, room) in rooms("leave") {
            self.rooms.forget(&client.account.bot.id, room_id);
            gathered.changes.push(Change::Chat(room_id.clone()));
            // What was said before the bot was removed.
            let said = room["timeline"]["events"].as_array().filter(|_| since.is_some());
            let said: Vec<Value> = said.into_iter().flatten().filter(|it| it["state_key"].is_null()).cloned().collect();
            let proof = || Verified::by("answer of the homeserver to the bot's own token");
            self.gather(client, room_id, &said, proof, &mut gathered).await?;
        }
        // Without a token it is the first poll: what was said before is not for us.
        for (room_id, room) in rooms("join").filter(|_| since.is_some()) {
            let events = self.timeline(client, room_id, &room["timeline"], since, inlet).await?;
            if room["timeline"]["limited"] == true {
                self.rooms.forget(&client.account.bot.id, room_id);
                gathered.changes.push(Change::Chat(room_id.clone()));
            }
            let proof = || Verified::by("answer of the homeserver to the bot's own token");
            self.gather(client, room_id, &events, proof, &mut gathered).await?;
        }
        store(gathered, inlet).await?;
        inlet.save_cursor(next.clone()).await.map_err(|error| Stop::Store(error.to_string()))?;
        Ok(next)
    }

    /// The new events of a room, oldest first, with those that the answer left out.
    async fn timeline(
        &self,
        client: &Client<'_>,
        room_id: &str,
        timeline: &Value,
        since: Option<&str>,
        inlet: &dyn Inlet,
    ) -> Result<Vec<Value>, Fault> {
        let me = client.account.user_id;
        // Newest first while they are collected.
        let mut events: Vec<Value> = timeline["events"].as_array().cloned().unwrap_or_default();
        events.reverse();
        let mut began = beginning(&events, me);
        let mut from = timeline["prev_batch"].as_str().filter(|_| timeline["limited"] == true).map(str::to_owned);
        while let (None, Some(token)) = (began, &from) {
            if events.len() >= BACKFILL_MAX {
                let until_ms = events.last().and_then(|it| it["origin_server_ts"].as_u64()).unwrap_or_default();
                let reason =
                    format!("room {room_id}: only the latest {BACKFILL_MAX} events of a longer time were read");
                inlet.gap(Gap { since_ms: 0, until_ms, reason });
                break;
            }
            let mut query = vec![("dir", "b"), ("from", token.as_str()), ("limit", BACKFILL_PAGE)];
            query.extend(since.map(|since| ("to", since)));
            let url = client.url(&["client", "v3", "rooms", room_id, "messages"], &query);
            let page = match client.ask(&url, &Ask { max_bytes: BACKFILL_MAX_BYTES, ..Ask::GET }).await {
                Ok(page) => page,
                Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
                Err(fault) => {
                    let reason = format!("room {room_id}: earlier events cannot be read: {fault}");
                    inlet.gap(Gap { since_ms: 0, until_ms: self.env.now_ms(), reason });
                    break;
                }
            };
            let found = page["chunk"].as_array().cloned().unwrap_or_default();
            let next = page["end"].as_str().map(str::to_owned).filter(|end| end != token && !found.is_empty());
            events.extend(found);
            began = beginning(&events, me);
            from = next;
        }
        events.truncate(began.unwrap_or(events.len()));
        events.reverse();
        Ok(events)
    }
}

async fn ask(client: &Client<'_>, since: Option<&str>) -> Result<Value, Fault> {
    let mut result = Err(Fault::TooLarge(0));
    // The first answer is of all rooms, and only its token counts.
    let limits = if since.is_some() { &TIMELINE[..] } else { &TIMELINE[TIMELINE.len() - 1..] };
    for limit in limits {
        let none = json!({ "types": [] });
        let filter = json!({
            "presence": none,
            "account_data": none,
            "room": {
                "timeline": { "limit": limit, "lazy_load_members": true },
                "state": none,
                "ephemeral": none,
                "account_data": none,
            },
        });
        let filter = filter.to_string();
        let mut query = vec![("filter", filter.as_str()), ("timeout", if since.is_some() { POLL_MS } else { "0" })];
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

/// The account behind the token is the one of the settings. An application service makes it if need be.
async fn greet(client: &Client<'_>) -> Result<(), Fault> {
    let account = client.account;
    if account.mode == Mode::AppService {
        let body = json!({
            "type": "m.login.application_service",
            "username": account.localpart(),
            "inhibit_login": true,
        });
        let url = client.url(&["client", "v3", "register"], &[]);
        let ask = Ask { method: HttpMethod::Post, json: Some(&body), ..Ask::GET };
        match client.ask(&url, &ask).await {
            Ok(_) => {}
            Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
            Err(fault) if fault.is("M_USER_IN_USE") => {}
            Err(fault) => tracing::debug!(%fault, bot = account.bot.id, "the user was not registered"),
        }
    }
    let answer = client.get(&["client", "v3", "account", "whoami"], &[]).await?;
    match answer["user_id"].as_str() {
        Some(user_id) if user_id == account.user_id => Ok(()),
        other => {
            let error =
                format!("the token belongs to {:?}, but user_id is {:?}", other.unwrap_or("nobody"), account.user_id);
            Err(Fault::Refused { status: 401, errcode: "M_UNKNOWN_TOKEN".into(), error })
        }
    }
}

impl Homeservers {
    /// Whether the token works, and in how many rooms the bot is.
    pub(super) async fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        let account = match Account::of(bot) {
            Ok(account) => account,
            Err(why) => return vec![BotFinding::new("settings", false, why)],
        };
        let client = Client::new(&*self.outcall, &account);
        if let Err(fault) = greet(&client).await {
            return vec![BotFinding::new("token", false, fault.to_string())];
        }
        let token = BotFinding::new("token", true, format!("the homeserver knows the bot as {}", account.user_id));
        let rooms = match client.get(&["client", "v3", "joined_rooms"], &[]).await {
            Ok(answer) => match answer["joined_rooms"].as_array().map_or(0, Vec::len) {
                0 => BotFinding::new("rooms", false, "the bot is in no room; invite it"),
                count => BotFinding::new("rooms", true, format!("rooms that the bot is in: {count}")),
            },
            Err(fault) => BotFinding::new("rooms", false, fault.to_string()),
        };
        vec![token, rooms]
    }
}

fn ended(fault: Fault) -> Ended {
    match fault.is_token() {
        true => {
            Ended::Misconfigured(format!("{fault}; get a new token from the homeserver and add the bot again with it"))
        }
        false => Ended::Lost(fault.to_string()),
    }
}

/// A room that moves takes its routes with it, so what was said in the old one is stored first.
async fn store(gathered: Gathered, inlet: &dyn Inlet) -> Result<(), Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::Store(error.to_string());
    let is_move = |change: &Change| matches!(change, Change::ChatMoved { .. });
    let (moves, others): (Vec<Change>, Vec<Change>) = gathered.changes.into_iter().partition(is_move);
    for change in others {
        inlet.changed(change).await.map_err(|error| failed(&error))?;
    }
    let mut rest = gathered.intakes;
    while !rest.is_empty() {
        let later = rest.split_off(rest.len().min(BATCH));
        inlet.take(rest).await.map_err(|error| failed(&error))?;
        rest = later;
    }
    for change in moves {
        inlet.changed(change).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}
