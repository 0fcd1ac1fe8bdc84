//! Lines of gateways: parsing never panics, and a frame or action survives a round trip.

use frontdesk_core::{buffer_id, parse_buffer_id};
use frontdesk_wire::action::{ActionError, check_prompt, prompt_token};
use frontdesk_wire::frame::GatewayLine;
use frontdesk_wire::{Act, Action, GatewayFrame, InstanceNo};
use serde_json::Value;

use super::super::engine::{Outcome, outcome};

/// Store epoch and instance for which acks are parsed.
const EPOCH: u32 = 0x0a1b_2c3d;
const INSTANCE: u64 = 7;

pub fn gateway_frame(input: &[u8]) -> Outcome {
    let line = String::from_utf8_lossy(input);
    outcome((frame(&line), action(&line)))
}

fn frame(line: &str) -> Outcome {
    match GatewayFrame::parse(line) {
        Ok(GatewayFrame::Outbound { request_id, action: raw, platform, bot_id }) => {
            assert!(raw == "null" || line.contains(raw), "an action is passed on unchanged");
            // A lone surrogate is valid JSON syntax, but not a string: such an action is refused like one without an
            // op.
            match serde_json::from_str::<Value>(raw) {
                Ok(value) => outbound_twice(&request_id, &value, platform.as_deref(), bot_id.as_deref()),
                Err(_) => assert_eq!(Action::parse(raw), Err(ActionError::NoOp)),
            }
            outcome((1, platform.is_some(), bot_id.is_some(), action(raw)))
        }
        Ok(GatewayFrame::Hello { platform, bot_id, command_manifest, ready }) => {
            let written = one_line(GatewayLine::Hello { platform: &platform, bot_id: &bot_id, ready }.line());
            let again = GatewayFrame::parse(&written).expect("a frame");
            let bare = GatewayFrame::Hello { platform, bot_id, command_manifest: None, ready };
            assert_eq!(again, bare);
            outcome((2, command_manifest.is_some(), ready))
        }
        Ok(GatewayFrame::Interrupt { session_key, reason }) => {
            let written = GatewayLine::Interrupt { session_key: &session_key, reason: reason.as_deref() };
            let written = one_line(written.line());
            let has_reason = reason.is_some();
            assert_eq!(GatewayFrame::parse(&written), Ok(GatewayFrame::Interrupt { session_key, reason }));
            outcome((3, has_reason))
        }
        Ok(GatewayFrame::InboundAck { buffer_id: id }) => {
            let row = parse_buffer_id(&id, EPOCH, InstanceNo(INSTANCE));
            if let Some(row) = row {
                assert_eq!(
                    parse_buffer_id(&buffer_id(EPOCH, InstanceNo(INSTANCE), row), EPOCH, InstanceNo(INSTANCE)),
                    Some(row)
                );
                assert_eq!(
                    parse_buffer_id(&id, EPOCH, InstanceNo(INSTANCE + 1)),
                    None,
                    "an id belongs to one instance"
                );
            }
            let written = one_line(GatewayLine::InboundAck { buffer_id: &id }.line());
            assert_eq!(GatewayFrame::parse(&written), Ok(GatewayFrame::InboundAck { buffer_id: id }));
            outcome((4, row.is_some()))
        }
        Ok(GatewayFrame::GoingIdle) => 5,
        Ok(GatewayFrame::InboundWorking { buffer_ids }) => {
            let written = one_line(GatewayLine::InboundWorking { buffer_ids: &buffer_ids }.line());
            assert_eq!(GatewayFrame::parse(&written), Ok(GatewayFrame::InboundWorking { buffer_ids }));
            8
        }
        Ok(GatewayFrame::Report { problem }) => {
            let written = one_line(GatewayLine::Report { problem: problem.as_deref() }.line());
            assert_eq!(GatewayFrame::parse(&written), Ok(GatewayFrame::Report { problem }));
            7
        }
        Ok(GatewayFrame::Unknown(kind)) => {
            assert!(
                !["hello", "outbound", "interrupt", "going_idle", "inbound_ack", "inbound_working", "report"]
                    .contains(&kind.as_ref())
            );
            6
        }
        Err(error) => outcome(error.to_string()),
    }
}

fn outbound_twice(id: &str, action: &Value, platform: Option<&str>, bot_id: Option<&str>) {
    let written = one_line(GatewayLine::Outbound { request_id: id, action, platform, bot_id }.line());
    let Ok(GatewayFrame::Outbound { request_id, action: raw, platform: platform_again, bot_id: bot_again }) =
        GatewayFrame::parse(&written)
    else {
        panic!("not an outbound frame: {written}")
    };
    assert_eq!((&*request_id, platform_again.as_deref(), bot_again.as_deref()), (id, platform, bot_id));
    assert_eq!(serde_json::from_str::<Value>(raw).as_ref().ok(), Some(action));
}

fn one_line(line: String) -> String {
    assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "a frame is one line: {line:?}");
    line
}

fn action(raw: &str) -> Outcome {
    match Action::parse(raw) {
        Ok(action) => {
            let written = action.to_value().to_string();
            assert_eq!(Action::parse(&written).as_ref(), Ok(&action), "{written}");
            if let Act::Prompt { prompt_id, options, .. } = &action.act
                && check_prompt(prompt_id, options).is_ok()
            {
                assert!(!options.is_empty());
                assert!(options.iter().all(|option| prompt_token(prompt_id, &option.id).len() <= 64));
            }
            assert_eq!(action.act.chat_id().is_none(), action.act.op() == "follow_up");
            outcome((action.act.op(), action.metadata.len().min(3), action.act.is_fleeting()))
        }
        Err(ActionError::UnknownOp(op)) => {
            assert!(op.chars().count() <= 64, "untrusted text is truncated");
            2
        }
        Err(ActionError::NoOp) => 0,
        Err(ActionError::Malformed(_)) => 1,
    }
}
