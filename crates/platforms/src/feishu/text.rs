//! Texts that go out: markup, mentions and length.

use frontdesk_wire::ActionResult;
use frontdesk_wire::descriptor::LenUnit;
use serde_json::{Value, json};

use super::account::is_id;
use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Unit, render};
use crate::shared::text;

/// Of one message.
pub(super) const MESSAGE_MAX: usize = 8_000;
/// Of rich text and cards; Feishu takes 30 KB.
pub(super) const CONTENT_MAX_BYTES: usize = 28 << 10;
/// A shorter part is not cut further, whatever its markup needs.
const PART_MIN: usize = 64;
/// Breaks what would be a mention, and is not seen.
const ZERO_WIDTH_SPACE: char = '\u{200b}';

/// One message as it is sent.
pub(super) struct Outgoing {
    /// text or post
    pub(super) kind: &'static str,
    pub(super) content: String,
    /// The same in a card.
    pub(super) card: String,
    /// The same without markup, for a Feishu that refuses it.
    pub(super) plain: String,
}

/// `None`: it is too long for one message, or there is nothing to see in it.
pub(super) fn one_message(text: &str) -> Option<Outgoing> {
    let mut parts = render(Dialect::Feishu, text, MESSAGE_MAX, Unit::Chars);
    let part = if parts.len() == 1 { parts.pop()? } else { return None };
    let plain = json!({ "text": with_mentions(&part.plain, Form::Text) }).to_string();
    let markup = with_mentions(&part.markup, Form::Text);
    let (kind, content) = match part.markup == part.plain {
        true => ("text", plain.clone()),
        false => ("post", json!({ "zh_cn": { "content": rows(&markup) } }).to_string()),
    };
    let card = with_mentions(&part.markup, Form::Card);
    let longest = content.len().max(plain.len()).max(card.len());
    (longest <= CONTENT_MAX_BYTES).then_some(Outgoing { kind, content, card, plain })
}

pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::Feishu, text, MESSAGE_MAX, Unit::Chars).is_empty()
}

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| one_message(part).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Chars, &fits)
}

pub(super) fn not_one_message(content: &str) -> ActionResult {
    let unit = format!("characters or {CONTENT_MAX_BYTES} bytes");
    text::not_one_message(is_blank(content), MESSAGE_MAX, &unit)
}

/// Blocks of code have rows of their own: some clients do not show what follows one in the same row.
fn rows(markup: &str) -> Vec<Value> {
    let mut rows: Vec<Vec<&str>> = vec![Vec::new()];
    let mut is_code = false;
    for line in markup.split('\n') {
        let is_fence = line.starts_with("```");
        if is_fence && !is_code {
            rows.push(Vec::new());
        }
        if let Some(row) = rows.last_mut() {
            row.push(line);
        }
        if is_fence && is_code {
            rows.push(Vec::new());
        }
        is_code ^= is_fence;
    }
    let row = |lines: Vec<&str>| lines.join("\n").trim_matches('\n').to_owned();
    let texts = rows.into_iter().map(row).filter(|text| !text.trim().is_empty());
    texts.map(|text| json!([{ "tag": "md", "text": text }])).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Card,
}

/// `<at user_id="ou_...">Name</at>` of an agent names a person. Mentions of a whole chat stay text.
pub(super) fn with_mentions(text: &str, form: Form) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        out.push_str(before);
        if let Some((id, name, length)) = mention(tag) {
            match form {
                Form::Text => out.push_str(&format!("<at user_id=\"{id}\">{name}</at>")),
                Form::Card => out.push_str(&format!("<at id={id}></at>")),
            }
            rest = &tag[length..];
        } else {
            out.push('<');
            if starts_as_mention(&tag[1..]) {
                out.push(ZERO_WIDTH_SPACE);
            }
            rest = &tag[1..];
        }
    }
    out.push_str(rest);
    out
}

fn starts_as_mention(inside: &str) -> bool {
    let name = inside.trim_start_matches(['/', ' ']);
    name.get(..2).is_some_and(|name| name.eq_ignore_ascii_case("at"))
}

/// Id, name and length of a mention of one person.
fn mention(tag: &str) -> Option<(&str, &str, usize)> {
    let (id, rest) = tag.strip_prefix("<at user_id=\"")?.split_once("\">")?;
    let (name, _) = rest.split_once("</at>")?;
    let is_person = is_id(id) && !id.eq_ignore_ascii_case("all") && !id.starts_with("oc_");
    let is_plain = name.chars().count() <= 100 && !name.contains(['<', '>', '\n']);
    let length = tag.len() - rest.len() + name.len() + "</at>".len();
    (is_person && is_plain).then_some((id, name, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> (&'static str, Value) {
        let out = one_message(text).unwrap();
        (out.kind, serde_json::from_str(&out.content).unwrap())
    }

    #[test]
    fn plain_texts_are_texts_and_others_rich() {
        assert_eq!(content("hello there"), ("text", json!({ "text": "hello there" })));
        let (kind, value) = content("**a**\n\n```rust\nlet b;\n```\n\nafter");
        assert_eq!(kind, "post");
        let texts: Vec<&Value> =
            value["zh_cn"]["content"].as_array().unwrap().iter().map(|row| &row[0]["text"]).collect();
        assert_eq!(texts, ["**a**", "```rust\nlet b;\n```", "after"]);
        assert!(one_message("").is_none() && is_blank(" \n"));
    }

    #[test]
    fn people_can_be_named_and_nobody_is_notified() {
        let named = r#"hi <at user_id="ou_1">Bob</at>, see"#;
        assert_eq!(with_mentions(named, Form::Text), named);
        assert_eq!(with_mentions(named, Form::Card), "hi <at id=ou_1></at>, see");
        assert_eq!(content(named).1["text"], named);
        for text in [
            r#"<at user_id="all">Everyone</at>"#,
            r#"<at user_id="ALL"></at>"#,
            "<at id=all></at>",
            "< at id=all></at>",
            "<AT user_id=\"all\">x</AT>",
            r#"<at user_id="oc_1">x</at>"#,
            r#"<at user_id="ou_1">x<at id=all></at>"#,
            "<at email=a@b.example></at>",
        ] {
            for form in [Form::Text, Form::Card] {
                let shown = with_mentions(text, form).to_lowercase();
                assert!(!shown.contains("<at") && !shown.contains("< at") && shown.contains('<'), "{shown}");
            }
        }
        assert_eq!(with_mentions("a < b <b> <attic", Form::Text), "a < b <b> <\u{200b}attic");
    }

    #[test]
    fn every_part_fits_into_a_message() {
        for text in ["word **b** ".repeat(4_000), "\u{1f600}\u{1f600} ".repeat(9_000), "\"\\\" ".repeat(9_000)] {
            let parts = parts(&text);
            assert!(parts.len() > 1);
            for part in &parts {
                let out = one_message(part).expect("one message");
                assert!(out.content.len() <= CONTENT_MAX_BYTES && part.chars().count() <= MESSAGE_MAX);
            }
        }
        assert_eq!(parts("short"), ["short"]);
    }
}
