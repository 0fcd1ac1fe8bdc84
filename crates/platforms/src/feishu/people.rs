//! Look-ups of the bot, users, chats and messages, cached for a while.

use std::time::Duration;

use frontdesk_core::port::platform::Bot;
use frontdesk_wire::BotId;
use serde_json::Value;

use super::Feishu;
use super::account::{app_id, id_type, is_id};
use super::content::Content;
use super::failure::ApiError;
use super::mentions::Me;
use super::normalize::{Chat, Facts, Parent, Person, Said};
use super::refusals::{OF_ANCHOR, OF_CHAT};
use super::value::{first, list_of, text_of};

/// Feishu waits three seconds for an answer. All questions are asked at once, and what it does not return in this time
/// is left out.
pub(super) const ASK_LIMIT: Duration = Duration::from_millis(1_200);
/// Of a message that is quoted.
const QUOTE_MAX_CHARS: usize = 4_000;

/// What Feishu said before, where it is known also if it said nothing.
async fn in_time<T>(asked: impl Future<Output = Result<T, ApiError>>) -> Option<Result<T, ApiError>> {
    tokio::time::timeout(ASK_LIMIT, asked).await.ok()
}

impl Feishu {
    fn key(bot: &Bot, id: &str) -> (BotId, String) {
        (bot.id.clone(), id.to_owned())
    }

    /// Who the bot is. Asked once.
    pub(super) async fn me(&self, bot: &Bot) -> Result<Me, ApiError> {
        let key = Self::key(bot, app_id(bot));
        if let Some(me) = self.known.get(&key, self.env.steady_ms()) {
            return Ok(me);
        }
        let response = self.api(bot).ask_whole("/open-apis/bot/v3/info").await?;
        let of = if response["bot"].is_object() { &response["bot"] } else { &response["data"]["bot"] };
        let name = first([text_of(of, "app_name"), text_of(of, "bot_name")]).trim();
        let me = Me { open_id: text_of(of, "open_id").to_owned(), name: name.to_owned() };
        if me.open_id.is_empty() {
            return Err(ApiError::unusable(false, "it did not return the id of the bot"));
        }
        self.known.put(key, me.clone(), self.env.steady_ms());
        Ok(me)
    }

    /// Everything that is asked about a message. `Err`: whether the bot is meant is not known.
    pub(super) async fn facts(&self, bot: &Bot, said: &Said<'_>) -> Result<Facts, String> {
        let parent = async {
            match said.parent {
                Some(id) => self.parent(bot, id).await,
                None => None,
            }
        };
        let name = async {
            // The list of people does not have programs.
            if said.is_bot { None } else { self.name_of(bot, &said.sender).await }
        };
        let (me, chat, user_name, parent) =
            tokio::join!(in_time(self.me(bot)), self.chat_in_time(bot, said.chat_id), name, parent);
        let me = match me {
            Some(Ok(me)) => me,
            Some(Err(error)) if said.has_mentions() && !said.is_direct => {
                return Err(format!("reading the identity of the bot failed: {}", error.text()));
            }
            None if said.has_mentions() && !said.is_direct => {
                return Err("reading the identity of the bot failed: Feishu did not answer in time".to_owned());
            }
            _ => Me::default(),
        };
        Ok(Facts { me, chat, user_name, parent })
    }

    pub(super) async fn chat_in_time(&self, bot: &Bot, chat_id: &str) -> Option<Chat> {
        in_time(self.chat(bot, chat_id)).await.and_then(Result::ok).flatten()
    }

    /// `None`: there is no such chat, or the bot is not in it.
    pub(super) async fn chat(&self, bot: &Bot, chat_id: &str) -> Result<Option<Chat>, ApiError> {
        if !is_id(chat_id) {
            return Ok(None);
        }
        let (key, now_ms) = (Self::key(bot, chat_id), self.env.steady_ms());
        if let Some(known) = self.chats.get(&key, now_ms) {
            return Ok(Some(known));
        }
        match self.api(bot).ask(&format!("/open-apis/im/v1/chats/{chat_id}")).await {
            Ok(response) => {
                let chat = chat_of(&response);
                self.chats.put(key, chat.clone(), now_ms);
                Ok(Some(chat))
            }
            Err(error) if error.is(&OF_CHAT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn forget_chat(&self, bot: &Bot, chat_id: &str) {
        self.chats.forget(&Self::key(bot, chat_id));
    }

    pub(super) fn forget_name(&self, bot: &Bot, user_id: &str) {
        self.names.forget(&Self::key(bot, user_id));
    }

    /// The name that users see. `None` if it is not known in time.
    pub(super) async fn name_of(&self, bot: &Bot, person: &Person<'_>) -> Option<String> {
        let id = first([person.id(), person.union_id]);
        if id.is_empty() {
            return None;
        }
        let (key, now_ms) = (Self::key(bot, id), self.env.steady_ms());
        if let Some(known) = self.names.get(&key, now_ms) {
            return known;
        }
        let path = format!("/open-apis/contact/v3/users/{id}?user_id_type={}", id_type(id));
        let name = match in_time(self.api(bot).ask(&path)).await? {
            Ok(response) => {
                let names =
                    ["name", "display_name", "nickname", "en_name"].map(|name| text_of(&response["user"], name).trim());
                Some(first(names).to_owned()).filter(|name| !name.is_empty())
            }
            Err(ApiError::NoAnswer { .. }) => return None,
            // What Feishu refuses now it refuses for the next message too.
            Err(_) => None,
        };
        self.names.put(key, name.clone(), now_ms);
        name
    }

    async fn parent(&self, bot: &Bot, id: &str) -> Option<Parent> {
        in_time(self.message(bot, id)).await.and_then(Result::ok).flatten()
    }

    /// A message that was said before. `None`: it is not there any more.
    pub(super) async fn message(&self, bot: &Bot, id: &str) -> Result<Option<Parent>, ApiError> {
        let (key, now_ms) = (Self::key(bot, id), self.env.steady_ms());
        if let Some(known) = self.parents.get(&key, now_ms) {
            return Ok(Some(known));
        }
        let response = match self.api(bot).ask(&format!("/open-apis/im/v1/messages/{id}")).await {
            Ok(response) => response,
            Err(error) if error.is(&OF_ANCHOR) || error.is(&OF_CHAT) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(item) = list_of(&response, "items").first() else { return Ok(None) };
        let me = self.known.get(&Self::key(bot, app_id(bot)), now_ms).unwrap_or_default();
        let parent = parent_of(item, app_id(bot), &me);
        self.parents.put(key, parent.clone(), now_ms);
        Ok(Some(parent))
    }
}

/// The API names an app by its id, and people by theirs.
fn parent_of(item: &Value, app_id: &str, me: &Me) -> Parent {
    let content = text_of(&item["body"], "content");
    let content = Content::of(text_of(item, "msg_type"), content, list_of(item, "mentions"), me);
    let text = content.and_then(Content::quoted).map(|text| text.chars().take(QUOTE_MAX_CHARS).collect());
    let is_own = !app_id.is_empty() && text_of(&item["sender"], "id") == app_id;
    Parent { text, is_own, chat_id: text_of(item, "chat_id").to_owned() }
}

/// Chats are distinguished as in the gateway's own adapter: by their type, else by that of the message.
fn chat_of(data: &Value) -> Chat {
    let kind = text_of(data, "chat_type").trim().to_lowercase();
    let kind = match kind.as_str() {
        kind if ["topic", "thread", "forum"].iter().any(|part| kind.contains(part)) => "forum",
        "group" => "group",
        _ => "",
    };
    let is_direct = text_of(data, "chat_mode") == "p2p" || text_of(data, "chat_type") == "p2p";
    Chat { name: text_of(data, "name").to_owned(), kind, is_direct }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn chats_are_told_apart() {
        for (data, kind, is_direct) in [
            (json!({ "chat_mode": "group", "chat_type": "private", "name": "n" }), "", false),
            (json!({ "chat_mode": "topic", "chat_type": "topic_group" }), "forum", false),
            (json!({ "chat_mode": "p2p", "chat_type": "private" }), "", true),
            (json!({ "chat_type": "p2p" }), "", true),
            (json!({ "chat_type": "Group" }), "group", false),
            (json!(null), "", false),
        ] {
            let chat = chat_of(&data);
            assert_eq!((chat.kind, chat.is_direct), (kind, is_direct), "{data}");
        }
    }

    #[test]
    fn the_author_of_an_earlier_message_is_known() {
        let item = json!({ "msg_type": "text", "chat_id": "oc_1", "body": { "content": "{\"text\":\"hi\"}" },
            "sender": { "id": "cli_1", "id_type": "app_id", "sender_type": "app" } });
        let parent = parent_of(&item, "cli_1", &Me::default());
        assert_eq!(parent, Parent { text: Some("hi".into()), is_own: true, chat_id: "oc_1".into() });
        assert!(!parent_of(&item, "cli_2", &Me::default()).is_own);
        assert!(!parent_of(&json!({}), "", &Me::default()).is_own);
    }
}
