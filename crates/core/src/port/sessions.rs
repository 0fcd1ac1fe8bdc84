//! Which session serves which instance, and what is stored of an instance without one.

use frontdesk_wire::{DeskNo, GatewayId, InstanceNo, Seq, SessionNo};

use super::ledger::Position;
use super::stored::Stored;

/// What is known of an instance's sessions. Every verb below writes its own columns only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Presence {
    /// The server that has its session; 0 is none. A server that crashed may still be named.
    pub served_by: DeskNo,
    pub session: SessionNo,
    /// The gateway of the current or last session. Empty in a store of one server, which knows its sockets.
    pub gateway: GatewayId,
    /// The gateway sent `going_idle` and has not connected since. For an agent without a gateway: a wake is pending.
    pub idle: bool,
    pub seen_ms: u64,
    /// Users were notified about waiting rows up to this one.
    pub noticed_through: Seq,
    /// Its gateway was proven not to ack; an ack ends that.
    pub never_acks: bool,
}

/// A session that serves an instance from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    pub session: SessionNo,
    /// The position from which it continues.
    pub position: Position,
    /// The presence before this session.
    pub before: Presence,
}

pub trait Sessions: Send + Sync {
    /// A new session serves the instance, and replaces any other one.
    fn attach(&self, instance: InstanceNo, me: DeskNo, gateway: GatewayId, now_ms: u64) -> Stored<'_, Attached>;
    /// The session ends. False: another one serves the instance already, and nothing was written.
    fn detach(&self, instance: InstanceNo, session: SessionNo, never_acks: bool, now_ms: u64) -> Stored<'_, bool>;
    /// A server that lost its lease continues under this number, with those of its sessions that were not replaced
    /// meanwhile. Returns the instances of these.
    fn adopt(&self, me: DeskNo, sessions: Vec<(InstanceNo, SessionNo)>) -> Stored<'_, Vec<InstanceNo>>;
    /// With a session: has an effect only while that session serves the instance.
    fn mark_idle(&self, instance: InstanceNo, session: Option<SessionNo>, idle: bool) -> Stored<'_, bool>;
    fn mark_never_acks(&self, instance: InstanceNo) -> Stored<'_, ()>;
    /// Claims the notice about waiting rows up to this one. Returns the previous such row; `None`: users were notified up to
    /// this row already.
    fn claim_notice(&self, instance: InstanceNo, through: Seq) -> Stored<'_, Option<Seq>>;
    /// Claims waking the instance for `cooldown_ms`. False: another live server has the claim. The claim ends when the
    /// instance connects. `live` may be some seconds old, so a store that several servers share checks their leases as
    /// well.
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
