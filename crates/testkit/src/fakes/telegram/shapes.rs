//! JSON shapes of the Bot API.

use serde_json::{Map, Value, json};

use super::files::StoredFile;
use super::state::{Bot, Chat, ChatKey, ChatKind, State, User};

pub(super) fn user(user: &User) -> Value {
    let mut shown = json!({"id": user.id, "is_bot": user.is_bot, "first_name": user.first_name});
    let optional =
        [("last_name", &user.last_name), ("username", &user.username), ("language_code", &user.language_code)];
    for (name, value) in optional {
        if let Some(value) = value {
            shown[name] = value.as_str().into();
        }
    }
    shown
}

pub(super) fn user_by_id(state: &State, id: i64) -> Value {
    match state.users.get(&id) {
        Some(known) => user(known),
        None => json!({"id": id, "is_bot": false, "first_name": "Deleted Account"}),
    }
}

/// What `getMe` adds to a bot's own user.
pub(super) fn me(state: &State, bot: &Bot) -> Value {
    let mut shown = user_by_id(state, bot.id);
    shown["can_join_groups"] = true.into();
    shown["can_read_all_group_messages"] = bot.reads_all.into();
    for name in [
        "supports_inline_queries",
        "can_connect_to_business",
        "has_main_web_app",
        "has_topics_enabled",
        "allows_users_to_create_topics",
        "can_manage_bots",
        "supports_guest_queries",
        "supports_join_request_queries",
    ] {
        shown[name] = false.into();
    }
    shown
}

pub(super) fn chat(state: &State, chat: &Chat) -> Value {
    let mut shown = json!({"id": chat.id, "type": chat.kind.name()});
    if chat.kind == ChatKind::Private {
        let person = user_by_id(state, chat.id);
        for name in ["first_name", "last_name", "username"] {
            if let Some(value) = person.get(name) {
                shown[name] = value.clone();
            }
        }
        return shown;
    }
    shown["title"] = chat.title.as_str().into();
    if let Some(username) = &chat.username {
        shown["username"] = username.as_str().into();
    }
    if chat.is_forum {
        shown["is_forum"] = true.into();
    }
    shown
}

/// What `getChat` returns.
pub(super) fn full_chat(state: &State, which: &Chat) -> Value {
    let mut shown = chat(state, which);
    shown["accent_color_id"] = (which.id.rem_euclid(7)).into();
    shown["max_reaction_count"] = 11.into();
    shown["accepted_gift_types"] = json!({"unlimited_gifts": false, "limited_gifts": false, "unique_gifts": false,
        "premium_subscription": false, "gifts_from_channels": false});
    if which.kind.is_group() {
        let names = [
            "can_send_messages",
            "can_send_audios",
            "can_send_documents",
            "can_send_photos",
            "can_send_videos",
            "can_send_video_notes",
            "can_send_voice_notes",
            "can_send_polls",
            "can_send_other_messages",
            "can_add_web_page_previews",
            "can_invite_users",
        ];
        shown["permissions"] = Value::Object(names.map(|name| (name.to_owned(), true.into())).into_iter().collect());
    }
    if let Some(username) = &which.username {
        shown["active_usernames"] = json!([username]);
    }
    shown
}

const RIGHTS: [&str; 15] = [
    "can_be_edited",
    "is_anonymous",
    "can_manage_chat",
    "can_delete_messages",
    "can_manage_video_chats",
    "can_restrict_members",
    "can_promote_members",
    "can_change_info",
    "can_invite_users",
    "can_post_stories",
    "can_edit_stories",
    "can_delete_stories",
    "can_pin_messages",
    "can_manage_topics",
    "can_send_welcome_messages",
];
const SENDING: [&str; 16] = [
    "can_send_messages",
    "can_send_audios",
    "can_send_documents",
    "can_send_photos",
    "can_send_videos",
    "can_send_video_notes",
    "can_send_voice_notes",
    "can_send_polls",
    "can_send_other_messages",
    "can_add_web_page_previews",
    "can_react_to_messages",
    "can_edit_tag",
    "can_change_info",
    "can_invite_users",
    "can_pin_messages",
    "can_manage_topics",
];

pub(super) fn member(state: &State, id: i64, status: &str) -> Value {
    let mut shown = json!({"user": user_by_id(state, id), "status": status});
    match status {
        "creator" => shown["is_anonymous"] = false.into(),
        "administrator" => {
            for right in RIGHTS {
                shown[right] = (!matches!(right, "can_be_edited" | "is_anonymous" | "can_promote_members")).into();
            }
        }
        "restricted" => {
            for right in SENDING {
                shown[right] = false.into();
            }
            shown["is_member"] = true.into();
            shown["until_date"] = 0.into();
        }
        "kicked" => shown["until_date"] = 0.into(),
        _ => {}
    }
    shown
}

/// The field of a message that a file becomes, by its kind.
pub(super) fn media(file: &StoredFile, given: &Value) -> Map<String, Value> {
    let number = |name: &str, otherwise: i64| given[name].as_i64().unwrap_or(otherwise);
    let mut shown = json!({"file_id": file.file_id, "file_unique_id": file.unique_id, "file_size": file.size});
    let named = |shown: &mut Value| {
        shown["mime_type"] = file.mime.as_str().into();
        if let Some(name) = &file.name {
            shown["file_name"] = name.as_str().into();
        }
    };
    match file.kind.as_str() {
        "document" => named(&mut shown),
        "audio" => {
            named(&mut shown);
            shown["duration"] = number("duration", 60).into();
            for name in ["performer", "title"] {
                if let Some(value) = given[name].as_str() {
                    shown[name] = value.into();
                }
            }
        }
        "voice" => {
            shown["duration"] = number("duration", 3).into();
            shown["mime_type"] = file.mime.as_str().into();
        }
        "video" | "animation" => {
            named(&mut shown);
            shown["width"] = number("width", 640).into();
            shown["height"] = number("height", 360).into();
            shown["duration"] = number("duration", 5).into();
        }
        "sticker" => {
            shown["type"] = "regular".into();
            shown["width"] = 512.into();
            shown["height"] = 512.into();
            shown["is_animated"] = false.into();
            shown["is_video"] = false.into();
            shown["emoji"] = given["emoji"].as_str().unwrap_or("👍").into();
        }
        _ => {}
    }
    let mut fields = Map::new();
    if file.kind == "animation" {
        // Old clients know only documents, so the server sends both.
        let document = json!({"file_id": file.file_id, "file_unique_id": file.unique_id, "file_size": file.size,
            "mime_type": file.mime, "file_name": file.name.as_deref().unwrap_or("animation.mp4")});
        fields.insert("document".into(), document);
    }
    fields.insert(file.kind.clone(), shown);
    fields
}

/// A photo in three sizes, the smallest first. Each has a file of its own.
pub(super) fn photo(sizes: &[StoredFile]) -> Value {
    let edges = [(90, 60), (320, 213), (1280, 853)];
    let shown = sizes.iter().zip(edges).map(|(file, (width, height))| {
        json!({"file_id": file.file_id, "file_unique_id": file.unique_id, "file_size": file.size,
            "width": width, "height": height})
    });
    Value::Array(shown.collect())
}

/// A message with the one that it replies to, as far as it is still there.
pub(super) fn message(state: &State, key: ChatKey, id: i64) -> Option<Value> {
    let chat = state.chat(key)?;
    let stored = chat.messages.get(&id)?;
    let mut shown = stored.json.clone();
    if let Some(replied) = stored.reply_to.and_then(|id| chat.message(id)) {
        shown.insert("reply_to_message".into(), Value::Object(replied.json.clone()));
    }
    Some(Value::Object(shown))
}
