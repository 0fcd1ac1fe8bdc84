//! Events that may happen once, whichever server handles them.

use frontdesk_wire::api::VerdictBrief;
use frontdesk_wire::{BotId, EventId, InstanceNo, MessageEvent, MessageId, TenantId};

use super::{InboundPlane, Marks};
use crate::error::DeskError;
use crate::gate;
use crate::hash::short_hash;
use crate::port::store::{Acceptance, Delivery, StoreError};

/// Shown to a user whose answer to a prompt came after another one.
const ANSWERED: &str = "This was answered already.";
/// Shown for a repeated `/stop`. It is not stored whether the first one reached the agent.
const STOP_REPEATED: &str =
    "This /stop was received before and is not repeated. If the agent is still running, send /stop again.";
const NOT_KNOWN: &str =
    "It is not known whether this prompt was answered before: the store could not be read. Check the chat.";

impl InboundPlane {
    /// Claims a name; false if it was claimed before. The claim is the dedup key of an event without receivers and is
    /// deleted with such events, so use it only for names that are needed for hours.
    pub async fn claim_once(&self, tenant: &TenantId, kind: &str, name: &str) -> Result<bool, StoreError> {
        let delivery = Delivery {
            event: EventId::default(),
            at_ms: self.env.now_ms(),
            passthrough: false,
            json: "{}".into(),
            platform: kind.into(),
            bot: BotId::default(),
            chat_id: "".into(),
            session_key: "".into(),
            message_id: MessageId::default(),
        };
        let dedup = [b"once ".as_slice(), &short_hash(&[tenant, kind, name])].concat();
        let event = Acceptance::unreceived(tenant, dedup, delivery, r#"{"outcome":"claimed"}"#.into());
        let accepted = self.lease.accept(&*self.ledger, vec![event]).await?;
        Ok(accepted.first().is_some_and(|accepted| accepted.fresh))
    }

    /// The dedup key of an event, and the id of a press that has the key of its prompt. Of presses that reach an agent
    /// the first one counts; one that reaches none leaves the prompt open. A repetition by the vendor has the same key.
    pub(super) async fn key_of(
        &self,
        own: Vec<u8>,
        tenant: &TenantId,
        marks: &Marks<'_>,
        event: &MessageEvent,
        press_of: Option<&MessageId>,
        reaches: bool,
    ) -> Result<(Vec<u8>, Option<MessageId>), StoreError> {
        let (Some(prompt), Some(id)) = (press_of, &event.message_id) else { return Ok((own, None)) };
        let of_prompt = marks.answer(&event.source, prompt);
        let mut known = self.events.events_marked(tenant, vec![own.clone(), of_prompt.clone()]).await?.into_iter();
        let was_refused = known.next().flatten().is_some();
        let was_taken = known.next().flatten().is_some_and(|answer| answer.message_id == *id);
        let counts = was_taken || reaches && !was_refused;
        Ok(if counts { (of_prompt, Some(id.clone())) } else { (own, None) })
    }

    /// The brief of an event that is not new. All is committed: an error here must not make the platform send it again.
    /// `press` is the id of a press; another one may have answered the prompt.
    pub(super) async fn brief_of_repeated(
        &self,
        event: EventId,
        press: Option<&MessageId>,
        own: VerdictBrief,
    ) -> VerdictBrief {
        let withheld = |text: &str| VerdictBrief { outcome: "withheld".into(), text: text.into(), delivery: None };
        match (press, self.earlier_brief(event).await) {
            (Some(press), Ok(Some((message_id, earlier)))) if *press == message_id => earlier,
            (Some(_), Ok(_)) => withheld(ANSWERED),
            (None, Ok(earlier)) => earlier.map_or(own, |(_, brief)| brief),
            (press, Err(error)) => {
                tracing::warn!(%error, "reading the decision about a repeated event failed");
                press.map_or(own, |_| withheld(NOT_KNOWN))
            }
        }
    }

    /// The message id of an event, and what was decided about it.
    async fn earlier_brief(&self, event: EventId) -> Result<Option<(MessageId, VerdictBrief)>, DeskError> {
        let Some(record) = self.events.event(event).await? else { return Ok(None) };
        let Some(read) = gate::read_verdict(&record.verdict, &record.tenant) else { return Ok(None) };
        let sockets = self.delivery.sockets();
        let receivers: Vec<InstanceNo> = self.directory.read(|view| {
            let delivered = read.instances.iter().filter(|line| line.outcome == "delivered" && !read.interrupted);
            delivered.filter_map(|line| view.instance(&record.tenant, &line.instance)).map(|it| it.no).collect()
        });
        let delivery = self.handover(receivers.into_iter().map(|no| (no, sockets.presence(no).served_by)));
        let is_stop = read.interrupted;
        let mut brief = VerdictBrief { delivery, ..read.brief() };
        if is_stop {
            brief.text = STOP_REPEATED.into();
        }
        Ok(Some((record.message_id, brief)))
    }
}
