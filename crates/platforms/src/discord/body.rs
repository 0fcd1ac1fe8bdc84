//! The parts of a message beside its text: embeds of programs, polls, stickers.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Skips entries of an unexpected form, so that the message can still be read.
pub(super) fn lenient<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let Value::Array(items) = Value::deserialize(deserializer)? else { return Ok(Vec::new()) };
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

fn lenient_one<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// The parts of a message that become text.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Body {
    pub(super) content: String,
    #[serde(deserialize_with = "lenient")]
    embeds: Vec<Embed>,
    #[serde(deserialize_with = "lenient")]
    sticker_items: Vec<Sticker>,
    #[serde(deserialize_with = "lenient_one")]
    poll: Option<Poll>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Embed {
    #[serde(rename = "type")]
    kind: Option<String>,
    url: Option<String>,
    title: Option<String>,
    description: Option<String>,
    author: Option<Named>,
    fields: Vec<Field>,
    footer: Option<Text>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Field {
    name: String,
    value: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Text {
    text: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Sticker {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Poll {
    question: Text,
    answers: Vec<PollAnswer>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PollAnswer {
    poll_media: PollMedia,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PollMedia {
    text: Option<String>,
    emoji: Option<Emoji>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Emoji {
    name: Option<String>,
}

impl Body {
    /// Nothing but a sticker.
    pub(super) fn is_sticker(&self) -> bool {
        self.content.is_empty() && !self.sticker_items.is_empty()
    }

    /// The text first, if there is one.
    pub(super) fn parts(&self, has_only_previews: bool) -> Vec<String> {
        let mut parts = vec![self.content.clone()];
        let embeds = self.embeds.iter().filter(|embed| !has_only_previews && !embed.is_preview(&self.content));
        parts.extend(embeds.map(Embed::text));
        parts.extend(self.poll.as_ref().map(Poll::text));
        parts.extend(self.sticker_items.iter().map(|sticker| format!("[Sticker {}]", sticker.name)));
        parts.retain(|part| !part.is_empty());
        parts
    }
}

impl Embed {
    /// Discord made it for an address in the text. Programs send only rich ones.
    fn is_preview(&self, content: &str) -> bool {
        let is_other_kind = self.kind.as_deref().is_some_and(|kind| kind != "rich");
        let url = self.url.as_deref().unwrap_or_default();
        is_other_kind || (!url.is_empty() && content.contains(url))
    }

    fn text(&self) -> String {
        let fields = self.fields.iter().map(|field| format!("{}: {}", field.name, field.value));
        let author = self.author.as_ref().map(|author| author.name.clone());
        let head = [author, self.title.clone(), self.description.clone()].into_iter().flatten();
        let footer = self.footer.as_ref().map(|footer| footer.text.clone());
        let lines: Vec<String> = head.chain(fields).chain(footer).filter(|line| !line.is_empty()).collect();
        lines.join("\n")
    }
}

impl Poll {
    fn text(&self) -> String {
        let mut lines = vec![format!("[Poll] {}", self.question.text)];
        for (at, PollAnswer { poll_media }) in self.answers.iter().enumerate() {
            let emoji = poll_media.emoji.as_ref().and_then(|emoji| emoji.name.as_deref());
            let shown: Vec<&str> = [emoji, poll_media.text.as_deref()].into_iter().flatten().collect();
            lines.push(format!("{}. {}", at + 1, shown.join(" ")));
        }
        lines.join("\n")
    }
}
