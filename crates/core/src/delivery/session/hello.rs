//! Handling of hello frames; the first valid one makes this session the one that serves the instance.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{BotId, Close, Descriptor};
use serde_json::Value;
use tokio::time::timeout;

use super::super::DeliveryPlane;
use super::super::sockets::{Mailbox, Order};
use super::super::unserved::Unserved;
use super::super::window::Window;
use super::{Beginning, Effect, Serving, Session};
use crate::directory::Caller;
use crate::port::store::{Position, StoreError};

/// Identities (platform and bot) per session.
const IDENTITIES_MAX: usize = 64;
/// Time for the replaced session to save its last acks before the new session reads them.
const PREDECESSOR_TIME: Duration = Duration::from_secs(3);

/// A hello that waits for the store.
pub(super) struct Hello {
    platform: String,
    bot: BotId,
    ready: bool,
    mailbox: Arc<Mailbox>,
    settle_ms: u64,
}

impl Session {
    pub(super) fn take_hello(&mut self, platform: &str, bot: &str, commands: Option<&Value>, ready: bool, now_ms: u64) {
        let directory = &self.delivery.directory;
        let Some(bot) = directory.bots().resolve(&self.caller.tenant, platform, &bot.into()) else {
            return self.close(Close::ForeignPlatform);
        };
        if self.identities.len() >= IDENTITIES_MAX {
            return self.bad_frame("too_many_hellos", now_ms);
        }
        if let Some(why) = directory.disproof(&self.caller) {
            return self.close(why);
        }
        // Older gateways send no list, which changes nothing. An empty list removes the commands offered before.
        if let Some(commands) = commands {
            directory.offers().note(&self.caller, platform, &bot, commands);
        }
        if self.serving.is_some() {
            return self.welcome(platform.to_owned(), bot, ready, now_ms);
        }
        let instance = self.caller.instance.no;
        let settle_ms = self.delivery.settle_time_ms(instance);
        let (mailbox, before) = self.delivery.sockets.attach(instance, &self.caller.gateway, &self.caller.tenant);
        let platform = platform.to_owned();
        self.hello = Some(Hello { platform, bot, ready, mailbox: mailbox.clone(), settle_ms });
        self.effects.push_back(Effect::Begin(Beginning { mailbox, before }));
    }

    /// The session starts to serve, from this position.
    pub fn begun(&mut self, position: Result<Position, StoreError>, now_ms: u64) {
        let Some(Hello { platform, bot, ready, mailbox, settle_ms }) = self.hello.take() else { return };
        let position = match position {
            Ok(position) => position,
            Err(StoreError::Conflict) => return self.close(Close::Replaced),
            Err(error) => {
                tracing::error!(%error, "starting a session failed");
                return self.close(Close::TryLater);
            }
        };
        let (delivery, instance) = (&self.delivery, self.caller.instance.no);
        let (size, acks) = (delivery.rules.window, delivery.sockets.acks(instance));
        let window = Window::new(size, delivery.rules.ack_limit_ms, position, acks, now_ms);
        for (parked_ms, line) in delivery.sockets.take_parked(instance, delivery.env.steady_ms()) {
            if !mailbox.order(Order::Result(line.clone())) {
                delivery.sockets.park(instance, line, parked_ms); // too many at once
            }
        }
        self.serving = Some(Serving { mailbox, window, deliver_at_ms: now_ms + settle_ms, fetch: size.max(1) });
        // A concurrent revoke could not close this socket, because it was not registered yet.
        if let Some(why) = self.delivery.directory.disproof(&self.caller) {
            return self.close(why);
        }
        self.welcome(platform, bot, ready, now_ms);
    }

    fn welcome(&mut self, platform: String, bot: BotId, ready: bool, now_ms: u64) {
        if ready && let Some(serving) = &mut self.serving {
            serving.deliver_at_ms = now_ms; // the gateway says that it is ready, so no settle time is needed
        }
        let descriptor = match self.delivery.platforms.get(&platform) {
            Some(found) => found.descriptor().clone(),
            None => bare_descriptor(&platform),
        };
        let identity = (platform, bot);
        if !self.identities.contains(&identity) {
            Arc::make_mut(&mut self.identities).push(identity);
        }
        self.outbox.push(&DeskFrame::Descriptor { descriptor }.line());
    }
}

impl DeliveryPlane {
    /// Waits for the previous session, stores that the instance is awake, and returns the position to continue from.
    pub async fn begin(&self, caller: &Caller, beginning: Beginning) -> Result<Position, StoreError> {
        let Beginning { mailbox, before } = beginning;
        if let Some(before) = before {
            // Its last acks must be stored before the position is read.
            let _ = timeout(PREDECESSOR_TIME, before.finished()).await;
        }
        let instance = caller.instance.no;
        if !self.sockets.is_serving(instance, &mailbox) {
            // Another socket replaced this one while it waited. In the store the later one must be the one that serves.
            mailbox.finish();
            return Err(StoreError::Conflict);
        }
        match self.socket_opened(caller).await {
            Ok(attached) => {
                mailbox.begin(attached.session);
                if let Err(error) = self.served.take_parked(vec![instance]).await {
                    tracing::warn!(
                        %error,
                        "reading results from other servers failed; they are delivered after the next sweep"
                    );
                }
                Ok(attached.position)
            }
            Err(error) => {
                mailbox.finish();
                if self.sockets.detach(instance, &mailbox) {
                    // Mail may have arrived in the meantime.
                    self.sockets.unserved().note(instance, Unserved::NewMail);
                }
                Err(error)
            }
        }
    }
}

/// For a platform that this server does not run: a complete descriptor without any abilities.
fn bare_descriptor(platform: &str) -> Descriptor {
    Descriptor { emoji: "🔌".into(), ..Descriptor::plain(platform, platform, 4096) }
}
