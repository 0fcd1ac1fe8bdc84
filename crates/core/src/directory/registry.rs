//! The directory in memory: who is who, read without waiting, written through to the store.
//!
//! Every write is a compare-and-set against the versions that the writer saw, so two desks can
//! never both win. What is not in the store is not here: memory is changed where the commit is made.

use std::sync::{Arc, OnceLock, RwLock};

use super::facts::Fact;
use super::view::View;
use crate::port::store::{Change, Directory, StoreError};

pub struct Registry {
    shared: Arc<Shared>,
    /// One writer at a time in this process; other processes are caught by the versions.
    writing: Arc<tokio::sync::Mutex<()>>,
}

struct Shared {
    store: Arc<dyn Directory>,
    view: RwLock<View>,
    hook: OnceLock<Hook>,
}

type Hook = Box<dyn Fn(&Effect) + Send + Sync>;

/// What a committed change means to those who hold sockets, streams and caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The credential of this gateway is gone.
    GatewayRevoked(String),
    /// The gateway serves another instance from now on.
    GatewayMoved(String),
    /// The instance with this number left for good.
    InstanceLeft(u64),
    /// The agent with this number was deleted.
    AgentRemoved(u64),
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
    removes: Vec<Fact>,
}

impl Draft {
    /// An instance with the number 0 is a new one: it gets its number from the store.
    pub fn put(&mut self, fact: Fact) {
        self.puts.push(fact);
    }

    pub fn remove(&mut self, fact: &Fact) {
        self.removes.push(fact.clone());
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
        let remove = |fact: &Fact| {
            let (kind, key) = (fact.kind(), fact.key());
            Change { expect: view.version(kind, &key), kind: kind.into(), key, json: None }
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
        let effects = effects_of(&draft, &view);
        for (fact, version) in draft.puts.into_iter().zip(versions) {
            view.apply(fact, version);
        }
        for fact in draft.removes {
            view.forget(fact.kind(), &fact.key());
        }
        drop(view);
        if let Some(hook) = self.hook.get() {
            effects.iter().for_each(hook);
        }
    }
}

impl Registry {
    pub async fn open(store: Arc<dyn Directory>) -> Result<Self, StoreError> {
        let mut view = View::default();
        for record in store.load().await? {
            let fact = Fact::parse(&record.kind, &record.json)
                .ok_or_else(|| StoreError::Corrupt(format!("unreadable {} record {:?}", record.kind, record.key)))?;
            view.apply(fact, record.version);
        }
        let shared = Arc::new(Shared { store, view: RwLock::new(view), hook: OnceLock::new() });
        Ok(Self { shared, writing: Arc::default() })
    }

    /// Called after every commit, where memory is changed, once for each effect of it. Set once, at the start.
    pub(super) fn on_effect(&self, hook: Hook) {
        let _ = self.shared.hook.set(hook);
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

/// Compares what is about to change with what was there.
fn effects_of(draft: &Draft, view: &View) -> Vec<Effect> {
    let changed = |fact: &Fact| match fact {
        Fact::Gateway(now) => {
            let before = view.gateways.get(&now.id)?;
            if before.revoked_ms.is_none() && now.revoked_ms.is_some() {
                return Some(Effect::GatewayRevoked(now.id.clone()));
            }
            (before.instance != now.instance).then(|| Effect::GatewayMoved(now.id.clone()))
        }
        Fact::Instance(now) => now.left_ms.map(|_| Effect::InstanceLeft(now.no)),
        _ => None,
    };
    let removed = |fact: &Fact| match fact {
        Fact::Agent(it) => Some(Effect::AgentRemoved(it.no)),
        _ => None,
    };
    draft.puts.iter().filter_map(changed).chain(draft.removes.iter().filter_map(removed)).collect()
}
