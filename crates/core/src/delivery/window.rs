//! Rows in flight to one socket: bounded, in order, settled by acks. For a gateway that was proven not to ack, rows
//! are settled when the socket stays healthy. A row that is unacked although later rows were acked is resent a few
//! times and then given up, so that it does not fill the window.
//!
//! No I/O: the caller passes the time of a monotonic clock.

use std::collections::VecDeque;
use std::sync::Arc;

use frontdesk_wire::{ChatId, Seq, SessionKey, SessionNo};

use crate::port::store::{Delivery, Position, Settlement};

/// A row that was answered but stays unacked for this long proves that the gateway does not ack.
const EVIDENCE_MS: u64 = 60_000;
/// Without acks, a row is settled if it is this old, and a ping that was written after it was answered.
const HEALTHY_MS: u64 = 10_000;
/// Limit for rows in flight including answered ones, as a multiple of the window.
const ANSWERED_CAPS: usize = 16;
/// Silence of this length after a probe means that the peer is dead: with an ack limit of 5 s, within 9 s.
const PROBE_GRACE_MS: u64 = 3_000;
/// The same for a peer that has a row and has not acked any on this socket. The first message makes a gateway load its
/// agent, which blocks it for seconds on a slow machine; and 0.17 never acks and does not reconnect.
const UNACKED_GRACE_MS: u64 = 30_000;
/// Unanswered pings that are remembered; further answers prove nothing.
const PINGS_MAX: usize = 16;
/// Interval of probes on an idle socket, to detect peers that have vanished.
const IDLE_PROBE_MS: u64 = 30_000;
/// Bytes in flight; above this, a row must be acked before the next one is sent.
const FLIGHT_MAX_BYTES: usize = 4 << 20;
/// A row of a gateway that acks is resent if it is unacked for this many ack limits while later rows were acked:
/// after 30 s with the default limit.
const RESEND_LIMITS: u64 = 6;
/// The same for the oldest row if no later one was acked: longer, because the gateway may just be slow.
pub const STUCK_LIMITS: u64 = 12;
/// An unacked row of a gateway that has not acked anything yet is reported after this many ack limits: 5 minutes.
const UNPROVEN_LIMITS: u64 = 60;
/// After this many resends the row is given up, if later ones were acked.
pub const RESENDS_MAX: u8 = 3;
/// A gateway that acks gets no further rows while one is unacked for this long without any sign of life. If the gateway
/// is frozen, fewer rows have to be sent again later.
const FROZEN_MS: u64 = 2_000;
/// Acked rows above an unacked one. Each save writes all of them, so above this number no further rows are sent.
const AHEAD_MAX: usize = 1_024;

struct Flight {
    seq: Seq,
    first_ms: u64,
    /// When it was sent last.
    sent_ms: u64,
    /// How often it was resent.
    resends: u8,
    answered: bool,
    /// When the gateway last reported this row in `inbound_working`.
    working_ms: Option<u64>,
    delivery: Arc<Delivery>,
}

/// Unacked rows on a socket that acks.
#[derive(Default)]
pub struct Overdue {
    /// To be resent now.
    pub resend: Vec<(Seq, Arc<Delivery>)>,
    /// Resent too often: removed from flight, not settled.
    pub given_up: Vec<(Seq, Arc<Delivery>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acks {
    /// Unknown; treated like a gateway that acks.
    Assumed,
    Seen,
    /// Proven not to ack.
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Fine,
    /// Send a ping now.
    Probe,
    Dead,
}

pub struct Window {
    cap: usize,
    ack_limit_ms: u64,
    /// Everything that is settled.
    position: Position,
    /// The part that is certain: acked, or loaded from the store.
    acked: Position,
    /// Rows were settled without an ack since the last save.
    has_inferred: bool,
    /// The acked position once the running save succeeds.
    saving: Option<Position>,
    /// Highest row written to this socket.
    cursor: Seq,
    flight: VecDeque<Flight>,
    pub acks: Acks,
    /// A row was acked on this socket, or is being worked on.
    has_acked: bool,
    /// Highest row acked on this socket.
    acked_through: Seq,
    last_received_ms: u64,
    probed_ms: Option<u64>,
    /// When a silent peer last got an early ping, before a probe was due.
    nudged_ms: u64,
    /// Times of unanswered pings, oldest first. Everything written before a ping was sent ahead of it.
    pings: VecDeque<u64>,
    /// Everything written before this time has arrived, as a pong showed. Other frames of the peer prove nothing, because
    /// they may have been sent before it read the row.
    arrived_ms: u64,
    unsaved: bool,
}

impl Window {
    pub fn new(cap: usize, ack_limit_ms: u64, position: Position, acks: Acks, now_ms: u64) -> Self {
        let cursor = position.through;
        Self {
            cap,
            ack_limit_ms,
            has_acked: false,
            acked_through: Seq::NONE,
            acked: position.clone(),
            has_inferred: false,
            saving: None,
            position,
            cursor,
            flight: VecDeque::new(),
            acks,
            last_received_ms: now_ms,
            probed_ms: None,
            nudged_ms: 0,
            pings: VecDeque::new(),
            arrived_ms: 0,
            unsaved: false,
        }
    }

    /// Number of rows that may be sent now. Rows that the gateway is working on do not count, nor those that a gateway that
    /// never acked has answered, because it has received them; both up to a limit.
    pub fn room(&self, now_ms: u64) -> usize {
        // A new socket first sends the unacked rows below the acked ones.
        let is_ahead = self.position.above.len() >= AHEAD_MAX
            && self.position.above.last().is_some_and(|acked| self.cursor >= *acked);
        if self.is_frozen(now_ms) || is_ahead || self.bytes() >= FLIGHT_MAX_BYTES {
            return 0;
        }
        // A slow handler must not hold up the other chats.
        let unanswered = self.unanswered().filter(|row| row.working_ms.is_none()).count();
        let ceiling = (self.cap * ANSWERED_CAPS).saturating_sub(self.flight.len());
        self.cap.saturating_sub(unanswered).min(ceiling)
    }

    /// Rows that the gateway may not have read yet.
    fn unanswered(&self) -> impl Iterator<Item = &Flight> {
        self.flight.iter().filter(|row| self.acks == Acks::Seen || !row.answered)
    }

    /// Bytes of the rows that the gateway may not have read yet.
    pub fn bytes(&self) -> usize {
        self.unanswered().map(|row| row.delivery.json.len()).sum()
    }

    /// A gateway that acks has left a row unacked for a while and has sent nothing since. A slow gateway would still send
    /// acks, frames or pongs.
    fn is_frozen(&self, now_ms: u64) -> bool {
        self.owes_an_ack_since(now_ms, FROZEN_MS)
    }

    fn owes_an_ack_since(&self, now_ms: u64, silent_ms: u64) -> bool {
        let owed = self.flight.iter().filter(|row| row.working_ms.is_none()).map(|row| row.sent_ms).min();
        let is_silent = |sent_ms: u64| now_ms.saturating_sub(sent_ms.max(self.last_received_ms)) >= silent_ms;
        self.acks == Acks::Seen && owed.is_some_and(is_silent)
    }

    /// Since when a row is unacked that is not reported as being worked on. For a gateway that has not acked yet it is
    /// reported only after a while: its version may not ack, or it may still work on its first message.
    pub fn unacked_since_ms(&self, now_ms: u64) -> Option<u64> {
        let owed = self.unanswered().filter(|row| row.working_ms.is_none()).map(|row| row.first_ms).min();
        let is_reported = |since_ms: &u64| match self.acks {
            Acks::Seen => true,
            Acks::Assumed => now_ms.saturating_sub(*since_ms) >= self.ack_limit_ms * UNPROVEN_LIMITS,
            Acks::Never => false,
        };
        owed.filter(is_reported)
    }

    /// Rows up to here were written or are settled; the next one to read is above.
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    pub fn settled(&self, seq: Seq) -> bool {
        self.position.settled(seq)
    }

    /// The row was written to the socket. Rows are written in rising order.
    pub fn sent(&mut self, seq: Seq, delivery: Arc<Delivery>, now_ms: u64) {
        self.cursor = self.cursor.max(seq);
        self.acked.sent = self.acked.sent.max(seq);
        let (first_ms, sent_ms) = (now_ms, now_ms);
        let row = Flight { seq, first_ms, sent_ms, resends: 0, answered: false, working_ms: None, delivery };
        self.flight.push_back(row);
    }

    /// Skips a row that was settled before.
    pub fn skip(&mut self, seq: Seq) {
        self.cursor = self.cursor.max(seq);
    }

    /// An ack, in any order. `None`: no row with this number is in flight.
    pub fn ack(&mut self, seq: Seq) -> Option<Arc<Delivery>> {
        let index = self.flight.binary_search_by_key(&seq, |row| row.seq).ok()?;
        (self.acks, self.has_acked) = (Acks::Seen, true);
        self.acked_through = self.acked_through.max(seq);
        Some(self.settle_at(index, true))
    }

    /// The gateway is at work on a row and will ack it, however long that takes: it is not resent, and not settled without
    /// an ack.
    pub fn working(&mut self, seq: Seq, now_ms: u64) {
        if let Ok(index) = self.flight.binary_search_by_key(&seq, |row| row.seq) {
            let row = &mut self.flight[index];
            (row.working_ms, row.resends) = (Some(now_ms), 0);
            (self.acks, self.has_acked) = (Acks::Seen, true);
        }
    }

    /// Rows left unacked for too long by a gateway that acked later ones; of one that acked no later one, the oldest row.
    /// Rows to be resent count as sent now.
    pub fn overdue(&mut self, now_ms: u64) -> Overdue {
        let mut overdue = Overdue::default();
        if self.acks != Acks::Seen {
            return overdue;
        }
        let (acked, limit_ms) = (self.acked_through, self.ack_limit_ms);
        let oldest = self.flight.front().map(|row| row.seq);
        self.flight.retain_mut(|row| {
            let since_ms = row.working_ms.map_or(row.sent_ms, |at_ms| at_ms.max(row.sent_ms));
            let is_passed = row.seq < acked;
            let resend_ms = limit_ms * if is_passed { RESEND_LIMITS } else { STUCK_LIMITS };
            let is_asked = is_passed || (oldest == Some(row.seq) && row.resends < RESENDS_MAX);
            if !is_asked || now_ms.saturating_sub(since_ms) < resend_ms {
                return true;
            }
            let found = (row.seq, row.delivery.clone());
            if row.resends >= RESENDS_MAX {
                overdue.given_up.push(found);
                return false;
            }
            row.resends += 1;
            row.sent_ms = now_ms;
            overdue.resend.push(found);
            true
        });
        overdue
    }

    /// The operator dropped a row.
    pub fn dropped(&mut self, seq: Seq) {
        if let Ok(index) = self.flight.binary_search_by_key(&seq, |row| row.seq) {
            self.settle_at(index, true);
        } else if !self.position.settled(seq) {
            self.settle_seq(seq, true);
        }
    }

    /// The gateway acted in this chat, which answers all earlier rows of the chat.
    pub fn answered(&mut self, chat_id: &ChatId) {
        for row in self.flight.iter_mut().filter(|row| row.delivery.chat_id == *chat_id) {
            row.answered = true;
        }
    }

    /// A follow-up that names the session of a forward shows that the forward arrived: the oldest one. A gateway that acks
    /// says that itself.
    pub fn followed_up(&mut self, session_key: &SessionKey) {
        if self.acks == Acks::Seen {
            return;
        }
        // Gateways name another platform and type of chat than we do; chat, thread and person are the same.
        let place = |key: &str| key.splitn(5, ':').nth(4).map(str::to_owned);
        let asked = place(session_key);
        let is_same = |key: &str| *key == *session_key || (asked.is_some() && place(key) == asked);
        let named = |row: &Flight| row.delivery.passthrough && is_same(&row.delivery.session_key);
        if let Some(index) = self.flight.iter().position(named) {
            self.settle_at(index, true);
        }
    }

    /// Data arrived from the peer.
    pub fn received(&mut self, now_ms: u64) {
        self.last_received_ms = now_ms;
    }

    /// A ping was answered. One answer for several pings counts for the first of them.
    pub fn ponged(&mut self, now_ms: u64) {
        self.received(now_ms);
        if let Some(pinged_ms) = self.pings.pop_front() {
            self.arrived_ms = self.arrived_ms.max(pinged_ms);
        }
    }

    /// Settles rows of a gateway that does not ack, if the socket is healthy; returns them.
    pub fn settle_unacked(&mut self, now_ms: u64) -> Vec<Arc<Delivery>> {
        let proven = |row: &Flight| row.answered && now_ms.saturating_sub(row.sent_ms) >= EVIDENCE_MS;
        if self.acks == Acks::Assumed && self.flight.iter().any(proven) {
            self.acks = Acks::Never;
        }
        let (arrived_ms, never) = (self.arrived_ms, self.acks == Acks::Never);
        let done = |row: &Flight| {
            (never || row.delivery.passthrough)
                && row.working_ms.is_none()
                && now_ms.saturating_sub(row.sent_ms) >= HEALTHY_MS
                && arrived_ms > row.sent_ms
        };
        let mut settled = Vec::new();
        while let Some(index) = self.flight.iter().position(done) {
            settled.push(self.settle_at(index, false));
        }
        settled
    }

    /// Whether the peer is alive. Returns `Probe` once per silence. `is_flushed`: no row waits to be written, so that a ping
    /// follows all of them. `is_pinging`: an earlier ping is still to be written, and serves for this one.
    pub fn health(&mut self, now_ms: u64, is_flushed: bool, is_pinging: bool) -> Health {
        if let Some(probed_ms) = self.probed_ms
            && self.last_received_ms < probed_ms
        {
            let is_loading = !self.has_acked && !self.flight.is_empty();
            let grace_ms = if is_loading { UNACKED_GRACE_MS } else { PROBE_GRACE_MS };
            let dead = now_ms.saturating_sub(probed_ms) >= grace_ms;
            return if dead { Health::Dead } else { Health::Fine };
        }
        let since_probe = now_ms.saturating_sub(self.probed_ms.unwrap_or(0).max(self.oldest_sent_ms().unwrap_or(0)));
        let waiting_for_ack = self.oldest_sent_ms().is_some() && since_probe >= self.ack_limit_ms;
        if waiting_for_ack || now_ms.saturating_sub(self.last_received_ms) >= IDLE_PROBE_MS {
            self.probed_ms = Some(now_ms);
            self.note_ping(now_ms, is_flushed, is_pinging);
            return Health::Probe;
        }
        // An early ping: a healthy peer that has nothing to send answers it before rows are held back.
        let is_quiet = self.owes_an_ack_since(now_ms, FROZEN_MS / 2);
        if is_quiet && now_ms.saturating_sub(self.nudged_ms) >= FROZEN_MS / 2 && self.pings.len() < PINGS_MAX {
            self.nudged_ms = now_ms;
            self.note_ping(now_ms, is_flushed, is_pinging);
            return Health::Probe;
        }
        Health::Fine
    }

    fn note_ping(&mut self, now_ms: u64, is_flushed: bool, is_pinging: bool) {
        if !is_pinging && self.pings.len() < PINGS_MAX {
            self.pings.push_back(if is_flushed { now_ms } else { 0 });
        }
    }

    /// How long nothing was received from the peer.
    pub fn silence_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.last_received_ms)
    }

    pub fn is_empty(&self) -> bool {
        self.flight.is_empty()
    }

    /// Whether a probe waits for its pong.
    pub fn is_probing(&self) -> bool {
        self.probed_ms.is_some_and(|probed_ms| self.last_received_ms < probed_ms)
    }

    pub fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    /// The settlement to save, once per change.
    pub fn take_unsaved(&mut self) -> Option<Settlement> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        self.saving = std::mem::take(&mut self.has_inferred).then(|| self.position.clone());
        Some(Settlement { acked: self.acked.clone(), inferred: self.saving.clone(), session: SessionNo::NONE })
    }

    /// The whole settlement was stored, so inferred rows are certain from now on.
    pub fn saved(&mut self) {
        if let Some(saved) = self.saving.take() {
            self.acked.merge(&saved);
        }
    }

    /// The save failed: `take_unsaved` returns it again.
    pub fn save_failed(&mut self) {
        self.has_inferred |= self.saving.take().is_some();
        self.unsaved = true;
    }

    fn oldest_sent_ms(&self) -> Option<u64> {
        self.flight.iter().map(|row| row.sent_ms).min()
    }

    /// `is_known`: by an ack or the like, and not only inferred from the health of the socket.
    fn settle_at(&mut self, index: usize, is_known: bool) -> Arc<Delivery> {
        // The caller found `index` in this deque.
        let row = self.flight.remove(index).unwrap_or_else(|| unreachable!("index is in the flight"));
        self.settle_seq(row.seq, is_known);
        row.delivery
    }

    fn settle_seq(&mut self, seq: Seq, is_known: bool) {
        self.unsaved = true;
        settle(&mut self.position, seq);
        if is_known {
            settle(&mut self.acked, seq);
        } else {
            self.has_inferred = true;
        }
    }
}

fn settle(position: &mut Position, seq: Seq) {
    if seq == position.through.next() && position.above.is_empty() {
        position.through = seq; // the usual case: no merge needed
    } else {
        position.merge(&Position { above: vec![seq], ..Position::default() });
    }
}

#[cfg(test)]
mod tests;
