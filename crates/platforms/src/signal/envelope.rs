//! What the daemon reports, as far as it is used. Unknown fields are skipped.

use serde::Deserialize;

/// One event of the stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Received {
    pub(super) envelope: Option<Envelope>,
    /// A message that could not be read: it was encrypted for another session, or is malformed.
    pub(super) exception: Option<Exception>,
    pub(super) account: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exception {
    pub(super) message: Option<String>,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Envelope {
    pub(super) source: Option<String>,
    pub(super) source_number: Option<String>,
    pub(super) source_uuid: Option<String>,
    pub(super) source_name: Option<String>,
    pub(super) timestamp: u64,
    pub(super) data_message: Option<DataMessage>,
    pub(super) edit_message: Option<EditMessage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EditMessage {
    pub(super) target_sent_timestamp: u64,
    pub(super) data_message: DataMessage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DataMessage {
    pub(super) timestamp: u64,
    pub(super) message: Option<String>,
    pub(super) mentions: Vec<Mention>,
    pub(super) quote: Option<Quote>,
    pub(super) attachments: Vec<Attachment>,
    pub(super) sticker: Option<Sticker>,
    pub(super) group_info: Option<GroupInfo>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Mention {
    pub(super) number: Option<String>,
    pub(super) uuid: Option<String>,
    /// In UTF-16 units.
    pub(super) start: usize,
    pub(super) length: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Quote {
    pub(super) id: u64,
    pub(super) author_number: Option<String>,
    pub(super) author_uuid: Option<String>,
    pub(super) text: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Attachment {
    pub(super) id: Option<String>,
    pub(super) content_type: Option<String>,
    pub(super) filename: Option<String>,
    pub(super) size: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sticker {
    pub(super) emoji: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GroupInfo {
    pub(super) group_id: Option<String>,
    pub(super) group_name: Option<String>,
}
