//! Texts: what people say to stop or get help, and what goes out as plain text in parts.

use frontdesk_wire::descriptor::LenUnit;

use crate::shared::fit::split_to_fit;
use crate::shared::markdown::{Dialect, Unit, render};

/// Of one message. Twilio counts UTF-16 units, and cuts it into segments itself.
pub(super) const MESSAGE_MAX: usize = 1_600;
/// A shorter part is not cut further.
const PART_MIN: usize = 64;

/// As one message without markup. `None`: it is too long for one, or there is nothing to see in it.
pub(super) fn one_message(text: &str) -> Option<String> {
    let mut parts = render(Dialect::Plain, text, MESSAGE_MAX, Unit::Utf16);
    match parts.len() {
        1 => parts.pop().map(|part| part.plain),
        _ => None,
    }
}

pub(super) fn is_blank(text: &str) -> bool {
    render(Dialect::Plain, text, MESSAGE_MAX, Unit::Utf16).is_empty()
}

/// In parts that each fit into a message.
pub(super) fn parts(text: &str) -> Vec<String> {
    let fits = |part: &str| one_message(part).is_some() || is_blank(part);
    split_to_fit(text, MESSAGE_MAX, PART_MIN, LenUnit::Utf16, &fits)
}

/// A word that carriers require to be obeyed. Twilio does that itself, and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keyword {
    Stop,
    Start,
    Help,
}

/// The default words of Twilio. They count only as the whole message.
const WORDS: &[(Keyword, &[&str])] = &[
    (Keyword::Stop, &["STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"]),
    (Keyword::Start, &["START", "YES", "UNSTOP"]),
    (Keyword::Help, &["HELP", "INFO"]),
];

impl Keyword {
    /// `opt_out_type` is what Twilio took it for, where the account has words of its own.
    pub(super) fn of(text: &str, opt_out_type: Option<&str>) -> Option<Self> {
        let word = opt_out_type.filter(|kind| !kind.is_empty()).unwrap_or(text).trim().to_ascii_uppercase();
        WORDS.iter().find(|(_, words)| words.contains(&word.as_str())).map(|(keyword, _)| *keyword)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_count_only_as_the_whole_message() {
        assert_eq!(Keyword::of(" Stop\n", None), Some(Keyword::Stop));
        assert_eq!(Keyword::of("unstop", None), Some(Keyword::Start));
        assert_eq!(Keyword::of("info", None), Some(Keyword::Help));
        for text in ["stop it", "please stop", "helpful", ""] {
            assert_eq!(Keyword::of(text, None), None, "{text}");
        }
        assert_eq!(Keyword::of("ARRÊT", Some("STOP")), Some(Keyword::Stop), "a word of the account");
        assert_eq!(Keyword::of("hello", Some("")), None);
    }

    #[test]
    fn markup_is_removed_and_every_part_fits() {
        assert_eq!(
            one_message("**Done.** See [the log](https://a.example/x).").unwrap(),
            "Done. See the log (https://a.example/x)."
        );
        assert_eq!((one_message(" \n"), is_blank(" \n"), is_blank("a")), (None, true, false));
        for text in ["word **bold** ".repeat(500), "😀".repeat(4_000), "x".repeat(5_000)] {
            let parts = parts(&text);
            assert!(parts.len() > 2);
            for part in &parts {
                assert!(LenUnit::Utf16.measure(&one_message(part).expect("one message")) <= MESSAGE_MAX);
            }
        }
        assert_eq!(parts("short"), ["short"]);
    }
}
