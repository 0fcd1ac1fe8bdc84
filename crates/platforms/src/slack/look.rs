//! Look-ups at Slack about chats and their members.

use frontdesk_core::port::platform::{Bot, Look, LookFault};
use frontdesk_wire::{ChatInfo, UserId};
use serde_json::Value;

use super::Slack;
use super::account::is_id;
use super::api::{Api, ApiError};
use super::rich::{list_of, text_of};

/// Members on one page, and pages that are read.
const PAGE: &str = "999";
const PAGES_MAX: usize = 10;

pub(super) fn info(channel: &Value) -> ChatInfo {
    let is = |name: &str| channel[name].as_bool() == Some(true);
    let names = [text_of(channel, "name"), text_of(channel, "id")];
    ChatInfo {
        name: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default().to_owned(),
        chat_type: if is("is_im") || is("is_mpim") { "dm" } else { "group" }.into(),
    }
}

impl Slack {
    pub(super) async fn look_at(
        &self,
        bot: &Bot,
        chat_id: &str,
        viewer: Option<&str>,
    ) -> Result<Option<Look>, LookFault> {
        let unknown = |error: ApiError| LookFault::Platform(error.text());
        if !is_id(chat_id) {
            return Ok(None);
        }
        let Some((api, team)) = self.api_for(bot, chat_id, None).await.map_err(unknown)? else { return Ok(None) };
        let response = match api.ask("conversations.info", &[("channel", chat_id)]).await {
            Ok(response) => response,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(unknown(error)),
        };
        let channel = &response["channel"];
        let is = |name: &str| channel[name].as_bool() == Some(true);
        let person = is("is_im").then(|| text_of(channel, "user").to_owned()).filter(|user| !user.is_empty());
        let visible = match viewer {
            None => None,
            Some(viewer) if is("is_im") => Some(person.as_deref() == Some(viewer)),
            Some(viewer) if !is_id(viewer) => Some(false),
            Some(viewer) => sees(&api, chat_id, viewer, is("is_private") || is("is_mpim")).await.map_err(unknown)?,
        };
        let scope = match team.is_empty() {
            false => Some(team),
            true => Some(self.me(bot, "").await.map_err(unknown)?.team).filter(|team| !team.is_empty()),
        };
        Ok(Some(Look {
            info: info(channel),
            visible,
            scope_id: scope,
            parent_chat_id: None,
            person: person.map(UserId::from),
        }))
    }
}

/// Members of the workspace see its public channels; guests and people of other workspaces only those that they are in.
/// `None`: Slack does not say. That counts as no.
async fn sees(api: &Api<'_>, chat_id: &str, viewer: &str, is_private: bool) -> Result<Option<bool>, ApiError> {
    if !is_private {
        let response = match api.ask("users.info", &[("user", viewer)]).await {
            Ok(response) => response,
            Err(error) if error.is(&["user_not_found", "user_not_visible"]) => return Ok(Some(false)),
            Err(error) => return Err(error),
        };
        let user = &response["user"];
        let is = |name: &str| user[name].as_bool() == Some(true);
        if is("deleted") {
            return Ok(Some(false));
        }
        let is_guest = is("is_restricted") || is("is_ultra_restricted") || is("is_stranger");
        if !is_guest && user["is_restricted"].is_boolean() {
            return Ok(Some(true));
        }
    }
    let mut cursor = String::new();
    for _ in 0..PAGES_MAX {
        let fields = [("channel", chat_id), ("limit", PAGE), ("cursor", &cursor)];
        let response = match api.ask("conversations.members", &fields).await {
            Ok(response) => response,
            Err(error) if error.is_absent() => return Ok(None),
            Err(error) => return Err(error),
        };
        if list_of(&response, "members").iter().any(|member| member.as_str() == Some(viewer)) {
            return Ok(Some(true));
        }
        text_of(&response["response_metadata"], "next_cursor").clone_into(&mut cursor);
        if cursor.is_empty() {
            return Ok(Some(false));
        }
    }
    Ok(None)
}
