//! Messages and button presses of users, converted to events.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontdesk_core::directory::check_source;
use frontdesk_core::intake::{ChatLine, Handover, Intake, RawCapability, Receipt, TenantSource, Verified};
use frontdesk_core::port::store::{ChatAmend, MediaItem, StoreError};
use frontdesk_core::{Desk, DeskError};
use frontdesk_core::{sha256_hex, short_hash};
use frontdesk_wire::api::{ChatPost, ChatPress};
use frontdesk_wire::event::{Media, PromptResponse, ReplyTo, media_kind, media_message_type};
use frontdesk_wire::frame::PassthroughForward;
use frontdesk_wire::{ChatId, MessageEvent, MessageId, Secret, Source, TenantId};
use serde_json::json;

use super::lines::{Interaction, Line, parse};
use super::{BOT, BuiltInChat, CAPABILITY_KIND, ChatFacts, Commands, PLATFORM, Signal};

const TEXT_MAX_CHARS: usize = 32_000;
const NAME_MAX_CHARS: usize = 256;
const MEDIA_PER_MESSAGE: usize = 10;
/// Attempts to press a prompt that is changed concurrently (by a reaction or an edit).
const PRESS_TRIES: usize = 8;

/// An accepted message: its id in the chat and the receipt of the server.
pub struct Posted {
    pub message_id: MessageId,
    pub receipt: Receipt,
}

/// Names and ids that are stored with the message and are not checked as parts of an event.
fn check_names(post: &ChatPost) -> Result<(), DeskError> {
    let named = [
        ("user_name", post.user_name.as_deref()),
        ("scope_id", post.scope_id.as_deref()),
        ("thread_id", post.thread_id.as_deref()),
        ("reply_to", post.reply_to.as_deref()),
    ];
    match named.into_iter().find(|(_, value)| value.is_some_and(|it| it.chars().count() > NAME_MAX_CHARS)) {
        Some((field, _)) => {
            Err(DeskError::BadRequest(format!("{field} must have at most {NAME_MAX_CHARS} characters")))
        }
        None => Ok(()),
    }
}

impl BuiltInChat {
    /// Posts a message of a user. The edge has checked the chat token, and `tenant` is its tenant.
    pub async fn post(
        &self,
        desk: &Desk,
        tenant: &TenantId,
        chat_id: &ChatId,
        post: ChatPost,
    ) -> Result<Posted, DeskError> {
        if post.text.chars().count() > TEXT_MAX_CHARS {
            return Err(DeskError::TooLarge(format!("the message text is longer than {TEXT_MAX_CHARS} characters")));
        }
        if post.text.trim().is_empty() && post.media.is_empty() {
            return Err(DeskError::BadRequest("a message needs text or media".into()));
        }
        check_names(&post)?;
        let facts = self.facts(tenant, chat_id).await?.unwrap_or_default();
        let chat_type = post.chat_type.clone().or_else(|| facts.chat_type.clone()).unwrap_or_else(|| "dm".into());
        if !["dm", "group", "channel", "thread", "forum"].contains(&chat_type.as_str()) {
            return Err(DeskError::BadRequest(format!("unknown chat_type {chat_type:?}")));
        }
        let mut line = self.new_line("in", &post.text);
        line.shown.user_id = Some(post.user_id.clone());
        line.shown.user_name.clone_from(&post.user_name);
        line.shown.thread_id.clone_from(&post.thread_id);
        line.shown.reply_to.clone_from(&post.reply_to);
        if let Some(message_id) = post.message_id.clone().filter(|id| !id.is_empty()) {
            line.shown.message_id = message_id;
        }
        let mut event = MessageEvent {
            text: post.text.clone(),
            message_type: "text".into(),
            source: source(&facts, chat_id, &chat_type, &post),
            message_id: Some(line.shown.message_id.clone()),
            ..MessageEvent::default()
        };
        self.add_media(tenant, &post, &mut event, &mut line).await?;
        self.add_reply(tenant, chat_id, &post, &mut event).await?;
        check_source(&event)?;
        let scope = event.source.scope_id.clone();
        if facts.chat_type.is_none() || (scope.is_some() && facts.scope != scope) {
            let learn = |facts: &mut ChatFacts| {
                let before = (facts.chat_type.clone(), facts.scope.clone());
                facts.chat_type.get_or_insert_with(|| chat_type.clone());
                if scope.is_some() {
                    facts.scope.clone_from(&scope);
                }
                (&facts.chat_type, &facts.scope) != (&before.0, &before.1)
            };
            self.change_facts(tenant, chat_id, learn).await?;
        }
        let answers_bot = event.reply_to.as_ref().is_some_and(|replied| replied.is_own == Some(true));
        Box::pin(self.take(desk, tenant, chat_id, event, line, post.mentions_bot || answers_bot, None)).await
    }

    /// Presses a button of a stored prompt. A prompt is answered once: the answer and the mark on the prompt are one
    /// commit.
    pub async fn press(
        &self,
        desk: &Desk,
        tenant: &TenantId,
        chat_id: &ChatId,
        message_id: &MessageId,
        press: ChatPress,
    ) -> Result<Posted, DeskError> {
        for _ in 0..PRESS_TRIES {
            match Box::pin(self.try_press(desk, tenant, chat_id, message_id, &press)).await {
                Err(DeskError::Store(StoreError::Conflict)) => {} // the prompt was changed concurrently: read it again
                done => return done,
            }
        }
        Err(DeskError::Store(StoreError::Conflict))
    }

    async fn try_press(
        &self,
        desk: &Desk,
        tenant: &TenantId,
        chat_id: &ChatId,
        message_id: &MessageId,
        press: &ChatPress,
    ) -> Result<Posted, DeskError> {
        let absent = || DeskError::NotFound("prompt not found".into());
        let row = self.log.chat_line(tenant, chat_id, message_id).await?.ok_or_else(absent)?;
        let mut asked = parse(&row);
        let thread_id = asked.shown.thread_id.clone();
        let prompt = asked.shown.prompt.as_mut().ok_or_else(absent)?;
        let option = prompt.options.iter().find(|option| option.id == press.option_id).cloned();
        let option = option.filter(|_| prompt.prompt_id == press.prompt_id).ok_or_else(absent)?;
        if let Some(chosen) = &prompt.chosen {
            return Err(DeskError::Conflict(format!("this prompt was already answered: {chosen}")));
        }
        prompt.chosen = Some(option.id.clone());
        let prompt_id = prompt.prompt_id.clone();
        let facts = self.facts(tenant, chat_id).await?.unwrap_or_default();
        let chat_type = facts.chat_type.clone().unwrap_or_else(|| "dm".into());
        // The press belongs to the thread of the prompt and the scope of the chat.
        let post = ChatPost {
            user_id: press.user_id.clone(),
            user_name: press.user_name.clone(),
            thread_id,
            scope_id: facts.scope.clone(),
            ..ChatPost::default()
        };
        let mut line = self.new_line("in", &option.label);
        line.shown.user_id = Some(post.user_id.clone());
        line.shown.user_name.clone_from(&post.user_name);
        line.shown.reply_to = Some(message_id.clone());
        line.shown.thread_id.clone_from(&post.thread_id);
        // A repeated press has the same message id.
        line.shown.message_id = format!("press-{message_id}-{}", hex::encode(short_hash(&[&post.user_id]))).into();
        let event = MessageEvent {
            text: format!("/{}", option.id),
            message_type: "command".into(),
            source: source(&facts, chat_id, &chat_type, &post),
            message_id: Some(line.shown.message_id.clone()),
            reply_to_message_id: Some(message_id.clone()),
            prompt_response: Some(PromptResponse {
                prompt_id,
                option_id: option.id.clone(),
                label: Some(option.label.clone()),
                prompt_message_id: Some(message_id.clone()),
            }),
            ..MessageEvent::default()
        };
        check_source(&event)?;
        check_names(&post)?;
        // If no agent receives the press, the prompt stays unanswered.
        let json = serde_json::to_string(&asked).unwrap_or_default();
        let answers = ChatAmend { message_id: message_id.clone(), rev: row.rev, json };
        let posted = Box::pin(self.take(desk, tenant, chat_id, event, line, true, Some(answers))).await?;
        if posted.receipt.fresh && posted.receipt.verdict.outcome == "delivered" {
            self.signal(tenant, chat_id, Signal::Message(Box::new(asked.shown)));
        }
        Ok(posted)
    }

    #[allow(clippy::too_many_arguments)] // the fields of one message; a struct would only rename them
    async fn take(
        &self,
        desk: &Desk,
        tenant: &TenantId,
        chat_id: &ChatId,
        event: MessageEvent,
        mut line: Line,
        addressed: bool,
        answers: Option<ChatAmend>,
    ) -> Result<Posted, DeskError> {
        let command = event.prompt_response.is_none().then(|| parse_command(&event.text)).flatten();
        let command = command.map(|(name, args)| (name.to_owned(), args.to_owned()));
        let proof = Verified::by("chat token, whose tenant this is");
        let mut intake = Intake::new(proof, TenantSource::Tenant(tenant.clone()), BOT.into(), event);
        intake.stored_media = line.shown.media.iter().map(|shown| shown.id.clone()).collect();
        intake.addressed = addressed || command.is_some();
        line.addressed = intake.addressed;
        line.is_bot = intake.event.source.is_bot;
        if let Some((name, args)) = command {
            intake.event.message_type = "command".into();
            let value = self.new_capability(chat_id, &line.shown.message_id);
            let ttl_ms = self.rules.capability_ttl_ms;
            line.interaction =
                Some(Interaction { hash: sha256_hex(value.expose()), expires_ms: self.env.now_ms() + ttl_ms });
            intake.capabilities.push(RawCapability { kind: CAPABILITY_KIND.into(), value, ttl_ms, is_awaited: false });
            if self.rules.commands == Commands::Forward && name != "stop" {
                intake.handover = Handover::Forward(forward(&intake.event, &name, &args));
            }
        }
        let message_id = line.shown.message_id.clone();
        let json = serde_json::to_string(&line).unwrap_or_default();
        intake.chat = Some(Box::new(ChatLine { json, answers }));
        let received = desk.inbound().receive(vec![intake]).await?.pop();
        let receipt = received.ok_or_else(|| DeskError::BadRequest("the message was not accepted".into()))?;
        if let Some(seq) = receipt.line {
            self.show(tenant, chat_id, seq, line);
        }
        Ok(Posted { message_id, receipt })
    }

    /// A new capability for a command: it contains its chat and message, and a random part.
    fn new_capability(&self, chat_id: &ChatId, message_id: &MessageId) -> Secret {
        Secret::new(format!(
            "rit1.{}.{}.{}",
            hex::encode(chat_id.as_bytes()),
            hex::encode(message_id.as_bytes()),
            self.env.random_hex(32)
        ))
    }

    async fn add_media(
        &self,
        tenant: &TenantId,
        post: &ChatPost,
        event: &mut MessageEvent,
        line: &mut Line,
    ) -> Result<(), DeskError> {
        if post.media.len() > MEDIA_PER_MESSAGE {
            return Err(DeskError::BadRequest(format!("a message can have at most {MEDIA_PER_MESSAGE} files")));
        }
        // A file that is named several times is looked up once.
        let mut known: HashMap<&str, MediaItem> = HashMap::new();
        for media in &post.media {
            if !known.contains_key(media.id.as_str()) {
                let found = self.media.media_item(tenant, &media.id, self.env.now_ms()).await?;
                let absent = || DeskError::NotFound(format!("file {:?} not found or expired", media.id));
                known.insert(&media.id, found.ok_or_else(absent)?);
            }
            let Some(item) = known.get(media.id.as_str()).cloned() else { continue };
            line.shown.media.push(self.shown_media(&item, None));
            let url = self.media_url(&item.id);
            event.message_type = media_message_type(&item.mime).into();
            event.media_urls.push(url.clone());
            event.media.push(Media {
                url,
                kind: media_kind(&item.mime).into(),
                mime: item.mime,
                size: item.size,
                filename: item.filename,
                caption: None,
            });
        }
        Ok(())
    }

    async fn add_reply(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        post: &ChatPost,
        event: &mut MessageEvent,
    ) -> Result<(), DeskError> {
        let Some(replied) = post.reply_to.as_deref().filter(|id| !id.is_empty()) else { return Ok(()) };
        event.reply_to_message_id = Some(replied.into());
        if let Some(line) = self.line(tenant, chat_id, &MessageId::from(replied)).await? {
            event.reply_to = Some(ReplyTo {
                text: Some(line.shown.text),
                author: line.shown.user_name.or(line.shown.user_id.map(Into::into)),
                is_own: Some(line.shown.direction == "out"),
            });
        }
        Ok(())
    }
}

fn source(facts: &ChatFacts, chat_id: &ChatId, chat_type: &str, post: &ChatPost) -> Source {
    let mut source = Source {
        platform: PLATFORM.into(),
        chat_id: chat_id.clone(),
        chat_type: chat_type.into(),
        chat_name: facts.name.clone(),
        user_id: Some(post.user_id.clone()),
        user_name: post.user_name.clone(),
        thread_id: post.thread_id.clone(),
        is_bot: post.is_bot,
        profile: facts.profile.clone(),
        ..Source::default()
    };
    source.set_scope(post.scope_id.clone());
    source
}

/// `/name args`: a slash, an ASCII letter, then ASCII letters, digits, `_` or `-`.
fn parse_command(text: &str) -> Option<(&str, &str)> {
    let typed = text.trim().strip_prefix('/')?;
    let (name, args) = typed.split_once(char::is_whitespace).unwrap_or((typed, ""));
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    (plain && name.starts_with(|c: char| c.is_ascii_alphabetic())).then_some((name, args.trim()))
}

/// The sanitized request: everything except the credential.
fn forward(event: &MessageEvent, name: &str, args: &str) -> PassthroughForward {
    let source = &event.source;
    let body = json!({
        "type": "command",
        "id": event.message_id,
        "chat_id": source.chat_id,
        "chat_type": source.chat_type,
        "user": { "id": source.user_id, "name": source.user_name },
        "name": name,
        "args": args,
    });
    PassthroughForward {
        platform: PLATFORM.into(),
        bot_id: BOT.into(),
        method: "POST".into(),
        path: "/chat/interactions".into(),
        headers: vec![("content-type".into(), "application/json".into())],
        body_b64: STANDARD.encode(body.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_command;

    #[test]
    fn only_a_slash_and_a_plain_name_is_a_command() {
        assert_eq!(parse_command("/weather oslo now"), Some(("weather", "oslo now")));
        assert_eq!(parse_command("  /help  "), Some(("help", "")));
        assert_eq!(parse_command("/set-mode x"), Some(("set-mode", "x")));
        for text in ["", "/", "/ x", "/1", "//x", "/a/b", "see /x", "/é"] {
            assert_eq!(parse_command(text), None, "{text}");
        }
    }
}
