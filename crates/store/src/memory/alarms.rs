//! Alarms: at most one per job of an instance.

use frontdesk_core::port::alarms::{Alarms, Arming, Concluded, Conclusion, Ended, Shot, ShotState, ShotTime};
use frontdesk_core::port::store::Stored;

use super::{MemoryStore, State, now};

impl State {
    fn shot_of(&self, instance: u64, job_id: &str) -> Option<u64> {
        let named = |(shot, _): &(Shot, u64)| shot.instance == instance && shot.job_id == job_id;
        self.shots.iter().find(|(_, kept)| named(kept)).map(|(id, _)| *id)
    }

    fn end_shot(&mut self, shot: &Shot, outcome: &str, at_ms: u64, note: &str) {
        self.last_end += 1;
        let ended = Ended {
            id: self.last_end,
            instance: shot.instance,
            job_id: shot.job_id.clone(),
            fire_at: shot.fire_at.clone(),
            schedule_id: shot.schedule_id.clone(),
            outcome: outcome.into(),
            attempts: shot.attempts,
            at_ms,
            note: note.into(),
        };
        self.shot_ends.insert(self.last_end, ended);
    }

    fn arm_one(&mut self, mut shot: Shot) -> Arming {
        let mut replaced = false;
        if let Some(id) = self.shot_of(shot.instance, &shot.job_id) {
            let known = &mut self.shots.get_mut(&id).unwrap_or_else(|| unreachable!("found above")).0;
            if known.fire_at == shot.fire_at && known.state != ShotState::Dead {
                known.callback = shot.callback;
                (known.grace_ms, known.skip_missed) = (shot.grace_ms, shot.skip_missed);
                return Arming { id, schedule_id: known.schedule_id.clone(), fresh: false, replaced: false };
            }
            if let Some((old, _)) = self.shots.remove(&id).filter(|(old, _)| old.state == ShotState::Armed) {
                replaced = true;
                self.end_shot(&old, "replaced", shot.armed_ms, "");
            }
        }
        self.last_shot += 1;
        shot.id = self.last_shot;
        let arming = Arming { id: shot.id, schedule_id: shot.schedule_id.clone(), fresh: true, replaced };
        self.shots.insert(shot.id, (shot, 0));
        arming
    }
}

impl Alarms for MemoryStore {
    fn arm(&self, shots: Vec<Shot>) -> Stored<'_, Vec<Arming>> {
        let mut state = self.state();
        now(shots.into_iter().map(|shot| state.arm_one(shot)).collect())
    }

    fn disarm<'a>(&'a self, instance: u64, job_id: &'a str, now_ms: u64) -> Stored<'a, bool> {
        let mut state = self.state();
        let Some((old, _)) = state.shot_of(instance, job_id).and_then(|id| state.shots.remove(&id)) else {
            return now(false);
        };
        let was_armed = old.state == ShotState::Armed;
        if was_armed {
            state.end_shot(&old, "cancelled", now_ms, "");
        }
        now(was_armed)
    }

    fn disarm_all(&self, instance: u64, now_ms: u64) -> Stored<'_, u64> {
        let mut state = self.state();
        let of_instance = |shot: &Shot| shot.instance == instance && shot.state == ShotState::Armed;
        let armed: Vec<Shot> = state.shots.values().map(|(shot, _)| shot.clone()).filter(of_instance).collect();
        let count = armed.len() as u64;
        for shot in armed {
            state.shots.remove(&shot.id);
            state.end_shot(&shot, "cancelled", now_ms, "");
        }
        now(count)
    }

    fn armed(&self, instance: u64, after: u64, limit: usize) -> Stored<'_, Vec<Shot>> {
        let state = self.state();
        let later = state.shots.range(after + 1..).map(|(_, (shot, _))| shot);
        let armed = later.filter(|shot| shot.instance == instance && shot.state == ShotState::Armed);
        now(armed.take(limit).cloned().collect())
    }

    fn shot<'a>(&'a self, instance: u64, job_id: &'a str) -> Stored<'a, Option<Shot>> {
        let state = self.state();
        now(state.shot_of(instance, job_id).and_then(|id| state.shots.get(&id)).map(|(shot, _)| shot.clone()))
    }

    fn next_shots(&self, after: (u64, u64), until_ms: u64, limit: usize) -> Stored<'_, Vec<ShotTime>> {
        let state = self.state();
        let armed = state.shots.values().map(|(shot, _)| shot).filter(|shot| shot.state == ShotState::Armed);
        let mut found: Vec<&Shot> = armed.filter(|it| (it.next_ms, it.id) > after && it.next_ms <= until_ms).collect();
        found.sort_unstable_by_key(|it| (it.next_ms, it.id));
        found.truncate(limit);
        let time = |it: &&Shot| ShotTime {
            next_ms: it.next_ms,
            id: it.id,
            instance: it.instance,
            callback: it.callback.clone(),
        };
        now(found.iter().map(time).collect())
    }

    fn claim_shots(&self, ids: Vec<u64>, due_by_ms: u64, now_ms: u64, until_ms: u64) -> Stored<'_, Vec<Shot>> {
        let mut state = self.state();
        let mut taken = Vec::new();
        for id in ids {
            let Some((shot, lease_ms)) = state.shots.get_mut(&id) else { continue };
            if shot.state == ShotState::Armed && shot.next_ms <= due_by_ms && *lease_ms <= now_ms {
                *lease_ms = until_ms;
                shot.claim += 1;
                taken.push(shot.clone());
            }
        }
        now(taken)
    }

    fn conclude(&self, ends: Vec<(Shot, Conclusion)>, now_ms: u64) -> Stored<'_, Vec<Concluded>> {
        let mut state = self.state();
        let mut counted = Vec::with_capacity(ends.len());
        for (tried, end) in ends {
            // A skipped alarm was not tried.
            let tries = u32::from(!matches!(end, Conclusion::Skipped { .. }));
            let tried = Shot { attempts: tried.attempts + tries, ..tried };
            let is_fact = matches!(end, Conclusion::Fired { .. });
            let (outcome, next_ms, ended, note) = match end {
                Conclusion::Fired { note } => (ShotState::Fired, None, Some("fired"), note),
                Conclusion::Dead { note } => (ShotState::Dead, None, Some("dead"), note),
                Conclusion::Skipped { note } => (ShotState::Fired, None, Some("skipped"), note),
                Conclusion::Retry { next_ms, note } => (ShotState::Armed, Some(next_ms), None, note),
            };
            let counts = match state.shots.get_mut(&tried.id) {
                None => Concluded::Noted,
                Some((shot, _)) if shot.state != ShotState::Armed || !(is_fact || shot.claim == tried.claim) => {
                    Concluded::Stale
                }
                Some((shot, lease_ms)) => {
                    if shot.first_ms == 0 {
                        shot.first_ms = now_ms;
                    }
                    shot.next_ms = next_ms.unwrap_or(shot.next_ms);
                    (shot.state, shot.attempts, *lease_ms) = (outcome, tried.attempts, 0);
                    shot.note.clone_from(&note);
                    Concluded::Ended
                }
            };
            if let Some(word) = ended.filter(|_| counts != Concluded::Stale) {
                state.end_shot(&tried, word, now_ms, &note);
            }
            counted.push(counts);
        }
        now(counted)
    }

    fn revive_shot(&self, id: u64, now_ms: u64) -> Stored<'_, Option<Shot>> {
        let mut state = self.state();
        let dead = state.shots.get_mut(&id).filter(|(shot, _)| shot.state == ShotState::Dead);
        let Some((shot, lease_ms)) = dead else { return now(None) };
        (shot.state, shot.next_ms, shot.first_ms, *lease_ms) = (ShotState::Armed, now_ms, 0, 0);
        shot.claim += 1; // results of the previous claim are ignored
        now(Some(shot.clone()))
    }

    fn hasten_retries(&self, ahead_ms: u64, next_ms: u64, claims_ms: u64) -> Stored<'_, Vec<ShotTime>> {
        let mut state = self.state();
        let mut moved = Vec::new();
        for (shot, lease_ms) in state.shots.values_mut().filter(|(shot, _)| shot.state == ShotState::Armed) {
            *lease_ms = (*lease_ms).min(claims_ms);
            if shot.attempts > 0 && shot.next_ms > ahead_ms {
                shot.next_ms = next_ms;
                let (id, instance, callback) = (shot.id, shot.instance, shot.callback.clone());
                moved.push(ShotTime { next_ms, id, instance, callback });
            }
        }
        now(moved)
    }

    fn dead_shots(&self, instance: Option<u64>, limit: usize) -> Stored<'_, Vec<Shot>> {
        let state = self.state();
        let dead = state.shots.values().map(|(shot, _)| shot).filter(|shot| shot.state == ShotState::Dead);
        now(dead.filter(|shot| instance.is_none_or(|no| shot.instance == no)).take(limit).cloned().collect())
    }

    fn ended_shots<'a>(&'a self, instance: u64, job_id: Option<&'a str>, limit: usize) -> Stored<'a, Vec<Ended>> {
        let state = self.state();
        let own = state.shot_ends.values().rev().filter(|end| end.instance == instance);
        now(own.filter(|end| job_id.is_none_or(|job| end.job_id == job)).take(limit).cloned().collect())
    }

    fn armed_counts(&self) -> Stored<'_, Vec<(u64, u64)>> {
        let mut counts: std::collections::BTreeMap<u64, u64> = std::collections::BTreeMap::new();
        for (shot, _) in self.state().shots.values().filter(|(shot, _)| shot.state == ShotState::Armed) {
            *counts.entry(shot.instance).or_default() += 1;
        }
        now(counts.into_iter().collect())
    }
}
