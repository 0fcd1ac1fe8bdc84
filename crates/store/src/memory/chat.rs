//! Messages of the built-in chat, in order, each with a revision.

use std::ops::Bound::{Excluded, Unbounded};

use frontdesk_core::port::store::{
    Acceptance, ChatLog, ChatRecord, ChatRow, ChatWrite, PAGE_MAX_BYTES, StoreError, Stored,
};
use frontdesk_wire::{ChatId, MessageId, TenantId};

use super::{Chat, MemoryStore, State, now};

fn name(tenant: &TenantId, chat_id: &ChatId) -> (TenantId, ChatId) {
    (tenant.clone(), chat_id.clone())
}

fn record(chat_id: &ChatId, chat: &Chat) -> ChatRecord {
    let json = if chat.json.is_empty() { "{}".to_owned() } else { chat.json.clone() };
    ChatRecord { chat_id: chat_id.clone(), json, last_seq: chat.last_seq }
}

impl Chat {
    fn append(&mut self, message_id: &MessageId, json: String, at_ms: u64) -> (u64, bool) {
        if let Some(seq) = self.seq_of.get(message_id) {
            return (*seq, false);
        }
        self.last_seq += 1;
        let seq = self.last_seq;
        self.seq_of.insert(message_id.clone(), seq);
        self.lines.insert(seq, (ChatRow { seq, message_id: message_id.to_owned(), rev: 1, json }, at_ms));
        (seq, true)
    }

    fn line(&mut self, message_id: &MessageId) -> Option<&mut ChatRow> {
        self.lines.get_mut(self.seq_of.get(message_id)?).map(|(row, _)| row)
    }
}

impl State {
    /// Whether the message that this event changes has the expected revision.
    pub(super) fn chat_is_at(&mut self, one: &Acceptance) -> bool {
        let Some((chat, amend)) = one.chat.as_ref().and_then(|chat| Some((chat, chat.amend.as_ref()?))) else {
            return true;
        };
        let kept = self.chats.get_mut(&name(&one.tenant, &chat.chat_id));
        kept.and_then(|kept| kept.line(&amend.message_id)).is_some_and(|line| line.rev == amend.rev)
    }

    pub(super) fn write_chat(&mut self, tenant: &TenantId, it: ChatWrite) -> Option<u64> {
        let chat = self.chats.entry(name(tenant, &it.chat_id)).or_default();
        let (seq, fresh) = chat.append(&it.message_id, it.json, it.at_ms);
        if let Some(amend) = it.amend
            && let Some(line) = chat.line(&amend.message_id)
        {
            line.json = amend.json;
            line.rev += 1;
        }
        fresh.then_some(seq)
    }
}

impl ChatLog for MemoryStore {
    fn chat_append<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        json: String,
        at_ms: u64,
    ) -> Stored<'a, (u64, bool)> {
        now(self.state().chats.entry(name(tenant, chat_id)).or_default().append(message_id, json, at_ms))
    }

    fn chat_amend<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
        rev: u64,
        json: String,
    ) -> Stored<'a, ()> {
        let mut state = self.state();
        let chat = state.chats.get_mut(&name(tenant, chat_id));
        let line = chat.and_then(|chat| chat.line(message_id));
        match line.filter(|line| line.rev == rev) {
            Some(line) => {
                line.json = json;
                line.rev += 1;
                now(())
            }
            None => Box::pin(std::future::ready(Err(StoreError::Conflict))),
        }
    }

    fn chat_line<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        message_id: &'a MessageId,
    ) -> Stored<'a, Option<ChatRow>> {
        let state = self.state();
        let chat = state.chats.get(&name(tenant, chat_id));
        now(chat.and_then(|chat| chat.lines.get(chat.seq_of.get(message_id)?)).map(|(row, _)| row.clone()))
    }

    fn chat_since<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<ChatRow>> {
        let state = self.state();
        let Some(chat) = state.chats.get(&name(tenant, chat_id)) else { return now(Vec::new()) };
        let mut room = PAGE_MAX_BYTES;
        let fits = |row: &&ChatRow| {
            room > 0 && {
                room = room.saturating_sub(row.json.len());
                true
            }
        };
        let rows = chat.lines.range((Excluded(after), Unbounded)).map(|(_, (row, _))| row);
        now(rows.take(limit).take_while(fits).cloned().collect())
    }

    fn chat_latest<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId, limit: usize) -> Stored<'a, Vec<ChatRow>> {
        let state = self.state();
        let Some(chat) = state.chats.get(&name(tenant, chat_id)) else { return now(Vec::new()) };
        let mut lines: Vec<ChatRow> = chat.lines.values().rev().take(limit).map(|(row, _)| row.clone()).collect();
        lines.reverse();
        now(lines)
    }

    fn chat_put<'a>(
        &'a self,
        tenant: &'a TenantId,
        chat_id: &'a ChatId,
        before: &'a str,
        json: String,
    ) -> Stored<'a, ()> {
        let mut state = self.state();
        let kept = state.chats.get(&name(tenant, chat_id)).map(|chat| record(chat_id, chat).json).unwrap_or_default();
        if kept != before {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        state.chats.entry(name(tenant, chat_id)).or_default().json = json;
        now(())
    }

    fn chat_get<'a>(&'a self, tenant: &'a TenantId, chat_id: &'a ChatId) -> Stored<'a, Option<ChatRecord>> {
        now(self.state().chats.get(&name(tenant, chat_id)).map(|chat| record(chat_id, chat)))
    }

    fn chats<'a>(&'a self, tenant: &'a TenantId, after: &'a str, limit: usize) -> Stored<'a, Vec<ChatRecord>> {
        let state = self.state();
        let rest = state.chats.range((Excluded((tenant.clone(), after.into())), Unbounded));
        now(rest
            .take_while(|((owner, _), _)| owner == tenant)
            .take(limit)
            .map(|((_, chat_id), chat)| record(chat_id, chat))
            .collect())
    }
}
