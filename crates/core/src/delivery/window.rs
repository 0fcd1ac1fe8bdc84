//! Rows in flight to one socket: bounded, in order, settled by acks. For a gateway that was proven not to ack, rows
//! are settled when the socket stays healthy. A row that is unacked although later rows were acked is resent a few
//! times and then given up, so that it does not fill the window.
//!
//! No I/O: the caller passes the time of a monotonic clock.

use std::collections::VecDeque;
use std::sync::Arc;

use frontdesk_wire::{ChatId, Seq, SessionNo};

use crate::port::store::{Delivery, Position, Settlement};

/// A row that was answered but not acked for this long proves that the gateway does not ack.
const EVIDENCE_MS: u64 = 60_000;
/// Without acks, a row is settled if it is this old, and a ping that was written after it was answered.
const HEALTHY_MS: u64 = 10_000;
/// Maximum of answered, unacked rows of a gateway that has not acked yet, in windows.
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
/// The same for the oldest row if no later one was acked: the gateway may be slow with all of them.
pub const STUCK_LIMITS: u64 = 12;
/// A row of a gateway that has not acked anything yet is reported after this many: after 5 minutes.
const UNPROVEN_LIMITS: u64 = 60;
/// After this many resends the row is given up, if later ones were acked.
pub const RESENDS_MAX: u8 = 3;
/// A gateway that acks gets no further rows if one has this age and nothing was received for as long. If it is frozen,
/// fewer rows are sent twice.
const FROZEN_MS: u64 = 2_000;
/// Acked rows above one that is not. They are saved with each ack, so while there are more, no rows above them are sent.
const AHEAD_MAX: usize = 1_024;

struct Flight {
    seq: Seq,
    first_ms: u64,
    /// When it was sent last.
    sent_ms: u64,
    /// How often it was resent.
    resends: u8,
    answered: bool,
    /// When the gateway last said that it is at work on it.
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
    /// The part of it that is known: by acks, or because it was stored so.
    acked: Position,
    /// Rows were settled without an ack since the last save.
    has_inferred: bool,
    /// What a save in progress will have made known.
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
    /// When a silent peer was last pinged earlier than that.
    nudged_ms: u64,
    /// Pings that were not answered yet, oldest first: what was written before this time is in front of the ping.
    pings: VecDeque<u64>,
    /// What was written before this time has arrived. Other frames of the peer prove nothing: they may have been sent before
    /// it read the row, and a peer that then vanishes has not got it.
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
        // A new socket sends the rows below those first.
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

    /// Rows that the gateway may still have to read.
    fn unanswered(&self) -> impl Iterator<Item = &Flight> {
        self.flight.iter().filter(|row| self.acks == Acks::Seen || !row.answered)
    }

    /// Of these rows.
    pub fn bytes(&self) -> usize {
        self.unanswered().map(|row| row.delivery.json.len()).sum()
    }

    /// It acks, a row that it is not at work on has some age, and nothing was received since. A slow gateway still sends
    /// acks, frames or pongs.
    fn is_frozen(&self, now_ms: u64) -> bool {
        self.owes_an_ack_since(now_ms, FROZEN_MS)
    }

    fn owes_an_ack_since(&self, now_ms: u64, silent_ms: u64) -> bool {
        let owed = self.flight.iter().filter(|row| row.working_ms.is_none()).map(|row| row.sent_ms).min();
        let is_silent = |sent_ms: u64| now_ms.saturating_sub(sent_ms.max(self.last_received_ms)) >= silent_ms;
        self.acks == Acks::Seen && owed.is_some_and(is_silent)
    }

    /// Since when a row that the gateway is not at work on is unacked. Of a gateway that has not acked yet only after a time:
    /// it may be at work on its first message, and a version that does not ack.
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
    pub fn followed_up(&mut self, session_key: &str) {
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

    /// Something of the peer arrived.
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
        // A peer that only has nothing to say answers before rows are held back.
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

    /// What is to be saved, once per change.
    pub fn take_unsaved(&mut self) -> Option<Settlement> {
        if !std::mem::take(&mut self.unsaved) {
            return None;
        }
        self.saving = std::mem::take(&mut self.has_inferred).then(|| self.position.clone());
        Some(Settlement { acked: self.acked.clone(), inferred: self.saving.clone(), session: SessionNo::NONE })
    }

    /// It was saved as a whole, so that what was inferred is known now.
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
mod tests {
    use super::*;
    use frontdesk_wire::EventId;

    fn delivery(chat: &str, passthrough: bool) -> Arc<Delivery> {
        Arc::new(Delivery {
            event: EventId(1),
            at_ms: 0,
            passthrough,
            json: "{}".into(),
            platform: "relay".into(),
            bot: "desk".into(),
            chat_id: chat.into(),
            session_key: "k".into(),
            message_id: "m".into(),
        })
    }

    fn window() -> Window {
        Window::new(3, 5_000, Position::default(), Acks::Assumed, 0)
    }

    /// A ping at this time is answered at once.
    fn pinged(w: &mut Window, now_ms: u64) {
        assert_eq!(w.health(now_ms, true, false), Health::Probe);
        w.ponged(now_ms);
    }

    #[test]
    fn it_is_bounded_and_acks_in_any_order_move_the_watermark() {
        let mut w = window();
        for seq in 1..=3 {
            w.sent(Seq(seq), delivery("c", false), 0);
        }
        assert_eq!(w.room(0), 0);
        assert!(w.ack(Seq(2)).is_some());
        assert_eq!(w.take_unsaved(), Some(Position { through: Seq(0), above: vec![Seq(2)], sent: Seq(3) }.into()));
        assert!(w.ack(Seq(1)).is_some());
        assert_eq!(w.take_unsaved(), Some(Position { through: Seq(2), above: vec![], sent: Seq(3) }.into()));
        assert!(w.ack(Seq(1)).is_none(), "a second ack is ignored");
        assert!(w.ack(Seq(9)).is_none());
        assert_eq!(w.take_unsaved(), None);
        assert_eq!(w.room(0), 2);
    }

    #[test]
    fn silence_is_probed_at_the_limit_and_dead_soon_after() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 500);
        assert!(w.ack(Seq(1)).is_some());
        w.sent(Seq(2), delivery("c", false), 1_000);
        assert_eq!(w.health(1_999, true, false), Health::Fine);
        assert_eq!(w.health(2_000, true, false), Health::Probe, "only asked, before its rows are held back");
        assert_eq!(w.health(6_000, true, false), Health::Probe);
        assert_eq!(w.health(8_999, true, false), Health::Fine);
        assert_eq!(w.health(9_000, true, false), Health::Dead);
    }

    #[test]
    fn a_peer_that_has_not_acked_may_stall_for_half_a_minute() {
        // Whatever its last socket did.
        for acks in [Acks::Assumed, Acks::Seen, Acks::Never] {
            let mut w = Window::new(3, 5_000, Position::default(), acks, 0);
            w.sent(Seq(1), delivery("c", false), 1_000);
            assert_eq!(w.health(6_000, true, false), Health::Probe);
            assert_eq!(w.health(35_999, true, false), Health::Fine);
            assert_eq!(w.health(36_000, true, false), Health::Dead);
        }
    }

    #[test]
    fn a_slow_peer_that_answers_pings_lives() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        assert_eq!(w.health(5_000, true, false), Health::Probe);
        w.received(5_001);
        assert_eq!(w.health(9_999, true, false), Health::Fine);
        assert_eq!(w.health(10_000, true, false), Health::Probe, "it is probed again");
    }

    #[test]
    fn an_idle_socket_is_probed() {
        let mut w = window();
        assert_eq!(w.health(29_999, true, false), Health::Fine);
        assert_eq!(w.health(30_000, true, false), Health::Probe);
        assert_eq!(w.health(33_000, true, false), Health::Dead);
    }

    #[test]
    fn never_acks_needs_evidence() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        pinged(&mut w, 59_000);
        assert!(w.settle_unacked(70_000).is_empty(), "no answer, no evidence");
        w.answered(&"other".into());
        assert!(w.settle_unacked(70_000).is_empty());
        w.answered(&"c".into());
        assert!(w.settle_unacked(59_999).is_empty(), "not yet");
        assert_eq!(w.settle_unacked(60_000).len(), 1);
        assert_eq!(w.acks, Acks::Never);

        w.sent(Seq(2), delivery("c", false), 60_000);
        w.received(60_001);
        assert!(w.settle_unacked(70_000).is_empty(), "a frame may have been sent before it arrived");
        pinged(&mut w, 65_000);
        assert!(w.settle_unacked(69_999).is_empty());
        assert_eq!(w.settle_unacked(70_000).len(), 1);
        w.sent(Seq(3), delivery("c", false), 70_000);
        assert!(w.ack(Seq(3)).is_some());
        assert_eq!(w.acks, Acks::Seen, "an ack seen later ends that state");
    }

    #[test]
    fn what_is_only_inferred_is_saved_apart_until_it_is_stored() {
        let mut w = window();
        for seq in 1..=3 {
            w.sent(Seq(seq), delivery("c", seq == 1), 0);
        }
        pinged(&mut w, 5_000);
        w.ack(Seq(3));
        assert_eq!(w.settle_unacked(10_000).len(), 1, "the forward, by health");
        let all = Position { through: Seq(1), above: vec![Seq(3)], sent: Seq(0) };
        let unsaved = w.take_unsaved().unwrap();
        assert_eq!(unsaved.acked, Position { through: Seq(0), above: vec![Seq(3)], sent: Seq(3) });
        assert_eq!(unsaved.inferred, Some(all.clone()));
        w.save_failed();
        assert_eq!(w.take_unsaved(), Some(unsaved), "all of it again");
        w.saved();
        w.ack(Seq(2));
        let unsaved = w.take_unsaved().unwrap();
        assert_eq!((unsaved.acked.through, unsaved.inferred), (Seq(3), None), "what was stored is known");
    }

    #[test]
    fn answered_rows_do_not_block_a_gateway_that_never_acked() {
        let mut w = window();
        for seq in 1..=3 {
            w.sent(Seq(seq), delivery("c", false), 0);
        }
        assert_eq!(w.room(0), 0);
        w.answered(&"c".into());
        assert_eq!(w.room(0), 3);
        for seq in 4..=48 {
            w.sent(Seq(seq), delivery("c", false), 0);
            w.answered(&"c".into());
        }
        assert_eq!(w.room(0), 0, "up to the limit");
        let mut w = window();
        for seq in 1..=3 {
            w.sent(Seq(seq), delivery("c", false), 0);
        }
        w.ack(Seq(1));
        w.answered(&"c".into());
        assert_eq!(w.room(0), 1, "a gateway that acks must ack");
    }

    #[test]
    fn a_forward_is_settled_by_health_or_by_its_follow_up() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", true), 0);
        pinged(&mut w, 5_000);
        assert_eq!(w.settle_unacked(10_000).len(), 1);
        w.sent(Seq(2), delivery("c", true), 10_000);
        w.followed_up("k");
        assert!(w.is_empty());
    }

    /// Regression, found by the simulation: a server that was stopped for a while settled rows that lay unread on a socket
    /// whose peer had sent something and then vanished.
    #[test]
    fn only_the_answer_to_a_ping_behind_a_row_proves_that_it_arrived() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", true), 1_000);
        w.received(1_001);
        assert_eq!(w.health(30_000, true, false), Health::Probe);
        assert!(w.settle_unacked(30_000).is_empty(), "the ping is not answered yet");
        w.ponged(30_001);
        assert_eq!(w.settle_unacked(30_001).len(), 1);
        w.sent(Seq(2), delivery("c", true), 40_000);
        assert_eq!(w.health(45_000, false, false), Health::Probe);
        w.ponged(45_001);
        assert!(w.settle_unacked(50_000).is_empty(), "the ping was written before the row");
        w.received(50_001);
        assert_eq!(w.health(50_002, true, false), Health::Probe);
        w.received(50_003);
        assert_eq!(w.health(55_003, true, false), Health::Probe);
        w.ponged(55_004);
        assert_eq!(w.settle_unacked(55_004).len(), 1, "by the answer to the ping of 50,002");
    }

    #[test]
    fn an_unacked_row_is_resent_three_times_and_then_given_up() {
        let mut w = window();
        for seq in 1..=3 {
            w.sent(Seq(seq), delivery("c", false), 0);
        }
        w.received(1);
        w.ack(Seq(2));
        assert!(w.overdue(29_999).resend.is_empty(), "not yet");
        for round in 1..=u64::from(RESENDS_MAX) {
            w.received(round * 30_000);
            let overdue = w.overdue(round * 30_000);
            assert_eq!(overdue.resend.iter().map(|(seq, _)| seq.0).collect::<Vec<_>>(), [1], "only 1: 3 may be slow");
            assert!(overdue.given_up.is_empty() && w.overdue(round * 30_000 + 29_999).resend.is_empty());
        }
        let overdue = w.overdue(120_000);
        assert_eq!((overdue.resend.len(), overdue.given_up.len(), overdue.given_up[0].0), (0, 1, Seq(1)));
        w.received(119_000);
        assert_eq!(w.room(120_000), 2, "3 is still waited for");
        assert!(!w.settled(Seq(1)), "it was not acked");
        w.dropped(Seq(1));
        assert_eq!(w.take_unsaved().unwrap().acked.through, Seq(2));
    }

    /// A gateway that acked before and then stops, but answers pings.
    #[test]
    fn if_no_later_row_is_acked_the_oldest_is_resent_three_times_and_kept() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.ack(Seq(1));
        for seq in 2..=3 {
            w.sent(Seq(seq), delivery("c", false), 1_000);
        }
        assert_eq!(w.unacked_since_ms(1_000), Some(1_000));
        let mut resent = Vec::new();
        for at_ms in (0..600_000).step_by(1_000) {
            w.received(at_ms);
            let overdue = w.overdue(at_ms);
            assert!(overdue.given_up.is_empty(), "at {at_ms}");
            resent.extend(overdue.resend.iter().map(|(seq, _)| (seq.0, at_ms)));
        }
        assert_eq!(resent, [(2, 61_000), (2, 121_000), (2, 181_000)]);
        assert_eq!((w.room(600_000), w.unacked_since_ms(600_000)), (1, Some(1_000)), "it is kept, and reported");
        w.ack(Seq(2));
        w.ack(Seq(3));
        assert_eq!(w.unacked_since_ms(600_000), None);
    }

    #[test]
    fn rows_acked_ahead_of_an_unacked_one_are_bounded() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.working(Seq(1), 0);
        let mut seq = 1;
        while w.room(0) > 0 {
            seq += 1;
            w.sent(Seq(seq), delivery("d", false), 0);
            w.ack(Seq(seq));
        }
        assert_eq!(seq, AHEAD_MAX as u64 + 1);
        let mut reopened = Window::new(3, 1_000, w.acked.clone(), Acks::Seen, 0);
        w.ack(Seq(1));
        assert_eq!(w.room(0), 3);
        assert_eq!(reopened.room(0), 3, "the row below is sent again");
        reopened.sent(Seq(1), delivery("d", false), 0);
        reopened.ack(Seq(1));
        assert_eq!(reopened.room(0), 3);
        reopened.sent(Seq(seq + 1), delivery("d", false), 0);
        assert_eq!(reopened.room(0), 2);
    }

    #[test]
    fn a_row_that_is_worked_on_is_neither_resent_nor_settled() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.sent(Seq(2), delivery("d", true), 0);
        w.answered(&"c".into());
        w.working(Seq(1), 5_000);
        w.working(Seq(2), 5_000);
        w.working(Seq(7), 5_000); // none of this socket
        pinged(&mut w, 8_000);
        assert!(w.settle_unacked(90_000).is_empty(), "it acks, and says that it has not finished");
        w.sent(Seq(3), delivery("c", false), 90_000);
        w.ack(Seq(3));
        for at_ms in (90_000..900_000).step_by(25_000) {
            w.received(at_ms);
            w.working(Seq(1), at_ms);
            w.working(Seq(2), at_ms);
            let overdue = w.overdue(at_ms + 24_999);
            assert!(overdue.resend.is_empty() && overdue.given_up.is_empty(), "at {at_ms}");
        }
        assert_eq!(w.room(900_000), 3, "it does not hold up others");
        // It says no more: the usual rule.
        assert_eq!(w.overdue(950_000).resend.len(), 2);
        assert!(w.ack(Seq(1)).is_some());
    }

    #[test]
    fn a_gateway_that_never_acked_is_not_sent_anything_twice() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.sent(Seq(2), delivery("c", false), 0);
        let overdue = w.overdue(300_000);
        assert!(overdue.resend.is_empty() && overdue.given_up.is_empty());
    }

    #[test]
    fn a_silent_peer_gets_no_new_rows_and_a_slow_one_does() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.received(100);
        w.ack(Seq(1));
        w.sent(Seq(2), delivery("c", false), 1_000);
        assert_eq!(w.room(2_999), 2);
        assert_eq!(w.health(1_999, true, false), Health::Fine);
        assert_eq!(w.health(2_000, true, false), Health::Probe, "asked before rows are held back");
        assert_eq!(w.room(3_000), 0, "nothing was received since row 2 was sent");
        assert_eq!(w.health(3_000, true, true), Health::Probe, "the ping before is not written yet");
        assert_eq!(w.pings.len(), 1);
        assert_eq!(w.health(3_999, true, false), Health::Fine, "it is not taken for dead sooner");
        w.ponged(4_000);
        assert_eq!(w.room(5_999), 2, "slow, not frozen");
        assert_eq!(w.room(6_000), 0, "received something since row 2 was sent, and silent now");
        assert_eq!(w.health(6_000, true, false), Health::Probe, "the probe");
        assert_eq!(w.health(9_000, true, false), Health::Dead);
        // What it says that it is at work on does not count.
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.working(Seq(1), 100);
        assert_eq!(w.room(50_000), 3);
        // A gateway that never acked may be one that does not ack.
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        assert_eq!(w.room(50_000), 2);
    }

    #[test]
    fn what_is_in_flight_is_bounded_in_bytes() {
        let mut w = Window::new(32, 5_000, Position::default(), Acks::Assumed, 0);
        let large = Arc::new(Delivery { json: "x".repeat(1 << 20), ..(*delivery("c", false)).clone() });
        let mut sent = 0;
        while w.room(0) > 0 {
            sent += 1;
            w.sent(Seq(sent), large.clone(), 0);
        }
        assert_eq!(sent, 4);
        w.ack(Seq(1));
        assert!(w.room(0) > 0);
    }

    #[test]
    fn a_dropped_row_is_settled_in_flight_or_ahead_of_it() {
        let mut w = window();
        w.sent(Seq(1), delivery("c", false), 0);
        w.dropped(Seq(1));
        w.dropped(Seq(2));
        assert!(w.is_empty() && w.settled(Seq(2)));
        assert_eq!(w.take_unsaved().unwrap().acked.through, Seq(2));
    }
}
