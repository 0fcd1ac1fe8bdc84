//! What a gateway asks for on its socket: queued, worked off in order per chat, and always answered.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::Desk;
use frontdesk_core::delivery::switchboard::{Mailbox, Order};
use frontdesk_core::directory::Caller;
use frontdesk_core::outbound::Refused;
use frontdesk_wire::action::ActionError;
use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{Act, Action, ActionResult, Code};
use tokio::time::Instant;

use super::lane::{Job, Lane, lane_of};
use super::session::Session;

/// Lanes of one socket that are worked at once; others wait.
const LANES_MAX: usize = 64;
/// What the waiting and running actions of one socket may hold together. Each counts at least
/// [`JOB_MIN_BYTES`], which makes 1024 the most that wait. What comes above that is refused.
pub(super) const JOBS_MAX_BYTES: usize = 4 << 20;
const JOB_MIN_BYTES: usize = 4096;
/// The client waits 30 s for a result. One that waited this long for its turn is not begun any more.
const WAIT_MAX: Duration = Duration::from_secs(25);

impl Session {
    pub(super) fn take_outbound(&mut self, request_id: String, raw: &str, platform: Option<&str>, bot: Option<&str>) {
        let job = match self.read_job(&request_id, raw, platform, bot) {
            Ok(job) => job,
            Err(refused) => {
                self.note_refused(&refused);
                return self.answer(request_id, refused.result);
            }
        };
        if let Some(serving) = &mut self.serving {
            serving.mailbox.note_traffic(self.app.desk.env().now_ms());
            match &job.action.act {
                Act::FollowUp { session_key, .. } => serving.window.followed_up(session_key),
                act => serving.window.answered(act.chat_id().unwrap_or_default()),
            }
        }
        let name = lane_of(&job.action);
        let lane = self.lanes.entry(name.clone()).or_default().clone();
        if lane.push(job) {
            self.idle_lanes.push_back(name);
            self.start_lanes();
        }
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
            let (op, chat_id) =
                action.map_or(("unknown", ""), |it| (it.act.op(), it.act.chat_id().unwrap_or_default()));
            let platform = platform.unwrap_or_default();
            Box::new(Refused::new(platform, bot.unwrap_or_default(), op, chat_id, ActionResult::refused(code, text)))
        };
        let named = |(known, id): &&(String, String)| {
            platform.is_none_or(|asked| asked == known) && bot.is_none_or(|asked| asked.is_empty() || asked == id)
        };
        let candidates: Vec<(String, String)> = self.identities.iter().filter(named).cloned().collect();
        if candidates.is_empty() {
            let text = "this socket said no hello for that platform and bot".into();
            return Err(refuse(action.as_ref().ok(), Code::UnknownIdentity, text));
        }
        let action = action.map_err(|error| {
            let code = match error {
                ActionError::UnknownOp(_) => Code::UnsupportedOp,
                _ => Code::BadRequest,
            };
            refuse(None, code, error.to_string())
        })?;
        let bytes = (raw.len() + request_id.len()).max(JOB_MIN_BYTES);
        let room = self.jobs.clone().try_acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let Ok(room) = room else {
            let text = "too many actions wait on this socket, and this one was not sent; wait for some results";
            return Err(refuse(Some(&action), Code::RateLimited, text.into()));
        };
        Ok(Job {
            request_id: request_id.to_owned(),
            candidates,
            identities: self.identities.clone(),
            action,
            asked: Instant::now(),
            _room: room,
        })
    }

    /// Begins work on lanes that wait for it, as many as may run at once.
    pub(super) fn start_lanes(&mut self) {
        while self.busy_lanes < LANES_MAX {
            let Some(name) = self.idle_lanes.pop_front() else { return };
            if let Some(lane) = self.lanes.get(&name).cloned() {
                self.busy_lanes += 1;
                self.work(name, lane);
            }
        }
    }

    /// A lane's worker is at its end; its name is free unless something came in that moment.
    pub(super) fn lane_done(&mut self, name: &str) {
        self.busy_lanes = self.busy_lanes.saturating_sub(1);
        if self.lanes.get(name).is_some_and(|lane| lane.is_free()) {
            self.lanes.remove(name);
        }
        self.start_lanes();
    }

    fn work(&self, name: String, lane: Arc<Lane>) {
        let Some(serving) = &self.serving else { return };
        let (desk, caller, mailbox) = (self.app.desk.clone(), self.caller.clone(), serving.mailbox.clone());
        self.app.sessions.spawn(async move {
            work_off(&desk, &caller, &mailbox, &lane).await;
            mailbox.order(Order::LaneDone(name));
        });
    }

    /// The socket is at its end; what nobody has begun is done all the same, one lane after the other.
    pub(super) fn leave_lanes(&mut self, mailbox: &Arc<Mailbox>) {
        let left: Vec<_> = self.idle_lanes.drain(..).filter_map(|name| self.lanes.remove(&name)).collect();
        if left.is_empty() {
            return;
        }
        let (desk, caller, mailbox) = (self.app.desk.clone(), self.caller.clone(), mailbox.clone());
        self.app.sessions.spawn(async move {
            for lane in left {
                work_off(&desk, &caller, &mailbox, &lane).await;
            }
        });
    }

    fn answer(&mut self, request_id: String, result: ActionResult) {
        self.outbox.push(&DeskFrame::OutboundResult { request_id, result }.line());
    }

    /// A refusal on the spot is written down like any other.
    fn note_refused(&self, refused: &Refused) {
        if let Some(noting) = self.app.desk.outbound().note_refused(&self.caller, refused) {
            self.app.sessions.spawn(noting);
        }
    }
}

/// Does the actions of a lane until there is none. Each is answered: on this socket, or on the next.
async fn work_off(desk: &Desk, caller: &Caller, mailbox: &Mailbox, lane: &Lane) {
    while let Some(job) = lane.next() {
        let Job { request_id, candidates, identities, action, asked, _room } = job;
        let result = if asked.elapsed() > WAIT_MAX {
            let text = "it waited too long behind other actions of this socket, and was not sent";
            ActionResult::refused(Code::RateLimited, text)
        } else {
            let (platform, bot) = desk.outbound().speaking_as(caller, &candidates, &action).await;
            desk.outbound().act(caller, (platform, bot), &identities, action).await
        };
        let line = DeskFrame::OutboundResult { request_id, result }.line();
        if !mailbox.order(Order::Result(line.clone())) {
            desk.delivery().switchboard().answer(caller.instance.no, line, desk.env().now_ms());
        }
    }
}
