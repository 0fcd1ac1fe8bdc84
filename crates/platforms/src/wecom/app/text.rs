//! Texts: the length of what goes out, which `WeCom` counts in bytes.

use frontdesk_wire::descriptor::LenUnit;

use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Unit, render};

pub(super) const MESSAGE_MAX_BYTES: usize = 2_048;
/// A shorter part is not cut further.
const PART_MIN: usize = 64;

/// As one message without markup: members who use `WeChat` see no other. `None`: it is too long for one, or there is nothing to
/// see in it.
pub(super) fn one_message(text: &str) -> Option<String> {
    let mut parts = render(Dialect::Plain, text, MESSAGE_MAX_BYTES, Unit::Bytes);
    match parts.len() {
        1 => parts.pop().map(|part| part.plain),
        _ => None,
    }
}

pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::Plain, text, MESSAGE_MAX_BYTES, Unit::Bytes).is_empty()
}

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| one_message(part).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX_BYTES, PART_MIN, LenUnit::Chars, &fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_measured_in_bytes() {
        for text in ["ä".repeat(5_000), "你好，世界。".repeat(2_000), "🙂 ".repeat(3_000), "a b\n".repeat(4_000)]
        {
            let parts = parts(&text);
            let together: String = parts.concat().split_whitespace().collect();
            assert_eq!(together, text.split_whitespace().collect::<String>());
            for part in &parts {
                let sent = one_message(part).unwrap();
                assert!((1..=MESSAGE_MAX_BYTES).contains(&sent.len()), "{} bytes", sent.len());
            }
        }
        assert_eq!(parts("short"), ["short"]);
        assert_eq!(one_message(&"你".repeat(683)), None, "2049 bytes");
        assert_eq!(one_message(&"你".repeat(682)).map(|text| text.len()), Some(2_046));
        assert_eq!(one_message("**bold** [x](https://a.example)").as_deref(), Some("bold x (https://a.example)"));
    }
}
