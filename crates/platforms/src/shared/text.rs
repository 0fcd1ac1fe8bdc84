//! Refusals of texts that cannot be sent as one message.

use frontdesk_wire::{ActionResult, Code};

/// Why a text is not exactly one message, of which `max` is the length in this unit.
pub(crate) fn not_one_message(is_blank: bool, max: usize, unit: &str) -> ActionResult {
    if is_blank { nothing_visible() } else { too_long(max, unit) }
}

pub(crate) fn nothing_visible() -> ActionResult {
    ActionResult::refused(Code::BadRequest, "the text has no visible characters; send a text that has some")
}

pub(crate) fn too_long(max: usize, unit: &str) -> ActionResult {
    ActionResult::refused(Code::TooLarge, format!("the text does not fit into one message of {max} {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_text_and_a_long_one_are_refused_differently() {
        for (is_blank, code, expected) in
            [(true, Code::BadRequest, "no visible characters"), (false, Code::TooLarge, "one message of 40 units")]
        {
            let result = not_one_message(is_blank, 40, "units");
            let text = result.error.unwrap_or_default();
            assert!(result.code == Some(code) && text.contains(expected), "{text}");
        }
    }
}
