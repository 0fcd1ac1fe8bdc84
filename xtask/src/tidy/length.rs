//! Files and functions that are too long. Tests are not counted.

use super::Finding;
use super::source::{Source, closing};

const FILE_QUESTIONED: usize = 400;
const FILE_REFUSED: usize = 700;
const FUNCTION_REFUSED: usize = 100;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    Long(usize),
    TooLong(Finding),
}

pub(super) fn check_file(source: &Source) -> Verdict {
    let lines = source.own_lines();
    if source.is_test() || lines <= FILE_QUESTIONED {
        return Verdict::Fine;
    }
    if lines <= FILE_REFUSED {
        return Verdict::Long(lines);
    }
    let what = format!("{lines} lines without tests; the limit is {FILE_REFUSED}");
    Verdict::TooLong(Finding::new(&source.path, 1, what, "move a part of it into another file"))
}

pub(super) fn check_functions(source: &Source) -> Vec<Finding> {
    let words = source.words();
    let named = words.windows(2).filter(|pair| pair[0].1 == "fn" && !source.in_test(pair[0].0));
    let mut findings = Vec::new();
    for pair in named {
        let (start, name) = (pair[0].0, pair[1].1);
        let Some(open) = body(&source.code, pair[1].0) else { continue };
        let lines = source.line(closing(&source.code, open) - 1) - source.line(start) + 1;
        if lines > FUNCTION_REFUSED {
            let what = format!("fn {name} has {lines} lines; the limit is {FUNCTION_REFUSED}");
            findings.push(Finding::new(&source.path, source.line(start), what, "split it by responsibility"));
        }
    }
    findings
}

/// Where the body of a function begins; functions of a trait may have none.
fn body(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(lines: usize) -> Source {
        Source::new("crates/a/src/a.rs", "//! a\n".repeat(lines))
    }

    #[test]
    fn a_long_file_is_noted_and_a_longer_one_refused() {
        assert_eq!(check_file(&file(400)), Verdict::Fine);
        assert_eq!(check_file(&file(401)), Verdict::Long(401));
        assert_eq!(check_file(&file(700)), Verdict::Long(700));
        assert!(matches!(check_file(&file(701)), Verdict::TooLong(_)));
        assert_eq!(check_file(&Source::new("crates/a/tests/a.rs", "\n".repeat(900))), Verdict::Fine);
    }

    #[test]
    fn a_long_function_is_found_at_its_line() {
        let long = |lines: usize| {
            format!(
                "//! a\ntrait T {{ fn none(&self, a: [u8; 2]); }}\nfn long() {{\n{}}}\n",
                "    a();\n".repeat(lines - 2)
            )
        };
        assert_eq!(check_functions(&Source::new("a.rs", long(100))), []);
        let found = check_functions(&Source::new("a.rs", long(101)));
        assert_eq!((found.len(), found[0].line), (1, 3));
        assert!(found[0].what.contains("fn long has 101 lines"));
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{}\n}}\n", long(200));
        assert_eq!(check_functions(&Source::new("a.rs", in_test)), []);
    }
}
