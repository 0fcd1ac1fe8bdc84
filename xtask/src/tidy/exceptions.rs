//! Exceptions of the rules: `xtask/tidy.toml`. An entry that is no longer needed is itself a finding, so the list only
//! shrinks.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use toml::{Table, Value};

use super::Finding;

pub(super) const FILE: &str = "xtask/tidy.toml";

/// Exceptions of all rules.
#[derive(Debug, Default)]
pub(super) struct Exceptions {
    text: String,
    lists: BTreeMap<String, BTreeSet<String>>,
    /// Files that import each other in a cycle.
    pub(super) cycles: Vec<BTreeSet<String>>,
    /// Allowed number of methods of types with too many.
    pub(super) methods: BTreeMap<String, usize>,
}

impl Exceptions {
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let table: Table = text.parse().with_context(|| format!("{FILE} is not TOML"))?;
        let mut exceptions = Self { text: text.to_owned(), ..Self::default() };
        for (key, value) in &table {
            let known = match (key.as_str(), value) {
                ("methods", Value::Table(counts)) => counts.iter().all(|(name, count)| {
                    let count = count.as_integer().and_then(|count| usize::try_from(count).ok());
                    count.is_some_and(|count| exceptions.methods.insert(name.clone(), count).is_none())
                }),
                ("cycles", Value::Array(cycles)) => cycles.iter().all(|cycle| {
                    let files = texts(cycle);
                    exceptions.cycles.extend(files.clone());
                    files.is_some()
                }),
                ("fields" | "planes" | "imports", list) => {
                    let entries = texts(list);
                    exceptions.lists.extend(entries.clone().map(|entries| (key.clone(), entries)));
                    entries.is_some()
                }
                _ => false,
            };
            anyhow::ensure!(known, "{FILE}: the entry {key:?} is unknown or has the wrong type");
        }
        Ok(exceptions)
    }

    /// Removes excepted findings from `found`, and reports exceptions that are no longer needed.
    pub(super) fn filter(&self, list: &str, found: Vec<(String, Finding)>) -> Vec<Finding> {
        let none = BTreeSet::new();
        let excepted = self.lists.get(list).unwrap_or(&none);
        let present: BTreeSet<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        let stale = excepted.iter().filter(|key| !present.contains(key.as_str()));
        let mut findings: Vec<Finding> = stale.map(|key| self.stale(key)).collect();
        findings.extend(found.into_iter().filter(|(key, _)| !excepted.contains(key)).map(|(_, finding)| finding));
        findings
    }

    /// An entry that is no longer needed.
    pub(super) fn stale(&self, entry: &str) -> Finding {
        let quoted = format!("\"{entry}\"");
        let line = self.text.lines().position(|line| line.contains(&quoted)).map_or(1, |at| at + 1);
        Finding::new(FILE, line, format!("the exception {quoted} is not needed any more"), "remove this entry")
    }

    /// Number of remaining exceptions, for the last line of the report.
    pub(super) fn summary(&self) -> String {
        let count = |list: &str| self.lists.get(list).map_or(0, BTreeSet::len);
        format!(
            "exceptions left: {} cycles of files, {} imports between planes, {} types with too many methods, {} open fields, {} other imports",
            self.cycles.len(),
            count("planes"),
            self.methods.len(),
            count("fields"),
            count("imports"),
        )
    }
}

fn texts(value: &Value) -> Option<BTreeSet<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(what: &str) -> Finding {
        Finding::new("a.rs", 1, what, "")
    }

    #[test]
    fn an_exception_covers_its_own_finding_and_expires_with_it() {
        let exceptions = Exceptions::parse("fields = [\n  \"a\",\n  \"b\",\n]\n").unwrap();
        let found = exceptions.filter("fields", vec![("a".into(), finding("a")), ("c".into(), finding("c"))]);
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].file.as_str(), found[0].line), (FILE, 3), "b is stale");
        assert_eq!(found[1].what, "c");
        assert_eq!(exceptions.filter("planes", vec![]), []);
    }

    #[test]
    fn an_unknown_list_is_refused() {
        for bad in ["other = []", "fields = [1]", "methods = [\"a\"]", "cycles = [\"a.rs\"]", "methods.a = -1", "x"] {
            assert!(Exceptions::parse(bad).is_err(), "{bad}");
        }
        let read = Exceptions::parse("cycles = [[\"a.rs\", \"b.rs\"]]\nmethods.\"core::Desk\" = 50\n").unwrap();
        assert_eq!((read.cycles.len(), read.methods["core::Desk"]), (1, 50));
        assert!(read.summary().starts_with("exceptions left: 1 cycles"));
    }
}
