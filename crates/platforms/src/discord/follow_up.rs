//! Answers to an interaction with its token. The first one replaces "thinking", the others are messages of their own.
//! Gateways answer with plain messages: the first of them replaces it too.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Acted, Bot};
use frontdesk_core::short_hash;
use frontdesk_wire::{ActionResult, Code, Secret};
use serde::Deserialize;
use serde_json::json;

use super::Discord;
use super::act::{Sent, paced};
use super::api::{Api, ApiError};
use super::snowflake::{ms_of, number};
use super::text::{allowed_mentions, not_one_message, rendered};

/// The message is only "thinking" so far.
const LOADING: u64 = 1 << 7;
const UNKNOWN_MESSAGE: i64 = 10_008;
const UNKNOWN_WEBHOOK: i64 = 10_015;
const INVALID_TOKEN: i64 = 50_027;
const ORIGINAL: &str = "/messages/@original";
/// The first answer may take three seconds to reach Discord, so a younger interaction may still lack its message.
const YOUNG_MS: u64 = 5_000;
const ASK_AGAIN: Duration = Duration::from_millis(250);
const ASKS_MAX: u32 = 20;
/// Interactions remembered as answered. For others Discord is asked.
const BEGUN_MAX: usize = 1_000;

#[derive(Deserialize)]
struct Original {
    #[serde(default)]
    flags: u64,
}

/// Interactions that have their first answer, by a hash of their token.
#[derive(Default)]
pub(super) struct Begun(Mutex<VecDeque<[u8; 16]>>);

impl Begun {
    fn knows(&self, mark: &[u8; 16]) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(mark)
    }

    fn note(&self, mark: [u8; 16]) {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !begun.contains(&mark) {
            begun.push_back(mark);
        }
        while begun.len() > BEGUN_MAX {
            begun.pop_front();
        }
    }
}

/// What a capability holds.
struct Held<'a> {
    application: &'a str,
    token: &'a str,
    interaction: &'a str,
}

impl<'a> Held<'a> {
    fn of(capability: &'a Secret) -> Option<Self> {
        let mut parts = capability.expose().splitn(3, '/');
        let (application, token) = (parts.next()?, parts.next()?);
        Some(Self { application, token, interaction: parts.next().unwrap_or_default() })
    }

    fn mark(&self) -> [u8; 16] {
        short_hash(&[self.application, self.token])
    }

    /// Of the path, before the token.
    fn head(&self) -> String {
        format!("/webhooks/{}/", self.application)
    }
}

impl Discord {
    /// A plain message of an agent that is to answer an interaction. `None`: it replies to something else, or the interaction
    /// was answered or cannot be any more; the message goes out as one of its own.
    pub(super) async fn answer(
        &self,
        bot: &Bot,
        content: &str,
        reply_to: Option<&str>,
        capability: Option<&Secret>,
    ) -> Option<Result<Acted, Acted>> {
        let held = Held::of(capability?)?;
        let is_other = reply_to.is_some_and(|id| !id.is_empty() && id != held.interaction);
        let mark = held.mark();
        if is_other || self.begun.knows(&mark) {
            return None;
        }
        let (api, text) = (self.api(bot)?, rendered(content)?);
        match is_thinking(&*self.env, &api, &held).await {
            Ok(true) => {}
            Ok(false) | Err(ApiError::Refused { .. }) => {
                self.begun.note(mark);
                return None;
            }
            Err(error @ ApiError::Limited { .. }) => return Some(Err(error.into())),
            Err(_) => return None,
        }
        let (head, token) = (held.head(), Secret::new(held.token));
        let body = json!({ "content": text, "allowed_mentions": allowed_mentions() });
        match api.by_token::<Sent>(HttpMethod::Patch, &head, &token, ORIGINAL, Some(&body)).await {
            Err(ApiError::Refused { .. }) => None,
            Err(error) => Some(Err(error.into())),
            sent => {
                self.begun.note(mark);
                Some(Ok(paced(sent, |it| ActionResult::sent(it.id))))
            }
        }
    }

    /// Discord itself knows which answer is the first one: also after a restart, and after an answer whose result was
    /// lost.
    pub(super) async fn follow_up(
        &self,
        bot: &Bot,
        content: &str,
        capability: Option<&Secret>,
    ) -> Result<Acted, Acted> {
        let absent = || Acted::from(ActionResult::capability_unavailable());
        let held = capability.and_then(Held::of).ok_or_else(absent)?;
        let Some(text) = rendered(content) else { return Err(not_one_message(content).into()) };
        let api = self.api(bot).ok_or_else(absent)?;
        let (mark, head, token) = (held.mark(), held.head(), Secret::new(held.token));
        let is_first = !self.begun.knows(&mark)
            && is_thinking(&*self.env, &api, &held).await.map_err(|error| refused(error.of_question()))?;
        let body = json!({ "content": text, "allowed_mentions": allowed_mentions() });
        let (method, tail) = if is_first { (HttpMethod::Patch, ORIGINAL) } else { (HttpMethod::Post, "?wait=true") };
        let sent = api.by_token::<Sent>(method, &head, &token, tail, Some(&body)).await;
        match sent {
            Err(error) => Err(refused(error)),
            sent => {
                self.begun.note(mark);
                Ok(paced(sent, |it| ActionResult::sent(it.id)))
            }
        }
    }
}

fn refused(error: ApiError) -> Acted {
    match &error {
        ApiError::Refused { code: UNKNOWN_WEBHOOK | INVALID_TOKEN, .. } => {
            let text = "Discord takes no more answers to this interaction: they are possible for 15 minutes";
            ActionResult::refused(Code::CapabilityUnavailable, text).into()
        }
        _ => error.into(),
    }
}

/// Whether nothing was answered yet. An agent may be faster than the answer that makes the message: of a young
/// interaction Discord is asked again.
async fn is_thinking(env: &dyn Env, api: &Api<'_>, held: &Held<'_>) -> Result<bool, ApiError> {
    let (head, token) = (held.head(), Secret::new(held.token));
    let mut attempts = 0;
    loop {
        attempts += 1;
        let found = api.by_token::<Original>(HttpMethod::Get, &head, &token, ORIGINAL, None).await;
        let made_ms = number(held.interaction).map_or(0, ms_of);
        let is_young = made_ms + YOUNG_MS > env.now_ms() && attempts < ASKS_MAX;
        match found {
            Err(ApiError::Refused { code: UNKNOWN_WEBHOOK | UNKNOWN_MESSAGE, .. }) if is_young => {
                tokio::time::sleep(ASK_AGAIN).await;
            }
            Err(ApiError::Refused { code: UNKNOWN_MESSAGE, .. }) => return Ok(false), // it was deleted
            found => return found.map(|found| found.value.flags & LOADING != 0),
        }
    }
}
