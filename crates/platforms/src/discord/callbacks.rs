//! Interactions that come by the socket: they are answered by a call of their own.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Verified};
use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Bot, Inlet};
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::Secret;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Discord;
use super::api::Api;
use super::interactions::{Meaning, is_token, not_stored};
use super::snowflake::{is_id, ms_of, number};

/// Discord waits no longer for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(3);
const ANSWERS_AT_ONCE: usize = 16;
const ANSWERS_MAX: usize = 256;
/// Older than this, with a margin for clocks that differ.
const LATE_MS: u64 = 10_000;
/// Interactions that are remembered as refused, because Discord sends them again when the session is resumed.
const REFUSED_MAX: usize = 1_000;

/// Interactions whose people were notified that nothing was done.
#[derive(Default)]
pub(super) struct RefusedInteractions(Mutex<VecDeque<String>>);

impl RefusedInteractions {
    fn knows(&self, id: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == id)
    }

    fn note(&self, id: &str) {
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refused.push_back(id.to_owned());
        while refused.len() > REFUSED_MAX {
            refused.pop_front();
        }
    }
}

impl Discord {
    /// Stores an interaction of the socket. What is to be answered is sent beside what is stored next. `Err`: it was not
    /// stored, and the person was notified.
    pub(super) async fn take_interaction(
        &self,
        bot: &Bot,
        data: &Value,
        inlet: &dyn Inlet,
        answers: &Answers,
    ) -> Result<(), String> {
        let id = data["id"].as_str().unwrap_or_default();
        if self.refused.knows(id) {
            return Ok(());
        }
        let proof = Verified::by("the socket of the bot's token");
        let (answer, stored) = match self.meaning_of(bot, proof, data, None, self.env.now_ms()) {
            Meaning::Answer(answer) => (answer, Ok(())),
            Meaning::Event { intake, then } => match inlet.take(vec![in_time(self.env.now_ms(), id, *intake)]).await {
                Ok(mut outcomes) => match outcomes.pop() {
                    Some(Err(refusal)) => (not_stored(&refusal), Ok(())),
                    receipt => (then.answer(receipt.and_then(Result::ok).as_ref()), Ok(())),
                },
                Err(error @ DeskError::Store(StoreError::Unknown(_))) => {
                    (not_stored(&error), Err(format!("it is not known whether an interaction was stored: {error}")))
                }
                Err(error) => {
                    // The session is resumed and brings it again, but by then the person was notified that nothing was
                    // done.
                    self.refused.note(id);
                    (not_stored(&error), Err(format!("an interaction was not stored: {error}")))
                }
            },
        };
        let text = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        let callback = Callback { id: text("id"), token: Secret::new(text("token")), answer };
        match stored {
            Ok(()) => answers.give(callback).await,
            // The listener ends with this error.
            Err(_) => answer_interaction(self.api(bot), bot, callback).await,
        }
        stored
    }

    /// Sends answers, several at a time.
    pub(super) async fn send_answers(&self, bot: &Bot, answers: &Answers) {
        let mut waiting = answers.waiting.lock().await;
        let mut sending = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(callback) = waiting.recv(), if sending.len() < ANSWERS_AT_ONCE => {
                    sending.push(answer_interaction(self.api(bot), bot, callback));
                }
                Some(()) = sending.next(), if !sending.is_empty() => {}
            }
        }
    }
}

/// The answer to an interaction, on its way to Discord.
pub(super) struct Callback {
    id: String,
    token: Secret,
    answer: Value,
}

/// Answers that are not sent yet: a slow Discord must not hold up what the socket brings.
pub(super) struct Answers {
    give: mpsc::Sender<Callback>,
    waiting: tokio::sync::Mutex<mpsc::Receiver<Callback>>,
}

impl Answers {
    pub(super) fn new() -> Self {
        let (give, waiting) = mpsc::channel(ANSWERS_MAX);
        Self { give, waiting: tokio::sync::Mutex::new(waiting) }
    }

    async fn give(&self, callback: Callback) {
        let _ = self.give.send(callback).await; // the receiver lives as long
    }
}

/// One that comes late, because a session was resumed, cannot be answered any more: Discord has shown the person that
/// it failed, and they may have done it again.
fn in_time(now_ms: u64, id: &str, mut intake: Intake) -> Intake {
    let age_ms = now_ms.saturating_sub(number(id).map_or(0, ms_of));
    if age_ms > LATE_MS {
        let seconds = age_ms / 1_000;
        intake.refused.get_or_insert(format!("it arrived after {seconds} s, when Discord no longer accepts an answer"));
    }
    intake
}

/// A person who gets no answer sees that the application did not respond; what they did is stored nevertheless.
async fn answer_interaction(api: Option<Api<'_>>, bot: &Bot, callback: Callback) {
    let Callback { id, token, answer } = callback;
    let Some(api) = api.filter(|_| is_id(&id) && is_token(token.expose())) else { return };
    let head = format!("/interactions/{id}/");
    let call = api.by_token::<Value>(HttpMethod::Post, &head, &token, "/callback", Some(&answer));
    let failed = match tokio::time::timeout(ANSWER_TIME, call).await {
        Ok(Ok(_)) => return,
        Ok(Err(error)) => error.text(),
        Err(_) => "Discord did not accept the answer in time".to_owned(),
    };
    tracing::warn!(bot = bot.id.as_str(), id, error = failed, "answering an interaction failed");
}
