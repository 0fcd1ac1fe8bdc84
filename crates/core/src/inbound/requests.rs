//! A request that a platform verified: its content is stored in an order that loses nothing, then its answer is chosen.

use std::sync::Arc;
use std::time::Duration;

use super::{BotInlet, InboundPlane};
use crate::error::DeskError;
use crate::intake::{Intake, Receipt};
use crate::port::BoxFuture;
use crate::port::media::{MediaBody, MediaItem};
use crate::port::platform::{Bot, Change, DoorAnswer, Inlet as _, LateReceipt, Platform, ReceivedRequest, Reply};
use crate::port::store::{Outcome, StoreError};

/// What a request is answered with.
pub enum DoorResponse {
    Reply(Reply),
    File(MediaItem, MediaBody),
}

/// A request whose content is stored, or recorded as refused.
pub struct TakenRequest {
    /// `Err` if the answer depends on the events and all of them were refused.
    pub response: Result<DoorResponse, DeskError>,
    /// What the platform does after the answer.
    pub afterwards: Option<BoxFuture<'static, ()>>,
}

/// Delays after which the journal is searched again for a message that failed. A vendor may report the failure before
/// the answer to the action was stored, and most vendors report it once.
const LOOK_AGAIN_MS: [u64; 3] = [100, 400, 1_000];

impl InboundPlane {
    /// Stores what the request contains. `Err` makes the sender repeat it, unless the platform has an answer for that.
    ///
    /// Boxed: an `async fn` is compiled by the crate that awaits it.
    pub fn take_request<'a>(
        self: &'a Arc<Self>,
        platform: &'a dyn Platform,
        bot: &'a Bot,
        mut received: ReceivedRequest,
    ) -> BoxFuture<'a, Result<TakenRequest, DeskError>> {
        Box::pin(async move {
            let name = &platform.descriptor().platform;
            self.directory.bots().keep_granted(name, &bot.id, &received.granted).await?;
            self.take_fragment(platform, bot, &mut received).await?;
            let inlet = self.inlet(name, bot);
            // A chat that moves takes its routes with it, so messages from the old one are stored first.
            let is_move = |change: &Change| matches!(change, Change::ChatMoved { .. });
            let (moves, others): (Vec<Change>, Vec<Change>) = received.changes.into_iter().partition(is_move);
            for change in others {
                inlet.changed(change).await?;
            }
            let stored = inlet.store(received.receipts, received.intakes).await;
            let (receipts, refusal) = match stored {
                Ok(stored) => stored,
                Err(error) => {
                    let Some(reply) = received.if_not_stored else { return Err(error) };
                    tracing::error!(%error, platform = name, "storing an event failed; its sender was notified");
                    return Ok(TakenRequest { response: Ok(DoorResponse::Reply(reply(&error))), afterwards: None });
                }
            };
            for change in moves {
                inlet.changed(change).await?;
            }
            for gap in received.gaps {
                inlet.gap(gap);
            }
            let afterwards = received.afterwards.map(|afterwards| afterwards(&receipts));
            let response = match (received.answer, refusal.filter(|_| receipts.is_empty())) {
                (DoorAnswer::Fixed(reply), _) => Ok(DoorResponse::Reply(reply)),
                (DoorAnswer::File(item, body), _) => Ok(DoorResponse::File(item, body)),
                (DoorAnswer::FromReceipts(answer), None) => Ok(DoorResponse::Reply(answer(&receipts))),
                (DoorAnswer::FromReceipts(_), Some(refusal)) => match received.if_not_stored {
                    None => Err(refusal),
                    Some(reply) => Ok(DoorResponse::Reply(reply(&refusal))),
                },
            };
            Ok(TakenRequest { response, afterwards })
        })
    }

    /// Keeps a fragment of an event until the rest arrives. Complete events that wait in the same chat are stored first.
    async fn take_fragment(
        self: &Arc<Self>,
        platform: &dyn Platform,
        bot: &Bot,
        received: &mut ReceivedRequest,
    ) -> Result<(), DeskError> {
        let name = &platform.descriptor().platform;
        if let Some(chat_id) = &received.chat_id {
            let group = received.fragment.as_ref().map(|fragment| fragment.group.as_str());
            self.complete_groups(name, bot, chat_id, group).await?;
        }
        let Some(fragment) = received.fragment.take() else { return Ok(()) };
        if !self.hold(name, bot, &fragment).await? {
            let alone = platform.join(bot, std::slice::from_ref(&fragment.body)).await;
            received.intakes.extend(alone.map_err(StoreError::Unavailable)?);
        }
        Ok(())
    }
}

impl BotInlet {
    /// Stores events and late receipts. An event that is refused does not stop the others; the last refusal is returned.
    async fn store(
        &self,
        receipts: Vec<LateReceipt>,
        intakes: Vec<Intake>,
    ) -> Result<(Vec<Receipt>, Option<DeskError>), DeskError> {
        self.apply_receipts(&receipts).await?;
        let (mut stored, mut refusal) = (Vec::new(), None);
        if intakes.is_empty() {
            return Ok((stored, refusal));
        }
        for outcome in self.take(intakes).await? {
            match outcome {
                Ok(receipt) => stored.push(receipt),
                Err(error) => refusal = Some(error),
            }
        }
        Ok((stored, refusal))
    }

    async fn apply_receipts(&self, receipts: &[LateReceipt]) -> Result<(), StoreError> {
        let mut unknown = Vec::new();
        for receipt in receipts {
            if !self.receipt(receipt).await? {
                unknown.push(receipt);
            }
        }
        unknown.retain(|receipt| receipt.outcome == Outcome::Rejected);
        for wait_ms in LOOK_AGAIN_MS {
            if unknown.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            let mut still = Vec::new();
            for receipt in unknown {
                if !self.receipt(receipt).await? {
                    still.push(receipt);
                }
            }
            unknown = still;
        }
        for receipt in unknown {
            tracing::debug!(vendor_id = receipt.vendor_id, "a failure report was ignored: no message has its id");
        }
        Ok(())
    }
}
