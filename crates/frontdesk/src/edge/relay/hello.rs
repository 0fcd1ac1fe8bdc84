//! A gateway says whom it fronts; the first good hello makes its socket the one that serves the instance.

use std::sync::Arc;
use std::time::Duration;

use frontdesk_core::delivery::switchboard::{Order, Unserved};
use frontdesk_core::delivery::window::Window;
use frontdesk_core::port::store::StoreError;
use frontdesk_wire::descriptor::{CONTRACT_VERSION, LenUnit};
use frontdesk_wire::frame::DeskFrame;
use frontdesk_wire::{Close, Descriptor};
use tokio::time::{Instant, timeout};

use super::session::{Serving, Session};

/// Identities one socket may front.
const IDENTITIES_MAX: usize = 64;
/// The replaced socket saves its last acks before its successor reads them.
const PREDECESSOR_TIME: Duration = Duration::from_secs(3);

impl Session {
    pub(super) async fn take_hello(&mut self, platform: &str, bot: &str, ready: bool) {
        let Some(bot) = self.app.desk.directory().resolve_bot(&self.caller.tenant, platform, bot) else {
            self.closing = Some(Close::ForeignPlatform);
            return;
        };
        if self.identities.len() >= IDENTITIES_MAX {
            return self.bad_frame("too_many_hellos");
        }
        if self.serving.is_none() {
            if self.app.desk.directory().disproof(&self.caller).is_none() {
                match self.begin_serving().await {
                    Ok(serving) => self.serving = Some(serving),
                    Err(error) => {
                        tracing::error!(%error, "a session could not begin");
                        self.closing = Some(Close::TryLater);
                        return;
                    }
                }
            }
            // A revoke closes the sockets that it finds; this one was not among them until now.
            if let Some(why) = self.app.desk.directory().disproof(&self.caller) {
                self.closing = Some(why);
                return;
            }
        }
        if ready && let Some(serving) = &mut self.serving {
            serving.deliver_at = Instant::now(); // it says that it takes events from now on
        }
        let identity = (platform.to_owned(), bot);
        if !self.identities.contains(&identity) {
            Arc::make_mut(&mut self.identities).push(identity);
        }
        let descriptor = match self.app.desk.platforms().get(platform) {
            Some(found) => found.descriptor().clone(),
            None => bare_descriptor(platform),
        };
        self.outbox.push(&DeskFrame::Descriptor { descriptor }.line());
    }

    async fn begin_serving(&mut self) -> Result<Serving, StoreError> {
        let desk = &self.app.desk;
        let instance = self.caller.instance.no;
        let settle = Duration::from_millis(desk.delivery().settle_time_ms(instance));
        let (mailbox, old) = desk.delivery().switchboard().attach(instance, &self.caller.gateway, &self.caller.tenant);
        if let Some(old) = old {
            // Its last acks must be in the ledger before we read what is owed.
            let _ = timeout(PREDECESSOR_TIME, old.finished()).await;
        }
        let begun = async {
            desk.delivery().socket_opened(&self.caller).await?;
            desk.stores().ledger.position(instance).await
        };
        let position = match begun.await {
            Ok(position) => position,
            Err(error) => {
                mailbox.finish();
                if desk.delivery().switchboard().detach(instance, &mailbox) {
                    desk.delivery().switchboard().note_unserved(instance, Unserved::NewMail); // it may have come in that moment
                }
                return Err(error);
            }
        };
        let now_ms = self.now_ms();
        let window = Window::new(
            desk.rules().window,
            desk.rules().ack_limit_ms,
            position,
            desk.delivery().switchboard().acks(instance),
            now_ms,
        );
        for line in desk.delivery().switchboard().take_parked(instance, desk.env().now_ms()) {
            mailbox.order(Order::Result(line));
        }
        Ok(Serving { mailbox, window, deliver_at: Instant::now() + settle, fetch: desk.rules().window.max(1) })
    }
}

/// For a bot whose platform this desk does not run: complete, and honest about doing nothing.
fn bare_descriptor(platform: &str) -> Descriptor {
    Descriptor {
        contract_version: CONTRACT_VERSION,
        platform: platform.into(),
        label: platform.into(),
        max_message_length: 4096,
        supports_draft_streaming: false,
        supports_edit: false,
        supports_threads: false,
        markdown_dialect: "plain".into(),
        len_unit: LenUnit::Chars,
        emoji: "🔌".into(),
        platform_hint: String::new(),
        pii_safe: false,
        supports_context: false,
        supports_inchannel_continuable: false,
        supports_block_formatting: false,
        supported_ops: Vec::new(),
    }
}
