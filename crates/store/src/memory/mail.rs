//! Single rows of the ledger: listed, ended and put in again.

use std::sync::Arc;

use frontdesk_core::port::store::{
    Delivery, EventRecord, MadeRow, Mail, MailLog, MailState, NewRow, Position, StoreError, Stored,
};
use frontdesk_wire::{InstanceNo, Seq, SessionNo};

use super::{Account, MemoryStore, now};

impl Account {
    fn mail(&self, instance: InstanceNo, seq: Seq) -> Option<Mail> {
        let (delivery, reason) = self.rows.get(&seq)?;
        let state = match reason {
            Some(_) => MailState::Dead,
            None if self.position.settled(seq) => MailState::Acked,
            None if seq <= self.position.sent => MailState::Sent,
            None => MailState::Accepted,
        };
        Some(Mail { instance, seq, state, reason: reason.clone(), delivery: delivery.clone() })
    }
}

impl MailLog for MemoryStore {
    fn mail(
        &self,
        instance: InstanceNo,
        wanted: Option<MailState>,
        before: Seq,
        limit: usize,
    ) -> Stored<'_, Vec<Mail>> {
        let state = self.state();
        let Some(account) = state.ledgers.get(&instance) else { return now(Vec::new()) };
        let top = if before.is_none() { Seq(u64::MAX) } else { before };
        let rows = account.rows.range(..top).rev().filter_map(|(seq, _)| account.mail(instance, *seq));
        now(rows.filter(|mail| wanted.is_none_or(|state| state == mail.state)).take(limit).collect())
    }

    fn mail_row(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Mail>> {
        now(self.state().ledgers.get(&instance).and_then(|account| account.mail(instance, seq)))
    }

    fn drop_mail(&self, instance: InstanceNo, seq: Seq, session: Option<SessionNo>, why: String) -> Stored<'_, bool> {
        let mut state = self.state();
        let serving = state.presences.get(&instance).map_or(SessionNo::NONE, |known| known.session);
        if session.is_some_and(|session| session != serving) {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        let Some(account) = state.ledgers.get_mut(&instance) else { return now(false) };
        let Some((_, reason)) = account.rows.get_mut(&seq) else { return now(false) };
        if account.position.settled(seq) {
            return now(false);
        }
        *reason = Some(why);
        account.position.merge(&Position { above: vec![seq], ..Position::default() });
        now(true)
    }

    fn replay_mail(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Seq>> {
        let mut state = self.state();
        let found = state.ledgers.get(&instance).and_then(|account| account.rows.get(&seq)).cloned();
        let Some((delivery, _)) = found else { return now(None) };
        let event = state.last_event.next();
        state.last_event = event;
        if let Some(record) = state.events.get(&delivery.event).cloned() {
            state.events.insert(event, EventRecord { event, ..record });
        }
        let delivery = Arc::new(Delivery { event, ..(*delivery).clone() });
        let again = state.ledgers.entry(instance).or_default().append(delivery.clone());
        state.hold_media_again((instance, seq), (instance, again));
        let row = MadeRow { instance, seq: again, served_by: state.served_by(instance) };
        self.listeners.rows_committed(&[NewRow { row, delivery }]);
        now(Some(again))
    }
}
