//! Interactions: what a user did, the way it goes to the application, and what the application made of it.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

use super::answer::ApiError;
use super::gateway::{Audience, dispatch};
use super::rest::{Call, draft};
use super::snowflake::{self, Id};
use super::state::{Message, State};
use super::{permissions, posting, shapes, signing};

/// The first answer must come within it.
pub(super) const ANSWER_MS: u64 = 3_000;
/// Follow-ups are taken within it.
const TOKEN_MS: u64 = 900_000;
const MAX_KEPT: usize = 5_000;
const LOADING: u64 = 1 << 7;
const EPHEMERAL: u64 = 1 << 6;

#[derive(Debug)]
pub(super) struct Interaction {
    pub(super) id: Id,
    pub(super) token: String,
    pub(super) bot: Id,
    pub(super) kind: u8,
    pub(super) user: Id,
    pub(super) channel: Id,
    pub(super) created_ms: u64,
    /// The message that has the button.
    pub(super) on: Option<Id>,
    /// Type and data of the answer.
    pub(super) answer: Option<Value>,
    /// The message of `@original`.
    pub(super) original: Option<Id>,
    pub(super) follow_ups: Vec<Id>,
    /// How the endpoint answered: status, body, how long it took, or why it did not.
    pub(super) outcome: Option<Value>,
    metadata: Value,
}

impl Interaction {
    fn opened_form(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer["type"] == 9)
    }
}

/// A request to an endpoint. Its signature is made when it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub interaction: u64,
    pub url: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Interactions {
    by_id: BTreeMap<Id, Interaction>,
    posts: VecDeque<Post>,
}

impl Interactions {
    pub(super) fn get(&self, id: Id) -> Option<&Interaction> {
        self.by_id.get(&id)
    }

    pub(super) fn take_posts(&mut self) -> Vec<Post> {
        self.posts.drain(..).collect()
    }
}

/// What a user did, before it has an id.
pub(super) struct New {
    pub(super) bot: Id,
    pub(super) kind: u8,
    pub(super) user: Id,
    pub(super) channel: Id,
    pub(super) on: Option<Id>,
    pub(super) data: Value,
    /// The name of a command, for the answer's metadata.
    pub(super) name: Option<String>,
    /// Spoils the signature.
    pub(super) bad_signature: bool,
}

/// Makes it and sends it: to the endpoint if there is one, else over the socket.
pub(super) fn begin(state: &mut State, now_ms: u64, new: New) -> Value {
    let id = state.ids.next(now_ms);
    let token = format!("aW50ZXJhY3Rpb246{id:x}{:x}", id.rotate_left(23));
    let payload = payload(state, id, &token, &new);
    let guild = state.channels.get(&new.channel).and_then(|channel| channel.guild);
    let mut metadata = json!({"id": id.to_string(), "type": new.kind, "user": shapes::user_of(state, new.user),
        "authorizing_integration_owners": payload["authorizing_integration_owners"]});
    if let Some(name) = &new.name {
        metadata["name"] = json!(name);
    }
    if let Some(on) = new.on.filter(|_| new.kind == 3) {
        metadata["interacted_message_id"] = snowflake::text(on);
    }
    if new.kind == 5 {
        // The form was opened by the latest interaction of this user that was answered with one.
        let opened = state.interactions.by_id.values().rev().find(|it| it.user == new.user && it.opened_form());
        metadata["triggering_interaction_metadata"] = opened.map_or(Value::Null, |it| it.metadata.clone());
    }
    let kept = &mut state.interactions.by_id;
    kept.insert(
        id,
        Interaction {
            id,
            token: token.clone(),
            bot: new.bot,
            kind: new.kind,
            user: new.user,
            channel: new.channel,
            created_ms: now_ms,
            on: new.on,
            answer: None,
            original: None,
            follow_ups: Vec::new(),
            outcome: None,
            metadata,
        },
    );
    while kept.len() > MAX_KEPT {
        kept.pop_first();
    }
    let endpoint = state.bots.get(&new.bot).and_then(|bot| bot.endpoint.clone());
    match endpoint {
        Some(url) => {
            let post = signed(new.bot, now_ms, id, url, &payload, new.bad_signature);
            state.interactions.posts.push_back(post);
        }
        None => dispatch(state, Audience::Bot(new.bot, guild), "INTERACTION_CREATE", |_, _| Some(payload.clone())),
    }
    json!({"id": id.to_string(), "token": token})
}

pub(super) fn signed(bot: Id, now_ms: u64, interaction: Id, url: String, payload: &Value, spoil: bool) -> Post {
    let body = payload.to_string().into_bytes();
    let headers = signing::headers(bot, now_ms, if spoil { b"something else" } else { &body });
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    Post { interaction, url, headers, body }
}

/// The PING with which an endpoint is proved.
pub(super) fn ping(state: &mut State, now_ms: u64, bot: Id, url: &str, spoil: bool) -> Post {
    let id = state.ids.next(now_ms);
    let payload = json!({"id": id.to_string(), "application_id": bot.to_string(), "type": 1, "version": 1,
        "token": format!("cGluZw{id:x}"), "user": shapes::user_of(state, bot), "entitlements": [],
        "authorizing_integration_owners": {}, "app_permissions": "0"});
    signed(bot, now_ms, 0, url.to_owned(), &payload, spoil)
}

fn payload(state: &State, id: Id, token: &str, new: &New) -> Value {
    let mut shown = json!({"id": id.to_string(), "application_id": new.bot.to_string(), "type": new.kind,
        "token": token, "version": 1, "locale": "en-US", "entitlements": [], "entitlement_sku_ids": [],
        "attachment_size_limit": 10_485_760});
    if new.kind == 1 {
        return shown;
    }
    shown["data"] = new.data.clone();
    shown["channel_id"] = snowflake::text(new.channel);
    let Some(place) = state.channels.get(&new.channel) else { return shown };
    let mut channel = shapes::channel(state, place, new.bot);
    let allowed = |user| permissions::in_channel(state, place, user) & ((1 << 53) - 1);
    channel["permissions"] = json!(allowed(new.user).to_string());
    shown["channel"] = channel;
    shown["app_permissions"] = json!(allowed(new.bot).to_string());
    if let Some(guild) = place.guild {
        shown["guild_id"] = snowflake::text(guild);
        shown["guild"] = json!({"id": guild.to_string(), "locale": "en-US", "features": []});
        shown["guild_locale"] = json!("en-US");
        let mut member = shapes::member(state, guild, new.user).unwrap_or_default();
        member["permissions"] = json!(allowed(new.user).to_string());
        shown["member"] = member;
        shown["authorizing_integration_owners"] = json!({"0": guild.to_string()});
        shown["context"] = json!(0);
    } else {
        shown["user"] = shapes::user_of(state, new.user);
        shown["authorizing_integration_owners"] = json!({"0": "0"});
        shown["context"] = json!(1);
    }
    if let Some(message) = new.on.and_then(|on| place.messages.get(&on)) {
        shown["message"] = shapes::message(state, new.channel, message, new.bot);
    }
    shown
}

/// The first answer, over REST or in the answer of the endpoint.
pub(super) fn respond(call: &mut Call<'_>, id: Id, given: &Value) -> Result<(), ApiError> {
    let unknown = || ApiError::new(404, 10062, "Unknown interaction");
    let found = call.state.interactions.by_id.get(&id).ok_or_else(unknown)?;
    if found.answer.is_some() {
        return Err(ApiError::new(400, 40060, "Interaction has already been acknowledged."));
    }
    if found.created_ms + ANSWER_MS < call.now_ms {
        return Err(unknown());
    }
    call.bot = found.bot;
    let (channel, on, kind) = (found.channel, found.on, found.kind);
    let answer = given["type"].as_u64().unwrap_or(0);
    let data = given["data"].clone();
    let is_allowed = match answer {
        1 => kind == 1,
        4 | 5 => matches!(kind, 2 | 3 | 5),
        6 | 7 => on.is_some(),
        8 => kind == 4,
        9 => matches!(kind, 2 | 3),
        _ => false,
    };
    if !is_allowed {
        let text = "Value is not a valid type for this interaction.";
        return Err(ApiError::form("type", "INTERACTION_APPLICATION_COMMAND_INVALID_CALLBACK_TYPE", text));
    }
    let original = match answer {
        4 => Some(say(call, id, &data)?),
        5 => {
            let flags = LOADING | data["flags"].as_u64().unwrap_or(0) & EPHEMERAL;
            let message = Message { author: call.bot, flags, ..Message::default() };
            Some(publish(call, id, message))
        }
        6 => on,
        7 => {
            let message = on.ok_or_else(unknown)?;
            let request = super::RestRequest { body: data, ..call.request.clone() };
            let mut inner = Call { state: &mut *call.state, bot: call.bot, now_ms: call.now_ms, request: &request };
            super::rest::apply_edit(&mut inner, channel, message)?;
            Some(message)
        }
        9 => {
            let title = data["title"].as_str().map_or(0, |title| title.chars().count());
            if !(1..=45).contains(&title) {
                let text = "Must be between 1 and 45 in length.";
                return Err(ApiError::form("data.title", "BASE_TYPE_BAD_LENGTH", text));
            }
            None
        }
        _ => None,
    };
    if let Some(found) = call.state.interactions.by_id.get_mut(&id) {
        found.answer = Some(given.clone());
        found.original = original;
    }
    Ok(())
}

fn say(call: &mut Call<'_>, id: Id, data: &Value) -> Result<Id, ApiError> {
    let unknown = || ApiError::new(404, 10062, "Unknown interaction");
    let channel = call.state.interactions.by_id.get(&id).ok_or_else(unknown)?.channel;
    let message = draft(call, channel, data)?;
    Ok(publish(call, id, message))
}

fn publish(call: &mut Call<'_>, id: Id, mut message: Message) -> Id {
    let Some(found) = call.state.interactions.by_id.get(&id) else { return 0 };
    message.kind = if found.kind == 2 { 20 } else { 0 };
    message.reference = None;
    message.webhook = Some(found.bot);
    message.interaction = Some(found.metadata.clone());
    message.only_for = Some(found.user).filter(|_| message.flags & EPHEMERAL != 0);
    let channel = found.channel;
    posting::post(call.state, call.now_ms, channel, message)
}

/// The interaction of a token that can still be used.
pub(super) fn by_token(call: &mut Call<'_>, application: Id, token: &str) -> Result<Id, ApiError> {
    let found = call.state.interactions.by_id.values().find(|it| it.token == token);
    let found = found.filter(|it| it.bot == application).ok_or_else(|| ApiError::new(404, 10015, "Unknown Webhook"))?;
    if found.created_ms + TOKEN_MS < call.now_ms {
        return Err(ApiError::new(401, 50027, "Invalid Webhook Token"));
    }
    if found.answer.is_none() {
        return Err(ApiError::new(404, 10015, "Unknown Webhook"));
    }
    call.bot = found.bot;
    Ok(found.id)
}

/// A further message. The first one behind a deferred answer takes its place.
pub(super) fn follow_up(call: &mut Call<'_>, id: Id) -> Result<(Id, Id), ApiError> {
    let unknown = || ApiError::new(404, 10015, "Unknown Webhook");
    let found = call.state.interactions.by_id.get(&id).ok_or_else(unknown)?;
    let (channel, original) = (found.channel, found.original);
    let is_loading = |message: &Message| message.flags & LOADING != 0;
    let waiting = original.filter(|original| call.state.message(channel, *original).is_some_and(is_loading));
    if let Some(original) = waiting {
        super::rest::apply_edit(call, channel, original)?;
        return Ok((channel, original));
    }
    let body = call.request.body.clone();
    let made = say(call, id, &body)?;
    if let Some(found) = call.state.interactions.by_id.get_mut(&id) {
        found.follow_ups.push(made);
    }
    Ok((channel, made))
}

/// What the endpoint answered. An answer that is not valid leaves the user with "the application did not respond".
pub(super) fn answered(
    state: &mut State,
    now_ms: u64,
    id: Id,
    latency_ms: u64,
    outcome: Result<(u16, Vec<u8>), String>,
) {
    let mut record = json!({"latency_ms": latency_ms, "status": null, "body": null, "error": null});
    let mut given = None;
    match &outcome {
        Ok((status, body)) => {
            record["status"] = json!(status);
            record["body"] = json!(String::from_utf8_lossy(body));
            given = serde_json::from_slice::<Value>(body).ok().filter(|_| *status == 200);
            // 202 means that the answer comes over REST.
            if given.is_none() && *status != 202 {
                record["error"] = json!("no callback in the answer");
            }
        }
        Err(why) => record["error"] = json!(why),
    }
    if let Some(given) = given {
        let request = super::RestRequest::default();
        let mut call = Call { state: &mut *state, bot: 0, now_ms, request: &request };
        if let Err(error) = respond(&mut call, id, &given) {
            record["error"] = error.body();
        }
    }
    if let Some(found) = state.interactions.by_id.get_mut(&id) {
        found.outcome = Some(record);
    }
}

/// For tests: the state of the interaction.
pub(super) fn view(state: &State, id: Id) -> Option<Value> {
    let found = state.interactions.get(id)?;
    let shown = |message: &Id| {
        let stored = state.message(found.channel, *message)?;
        let mut value = shapes::message(state, found.channel, stored, found.bot);
        value["only_for"] = stored.only_for.map_or(Value::Null, snowflake::text);
        Some(value)
    };
    let follow_ups: Vec<Value> = found.follow_ups.iter().filter_map(shown).collect();
    Some(json!({"id": id.to_string(), "type": found.kind, "bot": found.bot.to_string(),
        "user": found.user.to_string(), "answer": found.answer, "original": found.original.as_ref().and_then(shown),
        "follow_ups": follow_ups, "endpoint": found.outcome}))
}
