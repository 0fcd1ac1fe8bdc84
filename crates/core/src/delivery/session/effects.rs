//! What the caller carries out for a session with the stores.

use frontdesk_wire::{InstanceNo, Seq};

use super::Row;
use crate::delivery::DeliveryPlane;
use crate::delivery::sockets::{Mailbox, Order};
use crate::delivery::unserved::Unserved;
use crate::directory::Caller;
use crate::port::store::{Settlement, StoreError};

impl DeliveryPlane {
    /// Unsettled rows of an instance after this one.
    pub async fn read_rows(&self, instance: InstanceNo, after: Seq, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.ledger.pending(instance, after, limit).await
    }

    /// Stores what was settled.
    pub async fn settle(&self, instance: InstanceNo, settlement: Settlement) -> Result<bool, StoreError> {
        self.ledger.settle(instance, settlement).await
    }

    /// Stores that messages are only buffered from now on; the ack is sent afterwards.
    pub async fn go_idle(&self, caller: &Caller, mailbox: &Mailbox) {
        if mailbox.go_idle() {
            self.sockets.unserved().note(caller.instance.no, Unserved::NewMail); // some wait already
        }
        let flipped = self.going_idle(caller, mailbox.session()).await;
        if let Err(error) = &flipped {
            // No ack, because it is not durable; the client closes anyway.
            tracing::error!(%error, "storing the idle state of a gateway failed");
        }
        mailbox.order(Order::IdleDone(flipped == Ok(true)));
    }
}
