//! Texts of users in columns of Postgres, which cannot hold U+0000.

use std::borrow::Cow;

use tokio_postgres::Row;

/// A noncharacter, which texts do not contain in practice. The character after it says what is meant.
const ESCAPE: char = '\u{10ffff}';

/// The text as a column can hold it.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    if !text.contains(['\0', ESCAPE]) {
        return text.into();
    }
    let mut kept = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        match letter {
            '\0' => kept.extend([ESCAPE, '0']),
            ESCAPE => kept.extend([ESCAPE, '1']),
            other => kept.push(other),
        }
    }
    kept.into()
}

/// The text as it was given.
pub(super) fn given(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    text.replace("\u{10ffff}0", "\0").replace("\u{10ffff}1", "\u{10ffff}")
}

pub(super) fn text_at(row: &Row, column: usize) -> String {
    given(row.get(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        for text in ["", "plain", "\0", "a\0b", "\u{10ffff}", "\u{10ffff}0\0", "\u{10ffff}\u{10ffff}1", "1\u{10ffff}1"]
        {
            assert!(!kept(text).contains('\0'));
            assert_eq!(given(kept(text).into_owned()), text);
        }
    }
}
