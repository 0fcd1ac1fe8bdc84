//! Benches: a desk in this process, the load in another on the same machine, figures as text or JSON.
//!
//! Nothing is skipped for speed: events are parsed, judged, written with an fsync, pushed and acked.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures for people

mod agents;
mod alarms;
mod feed;
mod gate;
mod idle;
mod ingest;
mod load;
mod relay;
mod report;
mod sink;
mod stage;

use clap::Subcommand;

pub use load::load;
pub use sink::sink;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Durable accept -> push -> ack: throughput, and latency at a fixed rate
    Relay {
        /// Events of the throughput run
        #[arg(long, default_value_t = 1_000_000)]
        messages: u64,
        #[arg(long, default_value_t = 50)]
        gateways: usize,
        /// Size of one event as JSON
        #[arg(long, default_value_t = 512)]
        bytes: usize,
        /// Events per second of the latency run
        #[arg(long, default_value_t = 5_000)]
        rate: u64,
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Times each run is repeated; the median is the figure, the others are its spread
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Events judged and written down, with nobody to push them to
    Ingest {
        /// Only the gate: decisions per second on one core, verdicts made and kept
        #[arg(long)]
        gate: bool,
        #[arg(long, default_value_t = 500_000)]
        messages: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Armed shots: memory, arm rate, lateness, a storm, a restart
    Alarms {
        /// Shots that are armed
        #[arg(long, default_value_t = 1_000_000)]
        shots: u64,
        /// Shots that come due each second
        #[arg(long, default_value_t = 1_000)]
        rate: u64,
        /// Seconds of the lateness run
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Shots that come due at one moment
        #[arg(long, default_value_t = 10_000)]
        storm: u64,
    },
    /// Words between agents: durable delivery, the poll of a large skill store, a search in a large data store
    Agents {
        /// Words of one round
        #[arg(long, default_value_t = 200_000)]
        messages: u64,
        #[arg(long, default_value_t = 100_000)]
        skills: u64,
        /// Rows of the data store
        #[arg(long, default_value_t = 1_000_000)]
        rows: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Start time, memory at rest, memory per idle authenticated socket, size of the binary
    Idle {
        #[arg(long, default_value_t = 10_000)]
        sockets: usize,
    },
}

pub fn run(what: BenchCommand, json: bool) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures say nothing (use `cargo run --release`)");
    }
    let runtime = crate::runtime::build(2)?;
    let figures = match what {
        BenchCommand::Relay { messages, gateways, bytes, rate, seconds, rounds } => {
            let plan = relay::Plan { messages, gateways, bytes, rate, seconds, rounds: rounds.max(1) };
            runtime.block_on(relay::run(&plan))?
        }
        BenchCommand::Ingest { gate: true, messages, rounds } => gate::run(messages, rounds.max(1)),
        BenchCommand::Ingest { gate: false, messages, rounds } => {
            runtime.block_on(ingest::run(messages, rounds.max(1)))?
        }
        BenchCommand::Alarms { shots, rate, seconds, storm } => {
            runtime.block_on(alarms::run(&alarms::Plan { shots, rate, seconds, storm }))?
        }
        BenchCommand::Agents { messages, skills, rows, rounds } => {
            runtime.block_on(agents::run(&agents::Plan { messages, skills, rows, rounds: rounds.max(1) }))?
        }
        BenchCommand::Idle { sockets } => runtime.block_on(idle::run(sockets))?,
    };
    report::print(&figures, json)
}
