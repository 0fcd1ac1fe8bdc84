//! Events of a room, whichever way they came: asks for what is needed to understand them, and does what they ask for.

use frontdesk_core::intake::{Intake, Verified};
use frontdesk_core::port::platform::Change;
use serde_json::{Value, json};

use super::Homeservers;
use super::account::Mode;
use super::client::{Client, Fault};
use super::event::{RoomEvent, beginning};
use super::normalize::{Known, normalize};
use super::rooms::{Room, mark_direct, predecessor, successor};

/// Events between an invitation and the join.
const EARLIER_MAX: &str = "50";

const NOT_IN_ROOM: &str = "the bot is no longer in this room, or the homeserver does not let it read the room";
const NOT_READABLE: &str = "This room is encrypted, and this bot cannot read encrypted messages. To talk to it, create \
                            a room without encryption and invite it there.";

/// What came out of some events.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) intakes: Vec<Intake>,
    pub(super) changes: Vec<Change>,
}

impl Homeservers {
    /// Oldest first. `Err`: the homeserver does not answer now, and the same events should come again.
    pub(super) async fn gather(
        &self,
        client: &Client<'_>,
        room_id: &str,
        events: &[Value],
        proof: fn() -> Verified,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        for raw in events {
            let Some(event) = RoomEvent::read(raw) else {
                tracing::debug!(bot = client.account.bot.id, room_id, "an event that is not one was left out");
                continue;
            };
            match event.kind.as_str() {
                "m.room.member" => self.member(client, room_id, &event, proof, into).await?,
                "m.room.tombstone" => self.moved(client, room_id, &event, into).await?,
                "m.room.message" | "m.sticker" | "m.reaction" | "m.room.encrypted" => {
                    self.message(client, room_id, &event, proof, into).await?;
                }
                _ if event.state_key.is_some() => self.rooms.forget(&client.account.bot.id, room_id),
                _ => {}
            }
        }
        Ok(())
    }

    async fn message(
        &self,
        client: &Client<'_>,
        room_id: &str,
        event: &RoomEvent,
        proof: fn() -> Verified,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let account = client.account;
        if event.sender == account.user_id {
            return Ok(());
        }
        let Some(room) = self.rooms.room(client, room_id, self.env.steady_ms()).await? else {
            // Recorded, so that `explain` can say why nobody got it.
            let known = Known { account, room_id, room: &Room::default(), related: None };
            if let Some(mut intake) = normalize(&known, event, proof()) {
                intake.refused = Some(NOT_IN_ROOM.into());
                into.intakes.push(intake);
            }
            return Ok(());
        };
        let related = match event.needs() {
            Some(event_id) => related(client, room_id, event_id).await?,
            None => None,
        };
        let known = Known { account, room_id, room: &room, related: related.as_ref() };
        let Some(intake) = normalize(&known, event, proof()) else { return Ok(()) };
        if event.kind == "m.room.encrypted" {
            self.tell_encrypted(client, room_id).await;
        } else if intake.refused.is_none() {
            self.rooms.note_unread(&account.bot.id, room_id, &event.event_id);
        }
        into.intakes.push(intake);
        Ok(())
    }

    /// Once per room and start. If it does not work, `explain` still says why nobody got the message.
    async fn tell_encrypted(&self, client: &Client<'_>, room_id: &str) {
        if !self.rooms.is_first_note(&client.account.bot.id, room_id) {
            return;
        }
        let txn = self.env.random_hex(16);
        let content = json!({ "msgtype": "m.notice", "body": NOT_READABLE, "m.mentions": {} });
        let sent = client.put_once(&["client", "v3", "rooms", room_id, "send", "m.room.message", &txn], &content).await;
        if let Err(fault) = sent {
            tracing::warn!(%fault, bot = client.account.bot.id, room_id, "the notice about encryption was not sent");
        }
    }

    async fn member(
        &self,
        client: &Client<'_>,
        room_id: &str,
        event: &RoomEvent,
        proof: fn() -> Verified,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let account = client.account;
        self.rooms.forget(&account.bot.id, room_id);
        into.changes.push(Change::Chat(room_id.to_owned()));
        // A poller has invitations apart; here it sees those of rooms that it has joined since.
        if account.mode == Mode::AppService
            && event.is_own_membership(account.user_id)
            && event.membership() == "invite"
        {
            self.invited(client, room_id, &event.sender, event.content["is_direct"] == true).await?;
            self.said_before_join(client, room_id, proof, into).await?;
        }
        Ok(())
    }

    /// What was said between the invitation and the join: the homeserver pushes only what comes after the join. What
    /// comes both ways is stored once.
    async fn said_before_join(
        &self,
        client: &Client<'_>,
        room_id: &str,
        proof: fn() -> Verified,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let query = [("dir", "b"), ("limit", EARLIER_MAX)];
        let page = match client.get(&["client", "v3", "rooms", room_id, "messages"], &query).await {
            Ok(page) => page,
            Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
            Err(_) => return Ok(()), // it was not accepted
        };
        let Some(mut events) = page["chunk"].as_array().cloned() else { return Ok(()) };
        events.truncate(beginning(&events, client.account.user_id).unwrap_or(events.len()));
        for event in events.iter().rev().filter_map(RoomEvent::read) {
            if event.state_key.is_none() {
                self.message(client, room_id, &event, proof, into).await?;
            }
        }
        Ok(())
    }

    /// Accepts or rejects an invitation, as the bot's setting says.
    pub(super) async fn invited(
        &self,
        client: &Client<'_>,
        room_id: &str,
        inviter: &str,
        is_direct: bool,
    ) -> Result<(), Fault> {
        let account = client.account;
        let bot = &account.bot.id;
        if !account.invites.accept(inviter) {
            tracing::info!(bot, room_id, inviter, "an invitation was rejected, as the setting `invites` says");
            let reason = json!({ "reason": "this bot does not accept your invitations" });
            let left = client.post(&["client", "v3", "rooms", room_id, "leave"], &reason).await;
            return tolerate(left, bot, room_id, "rejecting an invitation failed");
        }
        let joined = client.post(&["client", "v3", "rooms", room_id, "join"], &json!({})).await;
        if joined.is_ok() {
            tracing::info!(bot, room_id, inviter, "an invitation was accepted");
            if is_direct {
                let marked = mark_direct(client, room_id, inviter).await.map(|()| Value::Null);
                tolerate(marked, bot, room_id, "marking a room as a direct chat failed")?;
            }
        }
        self.rooms.forget(bot, room_id);
        tolerate(joined, bot, room_id, "accepting an invitation failed; the bot must be invited again")
    }

    /// The room was upgraded: its users go on in another one. The new room must name the old one as its predecessor, so
    /// that nobody can pass the rights of a room to any other one.
    async fn moved(
        &self,
        client: &Client<'_>,
        room_id: &str,
        event: &RoomEvent,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let bot = &client.account.bot.id;
        self.rooms.forget(bot, room_id);
        into.changes.push(Change::Chat(room_id.to_owned()));
        let to = event.text("replacement_room").filter(|to| to.starts_with('!'));
        let Some(to) = to.filter(|_| client.account.invites.accept(&event.sender)) else { return Ok(()) };
        // Any member can send a message of this type. Only the state of the room counts, which needs the right to change it.
        if event.state_key.as_deref() != Some("") || successor(client, room_id).await?.as_deref() != Some(to) {
            tracing::warn!(
                bot,
                room_id,
                to,
                sender = event.sender,
                "a room upgrade that the room does not state was ignored"
            );
            return Ok(());
        }
        let joined = client.post(&["client", "v3", "rooms", to, "join"], &json!({})).await;
        let is_in = joined.is_ok();
        tolerate(joined, bot, to, "joining the room that replaces another one failed; the bot must be invited there")?;
        if is_in && predecessor(client, to).await?.as_deref() == Some(room_id) {
            into.changes.push(Change::ChatMoved { from: room_id.to_owned(), to: to.to_owned() });
        }
        Ok(())
    }
}

/// A room of a server that does not answer must not stop the events of all other rooms, so most failures are only logged.
/// If our homeserver itself cannot be reached, the same events come again.
fn tolerate(result: Result<Value, Fault>, bot: &str, room_id: &str, what: &str) -> Result<(), Fault> {
    match result {
        Ok(_) => Ok(()),
        Err(fault) if fault.is_elsewhere() || fault.is_token() => Err(fault),
        Err(fault) => {
            tracing::warn!(%fault, bot, room_id, "{what}");
            Ok(())
        }
    }
}

async fn related(client: &Client<'_>, room_id: &str, event_id: &str) -> Result<Option<RoomEvent>, Fault> {
    match client.get(&["client", "v3", "rooms", room_id, "event", event_id], &[]).await {
        Ok(raw) => Ok(RoomEvent::read(&raw)),
        Err(fault @ Fault::Refused { status: 500.., .. }) => {
            tracing::warn!(%fault, bot = client.account.bot.id, room_id, event_id, "reading a related event failed");
            Ok(None) // the message is worth more than what it refers to
        }
        Err(fault) if fault.is_passing() || fault.is_token() => Err(fault),
        Err(_) => Ok(None), // it cannot be seen, or was deleted
    }
}
