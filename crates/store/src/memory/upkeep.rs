//! Health and retention.

use std::collections::HashSet;
use std::path::Path;

use frontdesk_core::port::alarms::AlarmState;
use frontdesk_core::port::store::{Outcome, Purged, Retention, StoreError, StoreReport, Stored, Upkeep};
use frontdesk_wire::EventId;

use super::{MemoryStore, State, now};

impl Upkeep for MemoryStore {
    fn health(&self) -> Stored<'_, ()> {
        now(())
    }

    fn report(&self) -> Stored<'_, StoreReport> {
        let state = self.state();
        let owed = |account: &super::Account| {
            account.rows.keys().filter(|seq| !account.position.settled(**seq)).count() as u64
        };
        let rows_waiting = state.ledgers.values().map(owed).sum();
        now(StoreReport { backend: "memory".into(), rows_waiting, bytes: 0, faults: Vec::new(), risks: Vec::new() })
    }

    fn backup<'a>(&'a self, _to: &'a Path) -> Stored<'a, u64> {
        let text = "the memory store cannot be backed up".to_owned();
        Box::pin(std::future::ready(Err(StoreError::Unavailable(text))))
    }

    fn purge(&self, keep: Retention) -> Stored<'_, Purged> {
        let mut state = self.state();
        let before_ms = keep.verdicts_before_ms.min(keep.events_before_ms);
        let count = |state: &State| {
            let mail: usize = state.ledgers.values().map(|account| account.rows.len()).sum();
            mail + state.events.len()
                + state.capabilities.len()
                + state.media.len()
                + state.alarms.len()
                + state.alarm_ends.len()
                + state.messages.len()
                + state.journal.len()
                + state.reach.len()
                + state.chats.values().map(|chat| chat.lines.len()).sum::<usize>()
        };
        let there = count(&state);
        // Stops at the first event that has not expired, although replayed old ones may follow.
        let young = state.events.values().find(|it| it.at_ms >= before_ms).map_or(EventId(u64::MAX), |it| it.event);
        for account in state.ledgers.values_mut() {
            let through = account.position.through;
            account.rows.retain(|seq, (delivery, _)| *seq > through || delivery.event >= young);
        }
        let owed: HashSet<EventId> = (state.ledgers.values())
            .flat_map(|account| account.rows.range(account.position.through.next()..).map(|(_, (it, _))| it.event))
            .collect();
        state.events.retain(|event, _| *event >= young || owed.contains(event));
        state.release_media(keep.now_ms.saturating_add(keep.media_ttl_ms));
        let State { events, by_dedup, attempts, capabilities, media, .. } = &mut *state;
        by_dedup.retain(|_, event| events.contains_key(event));
        attempts.retain(|_, accepted| events.contains_key(&accepted.event));
        capabilities.retain(|_, held| held.expires_ms > keep.now_ms);
        media.retain(|_, it| it.lasts(keep.now_ms));
        // A fired alarm is kept as long as its result, so that arming the same time again is recognised.
        let State { alarms, alarm_ends, .. } = &mut *state;
        let ended: HashSet<_> = alarm_ends
            .extract_if(.., |_, end| end.at_ms < keep.verdicts_before_ms)
            .map(|(_, end)| (end.instance, end.job_id, end.fire_at))
            .collect();
        alarms.retain(|_, (alarm, _)| {
            alarm.state != AlarmState::Fired
                || !ended.contains(&(alarm.instance, alarm.job_id.clone(), alarm.fire_at.clone()))
        });
        state.messages.retain(|_, (_, stored)| stored.at_ms >= keep.inbox_before_ms);
        state.journal.retain(|_, entry| entry.at_ms >= keep.journal_before_ms || entry.outcome == Outcome::Open);
        let State { receipts, journal, .. } = &mut *state;
        receipts.retain(|_, entry| journal.contains_key(entry));
        state.reach.retain(|_, at_ms| *at_ms >= keep.reach_before_ms);
        for chat in state.chats.values_mut() {
            let young = chat.lines.iter().find(|(_, (_, at_ms))| *at_ms >= keep.chat_before_ms).map(|(seq, _)| *seq);
            let super::Chat { lines, seq_of, .. } = chat;
            lines.retain(|seq, _| young.is_some_and(|young| *seq >= young));
            seq_of.retain(|_, seq| lines.contains_key(seq));
        }
        let mut gone = there - count(&state);
        if state.data.is_some() {
            match state.expire_data(keep.now_ms / 1000) {
                Ok(expired) => gone += expired,
                Err(error) => return Box::pin(std::future::ready(Err(error))),
            }
        }
        now(Purged { gone: gone as u64, more: gone > 0 }) // a step deletes only some of the data
    }
}
