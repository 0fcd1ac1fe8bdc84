//! The end of a session: what it leaves to others. [`DeliveryPlane::release`] saves its last acks and lets the next session
//! continue.

use std::sync::Arc;

use frontdesk_wire::Close;

use super::lane::Lane;
use super::outbox::Outbox;
use super::{Order, Session};
use crate::delivery::DeliveryPlane;
use crate::delivery::interrupt::InterruptRequest;
use crate::delivery::sockets::Mailbox;
use crate::delivery::window::Acks;
use crate::directory::Caller;
use crate::meters::Why;
use crate::port::store::Settlement;

/// Work that remains after a session. Until [`DeliveryPlane::release`] its last acks are not stored and its instance counts
/// as connected: the agent is not woken, and the next session waits some seconds before it continues without those acks.
pub struct Ending {
    outbox: Outbox,
    pub close: Option<Close>,
    serving: Option<EndedServing>,
    /// Interrupts that were not looked up yet; they are still carried out.
    pub interrupts: Vec<InterruptRequest>,
}

impl Ending {
    pub fn next_message(&mut self) -> Option<String> {
        self.outbox.pop()
    }
}

/// Lanes that were not started, with their mailbox; their actions are still carried out.
pub type Leftover = (Arc<Mailbox>, Vec<Arc<Lane>>);

/// State of an ended session that served an instance.
struct EndedServing {
    caller: Caller,
    mailbox: Arc<Mailbox>,
    unsaved: Option<Settlement>,
    acks: Acks,
    silent_ms: u64,
    lanes: Vec<Arc<Lane>>,
}

impl Session {
    #[must_use = "it must be given to DeliveryPlane::release"]
    pub fn end(mut self) -> Ending {
        let meters = &self.delivery.meters;
        meters.outbox_bytes.dec_by(i64::try_from(self.gauged_bytes).unwrap_or(0));
        if let Some(close) = self.closing {
            meters.sockets_closed.get_or_create(&Why { why: close.reason() }).inc();
        }
        let serving = self.serving.take().map(|mut serving| EndedServing {
            unsaved: serving.take_unsaved(),
            acks: serving.window.acks,
            mailbox: serving.mailbox,
            caller: self.caller,
            silent_ms: self.silent_ms,
            lanes: self.lanes.leave(),
        });
        let interrupts = self.interrupts.into_iter().skip(1).collect(); // the first one is already being looked up
        Ending { outbox: self.outbox, close: self.closing, serving, interrupts }
    }
}

impl DeliveryPlane {
    /// Saves the last acks and lets the next session of the instance continue.
    pub async fn release(&self, ending: &mut Ending) -> Option<Leftover> {
        let EndedServing { caller, mailbox, unsaved, acks, silent_ms, lanes } = ending.serving.take()?;
        let instance = caller.instance.no;
        if let Some(settlement) = unsaved
            && let Err(error) = self.settle(instance, settlement).await
        {
            tracing::error!(%error, "saving the last acks of a session failed; the rows will be sent again");
        }
        mailbox.finish();
        let served = self.sockets.detach(instance, &mailbox);
        for order in mailbox.take_orders() {
            if let Order::Result(line) = order {
                // Arrived while the acks were saved: goes to the next socket.
                self.served.answer(instance, line).await;
            }
        }
        if served {
            self.socket_closed(&caller, mailbox.session(), acks, silent_ms).await;
        }
        Some((mailbox, lanes)).filter(|(_, lanes)| !lanes.is_empty())
    }
}
