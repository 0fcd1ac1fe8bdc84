//! What is known of rooms. Asked when it is needed and kept for a short time; an event that changes it makes it forgotten.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};

use frontdesk_wire::ChatInfo;
use futures_util::future;
use serde_json::Value;
use tokio::sync::Mutex as AsyncMutex;

use super::account::server_of;
use super::client::{Ask, Client, Fault};
use super::lock::locked;

/// Rooms that are remembered, in count and in bytes. When there are more, old ones are forgotten: they are asked again.
const ROOMS_MAX: usize = 4_096;
const ROOMS_MAX_BYTES: usize = 64 << 20;
/// Of a name or a topic.
const NAME_MAX_CHARS: usize = 256;
/// Members whose names are remembered; of a larger room only the number.
const MEMBERS_MAX: usize = 500;
/// What a member takes beside its id and name.
const MEMBER_BYTES: usize = 64;
/// A list of members that is longer than this is of a large room.
const MEMBERS_MAX_BYTES: usize = 4 << 20;
const KEPT_MS: u64 = 300_000;
/// If somebody came or went while it was asked for.
const KEPT_BRIEFLY_MS: u64 = 5_000;
/// Messages that are known as own ones.
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
    /// What can be told from its id alone.
    pub(super) fn unknown(room_id: &str) -> Self {
        Self { scope: server_of(room_id).map(str::to_owned), ..Self::default() }
    }

    /// Two people in a room that has a name talk about something; without a name they talk to each other.
    pub(super) fn is_dm(&self) -> bool {
        self.is_direct || (self.joined == Some(2) && self.name.is_none())
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

    /// About what it takes to remember it.
    fn bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let members: usize = self.members.iter().map(|(id, name)| MEMBER_BYTES + id.len() + of(name)).sum();
        members + of(&self.name) + of(&self.topic) + of(&self.scope)
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
    /// Later than this it is only the last that was known.
    until_ms: u64,
    bytes: usize,
}

/// What happened in a room while it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Meanwhile {
    Nothing,
    Members,
    State,
}

/// Questions about one room that are under way.
struct Asked {
    count: usize,
    meanwhile: Meanwhile,
}

#[derive(Default)]
struct Memory {
    kept: HashMap<Key, Kept>,
    /// Of all that are kept.
    bytes: usize,
    asked: HashMap<Key, Asked>,
}

impl Memory {
    fn keep(&mut self, key: &Key, room: Arc<Room>, now_ms: u64, kept_ms: u64) {
        self.remove(key);
        let bytes = room.bytes();
        let is_full = |this: &Self| this.kept.len() >= ROOMS_MAX || this.bytes + bytes > ROOMS_MAX_BYTES;
        if is_full(self) {
            self.kept.retain(|_, kept| kept.until_ms > now_ms);
            self.bytes = self.kept.values().map(|kept| kept.bytes).sum();
        }
        // Many rooms at once push out any of them, and not all.
        while is_full(self) {
            let Some(any) = self.kept.keys().next().cloned() else { break };
            self.remove(&any);
        }
        self.bytes += bytes;
        self.kept.insert(key.clone(), Kept { room, until_ms: now_ms + kept_ms, bytes });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.kept.remove(key) {
            self.bytes -= kept.bytes;
        }
    }

    fn happened(&mut self, key: &Key, what: Meanwhile) {
        if let Some(asked) = self.asked.get_mut(key) {
            asked.meanwhile = asked.meanwhile.max(what);
        }
    }
}

#[derive(Default)]
pub(super) struct Rooms {
    memory: Mutex<Memory>,
    /// The latest event of a room that no agent has reacted to, for the read receipt.
    unread: Mutex<HashMap<Key, String>>,
    /// Messages that bots sent: these can be edited without a question.
    own: Mutex<HashSet<Key>>,
    /// Rooms that show a bot as typing, and until when.
    typing: Mutex<HashMap<Key, u64>>,
    /// For each bot, held while its list of direct chats is changed.
    direct: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
}

fn key(bot: &str, id: &str) -> Key {
    (bot.to_owned(), id.to_owned())
}

/// Ends with the question, also if that is dropped.
struct Asking<'a> {
    memory: &'a Mutex<Memory>,
    key: &'a Key,
}

impl<'a> Asking<'a> {
    fn begin(memory: &'a Mutex<Memory>, key: &'a Key) -> Self {
        let mut inner = locked(memory);
        let asked = inner.asked.entry(key.clone()).or_insert(Asked { count: 0, meanwhile: Meanwhile::Nothing });
        asked.count += 1;
        Self { memory, key }
    }

    fn meanwhile(&self) -> Meanwhile {
        locked(self.memory).asked.get(self.key).map_or(Meanwhile::State, |asked| asked.meanwhile)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut inner = locked(self.memory);
        if let Some(asked) = inner.asked.get_mut(self.key) {
            asked.count -= 1;
            if asked.count == 0 {
                inner.asked.remove(self.key);
            }
        }
    }
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
        if let Some(kept) = locked(&self.memory).kept.get(&key).filter(|kept| kept.until_ms > now_ms) {
            return Ok(Some(kept.room.clone()));
        }
        let asking = Asking::begin(&self.memory, &key);
        let Some(room) = fetch(client, room_id).await?.map(Arc::new) else { return Ok(None) };
        let kept_ms = match asking.meanwhile() {
            Meanwhile::Nothing => KEPT_MS,
            // Strangers come and go as they like: that must not make every message a question.
            Meanwhile::Members => KEPT_BRIEFLY_MS,
            Meanwhile::State => 0,
        };
        locked(&self.memory).keep(&key, room.clone(), now_ms, kept_ms);
        Ok(Some(room))
    }

    /// What was known of the room last, however long ago.
    pub(super) fn last_known(&self, bot: &str, room_id: &str) -> Option<Arc<Room>> {
        locked(&self.memory).kept.get(&key(bot, room_id)).map(|kept| kept.room.clone())
    }

    /// The room is asked about again.
    pub(super) fn forget(&self, bot: &str, room_id: &str) {
        let key = key(bot, room_id);
        let mut memory = locked(&self.memory);
        memory.happened(&key, Meanwhile::State);
        if let Some(kept) = memory.kept.get_mut(&key) {
            kept.until_ms = 0;
        }
    }

    /// Somebody came, went, or has another name.
    pub(super) fn apply_member(&self, bot: &str, room_id: &str, user_id: &str, is_in: bool, name: Option<&str>) {
        let key = key(bot, room_id);
        let mut memory = locked(&self.memory);
        memory.happened(&key, Meanwhile::Members);
        let Some(kept) = memory.kept.get_mut(&key) else { return };
        // The members of a large room are not known, and it stays one.
        if kept.room.members.is_empty() {
            return;
        }
        let room = Arc::make_mut(&mut kept.room);
        match is_in {
            true => drop(room.members.insert(user_id.to_owned(), name.map(cut))),
            false => drop(room.members.remove(user_id)),
        }
        room.joined = Some(room.members.len());
        if room.members.len() > MEMBERS_MAX {
            room.members.clear();
        }
        let bytes = room.bytes();
        let before = std::mem::replace(&mut kept.bytes, bytes);
        memory.bytes = memory.bytes + bytes - before;
        // Forgotten altogether, because there is no place for more.
        if memory.bytes > ROOMS_MAX_BYTES {
            memory.remove(&key);
        }
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

    /// `until_ms`: `None` if the bot is no longer shown as typing.
    pub(super) fn note_typing(&self, bot: &str, room_id: &str, until_ms: Option<u64>) {
        let mut typing = locked(&self.typing);
        if typing.len() >= ROOMS_MAX {
            typing.clear(); // the homeserver ends it by itself
        }
        match until_ms {
            Some(until_ms) => drop(typing.insert(key(bot, room_id), until_ms)),
            None => drop(typing.remove(&key(bot, room_id))),
        }
    }

    /// Whether the bot is shown as typing.
    pub(super) fn take_typing(&self, bot: &str, room_id: &str, now_ms: u64) -> bool {
        locked(&self.typing).remove(&key(bot, room_id)).is_some_and(|until_ms| until_ms > now_ms)
    }

    /// Notes in the account data that the room is a direct chat with this user, as clients do. The whole list is read and
    /// written, so one join at a time does it.
    pub(super) async fn mark_direct(&self, client: &Client<'_>, room_id: &str, user_id: &str) -> Result<(), Fault> {
        let lock = locked(&self.direct).entry(client.account.bot.id.clone()).or_default().clone();
        let _held = lock.lock().await;
        mark_direct(client, room_id, user_id).await
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
                let name = |member: &Value| member["display_name"].as_str().map(cut);
                room.members = joined.iter().map(|(id, member)| (id.clone(), name(member))).collect();
            }
        }
        Err(Fault::TooLarge(_)) => {} // a large room, and certainly no direct chat
        Err(fault) if fault.is_absent() => return Ok(None),
        Err(fault) => return Err(fault),
    }
    let (encryption, name, alias, topic, direct) = future::try_join5(
        state(client, room_id, "m.room.encryption", &[]),
        state(client, room_id, "m.room.name", &[]),
        state(client, room_id, "m.room.canonical_alias", &[]),
        state(client, room_id, "m.room.topic", &[]),
        is_direct(client, room_id),
    )
    .await?;
    room.is_encrypted = encryption.is_some();
    room.name = text_of(name.as_ref(), "name").or_else(|| text_of(alias.as_ref(), "alias")).as_deref().map(cut);
    room.topic = text_of(topic.as_ref(), "topic").as_deref().map(cut);
    // Who names a room of several people has made a group of what was a direct chat.
    let is_small = room.joined.is_some_and(|joined| joined <= 2);
    room.is_direct = direct && (is_small || text_of(name.as_ref(), "name").is_none());
    room.scope = server_of(room_id).map(str::to_owned);
    if room.scope.is_none() {
        let created = state(client, room_id, "m.room.create", &[("format", "event")]).await?;
        room.scope = text_of(created.as_ref(), "sender").as_deref().and_then(server_of).map(str::to_owned);
    }
    Ok(Some(room))
}

/// Whether the account data lists the room as a direct chat. If the list has grown beyond what is read, it is not known.
async fn is_direct(client: &Client<'_>, room_id: &str) -> Result<bool, Fault> {
    match direct_rooms(client).await {
        Ok((_, rooms)) => Ok(rooms.iter().any(|direct| direct == room_id)),
        Err(Fault::TooLarge(_)) => Ok(false),
        Err(fault) => Err(fault),
    }
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

/// Anybody can give a name of any length.
fn cut(name: &str) -> String {
    name.chars().take(NAME_MAX_CHARS).collect()
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

async fn mark_direct(client: &Client<'_>, room_id: &str, user_id: &str) -> Result<(), Fault> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn large(n: usize) -> Arc<Room> {
        let members = (0..MEMBERS_MAX).map(|at| (format!("@{at}:x"), Some("\u{1f600}".repeat(NAME_MAX_CHARS))));
        Arc::new(Room {
            members: members.collect(),
            joined: Some(MEMBERS_MAX),
            name: Some(n.to_string()),
            ..Room::default()
        })
    }

    fn is_right(memory: &Memory) -> bool {
        memory.bytes == memory.kept.values().map(|kept| kept.room.bytes()).sum::<usize>()
    }

    /// Regression: rooms with long names had no bound in bytes.
    #[test]
    fn the_memory_of_rooms_is_bounded_in_bytes() {
        let rooms = Rooms::default();
        for n in 0..200 {
            locked(&rooms.memory).keep(&key("b", &n.to_string()), large(n), 0, 1);
            let memory = locked(&rooms.memory);
            assert!(memory.bytes <= ROOMS_MAX_BYTES && is_right(&memory));
        }
        let count = locked(&rooms.memory).kept.len();
        assert!((50..200).contains(&count), "{count}");
        assert!(rooms.last_known("b", "199").is_some(), "the latest is kept");
        rooms.apply_member("b", "199", "@0:x", true, Some(&"n".repeat(10_000)));
        assert_eq!(rooms.last_known("b", "199").unwrap().name_of("@0:x").map(str::len), Some(NAME_MAX_CHARS));
        rooms.apply_member("b", "199", "@new:x", true, None);
        assert!(rooms.last_known("b", "199").unwrap().members.is_empty(), "a large room");
        assert!(is_right(&locked(&rooms.memory)));
    }
}
