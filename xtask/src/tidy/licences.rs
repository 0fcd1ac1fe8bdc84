//! Checks licence expressions (SPDX) against the list in `deny.toml`.

use std::collections::BTreeSet;

/// Whether the allowed licences satisfy the expression: one side of `OR`, both sides of `AND`. An exception (`WITH`) is
/// part of the name and must be allowed with it.
pub(super) fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let mut tokens = tokens(expression);
    tokens.reverse();
    let verdict = either(&mut tokens, allowed);
    verdict.is_some_and(|verdict| verdict && tokens.is_empty())
}

/// Words and parentheses. Old manifests have `MIT/Apache-2.0`, which means `OR`.
fn tokens(expression: &str) -> Vec<String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    spaced.split_whitespace().map(str::to_owned).collect()
}

// These functions take tokens from the end of the reversed list; `None`: the expression is malformed.

fn either(tokens: &mut Vec<String>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut verdict = both(tokens, allowed)?;
    while tokens.pop_if(|token| token == "OR").is_some() {
        verdict |= both(tokens, allowed)?;
    }
    Some(verdict)
}

fn both(tokens: &mut Vec<String>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut verdict = one(tokens, allowed)?;
    while tokens.pop_if(|token| token == "AND").is_some() {
        verdict &= one(tokens, allowed)?;
    }
    Some(verdict)
}

fn one(tokens: &mut Vec<String>, allowed: &BTreeSet<String>) -> Option<bool> {
    let mut name = tokens.pop()?;
    if name == "(" {
        let verdict = either(tokens, allowed)?;
        return tokens.pop().filter(|token| token == ")").map(|_| verdict);
    }
    if ["OR", "AND", "WITH", ")"].contains(&name.as_str()) {
        return None;
    }
    if tokens.pop_if(|token| token == "WITH").is_some() {
        name = format!("{name} WITH {}", tokens.pop()?);
    }
    Some(allowed.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_evaluated() {
        let allowed: BTreeSet<String> = ["MIT", "Apache-2.0", "ISC"].map(str::to_owned).into();
        for good in [
            "MIT",
            "GPL-3.0 OR MIT",
            "MIT/Apache-2.0",
            "Unlicense / MIT",
            "ISC AND (Apache-2.0 OR GPL-2.0)",
            "GPL-3.0 OR MIT AND ISC",
            "Apache-2.0 WITH LLVM-exception OR MIT",
        ] {
            assert!(is_allowed(good, &allowed), "{good}");
        }
        for bad in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "(MIT OR ISC) AND GPL-3.0",
            "Apache-2.0 WITH LLVM-exception",
            "",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT ISC",
            "AND MIT",
        ] {
            assert!(!is_allowed(bad, &allowed), "{bad}");
        }
    }
}
