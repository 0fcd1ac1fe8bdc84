//! `--acp`: a child that speaks the Agent Client Protocol, started by the first message and stopped when idle.

mod connection;
mod sessions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use frontdesk_client::{Agent, Turn};
use frontdesk_wire::action::PromptOption;
use frontdesk_wire::{Act, MessageEvent};
use serde_json::{Value, json};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use self::connection::{Connection, ENDED, FromAgent, RpcError};
use self::sessions::Sessions;
use super::answer::Answer;
use super::child::{self, Process};
use super::files::Files;
use super::{Ended, Limits, Permissions, Trouble, cut, lock};

const PROTOCOL_VERSION: u64 = 1;
/// Agents load models and tools before they answer.
const START_TIME: Duration = Duration::from_secs(120);
/// A session that is loaded sends its whole history.
const SESSION_TIME: Duration = Duration::from_secs(60);
/// Time to end a turn after it was cancelled.
const CANCEL_TIME: Duration = Duration::from_secs(10);
/// Pause before a child is started that has just failed, doubled each time.
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// A child that lived for so long did not fail at its start.
const HEALTHY: Duration = Duration::from_secs(30);
/// The agent needs a login.
const AUTH_REQUIRED: i64 = -32000;
/// Buttons under a question; further options cannot be chosen.
const OPTIONS_MAX: usize = 10;
const TITLE_MAX_CHARS: usize = 500;

struct Running {
    process: Process,
    connection: Arc<Connection>,
    can_resume: bool,
    can_load: bool,
    /// Chats whose session this child knows.
    open: HashMap<String, String>,
    since: Instant,
}

#[derive(Default)]
struct Keeper {
    running: Option<Running>,
    failures: u32,
    not_before: Option<Instant>,
}

/// A question for permission that waits for a button.
struct Question {
    chat: String,
    user: Option<String>,
    answer: oneshot::Sender<usize>,
}

pub(super) struct Acp {
    agent: Arc<Agent>,
    limits: Arc<Limits>,
    sessions: Sessions,
    keeper: AsyncMutex<Keeper>,
    /// Number of turns, and when the last one ended.
    turns: Mutex<(usize, Instant)>,
    questions: Mutex<HashMap<String, Question>>,
}

impl Acp {
    pub(super) fn new(agent: Arc<Agent>, limits: Arc<Limits>) -> anyhow::Result<Arc<Self>> {
        let sessions = Sessions::open(limits.state.join("sessions.json")).context("reading the file of sessions failed")?;
        let acp = Arc::new(Self {
            agent,
            limits,
            sessions,
            keeper: AsyncMutex::default(),
            turns: Mutex::new((0, Instant::now())),
            questions: Mutex::default(),
        });
        tokio::spawn(stop_when_idle(Arc::downgrade(&acp)));
        Ok(acp)
    }

    pub(super) async fn turn(&self, turn: &Turn, files: &Files, answer: &mut Answer) -> Result<Ended, Trouble> {
        lock(&self.turns).0 += 1;
        let outcome = tokio::select! {
            outcome = self.prompt(turn, files, answer) => outcome,
            () = sleep(self.limits.turn + CANCEL_TIME * 2) => Err(Trouble::Final(self.too_long())),
        };
        let mut turns = lock(&self.turns);
        (turns.0, turns.1) = (turns.0 - 1, Instant::now());
        outcome
    }

    fn too_long(&self) -> String {
        format!("it did not answer within {} s and was stopped", self.limits.turn.as_secs())
    }

    /// The user pressed a button of a question.
    pub(super) fn pressed(&self, event: &MessageEvent) -> bool {
        let Some(pressed) = &event.prompt_response else { return false };
        let mut questions = lock(&self.questions);
        let Some(question) = questions.get(&pressed.prompt_id) else { return false };
        // Only who asked for the turn may allow what it does.
        if question.chat != *event.source.chat_id || question.user != event.source.user_id {
            tracing::warn!("somebody else answered a question for permission; it is not counted");
            return true;
        }
        if let (Some(question), Ok(option)) = (questions.remove(&pressed.prompt_id), pressed.option_id.parse()) {
            let _ = question.answer.send(option); // the turn may have ended
        }
        true
    }

    pub(super) async fn stop_child(&self) {
        let running = self.keeper.lock().await.running.take();
        if let Some(running) = running {
            running.process.stop().await;
        }
    }

    // ---- the child and its sessions --------------------------------------------------------

    /// The session of a chat, in a child that is started if there is none. True if the chat begins anew, although it had
    /// a session.
    async fn session(&self, chat: &str) -> Result<(Arc<Connection>, String, bool), Trouble> {
        let mut keeper = self.keeper.lock().await;
        if let Some(running) = &mut keeper.running
            && let Some(why) = running.connection.end()
        {
            let lived = running.since.elapsed();
            tracing::warn!(why, "the command ended");
            keeper.running = None;
            keeper.failed(lived);
        }
        if keeper.running.is_none() {
            if let Some(until) = keeper.not_before {
                sleep_until(until).await;
            }
            match timeout(START_TIME, self.start()).await {
                Ok(Ok(running)) => keeper.running = Some(running),
                Ok(Err(trouble)) => {
                    keeper.failed(Duration::ZERO);
                    return Err(trouble);
                }
                Err(_) => {
                    keeper.failed(Duration::ZERO);
                    let text = format!("the command did not answer `initialize` within {} s", START_TIME.as_secs());
                    return Err(Trouble::Again(text));
                }
            }
        }
        let Some(running) = &mut keeper.running else { return Err(Trouble::Again(ENDED.into())) };
        let connection = running.connection.clone();
        if let Some(session) = running.open.get(chat) {
            return Ok((connection, session.clone(), false));
        }
        let known = self.sessions.get(chat);
        let resumed = match &known {
            Some(session) => self.resume(running, session).await,
            None => false,
        };
        let session = match (&known, resumed) {
            (Some(session), true) => session.clone(),
            _ => self.new_session(&connection, chat).await?,
        };
        running.open.insert(chat.to_owned(), session.clone());
        Ok((connection, session, known.is_some() && !resumed))
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
        let told = match connection.call("initialize", hello, START_TIME).await {
            Ok(told) => told,
            Err(RpcError::Gone(why)) if why == ENDED => {
                let status = timeout(child::GRACE, process.ended()).await; // it may have closed its output only
                let why = if let Ok(Err(status)) = status { status } else { why };
                return Err(Trouble::Again(format!("{why}; its standard error is in the log")));
            }
            Err(error) => return Err(Trouble::Again(error.to_string())),
        };
        if told["protocolVersion"].as_u64() != Some(PROTOCOL_VERSION) {
            let version = &told["protocolVersion"];
            return Err(Trouble::Final(format!("it speaks version {version} of the protocol, not {PROTOCOL_VERSION}")));
        }
        let can = &told["agentCapabilities"];
        Ok(Running {
            process,
            connection,
            can_resume: can["sessionCapabilities"]["resume"].is_object(),
            can_load: can["loadSession"] == true,
            open: HashMap::new(),
            since: Instant::now(),
        })
    }

    /// True if the session goes on where it ended.
    async fn resume(&self, running: &Running, session: &str) -> bool {
        let params = json!({ "sessionId": session, "cwd": self.limits.cwd, "mcpServers": [] });
        let method = match (running.can_resume, running.can_load) {
            (true, _) => "session/resume",
            (false, true) => "session/load",
            (false, false) => return false,
        };
        match running.connection.call(method, params, SESSION_TIME).await {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, method, "a session cannot be continued; a new one is made");
                false
            }
        }
    }

    async fn new_session(&self, connection: &Connection, chat: &str) -> Result<String, Trouble> {
        let params = json!({ "cwd": self.limits.cwd, "mcpServers": [] });
        let made = connection.call("session/new", params, SESSION_TIME).await.map_err(|error| match error {
            RpcError::Refused { code: AUTH_REQUIRED, .. } => {
                Trouble::Final("it needs a login: run the command once in a terminal and log in".into())
            }
            other => Trouble::Again(other.to_string()),
        })?;
        let session = made["sessionId"].as_str().ok_or_else(|| Trouble::Again("it made a session without an id".into()))?;
        if let Err(error) = self.sessions.put(chat, session) {
            tracing::error!(%error, "storing a session failed; it cannot be continued after a restart");
        }
        Ok(session.to_owned())
    }

    // ---- a turn ----------------------------------------------------------------------------

    async fn prompt(&self, turn: &Turn, files: &Files, answer: &mut Answer) -> Result<Ended, Trouble> {
        let source = &turn.event.source;
        let chat = json!([source.platform, source.chat_id, source.thread_id]).to_string();
        let (connection, session, is_anew) = self.session(&chat).await?;
        let mut told = connection.follow(&session);
        let params = json!({ "sessionId": session, "prompt": blocks(&turn.event, files) });
        let outcome = match connection.begin("session/prompt", &params).await {
            Ok(answered) => {
                let mut talk = Talk {
                    acp: self,
                    turn,
                    connection: &connection,
                    session: &session,
                    text: String::new(),
                    gap: false,
                    length: 0,
                    is_cut: false,
                    question: None,
                };
                talk.run(&mut told, answered, answer).await
            }
            Err(error) => Err(Trouble::Again(error.to_string())),
        };
        connection.unfollow(&session);
        if matches!(outcome, Err(Trouble::Final(_))) {
            self.stop_child().await; // it did not end its turn, and would mix it with the next one
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

impl Keeper {
    fn failed(&mut self, lived: Duration) {
        self.failures = if lived >= HEALTHY { 0 } else { self.failures + 1 };
        let pause = PAUSE_FIRST * 2_u32.saturating_pow(self.failures.min(10));
        self.not_before = (self.failures > 0).then(|| Instant::now() + pause.min(PAUSE_MAX) / 2);
    }
}

/// The content of a message for the agent.
fn blocks(event: &MessageEvent, files: &Files) -> Vec<Value> {
    let mut text = event.text.clone();
    for missing in &files.missing {
        text.push_str(&format!("\n[A file could not be fetched: {missing}]"));
    }
    let mut blocks = vec![json!({ "type": "text", "text": text })];
    blocks.extend(files.files.iter().map(|file| {
        let uri = url::Url::from_file_path(&file.path).map(String::from).unwrap_or_default();
        json!({ "type": "resource_link", "uri": uri, "name": file.name, "mimeType": file.mime, "size": file.size })
    }));
    blocks
}

/// A turn in progress.
struct Talk<'a> {
    acp: &'a Acp,
    turn: &'a Turn,
    connection: &'a Connection,
    session: &'a str,
    text: String,
    gap: bool,
    /// Of the whole text, also of what was cut off.
    length: usize,
    is_cut: bool,
    question: Option<Asked>,
}

/// A question for permission.
struct Asked {
    id: Value,
    prompt_id: String,
    options: Vec<Value>,
    answer: oneshot::Receiver<usize>,
    until: Instant,
}

type Answered = oneshot::Receiver<Result<Value, RpcError>>;

impl Talk<'_> {
    async fn run(
        &mut self,
        told: &mut tokio::sync::mpsc::Receiver<FromAgent>,
        answered: Answered,
        answer: &mut Answer,
    ) -> Result<Ended, Trouble> {
        let mut ended = std::pin::pin!(self.connection.answer(answered));
        let deadline = Instant::now() + self.acp.limits.turn;
        // Set once the turn was cancelled: what it ends with, and until when it may end by itself.
        let mut leaving: Option<(Trouble, Instant)> = None;
        loop {
            let limit = leaving.as_ref().map_or(deadline, |(_, until)| *until);
            let is_news = !self.text.is_empty() && leaving.is_none();
            tokio::select! {
                biased;
                Some(told) = told.recv() => self.take(told, leaving.is_some()).await?,
                outcome = &mut ended => {
                    self.settle(None).await;
                    return match (outcome, leaving) {
                        (_, Some((trouble, _))) => { answer.grow(&self.text).await; Err(trouble) }
                        (outcome, None) => self.end(outcome),
                    };
                }
                choice = choice(&mut self.question) => self.settle(choice).await,
                () = self.turn.stopped.cancelled(), if leaving.is_none() => {
                    self.cancel().await;
                    leaving = Some((Trouble::Stopped, Instant::now() + CANCEL_TIME));
                }
                () = sleep_until(limit) => match leaving {
                    None => {
                        self.cancel().await;
                        leaving = Some((Trouble::Final(self.acp.too_long()), Instant::now() + CANCEL_TIME));
                    }
                    Some((Trouble::Stopped, _)) => {
                        return Err(Trouble::Final("it was stopped, but did not end its turn".into()));
                    }
                    Some((trouble, _)) => return Err(trouble),
                },
                () = sleep_until(answer.next_show()), if is_news && self.question.is_none() => answer.grow(&self.text).await,
            }
        }
    }

    async fn take(&mut self, told: FromAgent, is_leaving: bool) -> Result<(), Trouble> {
        match told {
            FromAgent::Text(more) => {
                self.length += more.len();
                let room = self.acp.limits.output_max.saturating_sub(self.text.len());
                if std::mem::take(&mut self.gap) && !self.text.is_empty() && room > 0 {
                    self.text.push_str("\n\n");
                }
                let (more, is_cut) = cut(&more, room);
                self.text.push_str(more);
                self.is_cut |= is_cut;
            }
            FromAgent::Gap => self.gap = true,
            FromAgent::Permission { id, params } => {
                let options = params["options"].as_array().cloned().unwrap_or_default();
                if is_leaving || self.question.is_some() || self.acp.limits.permissions == Permissions::Deny {
                    self.refuse(id, &options).await;
                } else {
                    self.ask(id, &params["toolCall"], options).await;
                }
            }
        }
        Ok(())
    }

    fn end(&self, outcome: Result<Value, RpcError>) -> Result<Ended, Trouble> {
        let reason = match outcome {
            Ok(outcome) => outcome["stopReason"].as_str().unwrap_or("end_turn").to_owned(),
            Err(RpcError::Refused { code: AUTH_REQUIRED, .. }) => {
                return Err(Trouble::Final("it needs a login: run the command once in a terminal and log in".into()));
            }
            Err(error) => return Err(Trouble::Again(error.to_string())),
        };
        let is_cut = self.is_cut;
        let note = match reason.as_str() {
            _ if is_cut => Some(format!("(cut off after {} of {} bytes)", self.text.len(), self.length)),
            "end_turn" => None,
            "max_tokens" => Some("(the answer ends here: it reached the limit of the model)".into()),
            "max_turn_requests" => Some("(the agent stopped: it made too many requests in one turn)".into()),
            "refusal" => Some("(the agent refused to go on)".into()),
            other => Some(format!("(the agent stopped: {})", other.chars().take(40).collect::<String>())),
        };
        Ok(Ended { text: self.text.clone(), note })
    }

    async fn cancel(&mut self) {
        self.settle(None).await;
        let _ = self.connection.notify("session/cancel", json!({ "sessionId": self.session })).await; // it may be gone
    }

    // ---- permission ------------------------------------------------------------------------

    async fn ask(&mut self, id: Value, call: &Value, options: Vec<Value>) {
        let title: String = call["title"].as_str().unwrap_or("use a tool").chars().take(TITLE_MAX_CHARS).collect();
        let style = |kind: &str| if kind.starts_with("allow") { "primary" } else { "danger" };
        let shown = options.iter().take(OPTIONS_MAX).enumerate().map(|(number, option)| PromptOption {
            id: number.to_string(),
            label: option["name"].as_str().unwrap_or("?").chars().take(80).collect(),
            style: Some(style(option["kind"].as_str().unwrap_or_default()).into()),
        });
        let event = &self.turn.event;
        let prompt_id = format!("{:032x}", u128::from(super::files::random()) << 64 | u128::from(super::files::random()));
        let (tell, answer) = oneshot::channel();
        let (chat, user) = (event.source.chat_id.to_string(), event.source.user_id.clone());
        lock(&self.acp.questions).insert(prompt_id.clone(), Question { chat, user, answer: tell });
        let act = Act::Prompt {
            chat_id: event.source.chat_id.clone(),
            prompt_kind: "approval".into(),
            prompt_id: prompt_id.clone(),
            content: format!("The agent asks for permission: {title}"),
            options: shown.collect(),
            timeout_s: Some(self.acp.limits.permission.as_secs_f64()),
            reply_to: event.message_id.clone(),
        };
        let until = Instant::now() + self.acp.limits.permission;
        self.question = Some(Asked { id, prompt_id, options, answer, until });
        if let Err(error) = self.acp.agent.act(event, act).await {
            tracing::warn!(%error, "a question for permission cannot be shown; it is refused");
            self.settle(None).await;
        }
    }

    /// Answers the open question: with an option, or by refusing.
    async fn settle(&mut self, option: Option<usize>) {
        let Some(asked) = self.question.take() else { return };
        lock(&self.acp.questions).remove(&asked.prompt_id);
        let chosen = option.and_then(|number| asked.options.get(number)).and_then(|option| option["optionId"].as_str());
        match chosen {
            Some(id) => self.reply(asked.id, json!({ "outcome": "selected", "optionId": id })).await,
            None => self.refuse(asked.id, &asked.options).await,
        }
    }

    /// With the option that refuses once, if the agent offers it.
    async fn refuse(&self, id: Value, options: &[Value]) {
        let refusing = options.iter().find(|option| option["kind"] == "reject_once");
        let outcome = match refusing.and_then(|option| option["optionId"].as_str()) {
            Some(option) => json!({ "outcome": "selected", "optionId": option }),
            None => json!({ "outcome": "cancelled" }),
        };
        self.reply(id, outcome).await;
    }

    async fn reply(&self, id: Value, outcome: Value) {
        let _ = self.connection.reply(id, json!({ "outcome": outcome })).await; // it may be gone
    }
}

/// The button that was pressed; `None` once the time is over. Never returns without a question.
async fn choice(question: &mut Option<Asked>) -> Option<usize> {
    match question {
        Some(asked) => tokio::select! {
            chosen = &mut asked.answer => chosen.ok(),
            () = sleep_until(asked.until) => None,
        },
        None => std::future::pending().await,
    }
}

/// Stops the child after a time without turns. Its sessions are continued by the next one.
async fn stop_when_idle(acp: std::sync::Weak<Acp>) {
    loop {
        let Some(acp) = acp.upgrade() else { return };
        let (turns, last) = *lock(&acp.turns);
        let (idle, limit) = (last.elapsed(), acp.limits.child_idle);
        if turns == 0 && idle >= limit && acp.keeper.lock().await.running.is_some() {
            tracing::info!("the command was idle and is stopped");
            acp.stop_child().await;
        }
        drop(acp);
        sleep(limit.saturating_sub(idle).clamp(Duration::from_millis(100), Duration::from_secs(10))).await;
    }
}
