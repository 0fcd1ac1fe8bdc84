//! Which server serves which instance: this one, another one, or none.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{ChatId, Close, DeskNo, GatewayId, InstanceNo, Seq, SessionKey, TenantId};

use super::sockets::{Order, Sockets};
use super::unserved::Unserved;
use crate::base::Base;
use crate::env::Env;
use crate::lease::Lease;
use crate::port::bus::{Bus, Hint, To};
use crate::port::store::{Attached, Claims, Delivery, Ledger, Presence, Sessions, StoreError};
use crate::port::stores::Stores;

pub struct Served {
    env: Arc<dyn Env>,
    lease: Arc<Lease>,
    bus: Arc<dyn Bus>,
    sessions: Arc<dyn Sessions>,
    ledger: Arc<dyn Ledger>,
    claims: Arc<dyn Claims>,
    sockets: Arc<Sockets>,
    cooldown_ms: u64,
    /// The server number under which the store has all sessions of this server; 0 if some have another number.
    adopted_as: AtomicU64,
}

impl Served {
    pub(super) fn new(base: &Base, stores: &Stores, sockets: &Arc<Sockets>) -> Self {
        Self {
            env: base.env.clone(),
            lease: base.lease.clone(),
            bus: base.bus.clone(),
            sessions: stores.sessions.clone(),
            ledger: stores.ledger.clone(),
            claims: stores.claims.clone(),
            sockets: sockets.clone(),
            cooldown_ms: base.rules.wake.cooldown_ms,
            adopted_as: AtomicU64::new(base.lease.me().0),
        }
    }

    /// A session of this server serves the instance from now on. If another server had one, it is notified.
    pub(super) async fn attach(
        &self,
        instance: InstanceNo,
        gateway: GatewayId,
        now_ms: u64,
    ) -> Result<(DeskNo, Attached), StoreError> {
        let me = self.lease.me();
        let attached = self.sessions.attach(instance, me, gateway, now_ms).await?;
        if self.lease.me() != me {
            self.adopted_as.store(0, Ordering::SeqCst); // the lease was lost during the call
        }
        let before = &attached.before;
        if self.lease.is_other(before.served_by) {
            self.bus.send(To::Desk(before.served_by), Hint::Replaced(instance, before.session));
        }
        Ok((me, attached))
    }

    /// After a lost lease this server has a new number: moves its sessions to that number, and closes those that were
    /// replaced in the meantime.
    pub(crate) async fn adopt_sessions(&self) -> Result<(), StoreError> {
        let me = self.lease.me();
        if self.adopted_as.swap(me.0, Ordering::SeqCst) == me.0 {
            return Ok(());
        }
        let sessions = self.sockets.sessions();
        let adopted = match self.sessions.adopt(me, sessions.clone()).await {
            Ok(adopted) => adopted,
            Err(error) => {
                self.adopted_as.store(0, Ordering::SeqCst);
                return Err(error);
            }
        };
        for (instance, session) in sessions {
            if !adopted.contains(&instance) {
                self.sockets.close_session(instance, session, Close::Replaced);
                continue;
            }
            self.sockets.set_presence(instance, |known| {
                if known.session == session {
                    known.served_by = me;
                }
            });
        }
        Ok(())
    }

    /// Presence of every instance, with sockets at this server or another.
    pub async fn presences(&self) -> Result<HashMap<InstanceNo, Presence>, StoreError> {
        match self.lease.is_alone() {
            true => Ok(self.sockets.presences()),
            false => Ok(self.sessions.presences().await?.into_iter().collect()),
        }
    }

    /// Whether the instance has a socket, here or at another server.
    pub fn is_connected(&self, instance: InstanceNo, presence: &Presence) -> bool {
        self.sockets.is_live(instance) || self.lease.is_other(presence.served_by)
    }

    /// Whether the instance is served by this gateway, here or at another server.
    pub fn is_served_by(&self, instance: InstanceNo, gateway: &GatewayId, presence: &Presence) -> bool {
        match self.sockets.socket(instance) {
            Some(mailbox) => mailbox.gateway() == gateway,
            None => self.lease.is_other(presence.served_by) && presence.gateway == *gateway,
        }
    }

    /// Checks all instances with waiting mail: at the start, and after another server is gone that may have served some.
    pub async fn look_for_unserved(&self) -> Result<(), StoreError> {
        for row in self.ledger.waiting().await? {
            self.sockets.unserved().note(row.instance, Unserved::NewMail);
        }
        Ok(())
    }

    /// Another server wrote rows for this instance, whose socket it believes to be here.
    pub(crate) fn look_for_rows(&self, instance: InstanceNo) {
        match self.sockets.socket(instance).filter(|mailbox| !mailbox.is_idle()) {
            Some(mailbox) => mailbox.look(),
            None => self.sockets.unserved().note(instance, Unserved::NewMail),
        }
    }

    /// Finds changes whose hints were lost: sockets behind the head of their ledger, instances that the store assigns to
    /// this server although it has no socket (the answer was lost when a session began or ended), replaced sessions, and
    /// results.
    pub(crate) async fn sweep(&self) -> Result<(), StoreError> {
        let (me, mut sessions) = (self.lease.me(), self.sockets.sessions());
        let heads = self.ledger.heads(me).await?;
        if self.adopted_as.load(Ordering::SeqCst) == me.0 && self.lease.me() == me {
            let served: HashSet<_> = heads.iter().map(|(instance, session, _)| (*instance, *session)).collect();
            sessions.retain(|(instance, session)| {
                let is_served = served.contains(&(*instance, *session));
                if !is_served {
                    self.sockets.close_session(*instance, *session, Close::Replaced);
                }
                is_served
            });
            self.take_parked(sessions.into_iter().map(|(instance, _)| instance).collect()).await?;
        }
        for (instance, _, newest) in heads {
            match self.sockets.socket(instance) {
                Some(mailbox) if mailbox.newest() >= newest => {}
                None if newest.is_none() => {}
                Some(mailbox) if mailbox.is_idle() => {
                    mailbox.note_newest(newest); // so that this is noted once
                    self.sockets.unserved().note(instance, Unserved::NewMail);
                }
                Some(mailbox) => mailbox.look(),
                None => self.sockets.unserved().note(instance, Unserved::Look),
            }
        }
        Ok(())
    }

    /// Passes a result to the socket of the instance, wherever it is. Without one it is kept for the next.
    pub async fn answer(&self, instance: InstanceNo, line: String) {
        let Err(line) = self.sockets.answer(instance, line) else { return };
        if !self.bus.has_others() {
            return self.sockets.park(instance, line, self.env.steady_ms());
        }
        match self.claims.park(instance, line.clone(), self.env.now_ms()).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(%instance, "a result was dropped: too many wait for the next socket of this instance");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "storing a result for other servers failed; only this server can deliver it");
                return self.sockets.park(instance, line, self.env.steady_ms());
            }
        }
        let passed_on = match self.sessions.presence(instance).await.map(|known| known.served_by) {
            Ok(desk) if self.lease.is_other(desk) => {
                self.bus.send(To::Desk(desk), Hint::Results(instance));
                Ok(())
            }
            Ok(_) => self.take_parked(vec![instance]).await, // the instance may have just connected here
            Err(error) => Err(error),
        };
        if let Err(error) = passed_on {
            tracing::warn!(%error, "passing on a result failed; it is delivered after the next sweep");
        }
    }

    /// Takes the results that other servers kept for sockets of this one.
    pub(crate) async fn take_parked(&self, mut instances: Vec<InstanceNo>) -> Result<(), StoreError> {
        instances.retain(|instance| self.sockets.socket(*instance).is_some());
        if instances.is_empty() || !self.bus.has_others() {
            return Ok(());
        }
        for (instance, line) in self.claims.take_parked(instances, self.env.now_ms()).await? {
            if let Err(line) = self.sockets.answer(instance, line) {
                self.sockets.park(instance, line, self.env.steady_ms());
            }
        }
        Ok(())
    }

    /// Sends an interrupt to the socket of the instance at this server. False: there is none, or its queue is full.
    pub(crate) fn interrupt_here(&self, instance: InstanceNo, session_key: &SessionKey, chat_id: &ChatId) -> bool {
        let frame = DeskFrame::InterruptInbound { session_key: session_key.clone(), chat_id: chat_id.clone() };
        self.sockets.socket(instance).is_some_and(|mailbox| mailbox.order(Order::Line(frame.line())))
    }

    /// The operator dropped a row: its socket, here or at another server, must not send it any more.
    pub(super) fn row_dropped(&self, instance: InstanceNo, seq: Seq) {
        match self.sockets.socket(instance) {
            Some(mailbox) => mailbox.row_dropped(seq),
            None => self.bus.send(To::All, Hint::Dropped(instance, seq)),
        }
    }

    /// The operator dropped a row at another server.
    pub(crate) fn row_dropped_elsewhere(&self, instance: InstanceNo, seq: Seq) {
        if let Some(mailbox) = self.sockets.socket(instance) {
            mailbox.row_dropped(seq);
        }
    }

    /// Whether an instance has mail and no socket at any server; with the oldest row.
    pub(crate) async fn unserved_mail(&self, instance: InstanceNo) -> Result<Option<Arc<Delivery>>, StoreError> {
        if self.sockets.is_served(instance) {
            return Ok(None);
        }
        if self.desk_of(instance).await?.is_some() {
            return Ok(None);
        }
        let oldest = self.ledger.pending(instance, Seq::NONE, 1).await?.into_iter().next();
        Ok(oldest.map(|(_, delivery)| delivery))
    }

    /// Passes an interrupt to the server that has the socket of the instance. False: none has it.
    pub(super) async fn interrupt_elsewhere(
        &self,
        instance: InstanceNo,
        session_key: &SessionKey,
        chat_id: &ChatId,
    ) -> Result<bool, StoreError> {
        let Some(desk) = self.desk_of(instance).await? else { return Ok(false) };
        self.bus.send(To::Desk(desk), Hint::Interrupt(instance, session_key.clone(), chat_id.clone()));
        Ok(true)
    }

    pub(super) fn is_alone(&self) -> bool {
        self.lease.is_alone()
    }

    /// Asks other servers to interrupt this session of the tenant.
    pub(super) fn interrupt_turn_elsewhere(&self, tenant: &TenantId, session_key: &SessionKey) {
        self.bus.send(To::All, Hint::InterruptTurn(tenant.clone(), session_key.clone()));
    }

    /// The other server that has the socket of the instance, which is not idle.
    pub(super) async fn desk_of(&self, instance: InstanceNo) -> Result<Option<DeskNo>, StoreError> {
        if self.lease.is_alone() {
            return Ok(None);
        }
        let presence = self.sessions.presence(instance).await?;
        let is_there = self.lease.is_other(presence.served_by) && !presence.idle;
        Ok(is_there.then_some(presence.served_by))
    }

    /// Whether other servers, if there are any, consider this one live.
    pub(super) fn may_act(&self) -> bool {
        !self.bus.has_others() || self.lease.is_good()
    }

    /// Whether this server is the one that wakes the instance.
    pub(crate) async fn claim_wake(&self, instance: InstanceNo) -> Result<bool, StoreError> {
        // `is_alone` is as of the last renewal, and another server may have started since. So it is not sufficient alone.
        if self.lease.is_alone() && !self.bus.has_others() {
            return Ok(true);
        }
        let (me, live, now_ms) = (self.lease.me(), self.lease.live(), self.env.now_ms());
        self.sessions.claim_wake(instance, me, live, self.cooldown_ms, now_ms).await
    }
}
