//! Events: they survive a round trip, and a frame contains exactly the event that was put into it.

use frontdesk_core::directory::check_source;
use frontdesk_wire::event::{media_kind, media_message_type};
use frontdesk_wire::frame::{PassthroughForward, push_delivery};
use frontdesk_wire::{DeskFrame, MessageEvent};
use serde_json::Value;

use super::super::engine::{Outcome, outcome};
use super::{equal_twice, read_twice};

const BUFFER_ID: &str = "0a1b2c3d-7-42";

pub fn message_event(input: &[u8]) -> Outcome {
    let event = read_twice::<MessageEvent>(input).map(|(first, second)| {
        assert_eq!(first, second);
        let json = serde_json::to_string(&first).expect("a parsed value can be serialized");
        let DeskFrame::Inbound { event, buffer_id } = frame(&json, false) else { panic!("not an event: {json}") };
        assert_eq!((event, buffer_id.as_deref()), (serde_json::from_str::<Value>(&json).unwrap(), Some(BUFFER_ID)));
        let source = &first.source;
        assert!(*source.channel() == source.chat_id || source.parent_chat_id.as_deref() == Some(source.channel()));
        let media: Vec<&str> = first.media.iter().take(2).map(|media| kind(&media.mime)).collect();
        let parts = [
            first.reply_to.is_some(),
            first.delivery.is_some(),
            first.prompt_response.is_some(),
            first.context_error,
            source.is_direct(),
            check_source(&first).is_ok(),
        ];
        outcome((parts, media, first.context.len().min(3), first.media_urls.len().min(3)))
    });
    let forward = read_twice::<PassthroughForward>(input).map(|(first, second)| {
        assert_eq!(first, second);
        let json = serde_json::to_string(&first).expect("a parsed value can be serialized");
        let DeskFrame::PassthroughForward { forward, .. } = frame(&json, true) else { panic!("no forward: {json}") };
        assert_eq!(forward, first);
        first.headers.len().min(3)
    });
    // Frames that an agent parses; they have no equality.
    let desk = read_twice::<DeskFrame>(input).map(|(first, _)| std::mem::discriminant(&first));
    outcome((event, forward, desk, equal_twice::<frontdesk_wire::ActionResult>(input)))
}

/// The line that a gateway gets, parsed like in the gateway.
fn frame(json: &str, passthrough: bool) -> DeskFrame {
    let mut line = String::new();
    push_delivery(&mut line, passthrough, json, BUFFER_ID);
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "a frame is one line: {line:?}");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

fn kind(mime: &str) -> &'static str {
    let (kind, message_type) = (media_kind(mime), media_message_type(mime));
    assert_eq!(message_type, if kind == "image" { "photo" } else { kind });
    kind
}
