//! Actions of agents in the built-in chat: every op of the contract.

use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};

use frontdesk_core::port::media::MediaPut;
use frontdesk_core::port::platform::ActingAs;
use frontdesk_core::port::store::{MediaItem, StoreError};
use frontdesk_core::{sha256_hex, short_hash};
use frontdesk_wire::action::PromptOption;
use frontdesk_wire::api::{ChatMessage, ChatPrompt, Reaction};
use frontdesk_wire::secret::same_bytes;
use frontdesk_wire::{Act, Action, ActionResult, ChatId, Code, MessageId, Secret, TenantId};
use futures_util::TryStreamExt as _;

use super::lines::Line;
use super::{BuiltInChat, ChatDraft, ChatFacts, PLATFORM, Signal};
use crate::shared::draft::AGAIN_MS;
use crate::shared::source_file;

/// Threads of one chat, which are one record, and the length of their names.
const THREADS_MAX: usize = 1_000;
const THREAD_NAME_MAX: usize = 200;
/// Different reactions of the bot to one message, and the length of each.
const REACTIONS_MAX: usize = 50;
const EMOJI_MAX_CHARS: usize = 64;
/// Prompts with more options are shown as numbered text instead of buttons.
const BUTTONS_MAX: usize = 10;

impl BuiltInChat {
    pub(super) async fn try_act(
        &self,
        acting_as: ActingAs<'_>,
        action: &Action,
        capability: Option<&Secret>,
    ) -> Result<ActionResult, StoreError> {
        let tenant = acting_as.tenant;
        if let (Some(chat_id), Some(profile)) = (action.act.chat_id(), action.meta("profile")) {
            self.remember_profile(tenant, chat_id, profile).await?;
        }
        match &action.act {
            Act::Send { chat_id, content, reply_to } => {
                let line = self.own_line(action, content, reply_to.as_ref());
                Ok(ActionResult::sent(self.append(tenant, chat_id, line).await?))
            }
            Act::Edit { chat_id, message_id, content } => {
                let edit = |line: &mut Line| {
                    line.shown.text.clone_from(content);
                    line.shown.edited = true;
                    true
                };
                self.amend_own(tenant, chat_id, message_id, edit).await
            }
            Act::Delete { chat_id, message_id } => {
                let delete = |line: &mut Line| {
                    line.shown.text.clear();
                    line.shown.media.clear();
                    line.shown.prompt = None;
                    !std::mem::replace(&mut line.shown.deleted, true)
                };
                match self.amend_own(tenant, chat_id, message_id, delete).await? {
                    gone if gone.code == Some(Code::NotFound) => Ok(ActionResult::done()), // already deleted
                    result => Ok(result),
                }
            }
            Act::Typing { chat_id, content } => {
                self.set_typing(tenant, chat_id, content.as_deref() != Some(""));
                Ok(ActionResult::done())
            }
            Act::GetChatInfo { chat_id } => self.chat_info(tenant, chat_id).await,
            Act::FollowUp { content, .. } => self.follow_up(tenant, content, capability).await,
            Act::React { chat_id, message_id, emoji, remove } => {
                self.react(tenant, chat_id, message_id, emoji, *remove).await
            }
            Act::Prompt { chat_id, prompt_kind, prompt_id, content, options, reply_to, .. } => {
                let line = self.own_line(action, content, reply_to.as_ref());
                let line = with_prompt(line, prompt_kind, prompt_id, options);
                Ok(ActionResult::sent(self.append(tenant, chat_id, line).await?))
            }
            Act::SendMedia { chat_id, source_url, content, filename, reply_to, .. } => {
                let line = self.own_line(action, content.as_deref().unwrap_or_default(), reply_to.as_ref());
                self.send_media(tenant, chat_id, source_url, filename.clone(), line).await
            }
            Act::ThreadCreate { chat_id, thread_name, .. } => {
                let thread_id = format!("t{}", self.env.random_hex(8));
                let begin = |facts: &mut ChatFacts| {
                    let has_room = facts.threads.len() < THREADS_MAX;
                    if has_room {
                        facts.threads.insert(thread_id.clone(), thread_name.chars().take(THREAD_NAME_MAX).collect());
                    }
                    has_room
                };
                let facts = self.change_facts(tenant, chat_id, begin).await?;
                if !facts.threads.contains_key(&thread_id) {
                    let text = format!("this chat has {THREADS_MAX} threads already; use one of them");
                    return Ok(ActionResult::refused(Code::Conflict, text));
                }
                Ok(ActionResult { thread_id: Some(thread_id), ..ActionResult::done() })
            }
            // All threads here were created by `thread_create`, so `only_if_connector_created` needs no check.
            Act::ThreadRename { chat_id, message_id, thread_name, only_if_current_name, .. } => {
                self.rename_thread(tenant, chat_id, message_id, thread_name, only_if_current_name.as_deref()).await
            }
            Act::Draft { chat_id, draft_id, content, sealed } => {
                self.draft(tenant, chat_id, draft_id, content, *sealed, action).await
            }
        }
    }

    fn own_line(&self, action: &Action, content: &str, reply_to: Option<&MessageId>) -> Line {
        let mut line = self.new_line("out", content);
        line.shown.reply_to = reply_to.cloned();
        line.shown.thread_id = action.meta("thread_id").map(str::to_owned);
        line
    }

    /// Agents can change messages of agents, not messages of users.
    async fn amend_own(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        message_id: &MessageId,
        change: impl Fn(&mut Line) -> bool + Send + Sync,
    ) -> Result<ActionResult, StoreError> {
        let guarded = |line: &mut Line| line.shown.direction == "out" && !line.shown.deleted && change(line);
        let amended = self.amend(tenant, chat_id, message_id, guarded).await?;
        Ok(match amended {
            Some(line) if line.direction == "out" => ActionResult::sent(line.message_id),
            Some(_) => ActionResult::refused(Code::Forbidden, "this message was not sent by the bot"),
            None => ActionResult::refused(Code::NotFound, "the bot has no such message in this chat"),
        })
    }

    async fn chat_info(&self, tenant: &TenantId, chat_id: &ChatId) -> Result<ActionResult, StoreError> {
        let facts = self.facts(tenant, chat_id).await?;
        Ok(match facts {
            Some(facts) => ActionResult { chat_info: Some(facts.info(chat_id)), ..ActionResult::done() },
            None => ActionResult::egress_declined(PLATFORM),
        })
    }

    /// Checks the capability as an external platform would: against its own record, in constant time.
    async fn follow_up(
        &self,
        tenant: &TenantId,
        content: &str,
        capability: Option<&Secret>,
    ) -> Result<ActionResult, StoreError> {
        let Some((capability, (chat_id, message_id))) = capability.and_then(|it| Some((it, place_of(it)?))) else {
            return Ok(ActionResult::capability_unavailable());
        };
        let known = self.line(tenant, &chat_id, &message_id).await?.and_then(|line| line.interaction);
        let good = known.is_some_and(|known| {
            let hash = sha256_hex(capability.expose());
            known.expires_ms > self.env.now_ms() && same_bytes(hash.as_bytes(), known.hash.as_bytes())
        });
        if !good {
            return Ok(ActionResult::capability_unavailable());
        }
        let mut line = self.new_line("out", content);
        line.shown.kind = Some("follow_up".into());
        line.shown.reply_to = Some(message_id);
        Ok(ActionResult::sent(self.append(tenant, &chat_id, line).await?))
    }

    async fn react(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        message_id: &MessageId,
        emoji: &str,
        remove: bool,
    ) -> Result<ActionResult, StoreError> {
        if emoji.is_empty() || emoji.chars().count() > EMOJI_MAX_CHARS {
            let text = format!("a reaction must have 1 to {EMOJI_MAX_CHARS} characters");
            return Ok(ActionResult::refused(Code::BadRequest, text));
        }
        let reaction = Reaction { emoji: emoji.into(), by: super::BOT.into() };
        let change = |line: &mut Line| {
            let there = line.shown.reactions.contains(&reaction);
            match remove {
                true => line.shown.reactions.retain(|known| *known != reaction),
                false if !there && line.shown.reactions.len() < REACTIONS_MAX => {
                    line.shown.reactions.push(reaction.clone());
                }
                false => return false,
            }
            there == remove // otherwise the message already has the requested state
        };
        let found = self.amend(tenant, chat_id, message_id, change).await?;
        Ok(match (found, remove) {
            (Some(line), false) if !line.reactions.contains(&reaction) => {
                let text = format!("this message has {REACTIONS_MAX} reactions already; remove one first");
                ActionResult::refused(Code::Conflict, text)
            }
            (Some(_), _) | (None, true) => ActionResult::done(),
            (None, false) => ActionResult::refused(Code::NotFound, "message not found in this chat"),
        })
    }

    async fn send_media(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        source_url: &str,
        filename: Option<String>,
        mut line: Line,
    ) -> Result<ActionResult, StoreError> {
        let item = match frontdesk_core::media::id_in(&self.rules.base_url, source_url) {
            Some(id) => match self.media.media_item(tenant, id, self.env.now_ms()).await? {
                Some(item) => item,
                None => return Ok(ActionResult::refused(Code::NotFound, "file not found or expired")),
            },
            None => match self.fetch(tenant, source_url, filename.clone()).await? {
                Ok(item) => item,
                Err(refusal) => return Ok(refusal),
            },
        };
        let mut shown = self.shown_media(&item, None);
        if filename.is_some() {
            shown.filename = filename;
        }
        line.shown.media.push(shown);
        Ok(ActionResult::sent(self.append(tenant, chat_id, line).await?))
    }

    /// Fetches a public URL with the guarded client and stores the file like an upload.
    async fn fetch(
        &self,
        tenant: &TenantId,
        url: &str,
        filename: Option<String>,
    ) -> Result<Result<MediaItem, ActionResult>, StoreError> {
        let Some(_fetch) = self.fetches.begin(tenant).await else {
            let text = "too many files are being fetched for this tenant; nothing was sent, try again later";
            return Ok(Err(ActionResult::refused(Code::RateLimited, text)));
        };
        let there = self.media.media_total(tenant).await?;
        if let Some(text) = there.too_many(self.rules.media_tenant_files) {
            return Ok(Err(ActionResult::refused(Code::TooLarge, text)));
        }
        let file = match source_file::fetch(&*self.outcall, url, self.rules.media_max_bytes).await {
            Ok(file) => file,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut item = MediaItem {
            id: self.env.random_hex(16),
            tenant: tenant.clone(),
            mime: file.mime,
            filename,
            size: file.size.unwrap_or_default(),
            expires_ms: self.env.now_ms() + self.rules.media_ttl_ms,
        };
        let failed: Arc<OnceLock<std::io::Error>> = Arc::default();
        let note = failed.clone();
        let body = file.body.map_err(move |error| {
            let kind = error.kind();
            let _ = note.set(error); // the first error is the reason why the file was not stored
            kind.into()
        });
        let kept = self.media.media_put(item.clone(), Box::pin(body), self.rules.media_tenant_bytes).await?;
        Ok(match kept {
            MediaPut::Stored(size) => {
                item.size = size;
                Ok(item)
            }
            MediaPut::Aborted => Err(match failed.get() {
                Some(error) if error.kind() == ErrorKind::FileTooLarge => {
                    ActionResult::refused(Code::TooLarge, format!("source_url: {error}"))
                }
                Some(error) => ActionResult::refused(Code::PlatformFailed, format!("source_url: {error}")),
                None => ActionResult::refused(Code::PlatformFailed, "source_url: the response body was incomplete"),
            }),
            MediaPut::Full(used) => Err(ActionResult::refused(Code::TooLarge, self.full_text(used))),
        })
    }

    async fn rename_thread(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        thread_id: &str,
        name: &str,
        only_if: Option<&str>,
    ) -> Result<ActionResult, StoreError> {
        let name: String = name.chars().take(THREAD_NAME_MAX).collect();
        let fits = |current: &str| only_if.is_none_or(|expected| expected == current);
        let rename = |facts: &mut ChatFacts| match facts.threads.get_mut(thread_id) {
            Some(current) if fits(current) && *current != name => {
                current.clone_from(&name);
                true
            }
            _ => false,
        };
        let facts = self.change_facts(tenant, chat_id, rename).await?;
        Ok(match facts.threads.get(thread_id) {
            Some(current) if *current == name => ActionResult::done(),
            Some(_) => ActionResult::refused(Code::Conflict, "the current thread name differs from the expected one"),
            None => ActionResult::refused(Code::NotFound, "thread not found in this chat"),
        })
    }

    /// A preview is shown but not stored; the sealed draft is stored once.
    async fn draft(
        &self,
        tenant: &TenantId,
        chat_id: &ChatId,
        draft_id: &str,
        content: &str,
        sealed: bool,
        action: &Action,
    ) -> Result<ActionResult, StoreError> {
        let mut line = self.own_line(action, content, None);
        let (key, now_ms) = (short_hash(&[tenant, chat_id, draft_id]), self.env.now_ms());
        let mut draft = match self.drafts.get(&key, now_ms) {
            Some(draft) if !draft.seal.is_of_another(content, sealed, now_ms) => draft,
            Some(_) => ChatDraft::new(line.shown.message_id.clone()),
            None => {
                // The same at another server and after a restart, so that a repetition is not stored twice. But an agent that
                // starts again counts its drafts from the beginning.
                let message_id = MessageId::from(format!("d{}", hex::encode(short_hash(&[chat_id, draft_id]))));
                let is_other = |old: &Line| old.shown.at + AGAIN_MS <= now_ms || (sealed && old.shown.text != content);
                let old = self.line(tenant, chat_id, &message_id).await?;
                ChatDraft::new(if old.as_ref().is_some_and(is_other) {
                    line.shown.message_id.clone()
                } else {
                    message_id
                })
            }
        };
        let message_id = draft.message_id.clone();
        if draft.seal.is_closed() {
            return Ok(if sealed { ActionResult::sent(message_id) } else { ActionResult::done() });
        }
        line.shown.message_id.clone_from(&message_id);
        self.drafts.put(key, draft.clone(), now_ms);
        if !sealed {
            let seq = u64::MAX >> 11; // after every stored line, and exact as a JavaScript number
            let shown = ChatMessage { draft: true, seq, ..line.shown };
            self.signal(tenant, chat_id, Signal::Message(Box::new(shown)));
            return Ok(ActionResult::done());
        }
        self.append(tenant, chat_id, line).await?;
        draft.seal.close(content, now_ms);
        self.drafts.put(key, draft, now_ms);
        Ok(ActionResult::sent(message_id))
    }

    async fn remember_profile(&self, tenant: &TenantId, chat_id: &ChatId, profile: &str) -> Result<(), StoreError> {
        let remember = |facts: &mut ChatFacts| {
            facts.profile.as_deref() != Some(profile) && {
                facts.profile = Some(profile.into());
                true
            }
        };
        self.change_facts(tenant, chat_id, remember).await.map(drop)
    }
}

fn with_prompt(mut line: Line, kind: &str, prompt_id: &str, options: &[PromptOption]) -> Line {
    if options.len() > BUTTONS_MAX {
        for (number, option) in options.iter().enumerate() {
            line.shown.text.push_str(&format!("\n{}. {} (/{})", number + 1, option.label, option.id));
        }
        return line;
    }
    line.shown.prompt =
        Some(ChatPrompt { prompt_id: prompt_id.into(), kind: kind.into(), options: options.to_vec(), chosen: None });
    line
}

/// The chat and message for which this capability was issued.
fn place_of(capability: &Secret) -> Option<(ChatId, MessageId)> {
    let mut parts = capability.expose().strip_prefix("rit1.")?.split('.');
    let mut text = || String::from_utf8(hex::decode(parts.next()?).ok()?).ok();
    Some((text()?.into(), text()?.into()))
}

pub(super) fn failed(error: &StoreError) -> ActionResult {
    tracing::error!(%error, "chat store write failed");
    match error {
        // Repeating it could show the message twice.
        StoreError::Unknown(_) => {
            let text = "the chat store did not answer; the action may have been carried out; check the chat first";
            ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, text) }.worded()
        }
        _ => ActionResult::refused(Code::Unavailable, "the chat store is unavailable"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_whose_answer_was_lost_is_not_said_to_have_failed() {
        let lost = failed(&StoreError::Unknown("connection reset".into()));
        assert_eq!((lost.code, lost.ambiguous, lost.success), (Some(Code::Unknown), true, false));
        let text = lost.error.unwrap();
        assert!(text.contains("timed out") && !text.contains("network"), "a gateway must not send it again: {text}");
        let refused = failed(&StoreError::Unavailable("disk full".into()));
        assert_eq!((refused.code, refused.ambiguous), (Some(Code::Unavailable), false));
    }
}
