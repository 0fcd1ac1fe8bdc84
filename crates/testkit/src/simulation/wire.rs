//! A socket between a gateway and a desk, and the desk's end of it: what the edge does, without a network.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::delivery::session::{Effect, Row, Session, Write};
use frontdesk_core::directory::Caller;
use frontdesk_core::port::store::{Position, StoreError};
use frontdesk_wire::Seq;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::book::Book;
use super::tasks::Spawner;
use crate::session::end;

/// To the gateway.
#[derive(Debug)]
pub(super) enum Down {
    Line(String),
    Ping,
}

/// To the desk.
#[derive(Debug)]
pub(super) enum Up {
    Text(String),
    Pong,
    /// The gateway closed the socket.
    End,
}

#[derive(Default)]
struct Ends {
    down: VecDeque<Down>,
    up: VecDeque<Up>,
    is_closed: bool,
}

pub(super) struct Wire {
    pub(super) number: u64,
    pub(super) gateway: String,
    /// The credential with which the gateway dialed.
    pub(super) credential: u32,
    ends: Mutex<Ends>,
    notify: Notify,
}

impl Wire {
    pub(super) fn new(number: u64, gateway: &str, credential: u32) -> Self {
        let (ends, notify) = (Mutex::default(), Notify::new());
        Self { number, gateway: gateway.into(), credential, ends, notify }
    }

    /// The gateway sends.
    pub(super) fn send(&self, up: Up) {
        self.ends.lock().unwrap().up.push_back(up);
        self.notify.notify_one();
    }

    /// The gateway reads.
    pub(super) fn read(&self) -> Option<Down> {
        self.ends.lock().unwrap().down.pop_front()
    }

    /// Whether the desk has closed it, and everything was read.
    pub(super) fn is_over(&self) -> bool {
        let ends = self.ends.lock().unwrap();
        ends.is_closed && ends.down.is_empty()
    }

    /// Like a connection that is reset: the desk does not write to it any more.
    pub(super) fn close(&self) {
        self.ends.lock().unwrap().is_closed = true;
    }

    async fn next(&self) -> Up {
        loop {
            let up = self.ends.lock().unwrap().up.pop_front();
            if let Some(up) = up {
                return up;
            }
            self.notify.notified().await;
        }
    }
}

/// The row that a frame delivers.
pub(super) fn row_of(line: &str) -> Option<(u64, Seq)> {
    let frame: serde_json::Value = serde_json::from_str(line).ok()?;
    let mut parts = frame["bufferId"].as_str()?.splitn(3, '-').skip(1);
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    Some((number()?, Seq(number()?)))
}

enum Done {
    Begun(Result<Position, StoreError>),
    Read(Result<Vec<Row>, StoreError>, usize),
    Saved(Result<bool, StoreError>),
    Carried,
}

type Pending = std::pin::Pin<Box<dyn Future<Output = Done> + Send>>;

/// The desk's end of a socket.
pub(super) struct Carrier {
    pub(super) desk: Arc<Desk>,
    pub(super) session: Session,
    pub(super) wire: Arc<Wire>,
    pub(super) spawner: Spawner,
    pub(super) book: Book,
    started: Instant,
    pending: FuturesUnordered<Pending>,
}

impl Carrier {
    pub(super) fn new(desk: Arc<Desk>, caller: Caller, wire: Arc<Wire>, spawner: Spawner, book: Book) -> Self {
        let session = Session::new(desk.delivery(), caller, 0);
        Self { desk, session, wire, spawner, book, started: Instant::now(), pending: FuturesUnordered::new() }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap()
    }

    pub(super) async fn live(mut self) {
        let mut tick = std::pin::pin!(sleep_until(self.started));
        loop {
            let turn_ms = self.now_ms();
            self.session.turn(turn_ms);
            self.carry_out_all();
            if self.session.closing().is_some() {
                break;
            }
            while let Some(message) = self.session.next_message() {
                self.write(message);
                self.session.written(self.now_ms());
            }
            let tick_at = self.started + Duration::from_millis(self.session.next_tick_ms(turn_ms));
            if tick.deadline() != tick_at {
                tick.as_mut().reset(tick_at);
            }
            let (mailbox, wire) = (self.session.mailbox().cloned(), self.wire.clone());
            let changed = async {
                match &mailbox {
                    Some(mailbox) => mailbox.changed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(done) = self.pending.next(), if !self.pending.is_empty() => self.note(done),
                up = wire.next(), if self.session.may_read() => match up {
                    Up::Text(text) => self.session.take_text(&text, self.now_ms()),
                    Up::Pong => self.session.note_received(self.now_ms(), true),
                    Up::End => break,
                },
                () = changed => {}
                () = tick.as_mut() => self.session.tick(self.now_ms()),
            }
        }
        self.session.hang_up();
        self.carry_out_all();
        while let Some(done) = self.pending.next().await {
            self.note(done);
            self.carry_out_all();
        }
        let (wire, book) = (self.wire, self.book);
        let (mut ending, _) = end(&self.desk, self.session).await;
        while let Some(message) = ending.next_message() {
            push(&wire, &message);
        }
        let why = ending.close.map(frontdesk_wire::Close::reason);
        book.say(format!("wire {} of {} closes: {why:?}", wire.number, wire.gateway));
        wire.close();
    }

    fn write(&self, message: Write) {
        let Write::Text(text) = message else {
            self.wire.ends.lock().unwrap().down.push_back(Down::Ping);
            return;
        };
        push(&self.wire, &text);
        let session = self.session.mailbox().map(|mailbox| mailbox.session()).unwrap_or_default();
        for (instance, seq) in text.lines().filter_map(row_of) {
            let Wire { number, gateway, credential, .. } = &*self.wire;
            self.book.say(format!("wire {number} of {gateway} gets i{instance}.{seq} from s{session}"));
            let is_settled = self.book.facts().settled.get(&session).is_some_and(|known| known.settled(seq));
            if self.book.is_revoked(gateway, *credential, &self.desk.rules().desk_name) {
                self.book.fail(format!("{gateway} gets i{instance}.{seq} although it was revoked everywhere"));
            }
            if is_settled {
                self.book.fail(format!("s{session} sends i{instance}.{seq}, which was saved as acked before"));
            }
        }
    }

    fn note(&mut self, done: Done) {
        let now_ms = self.now_ms();
        match done {
            Done::Begun(position) => {
                let is_served = position.is_ok();
                self.session.begun(position, now_ms);
                let Wire { gateway, credential, .. } = &*self.wire;
                let is_revoked = self.book.is_revoked(gateway, *credential, &self.desk.rules().desk_name);
                if is_served && is_revoked && self.session.closing().is_none() {
                    self.book.fail(format!("{gateway} is served although it was revoked everywhere"));
                }
            }
            Done::Read(rows, limit) => self.session.read(rows, limit, now_ms),
            Done::Saved(saved) => self.session.saved(saved),
            Done::Carried => {}
        }
    }

    fn carry_out_all(&mut self) {
        while let Some(effect) = self.session.next_effect() {
            self.carry_out(effect);
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        let (desk, caller) = (self.desk.clone(), self.session.caller().clone());
        let instance = caller.instance.no;
        match effect {
            Effect::Begin(beginning) => {
                self.pending
                    .push(Box::pin(async move { Done::Begun(desk.delivery().begin(&caller, beginning).await) }));
            }
            Effect::Read { after, limit } => self.pending.push(Box::pin(async move {
                Done::Read(desk.delivery().read_rows(instance, after, limit).await, limit)
            })),
            Effect::Save(settlement) => self
                .pending
                .push(Box::pin(async move { Done::Saved(desk.delivery().settle(instance, settlement).await) })),
            Effect::GoIdle(mailbox) => self.pending.push(Box::pin(async move {
                desk.delivery().go_idle(&caller, &mailbox).await;
                Done::Carried
            })),
            Effect::NeverAcks => self.spawner.spawn(async move { desk.delivery().note_never_acks(&caller).await }),
            Effect::GiveUp { rows, mailbox } => {
                self.spawner.spawn(async move { desk.delivery().give_up_rows(&caller, &mailbox, &rows).await });
            }
            // Simulated gateways send no actions and no interrupts.
            Effect::Interrupt { .. } | Effect::Work { .. } | Effect::Refused(_) => {}
        }
    }
}

fn push(wire: &Wire, text: &str) {
    let mut ends = wire.ends.lock().unwrap();
    ends.down.extend(text.lines().map(|line| Down::Line(line.to_owned())));
}
