//! One turn: text that grows, questions for permission, and its end.

use std::collections::HashMap;

use frontdesk_client::Turn;
use frontdesk_wire::action::PromptOption;
use frontdesk_wire::{Act, MessageEvent};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::super::answer::Answer;
use super::super::files::{self, Files};
use super::super::{Ended, Permissions, Trouble, cut, lock};
use super::connection::{Connection, FromAgent, RpcError, Updates};
use super::{AUTH_REQUIRED, Acp, CANCEL_TIME, Pressed, Question, needs_login};

/// The content of a message for the agent.
pub(super) fn blocks(event: &MessageEvent, files: &Files) -> Vec<Value> {
    let mut text = event.text.clone();
    for missing in &files.missing {
        text.push_str(&format!("\n[A file could not be fetched: {missing}]"));
    }
    let mut blocks = vec![json!({ "type": "text", "text": text })];
    blocks.extend(files.list.iter().map(|file| {
        let uri = url::Url::from_file_path(&file.path).map(String::from).unwrap_or_default();
        json!({ "type": "resource_link", "uri": uri, "name": file.name, "mimeType": file.mime, "size": file.size })
    }));
    blocks
}

/// Buttons under a question; further options cannot be chosen.
const OPTIONS_MAX: usize = 10;
const TITLE_MAX_CHARS: usize = 500;
/// Tool calls of one turn whose titles are remembered.
const TITLES_MAX: usize = 1000;
/// How often a question is shown again after another person answered it.
const REPEATS_MAX: usize = 3;

/// A turn in progress.
pub(super) struct Talk<'a> {
    acp: &'a Acp,
    turn: &'a Turn,
    connection: &'a Connection,
    session: &'a str,
    text: String,
    gap: bool,
    /// Bytes of the whole text, including what was cut off.
    length: usize,
    is_cut: bool,
    question: Option<Asked>,
    /// Titles of tool calls, by id.
    titles: HashMap<String, String>,
}

/// A question for permission.
struct Asked {
    id: Value,
    title: String,
    prompt_id: String,
    options: Vec<Value>,
    answer: oneshot::Receiver<Pressed>,
    until: Instant,
    repeats: usize,
}

type Answered = oneshot::Receiver<Result<Value, RpcError>>;

impl<'a> Talk<'a> {
    pub(super) fn new(acp: &'a Acp, turn: &'a Turn, connection: &'a Connection, session: &'a str) -> Self {
        let (text, gap, length, is_cut) = (String::new(), false, 0, false);
        Self { acp, turn, connection, session, text, gap, length, is_cut, question: None, titles: HashMap::new() }
    }

    pub(super) async fn run(
        &mut self,
        updates: &mut Updates,
        answered: Answered,
        answer: &mut Answer,
    ) -> Result<Ended, Trouble> {
        let mut ended = std::pin::pin!(self.connection.answer(answered));
        let deadline = Instant::now() + self.acp.limits.turn;
        // Set once the turn was cancelled: its result, and the time until which it may end by itself.
        let mut leaving: Option<(Trouble, Instant)> = None;
        loop {
            let limit = leaving.as_ref().map_or(deadline, |(_, until)| *until);
            let is_news = !self.text.is_empty() && leaving.is_none();
            tokio::select! {
                Some(update) = updates.recv() => self.take(update, leaving.is_some()).await,
                outcome = &mut ended => {
                    // What it sent before is here already.
                    while let Some(update) = updates.try_recv() {
                        self.take(update, true).await;
                    }
                    self.settle(None).await;
                    return match (outcome, leaving) {
                        (_, Some((trouble, _))) => { answer.grow(&self.text).await; Err(trouble) }
                        (outcome, None) => self.end(outcome),
                    };
                }
                pressed = pressed(&mut self.question) => match pressed {
                    Some(Pressed::Option(option)) => self.settle(Some(option)).await,
                    Some(Pressed::ByOther) => self.ask_again().await,
                    None => self.settle(None).await,
                },
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

    async fn take(&mut self, update: FromAgent, is_leaving: bool) {
        match update {
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
            FromAgent::Tool { id, title } => {
                self.gap = true;
                if let Some(title) = title.filter(|_| self.titles.len() < TITLES_MAX || self.titles.contains_key(&id)) {
                    self.titles.insert(id, title);
                }
            }
            FromAgent::Permission { id, params } => {
                let options = params["options"].as_array().cloned().unwrap_or_default();
                if is_leaving || self.question.is_some() || self.acp.limits.permissions == Permissions::Deny {
                    self.refuse(id, &options).await;
                } else if let Some(title) = self.title(&params["toolCall"]) {
                    let until = Instant::now() + self.acp.limits.permission;
                    self.ask(id, title, options, until, 0).await;
                } else {
                    tracing::warn!("a permission request was refused: it does not say what it is for");
                    self.refuse(id, &options).await;
                }
            }
        }
    }

    fn end(&self, outcome: Result<Value, RpcError>) -> Result<Ended, Trouble> {
        let reason = match outcome {
            Ok(outcome) => outcome["stopReason"].as_str().unwrap_or("end_turn").to_owned(),
            Err(RpcError::Refused { code: AUTH_REQUIRED, .. }) => return Err(needs_login()),
            Err(error) => return Err(Trouble::Again(error.to_string())),
        };
        let note = match reason.as_str() {
            _ if self.is_cut => Some(format!("(cut off after {} of {} bytes)", self.text.len(), self.length)),
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

    /// What permission is asked for, in the words of the agent and with what it gives to the tool.
    fn title(&self, call: &Value) -> Option<String> {
        let known = || self.titles.get(call["toolCallId"].as_str()?).map(String::as_str);
        let title = call["title"].as_str().or_else(known).filter(|title| !title.trim().is_empty())?;
        let input = match &call["rawInput"] {
            Value::Null => String::new(),
            input => format!("\n{input}"),
        };
        Some(format!("{title}{input}").chars().take(TITLE_MAX_CHARS).collect())
    }

    async fn ask(&mut self, id: Value, title: String, options: Vec<Value>, until: Instant, repeats: usize) {
        // What is allowed for always would be allowed in the chats of others as well.
        let options: Vec<Value> =
            options.into_iter().filter(|it| it["kind"] != "allow_always").take(OPTIONS_MAX).collect();
        let style = |kind: &str| if kind.starts_with("allow") { "primary" } else { "danger" };
        let shown = options.iter().enumerate().map(|(number, option)| PromptOption {
            id: number.to_string(),
            label: option["name"].as_str().unwrap_or("?").chars().take(80).collect(),
            style: Some(style(option["kind"].as_str().unwrap_or_default()).into()),
        });
        let event = &self.turn.event;
        let prompt_id = format!("{:016x}{:016x}", files::random(), files::random());
        let (sender, answer) = oneshot::channel();
        let (chat, user) = (event.source.chat_id.to_string(), event.source.user_id.clone());
        lock(&self.acp.questions).insert(prompt_id.clone(), Question { chat, user, answer: sender });
        let again = if repeats > 0 { "Only the person who wrote the message may answer. " } else { "" };
        let act = Act::Prompt {
            chat_id: event.source.chat_id.clone(),
            prompt_kind: "approval".into(),
            prompt_id: prompt_id.clone(),
            content: format!("{again}The agent asks for permission: {title}"),
            options: shown.collect(),
            timeout_s: Some(until.saturating_duration_since(Instant::now()).as_secs_f64()),
            reply_to: event.message_id.clone(),
        };
        self.question = Some(Asked { id, title, prompt_id, options, answer, until, repeats });
        if let Err(error) = self.acp.agent.act(event, act).await {
            tracing::warn!(%error, "showing a permission request failed; it was refused");
            self.settle(None).await;
        }
    }

    /// Another person answered, and a prompt takes one answer: the question is shown again.
    async fn ask_again(&mut self) {
        if self.question.as_ref().is_some_and(|asked| asked.repeats >= REPEATS_MAX) {
            return self.settle(None).await;
        }
        let Some(asked) = self.question.take() else { return };
        lock(&self.acp.questions).remove(&asked.prompt_id);
        self.ask(asked.id, asked.title, asked.options, asked.until, asked.repeats + 1).await;
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
async fn pressed(question: &mut Option<Asked>) -> Option<Pressed> {
    match question {
        Some(asked) => tokio::select! {
            chosen = &mut asked.answer => chosen.ok(),
            () = sleep_until(asked.until) => None,
        },
        None => std::future::pending().await,
    }
}
