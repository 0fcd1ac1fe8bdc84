//! Frames of the relay socket in both directions: one JSON object per line.
//!
//! Unknown types and fields are accepted. Frames of the server are always complete: a non-object or `"event": null`
//! would end the client's reader.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::action::ActionResult;
use crate::descriptor::Descriptor;
use crate::ids::{BotId, ChatId, SessionKey};

/// Gateway to server.
#[derive(Debug, PartialEq)]
pub enum GatewayFrame<'a> {
    Hello {
        platform: Cow<'a, str>,
        bot_id: Cow<'a, str>,
        command_manifest: Option<Value>,
        /// It handles events from now on; they need not be delayed.
        ready: bool,
    },
    Outbound {
        request_id: Cow<'a, str>,
        action: &'a str,
        platform: Option<Cow<'a, str>>,
        bot_id: Option<Cow<'a, str>>,
    },
    Interrupt {
        session_key: Cow<'a, str>,
        reason: Option<Cow<'a, str>>,
    },
    GoingIdle,
    InboundAck {
        buffer_id: Cow<'a, str>,
    },
    /// These deliveries are being handled and will be acked.
    InboundWorking {
        buffer_ids: Vec<String>,
    },
    /// A problem of the agent that its operator should know of; `None`: there is none any more.
    Report {
        problem: Option<Cow<'a, str>>,
    },
    /// A type that this version does not know; ignored.
    Unknown(Cow<'a, str>),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("not a JSON object with a type")]
    NotAnObject,
    #[error("{frame} frame lacks {field}")]
    Missing { frame: &'static str, field: &'static str },
}

/// All fields of all frames in one struct: parsed in one pass, with borrowed strings where possible.
#[derive(Deserialize)]
struct Flat<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    platform: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "botId")]
    bot_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    command_manifest: Option<&'a RawValue>,
    #[serde(default)]
    ready: Option<Value>,
    #[serde(borrow, default, rename = "requestId")]
    request_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    session_key: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    reason: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "bufferId")]
    buffer_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "bufferIds")]
    buffer_ids: Option<&'a RawValue>,
    #[serde(borrow, default)]
    problem: Option<Cow<'a, str>>,
}

impl<'a> GatewayFrame<'a> {
    pub fn parse(line: &'a str) -> Result<Self, FrameError> {
        // Serde would accept an array as fields in order, but a frame is an object.
        if !line.trim_start().starts_with('{') {
            return Err(FrameError::NotAnObject);
        }
        let flat: Flat<'a> = serde_json::from_str(line).map_err(|_| FrameError::NotAnObject)?;
        let need = |frame, field| FrameError::Missing { frame, field };
        Ok(match flat.kind.as_ref() {
            "inbound_ack" => Self::InboundAck { buffer_id: flat.buffer_id.ok_or(need("inbound_ack", "bufferId"))? },
            "outbound" => Self::Outbound {
                request_id: flat.request_id.ok_or(need("outbound", "requestId"))?,
                // A missing action gets an answer too, because its sender waits.
                action: flat.action.map_or("null", RawValue::get),
                platform: flat.platform,
                bot_id: flat.bot_id,
            },
            "hello" => Self::Hello {
                platform: flat.platform.ok_or(need("hello", "platform"))?,
                bot_id: flat.bot_id.unwrap_or_default(),
                command_manifest: flat.command_manifest.and_then(|raw| serde_json::from_str(raw.get()).ok()),
                ready: flat.ready == Some(Value::Bool(true)),
            },
            "interrupt" => Self::Interrupt {
                session_key: flat.session_key.ok_or(need("interrupt", "session_key"))?,
                reason: flat.reason,
            },
            "going_idle" => Self::GoingIdle,
            "inbound_working" => {
                let ids = flat.buffer_ids.and_then(|raw| serde_json::from_str(raw.get()).ok());
                Self::InboundWorking { buffer_ids: ids.ok_or(need("inbound_working", "bufferIds"))? }
            }
            "report" => Self::Report { problem: flat.problem },
            _ => Self::Unknown(flat.kind),
        })
    }
}

/// Server to gateway. `event` and `forward` stay raw, because they are stored as they will be sent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DeskFrame {
    Descriptor {
        descriptor: Descriptor,
    },
    OutboundResult {
        #[serde(rename = "requestId")]
        request_id: String,
        result: ActionResult,
    },
    InterruptInbound {
        session_key: SessionKey,
        chat_id: ChatId,
    },
    GoingIdleAck,
    Inbound {
        event: Value,
        #[serde(default, rename = "bufferId", skip_serializing_if = "Option::is_none")]
        buffer_id: Option<String>,
    },
    PassthroughForward {
        forward: PassthroughForward,
        #[serde(default, rename = "bufferId", skip_serializing_if = "Option::is_none")]
        buffer_id: Option<String>,
    },
    #[serde(other)]
    Unknown,
}

impl DeskFrame {
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

/// A verified, sanitized request of a passthrough platform; the body contains no credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassthroughForward {
    pub platform: String,
    #[serde(rename = "botId")]
    pub bot_id: BotId,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    #[serde(rename = "bodyB64")]
    pub body_b64: String,
}

/// Writes an `inbound` or `passthrough_forward` line around existing JSON.
pub fn push_delivery(out: &mut String, passthrough: bool, json: &str, buffer_id: &str) {
    out.push_str(if passthrough {
        r#"{"type":"passthrough_forward","forward":"#
    } else {
        r#"{"type":"inbound","event":"#
    });
    out.push_str(json);
    out.push_str(r#","bufferId":""#);
    out.push_str(buffer_id); // our own ids have only hex digits and dashes, so no escaping
    out.push_str("\"}\n");
}

/// Frames written by a gateway, for the client.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum GatewayLine<'a> {
    Hello {
        platform: &'a str,
        #[serde(rename = "botId")]
        bot_id: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        ready: bool,
    },
    Outbound {
        #[serde(rename = "requestId")]
        request_id: &'a str,
        action: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        platform: Option<&'a str>,
        #[serde(rename = "botId", skip_serializing_if = "Option::is_none")]
        bot_id: Option<&'a str>,
    },
    Interrupt {
        session_key: &'a str,
        reason: Option<&'a str>,
    },
    GoingIdle,
    InboundAck {
        #[serde(rename = "bufferId")]
        buffer_id: &'a str,
    },
    InboundWorking {
        #[serde(rename = "bufferIds")]
        buffer_ids: &'a [String],
    },
    Report {
        problem: Option<&'a str>,
    },
}

impl GatewayLine<'_> {
    pub fn line(&self) -> String {
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}
