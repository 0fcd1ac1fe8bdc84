//! The servers that share this memory.

use frontdesk_core::port::store::{ABSENT_MS, DeskNo, DeskRecord, Desks, LEASE_MS, Renewal, StoreError, Stored};

use super::{MemoryStore, State, now};

impl State {
    fn is_live(&self, desk: DeskNo, now_ms: u64) -> bool {
        self.desks.get(&desk).is_some_and(|it| it.lease_until_ms > now_ms)
    }

    fn free_duties(&mut self, of: DeskNo) {
        for (holder, _) in self.duties.values_mut().filter(|(holder, _)| *holder == of) {
            *holder = DeskNo::NONE;
        }
    }
}

impl Desks for MemoryStore {
    fn enlist(&self, name: String, version: String, now_ms: u64) -> Stored<'_, DeskNo> {
        let mut state = self.state();
        state.last_desk = state.last_desk.next();
        let number = state.last_desk;
        let lease_until_ms = now_ms + LEASE_MS;
        let desk = DeskRecord::new(number, name, version, lease_until_ms);
        state.desks.insert(number, desk);
        now(number)
    }

    fn renew(&self, me: DeskNo, seen: u64, now_ms: u64) -> Stored<'_, Renewal> {
        let mut state = self.state();
        if !state.is_live(me, now_ms) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        if let Some(mine) = state.desks.get_mut(&me) {
            mine.lease_until_ms = now_ms + LEASE_MS;
            mine.directory_seen = seen;
        }
        let live = || state.desks.values().filter(|it| it.lease_until_ms > now_ms);
        let leaving = live().filter(|it| it.is_leaving).map(|it| it.number).collect();
        let live = live().map(|it| it.number).collect();
        now(Renewal { directory_version: state.directory_version, live, leaving })
    }

    fn take_duty(&self, me: DeskNo, duty: String, now_ms: u64) -> Stored<'_, Option<u64>> {
        let mut state = self.state();
        if !state.is_live(me, now_ms) || state.desks.get(&me).is_some_and(|it| it.is_leaving) {
            return now(None);
        }
        let token = match state.duties.get(&duty) {
            Some((holder, token)) if *holder == me => return now(Some(*token)),
            Some((holder, _)) if state.is_live(*holder, now_ms) => return now(None),
            Some((_, token)) => token + 1,
            None => 1,
        };
        state.duties.insert(duty, (me, token));
        now(Some(token))
    }

    fn drop_duty(&self, me: DeskNo, duty: String) -> Stored<'_, ()> {
        if let Some((holder, _)) = self.state().duties.get_mut(&duty).filter(|(holder, _)| *holder == me) {
            *holder = DeskNo::NONE;
        }
        now(())
    }

    fn leave(&self, me: DeskNo) -> Stored<'_, ()> {
        let mut state = self.state();
        if let Some(mine) = state.desks.get_mut(&me) {
            mine.is_leaving = true;
        }
        state.free_duties(me);
        now(())
    }

    fn resign(&self, me: DeskNo) -> Stored<'_, ()> {
        let mut state = self.state();
        state.desks.remove(&me);
        state.free_duties(me);
        now(())
    }

    fn put_report(&self, me: DeskNo, report: String) -> Stored<'_, ()> {
        if let Some(mine) = self.state().desks.get_mut(&me) {
            mine.report = report;
        }
        now(())
    }

    fn absent(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, u64)>> {
        let state = self.state();
        let is_named = |it: &&DeskRecord, name: &str| it.name == name;
        let recent = |it: &&DeskRecord| it.lease_until_ms <= now_ms && now_ms < it.lease_until_ms + ABSENT_MS;
        let is_last = |it: &&DeskRecord| {
            state.desks.values().filter(|other| is_named(other, &it.name)).all(|other| other.number <= it.number)
        };
        let found = state.desks.values().filter(recent).filter(is_last);
        now(found.map(|it| (it.clone(), now_ms - it.lease_until_ms)).collect())
    }

    fn desks(&self, now_ms: u64) -> Stored<'_, Vec<(DeskRecord, Vec<String>)>> {
        let state = self.state();
        let duties = |desk: DeskNo| {
            let held = state.duties.iter().filter(move |(_, (holder, _))| *holder == desk);
            held.map(|(duty, _)| duty.clone()).collect()
        };
        let live = state.desks.values().filter(|it| it.lease_until_ms > now_ms);
        let sockets = |desk| state.presences.values().filter(|it| it.served_by == desk).count() as u64;
        let counted = |it: &DeskRecord| DeskRecord { sockets: sockets(it.number), ..it.clone() };
        now(live.map(|it| (counted(it), duties(it.number))).collect())
    }
}
