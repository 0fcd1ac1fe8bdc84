//! The position of a bot's listener, and what it still has to read back. It is saved after earlier events were stored,
//! so that a restart loses none of them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::mem::take;
use std::sync::{Mutex, PoisonError};

use frontdesk_core::port::platform::Inlet;
use serde::{Deserialize, Serialize};

use super::snowflake::{first_at, ms_of, shard_of};

/// Direct chats that are remembered: Discord offers bots no list of them.
const DIRECTS_MAX: usize = 200;
/// Ids of different channels do not arrive in order, so reading back begins this much earlier. What was stored is stored
/// once.
const OVERLAP_MS: u64 = 30_000;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Cursor {
    /// The user id of the bot.
    pub(super) me: String,
    /// When the bot listened for the first time, as an id. What is older is not read back.
    pub(super) since: u64,
    /// That of the listener; until each shard had a listener of its own, as many as the bot had.
    pub(super) shards: Vec<ShardCursor>,
    /// The newest message of each shard of the former count, until the first session of this one begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former: Vec<u64>,
    pub(super) missed: Missed,
    /// Direct chats of which something was delivered, the one with the latest message at the end.
    pub(super) directs: Vec<String>,
    /// The others, as far as there is room: any user of Discord can write to a bot.
    pub(super) strangers: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ShardCursor {
    /// Empty: a new session begins.
    pub(super) session_id: String,
    pub(super) sequence: u64,
    pub(super) resume_url: String,
    /// The newest message that was stored: what is after it is missing if the session cannot be resumed.
    pub(super) newest: u64,
}

/// What is still to be read back: guilds and direct chats, each after this message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Missed {
    pub(super) guilds: BTreeMap<String, u64>,
    pub(super) directs: BTreeMap<String, u64>,
    /// Places whose session was lost once more since reading them began, and after which message. It is not saved:
    /// after a restart each place is read from its beginning.
    #[serde(skip)]
    again: BTreeMap<String, u64>,
    /// Since something was missed last, for guilds and for direct chats.
    pub(super) spent: Spent,
    pub(super) spent_directly: Spent,
}

/// What reading back has cost so far, because it is bounded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Spent {
    pub(super) requests: u32,
    pub(super) messages: u32,
}

impl Spent {
    pub(super) fn add(&mut self, more: Self) {
        self.requests = self.requests.saturating_add(more.requests);
        self.messages = self.messages.saturating_add(more.messages);
    }

    pub(super) fn reaches(self, most: Self) -> bool {
        self.requests >= most.requests || self.messages >= most.messages
    }
}

impl Missed {
    pub(super) fn is_empty(&self) -> bool {
        self.guilds.is_empty() && self.directs.is_empty()
    }

    /// Reading of a guild or direct chat starts at its saved message, which covers all losses so far.
    pub(super) fn begin(&mut self, id: &str) {
        self.again.remove(id);
    }

    /// The place was read. Messages missed since reading began remain to be read.
    pub(super) fn finish(&mut self, id: &str) {
        let again = self.again.remove(id);
        for places in [&mut self.guilds, &mut self.directs] {
            match (again, places.get_mut(id)) {
                (Some(newer), Some(after)) => *after = newer,
                _ => drop(places.remove(id)),
            }
        }
    }
}

/// Adds a place to read. One that is listed already keeps its older position.
fn miss_in(places: &mut BTreeMap<String, u64>, again: &mut BTreeMap<String, u64>, id: String, after: u64) {
    match places.entry(id) {
        Entry::Vacant(place) => {
            again.remove(place.key()); // of a place that was given up
            place.insert(after);
        }
        Entry::Occupied(place) => drop(again.entry(place.key().clone()).or_insert(after)),
    }
}

/// Before there were shards.
#[derive(Deserialize)]
struct Former {
    session_id: String,
    sequence: u64,
    resume_url: String,
    #[serde(default)]
    newest: u64,
}

impl Cursor {
    /// A cursor that cannot be read is a new start.
    pub(super) fn read(saved: Option<&str>) -> Self {
        let Some(saved) = saved else { return Self::default() };
        if let Ok(Former { session_id, sequence, resume_url, newest }) = serde_json::from_str(saved) {
            let shard = ShardCursor { session_id, sequence, resume_url, newest };
            return Self { shards: vec![shard], ..Self::default() };
        }
        serde_json::from_str(saved).unwrap_or_default()
    }

    pub(super) fn shard_count(&self) -> u32 {
        u32::try_from(self.shards.len()).unwrap_or(u32::MAX)
    }

    /// Where each of so many shards begins. The cursors are those of all shards of the former count, or the one that had
    /// all of them.
    pub(super) fn divide(cursors: &[Option<String>], count: u32) -> Vec<Self> {
        let all = match cursors {
            [one] => Self::read(one.as_deref()),
            several => {
                several.iter().map(|it| Self::read(it.as_deref()).for_shards(1)).fold(Self::default(), Self::with)
            }
        };
        let all = all.for_shards(count);
        (0..count).map(|number| all.part(number)).collect()
    }

    /// Adds the shards of another part's cursor, and what that part still has to read back.
    fn with(mut self, other: Self) -> Self {
        if self.me.is_empty() {
            self.me = other.me;
        }
        self.since = [self.since, other.since].into_iter().filter(|since| *since > 0).min().unwrap_or(0);
        self.shards.extend(other.shards);
        let Missed { guilds, directs, spent, spent_directly, .. } = &mut self.missed;
        for (places, more) in [(guilds, other.missed.guilds), (directs, other.missed.directs)] {
            for (id, after) in more {
                places.entry(id).and_modify(|known| *known = after.min(*known)).or_insert(after);
            }
        }
        spent.add(other.missed.spent);
        spent_directly.add(other.missed.spent_directly);
        self.directs.extend(other.directs);
        self.strangers.extend(other.strangers);
        self
    }

    /// The part of the cursor for one shard. Direct chats belong to the first shard.
    fn part(&self, number: u32) -> Self {
        let (mut part, count) = (self.clone(), self.shard_count());
        part.shards = self.shards.get(number as usize).cloned().into_iter().collect();
        part.missed.guilds.retain(|guild, _| shard_of(guild, count) == number);
        if number > 0 {
            part.missed.directs.clear();
            part.directs.clear();
            part.strangers.clear();
        }
        part
    }

    /// Converts the cursor to this number of shards. Sessions of another number cannot be resumed; messages since then
    /// are read back.
    pub(super) fn for_shards(mut self, count: u32) -> Self {
        if self.shards.len() != count as usize {
            // A quiet shard has an old position, so each guild is read from the position of its own former shard.
            self.former = self.shards.iter().map(|shard| shard.newest).collect();
            let newest = self.former.iter().copied().filter(|newest| *newest > 0).min();
            let fresh = ShardCursor { newest: newest.unwrap_or(0), ..ShardCursor::default() };
            self.shards = vec![fresh; count as usize];
        }
        self
    }

    /// The session of a shard was lost after this message.
    pub(super) fn miss(&mut self, shard: u32, newest: u64, guilds: Vec<String>) {
        let former = take(&mut self.former);
        let count = u32::try_from(former.len()).unwrap_or(u32::MAX);
        let after = |number: u32| {
            let was = former.get(number as usize).copied().filter(|newest| *newest > 0);
            after(self.since, was.unwrap_or(newest))
        };
        let Missed { guilds: missed, directs, again, spent, spent_directly } = &mut self.missed;
        (*spent, *spent_directly) = (Spent::default(), Spent::default());
        for guild in guilds {
            let after = after(shard_of(&guild, count));
            miss_in(missed, again, guild, after);
        }
        if shard == 0 {
            for channel in self.strangers.iter().chain(&self.directs) {
                miss_in(directs, again, channel.clone(), after(0));
            }
        }
    }

    /// A message was written in a direct chat.
    pub(super) fn note_direct(&mut self, channel_id: &str, is_delivered: bool) {
        let Self { directs, strangers, .. } = self;
        let is_known = is_delivered || directs.iter().any(|known| known == channel_id);
        for chats in [&mut *directs, &mut *strangers] {
            chats.retain(|chat| chat != channel_id);
        }
        if is_known { &mut *directs } else { &mut *strangers }.push(channel_id.to_owned());
        if directs.len() + strangers.len() > DIRECTS_MAX {
            if strangers.is_empty() { directs } else { strangers }.remove(0);
        }
    }
}

/// Where reading back begins.
fn after(since: u64, newest: u64) -> u64 {
    first_at(ms_of(newest).saturating_sub(OVERLAP_MS)).max(since)
}

/// The cursor of a running listener, which its store and what reads back change.
pub(super) struct Progress<'a> {
    cursor: Mutex<Cursor>,
    inlet: &'a dyn Inlet,
    /// Holds what was saved last. Saves are made one after another: an older one must not be the last.
    saved: tokio::sync::Mutex<Option<Cursor>>,
}

impl<'a> Progress<'a> {
    pub(super) fn new(cursor: Cursor, inlet: &'a dyn Inlet) -> Self {
        Self { cursor: Mutex::new(cursor), inlet, saved: tokio::sync::Mutex::default() }
    }

    pub(super) fn read<T>(&self, with: impl FnOnce(&Cursor) -> T) -> T {
        with(&self.cursor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Only for what was stored: the other one may save it at once.
    pub(super) fn change<T>(&self, with: impl FnOnce(&mut Cursor) -> T) -> T {
        with(&mut self.cursor.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn shard(&self) -> ShardCursor {
        self.read(|cursor| cursor.shards.first().cloned().unwrap_or_default())
    }

    pub(super) async fn save(&self) -> Result<(), String> {
        let mut saved = self.saved.lock().await;
        let now = self.read(Cursor::clone);
        if saved.as_ref() == Some(&now) {
            return Ok(());
        }
        let text = serde_json::to_string(&now).map_err(|error| error.to_string())?;
        self.inlet.save_cursor(text).await.map_err(|error| format!("saving the cursor failed: {error}"))?;
        *saved = Some(now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEWEST: u64 = 1_100_000_000_000_000_000;

    fn listened() -> Cursor {
        let shard = ShardCursor { session_id: "s".into(), sequence: 7, newest: NEWEST, ..ShardCursor::default() };
        Cursor { me: "1".into(), since: 9, shards: vec![shard], ..Cursor::default() }
    }

    #[test]
    fn a_cursor_of_an_earlier_version_goes_on() {
        let former = r#"{"session_id":"s","sequence":7,"resume_url":"wss://x","newest":5}"#;
        let shard = ShardCursor { session_id: "s".into(), sequence: 7, resume_url: "wss://x".into(), newest: 5 };
        assert_eq!(Cursor::read(Some(former)).shards, [shard]);
        let cursor = listened();
        assert_eq!(Cursor::read(Some(&serde_json::to_string(&cursor).unwrap())), cursor);
        assert_eq!((Cursor::read(Some("[")), Cursor::read(None)), (Cursor::default(), Cursor::default()));
    }

    #[test]
    fn another_count_of_shards_drops_the_sessions_and_keeps_what_is_missing() {
        let mut cursor = listened();
        cursor.shards.push(ShardCursor { newest: NEWEST - 5, ..ShardCursor::default() });
        cursor.shards.push(ShardCursor::default());
        cursor.missed.guilds.insert("3".into(), 4);
        assert_eq!(cursor.clone().for_shards(3), cursor);
        let other = cursor.clone().for_shards(2);
        assert_eq!(other.shards, vec![ShardCursor { newest: NEWEST - 5, ..ShardCursor::default() }; 2]);
        assert_eq!(other.missed, cursor.missed);
    }

    /// An id on this shard of so many.
    fn guild_on(shard: u64, count: u64) -> String {
        ((12 * count + shard) << 22).to_string()
    }

    fn divide(cursors: &[Cursor], count: u32) -> Vec<Cursor> {
        let texts: Vec<_> = cursors.iter().map(|it| Some(serde_json::to_string(it).unwrap())).collect();
        Cursor::divide(&texts, count)
    }

    #[test]
    fn a_cursor_with_all_shards_is_divided_without_a_loss() {
        let mut all = listened();
        for number in 1..3 {
            let session_id = format!("s{number}");
            all.shards.push(ShardCursor { session_id, sequence: number, newest: NEWEST, ..ShardCursor::default() });
        }
        all.directs = vec!["d".into()];
        all.strangers = vec!["e".into()];
        all.missed.directs.insert("d".into(), 4);
        for shard in 0..3 {
            all.missed.guilds.insert(guild_on(shard, 3), 5);
        }
        let parts = divide(std::slice::from_ref(&all), 3);
        for (shard, part) in parts.iter().enumerate() {
            assert_eq!(part.shards, [all.shards[shard].clone()], "the session is resumed");
            assert_eq!(part.missed.guilds.keys().collect::<Vec<_>>(), [&guild_on(shard as u64, 3)]);
            assert_eq!((part.me.as_str(), part.since, part.former.len()), ("1", 9, 0));
            assert_eq!(
                part.directs.is_empty() && part.strangers.is_empty() && part.missed.directs.is_empty(),
                shard > 0
            );
        }
        // And back again.
        let back = divide(&parts, 1).remove(0);
        assert_eq!((&back.missed.guilds, &back.missed.directs), (&all.missed.guilds, &all.missed.directs));
        assert_eq!((back.directs, back.strangers, back.me, back.since), (all.directs, all.strangers, all.me, 9));
        assert_eq!(back.shards, [ShardCursor { newest: NEWEST, ..ShardCursor::default() }], "its session is lost");
    }

    #[test]
    fn after_another_count_each_guild_is_read_from_where_its_shard_was() {
        let mut parts = divide(&[listened()], 2);
        let quiet = first_at(ms_of(NEWEST) - 1_000_000_000);
        (parts[0].shards[0].newest, parts[1].shards[0].newest) = (NEWEST, quiet);
        let new = divide(&parts, 3);
        assert!(new.iter().all(|part| part.shards[0].session_id.is_empty() && part.shards[0].newest == quiet));
        let mut first = new[0].clone();
        first.directs = vec!["d".into()];
        let on_both =
            |of_two| (0..6).map(|it| guild_on(it, 6)).find(|it| shard_of(it, 3) == 0 && shard_of(it, 2) == of_two);
        let [busy, silent] = [0, 1].map(|of_two| on_both(of_two).unwrap());
        first.miss(0, first.shards[0].newest, vec![busy.clone(), silent.clone()]);
        assert_eq!(first.missed.guilds[&busy], after(9, NEWEST));
        assert_eq!(first.missed.guilds[&silent], after(9, quiet));
        assert_eq!(first.missed.directs["d"], after(9, NEWEST), "they came to the first shard");
        first.miss(0, NEWEST + 1, vec!["77".into()]);
        assert_eq!(first.missed.guilds["77"], after(9, NEWEST + 1), "from then on by its own session");
        // A part that never began, and a bot that never listened.
        assert_eq!(
            Cursor::divide(&[None, None], 3),
            vec![Cursor { shards: vec![ShardCursor::default()], former: vec![0, 0], ..Cursor::default() }; 3]
        );
        assert_eq!(Cursor::divide(&[None], 1), [Cursor { shards: vec![ShardCursor::default()], ..Cursor::default() }]);
    }

    #[test]
    fn what_is_missing_is_read_from_a_little_before_the_newest_message() {
        let mut cursor = listened();
        cursor.directs = vec!["d".into()];
        cursor.missed.guilds.insert("3".into(), 4);
        cursor.miss(0, NEWEST, vec!["3".into(), "5".into()]);
        let after = cursor.missed.guilds["5"];
        assert_eq!(ms_of(NEWEST) - ms_of(after), OVERLAP_MS);
        assert_eq!(cursor.missed.guilds["3"], 4, "it was not read before");
        assert_eq!(cursor.missed.directs["d"], after);
        cursor.since = NEWEST - 1;
        cursor.miss(1, NEWEST, vec!["6".into()]);
        assert_eq!(cursor.missed.guilds["6"], NEWEST - 1, "never from before the bot listened");
    }

    #[test]
    fn what_is_missed_again_while_it_is_read_is_read_again() {
        let mut cursor = listened();
        cursor.directs = vec!["d".into()];
        let later = first_at(ms_of(NEWEST) + 600_000);
        cursor.miss(0, NEWEST, vec!["3".into(), "5".into()]);
        let (first, second) = (after(cursor.since, NEWEST), after(cursor.since, later));
        cursor.missed.begin("3");
        cursor.missed.begin("d");
        cursor.miss(0, later, vec!["3".into(), "5".into()]);
        cursor.miss(0, later + (60_000 << 22), vec!["3".into()]);
        assert_eq!(cursor.missed.guilds["3"], first, "a restart begins there");
        cursor.missed.finish("3");
        cursor.missed.finish("d");
        assert_eq!((cursor.missed.guilds["3"], cursor.missed.directs["d"]), (second, second));
        cursor.missed.begin("5"); // only now, so once is enough
        for id in ["3", "5", "d"] {
            cursor.missed.finish(id);
        }
        assert!(cursor.missed.is_empty(), "{:?}", cursor.missed);
    }

    #[test]
    fn direct_chats_are_remembered_up_to_a_bound() {
        let mut cursor = Cursor::default();
        for number in 0..=DIRECTS_MAX {
            cursor.note_direct(&number.to_string(), true);
        }
        cursor.note_direct("1", false);
        assert_eq!(cursor.directs.len(), DIRECTS_MAX);
        assert_eq!((cursor.directs[0].as_str(), cursor.directs[DIRECTS_MAX - 1].as_str()), ("2", "1"));
    }

    #[test]
    fn strangers_do_not_push_out_direct_chats_that_are_delivered() {
        let mut cursor = Cursor::default();
        cursor.note_direct("ann", false);
        cursor.note_direct("ann", true);
        for number in 0..2 * DIRECTS_MAX {
            cursor.note_direct(&number.to_string(), false);
        }
        assert_eq!((cursor.directs.as_slice(), cursor.strangers.len()), (&["ann".to_owned()][..], DIRECTS_MAX - 1));
        cursor.miss(0, NEWEST, Vec::new());
        assert_eq!(cursor.missed.directs.len(), DIRECTS_MAX);
    }
}
