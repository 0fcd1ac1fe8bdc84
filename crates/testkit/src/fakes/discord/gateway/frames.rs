//! Frames of a client: heartbeats, IDENTIFY, RESUME, requests for members.

use serde_json::{Value, json};

use super::super::snowflake::{self, Id};
use super::super::state::State;
use super::super::{intents, shapes};
use super::session::{SentFrames, Session, send};
use super::{Out, close, note, push};

const MAX_FRAME_BYTES: usize = 4_096;
const MAX_FRAMES_A_MINUTE: usize = 120;
/// Members in one dispatch of a requested list.
const CHUNK: usize = 1_000;

pub(in super::super) fn receive(state: &mut State, now_ms: u64, connection: u64, text: &str) {
    let Some(found) = state.gateway.connections.get_mut(&connection).filter(|it| !it.is_over) else { return };
    while found.frames_ms.front().is_some_and(|at| at + 60_000 <= now_ms) {
        found.frames_ms.pop_front();
    }
    found.frames_ms.push_back(now_ms);
    if found.frames_ms.len() > MAX_FRAMES_A_MINUTE {
        return close(state, connection, 4008, "Rate limited.");
    }
    let has_session = found.session.is_some();
    let frame: Option<Value> = serde_json::from_str(text).ok();
    let Some(frame) = frame.filter(|frame| frame.is_object() && text.len() <= MAX_FRAME_BYTES) else {
        return close(state, connection, 4002, "Error while decoding payload.");
    };
    let data = &frame["d"];
    match frame["op"].as_u64() {
        Some(1) => heartbeat(state, now_ms, connection, data),
        Some(2) if has_session => close(state, connection, 4005, "Already authenticated."),
        Some(2) => identify(state, now_ms, connection, data),
        Some(6) if has_session => close(state, connection, 4005, "Already authenticated."),
        Some(6) => resume(state, now_ms, connection, data),
        Some(3 | 4 | 8) if !has_session => close(state, connection, 4003, "Not authenticated."),
        Some(3 | 4) => {}
        Some(8) => members(state, connection, data),
        _ => close(state, connection, 4001, "Unknown opcode."),
    }
}

fn heartbeat(state: &mut State, now_ms: u64, connection: u64, seq: &Value) {
    let Some(found) = state.gateway.connections.get_mut(&connection) else { return };
    found.last_beat_ms = now_ms;
    let bot = found.session.as_ref().and_then(|id| state.gateway.sessions.get(id)).map(|session| session.bot);
    let withheld = bot.and_then(|bot| state.gateway.withheld_acks.get_mut(&bot)).filter(|left| **left > 0);
    let is_withheld = withheld.map(|left| *left -= 1).is_some();
    note(state, now_ms, bot, "heartbeat", json!({"seq": seq, "withheld": is_withheld}));
    if !is_withheld {
        push(state, connection, Out::Frame(json!({"op": 11, "d": null, "s": null, "t": null})));
    }
}

fn bot_of(state: &State, data: &Value) -> Option<Id> {
    let token = data["token"].as_str()?.trim_start_matches("Bot ");
    state.bots.values().find(|bot| bot.token == token).map(|bot| bot.id)
}

fn invalid(state: &mut State, connection: u64) {
    push(state, connection, Out::Frame(json!({"op": 9, "d": false, "s": null, "t": null})));
}

fn identify(state: &mut State, now_ms: u64, connection: u64, data: &Value) {
    let mut seen = data.clone();
    seen["token"] = json!("...");
    let bot = bot_of(state, data);
    note(state, now_ms, bot, "identify", seen);
    let Some(bot) = bot else { return close(state, connection, 4004, "Authentication failed.") };
    let wanted = data["intents"].as_u64();
    let Some(wanted) = wanted.filter(|wanted| wanted & !intents::KNOWN == 0) else {
        return close(state, connection, 4013, "Invalid intent(s).");
    };
    let privileged = state.bots.get(&bot).map_or(0, |bot| bot.privileged);
    if wanted & intents::PRIVILEGED & !privileged != 0 {
        return close(state, connection, 4014, "Disallowed intent(s).");
    }
    let number = |at: usize, without: u64| data["shard"].get(at).map_or(Some(without), Value::as_u64);
    let shard = number(0, 0).zip(number(1, 1)).filter(|(shard, count)| shard < count);
    let Some(shard) = shard else { return close(state, connection, 4010, "Invalid shard.") };
    let every_ms = state.gateway.settings.identify_every_ms;
    let is_spent = state.gateway.starts_left(now_ms, bot) == 0;
    let bucket = (bot, shard.0 % state.gateway.settings.max_concurrency.max(1));
    let last_ms = state.gateway.last_identify_ms.get(&bucket);
    if is_spent || last_ms.is_some_and(|at| at + every_ms > now_ms) {
        return invalid(state, connection);
    }
    state.gateway.last_identify_ms.insert(bucket, now_ms);
    state.gateway.identified_ms.entry(bot).or_default().push_back(now_ms);
    let id = format!("{:032x}", u128::from(state.ids.next(now_ms)));
    let session = Session {
        bot,
        intents: wanted,
        shard,
        seq: 0,
        kept: SentFrames::default(),
        connection: Some(connection),
        gone_ms: 0,
    };
    state.gateway.sessions.insert(id.clone(), session);
    if let Some(found) = state.gateway.connections.get_mut(&connection) {
        found.session = Some(id.clone());
    }
    send_ready(state, &id, bot, wanted, shard);
}

/// READY, then each guild.
fn send_ready(state: &mut State, session: &str, bot: Id, wanted: u64, shard: (u64, u64)) {
    let on_shard = |guild: &&Id| (**guild >> 22) % shard.1 == shard.0;
    let guilds: Vec<Id> = state.guilds.keys().filter(on_shard).copied().collect();
    let guilds: Vec<Id> = guilds.into_iter().filter(|guild| state.bots_of(*guild).contains(&bot)).collect();
    let absent: Vec<Value> = guilds.iter().map(|id| json!({"id": id.to_string(), "unavailable": true})).collect();
    let mut user = shapes::user_of(state, bot);
    user["verified"] = json!(true);
    user["mfa_enabled"] = json!(true);
    user["email"] = json!(null);
    let ready = json!({"v": 10, "user": user, "guilds": absent, "session_id": session, "session_type": "normal",
        "resume_gateway_url": state.host.replacen("http", "ws", 1), "shard": [shard.0, shard.1],
        "application": {"id": bot.to_string(), "flags": shapes::application_flags(state, bot)},
        "private_channels": [], "relationships": [], "presences": [], "guild_join_requests": [],
        "user_settings": {}, "user_settings_proto": "", "geo_ordered_rtc_regions": [], "auth": {},
        "_trace": ["[\"fake-gateway\",{}]"]});
    send(state, session, "READY", ready);
    if wanted & intents::GUILDS == 0 {
        return;
    }
    for guild in guilds {
        if let Some(created) = shapes::guild_create(state, guild, bot, wanted) {
            send(state, session, "GUILD_CREATE", created);
        }
    }
}

fn resume(state: &mut State, now_ms: u64, connection: u64, data: &Value) {
    let bot = bot_of(state, data);
    note(state, now_ms, bot, "resume", json!({"session_id": data["session_id"], "seq": data["seq"]}));
    let Some(bot) = bot else { return close(state, connection, 4004, "Authentication failed.") };
    super::tick(state, now_ms);
    let id = data["session_id"].as_str().unwrap_or_default().to_owned();
    let Some(session) = state.gateway.sessions.get(&id).filter(|session| session.bot == bot) else {
        return invalid(state, connection);
    };
    let Some(seq) = data["seq"].as_u64().filter(|seq| *seq <= session.seq) else {
        return close(state, connection, 4007, "Invalid seq.");
    };
    let Some(missed) = session.kept.after(seq) else {
        state.gateway.sessions.remove(&id);
        return invalid(state, connection);
    };
    if let Some(older) = session.connection {
        push(state, older, Out::Close(4000, "The session was resumed elsewhere."));
    }
    if let Some(session) = state.gateway.sessions.get_mut(&id) {
        session.connection = Some(connection);
    }
    if let Some(found) = state.gateway.connections.get_mut(&connection) {
        found.session = Some(id.clone());
    }
    for frame in missed {
        push(state, connection, Out::Frame(frame));
    }
    send(state, &id, "RESUMED", json!({"_trace": ["[\"fake-gateway\",{}]"]}));
}

/// Opcode 8: a list of members, in chunks.
fn members(state: &mut State, connection: u64, data: &Value) {
    let session = state.gateway.connections.get(&connection).and_then(|found| found.session.clone());
    let (Some(session), Some(guild)) = (session, snowflake::read(&data["guild_id"])) else { return };
    let wanted: Vec<Id> = match &data["user_ids"] {
        Value::Array(ids) => ids.iter().filter_map(snowflake::read).collect(),
        one => snowflake::read(one).into_iter().collect(),
    };
    let query = data["query"].as_str().unwrap_or_default().to_lowercase();
    let limit = data["limit"].as_u64().and_then(|it| usize::try_from(it).ok()).filter(|it| *it > 0);
    let Some(found) = state.guilds.get(&guild) else { return };
    let is_meant = |id: &&Id| {
        let name = state.users.get(id).map(|user| user.username.to_lowercase()).unwrap_or_default();
        if wanted.is_empty() { name.starts_with(&query) } else { wanted.contains(id) }
    };
    let ids: Vec<Id> = found.members.keys().filter(is_meant).copied().take(limit.unwrap_or(usize::MAX)).collect();
    let missing: Vec<Id> = wanted.iter().copied().filter(|id| !found.members.contains_key(id)).collect();
    let count = ids.len().div_ceil(CHUNK).max(1);
    for index in 0..count {
        let part: Vec<Value> =
            ids.iter().skip(index * CHUNK).take(CHUNK).filter_map(|id| shapes::member(state, guild, *id)).collect();
        let mut chunk = json!({"guild_id": guild.to_string(), "members": part, "chunk_index": index,
            "chunk_count": count, "nonce": data["nonce"]});
        if !missing.is_empty() {
            chunk["not_found"] = snowflake::texts(missing.iter().copied());
        }
        if data["presences"] == true {
            chunk["presences"] = json!([]);
        }
        send(state, &session, "GUILD_MEMBERS_CHUNK", chunk);
    }
}
