//! Bots with their secrets opened, for the adapters of their platforms.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::Notify;

use super::facts;
use super::{DirectoryPlane, Effect};
use crate::port::platform::Bot;

/// Bots that were opened, each beside the record that it was made from: a changed record is another one.
#[derive(Default)]
pub(super) struct OpenBots {
    opened: RwLock<HashMap<String, (Arc<facts::Bot>, Arc<Bot>)>>,
    changed: Notify,
}

impl DirectoryPlane {
    /// The bot as its adapter sees it. One that nobody added has neither settings nor secrets.
    pub fn bot(&self, platform: &str, id: &str) -> Arc<Bot> {
        self.added_bot(platform, id).unwrap_or_else(|| Arc::new(Bot::bare(id)))
    }

    /// The bot if it was added.
    pub fn added_bot(&self, platform: &str, id: &str) -> Option<Arc<Bot>> {
        let record = self.registry.read(|view| view.bot(platform, id).cloned())?;
        let key = facts::key(&[platform, id]);
        let opened = self.open_bots.opened.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, bot)) = opened.get(&key).filter(|(of, _)| Arc::ptr_eq(of, &record)) {
            return Some(bot.clone());
        }
        drop(opened);
        let bot = Arc::new(self.open_bot(&record));
        let mut opened = self.open_bots.opened.write().unwrap_or_else(PoisonError::into_inner);
        // Somebody else may have been quicker, and the bot may be gone by now.
        if let Some((_, bot)) = opened.get(&key).filter(|(of, _)| Arc::ptr_eq(of, &record)) {
            return Some(bot.clone());
        }
        if self.registry.read(|view| view.bot(platform, id).is_some_and(|it| Arc::ptr_eq(it, &record))) {
            opened.insert(key, (record, bot.clone()));
        }
        Some(bot)
    }

    /// All bots of a platform that were added, by id.
    pub fn bot_ids(&self, platform: &str) -> Vec<String> {
        self.registry
            .read(|view| view.bots.values().filter(|it| it.platform == platform).map(|it| it.id.clone()).collect())
    }

    /// The opened secrets of a bot that was changed or removed are not needed any more, and its listener ends.
    pub(crate) fn apply(&self, effect: &Effect) {
        if let Effect::BotChanged { platform, id } = effect {
            let mut opened = self.open_bots.opened.write().unwrap_or_else(PoisonError::into_inner);
            opened.remove(&facts::key(&[platform, id]));
            drop(opened);
            self.open_bots.changed.notify_one(); // kept for the listener loop if it is busy
        }
    }

    /// Comes back when bots were added, changed or removed since it was called last. For one caller.
    pub async fn bots_changed(&self) {
        self.open_bots.changed.notified().await;
    }

    fn open_bot(&self, record: &facts::Bot) -> Bot {
        let mut secrets = BTreeMap::new();
        for (name, sealed) in &record.secrets {
            let words = ["bot", &record.platform, &record.id, name];
            match self.sealer.open(&hex::decode(sealed).unwrap_or_default(), &words) {
                Ok(secret) => drop(secrets.insert(name.clone(), secret)),
                Err(error) => {
                    let (platform, bot) = (&record.platform, &record.id);
                    tracing::error!(%error, platform, bot, name, "opening a secret of a bot failed; add the bot again");
                }
            }
        }
        let bot = Bot::new(record.id.clone(), record.tenant.clone(), record.settings.clone(), secrets);
        let tenant = record.tenant.as_deref().unwrap_or_default();
        let mut words = vec!["account", &record.platform, &record.id, tenant];
        words.extend(bot.secrets().flat_map(|(name, secret)| [name, secret.expose()]));
        let account = self.sealer.derive(&words)[..16].to_owned();
        bot.of_account(account)
    }
}
