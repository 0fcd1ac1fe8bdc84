//! Texts, drafts, chat actions and locations; and what all messages of a bot have in common.

use serde_json::{Map, Value, json};

use super::super::answer::{Answer, ApiError};
use super::super::markup::{self, Formatted, utf16_len};
use super::super::posting::{Author, Post, post};
use super::super::shapes;
use super::super::state::{ChatKey, MAX_ACTIONS};
use super::Call;

const MAX_TEXT: usize = 4_096;
const MAX_CALLBACK_BYTES: usize = 64;

impl Call<'_> {
    /// The parameter as a text with entities.
    pub(super) fn formatted(&self, text: &str, entities: &str) -> Result<Formatted, ApiError> {
        let text = self.params.text(text).unwrap_or_default();
        formatted_by(&text, self.params.text("parse_mode").as_deref(), self.params.json(entities)?.as_ref())
    }

    pub(super) fn put_text(&self, content: &mut Map<String, Value>, name: &str, formatted: &Formatted) {
        if formatted.text.is_empty() {
            return;
        }
        content.insert(name.into(), formatted.text.as_str().into());
        let shown = markup::entities_json(&formatted.entities, |id| self.state.users.get(&id).map(shapes::user));
        if shown.as_array().is_some_and(|list| !list.is_empty()) {
            let name = if name == "text" { "entities" } else { "caption_entities" };
            content.insert(name.into(), shown);
        }
    }

    /// The inline keyboard, checked. Other keyboards are accepted and not shown in messages.
    pub(super) fn keyboard(&self) -> Result<Option<Value>, ApiError> {
        let Some(given) = self.params.json("reply_markup")? else { return Ok(None) };
        let Some(rows) = given.get("inline_keyboard").and_then(Value::as_array) else {
            return if given.is_object() { Ok(None) } else { Err(ApiError::bad("object expected as reply markup")) };
        };
        for button in rows.iter().flat_map(|row| row.as_array().into_iter().flatten()) {
            check_button(button)?;
        }
        let rows: Vec<&Value> = rows.iter().filter(|row| row.as_array().is_some_and(|row| !row.is_empty())).collect();
        Ok((!rows.is_empty()).then(|| json!({"inline_keyboard": rows})))
    }

    /// Which message is replied to, and the quoted part of it.
    pub(super) fn reply(&self, key: ChatKey) -> Result<(Option<i64>, Option<Value>), ApiError> {
        let given = match self.params.json("reply_parameters")? {
            Some(given) => given,
            None => match self.params.int("reply_to_message_id") {
                Some(id) => json!({"message_id": id,
                    "allow_sending_without_reply": self.params.is_true("allow_sending_without_reply")}),
                None => return Ok((None, None)),
            },
        };
        let id = given["message_id"].as_i64().unwrap_or_default();
        let Some(replied) = self.chat_of(key)?.message(id) else {
            if given["allow_sending_without_reply"] == true {
                return Ok((None, None));
            }
            return Err(ApiError::bad("message to be replied not found"));
        };
        let Some(quote) = given["quote"].as_str().filter(|it| !it.is_empty()) else { return Ok((Some(id), None)) };
        let quote = formatted_by(quote, given["quote_parse_mode"].as_str(), given.get("quote_entities"))?.text;
        let whole = ["text", "caption"].iter().find_map(|name| replied.json.get(*name)?.as_str()).unwrap_or_default();
        let Some(at) = whole.find(&quote) else { return Err(ApiError::bad("QUOTE_TEXT_INVALID")) };
        let position = utf16_len(&whole[..at]);
        Ok((Some(id), Some(json!({"text": quote, "position": position, "is_manual": true}))))
    }

    /// Puts a message of this bot into the chat and returns it as the API shows it.
    pub(super) fn deliver(&mut self, key: ChatKey, mut content: Map<String, Value>) -> Answer {
        let thread = self.thread(key)?;
        let keyboard = self.keyboard()?;
        let (reply_to, quote) = self.reply(key)?;
        if let Some(quote) = quote {
            content.insert("quote".into(), quote);
        }
        if let Some(keyboard) = keyboard {
            content.insert("reply_markup".into(), keyboard);
        }
        if self.params.is_true("protect_content") {
            content.insert("has_protected_content".into(), true.into());
        }
        let now_s = self.now_s();
        let new = Post { thread, reply_to, content };
        let id = post(self.state, key, now_s, Author::Bot(self.bot), new);
        if let Some(chat) = self.state.chats.get_mut(&key) {
            // The final message takes the place of its drafts.
            chat.drafts.clear();
        }
        id.and_then(|id| shapes::message(self.state, key, id)).ok_or_else(|| ApiError::bad("chat not found"))
    }
}

pub(super) fn formatted_by(text: &str, mode: Option<&str>, entities: Option<&Value>) -> Result<Formatted, ApiError> {
    let parsed = markup::parse(text, mode).map_err(|why| match why.as_str() {
        "unsupported parse_mode" => ApiError::bad(why),
        _ => ApiError::bad(format!("can't parse entities: {why}")),
    })?;
    let listed = entities.filter(|_| mode.is_none_or(str::is_empty)).map(markup::entities_of);
    Ok(markup::finish(Formatted { entities: listed.unwrap_or(parsed.entities), ..parsed }))
}

fn check_button(button: &Value) -> Result<(), ApiError> {
    if button["text"].as_str().is_none_or(str::is_empty) {
        return Err(ApiError::bad("can't parse inline keyboard button: Field \"text\" must be a non-empty String"));
    }
    match button.get("callback_data").map(|data| data.as_str().unwrap_or_default()) {
        Some(data) if data.is_empty() || data.len() > MAX_CALLBACK_BYTES => Err(ApiError::bad("BUTTON_DATA_INVALID")),
        Some(_) => Ok(()),
        None if button.as_object().is_some_and(|fields| fields.len() > 1) => Ok(()),
        None => {
            Err(ApiError::bad("can't parse inline keyboard button: Text buttons are unallowed in the inline keyboard"))
        }
    }
}

pub(super) fn checked_text(call: &Call<'_>) -> Result<Formatted, ApiError> {
    let formatted = call.formatted("text", "entities")?;
    if formatted.text.is_empty() {
        return Err(ApiError::bad("message text is empty"));
    }
    Ok(formatted)
}

pub(super) fn check_length(formatted: &Formatted) -> Result<(), ApiError> {
    let fits = utf16_len(&formatted.text) <= MAX_TEXT;
    fits.then_some(()).ok_or_else(|| ApiError::bad("message is too long"))
}

pub(super) fn message(call: &mut Call<'_>) -> Answer {
    let formatted = checked_text(call)?;
    let key = call.writable()?;
    check_length(&formatted)?;
    let mut content = Map::new();
    call.put_text(&mut content, "text", &formatted);
    if let Some(options) = call.params.json("link_preview_options")?.filter(Value::is_object) {
        content.insert("link_preview_options".into(), options);
    }
    call.deliver(key, content)
}

pub(super) fn draft(call: &mut Call<'_>) -> Answer {
    let formatted = call.formatted("text", "entities")?;
    let key = call.writable()?;
    if key.bot == 0 {
        return Err(ApiError::bad("TEXTDRAFT_PEER_INVALID"));
    }
    let id = call.required("draft_id")?;
    if id == 0 {
        return Err(ApiError::bad("draft_id must be non-zero"));
    }
    check_length(&formatted)?;
    let mut content = Map::new();
    call.put_text(&mut content, "text", &formatted);
    content.insert("date".into(), call.now_s().into());
    if let Some(chat) = call.state.chats.get_mut(&key) {
        chat.drafts.insert(id, Value::Object(content));
    }
    Ok(true.into())
}

const ACTIONS: [&str; 11] = [
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
];

pub(super) fn action(call: &mut Call<'_>) -> Answer {
    let key = call.writable()?;
    let thread = call.thread(key)?;
    let name = call.params.text("action").unwrap_or_default();
    if !ACTIONS.contains(&name.as_str()) {
        return Err(ApiError::bad("wrong parameter action in request"));
    }
    let shown = json!({"action": name, "bot": call.bot, "message_thread_id": thread, "at_ms": call.now_ms});
    if let Some(chat) = call.state.chats.get_mut(&key) {
        if chat.actions.len() == MAX_ACTIONS {
            chat.actions.pop_front();
        }
        chat.actions.push_back(shown);
    }
    Ok(true.into())
}

pub(super) fn location(call: &mut Call<'_>) -> Answer {
    let place = call.params.float("latitude").zip(call.params.float("longitude"));
    let inside = |(latitude, longitude): &(f64, f64)| latitude.abs() <= 90.0 && longitude.abs() <= 180.0;
    let (latitude, longitude) = place.filter(inside).ok_or_else(|| ApiError::bad("location is invalid"))?;
    let key = call.writable()?;
    let mut content = Map::new();
    content.insert("location".into(), json!({"latitude": latitude, "longitude": longitude}));
    call.deliver(key, content)
}
