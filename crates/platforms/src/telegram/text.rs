//! Texts: mentions and commands in what comes in, markup and length of what goes out.

use frontdesk_wire::descriptor::LenUnit;

use super::update::{Entity, User};
use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Rendered, Unit, render};

/// Of one message, in UTF-16 units after its markup was read.
pub(super) const MESSAGE_MAX: usize = 4_096;
pub(super) const CAPTION_MAX: usize = 1_024;
/// Markup is never longer than this many times its text: every character escaped, and every link with its target.
const MARKUP_FACTOR: usize = 4;
/// A shorter part is not cut further, whatever its markup needs.
const PART_MIN: usize = 64;

#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Addressed {
    pub(super) is_mention: bool,
    pub(super) is_command: bool,
    /// It begins with a command that names another bot.
    pub(super) is_command_of_other: bool,
}

/// Whether the message names this bot, or begins with a command for it. Offsets count UTF-16 units.
pub(super) fn is_addressed(text: &str, entities: &[Entity], me: &User) -> Addressed {
    let units: Vec<u16> = text.encode_utf16().collect();
    let name = me.username.as_deref().unwrap_or_default();
    let mut found = Addressed::default();
    for entity in entities {
        let end = entity.offset.saturating_add(entity.length);
        let Some(shown) = units.get(entity.offset..end).map(String::from_utf16_lossy) else { continue };
        let is_us = |mention: &str| !name.is_empty() && mention.eq_ignore_ascii_case(name);
        match entity.kind.as_str() {
            "mention" => found.is_mention |= shown.strip_prefix('@').is_some_and(is_us),
            "text_mention" => found.is_mention |= entity.user.as_ref().is_some_and(|user| user.id == me.id),
            "bot_command" if entity.offset == 0 => {
                // Without a name it is for every bot in the chat.
                found.is_command = shown.split_once('@').is_none_or(|(_, of)| is_us(of));
                found.is_command_of_other = !found.is_command;
            }
            _ => {}
        }
    }
    found
}

/// The text without the mentions of this bot, unless nothing is left: `/start@desk_bot now` is `/start now`.
pub(super) fn without_mentions(text: &str, me: &User) -> String {
    let Some(name) = me.username.as_deref().filter(|name| !name.is_empty()) else { return text.to_owned() };
    let mut rest = text;
    let mut cleaned = String::with_capacity(text.len());
    while let Some((before, after)) = next_mention(rest, name) {
        cleaned.push_str(before);
        let in_command =
            before.starts_with('/') && cleaned.len() == before.len() && !before.contains(char::is_whitespace);
        rest = match in_command {
            true => after,
            false => after.trim_start_matches([',', ':', '-']).trim_start(),
        };
    }
    cleaned.push_str(rest);
    match cleaned.trim() {
        "" => text.to_owned(),
        cleaned => cleaned.to_owned(),
    }
}

/// What is before and after the next `@name` that ends there.
fn next_mention<'a>(text: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    for (at, _) in text.match_indices('@') {
        let after = &text[at + 1..];
        let Some(candidate) = after.get(..name.len()) else { continue };
        let rest = &after[name.len()..];
        let goes_on = rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
        if candidate.eq_ignore_ascii_case(name) && !goes_on {
            return Some((&text[..at], rest));
        }
    }
    None
}

/// As one message. `None`: it is too long for one, or there is nothing to see in it.
///
/// The limit is for the text that is left when the markup was read. Plain text is at least as long as that.
pub(super) fn one_message(text: &str, max: usize) -> Option<Rendered> {
    let mut parts = render(Dialect::Telegram, text, MARKUP_FACTOR * max, Unit::Utf16);
    match parts.len() {
        1 => parts.pop().filter(|part| Unit::Utf16.measure(&part.plain) <= max),
        _ => None,
    }
}

/// Whether nothing of it can be seen.
pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::Telegram, text, MESSAGE_MAX, Unit::Utf16).is_empty()
}

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| one_message(part, MESSAGE_MAX).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Utf16, &fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn me() -> User {
        User { id: 7, username: Some("Desk_bot".into()), ..User::default() }
    }

    fn entity(kind: &str, offset: usize, length: usize) -> Entity {
        Entity { kind: kind.into(), offset, length, user: None }
    }

    #[test]
    fn mentions_are_found_by_utf16_offsets() {
        let text = "👋🏽 @desk_BOT hello";
        let found = is_addressed(text, &[entity("mention", 5, 9)], &me());
        assert_eq!(found, Addressed { is_mention: true, ..Addressed::default() });
        for (offset, length) in [(0, 4), (4, 9), (5, 8), (5, 900), (usize::MAX, 2)] {
            assert_eq!(is_addressed(text, &[entity("mention", offset, length)], &me()), Addressed::default());
        }
        let mut by_id = entity("text_mention", 0, 2);
        by_id.user = Some(me());
        assert!(is_addressed("Al", &[by_id], &me()).is_mention);
    }

    #[test]
    fn commands_are_for_us_unless_they_name_another_bot() {
        let of = |text: &str, length| is_addressed(text, &[entity("bot_command", 0, length)], &me());
        let for_us = Addressed { is_command: true, ..Addressed::default() };
        assert_eq!((&of("/start", 6), &of("/start@desk_bot now", 15)), (&for_us, &for_us));
        let for_other = Addressed { is_command_of_other: true, ..Addressed::default() };
        assert_eq!(of("/start@other_bot now", 16), for_other);
    }

    #[test]
    fn mentions_of_the_bot_are_removed_and_others_stay() {
        let cleaned = |text: &str| without_mentions(text, &me());
        assert_eq!(cleaned("@desk_bot, what is up?"), "what is up?");
        assert_eq!(cleaned("hey @Desk_Bot: do it"), "hey do it");
        assert_eq!(cleaned("@desk_bot"), "@desk_bot", "an empty text says less");
        assert_eq!(cleaned("@desk_bots and @ann"), "@desk_bots and @ann");
        assert_eq!(cleaned("/start@desk_bot now"), "/start now");
        assert_eq!(cleaned("mail me@desk_botx.example"), "mail me@desk_botx.example");
    }

    #[test]
    fn every_part_fits_into_a_message_after_rendering() {
        for text in
            ["a.b!c-".repeat(3_000), "**bold** _it_ [x](http://a.example/?q=1)\n\n".repeat(400), "😀".repeat(5_000)]
        {
            let parts = parts(&text);
            assert!(parts.len() > 1);
            for part in &parts {
                let rendered = one_message(part, MESSAGE_MAX).expect("one message");
                assert!(LenUnit::Utf16.measure(&rendered.plain) <= MESSAGE_MAX);
            }
        }
        assert_eq!(parts("short"), ["short"]);
        assert!(parts("").len() <= 1);
    }
}
