//! Texts that grow while the agent writes them.

/// As many characters of the beginning tell whether a text completes a draft.
const ALIKE_CHARS: usize = 24;

/// Whether the final text begins as the draft that is shown. Later words may have changed since.
pub(crate) fn completes(shown: &str, text: &str) -> bool {
    let length = shown.chars().count().min(ALIKE_CHARS);
    length > 0 && shown.chars().take(length).eq(text.chars().take(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_completes_what_begins_like_it() {
        for (shown, text, expected) in [
            ("Hel", "Hello there", true),
            ("The answer to your question is", "The answer to your question is 42", true),
            ("The answer to your question is", "The answer to your question was wrong", true),
            ("Searching...", "The answer", false),
            ("Hello there", "Hel", false),
            ("", "Hello", false),
        ] {
            assert_eq!(completes(shown, text), expected, "{shown} {text}");
        }
    }
}
