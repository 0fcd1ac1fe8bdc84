//! Commands, buttons, menus and forms: what they mean, and how they are answered. They come by the interactions endpoint,
//! or by the socket where Discord knows no endpoint.
//!
//! Discord waits three seconds and does not retry. So no request is sent to Discord here, and a failure to store is
//! reported to the user at once.

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Handover, Intake, RawCapability, Receipt, Verified};
use frontdesk_core::port::platform::{Bot, DoorAnswer, RawRequest, ReceivedRequest, Reply};
use frontdesk_wire::event::ReplyTo;
use frontdesk_wire::{ChatId, MessageEvent, MessageId, Secret, Source};
use serde::Deserialize;
use serde_json::{Value, json};

use super::forward::{forward, options_text};
use super::normalize::chat_name;
use super::places::{Channel, User};
use super::prompts::{Pressed, has_prompt_token, pressed};
use super::snowflake::{is_id, ms_of, number};
use super::text::MESSAGE_MAX;
use super::{Discord, PLATFORM, signature};
use crate::shared::refusal;

pub(super) const CAPABILITY_KIND: &str = "discord.interaction_token";
/// Follow-ups are taken for 15 minutes.
const TOKEN_MS: u64 = 900_000;
const TOKEN_MAX_BYTES: usize = 1_024;

const NOT_LINKED: &str = "No agent gets this: you are not linked to one here. Whoever runs this bot can give you a code; \
                          send it with /link in a direct message to the bot.";
/// Before the id of an interaction that is a press, in the id of its event.
pub(super) const PRESS: &str = "press-";

// Kinds of interactions.
const PING: u64 = 1;
const COMMAND: u64 = 2;
const COMPONENT: u64 = 3;
const AUTOCOMPLETE: u64 = 4;
const FORM: u64 = 5;

// Kinds of answers.
const PONG: u8 = 1;
const MESSAGE: u8 = 4;
const DEFERRED_MESSAGE: u8 = 5;
const DEFERRED_UPDATE: u8 = 6;
const UPDATE: u8 = 7;
const CHOICES: u8 = 8;

const EPHEMERAL: u64 = 1 << 6;
/// Of a command that is not typed, but chosen for a user or a message.
const FOR_USER: u64 = 2;
const FOR_MESSAGE: u64 = 3;

/// What an interaction means.
pub(super) enum Meaning {
    /// It is answered like this, and nothing is stored.
    Answer(Value),
    Event {
        intake: Box<Intake>,
        then: Then,
    },
}

/// How it is answered once its event is stored.
pub(super) struct Then {
    /// If an agent gets the event.
    taken: Value,
}

impl Then {
    fn deferred(kind: u8) -> Self {
        Self { taken: json!({ "type": kind }) }
    }

    /// An agent gets it, or the person is notified why none does.
    pub(super) fn answer(self, receipt: Option<&Receipt>) -> Value {
        refusal::refusal(receipt, NOT_LINKED).map_or(self.taken, |text| only_for_them(&text))
    }
}

/// A message that only the acting user sees.
pub(super) fn only_for_them(text: &str) -> Value {
    let text: String = text.chars().take(MESSAGE_MAX).collect();
    let text = if text.trim().is_empty() { "Nothing was done.".to_owned() } else { text };
    json!({ "type": MESSAGE, "data": { "content": text, "flags": EPHEMERAL, "allowed_mentions": { "parse": [] } } })
}

pub(super) fn not_stored(error: &DeskError) -> Value {
    only_for_them(&refusal::not_stored(error))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Interaction {
    id: String,
    application_id: String,
    #[serde(rename = "type")]
    kind: u64,
    token: String,
    guild_id: Option<String>,
    channel_id: String,
    channel: Option<Channel>,
    member: Option<Member>,
    user: Option<User>,
    data: Value,
    message: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Member {
    nick: Option<String>,
    user: Option<User>,
}

impl Interaction {
    fn author(&self) -> Option<&User> {
        let member = self.member.as_ref().and_then(|member| member.user.as_ref());
        member.or(self.user.as_ref()).filter(|user| is_id(&user.id))
    }

    /// Typed behind a slash, and not chosen from a menu.
    fn is_typed(&self) -> bool {
        !matches!(self.data["type"].as_u64(), Some(FOR_USER | FOR_MESSAGE))
    }

    /// As a user would type it.
    fn text(&self) -> String {
        let text = |name: &str| self.data[name].as_str().unwrap_or_default();
        match self.kind {
            COMMAND => {
                let mut parts =
                    vec![if self.is_typed() { format!("/{}", text("name")) } else { text("name").to_owned() }];
                parts.extend(options_text(&self.data["options"]));
                if self.data["type"].as_u64() == Some(FOR_USER) {
                    parts.push(format!("<@{}>", text("target_id")));
                }
                parts.join(" ")
            }
            _ => text("custom_id").to_owned(),
        }
    }

    /// The message that a command was chosen for, or that has the button.
    fn about(&self) -> Option<(&str, &Value)> {
        if self.kind == COMMAND && self.data["type"].as_u64() == Some(FOR_MESSAGE) {
            let target = self.data["target_id"].as_str()?;
            return Some((target, &self.data["resolved"]["messages"][target]));
        }
        Some((self.message["id"].as_str()?, &self.message))
    }

    /// With the application, whose path the token is used on, and the id that an answer replies to. `None`: it is none that fits into a path.
    fn capability(&self, sent_ms: Option<u64>, now_ms: u64) -> Option<RawCapability> {
        if !is_token(&self.token) || !is_id(&self.application_id) {
            return None;
        }
        let value = Secret::new(format!("{}/{}/{}", self.application_id, self.token, self.id));
        let sent_ms = sent_ms.or_else(|| number(&self.id).map(ms_of)).unwrap_or(now_ms);
        let ttl_ms = TOKEN_MS.saturating_sub(now_ms.saturating_sub(sent_ms));
        Some(RawCapability { kind: CAPABILITY_KIND.into(), value, ttl_ms, is_awaited: true })
    }
}

/// One that can be a part of a path.
pub(super) fn is_token(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'~' | b'=');
    let is_dots = text.bytes().all(|byte| byte == b'.'); // also an empty one
    !is_dots && text.len() <= TOKEN_MAX_BYTES && text.bytes().all(plain)
}

impl Discord {
    /// A request to the interactions endpoint.
    pub(super) fn handle_request(&self, bot: &Bot, request: &RawRequest) -> Result<ReceivedRequest, Reply> {
        let key = bot.setting("public_key").ok_or_else(|| {
            Reply::text(404, "this bot takes no interactions here: it was added without --set public_key=...")
        })?;
        let timestamp = request.only_header("x-signature-timestamp");
        let forged = |error: signature::Forged| Reply::text(401, error.to_string());
        signature::verify(key, timestamp, request.only_header("x-signature-ed25519"), &request.body).map_err(forged)?;
        let sent_ms = signature::sent_ms(timestamp, request.now_ms).map_err(forged)?;
        let data: Value =
            serde_json::from_slice(&request.body).map_err(|_| Reply::text(400, "the body is not valid JSON"))?;
        let proof = Verified::by("Ed25519 signature over the raw body");
        Ok(match self.meaning_of(bot, proof, &data, Some(sent_ms), request.now_ms) {
            Meaning::Answer(answer) => ReceivedRequest::nothing(Reply::json(200, &answer)),
            Meaning::Event { intake, then } => {
                let answer = DoorAnswer::FromReceipts(Box::new(move |receipts| {
                    Reply::json(200, &then.answer(receipts.first())) //
                }));
                let if_not_stored = Box::new(|error: &DeskError| Reply::json(200, &not_stored(error)));
                ReceivedRequest { if_not_stored: Some(if_not_stored), ..ReceivedRequest::events(vec![*intake], answer) }
            }
        })
    }

    /// `sent_ms`: when Discord sent it, if that is known.
    pub(super) fn meaning_of(
        &self,
        bot: &Bot,
        proof: Verified,
        data: &Value,
        sent_ms: Option<u64>,
        now_ms: u64,
    ) -> Meaning {
        let interaction = match Interaction::deserialize(data) {
            Ok(interaction) => interaction,
            Err(error) => return unreadable(bot, proof, data, &error.to_string()),
        };
        match interaction.kind {
            PING => return Meaning::Answer(json!({ "type": PONG })),
            AUTOCOMPLETE => return Meaning::Answer(json!({ "type": CHOICES, "data": { "choices": [] } })),
            COMMAND | COMPONENT | FORM => {}
            other => return unreadable(bot, proof, data, &format!("interactions of type {other} are not known")),
        }
        let missing = match () {
            () if !is_id(&interaction.id) => Some("it has no id"),
            () if !is_id(&interaction.channel_id) => Some("it has no channel"),
            () if interaction.author().is_none() => Some("it has no user"),
            () => None,
        };
        if let Some(missing) = missing {
            return unreadable(bot, proof, data, missing);
        }
        match pressed(data).filter(|_| interaction.kind == COMPONENT) {
            Some(press) => self.press(bot, proof, &interaction, press),
            // Some agents would read it as the answer to a prompt.
            None if has_prompt_token(data) => unreadable(bot, proof, data, "its button does not belong to a prompt"),
            None => self.command(bot, proof, &interaction, data, sent_ms, now_ms),
        }
    }

    /// A command that the server does not interpret goes to the agent as it is, without its token.
    fn command(
        &self,
        bot: &Bot,
        proof: Verified,
        interaction: &Interaction,
        data: &Value,
        sent_ms: Option<u64>,
        now_ms: u64,
    ) -> Meaning {
        let is_command = interaction.kind == COMMAND && interaction.is_typed();
        let about = interaction.about();
        let event = MessageEvent {
            text: interaction.text(),
            message_type: if is_command { "command" } else { "text" }.into(),
            source: self.source_of(bot, interaction),
            message_id: Some(interaction.id.as_str().into()),
            reply_to_message_id: about.map(|(id, _)| id.into()),
            reply_to: about.and_then(|(_, message)| replied(message)),
            ..MessageEvent::default()
        };
        let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
        (intake.addressed, intake.is_interaction) = (true, true);
        let has_message = interaction.message.is_object();
        let kind = match interaction.kind {
            COMPONENT | FORM if has_message => DEFERRED_UPDATE,
            _ => DEFERRED_MESSAGE,
        };
        let capability = interaction.capability(sent_ms, now_ms);
        intake.capabilities.extend(capability.map(|it| RawCapability { is_awaited: kind == DEFERRED_MESSAGE, ..it }));
        if self.forwards_interactions {
            match forward(&bot.id, data, &interaction.token) {
                Some(forward) => intake.handover = Handover::Forward(forward),
                None => {
                    intake.refused =
                        Some("its token also appears in a field that would be passed to the agent".to_owned());
                }
            }
        }
        Meaning::Event { intake: Box::new(intake), then: Then::deferred(kind) }
    }

    /// A button or menu of a prompt. The author is the person who pressed.
    fn press(&self, bot: &Bot, proof: Verified, interaction: &Interaction, press: Pressed) -> Meaning {
        let who = interaction.author().map_or("", User::shown);
        let shown = press.shown(&interaction.message, who);
        let event = MessageEvent {
            text: format!("/{}", press.option_id),
            message_type: "command".into(),
            source: self.source_of(bot, interaction),
            message_id: Some(format!("{PRESS}{}", interaction.id).into()),
            reply_to_message_id: Some(press.message_id.as_str().into()),
            prompt_response: Some(press.response()),
            ..MessageEvent::default()
        };
        let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
        (intake.addressed, intake.is_interaction) = (true, true);
        intake.press_of = Some(press.message_id.as_str().into());
        let then = Then { taken: json!({ "type": UPDATE, "data": shown }) };
        Meaning::Event { intake: Box::new(intake), then }
    }

    fn source_of(&self, bot: &Bot, interaction: &Interaction) -> Source {
        // Discord sends it with the interaction; without that it may be known from the socket.
        let included = interaction.channel.clone().filter(|channel| channel.id == interaction.channel_id);
        let channel = included.or_else(|| self.guilds.channel(&bot.id, &interaction.channel_id));
        let channel = channel.unwrap_or_else(|| Channel {
            id: interaction.channel_id.clone(),
            kind: u8::from(interaction.guild_id.is_none()),
            ..Channel::default()
        });
        let author = interaction.author().cloned().unwrap_or_default();
        let nick = interaction.member.as_ref().and_then(|member| member.nick.clone()).filter(|nick| !nick.is_empty());
        // As far as they are known without asking.
        let parent = channel.parent().and_then(|id| self.guilds.channel(&bot.id, id));
        let guild = interaction.guild_id.as_deref().and_then(|id| self.guilds.guild(&bot.id, id));
        let chat_name = chat_name(&channel, parent.as_ref(), guild.as_ref(), &author);
        let mut source = Source {
            platform: PLATFORM.into(),
            chat_id: interaction.channel_id.as_str().into(),
            chat_type: channel.type_name().into(),
            chat_name,
            chat_topic: channel.topic.clone().filter(|topic| !topic.is_empty()),
            user_id: Some(author.id.as_str().into()),
            user_name: Some(nick.unwrap_or_else(|| author.shown().to_owned())),
            thread_id: channel.is_thread().then(|| channel.id.clone()),
            parent_chat_id: channel.parent().map(ChatId::from),
            is_bot: author.bot,
            ..Source::default()
        };
        source.set_scope(interaction.guild_id.clone());
        source
    }
}

fn replied(message: &Value) -> Option<ReplyTo> {
    let text = message["content"].as_str().filter(|text| !text.is_empty())?;
    let author = User::deserialize(&message["author"]).ok().map(|user| user.shown().to_owned());
    Some(ReplyTo { text: Some(text.to_owned()), author, is_own: None })
}

/// It is recorded, and the person is notified.
fn unreadable(bot: &Bot, proof: Verified, data: &Value, why: &str) -> Meaning {
    let text = |name: &str| data[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let chat_id = text("channel_id").unwrap_or_else(|| "unknown".into());
    let source = Source { platform: PLATFORM.into(), chat_id: chat_id.into(), ..Source::default() };
    let event = MessageEvent { source, message_id: text("id").map(MessageId::from), ..MessageEvent::default() };
    let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
    intake.refused = Some(format!("the interaction could not be read: {why}"));
    Meaning::Event { intake: Box::new(intake), then: Then::deferred(DEFERRED_MESSAGE) }
}
