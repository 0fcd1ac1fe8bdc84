//! Sessions and presence.

use frontdesk_core::port::store::{Attached, DeskNo, Presence, SessionNo, Sessions, Stored};
use frontdesk_wire::{GatewayId, InstanceNo, Seq};

use super::{MemoryStore, State, now};

impl State {
    pub(super) fn served_by(&self, instance: InstanceNo) -> DeskNo {
        self.presences.get(&instance).map_or(DeskNo::NONE, |known| known.served_by)
    }
}

impl Sessions for MemoryStore {
    fn attach(&self, instance: InstanceNo, me: DeskNo, gateway: GatewayId, now_ms: u64) -> Stored<'_, Attached> {
        self.wakes.end(instance);
        let mut state = self.state();
        state.last_session = state.last_session.next();
        let session = state.last_session;
        let known = state.presences.entry(instance).or_default();
        let before = known.clone();
        (known.served_by, known.session, known.idle, known.seen_ms) = (me, session, false, now_ms);
        known.gateway = gateway;
        let position = state.ledgers.get(&instance).map(|account| account.position.clone()).unwrap_or_default();
        now(Attached { session, position, before })
    }

    fn detach(&self, instance: InstanceNo, session: SessionNo, never_acks: bool, now_ms: u64) -> Stored<'_, bool> {
        let mut state = self.state();
        let Some(known) = state.presences.get_mut(&instance).filter(|known| known.session == session) else {
            return now(false);
        };
        (known.served_by, known.session, known.seen_ms, known.never_acks) =
            (DeskNo::NONE, SessionNo::NONE, now_ms, never_acks);
        now(true)
    }

    fn adopt(&self, me: DeskNo, sessions: Vec<(InstanceNo, SessionNo)>) -> Stored<'_, Vec<InstanceNo>> {
        let mut state = self.state();
        let mut adopted = Vec::new();
        for (instance, session) in sessions {
            if let Some(known) = state.presences.get_mut(&instance).filter(|known| known.session == session) {
                known.served_by = me;
                adopted.push(instance);
            }
        }
        now(adopted)
    }

    fn mark_idle(&self, instance: InstanceNo, session: Option<SessionNo>, idle: bool) -> Stored<'_, bool> {
        let mut state = self.state();
        let known = state.presences.entry(instance).or_default();
        let is_meant = session.is_none_or(|session| known.session == session);
        if is_meant {
            known.idle = idle;
        }
        now(is_meant)
    }

    fn mark_never_acks(&self, instance: InstanceNo) -> Stored<'_, ()> {
        self.state().presences.entry(instance).or_default().never_acks = true;
        now(())
    }

    fn claim_notice(&self, instance: InstanceNo, through: Seq) -> Stored<'_, Option<Seq>> {
        let mut state = self.state();
        let noticed = &mut state.presences.entry(instance).or_default().noticed_through;
        now((*noticed < through).then(|| std::mem::replace(noticed, through)))
    }

    fn claim_wake(
        &self,
        instance: InstanceNo,
        me: DeskNo,
        live: Vec<DeskNo>,
        cooldown_ms: u64,
        now_ms: u64,
    ) -> Stored<'_, bool> {
        let is_mine = self.wakes.claim(instance, me, &live, cooldown_ms, now_ms);
        Box::pin(std::future::ready(Ok(is_mine)))
    }

    fn presence(&self, instance: InstanceNo) -> Stored<'_, Presence> {
        now(self.state().presences.get(&instance).cloned().unwrap_or_default())
    }

    fn presences(&self) -> Stored<'_, Vec<(InstanceNo, Presence)>> {
        now(self.state().presences.iter().map(|(no, presence)| (*no, presence.clone())).collect())
    }
}
