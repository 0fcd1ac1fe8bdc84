//! Actions of agents: each op as calls of the API.

use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Acted, ActingAs};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code, MessageId};
use serde_json::{Value, json};

use super::Feishu;
use super::account::{app_id, is_id, is_message};
use super::api::Api;
use super::emoji;
use super::failure::ApiError;
use super::prompts::{card, prompt, text_element};
use super::refusals::{OF_ANCHOR, OF_KIND};
use super::send::{SendTarget, Sending};
use super::text::{not_one_message, one_message};
use super::value::{list_of, text_of};

const THREAD_NAME_MAX: usize = 300;
/// Pages of reactions that are searched for the one of the bot.
const REACTION_PAGES_MAX: usize = 5;

#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
fn message(id: &str) -> Result<&str, ActionResult> {
    let text = || format!("{id:?} is not the id of a message of Feishu, like om_...");
    if is_message(id) { Ok(id) } else { Err(ActionResult::refused(Code::BadRequest, text())) }
}

fn done(outcome: Result<Value, ApiError>, fine: &[i64]) -> Acted {
    match outcome {
        Ok(_) => ActionResult::done().into(),
        Err(error) if error.is(fine) => ActionResult::done().into(),
        Err(error) => error.into(),
    }
}

impl Feishu {
    /// A rate limit applies to this kind of action; other kinds continue.
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        let mut acted = self.try_act(acting_as, action).await.unwrap_or_else(Acted::from);
        if acted.pace.retry_after_ms.is_some() {
            acted.pace.bucket = super::bucket(action).map(|(name, _)| name);
        }
        acted
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        let (bot, chat_id) = (acting_as.bot, action.act.chat());
        if !is_id(chat_id) {
            let text = format!("{chat_id:?} is not the id of a chat of Feishu, like oc_...");
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
        let api = self.api(bot);
        let sending = Sending { feishu: self, api, acting_as, place: SendTarget::of(action, chat_id)? };
        Ok(match &action.act {
            Act::Send { content, reply_to, .. } => self.send(&sending, content, reply_to.as_deref()).await?,
            Act::Edit { message_id, content, .. } => {
                let id = message(message_id)?;
                match sending.check_here(id).await {
                    Ok(()) => self.edit(api, id, content).await?,
                    Err(error) => error.into(),
                }
            }
            Act::Delete { message_id, .. } => {
                let id = message(message_id)?;
                done(sending.withdraw(id).await, &OF_ANCHOR)
            }
            Act::React { message_id, emoji, remove, .. } => {
                let (id, name) = (message(message_id)?, emoji::name(emoji)?);
                if let Err(error) = sending.check_here(id).await {
                    error.into()
                } else if *remove {
                    unreact(api, id, &name).await
                } else {
                    let body = json!({ "reaction_type": { "emoji_type": name } });
                    done(api.post(&format!("/open-apis/im/v1/messages/{id}/reactions"), &body).await, &[])
                }
            }
            Act::Prompt { prompt_id, content, options, reply_to, .. } => {
                let card = prompt(prompt_id, content, options, sending.place.thread)?;
                let sent = sending.post("interactive", &card.to_string(), reply_to.as_deref()).await;
                if let Ok(id) = &sent {
                    self.cards.note(bot, id.message_id.as_deref(), self.env.steady_ms());
                }
                Sending::acted(sent)
            }
            Act::SendMedia { media_kind, source_url, content, filename, reply_to, .. } => {
                let (caption, filename) = (content.as_deref(), filename.as_deref());
                self.send_media(&sending, media_kind, source_url, caption, filename, reply_to.as_deref()).await?
            }
            Act::ThreadCreate { thread_name, message_id, .. } => {
                let anchor = message_id.as_deref().filter(|id| !id.is_empty());
                begin_thread(&sending, thread_name, anchor).await?
            }
            Act::Draft { draft_id, content, sealed, .. } => {
                self.cards.draft(&sending, draft_id, content, *sealed).await?
            }
            Act::GetChatInfo { .. } => self.chat_info(acting_as, chat_id).await,
            Act::Typing { .. } | Act::ThreadRename { .. } | Act::FollowUp { .. } => {
                let text = format!("Feishu does not support {}", action.act.op());
                return Err(ActionResult::refused(Code::UnsupportedOp, text));
            }
        })
    }

    async fn send(&self, sending: &Sending<'_>, content: &str, reply_to: Option<&str>) -> Result<Acted, ActionResult> {
        let out = one_message(content).ok_or_else(|| not_one_message(content))?;
        // A draft that this text completes is the message.
        if let Some(acted) = self.cards.complete(sending, content, &out).await {
            return Ok(acted);
        }
        let sent = sending.post_text(&out, reply_to).await;
        if sent.is_ok() {
            self.cards.take_away(sending).await;
        }
        Ok(Sending::acted(sent))
    }

    /// Texts and cards are changed by different calls.
    async fn edit(&self, api: Api<'_>, id: &str, content: &str) -> Result<Acted, ActionResult> {
        let out = one_message(content).ok_or_else(|| not_one_message(content))?;
        if !self.cards.has(api.bot, id, self.env.steady_ms()) {
            let path = format!("/open-apis/im/v1/messages/{id}");
            let body = json!({ "msg_type": out.kind, "content": out.content });
            let mut put = api.call(HttpMethod::Put, &path, Some(&body)).await;
            if out.kind == "post" && put.as_ref().is_err_and(|error| error.is(&[230_001])) {
                let body = json!({ "msg_type": "text", "content": out.plain });
                put = api.call(HttpMethod::Put, &path, Some(&body)).await;
            }
            match put {
                Err(error) if error.is(&OF_KIND) => {}
                Ok(_) => return Ok(ActionResult::sent(id).into()),
                Err(error) => return Ok(error.into()),
            }
        }
        Ok(match patch_card(api, id, &out.card).await {
            Ok(_) => {
                self.cards.note(api.bot, Some(id), self.env.steady_ms());
                ActionResult::sent(id).into()
            }
            Err(error) => error.into(),
        })
    }

    async fn chat_info(&self, acting_as: ActingAs<'_>, chat_id: &str) -> Acted {
        match self.chat(acting_as.bot, chat_id).await {
            Ok(Some(chat)) => {
                let is_direct = self.is_direct(acting_as.bot, chat_id, Some(&chat));
                let chat_type = match (chat.kind, is_direct) {
                    ("", true) => "dm",
                    ("", false) => "group",
                    (kind, _) => kind,
                };
                let name = if chat.name.is_empty() { chat_id.to_owned() } else { chat.name };
                let info = ChatInfo { name, chat_type: chat_type.into() };
                ActionResult { chat_info: Some(info), ..ActionResult::done() }.into()
            }
            Ok(None) => ActionResult::refused(Code::NotFound, "there is no such chat, or the bot is not in it").into(),
            Err(error) => error.into(),
        }
    }
}

pub(super) async fn patch_card(api: Api<'_>, id: &str, markup: &str) -> Result<Value, ApiError> {
    let content = card(&[text_element(markup)]).to_string();
    let path = format!("/open-apis/im/v1/messages/{id}");
    api.call(HttpMethod::Patch, &path, Some(&json!({ "content": content }))).await
}

/// A reaction is removed by its id, which is looked up.
async fn unreact(api: Api<'_>, id: &str, name: &str) -> Acted {
    let mut page = String::new();
    for _ in 0..REACTION_PAGES_MAX {
        let path =
            format!("/open-apis/im/v1/messages/{id}/reactions?reaction_type={name}&page_size=50&page_token={page}");
        let response = match api.ask(&path).await {
            Ok(response) => response,
            Err(error) if error.is(&OF_ANCHOR) => return ActionResult::done().into(),
            Err(error) => return error.into(),
        };
        let is_own = |it: &&Value| text_of(&it["operator"], "operator_id") == app_id(api.bot);
        let own = list_of(&response, "items").iter().find(is_own).map_or("", |it| text_of(it, "reaction_id"));
        if is_id(own) {
            let path = format!("/open-apis/im/v1/messages/{id}/reactions/{own}");
            return done(api.call(HttpMethod::Delete, &path, None).await, &OF_ANCHOR);
        }
        let next = text_of(&response, "page_token");
        if response["has_more"].as_bool() != Some(true) || !is_page(next) {
            return ActionResult::done().into(); // it has none
        }
        next.clone_into(&mut page);
    }
    let text = "the message has too many reactions to find the one of the bot; nothing was removed";
    ActionResult::refused(Code::TooLarge, text).into()
}

/// A mark of the next page that can be part of a query.
pub(super) fn is_page(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.~=".contains(&byte);
    (1..=1_024).contains(&token.len()) && token.bytes().all(is_plain)
}

/// A topic is an answer to its first message: one that is there, or one with the name.
async fn begin_thread(sending: &Sending<'_>, name: &str, anchor: Option<&str>) -> Result<Acted, ActionResult> {
    let name: String = name.trim().chars().take(THREAD_NAME_MAX).collect();
    let out = one_message(&crate::shared::markdown::literal(&name));
    let out = out.ok_or_else(|| ActionResult::refused(Code::BadRequest, "the name of the thread is empty"))?;
    let sent = match anchor {
        Some(id) => match sending.check_here(message(id)?).await {
            Ok(()) => sending.reply(id, true, "text", &out.plain).await,
            Err(error) => Err(error),
        },
        None => sending.create("text", &out.plain).await,
    };
    Ok(match sent {
        Ok(sent) => {
            let thread_id =
                sent.thread_id.clone().or_else(|| anchor.map(str::to_owned)).or_else(|| sent.message_id.clone());
            ActionResult { thread_id, message_id: sent.message_id.map(MessageId::from), ..ActionResult::done() }.into()
        }
        Err(error) => error.into(),
    })
}
