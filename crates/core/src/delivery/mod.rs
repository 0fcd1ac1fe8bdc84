//! Delivery of rows to sockets: the socket of each instance, its window, presence, and wakes.

pub mod delivered;
pub mod interrupt;
mod mail;
mod memory;
mod presence;
mod reports;
pub mod served;
pub mod session;
pub mod sockets;
mod turns;
pub mod unserved;
pub mod wake;
mod waking;
pub mod window;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use frontdesk_wire::{Close, DeskNo, InstanceNo};

use crate::base::Base;
use crate::directory::{DirectoryPlane, Effect};
use crate::env::Env;
use crate::lease::Lease;
use crate::meters::Meters;
use crate::port::bus::{Bus, Hint, To};
use crate::port::outcall::Outcall;
use crate::port::platform::Platforms;
use crate::port::store::{Ledger, MailLog, NewRow, RowListener, SessionNo, Sessions, StoreError, Waiting};
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::tail::Tail;
use interrupt::Interrupts;
use reports::Reports;
use served::Served;
use sockets::{Order, Sockets};
use unserved::Unserved;

/// Passes new rows to the sockets of this server.
struct SwitchboardListener {
    sockets: Arc<Sockets>,
    /// Weak: the store holds the listener, and the lease holds the store.
    lease: Weak<Lease>,
    bus: Arc<dyn Bus>,
}

impl RowListener for SwitchboardListener {
    fn rows_committed(&self, rows: &[NewRow]) {
        let Some(lease) = self.lease.upgrade() else { return };
        self.sockets.take_rows(rows, |desk| lease.is_other(desk));
        if lease.is_alone() {
            return;
        }
        let mut elsewhere: BTreeMap<DeskNo, Vec<InstanceNo>> = BTreeMap::new();
        for NewRow { row, .. } in rows.iter().filter(|new| lease.is_other(new.row.served_by)) {
            elsewhere.entry(row.served_by).or_default().push(row.instance);
        }
        for (desk, instances) in elsewhere {
            self.bus.send(To::Desk(desk), Hint::Rows(instances));
        }
    }
}

pub struct DeliveryPlane {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    lease: Arc<Lease>,
    ledger: Arc<dyn Ledger>,
    mail: Arc<dyn MailLog>,
    sessions: Arc<dyn Sessions>,
    platforms: Arc<Platforms>,
    outcall: Arc<dyn Outcall>,
    sockets: Arc<Sockets>,
    served: Arc<Served>,
    interrupts: Interrupts,
    /// Why the last call of a wake URL failed; cleared by the next call or when the agent connects.
    wake_failures: Mutex<HashMap<InstanceNo, String>>,
    reports: Reports,
    tail: Arc<Tail>,
    meters: Arc<Meters>,
    rules: Arc<Rules>,
}

impl DeliveryPlane {
    pub(crate) async fn open(
        base: &Base,
        stores: &Stores,
        directory: &Arc<DirectoryPlane>,
        platforms: &Arc<Platforms>,
        outcall: &Arc<dyn Outcall>,
    ) -> Result<Self, StoreError> {
        let sockets = Arc::new(Sockets::new(base.rules.flight_tenant_bytes));
        let listener =
            SwitchboardListener { sockets: sockets.clone(), lease: Arc::downgrade(&base.lease), bus: base.bus.clone() };
        stores.ledger.attach_listener(Arc::new(listener));
        for (instance, mut presence) in stores.sessions.presences().await? {
            if !presence.served_by.is_none() && !base.lease.is_other(presence.served_by) {
                // The previous process ended and its sockets with it, so the agent was last seen now.
                (presence.served_by, presence.session) = (DeskNo::NONE, SessionNo::NONE);
                presence.seen_ms = base.env.now_ms();
            }
            sockets.set_presence(instance, |known| *known = presence);
        }
        let served = Arc::new(Served::new(base, stores, &sockets));
        Ok(Self {
            env: base.env.clone(),
            directory: directory.clone(),
            lease: base.lease.clone(),
            ledger: stores.ledger.clone(),
            mail: stores.mail.clone(),
            sessions: stores.sessions.clone(),
            platforms: platforms.clone(),
            outcall: outcall.clone(),
            interrupts: Interrupts::new(base, stores, directory, &sockets, &served),
            served,
            sockets,
            wake_failures: Mutex::default(),
            reports: Reports::new(base.tail.clone()),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        })
    }

    pub fn sockets(&self) -> &Sockets {
        &self.sockets
    }

    /// Which server serves which instance.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// `/stop` of users, and interrupts of gateways.
    pub fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Number of waiting rows per instance.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, StoreError> {
        self.ledger.waiting().await
    }

    /// Called after a directory change was committed: closes the sockets concerned.
    pub(crate) fn apply(&self, effect: &Effect) {
        match effect {
            Effect::GatewayRevoked(id) => self.sockets.close(Some(id), Close::Unauthorized),
            // The socket still serves the previous instance; the gateway reconnects for the new one.
            Effect::GatewayMoved(id) => self.sockets.close(Some(id), Close::GoingAway),
            // The instance may be served by a gateway that has moved since.
            Effect::InstanceLeft(no) => {
                self.reports.forget(*no);
                if let Some(mailbox) = self.sockets.socket(*no) {
                    mailbox.order(Order::Close(Close::Unauthorized));
                }
            }
            Effect::GatewayUnreadable(id) => self.sockets.close(Some(id), Close::TryLater),
            Effect::InstanceUnreadable(no) => {
                if let Some(mailbox) = self.sockets.socket(*no) {
                    mailbox.order(Order::Close(Close::TryLater));
                }
            }
            Effect::WakeUrlChanged(no) => self.sockets.unserved().note(*no, Unserved::NewUrl),
            Effect::AgentRemoved(no) => self.note_wake_failure(*no, None),
            Effect::SigningKeysChanged | Effect::BotChanged { .. } => {}
        }
    }

    /// `None` clears it: the URL is being called, or the agent connected.
    pub fn note_wake_failure(&self, no: InstanceNo, why: Option<&str>) {
        let mut failures = self.wake_failures.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(failures.insert(no, why.to_owned())),
            None => drop(failures.remove(&no)),
        }
    }

    /// Problems of agents.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// For how long a connected agent that acks has left a message unacked.
    pub fn unacked_ms(&self, no: InstanceNo) -> Option<u64> {
        let since_ms = self.sockets.socket(no)?.unacked_since_ms()?;
        Some(self.env.steady_ms().saturating_sub(since_ms))
    }

    pub fn wake_failure(&self, no: InstanceNo) -> Option<String> {
        self.wake_failures.lock().unwrap_or_else(PoisonError::into_inner).get(&no).cloned()
    }
}
