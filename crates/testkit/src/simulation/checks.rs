//! What must be true after every step, by the store and by what gateways have seen.

use std::collections::BTreeMap;

use frontdesk_core::port::store::{MailState, Seq, Store};
use frontdesk_wire::InstanceNo;

use super::book::Book;
use super::gateway::Gateway;
use super::store::at_once;

/// An event that a client sends, again and again until it is accepted.
pub(super) struct Event {
    pub(super) gateway: usize,
    pub(super) is_forward: bool,
    pub(super) is_accepted: bool,
    /// A request is under way, at the desk in this slot.
    pub(super) is_sent: Option<usize>,
    /// How often a replay of it was requested.
    pub(super) replays: usize,
}

/// The ledgers as they were after the step before.
#[derive(Default)]
pub(super) struct Ledgers(BTreeMap<InstanceNo, Vec<(usize, bool)>>);

/// The event that a row carries.
pub(super) fn event_of(json: &str) -> Option<(&str, &str, usize)> {
    let (_, rest) = json.split_once("[[")?;
    let mut parts = rest.split_once("]]")?.0.split('/');
    Some((parts.next()?, parts.next()?, parts.next()?.parse().ok()?))
}

impl Ledgers {
    pub(super) fn check(&mut self, store: &dyn Store, book: &Book, gateways: &[Gateway], events: &[Event]) {
        let mut found: BTreeMap<usize, usize> = BTreeMap::new();
        for gateway in gateways {
            let Some(instance) = gateway.instance else { continue };
            let rows = rows_of(store, book, gateway, instance);
            for (event, _) in &rows {
                *found.entry(*event).or_default() += 1;
            }
            let before = self.0.entry(instance).or_default();
            let is_kept = |(old, new): (&(usize, bool), &(usize, bool))| old.0 == new.0 && (new.1 || !old.1);
            if rows.len() < before.len() || !before.iter().zip(&rows).all(is_kept) {
                book.fail(format!("the ledger of i{instance} was {before:?} and is {rows:?}"));
            }
            *before = rows;
        }
        for (number, event) in events.iter().enumerate() {
            let count = found.get(&number).copied().unwrap_or(0);
            if count > 1 + event.replays || (event.is_accepted && count == 0) {
                book.fail(format!("event {number} has {count} rows, replayed {} times", event.replays));
            }
        }
    }
}

/// The rows of an instance: which event, and whether it is settled.
fn rows_of(store: &dyn Store, book: &Book, gateway: &Gateway, instance: InstanceNo) -> Vec<(usize, bool)> {
    let mut mail = at_once(store.mail(instance, None, Seq::NONE, usize::MAX)).unwrap();
    mail.reverse();
    let mut rows = Vec::new();
    for (at, row) in mail.iter().enumerate() {
        if row.seq.0 != at as u64 + 1 {
            book.fail(format!("the rows of i{instance} are not dense at {}", row.seq));
        }
        let Some((tenant, name, number)) = event_of(&row.delivery.json) else {
            book.fail(format!("i{instance}.{} is not readable", row.seq));
            continue;
        };
        if tenant != gateway.tenant || name != gateway.name {
            book.fail(format!("i{instance} of {} has a row of {tenant}/{name}", gateway.name));
        }
        // A gateway that was given a row has it, whichever desk says so.
        if row.state == MailState::Acked && !gateway.received.contains(&row.seq) {
            book.fail(format!("i{instance}.{} is settled, and {} never got it", row.seq, gateway.name));
        }
        rows.push((number, matches!(row.state, MailState::Acked | MailState::Dead)));
    }
    rows
}

/// What is still owed.
pub(super) fn owed(store: &dyn Store) -> Vec<String> {
    let waiting = at_once(store.waiting()).unwrap();
    waiting.iter().map(|it| format!("{} rows of i{} from {}", it.count, it.instance, it.oldest_seq)).collect()
}
