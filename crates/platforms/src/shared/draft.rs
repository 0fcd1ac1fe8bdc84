//! Drafts: texts that grow while the agent writes them.

use frontdesk_core::short_hash;

/// The number of characters at the beginning that tell whether a text completes a draft.
const ALIKE_CHARS: usize = 24;

/// Whether the final text begins as the draft that is shown. Later words may have changed since.
pub(crate) fn completes(shown: &str, text: &str) -> bool {
    let length = shown.chars().count().min(ALIKE_CHARS);
    length > 0 && shown.chars().take(length).eq(text.chars().take(length))
}

/// A frame that comes this long after the final text belongs to another draft.
const LATE_MS: u64 = 10_000;
/// The same final text after this long is another one.
pub(crate) const AGAIN_MS: u64 = 60_000;

/// Whether a draft has its final text.
///
/// Agents number their drafts from the beginning at each start, so the id of a finished draft is used again later.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seal(Option<([u8; 16], u64)>);

impl Seal {
    pub(crate) fn close(&mut self, text: &str, now_ms: u64) {
        self.0 = Some((short_hash(&[text]), now_ms));
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_some()
    }

    /// Whether this frame belongs to a later draft with the same id.
    pub(crate) fn is_of_another(&self, text: &str, sealed: bool, now_ms: u64) -> bool {
        self.0.is_some_and(|(hash, at_ms)| {
            let since_ms = now_ms.saturating_sub(at_ms);
            match sealed {
                true => since_ms >= AGAIN_MS || hash != short_hash(&[text]),
                false => since_ms >= LATE_MS,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_comes_again_is_of_another_draft() {
        let mut seal = Seal::default();
        assert!(!seal.is_closed() && !seal.is_of_another("Hello", true, 5));
        seal.close("Hello Ann", 5);
        for (text, sealed, at_ms, another) in [
            ("Hello Ann", true, 5, false),
            ("Hello Ann", true, 4 + AGAIN_MS, false),
            ("Hello Ann", true, 5 + AGAIN_MS, true),
            ("Hello Bob", true, 5, true),
            ("Hel", false, 4 + LATE_MS, false),
            ("Hel", false, 5 + LATE_MS, true),
        ] {
            assert_eq!(seal.is_of_another(text, sealed, at_ms), another, "{text} {sealed} {at_ms}");
        }
        assert!(seal.is_closed());
    }

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
