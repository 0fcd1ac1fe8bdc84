//! Events of a room, whichever way they came: asks for what is needed to understand them, and notes what they ask for.

use std::sync::Arc;

use frontdesk_core::intake::{Intake, Verified};
use frontdesk_core::port::platform::{Change, Gap};
use serde_json::{Value, json};

use super::Homeservers;
use super::account::Mode;
use super::client::{Client, Fault};
use super::deadline::Deadline;
use super::event::{RoomEvent, is_new_member};
use super::inspect::token_checked;
use super::normalize::{ENCRYPTED, Known, normalize, unresolved};
use super::room::Room;
use super::task::Task;

const NOT_IN_ROOM: &str = "the bot is no longer in this room, or the homeserver does not let it read the room";
const OF_OWN_BOT: &str = "it was sent by another bot of this server, and bots of one server do not receive messages \
                          from each other, so that they cannot answer each other without end";
const NOT_READABLE: &str = "This room is encrypted, and this bot cannot read encrypted messages. To talk to it, create \
                            a room without encryption and invite it there.";

/// How events came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// By a transaction of the homeserver: each event once and in order.
    Pushed,
    /// Requested with the token of the bot. For an application service they may be older than events already pushed.
    Asked,
}

impl Origin {
    fn proof(self) -> Verified {
        match self {
            Self::Pushed => Verified::by("hs_token of the application service"),
            Self::Asked => Verified::by("answer of the homeserver to the bot's own token"),
        }
    }
}

/// What came out of some events.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) intakes: Vec<Intake>,
    pub(super) changes: Vec<Change>,
    pub(super) gaps: Vec<Gap>,
    pub(super) tasks: Vec<Task>,
}

impl Gathered {
    pub(super) fn absorb(&mut self, other: Self) {
        self.intakes.extend(other.intakes);
        self.changes.extend(other.changes);
        self.gaps.extend(other.gaps);
        self.tasks.extend(other.tasks);
    }

    fn changed(&mut self, change: Change) {
        if !self.changes.contains(&change) {
            self.changes.push(change);
        }
    }
}

/// Where events come from.
struct Stage<'a> {
    client: &'a Client<'a>,
    room_id: &'a str,
    origin: Origin,
    deadline: Deadline,
}

impl Stage<'_> {
    /// Whether each event is newer than what is known of the room.
    fn is_in_order(&self) -> bool {
        self.origin == Origin::Pushed || self.client.account.mode == Mode::Sync
    }
}

impl Homeservers {
    /// Oldest first. `Err`: the homeserver does not answer now, and the same events should come again.
    pub(super) async fn gather(
        &self,
        client: &Client<'_>,
        room_id: &str,
        events: &[Value],
        origin: Origin,
        deadline: Deadline,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let stage = Stage { client, room_id, origin, deadline };
        if !stage.is_in_order() && events.iter().any(|event| event["type"] == "m.room.member") {
            // Once for all of them: the room is asked about after the latest of these events.
            self.rooms.forget(&client.account.bot.id, room_id);
        }
        for raw in events {
            let Some(event) = RoomEvent::read(raw) else {
                tracing::debug!(bot = client.account.bot.id.as_str(), room_id, "an invalid event was left out");
                continue;
            };
            match event.kind.as_str() {
                "m.room.member" => self.member(&stage, &event, into),
                "m.room.tombstone" => self.replaced(&stage, &event, into),
                "m.room.message" | "m.sticker" | "m.reaction" | "m.room.encrypted" => {
                    self.message(&stage, &event, into).await?;
                }
                _ if event.state_key.is_some() => self.rooms.forget(&client.account.bot.id, room_id),
                _ => {}
            }
        }
        Ok(())
    }

    async fn message(&self, stage: &Stage<'_>, event: &RoomEvent, into: &mut Gathered) -> Result<(), Fault> {
        let Stage { client, room_id, origin, deadline } = *stage;
        let account = client.account;
        if event.sender == account.user_id {
            return Ok(());
        }
        // Recorded, so that `explain` can say why no agent got it.
        let refused = |reason: &str, into: &mut Gathered| {
            let known = Known { account, room_id, room: &Room::unknown(room_id), related: None };
            if let Some(mut intake) = normalize(&known, event, origin.proof()) {
                intake.refused = Some(reason.into());
                into.intakes.push(intake);
            }
        };
        if self.is_own_bot(&event.sender) {
            refused(OF_OWN_BOT, into);
            return Ok(());
        }
        let bot = &account.bot.id;
        let room = match deadline.ask(self.rooms.room(client, room_id, self.env.steady_ms())).await? {
            Some(Some(room)) => room,
            Some(None) => {
                refused(NOT_IN_ROOM, into);
                return Ok(());
            }
            // Who can see the room is asked separately, and an unknown answer counts as no.
            None => {
                tracing::warn!(
                    bot = bot.as_str(),
                    room_id,
                    "looking up a room took too long; its message was accepted without the result"
                );
                self.rooms.last_known(bot, room_id).unwrap_or_else(|| Arc::new(Room::unknown(room_id)))
            }
        };
        let related = match event.needs() {
            Some(event_id) => deadline.ask(related(client, room_id, event_id)).await?,
            None => Some(None),
        };
        let is_unknown = related.is_none();
        let related = related.flatten();
        let known = Known { account, room_id, room: &room, related: related.as_ref() };
        if is_unknown && event.is_empty_without_related() {
            if !deadline.is_last() {
                return Err(deadline.too_slow());
            }
            into.intakes.push(unresolved(&known, event, origin.proof()));
            return Ok(());
        }
        let Some(mut intake) = normalize(&known, event, origin.proof()) else { return Ok(()) };
        if event.kind == "m.room.encrypted" {
            self.answer_encrypted(stage, &mut intake, into).await;
        } else if intake.refused.is_none() {
            self.rooms.note_unread(bot, room_id, &event.event_id);
        }
        into.intakes.push(intake);
        Ok(())
    }

    /// A notice that is not sent is retried by the listener, and the record of the message reports that.
    async fn answer_encrypted(&self, stage: &Stage<'_>, intake: &mut Intake, into: &mut Gathered) {
        let Stage { client, room_id, deadline, .. } = *stage;
        let bot = &client.account.bot.id;
        let Err(why) = deadline.must(self.send_encryption_notice(client, room_id)).await else { return };
        intake.refused = Some(format!("{ENCRYPTED}; sending a notice to the room failed: {why}"));
        if self.notes.may_try(bot, room_id) {
            into.tasks.push(Task::Tell { room_id: room_id.to_owned() });
        }
    }

    /// Notifies the room once per start. `Ok` also if that was done before.
    pub(super) async fn send_encryption_notice(&self, client: &Client<'_>, room_id: &str) -> Result<(), Fault> {
        let bot = &client.account.bot.id;
        let begun = self.notes.begin(bot, room_id, || self.env.random_hex(16));
        let Some(txn) = begun.map_err(Fault::Final)? else { return Ok(()) };
        let content = json!({ "msgtype": "m.notice", "body": NOT_READABLE, "m.mentions": {} });
        let parts = ["client", "v3", "rooms", room_id, "send", "m.room.message", &txn];
        let sent = client.put_once(&parts, &content).await;
        if let Err(fault) = &sent {
            tracing::warn!(%fault, bot = bot.as_str(), room_id, "sending the notice about encryption failed");
        }
        self.notes.end(bot, room_id, sent.as_ref().err().map(ToString::to_string));
        sent.map(drop)
    }

    fn member(&self, stage: &Stage<'_>, event: &RoomEvent, into: &mut Gathered) {
        let Stage { client, room_id, .. } = *stage;
        let account = client.account;
        let user_id = event.state_key.as_deref().unwrap_or_default();
        if event.is_own_membership(account.user_id) {
            self.rooms.forget(&account.bot.id, room_id);
            into.changed(Change::Chat(room_id.into()));
        } else {
            let is_in = event.membership() == "join";
            if stage.is_in_order() {
                self.rooms.apply_member(&account.bot.id, room_id, user_id, is_in, event.text("displayname"));
            }
            // Another name changes nothing about who can see the room.
            if is_new_member(event) {
                let (chat_id, user_id) = (room_id.to_owned(), user_id.to_owned());
                into.changed(Change::Member { chat_id: chat_id.into(), user_id: user_id.into() });
            }
        }
        // A poll has invitations apart; among its events are those of rooms that the bot has joined since.
        let is_invited = event.is_own_membership(account.user_id) && event.membership() == "invite";
        if stage.origin == Origin::Pushed && is_invited {
            let is_direct = event.content["is_direct"] == true;
            let (room_id, inviter) = (room_id.to_owned(), event.sender.clone());
            into.tasks.push(Task::Invited { room_id, inviter, is_direct });
        }
    }

    /// Any member can send a message of this type. Only the state of the room counts, which needs the right to change it.
    fn replaced(&self, stage: &Stage<'_>, event: &RoomEvent, into: &mut Gathered) {
        let Stage { client, room_id, .. } = *stage;
        self.rooms.forget(&client.account.bot.id, room_id);
        into.changed(Change::Chat(room_id.into()));
        let to = event.text("replacement_room").filter(|to| to.starts_with('!') && to.len() <= ID_MAX_BYTES);
        let is_wanted = event.state_key.as_deref() == Some("") && client.account.invites.accept(&event.sender);
        if let Some(to) = to.filter(|_| is_wanted) {
            let (room_id, to, sender) = (room_id.to_owned(), to.to_owned(), event.sender.clone());
            into.tasks.push(Task::Moved { room_id, to, sender });
        }
    }

    /// Accepts or rejects an invitation, as the bot's setting says. Says whether the bot is in the room. `Err`: try again.
    pub(super) async fn invited(
        &self,
        client: &Client<'_>,
        room_id: &str,
        inviter: &str,
        is_direct: bool,
    ) -> Result<bool, Fault> {
        let account = client.account;
        let bot = &account.bot.id;
        let is_wanted = account.invites.accept(inviter);
        let (path, body) = match is_wanted {
            true => ("join", json!({})),
            false => ("leave", json!({ "reason": "this bot does not accept your invitations" })),
        };
        let answered = client.post_long(&["client", "v3", "rooms", room_id, path], &body).await;
        let answered = token_checked(client, answered).await;
        self.rooms.forget(bot, room_id);
        match answered {
            Ok(_) if is_wanted => tracing::info!(bot = bot.as_str(), room_id, inviter, "an invitation was accepted"),
            Ok(_) => {
                tracing::info!(
                    bot = bot.as_str(),
                    room_id,
                    inviter,
                    "an invitation was rejected, as the setting `invites` says"
                );
                return Ok(false);
            }
            Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
            Err(fault) => {
                tracing::warn!(%fault, bot = bot.as_str(), room_id, inviter, path, "answering an invitation failed");
                return Ok(false);
            }
        }
        if is_direct {
            match self.rooms.mark_direct(client, room_id, inviter).await {
                Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
                Err(fault) => {
                    tracing::warn!(%fault, bot = bot.as_str(), room_id, "marking a room as a direct chat failed");
                }
                Ok(()) => {}
            }
        }
        Ok(true)
    }
}

/// Ids of Matrix are no longer than this.
const ID_MAX_BYTES: usize = 255;

/// `None`: it cannot be seen, or was deleted.
async fn related(client: &Client<'_>, room_id: &str, event_id: &str) -> Result<Option<RoomEvent>, Fault> {
    match client.get(&["client", "v3", "rooms", room_id, "event", event_id], &[]).await {
        Ok(raw) => Ok(RoomEvent::read(&raw)),
        Err(fault) if fault.is_passing() || fault.is_token() => Err(fault),
        Err(_) => Ok(None),
    }
}
