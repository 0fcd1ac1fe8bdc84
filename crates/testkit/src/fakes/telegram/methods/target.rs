//! The chat that a call is about, and whether the bot may write there.

use super::super::answer::ApiError;
use super::super::state::{Chat, ChatKey, ChatKind};
use super::Call;

impl Call<'_> {
    /// The chat of `chat_id`, which the bot must know.
    pub(super) fn chat_key(&self) -> Result<ChatKey, ApiError> {
        let given = self.params.some_text("chat_id").ok_or_else(|| ApiError::bad("chat_id is empty"))?;
        let missing = || ApiError::bad("chat not found");
        let key = match given.strip_prefix('@') {
            Some(name) => self.state.by_username(name).ok_or_else(missing)?,
            None => ChatKey::seen_by(given.trim().parse().map_err(|_| missing())?, self.bot),
        };
        let chat = self.state.chat(key).ok_or_else(missing)?;
        if let Some(new) = chat.migrated_to {
            let text = "group chat was upgraded to a supergroup chat";
            return Err(ApiError { migrate_to_chat_id: Some(new), ..ApiError::bad(text) });
        }
        match (chat.kind, chat.status_of(self.bot)) {
            (ChatKind::Private, _) => Ok(key),
            (kind, "kicked") => Err(ApiError::forbidden(format!("bot was kicked from the {} chat", kind.name()))),
            (kind, "left") if kind.is_group() || chat.username.is_none() => {
                Err(ApiError::forbidden(format!("bot is not a member of the {} chat", kind.name())))
            }
            _ => Ok(key),
        }
    }

    pub(super) fn chat_of(&self, key: ChatKey) -> Result<&Chat, ApiError> {
        self.state.chat(key).ok_or_else(|| ApiError::bad("chat not found"))
    }

    /// The chat, if the bot may send messages to it.
    pub(super) fn writable(&self) -> Result<ChatKey, ApiError> {
        let key = self.chat_key()?;
        let chat = self.chat_of(key)?;
        if chat.blocked {
            return Err(ApiError::forbidden("bot was blocked by the user"));
        }
        if chat.kind == ChatKind::Private && self.state.users.get(&chat.id).is_some_and(|user| user.is_bot) {
            return Err(ApiError::forbidden("bots can't send messages to bots"));
        }
        if chat.kind == ChatKind::Channel && !chat.is_admin(self.bot) {
            return Err(ApiError::bad("need administrator rights in the channel chat"));
        }
        if chat.status_of(self.bot) == "restricted" {
            return Err(ApiError::bad("not enough rights to send text messages to the chat"));
        }
        Ok(key)
    }

    /// The topic that is named. General has no id here: the server refuses 1.
    pub(super) fn thread(&self, key: ChatKey) -> Result<Option<i64>, ApiError> {
        let Some(thread) = self.params.int("message_thread_id").filter(|id| *id != 0) else { return Ok(None) };
        let chat = self.chat_of(key)?;
        match chat.topics.get(&thread) {
            Some(topic) if topic.closed && !chat.is_admin(self.bot) => Err(ApiError::bad("TOPIC_CLOSED")),
            Some(_) => Ok(Some(thread)),
            None => Err(ApiError::bad("message thread not found")),
        }
    }
}
