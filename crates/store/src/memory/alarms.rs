//! Alarms: at most one per job of an instance.

use frontdesk_core::port::alarms::{
    Alarm, AlarmState, AlarmTime, Alarms, ArmedPage, Arming, Concluded, Conclusion, Disarmed, EndedAlarm,
};
use frontdesk_core::port::store::Stored;
use frontdesk_wire::{InstanceNo, JobId};

use super::{MemoryStore, STEP_ROWS, State, now};

impl State {
    fn alarm_of(&self, instance: InstanceNo, job_id: &JobId) -> Option<u64> {
        let named = |(alarm, _): &(Alarm, u64)| alarm.instance == instance && alarm.job_id == *job_id;
        self.alarms.iter().find(|(_, kept)| named(kept)).map(|(id, _)| *id)
    }

    /// The alarms of an instance, in the order of their jobs, after this job.
    fn later_jobs(&self, instance: InstanceNo, after: &JobId) -> Vec<Alarm> {
        let alarms = self.alarms.values().map(|(alarm, _)| alarm);
        let later = alarms.filter(|alarm| alarm.instance == instance && alarm.job_id > *after);
        let mut later: Vec<Alarm> = later.cloned().collect();
        later.sort_unstable_by(|a, b| a.job_id.cmp(&b.job_id));
        later
    }

    fn end_alarm(&mut self, alarm: &Alarm, outcome: &str, at_ms: u64, note: &str) {
        self.last_end += 1;
        let ended = EndedAlarm {
            id: self.last_end,
            instance: alarm.instance,
            job_id: alarm.job_id.clone(),
            fire_at: alarm.fire_at.clone(),
            schedule_id: alarm.schedule_id.clone(),
            outcome: outcome.into(),
            attempts: alarm.attempts,
            at_ms,
            note: note.into(),
        };
        self.alarm_ends.insert(self.last_end, ended);
    }

    fn arm_one(&mut self, mut alarm: Alarm) -> Arming {
        let mut replaced = false;
        if let Some(id) = self.alarm_of(alarm.instance, &alarm.job_id) {
            let known = &mut self.alarms.get_mut(&id).unwrap_or_else(|| unreachable!("found above")).0;
            if known.fire_at == alarm.fire_at && known.state != AlarmState::Dead {
                known.callback = alarm.callback;
                (known.grace_ms, known.skip_missed) = (alarm.grace_ms, alarm.skip_missed);
                return Arming { id, schedule_id: known.schedule_id.clone(), fresh: false, replaced: false };
            }
            if let Some((old, _)) = self.alarms.remove(&id).filter(|(old, _)| old.state == AlarmState::Armed) {
                replaced = true;
                self.end_alarm(&old, "replaced", alarm.armed_ms, "");
            }
        }
        self.last_alarm += 1;
        alarm.id = self.last_alarm;
        let arming = Arming { id: alarm.id, schedule_id: alarm.schedule_id.clone(), fresh: true, replaced };
        self.alarms.insert(alarm.id, (alarm, 0));
        arming
    }
}

impl Alarms for MemoryStore {
    fn arm(&self, alarms: Vec<Alarm>) -> Stored<'_, Vec<Arming>> {
        let mut state = self.state();
        now(alarms.into_iter().map(|alarm| state.arm_one(alarm)).collect())
    }

    fn disarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId, now_ms: u64) -> Stored<'a, bool> {
        let mut state = self.state();
        let Some((old, _)) = state.alarm_of(instance, job_id).and_then(|id| state.alarms.remove(&id)) else {
            return now(false);
        };
        let was_armed = old.state == AlarmState::Armed;
        if was_armed {
            state.end_alarm(&old, "cancelled", now_ms, "");
        }
        now(was_armed)
    }

    fn disarm_some<'a>(&'a self, instance: InstanceNo, after: &'a JobId, now_ms: u64) -> Stored<'a, Disarmed> {
        let mut state = self.state();
        let mut some = state.later_jobs(instance, after);
        some.truncate(STEP_ROWS);
        let next = some.last().filter(|_| some.len() == STEP_ROWS).map(|last| last.job_id.clone());
        some.retain(|alarm| alarm.state == AlarmState::Armed);
        for alarm in &some {
            state.alarms.remove(&alarm.id);
            state.end_alarm(alarm, "cancelled", now_ms, "");
        }
        now(Disarmed { gone: some.len() as u64, next })
    }

    fn armed<'a>(&'a self, instance: InstanceNo, after: &'a JobId, limit: usize) -> Stored<'a, ArmedPage> {
        let jobs = self.state().later_jobs(instance, after).into_iter();
        let is_armed = |it: &Alarm| it.state == AlarmState::Armed;
        now(ArmedPage::of(jobs.map(|it| if is_armed(&it) { Ok(it) } else { Err(it.job_id) }), limit))
    }

    fn alarm<'a>(&'a self, instance: InstanceNo, job_id: &'a JobId) -> Stored<'a, Option<Alarm>> {
        let state = self.state();
        now(state.alarm_of(instance, job_id).and_then(|id| state.alarms.get(&id)).map(|(alarm, _)| alarm.clone()))
    }

    fn next_alarms(&self, after: (u64, u64), until_ms: u64, limit: usize) -> Stored<'_, Vec<AlarmTime>> {
        let state = self.state();
        let armed = state.alarms.values().map(|(alarm, _)| alarm).filter(|alarm| alarm.state == AlarmState::Armed);
        let mut found: Vec<&Alarm> = armed.filter(|it| (it.next_ms, it.id) > after && it.next_ms <= until_ms).collect();
        found.sort_unstable_by_key(|it| (it.next_ms, it.id));
        found.truncate(limit);
        let time = |it: &&Alarm| AlarmTime {
            next_ms: it.next_ms,
            id: it.id,
            instance: it.instance,
            callback: it.callback.clone(),
        };
        now(found.iter().map(time).collect())
    }

    fn claim_alarms(&self, ids: Vec<u64>, due_by_ms: u64, now_ms: u64, until_ms: u64) -> Stored<'_, Vec<Alarm>> {
        let mut state = self.state();
        let mut taken = Vec::new();
        for id in ids {
            let Some((alarm, lease_ms)) = state.alarms.get_mut(&id) else { continue };
            if alarm.state == AlarmState::Armed && alarm.next_ms <= due_by_ms && *lease_ms <= now_ms {
                *lease_ms = until_ms;
                alarm.claim += 1;
                taken.push(alarm.clone());
            }
        }
        now(taken)
    }

    fn conclude(&self, ends: Vec<(Alarm, Conclusion)>, now_ms: u64) -> Stored<'_, Vec<Concluded>> {
        let mut state = self.state();
        let mut counted = Vec::with_capacity(ends.len());
        for (tried, end) in ends {
            // A skipped alarm was not tried.
            let tries = u32::from(!matches!(end, Conclusion::Skipped { .. }));
            let tried = Alarm { attempts: tried.attempts + tries, ..tried };
            let is_fact = matches!(end, Conclusion::Fired { .. });
            let (outcome, next_ms, ended, note) = match end {
                Conclusion::Fired { note } => (AlarmState::Fired, None, Some("fired"), note),
                Conclusion::Dead { note } => (AlarmState::Dead, None, Some("dead"), note),
                Conclusion::Skipped { note } => (AlarmState::Fired, None, Some("skipped"), note),
                Conclusion::Retry { next_ms, note } => (AlarmState::Armed, Some(next_ms), None, note),
            };
            let counts = match state.alarms.get_mut(&tried.id) {
                None => Concluded::Noted,
                Some((alarm, _)) if alarm.state != AlarmState::Armed || !(is_fact || alarm.claim == tried.claim) => {
                    Concluded::Stale
                }
                Some((alarm, lease_ms)) => {
                    if alarm.first_ms == 0 {
                        alarm.first_ms = now_ms;
                    }
                    alarm.next_ms = next_ms.unwrap_or(alarm.next_ms);
                    (alarm.state, alarm.attempts, *lease_ms) = (outcome, tried.attempts, 0);
                    alarm.note.clone_from(&note);
                    Concluded::Ended
                }
            };
            if let Some(outcome) = ended.filter(|_| counts != Concluded::Stale) {
                state.end_alarm(&tried, outcome, now_ms, &note);
            }
            counted.push(counts);
        }
        now(counted)
    }

    fn revive_alarm(&self, id: u64, now_ms: u64) -> Stored<'_, Option<Alarm>> {
        let mut state = self.state();
        let dead = state.alarms.get_mut(&id).filter(|(alarm, _)| alarm.state == AlarmState::Dead);
        let Some((alarm, lease_ms)) = dead else { return now(None) };
        (alarm.state, alarm.next_ms, alarm.first_ms, *lease_ms) = (AlarmState::Armed, now_ms, 0, 0);
        alarm.claim += 1; // results of the previous claim are ignored
        now(Some(alarm.clone()))
    }

    fn hasten_retries(&self, ahead_ms: u64, next_ms: u64, claims_ms: u64) -> Stored<'_, Vec<AlarmTime>> {
        let mut state = self.state();
        let mut moved = Vec::new();
        for (alarm, lease_ms) in state.alarms.values_mut().filter(|(alarm, _)| alarm.state == AlarmState::Armed) {
            *lease_ms = (*lease_ms).min(claims_ms);
            if alarm.attempts > 0 && alarm.next_ms > ahead_ms {
                alarm.next_ms = next_ms;
                let (id, instance, callback) = (alarm.id, alarm.instance, alarm.callback.clone());
                moved.push(AlarmTime { next_ms, id, instance, callback });
            }
        }
        now(moved)
    }

    fn dead_alarms(&self, instance: Option<InstanceNo>, limit: usize) -> Stored<'_, Vec<Alarm>> {
        let state = self.state();
        let dead = state.alarms.values().map(|(alarm, _)| alarm).filter(|alarm| alarm.state == AlarmState::Dead);
        now(dead.filter(|alarm| instance.is_none_or(|no| alarm.instance == no)).take(limit).cloned().collect())
    }

    fn ended_alarms<'a>(
        &'a self,
        instance: InstanceNo,
        job_id: Option<&'a JobId>,
        limit: usize,
    ) -> Stored<'a, Vec<EndedAlarm>> {
        let state = self.state();
        let own = state.alarm_ends.values().rev().filter(|end| end.instance == instance);
        now(own.filter(|end| job_id.is_none_or(|job| end.job_id == *job)).take(limit).cloned().collect())
    }

    fn armed_counts(&self) -> Stored<'_, Vec<(InstanceNo, u64)>> {
        let mut counts: std::collections::BTreeMap<InstanceNo, u64> = std::collections::BTreeMap::new();
        for (alarm, _) in self.state().alarms.values().filter(|(alarm, _)| alarm.state == AlarmState::Armed) {
            *counts.entry(alarm.instance).or_default() += 1;
        }
        now(counts.into_iter().collect())
    }
}
