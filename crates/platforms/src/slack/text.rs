//! Texts: mentions and commands in what comes in, markup and length of what goes out.

use frontdesk_wire::ActionResult;
use frontdesk_wire::descriptor::LenUnit;

use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Rendered, Unit, render};
use crate::shared::text;

/// Of one message. Slack takes 40,000 characters.
pub(super) const MESSAGE_MAX: usize = 39_000;
/// Of the text of one section.
pub(super) const SECTION_MAX: usize = 3_000;
/// Of all blocks with Markdown of one message.
pub(super) const MARKDOWN_MAX: usize = 12_000;
/// A shorter part is not cut further, whatever its markup needs.
const PART_MIN: usize = 64;

/// Commands that are known without a slash. Slack takes no commands in threads, so `!stop` means `/stop`. Any other text
/// that begins so is a text: "!nice work".
const COMMANDS: &[&str] = &[
    "agents",
    "approve",
    "background",
    "bg",
    "blueprint",
    "bp",
    "branch",
    "btw",
    "bundles",
    "codex-runtime",
    "codex_runtime",
    "commands",
    "compact",
    "compress",
    "curator",
    "debug",
    "deny",
    "fast",
    "footer",
    "fork",
    "goal",
    "help",
    "insights",
    "kanban",
    "learn",
    "link",
    "memory",
    "moa",
    "model",
    "new",
    "personality",
    "platform",
    "profile",
    "q",
    "queue",
    "reasoning",
    "reload-mcp",
    "reload-skills",
    "reload_mcp",
    "reload_skills",
    "reset",
    "restart",
    "resume",
    "retry",
    "rollback",
    "sessions",
    "set-home",
    "sethome",
    "skills",
    "start",
    "status",
    "steer",
    "stop",
    "subgoal",
    "suggest",
    "suggestions",
    "tasks",
    "title",
    "topic",
    "topup",
    "undo",
    "unlink",
    "update",
    "usage",
    "v",
    "verbose",
    "version",
    "voice",
    "whoami",
    "yolo",
];

/// `!stop` as `/stop`.
pub(super) fn with_slash(text: &str) -> String {
    let is_command = |rest: &str| {
        let word = rest.split_whitespace().next().unwrap_or_default();
        let name = word.split('@').next().unwrap_or_default().to_lowercase();
        rest.starts_with(word) && COMMANDS.contains(&name.as_str())
    };
    match text.strip_prefix('!') {
        Some(rest) if is_command(rest) => format!("/{rest}"),
        _ => text.to_owned(),
    }
}

pub(super) fn is_mention(text: &str, user_id: &str) -> bool {
    !user_id.is_empty() && text.contains(&format!("<@{user_id}>"))
}

pub(super) fn without_mention(text: &str, user_id: &str) -> String {
    match user_id {
        "" => text.to_owned(),
        id => text.replace(&format!("<@{id}>"), "").trim().to_owned(),
    }
}

/// As one message. `None`: it is too long for one, or there is nothing to see in it.
pub(super) fn one_message(text: &str) -> Option<Rendered> {
    let mut parts = render(Dialect::Slack, text, MESSAGE_MAX, Unit::Chars);
    match parts.len() {
        1 => parts.pop().map(|part| Rendered { markup: with_mentions(&part.markup), plain: part.plain }),
        _ => None,
    }
}

pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::Slack, text, MESSAGE_MAX, Unit::Chars).is_empty()
}

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| one_message(part).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Chars, &fits)
}

/// As sections of a message with buttons.
pub(super) fn sections(text: &str) -> Vec<String> {
    let parts = render(Dialect::Slack, text, SECTION_MAX, Unit::Chars);
    parts.into_iter().map(|part| with_mentions(&part.markup)).collect()
}

pub(super) fn not_one_message(content: &str) -> ActionResult {
    text::not_one_message(is_blank(content), MESSAGE_MAX, "characters")
}

/// `<@U1>` and `<#C1>` of an agent name people and channels. Mentions of a whole channel stay text.
fn with_mentions(markup: &str) -> String {
    let mut out = String::with_capacity(markup.len());
    let mut rest = markup;
    while let Some(at) = rest.find("&lt;") {
        let (before, after) = (&rest[..at], &rest[at + 4..]);
        out.push_str(before);
        let name = after.find("&gt;").map(|end| &after[..end]);
        if let Some(name) = name.filter(|name| is_name(name)) {
            out.push_str(&format!("<{name}>"));
            rest = &after[name.len() + 4..];
        } else {
            out.push_str("&lt;");
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

fn is_name(text: &str) -> bool {
    let id = match text.as_bytes().first() {
        Some(b'@') => Some(&text[1..]).filter(|id| id.starts_with(['U', 'W'])),
        Some(b'#') => Some(&text[1..]).filter(|id| id.starts_with(['C', 'G'])),
        _ => None,
    };
    id.is_some_and(super::account::is_id)
}

/// A text of Slack's own markup: no character of it means anything.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_commands_work_without_a_slash() {
        for (typed, read) in [
            ("!stop", "/stop"),
            ("!Model gpt", "/Model gpt"),
            ("!stop@bot now", "/stop@bot now"),
            ("!link ABCD-EFGH", "/link ABCD-EFGH"),
            ("!nice work", "!nice work"),
            ("! stop", "! stop"),
            ("!", "!"),
            ("!!stop", "!!stop"),
            ("stop!", "stop!"),
        ] {
            assert_eq!(with_slash(typed), read);
        }
    }

    #[test]
    fn people_and_channels_can_be_named_and_nobody_is_notified() {
        let shown = |text: &str| one_message(text).unwrap().markup;
        assert_eq!(shown("hi <@U024BE7LH>, see <#C024BE91L> & go"), "hi <@U024BE7LH>, see <#C024BE91L> &amp; go");
        for text in ["<!channel>", "<!here>", "<!subteam^S1>", "<@u1>", "<@C024>", "a < b > c", "<@U1|x>"] {
            let shown = shown(text);
            assert!(!shown.contains('<') && shown.contains("&lt;"), "{shown}");
        }
    }

    #[test]
    fn every_part_fits_into_a_message_after_rendering() {
        for text in ["a&b<c> ".repeat(12_000), "**bold** [x](http://a.example/?q=1)\n\n".repeat(4_000)] {
            let parts = parts(&text);
            assert!(parts.len() > 1);
            for part in &parts {
                assert!(one_message(part).expect("one message").markup.chars().count() <= MESSAGE_MAX);
            }
        }
        assert_eq!(parts("short"), ["short"]);
        assert!(sections(&"word ".repeat(2_000)).iter().all(|part| part.chars().count() <= SECTION_MAX));
    }
}
