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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use frontdesk_wire::Close;

use crate::base::Base;
use crate::directory::{DirectoryPlane, Effect};
use crate::env::Env;
use crate::meters::Meters;
use crate::port::outcall::Outcall;
use crate::port::platform::Platforms;
use crate::port::store::{Ledger, StoreError, Waiting};
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::tail::Tail;
use switchboard::{Order, Switchboard};

pub struct DeliveryPlane {
    env: Arc<dyn Env>,
    directory: Arc<DirectoryPlane>,
    ledger: Arc<dyn Ledger>,
    platforms: Arc<Platforms>,
    outcall: Arc<dyn Outcall>,
    switchboard: Arc<Switchboard>,
    /// Why the last call of a wake URL failed; cleared by the next call or when the agent connects.
    wake_failures: Mutex<HashMap<u64, String>>,
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
        stores.ledger.attach_bell(switchboard.clone());
        for (instance, mut presence) in stores.ledger.presences().await? {
            if presence.live {
                // The socket ended with the previous process. For the agent that was just now.
                presence.live = false;
                presence.seen_ms = base.env.now_ms();
            }
            switchboard.set_presence(instance, |known| *known = presence);
        }
        Ok(Self {
            env: base.env.clone(),
            directory: directory.clone(),
            ledger: stores.ledger.clone(),
            platforms: platforms.clone(),
            outcall: outcall.clone(),
            switchboard,
            wake_failures: Mutex::default(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        })
    }

    pub fn switchboard(&self) -> &Switchboard {
        &self.switchboard
    }

    /// Number of waiting rows per instance.
    pub async fn waiting(&self) -> Result<Vec<Waiting>, StoreError> {
        self.ledger.waiting().await
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
    pub fn note_wake_failure(&self, no: u64, why: Option<&str>) {
        let mut failures = self.wake_failures.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) => drop(failures.insert(no, why.to_owned())),
            None => drop(failures.remove(&no)),
        }
    }

    pub fn wake_failure(&self, no: u64) -> Option<String> {
        self.wake_failures.lock().unwrap_or_else(PoisonError::into_inner).get(&no).cloned()
    }
}
