//! `/stop`, both ways: from a person to the instance that runs the turn, and from a gateway.

use frontdesk_wire::frame::DeskFrame;

use super::{Caller, Desk};
use crate::port::store::StoreError;
use crate::switchboard::Order;

/// A turn that began longer ago than this is over.
const TURN_MS: u64 = 30 * 60 * 1000;

impl Desk {
    /// True if at least one live instance was told to stop a turn of this session.
    pub(super) async fn interrupt_live_turns(
        &self,
        receivers: &[u64],
        session_key: &str,
        main_key: &str,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut told = false;
        for &instance in receivers {
            let this = self.interrupt(instance, session_key, session_key, now_ms).await?;
            if this && main_key != session_key {
                // A gateway that does not tell profiles apart runs the turn under this name.
                self.interrupt(instance, session_key, main_key, now_ms).await?;
            }
            told |= this;
        }
        Ok(told)
    }

    /// A gateway asks: forwarded to the instance of its tenant that runs the session.
    pub async fn interrupt_from(&self, caller: &Caller, session_key: &str) -> Result<bool, StoreError> {
        let now_ms = self.env.now_ms();
        if self.interrupt(caller.instance.no, session_key, session_key, now_ms).await? {
            return Ok(true);
        }
        let others: Vec<u64> = self.registry.read(|view| {
            let of_tenant = view.instances.values().filter(|it| it.tenant == caller.tenant);
            of_tenant.map(|it| it.no).filter(|no| *no != caller.instance.no).collect()
        });
        for instance in others {
            if self.switchboard.is_live(instance) && self.interrupt(instance, session_key, session_key, now_ms).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Finds the turn under `kept_as`, tells the instance to stop `session_key`.
    async fn interrupt(
        &self,
        instance: u64,
        kept_as: &str,
        session_key: &str,
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let Some(mailbox) = self.switchboard.socket(instance) else { return Ok(false) };
        let since_ms = now_ms.saturating_sub(TURN_MS);
        let chat_id = match self.switchboard.turn_chat(instance, kept_as, since_ms) {
            Some(chat_id) => chat_id,
            // Memory is short and ends with the process; the ledger remembers.
            None => match self.store.last_sent(instance, kept_as, since_ms).await? {
                Some(delivery) => delivery.chat_id.clone(),
                None => return Ok(false),
            },
        };
        let line = DeskFrame::InterruptInbound { session_key: session_key.into(), chat_id: chat_id.to_string() }.line();
        let told = mailbox.order(Order::Line(line));
        if told {
            self.meters.interrupts.inc();
            self.say(&mailbox.tenant, "interrupted", |notice| {
                notice.chat_id = chat_id.to_string();
                notice.text = format!("interrupt handed over for {session_key}");
            });
        }
        Ok(told)
    }
}
