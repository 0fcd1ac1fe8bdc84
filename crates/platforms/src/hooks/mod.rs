//! Signed webhooks: whatever can send Standard Webhooks can send to an agent. On the wire it is `hooks`.
//!
//! `POST /hooks/{bot}` with a genuine signature becomes one event, with the raw body as its text, for every agent that
//! is linked to the bot. The answer comes after the commit and says who gets it. Nothing can be sent back.

pub(crate) mod sample;

use std::sync::Arc;

use frontdesk_core::intake::{Intake, Receipt, TenantSource, Verified};
use frontdesk_core::port::BoxFuture;
use frontdesk_core::port::platform::{
    Acted, ActingAs, Bot, BotNames, Door, DoorAnswer, Look, LookFault, Method, Platform, RawRequest, ReceivedRequest,
    Reply,
};
use frontdesk_wire::{Action, ActionResult, ChatId, ChatInfo, Code, Descriptor, MessageEvent, Secret, Source, UserId};
use serde::Deserialize;
use serde_json::json;

use crate::shared::standard_webhooks::Keys;
use crate::{Kit, Listed, SettingsError};

pub const PLATFORM: &str = "hooks";
const KEY_MIN_BYTES: usize = 16;
/// A larger body fits into no frame to an agent.
const BODY_MAX_BYTES: usize = 1 << 20;
/// Gateways require a length, although nothing can be sent.
const MESSAGE_MAX_CHARS: usize = 256 << 10;

pub const LISTED: Listed = Listed {
    name: PLATFORM,
    defaults: include_str!("default.toml"),
    open,
    sample: Some(|| Box::new(sample::SampleHook)),
};

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub max_bytes: usize,
}

fn open(kit: &Kit) -> Result<Arc<dyn Platform>, SettingsError> {
    let settings: Settings = kit.section(PLATFORM)?;
    if !(1..=BODY_MAX_BYTES).contains(&settings.max_bytes) {
        let why = format!("max_bytes must be 1 to {BODY_MAX_BYTES}, not {}", settings.max_bytes);
        return Err(SettingsError::invalid(PLATFORM, why));
    }
    Ok(Arc::new(Hooks::new(settings)))
}

pub struct Hooks {
    descriptor: Descriptor,
    doors: [Door; 1],
}

impl Hooks {
    pub fn new(settings: Settings) -> Self {
        let descriptor = Descriptor {
            emoji: "🪝".into(),
            platform_hint: "This is a webhook, sent by a program. Nobody reads an answer.".into(),
            ..Descriptor::plain(PLATFORM, "Webhooks", MESSAGE_MAX_CHARS)
        };
        let door = Door {
            method: Method::Post,
            path: "/hooks/{bot}",
            summary: "Send a signed webhook (Standard Webhooks) to the agents that are linked to the bot",
            max_bytes: settings.max_bytes,
        };
        Self { descriptor, doors: [door] }
    }

    fn take(bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let keys = bot.secret("key").map_or_else(Vec::new, keys_of);
        let id = Keys::new(keys.iter())
            .verify(|name| request.only_header(name), &request.body, request.now_ms / 1_000)
            .map_err(|forged| Reply::text(401, forged.to_string()))?;
        let text = std::str::from_utf8(&request.body);
        let text = text.map_err(|_| Reply::text(400, "the body is not valid UTF-8 text"))?;
        if text.trim().is_empty() {
            return Err(Reply::text(400, "the body is empty"));
        }
        let source = Source {
            platform: PLATFORM.into(),
            chat_id: bot.id.as_str().into(),
            chat_type: "dm".into(),
            chat_name: Some(bot.id.to_string()),
            user_id: Some(bot.id.as_str().into()),
            user_name: Some(bot.id.to_string()),
            ..Source::default()
        };
        let event = MessageEvent {
            text: text.to_owned(),
            message_type: "text".into(),
            source,
            message_id: Some(id.into()),
            ..MessageEvent::default()
        };
        let tenant_source =
            bot.tenant.clone().map_or_else(|| TenantSource::Path(bot.id.to_string()), TenantSource::Tenant);
        let proof = Verified::by("webhook-signature over the raw body");
        let intake = Intake { from_program: true, ..Intake::new(proof, tenant_source, bot.id.clone(), event) };
        Ok(ReceivedRequest::events(vec![intake], DoorAnswer::FromReceipts(Box::new(answer))))
    }
}

/// One key, or several of the form `whsec_...` that are separated by spaces: the old and the new one while they change.
fn keys_of(text: &Secret) -> Vec<Secret> {
    let words: Vec<&str> = text.expose().split_whitespace().collect();
    match words.iter().all(|word| word.starts_with("whsec_")) {
        true => words.into_iter().map(Secret::new).collect(),
        false => vec![Secret::new(text.expose())],
    }
}

/// The outcome of the event: who gets it, or why no agent does.
fn answer(receipts: &[Receipt]) -> Reply {
    let body = receipts.first().map(|receipt| {
        json!({
            "event_id": receipt.event_id,
            "duplicate": !receipt.fresh,
            "outcome": receipt.verdict.outcome,
            "text": receipt.verdict.text,
            "delivery": receipt.verdict.delivery,
        })
    });
    Reply::json(202, &body.unwrap_or_default())
}

impl Platform for Hooks {
    fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn bot_names(&self) -> Option<BotNames> {
        Some(BotNames { settings: &[], required: &["key"], secrets: &["key"] })
    }

    fn check_bot(&self, bot: &Bot) -> Result<(), String> {
        let keys = bot.secret("key").map_or_else(Vec::new, keys_of);
        match !keys.is_empty()
            && keys.iter().all(|key| Keys::bytes_of(key).is_some_and(|bytes| bytes.len() >= KEY_MIN_BYTES))
        {
            true => Ok(()),
            false => Err(format!(
                "the key must be at least {KEY_MIN_BYTES} bytes long: whsec_ and base64, or any other text; several \
                 whsec_ keys are separated by spaces"
            )),
        }
    }

    fn doors(&self) -> &[Door] {
        &self.doors
    }

    fn receive<'a>(
        &'a self,
        bot: Option<&'a Bot>,
        request: &'a RawRequest,
    ) -> BoxFuture<'a, Result<ReceivedRequest, Reply>> {
        let taken = match bot {
            Some(bot) => Self::take(bot, request),
            None => Err(Reply::text(404, "no such webhook")),
        };
        Box::pin(std::future::ready(taken))
    }

    fn act<'a>(&'a self, _: ActingAs<'a>, _: &'a Action, _: Option<&'a Secret>) -> BoxFuture<'a, Acted> {
        let refused = ActionResult::refused(Code::UnsupportedOp, "nothing can be sent to a webhook");
        Box::pin(std::future::ready(refused.into()))
    }

    /// A hook is one chat, which all users see who are linked to it.
    fn look<'a>(
        &'a self,
        acting_as: ActingAs<'a>,
        chat_id: &'a ChatId,
        viewer: Option<&'a UserId>,
    ) -> BoxFuture<'a, Result<Option<Look>, LookFault>> {
        let look = (chat_id.as_str() == acting_as.bot.id.as_str()).then(|| Look {
            info: ChatInfo { name: chat_id.to_string(), chat_type: "dm".into() },
            visible: viewer.map(|viewer| viewer.as_str() == chat_id.as_str()),
            person: Some(chat_id.as_str().into()),
            ..Look::default()
        });
        Box::pin(std::future::ready(Ok(look)))
    }

    fn notice<'a>(&'a self, _: ActingAs<'a>, _: &'a ChatId, _: &'a str) -> BoxFuture<'a, ActionResult> {
        // The state of the agent is in `frontdesk instances`.
        let refused = ActionResult::refused(Code::UnsupportedOp, "a webhook has no recipient for notices");
        Box::pin(std::future::ready(refused))
    }
}
