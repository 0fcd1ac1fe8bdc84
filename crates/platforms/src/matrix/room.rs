//! A room, as far as it is known.

use std::collections::BTreeMap;

use frontdesk_wire::ChatInfo;

use super::account::server_of;

/// Of a name or a topic.
pub(super) const NAME_MAX_CHARS: usize = 256;
/// Members whose names are remembered; of a larger room only the number.
pub(super) const MEMBERS_MAX: usize = 500;
/// What a member takes beside its id and name.
const MEMBER_BYTES: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) name: Option<String>,
    pub(super) topic: Option<String>,
    /// Joined members with their names. Empty in a room with more than `MEMBERS_MAX`.
    pub(super) members: BTreeMap<String, Option<String>>,
    /// How many joined. `None`: too many to say.
    pub(super) joined: Option<usize>,
    pub(super) is_encrypted: bool,
    /// The account data of the bot says that the room is a direct chat, and it has no name.
    pub(super) is_direct: bool,
    /// The server name of the room id; of the creator if the id has none.
    pub(super) scope: Option<String>,
}

impl Room {
    /// What is known from its id alone.
    pub(super) fn unknown(room_id: &str) -> Self {
        Self { scope: server_of(room_id).map(str::to_owned), ..Self::default() }
    }

    /// Two people in a room that has a name talk about something; without a name they talk to each other.
    pub(super) fn is_dm(&self) -> bool {
        self.is_direct || (self.joined == Some(2) && self.name.is_none())
    }

    /// The one other member of a room of two.
    pub(super) fn other(&self, me: &str) -> Option<&str> {
        let mut others = self.members.keys().filter(|member| *member != me);
        others.next().filter(|_| self.joined == Some(2)).map(String::as_str)
    }

    pub(super) fn name_of(&self, user_id: &str) -> Option<&str> {
        self.members.get(user_id).and_then(Option::as_deref)
    }

    pub(super) fn shown_name(&self, me: &str) -> Option<String> {
        let of_person = || self.other(me).map(|other| self.name_of(other).unwrap_or(other).to_owned());
        self.name.clone().or_else(of_person)
    }

    /// About what it takes to remember it.
    pub(super) fn bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let members: usize = self.members.iter().map(|(id, name)| MEMBER_BYTES + id.len() + of(name)).sum();
        members + of(&self.name) + of(&self.topic) + of(&self.scope)
    }

    pub(super) fn chat_type(&self) -> &'static str {
        if self.is_dm() { "dm" } else { "group" }
    }

    pub(super) fn info(&self, room_id: &str, me: &str) -> ChatInfo {
        let name = self.shown_name(me).unwrap_or_else(|| room_id.to_owned());
        ChatInfo { name, chat_type: self.chat_type().into() }
    }
}
