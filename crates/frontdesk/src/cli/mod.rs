//! The command line. `serve`, `demo`, `bench`, `config`, `export` and `import` run locally; all other commands use the
//! admin API.

mod agents;
mod demo;
mod demo_agent;
mod portable;
mod remote;
mod serve;
mod verbs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchCommand;
use crate::config::{self, Config};
use crate::logging::LogForm;
use crate::print::{err_line, out_line};

#[derive(Parser)]
#[command(name = "frontdesk", version, about = "Always-on message relay for agents that sleep")]
struct Cli {
    #[command(flatten)]
    target: Target,
    #[command(subcommand)]
    verb: Verb,
}

/// Location of the server, and the output format.
#[derive(Args, Clone)]
struct Target {
    /// Settings file
    #[arg(long, global = true)]
    config: Option<PathBuf>,
    /// Folder of the database, keys and media
    #[arg(long, global = true)]
    data_dir: Option<PathBuf>,
    /// URL of a running server; default: read from the data folder
    #[arg(long, global = true, env = "FRONTDESK_URL")]
    url: Option<String>,
    /// Admin token; default: read from the data folder
    #[arg(long, global = true, env = "FRONTDESK_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Verb {
    /// Run the server
    Serve(ServeArgs),
    /// Run a server with an example agent and the chat page
    Demo {
        /// Port to listen on
        #[arg(long, default_value_t = 8787)]
        port: u16,
    },
    /// Run an agent that is connected to a server
    #[command(subcommand)]
    Agent(AgentVerb),
    #[command(flatten)]
    Remote(verbs::RemoteVerb),
    /// Check the settings, or print all of them with their defaults
    #[command(subcommand)]
    Config(ConfigVerb),
    /// Write everything in a store to a file, also while servers use it
    ///
    /// The file contains messages as text, and secrets sealed with the master key. It is created with mode 0600. The
    /// master key is not in it: whoever imports the file needs the same one.
    Export(portable::PortableArgs),
    /// Fill an empty store from a file of `export`; no server may use the store
    ///
    /// The servers of the new store need the master key of the old one.
    Import(portable::PortableArgs),
    /// Run a benchmark on this machine
    Bench {
        #[command(subcommand)]
        what: BenchCommand,
    },
    /// Load generator process, started by `bench`
    #[command(hide = true)]
    BenchLoad,
    /// Receiver process, started by `bench alarms`
    #[command(hide = true)]
    BenchSink,
}

#[derive(Args)]
struct ServeArgs {
    /// Address to listen on; port 0 picks a free port
    #[arg(long)]
    listen: Option<String>,
    /// URL at which agents and browsers reach this server
    #[arg(long)]
    public_url: Option<String>,
    /// Database that several servers share
    #[arg(long, value_name = "postgres://...", env = "FRONTDESK_STORE_URL", hide_env_values = true)]
    store: Option<String>,
    /// Bus by which servers that share a database notify each other of changes; default: the database
    #[arg(long, env = "FRONTDESK_BUS_URL", hide_env_values = true)]
    bus: Option<String>,
    /// Name of this server among those that share the database
    #[arg(long)]
    name: Option<String>,
    /// Log format
    #[arg(long, value_enum)]
    log: Option<LogForm>,
    /// Create an empty database in a data folder that has keys but no database, or use another shared database than before
    #[arg(long)]
    new: bool,
}

#[derive(Subcommand)]
enum AgentVerb {
    /// Run a command as an agent: it answers the messages that the server delivers
    ///
    /// Exit codes: 0 asleep or stopped, 3 not accepted by the server, 1 other errors.
    Run(Box<crate::bridge::RunArgs>),
}

#[derive(Subcommand)]
enum ConfigVerb {
    /// Validate the settings and report errors
    Check,
    /// Print every setting with its default
    Example,
}

/// Exit codes: 0 success, 1 error with the reason on stderr, 2 usage; `agent run` has one more.
pub fn main() -> ExitCode {
    let cli = Cli::parse(); // exits with 2 on a usage error
    match run(cli) {
        Ok(code) => code.into(),
        Err(error) => {
            err_line!("frontdesk: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { target, verb } = cli;
    match verb {
        Verb::Agent(AgentVerb::Run(args)) => return agent(*args),
        Verb::Serve(args) => serve(&target, args)?,
        Verb::Demo { port } => crate::runtime::build(2)?.block_on(demo::demo(port, target.data_dir))?,
        Verb::Remote(verbs::RemoteVerb::Doctor { repair: true }) => repair(&settings(&target)?)?,
        Verb::Remote(verb) => crate::runtime::build(1)?.block_on(verbs::run(&target, verb))?,
        Verb::Config(ConfigVerb::Example) => crate::print::out(format_args!("{}", config::defaults())),
        Verb::Config(ConfigVerb::Check) => {
            let config = checked_settings(&target)?;
            out_line!(
                "settings are valid; data folder {}, listen address {}",
                config.data_dir.display(),
                config.listen
            );
        }
        Verb::Export(args) => portable::export(&args, portable::settings(&target, &args)?)?,
        Verb::Import(args) => portable::import(&args, portable::settings(&target, &args)?)?,
        Verb::Bench { what } => crate::bench::run(what, target.json)?,
        Verb::BenchLoad => crate::bench::load()?,
        Verb::BenchSink => crate::bench::sink()?,
    }
    Ok(0)
}

fn agent(args: crate::bridge::RunArgs) -> anyhow::Result<u8> {
    crate::logging::begin(LogForm::Text);
    crate::runtime::build(1)?.block_on(async {
        let stop = tokio_util::sync::CancellationToken::new();
        tokio::spawn(serve::stop_on_signal(stop.clone()));
        crate::bridge::run(args, stop).await
    })
}

fn serve(target: &Target, args: ServeArgs) -> anyhow::Result<()> {
    let mut config = checked_settings(target)?;
    config.listen = args.listen.unwrap_or(config.listen);
    config.public_url = args.public_url.unwrap_or(config.public_url);
    config.log = args.log.unwrap_or(config.log);
    config.fresh = args.new;
    config.store.url = args.store.unwrap_or(config.store.url);
    config.bus.url = args.bus.unwrap_or(config.bus.url);
    config.desk.name = args.name.unwrap_or(config.desk.name);
    config.check_store()?;
    crate::runtime::build(2)?.block_on(serve::serve(&config))
}

/// Repairs the data folder directly, because a server does not start with a database that needs repair.
fn repair(config: &Config) -> anyhow::Result<()> {
    let changes = crate::app::repair(config)?;
    if changes.is_empty() {
        out_line!("no repair needed in {}", config.data_dir.display());
    }
    for line in changes {
        out_line!("{line}");
    }
    Ok(())
}

fn settings(target: &Target) -> anyhow::Result<Config> {
    load_settings(target).map(|(config, _)| config)
}

/// Warns about environment variables that look like settings and are ignored.
fn checked_settings(target: &Target) -> anyhow::Result<Config> {
    let (config, ignored) = load_settings(target)?;
    if !ignored.is_empty() {
        let names = ignored.join(", ");
        err_line!(
            "frontdesk: warning: ignored unknown environment variables: {names} (`frontdesk config \
             example` lists all settings)"
        );
    }
    Ok(config)
}

fn load_settings(target: &Target) -> anyhow::Result<(Config, Vec<String>)> {
    let (mut config, ignored) = Config::load_noting(target.config.as_deref())?;
    if let Some(folder) = &target.data_dir {
        config.data_dir.clone_from(folder);
    }
    Ok((config, ignored))
}
