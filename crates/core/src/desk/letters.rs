//! Words from agents to agents: written down first, then handed over by every way there is. What a receipt
//! says has happened.

use frontdesk_wire::agents::{
    Class, ConnectorReceipt, DeliveryMeta, DeliveryPayload, DeliveryReceipt, Fault, Notified, NotifyPost, WakeOpts,
    WakeReceipt,
};
use frontdesk_wire::event::AgentWord;
use frontdesk_wire::{MessageEvent, Source, build_session_key};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::agents::{Addressee, Speaker};
use super::{Desk, event_id};
use crate::agents::address;
use crate::meters::Why;
use crate::port::letters::{Filed, Letter};
use crate::port::platform::Stand;
use crate::port::store::{Acceptance, Delivery, StoreError};
use crate::registry::facts::Agent;
use crate::seal::short_hash;

/// One message. A relay frame may hold 1 MiB, and JSON makes text longer.
const TEXT_MAX_BYTES: usize = 1 << 20;
/// The plane on which a gateway hears words that come from no vendor's platform.
const PLATFORM: &str = "relay";
const BOT: &str = "desk";

/// What is kept with a letter: who spoke, and how every connector took it.
#[derive(Serialize, Deserialize, Default)]
pub(super) struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    /// False: a crash may have come before every connector was tried.
    pub(super) done: bool,
    /// A stream was chosen to hear it in the place of the agent's sockets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) instead_of_sockets: bool,
    pub(super) receipts: Vec<ConnectorReceipt>,
}

/// A word on its way.
pub(super) struct Word<'a> {
    /// augment, template, wake, `wake_degraded`
    pub(super) kind: &'a str,
    pub(super) text: &'a str,
    pub(super) meta: Option<&'a DeliveryMeta>,
    pub(super) from: Option<&'a str>,
    pub(super) session: Option<&'a str>,
    pub(super) delivery_id: &'a str,
    /// Somebody waits for what is said to it.
    pub(super) asks: bool,
    /// Named again, it is the same word.
    pub(super) dedup: [u8; 16],
}

/// A word that is written down.
pub(super) struct Filing {
    pub(super) filed: Filed,
    /// False: it was there before.
    pub(super) fresh: bool,
    /// It was there before, and its inbox has been dropped since: nothing can be noted on it.
    pub(super) gone: bool,
    /// Its rows in the ledgers of sockets: (instance, seq).
    pub(super) rows: Vec<(u64, u64)>,
}

/// How a delivery went, by connector.
pub(super) struct Delivered {
    pub(super) receipt: DeliveryReceipt,
    pub(super) receipts: Vec<ConnectorReceipt>,
}

impl Desk {
    // ---- deliver -------------------------------------------------------------------------

    /// Durable before it is answered.
    pub async fn deliver(
        &self,
        who: Speaker<'_>,
        address: &str,
        payload: &DeliveryPayload,
    ) -> Result<DeliveryReceipt, Fault> {
        let to = self.addressee(who.tenant, address).await?;
        Box::pin(self.deliver_to(&to, payload, self.new_delivery_id(), false)).await.map(|done| done.receipt)
    }

    pub(super) fn new_delivery_id(&self) -> String {
        format!("dl_{}", self.env.random_hex(12))
    }

    pub(super) async fn deliver_to(
        &self,
        to: &Addressee,
        payload: &DeliveryPayload,
        delivery_id: String,
        asks: bool,
    ) -> Result<Delivered, Fault> {
        let meta = payload.meta();
        let from = speaker_of(meta);
        let hash = short_hash(&[payload.kind(), payload.text()]);
        let created = to.agent.created_ms.to_string();
        let dedup = short_hash(&[&to.agent.tenant, &to.agent.id, &created, &meta.dispatch_id, &hex::encode(hash)]);
        let word = Word {
            kind: payload.kind(),
            text: payload.text(),
            meta: Some(meta),
            from,
            session: None,
            delivery_id: &delivery_id,
            asks,
            dedup,
        };
        let mut warnings = Vec::new();
        if let Some(session) = &to.session {
            warnings.push(format!("the session {session:?} was left out: deliver goes to the agent's mailbox"));
        }
        let at_ms = self.env.now_ms();
        let mut receipts = vec![shown("inbox", &own_receipt(&word, at_ms, self.is_attended(to)))];
        for instance in &to.relay {
            let served = self.switchboard.is_served(instance.no);
            receipts.push(shown("relay", &own_receipt(&word, at_ms, served)));
        }
        receipts.extend(to.unread.iter().map(|fault| failed("connectors", fault)));
        let kept = Kept { from: from.map(str::to_owned), done: to.ways.is_empty(), receipts, ..Kept::default() };
        let receivers = to.relay.iter().map(|it| it.no).collect();
        // Taken before it is written: of several who say the same at once, one goes to the connectors.
        let carrying = if to.ways.is_empty() { None } else { self.rooms.under_way.carry(dedup) };
        let Filing { filed, fresh, gone, .. } = self.file(to, &word, at_ms, receivers, &kept).await?;
        // As it is noted now: whoever carried it before has let go.
        let kept = if fresh { kept } else { serde_json::from_str(&filed.letter.receipts).unwrap_or_default() };
        if fresh {
            self.rooms.attendance.ring(to.agent.no);
        }
        let receipts = match (kept.done || gone, &carrying) {
            (true, _) => kept.receipts,
            (false, Some(_)) => self.push(to, &filed, payload, kept).await,
            (false, None) => {
                // Or by now they were, or nobody could: what is known is that another call was at it.
                let text = "an earlier call was still being tried with its connectors; ask again for how they took it";
                warnings.push(text.into());
                kept.receipts
            }
        };
        drop(carrying);
        if gone {
            warnings.push("this dispatch was delivered before, and is not kept any more".into());
        } else if !fresh {
            warnings.push("this dispatch was delivered before; this is its first receipt".into());
        }
        let receipt = merged(&filed, &receipts, warnings);
        let how = match (fresh, receipt.delivery_skipped) {
            (false, _) => "duplicate",
            (true, true) => "skipped",
            (true, false) => "delivered",
        };
        self.note_word(to, &filed, how, from, &receipts);
        Ok(Delivered { receipt, receipts })
    }

    pub(super) fn is_attended(&self, to: &Addressee) -> bool {
        self.rooms.attendance.is_attended(to.agent.no)
    }

    /// The letter and the rows of the sockets it goes to, in one commit.
    pub(super) async fn file(
        &self,
        to: &Addressee,
        word: &Word<'_>,
        at_ms: u64,
        receivers: Vec<u64>,
        kept: &Kept,
    ) -> Result<Filing, Fault> {
        let letter = Letter {
            agent: to.agent.no,
            delivery_id: word.delivery_id.into(),
            kind: word.kind.into(),
            text: word.text.into(),
            meta: word.meta.map(|meta| serde_json::to_string(meta).unwrap_or_default()),
            session_id: word.session.map(str::to_owned),
            receipts: serde_json::to_string(kept).unwrap_or_default(),
        };
        let (event, mut acceptance) = self.acceptance(to, word, at_ms, receivers)?;
        acceptance.letter = Some(letter.clone());
        let reaches = acceptance.reaches;
        let accepted = self.store.accept(vec![acceptance]).await?;
        let Some(accepted) = accepted.into_iter().next() else {
            return Err(StoreError::Unavailable("nothing was accepted".into()).into());
        };
        if !accepted.fresh {
            let first = self.store.letter_of(accepted.event).await?;
            let gone = first.is_none();
            let filed = match first {
                Some(first) => first,
                None => self.forgotten(accepted.event, letter).await?,
            };
            return Ok(Filing { filed, fresh: false, gone, rows: Vec::new() });
        }
        if reaches {
            self.show_people(to, &event).await;
        }
        let filed = Filed { event: accepted.event, at_ms, letter };
        Ok(Filing { filed, fresh: true, gone: false, rows: accepted.rows })
    }

    /// To the agent's sockets as well: whoever was to hear it in their place did not. Its letter is there.
    pub(super) async fn pass_on(&self, to: &Addressee, word: &Word<'_>, at_ms: u64) -> Result<(), Fault> {
        let word = Word { session: None, dedup: short_hash(&["passed on", &hex::encode(word.dedup)]), ..*word };
        let (event, acceptance) = self.acceptance(to, &word, at_ms, to.relay.iter().map(|it| it.no).collect())?;
        self.store.accept(vec![acceptance]).await?;
        self.show_people(to, &event).await;
        Ok(())
    }

    /// For people who look on; the ledger has it.
    async fn show_people(&self, to: &Addressee, event: &MessageEvent) {
        if let Some(platform) = self.platform(PLATFORM) {
            platform.overheard(Stand { tenant: &to.agent.tenant, bot: BOT }, event).await;
        }
    }

    fn acceptance(
        &self,
        to: &Addressee,
        word: &Word<'_>,
        at_ms: u64,
        receivers: Vec<u64>,
    ) -> Result<(MessageEvent, Acceptance), Fault> {
        let (event, json) = self.sized(word, !receivers.is_empty())?;
        let line = json!([to.agent.id, true, "owner", "agent", word.from.unwrap_or_default()]);
        let acceptance = Acceptance {
            tenant: to.agent.tenant.as_str().into(),
            dedup: [b"\0agent:".as_slice(), &word.dedup].concat(),
            delivery: Delivery {
                event: 0,
                at_ms,
                passthrough: false,
                json,
                platform: PLATFORM.into(),
                bot: BOT.into(),
                chat_id: event.source.chat_id.as_str().into(),
                session_key: build_session_key(&event.source).into(),
                message_id: word.delivery_id.into(),
            },
            verdict: json!(["delivered", PLATFORM, [line]]).to_string(),
            reaches: !receivers.is_empty(),
            receivers,
            own_json: Vec::new(),
            capabilities: Vec::new(),
            letter: None,
        };
        Ok((event, acceptance))
    }

    /// A letter that no inbox has any more, as far as its event tells. How it was taken is not known.
    async fn forgotten(&self, event: u64, mut letter: Letter) -> Result<Filed, Fault> {
        // Forgotten this moment, the event is no mark either: said again, it is new.
        let first = self.store.event(event).await?.ok_or(StoreError::Conflict)?;
        (letter.delivery_id, letter.receipts) = (first.message_id, String::new());
        Ok(Filed { event, at_ms: first.at_ms, letter })
    }

    /// The word as an event, and its JSON where a socket needs it, if it is not too large.
    pub(super) fn sized(&self, word: &Word<'_>, for_sockets: bool) -> Result<(MessageEvent, String), Fault> {
        let too_large = |text| Err(Fault::new(Class::TooLargeError, text));
        if word.text.len() > TEXT_MAX_BYTES {
            return too_large(format!("a message has at most {TEXT_MAX_BYTES} bytes"));
        }
        if !for_sockets {
            return Ok((event_of(word, None), String::new()));
        }
        let event = event_of(word, word.meta.map(|meta| serde_json::to_value(meta).unwrap_or_default()));
        let json = serde_json::to_string(&event).unwrap_or_default();
        let max = self.rules.frame_max_bytes;
        if json.len() + 256 > max {
            return too_large(format!("as a frame it is over {max} bytes; the agent's socket cannot take it"));
        }
        Ok((event, json))
    }

    /// Tries the connectors that are not ours, and notes how they took it. Also for a repeated dispatch whose
    /// first try was cut short.
    async fn push(
        &self,
        to: &Addressee,
        filed: &Filed,
        payload: &DeliveryPayload,
        mut kept: Kept,
    ) -> Vec<ConnectorReceipt> {
        // All at once: whoever waits for the receipt waits for the slowest, not for their sum.
        let tries = to.ways.iter().map(|spec| async move {
            let outcome = match self.connectors.open(&to.agent.id, spec) {
                Ok(connector) => connector.deliver(&to.agent.id, payload).await,
                Err(fault) => Err(fault),
            };
            outcome.map_or_else(|fault| failed(spec.name(), &fault), |receipt| shown(spec.name(), &receipt))
        });
        kept.receipts.extend(join_all(tries).await);
        kept.done = true;
        self.note_kept(filed, &filed.letter.kind, filed.letter.session_id.clone(), &kept).await;
        kept.receipts
    }

    pub(super) async fn note_kept(&self, filed: &Filed, kind: &str, session_id: Option<String>, kept: &Kept) {
        let receipts = serde_json::to_string(kept).unwrap_or_default();
        let now = Letter { agent: filed.letter.agent, kind: kind.into(), session_id, receipts, ..Letter::default() };
        if let Err(error) = self.store.note_receipts(filed.event, now).await {
            tracing::warn!(%error, "how the connectors took a message could not be written down");
        }
    }

    // ---- notify --------------------------------------------------------------------------

    /// One word to one address: the address says whether it wakes.
    pub async fn notify(&self, who: Speaker<'_>, post: NotifyPost) -> Result<Notified, Fault> {
        let dispatch_id = self.env.uuid_v4();
        let mut origin = post.origin;
        if origin.caller_agent_id.is_none() {
            origin.caller_agent_id = who.caller.map(str::to_owned);
        }
        let origin = origin.in_order();
        let to = self.addressee(who.tenant, &post.agent).await?;
        if address::is_wake(&post.agent) {
            let opts = WakeOpts { context: Some(post.message), ..WakeOpts::default() };
            let from = origin.caller_agent_id.or(origin.skill_name);
            let woken = Box::pin(self.wake_to(&to, &opts, from.as_deref(), None)).await?;
            return Ok(Notified { dispatch_id, route: "wake".into(), receipts: woken.receipts });
        }
        let meta = DeliveryMeta {
            dispatch_id: dispatch_id.clone(),
            sent_at: self.env.now_ms(),
            origin,
            event_type: post.event_type,
            correlation_id: post.correlation_id,
            ..DeliveryMeta::default()
        };
        let payload = DeliveryPayload::Augment { content: post.message, meta };
        let done = Box::pin(self.deliver_to(&to, &payload, self.new_delivery_id(), false)).await?;
        Ok(Notified { dispatch_id, route: "deliver".into(), receipts: done.receipts })
    }

    // ---- telling -------------------------------------------------------------------------

    /// A step of the errand to an agent's wake URL, for whoever watches.
    pub fn say_poke(&self, agent: &Agent, step: &'static str, text: &str) {
        self.say(&agent.tenant, step, |notice| {
            notice.instance.clone_from(&agent.id);
            notice.platform = "agents".into();
            notice.text = text.into();
        });
    }

    /// Counted, and told to whoever watches.
    pub(super) fn note_word(
        &self,
        to: &Addressee,
        filed: &Filed,
        how: &'static str,
        from: Option<&str>,
        receipts: &[ConnectorReceipt],
    ) {
        self.meters.agent_words.get_or_create(&Why { why: how }).inc();
        self.say(&to.agent.tenant, how, |notice| {
            notice.instance.clone_from(&to.agent.id);
            notice.event_id = event_id(filed.event);
            notice.platform = "agents".into();
            notice.chat_id = chat_of(from);
            notice.message_id.clone_from(&filed.letter.delivery_id);
            let speaker = from.unwrap_or("the desk");
            let told: Vec<String> = receipts.iter().map(in_words).collect();
            notice.text = format!("{} from {speaker} to {}; {}", filed.letter.kind, to.agent.id, told.join(", "));
        });
    }
}

impl Word<'_> {
    pub(super) fn chat_id(&self) -> String {
        chat_of(self.from)
    }
}

fn own_receipt(word: &Word<'_>, delivered_at: u64, pushed: bool) -> DeliveryReceipt {
    DeliveryReceipt {
        delivered_at,
        delivery_id: Some(word.delivery_id.into()),
        delivery_skipped: !pushed,
        ..DeliveryReceipt::default()
    }
}

/// Who speaks, as well as the envelope tells.
fn speaker_of(meta: &DeliveryMeta) -> Option<&str> {
    let named = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    let origin = &meta.origin;
    [&origin.caller_agent_id, &origin.skill_name].into_iter().find(|name| named(name)).and_then(|it| it.as_deref())
}

pub(super) fn chat_of_payload(payload: &DeliveryPayload) -> String {
    chat_of(speaker_of(payload.meta()))
}

/// The chat in which an agent's socket hears somebody, and would answer.
fn chat_of(from: Option<&str>) -> String {
    let name: String = from.unwrap_or("desk").chars().filter(|c| !c.is_control()).take(200).collect();
    format!("agent:{name}")
}

fn event_of(word: &Word<'_>, meta: Option<Value>) -> MessageEvent {
    let chat_id = word.chat_id();
    let name = word.from.unwrap_or("desk").to_owned();
    MessageEvent {
        text: word.text.into(),
        message_type: "text".into(),
        source: Source {
            platform: PLATFORM.into(),
            chat_type: "dm".into(),
            chat_name: Some(name.clone()),
            user_id: Some(chat_id.clone()),
            user_name: Some(name),
            chat_id,
            // A gateway that is busy in a chat breaks off to take the next word of it, and then says what answers
            // neither or both. In a thread of its own a question disturbs nobody, and its answer is known by it.
            thread_id: word.asks.then(|| word.delivery_id.into()),
            message_id: Some(word.delivery_id.into()),
            ..Source::default()
        },
        message_id: Some(word.delivery_id.into()),
        delivery: Some(Box::new(AgentWord {
            kind: word.kind.into(),
            delivery_id: word.delivery_id.into(),
            meta,
            session_id: word.session.map(str::to_owned),
        })),
        ..MessageEvent::default()
    }
}

pub(super) fn shown(connector: &str, receipt: &impl Serialize) -> ConnectorReceipt {
    let receipt = serde_json::to_value(receipt).ok();
    ConnectorReceipt { connector: connector.into(), ok: true, receipt, error: None }
}

pub(super) fn failed(connector: &str, fault: &Fault) -> ConnectorReceipt {
    let error = Some(Value::Object(fault.as_object()));
    ConnectorReceipt { connector: connector.into(), ok: false, receipt: None, error }
}

/// How a connector took it, for people.
fn in_words(it: &ConnectorReceipt) -> String {
    let says = |what: &str| it.receipt.as_ref().and_then(|receipt| receipt.get(what)).and_then(Value::as_bool);
    let how = match (it.ok, says("woken"), says("delivery_skipped")) {
        (false, ..) => {
            let why = it.error.as_ref().and_then(|error| error.get("message")).and_then(Value::as_str);
            return format!("{}: failed, {}", it.connector, why.unwrap_or("no reason given"));
        }
        (true, Some(true), _) => "woken",
        (true, Some(false), _) => "kept, not woken",
        (true, None, Some(true)) => "kept",
        (true, None, _) => "handed over",
    };
    format!("{}: {how}", it.connector)
}

/// One receipt of all of them: skipped is what nobody pushed.
fn merged(filed: &Filed, receipts: &[ConnectorReceipt], mut warnings: Vec<String>) -> DeliveryReceipt {
    let mut pushed = false;
    for it in receipts {
        match (&it.receipt, &it.error) {
            (Some(receipt), _) => {
                pushed |= receipt.get("delivery_skipped").and_then(Value::as_bool) != Some(true);
                let told = receipt.get("warnings").and_then(Value::as_array).into_iter().flatten();
                warnings.extend(told.filter_map(Value::as_str).map(|text| format!("{}: {text}", it.connector)));
            }
            (None, Some(error)) => {
                let text = error.get("message").and_then(Value::as_str).unwrap_or("it failed");
                warnings.push(format!("{}: {text}", it.connector));
            }
            (None, None) => {}
        }
    }
    DeliveryReceipt {
        delivered_at: filed.at_ms,
        delivery_id: Some(filed.letter.delivery_id.clone()),
        session_id: None,
        delivery_skipped: !pushed,
        warnings,
    }
}

/// How a wake went, by connector.
pub(super) struct Woken {
    pub(super) receipt: WakeReceipt,
    pub(super) receipts: Vec<ConnectorReceipt>,
    /// A way that should have woken it failed, and nobody else was woken.
    pub(super) broke: Option<Fault>,
}
