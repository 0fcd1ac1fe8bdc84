//! API of the built-in chat, for the page and for scripts. The tenant is that of the token or session.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Json as Reply;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use frontdesk_core::directory::View;
use frontdesk_core::directory::facts::Instance;
use frontdesk_core::tail::Notice;
use frontdesk_platforms::chat::{BOT, ChatFacts, ChatWatcher, PLATFORM, Posted};
use frontdesk_wire::api::{ChatHistory, ChatList, ChatPost, ChatPosted, ChatPress, ChatSettings, Members};
use frontdesk_wire::{ChatId, Code, MessageId, TenantId};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::App;
use super::answers::ROW_KIB;
use super::auth::{ChatCaller, ChatTenant};
use super::body::Json;
use super::error::Refusal;
use super::flow::{PAGE_KIB, Spent, holding};

const MEMBERS_MAX: usize = 10_000;
const MEMBERS_MAX_BYTES: usize = 256 << 10;
/// User of the page, until there are accounts.
const PAGE_USER: (&str, &str) = ("you", "You");

#[derive(Deserialize)]
pub(crate) struct After {
    #[serde(default)]
    after: u64,
}

pub(crate) async fn me(State(app): State<App>, ChatTenant(tenant): ChatTenant) -> Result<Response, Refusal> {
    let instances = instances_of(&app, &tenant);
    let spent = app.answers.take(&tenant, 1 + instances.len()).await?;
    let instances: Vec<Value> = instances.into_iter().map(|it| agent_state(&app, &it)).collect();
    let (user_id, user_name) = PAGE_USER;
    let me = json!({ "tenant": tenant, "user_id": user_id, "user_name": user_name, "instances": instances });
    Ok(holding(Reply(me).into_response(), spent))
}

#[derive(Deserialize)]
pub(crate) struct AfterChat {
    #[serde(default)]
    after: String,
}

pub(crate) async fn chats(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    Query(AfterChat { after }): Query<AfterChat>,
) -> Result<Response, Refusal> {
    let spent = app.answers.take(&tenant, PAGE_KIB).await?;
    let page: ChatList = app.chat.chats(&tenant, &after).await?;
    Ok(holding(Reply(page).into_response(), spent))
}

/// Dispatches per response.
const DISPATCH_PAGE: usize = 50;

/// Recent messages between agents of this tenant.
pub(crate) async fn dispatches(State(app): State<App>, ChatTenant(tenant): ChatTenant) -> Result<Response, Refusal> {
    let recent = async {
        let recent = app.desk.inboxes().dispatches(&tenant, DISPATCH_PAGE).await;
        let recent = recent.map_err(|fault| Refusal::new(Code::Unavailable, fault.message))?;
        Ok(json!({ "dispatches": recent }))
    };
    app.answers.answer(&tenant, ROW_KIB, recent).await
}

pub(crate) async fn set(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    Path(chat_id): Path<ChatId>,
    Json(settings): Json<ChatSettings>,
) -> Result<Reply<Value>, Refusal> {
    check_chat_id(&chat_id)?;
    if let Members::Only(members) = &settings.members
        && members.len() > MEMBERS_MAX
    {
        return Err(Refusal::new(Code::BadRequest, format!("a chat can have at most {MEMBERS_MAX} members")));
    }
    if let Members::Only(members) = &settings.members
        && members.iter().map(String::len).sum::<usize>() > MEMBERS_MAX_BYTES
    {
        let text = format!("the member ids of a chat can have at most {MEMBERS_MAX_BYTES} bytes in total");
        return Err(Refusal::new(Code::BadRequest, text));
    }
    let change = |facts: &mut ChatFacts| {
        if let Some(name) = &settings.name {
            facts.name = Some(name.chars().take(200).collect());
        }
        match &settings.members {
            Members::AsBefore => {}
            Members::Everyone => facts.members = None,
            Members::Only(members) => facts.members = Some(members.clone()),
        }
        true
    };
    let facts = app.chat.change_facts(&tenant, &chat_id, change).await?;
    app.desk.inbound().drop_cached_visibility(&tenant, PLATFORM, &BOT.into(), &chat_id);
    Ok(Reply(json!({ "chat_id": chat_id, "name": facts.name, "members": facts.members })))
}

pub(crate) async fn history(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    Path(chat_id): Path<ChatId>,
    Query(After { after }): Query<After>,
) -> Result<Response, Refusal> {
    let spent = app.answers.take(&tenant, PAGE_KIB).await?;
    let page: ChatHistory = app.chat.history(&tenant, &chat_id, after).await?;
    Ok(holding(Reply(page).into_response(), spent))
}

pub(crate) async fn post(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    Path(chat_id): Path<ChatId>,
    Json(post): Json<ChatPost>,
) -> Result<(StatusCode, Reply<ChatPosted>), Refusal> {
    let posted = app.chat.post(&app.desk, &tenant, &chat_id, post).await?;
    Ok((StatusCode::ACCEPTED, Reply(reply(posted))))
}

pub(crate) async fn press(
    State(app): State<App>,
    ChatTenant(tenant): ChatTenant,
    Path((chat_id, message_id)): Path<(ChatId, MessageId)>,
    Json(press): Json<ChatPress>,
) -> Result<(StatusCode, Reply<ChatPosted>), Refusal> {
    let posted = app.chat.press(&app.desk, &tenant, &chat_id, &message_id, press).await?;
    Ok((StatusCode::ACCEPTED, Reply(reply(posted))))
}

fn reply(posted: Posted) -> ChatPosted {
    ChatPosted { event_id: posted.receipt.event_id, message_id: posted.message_id, verdict: posted.receipt.verdict }
}

/// Stream of chat lines, typing, agent states and the progress of each message.
pub(crate) async fn stream(
    State(app): State<App>,
    caller: ChatCaller,
    Path(chat_id): Path<ChatId>,
    Query(After { after }): Query<After>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    // Subscribed before the history is read, so that nothing in between is missed.
    let (signals, notices) = (app.chat.watch(&caller.tenant, &chat_id), app.desk.tail().watch());
    let agents = instances_of(&app, &caller.tenant).into_iter();
    let agents_bytes = agents.len() * size_of::<Arc<Instance>>();
    let spent = Some(app.answers.take(&caller.tenant, agents_bytes / 1024 + 1).await?);
    let tenant = caller.tenant.clone();
    let (leave, history) = (app.drain.slice(), Some(after));
    let ready = VecDeque::new();
    let watch = Watch { app, tenant, caller, chat_id, signals, notices, leave, agents, ready, spent, history };
    let events = stream::unfold(watch, |mut watch| async move { watch.next().await.map(|event| (Ok(event), watch)) });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// How often the caller's access is checked again.
const LOOK_TIME: Duration = Duration::from_secs(5);
const _: () = assert!(LOOK_TIME.as_secs() < 10, "an expired token ends its streams within 10 s");

struct Watch {
    app: App,
    tenant: TenantId,
    caller: ChatCaller,
    chat_id: ChatId,
    signals: ChatWatcher,
    notices: Receiver<Arc<Notice>>,
    leave: CancellationToken,
    /// Agents whose states are sent first. Each event is made when it is sent: there may be thousands.
    agents: std::vec::IntoIter<Arc<Instance>>,
    /// Events that were read but not sent yet.
    ready: VecDeque<Event>,
    /// Share of the tenant's budget for these events, and for the agents before them.
    spent: Option<Spent>,
    /// The last line read from the history. `None`: all of the history was sent.
    history: Option<u64>,
}

impl Watch {
    /// The next event; `None` ends the stream (the page reconnects and reads everything again).
    async fn next(&mut self) -> Option<Event> {
        if let Some(agent) = self.agents.next() {
            return Some(event("agent", &agent_state(&self.app, &agent)));
        }
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            self.spent = None;
            if !self.caller.is_still_good(&self.app) {
                return None;
            }
            match self.history {
                Some(after) => self.read_page(after).await?,
                None => self.watch().await?,
            }
        }
    }

    /// Reads one page, after the previous one was sent.
    async fn read_page(&mut self, after: u64) -> Option<()> {
        self.spent = Some(self.app.answers.take(&self.tenant, PAGE_KIB).await.ok()?);
        let page = self.app.chat.history(&self.tenant, &self.chat_id, after).await;
        let page = page.inspect_err(|error| tracing::error!(%error, "chat history read failed")).ok()?;
        self.history = page.messages.last().map(|last| last.seq).filter(|_| page.more);
        self.ready.extend(page.messages.iter().map(|message| event("message", message)));
        Some(())
    }

    async fn watch(&mut self) -> Option<()> {
        tokio::select! {
            changed = self.signals.next() => {
                let changed = changed?;
                self.ready.push_back(Event::default().event(changed.name).data(&changed.json));
            }
            notice = self.notices.recv() => match notice {
                Ok(notice) if notice.tenant == self.tenant => {
                    let events = self.timeline(&notice);
                    self.ready.extend(events);
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            },
            () = tokio::time::sleep(LOOK_TIME) => {}
            () = self.leave.cancelled() => return None,
        }
        Some(())
    }

    fn timeline(&self, notice: &Notice) -> Vec<Event> {
        if notice.platform == "agents" {
            // Messages between agents have their own place on the page.
            let event_id = notice.event_id.map(|id| id.to_string()).unwrap_or_default();
            let data = json!({ "event_id": event_id, "agent_id": notice.instance, "step": notice.step });
            return vec![event("dispatch", &data)];
        }
        let elsewhere = notice.platform != PLATFORM || notice.chat_id != self.chat_id;
        let of_agent = matches!(notice.step, "awake" | "asleep" | "waking" | "wake_failed");
        if elsewhere && !of_agent {
            return Vec::new();
        }
        let mut events = Vec::new();
        if of_agent {
            let found = self.app.desk.directory().find_instance(&notice.instance, Some(&self.tenant));
            let state = match notice.step {
                "awake" => "awake",
                "asleep" => "asleep",
                _ => "waking",
            };
            if found.is_ok() {
                events
                    .push(event("agent", &json!({ "instance": notice.instance, "state": state, "text": notice.text })));
            }
        }
        events.push(event(
            "timeline",
            &json!({
                "message_id": Some(&notice.message_id).filter(|id| !id.is_empty() && !elsewhere),
                "event_id": notice.event_id.filter(|_| !elsewhere),
                "step": notice.step,
                "at": notice.at,
                "text": notice.text,
            }),
        ));
        events
    }
}

fn event(name: &str, data: &impl serde::Serialize) -> Event {
    Event::default().event(name).data(serde_json::to_string(data).unwrap_or_default())
}

fn instances_of(app: &App, tenant: &TenantId) -> Vec<Arc<Instance>> {
    let of_tenant = |view: &View| Some(view.tenant_index(tenant)?.instances().cloned().collect());
    app.desk.directory().read(of_tenant).unwrap_or_default()
}

fn agent_state(app: &App, instance: &Instance) -> Value {
    let presence = app.desk.delivery().sockets().presence(instance.no);
    let (state, text) = match (app.desk.delivery().sockets().is_live(instance.no), presence.idle, presence.seen_ms) {
        (true, false, _) => ("awake", "connected"),
        (_, true, _) => ("asleep", "asleep; a message will wake it"),
        (false, false, 0) => ("unknown", "never connected"),
        (false, false, _) => ("asleep", "disconnected"),
    };
    json!({ "instance": instance.name, "state": state, "text": text })
}

fn check_chat_id(chat_id: &str) -> Result<(), Refusal> {
    if chat_id.is_empty() || chat_id.chars().count() > 256 || chat_id.chars().any(char::is_control) {
        return Err(Refusal::new(Code::BadRequest, "chat_id must have 1 to 256 characters and no control characters"));
    }
    Ok(())
}
