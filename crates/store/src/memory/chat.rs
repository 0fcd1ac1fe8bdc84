//! The built-in chat's lines, in order, each with a revision.

use std::ops::Bound::{Excluded, Unbounded};

use frontdesk_core::port::store::{ChatLog, ChatRecord, ChatRow, StoreError, Stored};

use super::{Chat, MemoryStore, now};

fn name(tenant: &str, chat_id: &str) -> (String, String) {
    (tenant.to_owned(), chat_id.to_owned())
}

fn record(chat_id: &str, chat: &Chat) -> ChatRecord {
    let json = if chat.json.is_empty() { "{}".to_owned() } else { chat.json.clone() };
    ChatRecord { chat_id: chat_id.to_owned(), json, last_seq: chat.last_seq }
}

impl ChatLog for MemoryStore {
    fn chat_append<'a>(
        &'a self,
        tenant: &'a str,
        chat_id: &'a str,
        message_id: &'a str,
        json: String,
    ) -> Stored<'a, (u64, bool)> {
        let mut state = self.state();
        let chat = state.chats.entry(name(tenant, chat_id)).or_default();
        if let Some(seq) = chat.seq_of.get(message_id) {
            return now((*seq, false));
        }
        chat.last_seq += 1;
        let seq = chat.last_seq;
        chat.seq_of.insert(message_id.to_owned(), seq);
        chat.lines.insert(seq, ChatRow { seq, message_id: message_id.to_owned(), rev: 1, json });
        now((seq, true))
    }

    fn chat_amend<'a>(
        &'a self,
        tenant: &'a str,
        chat_id: &'a str,
        message_id: &'a str,
        rev: u64,
        json: String,
    ) -> Stored<'a, ()> {
        let mut state = self.state();
        let chat = state.chats.get_mut(&name(tenant, chat_id));
        let line = chat.and_then(|chat| chat.lines.get_mut(chat.seq_of.get(message_id)?));
        match line.filter(|line| line.rev == rev) {
            Some(line) => {
                line.json = json;
                line.rev += 1;
                now(())
            }
            None => Box::pin(std::future::ready(Err(StoreError::Conflict))),
        }
    }

    fn chat_line<'a>(&'a self, tenant: &'a str, chat_id: &'a str, message_id: &'a str) -> Stored<'a, Option<ChatRow>> {
        let state = self.state();
        let chat = state.chats.get(&name(tenant, chat_id));
        now(chat.and_then(|chat| chat.lines.get(chat.seq_of.get(message_id)?)).cloned())
    }

    fn chat_since<'a>(
        &'a self,
        tenant: &'a str,
        chat_id: &'a str,
        after: u64,
        limit: usize,
    ) -> Stored<'a, Vec<ChatRow>> {
        let state = self.state();
        let Some(chat) = state.chats.get(&name(tenant, chat_id)) else { return now(Vec::new()) };
        now(chat.lines.range((Excluded(after), Unbounded)).take(limit).map(|(_, line)| line.clone()).collect())
    }

    fn chat_latest<'a>(&'a self, tenant: &'a str, chat_id: &'a str, limit: usize) -> Stored<'a, Vec<ChatRow>> {
        let state = self.state();
        let Some(chat) = state.chats.get(&name(tenant, chat_id)) else { return now(Vec::new()) };
        let mut lines: Vec<ChatRow> = chat.lines.values().rev().take(limit).cloned().collect();
        lines.reverse();
        now(lines)
    }

    fn chat_put<'a>(&'a self, tenant: &'a str, chat_id: &'a str, before: &'a str, json: String) -> Stored<'a, ()> {
        let mut state = self.state();
        let kept = state.chats.get(&name(tenant, chat_id)).map(|chat| record(chat_id, chat).json).unwrap_or_default();
        if kept != before {
            return Box::pin(std::future::ready(Err(StoreError::Conflict)));
        }
        state.chats.entry(name(tenant, chat_id)).or_default().json = json;
        now(())
    }

    fn chat_get<'a>(&'a self, tenant: &'a str, chat_id: &'a str) -> Stored<'a, Option<ChatRecord>> {
        now(self.state().chats.get(&name(tenant, chat_id)).map(|chat| record(chat_id, chat)))
    }

    fn chats<'a>(&'a self, tenant: &'a str) -> Stored<'a, Vec<ChatRecord>> {
        let state = self.state();
        let of_tenant = state.chats.iter().filter(|((owner, _), _)| owner == tenant);
        now(of_tenant.map(|((_, chat_id), chat)| record(chat_id, chat)).collect())
    }
}
