//! Stores what a listener gathered, and its position.

use frontdesk_core::port::platform::{Change, Inlet};

use super::client::Fault;
use super::gather::Gathered;
use super::task::{Added, Cursor, Task};

/// Events that are stored in one commit.
const BATCH: usize = 64;

/// Why a listener ends.
pub(super) enum Stop {
    Fault(Fault),
    Store(String),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Notes tasks, and returns those to begin. Tasks over the bound are reported.
pub(super) fn note(cursor: &mut Cursor, tasks: Vec<Task>, inlet: &dyn Inlet, now_ms: u64) -> Vec<Task> {
    let is_new = |task: &Task| {
        let added = cursor.add(task);
        if let Added::Refused(why) = added {
            inlet.gap(task.loss(&why, now_ms));
        }
        added == Added::New
    };
    tasks.into_iter().filter(is_new).collect()
}

pub(super) async fn save(cursor: &Cursor, inlet: &dyn Inlet) -> Result<(), Stop> {
    inlet.save_cursor(cursor.to_text()).await.map_err(|error| Stop::Store(error.to_string()))
}

/// A room that moves takes its routes with it, so messages of the old one are stored first. Returns the tasks.
pub(super) async fn store(gathered: Gathered, inlet: &dyn Inlet) -> Result<Vec<Task>, Stop> {
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
    for gap in gathered.gaps {
        inlet.gap(gap);
    }
    Ok(gathered.tasks)
}
