//! Sessions and the journal as one desk sees them, and what the invariants note of them.

use frontdesk_core::port::store::{
    Attached, Closing, DeskNo, Journal, JournalEntry, Outcome, Presence, Sessions, Store, Stored,
};
use frontdesk_wire::{BotId, GatewayId, InstanceNo, Seq, SessionNo, TenantId};

use super::book::Book;
use super::sabotage::Sabotage;
use super::store::{DeskStore, at_once};

impl Sessions for DeskStore {
    fn attach(&self, instance: InstanceNo, me: DeskNo, by: GatewayId, now_ms: u64) -> Stored<'_, Attached> {
        let (book, forgets) = (self.book.clone(), self.sabotage == Some(Sabotage::ForgetPositions));
        self.pass("attach", move |store| {
            let mut attached = at_once(store.attach(instance, me, by, now_ms))?;
            book.say(format!("s{} of d{me} serves i{instance}", attached.session));
            let mut facts = book.facts();
            let (at_ms, gateway) = (facts.now_ms, facts.gateways.get(&instance).cloned().unwrap_or_default());
            facts.came_ms.insert(gateway, at_ms);
            facts.settled.entry(attached.session).or_default().merge(&attached.position);
            if forgets {
                attached.position = frontdesk_core::port::store::Position::default();
            }
            Ok(attached)
        })
    }

    fn detach(&self, instance: InstanceNo, session: SessionNo, never_acks: bool, now_ms: u64) -> Stored<'_, bool> {
        let book = self.book.clone();
        self.pass("detach", move |store| {
            let was_serving = at_once(store.detach(instance, session, never_acks, now_ms))?;
            book.say(format!("s{session} leaves i{instance}: {was_serving}"));
            Ok(was_serving)
        })
    }

    fn adopt(&self, me: DeskNo, sessions: Vec<(InstanceNo, SessionNo)>) -> Stored<'_, Vec<InstanceNo>> {
        let book = self.book.clone();
        self.pass("adopt", move |store| {
            let adopted = at_once(store.adopt(me, sessions))?;
            book.say(format!("d{me} adopts the sessions of {adopted:?}"));
            Ok(adopted)
        })
    }

    fn mark_idle(&self, instance: InstanceNo, session: Option<SessionNo>, idle: bool) -> Stored<'_, bool> {
        self.pass("mark_idle", move |store| at_once(store.mark_idle(instance, session, idle)))
    }

    fn mark_never_acks(&self, instance: InstanceNo) -> Stored<'_, ()> {
        self.pass("mark_never_acks", move |store| at_once(store.mark_never_acks(instance)))
    }

    fn claim_notice(&self, instance: InstanceNo, through: Seq) -> Stored<'_, Option<Seq>> {
        let book = self.book.clone();
        self.pass("claim_notice", move |store| {
            let claimed = at_once(store.claim_notice(instance, through))?;
            if let Some(through_before) = claimed {
                let known = book.facts().noticed.insert(instance, through).unwrap_or_default();
                book.say(format!("people learn of i{instance} {through_before}..{through}"));
                if through_before < known {
                    book.fail(format!(
                        "people are told twice that rows of i{instance} wait: {through_before} after {known}"
                    ));
                }
            }
            Ok(claimed)
        })
    }

    fn claim_wake(
        &self,
        instance: InstanceNo,
        me: DeskNo,
        live: Vec<DeskNo>,
        cooldown_ms: u64,
        _: u64,
    ) -> Stored<'_, bool> {
        let (book, always) = (self.book.clone(), self.sabotage == Some(Sabotage::GrantEveryWake));
        self.pass("claim_wake", move |store| {
            let live = with_leases(&book, store, live);
            let claimed = at_once(store.claim_wake(instance, me, live, cooldown_ms, book.now_ms()))?;
            book.say(format!("d{me} may wake i{instance}: {claimed}"));
            Ok(claimed || always)
        })
    }

    fn presence(&self, instance: InstanceNo) -> Stored<'_, Presence> {
        self.pass("presence", move |store| at_once(store.presence(instance)))
    }

    fn presences(&self) -> Stored<'_, Vec<(InstanceNo, Presence)>> {
        self.pass("presences", |store| at_once(store.presences()))
    }
}

impl Journal for DeskStore {
    fn open_entry(&self, entry: JournalEntry, receipt_id: Option<String>) -> Stored<'_, u64> {
        let book = self.book.clone();
        self.pass("open_entry", move |store| {
            let desk = entry.desk;
            let id = at_once(store.open_entry(entry, receipt_id))?;
            book.say(format!("d{desk} opens entry {id}"));
            Ok(id)
        })
    }

    fn close_entry(&self, id: u64, closing: Closing) -> Stored<'_, bool> {
        self.pass("close_entry", move |store| at_once(store.close_entry(id, closing)))
    }

    fn add_receipt(&self, id: u64, receipt_id: String) -> Stored<'_, ()> {
        self.pass("add_receipt", move |store| at_once(store.add_receipt(id, receipt_id)))
    }

    fn apply_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_id: &'a str,
        outcome: Outcome,
        note: &'a str,
    ) -> Stored<'a, Option<JournalEntry>> {
        self.store.apply_receipt(platform, bot, receipt_id, outcome, note)
    }

    fn entry_of_receipt<'a>(
        &'a self,
        platform: &'a str,
        bot: &'a BotId,
        receipt_ids: Vec<String>,
    ) -> Stored<'a, Option<JournalEntry>> {
        self.store.entry_of_receipt(platform, bot, receipt_ids)
    }

    fn mark_open_entries_unknown(&self, live: Vec<DeskNo>) -> Stored<'_, u64> {
        let (book, marks_all) = (self.book.clone(), self.sabotage == Some(Sabotage::MarkLiveEntriesUnknown));
        self.pass("mark_open_entries_unknown", move |store| {
            let before = open_entries(store);
            let known = if marks_all { Vec::new() } else { with_leases(&book, store, live) };
            let marked = at_once(store.mark_open_entries_unknown(known))?;
            check_marked(&book, store, &before);
            Ok(marked)
        })
    }

    fn entries<'a>(&'a self, tenant: Option<&'a TenantId>, limit: usize) -> Stored<'a, Vec<JournalEntry>> {
        self.store.entries(tenant, limit)
    }
}

/// A store that several desks share looks at their leases as well: the list may be old.
fn with_leases(book: &Book, store: &dyn Store, mut live: Vec<DeskNo>) -> Vec<DeskNo> {
    let desks = at_once(store.desks(book.now_ms())).unwrap();
    live.extend(desks.iter().map(|(desk, _)| desk.number));
    live
}

fn open_entries(store: &dyn Store) -> Vec<JournalEntry> {
    let entries = at_once(store.entries(None, usize::MAX)).unwrap();
    entries.into_iter().filter(|entry| entry.outcome == Outcome::Open).collect()
}

/// An entry of a live desk is never marked unknown.
fn check_marked(book: &Book, store: &dyn Store, before: &[JournalEntry]) {
    let still: Vec<u64> = open_entries(store).iter().map(|entry| entry.id).collect();
    let desks = at_once(store.desks(book.now_ms())).unwrap();
    for entry in before.iter().filter(|entry| !still.contains(&entry.id)) {
        book.say(format!("entry {} of d{} is marked unknown", entry.id, entry.desk));
        if desks.iter().any(|(desk, _)| desk.number == entry.desk) {
            book.fail(format!("entry {} is marked unknown although d{} is live", entry.id, entry.desk));
        }
    }
}
