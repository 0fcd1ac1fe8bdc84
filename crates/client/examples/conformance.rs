//! The agent of the scenarios in `tests/clients/scenario.json`, in Rust. `tests/clients/scenario.py` says what it does.

use std::collections::HashMap;
use std::env::var;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use frontdesk_client::agent::Failure;
use frontdesk_client::agents::AgentsClient;
use frontdesk_client::cron::{FileJobs, HttpCronDesk, Job, Provider, Timing, Work, machine_clock};
use frontdesk_client::transport::BoxFuture;
use frontdesk_client::{Agent, Dial, Serve, TransportError, Turn};
use frontdesk_wire::action::PromptOption;
use frontdesk_wire::agents::{AgentConnector as _, Class, DeliveryMeta, DeliveryPayload, Origin};
use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{Act, MessageEvent, Secret};

const EXCHANGE_MS: u64 = 30_000;
const FILE_MAX_BYTES: usize = 1 << 20;

struct Conformance {
    agent: Arc<Agent>,
    name: String,
    peers: AgentsClient,
    cron: Arc<Provider>,
    attempts: Mutex<HashMap<String, usize>>,
}

fn option(id: &str, label: &str) -> PromptOption {
    PromptOption { id: id.into(), label: label.into(), style: None }
}

/// A message of its own in the built-in chat.
async fn say(agent: &Agent, chat: &str, text: &str) -> Result<(), Failure> {
    let mut event = MessageEvent::default();
    (event.source.platform, event.source.chat_id) = ("relay".into(), chat.into());
    agent.act(&event, Act::Send { chat_id: chat.into(), content: text.into(), reply_to: None }).await?;
    Ok(())
}

impl Conformance {
    async fn reply(&self, event: &MessageEvent, text: &str) -> Result<(), Failure> {
        let (chat_id, reply_to) = (event.source.chat_id.clone(), event.message_id.clone());
        self.agent.act(event, Act::Send { chat_id, content: text.into(), reply_to }).await?;
        Ok(())
    }

    fn payload(&self, text: &str, correlation_id: Option<String>) -> DeliveryPayload {
        let now = machine_clock()();
        let origin = Origin {
            trigger_kind: Some("agent".into()),
            caller_agent_id: Some(self.name.clone()),
            ..Origin::default()
        };
        let meta = DeliveryMeta {
            dispatch_id: format!("{}-{}", self.name, now.as_nanosecond()),
            sent_at: u64::try_from(now.as_millisecond()).unwrap_or_default(),
            origin,
            correlation_id,
            ..DeliveryMeta::default()
        };
        DeliveryPayload::Augment { content: text.into(), meta }
    }

    /// A message of another agent.
    async fn inbox_message(&self, event: &MessageEvent) -> Result<(), Failure> {
        let meta = event.delivery.as_ref().and_then(|it| it.meta.clone()).unwrap_or_default();
        match meta["correlation_id"].as_str() {
            Some(question) => drop(self.peers.reply(&self.name, question, &format!("answer to {}", event.text)).await?),
            None => say(&self.agent, "inbox", &format!("inbox {}", event.text)).await?,
        }
        Ok(())
    }

    async fn talk(&self, turn: &Turn) -> Result<(), Failure> {
        let event = &turn.event;
        if event.delivery.is_some() {
            return self.inbox_message(event).await;
        }
        if let Some(pressed) = &event.prompt_response {
            return self.reply(event, &format!("pressed {}", pressed.option_id)).await;
        }
        let (verb, rest) = event.text.split_once(' ').unwrap_or((&event.text, ""));
        let (first, more) = rest.split_once(' ').unwrap_or((rest, ""));
        let chat_id = event.source.chat_id.clone();
        match verb {
            "echo" => self.reply(event, rest).await?,
            "fail" => {
                let id = event.message_id.clone().unwrap_or_default();
                let attempt = {
                    let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
                    let attempt = attempts.entry(id.to_string()).or_default();
                    *attempt += 1;
                    *attempt
                };
                if attempt <= first.parse()? {
                    return Err(format!("attempt {attempt} fails, as the test wants it").into());
                }
                self.reply(event, more).await?;
            }
            "hold" => {
                turn.stopped.cancelled().await;
                self.reply(event, "stopped").await?;
            }
            "stream" => {
                let sent = self
                    .agent
                    .act(event, Act::Send { chat_id: chat_id.clone(), content: first.into(), reply_to: None });
                let message_id = sent.await?.message_id.unwrap_or_default();
                for (at, _) in rest.match_indices(' ').chain([(rest.len(), "")]) {
                    let (chat_id, message_id, content) = (chat_id.clone(), message_id.clone(), rest[..at].into());
                    self.agent.act(event, Act::Edit { chat_id, message_id, content }).await?;
                }
            }
            "ask" => {
                let act = Act::Prompt {
                    chat_id,
                    prompt_kind: "choice".into(),
                    prompt_id: format!("p{}", machine_clock()().as_nanosecond()),
                    content: "Shall I?".into(),
                    options: vec![option("yes", "Yes"), option("no", "No")],
                    timeout_s: None,
                    reply_to: event.message_id.clone(),
                };
                self.agent.act(event, act).await?;
            }
            "file" => {
                for media in &event.media {
                    let transport = self.agent.transport();
                    let bytes = transport.fetch_file(&media.url, FILE_MAX_BYTES).await?;
                    let filename = media.filename.clone().unwrap_or_default();
                    let source_url = transport.store_file(bytes, &media.mime, &filename).await?;
                    let (chat_id, media_kind) = (chat_id.clone(), media.kind.clone());
                    let (content, filename, reply_to) = (None, Some(filename), event.message_id.clone());
                    self.agent
                        .act(event, Act::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to })
                        .await?;
                }
            }
            "exchange" => {
                let question = format!("q{}", machine_clock()().as_nanosecond());
                let answer = self.peers.request_response(first, &self.payload(more, Some(question)), EXCHANGE_MS).await;
                let text = match answer {
                    Ok(answer) => answer.content,
                    Err(fault) if matches!(fault.class, Class::NotFoundError | Class::UnknownAgentError) => {
                        "error not_found".into()
                    }
                    Err(fault) => format!("error {:?}", fault.class),
                };
                self.reply(event, &text).await?;
            }
            "tell" => drop(self.peers.deliver(first, &self.payload(more, None)).await?),
            "remind" => {
                let now = machine_clock()();
                let mut job = Job::new(
                    format!("remind {}", now.as_nanosecond()),
                    Timing::parse(&format!("+{rest}s"), "UTC", now)?,
                    now,
                );
                job.task = chat_id.to_string().into();
                self.cron.put(job).await?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Serve for Conformance {
    fn message(self: Arc<Self>, turn: Turn) -> BoxFuture<'static, Result<(), Failure>> {
        Box::pin(async move { self.talk(&turn).await })
    }

    fn forward(self: Arc<Self>, forward: PassthroughForward) -> BoxFuture<'static, bool> {
        Box::pin(async move {
            let Some(fire) = Provider::relayed(&forward) else { return false };
            self.cron.fire(&fire).await.is_ok()
        })
    }
}

async fn serve() -> Result<(), Failure> {
    let (url, name) = (var("GATEWAY_RELAY_URL")?, var("GATEWAY_RELAY_ID")?);
    let dial = Dial {
        url: url.clone(),
        gateway_id: name.clone(),
        secret: Secret::new(var("GATEWAY_RELAY_SECRET")?),
        identities: vec![("relay".into(), String::new())],
    };
    let agent = Agent::new(dial, 16);
    let speaker = agent.clone();
    let work: Work = Arc::new(move |job| {
        let speaker = speaker.clone();
        Box::pin(async move {
            let (chat, text) = job.task.as_str().map_or(("cron", "tick"), |chat| (chat, "reminded"));
            if let Err(error) = say(&speaker, chat, text).await {
                eprintln!("{} failed: {error}", job.id);
            }
        })
    });
    let jobs = Arc::new(FileJobs::new(format!("{}/jobs.json", var("XDG_STATE_HOME")?)));
    let desk = Arc::new(HttpCronDesk::new(&url, Secret::new(var("FRONTDESK_IDENTITY_TOKEN")?))?);
    let cron = Arc::new(Provider::new(jobs, Some(desk), "relay:", work, machine_clock()));
    match var("TICK").ok().filter(|it| !it.is_empty()) {
        Some(tick) => {
            cron.declare(Job::new("tick", Timing::parse(&tick, "UTC", machine_clock()())?, machine_clock()())).await?;
        }
        None => drop(cron.remove("tick").await?),
    }
    let peers = AgentsClient::new(&url, Secret::new(var("FRONTDESK_AGENT_TOKEN")?))?;
    let sleep_after = var("SLEEP_AFTER").ok().and_then(|text| text.parse().ok()).map(Duration::from_secs_f64);
    let what = Conformance { agent: agent.clone(), name, peers, cron, attempts: Mutex::default() };
    agent.serve(Arc::new(what), sleep_after).await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            let is_refused = error.downcast_ref::<TransportError>() == Some(&TransportError::Revoked);
            ExitCode::from(if is_refused { 3 } else { 1 })
        }
    }
}
