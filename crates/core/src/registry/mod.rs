//! The directory in memory: who is who, read without waiting, written through to the store.
//!
//! Every write is a compare-and-set against the versions that the writer saw, so two desks can
//! never both win. What is not in the store is not here: memory is changed after the commit.

pub mod facts;
pub mod house;
mod view;

use std::sync::{Arc, RwLock};

use crate::port::store::{Change, Store, StoreError};
pub use facts::Fact;
pub use view::View;

pub struct Registry {
    shared: Arc<Shared>,
    /// One writer at a time in this process; other processes are caught by the versions.
    writing: Arc<tokio::sync::Mutex<()>>,
}

struct Shared {
    store: Arc<dyn Store>,
    view: RwLock<View>,
}

/// Why a write did not happen: the rules said no, or the store did.
#[derive(Debug, thiserror::Error)]
pub enum AmendError<E> {
    #[error("{0}")]
    Refused(E),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Changes that a writer wants, made while it looks at the view.
#[derive(Default)]
pub struct Draft {
    puts: Vec<Fact>,
    removes: Vec<(&'static str, String)>,
}

impl Draft {
    /// An instance with the number 0 is a new one: it gets its number from the store.
    pub fn put(&mut self, fact: Fact) {
        self.puts.push(fact);
    }

    pub fn remove(&mut self, fact: &Fact) {
        self.removes.push((fact.kind(), fact.key()));
    }

    fn without_number(&mut self) -> impl Iterator<Item = &mut u64> {
        self.puts.iter_mut().filter_map(|fact| match fact {
            Fact::Instance(it) if it.no == 0 => Some(&mut it.no),
            _ => None,
        })
    }

    fn changes(&self, view: &View) -> Vec<Change> {
        let put = |fact: &Fact| {
            let (kind, key) = (fact.kind(), fact.key());
            Change { expect: view.version(kind, &key), kind: kind.into(), key, json: Some(fact.json()) }
        };
        let remove = |(kind, key): &(&'static str, String)| Change {
            expect: view.version(kind, key),
            kind: (*kind).into(),
            key: key.clone(),
            json: None,
        };
        self.puts.iter().map(put).chain(self.removes.iter().map(remove)).collect()
    }
}

impl Shared {
    fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        look(&self.view.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn apply(&self, draft: Draft, versions: Vec<u64>) {
        let mut view = self.view.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (fact, version) in draft.puts.into_iter().zip(versions) {
            view.apply(fact, version);
        }
        for (kind, key) in draft.removes {
            view.forget(kind, &key);
        }
    }
}

impl Registry {
    pub async fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let mut view = View::default();
        for record in store.load().await? {
            let fact = Fact::parse(&record.kind, &record.json)
                .ok_or_else(|| StoreError::Corrupt(format!("unreadable {} record {:?}", record.kind, record.key)))?;
            view.apply(fact, record.version);
        }
        let shared = Arc::new(Shared { store, view: RwLock::new(view) });
        Ok(Self { shared, writing: Arc::default() })
    }

    /// Looks something up. Keep it short: writers wait for it.
    pub fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        self.shared.read(look)
    }

    /// Decides on the present view and writes the outcome, all or nothing.
    ///
    /// Memory is changed where the commit is made: a caller that is dropped in between (a client that hung up) leaves
    /// both done or neither.
    pub async fn write<R, E>(
        &self,
        decide: impl FnOnce(&View, &mut Draft) -> Result<R, E>,
    ) -> Result<R, AmendError<E>> {
        let one_at_a_time = self.writing.clone().lock_owned().await;
        let mut draft = Draft::default();
        let answer = self.read(|view| decide(view, &mut draft)).map_err(AmendError::Refused)?;
        if draft.puts.is_empty() && draft.removes.is_empty() {
            return Ok(answer);
        }
        let unnumbered = draft.without_number().count() as u64;
        if unnumbered > 0 {
            let first = self.shared.store.draw_numbers(unnumbered).await?;
            draft.without_number().zip(first..).for_each(|(no, drawn)| *no = drawn);
        }
        let changes = self.read(|view| draft.changes(view));
        let versions = changes.iter().map(|change| change.expect + 1).collect();
        let shared = self.shared.clone();
        let applied = Box::new(move || {
            shared.apply(draft, versions);
            drop(one_at_a_time); // the next writer sees this one's outcome
        });
        self.shared.store.amend(changes, applied).await?;
        Ok(answer)
    }
}
