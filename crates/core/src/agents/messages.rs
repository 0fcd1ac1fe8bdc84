//! Commits messages from agent to agent: the inbox message together with the ledger rows of the agent's sockets.

use std::sync::Arc;

use frontdesk_wire::agents::{Class, ConnectorReceipt, DeliveryMeta, Fault};
use frontdesk_wire::event::AgentEnvelope;
use frontdesk_wire::{
    ChatId, EventId, InboxSeq, InstanceId, InstanceNo, MessageEvent, MessageId, Source, TenantId, build_session_key,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Addressee, AgentsPlane};
use crate::base::Base;
use crate::cron::CronPlane;
use crate::delivery::DeliveryPlane;
use crate::directory::DirectoryPlane;
use crate::env::Env;
use crate::hash::short_hash;
use crate::lease::Lease;
use crate::meters::Meters;
use crate::port::bus::Bus;
use crate::port::inbox::{Inbox, InboxMessage, StoredMessage};
use crate::port::platform::{ActingAs, Bot, Platforms};
use crate::port::store::{Acceptance, Claims, Delivery, Events, Ledger, MadeRow, StoreError};
use crate::port::stores::Stores;
use crate::rules::Rules;
use crate::tail::Tail;

/// Text of one message. A relay frame is limited to 1 MiB, and JSON escapes make text longer.
const TEXT_MAX_BYTES: usize = 1 << 20;
const META_MAX_BYTES: usize = 256 << 10;
/// Platform name under which gateways receive messages of other agents.
const PLATFORM: &str = "relay";
const BOT: &str = "desk";
/// Message id of events that record who asked a question.
const QUESTION: &str = "question";

/// Stored with a message: its sender, and the receipts of the connectors.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct StoredReceipts {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    /// False: not all connectors were tried yet. After a crash a repetition of the message tries them again.
    pub(super) done: bool,
    /// The message was routed to a stream instead of the agent's sockets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) instead_of_sockets: bool,
    pub(super) receipts: Vec<ConnectorReceipt>,
}

/// A message before it is committed.
pub(super) struct NewMessage<'a> {
    /// augment, template, wake, `wake_degraded`
    pub(super) kind: &'a str,
    pub(super) text: &'a str,
    pub(super) meta: Option<&'a DeliveryMeta>,
    pub(super) from: Option<&'a str>,
    pub(super) session: Option<&'a str>,
    pub(super) delivery_id: &'a str,
    /// The sender waits for an answer.
    pub(super) asks: bool,
    /// The asking agent, which gets a late answer.
    pub(super) asked_by: Option<&'a InstanceId>,
    /// A second message with the same key is a duplicate.
    pub(super) dedup: [u8; 16],
}

/// A committed message.
pub(super) struct Committed {
    pub(super) stored: StoredMessage,
    /// False: it is a duplicate of an earlier message.
    pub(super) fresh: bool,
    /// A duplicate whose message has expired, so receipts cannot be stored.
    pub(super) gone: bool,
    /// Ledger rows of the agent's sockets.
    pub(super) rows: Vec<MadeRow>,
}

/// Messages to agents: commits them to inboxes, and hands them to live sessions and connectors.
pub struct Messages {
    pub(super) env: Arc<dyn Env>,
    pub(super) lease: Arc<Lease>,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) claims: Arc<dyn Claims>,
    pub(super) agents: Arc<AgentsPlane>,
    pub(super) directory: Arc<DirectoryPlane>,
    pub(super) delivery: Arc<DeliveryPlane>,
    pub(super) cron: Arc<CronPlane>,
    pub(super) ledger: Arc<dyn Ledger>,
    events: Arc<dyn Events>,
    pub(super) inbox: Arc<dyn Inbox>,
    platforms: Arc<Platforms>,
    pub(super) tail: Arc<Tail>,
    pub(super) meters: Arc<Meters>,
    pub(super) rules: Arc<Rules>,
}

impl Messages {
    pub(crate) fn new(base: &Base, stores: &Stores, agents: &Arc<AgentsPlane>, platforms: &Arc<Platforms>) -> Self {
        Self {
            env: base.env.clone(),
            lease: base.lease.clone(),
            bus: base.bus.clone(),
            claims: stores.claims.clone(),
            directory: agents.directory.clone(),
            delivery: agents.delivery.clone(),
            cron: agents.cron.clone(),
            agents: agents.clone(),
            ledger: stores.ledger.clone(),
            events: stores.events.clone(),
            inbox: stores.inbox.clone(),
            platforms: platforms.clone(),
            tail: base.tail.clone(),
            meters: base.meters.clone(),
            rules: base.rules.clone(),
        }
    }

    /// Commits the message and the ledger rows of its sockets in one transaction.
    pub(super) async fn commit(
        &self,
        to: &Addressee,
        message: &NewMessage<'_>,
        at_ms: u64,
        receivers: Vec<InstanceNo>,
        record: &StoredReceipts,
    ) -> Result<Committed, Fault> {
        let inbox_message = InboxMessage {
            agent: to.agent.no,
            delivery_id: message.delivery_id.into(),
            kind: message.kind.into(),
            text: message.text.into(),
            meta: message.meta.map(|meta| serde_json::to_string(meta).unwrap_or_default()),
            session_id: message.session.map(str::to_owned),
            receipts: serde_json::to_string(record).unwrap_or_default(),
        };
        let (event, mut acceptance) = self.acceptance(to, message, at_ms, receivers)?;
        acceptance.message = Some(inbox_message.clone());
        let reaches = acceptance.reaches;
        let mut batch = vec![acceptance];
        batch.extend(question_mark(to, message, at_ms));
        let accepted = self.lease.accept(&*self.ledger, batch).await?;
        let Some(accepted) = accepted.into_iter().next() else {
            return Err(StoreError::Unavailable("the ledger returned no row for the message".into()).into());
        };
        if !accepted.fresh {
            let first = self.inbox.message_of(accepted.event).await?;
            let gone = first.is_none();
            let stored = match first {
                Some(first) => first,
                None => self.forgotten(accepted.event, inbox_message).await?,
            };
            return Ok(Committed { stored, fresh: false, gone, rows: Vec::new() });
        }
        if reaches {
            self.show_people(to, &event).await;
        }
        let stored = StoredMessage { place: accepted.place, event: accepted.event, at_ms, message: inbox_message };
        Ok(Committed { stored, fresh: true, gone: false, rows: accepted.rows })
    }

    /// Sends a committed message to the agent's sockets too, because the stream chosen instead did not take it.
    pub(super) async fn pass_on(&self, to: &Addressee, message: &NewMessage<'_>, at_ms: u64) -> Result<(), Fault> {
        let message =
            NewMessage { session: None, dedup: short_hash(&["passed on", &hex::encode(message.dedup)]), ..*message };
        let (event, acceptance) = self.acceptance(to, &message, at_ms, to.relay.iter().map(|it| it.no).collect())?;
        self.lease.accept(&*self.ledger, vec![acceptance]).await?;
        self.show_people(to, &event).await;
        Ok(())
    }

    /// Repeats a question after a crash or a timeout. Sockets with an unsettled row get it from the ledger; the others
    /// get it again under the same delivery id.
    pub(super) async fn ask_again(&self, to: &Addressee, message: &NewMessage<'_>, at_ms: u64) -> Result<(), Fault> {
        let mut receivers = Vec::new();
        let message_id = MessageId::from(message.delivery_id);
        for instance in &to.relay {
            if !self.ledger.owes(instance.no, &message_id).await? {
                receivers.push(instance.no);
            }
        }
        if receivers.is_empty() {
            return Ok(());
        }
        let message = NewMessage { dedup: short_hash(&["asked again", &self.env.random_hex(16)]), ..*message };
        let (event, acceptance) = self.acceptance(to, &message, at_ms, receivers)?;
        self.lease.accept(&*self.ledger, vec![acceptance]).await?;
        self.show_people(to, &event).await;
        Ok(())
    }

    /// The newest question with this correlation id that an agent asked this agent: event number and asking agent.
    pub(super) async fn question(
        &self,
        tenant: &TenantId,
        agent: InstanceNo,
        correlation_id: &str,
    ) -> Result<Option<(EventId, InstanceId)>, Fault> {
        let key = question_key(agent, correlation_id).into_bytes();
        let found = self.events.event_named(tenant, key, &QUESTION.into(), None).await?;
        // The mark of a question has the id of the asking agent in place of a chat.
        Ok(found.map(|it| (it.event, it.chat_id.as_str().into())))
    }

    /// Marks a question as answered, so that later replies are refused.
    pub(super) async fn close_question(&self, tenant: &TenantId, question: EventId) -> Result<(), Fault> {
        let dedup = [b"\0agent:".as_slice(), &reply_mark(question)].concat();
        self.lease.accept(&*self.ledger, vec![mark(tenant, dedup, ChatId::default(), self.env.now_ms())]).await?;
        Ok(())
    }

    /// Shows the event in chats of people who watch; it is not part of the delivery.
    async fn show_people(&self, to: &Addressee, event: &MessageEvent) {
        if let Some(platform) = self.platforms.get(PLATFORM) {
            let bot = Bot::bare(BOT);
            platform.show_agent_message(ActingAs::new(&to.agent.tenant, &bot), event).await;
        }
    }

    fn acceptance(
        &self,
        to: &Addressee,
        message: &NewMessage<'_>,
        at_ms: u64,
        receivers: Vec<InstanceNo>,
    ) -> Result<(MessageEvent, Acceptance), Fault> {
        let (event, json) = self.sized(message, !receivers.is_empty())?;
        let line = json!([to.agent.id, true, "owner", "agent", message.from.unwrap_or_default()]);
        let delivery = Delivery {
            event: EventId::default(),
            at_ms,
            passthrough: false,
            json,
            platform: PLATFORM.into(),
            bot: BOT.into(),
            chat_id: event.source.chat_id.clone(),
            session_key: build_session_key(&event.source),
            message_id: message.delivery_id.into(),
        };
        let dedup = [b"\0agent:".as_slice(), &message.dedup].concat();
        let verdict = json!(["delivered", PLATFORM, [line]]).to_string();
        let reaches = !receivers.is_empty();
        let unreceived = Acceptance::unreceived(&to.agent.tenant, dedup, delivery, verdict);
        Ok((event, Acceptance { receivers, reaches, ..unreceived }))
    }

    /// Rebuilds a message that expired from its event. Its receipts are unknown.
    async fn forgotten(&self, event: EventId, mut message: InboxMessage) -> Result<StoredMessage, Fault> {
        // If the event has just expired too, the message no longer counts as a duplicate, and the caller may repeat it.
        let first = self.events.event(event).await?.ok_or(StoreError::Conflict)?;
        (message.delivery_id, message.receipts) = (first.message_id.to_string(), String::new());
        Ok(StoredMessage { place: InboxSeq::NONE, event, at_ms: first.at_ms, message })
    }

    /// Checks the size and builds the event, with its JSON if a socket needs it.
    pub(super) fn sized(&self, message: &NewMessage<'_>, for_sockets: bool) -> Result<(MessageEvent, String), Fault> {
        let too_large = |text| Err(Fault::new(Class::TooLargeError, text));
        if message.text.len() > TEXT_MAX_BYTES {
            return too_large(format!("the message is too long; the limit is {TEXT_MAX_BYTES} bytes"));
        }
        let meta_bytes = message.meta.map_or(0, |meta| serde_json::to_string(meta).map_or(0, |json| json.len()));
        if meta_bytes > META_MAX_BYTES {
            return too_large(format!(
                "the meta of the message is too long; the limit is {META_MAX_BYTES} bytes of JSON"
            ));
        }
        if !for_sockets {
            return Ok((event_of(message, None), String::new()));
        }
        let event = event_of(message, message.meta.map(|meta| serde_json::to_value(meta).unwrap_or_default()));
        let json = serde_json::to_string(&event).unwrap_or_default();
        let max = self.rules.frame_max_bytes;
        if json.len() + 256 > max {
            return too_large(format!(
                "the message is too long for the agent's socket; the limit is {max} bytes of JSON"
            ));
        }
        Ok((event, json))
    }

    pub(super) async fn store_receipts(
        &self,
        stored: &StoredMessage,
        kind: &str,
        session_id: Option<String>,
        record: &StoredReceipts,
    ) {
        let receipts = serde_json::to_string(record).unwrap_or_default();
        let now = InboxMessage {
            agent: stored.message.agent,
            kind: kind.into(),
            session_id,
            receipts,
            ..InboxMessage::default()
        };
        if let Err(error) = self.inbox.note_receipts(stored.event, None, now).await {
            tracing::warn!(%error, "storing the receipts of a message failed");
        }
    }
}

/// Dedup keys are text with a common prefix, so that a range query finds all questions of this correlation id.
fn question_key(agent: InstanceNo, correlation_id: &str) -> String {
    format!("\0asked:{}", hex::encode(short_hash(&[&agent.to_string(), correlation_id])))
}

/// Records who asked, as a separate event in the commit of the question. It expires like other events.
fn question_mark(to: &Addressee, message: &NewMessage<'_>, at_ms: u64) -> Option<Acceptance> {
    let by = message.asked_by?;
    let correlation_id = message.meta?.correlation_id.as_deref()?;
    let dedup = format!("{}:{}", question_key(to.agent.no, correlation_id), message.delivery_id);
    Some(mark(&to.agent.tenant, dedup.into_bytes(), by.as_str().into(), at_ms))
}

/// Dedup key of the late answer to a question. It does not depend on the content, so there is one per question.
pub(super) fn reply_mark(question: EventId) -> [u8; 16] {
    short_hash(&["reply to", &question.0.to_string()])
}

/// An event without receivers, stored for its dedup key.
fn mark(tenant: &TenantId, dedup: Vec<u8>, chat_id: ChatId, at_ms: u64) -> Acceptance {
    let delivery = Delivery {
        event: EventId::default(),
        at_ms,
        passthrough: false,
        json: String::new(),
        platform: PLATFORM.into(),
        bot: BOT.into(),
        chat_id,
        session_key: "".into(),
        message_id: QUESTION.into(),
    };
    Acceptance::unreceived(tenant, dedup, delivery, String::new())
}

impl NewMessage<'_> {
    pub(super) fn chat_id(&self) -> String {
        chat_of(self.from)
    }
}

/// Chat id under which an agent's socket receives messages from this sender, and replies to it.
pub(super) fn chat_of(from: Option<&str>) -> String {
    let name: String = from.unwrap_or("desk").chars().filter(|c| !c.is_control()).take(200).collect();
    format!("agent:{name}")
}

fn event_of(message: &NewMessage<'_>, meta: Option<Value>) -> MessageEvent {
    let chat_id = message.chat_id();
    let name = message.from.unwrap_or("desk").to_owned();
    MessageEvent {
        text: message.text.into(),
        message_type: "text".into(),
        source: Source {
            platform: PLATFORM.into(),
            chat_type: "dm".into(),
            chat_name: Some(name.clone()),
            user_id: Some(chat_id.as_str().into()),
            user_name: Some(name),
            chat_id: chat_id.into(),
            // A busy gateway interrupts its turn for the next message of the same chat; its answer then fits neither
            // message. A thread per question avoids this, and identifies the answer.
            thread_id: message.asks.then(|| message.delivery_id.into()),
            message_id: Some(message.delivery_id.into()),
            ..Source::default()
        },
        message_id: Some(message.delivery_id.into()),
        delivery: Some(Box::new(AgentEnvelope {
            kind: message.kind.into(),
            delivery_id: message.delivery_id.into(),
            meta,
            session_id: message.session.map(str::to_owned),
        })),
        ..MessageEvent::default()
    }
}
