//! Texts: the markup and length of what goes out, and reasons in words.

use frontdesk_wire::descriptor::LenUnit;

use super::WINDOW_CLOSED;
use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Unit, render};

pub(super) const MESSAGE_MAX: usize = 4_096;
/// Of the text above buttons, and of a caption.
pub(super) const SHORT_MAX: usize = 1_024;
/// Of the text that a template has a place for.
pub(super) const PARAMETER_MAX: usize = 1_024;
/// A shorter part is not cut further, whatever its markup needs.
const PART_MIN: usize = 64;

/// As one message with markup. `None`: it is too long for one, or there is nothing to see in it.
pub(super) fn one_message(text: &str, max: usize) -> Option<String> {
    let mut parts = render(Dialect::WhatsApp, text, max, Unit::Utf16);
    match parts.len() {
        1 => parts.pop().map(|part| part.markup),
        _ => None,
    }
}

pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::WhatsApp, text, MESSAGE_MAX, Unit::Utf16).is_empty()
}

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| one_message(part, MESSAGE_MAX).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Utf16, &fits)
}

/// For the place in a template, which takes one line without markup. `None`: it does not fit.
pub(super) fn parameter(text: &str) -> Option<String> {
    let mut parts = render(Dialect::Plain, text, MESSAGE_MAX, Unit::Utf16);
    let plain = parts.pop().filter(|_| parts.is_empty())?.plain;
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    (LenUnit::Utf16.measure(&line) <= PARAMETER_MAX).then_some(line)
}

/// The first characters of a label, with a sign that there are more.
pub(super) fn cut(label: &str, max: usize) -> String {
    let label = label.trim();
    if LenUnit::Utf16.measure(label) <= max {
        return label.to_owned();
    }
    let mut shown = String::new();
    for c in label.chars() {
        if LenUnit::Utf16.measure(&shown) + c.len_utf16() > max - 1 {
            break;
        }
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// Meta's reasons, where more can be said than Meta does.
pub(super) fn reason(code: i64, message: &str) -> String {
    match code {
        WINDOW_CLOSED => {
            "the person has not written for 24 hours, and WhatsApp then takes templates only; wait until they \
             write, or set a template (`bot add ... --set template=NAME`)"
                .to_owned()
        }
        131_026 => format!("the person cannot be reached by WhatsApp: {message}"),
        131_030 => format!("the app is in test mode, and this number is not on its list: {message}"),
        131_049 => format!("Meta holds it back, because the person gets too many such messages: {message}"),
        190 => format!("the access_token is not valid or has expired: {message}"),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_the_markup_of_whatsapp() {
        for (text, shown) in [
            ("**bold** and *italic* and ~~gone~~", "*bold* and _italic_ and ~gone~"),
            ("# Title\ntext", "*Title*\n\ntext"),
            ("[log](https://a.example/x)", "log (https://a.example/x)"),
            ("`code`", "`code`"),
        ] {
            assert_eq!(one_message(text, MESSAGE_MAX).as_deref(), Some(shown), "{text}");
        }
        assert_eq!((one_message("", MESSAGE_MAX), is_blank("\n")), (None, true));
    }

    #[test]
    fn every_part_fits_after_rendering() {
        for text in ["**bold** [x](https://a.example/?q=1)\n\n".repeat(400), "😀".repeat(6_000), "a*b_".repeat(3_000)]
        {
            let parts = parts(&text);
            assert!(parts.len() > 1);
            for part in &parts {
                let sent = one_message(part, MESSAGE_MAX).expect("one message");
                assert!(LenUnit::Utf16.measure(&sent) <= MESSAGE_MAX);
            }
        }
        assert_eq!(parts("short"), ["short"]);
    }

    #[test]
    fn labels_are_cut_and_templates_take_one_line() {
        assert_eq!(cut(" Yes ", 20), "Yes");
        assert_eq!(cut("Exactly twenty chars", 20), "Exactly twenty chars");
        assert_eq!(cut("Exactly twenty chars!", 20), "Exactly twenty char…");
        assert_eq!(LenUnit::Utf16.measure(&cut(&"😀".repeat(30), 20)), 19);
        assert_eq!(parameter("**a**\n\nb\tc   d").as_deref(), Some("a b c d"));
        assert_eq!(parameter(&"x".repeat(PARAMETER_MAX + 1)), None);
        assert_eq!(parameter(""), None);
    }
}
