//! Delivery of rows to sockets: the socket of each instance, its window, presence, and wakes.

pub mod delivered;
mod interrupt;
mod mail;
mod presence;
pub mod session;
pub mod switchboard;
pub mod wake;
mod waking;
pub mod window;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use frontdesk_wire::{Close, DeskNo, InstanceNo, Seq};

use crate::base::Base;
use crate::directory::{DirectoryPlane, Effect};
use crate::env::Env;
use crate::lease::Lease;
use crate::meters::Meters;
use crate::port::bus::{Bus, Ring, To};
use crate::port::outcall::Outcall;
use crate::port::platform::Platforms;
use crate::port::store::{Delivery, Ledger, NewRow, Presence, RowListener, SessionNo, Sessions, StoreError, Waiting};
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::tail::Tail;
use switchboard::{Order, Switchboard, Unserved};

/// Passes new rows to the sockets of this server.
struct SwitchboardListener {
    switchboard: Arc<Switchboard>,
    /// Weak: the store holds the listener, and the lease holds the store.
    lease: Weak<Lease>,
    bus: Arc<dyn Bus>,
}

impl RowListener for SwitchboardListener {
    fn rows_committed(&self, rows: &[NewRow]) {
        let Some(lease) = self.lease.upgrade() else { return };
        self.switchboard.take_rows(rows, |desk| lease.is_other(desk));
        if lease.is_alone() {
            return;
        }
        let mut elsewhere: BTreeMap<DeskNo, Vec<InstanceNo>> = BTreeMap::new();
        for NewRow { row, .. } in rows.iter().filter(|new| lease.is_other(new.row.served_by)) {
            elsewhere.entry(row.served_by).or_default().push(row.instance);
        }
        for (desk, instances) in elsewhere {
            self.bus.ring(To::Desk(desk), Ring::Rows(instances));
        }
    }
}

pub struct DeliveryPlane {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    lease: Arc<Lease>,
    bus: Arc<dyn Bus>,
    ledger: Arc<dyn Ledger>,
    sessions: Arc<dyn Sessions>,
    platforms: Arc<Platforms>,
    outcall: Arc<dyn Outcall>,
    switchboard: Arc<Switchboard>,
    /// The number of this server under which its sessions are stored; 0: some are under another one.
    adopted_as: AtomicU64,
    /// Why the last call of a wake URL failed; cleared by the next call or when the agent connects.
    wake_failures: Mutex<HashMap<InstanceNo, String>>,
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
        let switchboard = Arc::new(Switchboard::default());
        let listener = SwitchboardListener {
            switchboard: switchboard.clone(),
            lease: Arc::downgrade(&base.lease),
            bus: base.bus.clone(),
        };
        stores.ledger.attach_listener(Arc::new(listener));
        for (instance, mut presence) in stores.sessions.presences().await? {
            if !presence.served_by.is_none() && !base.lease.is_other(presence.served_by) {
                // The socket ended with the previous process. For the agent that was just now.
                (presence.served_by, presence.session) = (DeskNo::NONE, SessionNo::NONE);
                presence.seen_ms = base.env.now_ms();
            }
            switchboard.set_presence(instance, |known| *known = presence);
        }
        Ok(Self {
            env: base.env.clone(),
            directory: directory.clone(),
            lease: base.lease.clone(),
            bus: base.bus.clone(),
            ledger: stores.ledger.clone(),
            sessions: stores.sessions.clone(),
            platforms: platforms.clone(),
            outcall: outcall.clone(),
            switchboard,
            adopted_as: AtomicU64::new(base.lease.me().0),
            wake_failures: Mutex::default(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        })
    }

    pub fn switchboard(&self) -> &Switchboard {
        &self.switchboard
    }

    /// What is known of every instance, wherever its socket is.
    pub async fn presences(&self) -> Result<HashMap<InstanceNo, Presence>, StoreError> {
        match self.lease.is_alone() {
            true => Ok(self.switchboard.presences()),
            false => Ok(self.sessions.presences().await?.into_iter().collect()),
        }
    }

    /// Whether the instance has a socket, here or at another server.
    pub fn is_connected(&self, instance: InstanceNo, presence: &Presence) -> bool {
        self.switchboard.is_live(instance) || self.lease.is_other(presence.served_by)
    }

    /// Number of waiting rows per instance.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, StoreError> {
        self.ledger.waiting().await
    }

    /// Checks all instances with waiting mail: at the start, and when a desk is gone that may have served some of them.
    pub async fn look_for_unserved(&self) -> Result<(), StoreError> {
        for row in self.ledger.waiting().await? {
            self.switchboard.note_unserved(row.instance, Unserved::NewMail);
        }
        Ok(())
    }

    /// Another server wrote rows for this instance, whose socket it believes to be here.
    pub(crate) fn look_for_rows(&self, instance: InstanceNo) {
        match self.switchboard.socket(instance).filter(|mailbox| !mailbox.is_idle()) {
            Some(mailbox) => mailbox.look(),
            None => self.switchboard.note_unserved(instance, Unserved::NewMail),
        }
    }

    /// Finds rows that no ring told of: sockets that are behind the head of their ledger, and instances that have no socket
    /// here although the store says so (the answer was lost when it began or ended).
    pub(crate) async fn sweep_rows(&self) -> Result<(), StoreError> {
        for (instance, newest) in self.ledger.heads(self.lease.me()).await? {
            match self.switchboard.socket(instance) {
                Some(mailbox) if mailbox.newest() >= newest => {}
                Some(mailbox) if mailbox.is_idle() => {
                    mailbox.note_newest(newest); // once
                    self.switchboard.note_unserved(instance, Unserved::NewMail);
                }
                Some(mailbox) => mailbox.look(),
                None => self.switchboard.note_unserved(instance, Unserved::Look),
            }
        }
        Ok(())
    }

    /// Passes on to a socket what another server has for it. Without one it is too late.
    pub(crate) fn tell(&self, instance: InstanceNo, line: String) {
        if let Some(mailbox) = self.switchboard.socket(instance) {
            mailbox.order(Order::Line(line));
        }
    }

    /// Whether an instance has mail and no socket at any desk; with the oldest row.
    pub(crate) async fn unserved_mail(&self, instance: InstanceNo) -> Result<Option<Arc<Delivery>>, StoreError> {
        if self.switchboard.is_served(instance) {
            return Ok(None);
        }
        if !self.lease.is_alone() {
            let presence = self.sessions.presence(instance).await?;
            if self.lease.is_other(presence.served_by) && !presence.idle {
                return Ok(None); // another desk has its socket
            }
        }
        let oldest = self.ledger.pending(instance, Seq::NONE, 1).await?.into_iter().next();
        Ok(oldest.map(|(_, delivery)| delivery))
    }

    /// Called after a directory change was committed: closes the sockets concerned.
    pub(crate) fn apply(&self, effect: &Effect) {
        match effect {
            Effect::GatewayRevoked(id) => self.switchboard.close(Some(id), Close::Unauthorized),
            // The socket still serves the previous instance; the gateway reconnects for the new one.
            Effect::GatewayMoved(id) => self.switchboard.close(Some(id), Close::GoingAway),
            // The instance may be served by a gateway that has moved since.
            Effect::InstanceLeft(no) => {
                if let Some(mailbox) = self.switchboard.socket(*no) {
                    mailbox.order(Order::Close(Close::Unauthorized));
                }
            }
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

    pub fn wake_failure(&self, no: InstanceNo) -> Option<String> {
        self.wake_failures.lock().unwrap_or_else(PoisonError::into_inner).get(&no).cloned()
    }
}
