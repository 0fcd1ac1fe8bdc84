//! Texts that go out: styles and length.

use frontdesk_wire::descriptor::LenUnit;

use super::MESSAGE_MAX;
use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Styled, Unit, render, styled};

/// Markers of styles are measured, but not sent.
const MARKUP_FACTOR: usize = 2;
/// A shorter part is not cut further.
const PART_MIN: usize = 64;

/// As one message. `None`: it is too long for one, or there is nothing to see in it.
pub(super) fn one_message(text: &str) -> Option<Styled> {
    let mut parts = render(Dialect::Signal, text, MARKUP_FACTOR * MESSAGE_MAX, Unit::Utf16);
    let part = parts.pop().filter(|_| parts.is_empty())?;
    Some(styled(&part.markup)).filter(|part| Unit::Utf16.measure(&part.text) <= MESSAGE_MAX)
}

pub(super) fn parts(text: &str) -> Vec<String> {
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Utf16, &|part| one_message(part).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_fits_into_a_message() {
        let text = "**bold** and `code` 😀\n".repeat(1_500);
        let parts = parts(&text);
        assert!(parts.len() > 1 && parts.iter().all(|part| one_message(part).is_some()), "{}", parts.len());
        assert!(one_message(&text).is_none() && one_message("   ").is_none());
    }
}
