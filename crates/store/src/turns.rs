//! Turns at reading. Owners take turns, so that one with many reads delays only itself.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use frontdesk_core::port::store::{Change, Changes};
use serde::Deserialize;
use tokio::sync::oneshot;

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

/// What changes of the directory say of them; `None`: it was deleted.
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
    /// The tenant of an instance or agent. One that is not known yet has turns of its own.
    pub(crate) fn of(&self, number: impl Into<u64>) -> Owner {
        let number = number.into();
        let numbers = self.0.read().unwrap_or_else(PoisonError::into_inner);
        numbers.owners.get(&number).copied().unwrap_or(Owner(number))
    }

    /// Learns from what was read.
    pub(crate) fn note(&self, changes: &Changes) {
        if changes.whole {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Numbers::default();
        }
        let records = changes.records.iter().map(|it| (&*it.kind, &*it.key, it.json.as_deref()));
        self.learn(Learned::from(records));
    }

    /// Learns from what was written.
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

/// So many may read at a time.
#[derive(Clone)]
pub(crate) struct Turns(Arc<Mutex<Queue>>);

struct Queue {
    free: usize,
    waiting: HashMap<Owner, VecDeque<oneshot::Sender<Turn>>>,
    /// Owners that wait, in the order of their turns.
    owners: VecDeque<Owner>,
}

/// A turn; the next one begins when it is dropped.
pub(crate) struct Turn(Option<Turns>);

impl Turns {
    pub(crate) fn new(at_once: usize) -> Self {
        let queue = Queue { free: at_once, waiting: HashMap::new(), owners: VecDeque::new() };
        Self(Arc::new(Mutex::new(queue)))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a turn of this owner.
    pub(crate) async fn next(&self, owner: Owner) -> Turn {
        let waiting = {
            let mut queue = self.queue();
            if queue.free > 0 {
                queue.free -= 1;
                return Turn(Some(self.clone()));
            }
            let (turn, waiting) = oneshot::channel();
            queue.push(owner, turn);
            waiting
        };
        // A sender is dropped only with the queue, which this holds.
        waiting.await.unwrap_or(Turn(None))
    }
}

impl Queue {
    fn push(&mut self, owner: Owner, turn: oneshot::Sender<Turn>) {
        let own = self.waiting.entry(owner).or_default();
        if own.is_empty() {
            self.owners.push_back(owner);
        }
        own.push_back(turn);
    }

    fn pop(&mut self) -> Option<oneshot::Sender<Turn>> {
        let owner = self.owners.pop_front()?;
        let own = self.waiting.get_mut(&owner)?;
        let turn = own.pop_front();
        if own.is_empty() {
            self.waiting.remove(&owner);
        } else {
            self.owners.push_back(owner);
        }
        turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let Some(waiting) = ({
                let mut queue = turns.queue();
                let waiting = queue.pop();
                queue.free += usize::from(waiting.is_none());
                waiting
            }) else {
                return;
            };
            match waiting.send(Turn(Some(turns.clone()))) {
                Ok(()) => return,
                Err(mut unwanted) => unwanted.0 = None, // whoever waited is gone
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn owners_take_turns_whatever_their_number_of_reads() {
        let turns = Turns::new(1);
        let first = turns.next(SERVER).await;
        let order: Arc<Mutex<Vec<&str>>> = Arc::default();
        let reads = [(1, "a"), (1, "a"), (1, "a"), (2, "b"), (3, "c"), (2, "b")].map(|(owner, name)| {
            let (turns, order) = (turns.clone(), order.clone());
            let mut read = Box::pin(async move {
                let _turn = turns.next(Owner(owner)).await;
                order.lock().unwrap().push(name);
            });
            assert!(read.as_mut().now_or_never().is_none(), "it waits");
            read
        });
        drop(first);
        futures_util::future::join_all(reads).await;
        assert_eq!(*order.lock().unwrap(), ["a", "b", "c", "a", "b", "a"]);
        let queue = turns.queue();
        assert!(queue.waiting.is_empty() && queue.owners.is_empty() && queue.free == 1);
    }

    #[tokio::test]
    async fn a_turn_of_somebody_who_is_gone_goes_to_the_next() {
        let turns = Turns::new(1);
        let first = turns.next(SERVER).await;
        let mut gone: Vec<_> = (0..100).map(|_| Box::pin(turns.next(Owner(1)))).collect();
        let mut last = Box::pin(turns.next(Owner(1)));
        assert!(gone.iter_mut().all(|it| it.as_mut().now_or_never().is_none()));
        assert!(last.as_mut().now_or_never().is_none());
        let given = gone.remove(0);
        drop(gone);
        drop(first); // `given` gets it and is dropped without taking it
        drop(given);
        let last = last.now_or_never().expect("it is its turn");
        assert_eq!(turns.queue().free, 0);
        drop(last);
        assert_eq!(turns.queue().free, 1);
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
