//! `frontdesk agent run`: puts a command behind the server. One side speaks the relay protocol, the other one is a child
//! process: `--exec` starts one for each message, `--acp` talks to one over its standard input and output.

mod acp;
mod answer;
mod child;
mod exec;
mod files;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use frontdesk_client::agent::{ActError, Failure};
use frontdesk_client::transport::BoxFuture;
use frontdesk_client::wake::WakeListener;
use frontdesk_client::{Agent, Dial, Serve, TransportError, Turn};
use frontdesk_wire::{Act, MessageEvent, Secret};
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use self::acp::Acp;
use self::answer::{Answer, Written};
use self::exec::Exec;

pub(crate) use self::exec::EXEC_VARIABLES;

/// Exit code if the server does not accept the agent, so that a supervisor does not start it again.
pub(crate) const REFUSED: u8 = 3;
/// Platforms show a typing indicator for some seconds only.
const TYPING_EVERY: Duration = Duration::from_secs(4);
/// Answers of messages that are being tried again, so that the next attempt continues the same one.
const UNFINISHED_MAX: usize = 1024;

#[derive(Args, Clone)]
pub(crate) struct RunArgs {
    /// Talk to the command with the Agent Client Protocol: one session for each chat
    #[arg(long, conflicts_with = "exec", required_unless_present = "exec")]
    acp: bool,
    /// Start the command for each message: text on standard input, answer on standard output
    #[arg(long)]
    exec: bool,
    /// URL of the server
    #[arg(long, env = "GATEWAY_RELAY_URL")]
    relay_url: String,
    /// Id of the agent, from `frontdesk gateway add` or enrolling
    #[arg(long, env = "GATEWAY_RELAY_ID")]
    gateway_id: String,
    /// Its secret. Prefer the variable: arguments are visible to all users of the machine
    #[arg(long, env = "GATEWAY_RELAY_SECRET", hide_env_values = true)]
    gateway_secret: String,
    /// Platforms, each with the id of its bot if it has one: `relay`, `telegram=my-bot`
    #[arg(long = "platform", value_name = "NAME[=BOT]", default_value = "relay")]
    platforms: Vec<String>,
    /// Exit after so many seconds without a message; whatever serves the wake URL starts it again
    #[arg(long, value_name = "SECONDS")]
    sleep_after: Option<f64>,
    /// Disconnect instead of exiting, and connect again when this address is called; it is the wake URL
    #[arg(long, value_name = "ADDRESS", requires = "sleep_after")]
    wake_listen: Option<SocketAddr>,
    /// Chats that are answered at once, and with --exec the number of children
    #[arg(long, default_value_t = 4)]
    concurrency: usize,
    /// Time limit for one answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0)]
    turn_time: f64,
    /// Length of an answer in bytes; the rest is cut off
    #[arg(long, value_name = "BYTES", default_value_t = 32 * 1024)]
    output_max: usize,
    /// Stop the child after so many seconds without a message (--acp)
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0)]
    child_idle: f64,
    /// What to do if the agent asks for permission (--acp)
    #[arg(long, value_enum, default_value_t = Permissions::Ask)]
    permissions: Permissions,
    /// Time to answer a question for permission; after it, it is refused
    #[arg(long, value_name = "SECONDS", default_value_t = 120.0)]
    permission_time: f64,
    /// State folder: ids of sessions, and files of messages that are being answered
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
    /// Folder in which the command works
    #[arg(long, value_name = "FOLDER")]
    cwd: Option<PathBuf>,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Permissions {
    /// Buttons in the chat; refused if nobody answers
    Ask,
    /// Refuse all
    Deny,
}

/// What both kinds of commands need.
struct Limits {
    turn: Duration,
    output_max: usize,
    child_idle: Duration,
    permission: Duration,
    permissions: Permissions,
    cwd: PathBuf,
    state: PathBuf,
    /// Held while this process uses the folder of its state.
    _state_lock: std::fs::File,
    command: Vec<String>,
}

/// Why there is no answer.
#[derive(Debug)]
enum Trouble {
    /// A retry may succeed.
    Again(String),
    /// A retry would not help.
    Final(String),
    /// The user said /stop.
    Stopped,
}

/// The end of an answer.
struct Ended {
    text: String,
    /// What the user should know of it, e.g. that it was cut off.
    note: Option<String>,
}

enum Command {
    Exec(Exec),
    Acp(Arc<Acp>),
}

/// The problem that was last reported to the server.
#[derive(Default, PartialEq)]
enum Reported {
    /// Unknown: the server may have a report of an earlier process.
    #[default]
    Unknown,
    /// Reported on the connection with this number. A restarted server has forgotten it.
    Known(u64, Option<String>),
}

struct Bridge {
    agent: Arc<Agent>,
    limits: Arc<Limits>,
    command: Command,
    unfinished: Mutex<HashMap<String, Answer>>,
    reported: Mutex<Reported>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn seconds(value: f64, name: &str) -> anyhow::Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("--{name} must be a number of seconds"))
}

impl RunArgs {
    fn dial(&self) -> Dial {
        let identities = self.platforms.iter().map(|text| {
            let (platform, bot) = text.split_once('=').unwrap_or((text, ""));
            (platform.trim().to_owned(), bot.trim().to_owned())
        });
        Dial {
            url: self.relay_url.clone(),
            gateway_id: self.gateway_id.clone(),
            secret: Secret::new(self.gateway_secret.as_str()),
            identities: identities.collect(),
        }
    }

    fn limits(&self) -> anyhow::Result<Limits> {
        let cwd = match &self.cwd {
            Some(folder) => std::path::absolute(folder)?,
            None => std::env::current_dir().context("reading the current folder failed")?,
        };
        anyhow::ensure!(cwd.is_dir(), "--cwd: {} is not a folder", cwd.display());
        let state = match &self.state {
            Some(folder) => std::path::absolute(folder)?,
            None => state_folder()?.join(file_name(&self.gateway_id)),
        };
        let state_lock = files::make_folder(&state.join("files"))
            .and_then(|()| files::clear(&state))
            .with_context(|| format!("the folder {} cannot be used", state.display()))?;
        Ok(Limits {
            turn: seconds(self.turn_time, "turn-time")?,
            output_max: self.output_max.max(1),
            child_idle: seconds(self.child_idle, "child-idle")?,
            permission: seconds(self.permission_time, "permission-time")?,
            permissions: self.permissions,
            cwd,
            state,
            _state_lock: state_lock,
            command: self.command.clone(),
        })
    }
}

fn state_folder() -> anyhow::Result<PathBuf> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = from("XDG_STATE_HOME").or_else(|| from("HOME").map(|home| home.join(".local/state")));
    Ok(base.context("neither XDG_STATE_HOME nor HOME is set; name a folder with --state")?.join("frontdesk/agents"))
}

/// A text as the name of a file.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '_' };
    text.chars().map(plain).take(100).collect()
}

/// Serves until the agent sleeps, is refused, or the process gets a signal.
pub(crate) async fn run(args: RunArgs, stop: CancellationToken) -> anyhow::Result<u8> {
    // Otherwise the command could read our environment, with the secret in it. One that runs as root still can.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "hiding the environment from the command failed");
    }
    let sleep_after = args.sleep_after.map(|value| seconds(value, "sleep-after")).transpose()?;
    let limits = Arc::new(args.limits()?);
    let listener = match args.wake_listen {
        Some(address) => Some(WakeListener::listen(address).await.context("listening for wake calls failed")?),
        None => None,
    };
    loop {
        let agent = Agent::new(args.dial(), args.concurrency);
        let command = if args.acp {
            Command::Acp(Acp::new(agent.clone(), limits.clone())?)
        } else {
            Command::Exec(Exec { limits: limits.clone() })
        };
        let bridge = Arc::new(Bridge {
            agent: agent.clone(),
            limits: limits.clone(),
            command,
            unfinished: Mutex::default(),
            reported: Mutex::default(),
        });
        tracing::info!(command = limits.command[0], "agent started");
        let served = tokio::select! {
            served = agent.serve(bridge.clone(), sleep_after) => Some(served),
            () = stop.cancelled() => None,
        };
        bridge.end().await;
        match served {
            None => return Ok(0), // what is not acked comes again
            Some(Ok(())) => {}
            Some(Err(TransportError::Revoked)) => {
                crate::print::err_line!("frontdesk: {}", TransportError::Revoked);
                return Ok(REFUSED);
            }
            Some(Err(why)) => return Err(why.into()),
        }
        tracing::info!("the agent went to sleep");
        let Some(listener) = &listener else { return Ok(0) };
        tokio::select! {
            () = listener.called() => {}
            () = stop.cancelled() => return Ok(0),
        }
    }
}

impl Serve for Bridge {
    fn message(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { self.answer(&turn).await })
    }

    fn out_of_turn(&self, event: &MessageEvent) -> bool {
        match &self.command {
            Command::Acp(acp) => acp.pressed(event),
            Command::Exec(_) => false,
        }
    }
}

impl Bridge {
    async fn answer(&self, turn: &Turn) -> Result<(), Failure> {
        let event = &turn.event;
        let source = &event.source;
        let key = serde_json::json!([source.platform, source.chat_id, source.thread_id, event.message_id]).to_string();
        if turn.attempt == 0 {
            lock(&self.unfinished).remove(&key); // of an earlier delivery: an edited message has the same id
        }
        if let (Some(_), Command::Acp(_)) = (&event.prompt_response, &self.command) {
            let late = "(This question is not open any more.)";
            Answer::new(self.agent.clone(), event.clone()).finish(late).await?;
            return Ok(());
        }
        let mut answer =
            lock(&self.unfinished).remove(&key).unwrap_or_else(|| Answer::new(self.agent.clone(), event.clone()));
        let (text, problem) = match answer.final_text.take() {
            Some(text) => (text, None), // an earlier attempt had the answer but could not send it
            None => match self.outcome(turn, &mut answer).await {
                Ok(ended) => ended,
                Err(why) => {
                    self.keep(key, answer);
                    return Err(why.into());
                }
            },
        };
        self.report(problem).await;
        match answer.finish(&text).await {
            Ok(Written::Surely) => {}
            Ok(Written::Perhaps) => {
                let chat = &*event.source.chat_id;
                tracing::error!(chat, "the outcome of sending an answer is unknown; it is not repeated");
                self.report(Some(format!("it is not known whether the last answer in the chat {chat:?} was sent")))
                    .await;
            }
            // There is no connection: sent by the next attempt, without asking the agent again.
            Err(error @ ActError::Transport(_)) => {
                answer.final_text = Some(text);
                self.keep(key, answer);
                return Err(error.into());
            }
            Err(error) => {
                tracing::error!(%error, "an answer was refused");
                self.report(Some(format!("an answer was refused: {error}"))).await;
            }
        }
        Ok(())
    }

    fn keep(&self, key: String, answer: Answer) {
        let mut unfinished = lock(&self.unfinished);
        if unfinished.len() >= UNFINISHED_MAX
            && let Some(some) = unfinished.keys().next().cloned()
        {
            unfinished.remove(&some); // its next attempt asks the command again
        }
        unfinished.insert(key, answer);
    }

    /// The final text, and the problem to report to the operator. `Err`: a retry may succeed.
    async fn outcome(&self, turn: &Turn, answer: &mut Answer) -> Result<(String, Option<String>), String> {
        let event = &turn.event;
        let working = async {
            let files = tokio::select! {
                files = files::fetch(&self.agent, event, &self.limits.state) => files,
                () = turn.stopped.cancelled() => return Err(Trouble::Stopped),
            };
            match &self.command {
                Command::Exec(exec) => exec.turn(turn, &files).await,
                Command::Acp(acp) => acp.turn(turn, &files, answer).await,
            }
        };
        let outcome = tokio::select! {
            outcome = working => outcome,
            never = self.keep_typing(event) => never,
        };
        let (text, problem) = match outcome {
            Ok(ended) => (join(ended.text, ended.note.as_deref()), None),
            Err(Trouble::Stopped) => (answer.text_with("(stopped)"), None),
            Err(Trouble::Again(why)) if !turn.is_last() => return Err(why),
            Err(Trouble::Again(why)) => {
                let tries = turn.attempt + 1;
                let note = format!("The agent failed {tries} times: {why}. Send the message again to retry.");
                (answer.text_with(&note), Some(why))
            }
            Err(Trouble::Final(why)) => (answer.text_with(&format!("The agent failed: {why}.")), Some(why)),
        };
        let text = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
        Ok((text, problem))
    }

    /// Shows that the agent is at work, as far as the platform can.
    async fn keep_typing(&self, event: &MessageEvent) -> Result<Ended, Trouble> {
        let mut every = interval(TYPING_EVERY);
        loop {
            every.tick().await;
            let act = Act::Typing { chat_id: event.source.chat_id.clone(), content: None };
            let _ = self.agent.act(event, act).await; // a courtesy: its failure must not fail the answer
        }
    }

    /// Tells the operator of the server.
    async fn report(&self, problem: Option<String>) {
        let report = Reported::Known(self.agent.transport().connection(), problem.clone());
        if *lock(&self.reported) == report {
            return;
        }
        match self.agent.transport().report(problem.as_deref()).await {
            Ok(()) => *lock(&self.reported) = report,
            Err(error) => tracing::warn!(%error, "reporting to the server failed"),
        }
    }

    async fn end(&self) {
        if let Command::Acp(acp) = &self.command {
            let _ = timeout(child::GRACE * 2, acp.stop_child()).await; // it was killed then
        }
    }
}

fn join(text: String, note: Option<&str>) -> String {
    match (text.trim().is_empty(), note) {
        (true, None) => "(the agent ended without a text)".into(),
        (true, Some(note)) => note.into(),
        (false, None) => text.trim_end().to_owned(),
        (false, Some(note)) => format!("{}\n\n{note}", text.trim_end()),
    }
}

/// The start of a text, at most so many bytes long, and whether it was cut.
fn cut(text: &str, max: usize) -> (&str, bool) {
    if text.len() <= max {
        return (text, false);
    }
    (&text[..text.floor_char_boundary(max)], true)
}
