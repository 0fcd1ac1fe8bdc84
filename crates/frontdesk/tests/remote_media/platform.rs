//! A platform with files: it returns them as configured, and counts the requests.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::media::body_of;
use frontdesk_core::port::platform::{Acted, ActingAs, Bot, Look, LookFault, MediaFault, Platform, RemoteMedia};
use frontdesk_wire::{Action, ActionResult, ChatId, Code, Descriptor, Secret, UserId};
use tokio::sync::Semaphore;

pub(crate) const PLATFORM: &str = "filechat";

/// How it answers the next request for a file.
pub(crate) enum Plan {
    Bytes(Vec<u8>),
    Gone,
    Unavailable,
    /// Some bytes, and then the connection is lost.
    Cut,
}

pub(crate) struct FileChat {
    descriptor: Descriptor,
    pub(crate) plans: Mutex<VecDeque<Plan>>,
    asked: AtomicUsize,
    /// (token of the bot, handle) of the latest request.
    pub(crate) last: Mutex<(String, String)>,
    /// Each answer takes one; a test may hold them back.
    pub(crate) answers: Semaphore,
}

impl FileChat {
    pub(crate) fn new() -> Self {
        Self {
            descriptor: Descriptor::plain(PLATFORM, "File chat", 1000),
            plans: Mutex::default(),
            asked: AtomicUsize::new(0),
            last: Mutex::default(),
            answers: Semaphore::new(1_000),
        }
    }

    pub(crate) fn plan(&self, plan: Plan) {
        self.plans.lock().unwrap().push_back(plan);
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Platform for FileChat {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn act<'a>(&'a self, _: ActingAs<'a>, _: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        Box::pin(async { ActionResult::refused(Code::UnsupportedOp, "nothing is sent here").into() })
    }

    fn look<'a>(
        &'a self,
        _: ActingAs<'a>,
        _: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        let look = Look { visible: Some(true), person: viewer.cloned(), ..Look::default() };
        Box::pin(async { Ok(Some(look)) })
    }

    fn notice<'a>(&'a self, _: ActingAs<'a>, _: &'a ChatId, _: &'a str) -> BoxFuture<'a, ActionResult> {
        Box::pin(async { ActionResult::done() })
    }

    fn fetch_media<'a>(&'a self, bot: &'a Bot, handle: &'a Secret) -> BoxFuture<'a, Result<RemoteMedia, MediaFault>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let token = bot.secret("token").map(|token| token.expose().to_owned()).unwrap_or_default();
            *self.last.lock().unwrap() = (token, handle.expose().to_owned());
            self.answers.acquire().await.unwrap().forget();
            let plan = self.plans.lock().unwrap().pop_front().expect("no answer was planned");
            // A careless adapter: its reasons repeat the handle.
            let why = format!("asked for {}", handle.expose());
            let body = match plan {
                Plan::Gone => return Err(MediaFault::Gone(why)),
                Plan::Unavailable => return Err(MediaFault::Unavailable(why)),
                Plan::Bytes(bytes) => body_of(bytes),
                Plan::Cut => {
                    let pieces = [Ok(vec![1; 100].into()), Err(std::io::Error::other(why))];
                    Box::pin(futures_util::stream::iter(pieces))
                }
            };
            Ok(RemoteMedia { mime: "application/octet-stream".into(), filename: None, body })
        })
    }
}
