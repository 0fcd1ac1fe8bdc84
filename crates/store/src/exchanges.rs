//! Questions whose askers wait, for the stores of one process.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use frontdesk_core::port::exchanges::{
    EXCHANGE_LEFT_MS, Exchange, LEFT_MAX, Mention, Reply, ReplyOutcome, StoredAnswer,
};
use frontdesk_core::port::store::DeskNo;
use frontdesk_wire::{InstanceNo, TenantId};

struct Row {
    exchange: Exchange,
    answer: Option<StoredAnswer>,
    is_taken: bool,
    until_ms: u64,
}

impl Row {
    /// The asker does not wait any more: its server is gone, or did not end the exchange.
    fn is_left(&self, live: &[DeskNo], now_ms: u64) -> bool {
        !live.contains(&self.exchange.desk) || self.until_ms <= now_ms
    }
}

/// By tenant and correlation id. Bounded by the server, which limits the askers.
#[derive(Default)]
pub(crate) struct LocalExchanges(Mutex<HashMap<(TenantId, String), Row>>);

impl LocalExchanges {
    fn rows(&self) -> MutexGuard<'_, HashMap<(TenantId, String), Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn open(&self, exchange: Exchange, live: &[DeskNo], now_ms: u64) -> bool {
        let name = (exchange.tenant.clone(), exchange.correlation_id.clone());
        let mut rows = self.rows();
        let mut answer = None;
        if let Some(row) = rows.get(&name).filter(|row| !row.is_taken) {
            if !row.is_left(live, now_ms) || (row.answer.is_some() && row.exchange.agent != exchange.agent) {
                return false;
            }
            answer.clone_from(&row.answer);
        }
        let until_ms = now_ms.saturating_add(exchange.timeout_ms).saturating_add(EXCHANGE_LEFT_MS);
        rows.insert(name, Row { exchange, answer, is_taken: false, until_ms });
        true
    }

    pub(crate) fn name_question(&self, token: u64, delivery_id: String) {
        if let Some(row) = self.rows().values_mut().find(|row| row.exchange.token == token) {
            row.exchange.delivery_id = delivery_id;
        }
    }

    pub(crate) fn meant(&self, mention: &Mention) -> Option<(String, InstanceNo)> {
        let rows = self.rows();
        let asks = |row: &&Row| {
            let it = &row.exchange;
            row.answer.is_none()
                && it.tenant == mention.tenant
                && it.chat_id == mention.chat_id
                && it.instances.contains(&mention.instance)
        };
        let is_named = |row: &&Row| mention.correlation_id.as_ref() == Some(&row.exchange.correlation_id);
        let is_replied = |row: &&Row| mention.delivery_id.as_ref() == Some(&row.exchange.delivery_id);
        let named = rows.values().filter(asks).find(is_named);
        let found = named.or_else(|| rows.values().filter(asks).find(is_replied))?;
        Some((found.exchange.correlation_id.clone(), found.exchange.agent))
    }

    pub(crate) fn answer(&self, reply: Reply, live: &[DeskNo], now_ms: u64) -> ReplyOutcome {
        let mut rows = self.rows();
        match rows.get_mut(&(reply.tenant, reply.correlation_id)) {
            Some(row) if row.answer.is_some() => {
                let is_same = row.exchange.agent == reply.agent
                    && row.answer.as_ref().is_some_and(|answer| answer.content == reply.answer.content);
                if is_same && !row.is_taken {
                    ReplyOutcome::At(row.exchange.desk, row.exchange.token)
                } else {
                    ReplyOutcome::Answered
                }
            }
            Some(row) if row.is_left(live, now_ms) => ReplyOutcome::NobodyWaits,
            None => ReplyOutcome::NobodyWaits,
            Some(row) if row.exchange.agent != reply.agent => ReplyOutcome::OtherAgent,
            Some(row) => {
                row.answer = Some(reply.answer);
                row.is_taken = row.exchange.desk == reply.desk;
                ReplyOutcome::At(row.exchange.desk, row.exchange.token)
            }
        }
    }

    pub(crate) fn take_answers(&self, tokens: &[u64]) -> Vec<(u64, StoredAnswer)> {
        let mut rows = self.rows();
        let asked = rows.values_mut().filter(|row| tokens.contains(&row.exchange.token));
        let mut taken: Vec<(u64, StoredAnswer)> = asked
            .filter_map(|row| {
                let answer = row.answer.clone()?;
                row.is_taken = true;
                Some((row.exchange.token, answer))
            })
            .collect();
        taken.sort_by_key(|(token, _)| *token);
        taken
    }

    pub(crate) fn leave(&self, token: u64, now_ms: u64) {
        if let Some(row) = self.rows().values_mut().find(|row| row.exchange.token == token) {
            (row.is_taken, row.until_ms) = (false, now_ms);
        }
    }

    pub(crate) fn adopt(&self, me: DeskNo, tokens: &[u64]) {
        for row in self.rows().values_mut().filter(|row| tokens.contains(&row.exchange.token)) {
            row.exchange.desk = me;
        }
    }

    pub(crate) fn end(&self, token: u64) -> Option<StoredAnswer> {
        let mut rows = self.rows();
        let name = rows.iter().find(|(_, row)| row.exchange.token == token).map(|(name, _)| name.clone())?;
        rows.remove(&name)?.answer
    }

    pub(crate) fn left(&self, live: &[DeskNo], now_ms: u64) -> Vec<(Exchange, StoredAnswer)> {
        let mut rows = self.rows();
        rows.retain(|_, row| row.answer.is_some() || !row.is_left(live, now_ms));
        let left = rows.values().filter(|row| row.is_left(live, now_ms));
        let mut left: Vec<(Exchange, StoredAnswer)> =
            left.filter_map(|row| Some((row.exchange.clone(), row.answer.clone()?))).collect();
        left.sort_by_key(|(exchange, _)| exchange.token);
        left.truncate(LEFT_MAX);
        left
    }
}

/// Implements the trait for a store that has `exchanges: LocalExchanges`.
macro_rules! local_exchanges {
    ($store:ident) => {
        const _: () = {
            use frontdesk_core::port::exchanges::{Exchange, Exchanges, Mention, Reply, ReplyOutcome, StoredAnswer};
            use frontdesk_core::port::store::{DeskNo, Stored};

            impl Exchanges for $store {
                fn open_exchange(&self, exchange: Exchange, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, bool> {
                    $crate::ready(self.exchanges.open(exchange, &live, now_ms))
                }

                fn name_question(&self, token: u64, delivery_id: String) -> Stored<'_, ()> {
                    $crate::ready(self.exchanges.name_question(token, delivery_id))
                }

                fn meant_exchange(&self, mention: Mention) -> Stored<'_, Option<(String, frontdesk_wire::InstanceNo)>> {
                    $crate::ready(self.exchanges.meant(&mention))
                }

                fn answer_exchange(&self, reply: Reply, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, ReplyOutcome> {
                    $crate::ready(self.exchanges.answer(reply, &live, now_ms))
                }

                fn take_answers(&self, tokens: Vec<u64>) -> Stored<'_, Vec<(u64, StoredAnswer)>> {
                    $crate::ready(self.exchanges.take_answers(&tokens))
                }

                fn leave_answer(&self, token: u64, now_ms: u64) -> Stored<'_, ()> {
                    $crate::ready(self.exchanges.leave(token, now_ms))
                }

                fn adopt_exchanges(&self, me: DeskNo, tokens: Vec<u64>) -> Stored<'_, ()> {
                    $crate::ready(self.exchanges.adopt(me, &tokens))
                }

                fn end_exchange(&self, token: u64) -> Stored<'_, Option<StoredAnswer>> {
                    $crate::ready(self.exchanges.end(token))
                }

                fn left_exchanges(&self, live: Vec<DeskNo>, now_ms: u64) -> Stored<'_, Vec<(Exchange, StoredAnswer)>> {
                    $crate::ready(self.exchanges.left(&live, now_ms))
                }
            }
        };
    };
}
pub(crate) use local_exchanges;
