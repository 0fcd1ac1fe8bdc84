//! Work of a bot's listener beside its polls, repeated until it succeeds: joins, and rooms whose events could not be
//! read in time. It is saved with the cursor, so that a restart loses none of it.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Mutex;
use std::time::Duration;

use frontdesk_core::port::platform::Gap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::account::server_of;
use super::deadline::FIRST_LIMIT;
use super::lock::locked;

/// Rooms that wait to be read later. When the list is full, a further room is read at once, and look-ups that take
/// too long are left out.
const BEHIND_MAX: usize = 64;
/// Tasks of all other kinds. Users of other servers can cause them, so further ones are refused.
const OTHERS_MAX: usize = 64;
/// Limit within `OTHERS_MAX` for all users of one other server together, and for one user of the bot's own server.
const BY_ONE_MAX: usize = 8;
/// Attempts that reached the homeserver before a task is given up: about twenty minutes.
pub(super) const ATTEMPTS_MAX: u32 = 12;
const PAUSE_MIN: Duration = Duration::from_secs(2);
pub(super) const PAUSE_MAX: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Task {
    /// Accept or reject an invitation.
    Invited { room_id: String, inviter: String, is_direct: bool },
    /// Read what was said between the invitation and the join, which is not pushed.
    Earlier { room_id: String },
    /// Follow an upgraded room.
    Moved { room_id: String, to: String, sender: String },
    /// Notify the room that the bot cannot read encrypted messages.
    Tell { room_id: String },
    /// Read the events since this token. Without one: since the token of the listener that it is handed to.
    Behind { room_id: String, since: String },
}

impl Task {
    pub(super) fn room_id(&self) -> &str {
        match self {
            Self::Invited { room_id, .. }
            | Self::Earlier { room_id }
            | Self::Moved { room_id, .. }
            | Self::Tell { room_id }
            | Self::Behind { room_id, .. } => room_id,
        }
    }

    /// One of each kind per room.
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.room_id() == other.room_id()
    }

    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Behind { .. })
    }

    /// Reads pages of events, which waits for the homeserver where it is. All others can begin anew.
    pub(super) fn is_read(&self) -> bool {
        matches!(self, Self::Behind { .. } | Self::Earlier { .. })
    }

    /// The user who caused it, if that may be an unknown one.
    fn cause(&self) -> Option<&str> {
        match self {
            Self::Invited { inviter, .. } => Some(inviter),
            Self::Moved { sender, .. } => Some(sender),
            Self::Earlier { .. } | Self::Tell { .. } | Self::Behind { .. } => None,
        }
    }

    /// What is lost when it is given up, and why.
    pub(super) fn loss(&self, fault: &dyn Display, now_ms: u64) -> Gap {
        let room_id = self.room_id();
        let reason = match self {
            Self::Invited { inviter, .. } => {
                format!("room {room_id}: the invitation of {inviter} was not accepted; invite the bot again: {fault}")
            }
            Self::Moved { to, .. } => {
                format!(
                    "room {room_id}: it was replaced by {to}, which the bot could not join; invite it there: {fault}"
                )
            }
            Self::Tell { .. } => format!("room {room_id}: the notice about its encryption was not sent: {fault}"),
            Self::Earlier { .. } | Self::Behind { .. } => format!("room {room_id}: events cannot be read: {fault}"),
        };
        Gap { since_ms: 0, until_ms: now_ms, reason }
    }
}

/// Before the attempt after this many.
pub(super) fn pause(attempts: u32) -> Duration {
    match attempts {
        0 => Duration::ZERO,
        _ => (PAUSE_MIN * 2_u32.saturating_pow((attempts - 1).min(16))).min(PAUSE_MAX),
    }
}

/// The result of noting a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    New,
    /// The same task is in the list already.
    Known,
    /// Too many tasks; the text says of which kind.
    Refused(&'static str),
}

/// The position of a listener: the token of the next poll, and the pending tasks.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) tasks: Vec<Task>,
    /// Rooms of `Behind` tasks that got further events since the task was started.
    #[serde(skip)]
    pub(super) skipped: HashSet<String>,
    /// Tasks that were begun and did not end.
    #[serde(skip)]
    in_flight: Vec<Task>,
    /// The server of the bot.
    #[serde(skip)]
    pub(super) own_server: String,
    /// `Behind` tasks read up to the present. If false, they read up to the token of the latest poll, where polling
    /// continues.
    #[serde(skip)]
    pub(super) reads_to_now: bool,
}

impl Cursor {
    /// Also returns what could not be read. A token alone is valid too.
    pub(super) fn read(cursor: Option<String>) -> (Self, Vec<String>) {
        let Some(text) = cursor.filter(|it| !it.is_empty()) else { return (Self::default(), Vec::new()) };
        if !text.starts_with('{') {
            return (Self { since: Some(text), ..Self::default() }, Vec::new());
        }
        let Ok(Value::Object(whole)) = serde_json::from_str(&text) else {
            return (Self::default(), vec!["the saved cursor is not valid JSON; the sync starts anew".into()]);
        };
        let mut this = Self { since: whole.get("since").and_then(Value::as_str).map(str::to_owned), ..Self::default() };
        let mut unread = Vec::new();
        // Another version of this server may know more kinds.
        for task in whole.get("tasks").and_then(Value::as_array).into_iter().flatten() {
            match Task::deserialize(task) {
                Ok(task) => this.tasks.push(task),
                Err(error) => {
                    let room_id = task["room_id"].as_str().unwrap_or("not named");
                    let kind = task["kind"].as_str().unwrap_or("not named");
                    unread.push(format!("room {room_id}: a saved task of the kind {kind} was not done: {error}"));
                }
            }
        }
        (this, unread)
    }

    pub(super) fn to_text(&self) -> String {
        match &self.since {
            Some(since) if self.tasks.is_empty() => since.clone(),
            _ => serde_json::to_string(self).unwrap_or_default(),
        }
    }

    pub(super) fn is_behind(&self, room_id: &str) -> bool {
        self.tasks.iter().any(|it| it.is_behind() && it.room_id() == room_id)
    }

    /// Rooms that may still be noted to be read later.
    pub(super) fn free_behind(&self) -> usize {
        BEHIND_MAX.saturating_sub(self.tasks.iter().filter(|it| it.is_behind()).count())
    }

    /// A newer task replaces one like it, because what it asks for is what counts now. Only the events since a token
    /// are all wanted.
    pub(super) fn add(&mut self, task: &Task) -> Added {
        if let Some(like) = self.tasks.iter_mut().find(|it| it.is_like(task)) {
            if task.is_behind() || like == task {
                return Added::Known;
            }
            *like = task.clone();
            return Added::New;
        }
        if !task.is_behind() && self.tasks.iter().filter(|it| !it.is_behind()).count() >= OTHERS_MAX {
            return Added::Refused("too many joins and notices of this bot wait");
        }
        if self.tasks.iter().filter(|it| self.is_same_cause(task, it)).count() >= BY_ONE_MAX {
            return Added::Refused("too many joins that were caused by the same user or server wait");
        }
        self.tasks.push(task.clone());
        Added::New
    }

    /// Other servers can make users as they like, so these count together.
    fn is_same_cause(&self, one: &Task, other: &Task) -> bool {
        let Some((one, other)) = one.cause().zip(other.cause()) else { return false };
        let server = server_of(one);
        one == other || (server == server_of(other) && server != Some(self.own_server.as_str()))
    }

    /// `false`: one like it is in progress. When that has ended, this one is begun.
    pub(super) fn begin(&mut self, task: &Task) -> bool {
        let is_free = !self.in_flight.iter().any(|it| it.is_like(task));
        if is_free {
            self.in_flight.push(task.clone());
        }
        is_free
    }

    /// Returns the task that has replaced it.
    pub(super) fn end(&mut self, task: &Task) -> Option<Task> {
        self.tasks.retain(|it| it != task);
        self.in_flight.retain(|it| it != task);
        self.tasks.iter().find(|it| it.is_like(task)).cloned()
    }

    pub(super) fn is_replaced(&self, task: &Task) -> bool {
        !self.tasks.contains(task)
    }
}

/// A task for a listener, and the channel that confirms that it is saved.
pub(super) type QueuedTask = (Task, oneshot::Sender<()>);

/// The listeners of bots whose events are pushed.
#[derive(Default)]
pub(super) struct TaskQueue(Mutex<HashMap<String, mpsc::Sender<QueuedTask>>>);

impl TaskQueue {
    /// For the listener of this bot. One that ended is recognized by its closed channel.
    pub(super) fn open(&self, bot: &str) -> mpsc::Receiver<QueuedTask> {
        let (sender, receiver) = mpsc::channel(OTHERS_MAX);
        locked(&self.0).insert(bot.to_owned(), sender);
        receiver
    }

    /// `false`: no listener of this bot runs here, or it did not save the task in time.
    pub(super) async fn hand_over(&self, bot: &str, task: &Task) -> bool {
        let Some(listener) = locked(&self.0).get(bot).cloned() else { return false };
        let (confirm, saved) = oneshot::channel();
        let handing = async { listener.send((task.clone(), confirm)).await.is_ok() && saved.await.is_ok() };
        tokio::time::timeout(FIRST_LIMIT, handing).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invited(room: usize, inviter: &str) -> Task {
        Task::Invited { room_id: format!("!{room}:x"), inviter: inviter.into(), is_direct: false }
    }

    #[test]
    fn a_place_is_a_token_or_more() {
        let read = |text: &str| Cursor::read(Some(text.into())).0;
        assert_eq!(Cursor::read(None), (Cursor::default(), vec![]));
        let plain = read("s1_2");
        assert_eq!((plain.since.as_deref(), plain.to_text().as_str()), (Some("s1_2"), "s1_2"));
        let mut cursor = plain;
        let task = Task::Behind { room_id: "!r:x".into(), since: "s0".into() };
        assert_eq!((cursor.add(&task), cursor.add(&task)), (Added::New, Added::Known), "one per room");
        assert_eq!(read(&cursor.to_text()), cursor);
        let none = Cursor { tasks: vec![task], ..Cursor::default() };
        assert_eq!(read(&none.to_text()), none);
    }

    /// Regression: the whole text became the token, and everything since then was missed.
    #[test]
    fn a_task_of_an_unknown_kind_is_reported_and_the_rest_is_kept() {
        let text = r#"{"since":"s1","tasks":[{"kind":"tell","room_id":"!r:x"},{"kind":"new","room_id":"!n:x"}]}"#;
        let (cursor, unread) = Cursor::read(Some(text.into()));
        assert_eq!(cursor.since.as_deref(), Some("s1"));
        assert_eq!(cursor.tasks, [Task::Tell { room_id: "!r:x".into() }]);
        assert!(unread.len() == 1 && unread[0].contains("!n:x"), "{unread:?}");
        let (cursor, unread) = Cursor::read(Some("{\"since\":".into()));
        assert_eq!((cursor, unread.len()), (Cursor::default(), 1));
    }

    #[test]
    fn strangers_cannot_fill_the_list() {
        let mut cursor = Cursor { own_server: "own".into(), ..Cursor::default() };
        let mut rooms = 0..;
        let mut add = |inviter: &dyn Fn(usize) -> String| {
            let rooms = rooms.by_ref().take(1_000);
            rooms.filter(|n| cursor.add(&invited(*n, &inviter(*n))) == Added::New).count()
        };
        assert_eq!(add(&|n| format!("@e{n}:evil")), BY_ONE_MAX, "one server");
        assert_eq!(add(&|_| "@e:own".into()), BY_ONE_MAX, "one user of the own server");
        assert_eq!(add(&|n| format!("@{n}:own")), OTHERS_MAX - 2 * BY_ONE_MAX);
        assert!(matches!(cursor.add(&invited(5_000, "@a:b")), Added::Refused(_)));
        assert_eq!(cursor.free_behind(), BEHIND_MAX);
    }

    /// Regression: a wanted invitation was dropped because the rejection of an unwanted one was pending.
    #[test]
    fn a_newer_task_replaces_one_like_it() {
        let (old, new) = (invited(1, "@eve:evil"), invited(1, "@ann:own"));
        let mut cursor = Cursor::default();
        assert_eq!((cursor.add(&old), cursor.begin(&old)), (Added::New, true));
        assert_eq!((cursor.add(&new), cursor.begin(&new)), (Added::New, false), "not beside the other one");
        assert!(cursor.is_replaced(&old) && !cursor.is_replaced(&new));
        assert_eq!(cursor.end(&old), Some(new.clone()));
        assert!(cursor.begin(&new));
        assert_eq!(cursor.end(&new), None);
        assert!(cursor.tasks.is_empty());
    }
}
