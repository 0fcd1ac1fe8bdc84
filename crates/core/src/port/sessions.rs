//! Which session serves which instance, and what is stored of an instance without one.

use frontdesk_wire::{DeskNo, GatewayId, InstanceNo, Seq, SessionNo};

use super::ledger::Position;
use super::stored::Stored;

/// What is known of an instance's sessions. Every verb below writes its own columns only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Presence {
    /// The desk that has its session; 0 is none. A desk that crashed may still be named.
    pub served_by: DeskNo,
    pub session: SessionNo,
    /// Whose session that is, or was. Empty in a store of one server, which knows its sockets.
    pub gateway: GatewayId,
    /// It said `going_idle` and has not dialed since. Of an agent: a wake waits for it.
    pub idle: bool,
    pub seen_ms: u64,
    /// People were notified that rows up to this one wait.
    pub noticed_through: Seq,
    /// Its gateway was proven not to ack; an ack ends that.
    pub never_acks: bool,
}

/// A session that serves an instance from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub session: SessionNo,
    /// Where it continues.
    pub position: Position,
    /// What was known before.
    pub before: Presence,
}

pub trait Sessions: Send + Sync {
    /// A new session serves the instance, and replaces any other one.
    fn attach(&self, instance: InstanceNo, me: DeskNo, gateway: GatewayId, now_ms: u64) -> Stored<'_, Attached>;
    /// The session ends. False: another one serves the instance already, and nothing was written.
    fn detach(&self, instance: InstanceNo, session: SessionNo, never_acks: bool, now_ms: u64) -> Stored<'_, bool>;
    /// A desk that lost its lease continues under this number, with those of its sessions that were not replaced
    /// meanwhile. Returns the instances of these.
    fn adopt(&self, me: DeskNo, sessions: Vec<(InstanceNo, SessionNo)>) -> Stored<'_, Vec<InstanceNo>>;
    /// With a session: only while that one serves the instance.
    fn mark_idle(&self, instance: InstanceNo, session: Option<SessionNo>, idle: bool) -> Stored<'_, bool>;
    fn mark_never_acks(&self, instance: InstanceNo) -> Stored<'_, ()>;
    /// People are notified that rows wait, up to this one. Returns the previous such row; `None`: it is as far already.
    fn claim_notice(&self, instance: InstanceNo, through: Seq) -> Stored<'_, Option<Seq>>;
    /// This server wakes the instance, and others leave it alone for `cooldown_ms`. False: another server that is `live` does,
    /// or did so a short while ago. An instance that dials ends the claim. The list may be some seconds old: a store that
    /// several servers share looks at their leases as well.
    fn claim_wake(
        &self,
        instance: InstanceNo,
        me: DeskNo,
        live: Vec<DeskNo>,
        cooldown_ms: u64,
        now_ms: u64,
    ) -> Stored<'_, bool>;
    fn presence(&self, instance: InstanceNo) -> Stored<'_, Presence>;
    fn presences(&self) -> Stored<'_, Vec<(InstanceNo, Presence)>>;
}
