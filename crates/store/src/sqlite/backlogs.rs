//! Unsettled rows of the ledgers, for retention: compared with old events, a bounded number of rows at a time.

use std::collections::{HashSet, VecDeque};

use frontdesk_core::port::store::StoreError;
use frontdesk_wire::{EventId, InstanceNo, Seq};
use rusqlite::{Connection, OptionalExtension as _, Row};

use super::{STEP_ROWS, fault, signed, unsigned};

/// Unsettled rows read at once, of all ledgers together.
const STEP_UNSETTLED: usize = 2_000;

/// Unsettled rows of one ledger, read as needed.
struct Backlog {
    instance: InstanceNo,
    seq: Seq,
    events: VecDeque<EventId>,
    is_read: bool,
}

/// Ledgers with unsettled rows, and which of the events that are being compared have any.
#[derive(Default)]
pub(super) struct Owed {
    /// Ledgers that may have more rows of these events. They are read in turn.
    behind: VecDeque<Backlog>,
    /// Ledgers without further rows of these events.
    done: VecDeque<Backlog>,
    kept: HashSet<EventId>,
}

impl Owed {
    /// `ledgers`: instance and watermark of each.
    pub(super) fn of(ledgers: impl Iterator<Item = (InstanceNo, Seq)>) -> Self {
        let backlog = |(instance, seq)| Backlog { instance, seq, events: VecDeque::new(), is_read: false };
        Self { done: ledgers.map(backlog).collect(), ..Self::default() }
    }

    /// Starts to compare the next events with all ledgers.
    pub(super) fn begin(&mut self) {
        self.behind.append(&mut self.done);
        self.kept.clear();
    }

    /// Whether all ledgers were compared with the events.
    pub(super) fn is_compared(&self) -> bool {
        self.behind.is_empty()
    }

    /// Whether a ledger has an unsettled row of this event, which is one of those that were compared.
    pub(super) fn has(&self, event: EventId) -> bool {
        self.kept.contains(&event)
    }

    /// Reads some of the rows of events up to `last`. The more ledgers there are, the fewer rows of each are read at
    /// once.
    pub(super) fn compare(&mut self, connection: &Connection, last: EventId) -> Result<(), StoreError> {
        let sql = "SELECT seq, event FROM mail WHERE instance = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
        let mut query = connection.prepare_cached(sql).map_err(fault)?;
        let share = (STEP_UNSETTLED / self.behind.len().max(1)).clamp(1, STEP_ROWS);
        let mut room = STEP_UNSETTLED;
        while room > 0
            && let Some(mut ledger) = self.behind.pop_front()
        {
            if ledger.events.is_empty() && !ledger.is_read {
                let pair = |row: &Row<'_>| Ok((unsigned(row.get(0)?), unsigned(row.get(1)?)));
                let which = (signed(ledger.instance), signed(ledger.seq), signed(share as u64));
                let some = query.query_map(which, pair).and_then(Iterator::collect::<Result<Vec<_>, _>>);
                let some: Vec<(Seq, EventId)> = some.map_err(fault)?;
                room = room.saturating_sub(some.len().max(1));
                ledger.is_read = some.len() < share;
                ledger.seq = some.last().map_or(ledger.seq, |(seq, _)| *seq);
                ledger.events = some.into_iter().map(|(_, event)| event).collect();
            }
            let passed = ledger.events.iter().take_while(|event| **event <= last).count();
            self.kept.extend(ledger.events.drain(..passed));
            match ledger.events.is_empty() {
                false => self.done.push_back(ledger),
                true if ledger.is_read => {} // it has no rows of later events
                true => self.behind.push_back(ledger),
            }
        }
        Ok(())
    }
}

/// Events with unsettled rows up to the last one that was imported out of order; see `portable`.
pub(super) fn owed_of_import(connection: &Connection) -> Result<HashSet<EventId>, StoreError> {
    let sql = "SELECT value FROM meta WHERE key = 'unordered through'";
    let through: Option<i64> = connection.query_row(sql, [], |row| row.get(0)).optional().map_err(fault)?;
    let Some(through) = through else { return Ok(HashSet::new()) };
    let sql = "SELECT m.event FROM position p JOIN mail m ON m.instance = p.instance AND m.seq > p.through
               WHERE m.event <= ?1";
    let mut query = connection.prepare_cached(sql).map_err(fault)?;
    query.query_map([through], |row| row.get(0).map(unsigned)).and_then(Iterator::collect).map_err(fault)
}
