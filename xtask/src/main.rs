//! Checks of the workspace that the compiler does not do: `cargo run -p xtask -- tidy`.

mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo run -p xtask -- tidy    checks the rules of this repository and says what to fix";

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
            eprintln!("tidy failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace: the parent of this package's folder, which cargo provides.
fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    here.and_then(|package| package.parent().map(PathBuf::from)).unwrap_or_else(|| PathBuf::from("."))
}
