//! The ledger: events, one row per receiver, and positions.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frontdesk_core::port::inbox::StoredMessage;
use frontdesk_core::port::store::{
    Acceptance, Accepted, Delivery, EventRecord, Ledger, MadeRow, NewRow, OWED_SCANNED_MAX, Position, Presence,
    RowListener, SentTurn, Settlement, StoreError, Stored, TURN_ROWS_MAX, TURN_ROWS_OLD_MAX, TURN_SESSIONS_MAX,
    Waiting,
};
use frontdesk_wire::{DeskNo, InboxSeq, InstanceNo, MessageId, Seq, SessionNo};

use super::{Account, MemoryStore, State, now};

impl Account {
    pub(super) fn append(&mut self, delivery: Arc<Delivery>) -> Seq {
        self.last_seq = self.last_seq.next();
        self.rows.insert(self.last_seq, (delivery, None));
        self.last_seq
    }
}

impl Ledger for MemoryStore {
    fn epoch(&self) -> u32 {
        self.epoch
    }

    fn attach_listener(&self, listener: Arc<dyn RowListener>) {
        self.listeners.attach(listener);
    }

    fn may_lose_answers(&self) -> bool {
        self.is_lossy
    }

    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>> {
        let mut state = self.state();
        if batch.iter().any(|one| !state.is_repeated(one) && !state.chat_is_at(one)) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        let mut added = Vec::new();
        let accepted = batch.into_iter().map(|one| accept_one(&mut state, one, &mut added)).collect();
        self.listeners.rows_committed(&added); // under the lock, to keep the order of commits
        if self.lose_answer.swap(false, Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Unknown("the answer was lost".into()))));
        }
        now(accepted)
    }

    fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool> {
        let mut state = self.state();
        let serving = state.presences.get(&instance).map_or(SessionNo::NONE, |known| known.session);
        let position = &mut state.ledgers.entry(instance).or_default().position;
        position.merge(&settlement.acked);
        let is_mine = settlement.session == serving;
        if let Some(inferred) = settlement.inferred.filter(|_| is_mine) {
            position.merge(&inferred);
        }
        now(is_mine)
    }

    fn position(&self, instance: InstanceNo) -> Stored<'_, Position> {
        now(self.state().ledgers.get(&instance).map(|account| account.position.clone()).unwrap_or_default())
    }

    fn pending(&self, instance: InstanceNo, after: Seq, limit: usize) -> Stored<'_, Vec<(Seq, Arc<Delivery>)>> {
        let state = self.state();
        let Some(account) = state.ledgers.get(&instance) else { return now(Vec::new()) };
        let owed = account.rows.range((Excluded(after), Unbounded)).filter(|(seq, _)| !account.position.settled(**seq));
        now(owed.take(limit).map(|(seq, (delivery, _))| (*seq, delivery.clone())).collect())
    }

    fn owes<'a>(&'a self, instance: InstanceNo, message_id: &'a MessageId) -> Stored<'a, bool> {
        let state = self.state();
        let owed = state.ledgers.get(&instance).is_some_and(|account| {
            let rows = account.rows.iter().rev().filter(|(seq, _)| !account.position.settled(**seq));
            rows.take(OWED_SCANNED_MAX).any(|(_, (delivery, _))| delivery.message_id == *message_id)
        });
        now(owed)
    }

    fn heads(&self, me: DeskNo) -> Stored<'_, Vec<(InstanceNo, SessionNo, Seq)>> {
        let state = self.state();
        let served = state.presences.iter().filter(|(_, known)| known.served_by == me);
        let newest =
            |instance: &InstanceNo| state.ledgers.get(instance).and_then(|account| account.rows.last_key_value());
        let head = |(instance, known): (&InstanceNo, &Presence)| {
            (*instance, known.session, newest(instance).map_or(Seq::NONE, |(seq, _)| *seq))
        };
        now(served.map(head).collect())
    }

    fn waiting(&self) -> Stored<'_, Vec<Waiting>> {
        let state = self.state();
        let waiting = state.ledgers.iter().filter_map(|(instance, account)| {
            let mut owed = account.rows.iter().filter(|(seq, _)| !account.position.settled(**seq)).peekable();
            let (oldest_seq, (oldest, _)) = owed.peek().copied()?;
            Some(Waiting {
                instance: *instance,
                oldest_seq: *oldest_seq,
                oldest_ms: oldest.at_ms,
                count: owed.count() as u64,
            })
        });
        now(waiting.collect())
    }

    fn sent_turns(&self, instance: InstanceNo, since_ms: u64) -> Stored<'_, Vec<SentTurn>> {
        let state = self.state();
        let Some(account) = state.ledgers.get(&instance) else { return now(Vec::new()) };
        let newest = account.position.sent.max(account.position.through);
        let sent = account.rows.range(..=newest).rev().map(|(_, (delivery, _))| delivery).take(TURN_ROWS_MAX);
        let (mut turns, mut old) = (Vec::<SentTurn>::new(), 0);
        for it in sent {
            old += usize::from(it.at_ms < since_ms);
            if old > TURN_ROWS_OLD_MAX {
                break;
            }
            if it.at_ms >= since_ms
                && turns.len() < TURN_SESSIONS_MAX
                && turns.iter().all(|known| known.session_key != it.session_key)
            {
                let (session_key, chat_id) = (it.session_key.clone(), it.chat_id.clone());
                turns.push(SentTurn { session_key, chat_id, at_ms: it.at_ms });
            }
        }
        now(turns)
    }
}

impl State {
    fn is_repeated(&self, one: &Acceptance) -> bool {
        one.attempt != 0 && self.attempts.contains_key(&one.attempt)
    }
}

fn accept_one(state: &mut State, one: Acceptance, added: &mut Vec<NewRow>) -> Accepted {
    let Acceptance { tenant, attempt, dedup, mut delivery, .. } = one;
    let Acceptance { verdict, receivers, own_json, capabilities, reaches, message, chat, files, .. } = one;
    if let Some(first) = state.by_dedup.get(&dedup) {
        // Repeated under the name of the attempt that stored it, an event gets the first answer.
        let repeated = state.attempts.get(&attempt).filter(|known| attempt != 0 && known.event == *first);
        let duplicate = Accepted { event: *first, fresh: false, rows: Vec::new(), place: InboxSeq::NONE, line: None };
        return repeated.cloned().unwrap_or(duplicate);
    }
    state.last_event = state.last_event.next();
    let event = state.last_event;
    delivery.event = event;
    state.by_dedup.insert(dedup, event);
    let record = EventRecord {
        event,
        tenant: tenant.clone(),
        at_ms: delivery.at_ms,
        chat_id: delivery.chat_id.clone(),
        message_id: delivery.message_id.clone(),
        verdict,
    };
    state.events.insert(event, record);
    if reaches {
        let place = [&*tenant, &delivery.platform, &delivery.bot, &*delivery.chat_id].map(str::to_owned);
        state.reach.insert(place, delivery.at_ms);
    }
    for capability in capabilities {
        for session_key in &capability.session_keys {
            let name = [capability.tenant.as_str(), session_key, &capability.kind].map(str::to_owned);
            let bound = frontdesk_core::port::store::SealedCapability {
                session_keys: vec![session_key.clone()],
                ..capability.clone()
            };
            state.capabilities.insert(name, bound);
        }
    }
    let delivery = Arc::new(delivery);
    let mut rows = Vec::with_capacity(receivers.len());
    for instance in receivers {
        let delivery = match own_json.iter().find(|(no, _)| *no == instance) {
            None => delivery.clone(),
            Some((_, json)) => Arc::new(Delivery { json: json.clone(), ..(*delivery).clone() }),
        };
        let seq = state.ledgers.entry(instance).or_default().append(delivery.clone());
        let row = MadeRow { instance, seq, served_by: state.served_by(instance) };
        rows.push(row);
        added.push(NewRow { row, delivery });
    }
    state.hold_media(&tenant, &delivery, files, &rows);
    let place = message.map_or(InboxSeq::NONE, |message| {
        let place = state.next_place(message.agent);
        let stored = StoredMessage { place, event, at_ms: delivery.at_ms, message };
        state.messages.insert((stored.message.agent, place), (tenant.clone(), stored));
        place
    });
    let line = chat.and_then(|chat| state.write_chat(&tenant, *chat));
    let accepted = Accepted { event, fresh: true, rows, place, line };
    if attempt != 0 {
        state.attempts.insert(attempt, accepted.clone());
    }
    accepted
}
