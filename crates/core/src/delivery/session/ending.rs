//! The end of a session: its last acks are saved, and what is left of it is handed over.

use std::sync::Arc;

use frontdesk_wire::Close;

use super::lane::Lane;
use super::outbox::Outbox;
use super::{Order, Session};
use crate::delivery::interrupt::Asked;
use crate::delivery::sockets::Mailbox;
use crate::meters::Why;

/// What is left to do after a session.
pub struct Ending {
    outbox: Outbox,
    pub close: Option<Close>,
    /// Lanes that were not started, with their mailbox; their actions are still carried out.
    pub left: Option<(Arc<Mailbox>, Vec<Arc<Lane>>)>,
    /// Interrupts that were not looked up yet; they are still carried out.
    pub interrupts: Vec<Asked>,
}

impl Ending {
    pub fn next_message(&mut self) -> Option<String> {
        self.outbox.pop()
    }
}

impl Session {
    /// Saves the last acks and lets the next session continue.
    pub async fn end(mut self) -> Ending {
        let delivery = self.delivery.clone();
        delivery.meters.outbox_bytes.dec_by(i64::try_from(self.gauged_bytes).unwrap_or(0));
        let mut left = None;
        if let Some(mut serving) = self.serving.take() {
            let instance = self.caller.instance.no;
            if let Some(settlement) = serving.take_unsaved()
                && let Err(error) = delivery.settle(instance, settlement).await
            {
                tracing::error!(%error, "saving the last acks of a session failed; the rows will be sent again");
            }
            serving.mailbox.finish();
            left = Some((serving.mailbox.clone(), self.lanes.leave())).filter(|(_, lanes)| !lanes.is_empty());
            let served = delivery.sockets.detach(instance, &serving.mailbox);
            for order in serving.mailbox.take_orders() {
                if let Order::Result(line) = order {
                    // Arrived while the acks were saved: goes to the next socket.
                    delivery.served.answer(instance, line).await;
                }
            }
            if served {
                let (session, acks) = (serving.mailbox.session(), serving.window.acks);
                delivery.socket_closed(&self.caller, session, acks, self.silent_ms).await;
            }
        }
        if let Some(close) = self.closing {
            delivery.meters.sockets_closed.get_or_create(&Why { why: close.reason() }).inc();
        }
        let interrupts = self.interrupts.into_iter().skip(1).collect(); // the first one is already being looked up
        Ending { outbox: self.outbox, close: self.closing, left, interrupts }
    }
}
