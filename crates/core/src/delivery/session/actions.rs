//! Actions of a gateway: queued, carried out in order per chat, and always answered.

use frontdesk_wire::action::ActionError;
use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{Act, Action, ActionResult, BotId, ChatId, Code};

use super::lane::Job;
use super::{Effect, Session};
use crate::delivery::memory::Share;
use crate::port::platform::PlatformBot;

/// Bytes of all waiting and running actions of one instance. Each counts at least [`JOB_MIN_BYTES`], so at most 1024
/// can wait. Further ones are refused.
pub(super) const JOBS_MAX_BYTES: usize = 4 << 20;
const JOB_MIN_BYTES: usize = 4096;
/// It is in the result, which may have to be kept for the next socket.
const REQUEST_ID_MAX_BYTES: usize = 1024;
/// What may wait also when the memory of the tenant is used up.
const JOBS_FREE_BYTES: usize = 64 << 10;
/// Names in a refused action are truncated to this length in the journal.
const NOTED_MAX_CHARS: usize = 128;

/// An action that was refused before it reached a platform.
#[derive(Debug)]
pub struct Refused {
    pub(crate) platform: String,
    pub(crate) bot: BotId,
    pub(crate) op: &'static str,
    pub(crate) chat_id: ChatId,
    pub result: ActionResult,
}

impl Refused {
    pub fn new(platform: &str, bot: &str, op: &'static str, chat_id: &str, result: ActionResult) -> Self {
        let short = |text: &str| text.chars().take(NOTED_MAX_CHARS).collect();
        Self { platform: short(platform), bot: short(bot).into(), op, chat_id: short(chat_id).into(), result }
    }
}

impl Session {
    pub(super) fn take_outbound(&mut self, request_id: String, raw: &str, platform: Option<&str>, bot: Option<&str>) {
        let job = match self.read_job(&request_id, raw, platform, bot) {
            Ok(job) => job,
            Err(refused) => {
                let result = refused.result.clone();
                self.effects.push_back(Effect::Refused(refused));
                return self.outbox.push(&DeskFrame::OutboundResult { request_id, result }.line());
            }
        };
        if let Some(serving) = &mut self.serving {
            serving.mailbox.note_traffic(self.delivery.env.now_ms());
            match &job.action.act {
                Act::FollowUp { session_key, .. } => serving.window.followed_up(session_key),
                act => act.chat_id().into_iter().for_each(|chat_id| serving.window.answered(chat_id)),
            }
        }
        self.lanes.push(job);
        self.start_lanes();
    }

    fn read_job(
        &mut self,
        request_id: &str,
        raw: &str,
        platform: Option<&str>,
        bot: Option<&str>,
    ) -> Result<Job, Box<Refused>> {
        let action = Action::parse(raw);
        let refuse = |action: Option<&Action>, code, text: String| {
            let (op, chat_id) = action.map_or(("unknown", ""), |it| (it.act.op(), it.act.chat()));
            let platform = platform.unwrap_or_default();
            Box::new(Refused::new(platform, bot.unwrap_or_default(), op, chat_id, ActionResult::refused(code, text)))
        };
        let named = |(known, id): &&PlatformBot| {
            platform.is_none_or(|asked| asked == known) && bot.is_none_or(|asked| asked.is_empty() || asked == id)
        };
        let mut candidates = self.identities.iter().filter(named).cloned();
        let Some(identity) = candidates.next() else {
            let text = "no hello on this socket named that platform and bot".into();
            return Err(refuse(action.as_ref().ok(), Code::UnknownIdentity, text));
        };
        let alternatives = candidates.collect();
        let action = action.map_err(|error| {
            let code = match error {
                ActionError::UnknownOp(_) => Code::UnsupportedOp,
                _ => Code::BadRequest,
            };
            refuse(None, code, error.to_string())
        })?;
        if request_id.len() > REQUEST_ID_MAX_BYTES {
            let text = format!("requestId has {} bytes; the limit is {REQUEST_ID_MAX_BYTES}", request_id.len());
            return Err(refuse(Some(&action), Code::BadRequest, text));
        }
        let bytes = (raw.len() + request_id.len()).max(JOB_MIN_BYTES);
        let mut memory = Share::new(&self.memory.incoming);
        let is_among_first = self.jobs.available_permits() > JOBS_MAX_BYTES - JOBS_FREE_BYTES;
        let has_room = !memory.is_full() || (is_among_first && !memory.is_over());
        let room = self.jobs.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let Some(room) = room.ok().filter(|_| has_room) else {
            let text = match has_room {
                true => "too many actions of this agent are waiting, and this one was not sent; wait for results first",
                false => {
                    "too many actions of this tenant's agents are waiting, and this one was not sent; wait for results first"
                }
            };
            return Err(refuse(Some(&action), Code::RateLimited, text.into()));
        };
        memory.set(bytes);
        Ok(Job {
            request_id: request_id.to_owned(),
            identity,
            alternatives,
            identities: self.identities.clone(),
            action,
            asked_ms: self.delivery.env.steady_ms(),
            room,
            memory,
        })
    }

    /// Starts waiting lanes, as many as may run concurrently.
    pub(super) fn start_lanes(&mut self) {
        let Some(mailbox) = self.mailbox().cloned() else { return };
        while let Some((name, lane)) = self.lanes.start() {
            self.effects.push_back(Effect::Work { lane, name, mailbox: mailbox.clone() });
        }
    }
}
