//! `/stop`: from a user to the instance that runs the turn, and from a gateway to another instance.

use frontdesk_wire::session_aliases;
use frontdesk_wire::{ChatId, InstanceNo};

use super::DeliveryPlane;
use crate::directory::Caller;
use crate::directory::index::TenantIndex;
use crate::port::store::StoreError;

/// Turns that began earlier are considered finished.
const TURN_MS: u64 = 30 * 60 * 1000;

impl DeliveryPlane {
    /// Interrupts this session on the given instances; true if it was sent to at least one. Gateways name sessions in
    /// different ways, so each instance gets the interrupt under every possible name.
    pub(crate) async fn interrupt_live_turns(
        &self,
        receivers: &[InstanceNo],
        session_key: &str,
        names: &[String],
        now_ms: u64,
    ) -> Result<bool, StoreError> {
        let mut is_sent = false;
        for &instance in receivers {
            let Some((_, chat_id)) = self.find_turn(&[instance], &[session_key], now_ms).await? else { continue };
            let this = self.interrupt(instance, session_key, &chat_id).await?;
            for name in names.iter().filter(|name| this && *name != session_key) {
                self.interrupt(instance, name, &chat_id).await?;
            }
            is_sent |= this;
        }
        Ok(is_sent)
    }

    /// Forwards an interrupt of a gateway to the instance of its tenant that runs the session, preferably the caller's
    /// own.
    pub async fn interrupt_from(&self, caller: &Caller, session_key: &str) -> Result<bool, StoreError> {
        let mut instances = vec![caller.instance.no];
        self.directory.read(|view| {
            let of_tenant = view.tenant_index(&caller.tenant).into_iter().flat_map(TenantIndex::instances);
            let of_tenant = of_tenant.map(|it| it.no);
            instances.extend(of_tenant.filter(|no| *no != caller.instance.no));
        });
        let now_ms = self.env.now_ms();
        let mut found = self.find_turn(&instances, &[session_key], now_ms).await?;
        if found.is_none() {
            // Newer gateways may use another name for the session.
            let aliases = session_aliases(session_key);
            let aliases: Vec<&str> = aliases.iter().map(String::as_str).filter(|it| *it != session_key).collect();
            if !aliases.is_empty() {
                found = self.find_turn(&instances, &aliases, now_ms).await?;
            }
        }
        match found {
            Some((instance, chat_id)) => self.interrupt(instance, session_key, &chat_id).await,
            None => Ok(false),
        }
    }

    /// The first live instance with a turn under one of these names, and the chat of the turn.
    async fn find_turn(
        &self,
        instances: &[InstanceNo],
        names: &[&str],
        now_ms: u64,
    ) -> Result<Option<(InstanceNo, ChatId)>, StoreError> {
        // With other servers any of them may have a socket; whether it has one is asked of the one that is found.
        let may_be_live = |no: &InstanceNo| self.sockets.is_live(*no) || !self.lease.is_alone();
        let mut live: Vec<InstanceNo> = instances.iter().copied().filter(may_be_live).collect();
        let since_ms = now_ms.saturating_sub(TURN_MS);
        let remembered = |instance: InstanceNo| {
            let chat_id = names.iter().find_map(|name| self.sockets.turn_chat(instance, name, since_ms));
            chat_id.map(|chat_id| (instance, chat_id))
        };
        let known = live.iter().enumerate().find_map(|(at, no)| remembered(*no).map(|found| (at, found)));
        if let Some((at, _)) = &known {
            live.truncate(*at); // only instances before it take precedence
        }
        if live.is_empty() {
            return Ok(known.map(|(_, found)| found));
        }
        // Memory is bounded and starts empty, so the ledger is asked too: one query for all instances.
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let stored = self.ledger.last_sent(live, names, since_ms).await?;
        let stored = stored.map(|(instance, delivery)| (instance, delivery.chat_id.clone()));
        Ok(stored.or(known.map(|(_, found)| found)))
    }

    /// Sends the interrupt to the socket of the instance, here or at another server.
    async fn interrupt(&self, instance: InstanceNo, session_key: &str, chat_id: &ChatId) -> Result<bool, StoreError> {
        let is_sent = match self.sockets.is_live(instance) {
            true => self.served.interrupt_here(instance, session_key, chat_id),
            false => self.served.interrupt_elsewhere(instance, session_key, chat_id).await?,
        };
        if is_sent {
            self.meters.interrupts.inc();
            self.tail.say(&self.directory.tenant_of_no(instance), "interrupted", |notice| {
                notice.chat_id.clone_from(chat_id);
                notice.text = format!("interrupt sent for {session_key}");
            });
        }
        Ok(is_sent)
    }
}
