//! The paths that a file names: its `use` declarations, expanded, and the qualified paths in its code.
//!
//! A path that begins with an imported name is expanded: after `use std::time::Instant`, the call `Instant::now()` is
//! reported as `std::time::Instant::now`.

use std::collections::HashMap;
use std::ops::Range;

use super::source::{Source, words};

/// One path in a file, for example `crate::gate::Verdict`. A glob import ends with `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// Byte offset.
    pub(super) at: usize,
    pub(super) path: Vec<String>,
    /// The name that a `use` declaration gives it in this file. `None`: a path in the code.
    pub(super) local: Option<String>,
    /// It is in a `pub use` declaration, of any visibility.
    pub(super) is_reexport: bool,
}

impl Named {
    pub(super) fn joined(&self) -> String {
        self.path.join("::")
    }

    /// Whether this is the path or below it.
    pub(super) fn is_under(&self, path: &str) -> bool {
        let joined = self.joined();
        joined.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    }
}

/// All paths of the file outside of its tests, in order.
pub(super) fn paths(source: &Source) -> Vec<Named> {
    let declarations = declarations(&source.code);
    let mut found = Vec::new();
    for (range, is_reexport) in &declarations {
        let known = found.len();
        read_tree(&source.code, range.clone(), &[], &mut found);
        found[known..].iter_mut().for_each(|named| named.is_reexport = *is_reexport);
    }
    let locals: HashMap<String, Vec<String>> = found
        .iter()
        .filter_map(|named| Some((named.local.clone()?, named.path.clone())))
        .filter(|(local, path)| path.last().is_some_and(|last| last != "*") && local != "_")
        .collect();
    for mut named in qualified(&source.code) {
        if declarations.iter().any(|(range, _)| range.contains(&named.at)) {
            continue;
        }
        if let Some(whole) = locals.get(&named.path[0]) {
            named.path.splice(..1, whole.iter().cloned());
        }
        found.push(named);
    }
    found.retain(|named| !source.in_test(named.at));
    found.sort_by_key(|named| named.at);
    found
}

/// The text between `use` and `;` of every declaration, and whether it is public.
pub(super) fn declarations(code: &str) -> Vec<(Range<usize>, bool)> {
    let mut found = Vec::new();
    for (at, word) in words(code) {
        let begins = at + word.len();
        // `impl Trait + use<'a>` is not a declaration.
        if word != "use" || code[begins..].trim_start().starts_with('<') {
            continue;
        }
        let before = code[..at].trim_end();
        let is_public = before.ends_with("pub") || before.ends_with(')');
        let begins_item = is_public || before.is_empty() || before.ends_with([';', '{', '}', ']']);
        if let (true, Some(length)) = (begins_item, code[begins..].find(';')) {
            found.push((begins..begins + length, is_public));
        }
    }
    found
}

/// Parses a `use` tree, for example `a::{b, c as d, e::{self, *}}`.
fn read_tree(code: &str, range: Range<usize>, prefix: &[String], found: &mut Vec<Named>) {
    let mut path = prefix.to_vec();
    let mut at = range.start;
    let mut first = None;
    while at < range.end {
        let rest = &code[at..range.end];
        let blank = rest.len() - rest.trim_start().len();
        let rest = rest.trim_start();
        at += blank;
        if rest.starts_with("::") {
            at += 2;
        } else if rest.starts_with('{') {
            let inside = at + 1..range.start + code[range.clone()].rfind('}').unwrap_or(range.len());
            for branch in branches(code, inside) {
                read_tree(code, branch, &path, found);
            }
            return;
        } else if rest.starts_with('*') {
            path.push("*".into());
            found.push(Named { at: first.unwrap_or(at), path, local: Some("*".into()), is_reexport: false });
            return;
        } else {
            let rest = rest.strip_prefix("r#").unwrap_or(rest);
            let Some((_, word)) = words(rest).into_iter().next().filter(|(start, _)| *start == 0) else { break };
            if word == "as" {
                let local = words(&rest[2..]).first().map(|(_, name)| (*name).to_owned());
                push_leaf(path, local, first.unwrap_or(at), found);
                return;
            }
            first = first.or(Some(at));
            path.push(word.to_owned());
            at = range.end - rest.len() + word.len();
        }
    }
    if let Some(first) = first {
        push_leaf(path, None, first, found);
    }
}

fn push_leaf(mut path: Vec<String>, local: Option<String>, at: usize, found: &mut Vec<Named>) {
    // `a::{self}` is `a`; a lone `self` is kept.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let local = local.or_else(|| path.last().cloned());
    found.push(Named { at, path, local, is_reexport: false });
}

/// The parts between the commas of the outermost level.
fn branches(code: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let (mut found, mut depth, mut from) = (Vec::new(), 0usize, range.start);
    for (offset, byte) in code[range.clone()].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(from..range.start + offset);
                from = range.start + offset + 1;
            }
            _ => {}
        }
    }
    found.push(from..range.end);
    found
}

/// `a::b::c` anywhere in the code. What follows a generic argument or a type in `<>` is not a separate path.
fn qualified(code: &str) -> Vec<Named> {
    let words = words(code);
    let mut found: Vec<Named> = Vec::new();
    let mut next = 0;
    while next < words.len() {
        let (at, word) = words[next];
        next += 1;
        if code[..at].ends_with("::") {
            continue;
        }
        let mut path = vec![word.to_owned()];
        let mut end = at + word.len();
        while let Some((start, segment)) = words.get(next).filter(|(start, _)| &code[end..*start] == "::") {
            path.push((*segment).to_owned());
            end = start + segment.len();
            next += 1;
        }
        if path.len() > 1 {
            found.push(Named { at, path, local: None, is_reexport: false });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(text: &str) -> Vec<String> {
        paths(&Source::new("crates/a/src/a.rs", text)).iter().map(Named::joined).collect()
    }

    #[test]
    fn a_use_tree_is_expanded() {
        let text =
            "pub(crate) use crate::{a::{self, B as C}, d::*};\nuse ::std::time::Instant;\n#[x]\npub use super::r#type;";
        assert_eq!(
            joined(text),
            ["crate::a", "crate::a::B", "crate::d::*", "std::time::Instant", "super::type"],
            "{:?}",
            joined(text)
        );
        let named = paths(&Source::new("a.rs", text));
        let locals: Vec<&str> = named.iter().filter_map(|named| named.local.as_deref()).collect();
        assert_eq!(locals, ["a", "C", "*", "Instant", "type"]);
        let public: Vec<bool> = named.iter().map(|named| named.is_reexport).collect();
        assert_eq!(public, [true, true, true, false, true]);
        assert_eq!(&text[named[1].at..named[1].at + 6], "B as C");
    }

    #[test]
    fn a_path_in_the_code_is_expanded_by_the_imports() {
        let text = "use std::time::{self, Instant as Tick};\nfn f() -> time::Duration { Tick::now(); b::c::<D>() }";
        assert_eq!(joined(text)[2..], ["std::time::Duration", "std::time::Instant::now", "b::c"]);
    }

    #[test]
    fn strings_comments_tests_and_captures_are_not_paths() {
        let text =
            "// use a::b;\nfn f() -> impl T + use<'a> { \"c::d\"; }\n#[cfg(test)]\nmod tests { use super::*; }\n";
        assert_eq!(joined(text), Vec::<String>::new());
        assert_eq!(joined("fn f() { <T as a::B>::c(); }"), ["a::B"]);
    }

    #[test]
    fn a_path_is_under_another_only_at_a_border() {
        let named = Named { at: 0, path: vec!["std".into(), "time".into()], local: None, is_reexport: false };
        assert!(named.is_under("std") && named.is_under("std::time"));
        assert!(!named.is_under("st") && !named.is_under("std::time::Instant"));
    }
}
