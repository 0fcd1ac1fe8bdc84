//! Lines of a chat: appended once, amended by revision, and signaled to watchers.

use frontdesk_core::port::bus::Hint;
use frontdesk_core::port::platform::Nearby;
use frontdesk_core::port::store::{ChatRow, PAGE_MAX_BYTES, StoreError};
use frontdesk_wire::api::{ChatHistory, ChatList, ChatMessage, ChatSummary};
use frontdesk_wire::{ChatId, MessageId, TenantId};
use serde::{Deserialize, Serialize};

use super::{BuiltInChat, ChatFacts, PLATFORM, Signal};

/// Attempts to amend a line that is changed concurrently.
const AMEND_TRIES: usize = 8;
/// Factor by which more lines are read than asked for, to find those of one thread.
const THREADS_READ: usize = 4;
/// Lines per page of history.
const PAGE: usize = 500;
/// Chats per page of the list.
const CHATS_PAGE: usize = 1_000;

/// A stored line: the visible message and internal fields.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Line {
    #[serde(flatten)]
    pub(super) shown: ChatMessage,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) interaction: Option<Interaction>,
    /// The message was addressed to the bot: it started a turn and is not context for later turns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) addressed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_bot: bool,
}

/// Record of an issued capability; only its hash is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Interaction {
    pub(super) hash: String,
    pub(super) expires_ms: u64,
}

/// A hint from one server's chat to the others: a line to read from the store, or a typing indicator.
#[derive(Serialize, Deserialize)]
struct ChatHint {
    origin: String,
    tenant: TenantId,
    chat_id: ChatId,
    message_id: Option<MessageId>,
    typing: Option<bool>,
}

/// Only names the line: other servers read it from the store, because it may be longer than a hint.
pub(super) fn hint(origin: &str, tenant: &TenantId, chat_id: &ChatId, signal: &Signal) -> Hint {
    let (message_id, typing) = match signal {
        Signal::Message(message) => (Some(message.message_id.clone()), None),
        Signal::Typing(on) => (None, Some(*on)),
    };
    let (origin, tenant, chat_id) = (origin.to_owned(), tenant.to_owned(), chat_id.to_owned());
    let text = serde_json::to_string(&ChatHint { origin, tenant, chat_id, message_id, typing });
    Hint::Platform(PLATFORM.into(), text.unwrap_or_default())
}

pub(super) fn parse(row: &ChatRow) -> Line {
    let mut line: Line = serde_json::from_str(&row.json).unwrap_or_default();
    line.shown.seq = row.seq;
    line
}

impl BuiltInChat {
    pub(super) fn new_line(&self, direction: &str, text: &str) -> Line {
        let shown = ChatMessage {
            message_id: format!("m{}", self.env.random_hex(8)).into(),
            direction: direction.into(),
            text: text.into(),
            at: self.env.now_ms(),
            ..ChatMessage::default()
        };
        Line { shown, ..Line::default() }
    }

    /// Appends the line and signals it. A repeated message id is not appended again.
    pub(super) async fn append(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        line: Line,
    ) -> Result<MessageId, StoreError> {
        let json = serde_json::to_string(&line).unwrap_or_default();
        let message_id = line.shown.message_id.clone();
        let (seq, fresh) = self.log.chat_append(tenant, chat_id, &message_id, json, line.shown.at).await?;
        if fresh {
            self.show(tenant, chat_id, seq, line);
        }
        Ok(message_id)
    }

    /// A hint of the chat at another server.
    pub(super) async fn take_hint(&self, text: &str) {
        let Ok(hint) = serde_json::from_str::<ChatHint>(text) else { return };
        if hint.origin == self.origin {
            return;
        }
        let ChatHint { tenant, chat_id, message_id, typing, .. } = hint;
        if let Some(on) = typing.filter(|on| self.note_typing(&tenant, &chat_id, *on)) {
            self.signals.send(&tenant, &chat_id, &Signal::Typing(on));
        }
        let Some(message_id) = message_id.filter(|_| self.signals.is_watched(&tenant, &chat_id)) else { return };
        match self.log.chat_line(&tenant, &chat_id, &message_id).await {
            Ok(Some(row)) => {
                let signal = Signal::Message(Box::new(parse(&row).shown));
                self.signals.send(&tenant, &chat_id, &signal);
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "reading a chat line of another server failed"),
        }
    }

    /// Signals a stored line to watchers.
    pub(super) fn show(&self, tenant: &TenantId, chat_id: &ChatId, seq: u64, line: Line) {
        let shown = ChatMessage { seq, ..line.shown };
        if shown.direction == "out" {
            self.set_typing(tenant, chat_id, false);
        }
        self.signal(tenant, chat_id, Signal::Message(Box::new(shown)));
    }

    pub(super) async fn line(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        message_id: &MessageId,
    ) -> Result<Option<Line>, StoreError> {
        Ok(self.log.chat_line(tenant, chat_id, message_id).await?.as_ref().map(parse))
    }

    /// Changes one line and signals it. `None`: the line does not exist. The closure returns false to change nothing.
    pub(super) async fn amend(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        message_id: &MessageId,
        change: impl Fn(&mut Line) -> bool + Send + Sync,
    ) -> Result<Option<ChatMessage>, StoreError> {
        for _ in 0..AMEND_TRIES {
            let Some(row) = self.log.chat_line(tenant, chat_id, message_id).await? else { return Ok(None) };
            let mut line = parse(&row);
            if !change(&mut line) {
                return Ok(Some(line.shown));
            }
            let json = serde_json::to_string(&line).unwrap_or_default();
            match self.log.chat_amend(tenant, chat_id, message_id, row.rev, json).await {
                Ok(()) => {
                    self.signal(tenant, chat_id, Signal::Message(Box::new(line.shown.clone())));
                    return Ok(Some(line.shown));
                }
                Err(StoreError::Conflict) => {}
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    pub async fn history(&self, tenant: &TenantId, chat_id: &ChatId, after: u64) -> Result<ChatHistory, StoreError> {
        let rows = self.log.chat_since(tenant, chat_id, after, PAGE).await?;
        let bytes: usize = rows.iter().map(|row| row.json.len()).sum();
        let more = rows.len() >= PAGE || bytes >= PAGE_MAX_BYTES;
        let messages = rows.iter().map(|row| parse(row).shown).collect();
        Ok(ChatHistory { messages, typing: self.is_typing(tenant, chat_id), more })
    }

    /// Recent messages of users in this chat and thread, oldest first.
    pub(super) async fn said_nearby(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        thread_id: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Nearby>, StoreError> {
        // The store returns lines of all threads, so more are read: a busy thread must not hide another.
        let rows = self.log.chat_latest(tenant, chat_id, limit * THREADS_READ).await?;
        let by_people = rows.iter().map(parse).filter(|line| {
            let shown = &line.shown;
            shown.direction == "in"
                && !shown.deleted
                && !shown.text.is_empty()
                && shown.thread_id.as_deref() == thread_id
        });
        let nearby = |Line { shown, addressed, is_bot, .. }: Line| Nearby {
            message_id: shown.message_id,
            user_id: shown.user_id.unwrap_or_default(),
            user_name: shown.user_name,
            text: shown.text,
            is_bot,
            addressed,
        };
        let mut said: Vec<Nearby> = by_people.map(nearby).collect();
        said.drain(..said.len().saturating_sub(limit));
        Ok(said)
    }

    /// Chats after this id, ordered by id. A full page means that there may be more.
    pub async fn chats(&self, tenant: &TenantId, after: &str) -> Result<ChatList, StoreError> {
        let records = self.log.chats(tenant, after, CHATS_PAGE).await?;
        let bytes: usize = records.iter().map(|record| record.json.len()).sum();
        let more = records.len() >= CHATS_PAGE || bytes >= PAGE_MAX_BYTES;
        let summary = |record: frontdesk_core::port::store::ChatRecord| {
            let facts: ChatFacts = serde_json::from_str(&record.json).unwrap_or_default();
            ChatSummary {
                name: facts.name.unwrap_or_else(|| record.chat_id.to_string()),
                chat_type: facts.chat_type.unwrap_or_else(|| "dm".into()),
                chat_id: record.chat_id,
                last_seq: record.last_seq,
            }
        };
        Ok(ChatList { chats: records.into_iter().map(summary).collect(), more })
    }
}
