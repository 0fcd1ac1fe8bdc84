//! Benches: a server in this process, the load in another on the same machine, figures as text or JSON.
//!
//! Nothing is skipped for speed: events are parsed, judged, written with an fsync, pushed and acked.

#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // figures for people

mod agents;
mod alarms;
mod door;
mod feed;
mod gate;
mod growth;
mod idle;
mod ingest;
mod load;
mod relay;
mod report;
mod sink;
mod stage;
mod webhooks;

use clap::Subcommand;

pub use load::load;
pub use sink::sink;

#[derive(Subcommand)]
pub enum BenchCommand {
    /// Durable accept, push and ack: throughput, and latency at a fixed rate
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
        /// Repetitions of each run; the median is reported, with all results
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// One HTTP request per message through a real route, over 64 connections, instead of batches over a socket
        #[arg(long)]
        door: Option<door::Door>,
        /// Servers on one shared store; each message is for an agent that another one serves
        #[arg(long, default_value_t = 1)]
        desks: usize,
        /// A shared store, for tests only: the rows of the benchmark are not removed
        #[arg(long, default_value = "")]
        store: String,
        #[arg(long, default_value = "")]
        bus: String,
    },
    /// Events routed and stored, without connected receivers
    Ingest {
        /// Only routing decisions: decisions per second on one core, verdicts encoded
        #[arg(long)]
        gate: bool,
        #[arg(long, default_value_t = 500_000)]
        messages: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Alarms: memory, arm rate, lateness, a burst, a restart
    Alarms {
        /// Number of armed alarms
        #[arg(long, alias = "shots", default_value_t = 1_000_000)]
        alarms: u64,
        /// Alarms that come due per second
        #[arg(long, default_value_t = 1_000)]
        rate: u64,
        /// Duration of the lateness run in seconds
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        /// Alarms that come due at the same time
        #[arg(long, default_value_t = 10_000)]
        storm: u64,
    },
    /// Messages between agents: durable delivery, polling a large skill store, searching a large data store
    Agents {
        /// Messages per round
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
    /// Signed messages of vendors while all agents sleep: time to the answer at a fixed rate
    Webhooks {
        /// Platforms to include (default: all)
        #[arg(long, value_delimiter = ',')]
        platforms: Vec<String>,
        #[arg(long, default_value_t = 1_000)]
        agents: usize,
        /// Messages per second, of all platforms together
        #[arg(long, default_value_t = 2_000)]
        rate: u64,
        #[arg(long, default_value_t = 20)]
        seconds: u64,
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
    /// Processor time of an event with more tenants, and with more servers on one store
    Growth {
        #[arg(long, value_delimiter = ',', default_value = "1,10,100,1000,10000")]
        tenants: Vec<usize>,
        /// Numbers of servers, for the largest number of tenants
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16")]
        desks: Vec<usize>,
        /// Events of each run
        #[arg(long, default_value_t = 50_000)]
        messages: u64,
        #[arg(long, default_value_t = 512)]
        bytes: usize,
        /// A shared store, for tests only: the rows of the benchmark are not removed. Without one, only tenants are varied
        #[arg(long, default_value = "")]
        store: String,
        #[arg(long, default_value = "")]
        bus: String,
    },
    /// Start time, idle memory, memory per idle authenticated connection, binary size
    Idle {
        #[arg(long, default_value_t = 10_000)]
        sockets: usize,
    },
}

pub fn run(what: BenchCommand, json: bool) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("warning: debug build, results are not meaningful (use `cargo run --release`)");
    }
    let runtime = crate::runtime::build(2)?;
    let figures = match what {
        BenchCommand::Relay { messages, gateways, bytes, rate, seconds, rounds, door, desks, store, bus } => {
            anyhow::ensure!(
                desks <= 1 || !store.is_empty(),
                "several servers need a shared store: --store postgres://..."
            );
            let shared = relay::Shared { desks, store, bus };
            let plan = relay::Plan { messages, gateways, bytes, rate, seconds, rounds: rounds.max(1), door, shared };
            runtime.block_on(relay::run(&plan))?
        }
        BenchCommand::Ingest { gate: true, messages, rounds } => gate::run(messages, rounds.max(1)),
        BenchCommand::Ingest { gate: false, messages, rounds } => {
            runtime.block_on(ingest::run(messages, rounds.max(1)))?
        }
        BenchCommand::Alarms { alarms, rate, seconds, storm } => {
            runtime.block_on(alarms::run(&alarms::Plan { alarms, rate, seconds, storm }))?
        }
        BenchCommand::Agents { messages, skills, rows, rounds } => {
            runtime.block_on(agents::run(&agents::Plan { messages, skills, rows, rounds: rounds.max(1) }))?
        }
        BenchCommand::Webhooks { platforms, agents, rate, seconds, rounds } => {
            let plan = webhooks::Plan { agents, rate, seconds, rounds: rounds.max(1), platforms };
            runtime.block_on(webhooks::run(&plan))?
        }
        BenchCommand::Growth { mut tenants, desks, messages, bytes, store, bus } => {
            tenants.sort_unstable();
            runtime.block_on(growth::run(&growth::Plan { tenants, desks, messages, bytes, store, bus }))?
        }
        BenchCommand::Idle { sockets } => runtime.block_on(idle::run(sockets))?,
    };
    report::print(&figures, json)
}
