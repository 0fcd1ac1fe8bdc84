//! The content of a message: its text, its kind and its files.

use serde_json::Value;

use super::account::is_id;
use super::files::{FileRef, Found};
use super::mentions::{EVERYBODY, Me, Mentions, normal};
use super::value::{first, text_of};
use super::{post, structured};

#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) text: String,
    /// As on the wire: text, photo, voice...
    pub(super) kind: &'static str,
    pub(super) files: Vec<FileRef>,
    pub(super) mentions: Mentions,
    /// Instead of the text, where another message quotes this one.
    pub(super) placeholder: Option<String>,
}

impl Content {
    /// `None`: a notice of Feishu itself.
    pub(super) fn of(kind: &str, raw: &str, mentions: &[Value], me: &Me) -> Option<Self> {
        let kind = kind.trim().to_lowercase();
        let payload = match serde_json::from_str::<Value>(raw) {
            Ok(value) if value.is_object() => value,
            Ok(value) => serde_json::json!({ "content": value }),
            Err(_) => serde_json::json!({ "text": raw }),
        };
        let (mut mentions, mut found) = (Mentions::of(mentions, me), Found::default());
        let (text, kind, placeholder) = match kind.as_str() {
            "text" => {
                let text = text_of(&payload, "text");
                if text.contains(EVERYBODY) {
                    mentions.note_all();
                }
                (normal(text, &mentions), "text", None)
            }
            "post" => (post::read(&payload, &mut found, &mut mentions), "text", None),
            "image" => {
                found.image(text_of(&payload, "image_key").trim());
                let alt = normal(first([text_of(&payload, "text"), text_of(&payload, "alt")]), &mentions);
                (if alt == "[Image]" { String::new() } else { alt }, "photo", Some("[Image]".to_owned()))
            }
            "file" | "audio" | "media" => {
                let names = [text_of(&payload, "file_name"), text_of(&payload, "title"), text_of(&payload, "text")];
                let name = normal(first(names), &Mentions::default());
                let file_kind = match kind.as_str() {
                    "audio" => "audio",
                    "media" => "video",
                    _ => "file",
                };
                let file = FileRef::new(text_of(&payload, "file_key").trim(), &name, file_kind);
                let shown = if name.is_empty() { "[Attachment]".to_owned() } else { format!("[Attachment: {name}]") };
                let kind = kind_of(file_kind, file.mime());
                if !file.key.is_empty() {
                    found.files.push(file);
                }
                (String::new(), kind, Some(shown))
            }
            "merge_forward" => (structured::forwarded(&payload), "text", None),
            "share_chat" => (structured::shared_chat(&payload), "text", None),
            "interactive" | "card" => (structured::card(&payload), "text", None),
            "sticker" => ("[Sticker]".to_owned(), "sticker", None),
            "location" => (location(&payload), "location", None),
            "share_user" => (format!("[Shared contact: {}]", text_of(&payload, "user_id")), "text", None),
            "system" | "" => return None,
            other => {
                let other: String = other.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').take(32).collect();
                (format!("[Message of type {other}, which cannot be shown here]"), "text", None)
            }
        };
        found.files.retain(|file| is_id(&file.key));
        Some(Self { text, kind, files: found.files, mentions, placeholder })
    }

    /// What a message that answers this one quotes.
    pub(super) fn quoted(self) -> Option<String> {
        match self.text.is_empty() {
            false => Some(self.text),
            true => self.placeholder,
        }
    }
}

/// A recording is a voice note: gateways transcribe only those.
fn kind_of(kind: &str, mime: &str) -> &'static str {
    match (kind, mime.split('/').next().unwrap_or_default()) {
        ("audio", _) => "voice",
        (_, "image") => "photo",
        (_, "audio") => "audio",
        (_, "video") => "video",
        _ => "document",
    }
}

fn location(payload: &Value) -> String {
    let shown = |name: &str| match &payload[name] {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    let (name, latitude, longitude) = (shown("name"), shown("latitude"), shown("longitude"));
    format!("[Location: {name} (latitude {latitude}, longitude {longitude})]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(kind: &str, raw: &str) -> Content {
        Content::of(kind, raw, &[], &Me::default()).unwrap()
    }

    #[test]
    fn kinds_are_those_of_the_wire() {
        for (kind, raw, text, wire, mime) in [
            ("text", r#"{"text":"hi  there\n\n x"}"#, "hi there\nx", "text", None),
            ("text", "not json", "not json", "text", None),
            ("image", r#"{"image_key":"img_1"}"#, "", "photo", Some("image/jpeg")),
            ("file", r#"{"file_key":"f","file_name":"a.PDF"}"#, "", "document", Some("application/pdf")),
            ("file", r#"{"file_key":"f","file_name":"a.png"}"#, "", "photo", Some("image/png")),
            ("audio", r#"{"file_key":"f","duration":1}"#, "", "voice", Some("audio/ogg")),
            ("media", r#"{"file_key":"f","file_name":"v.mov","image_key":"i"}"#, "", "video", Some("video/quicktime")),
            ("sticker", r#"{"file_key":"s"}"#, "[Sticker]", "sticker", None),
            (
                "location",
                r#"{"name":"N","longitude":"1.5","latitude":"2"}"#,
                "[Location: N (latitude 2, longitude 1.5)]",
                "location",
                None,
            ),
            ("todo", "{}", "[Message of type todo, which cannot be shown here]", "text", None),
        ] {
            let found = content(kind, raw);
            assert_eq!(
                (found.text.as_str(), found.kind, found.files.first().map(FileRef::mime)),
                (text, wire, mime),
                "{kind} {raw}"
            );
        }
        assert!(Content::of("system", "{}", &[], &Me::default()).is_none());
        assert!(content("image", r#"{"image_key":"../x"}"#).files.is_empty(), "keys become parts of paths");
    }

    #[test]
    fn a_file_is_quoted_by_its_name() {
        let quoted = |kind, raw| content(kind, raw).quoted().unwrap();
        assert_eq!(quoted("file", r#"{"file_key":"f","file_name":"a.pdf"}"#), "[Attachment: a.pdf]");
        assert_eq!((quoted("audio", "{}"), quoted("text", r#"{"text":"x"}"#)), ("[Attachment]".into(), "x".into()));
    }

    #[test]
    fn everybody_is_noted_although_nobody_lists_it() {
        let found = content("text", r#"{"text":"@_all hi"}"#);
        assert!(found.mentions.has_all() && found.text == "@all hi");
    }
}
