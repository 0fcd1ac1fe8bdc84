//! Sends one action: journal, scheduler, platform, journal.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::{Act, Action, ActionResult, BotId, ChatId, Code, Secret};

use super::pacing::{Next, NotBegun, TurnOutcome};
use super::scheduler::{Ask, Refusal};
use super::{OutboundPlane, outcome_name, outcome_of, unavailable};
use crate::directory::Caller;
use crate::port::platform::{Acted, ActingAs, Platform};
use crate::port::store::{Closing, JournalEntry, Outcome};
use crate::prompts;

/// The caller waits 30 s for a result. Actions are not started after this time.
pub(super) const WAIT_MAX_MS: u64 = 25_000;
/// Limit for waiting and sending together, so that the caller still gets the result.
const TOTAL_MAX_MS: u64 = 28_000;
/// Limit for actions that are useless when late (typing).
const DROP_AFTER_MS: u64 = 2_000;
/// Memory of an action besides its text.
const OVERHEAD_BYTES: usize = 512;
/// Time limit for the platform's answer.
const ACT_LIMIT_MS: u64 = 25_000;

/// When an action was asked for, on the steady clock, and how many earlier edits of its message it replaces.
#[derive(Clone, Copy)]
pub(super) struct RequestTiming {
    pub(super) ms: u64,
    pub(super) replaced: usize,
}

/// An action's address.
#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    pub(super) caller: &'a Caller,
    pub(super) platform: &'a Arc<dyn Platform>,
    pub(super) name: &'a str,
    pub(super) acting_as: ActingAs<'a>,
    pub(super) chat_id: &'a ChatId,
    pub(super) capability: Option<&'a Secret>,
    pub(super) asked: RequestTiming,
}

/// Result of one part.
struct PartResult {
    result: ActionResult,
    /// What the scheduler did to it: a delay, a replacement.
    note: Option<String>,
    /// Id under which the vendor reports the outcome later.
    receipt_id: Option<String>,
    /// False: the scheduler refused it, and nothing was sent.
    was_tried: bool,
}

impl OutboundPlane {
    /// Sends an action that is not journaled. `Err`: it was not sent (refused, or dropped for its rate), and the caller
    /// journals that.
    pub(super) async fn send_unjournaled(
        &self,
        sending: &Sending<'_>,
        action: &Action,
    ) -> Result<ActionResult, ActionResult> {
        let went = self.when_its_turn(sending, action, 0).await;
        if went.was_tried { Ok(went.result) } else { Err(went.result) }
    }

    pub(super) fn new_entry(
        &self,
        caller: &Caller,
        platform: &str,
        bot: &BotId,
        chat_id: &ChatId,
        op: &str,
        parts: usize,
    ) -> JournalEntry {
        JournalEntry {
            id: 0,
            tenant: caller.tenant.clone(),
            instance: caller.instance.name.clone(),
            platform: platform.into(),
            bot: bot.clone(),
            chat_id: chat_id.clone(),
            op: op.into(),
            at_ms: self.env.now_ms(),
            outcome: Outcome::Open,
            parts: u32::try_from(parts).unwrap_or(u32::MAX),
            cursor: 0,
            note: String::new(),
            desk: self.lease.me(),
        }
    }

    /// Sends an action; a long text in parts, one after another. `Err`: the journal could not store it, so it was not
    /// sent.
    pub(super) async fn send(&self, sending: &Sending<'_>, action: Action) -> Result<ActionResult, ActionResult> {
        let chats_of = sending.platform.common_bot().map(|_| &sending.caller.tenant);
        let (op, prompt) = (action.act.op(), prompts::by_id(chats_of, sending.chat_id, &action.act));
        let parts = parts_of(action, &**sending.platform);
        let bot = &sending.acting_as.bot.id;
        let entry = self.new_entry(sending.caller, sending.name, bot, sending.chat_id, op, parts.len());
        let at_ms = entry.at_ms;
        let id = self.journal.open_entry(entry, prompt).await.map_err(|error| unavailable(&error))?;
        let mut first: Option<ActionResult> = None;
        let (mut cursor, mut notes) = (0, Vec::new());
        if sending.asked.replaced > 0 {
            self.meters.actions_superseded.inc_by(sending.asked.replaced as u64);
            notes.push(format!("replaced {} earlier edits of the same message", sending.asked.replaced));
        }
        for (index, part) in parts.iter().enumerate() {
            // With the time, so that a new store does not use the keys of an old one again.
            let key = format!("{at_ms}.{id}.{index}");
            let acting_as = ActingAs { idempotency_key: Some(&key), ..sending.acting_as };
            // Of a plain text only the first part can be an answer.
            let is_more = index > 0 && matches!(part.act, Act::Send { .. });
            let capability = sending.capability.filter(|_| !is_more);
            let this = Sending { acting_as, capability, ..*sending };
            let went = self.when_its_turn(&this, part, parts.len() - index - 1).await;
            if let Some(receipt_id) = went.receipt_id
                && let Err(error) = self.journal.add_receipt(id, receipt_id).await
            {
                tracing::error!(
                    %error,
                    id,
                    "storing the receipt id of a message failed; its late failures are ignored"
                );
            }
            let is_out = went.result.success;
            cursor += u32::from(is_out);
            notes.extend(went.note);
            match (&mut first, is_out) {
                (None, _) => first = Some(went.result),
                (Some(_), true) => {}
                (Some(first), false) => {
                    // Some parts were sent: report that with the first id, and stop.
                    first.success = false;
                    first.code = Some(Code::Partial);
                    first.ambiguous = went.result.ambiguous;
                    let why = went.result.error.unwrap_or_else(|| "the platform refused it".into());
                    first.error = Some(format!("{cursor} of {} parts went out, then: {why}", parts.len()));
                    *first = std::mem::take(first).worded();
                }
            }
            if !is_out {
                break;
            }
        }
        let result = first.unwrap_or_default();
        if let ("prompt", Some(message_id)) = (op, &result.message_id)
            && let receipt = prompts::by_message(chats_of, sending.chat_id, message_id)
            && let Err(error) = self.journal.add_receipt(id, receipt).await
        {
            tracing::warn!(%error, id, "storing the message of a prompt failed; presses are matched by prompt id only");
        }
        let outcome = outcome_of(&result);
        notes.extend(result.error.clone());
        let closing = Closing::new(outcome, cursor, notes.join("; "));
        if let Err(error) = self.journal.close_entry(id, closing).await {
            // The action was sent; after a restart the journal shows its outcome as unknown.
            tracing::error!(%error, id, "storing the outcome of an action failed");
        }
        self.tail.publish(&sending.caller.tenant, "action", |notice| {
            notice.instance.clone_from(&sending.caller.instance.name);
            notice.platform = sending.name.into();
            notice.chat_id = sending.chat_id.clone();
            notice.message_id = result.message_id.clone().unwrap_or_default();
            notice.text = format!("{op}: {}", outcome_name(outcome));
            for note in &notes {
                notice.text.push_str(": ");
                notice.text.push_str(note);
            }
        });
        Ok(result)
    }

    /// Waits for the scheduler of the bot, then asks the platform.
    async fn when_its_turn(&self, sending: &Sending<'_>, action: &Action, more: usize) -> PartResult {
        let Sending { platform, name, acting_as, chat_id, capability, asked, .. } = *sending;
        let servers = self.share_bot(name, &acting_as.bot.id);
        let cost = platform.cost(acting_as, action).divided(servers);
        let wait_max_ms = if cost.droppable { DROP_AFTER_MS } else { WAIT_MAX_MS };
        let ask = Ask {
            tenant: acting_as.tenant.clone(),
            chat_id: chat_id.clone(),
            cost,
            bytes: action.act.text().map_or(0, str::len) + OVERHEAD_BYTES,
            more: more as u64,
            deadline_ms: asked.ms + wait_max_ms,
        };
        let mut passage = match self.pacer.enter(name, &acting_as.bot.id, ask) {
            Ok(passage) => passage,
            Err(why) => return PartResult::not_begun(&why),
        };
        loop {
            match passage.turn(asked.ms + TOTAL_MAX_MS).await {
                TurnOutcome::Go => {}
                TurnOutcome::NotBegun(why) => return PartResult::not_begun(&why),
                TurnOutcome::Superseded(result) => {
                    self.meters.actions_superseded.inc();
                    return PartResult::with(result, "replaced by a later edit of the same message".into());
                }
            }
            let spent_ms = self.env.steady_ms().saturating_sub(asked.ms);
            let left_ms = TOTAL_MAX_MS.saturating_sub(spent_ms).min(ACT_LIMIT_MS);
            let acted = act_in_time(&**platform, acting_as, action, capability, left_ms).await;
            match passage.end(&acted) {
                Next::Again => {}
                Next::Over { waited_ms } => {
                    let note = (waited_ms > 0).then(|| {
                        self.meters.actions_delayed.inc();
                        format!("waited {waited_ms} ms for its turn")
                    });
                    return PartResult { result: acted.result, note, receipt_id: acted.receipt_id, was_tried: true };
                }
                Next::Limited { retry_after_ms } => {
                    let note = format!("the platform asks to wait {} s", retry_after_ms.div_ceil(1_000));
                    return PartResult { was_tried: false, ..PartResult::with(acted.result, note) };
                }
            }
        }
    }
}

impl PartResult {
    fn with(result: ActionResult, note: String) -> Self {
        Self { result, note: Some(note), receipt_id: None, was_tried: true }
    }

    /// The scheduler refused it: nothing was sent.
    fn not_begun(why: &NotBegun) -> Self {
        let seconds = |ms: u64| ms.div_ceil(1_000);
        let (code, text) = match why {
            NotBegun::Refused(Refusal::Full) => {
                (Code::RateLimited, "too many actions of this tenant wait for this bot; nothing was sent".to_owned())
            }
            NotBegun::Refused(Refusal::TooLong { wait_ms }) => {
                let wait_s = seconds(*wait_ms);
                let text = format!("the rate limit of the bot allows this only after {wait_s} s; nothing was sent");
                (Code::RateLimited, text)
            }
            NotBegun::Late { waited_ms } => {
                let text =
                    format!("the action waited {} s behind earlier actions of this chat or bot", seconds(*waited_ms));
                (Code::RateLimited, format!("{text}; nothing was sent"))
            }
            NotBegun::Closed => (Code::Unavailable, "the server is stopping; nothing was sent".to_owned()),
        };
        let result = ActionResult::refused(code, format!("{text}; try again later"));
        Self { result, note: None, receipt_id: None, was_tried: false }
    }
}

async fn act_in_time(
    platform: &dyn Platform,
    acting_as: ActingAs<'_>,
    action: &Action,
    capability: Option<&Secret>,
    limit_ms: u64,
) -> Acted {
    let acting = platform.act(acting_as, action, capability);
    match tokio::time::timeout(Duration::from_millis(limit_ms), acting).await {
        Ok(mut acted) => {
            if acted.pace.retry_after_ms.is_some() && !acted.result.success {
                acted.result.code.get_or_insert(Code::RateLimited);
            }
            Acted { result: acted.result.worded(), ..acted }
        }
        Err(_) => Acted::from(ActionResult {
            ambiguous: true,
            ..ActionResult::refused(
                Code::Unknown,
                "timed out: the platform did not answer; the action may have been carried out; check the chat before you repeat it",
            )
        }),
    }
}

/// A long `send` or `follow_up` becomes several; everything else stays whole.
fn parts_of(action: Action, platform: &dyn Platform) -> Vec<Action> {
    let (Act::Send { content, .. } | Act::FollowUp { content, .. }) = &action.act else { return vec![action] };
    let texts = platform.split(content);
    if texts.len() <= 1 {
        return vec![action];
    }
    let part = |(index, text): (usize, String)| {
        let mut part = action.clone();
        match &mut part.act {
            Act::Send { content, reply_to, .. } => {
                *content = text;
                *reply_to = reply_to.take().filter(|_| index == 0); // only the first part answers
            }
            Act::FollowUp { content, .. } => *content = text,
            _ => {}
        }
        part
    };
    texts.into_iter().enumerate().map(part).collect()
}
