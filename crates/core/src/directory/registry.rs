//! The directory in memory, read without waiting, written through to the store.
//!
//! Every write is a compare-and-set against the directory version that the writer saw, so two servers can never both
//! win. Memory is changed where the commit is made, so it never holds what is not stored.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock, RwLock};

use frontdesk_wire::{BotId, GatewayId, InstanceNo, TenantId};

use super::facts::Fact;
use super::view::View;
use crate::port::store::{Change, Changes, Directory, Record, StoreError};

/// Conflicts with other servers before a write fails.
const TRIES_MAX: u32 = 8;

#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
    /// One writer at a time in this process; versions detect writers in other processes.
    writing: Arc<tokio::sync::Mutex<()>>,
}

struct Shared {
    store: Arc<dyn Directory>,
    view: RwLock<View>,
    hook: OnceLock<Hook>,
    /// Called with the version of each commit of ours.
    committed: OnceLock<Box<dyn Fn(u64) + Send + Sync>>,
}

type Hook = Box<dyn Fn(&Effect) + Send + Sync>;

/// What a committed change means for sockets, streams and caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The credential of this gateway was revoked.
    GatewayRevoked(GatewayId),
    /// The gateway now serves another instance.
    GatewayMoved(GatewayId),
    /// The instance with this number was removed.
    InstanceLeft(InstanceNo),
    /// The instance with this number has another wake URL, or its first one.
    WakeUrlChanged(InstanceNo),
    /// The agent with this number was deleted.
    AgentRemoved(InstanceNo),
    /// The record of this gateway cannot be read any more.
    GatewayUnreadable(GatewayId),
    /// That of the instance with this number.
    InstanceUnreadable(InstanceNo),
    /// A signing key was added or removed.
    SigningKeysChanged,
    /// A bot was added, changed or removed.
    BotChanged { platform: String, id: BotId },
}

/// Why a write failed: refused by the rules, or a store error.
#[derive(Debug, thiserror::Error)]
pub enum AmendError<E> {
    #[error("{0}")]
    Refused(E),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Changes that a writer collects while it reads the view.
#[derive(Default)]
pub struct Draft {
    puts: Vec<Fact>,
    removes: Vec<(&'static str, String)>,
}

impl Draft {
    /// A new instance has the number 0, and gets its number from the store.
    pub fn put(&mut self, fact: Fact) {
        self.puts.push(fact);
    }

    pub fn remove(&mut self, fact: &Fact) {
        self.removes.push((fact.kind(), fact.key()));
    }

    /// Bytes that a tenant's records have, and will have with these changes.
    pub(super) fn bytes_of(&self, view: &View, tenant: &TenantId) -> (usize, usize) {
        let (now, _) = view.bytes_of(tenant, "", "");
        let more: usize = self.puts.iter().map(|fact| fact.json().len()).sum();
        // What is replaced or removed, if it is this tenant's.
        let replaced = self.puts.iter().map(|fact| view.bytes_of(tenant, fact.kind(), &fact.key()).1);
        let removed = self.removes.iter().map(|(kind, key)| view.bytes_of(tenant, kind, key).1);
        (now, (now + more).saturating_sub(replaced.chain(removed).sum()))
    }

    fn without_number(&mut self) -> impl Iterator<Item = &mut InstanceNo> {
        self.puts.iter_mut().filter_map(|fact| match fact {
            Fact::Instance(it) if it.no.is_none() => Some(&mut it.no),
            _ => None,
        })
    }

    fn changes(&self) -> Vec<Change> {
        let put = |fact: &Fact| Change { kind: fact.kind().into(), key: fact.key(), json: Some(fact.json()) };
        let remove =
            |(kind, key): &(&'static str, String)| Change { kind: (*kind).into(), key: key.clone(), json: None };
        self.puts.iter().map(put).chain(self.removes.iter().map(remove)).collect()
    }
}

/// A commit, our own or of another server.
#[derive(Default)]
struct News {
    version: u64,
    puts: Vec<(Fact, u64)>,
    removes: Vec<(&'static str, String)>,
    /// Kind, key and version.
    unreadable: Vec<(&'static str, String, u64)>,
    /// These are all records.
    is_whole: bool,
}

impl Shared {
    fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        look(&self.view.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Applies changes of other servers to memory.
    fn apply_changes(&self, changes: Changes) {
        let mut news = News { version: changes.version, is_whole: changes.whole, ..News::default() };
        for Record { kind, key, version, json } in changes.records {
            // A newer server on the same store may have written it.
            let Some(kind) = Fact::known_kind(&kind) else {
                if json.is_some() {
                    tracing::warn!(
                        kind,
                        key,
                        "skipped a record of an unknown kind, probably written by a newer version"
                    );
                }
                continue;
            };
            match json.map(|json| Fact::parse(kind, &json)) {
                Some(Some(fact)) => news.puts.push((fact, version)),
                Some(None) => {
                    tracing::error!(
                        kind,
                        key,
                        "a record could not be read, probably written by a newer version; it is not used"
                    );
                    news.unreadable.push((kind, key, version));
                }
                None => news.removes.push((kind, key)),
            }
        }
        if news.is_whole {
            let there: HashSet<(&str, String)> = news.puts.iter().map(|(fact, _)| (fact.kind(), fact.key())).collect();
            let unreadable = |(kind, key): &&(&'static str, String)| {
                news.unreadable.iter().any(|(other, there, _)| other == kind && there == key)
            };
            let gone = |view: &View| {
                view.names().filter(|name| !there.contains(*name) && !unreadable(name)).cloned().collect()
            };
            news.removes = self.read(gone);
        }
        self.apply(news);
    }

    /// Applies a commit to memory, our own or of another server.
    fn apply(&self, news: News) {
        let mut view = self.view.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let put = news.puts.iter().filter_map(|(fact, _)| effect_of_put(&view, fact));
        let removed = news.removes.iter().filter_map(|(kind, key)| effect_of_removal(&view, kind, key));
        let unreadable = news.unreadable.iter().filter_map(|(kind, key, _)| effect_of_unreadable(&view, kind, key));
        let effects: Vec<Effect> = put.chain(removed).chain(unreadable).collect();
        if news.is_whole {
            view.unreadable.clear();
        }
        for (fact, version) in news.puts {
            view.apply(fact, version);
        }
        for (kind, key) in &news.removes {
            view.forget(kind, key);
        }
        for (kind, key, version) in news.unreadable {
            view.forget(kind, &key);
            view.unreadable.insert(kind, key, version);
        }
        view.directory_version = news.version;
        drop(view);
        if let Some(hook) = self.hook.get() {
            effects.iter().for_each(hook);
        }
    }
}

impl Registry {
    pub async fn open(store: Arc<dyn Directory>) -> Result<Self, StoreError> {
        let shared =
            Arc::new(Shared { store, view: RwLock::default(), hook: OnceLock::new(), committed: OnceLock::new() });
        shared.apply_changes(shared.store.changed_since(0).await?);
        Ok(Self { shared, writing: Arc::default() })
    }

    /// Reads changes of other servers.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.writing.clone().lock_owned().await;
        self.catch_up().await
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        let seen = self.read(|view| view.directory_version);
        self.shared.apply_changes(self.shared.store.changed_since(seen).await?);
        Ok(())
    }

    /// Sets the function that is called for each effect of a commit. Set once, at start.
    pub(super) fn on_effect(&self, hook: Hook) {
        let _ = self.shared.hook.set(hook);
    }

    /// Sets the function that notifies other servers of a commit. It must not block. Set once, at start.
    pub(super) fn on_commit(&self, notify: impl Fn(u64) + Send + Sync + 'static) {
        let _ = self.shared.committed.set(Box::new(notify));
    }

    /// Reads from the view. Must be short, because writers wait.
    pub fn read<R>(&self, look: impl FnOnce(&View) -> R) -> R {
        self.shared.read(look)
    }

    /// Decides on the current view and commits the result atomically. If another server wrote in the meantime, its
    /// changes are read and the decision is repeated.
    ///
    /// Memory is changed where the commit is made: if the caller is dropped (the client disconnected), either both are
    /// done or neither.
    pub async fn write<R, E>(
        &self,
        mut decide: impl FnMut(&View, &mut Draft) -> Result<R, E>,
    ) -> Result<R, AmendError<E>> {
        let mut tries = 0;
        loop {
            let one_at_a_time = self.writing.clone().lock_owned().await;
            let mut draft = Draft::default();
            let decided = self.read(|view| {
                let decision = decide(view, &mut draft);
                (view.directory_version, decision, view.unreadable().objection(&draft.puts, &draft.removes))
            });
            let (seen, answer) = (decided.0, decided.1.map_err(AmendError::Refused)?);
            if let Some(why) = decided.2 {
                return Err(StoreError::Newer(why).into());
            }
            if draft.puts.is_empty() && draft.removes.is_empty() {
                return Ok(answer);
            }
            let unnumbered = draft.without_number().count() as u64;
            if unnumbered > 0 {
                let first = self.shared.store.draw_numbers(unnumbered).await?;
                draft.without_number().zip(first..).for_each(|(no, drawn)| *no = InstanceNo(drawn));
            }
            let (changes, shared) = (draft.changes(), self.shared.clone());
            let applied = Box::new(move |version| {
                let puts = draft.puts.into_iter().map(|fact| (fact, version)).collect();
                shared.apply(News { version, puts, removes: draft.removes, ..News::default() });
                if let Some(committed) = shared.committed.get() {
                    committed(version);
                }
                drop(one_at_a_time); // the next writer sees this change
            });
            match self.shared.store.amend(seen, changes, applied).await {
                Ok(_) => return Ok(answer),
                Err(StoreError::Conflict) if tries < TRIES_MAX => {
                    tries += 1;
                    self.refresh().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Effect of a record that replaces the current one.
fn effect_of_put(view: &View, fact: &Fact) -> Option<Effect> {
    match fact {
        Fact::Gateway(now) => {
            let before = view.gateways.get(&now.id)?;
            // It may have been revoked and provisioned again since the last refresh.
            let is_revoked = before.revoked_ms.is_none() && now.revoked_ms.is_some();
            if is_revoked || before.revocations != now.revocations {
                return Some(Effect::GatewayRevoked(now.id.clone()));
            }
            (before.instance != now.instance).then(|| Effect::GatewayMoved(now.id.clone()))
        }
        Fact::Instance(now) if now.left_ms.is_some() => Some(Effect::InstanceLeft(now.no)),
        Fact::Instance(now) => {
            let before = view.instance(&now.tenant, &now.name)?;
            let is_new = now.wake_url.is_some() && now.wake_url != before.wake_url;
            is_new.then_some(Effect::WakeUrlChanged(now.no))
        }
        // Deleted and registered again, so it has another number.
        Fact::Agent(now) => {
            let before = view.agent(&now.tenant, &now.id).filter(|before| before.no != now.no)?;
            Some(Effect::AgentRemoved(before.no))
        }
        Fact::SigningKey(_) => Some(Effect::SigningKeysChanged),
        Fact::Bot(now) => Some(Effect::BotChanged { platform: now.platform.clone(), id: now.id.clone() }),
        _ => None,
    }
}

/// Effect of a removed record.
fn effect_of_removal(view: &View, kind: &str, key: &str) -> Option<Effect> {
    match kind {
        "gateway" => view.gateways.get(key).map(|it| Effect::GatewayRevoked(it.id.clone())),
        "instance" => view.instances.get(key).map(|it| Effect::InstanceLeft(it.no)),
        "agent" => view.agent_by_key(key).map(|it| Effect::AgentRemoved(it.no)),
        "signing_key" => Some(Effect::SigningKeysChanged),
        "bot" => view.bots.get(key).map(|it| Effect::BotChanged { platform: it.platform.clone(), id: it.id.clone() }),
        _ => None,
    }
}

/// Effect of a record that cannot be read any more. Clients are not told that they were revoked: a server of a newer version
/// serves them.
fn effect_of_unreadable(view: &View, kind: &str, key: &str) -> Option<Effect> {
    match kind {
        "gateway" => view.gateways.get(key).map(|it| Effect::GatewayUnreadable(it.id.clone())),
        "instance" => view.instances.get(key).map(|it| Effect::InstanceUnreadable(it.no)),
        other => effect_of_removal(view, other, key),
    }
}
