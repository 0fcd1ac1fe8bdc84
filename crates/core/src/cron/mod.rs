//! Alarms: an agent arms one per job, the server calls the agent until the call is accepted, and stores the result.
//! Alarms that are due soon are also kept in memory; the stored rows are authoritative.

mod alarm_loop;
mod buckets;
mod clock;
mod firing;
mod keys;
mod loading;
pub mod retry;
pub mod schedule;
pub mod signing;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use frontdesk_wire::cron::{
    AlarmHistory, ArmedAlarm, BY_RELAY, CancelAlarm, OnMiss, PastAlarm, ProvisionAlarm, Provisioned,
};
use frontdesk_wire::{InstanceId, InstanceNo, JobId, TenantId};
use tokio::sync::Notify;

use self::buckets::Buckets;
use self::retry::FireAnswer;
use self::schedule::{Caps, Next, Schedule};
use crate::base::Base;
use crate::directory::facts::Instance;
use crate::directory::{DirectoryPlane, Effect, ProvenInstance, check_id};
use crate::env::Env;
use crate::error::DeskError;
use crate::lease::Lease;
use crate::meters::{Meters, Why};
use crate::port::BoxFuture;
use crate::port::alarms::{Alarm, AlarmState, Alarms, Arming};
use crate::port::bus::{Bus, Hint, To};
use crate::port::outcall::Outcall;
use crate::port::store::{Ledger, StoreError};
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::tail::Tail;
use crate::vault::Sealer;

pub use alarm_loop::{AlarmLoop, ClaimRound, Claimed, PAUSE_MAX};
pub use clock::ClockWatch;
pub use keys::SigningKeys;
pub use loading::Loading;

/// Alarms due within this time are kept in memory; later ones are read from the store in time.
const WINDOW_MS: u64 = 1_800_000;
/// A claim expires after this time; longer than the longest call.
pub const LEASE_MS: u64 = 60_000;
/// Delay before a failed store request is repeated.
const STORE_PAUSE: Duration = Duration::from_secs(1);
/// Concurrent calls.
const CAPS: Caps = Caps { total: 1024, per_tenant: 768, per_host: 128 };
const HISTORY_PAGE: usize = 200;
/// Rows of a page, each of about a KiB at most.
const ARMED_PAGE: usize = 100;
/// Alarms in the listing of one tenant.
const TENANT_ARMED_MAX: usize = 1_000;
const FIRE_AT_MAX_BYTES: usize = 128;

/// Alarms that are due soon, and counters per tenant.
pub struct AlarmClock {
    schedule: Mutex<Schedule>,
    /// All alarms due up to this time are in the schedule.
    loaded_until_ms: AtomicU64,
    /// Armed alarms per tenant: counted in the store from time to time, and updated in between.
    armed: Mutex<HashMap<TenantId, u64>>,
    is_counted: AtomicBool,
    /// Serializes the first count of armed alarms. Holds the time (steady clock) and error of the last failed count.
    counting: tokio::sync::Mutex<Option<(u64, StoreError)>>,
    /// Notified when an alarm may be due earlier than expected.
    notify: Notify,
}

impl Default for AlarmClock {
    fn default() -> Self {
        Self {
            schedule: Mutex::new(Schedule::new(CAPS)),
            loaded_until_ms: AtomicU64::new(0),
            armed: Mutex::default(),
            is_counted: AtomicBool::new(false),
            counting: tokio::sync::Mutex::default(),
            notify: Notify::new(),
        }
    }
}

impl AlarmClock {
    /// Makes the first count, which reads all alarms. Callers that waited during a failed count get its error, so that they
    /// do not repeat it one after another.
    async fn ensure_counted<F: Future<Output = Result<(), StoreError>>>(
        &self,
        env: &dyn Env,
        count: impl FnOnce() -> F,
    ) -> Result<(), StoreError> {
        if self.is_counted.load(Ordering::Acquire) {
            return Ok(());
        }
        let asked_ms = env.steady_ms();
        let mut failed = self.counting.lock().await;
        if self.is_counted.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Some((_, error)) = failed.as_ref().filter(|(at_ms, _)| *at_ms > asked_ms) {
            return Err(error.clone());
        }
        let counted = count().await;
        *failed = counted.as_ref().err().map(|error| (env.steady_ms(), error.clone()));
        counted
    }

    pub fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn armed(&self) -> MutexGuard<'_, HashMap<TenantId, u64>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn armed_of(&self, tenant: &TenantId) -> u64 {
        self.armed().get(tenant).copied().unwrap_or(0)
    }

    fn note_armed(&self, tenant: &TenantId) {
        let mut armed = self.armed();
        match armed.get_mut(tenant) {
            Some(count) => *count += 1,
            None => drop(armed.insert(tenant.clone(), 1)),
        }
    }

    pub(super) fn note_ended(&self, tenant: &TenantId, count: u64) {
        let mut armed = self.armed();
        let Some(left) = armed.get_mut(tenant) else { return };
        *left = left.saturating_sub(count);
        if *left == 0 {
            armed.remove(tenant);
        }
    }

    /// Up to `max` alarms that are due and may be fired now.
    pub fn due(&self, now_ms: u64, max: usize) -> Vec<Next> {
        let mut schedule = self.schedule();
        schedule.move_due(now_ms);
        schedule.take(max)
    }
}

/// Prefix of the callback of a planned wake, followed by its tenant: each tenant has its own lane, so that slow
/// connectors of one tenant do not delay others.
pub(crate) const BY_WAKE: &str = "wake:";

/// Carries out planned wakes when they are due.
pub trait PlannedWakes: Send + Sync {
    fn fire<'a>(&'a self, alarm: &'a Alarm) -> BoxFuture<'a, FireAnswer>;
}

pub struct CronPlane {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    lease: Arc<Lease>,
    bus: Arc<dyn Bus>,
    ledger: Arc<dyn Ledger>,
    alarms: Arc<dyn Alarms>,
    clock: AlarmClock,
    planned_wakes: OnceLock<Weak<dyn PlannedWakes>>,
    keys: SigningKeys,
    outcall: Arc<dyn Outcall>,
    tail: Arc<Tail>,
    meters: Arc<Meters>,
    rules: Arc<Rules>,
}

impl CronPlane {
    pub(crate) async fn open(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        sealer: &Arc<Sealer>,
        outcall: &Arc<dyn Outcall>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            env: base.env.clone(),
            directory: directory.clone(),
            lease: base.lease.clone(),
            bus: base.bus.clone(),
            ledger: stores.ledger.clone(),
            alarms: stores.alarms.clone(),
            clock: AlarmClock::default(),
            planned_wakes: OnceLock::new(),
            keys: SigningKeys::open(base, directory, sealer).await?,
            outcall: outcall.clone(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        })
    }

    /// Set once, at start. Weak, because the implementation holds this plane.
    pub(crate) fn fire_wakes_by(&self, wakes: Weak<dyn PlannedWakes>) {
        let _ = self.planned_wakes.set(wakes);
    }

    /// Called after a directory change was committed: another server may have rotated the keys.
    pub(crate) fn apply(&self, effect: &Effect) {
        if *effect == Effect::SigningKeysChanged
            && let Err(error) = self.keys.read()
        {
            tracing::error!(%error, "reading the signing keys failed; the previous keys stay in use");
        }
    }

    /// Keys that sign alarm calls.
    pub fn keys(&self) -> &SigningKeys {
        &self.keys
    }

    pub fn clock(&self) -> &AlarmClock {
        &self.clock
    }

    pub async fn provision_alarm(&self, who: &ProvenInstance, ask: ProvisionAlarm) -> Result<Provisioned, DeskError> {
        check_id("job_id", &ask.job_id)?;
        let callback = ask.agent_callback_url.trim_end_matches('/');
        if callback.contains(['?', '#']) {
            let text = "agent_callback_url must be a base URL without query and fragment".into();
            return Err(DeskError::BadRequest(text));
        }
        if callback != BY_RELAY {
            let checked = self.outcall.check(callback);
            checked.map_err(|error| DeskError::BadRequest(format!("agent_callback_url: {error}")))?;
        }
        let now_ms = self.env.now_ms();
        let due_ms = parse_time(&ask.fire_at)?;
        let misfire = ask.misfire.unwrap_or_default();
        let alarm = Alarm {
            id: 0,
            instance: who.instance.no,
            job_id: ask.job_id,
            fire_at: ask.fire_at,
            due_ms,
            next_ms: due_ms.max(now_ms) + jitter_ms(&*self.env, self.rules.fire_jitter_ms),
            armed_ms: now_ms,
            first_ms: 0,
            attempts: 0,
            grace_ms: misfire.grace_s.map_or(self.rules.misfire_grace_ms, |s| s.saturating_mul(1000)),
            skip_missed: misfire.on_miss == OnMiss::Skip,
            callback: callback.into(),
            schedule_id: format!("sh_{}", self.env.random_hex(12)),
            state: AlarmState::Armed,
            note: String::new(),
            claim: 0,
        };
        let arming = self.arm(&who.tenant, alarm).await?;
        Ok(Provisioned { schedule_id: arming.schedule_id })
    }

    /// Arms an alarm and adds it to the schedule.
    pub(crate) async fn arm(&self, tenant: &TenantId, alarm: Alarm) -> Result<Arming, DeskError> {
        self.check_armed(tenant, &alarm).await?;
        let (instance, next_ms, lane) = (alarm.instance, alarm.next_ms, lane_of(&alarm.callback).to_owned());
        // Counted before it is stored, so that many at once cannot pass the limit together.
        self.clock.note_armed(tenant);
        let armed = self.alarms.arm(vec![alarm]).await.and_then(|mut all| all.pop().ok_or(StoreError::Conflict));
        if !armed.as_ref().is_ok_and(|arming| arming.fresh && !arming.replaced) {
            self.clock.note_ended(tenant, 1);
        }
        let arming = armed?;
        if arming.replaced {
            self.clock.schedule().note_stale();
        }
        if arming.fresh {
            self.schedule_alarm(next_ms, arming.id, tenant, &lane);
            self.notify_owner(instance, arming.id, next_ms, &lane);
        }
        Ok(arming)
    }

    /// Checks the quota. Changing the time of an armed job is always allowed.
    async fn check_armed(&self, tenant: &TenantId, alarm: &Alarm) -> Result<(), DeskError> {
        let max = self.rules.armed_max;
        if max == 0 {
            return Ok(());
        }
        self.clock.ensure_counted(&*self.env, || self.count_armed()).await?;
        let there = self.clock.armed_of(tenant);
        if there < max {
            return Ok(());
        }
        let known = self.alarms.alarm(alarm.instance, &alarm.job_id).await?;
        if known.is_some_and(|known| known.state == AlarmState::Armed) {
            return Ok(());
        }
        let text = format!(
            "this tenant has {there} alarms armed; cancel some, or ask the operator to raise cron.armed_per_tenant ({max})"
        );
        Err(DeskError::RateLimited(text))
    }

    /// Counts armed alarms per tenant, and cancels those whose owner is gone.
    pub async fn count_armed(&self) -> Result<(), StoreError> {
        // Read before the directory is refreshed: every owner seen here is known there, unless it is gone.
        let mut counts = self.alarms.armed_counts().await?;
        self.directory.refresh().await?;
        let gone = |no: InstanceNo| {
            self.directory.read(|view| match view.instance_no(no) {
                Some(instance) => instance.left_ms.is_some(),
                // The record of an owner that this version cannot read has a number that is not known here.
                None => {
                    view.agent_no(no).is_none()
                        && !["instance", "agent"].iter().any(|it| view.unreadable().has_kind(it))
                }
            })
        };
        for (no, count) in counts.extract_if(.., |(no, _)| gone(*no)).collect::<Vec<_>>() {
            if !gone(no) {
                counts.push((no, count)); // it has returned meanwhile, and may have armed new ones
                continue;
            }
            let mut cancelled = 0;
            cancel_all(&*self.alarms, &*self.env, no, || gone(no), |some| cancelled += some).await?;
            if !gone(no) {
                counts.push((no, count.saturating_sub(cancelled))); // as above
            }
            tracing::info!(
                number = no.0,
                count = cancelled,
                "alarms were cancelled: the instance or agent that armed them was removed"
            );
        }
        let mut by_tenant: HashMap<TenantId, u64> = HashMap::new();
        for (no, count) in &counts {
            *by_tenant.entry(self.directory.tenant_of_no(*no)).or_default() += count;
        }
        *self.clock.armed() = by_tenant;
        self.clock.is_counted.store(true, Ordering::Release);
        let armed: u64 = counts.iter().map(|(_, count)| count).sum();
        self.meters.alarms_armed.set(i64::try_from(armed).unwrap_or(i64::MAX));
        Ok(())
    }

    /// Cancels all alarms of an instance or agent that was removed. They are not fired any more in any case; what fails here
    /// is done when alarms are counted next.
    pub(crate) async fn owner_removed(&self, tenant: &TenantId, no: InstanceNo) {
        let is_gone = || self.directory.read(|view| view.instance_no(no).is_none_or(|it| it.left_ms.is_some()));
        let cancelled = |some| {
            self.clock.note_ended(tenant, some);
            (0..some).for_each(|_| self.clock.schedule().note_stale());
        };
        if let Err(error) = cancel_all(&*self.alarms, &*self.env, no, is_gone, cancelled).await {
            tracing::warn!(%error, tenant = tenant.as_str(), "cancelling the alarms of a removed agent failed; it is tried again within a minute");
        }
    }

    pub async fn cancel_alarm(&self, who: &ProvenInstance, ask: &CancelAlarm) -> Result<(), DeskError> {
        if self.alarms.disarm(who.instance.no, &ask.job_id, self.env.now_ms()).await? {
            self.meters.alarms_ended.get_or_create(&Why { why: "cancelled" }).inc();
            self.clock.note_ended(&who.tenant, 1);
            self.clock.schedule().note_stale();
        }
        Ok(())
    }

    /// Armed alarms of an instance, up to `limit`.
    pub async fn armed(&self, no: InstanceNo, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        let (mut found, mut after) = (Vec::new(), Some(JobId::default()));
        while let Some(job) = after.filter(|_| found.len() < limit) {
            let page = self.alarms.armed(no, &job, limit - found.len()).await?;
            found.extend(page.alarms);
            after = page.next;
        }
        Ok(found)
    }

    /// Alarms that were given up, up to `limit`.
    pub async fn dead(&self, limit: usize) -> Result<Vec<Alarm>, StoreError> {
        self.alarms.dead_alarms(None, limit).await
    }

    /// A page of armed alarms of an instance, after this job, and the job after which the next page begins; `None`: this
    /// was the last one.
    pub async fn armed_page(
        &self,
        instance: InstanceNo,
        after: &JobId,
    ) -> Result<(Vec<ArmedAlarm>, Option<JobId>), StoreError> {
        let page = self.alarms.armed(instance, after, ARMED_PAGE).await?;
        let show = |it: Alarm| ArmedAlarm { job_id: it.job_id, fire_at: it.fire_at, schedule_id: it.schedule_id };
        Ok((page.alarms.into_iter().map(show).collect(), page.next))
    }

    /// Armed alarms of a tenant, or of one owner in it: jobs of its instances and planned wakes of its agents. At most
    /// 1,000, and whether there may be more.
    pub async fn armed_of_tenant(
        &self,
        tenant: &TenantId,
        only: Option<&InstanceId>,
    ) -> Result<(Vec<(InstanceId, Alarm)>, bool), StoreError> {
        let owners: Vec<(InstanceNo, InstanceId)> = self.directory.read(|view| {
            let Some(index) = view.tenant_index(tenant) else { return Vec::new() };
            let instances = index.instances().map(|it| (it.no, it.name.clone()));
            let all = instances.chain(index.agents().map(|it| (it.no, it.id.clone())));
            all.filter(|(_, name)| only.is_none_or(|only| only == name)).collect()
        });
        let mut found = Vec::new();
        for (no, name) in owners {
            if found.len() >= TENANT_ARMED_MAX {
                break;
            }
            let armed = self.armed(no, TENANT_ARMED_MAX - found.len()).await?;
            found.extend(armed.into_iter().map(|alarm| (name.clone(), alarm)));
        }
        found.sort_by_key(|(_, alarm)| (alarm.next_ms, alarm.id));
        let is_cut = found.len() == TENANT_ARMED_MAX;
        Ok((found, is_cut))
    }

    pub async fn alarm_history(&self, instance: &Instance, job_id: Option<&JobId>) -> Result<AlarmHistory, DeskError> {
        let ended = self.alarms.ended_alarms(instance.no, job_id, HISTORY_PAGE).await?;
        let show = |it: crate::port::alarms::EndedAlarm| PastAlarm {
            id: it.id,
            job_id: it.job_id,
            fire_at: it.fire_at,
            schedule_id: it.schedule_id,
            outcome: it.outcome,
            attempts: it.attempts,
            at: it.at_ms,
            note: it.note,
        };
        Ok(AlarmHistory { history: ended.into_iter().map(show).collect() })
    }

    /// Retries an alarm that was given up, starting now.
    pub async fn revive_alarm(&self, id: u64) -> Result<(), DeskError> {
        let now_ms = self.env.now_ms();
        let revived = self.alarms.revive_alarm(id, now_ms).await?;
        let alarm = revived.ok_or_else(|| DeskError::NotFound(format!("no alarm with number {id} was given up")))?;
        let tenant = self.directory.tenant_of_no(alarm.instance);
        self.clock.note_armed(&tenant);
        self.schedule_alarm(now_ms, id, &tenant, lane_of(&alarm.callback));
        self.notify_owner(alarm.instance, id, now_ms, lane_of(&alarm.callback));
        Ok(())
    }

    // ---- schedule ------------------------------------------------------------------------

    /// The server that fires alarms for this host learns of one.
    fn notify_owner(&self, instance: InstanceNo, id: u64, next_ms: u64, lane: &str) {
        if let Some(owner) = Buckets::of(&self.lease).other_owner(lane) {
            self.bus.send(To::Desk(owner), Hint::Alarm(instance, id, next_ms, lane.to_owned()));
        }
    }

    /// Another server armed an alarm that this one fires.
    pub(crate) fn alarm_armed(&self, instance: InstanceNo, id: u64, next_ms: u64, lane: &str) {
        self.schedule_alarm(next_ms, id, &self.directory.tenant_of_no(instance), lane);
    }

    fn schedule_alarm(&self, next_ms: u64, id: u64, tenant: &TenantId, lane: &str) {
        if next_ms > self.clock.loaded_until_ms.load(Ordering::Acquire) {
            return; // later than the window: read from the store in time
        }
        let next_ms = Buckets::of(&self.lease).tried_ms(lane, next_ms);
        let sooner = {
            let mut schedule = self.clock.schedule();
            let sooner = schedule.next_ms().is_none_or(|first| next_ms < first);
            schedule.add(next_ms, id, tenant, lane);
            sooner
        };
        if sooner {
            self.clock.notify.notify_one();
        }
    }
}

/// Cancels the alarms of an instance in small steps and reports the number of each step. `is_gone` is checked between
/// steps: a restored instance may have armed new alarms, which must stay.
async fn cancel_all(
    alarms: &dyn Alarms,
    env: &dyn Env,
    no: InstanceNo,
    is_gone: impl Fn() -> bool,
    mut cancelled: impl FnMut(u64),
) -> Result<(), StoreError> {
    let mut after = Some(JobId::default());
    while let Some(job) = after.filter(|_| is_gone()) {
        let step = alarms.disarm_some(no, &job, env.now_ms()).await?;
        cancelled(step.gone);
        after = step.next;
    }
    Ok(())
}

fn jitter_ms(env: &dyn Env, max_ms: u64) -> u64 {
    let mut random = [0; 8];
    if max_ms > 0 {
        env.fill(&mut random);
    }
    u64::from_le_bytes(random) % (max_ms + 1)
}

/// The host of the callback. Alarms for the same host share a lane, because it may be slow.
pub(super) fn lane_of(callback: &str) -> &str {
    let after_scheme = callback.split_once("://").map_or(callback, |(_, rest)| rest);
    after_scheme.split(['/', '?', '#']).next().unwrap_or_default()
}

/// ISO 8601 with an offset. Times before 1970 become 0.
fn parse_time(text: &str) -> Result<u64, DeskError> {
    // The text is stored, and may have annotations without end.
    if text.len() > FIRE_AT_MAX_BYTES {
        return Err(DeskError::BadRequest(format!("fire_at must have at most {FIRE_AT_MAX_BYTES} bytes")));
    }
    let parsed: Result<jiff::Timestamp, _> = text.parse();
    let time = parsed.ok().or_else(|| last_days(text)).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        DeskError::BadRequest(format!("fire_at {shown:?} is not an ISO 8601 time with an offset"))
    })?;
    Ok(u64::try_from(time.as_millisecond()).unwrap_or(0))
}

/// The range of the time library ends a day before year 9999 does. Such times become its last one.
fn last_days(text: &str) -> Option<jiff::Timestamp> {
    let (moment, offset) = text.split_at_checked("9999-12-31T23:59:59".len())?;
    let civil: jiff::civil::DateTime = moment.parse().ok()?;
    let well_formed = format!("2000-01-01T00:00:00{offset}").parse::<jiff::Timestamp>().is_ok();
    (civil.year() == 9999 && well_formed).then_some(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_need_an_offset_and_may_be_in_the_past() {
        for (text, ms) in [
            ("2026-06-18T12:34:56+00:00", 1_781_786_096_000),
            ("2026-06-18T14:34:56.250+02:00", 1_781_786_096_250),
            ("2026-06-18T12:34:56Z", 1_781_786_096_000),
            ("1969-12-31T23:59:59Z", 0),
            ("0001-01-01T00:00:00Z", 0),
            ("2016-12-31T23:59:60Z", 1_483_228_799_000),
        ] {
            assert_eq!(parse_time(text).unwrap(), ms, "{text}");
        }
        assert!(parse_time("9999-12-30T00:00:00Z").unwrap() > 253_000_000_000_000);
        for text in [
            "",
            "now",
            "2026-06-18",
            "2026-06-18T12:34:56",
            "2026-13-01T00:00:00Z",
            "1781786096",
            "2026-06-18T25:00:00Z",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
        assert!(parse_time(&"9".repeat(1_000_000)).is_err());
    }

    struct Moving(AtomicU64);

    impl Env for Moving {
        fn now_ms(&self) -> u64 {
            self.0.fetch_add(1, Ordering::SeqCst)
        }

        fn fill(&self, _: &mut [u8]) {}
    }

    #[tokio::test]
    async fn whoever_waits_for_a_first_count_shares_its_failure() {
        let (clock, env, counts) = (AlarmClock::default(), Moving(AtomicU64::new(1)), AtomicU64::new(0));
        let count = async || {
            tokio::task::yield_now().await; // the others wait
            match counts.fetch_add(1, Ordering::SeqCst) {
                0 => Err(StoreError::Unavailable("away".into())),
                _ => Ok(()),
            }
        };
        let all = tokio::join!(
            clock.ensure_counted(&env, count),
            clock.ensure_counted(&env, count),
            clock.ensure_counted(&env, count)
        );
        let failed = || Err(StoreError::Unavailable("away".into()));
        assert_eq!((all, counts.load(Ordering::SeqCst)), ((failed(), failed(), failed()), 1));
        assert_eq!(
            (clock.ensure_counted(&env, count).await, counts.load(Ordering::SeqCst)),
            (Ok(()), 2),
            "a later one tries"
        );
    }

    #[test]
    fn a_lane_is_a_host() {
        assert_eq!(lane_of("https://a.example:8443/base"), "a.example:8443");
        assert_eq!(lane_of("relay:"), "relay:");
    }
}
