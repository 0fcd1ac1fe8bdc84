//! A tmux server for one test, with a program in its pane that records what it reads.

use std::process::Command;
use std::time::Duration;

use frontdesk_connectors::TmuxSettings;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::net::unix::pipe;

const LIMIT: Duration = Duration::from_secs(20);

pub(crate) struct Terminal {
    folder: TempDir,
    lines: tokio::sync::Mutex<(BufReader<pipe::Receiver>, Vec<u8>)>,
}

impl Terminal {
    /// A session `agent` whose pane runs `cat`, and a session with a longer name that has the same prefix.
    pub(crate) fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("read");
        assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        // Opened for reading and writing, so that it stays open before and after the pane opens its end.
        let receiver = pipe::OpenOptions::new().read_write(true).open_receiver(&fifo).unwrap();
        let lines = tokio::sync::Mutex::new((BufReader::new(receiver), Vec::new()));
        let terminal = Self { folder, lines };
        let reads = format!("exec cat > '{}'", fifo.display());
        terminal.tmux(&["new-session", "-d", "-s", "agent", "-x", "200", "-y", "50", &reads]);
        terminal.tmux(&["new-session", "-d", "-s", "agent-two", "exec cat > /dev/null"]);
        terminal
    }

    pub(crate) fn settings(&self) -> TmuxSettings {
        TmuxSettings { socket: Some(self.socket()), ..TmuxSettings::default() }
    }

    fn socket(&self) -> String {
        self.folder.path().join("socket").to_str().unwrap().into()
    }

    /// FIFO to which the pane's program writes what it reads.
    pub(crate) fn fifo(&self) -> String {
        self.folder.path().join("read").to_str().unwrap().into()
    }

    pub(crate) fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        let socket = self.socket();
        command.args(["-S", &socket, "-f", "/dev/null", "-u"]).args(arguments).env_remove("TMUX");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Everything that the pane's program has read, as soon as it contains this text.
    pub(crate) async fn read_until(&self, text: &str) -> Option<String> {
        let mut lines = self.lines.lock().await;
        let (pipe, seen) = &mut *lines;
        let waiting = async {
            loop {
                let all = String::from_utf8_lossy(seen).into_owned();
                if all.contains(text) {
                    return all;
                }
                assert_ne!(pipe.read_buf(seen).await.unwrap(), 0);
            }
        };
        tokio::time::timeout(LIMIT, waiting).await.ok()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = Command::new("tmux").args(["-S", &self.socket(), "kill-server"]).output();
    }
}
