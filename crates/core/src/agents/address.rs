//! Addresses: `agent` or `agent@session`. An id may contain an `@` itself (e-mail addresses do), so the end of the
//! id is found by comparing with the registered ids.

use crate::directory::ID_MAX_CHARS;

/// A parsed address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address<'a> {
    pub agent: &'a str,
    pub session: Option<&'a str>,
}

/// Longer addresses cannot be valid. Enough for two ids with characters of up to four bytes, and the `@`.
pub const ADDRESS_MAX_BYTES: usize = 2 * 4 * ID_MAX_CHARS + 1;

/// An exact id wins, without a session; otherwise the longest registered id that is followed by an `@`.
pub fn resolve(address: &str, is_registered: impl Fn(&str) -> bool) -> Option<Address<'_>> {
    if address.len() > ADDRESS_MAX_BYTES {
        return None; // each `@` of it would be the end of an id to look for
    }
    if is_registered(address) {
        return Some(Address { agent: address, session: None });
    }
    let ends = address.rmatch_indices('@').map(|(at, _)| (&address[..at], &address[at + 1..]));
    let found = ends.into_iter().find(|(agent, _)| is_registered(agent));
    found.map(|(agent, session)| Address { agent, session: Some(session).filter(|it| !it.is_empty()) })
}

/// For `notify`: an `@` anywhere in the address means wake. There is no escape.
pub fn is_wake(address: &str) -> bool {
    address.contains('@')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(registered: &[&str], address: &str) -> Option<(String, Option<String>)> {
        let found = resolve(address, |id| registered.contains(&id));
        found.map(|it| (it.agent.to_owned(), it.session.map(str::to_owned)))
    }

    #[allow(clippy::unnecessary_wraps)] // compared with the Option that resolve() returns
    fn is(agent: &str, session: Option<&str>) -> Option<(String, Option<String>)> {
        Some((agent.to_owned(), session.map(str::to_owned)))
    }

    #[test]
    fn rule_2_the_exact_id_wins_then_the_longest_prefix() {
        assert_eq!(with(&["alice"], "alice"), is("alice", None));
        assert_eq!(with(&["alice"], "alice@term-1"), is("alice", Some("term-1")));
        assert_eq!(with(&["a@b.example"], "a@b.example"), is("a@b.example", None));
        assert_eq!(with(&["a@b.example"], "a@b.example@tab"), is("a@b.example", Some("tab")));
        assert_eq!(with(&["a", "a@b"], "a@b@c"), is("a@b", Some("c")));
        assert_eq!(with(&["a"], "a@b@c"), is("a", Some("b@c")));
        assert_eq!(with(&["a", "a@b"], "a@b"), is("a@b", None));
        assert_eq!(with(&["alice"], "alice@"), is("alice", None));
        assert_eq!(with(&["alice"], "alicee@x"), None);
        assert_eq!(with(&["alice"], "@alice"), None);
        assert_eq!(with(&["alice"], "bob@alice"), None);
        assert_eq!(with(&["alice"], ""), None);
        let long = |session: usize| format!("alice@{}", "s".repeat(session));
        assert_eq!(with(&["alice"], &long(ADDRESS_MAX_BYTES - 6)).unwrap().0, "alice");
        let looked_up = std::cell::Cell::new(0);
        let count = |_: &str| {
            looked_up.set(looked_up.get() + 1);
            false
        };
        assert_eq!((resolve(&long(ADDRESS_MAX_BYTES - 5), count), looked_up.get()), (None, 0));
    }

    #[test]
    fn rule_1_an_at_means_wake() {
        for (address, wake) in [("alice", false), ("alice@t", true), ("a@b.example", true), ("@", true), ("", false)] {
            assert_eq!(is_wake(address), wake, "{address}");
        }
    }
}
