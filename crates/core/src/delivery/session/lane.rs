//! Lanes: the actions of one chat or session, carried out in order.
//!
//! One task at a time works on a lane. It continues after the socket has closed, so that every action gets its
//! result, if necessary on the next socket.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use frontdesk_wire::{Act, Action};
use tokio::sync::OwnedSemaphorePermit;

use crate::delivery::memory::Share;
use crate::port::platform::{PlatformBot, replaces};

/// Lanes of one session that run concurrently; others wait.
const LANES_MAX: usize = 64;

pub struct Job {
    pub(crate) request_id: String,
    /// The identity that the action names, or the first candidate.
    pub(crate) identity: PlatformBot,
    /// The other candidates.
    pub(crate) alternatives: Vec<PlatformBot>,
    /// All identities for which the socket had sent a hello by then.
    pub(crate) identities: Arc<Vec<PlatformBot>>,
    pub(crate) action: Action,
    pub(crate) asked_ms: u64,
    /// Its part of the byte limit of the instance.
    pub(crate) room: OwnedSemaphorePermit,
    /// Its part of the memory of the tenant.
    pub(crate) memory: Share,
}

#[derive(Default)]
pub struct Lane {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    busy: bool,
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True: no task works on this lane, so the caller must start one.
    pub(crate) fn push(&self, job: Job) -> bool {
        let mut state = self.state();
        state.waiting.push_back(job);
        !std::mem::replace(&mut state.busy, true)
    }

    /// The next job, and the requests that it replaces; `None`: the task ends. Of several edits of one message that
    /// wait, only the latest is carried out, in the place of the first.
    pub(crate) fn next(&self) -> Option<(Job, Vec<String>)> {
        let mut state = self.state();
        let next = state.waiting.pop_front();
        state.busy = next.is_some();
        let mut next = next?;
        let Some(key) = replaces(&next.action.act) else { return Some((next, Vec::new())) };
        let mut replaced = Vec::new();
        // Stops at the next action of another kind, so that an edit does not undo a delete or a final text in between.
        while let Some(mut later) = state.waiting.pop_front_if(|later| {
            replaces(&later.action.act).as_ref() == Some(&key)
                && (&later.identity, &later.alternatives) == (&next.identity, &next.alternatives)
        }) {
            // The oldest request decides the time limit. All of them hold their share until they are answered.
            later.asked_ms = next.asked_ms.min(later.asked_ms);
            let Job { request_id, room, memory, .. } = std::mem::replace(&mut next, later);
            next.room.merge(room);
            next.memory.join(memory);
            replaced.push(request_id);
        }
        Some((next, replaced))
    }

    pub(crate) fn is_free(&self) -> bool {
        !self.state().busy
    }
}

/// The lanes of one session.
#[derive(Default)]
pub(super) struct Lanes {
    by_name: HashMap<String, Arc<Lane>>,
    /// Lanes with jobs and without a task.
    idle: VecDeque<String>,
    busy: usize,
}

impl Lanes {
    pub(super) fn push(&mut self, job: Job) {
        let name = lane_of(&job.action);
        if self.by_name.entry(name.clone()).or_default().push(job) {
            self.idle.push_back(name);
        }
    }

    /// The next lane to start.
    pub(super) fn start(&mut self) -> Option<(String, Arc<Lane>)> {
        while self.busy < LANES_MAX {
            let name = self.idle.pop_front()?;
            if let Some(lane) = self.by_name.get(&name).cloned() {
                self.busy += 1;
                return Some((name, lane));
            }
        }
        None
    }

    /// The task of a lane has ended; the lane is removed unless a job arrived in the meantime.
    pub(super) fn done(&mut self, name: &str) {
        self.busy = self.busy.saturating_sub(1);
        if self.by_name.get(name).is_some_and(|lane| lane.is_free()) {
            self.by_name.remove(name);
        }
    }

    /// Returns the lanes that were not started; their jobs are carried out after the session.
    pub(super) fn leave(&mut self) -> Vec<Arc<Lane>> {
        self.idle.drain(..).filter_map(|name| self.by_name.remove(&name)).collect()
    }
}

/// The lane of an action.
fn lane_of(action: &Action) -> String {
    match &action.act {
        Act::FollowUp { session_key, .. } => format!("s:{session_key}"),
        act => format!("c:{}", act.chat()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    fn push(lane: &Lane, room: &Arc<Semaphore>, id: &str, asked_ms: u64, action: &str) {
        let room = room.clone().try_acquire_many_owned(10).unwrap();
        let identities = Arc::new(Vec::new());
        let action = Action::parse(action).unwrap();
        lane.push(Job {
            request_id: id.into(),
            identity: PlatformBot::default(),
            alternatives: Vec::new(),
            identities,
            action,
            asked_ms,
            room,
            memory: Share::default(),
        });
    }

    fn edit(message: &str, text: &str) -> String {
        format!(r#"{{"op":"edit","chat_id":"c","message_id":"{message}","content":"{text}"}}"#)
    }

    #[test]
    fn of_waiting_edits_of_one_message_the_latest_is_carried_out_for_all() {
        let (lane, room) = (Lane::default(), Arc::new(Semaphore::new(100)));
        push(&lane, &room, "1", 7, &edit("m", "a"));
        push(&lane, &room, "2", 8, &edit("m", "b"));
        push(&lane, &room, "3", 9, &edit("m", "c"));
        push(&lane, &room, "4", 9, &edit("n", "d"));
        push(&lane, &room, "5", 9, &edit("m", "e"));
        push(&lane, &room, "6", 9, r#"{"op":"delete","chat_id":"c","message_id":"m"}"#);
        push(&lane, &room, "7", 9, &edit("m", "f"));
        let (job, replaced) = lane.next().unwrap();
        assert_eq!((job.request_id.as_str(), job.action.act.text(), job.asked_ms), ("3", Some("c"), 7));
        assert_eq!(replaced, ["1", "2"]);
        assert_eq!(room.available_permits(), 30, "the share of all three is held until they are answered");
        drop(job);
        assert_eq!(room.available_permits(), 60);
        let order: Vec<_> =
            std::iter::from_fn(|| lane.next()).map(|(job, rest)| (job.request_id, rest.len())).collect();
        let expected = ["4", "5", "6", "7"].map(|id| (id.to_owned(), 0));
        assert_eq!(order, expected, "not past another action: a deleted message stays deleted");
    }
}
