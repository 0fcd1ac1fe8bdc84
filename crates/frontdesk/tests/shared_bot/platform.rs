//! A platform with one bot for all tenants, like external ones: it knows its chats and who can see them, but no
//! tenants.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{Acted, ActingAs, Look, LookFault, Nearby, Platform};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::{Action, ActionResult, ChatId, Descriptor, Secret, UserId};

pub(crate) const PLATFORM: &str = "guildchat";

/// How it answers visibility checks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    Unknowing,
    Failing,
    Silent,
    WithoutStore,
}

pub(crate) struct GuildChat {
    descriptor: Descriptor,
    pub(crate) chats: Mutex<HashMap<String, Look>>,
    pub(crate) blind: Mutex<Vec<String>>,
    pub(crate) mood: Mutex<Mood>,
    pub(crate) looks: AtomicUsize,
    /// It does not tell the ids of the messages that it sends.
    pub(crate) is_nameless: AtomicBool,
    /// (chat, text) of everything sent, including notices of the server.
    pub(crate) sent: Mutex<Vec<(String, String)>>,
    pub(crate) said: Mutex<Vec<(String, String)>>,
}

impl GuildChat {
    pub(crate) fn new() -> Self {
        let descriptor = Descriptor {
            supports_edit: true,
            supports_threads: true,
            supports_context: true,
            supported_ops: vec!["send".into(), "prompt".into()],
            ..Descriptor::plain(PLATFORM, "Guild chat", 2000)
        };
        Self {
            descriptor,
            chats: Mutex::default(),
            blind: Mutex::default(),
            mood: Mutex::new(Mood::Well),
            looks: AtomicUsize::new(0),
            is_nameless: AtomicBool::new(false),
            sent: Mutex::default(),
            said: Mutex::default(),
        }
    }

    pub(crate) fn has(&self, chat_id: &str, look: Look) {
        self.chats.lock().unwrap().insert(chat_id.into(), look);
    }

    pub(crate) fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }
}

impl Platform for GuildChat {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn act<'a>(&'a self, _: ActingAs<'a>, action: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        let text = serde_json::to_value(&action.act).unwrap()["content"].as_str().unwrap_or_default().to_owned();
        self.sent.lock().unwrap().push((action.act.chat().to_owned(), text));
        let result = match self.is_nameless.load(Ordering::SeqCst) {
            true => ActionResult::done(),
            false => ActionResult::sent("out-1"),
        };
        Box::pin(std::future::ready(result.into()))
    }

    fn look<'a>(
        &'a self,
        _: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        Box::pin(async move {
            self.looks.fetch_add(1, Ordering::SeqCst);
            let mood = *self.mood.lock().unwrap();
            if mood == Mood::Silent {
                std::future::pending::<()>().await;
            }
            if mood == Mood::Failing {
                return Err(LookFault::Platform("the platform is down".into()));
            }
            if mood == Mood::WithoutStore {
                return Err(StoreError::Unavailable("the database restarts".into()).into());
            }
            let found = self.chats.lock().unwrap().get(chat_id.as_str()).cloned();
            let sees = |viewer: &UserId| !self.blind.lock().unwrap().iter().any(|it| it == viewer);
            Ok(found.map(|look| Look { visible: viewer.map(sees).filter(|_| mood == Mood::Well), ..look }))
        })
    }

    fn nearby<'a>(
        &'a self,
        _: ActingAs<'a>,
        _: &'a ChatId,
        _: Option<&'a str>,
        _: usize,
    ) -> BoxFuture<'a, Result<Vec<Nearby>, StoreError>> {
        Box::pin(async { Err(StoreError::Unavailable("no history today".into())) })
    }

    fn notice<'a>(&'a self, _: ActingAs<'a>, chat_id: &'a ChatId, text: &'a str) -> BoxFuture<'a, ActionResult> {
        self.said.lock().unwrap().push((chat_id.to_string(), text.into()));
        Box::pin(async { ActionResult::sent("notice") })
    }
}
