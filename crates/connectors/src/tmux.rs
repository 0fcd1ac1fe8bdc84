//! Tmux connector: pastes messages into the tmux pane of an agent and presses Enter.
//!
//! No shell is involved, and no text is interpreted as a key name: arguments are passed separately, and the text goes
//! through a paste buffer. Control characters are replaced. The pane receives text from untrusted senders, so it should
//! run the prompt of an agent, never a shell.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Env;
use frontdesk_wire::agents::{
    AgentConnector, AgentDescriptor, AgentReply, DeliveryPayload, DeliveryReceipt, Fault, Promise, WakeOpts,
    WakeReceipt,
};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::address::{note_dropped, note_early, only, session_of};

const TARGET_MAX_BYTES: usize = 128;
const COMPLAINT_MAX_CHARS: usize = 200;

/// How tmux is run.
#[derive(Debug, Clone)]
pub struct TmuxSettings {
    pub program: String,
    /// Name or path of the tmux server's socket. `None`: the default one of the server's user.
    pub socket: Option<String>,
    /// Time limit of one run.
    pub time: Duration,
}

impl Default for TmuxSettings {
    fn default() -> Self {
        Self { program: "tmux".into(), socket: None, time: Duration::from_secs(5) }
    }
}

pub struct Tmux {
    agent_id: String,
    target: String,
    settings: TmuxSettings,
    env: Arc<dyn Env>,
}

/// An existing pane.
struct Pane {
    id: String,
    /// In copy mode, where Enter would not reach the program.
    in_mode: bool,
}

impl Tmux {
    pub fn open(agent_id: &str, target: &str, settings: TmuxSettings, env: Arc<dyn Env>) -> Result<Self, Fault> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:%@$-".contains(&byte);
        let fits = (1..=TARGET_MAX_BYTES).contains(&target.len()) && !target.starts_with('-');
        if !fits || !target.bytes().all(plain) {
            let text =
                format!("target must be 1 to {TARGET_MAX_BYTES} of A-Z a-z 0-9 _ . : % @ $ -, not starting with -");
            return Err(Fault::invalid(text).with("field", "target"));
        }
        Ok(Self { agent_id: agent_id.into(), target: target.into(), settings, env })
    }

    /// The target in tmux syntax. The `=` requests an exact match; otherwise tmux also accepts a prefix of a name.
    fn exact_target(&self) -> String {
        match self.target.split_once('.') {
            _ if self.target.starts_with(['%', '@', '$']) => self.target.clone(),
            _ if self.target.contains(':') => format!("={}", self.target),
            Some((session, pane)) => format!("={session}:.{pane}"),
            None => format!("={}:", self.target),
        }
    }

    /// Runs tmux once and kills it at the time limit.
    async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<String, Fault> {
        let failed = |kind: &str, text: String| Fault::delivery_failed(&self.agent_id, kind, text);
        let mut command = Command::new(&self.settings.program);
        match &self.settings.socket {
            Some(path) if path.contains('/') => _ = command.args(["-S", path]),
            Some(name) => _ = command.args(["-L", name]),
            None => {}
        }
        command.arg("-u").args(arguments).kill_on_drop(true);
        command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("network", format!("starting tmux failed: {error}")))?;
        let stdin = child.stdin.take();
        let feed = async {
            if let (Some(mut stdin), Some(input)) = (stdin, input) {
                // If tmux does not read all of it, its exit status shows that.
                let _ = stdin.write_all(input.as_bytes()).await;
            }
        };
        let whole = async { tokio::join!(feed, child.wait_with_output()).1 };
        let Ok(ended) = tokio::time::timeout(self.settings.time, whole).await else {
            let limit_ms = u64::try_from(self.settings.time.as_millis()).unwrap_or(u64::MAX);
            let text = format!("tmux did not finish within {limit_ms} ms");
            return Err(failed("timeout", text).with("timeout_ms", limit_ms));
        };
        let output = ended.map_err(|error| failed("network", format!("running tmux failed: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said: String = harmless(said.trim()).chars().take(COMPLAINT_MAX_CHARS).collect();
        Err(failed("network", format!("tmux failed: {said}")))
    }

    async fn pane(&self) -> Result<Pane, Fault> {
        let target = self.exact_target();
        let format = "#{pane_id} #{pane_dead} #{pane_in_mode}";
        // display-message alone falls back to another window if the target is missing; send-keys fails.
        let strictly = ["send-keys", "-t", &target, "-l", "", ";", "display-message", "-p", "-t", &target, format];
        let said = self.run(&strictly, None).await?;
        let mut words = said.split_whitespace();
        let id = words.next().filter(|id| id.starts_with('%'));
        match (id, words.next(), words.next()) {
            (Some(id), Some("0"), mode) => Ok(Pane { id: id.into(), in_mode: mode.is_some_and(|it| it != "0") }),
            (Some(_), ..) => {
                Err(Fault::delivery_failed(&self.agent_id, "network", "the process in the tmux pane has exited"))
            }
            _ => {
                let text = format!("tmux pane {:?} not found", self.target);
                Err(Fault::delivery_failed(&self.agent_id, "network", text))
            }
        }
    }

    /// Pastes and presses Enter in one run of tmux, so that two messages never mix.
    async fn paste(&self, text: &str) -> Result<(), Fault> {
        let pane = self.pane().await?;
        let buffer = format!("frontdesk-{}", self.env.random_hex(8));
        let mut arguments = vec!["load-buffer", "-b", &buffer, "-", ";"];
        if pane.in_mode {
            arguments.extend(["copy-mode", "-q", "-t", &pane.id, ";"]);
        }
        arguments.extend(["paste-buffer", "-p", "-d", "-b", &buffer, "-t", &pane.id, ";"]);
        arguments.extend(["send-keys", "-t", &pane.id, "Enter"]);
        let pasted = self.run(&arguments, Some(text)).await;
        if pasted.is_err() {
            let _ = self.run(&["delete-buffer", "-b", &buffer], None).await; // the buffer may not exist
        }
        pasted.map(drop)
    }
}

impl AgentConnector for Tmux {
    fn list_agents(&self) -> Promise<'_, Vec<AgentDescriptor>> {
        Box::pin(async { Ok(only(&self.agent_id)) })
    }

    fn deliver<'a>(&'a self, agent_id: &'a str, payload: &'a DeliveryPayload) -> Promise<'a, DeliveryReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let head = json!({ "agent_id": self.agent_id, "kind": payload.kind(), "meta": payload.meta() });
            self.paste(&page(&head.to_string(), payload.text())).await?;
            let receipt = DeliveryReceipt {
                delivered_at: self.env.now_ms(),
                session_id: Some(self.target.clone()),
                ..DeliveryReceipt::default()
            };
            Ok(note_dropped(receipt, session))
        })
    }

    fn wake<'a>(&'a self, agent_id: &'a str, opts: &'a WakeOpts) -> Promise<'a, WakeReceipt> {
        Box::pin(async move {
            let session = session_of(&self.agent_id, agent_id)?;
            let asked = opts.session_id.as_deref().or(session);
            let mut head = json!({ "agent_id": self.agent_id, "kind": "wake" });
            if let Some(asked) = asked {
                head["session_id"] = asked.into();
            }
            self.paste(&page(&head.to_string(), opts.context.as_deref().unwrap_or_default())).await?;
            let mut warnings = Vec::new();
            if asked.is_some_and(|asked| asked != self.target) {
                warnings.push("the session was ignored: this agent has one terminal, which was woken".into());
            }
            let receipt = WakeReceipt {
                woken_at: self.env.now_ms(),
                woken: true, // tmux has pasted it into the pane
                session_id: Some(self.target.clone()),
                warnings,
                scheduled_for: None,
            };
            Ok(note_early(receipt, opts))
        })
    }

    fn health_check(&self) -> Promise<'_, ()> {
        Box::pin(async { self.pane().await.map(drop) })
    }

    fn request_response<'a>(&'a self, _: &'a str, _: &'a DeliveryPayload, _: u64) -> Promise<'a, AgentReply> {
        Box::pin(async { Err(Fault::not_implemented("tmux", "request_response")) })
    }
}

/// A header line with the metadata, then the text.
fn page(head: &str, text: &str) -> String {
    let head = harmless(head);
    if text.is_empty() { format!("# {head}") } else { format!("# {head}\n{}", harmless(text)) }
}

/// Replaces control characters except newline and tab, which could end a paste or move the cursor.
fn harmless(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let quiet = |c: char| if c.is_control() && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(quiet).collect()
}
