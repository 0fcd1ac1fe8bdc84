//! Queues of every network bus: hints that wait to be sent, merged where possible, and hints that were received.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::bus::{Bus, BusEvent, Hint, To};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::{DeskNo, InstanceNo};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// Hints that cannot be merged, and their bytes. The oldest are dropped.
const WAITING_MAX: usize = 1_024;
const WAITING_MAX_BYTES: usize = 1 << 20;
/// Instances with new rows, for all servers together. Further ones are found by sweeps.
const ROWS_MAX: usize = 100_000;
/// Instances in one message. Postgres allows 8,000 bytes.
const ROWS_PER_HINT: usize = 300;
/// Bytes of any other hint. Longer ones are not sent.
const HINT_MAX_BYTES: usize = 7_000;
const HINT_AGE_MAX: Duration = Duration::from_secs(3);
/// Hints that were received and not taken yet.
const INBOX_MAX: usize = 4_096;

/// A channel's name and a message.
pub(super) type Message = (String, String);

#[derive(Default)]
struct Waiting {
    rows: BTreeMap<DeskNo, BTreeSet<InstanceNo>>,
    rows_count: usize,
    directory: Option<u64>,
    /// Other hints, with their size and arrival time.
    others: VecDeque<(To, Hint, usize, Instant)>,
    others_bytes: usize,
}

#[derive(Default)]
struct Inbox {
    hints: VecDeque<Hint>,
    is_missing: bool,
}

pub(super) struct Queues {
    /// Servers of one store share it; those of another store must not receive its hints.
    prefix: String,
    waiting: Mutex<Waiting>,
    to_send: Notify,
    inbox: Mutex<Inbox>,
    to_receive: Notify,
    me: watch::Sender<DeskNo>,
}

impl Queues {
    pub(super) fn new(epoch: u32) -> Self {
        Self {
            prefix: format!("frontdesk_{epoch:08x}"),
            waiting: Mutex::default(),
            to_send: Notify::new(),
            inbox: Mutex::default(),
            to_receive: Notify::new(),
            me: watch::Sender::new(DeskNo::NONE),
        }
    }

    pub(super) fn channel(&self, to: To) -> String {
        match to {
            To::Desk(desk) => format!("{}_{desk}", self.prefix),
            To::All => format!("{}_all", self.prefix),
        }
    }

    /// Under which number this server listens.
    pub(super) fn me(&self) -> watch::Receiver<DeskNo> {
        self.me.subscribe()
    }

    fn add(&self, to: To, hint: Hint) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match (to, hint) {
            (To::Desk(desk), Hint::Rows(instances)) => {
                if waiting.rows_count < ROWS_MAX {
                    let known = waiting.rows.entry(desk).or_default();
                    let before = known.len();
                    known.extend(instances);
                    let added = known.len() - before;
                    waiting.rows_count += added;
                }
            }
            (To::All, Hint::Directory(version)) => {
                waiting.directory = waiting.directory.max(Some(version));
            }
            (to, hint) => {
                let bytes = encode(&hint).len();
                if bytes > HINT_MAX_BYTES {
                    tracing::warn!(bytes, "a bus message was not sent: it is larger than the bus allows");
                    return;
                }
                waiting.others_bytes += bytes;
                waiting.others.push_back((to, hint, bytes, now()));
                while waiting.others.len() > WAITING_MAX || waiting.others_bytes > WAITING_MAX_BYTES {
                    let Some((_, _, bytes, _)) = waiting.others.pop_front() else { break };
                    waiting.others_bytes -= bytes;
                }
            }
        }
        drop(waiting);
        self.to_send.notify_one();
    }

    /// All that waits, as messages. Waits until there is something.
    pub(super) async fn next_messages(&self) -> Vec<Message> {
        loop {
            let Waiting { rows, directory, others, .. } =
                std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            // Hints that waited while the bus was away are too old to be useful.
            let is_young = |it: &&(To, Hint, usize, Instant)| it.3.elapsed() < HINT_AGE_MAX;
            let young = others.iter().filter(is_young);
            let mut messages: Vec<Message> = young.map(|(to, hint, ..)| (self.channel(*to), encode(hint))).collect();
            messages.extend(directory.map(|version| (self.channel(To::All), encode(&Hint::Directory(version)))));
            for (desk, instances) in rows {
                let instances: Vec<InstanceNo> = instances.into_iter().collect();
                let hints = instances.chunks(ROWS_PER_HINT).map(|some| encode(&Hint::Rows(some.to_vec())));
                messages.extend(hints.map(|hint| (self.channel(To::Desk(desk)), hint)));
            }
            if !messages.is_empty() {
                return messages;
            }
            self.to_send.notified().await;
        }
    }

    /// A message came. One that cannot be read was sent by a newer server.
    pub(super) fn received(&self, message: &str) {
        let Ok(hint) = serde_json::from_str(message) else { return };
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if inbox.hints.len() >= INBOX_MAX {
            inbox.hints.clear();
            inbox.is_missing = true;
        }
        inbox.hints.push_back(hint);
        drop(inbox);
        self.to_receive.notify_one();
    }

    /// Messages may have been lost.
    pub(super) fn missed(&self) {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).is_missing = true;
        self.to_receive.notify_one();
    }

    fn next_event(&self) -> Option<BusEvent> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut inbox.is_missing) {
            return Some(BusEvent::Missed);
        }
        inbox.hints.pop_front().map(BusEvent::Hint)
    }
}

#[allow(clippy::disallowed_methods, reason = "how long a hint waited in this process, which nothing is decided by")]
fn now() -> Instant {
    Instant::now()
}

fn encode(hint: &Hint) -> String {
    serde_json::to_string(hint).unwrap_or_default()
}

/// A bus with a thread of its own, which keeps the connection.
pub struct NetworkBus {
    queues: Arc<Queues>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Drop for NetworkBus {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was already reported
        }
    }
}

impl NetworkBus {
    /// `run` keeps the connection, on its own thread, until it is dropped.
    pub(super) fn start<F: Future<Output = ()>>(
        queues: Queues,
        run: impl FnOnce(Arc<Queues>) -> F + Send + 'static,
    ) -> Result<Self, StoreError> {
        let unable = |error: std::io::Error| StoreError::Unavailable(error.to_string());
        let (queues, stop) = (Arc::new(queues), CancellationToken::new());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(unable)?;
        let (running, stopped) = (queues.clone(), stop.clone());
        let work = move || {
            runtime.block_on(tokio::task::LocalSet::new().run_until(async move {
                tokio::select! {
                    () = run(running) => {}
                    () = stopped.cancelled() => {}
                }
            }));
        };
        let thread = std::thread::Builder::new().name("bus".into()).spawn(work).map_err(unable)?;
        Ok(Self { queues, stop, thread: Some(thread) })
    }
}

impl Bus for NetworkBus {
    fn listen_as(&self, me: DeskNo) {
        self.queues.me.send_if_modified(|now| std::mem::replace(now, me) != me);
    }

    fn send(&self, to: To, hint: Hint) {
        self.queues.add(to, hint);
    }

    fn next_event(&self) -> BoxFuture<'_, BusEvent> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.queues.next_event() {
                    return event;
                }
                self.queues.to_receive.notified().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn hints_that_wait_are_merged() {
        let queues = Queues::new(1);
        let to = To::Desk(DeskNo(7));
        for number in 0..1_000 {
            queues.add(to, Hint::Rows(vec![InstanceNo(number % 400)]));
            queues.add(To::All, Hint::Directory(number));
        }
        queues.add(to, Hint::Echo(DeskNo(7)));
        let messages = queues.next_messages().await;
        let texts: Vec<&str> = messages.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!((texts[0], texts[1]), (r#"{"echo":7}"#, r#"{"directory":999}"#));
        assert_eq!(texts.len(), 4, "400 instances are two messages");
        assert!(texts.iter().all(|text| text.len() < 8_000));
        assert_eq!(messages[0].0, "frontdesk_00000001_7");
        assert_eq!(messages[1].0, "frontdesk_00000001_all");
    }

    #[test]
    fn more_than_can_be_kept_is_dropped_and_reported() {
        let queues = Queues::new(1);
        for number in 0..5_000 {
            queues.add(To::All, Hint::Echo(DeskNo(number)));
            queues.received(&encode(&Hint::Echo(DeskNo(number))));
        }
        assert_eq!(queues.waiting.lock().unwrap().others.len(), WAITING_MAX);
        assert_eq!(queues.next_event(), Some(BusEvent::Missed), "whoever hears is told to look at everything");
        queues.add(To::All, Hint::Interrupt(InstanceNo(1), "x".repeat(9_000).into(), "c".into()));
        assert_eq!(queues.waiting.lock().unwrap().others.len(), WAITING_MAX);
    }

    #[test]
    fn a_hint_of_a_newer_server_is_skipped() {
        let queues = Queues::new(1);
        queues.received(r#"{"something_new":[1,2]}"#);
        queues.received("not even JSON");
        assert_eq!(queues.next_event(), None);
    }
}
