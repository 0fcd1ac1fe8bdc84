//! What the listener of a bot does beside its polls, and repeats until it works: joins, and rooms whose events could not
//! be read in time. It is saved with the cursor, so that a restart forgets none of it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;

use frontdesk_core::port::platform::{Change, Gap};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::Homeservers;
use super::account::{Mode, server_of};
use super::client::{Client, Fault};
use super::gather::{Gathered, of_own_token};
use super::patience::{FIRST_LIMIT, Patience};
use super::rooms::{locked, predecessor, successor};

/// Rooms whose events wait. When there are more, the next one is read at once, without what takes too long.
const BEHIND_MAX: usize = 64;
/// All others. Strangers can cause them, so what is over this is refused.
const OTHERS_MAX: usize = 64;
/// Attempts that reached the homeserver: about twenty minutes.
pub(super) const ATTEMPTS_MAX: u32 = 12;
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Errand {
    /// Accept or reject an invitation.
    Invited { room_id: String, inviter: String, is_direct: bool },
    /// Read what was said between the invitation and the join, which is not pushed.
    Earlier { room_id: String },
    /// Follow an upgraded room.
    Moved { room_id: String, to: String, sender: String },
    /// Tell the room that it is encrypted.
    Tell { room_id: String },
    /// Read the events since this token.
    Behind { room_id: String, since: String },
}

impl Errand {
    pub(super) fn room_id(&self) -> &str {
        match self {
            Self::Invited { room_id, .. }
            | Self::Earlier { room_id }
            | Self::Moved { room_id, .. }
            | Self::Tell { room_id }
            | Self::Behind { room_id, .. } => room_id,
        }
    }

    /// One of each kind per room.
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other) && self.room_id() == other.room_id()
    }

    fn is_behind(&self) -> bool {
        matches!(self, Self::Behind { .. })
    }

    /// What is lost when it is given up.
    pub(super) fn loss(&self, fault: &Fault, now_ms: u64) -> Gap {
        let room_id = self.room_id();
        let reason = match self {
            Self::Invited { inviter, .. } => {
                format!("room {room_id}: the invitation of {inviter} was not accepted; invite the bot again: {fault}")
            }
            Self::Moved { to, .. } => {
                format!("room {room_id}: it goes on in {to}, where the bot could not join; invite it there: {fault}")
            }
            Self::Tell { .. } => format!("room {room_id}: the notice about its encryption was not sent: {fault}"),
            Self::Earlier { .. } | Self::Behind { .. } => format!("room {room_id}: events cannot be read: {fault}"),
        };
        Gap { since_ms: 0, until_ms: now_ms, reason }
    }
}

/// Before the attempt after this many.
pub(super) fn pause(attempts: u32) -> Duration {
    match attempts {
        0 => Duration::ZERO,
        _ => (PAUSE_MIN * 2_u32.saturating_pow((attempts - 1).min(16))).min(PAUSE_MAX),
    }
}

/// Where a listener goes on: the token of the next poll, and what is still to be done.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    pub(super) since: Option<String>,
    #[serde(default)]
    pub(super) errands: Vec<Errand>,
    /// Rooms that are behind, and had news since they were asked about.
    #[serde(skip)]
    pub(super) skipped: HashSet<String>,
}

impl Place {
    /// A token alone is one, too.
    pub(super) fn read(cursor: Option<String>) -> Self {
        let Some(cursor) = cursor else { return Self::default() };
        let whole = cursor.starts_with('{').then(|| serde_json::from_str(&cursor).ok()).flatten();
        whole.unwrap_or(Self { since: Some(cursor).filter(|it| !it.is_empty()), ..Self::default() })
    }

    pub(super) fn cursor(&self) -> String {
        match &self.since {
            Some(since) if self.errands.is_empty() => since.clone(),
            _ => serde_json::to_string(self).unwrap_or_default(),
        }
    }

    pub(super) fn is_behind(&self, room_id: &str) -> bool {
        self.errands.iter().any(|it| it.is_behind() && it.room_id() == room_id)
    }

    /// Whether a room may be read later.
    pub(super) fn has_room_behind(&self) -> bool {
        self.errands.iter().filter(|it| it.is_behind()).count() < BEHIND_MAX
    }

    /// `false`: it is there already, or there are too many.
    pub(super) fn add(&mut self, errand: &Errand) -> bool {
        let is_full = || self.errands.iter().filter(|it| it.is_behind() == errand.is_behind()).count() >= OTHERS_MAX;
        if self.errands.iter().any(|it| it.is_like(errand)) {
            return false;
        }
        if !errand.is_behind() && is_full() {
            tracing::warn!(?errand, "too many joins and notices of this bot wait; this one was refused");
            return false;
        }
        self.errands.push(errand.clone());
        true
    }

    pub(super) fn remove(&mut self, errand: &Errand) {
        self.errands.retain(|it| it != errand);
    }
}

/// An errand for a listener, and whom to tell when it is saved.
pub(super) type Handed = (Errand, oneshot::Sender<()>);

/// The listeners of bots whose events are pushed.
#[derive(Default)]
pub(super) struct Errands(Mutex<HashMap<String, mpsc::Sender<Handed>>>);

impl Errands {
    /// For the listener of this bot. One that ended is told apart by its closed channel.
    pub(super) fn open(&self, bot: &str) -> mpsc::Receiver<Handed> {
        let (sender, receiver) = mpsc::channel(OTHERS_MAX);
        locked(&self.0).insert(bot.to_owned(), sender);
        receiver
    }

    /// `false`: no listener of this bot runs here. `Err`: it did not save the errand in time.
    pub(super) async fn hand_over(&self, bot: &str, errand: &Errand) -> Result<bool, Fault> {
        let Some(listener) = locked(&self.0).get(bot).cloned() else { return Ok(false) };
        let (told, saved) = oneshot::channel();
        let handing = async {
            match listener.send((errand.clone(), told)).await {
                Ok(()) => Some(saved.await.is_ok()),
                Err(_) => None,
            }
        };
        match tokio::time::timeout(FIRST_LIMIT, handing).await {
            Ok(None) => Ok(false),
            Ok(Some(true)) => Ok(true),
            Ok(Some(false)) | Err(_) => {
                let why = "what it asks for could not be noted in time".to_owned();
                Err(Fault::Unreachable { why, may_have_happened: false })
            }
        }
    }
}

impl Homeservers {
    /// One attempt. Another errand may come out of it. `until` is the token of the latest poll.
    pub(super) async fn try_errand(
        &self,
        client: &Client<'_>,
        errand: &Errand,
        until: &str,
        patience: Patience,
        into: &mut Gathered,
    ) -> Result<Option<Errand>, Fault> {
        match errand {
            Errand::Invited { room_id, inviter, is_direct } => {
                let is_in = patience.must(self.invited(client, room_id, inviter, *is_direct)).await?;
                let is_pushed = client.account.mode == Mode::AppService;
                Ok((is_in && is_pushed).then(|| Errand::Earlier { room_id: room_id.clone() }))
            }
            Errand::Earlier { room_id } => {
                let events = self.earlier(client, room_id, patience, into).await?;
                self.gather(client, room_id, &events, of_own_token, patience, into).await?;
                Ok(None)
            }
            Errand::Moved { room_id, to, sender } => {
                patience.must(self.follow(client, room_id, to, sender, into)).await?;
                Ok(None)
            }
            Errand::Tell { room_id } => {
                patience.must(self.tell_encrypted(client, room_id)).await?;
                Ok(None)
            }
            Errand::Behind { room_id, since } => {
                let events = self.missed(client, room_id, since, until, patience, into).await?;
                self.gather(client, room_id, &events, of_own_token, patience, into).await?;
                Ok(None)
            }
        }
    }

    /// The room was upgraded: its users go on in another one. The new room must name the old one as its predecessor, so
    /// that nobody can pass the rights of a room to any other one.
    async fn follow(
        &self,
        client: &Client<'_>,
        room_id: &str,
        to: &str,
        sender: &str,
        into: &mut Gathered,
    ) -> Result<(), Fault> {
        let bot = &client.account.bot.id;
        if successor(client, room_id).await?.as_deref() != Some(to) {
            tracing::warn!(bot, room_id, to, sender, "a room upgrade that the room does not state was ignored");
            return Ok(());
        }
        // Our homeserver may know nobody in the new room, so it is told whom to ask.
        let via: BTreeSet<&str> = [to, sender, room_id].into_iter().filter_map(server_of).collect();
        match client.join(to, &via).await {
            Ok(_) => {}
            Err(fault) if fault.is_passing() || fault.is_token() => return Err(fault),
            Err(fault) => {
                into.gaps.push(
                    Errand::Moved { room_id: room_id.into(), to: to.into(), sender: sender.into() }
                        .loss(&fault, self.env.now_ms()),
                );
                return Ok(());
            }
        }
        if predecessor(client, to).await?.as_deref() == Some(room_id) {
            into.changes.push(Change::ChatMoved { from: room_id.to_owned(), to: to.to_owned() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_token_or_more() {
        assert_eq!(Place::read(None), Place::default());
        let plain = Place::read(Some("s1_2".into()));
        assert_eq!((plain.since.as_deref(), plain.cursor().as_str()), (Some("s1_2"), "s1_2"));
        let mut place = plain;
        let errand = Errand::Behind { room_id: "!r:x".into(), since: "s0".into() };
        assert!(place.add(&errand) && !place.add(&errand), "one per room");
        assert_eq!(Place::read(Some(place.cursor())), place);
        let none = Place { errands: vec![errand], ..Place::default() };
        assert_eq!(Place::read(Some(none.cursor())), none);
    }

    #[test]
    fn strangers_cannot_fill_the_list() {
        let mut place = Place::default();
        let invited =
            |n: usize| Errand::Invited { room_id: format!("!{n}:x"), inviter: "@e:x".into(), is_direct: false };
        assert_eq!((0..1_000).filter(|n| place.add(&invited(*n))).count(), OTHERS_MAX);
        assert!(place.has_room_behind());
    }
}
