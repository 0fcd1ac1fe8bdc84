//! The traits of one store, one field each.

use std::sync::Arc;

use super::alarms::Alarms;
use super::data::Data;
use super::inbox::Inbox;
use super::media::MediaStore;
use super::skills::Skills;
use super::store::{
    ChatLog, Claims, Cursors, Desks, Directory, Events, Exchanges, Fragments, Journal, Ledger, MailLog, Sessions,
    Store, Upkeep, Vault,
};

/// The traits of one store, each for the planes that use it.
#[derive(Clone)]
pub struct Stores {
    pub directory: Arc<dyn Directory>,
    pub ledger: Arc<dyn Ledger>,
    pub mail: Arc<dyn MailLog>,
    pub events: Arc<dyn Events>,
    pub sessions: Arc<dyn Sessions>,
    pub journal: Arc<dyn Journal>,
    pub vault: Arc<dyn Vault>,
    pub alarms: Arc<dyn Alarms>,
    pub inbox: Arc<dyn Inbox>,
    pub skills: Arc<dyn Skills>,
    pub data: Arc<dyn Data>,
    pub media: Arc<dyn MediaStore>,
    pub chat: Arc<dyn ChatLog>,
    pub upkeep: Arc<dyn Upkeep>,
    pub desks: Arc<dyn Desks>,
    pub cursors: Arc<dyn Cursors>,
    pub fragments: Arc<dyn Fragments>,
    pub exchanges: Arc<dyn Exchanges>,
    pub claims: Arc<dyn Claims>,
}

impl<S: Store + 'static> From<Arc<S>> for Stores {
    fn from(store: Arc<S>) -> Self {
        let store: Arc<dyn Store> = store;
        store.into()
    }
}

impl From<Arc<dyn Store>> for Stores {
    fn from(store: Arc<dyn Store>) -> Self {
        Self {
            directory: store.clone(),
            ledger: store.clone(),
            mail: store.clone(),
            events: store.clone(),
            sessions: store.clone(),
            journal: store.clone(),
            vault: store.clone(),
            alarms: store.clone(),
            inbox: store.clone(),
            skills: store.clone(),
            data: store.clone(),
            media: store.clone(),
            chat: store.clone(),
            upkeep: store.clone(),
            desks: store.clone(),
            cursors: store.clone(),
            fragments: store.clone(),
            exchanges: store.clone(),
            claims: store,
        }
    }
}
