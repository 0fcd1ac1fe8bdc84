//! Meaningless names of files, modules and types. Methods and variables are not checked.

use super::Finding;
use super::source::{Source, parts};

const EMPTY_NAMES: [&str; 8] = ["manager", "managers", "util", "utils", "utility", "helper", "helpers", "common"];
const FIX: &str = "name it after what it holds or does";

pub(super) fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folders_and_stem = source.path.trim_end_matches(".rs").split('/');
    if let Some(part) = folders_and_stem.into_iter().find(|part| is_empty_name(part)) {
        findings.push(Finding::new(&source.path, 1, format!("{part:?} in the path is a meaningless name"), FIX));
    }
    for pair in source.words().windows(2) {
        let ((_, before), (at, name)) = (pair[0], pair[1]);
        let declares = matches!(before, "mod" | "struct" | "enum" | "trait" | "type" | "union");
        if declares && is_empty_name(name) {
            findings.push(Finding::new(
                &source.path,
                source.line(at),
                format!("{before} {name} is a meaningless name"),
                FIX,
            ));
        }
    }
    findings
}

fn is_empty_name(name: &str) -> bool {
    parts(name).iter().any(|part| EMPTY_NAMES.contains(&part.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_modules_and_types_are_checked_and_methods_are_not() {
        for (path, text) in [
            ("crates/a/src/util.rs", ""),
            ("crates/a/src/common/door.rs", ""),
            ("crates/a/src/http_helpers.rs", ""),
            ("a.rs", "mod utils;"),
            ("a.rs", "struct ConnectionManager;"),
            ("a.rs", "enum CommonThings {}"),
        ] {
            assert_eq!(check(&Source::new(path, text)).len(), 1, "{path} {text}");
        }
        for text in [
            "fn common_bot(&self) {}",
            "use redis::ConnectionManager;",
            "// struct Util",
            "let common = 1;",
            "struct Commons;",
        ] {
            assert_eq!(check(&Source::new("a.rs", text)), [], "{text}");
        }
    }
}
