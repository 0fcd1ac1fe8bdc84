//! What the source of a crate may name: the rules of `edges` for `use` lines and paths, and modules of the standard
//! library and of our own crates that some crates must not use. `adapters.rs` has more for platforms.

use super::Finding;
use super::adapters;
use super::edges::refusal_in_source;
use super::exceptions::Exceptions;
use super::modules::Crate;
use super::paths::{Named, paths};
use super::source::Source;

struct Ban {
    /// Folders under `crates/`.
    crates: &'static [&'static str],
    paths: &'static [&'static str],
    /// Files, or folders with a final `/`, that may use it.
    except: &'static [&'static str],
    why: &'static str,
}

const BANS: [Ban; 5] = [
    Ban {
        crates: &["wire", "core"],
        paths: &[
            "std::time::SystemTime",
            "std::time::Instant::now",
            "tokio::time::Instant::now",
            "jiff::Timestamp::now",
            "jiff::Zoned::now",
        ],
        except: &[],
        why: "take the time from `Env` or as an argument, so that tests can move it",
    },
    Ban {
        crates: &["wire", "core"],
        paths: &["rand", "getrandom", "fastrand", "aws_lc_rs::rand::fill"],
        except: &[],
        why: "take randomness from `Env`, so that tests can repeat it",
    },
    Ban {
        crates: &["wire", "core"],
        paths: &[
            "std::env",
            "std::fs",
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::UdpSocket",
            "std::process",
            "std::thread",
            "tokio::fs",
            "tokio::net",
            "tokio::process",
        ],
        except: &[],
        why: "this crate has no I/O: add a port to `crates/core/src/port/` and implement it in a higher crate",
    },
    Ban {
        crates: &["wire"],
        paths: &["std::io", "futures_core", "async_trait"],
        except: &[],
        why: "wire has only data types: no runtime and no I/O",
    },
    Ban {
        crates: &["frontdesk"],
        paths: &["frontdesk_store"],
        except: &["crates/frontdesk/src/app.rs", "crates/frontdesk/src/bench/"],
        why: "only app.rs names a concrete backend: take the port from `frontdesk_core::port` as an argument",
    },
];

pub(super) fn check(sources: &[Source], crates: &[Crate<'_>], exceptions: &Exceptions) -> Vec<Finding> {
    let found = sources.iter().flat_map(look).chain(adapters::look(crates));
    exceptions.filter("imports", found.collect())
}

/// Findings with the key of their exception: `file: path`.
fn look(source: &Source) -> Vec<(String, Finding)> {
    let Some((folder, _)) = source.path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/")) else {
        return Vec::new();
    };
    if source.is_test() {
        return Vec::new();
    }
    let mut found: Vec<(String, Finding)> = Vec::new();
    for named in paths(source) {
        let Some((what, why)) = refusal(folder, &source.path, &named) else { continue };
        let key = format!("{}: {what}", source.path);
        // One finding per file and path.
        if found.iter().all(|(known, _)| *known != key) {
            let what = format!("{what} may not be used in crates/{folder}");
            found.push((key, Finding::new(&source.path, source.line(named.at), what, why)));
        }
    }
    found
}

/// What is named, and why that is not allowed.
fn refusal(folder: &str, path: &str, named: &Named) -> Option<(String, String)> {
    let package = named.path[0].replace('_', "-");
    if let Some(why) = refusal_in_source(folder, &package) {
        return Some((named.path[0].clone(), why));
    }
    for ban in BANS.iter().filter(|ban| ban.crates.contains(&folder)) {
        let excepted = ban.except.iter().any(|it| path == *it || (it.ends_with('/') && path.starts_with(it)));
        if let (false, Some(banned)) = (excepted, ban.paths.iter().find(|banned| named.is_under(banned))) {
            return Some(((*banned).to_owned(), ban.why.to_owned()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let sources = [Source::new(path, text)];
        check(&sources, &Crate::all(&sources), &Exceptions::default())
            .iter()
            .map(|it| format!("{}: {}", it.line, it.what))
            .collect()
    }

    #[test]
    fn crates_see_only_what_the_table_allows() {
        for (path, text) in [
            ("crates/wire/src/a.rs", "use tokio::sync::mpsc;"),
            ("crates/wire/src/a.rs", "use axum::Router;"),
            ("crates/wire/src/a.rs", "use frontdesk_core::Desk;"),
            ("crates/wire/src/a.rs", "fn f() -> std::io::Result<()> {}"),
            ("crates/core/src/a.rs", "use hyper::Request;"),
            ("crates/core/src/a.rs", "use reqwest::Client;"),
            ("crates/core/src/a.rs", "use frontdesk_platforms::chat;"),
            ("crates/core/src/a.rs", "use std::time::{Duration, SystemTime};"),
            ("crates/core/src/a.rs", "use std::time::Instant;\nfn f() { Instant::now(); }"),
            ("crates/core/src/a.rs", "use std::{fs, time};"),
            ("crates/store/src/a.rs", "fn f(_: axum::Json<u8>) {}"),
            ("crates/store/src/a.rs", "use frontdesk_platforms::chat;"),
            ("crates/platforms/src/a/b.rs", "use rusqlite::Connection;"),
            ("crates/platforms/src/a/b.rs", "use frontdesk_core::Desk;"),
            ("crates/connectors/src/a.rs", "use frontdesk_store::memory::MemoryStore;"),
            ("crates/client/src/a.rs", "use frontdesk_core::Desk;"),
            ("crates/frontdesk/src/cli/a.rs", "use frontdesk_store::sqlite::SqliteStore;"),
            ("crates/frontdesk/src/cli/a.rs", "use frontdesk_store as backends;"),
            ("crates/frontdesk/src/cli/a.rs", "use openssl::ssl;"),
        ] {
            assert_eq!(found(path, text).len(), 1, "{path}: {text}");
        }
    }

    #[test]
    fn what_is_allowed_passes() {
        for (path, text) in [
            ("crates/core/src/a.rs", "use std::time::{Duration, Instant};\nuse tokio::sync::mpsc;"),
            ("crates/core/src/a.rs", "use frontdesk_wire::Secret;\nuse std::net::IpAddr;"),
            ("crates/core/src/a.rs", "#[cfg(test)]\nmod tests { use std::fs; use std::time::SystemTime; }"),
            ("crates/core/tests/a.rs", "use frontdesk_store::memory::MemoryStore;"),
            ("crates/store/src/sqlite/a.rs", "use rusqlite::Connection;\nuse std::fs;"),
            ("crates/client/src/a.rs", "use axum::Router;\nuse reqwest::Client;"),
            ("crates/frontdesk/src/app.rs", "use frontdesk_store::sqlite::SqliteStore;"),
            ("crates/frontdesk/src/bench/a.rs", "use frontdesk_store::memory::MemoryStore;"),
            ("crates/frontdesk/src/work/a.rs", "#[cfg(test)]\nmod tests { use frontdesk_store::memory::MemoryStore; }"),
            ("crates/frontdesk/src/main.rs", "fn main() { frontdesk::cli::run() }"),
            ("xtask/src/a.rs", "use std::fs;"),
        ] {
            assert_eq!(found(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn the_line_and_the_path_are_named_once() {
        let twice = "//! a\nuse std::fs;\nfn f() { fs::read(\"a\"); std::fs::write(\"a\", \"b\"); }";
        assert_eq!(found("crates/core/src/a.rs", twice), ["2: std::fs may not be used in crates/core"]);
    }
}
