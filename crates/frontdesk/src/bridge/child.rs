//! A child process in a group of its own, whose standard error is in our log.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Time to end after it was asked to.
pub(super) const GRACE: Duration = Duration::from_secs(5);
/// Lines of standard error that are logged for one child, and their length.
const LINES_MAX: usize = 1000;
const LINE_MAX_BYTES: u64 = 2000;

/// Ends with everything that it started.
pub(super) struct Process {
    pub(super) child: Child,
    group: Option<Pid>,
}

/// Starts the command. It does not see the secret of the agent.
pub(super) fn start(command: &[String], cwd: &Path, env: Vec<(&str, String)>) -> Result<Process, String> {
    let (program, arguments) = command.split_first().ok_or("there is no command")?;
    let mut builder = Command::new(program);
    builder.args(arguments).current_dir(cwd).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    builder.env("NO_COLOR", "1").process_group(0).kill_on_drop(true);
    // Tokens of the server and of the agent are not the command's business.
    let is_ours = |name: &str| name.starts_with("GATEWAY_RELAY_") || name.starts_with("FRONTDESK_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_ours)) {
        builder.env_remove(name);
    }
    for (name, value) in env {
        builder.env(name, value.replace('\0', ""));
    }
    let mut child = builder.spawn().map_err(|error| format!("the command {program:?} cannot be started: {error}"))?;
    let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    if let Some(errors) = child.stderr.take() {
        tokio::spawn(log_lines(errors));
    }
    Ok(Process { child, group })
}

impl Process {
    /// Waits for its end, and says how it ended.
    pub(super) async fn ended(&mut self) -> Result<(), String> {
        match self.child.wait().await {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("the command ended with {status}")),
            Err(error) => Err(format!("the command cannot be waited for: {error}")),
        }
    }

    /// Asks it to end, then ends it.
    pub(super) async fn stop(mut self) {
        drop(self.child.stdin.take());
        self.signal(Signal::TERM);
        let _ = timeout(GRACE, self.child.wait()).await; // what is left is killed below
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, signal); // it may be gone
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

async fn log_lines(errors: impl AsyncRead + Unpin) {
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    for number in 0.. {
        line.clear();
        match (&mut errors).take(LINE_MAX_BYTES).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) if number < LINES_MAX => {
                tracing::info!(line = %String::from_utf8_lossy(&line).trim_end(), "stderr of the command");
            }
            Ok(_) if number == LINES_MAX => {
                tracing::warn!("the command wrote too much to stderr; the rest is not logged");
            }
            Ok(_) => {}
        }
    }
}
