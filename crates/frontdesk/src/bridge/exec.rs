//! `--exec`: one process for each message.

use std::sync::Arc;

use frontdesk_client::Turn;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::files::Files;
use super::{Ended, Limits, Trouble, child, cut};

/// A command that writes more than this is ended.
const OUTPUT_READ_MAX: usize = 16 << 20;
/// What the command is told about the message. None of them is a setting of the server, so that the command can call
/// `frontdesk` itself.
pub(crate) const EXEC_VARIABLES: [&str; 9] = [
    "FRONTDESK_PLATFORM",
    "FRONTDESK_CHAT_ID",
    "FRONTDESK_CHAT_TYPE",
    "FRONTDESK_THREAD_ID",
    "FRONTDESK_USER_ID",
    "FRONTDESK_USER_NAME",
    "FRONTDESK_MESSAGE_ID",
    "FRONTDESK_FILES",
    "FRONTDESK_FILES_MISSING",
];

pub(super) struct Exec {
    pub(super) limits: Arc<Limits>,
}

impl Exec {
    pub(super) async fn turn(&self, turn: &Turn, files: &Files) -> Result<Ended, Trouble> {
        let limit = self.limits.turn;
        tokio::select! {
            outcome = timeout(limit, self.ask(turn, files)) => outcome.unwrap_or_else(|_| {
                Err(Trouble::Final(format!("the command did not end within {} s and was stopped", limit.as_secs_f64())))
            }),
            () = turn.stopped.cancelled() => Err(Trouble::Stopped),
        }
    }

    async fn ask(&self, turn: &Turn, files: &Files) -> Result<Ended, Trouble> {
        let (event, source) = (&turn.event, &turn.event.source);
        // In the order of their names.
        let values: [String; EXEC_VARIABLES.len()] = [
            source.platform.clone(),
            source.chat_id.to_string(),
            source.chat_type.clone(),
            source.thread_id.clone().unwrap_or_default(),
            source.user_id.clone().unwrap_or_default().to_string(),
            source.user_name.clone().unwrap_or_default(),
            event.message_id.clone().unwrap_or_default().to_string(),
            files.paths().join("\n"),
            files.missing.join("\n"),
        ];
        let env = EXEC_VARIABLES.into_iter().zip(values).collect();
        let mut process = child::start(&self.limits.command, &self.limits.cwd, env).map_err(Trouble::Again)?;
        let (Some(mut stdin), Some(stdout)) = (process.child.stdin.take(), process.child.stdout.take()) else {
            return Err(Trouble::Again("the command has no standard input or output".into()));
        };
        let text = event.text.clone();
        let write = async move {
            let _ = stdin.write_all(text.as_bytes()).await; // it need not read
        };
        let mut output = Vec::new();
        let mut stdout = stdout.take(OUTPUT_READ_MAX as u64 + 1);
        let read = stdout.read_to_end(&mut output);
        let ((), read) = tokio::join!(write, read);
        read.map_err(|error| Trouble::Again(format!("reading the output of the command failed: {error}")))?;
        if output.len() > OUTPUT_READ_MAX {
            return Err(Trouble::Final(format!("the command wrote more than {OUTPUT_READ_MAX} bytes and was stopped")));
        }
        process.ended().await.map_err(|why| Trouble::Again(format!("{why}; its standard error is in the log")))?;
        let whole = String::from_utf8_lossy(&output);
        let (text, is_cut) = cut(whole.trim_end(), self.limits.output_max);
        let note = is_cut.then(|| format!("(cut off after {} of {} bytes)", text.len(), output.len()));
        Ok(Ended { text: text.to_owned(), note })
    }
}
