//! Chores of the workspace that the compiler does not do: `cargo run -p xtask -- tidy`.

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- tidy    checks the house rules and says how to mend what breaks them";

fn main() -> ExitCode {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    if asked != ["tidy"] {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    }
    match tidy::run(&root()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tidy could not look: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace: cargo says where this package is, and that is one below it.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.and_then(|package| package.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}
