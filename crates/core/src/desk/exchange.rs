//! A question and its answer. The question is a letter like any other; whoever asked waits on the line.

use std::time::Duration;

use frontdesk_wire::agents::{AgentReply, Class, DeliveryPayload, Fault};
use frontdesk_wire::{Act, Action};

use super::agents::Speaker;
use super::{Caller, Desk};
use crate::agents::waiters::{Refused, Unheard};
use crate::meters::Why;

/// The longest that somebody may wait for an answer.
pub const TIMEOUT_MAX_MS: u64 = 600_000;

impl Desk {
    pub async fn exchange(
        &self,
        who: Speaker<'_>,
        address: &str,
        payload: &DeliveryPayload,
        timeout_ms: u64,
    ) -> Result<AgentReply, Fault> {
        let correlation_id = payload.meta().correlation_id.as_deref().filter(|id| !id.is_empty());
        let Some(correlation_id) = correlation_id else {
            return Err(Fault::invalid("an exchange needs meta.correlation_id"));
        };
        if !(1..=TIMEOUT_MAX_MS).contains(&timeout_ms) {
            return Err(Fault::invalid(format!("timeout_ms is between 1 and {TIMEOUT_MAX_MS}")));
        }
        let to = self.addressee(who.tenant, address).await?;
        let ticket = self.rooms.waiters.wait(who.tenant, correlation_id, to.agent.no, &to.agent.id);
        let (ticket, mut answer) = ticket.map_err(|refused| match refused {
            Refused::InFlight => {
                let text = "an exchange with this correlation_id is under way";
                Fault::new(Class::ConflictError, text).with("correlation_id", correlation_id)
            }
            Refused::TooMany => Fault::new(Class::RateLimitedError, "too many exchanges are under way"),
        })?;
        let question = async {
            // Named before it is written: an answer may come before we hear that it was.
            let chat_id = super::deliver::chat_of_payload(payload);
            let instances: Vec<u64> = to.relay.iter().map(|it| it.no).collect();
            let delivery_id = self.new_delivery_id();
            ticket.asked(&delivery_id, &chat_id, instances.clone());
            let done = Box::pin(self.deliver_to(&to, payload, delivery_id, true)).await?;
            // A repeated question stands in the letter of the first time.
            ticket.asked(&done.receipt.delivery_id.unwrap_or_default(), &chat_id, instances);
            Ok(())
        };
        // Heard also while a slow connector still has the question.
        let heard = async {
            tokio::select! {
                biased;
                reply = &mut answer => Ok(reply.ok()),
                Err(fault) = question => Err(fault),
            }
        };
        let mut answered = tokio::time::timeout(Duration::from_millis(timeout_ms), heard).await;
        drop(ticket); // from here on a reply is told that nobody waits
        if answered.is_err()
            && let Ok(reply) = answer.try_recv()
        {
            answered = Ok(Ok(Some(reply))); // whoever gave it was told that it was heard
        }
        let why = match &answered {
            Ok(Ok(Some(_))) => "answered",
            Ok(_) => "exchange_failed",
            Err(_) => "unanswered",
        };
        self.meters.agent_words.get_or_create(&Why { why }).inc();
        match answered {
            Ok(Ok(Some(reply))) => Ok(reply),
            Ok(Ok(None)) => Err(Fault::unknown_agent(&to.agent.id)), // deleted while it was asked
            Ok(Err(fault)) => Err(fault),
            Err(_) => {
                let text =
                    format!("{} did not answer within {timeout_ms} ms; it may still find the question", to.agent.id);
                Err(Fault::new(Class::TimeoutError, text).with("timeout_ms", timeout_ms))
            }
        }
    }

    /// An agent answers by the API.
    pub fn reply(&self, who: Speaker<'_>, address: &str, correlation_id: &str, content: String) -> Result<(), Fault> {
        let (id, no) = self.inbox_of(who.tenant, address)?;
        let now_ms = self.env.now_ms();
        if let Some(no) = no {
            self.rooms.attendance.note_traffic(no, now_ms);
        }
        // An agent without an inbox was never asked anything: 0 is nobody's number.
        let heard = self.rooms.waiters.reply(who.tenant, correlation_id, no.unwrap_or(0), content, now_ms);
        heard.map_err(|unheard| match unheard {
            Unheard::NobodyWaits => {
                Fault::new(Class::GoneError, "nobody waits for this reply").with("correlation_id", correlation_id)
            }
            Unheard::OtherAgent => Fault::new(Class::ForbiddenError, format!("{id} was not asked: another agent was")),
        })
    }

    /// An agent says something on its own socket: if that answers a question, whoever asked gets it.
    pub(super) fn hear_answer(&self, caller: &Caller, action: &Action) {
        let (chat_id, content, reply_to, sealed) = match &action.act {
            Act::Send { chat_id, content, reply_to } => (chat_id, content, reply_to.as_deref(), false),
            Act::Draft { chat_id, content, sealed: true, .. } => (chat_id, content, None, true),
            _ => return,
        };
        if !chat_id.starts_with("agent:") || self.rooms.waiters.is_empty() {
            return;
        }
        let named = action.meta("correlation_id");
        let thread = action.meta("thread_id");
        // A gateway repeats the thread of the question in all that it says there, notices and progress too, and
        // marks what is worth a bell. A plain agent just replies to the letter.
        let is_last_word = sealed || action.metadata.get("notify").and_then(serde_json::Value::as_bool) == Some(true);
        if named.is_none() && thread.is_some() && !is_last_word {
            return;
        }
        let letter = thread.or(reply_to);
        let meant = self.rooms.waiters.meant(&caller.tenant, caller.instance.no, chat_id, named, letter);
        if let Some((correlation_id, agent)) = meant {
            let now_ms = self.env.now_ms();
            // Whoever asked may have hung up this moment; then it is only a line in the chat.
            let _ = self.rooms.waiters.reply(&caller.tenant, &correlation_id, agent, content.clone(), now_ms);
        }
    }
}
