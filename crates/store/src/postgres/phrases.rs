//! The phrases of a query: each is one or more words in a row.

use std::collections::HashSet;

use super::words::words;

pub(super) struct Phrases(Vec<Vec<String>>);

impl Phrases {
    /// Phrases without a word are left out.
    pub(super) fn of(asked: &[String]) -> Self {
        Self(asked.iter().map(|phrase| words(phrase).collect()).filter(|phrase: &Vec<_>| !phrase.is_empty()).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them has several words.
    pub(super) fn has_long(&self) -> bool {
        self.0.iter().any(|phrase| phrase.len() > 1)
    }

    pub(super) fn words(&self) -> impl Iterator<Item = &String> {
        self.0.iter().flatten()
    }

    /// Number of hits in a text; overlapping hits count as one. `None`: at least one phrase does not occur.
    pub(super) fn hits(&self, text: &str) -> Option<usize> {
        let longest = self.0.iter().map(Vec::len).max()?;
        // Keeps only the last words, as many as the longest phrase has.
        let mut last: std::collections::VecDeque<String> = std::collections::VecDeque::with_capacity(longest);
        let mut seen = HashSet::new();
        let mut found: Vec<(usize, usize)> = Vec::new();
        for (place, word) in words(text).enumerate() {
            if last.len() == longest {
                last.pop_front();
            }
            last.push_back(word);
            for (number, phrase) in self.0.iter().enumerate() {
                if last.len() >= phrase.len() && last.iter().skip(last.len() - phrase.len()).eq(phrase) {
                    seen.insert(number);
                    found.push((place + 1 - phrase.len(), place));
                }
            }
        }
        (seen.len() == self.0.len()).then(|| separate(found))
    }
}

/// The number of runs of words that are left when those that share a word are joined.
fn separate(mut found: Vec<(usize, usize)>) -> usize {
    found.sort_unstable();
    let (mut count, mut end) = (0, None);
    for (begin, last) in found {
        if end.is_none_or(|end| begin > end) {
            count += 1;
        }
        end = end.max(Some(last));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(phrases: &[&str], text: &str) -> Option<usize> {
        let phrases: Vec<String> = phrases.iter().map(|&phrase| phrase.into()).collect();
        Phrases::of(&phrases).hits(text)
    }

    #[test]
    fn all_phrases_must_occur() {
        assert_eq!(hits(&["tea"], "Tea, tea and TEA"), Some(3));
        assert_eq!(hits(&["user-guide"], "the user guide of a user"), Some(1));
        assert_eq!(hits(&["user-guide"], "guide of a user"), None);
        assert_eq!(hits(&["a", "b"], "a a"), None);
        assert_eq!(hits(&["a", "b"], "a b a"), Some(3));
    }

    #[test]
    fn occurrences_that_share_a_word_are_one() {
        assert_eq!(hits(&["a", "a"], "a a"), Some(2));
        assert_eq!(hits(&["a b", "b c"], "a b c a b"), Some(2));
        assert_eq!(hits(&["a a"], "a a a a"), Some(1));
        assert_eq!(hits(&["a b c", "b"], "b a b c"), Some(2));
    }

    #[test]
    fn a_phrase_without_words_tells_nothing() {
        assert_eq!(hits(&["a", "☃"], "a"), Some(1));
        assert!(Phrases::of(&["\"".into()]).is_empty());
    }
}
