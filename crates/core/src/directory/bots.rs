//! The bots of platforms: added by the admin, with their secrets opened for the adapters of their platforms.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use frontdesk_wire::api::BotNew;
use frontdesk_wire::{BotId, Secret, TenantId};
use tokio::sync::Notify;

use super::facts::{self, Fact};
use super::gateways::{check_id, known_tenant};
use super::registry::{AmendError, Draft, Effect, Registry};
use super::view::View;
use crate::env::Env;
use crate::error::DeskError;
use crate::hash::short_hash;
use crate::port::platform::{Bot, GrantedSecret, Part, Platforms};
use crate::port::store::StoreError;
use crate::vault::Sealer;

/// Why the listener of a bot ended by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerFailure {
    pub why: String,
    pub at_ms: u64,
    /// It is not started again before the bot is changed.
    pub is_final: bool,
}

pub struct Bots {
    env: Arc<dyn Env>,
    registry: Registry,
    sealer: Arc<Sealer>,
    platforms: Arc<Platforms>,
    /// Bots that were opened, each beside the record that it was made from: a changed record is another one.
    opened: RwLock<HashMap<String, Opened>>,
    changed: Notify,
    /// Failures of listeners that ended by themselves, by bot and part, until they work again.
    failing: RwLock<HashMap<String, BTreeMap<Part, ListenerFailure>>>,
}

type Opened = (Arc<facts::Bot>, Arc<Bot>);

/// Whether it names a secret that the platform got for its bot, and not one that the operator gave.
fn is_granted(name: &str) -> bool {
    name.contains(':')
}

impl Bots {
    pub(super) fn new(env: Arc<dyn Env>, registry: Registry, sealer: &Arc<Sealer>, platforms: &Arc<Platforms>) -> Self {
        let (sealer, platforms) = (sealer.clone(), platforms.clone());
        let (opened, failing) = (RwLock::default(), RwLock::default());
        Self { env, registry, sealer, platforms, opened, changed: Notify::new(), failing }
    }

    /// The bot as its adapter sees it. A bot that was never added has neither settings nor secrets.
    pub fn bot(&self, platform: &str, id: &BotId) -> Arc<Bot> {
        self.added(platform, id).unwrap_or_else(|| Arc::new(Bot::bare(id.clone())))
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The bot if it was added.
    pub fn added(&self, platform: &str, id: &BotId) -> Option<Arc<Bot>> {
        let record = self.registry.read(|view| view.bot(platform, id).cloned())?;
        let key = facts::key(&[platform, id]);
        let opened = self.opened.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bot)) = opened.get(&key).filter(|(of, _)| Arc::ptr_eq(of, &record)) {
            return Some(bot.clone());
        }
        drop(opened);
        let bot = Arc::new(self.open(&record));
        let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
        // Another caller may have been quicker, and the bot may be gone by now.
        if let Some((_, bot)) = opened.get(&key).filter(|(of, _)| Arc::ptr_eq(of, &record)) {
            return Some(bot.clone());
        }
        if self.registry.read(|view| view.bot(platform, id).is_some_and(|it| Arc::ptr_eq(it, &record))) {
            opened.insert(key, (record, bot.clone()));
        }
        Some(bot)
    }

    /// The listener of a part of a bot failed. `None`: it works again, or this server does not run it any more.
    pub fn note_listener(&self, platform: &str, id: &BotId, part: Part, failure: Option<ListenerFailure>) {
        let mut failing = self.failing.write().unwrap_or_else(PoisonError::into_inner);
        let key = facts::key(&[platform, id]);
        if let Some(failure) = failure {
            failing.entry(key).or_default().insert(part, failure);
        } else if let Some(parts) = failing.get_mut(&key) {
            parts.remove(&part);
            if parts.is_empty() {
                failing.remove(&key);
            }
        }
    }

    /// Why the bot does not listen, or a part of it, as far as this server knows.
    pub fn listener_failure(&self, platform: &str, id: &BotId) -> Option<ListenerFailure> {
        let failing = self.failing.read().unwrap_or_else(PoisonError::into_inner);
        let parts = failing.get(&facts::key(&[platform, id]))?;
        // One that is not started again comes first: the operator must act.
        let (part, failure) = parts.iter().find(|(_, it)| it.is_final).or_else(|| parts.first_key_value())?;
        let others: Vec<_> =
            parts.keys().filter(|it| *it != part && !it.is_whole()).map(|it| (it.index + 1).to_string()).collect();
        let mut why = part.describe(&failure.why);
        if !others.is_empty() {
            why = format!("{why} (connections that fail too: {})", others.join(", "));
        }
        Some(ListenerFailure { why, ..failure.clone() })
    }

    /// All bots whose listener fails at this server: platform, id and why.
    pub(crate) fn failures(&self) -> Vec<(String, BotId, ListenerFailure)> {
        let failing: Vec<String> =
            self.failing.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        let failures = failing.iter().filter_map(|key| {
            let (platform, id) = key.split_once('\u{1f}')?;
            let id = BotId::from(id);
            let failure = self.listener_failure(platform, &id)?;
            Some((platform.to_owned(), id, failure))
        });
        let mut failures: Vec<_> = failures.collect();
        failures.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
        failures
    }

    /// All bots of a platform that were added.
    pub fn ids(&self, platform: &str) -> Vec<BotId> {
        let of_platform = |view: &View| {
            let bots = view.bots.values().filter(|it| it.platform == platform);
            bots.map(|it| it.id.clone()).collect()
        };
        self.registry.read(of_platform)
    }

    /// All bots of a platform that were added, with their secrets opened.
    pub fn all(&self, platform: &str) -> Vec<Arc<Bot>> {
        self.ids(platform).iter().filter_map(|id| self.added(platform, id)).collect()
    }

    /// Whether this tenant may act as that bot. An empty id means its default bot on that platform.
    pub fn resolve(&self, tenant: &TenantId, platform: &str, bot: &BotId) -> Option<BotId> {
        let common = self.platforms.get(platform).and_then(|found| found.common_bot());
        if let Some(common) = common.filter(|common| bot.is_empty() || *bot == *common) {
            return Some(common.into());
        }
        self.registry.read(|view| {
            let allowed = |it: &facts::Bot| it.platform == platform && it.tenant.as_ref().is_none_or(|it| it == tenant);
            if bot.is_empty() {
                return view.bots.values().find(|it| allowed(it)).map(|it| it.id.clone());
            }
            view.bot(platform, bot).filter(|it| allowed(it)).map(|it| it.id.clone())
        })
    }

    pub async fn add(&self, ask: BotNew) -> Result<(), DeskError> {
        check_id("platform", &ask.platform)?;
        check_id("id", &ask.id)?;
        self.check(&ask).map_err(|why| DeskError::BadRequest(format!("{} bot {:?}: {why}", ask.platform, ask.id)))?;
        let seal = |(name, value): (String, String)| {
            let context = ["bot", &ask.platform, &ask.id, &name];
            let sealed = hex::encode(self.sealer.seal(&*self.env, &Secret::new(value), &context));
            (name, sealed)
        };
        let fact = facts::Bot {
            secrets: ask.secrets.into_iter().map(seal).collect(),
            platform: ask.platform.clone(),
            id: ask.id.clone(),
            tenant: ask.tenant.clone(),
            settings: ask.settings,
        };
        if let Some(name) = fact.secrets.keys().find(|name| is_granted(name)) {
            return Err(DeskError::BadRequest(format!("{name:?}: the name of a secret must not contain a colon")));
        }
        let decide = |view: &View, draft: &mut Draft| {
            if let Some(tenant) = &fact.tenant {
                known_tenant(view, tenant)?;
            }
            let taken = view.bot(&fact.platform, &fact.id).is_some_and(|bot| bot.tenant != fact.tenant);
            if taken {
                let text = format!("{} bot {:?} belongs to another tenant", fact.platform, fact.id);
                return Err(DeskError::Conflict(text));
            }
            let mut fact = fact.clone();
            let granted = view.bot(&fact.platform, &fact.id).into_iter().flat_map(|bot| &bot.secrets);
            let granted: Vec<_> = granted.filter(|(name, _)| is_granted(name)).collect();
            fact.secrets.extend(granted.into_iter().map(|(name, sealed)| (name.clone(), sealed.clone())));
            draft.put(Fact::Bot(fact));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    /// Keeps secrets that the platform of a bot got for it. A bot that is gone gets none.
    pub async fn keep_granted(&self, platform: &str, id: &BotId, granted: &[GrantedSecret]) -> Result<(), DeskError> {
        if granted.is_empty() {
            return Ok(());
        }
        let seal = |one: &GrantedSecret| {
            let context = ["bot", platform, id, &one.name];
            (one.name.clone(), hex::encode(self.sealer.seal(&*self.env, &one.value, &context)))
        };
        let sealed: Vec<_> = granted.iter().filter(|one| is_granted(&one.name)).map(seal).collect();
        let decide = |view: &View, draft: &mut Draft| {
            let bot = view.bot(platform, id).ok_or_else(|| DeskError::NotFound("the bot was removed".into()))?;
            let mut fact = (**bot).clone();
            fact.secrets.extend(sealed.iter().cloned());
            draft.put(Fact::Bot(fact));
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    /// Removes such a secret, if it has this hash. If it is not there, nothing changes, so that a repeated report does
    /// not stop the listener.
    pub(crate) async fn end_grant(
        &self,
        platform: &str,
        id: &BotId,
        name: &str,
        hash: [u8; 16],
    ) -> Result<(), StoreError> {
        let decide = |view: &View, draft: &mut Draft| {
            let is_same = |bot: &facts::Bot| {
                self.open(bot).secret(name).is_some_and(|secret| short_hash(&[secret.expose()]) == hash)
            };
            let known = view.bot(platform, id).filter(|bot| is_granted(name) && is_same(bot));
            if let Some(bot) = known {
                let mut fact = (**bot).clone();
                fact.secrets.remove(name);
                draft.put(Fact::Bot(fact));
            }
            Ok::<_, std::convert::Infallible>(())
        };
        self.registry.write(decide).await.map_err(|AmendError::Store(error)| error)
    }

    /// Why the platform of a bot refuses it as it is.
    fn check(&self, ask: &BotNew) -> Result<(), String> {
        let Some(platform) = self.platforms.get(&ask.platform) else { return Ok(()) };
        if let Some(names) = platform.bot_names() {
            let (settings, secrets) = (ask.settings.keys(), ask.secrets.keys());
            let refusal = names.refusal(settings.map(String::as_str), secrets.map(String::as_str));
            refusal.map_or(Ok(()), Err)?;
        }
        let secrets = ask.secrets.iter().map(|(name, value)| (name.clone(), Secret::new(value.as_str()))).collect();
        let bot = Bot::new(ask.id.as_str(), ask.tenant.clone(), ask.settings.clone(), secrets);
        platform.check_bot(&bot)?;
        platform.clash(&bot, &self.all(&ask.platform))
    }

    pub async fn remove(&self, platform: &str, id: &BotId) -> Result<(), DeskError> {
        let decide = |view: &View, draft: &mut Draft| {
            let bot = view
                .bot(platform, id)
                .ok_or_else(|| DeskError::NotFound(format!("bot {id:?} of {platform:?} not found")))?;
            draft.remove(&Fact::Bot((**bot).clone()));
            for list in view.commands.values().filter(|it| it.platform == platform && it.bot == *id) {
                draft.remove(&Fact::Commands((**list).clone()));
            }
            Ok(())
        };
        self.registry.write(decide).await.map_err(DeskError::from)
    }

    /// The opened secrets of a bot that was changed or removed are not needed any more, and its listener ends.
    pub(crate) fn apply(&self, effect: &Effect) {
        if let Effect::BotChanged { platform, id } = effect {
            let mut opened = self.opened.write().unwrap_or_else(PoisonError::into_inner);
            opened.remove(&facts::key(&[platform, id]));
            drop(opened);
            self.failing.write().unwrap_or_else(PoisonError::into_inner).remove(&facts::key(&[platform, id]));
            self.changed.notify_one(); // kept for the listener loop if it is busy
        }
    }

    /// Returns when bots were added, changed or removed since the last call. For one caller.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    fn open(&self, record: &facts::Bot) -> Bot {
        let mut secrets = BTreeMap::new();
        for (name, sealed) in &record.secrets {
            let context = ["bot", &record.platform, &record.id, name];
            match self.sealer.open(&hex::decode(sealed).unwrap_or_default(), &context) {
                Ok(secret) => drop(secrets.insert(name.clone(), secret)),
                Err(error) => {
                    let (platform, bot) = (&record.platform, &record.id);
                    tracing::error!(%error, platform, bot = bot.as_str(), name, "opening a secret of a bot failed; add the bot again");
                }
            }
        }
        let bot = Bot::new(record.id.clone(), record.tenant.clone(), record.settings.clone(), secrets);
        let tenant = record.tenant.as_deref().unwrap_or_default();
        let mut context = vec!["account", &record.platform, &record.id, tenant];
        let named = self.platforms.get(&record.platform).and_then(|platform| platform.account_of(&bot));
        match &named {
            Some(named) => context.push(named),
            None => context.extend(bot.secrets().flat_map(|(name, secret)| [name, secret.expose()])),
        }
        let account = self.sealer.derive(&context)[..16].to_owned();
        bot.of_account(account)
    }
}
