//! The store as one desk sees it: behind a [`Link`], with the clock of the store, and with a listener of its own.

use std::sync::{Arc, Mutex};

use frontdesk_core::port::store::{
    Acceptance, Accepted, Applied, Change, Changes, Delivery, DeskNo, DeskRecord, Desks, Directory, EventRecord,
    Events, Ledger, Mail, MailLog, MailState, NewRow, Position, Renewal, RowListener, SentTurn, Settlement, Store,
    StoreError, Stored, Waiting,
};
use frontdesk_core::port::stores::Stores;
use frontdesk_wire::{BotId, ChatId, EventId, InstanceNo, MessageId, Seq, SessionNo, TenantId};
use futures_util::FutureExt as _;

use super::book::{Book, LeaseFacts};
use super::link::Link;
use super::sabotage::Sabotage;

/// The answer of the store below, which never waits.
pub(super) fn at_once<T>(asked: Stored<'_, T>) -> Result<T, StoreError> {
    asked.now_or_never().unwrap_or_else(|| panic!("the store below the simulation must answer at once"))
}

pub(super) struct DeskStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) link: Arc<Link>,
    pub(super) book: Book,
    pub(super) sabotage: Option<Sabotage>,
    listener: Arc<Mutex<Option<Arc<dyn RowListener>>>>,
    /// The number of the desk.
    me: Arc<Mutex<DeskNo>>,
}

impl DeskStore {
    pub(super) fn new(store: Arc<dyn Store>, link: Arc<Link>, book: Book, sabotage: Option<Sabotage>) -> Self {
        Self { store, link, book, sabotage, listener: Arc::default(), me: Arc::default() }
    }

    pub(super) fn me(&self) -> DeskNo {
        *self.me.lock().unwrap()
    }

    pub(super) fn stores(self: &Arc<Self>) -> Stores {
        Stores {
            ledger: self.clone(),
            mail: self.clone(),
            events: self.clone(),
            sessions: self.clone(),
            desks: self.clone(),
            directory: self.clone(),
            journal: self.clone(),
            ..Stores::from(self.store.clone())
        }
    }

    /// A verb without anything to note.
    pub(super) fn pass<T: Send + 'static>(
        &self,
        verb: &'static str,
        ask: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Stored<'_, T> {
        let store = self.store.clone();
        self.link.pass(verb, move || ask(&*store), |answer| answer)
    }

    /// Tells the desk of rows that it wrote, where the answer reaches it.
    fn tell(&self) -> impl Fn(&[NewRow]) + Send + 'static {
        let listener = self.listener.clone();
        move |rows| {
            let listener = listener.lock().unwrap().clone();
            if let Some(listener) = listener.filter(|_| !rows.is_empty()) {
                listener.rows_committed(rows);
            }
        }
    }
}

/// Rows as a listener gets them; as a store behind a network, also those that an earlier attempt wrote.
fn new_rows(store: &dyn Store, accepted: &[Accepted]) -> Vec<NewRow> {
    let rows = accepted.iter().flat_map(|one| &one.rows);
    let found = rows.filter_map(|row| Some((row, at_once(store.mail_row(row.instance, row.seq)).ok()??)));
    found.map(|(row, mail)| NewRow { row: *row, delivery: mail.delivery }).collect()
}

impl Ledger for DeskStore {
    fn epoch(&self) -> u32 {
        self.store.epoch()
    }

    fn attach_listener(&self, listener: Arc<dyn RowListener>) {
        *self.listener.lock().unwrap() = Some(listener);
    }

    fn may_lose_answers(&self) -> bool {
        true
    }

    fn accept(&self, batch: Vec<Acceptance>) -> Stored<'_, Vec<Accepted>> {
        let (store, tell) = (self.store.clone(), self.tell());
        let forgets = self.sabotage == Some(Sabotage::ForgetRows) && self.link.throw(10);
        let ask = move || {
            let batch = if forgets { super::sabotage::without_rows(batch) } else { batch };
            let accepted = at_once(store.accept(batch))?;
            let rows = new_rows(&*store, &accepted);
            Ok((accepted, rows))
        };
        self.link.pass("accept", ask, move |(accepted, rows)| {
            tell(&rows);
            accepted
        })
    }

    fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Stored<'_, bool> {
        let (book, believes) = (self.book.clone(), self.sabotage == Some(Sabotage::BelieveWritten));
        self.pass("settle", move |store| {
            let mut settlement = settlement;
            if believes {
                settlement.acked.through = settlement.acked.sent;
            }
            book.facts().settled.entry(settlement.session).or_default().merge(&settlement.acked);
            let text = format!("settled i{instance} by s{} {:?}", settlement.session, seqs(&settlement.acked));
            let inferred = settlement.inferred.as_ref().map(seqs);
            let is_mine = at_once(store.settle(instance, settlement))?;
            book.say(format!("{text} inferred {inferred:?} serving {is_mine}"));
            Ok(is_mine)
        })
    }

    fn position(&self, instance: InstanceNo) -> Stored<'_, Position> {
        self.pass("position", move |store| at_once(store.position(instance)))
    }

    fn pending(&self, instance: InstanceNo, after: Seq, limit: usize) -> Stored<'_, Vec<(Seq, Arc<Delivery>)>> {
        let forgets = self.sabotage == Some(Sabotage::ForgetPositions);
        self.pass("pending", move |store| match forgets {
            true => super::sabotage::all_rows(store, instance, after, limit),
            false => at_once(store.pending(instance, after, limit)),
        })
    }

    fn owes<'a>(&'a self, instance: InstanceNo, message_id: &'a MessageId) -> Stored<'a, bool> {
        let message_id = message_id.to_owned();
        self.pass("owes", move |store| at_once(store.owes(instance, &message_id)))
    }

    fn heads(&self, me: DeskNo) -> Stored<'_, Vec<(InstanceNo, SessionNo, Seq)>> {
        self.pass("heads", move |store| at_once(store.heads(me)))
    }

    fn waiting(&self) -> Stored<'_, Vec<Waiting>> {
        self.pass("waiting", |store| at_once(store.waiting()))
    }

    fn sent_turns(&self, instance: InstanceNo, since_ms: u64) -> Stored<'_, Vec<SentTurn>> {
        self.pass("sent_turns", move |store| at_once(store.sent_turns(instance, since_ms)))
    }
}

impl MailLog for DeskStore {
    fn mail(&self, instance: InstanceNo, state: Option<MailState>, before: Seq, limit: usize) -> Stored<'_, Vec<Mail>> {
        self.pass("mail", move |store| at_once(store.mail(instance, state, before, limit)))
    }

    fn mail_row(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Mail>> {
        self.pass("mail_row", move |store| at_once(store.mail_row(instance, seq)))
    }

    fn drop_mail(&self, instance: InstanceNo, seq: Seq, session: Option<SessionNo>, why: String) -> Stored<'_, bool> {
        let book = self.book.clone();
        self.pass("drop_mail", move |store| {
            let dropped = at_once(store.drop_mail(instance, seq, session, why));
            book.say(format!("drop i{instance}.{seq}: {dropped:?}"));
            dropped
        })
    }

    fn replay_mail(&self, instance: InstanceNo, seq: Seq) -> Stored<'_, Option<Seq>> {
        let (store, tell) = (self.store.clone(), self.tell());
        let ask = move || {
            let made = at_once(store.replay_mail(instance, seq))?;
            let mail = made.and_then(|made| at_once(store.mail_row(instance, made)).ok()?);
            let served_by = at_once(store.presence(instance))?.served_by;
            let row = |seq| frontdesk_core::port::store::MadeRow { instance, seq, served_by };
            let rows: Vec<_> = mail.map(|it| NewRow { row: row(it.seq), delivery: it.delivery }).into_iter().collect();
            Ok((made, rows))
        };
        self.link.pass("replay_mail", ask, move |(made, rows)| {
            tell(&rows);
            made
        })
    }
}

impl Events for DeskStore {
    fn event(&self, event: EventId) -> Stored<'_, Option<EventRecord>> {
        self.pass("event", move |store| at_once(store.event(event)))
    }

    fn event_named<'a>(
        &'a self,
        tenant: &'a TenantId,
        dedup_prefix: Vec<u8>,
        message_id: &'a MessageId,
        chat_id: Option<&'a ChatId>,
    ) -> Stored<'a, Option<EventRecord>> {
        self.store.event_named(tenant, dedup_prefix, message_id, chat_id)
    }

    fn events_marked<'a>(&'a self, tenant: &'a TenantId, dedups: Vec<Vec<u8>>) -> Stored<'a, Vec<Option<EventRecord>>> {
        let tenant = tenant.to_owned();
        self.pass("events_marked", move |store| at_once(store.events_marked(&tenant, dedups)))
    }

    fn reached<'a>(
        &'a self,
        tenant: &'a TenantId,
        platform: &'a str,
        bot: &'a BotId,
        chat_id: &'a ChatId,
    ) -> Stored<'a, bool> {
        self.store.reached(tenant, platform, bot, chat_id)
    }
}

fn seqs(position: &Position) -> (u64, Vec<u64>) {
    (position.through.0, position.above.iter().map(|seq| seq.0).collect())
}

/// Times are those of the store, whatever the desk believes.
impl Desks for DeskStore {
    fn enlist(&self, name: String, version: String, _: u64) -> Stored<'_, DeskNo> {
        let (book, mine) = (self.book.clone(), self.me.clone());
        let store = self.store.clone();
        let ask = move || {
            let now_ms = book.now_ms();
            let me = at_once(store.enlist(name.clone(), version, now_ms))?;
            book.facts().leases.insert(me, LeaseFacts { enlisted_ms: now_ms, heard_ms: now_ms });
            book.say(format!("{name} is enlisted as d{me}"));
            Ok(me)
        };
        self.link.pass("enlist", ask, move |me| {
            *mine.lock().unwrap() = me;
            me
        })
    }

    fn renew(&self, me: DeskNo, seen: u64, _: u64) -> Stored<'_, Renewal> {
        let (store, book) = (self.store.clone(), self.book.clone());
        let (received, name) = (book.clone(), self.link.name.clone());
        // What it learns is as of the time at which the store answered, also if it is that the lease has run out.
        let ask = move || Ok((at_once(store.renew(me, seen, book.now_ms())), book.now_ms()));
        let take_answer = move |(renewal, at_ms): (Result<Renewal, StoreError>, u64)| {
            let mut facts = received.facts();
            if facts.unaware.get(&name).is_some_and(|since_ms| at_ms >= *since_ms) {
                facts.unaware.remove(&name);
            }
            if renewal.is_ok() {
                facts.leases.entry(me).or_default().heard_ms = at_ms;
            }
            renewal
        };
        let asked = self.link.pass("renew", ask, take_answer);
        Box::pin(async move { asked.await? })
    }

    fn take_duty(&self, me: DeskNo, duty: String, _: u64) -> Stored<'_, Option<u64>> {
        let book = self.book.clone();
        self.pass("take_duty", move |store| at_once(store.take_duty(me, duty, book.now_ms())))
    }

    fn drop_duty(&self, me: DeskNo, duty: String) -> Stored<'_, ()> {
        self.pass("drop_duty", move |store| at_once(store.drop_duty(me, duty)))
    }

    fn leave(&self, me: DeskNo) -> Stored<'_, ()> {
        self.pass("leave", move |store| at_once(store.leave(me)))
    }

    fn resign(&self, me: DeskNo) -> Stored<'_, ()> {
        self.pass("resign", move |store| at_once(store.resign(me)))
    }

    fn put_report(&self, me: DeskNo, report: String) -> Stored<'_, ()> {
        self.pass("put_report", move |store| at_once(store.put_report(me, report)))
    }

    fn absent(&self, _: u64) -> Stored<'_, Vec<(DeskRecord, u64)>> {
        let book = self.book.clone();
        self.pass("absent", move |store| at_once(store.absent(book.now_ms())))
    }

    fn desks(&self, _: u64) -> Stored<'_, Vec<(DeskRecord, Vec<String>)>> {
        let book = self.book.clone();
        self.pass("desks", move |store| at_once(store.desks(book.now_ms())))
    }
}

impl Directory for DeskStore {
    fn changed_since(&self, version: u64) -> Stored<'_, Changes> {
        let is_blind = self.sabotage == Some(Sabotage::MissRevocations) && version > 0;
        self.pass("changed_since", move |store| {
            let mut changes = at_once(store.changed_since(version))?;
            if is_blind {
                changes.records.retain(|it| it.kind != "gateway");
            }
            Ok(changes)
        })
    }

    fn amend(&self, seen: u64, changes: Vec<Change>, applied: Applied) -> Stored<'_, u64> {
        // Memory changes where the answer arrives; a lost answer leaves it to the next refresh.
        let ask = {
            let store = self.store.clone();
            move || at_once(store.amend(seen, changes, Box::new(|_| {})))
        };
        self.link.pass("amend", ask, move |version| {
            applied(version);
            version
        })
    }

    fn draw_numbers(&self, count: u64) -> Stored<'_, u64> {
        self.pass("draw_numbers", move |store| at_once(store.draw_numbers(count)))
    }
}
