//! Frames of the socket: JSON with a command, the id of a request, and a body; an answer has a number for what went wrong.

use serde_json::{Value, json};

pub(super) const SUBSCRIBE: &str = "aibot_subscribe";
pub(super) const MESSAGE: &str = "aibot_msg_callback";
/// As older servers name it.
pub(super) const OLD_MESSAGE: &str = "aibot_callback";
pub(super) const EVENT: &str = "aibot_event_callback";
pub(super) const RESPOND: &str = "aibot_respond_msg";
pub(super) const SEND: &str = "aibot_send_msg";
pub(super) const PING: &str = "ping";
pub(super) const UPLOAD_BEGIN: &str = "aibot_upload_media_init";
pub(super) const UPLOAD_CHUNK: &str = "aibot_upload_media_chunk";
pub(super) const UPLOAD_END: &str = "aibot_upload_media_finish";

#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Empty in an answer.
    pub cmd: String,
    pub req_id: String,
    pub body: Value,
    /// An answer without it does not tell the result of the request.
    pub errcode: Option<i64>,
    pub errmsg: String,
}

impl Frame {
    /// `None`: it is no frame.
    pub fn read(text: &str) -> Option<Self> {
        // The vendor's own library removes what must not stand in JSON, so it is sent.
        let value: Value =
            serde_json::from_str(text).or_else(|_| serde_json::from_str(&without_controls(text))).ok()?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        value.is_object().then(|| Self {
            cmd: text(&value["cmd"]),
            req_id: text(&value["headers"]["req_id"]),
            body: value["body"].clone(),
            errcode: value["errcode"].as_i64(),
            errmsg: text(&value["errmsg"]),
        })
    }

    pub(super) fn is_of_vendor(&self) -> bool {
        [MESSAGE, OLD_MESSAGE, EVENT].contains(&self.cmd.as_str())
    }
}

fn without_controls(text: &str) -> String {
    text.chars().filter(|c| *c >= ' ' || ['\t', '\n'].contains(c)).collect()
}

pub(super) fn written(cmd: &str, req_id: &str, body: &Value) -> String {
    match body {
        Value::Null => json!({ "cmd": cmd, "headers": { "req_id": req_id } }),
        body => json!({ "cmd": cmd, "headers": { "req_id": req_id }, "body": body }),
    }
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_the_vendor_writes_them() {
        let answer = Frame::read(r#"{"headers":{"req_id":"r1"},"errcode":7,"errmsg":"no"}"#).unwrap();
        assert_eq!((answer.cmd.as_str(), answer.req_id.as_str(), answer.errcode), ("", "r1", Some(7)));
        let with_control =
            "{\"cmd\":\"aibot_msg_callback\",\"headers\":{\"req_id\":\"r\"},\"body\":{\"x\":\"a\u{8}b\"}}";
        assert_eq!(Frame::read(with_control).unwrap().body["x"], "ab");
        for wrong in ["", "[]", "1", "{", "null"] {
            assert_eq!(Frame::read(wrong), None, "{wrong}");
        }
        assert_eq!(written(PING, "p", &Value::Null), r#"{"cmd":"ping","headers":{"req_id":"p"}}"#);
    }
}
