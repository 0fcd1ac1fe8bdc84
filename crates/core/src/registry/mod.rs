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
    store: Arc<dyn Store>,
    view: RwLock<View>,
    /// One writer at a time in this process; other processes are caught by the versions.
    writing: tokio::sync::Mutex<()>,
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
    pub fn put(&mut self, fact: Fact) {
        self.puts.push(fact);
    }

    pub fn remove(&mut self, fact: &Fact) {
        self.removes.push((fact.kind(), fact.key()));
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
        Ok(Self { store, view: RwLock::new(view), writing: tokio::sync::Mutex::new(()) })
    }

    /// Looks something up. Keep it short: writers wait for it.
    pub fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        look(&self.view.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Decides on the present view and writes the outcome, all or nothing.
    pub async fn write<R, E>(
        &self,
        decide: impl FnOnce(&View, &mut Draft) -> Result<R, E>,
    ) -> Result<R, AmendError<E>> {
        let _one_at_a_time = self.writing.lock().await;
        let mut draft = Draft::default();
        let (answer, changes) = self.read(|view| {
            let answer = decide(view, &mut draft).map_err(AmendError::Refused)?;
            let put = |fact: &Fact| {
                let (kind, key) = (fact.kind(), fact.key());
                Change { expect: view.version(kind, &key), kind: kind.into(), key, json: Some(fact.json()) }
            };
            let mut changes: Vec<Change> = draft.puts.iter().map(put).collect();
            changes.extend(draft.removes.iter().map(|(kind, key)| Change {
                expect: view.version(kind, key),
                kind: (*kind).into(),
                key: key.clone(),
                json: None,
            }));
            Ok::<_, AmendError<E>>((answer, changes))
        })?;
        if changes.is_empty() {
            return Ok(answer);
        }
        let versions: Vec<u64> = changes.iter().map(|change| change.expect + 1).collect();
        self.store.amend(changes).await?;
        let mut view = self.view.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (fact, version) in draft.puts.into_iter().zip(versions) {
            view.apply(fact, version);
        }
        for (kind, key) in draft.removes {
            view.forget(kind, &key);
        }
        Ok(answer)
    }
}
