//! What the listener of a bot does beside its polls, and repeats until it works: joins, and rooms whose events could not
//! be read in time. It is saved with the cursor, so that a restart forgets none of it.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::sync::Mutex;
use std::time::Duration;

use frontdesk_core::port::platform::Gap;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::client::Fault;
use super::deadline::FIRST_LIMIT;
use super::lock::locked;

/// Rooms whose events wait. When there are more, the next one is read at once, without what takes too long.
const BEHIND_MAX: usize = 64;
/// All others. Strangers can cause them, so what is over this is refused.
const OTHERS_MAX: usize = 64;
/// Attempts that reached the homeserver: about twenty minutes.
pub(super) const ATTEMPTS_MAX: u32 = 12;
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Task {
    /// Accept or reject an invitation.
    Invited { room_id: String, inviter: String, is_direct: bool },
    /// Read what was said between the invitation and the join, which is not pushed.
    Earlier { room_id: String },
    /// Follow an upgraded room.
    Moved { room_id: String, to: String, sender: String },
    /// Tell the room that it is encrypted.
    Tell { room_id: String },
    /// Read the events since this token.
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

    /// What is lost when it is given up, and why.
    pub(super) fn loss(&self, fault: &dyn Display, now_ms: u64) -> Gap {
        let room_id = self.room_id();
        let reason = match self {
            Self::Invited { inviter, .. } => {
                format!("room {room_id}: the invitation of {inviter} was not accepted; invite the bot again: {fault}")
            }
            Self::Moved { to, .. } => {
                format!("room {room_id}: it goes on in {to}, where the bot could not join; invite it there: {fault}")
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

/// What became of a task that is to be noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    New,
    /// There is one like it.
    Known,
    /// There are too many.
    Refused,
}

/// Where a listener goes on: the token of the next poll, and what is still to be done.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cursor {
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) tasks: Vec<Task>,
    /// Rooms that are behind, and had news since they were asked about.
    #[serde(skip)]
    pub(super) skipped: HashSet<String>,
}

impl Cursor {
    /// A token alone is one, too.
    pub(super) fn read(cursor: Option<String>) -> Self {
        let Some(cursor) = cursor else { return Self::default() };
        let whole = cursor.starts_with('{').then(|| serde_json::from_str(&cursor).ok()).flatten();
        whole.unwrap_or(Self { since: Some(cursor).filter(|it| !it.is_empty()), ..Self::default() })
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

    pub(super) fn add(&mut self, task: &Task) -> Added {
        if self.tasks.iter().any(|it| it.is_like(task)) {
            return Added::Known;
        }
        if !task.is_behind() && self.tasks.iter().filter(|it| !it.is_behind()).count() >= OTHERS_MAX {
            return Added::Refused;
        }
        self.tasks.push(task.clone());
        Added::New
    }

    pub(super) fn remove(&mut self, task: &Task) {
        self.tasks.retain(|it| it != task);
    }
}

/// A task for a listener, and whom to tell when it is saved.
pub(super) type Handed = (Task, oneshot::Sender<()>);

/// The listeners of bots whose events are pushed.
#[derive(Default)]
pub(super) struct TaskQueue(Mutex<HashMap<String, mpsc::Sender<Handed>>>);

impl TaskQueue {
    /// For the listener of this bot. One that ended is told apart by its closed channel.
    pub(super) fn open(&self, bot: &str) -> mpsc::Receiver<Handed> {
        let (sender, receiver) = mpsc::channel(OTHERS_MAX);
        locked(&self.0).insert(bot.to_owned(), sender);
        receiver
    }

    /// `false`: no listener of this bot runs here. `Err`: it did not save the task in time.
    pub(super) async fn hand_over(&self, bot: &str, task: &Task) -> Result<bool, Fault> {
        let Some(listener) = locked(&self.0).get(bot).cloned() else { return Ok(false) };
        let (told, saved) = oneshot::channel();
        let handing = async {
            match listener.send((task.clone(), told)).await {
                Ok(()) => Some(saved.await.is_ok()),
                Err(_) => None,
            }
        };
        match tokio::time::timeout(FIRST_LIMIT, handing).await {
            Ok(None) => Ok(false),
            Ok(Some(true)) => Ok(true),
            Ok(Some(false)) | Err(_) => {
                let why = "what it asks for could not be noted in time".to_owned();
                Err(Fault::Unreachable { why, may_have_happened: false })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_token_or_more() {
        assert_eq!(Cursor::read(None), Cursor::default());
        let plain = Cursor::read(Some("s1_2".into()));
        assert_eq!((plain.since.as_deref(), plain.to_text().as_str()), (Some("s1_2"), "s1_2"));
        let mut cursor = plain;
        let task = Task::Behind { room_id: "!r:x".into(), since: "s0".into() };
        assert_eq!((cursor.add(&task), cursor.add(&task)), (Added::New, Added::Known), "one per room");
        assert_eq!(Cursor::read(Some(cursor.to_text())), cursor);
        let none = Cursor { tasks: vec![task], ..Cursor::default() };
        assert_eq!(Cursor::read(Some(none.to_text())), none);
    }

    #[test]
    fn strangers_cannot_fill_the_list() {
        let mut cursor = Cursor::default();
        let invited = |n: usize| Task::Invited { room_id: format!("!{n}:x"), inviter: "@e:x".into(), is_direct: false };
        assert_eq!((0..1_000).filter(|n| cursor.add(&invited(*n)) == Added::New).count(), OTHERS_MAX);
        assert_eq!(cursor.add(&invited(5_000)), Added::Refused);
        assert_eq!(cursor.free_behind(), BEHIND_MAX);
    }
}
