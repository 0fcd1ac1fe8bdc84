//! `--acp`: a child that speaks the Agent Client Protocol, started by the first message and stopped when idle.

mod connection;
mod sessions;
mod talk;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use frontdesk_client::{Agent, Turn};
use frontdesk_wire::{MessageEvent, UserId};
use serde_json::json;
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::connection::{Connection, ENDED, RpcError};
use self::sessions::{SESSIONS_MAX, Sessions};
use self::talk::{Talk, blocks};
use super::answer::Answer;
use super::child::{self, Process};
use super::files::Files;
use super::{Ended, Limits, Trouble, lock};

const PROTOCOL_VERSION: u64 = 1;
/// Agents load models and tools before they answer.
const START_TIME: Duration = Duration::from_mins(2);
/// A session that is loaded sends its whole history.
const SESSION_TIME: Duration = Duration::from_mins(1);
/// Time to take a message.
const WRITE_TIME: Duration = Duration::from_secs(30);
/// Time to end a turn after it was cancelled.
const CANCEL_TIME: Duration = Duration::from_secs(10);
/// Pause before a failed child is started again, doubled each time.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// A child that ran this long counts as started successfully.
const HEALTHY: Duration = Duration::from_secs(30);
/// The agent needs a login.
const AUTH_REQUIRED: i64 = -32000;

struct Running {
    process: Process,
    connection: Arc<Connection>,
    can_resume: bool,
    can_load: bool,
    /// Chats whose session this child knows.
    open: HashMap<String, String>,
    /// Chats whose session has a turn that does not end.
    stuck: HashSet<String>,
    since: Instant,
}

impl Running {
    /// Makes room for one more chat. A chat that is removed resumes its session later, as after a restart of the child.
    fn make_room(&mut self) {
        if self.open.len() >= SESSIONS_MAX
            && let Some(chat) = self.open.keys().next().cloned()
        {
            self.open.remove(&chat);
        }
    }
}

/// What a turn needs to know of the child.
struct Known {
    connection: Arc<Connection>,
    /// The method that continues a session.
    resume: Option<&'static str>,
    /// The session of the chat, if this child has it.
    open: Option<String>,
    is_stuck: bool,
}

#[derive(Default)]
struct ChildState {
    running: Option<Running>,
    failures: u32,
    not_before: Option<Instant>,
}

/// Turns that run, and when the last one ended.
struct Turns {
    count: usize,
    last: Instant,
}

/// Counts a turn while it is there.
struct Counted<'a>(&'a Mutex<Turns>);

impl<'a> Counted<'a> {
    fn new(turns: &'a Mutex<Turns>) -> Self {
        lock(turns).count += 1;
        Self(turns)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut turns = lock(self.0);
        (turns.count, turns.last) = (turns.count - 1, Instant::now());
    }
}

/// A question for permission that waits for a button.
struct Question {
    chat: String,
    user: Option<UserId>,
    answer: oneshot::Sender<Pressed>,
}

/// The result of a press on a button of a question.
enum Pressed {
    Option(usize),
    /// By a person who may not answer it.
    ByOther,
}

pub(super) struct Acp {
    agent: Arc<Agent>,
    limits: Arc<Limits>,
    sessions: Sessions,
    child: AsyncMutex<ChildState>,
    turns: Mutex<Turns>,
    questions: Mutex<HashMap<String, Question>>,
}

impl Acp {
    pub(super) fn new(agent: Arc<Agent>, limits: Arc<Limits>) -> anyhow::Result<Arc<Self>> {
        let sessions =
            Sessions::open(limits.state.join("sessions.json")).context("reading the file of sessions failed")?;
        let acp = Arc::new(Self {
            agent,
            limits,
            sessions,
            child: AsyncMutex::default(),
            turns: Mutex::new(Turns { count: 0, last: Instant::now() }),
            questions: Mutex::default(),
        });
        tokio::spawn(stop_when_idle(Arc::downgrade(&acp)));
        Ok(acp)
    }

    pub(super) async fn turn(&self, turn: &Turn, files: &Files, answer: &mut Answer) -> Result<Ended, Trouble> {
        let _counted = Counted::new(&self.turns);
        self.prompt(turn, files, answer).await
    }

    fn too_long(&self) -> String {
        format!("it did not answer within {} s and was stopped", self.limits.turn.as_secs_f64())
    }

    /// The user pressed a button of a question.
    pub(super) fn pressed(&self, event: &MessageEvent) -> bool {
        let Some(pressed) = &event.prompt_response else { return false };
        let Some(question) = lock(&self.questions).remove(&pressed.prompt_id) else { return false };
        // Only the user who caused the turn may allow its calls. An unknown user may not.
        let is_asker = question.user.is_some() && question.user == event.source.user_id;
        let answer = match pressed.option_id.parse() {
            Ok(option) if is_asker && question.chat == *event.source.chat_id => Pressed::Option(option),
            _ => Pressed::ByOther,
        };
        let _ = question.answer.send(answer); // the turn may have ended
        true
    }

    pub(super) async fn stop_child(&self) {
        let running = self.child.lock().await.running.take();
        if let Some(running) = running {
            running.process.stop().await;
        }
    }

    /// A turn did not end. The next one in its session would be mixed with it, so the child is stopped, or, if other chats
    /// need it, the chat gets another session.
    async fn leave_turn(&self, chat: &str) {
        if lock(&self.turns).count <= 1 {
            return self.stop_child().await;
        }
        let mut child = self.child.lock().await;
        let Some(running) = &mut child.running else { return };
        running.open.remove(chat);
        running.stuck.insert(chat.to_owned());
        if running.stuck.len() >= SESSIONS_MAX {
            drop(child);
            self.stop_child().await;
        }
    }

    // ---- the child and its sessions --------------------------------------------------------

    /// The child, which is started if there is none.
    async fn child(&self, chat: &str) -> Result<Known, Trouble> {
        let mut child = self.child.lock().await;
        if let Some(running) = &child.running
            && let Some(why) = running.connection.end()
        {
            let lived = running.since.elapsed();
            tracing::warn!(why, "the command ended");
            child.running = None;
            child.failed(lived);
        }
        if child.running.is_none() {
            if let Some(until) = child.not_before {
                sleep_until(until).await;
            }
            match self.start().await {
                Ok(running) => child.running = Some(running),
                Err(trouble) => {
                    child.failed(Duration::ZERO);
                    return Err(trouble);
                }
            }
        }
        let Some(running) = &child.running else { return Err(Trouble::Again(ENDED.into())) };
        Ok(Known {
            connection: running.connection.clone(),
            resume: match (running.can_resume, running.can_load) {
                (true, _) => Some("session/resume"),
                (false, true) => Some("session/load"),
                (false, false) => None,
            },
            open: running.open.get(chat).cloned(),
            is_stuck: running.stuck.contains(chat),
        })
    }

    /// The session of a chat. True if the chat begins anew, although it had one.
    async fn session(&self, chat: &str) -> Result<(Arc<Connection>, String, bool), Trouble> {
        // The lock of the child is not held here: an agent that is slow with one session must not hold up others.
        let Known { connection, resume, open, is_stuck } = self.child(chat).await?;
        if let Some(session) = open {
            return Ok((connection, session, false));
        }
        let resume = resume.filter(|_| !is_stuck);
        let made = self.open(&connection, chat, resume).await;
        let mut child = self.child.lock().await;
        let is_same = child.running.as_ref().is_some_and(|it| Arc::ptr_eq(&it.connection, &connection));
        let (session, is_anew) = match made {
            Ok(made) => made,
            Err(RpcError::Refused { code: AUTH_REQUIRED, .. }) => return Err(needs_login()),
            Err(error) => {
                if is_same && matches!(error, RpcError::Late { .. }) {
                    child.running = None; // it hangs: all chats get another one
                    child.failed(Duration::ZERO);
                }
                return Err(Trouble::Again(error.to_string()));
            }
        };
        if let Some(running) = child.running.as_mut().filter(|_| is_same) {
            running.stuck.remove(chat);
            running.make_room();
            running.open.insert(chat.to_owned(), session.clone());
        }
        Ok((connection, session, is_anew))
    }

    async fn start(&self) -> Result<Running, Trouble> {
        let mut process = child::start(&self.limits.command, &self.limits.cwd, Vec::new()).map_err(Trouble::Again)?;
        let (Some(stdin), Some(stdout)) = (process.child.stdin.take(), process.child.stdout.take()) else {
            return Err(Trouble::Again("the command has no standard input or output".into()));
        };
        let connection = Arc::new(Connection::over(stdin, stdout));
        let hello = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
            "clientInfo": { "name": "frontdesk", "title": "Frontdesk", "version": env!("CARGO_PKG_VERSION") },
        });
        let response = match connection.call("initialize", hello, START_TIME).await {
            Ok(response) => response,
            Err(RpcError::Gone(why)) if why == ENDED => {
                let status = timeout(child::GRACE, process.ended()).await; // it may have closed its output only
                let why = if let Ok(Err(status)) = status { status } else { why };
                return Err(Trouble::Again(format!("{why}; its standard error is in the log")));
            }
            Err(error) => return Err(Trouble::Again(error.to_string())),
        };
        if response["protocolVersion"].as_u64() != Some(PROTOCOL_VERSION) {
            let version = &response["protocolVersion"];
            return Err(Trouble::Final(format!("it speaks version {version} of the protocol, not {PROTOCOL_VERSION}")));
        }
        let can = &response["agentCapabilities"];
        Ok(Running {
            process,
            connection,
            can_resume: can["sessionCapabilities"]["resume"].is_object(),
            can_load: can["loadSession"] == true,
            open: HashMap::new(),
            stuck: HashSet::new(),
            since: Instant::now(),
        })
    }

    /// Continues the session of a chat with this method, or makes a new one. True if the chat begins anew, although it had one.
    async fn open(
        &self,
        connection: &Connection,
        chat: &str,
        resume: Option<&'static str>,
    ) -> Result<(String, bool), RpcError> {
        let known = self.sessions.get(chat);
        if let (Some(session), Some(method)) = (&known, resume) {
            let params = json!({ "sessionId": session, "cwd": self.limits.cwd, "mcpServers": [] });
            match connection.call(method, params, SESSION_TIME).await {
                Ok(_) => return Ok((session.clone(), false)),
                Err(error @ RpcError::Refused { .. }) => {
                    tracing::warn!(%error, method, "continuing a session failed; a new one is created");
                }
                Err(error) => return Err(error),
            }
        }
        let params = json!({ "cwd": self.limits.cwd, "mcpServers": [] });
        let made = connection.call("session/new", params, SESSION_TIME).await?;
        let Some(session) = made["sessionId"].as_str() else {
            return Err(RpcError::Refused { code: 0, message: "it made a session without an id".into() });
        };
        if let Err(error) = self.sessions.put(chat, session) {
            tracing::error!(%error, "storing a session failed; it cannot be continued after a restart");
        }
        Ok((session.to_owned(), known.is_some()))
    }

    // ---- a turn ----------------------------------------------------------------------------

    async fn prompt(&self, turn: &Turn, files: &Files, answer: &mut Answer) -> Result<Ended, Trouble> {
        let source = &turn.event.source;
        let chat = json!([source.platform, source.chat_id, source.thread_id]).to_string();
        let (connection, session, is_anew) = tokio::select! {
            session = self.session(&chat) => session?,
            () = turn.stopped.cancelled() => return Err(Trouble::Stopped),
        };
        let mut updates = connection.follow(&session);
        let params = json!({ "sessionId": session, "prompt": blocks(&turn.event, files) });
        let outcome = match timeout(WRITE_TIME, connection.begin("session/prompt", &params)).await {
            Ok(Ok(answered)) => {
                let mut talk = Talk::new(self, turn, &connection, &session);
                talk.run(&mut updates, answered, answer).await
            }
            Ok(Err(error)) => Err(Trouble::Again(error.to_string())),
            Err(_) => Err(Trouble::Final("it does not read its standard input".into())),
        };
        connection.unfollow(&session);
        drop(updates); // later updates of the child for this turn must not block it
        if matches!(outcome, Err(Trouble::Final(_))) {
            self.leave_turn(&chat).await;
        }
        outcome.map(|mut ended| {
            if is_anew {
                let note = "(The earlier conversation could not be continued; this is a new one.)".to_owned();
                ended.note = Some(ended.note.map_or(note.clone(), |before| format!("{before}\n{note}")));
            }
            ended
        })
    }
}

fn needs_login() -> Trouble {
    Trouble::Final("it needs a login: run the command once in a terminal and log in".into())
}

impl ChildState {
    fn failed(&mut self, lived: Duration) {
        self.failures = if lived >= HEALTHY { 0 } else { self.failures + 1 };
        let pause = PAUSE_FIRST * 2_u32.saturating_pow(self.failures.min(10));
        self.not_before = (self.failures > 0).then(|| Instant::now() + pause.min(PAUSE_MAX) / 2);
    }
}

/// Stops the child after a time without turns. Its sessions are continued by the next one.
async fn stop_when_idle(acp: std::sync::Weak<Acp>) {
    loop {
        let Some(acp) = acp.upgrade() else { return };
        let (count, idle) = {
            let turns = lock(&acp.turns);
            (turns.count, turns.last.elapsed())
        };
        let limit = acp.limits.child_idle;
        if count == 0 && idle >= limit {
            let mut child = acp.child.lock().await;
            // A turn that began meanwhile waits for this lock, or has the child already.
            let running = if lock(&acp.turns).count == 0 { child.running.take() } else { None };
            drop(child);
            if let Some(running) = running {
                running.process.stop().await;
                tracing::info!("idle command stopped");
            }
        }
        drop(acp);
        sleep(limit.saturating_sub(idle).clamp(Duration::from_millis(100), Duration::from_secs(10))).await;
    }
}
