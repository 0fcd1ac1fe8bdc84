//! Cache of rooms. A room is read when it is needed and kept for a short time; an event that changes it removes it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use frontdesk_wire::BotId;
use tokio::sync::Mutex as AsyncMutex;

use super::client::{Client, Fault};
use super::lock::locked;
use super::room::{MEMBERS_MAX, Room};
use super::room_state::{cut, fetch, mark_direct};

/// Rooms that are remembered, in count and in bytes. When there are more, old ones are forgotten: they are asked again.
const ROOMS_MAX: usize = 4_096;
const ROOMS_MAX_BYTES: usize = 64 << 20;
const KEPT_MS: u64 = 300_000;
/// If members came or left while it was read.
const KEPT_BRIEFLY_MS: u64 = 5_000;
/// Messages that are known as own ones.
const NOTED_MAX: usize = 10_000;

/// A bot, and a room or a message.
type Key = (String, String);

struct CachedRoom {
    room: Arc<Room>,
    /// After this time it is used only as the last known state.
    until_ms: u64,
    bytes: usize,
}

/// What changed in a room while it was being read.
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
    kept: HashMap<Key, CachedRoom>,
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
        self.kept.insert(key.clone(), CachedRoom { room, until_ms: now_ms + kept_ms, bytes });
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
    direct: Mutex<HashMap<BotId, Arc<AsyncMutex<()>>>>,
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
            // Users come and go as they like: that must not cause a look-up for every message.
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

    /// A member came, left, or has another name.
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
        // Over the memory limit: the room is dropped and read again when it is needed.
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

#[cfg(test)]
mod tests {
    use super::super::room::NAME_MAX_CHARS;
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
