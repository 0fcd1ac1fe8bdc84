//! Every file begins with a comment on its purpose.

use super::Finding;
use super::source::Source;

pub(super) fn check(source: &Source) -> Option<Finding> {
    let first = source.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let said = first.strip_prefix("//!").is_some_and(|text| !text.trim().is_empty());
    let fix = "begin the file with a `//!` line on its purpose";
    (!said).then(|| Finding::new(&source.path, 1, "the file does not state its purpose", fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_must_state_its_purpose() {
        assert_eq!(check(&Source::new("a.rs", "\n//! The door.\nfn a() {}\n")), None);
        for text in ["", "fn a() {}\n//! late\n", "//!\nfn a() {}", "// plain\n", "#![no_main]\n//! late"] {
            assert!(check(&Source::new("a.rs", text)).is_some(), "{text}");
        }
    }
}
