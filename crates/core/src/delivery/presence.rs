//! Presence of instances (awake, asleep, gone), and notices to users who wait.

use std::sync::Arc;

use frontdesk_wire::{Close, InstanceNo, Seq, SessionNo};

use super::DeliveryPlane;
use super::sockets::{GivenUp, Mailbox, Order};
use super::unserved::Unserved;
use super::window::{Acks, RESENDS_MAX};
use crate::directory::Caller;
use crate::ids::mail_id;
use crate::port::platform::{ActingAs, notice_in_time};
use crate::port::store::{Attached, Delivery, DeskNo, Presence, StoreError};

/// A gateway that reconnects within this time is still running and needs no settle time.
const WARM_MS: u64 = 60_000;
/// Chats per notice when an agent cannot be woken; more would be a broadcast.
const NOTICE_CHATS_MAX: usize = 8;

impl DeliveryPlane {
    /// Delay of delivery after a handshake: a gateway that has just started drops messages that come too early.
    pub fn settle_time_ms(&self, instance: InstanceNo) -> u64 {
        let presence = self.sockets.presence(instance);
        // A time in the future was stored before the clock was set back, and is ignored.
        let warm = presence.seen_ms != 0 && self.env.now_ms().abs_diff(presence.seen_ms) <= WARM_MS;
        if warm { 0 } else { self.rules.settle_ms }
    }

    /// The socket serves the instance from now on, in the store as well.
    pub async fn socket_opened(&self, caller: &Caller) -> Result<Attached, StoreError> {
        let (instance, now_ms) = (caller.instance.no, self.env.now_ms());
        self.sockets.note_dial(instance);
        self.note_wake_failure(instance, None);
        self.publish_state(caller, "awake", "connected");
        let (me, attached) = self.served.attach(instance, caller.gateway.clone(), now_ms).await?;
        let (served_by, session) = (me, attached.session);
        let (gateway, idle) = (caller.gateway.clone(), false);
        let known = Presence { served_by, session, gateway, idle, seen_ms: now_ms, ..attached.before.clone() };
        self.sockets.set_presence(instance, |presence| *presence = known);
        Ok(attached)
    }

    /// Called only for the socket that served the instance, not for a replaced one. `silent_ms`: how long its peer was silent.
    pub async fn socket_closed(&self, caller: &Caller, session: SessionNo, acks: Acks, silent_ms: u64) {
        let instance = caller.instance.no;
        let seen_ms = self.env.now_ms().saturating_sub(silent_ms);
        let never_acks = acks == Acks::Never;
        self.sockets.remember_acks(instance, acks);
        let presence = self.sockets.set_presence(instance, |known| {
            (known.served_by, known.session, known.seen_ms, known.never_acks) =
                (DeskNo::NONE, SessionNo::NONE, seen_ms, never_acks);
        });
        let text = if presence.idle { "went idle and disconnected" } else { "disconnected" };
        self.publish_state(caller, "asleep", text);
        if let Err(error) = self.sessions.detach(instance, session, never_acks, seen_ms).await {
            tracing::warn!(%error, "storing the end of a session failed");
        }
        self.sockets.unserved().note(instance, Unserved::Look); // rows may be waiting already
    }

    /// The gateway was proven not to ack. Stored at once, so that it does not get the same rows again after a restart.
    pub async fn note_never_acks(&self, caller: &Caller) {
        let instance = caller.instance.no;
        self.sockets.remember_acks(instance, Acks::Never);
        if self.sockets.presence(instance).never_acks {
            return;
        }
        self.sockets.set_presence(instance, |known| known.never_acks = true);
        if let Err(error) = self.sessions.mark_never_acks(instance).await {
            tracing::warn!(%error, "storing that a gateway does not ack failed");
        }
    }

    /// Ends rows that a live gateway left unacked after several attempts. They are listed as dead mail and can be
    /// replayed.
    pub async fn give_up_rows(&self, caller: &Caller, mailbox: &Mailbox, rows: &[(Seq, Arc<Delivery>)]) {
        let (instance, session) = (caller.instance.no, mailbox.session());
        for (seq, delivery) in rows {
            let reason = format!("sent {} times on a live connection and never acked", RESENDS_MAX + 1);
            let dropped = self.mail.drop_mail(instance, *seq, Some(session), reason).await;
            match &dropped {
                // Settled, now or before: the session must not wait for it.
                Ok(_) => mailbox.row_dropped(*seq),
                // Another server serves the instance, and sends the row.
                Err(StoreError::Conflict) => drop(mailbox.order(Order::Close(Close::Replaced))),
                Err(error) => {
                    tracing::error!(%error, "giving up an unacked row failed; it is sent again on the next connection");
                    mailbox.order(Order::Close(Close::TryLater));
                }
            }
            if dropped != Ok(true) {
                continue;
            }
            self.meters.rows_given_up.inc();
            let row = GivenUp { seq: *seq, event: delivery.event, at_ms: self.env.now_ms() };
            self.sockets.note_given_up(instance, row);
            tracing::warn!(
                tenant = caller.tenant.as_str(),
                instance = caller.instance.name.as_str(),
                mail = mail_id(instance, *seq),
                "a row was given up: the gateway acked later rows but not this one"
            );
            self.tail.publish(&caller.tenant, "given_up", |notice| {
                notice.instance.clone_from(&caller.instance.name);
                notice.event_id = Some(delivery.event);
                notice.platform.clone_from(&delivery.platform);
                notice.chat_id = delivery.chat_id.clone();
                notice.message_id.clone_from(&delivery.message_id);
                notice.text = format!("{} never acked it, although it was sent again", caller.instance.name);
            });
        }
    }

    /// Stores that messages are only buffered from now on; the ack is sent afterwards.
    /// False: another session serves the instance, so it is not idle.
    pub async fn going_idle(&self, caller: &Caller, session: SessionNo) -> Result<bool, StoreError> {
        let instance = caller.instance.no;
        let is_mine = self.sessions.mark_idle(instance, Some(session), true).await?;
        self.sockets.set_presence(instance, |known| known.idle |= is_mine && known.session == session);
        Ok(is_mine)
    }

    /// An agent without a socket: whether a wake waits for it.
    pub(crate) async fn mark_wake_waits(&self, agent: InstanceNo, waits: bool) -> Result<(), StoreError> {
        self.sockets.set_presence(agent, |known| known.idle = waits);
        self.sessions.mark_idle(agent, None, waits).await.map(drop)
    }

    /// Notifies the users whose messages wait, once per message. Returns whether there was something to notify them of.
    pub async fn notify_waiting(&self, instance_no: InstanceNo) -> Result<bool, StoreError> {
        let Some(instance) = self.directory.read(|view| view.instance_no(instance_no).cloned()) else {
            return Ok(false);
        };
        let wanted = self.directory.read(|view| view.tenant(&instance.tenant).is_some_and(|t| t.notices));
        let noticed_through = self.sockets.presence(instance_no).noticed_through;
        let mut rows = self.ledger.pending(instance_no, noticed_through, self.rules.window.max(1)).await?;
        let Some(last) = rows.last().map(|(seq, _)| *seq).filter(|_| wanted) else { return Ok(false) };
        // Stored first, so that a crash repeats no notice; and claimed, for another server may be about to send it.
        let claimed = self.sessions.claim_notice(instance_no, last).await?;
        self.sockets.set_presence(instance_no, |known| known.noticed_through = last);
        let Some(noticed_through) = claimed else { return Ok(false) };
        rows.retain(|(seq, _)| *seq > noticed_through);
        let mut notified = Vec::new();
        for (_, delivery) in &rows {
            let place = (&delivery.platform, &delivery.bot, &delivery.chat_id);
            if notified.contains(&place) || notified.len() >= NOTICE_CHATS_MAX {
                continue;
            }
            notified.push(place);
            let Some(platform) = self.platforms.get(&delivery.platform) else { continue };
            let text = "Your agent is away and could not be woken yet. Your message is kept and will be \
                        delivered as soon as it is back.";
            let bot = self.directory.bots().bot(&delivery.platform, &delivery.bot);
            let acting_as = ActingAs::new(&instance.tenant, &bot);
            let result = notice_in_time(&**platform, acting_as, &delivery.chat_id, text).await;
            let sent = if result.success {
                self.meters.notices.inc();
                "a notice that the agent is away was sent to the chat".to_owned()
            } else {
                let error = result.error.unwrap_or_default();
                tracing::warn!(error, "sending the notice that an agent is away failed");
                format!("a notice that the agent is away could not be sent to the chat: {error}")
            };
            self.tail.publish(&instance.tenant, "notice", |notice| {
                notice.instance.clone_from(&instance.name);
                notice.platform.clone_from(&delivery.platform);
                notice.chat_id = delivery.chat_id.clone();
                notice.message_id.clone_from(&delivery.message_id);
                notice.text = sent;
            });
        }
        Ok(true)
    }

    /// Reports rows that were sent or settled to the event stream.
    pub fn publish_rows<'a>(&self, caller: &Caller, step: &'static str, rows: impl Iterator<Item = &'a Delivery>) {
        if !self.tail.is_watched() {
            return;
        }
        for row in rows {
            self.tail.publish(&caller.tenant, step, |notice| {
                notice.instance.clone_from(&caller.instance.name);
                notice.event_id = Some(row.event);
                notice.platform.clone_from(&row.platform);
                notice.chat_id = row.chat_id.clone();
                notice.message_id.clone_from(&row.message_id);
                notice.text = match step {
                    "sent" => format!("handed to {}", caller.instance.name),
                    _ => format!("acked by {}", caller.instance.name),
                };
            });
        }
    }

    /// Reports a step of waking an instance to the event stream.
    pub async fn publish_wake(&self, instance_no: InstanceNo, step: &'static str, text: &str) {
        let Some(instance) = self.directory.read(|view| view.instance_no(instance_no).cloned()) else { return };
        if !self.tail.is_watched() {
            return;
        }
        let waits = self.ledger.pending(instance_no, Seq::NONE, 1).await.unwrap_or_default();
        self.tail.publish(&instance.tenant, step, |notice| {
            notice.instance.clone_from(&instance.name);
            notice.text = text.into();
            if let Some((_, oldest)) = waits.first() {
                notice.platform.clone_from(&oldest.platform);
                notice.chat_id = oldest.chat_id.clone();
                notice.message_id.clone_from(&oldest.message_id);
                notice.event_id = Some(oldest.event);
            }
        });
    }

    fn publish_state(&self, caller: &Caller, step: &'static str, text: &str) {
        self.tail.publish(&caller.tenant, step, |notice| {
            notice.instance.clone_from(&caller.instance.name);
            notice.text = text.into();
        });
    }
}
