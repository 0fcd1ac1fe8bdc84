//! Which server does a task and how often something was tried, for the stores of one process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use frontdesk_core::port::claims::{HANDOFF_HELD_MS, HANDOFFS_MAX, Handoff, PARKED_MAX, PARKED_MAX_BYTES, PARKED_MS};
use frontdesk_core::port::store::{DeskNo, Mark};
use frontdesk_wire::{EventId, InstanceNo};

/// Old claims and counts are removed when there are this many.
const KEPT_MAX: usize = 10_000;

#[derive(Default)]
pub(crate) struct LocalClaims {
    /// The holder, and the end of its claim.
    held: Mutex<HashMap<Mark, (DeskNo, u64)>>,
    /// The number of tries, and the end of their window.
    tries: Mutex<HashMap<Mark, (u32, u64)>>,
    /// Handoffs with the name of their server and the time from which they may start.
    handoffs: Mutex<Vec<(String, u64, Handoff)>>,
    last_handoff: AtomicU64,
    /// Results with the time when they were stored.
    parked: Mutex<HashMap<InstanceNo, Vec<(u64, String)>>>,
}

impl LocalClaims {
    pub(crate) fn claim(&self, mark: Mark, me: DeskNo, live: &[DeskNo], limit_ms: u64, now_ms: u64) -> bool {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let is_held = |(desk, until_ms): &(DeskNo, u64)| live.contains(desk) && *until_ms > now_ms;
        if held.get(&mark).is_some_and(|claim| claim.0 != me && is_held(claim)) {
            return false;
        }
        if held.len() >= KEPT_MAX {
            held.retain(|_, claim| is_held(claim));
        }
        held.insert(mark, (me, now_ms.saturating_add(limit_ms)));
        true
    }

    pub(crate) fn release(&self, marks: &[Mark], me: DeskNo) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        for mark in marks {
            if held.get(mark).is_some_and(|(desk, _)| *desk == me) {
                held.remove(mark);
            }
        }
    }

    pub(crate) fn tries(&self, mark: Mark, now_ms: u64) -> u32 {
        let tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        tries.get(&mark).filter(|(_, until_ms)| *until_ms > now_ms).map_or(0, |(count, _)| *count)
    }

    pub(crate) fn note_try(&self, mark: Mark, window_ms: u64, now_ms: u64) {
        let mut tries = self.tries.lock().unwrap_or_else(PoisonError::into_inner);
        if tries.len() >= KEPT_MAX {
            tries.retain(|_, (_, until_ms)| *until_ms > now_ms);
        }
        if tries.len() >= KEPT_MAX
            && let Some(oldest) = tries.iter().min_by_key(|(_, (_, until_ms))| *until_ms).map(|(mark, _)| *mark)
        {
            tries.remove(&oldest);
        }
        let entry = tries.entry(mark).or_insert((0, 0));
        if entry.1 <= now_ms {
            *entry = (0, now_ms.saturating_add(window_ms));
        }
        entry.0 = entry.0.saturating_add(1);
    }

    pub(crate) fn add_handoff(&self, server: String, event: EventId, now_ms: u64) -> bool {
        let mut handoffs = self.handoffs.lock().unwrap_or_else(PoisonError::into_inner);
        let own = || handoffs.iter().filter(|(name, ..)| *name == server);
        if own().any(|(.., handoff)| handoff.event == event) {
            return true;
        }
        if own().count() >= HANDOFFS_MAX {
            return false;
        }
        let id = self.last_handoff.fetch_add(1, Ordering::Relaxed) + 1;
        handoffs.push((server, now_ms.saturating_add(HANDOFF_HELD_MS), Handoff { id, event }));
        true
    }

    pub(crate) fn release_handoffs(&self, event: EventId) {
        let mut handoffs = self.handoffs.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, from_ms, _) in handoffs.iter_mut().filter(|(.., handoff)| handoff.event == event) {
            *from_ms = 0;
        }
    }

    pub(crate) fn handoffs(&self, server: &str, limit: usize, now_ms: u64) -> Vec<Handoff> {
        let handoffs = self.handoffs.lock().unwrap_or_else(PoisonError::into_inner);
        let ready = handoffs.iter().filter(|(name, from_ms, _)| name == server && *from_ms <= now_ms);
        ready.map(|(.., handoff)| *handoff).take(limit).collect()
    }

    pub(crate) fn drop_handoff(&self, id: u64) {
        self.handoffs.lock().unwrap_or_else(PoisonError::into_inner).retain(|(.., handoff)| handoff.id != id);
    }

    pub(crate) fn park(&self, instance: InstanceNo, line: String, now_ms: u64) -> bool {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|_, lines| {
            lines.retain(|(at_ms, _)| now_ms.saturating_sub(*at_ms) < PARKED_MS);
            !lines.is_empty()
        });
        let lines = parked.entry(instance).or_default();
        let bytes = lines.iter().map(|(_, line)| line.len()).sum::<usize>() + line.len();
        let has_room = lines.len() < PARKED_MAX && bytes <= PARKED_MAX_BYTES;
        if has_room {
            lines.push((now_ms, line));
        }
        has_room
    }

    pub(crate) fn take_parked(&self, instances: &[InstanceNo], now_ms: u64) -> Vec<(InstanceNo, String)> {
        let mut parked = self.parked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::new();
        for instance in instances {
            let lines = parked.remove(instance).unwrap_or_default();
            let young = lines.into_iter().filter(|(at_ms, _)| now_ms.saturating_sub(*at_ms) < PARKED_MS);
            taken.extend(young.map(|(_, line)| (*instance, line)));
        }
        taken
    }
}

/// Implements the trait for a store that has `claims: LocalClaims`.
macro_rules! local_claims {
    ($store:ident) => {
        const _: () = {
            use frontdesk_core::port::claims::Handoff;
            use frontdesk_core::port::store::{Claims, DeskNo, EventId, InstanceNo, Mark, Stored};

            impl Claims for $store {
                fn claim(
                    &self,
                    mark: Mark,
                    me: DeskNo,
                    live: Vec<DeskNo>,
                    limit_ms: u64,
                    now_ms: u64,
                ) -> Stored<'_, bool> {
                    $crate::ready(self.claims.claim(mark, me, &live, limit_ms, now_ms))
                }

                fn release(&self, marks: Vec<Mark>, me: DeskNo) -> Stored<'_, ()> {
                    $crate::ready(self.claims.release(&marks, me))
                }

                fn tries(&self, mark: Mark, now_ms: u64) -> Stored<'_, u32> {
                    $crate::ready(self.claims.tries(mark, now_ms))
                }

                fn add_handoff(&self, server: String, event: EventId, now_ms: u64) -> Stored<'_, bool> {
                    $crate::ready(self.claims.add_handoff(server, event, now_ms))
                }

                fn release_handoffs(&self, event: EventId) -> Stored<'_, ()> {
                    $crate::ready(self.claims.release_handoffs(event))
                }

                fn handoffs(&self, server: String, limit: usize, now_ms: u64) -> Stored<'_, Vec<Handoff>> {
                    $crate::ready(self.claims.handoffs(&server, limit, now_ms))
                }

                fn drop_handoff(&self, id: u64) -> Stored<'_, ()> {
                    $crate::ready(self.claims.drop_handoff(id))
                }

                fn park(&self, instance: InstanceNo, line: String, now_ms: u64) -> Stored<'_, bool> {
                    $crate::ready(self.claims.park(instance, line, now_ms))
                }

                fn take_parked(
                    &self,
                    instances: Vec<InstanceNo>,
                    now_ms: u64,
                ) -> Stored<'_, Vec<(InstanceNo, String)>> {
                    $crate::ready(self.claims.take_parked(&instances, now_ms))
                }

                fn note_try(&self, mark: Mark, window_ms: u64, now_ms: u64) -> Stored<'_, ()> {
                    $crate::ready(self.claims.note_try(mark, window_ms, now_ms))
                }
            }
        };
    };
}
pub(crate) use local_claims;
