//! The exact output for each file in `goldens/`. `NAME.md` is rendered with the vendors' limits, `NAME.120.md` with a
//! limit of 120. `UPDATE_GOLDENS=1` writes the outputs again.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::super::{Dialect, Unit};
use super::judge::judged;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shared/markdown/goldens")
}

/// Names of the inputs, in order.
pub(super) fn inputs() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    all.sort();
    all
}

fn output(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let own_limit = path.file_stem().and_then(|stem| Path::new(stem).extension()?.to_str()?.parse().ok());
    let mut out = String::new();
    for (dialect, limit, unit) in [
        (Dialect::Telegram, 4_096, Unit::Utf16),
        (Dialect::Matrix, 16_000, Unit::Chars),
        (Dialect::Discord, 2_000, Unit::Chars),
        (Dialect::Slack, 39_000, Unit::Chars),
        (Dialect::WhatsApp, 4_096, Unit::Chars),
        (Dialect::Plain, 1_600, Unit::Chars),
    ] {
        let parts = judged(dialect, &text, own_limit.unwrap_or(limit), unit);
        for (at, part) in parts.iter().enumerate() {
            // Characters that are not seen are shown here.
            let shown = part.markup.replace('\u{200B}', "{ZWSP}");
            writeln!(out, "=== {dialect:?} {}/{}\n{shown}", at + 1, parts.len()).unwrap();
        }
    }
    out
}

#[test]
fn outputs_are_as_recorded() {
    let inputs = inputs();
    assert!(inputs.len() >= 15);
    let mut different = Vec::new();
    for path in inputs {
        let out = output(&path);
        let expected = path.with_extension("out");
        if std::env::var_os("UPDATE_GOLDENS").is_some() {
            std::fs::write(&expected, &out).unwrap();
        } else if std::fs::read_to_string(&expected).unwrap_or_default() != out {
            different.push(format!("{}:\n{out}", path.display()));
        }
    }
    assert!(different.is_empty(), "{} differ; UPDATE_GOLDENS=1 accepts:\n{}", different.len(), different.join("\n"));
}
