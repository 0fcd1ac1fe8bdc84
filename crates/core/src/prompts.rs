//! A pressed button reaches only the agent whose prompt it belongs to. Without this, a prompt of one agent in a group
//! could make another person's agent carry out the text of the button.
//!
//! The journal knows that agent: the entry of a prompt has receipt ids made from its chat with its prompt id, and with
//! the message that it became. So every server of a store knows it, also after a restart, for as long as the journal is
//! kept.
//!
//! `chats_of` is the tenant of the chat where each tenant has chats of its own under one bot, as in the built-in chat; else
//! `None`.

use frontdesk_wire::event::PromptResponse;
use frontdesk_wire::{Act, ChatId, MessageId, Source, TenantId};

use crate::hash::short_hash;

/// Ids of vendors have no space in them.
fn receipt(kind: &str, chats_of: Option<&TenantId>, chat_id: &ChatId, id: &str) -> String {
    format!("prompt {}", hex::encode(short_hash(&[kind, chats_of.map_or("", TenantId::as_str), chat_id, id])))
}

/// Written with the entry, before the prompt is sent: the press may come before the vendor's answer.
pub(crate) fn by_id(chats_of: Option<&TenantId>, chat_id: &ChatId, act: &Act) -> Option<String> {
    match act {
        Act::Prompt { prompt_id, .. } => Some(receipt("id", chats_of, chat_id, prompt_id)),
        _ => None,
    }
}

/// Written when the message is known. Two agents can use the same prompt id, but have no message in common.
pub(crate) fn by_message(chats_of: Option<&TenantId>, chat_id: &ChatId, message_id: &MessageId) -> String {
    receipt("message", chats_of, chat_id, message_id)
}

/// The receipt ids that the prompt of a press can have, the surest first.
pub(crate) fn of_press(chats_of: Option<&TenantId>, source: &Source, press: &PromptResponse) -> Vec<String> {
    // It may have been sent to a thread by way of its channel.
    let chats = [Some(&source.chat_id), source.parent_chat_id.as_ref()];
    let chats = chats.into_iter().flatten();
    let mut ids = Vec::new();
    if let Some(message_id) = &press.prompt_message_id {
        ids.extend(chats.clone().map(|chat| by_message(chats_of, chat, message_id)));
    }
    ids.extend(chats.map(|chat| receipt("id", chats_of, chat, &press.prompt_id)));
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_decides_before_the_prompt_id() {
        let source = Source { chat_id: "thread".into(), parent_chat_id: Some("channel".into()), ..Source::default() };
        let mut press = PromptResponse { prompt_id: "p".into(), ..PromptResponse::default() };
        let by_id = [receipt("id", None, &"thread".into(), "p"), receipt("id", None, &"channel".into(), "p")];
        assert_eq!(of_press(None, &source, &press), by_id);
        press.prompt_message_id = Some("m".into());
        let ids = of_press(None, &source, &press);
        assert_eq!(
            ids[..2],
            [by_message(None, &"thread".into(), &"m".into()), by_message(None, &"channel".into(), &"m".into())]
        );
        assert_eq!(ids[2..], by_id);
        assert!(
            of_press(Some(&"acme".into()), &source, &press).iter().all(|id| !ids.contains(id)),
            "a chat of the same name"
        );
    }
}
