//! What is known of rooms. Asked when it is needed and kept for a short time; an event that changes it makes it forgotten.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::ChatInfo;
use serde_json::Value;

use super::account::server_of;
use super::client::{Ask, Client, Fault};

/// Rooms that are remembered. When there are more, all are forgotten: they are asked again.
const ROOMS_MAX: usize = 4_096;
/// Members whose names are remembered; of a larger room only the number.
const MEMBERS_MAX: usize = 500;
/// A list of members that is longer than this is of a large room.
const MEMBERS_MAX_BYTES: usize = 4 << 20;
const KEPT_MS: u64 = 300_000;
/// Rooms in which a notice about encryption was sent; messages that are known as own ones.
const NOTED_MAX: usize = 10_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) name: Option<String>,
    pub(super) topic: Option<String>,
    /// Joined members with their names. Empty in a room with more than `MEMBERS_MAX`.
    pub(super) members: BTreeMap<String, Option<String>>,
    /// How many joined. `None`: too many to say.
    pub(super) joined: Option<usize>,
    pub(super) is_encrypted: bool,
    /// The account data of the bot says that the room is a direct chat, and it has no name.
    pub(super) is_direct: bool,
    /// The server name of the room id; of the creator if the id has none.
    pub(super) scope: Option<String>,
}

impl Room {
    pub(super) fn is_dm(&self) -> bool {
        self.joined == Some(2) || self.is_direct
    }

    /// The one other member of a room of two.
    pub(super) fn other(&self, me: &str) -> Option<&str> {
        let mut others = self.members.keys().filter(|member| *member != me);
        others.next().filter(|_| self.joined == Some(2)).map(String::as_str)
    }

    pub(super) fn name_of(&self, user_id: &str) -> Option<&str> {
        self.members.get(user_id).and_then(Option::as_deref)
    }

    pub(super) fn shown_name(&self, me: &str) -> Option<String> {
        let of_person = || self.other(me).map(|other| self.name_of(other).unwrap_or(other).to_owned());
        self.name.clone().or_else(of_person)
    }

    pub(super) fn chat_type(&self) -> &'static str {
        if self.is_dm() { "dm" } else { "group" }
    }

    pub(super) fn info(&self, room_id: &str, me: &str) -> ChatInfo {
        let name = self.shown_name(me).unwrap_or_else(|| room_id.to_owned());
        ChatInfo { name, chat_type: self.chat_type().into() }
    }
}

/// A bot, and a room or a message.
type Key = (String, String);

struct Kept {
    room: Arc<Room>,
    until_ms: u64,
}

#[derive(Default)]
pub(super) struct Rooms {
    kept: Mutex<HashMap<Key, Kept>>,
    /// Counts what was forgotten: an answer that was asked for before that is not kept.
    forgotten: AtomicU64,
    /// The latest event of a room that no agent has reacted to, for the read receipt.
    unread: Mutex<HashMap<Key, String>>,
    noted: Mutex<HashSet<Key>>,
    /// Messages that bots sent: these can be edited without a question.
    own: Mutex<HashSet<Key>>,
}

fn locked<T>(it: &Mutex<T>) -> MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

fn key(bot: &str, id: &str) -> Key {
    (bot.to_owned(), id.to_owned())
}

impl Rooms {
    /// `None`: the bot is not in such a room.
    pub(super) async fn room(
        &self,
        client: &Client<'_>,
        room_id: &str,
        now_ms: u64,
    ) -> Result<Option<Arc<Room>>, Fault> {
        let key = key(&client.account.bot.id, room_id);
        if let Some(kept) = locked(&self.kept).get(&key).filter(|kept| kept.until_ms > now_ms) {
            return Ok(Some(kept.room.clone()));
        }
        let before = self.forgotten.load(Ordering::SeqCst);
        let Some(room) = fetch(client, room_id).await?.map(Arc::new) else { return Ok(None) };
        let mut kept = locked(&self.kept);
        if self.forgotten.load(Ordering::SeqCst) == before {
            if kept.len() >= ROOMS_MAX {
                kept.clear();
            }
            let it = Kept { room: room.clone(), until_ms: now_ms + KEPT_MS };
            kept.insert(key, it);
        }
        Ok(Some(room))
    }

    pub(super) fn forget(&self, bot: &str, room_id: &str) {
        let mut kept = locked(&self.kept);
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        kept.remove(&key(bot, room_id));
    }

    pub(super) fn note_unread(&self, bot: &str, room_id: &str, event_id: &str) {
        let mut unread = locked(&self.unread);
        if unread.len() >= ROOMS_MAX {
            unread.clear();
        }
        unread.insert(key(bot, room_id), event_id.to_owned());
    }

    pub(super) fn take_unread(&self, bot: &str, room_id: &str) -> Option<String> {
        locked(&self.unread).remove(&key(bot, room_id))
    }

    pub(super) fn note_own(&self, bot: &str, event_id: &str) {
        let mut own = locked(&self.own);
        if own.len() >= NOTED_MAX {
            own.clear();
        }
        own.insert(key(bot, event_id));
    }

    pub(super) fn is_own(&self, bot: &str, event_id: &str) -> bool {
        locked(&self.own).contains(&key(bot, event_id))
    }

    /// Whether this room is told for the first time since the start that it is encrypted.
    pub(super) fn is_first_note(&self, bot: &str, room_id: &str) -> bool {
        let mut noted = locked(&self.noted);
        noted.len() < NOTED_MAX && noted.insert(key(bot, room_id))
    }
}

async fn fetch(client: &Client<'_>, room_id: &str) -> Result<Option<Room>, Fault> {
    let mut room = Room::default();
    let url = client.url(&["client", "v3", "rooms", room_id, "joined_members"], &[]);
    match client.ask(&url, &Ask { max_bytes: MEMBERS_MAX_BYTES, ..Ask::GET }).await {
        Ok(answer) => {
            let Some(joined) = answer["joined"].as_object() else { return Ok(None) };
            if !joined.contains_key(client.account.user_id) {
                return Ok(None);
            }
            room.joined = Some(joined.len());
            if joined.len() <= MEMBERS_MAX {
                let name = |member: &Value| member["display_name"].as_str().map(str::to_owned);
                room.members = joined.iter().map(|(id, member)| (id.clone(), name(member))).collect();
            }
        }
        Err(Fault::TooLarge(_)) => {} // a large room, and certainly no direct chat
        Err(fault) if fault.is_absent() => return Ok(None),
        Err(fault) => return Err(fault),
    }
    room.is_encrypted = state(client, room_id, "m.room.encryption", &[]).await?.is_some();
    room.name = text_of(state(client, room_id, "m.room.name", &[]).await?.as_ref(), "name");
    let is_named = room.name.is_some();
    if !is_named && !room.is_dm() {
        room.name = text_of(state(client, room_id, "m.room.canonical_alias", &[]).await?.as_ref(), "alias");
    }
    room.topic = text_of(state(client, room_id, "m.room.topic", &[]).await?.as_ref(), "topic");
    room.scope = server_of(room_id).map(str::to_owned);
    if room.scope.is_none() {
        let created = state(client, room_id, "m.room.create", &[("format", "event")]).await?;
        room.scope = text_of(created.as_ref(), "sender").as_deref().and_then(server_of).map(str::to_owned);
    }
    // Who names a room of several people has made a group of what was a direct chat.
    if room.joined.is_some_and(|joined| joined > 2) && !is_named {
        // The list may have grown beyond what is read: a room of several people is then a group.
        room.is_direct = match direct_rooms(client).await {
            Ok((_, rooms)) => rooms.iter().any(|direct| direct == room_id),
            Err(Fault::TooLarge(_)) => false,
            Err(fault) => return Err(fault),
        };
    }
    Ok(Some(room))
}

/// A state event with an empty key. `None`: there is none.
async fn state(client: &Client<'_>, room_id: &str, kind: &str, query: &[(&str, &str)]) -> Result<Option<Value>, Fault> {
    match client.get(&["client", "v3", "rooms", room_id, "state", kind, ""], query).await {
        Ok(content) => Ok(Some(content)),
        Err(fault) if fault.is_absent() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The room that this one replaces, as its creator says.
pub(super) async fn predecessor(client: &Client<'_>, room_id: &str) -> Result<Option<String>, Fault> {
    let created = state(client, room_id, "m.room.create", &[]).await?;
    Ok(created.and_then(|content| content["predecessor"]["room_id"].as_str().map(str::to_owned)))
}

/// The room that replaces this one, as its state says.
pub(super) async fn successor(client: &Client<'_>, room_id: &str) -> Result<Option<String>, Fault> {
    let tombstone = state(client, room_id, "m.room.tombstone", &[]).await?;
    Ok(text_of(tombstone.as_ref(), "replacement_room"))
}

fn text_of(content: Option<&Value>, name: &str) -> Option<String> {
    content?[name].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The account data that lists direct chats, and all rooms in it.
async fn direct_rooms(client: &Client<'_>) -> Result<(Value, Vec<String>), Fault> {
    let parts = ["client", "v3", "user", client.account.user_id, "account_data", "m.direct"];
    let data = match client.get(&parts, &[]).await {
        Ok(data) => data,
        Err(fault) if fault.is_absent() => Value::Object(serde_json::Map::new()),
        Err(fault) => return Err(fault),
    };
    let lists = data.as_object().into_iter().flat_map(|map| map.values()).filter_map(Value::as_array);
    let rooms = lists.flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok((data, rooms))
}

/// Notes in the account data that the room is a direct chat with this user, as clients do.
pub(super) async fn mark_direct(client: &Client<'_>, room_id: &str, user_id: &str) -> Result<(), Fault> {
    let (mut data, rooms) = direct_rooms(client).await?;
    let Some(map) = data.as_object_mut().filter(|_| !rooms.iter().any(|it| it == room_id)) else { return Ok(()) };
    match map.entry(user_id).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(list) => list.push(room_id.into()),
        other => *other = Value::Array(vec![room_id.into()]),
    }
    let parts = ["client", "v3", "user", client.account.user_id, "account_data", "m.direct"];
    client.put(&parts, &data).await.map(drop)
}

/// Whether a user is a member, asked now.
pub(super) async fn is_member(client: &Client<'_>, room_id: &str, user_id: &str) -> Result<bool, Fault> {
    match client.get(&["client", "v3", "rooms", room_id, "state", "m.room.member", user_id], &[]).await {
        Ok(content) => Ok(content["membership"] == "join"),
        Err(fault) if fault.is_absent() => Ok(false),
        Err(fault) => Err(fault),
    }
}
