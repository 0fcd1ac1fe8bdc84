//! Texts of agents as Discord takes them.

use frontdesk_wire::ActionResult;
use frontdesk_wire::descriptor::LenUnit;
use serde_json::{Value, json};

use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Unit, render};
use crate::shared::text;

pub(super) const MESSAGE_MAX: usize = 2_000;
const PART_MIN: usize = 64;

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| rendered(part).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Chars, &fits)
}

pub(super) fn rendered(text: &str) -> Option<String> {
    let mut parts = render(Dialect::Discord, text, MESSAGE_MAX, Unit::Chars);
    (parts.len() == 1).then(|| parts.remove(0).markup)
}

pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::Discord, text, MESSAGE_MAX, Unit::Chars).is_empty()
}

/// Who is pinged: users whom the text names, and the author it answers. Never `@everyone`, and no roles.
pub(super) fn allowed_mentions() -> Value {
    json!({ "parse": ["users"], "replied_user": true })
}

pub(super) fn not_one_message(content: &str) -> ActionResult {
    text::not_one_message(is_blank(content), MESSAGE_MAX, "characters")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_fits_into_a_message_after_rendering() {
        for text in ["a_b*c ".repeat(2_000), "**bold** [x](http://a.example/?q=1)\n\n".repeat(300), "😀".repeat(5_000)]
        {
            let parts = parts(&text);
            assert!(parts.len() > 1);
            for part in &parts {
                assert!(rendered(part).unwrap().chars().count() <= MESSAGE_MAX);
            }
        }
    }
}
