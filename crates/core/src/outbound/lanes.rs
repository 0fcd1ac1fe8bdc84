//! Carries out the actions of a session, one queue (lane) per chat. Each result goes to its socket, or to the next one.

use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{ActionResult, Code};

use super::OutboundPlane;
use super::sending::{RequestTiming, WAIT_MAX_MS};
use crate::delivery::session::{Job, Lane, Refused};
use crate::delivery::sockets::{Mailbox, Order};
use crate::directory::Caller;

impl OutboundPlane {
    /// Carries out the actions of a lane until it is empty.
    pub async fn work_off(&self, caller: &Caller, mailbox: &Mailbox, lane: &Lane) {
        while let Some((job, replaced)) = lane.next() {
            let Job { request_id, identity, alternatives, identities, action, asked_ms, room, memory } = job;
            let result = if self.env.steady_ms().saturating_sub(asked_ms) > WAIT_MAX_MS {
                let text =
                    "the action waited too long behind other actions of this socket; nothing was sent; try again later";
                let (platform, bot) = &identity;
                let chat_id = action.act.chat();
                let result = ActionResult::refused(Code::RateLimited, text);
                let refused = Refused::new(platform, bot, action.act.op(), chat_id, result);
                if let Some(noting) = self.note_refused(caller, &refused) {
                    noting.await;
                }
                refused.result
            } else {
                let meant = self.speaking_as(caller, &identity, &alternatives, &action).await;
                let asked = RequestTiming { ms: asked_ms, replaced: replaced.len() };
                self.act_for(caller, meant, &identities, action, asked).await
            };
            // An edit that was replaced by a later one gets its result.
            for request_id in replaced.into_iter().chain([request_id]) {
                let line = DeskFrame::OutboundResult { request_id, result: result.clone() }.line();
                if !mailbox.order(Order::Result(line.clone())) {
                    self.delivery.served().answer(caller.instance.no, line).await;
                }
            }
            drop((room, memory)); // every request that it was for has its answer
        }
    }
}
