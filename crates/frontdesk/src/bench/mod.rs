//! Benches: a desk in this process, the load in another, figures as text or JSON.

use clap::Subcommand;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// x
    Relay,
}

pub fn run(_what: BenchCommand, _json: bool) -> anyhow::Result<()> {
    Ok(())
}

pub fn load() -> anyhow::Result<()> {
    Ok(())
}
