//! Works off the actions of a session, lane by lane. Each is answered: on its socket, or on the next.

use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{ActionResult, Code};

use super::OutboundPlane;
use super::sending::WAIT_MAX_MS;
use crate::delivery::session::{Job, Lane};
use crate::delivery::switchboard::{Mailbox, Order};
use crate::directory::Caller;

impl OutboundPlane {
    /// Does the actions of a lane until there is none.
    pub async fn work_off(&self, caller: &Caller, mailbox: &Mailbox, lane: &Lane) {
        while let Some(job) = lane.next() {
            let Job { request_id, candidates, identities, action, asked_ms, _room } = job;
            let result = if self.env.steady_ms().saturating_sub(asked_ms) > WAIT_MAX_MS {
                let text = "it waited too long behind other actions of this socket, and was not sent";
                ActionResult::refused(Code::RateLimited, text)
            } else {
                let (platform, bot) = self.speaking_as(caller, &candidates, &action).await;
                self.act(caller, (platform, bot), &identities, action, asked_ms).await
            };
            let line = DeskFrame::OutboundResult { request_id, result }.line();
            if !mailbox.order(Order::Result(line.clone())) {
                self.delivery.switchboard().answer(caller.instance.no, line, self.env.now_ms());
            }
        }
    }
}
