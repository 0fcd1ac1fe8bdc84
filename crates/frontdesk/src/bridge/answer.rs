//! An answer in a chat: shown while it grows, if the platform can edit messages, and sent as a whole at its end.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_client::Agent;
use frontdesk_client::agent::ActError;
use frontdesk_core::split::split;
use frontdesk_wire::descriptor::LenUnit;
use frontdesk_wire::{Act, MessageEvent};
use tokio::time::{Instant, sleep};

/// Platforms limit how often a message may be edited.
const EDIT_EVERY: Duration = Duration::from_secs(1);
/// Attempts to write the final text if the server reports a temporary failure.
const TRIES: u32 = 4;
/// Assumed message length if the platform reports none.
const LENGTH: usize = 2000;

/// Whether an answer was written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    Surely,
    /// The server does not know the outcome. Repeating the answer could show it twice.
    Perhaps,
}

pub(super) struct Answer {
    agent: Arc<Agent>,
    event: MessageEvent,
    /// Id of the message that shows the growing answer.
    shown: Option<String>,
    shown_text: String,
    shown_at: Option<Instant>,
    /// It is unknown whether the first preview was sent, so no other one is sent.
    is_lost: bool,
    /// Messages that were sent after the shown one, because the text is longer.
    more_sent: usize,
    /// The whole answer, once it is known and could not be sent.
    pub(super) final_text: Option<String>,
}

impl Answer {
    pub(super) fn new(agent: Arc<Agent>, event: MessageEvent) -> Self {
        Self {
            agent,
            event,
            shown: None,
            shown_text: String::new(),
            shown_at: None,
            is_lost: false,
            more_sent: 0,
            final_text: None,
        }
    }

    /// What was shown so far, and a remark.
    pub(super) fn text_with(&self, remark: &str) -> String {
        super::join(self.shown_text.clone(), Some(remark))
    }

    fn limit(&self) -> (usize, LenUnit, bool) {
        let descriptor = self.agent.transport().descriptor_of(&self.event.source.platform);
        descriptor.map_or((LENGTH, LenUnit::Utf16, false), |it| (it.max_message_length, it.len_unit, it.supports_edit))
    }

    /// When [`Self::grow`] may show more.
    pub(super) fn next_show(&self) -> Instant {
        self.shown_at.map_or_else(Instant::now, |at| at + EDIT_EVERY)
    }

    /// Shows a text that is not complete yet. A failure is not one of the answer.
    pub(super) async fn grow(&mut self, text: &str) {
        let (max, unit, can_edit) = self.limit();
        // Another agent may wait for the answer, and takes the first message for it.
        let is_shown = can_edit && !self.is_lost && self.event.delivery.is_none();
        if !is_shown || text.trim().is_empty() || text == self.shown_text {
            return;
        }
        let preview = split(text, max.saturating_sub(2), unit).swap_remove(0);
        self.shown_at = Some(Instant::now());
        if preview == self.shown_text {
            return; // it is full
        }
        let shown = match &self.shown {
            None => self.send(&preview).await,
            Some(id) => self.edit(&id.clone(), &preview).await.map(|()| None),
        };
        match shown {
            Ok(id) => {
                self.shown = id.or(self.shown.take());
                self.shown_text = preview;
            }
            Err(error) => {
                self.is_lost = self.shown.is_none() && error.is_ambiguous();
                tracing::warn!(%error, "showing a part of an answer failed");
            }
        }
    }

    /// Writes the final text.
    pub(super) async fn finish(&mut self, text: &str) -> Result<Written, ActError> {
        let Some(id) = self.shown.clone() else { return perhaps(self.write(None, text).await) };
        let (max, unit, _) = self.limit();
        let parts = split(text, max, unit);
        let first = parts.first().cloned().unwrap_or_default();
        let mut written = Written::Surely;
        if first != self.shown_text {
            match perhaps(self.write(Some(&id), &first).await) {
                Ok(known) => written = known,
                Err(error @ ActError::Transport(_)) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "editing an answer failed; it is sent as a new message");
                    return perhaps(self.write(None, text).await);
                }
            }
        }
        self.shown_text = first;
        for part in parts.iter().skip(1 + self.more_sent) {
            if perhaps(self.write(None, part).await)? == Written::Perhaps {
                written = Written::Perhaps;
            }
            self.more_sent += 1;
        }
        Ok(written)
    }

    /// Sends or edits, and retries what was certainly not carried out.
    async fn write(&self, edited: Option<&str>, text: &str) -> Result<(), ActError> {
        let mut attempt = 1;
        loop {
            let written = match edited {
                Some(id) => self.edit(id, text).await,
                None => self.send(text).await.map(drop),
            };
            match written {
                // An edit may be carried out twice.
                Err(error) if attempt < TRIES && is_worth_it(&error, edited.is_some()) => {
                    sleep(Duration::from_secs(1) * attempt).await;
                    attempt += 1;
                }
                done => return done,
            }
        }
    }

    async fn send(&self, text: &str) -> Result<Option<String>, ActError> {
        let (chat_id, reply_to) = (self.event.source.chat_id.clone(), self.event.message_id.clone());
        let sent = self.agent.act(&self.event, Act::Send { chat_id, content: text.into(), reply_to }).await?;
        Ok(sent.message_id.map(Into::into))
    }

    async fn edit(&self, id: &str, text: &str) -> Result<(), ActError> {
        let (chat_id, message_id) = (self.event.source.chat_id.clone(), id.to_owned());
        self.agent
            .act(&self.event, Act::Edit { chat_id, message_id: message_id.into(), content: text.into() })
            .await
            .map(drop)
    }
}

fn perhaps(written: Result<(), ActError>) -> Result<Written, ActError> {
    match written {
        Ok(()) => Ok(Written::Surely),
        Err(error) if error.is_ambiguous() => Ok(Written::Perhaps),
        Err(error) => Err(error),
    }
}

fn is_worth_it(error: &ActError, may_repeat: bool) -> bool {
    use frontdesk_wire::Code::{RateLimited, Unavailable};
    if error.is_ambiguous() {
        return may_repeat;
    }
    matches!(error, ActError::Transport(_) | ActError::Refused { code: Some(RateLimited | Unavailable), .. })
}
