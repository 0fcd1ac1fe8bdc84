//! An interaction in the form for agents: what they need, and nothing that acts in the name of the bot.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_wire::frame::PassthroughForward;
use serde_json::{Map, Value};

use super::PLATFORM;

/// Fields of an interaction that are kept. A list of allowed ones, so that a field that Discord adds does not reach
/// agents before it was reviewed.
const KEPT: [&str; 9] =
    ["id", "application_id", "type", "channel_id", "guild_id", "locale", "guild_locale", "context", "version"];
const KEPT_OF_CHANNEL: [&str; 7] = ["id", "type", "name", "parent_id", "guild_id", "topic", "nsfw"];
const KEPT_OF_USER: [&str; 6] = ["id", "username", "global_name", "discriminator", "avatar", "bot"];
const KEPT_OF_MEMBER: [&str; 3] = ["nick", "roles", "permissions"];
const KEPT_OF_MESSAGE: [&str; 7] = ["id", "channel_id", "type", "content", "timestamp", "flags", "author"];
const KEPT_OF_DATA: [&str; 10] =
    ["id", "name", "type", "guild_id", "target_id", "options", "custom_id", "component_type", "values", "components"];
/// Options and forms are nested only a few levels deep.
const DEPTH_MAX: usize = 8;

fn only(value: &Value, names: &[&str]) -> Map<String, Value> {
    let kept = names.iter().filter_map(|name| Some(((*name).to_owned(), clean(value.get(name)?, DEPTH_MAX))));
    kept.collect()
}

/// Without anything that is called a token, wherever it is.
fn clean(value: &Value, depth: usize) -> Value {
    match value {
        Value::Object(_) | Value::Array(_) if depth == 0 => Value::Null,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| *name != "token");
            Value::Object(kept.map(|(name, value)| (name.clone(), clean(value, depth - 1))).collect())
        }
        Value::Array(items) => items.iter().map(|item| clean(item, depth - 1)).collect(),
        value => value.clone(),
    }
}

fn user(value: &Value) -> Value {
    Value::Object(only(value, &KEPT_OF_USER))
}

fn sanitized(data: &Value) -> Value {
    let mut kept = only(data, &KEPT);
    let mut put = |name: &str, value: Value| kept.insert(name.to_owned(), value);
    if data["channel"].is_object() {
        put("channel", Value::Object(only(&data["channel"], &KEPT_OF_CHANNEL)));
    }
    if data["user"].is_object() {
        put("user", user(&data["user"]));
    }
    if data["member"].is_object() {
        let mut member = only(&data["member"], &KEPT_OF_MEMBER);
        member.insert("user".to_owned(), user(&data["member"]["user"]));
        put("member", Value::Object(member));
    }
    if data["message"].is_object() {
        let mut message = only(&data["message"], &KEPT_OF_MESSAGE);
        message.insert("author".to_owned(), user(&data["message"]["author"]));
        put("message", Value::Object(message));
    }
    if data["data"].is_object() {
        let mut inner = only(&data["data"], &KEPT_OF_DATA);
        if data["data"]["resolved"].is_object() {
            inner.insert("resolved".to_owned(), resolved(&data["data"]["resolved"]));
        }
        put("data", Value::Object(inner));
    }
    Value::Object(kept)
}

/// What options and targets name.
fn resolved(value: &Value) -> Value {
    let each = |name: &str, kept: &[&str]| -> Option<(String, Value)> {
        let one = |(id, value): (&String, &Value)| (id.clone(), Value::Object(only(value, kept)));
        Some((name.to_owned(), Value::Object(value.get(name)?.as_object()?.iter().map(one).collect())))
    };
    let files = ["id", "filename", "content_type", "size", "url", "description"];
    let all = [
        each("users", &KEPT_OF_USER),
        each("members", &KEPT_OF_MEMBER),
        each("channels", &KEPT_OF_CHANNEL),
        each("roles", &["id", "name"]),
        each("messages", &KEPT_OF_MESSAGE),
        each("attachments", &files),
    ];
    Value::Object(all.into_iter().flatten().collect())
}

/// `None`: the token is also somewhere else than in its field.
pub(super) fn forward(bot: &str, data: &Value, token: &str) -> Option<PassthroughForward> {
    let body = sanitized(data).to_string();
    if !token.is_empty() && body.contains(token) {
        return None;
    }
    Some(PassthroughForward {
        platform: PLATFORM.into(),
        bot_id: bot.into(),
        method: "POST".into(),
        path: format!("/interactions/{bot}"),
        headers: vec![("content-type".into(), "application/json".into())],
        body_b64: STANDARD.encode(body),
    })
}

/// Values of options as a user would type them, with the names of subcommands before theirs.
pub(super) fn options_text(options: &Value) -> Vec<String> {
    let mut parts = Vec::new();
    add_options(options, DEPTH_MAX, &mut parts);
    parts
}

fn add_options(options: &Value, depth: usize, into: &mut Vec<String>) {
    for option in options.as_array().into_iter().flatten().filter(|_| depth > 0) {
        let text = match (&option["value"], option["type"].as_u64()) {
            (_, Some(1 | 2)) => option["name"].as_str().unwrap_or_default().to_owned(),
            (Value::String(text), _) => text.trim().to_owned(),
            (Value::Null, _) => String::new(),
            (value, _) => value.to_string(),
        };
        into.extend(Some(text).filter(|text| !text.is_empty()));
        add_options(&option["options"], depth - 1, into);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn body(forward: &PassthroughForward) -> Value {
        serde_json::from_slice(&STANDARD.decode(&forward.body_b64).unwrap()).unwrap()
    }

    #[test]
    fn a_forward_has_what_gateways_read_and_no_token() {
        let data = json!({
            "id": "1", "application_id": "2", "type": 2, "token": "secret-token", "channel_id": "3", "guild_id": "4",
            "channel": { "id": "3", "type": 11, "parent_id": "5", "permissions": "8" },
            "member": { "nick": "Annie", "user": { "id": "6", "username": "ann", "global_name": "Ann", "email": "x" } },
            "data": { "id": "7", "name": "ask", "type": 1,
                "options": [{ "name": "q", "type": 3, "value": "why", "token": "other" }],
                "resolved": { "users": { "6": { "id": "6", "username": "ann", "verified": true } } } },
            "message": { "id": "8", "content": "x", "webhook_id": "9", "author": { "id": "2", "token": "t" } },
            "app_permissions": "8", "new_field_of_discord": "?",
        });
        let forward = forward("dc", &data, "secret-token").unwrap();
        assert_eq!((forward.platform.as_str(), forward.path.as_str()), ("discord", "/interactions/dc"));
        let body = body(&forward);
        assert_eq!((&body["channel"]["type"], &body["channel"]["parent_id"]), (&json!(11), &json!("5")));
        assert_eq!((&body["member"]["nick"], &body["member"]["user"]["global_name"]), (&json!("Annie"), &json!("Ann")));
        assert_eq!(body["data"]["options"], json!([{ "name": "q", "type": 3, "value": "why" }]));
        assert_eq!((&body["message"]["id"], &body["id"], &body["guild_id"]), (&json!("8"), &json!("1"), &json!("4")));
        let text = body.to_string();
        for gone in ["token", "webhook_id", "app_permissions", "new_field", "email", "verified"] {
            assert!(!text.contains(gone), "{gone} in {text}");
        }
        let mut leaky = data.clone();
        leaky["data"]["options"][0]["value"] = json!("see secret-token");
        assert_eq!(super::forward("dc", &leaky, "secret-token"), None);
    }

    #[test]
    fn options_read_like_a_typed_command() {
        let options = json!([{ "type": 2, "name": "group", "options": [{ "type": 1, "name": "set", "options": [
            { "type": 3, "name": "a", "value": " x y " }, { "type": 4, "name": "b", "value": 5 },
            { "type": 5, "name": "c", "value": true }, { "type": 3, "name": "d", "value": "" }] }] }]);
        assert_eq!(options_text(&options), ["group", "set", "x y", "5", "true"]);
        assert!(options_text(&json!(null)).is_empty() && options_text(&json!({ "a": 1 })).is_empty());
    }
}
