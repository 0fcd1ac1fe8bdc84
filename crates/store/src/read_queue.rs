//! The queue of reads. Owners take turns, so that one with many reads delays only itself.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use frontdesk_core::port::store::{Change, Changes};
use serde::Deserialize;

/// Whose turn it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

/// The server itself.
pub(crate) const SERVER: Owner = Owner(0);

pub(crate) fn of_tenant(name: &str) -> Owner {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    Owner(hasher.finish())
}

/// The tenants of instances and agents, by their numbers. Learned from the directory's records.
#[derive(Clone, Default)]
pub(crate) struct Tenants(Arc<RwLock<Numbers>>);

#[derive(Default)]
struct Numbers {
    owners: HashMap<u64, Owner>,
    by_key: HashMap<Key, u64>,
}

/// Whether it is an agent, and the key of its record.
type Key = (bool, String);

/// Owners by changes of the directory; `None`: the record was deleted.
pub(crate) struct Learned(Vec<(Key, Option<(u64, Owner)>)>);

impl Learned {
    pub(crate) fn from_changes(changes: &[Change]) -> Self {
        Self::from(changes.iter().map(|it| (&*it.kind, &*it.key, it.json.as_deref())))
    }

    fn from<'a>(records: impl Iterator<Item = (&'a str, &'a str, Option<&'a str>)>) -> Self {
        #[derive(Deserialize)]
        struct Numbered<'a> {
            no: u64,
            #[serde(borrow)]
            tenant: Cow<'a, str>,
        }
        let numbered = records.filter(|(kind, ..)| matches!(*kind, "instance" | "agent"));
        let learned = numbered.map(|(kind, key, json)| {
            let it = json.and_then(|json| serde_json::from_str::<Numbered<'_>>(json).ok());
            ((kind == "agent", key.to_owned()), it.map(|it| (it.no, of_tenant(&it.tenant))))
        });
        Self(learned.collect())
    }
}

impl Tenants {
    /// The tenant of an instance or agent. An unknown one counts as an owner of its own.
    pub(crate) fn of(&self, number: impl Into<u64>) -> Owner {
        let number = number.into();
        let numbers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        numbers.owners.get(&number).copied().unwrap_or(Owner(number))
    }

    /// Updates the map from directory records that were read.
    pub(crate) fn note(&self, changes: &Changes) {
        if changes.whole {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Numbers::default();
        }
        let records = changes.records.iter().map(|it| (&*it.kind, &*it.key, it.json.as_deref()));
        self.learn(Learned::from(records));
    }

    /// Updates the map from directory changes that were committed.
    pub(crate) fn learn(&self, learned: Learned) {
        let mut numbers = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (key, it) in learned.0 {
            if let Some(old) = numbers.by_key.remove(&key) {
                numbers.owners.remove(&old);
            }
            if let Some((number, owner)) = it {
                numbers.owners.insert(number, owner);
                numbers.by_key.insert(key, number);
            }
        }
    }
}

/// Above this number of queued reads of one owner, those whose callers are gone are removed.
const UNWANTED_MIN: usize = 256;

/// Limits concurrent reads, and lets owners take turns.
#[derive(Clone)]
pub(crate) struct ReadQueue(Arc<Mutex<Queue>>);

struct Queue {
    free: usize,
    waiting: HashMap<Owner, VecDeque<Box<dyn Pending>>>,
    /// Owners that wait, in the order of their turns.
    owners: VecDeque<Owner>,
}

/// A read that may run; the next one begins when it is dropped.
pub(crate) struct ReadPermit(Option<ReadQueue>);

/// Work that waits for its turn.
pub(crate) trait Pending: Send {
    /// False: the caller that wants its result is gone.
    fn is_wanted(&self) -> bool;
    /// Starts the work without waiting. The permit must be dropped when the work has ended. `Err`: the executor is closed.
    fn begin(self: Box<Self>, permit: ReadPermit) -> Result<(), ReadPermit>;
}

impl ReadQueue {
    pub(crate) fn new(at_once: usize) -> Self {
        let queue = Queue { free: at_once, waiting: HashMap::new(), owners: VecDeque::new() };
        Self(Arc::new(Mutex::new(queue)))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the work when it is its owner's turn: now, or when other reads have ended. Does not wait in the caller, because
    /// a future that is not polled would hold a permit that others need.
    pub(crate) fn begin(&self, owner: Owner, work: Box<dyn Pending>) {
        let mut queue = self.queue();
        if queue.free == 0 {
            queue.push(owner, work);
            return;
        }
        queue.free -= 1;
        drop(queue);
        self.pass(Some(work));
    }

    /// Passes a permit on, to this work or to the next that waits.
    fn pass(&self, mut work: Option<Box<dyn Pending>>) {
        loop {
            let next = work.take().or_else(|| {
                let mut queue = self.queue();
                let next = queue.pop();
                queue.free += usize::from(next.is_none());
                next
            });
            let Some(next) = next else { return };
            if !next.is_wanted() {
                continue;
            }
            match next.begin(ReadPermit(Some(self.clone()))) {
                Ok(()) => return,
                Err(mut permit) => permit.0 = None, // the loop passes the permit on, so its drop must not
            }
        }
    }
}

impl Queue {
    fn push(&mut self, owner: Owner, work: Box<dyn Pending>) {
        let own = self.waiting.entry(owner).or_default();
        if own.is_empty() {
            self.owners.push_back(owner);
        }
        // Work of disconnected callers stays in the queue until it is removed here.
        if own.len() >= UNWANTED_MIN && own.len().is_power_of_two() {
            own.retain(|it| it.is_wanted());
        }
        own.push_back(work);
    }

    fn pop(&mut self) -> Option<Box<dyn Pending>> {
        let owner = self.owners.pop_front()?;
        let own = self.waiting.get_mut(&owner)?;
        let work = own.pop_front();
        if own.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.owners.push_back(owner);
        }
        work
    }
}

impl Drop for ReadPermit {
    fn drop(&mut self) {
        if let Some(reads) = self.0.take() {
            reads.pass(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has begun, with its permit.
    type Begun = Arc<Mutex<VecDeque<(&'static str, ReadPermit)>>>;

    struct Read {
        name: &'static str,
        begun: Begun,
        is_wanted: bool,
        is_closed: bool,
    }

    impl Pending for Read {
        fn is_wanted(&self) -> bool {
            self.is_wanted
        }

        fn begin(self: Box<Self>, permit: ReadPermit) -> Result<(), ReadPermit> {
            if self.is_closed {
                return Err(permit);
            }
            self.begun.lock().unwrap().push_back((self.name, permit));
            Ok(())
        }
    }

    fn read(name: &'static str, begun: &Begun) -> Read {
        Read { name, begun: begun.clone(), is_wanted: true, is_closed: false }
    }

    /// Ends what began first.
    fn end(begun: &Begun) -> Option<&'static str> {
        let (name, permit) = begun.lock().unwrap().pop_front()?;
        drop(permit);
        Some(name)
    }

    #[test]
    fn owners_take_turns_whatever_their_number_of_reads() {
        let (reads, begun) = (ReadQueue::new(1), Begun::default());
        reads.begin(SERVER, Box::new(read("first", &begun)));
        for (owner, name) in [(1, "a"), (1, "a"), (1, "a"), (2, "b"), (3, "c"), (2, "b")] {
            reads.begin(Owner(owner), Box::new(read(name, &begun)));
            assert_eq!(begun.lock().unwrap().len(), 1, "it waits");
        }
        let order: Vec<_> = std::iter::from_fn(|| end(&begun)).collect();
        assert_eq!(order, ["first", "a", "b", "c", "a", "b", "a"]);
        let queue = reads.queue();
        assert!(queue.waiting.is_empty() && queue.owners.is_empty() && queue.free == 1);
    }

    #[test]
    fn work_that_nobody_wants_is_left_out() {
        let (reads, begun) = (ReadQueue::new(1), Begun::default());
        reads.begin(SERVER, Box::new(read("first", &begun)));
        for _ in 0..100_000 {
            reads.begin(Owner(1), Box::new(Read { is_wanted: false, ..read("unwanted", &begun) }));
        }
        assert!(reads.queue().waiting[&Owner(1)].len() <= UNWANTED_MIN);
        reads.begin(Owner(1), Box::new(read("last", &begun)));
        assert_eq!((end(&begun), end(&begun), end(&begun)), (Some("first"), Some("last"), None));
        assert_eq!(reads.queue().free, 1);
    }

    #[test]
    fn work_that_cannot_begin_any_more_is_dropped() {
        let (reads, begun) = (ReadQueue::new(1), Begun::default());
        reads.begin(SERVER, Box::new(read("first", &begun)));
        for _ in 0..100_000 {
            reads.begin(Owner(1), Box::new(Read { is_closed: true, ..read("late", &begun) }));
        }
        assert_eq!((end(&begun), end(&begun)), (Some("first"), None));
        reads.begin(Owner(1), Box::new(Read { is_closed: true, ..read("late", &begun) }));
        let queue = reads.queue();
        assert!(queue.waiting.is_empty() && queue.owners.is_empty() && queue.free == 1);
    }

    #[test]
    fn instances_and_agents_are_of_their_tenants() {
        let tenants = Tenants::default();
        let change = |kind: &str, key: &str, json: Option<&str>| {
            let (kind, key, json) = (kind.to_owned(), key.to_owned(), json.map(str::to_owned));
            tenants.learn(Learned::from_changes(&[Change { kind, key, json }]));
        };
        change("instance", "t/a", Some(r#"{"no":7,"name":"a","tenant":"t"}"#));
        change("agent", "t/a", Some(r#"{"no":8,"tenant":"t"}"#));
        change("bot", "t/a", Some(r#"{"no":9,"tenant":"t"}"#));
        assert_eq!([7_u64, 8, 9].map(|no| tenants.of(no)), [of_tenant("t"), of_tenant("t"), Owner(9)]);
        change("instance", "t/a", None);
        change("agent", "t/a", Some(r#"{"no":10,"tenant":"u"}"#));
        assert_eq!([7_u64, 8, 10].map(|no| tenants.of(no)), [Owner(7), Owner(8), of_tenant("u")]);
        assert_eq!(tenants.0.read().unwrap().owners.len(), 1);
    }
}
