//! The body of a webhook, as far as it is used. Unknown fields are ignored.

use serde::Deserialize;
use serde_json::Value;

/// Messages and statuses are read one by one, so that one that is malformed does not hide the others.
#[derive(Debug, Deserialize)]
pub(super) struct Payload {
    #[serde(default)]
    pub(super) object: String,
    #[serde(default)]
    pub(super) entry: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    #[serde(default)]
    pub(super) changes: Vec<Change>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Change {
    #[serde(default)]
    pub(super) field: String,
    #[serde(default)]
    pub(super) value: Value,
}

/// What a change of the field `messages` holds.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct News {
    pub(super) metadata: Metadata,
    pub(super) contacts: Vec<Contact>,
    pub(super) messages: Vec<Value>,
    pub(super) statuses: Vec<Value>,
    /// Trouble of the account, of no message in particular.
    pub(super) errors: Vec<Trouble>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) display_phone_number: String,
    pub(super) phone_number_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Contact {
    pub(super) wa_id: String,
    pub(super) user_id: String,
    pub(super) profile: Profile,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Profile {
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message {
    pub(super) id: String,
    /// The phone number. Meta leaves it out for people who have a user name.
    pub(super) from: String,
    /// The id of the person for this business.
    pub(super) from_user_id: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) context: Option<Context>,
    pub(super) text: Option<Text>,
    pub(super) button: Option<Button>,
    pub(super) interactive: Option<Interactive>,
    pub(super) image: Option<File>,
    pub(super) video: Option<File>,
    pub(super) audio: Option<File>,
    pub(super) voice: Option<File>,
    pub(super) document: Option<File>,
    pub(super) sticker: Option<File>,
    pub(super) location: Option<Location>,
    pub(super) contacts: Vec<SharedContact>,
    pub(super) order: Option<Value>,
    pub(super) edit: Option<Edit>,
    /// Of a message in a group.
    pub(super) group_id: Option<Value>,
    pub(super) chat: Option<Value>,
}

/// Another text for an earlier message.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Edit {
    pub(super) original_message_id: String,
    pub(super) message: Box<Message>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Context {
    pub(super) id: Option<String>,
    pub(super) from: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Text {
    pub(super) body: String,
}

/// Of a template.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Button {
    pub(super) text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Interactive {
    #[serde(rename = "button_reply")]
    pub(super) button: Option<Choice>,
    #[serde(rename = "list_reply")]
    pub(super) row: Option<Choice>,
    #[serde(rename = "nfm_reply")]
    pub(super) form: Option<Form>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice {
    pub(super) id: String,
    pub(super) title: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    pub(super) body: String,
    pub(super) response_json: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct File {
    pub(super) id: String,
    pub(super) mime_type: Option<String>,
    pub(super) caption: Option<String>,
    pub(super) filename: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Location {
    pub(super) latitude: f64,
    pub(super) longitude: f64,
    pub(super) name: Option<String>,
    pub(super) address: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SharedContact {
    pub(super) name: ContactName,
    pub(super) phones: Vec<Phone>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContactName {
    pub(super) formatted_name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Phone {
    pub(super) phone: String,
}

/// The outcome of a message that was sent.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) id: String,
    pub(super) status: String,
    pub(super) recipient_id: String,
    pub(super) recipient_user_id: String,
    pub(super) errors: Vec<Trouble>,
    /// The key of the action, which we sent with it.
    pub(super) biz_opaque_callback_data: Option<String>,
}

/// A reason of Meta.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Trouble {
    pub(super) code: i64,
    pub(super) title: String,
    pub(super) message: String,
    pub(super) error_data: TroubleData,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TroubleData {
    pub(super) details: String,
}
