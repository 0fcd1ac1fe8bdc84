//! Actions of agents: each op as a call of the API.

use frontdesk_core::port::platform::{Acted, ActingAs};
use frontdesk_wire::{Act, Action, ActionResult, ChatInfo, Code, MessageId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::App;
use super::account::member_of;
use super::api::Api;
use super::text::{MESSAGE_MAX_BYTES, is_blank, one_message};
use crate::shared::missing_bot;
use crate::shared::text::not_one_message;

/// The result of a message.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sent {
    msgid: String,
    /// Members that did not get it, though the call succeeded.
    invaliduser: String,
    unlicenseduser: String,
}

impl App {
    pub(super) async fn act_once(&self, acting_as: ActingAs<'_>, action: &Action) -> Acted {
        self.try_act(acting_as, action).await.unwrap_or_else(Acted::from)
    }

    async fn try_act(&self, acting_as: ActingAs<'_>, action: &Action) -> Result<Acted, ActionResult> {
        let bot = acting_as.bot;
        let api = Api::of(self, bot).ok_or_else(|| missing_bot::refused(bot))?;
        Ok(match &action.act {
            Act::Send { chat_id, content, .. } => send_text(&api, member_of(bot, chat_id)?, content).await?,
            Act::SendMedia { chat_id, media_kind, source_url, content, filename, .. } => {
                let (member, caption) = (member_of(bot, chat_id)?, content.as_deref());
                self.send_media(&api, acting_as, member, media_kind, source_url, caption, filename.as_deref()).await?
            }
            Act::GetChatInfo { chat_id } => {
                let name = member_of(bot, chat_id)?.to_owned();
                let info = ChatInfo { name, chat_type: "dm".into() };
                ActionResult { chat_info: Some(info), ..ActionResult::done() }.into()
            }
            _ => {
                return Err(ActionResult::refused(
                    Code::UnsupportedOp,
                    format!("WeCom apps do not support {}", action.act.op()),
                ));
            }
        })
    }
}

pub(super) async fn send_text(api: &Api<'_>, member: &str, content: &str) -> Result<Acted, ActionResult> {
    let refused = || not_one_message(is_blank(content), MESSAGE_MAX_BYTES, "bytes");
    let text = one_message(content).ok_or_else(refused)?;
    Ok(send(api, member, "text", json!({ "content": text })).await)
}

/// A message of this kind to one member.
pub(super) async fn send(api: &Api<'_>, member: &str, kind: &str, content: Value) -> Acted {
    let message = json!({ "touser": member, "msgtype": kind, "agentid": api.agent_id, kind: content, "safe": 0 });
    match api.ask::<Sent>("message/send", "", Some(&message)).await {
        Ok(sent) => outcome(member, &sent),
        Err(error) => error.into(),
    }
}

/// A call that succeeds may have reached no member.
fn outcome(member: &str, sent: &Sent) -> Acted {
    if !sent.invaliduser.is_empty() {
        let text = format!(
            "WeCom did not deliver it: {member:?} is not a member of the company, or not in the visible range of the app; widen \
             it in the admin console of WeCom"
        );
        return ActionResult::refused(Code::NotFound, text).into();
    }
    if !sent.unlicenseduser.is_empty() {
        let text = format!("WeCom did not deliver it: {member:?} has no license for the interface");
        return ActionResult::refused(Code::Forbidden, text).into();
    }
    match sent.msgid.as_str() {
        "" => ActionResult::done().into(),
        id => ActionResult::sent(id).into(),
    }
}

/// Some parts were sent: that is reported, and the action is not retried as a whole.
pub(super) fn partial(failed: Acted, message_id: Option<String>, what: &str) -> Acted {
    let why = failed.result.error.unwrap_or_default();
    let result = ActionResult {
        code: Some(Code::Partial),
        message_id: message_id.map(MessageId::from),
        ambiguous: failed.result.ambiguous,
        error: Some(format!("{what}, then: {why}")),
        ..ActionResult::default()
    };
    result.worded().into()
}
