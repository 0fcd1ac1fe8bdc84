//! The state of a room, read from the homeserver.

use futures_util::future;
use serde_json::Value;

use super::account::server_of;
use super::client::{Ask, Client, Fault};
use super::room::{MEMBERS_MAX, NAME_MAX_CHARS, Room};

/// A list of members that is longer than this is of a large room.
const MEMBERS_MAX_BYTES: usize = 4 << 20;

/// `None`: the bot is not in such a room.
pub(super) async fn fetch(client: &Client<'_>, room_id: &str) -> Result<Option<Room>, Fault> {
    let mut room = Room::default();
    let url = client.url(&["client", "v3", "rooms", room_id, "joined_members"], &[]);
    match client.ask(&url, &Ask { max_bytes: MEMBERS_MAX_BYTES, ..Ask::GET }).await {
        Ok(answer) => {
            let Some(joined) = answer["joined"].as_object() else { return Ok(None) };
            if !joined.contains_key(client.account.user_id) {
                return Ok(None);
            }
            room.joined = Some(joined.len());
            if joined.len() <= MEMBERS_MAX {
                let name = |member: &Value| member["display_name"].as_str().map(cut);
                room.members = joined.iter().map(|(id, member)| (id.clone(), name(member))).collect();
            }
        }
        Err(Fault::TooLarge(_)) => {} // a large room, and certainly no direct chat
        Err(fault) if fault.is_absent() => return Ok(None),
        Err(fault) => return Err(fault),
    }
    let (encryption, name, alias, topic, direct) = future::try_join5(
        state(client, room_id, "m.room.encryption", &[]),
        state(client, room_id, "m.room.name", &[]),
        state(client, room_id, "m.room.canonical_alias", &[]),
        state(client, room_id, "m.room.topic", &[]),
        is_direct(client, room_id),
    )
    .await?;
    room.is_encrypted = encryption.is_some();
    room.name = text_of(name.as_ref(), "name").or_else(|| text_of(alias.as_ref(), "alias")).as_deref().map(cut);
    room.topic = text_of(topic.as_ref(), "topic").as_deref().map(cut);
    // Who names a room of several people has made a group of what was a direct chat.
    let is_small = room.joined.is_some_and(|joined| joined <= 2);
    room.is_direct = direct && (is_small || text_of(name.as_ref(), "name").is_none());
    room.scope = server_of(room_id).map(str::to_owned);
    if room.scope.is_none() {
        let created = state(client, room_id, "m.room.create", &[("format", "event")]).await?;
        room.scope = text_of(created.as_ref(), "sender").as_deref().and_then(server_of).map(str::to_owned);
    }
    Ok(Some(room))
}

/// Whether the account data lists the room as a direct chat. If the list has grown beyond what is read, it is not known.
async fn is_direct(client: &Client<'_>, room_id: &str) -> Result<bool, Fault> {
    match direct_rooms(client).await {
        Ok((_, rooms)) => Ok(rooms.iter().any(|direct| direct == room_id)),
        Err(Fault::TooLarge(_)) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// A state event with an empty key. `None`: there is none.
async fn state(client: &Client<'_>, room_id: &str, kind: &str, query: &[(&str, &str)]) -> Result<Option<Value>, Fault> {
    match client.get(&["client", "v3", "rooms", room_id, "state", kind, ""], query).await {
        Ok(content) => Ok(Some(content)),
        Err(fault) if fault.is_absent() => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// The room that this one replaces, as its creator says.
pub(super) async fn predecessor(client: &Client<'_>, room_id: &str) -> Result<Option<String>, Fault> {
    let created = state(client, room_id, "m.room.create", &[]).await?;
    Ok(created.and_then(|content| content["predecessor"]["room_id"].as_str().map(str::to_owned)))
}

/// The room that replaces this one, as its state says.
pub(super) async fn successor(client: &Client<'_>, room_id: &str) -> Result<Option<String>, Fault> {
    let tombstone = state(client, room_id, "m.room.tombstone", &[]).await?;
    Ok(text_of(tombstone.as_ref(), "replacement_room"))
}

/// A name may have any length.
pub(super) fn cut(name: &str) -> String {
    name.chars().take(NAME_MAX_CHARS).collect()
}

fn text_of(content: Option<&Value>, name: &str) -> Option<String> {
    content?[name].as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The account data that lists direct chats, and all rooms in it.
async fn direct_rooms(client: &Client<'_>) -> Result<(Value, Vec<String>), Fault> {
    let parts = ["client", "v3", "user", client.account.user_id, "account_data", "m.direct"];
    let data = match client.get(&parts, &[]).await {
        Ok(data) => data,
        Err(fault) if fault.is_absent() => Value::Object(serde_json::Map::new()),
        Err(fault) => return Err(fault),
    };
    let lists = data.as_object().into_iter().flat_map(|map| map.values()).filter_map(Value::as_array);
    let rooms = lists.flatten().filter_map(Value::as_str).map(str::to_owned).collect();
    Ok((data, rooms))
}

/// Reads and writes the whole list.
pub(super) async fn mark_direct(client: &Client<'_>, room_id: &str, user_id: &str) -> Result<(), Fault> {
    let (mut data, rooms) = direct_rooms(client).await?;
    let Some(map) = data.as_object_mut().filter(|_| !rooms.iter().any(|it| it == room_id)) else { return Ok(()) };
    match map.entry(user_id).or_insert_with(|| Value::Array(Vec::new())) {
        Value::Array(list) => list.push(room_id.into()),
        other => *other = Value::Array(vec![room_id.into()]),
    }
    let parts = ["client", "v3", "user", client.account.user_id, "account_data", "m.direct"];
    client.put(&parts, &data).await.map(drop)
}

/// Whether a user is a member, asked now.
pub(super) async fn is_member(client: &Client<'_>, room_id: &str, user_id: &str) -> Result<bool, Fault> {
    match client.get(&["client", "v3", "rooms", room_id, "state", "m.room.member", user_id], &[]).await {
        Ok(content) => Ok(content["membership"] == "join"),
        Err(fault) if fault.is_absent() => Ok(false),
        Err(fault) => Err(fault),
    }
}
