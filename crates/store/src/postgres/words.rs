//! Words of a text, as the index of the embedded store has them (FTS5, `unicode61 remove_diacritics 2`): letters and digits
//! in a row, without case, and Latin letters without their marks.

use unicode_normalization::char::decompose_canonical;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// Marks that belong to the word they are in, and are left out of it: bits from U+0300 on.
const MARKS: u64 = 0x0003_61f8_0802_9fdf;

/// The words of a text, in order.
pub(super) fn words(text: &str) -> Words<'_> {
    Words { rest: text }
}

pub(super) struct Words<'a> {
    rest: &'a str,
}

impl Iterator for Words<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let begin = self.rest.find(is_letter)?;
        let word = &self.rest[begin..];
        let end = word.find(|letter| !is_letter(letter) && !is_mark(letter)).unwrap_or(word.len());
        self.rest = &word[end..];
        Some(word[..end].chars().filter(|letter| !is_mark(*letter)).map(folded).collect())
    }
}

fn is_letter(letter: char) -> bool {
    if letter.is_ascii() {
        return letter.is_ascii_alphanumeric();
    }
    matches!(letter.general_category_group(), GeneralCategoryGroup::Letter | GeneralCategoryGroup::Number)
        || letter.general_category() == GeneralCategory::PrivateUse
}

fn is_mark(letter: char) -> bool {
    let bit = u32::from(letter).wrapping_sub(0x300);
    bit < 64 && MARKS >> bit & 1 == 1
}

fn folded(letter: char) -> char {
    if letter.is_ascii() {
        return letter.to_ascii_lowercase();
    }
    let letter = without_case(letter);
    let mut base = None;
    decompose_canonical(letter, |part| {
        base.get_or_insert(part);
    });
    base.filter(char::is_ascii_alphabetic).map_or(letter, |base| base.to_ascii_lowercase())
}

/// By way of the capital letter, so that several small ones of it are the same: σ and ς. The capital of the dotless i is I,
/// but it is another letter.
fn without_case(letter: char) -> char {
    let capital = if letter == 'ı' { letter } else { only(letter, letter.to_uppercase()) };
    only(letter, capital.to_lowercase())
}

/// Folding keeps the number of letters.
fn only(letter: char, mut folded: impl Iterator<Item = char>) -> char {
    match (folded.next(), folded.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn index() -> Connection {
        let index = Connection::open_in_memory().unwrap();
        let sql = "CREATE VIRTUAL TABLE it USING fts5 (text, tokenize = \"unicode61 remove_diacritics 2\");
                   CREATE VIRTUAL TABLE word USING fts5vocab (it, instance);";
        index.execute_batch(sql).unwrap();
        index
    }

    fn words_of_index(texts: &[String]) -> Vec<Vec<String>> {
        let index = index();
        let writing = index.unchecked_transaction().unwrap();
        for (number, text) in (0_u32..).zip(texts) {
            writing.execute("INSERT INTO it (rowid, text) VALUES (?1, ?2)", (number, text)).unwrap();
        }
        writing.commit().unwrap();
        let mut query = index.prepare("SELECT doc, term FROM word ORDER BY doc, offset").unwrap();
        let mut found = vec![Vec::new(); texts.len()];
        let rows = query.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get(1)?))).unwrap();
        rows.for_each(|row| row.map(|(doc, term)| found[doc as usize].push(term)).unwrap());
        found
    }

    /// Blocks in which the tables of FTS5, which are older than ours, know nearly every letter.
    fn letters() -> Vec<char> {
        let blocks = [
            0x00..=0x36f,    // Latin, marks
            0x370..=0x527,   // Greek, Cyrillic
            0x5d0..=0x5f4,   // Hebrew
            0x620..=0x6ff,   // Arabic
            0x900..=0x977,   // Devanagari
            0xe00..=0xe7f,   // Thai
            0x10d0..=0x10f0, // Georgian
            0x1100..=0x11ff, // Hangul
            0x1e00..=0x1fff, // more of Latin and Greek
            0x2000..=0x205f, // punctuation
            0x2070..=0x20b5, // small digits, currencies
            0x2100..=0x2189, // letters as symbols, fractions
            0x2460..=0x24ff, // digits in circles
            0x3000..=0x30ff, // Kana
            0x4e00..=0x4e80, // Han
            0xac00..=0xac80, // Hangul
            0xe000..=0xe010, // private
            0xfb00..=0xfb06, // ligatures
            0xff00..=0xffef, // wide
            0x10400..=0x1044f,
            0x1d400..=0x1d4ff, // mathematical
            0x1f600..=0x1f640, // faces
        ];
        // Letters that are newer, and one whose two marks FTS5 does not know.
        let other = ['\u{37f}', 'Ǡ', 'ǡ', '\u{2065}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}'];
        let known = |letter: &char| letter.general_category() != GeneralCategory::Unassigned && !other.contains(letter);
        blocks.into_iter().flatten().filter_map(char::from_u32).filter(known).collect()
    }

    #[test]
    fn every_letter_is_as_in_the_embedded_store() {
        let texts: Vec<String> = letters().iter().map(|letter| format!("q{letter}Q {letter} {letter}1")).collect();
        for (text, theirs) in texts.iter().zip(words_of_index(&texts)) {
            assert_eq!(words(text).collect::<Vec<_>>(), theirs, "{text:?}");
        }
    }

    #[test]
    fn texts_are_as_in_the_embedded_store() {
        let letters = letters();
        let mut state = 7_u64;
        let mut dice = |sides: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % sides
        };
        let mut text = |length: usize| -> String {
            let letter = |_| match dice(4) {
                0 => [' ', '-', '\n', '\u{301}', '"'][dice(5)],
                1 => ['a', 'B', 'é', '7', 'ß'][dice(5)],
                _ => letters[dice(letters.len())],
            };
            (0..length).map(letter).collect()
        };
        let texts: Vec<String> = (0..2_000).map(|number| text(number % 60)).collect();
        for (text, theirs) in texts.iter().zip(words_of_index(&texts)) {
            assert_eq!(words(text).collect::<Vec<_>>(), theirs, "{text:?}");
        }
    }

    #[test]
    fn case_and_marks_do_not_matter() {
        let of = |text| words(text).collect::<Vec<_>>();
        assert_eq!(of("Das CAFÉ, cafe\u{301} im İß"), ["das", "cafe", "cafe", "im", "iß"]);
        assert_eq!(of("ΣΊΣΥΦΟΣ σίσυφος"), ["σίσυφοσ", "σίσυφοσ"]);
        assert_eq!(of("\u{301}x\0y 3.50 ☃"), ["x", "y", "3", "50"]);
        assert_eq!(of(""), [""; 0]);
    }
}
