//! The event that tells an agent that its message to a person was not delivered.

use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{MessageEvent, Source};

/// In a direct chat, where the id of the chat is that of the person.
pub(crate) fn event(platform: &str, vendor: &str, person: &str, message_id: &str, why: &str) -> Box<MessageEvent> {
    let source = Source {
        platform: platform.into(),
        chat_id: person.into(),
        chat_type: "dm".into(),
        chat_name: Some(person.to_owned()),
        user_id: Some(person.into()),
        user_name: Some(person.to_owned()),
        ..Source::default()
    };
    let text = format!(
        "[Delivery report of {vendor}, not written by the person: your message {message_id} to {person} was not delivered: \
         {why}]"
    );
    Box::new(MessageEvent {
        text,
        message_type: "text".into(),
        source,
        reply_to_message_id: Some(message_id.into()),
        reply_to: Some(ReplyTo { is_own: Some(true), ..ReplyTo::default() }),
        ..MessageEvent::default()
    })
}
