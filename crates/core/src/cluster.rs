//! This server among others on the same store: handling of their hints, and periodic reads for what hints missed.

mod report;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frontdesk_wire::{Close, DeskNo};

use crate::agents::{AgentsPlane, Exchanges};
use crate::base::Base;
use crate::cron::CronPlane;
use crate::delivery::DeliveryPlane;
use crate::directory::DirectoryPlane;
use crate::env::Env;
use crate::lease::Lease;
use crate::meters::Meters;
use crate::outbound::OutboundPlane;
use crate::port::bus::{Bus, BusEvent, Hint, To};
use crate::port::platform::Platforms;
use crate::port::store::{DeskRecord, StoreError};
use crate::tail::Tail;

pub use report::{DeskReport, FailingListener};

/// How often a server sends itself a hint.
const ECHO_MS: u64 = 1_000;
/// Without an echo for this long the server is cut off from the bus.
const CUT_OFF_MS: u64 = 3_000;
/// Interval of sweeps of the store: normally, and while the bus does not deliver.
const SWEEP_MS: u64 = 5_000;
const CUT_OFF_SWEEP_MS: u64 = 250;
/// How often other servers are asked for their events while a client watches the tail here.
const ASK_TAIL_MS: u64 = 1_000;
/// How long a change of the directory waits for other servers to confirm it. After this time a lease without renewal has
/// expired.
const CONFIRM_MS: u64 = 5_000;
const CONFIRM_EVERY: Duration = Duration::from_millis(25);

pub struct ClusterPlane {
    env: Arc<dyn Env>,
    bus: Arc<dyn Bus>,
    lease: Arc<Lease>,
    directory: Arc<DirectoryPlane>,
    delivery: Arc<DeliveryPlane>,
    agents: Arc<AgentsPlane>,
    exchanges: Arc<Exchanges>,
    outbound: Arc<OutboundPlane>,
    cron: Arc<CronPlane>,
    platforms: Arc<Platforms>,
    meters: Arc<Meters>,
    tail: Arc<Tail>,
    /// What this server reported last, and under which number.
    reported: Mutex<(DeskNo, DeskReport)>,
    /// The servers that were live when this one last took over from those that are gone.
    followed: Mutex<Option<Vec<DeskNo>>>,
    /// On the steady clock.
    echo_sent_ms: AtomicU64,
    echo_received_ms: AtomicU64,
    swept_ms: AtomicU64,
    asked_ms: AtomicU64,
}

/// The planes that receive hints.
pub(crate) struct Planes {
    pub(crate) directory: Arc<DirectoryPlane>,
    pub(crate) delivery: Arc<DeliveryPlane>,
    pub(crate) agents: Arc<AgentsPlane>,
    pub(crate) exchanges: Arc<Exchanges>,
    pub(crate) outbound: Arc<OutboundPlane>,
    pub(crate) cron: Arc<CronPlane>,
    pub(crate) platforms: Arc<Platforms>,
}

impl ClusterPlane {
    pub(crate) fn new(base: &Base, planes: Planes) -> Self {
        let now_ms = base.env.steady_ms();
        base.bus.listen_as(base.lease.me());
        let Planes { directory, delivery, agents, exchanges, outbound, cron, platforms } = planes;
        Self {
            env: base.env.clone(),
            bus: base.bus.clone(),
            lease: base.lease.clone(),
            directory,
            delivery,
            agents,
            exchanges,
            outbound,
            cron,
            platforms,
            meters: base.meters.clone(),
            tail: base.tail.clone(),
            reported: Mutex::default(),
            followed: Mutex::default(),
            echo_sent_ms: AtomicU64::new(0),
            echo_received_ms: AtomicU64::new(now_ms),
            swept_ms: AtomicU64::new(now_ms),
            asked_ms: AtomicU64::new(0),
        }
    }

    /// Whether other servers may share the store.
    pub fn has_others(&self) -> bool {
        self.bus.has_others()
    }

    /// The lease was renewed; the directory has this version, and these servers are live. Reads what others changed, and
    /// takes over from a server that is gone: its unfinished actions become unknown, and agents that it served may have
    /// to be woken. For one caller, which repeats it after an error.
    pub async fn renewed(&self, version: u64, live: Vec<DeskNo>) -> Result<(), StoreError> {
        if self.directory.version() < version
            && let Err(error) = self.directory.refresh().await
        {
            tracing::warn!(%error, "reading the changes of other servers failed");
        }
        self.lease.note_directory(self.directory.version());
        let followed = || self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        // Also at first: one may have ended while this one started.
        let is_one_gone = followed().as_ref().is_none_or(|known| known.iter().any(|desk| !live.contains(desk)));
        if is_one_gone {
            self.outbound.mark_orphaned_entries_unknown(live.clone()).await?;
            self.delivery.served().look_for_unserved().await?;
        }
        *followed() = Some(live);
        Ok(())
    }

    /// The next hint. For one caller.
    pub async fn next_event(&self) -> BusEvent {
        self.bus.next_event().await
    }

    pub async fn take(&self, event: BusEvent) -> Result<(), StoreError> {
        match event {
            BusEvent::Missed => self.sweep().await?,
            BusEvent::Hint(Hint::Echo(of)) if of == self.lease.me() => {
                self.echo_received_ms.store(self.env.steady_ms(), Ordering::Relaxed);
            }
            BusEvent::Hint(Hint::Echo(_)) => {}
            BusEvent::Hint(Hint::Rows(instances)) => {
                for instance in instances {
                    self.delivery.served().look_for_rows(instance);
                }
            }
            BusEvent::Hint(Hint::Directory(version)) => {
                if self.directory.version() < version {
                    self.directory.refresh().await?;
                    // Callers of `unconfirmed` on other servers read this version from the lease.
                    self.lease.note_directory(self.directory.version());
                    self.lease.renew().await?;
                }
            }
            BusEvent::Hint(Hint::Replaced(instance, session)) => {
                self.delivery.sockets().close_session(instance, session, Close::Replaced);
            }
            BusEvent::Hint(Hint::Inboxes(agents)) => self.agents.inboxes_changed(&agents),
            BusEvent::Hint(Hint::Sending(desk, platform, bot)) => self.outbound.bot_shared(desk, &platform, &bot),
            BusEvent::Hint(Hint::Alarm(instance, id, next_ms, host)) => {
                self.cron.alarm_armed(instance, id, next_ms, &host);
            }
            BusEvent::Hint(Hint::InboxRead(agent, seq)) => self.agents.read_elsewhere(agent, seq),
            BusEvent::Hint(Hint::Handoffs) => self.agents.note_handoff(),
            BusEvent::Hint(Hint::Results(instance)) => self.delivery.served().take_parked(vec![instance]).await?,
            BusEvent::Hint(Hint::Answered(tokens)) => self.exchanges.look_for_answers(tokens).await?,
            BusEvent::Hint(Hint::Platform(name, text)) => {
                if let Some(platform) = self.platforms.get(&name) {
                    platform.receive_hint(&text).await;
                }
            }
            BusEvent::Hint(Hint::Interrupt(instance, session_key, chat_id)) => {
                self.delivery.served().interrupt_here(instance, &session_key, &chat_id);
            }
            BusEvent::Hint(Hint::InterruptTurn(tenant, session_key)) => {
                if self.delivery.interrupts().ask(&tenant, session_key) {
                    self.delivery.interrupts().work_off(tenant).await;
                }
            }
            BusEvent::Hint(Hint::Dropped(instance, seq)) => self.delivery.served().row_dropped_elsewhere(instance, seq),
            BusEvent::Hint(Hint::AskTail(desk)) if desk != self.lease.me() => self.tail.asked(desk),
            BusEvent::Hint(Hint::AskTail(_)) => {}
            BusEvent::Hint(Hint::Tail(part)) => self.tail.received(part),
        }
        Ok(())
    }

    /// Waits until every live server has read the directory as it is now. Returns the names of those that have not in
    /// time: a revoked credential may still work there.
    pub async fn unconfirmed(&self) -> Result<Vec<String>, StoreError> {
        let (version, began_ms) = (self.directory.version(), self.env.steady_ms());
        self.lease.note_directory(version);
        loop {
            let mut behind = Vec::new();
            // Whether it is alone is known from the last renewal only; one that has just begun counts as well.
            if self.bus.has_others() {
                for (desk, _) in self.lease.desks().await? {
                    if desk.number != self.lease.me() && desk.directory_seen < version {
                        behind.push(desk.name);
                    }
                }
            }
            if behind.is_empty() || self.env.steady_ms().saturating_sub(began_ms) >= CONFIRM_MS {
                return Ok(behind);
            }
            tokio::time::sleep(CONFIRM_EVERY).await;
        }
    }

    /// Call this several times a second: sends the server a hint of its own, and sweeps when it is time.
    pub async fn tick(&self) -> Result<(), StoreError> {
        let now_ms = self.env.steady_ms();
        if now_ms.saturating_sub(self.echo_sent_ms.load(Ordering::Relaxed)) >= ECHO_MS {
            self.echo_sent_ms.store(now_ms, Ordering::Relaxed);
            let me = self.lease.me();
            self.bus.listen_as(me);
            self.bus.send(To::Desk(me), Hint::Echo(me));
        }
        let is_cut_off = now_ms.saturating_sub(self.echo_received_ms.load(Ordering::Relaxed)) >= CUT_OFF_MS;
        if self.lease.note_cut_off(is_cut_off) {
            self.meters.bus_cut_off.set(i64::from(is_cut_off));
            if is_cut_off {
                tracing::warn!(
                    "the bus stopped delivering; changes of other servers are found by periodic sweeps only"
                );
                self.tail.note_cut_off();
            } else {
                tracing::info!("the bus recovered");
            }
        }
        self.pass_tail(now_ms);
        self.report().await?;
        self.delivery.served().adopt_sessions().await?;
        self.exchanges.adopt().await?;
        self.agents.release_carried().await?;
        let every_ms = if is_cut_off { CUT_OFF_SWEEP_MS } else { SWEEP_MS };
        if now_ms.saturating_sub(self.swept_ms.load(Ordering::Relaxed)) >= every_ms {
            self.sweep().await?;
        }
        Ok(())
    }

    /// Asks other servers for their events while a client watches here, and sends ours to those that asked.
    fn pass_tail(&self, now_ms: u64) {
        let me = self.lease.me();
        let is_due = now_ms.saturating_sub(self.asked_ms.load(Ordering::Relaxed)) >= ASK_TAIL_MS;
        match self.tail.asks_others() && !self.lease.is_alone() {
            true if is_due => {
                self.asked_ms.store(now_ms, Ordering::Relaxed);
                self.bus.send(To::All, Hint::AskTail(me));
            }
            true => {}
            false => self.asked_ms.store(0, Ordering::Relaxed),
        }
        for (to, part) in self.tail.parts(me, self.lease.name()) {
            self.bus.send(To::Desk(to), Hint::Tail(part));
        }
    }

    /// Writes the report of this server to the store, if it changed.
    async fn report(&self) -> Result<(), StoreError> {
        let is_cut_off = self.lease.is_cut_off();
        let now = (self.lease.me(), DeskReport::new(is_cut_off, self.directory.bots().failures()));
        if *self.reported.lock().unwrap_or_else(PoisonError::into_inner) == now {
            return Ok(());
        }
        self.lease.report(now.1.text()).await?;
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = now;
        Ok(())
    }

    /// The live servers, this one included, with the report of each.
    pub async fn reports(&self) -> Result<Vec<(DeskRecord, DeskReport)>, StoreError> {
        let read = |(desk, _): (DeskRecord, Vec<String>)| {
            let report = DeskReport::read(&desk.report);
            (desk, report)
        };
        Ok(self.lease.desks().await?.into_iter().map(read).collect())
    }

    /// Listeners of bots that fail at other servers, with the name of the server.
    pub async fn failing_elsewhere(&self) -> Result<Vec<(String, FailingListener)>, StoreError> {
        if !self.has_others() || self.lease.is_alone() {
            return Ok(Vec::new());
        }
        let others = self.reports().await?.into_iter().filter(|(desk, _)| desk.number != self.lease.me());
        Ok(others
            .flat_map(|(desk, report)| report.listeners.into_iter().map(move |it| (desk.name.clone(), it)))
            .collect())
    }

    /// Reads the store for changes that hints would have announced. Costs one small query where nothing is new. A part
    /// that fails does not stop the others; the first error is returned.
    pub async fn sweep(&self) -> Result<(), StoreError> {
        self.swept_ms.store(self.env.steady_ms(), Ordering::Relaxed);
        self.meters.bus_sweeps.inc();
        let refreshed = self.directory.refresh().await;
        self.agents.streams_look();
        let answers = self.exchanges.look_for_all_answers().await;
        let rows = self.delivery.served().sweep().await;
        let mut unserved = Ok(());
        if self.lease.take_unknown_rows() {
            unserved = self.delivery.served().look_for_unserved().await.inspect_err(|_| self.lease.note_unknown_rows());
        }
        refreshed.and(answers).and(rows).and(unserved)
    }
}
