//! Look-ups at Feishu about chats and their members.

use frontdesk_core::port::platform::{Bot, Look, LookFault};
use frontdesk_wire::{ChatInfo, UserId};

use super::Feishu;
use super::account::{id_type, is_id};
use super::act::is_page;
use super::failure::ApiError;
use super::refusals::OF_CHAT;
use super::value::{list_of, text_of};

/// Pages of 100 members that are read.
const PAGES_MAX: usize = 20;

impl Feishu {
    pub(super) async fn look_at(
        &self,
        bot: &Bot,
        chat_id: &str,
        viewer: Option<&str>,
    ) -> Result<Option<Look>, LookFault> {
        let unknown = |error: ApiError| LookFault::Platform(error.text());
        let Some(chat) = self.chat(bot, chat_id).await.map_err(unknown)? else { return Ok(None) };
        let person = self.persons.get(&(bot.id.clone(), chat_id.to_owned()), self.env.steady_ms());
        let is_direct = chat.kind.is_empty() && (chat.is_direct || person.is_some());
        let person = person.filter(|_| is_direct);
        let visible = match (viewer, &person) {
            (None, _) => None,
            (Some(viewer), Some(ids)) => Some(ids.iter().any(|id| id == viewer)),
            (Some(viewer), None) => self.sees(bot, chat_id, viewer).await.map_err(unknown)?,
        };
        let chat_type = match (chat.kind, is_direct) {
            ("", true) => "dm",
            ("", false) => "group",
            (kind, _) => kind,
        };
        let name = if chat.name.is_empty() { chat_id.to_owned() } else { chat.name };
        let info = ChatInfo { name, chat_type: chat_type.into() };
        let person = person.and_then(|ids| ids.into_iter().next());
        Ok(Some(Look { info, visible, scope_id: None, parent_chat_id: None, person: person.map(UserId::from) }))
    }

    /// Only members see a chat. `None`: Feishu does not say, or there are too many. That counts as no.
    async fn sees(&self, bot: &Bot, chat_id: &str, viewer: &str) -> Result<Option<bool>, ApiError> {
        if !is_id(viewer) {
            return Ok(Some(false));
        }
        let (api, mut page) = (self.api(bot), String::new());
        for _ in 0..PAGES_MAX {
            let kind = id_type(viewer);
            let path = format!(
                "/open-apis/im/v1/chats/{chat_id}/members?member_id_type={kind}&page_size=100&page_token={page}"
            );
            let response = match api.ask(&path).await {
                Ok(response) => response,
                Err(error) if error.is(&OF_CHAT) => return Ok(None),
                Err(error) => return Err(error),
            };
            if list_of(&response, "items").iter().any(|member| text_of(member, "member_id") == viewer) {
                return Ok(Some(true));
            }
            let next = text_of(&response, "page_token");
            if response["has_more"].as_bool() != Some(true) {
                return Ok(Some(false));
            }
            if !is_page(next) {
                return Ok(None);
            }
            next.clone_into(&mut page);
        }
        Ok(None)
    }
}
