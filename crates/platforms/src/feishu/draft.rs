//! A text that grows while the agent writes it: a card that is changed. A text of the agent that completes it becomes the card;
//! any other message takes the place of the card.

use std::sync::Arc;

use frontdesk_core::port::outcall::HttpMethod;
use frontdesk_core::port::platform::{Acted, Bot};
use frontdesk_core::short_hash;
use frontdesk_wire::{ActionResult, BotId, Code, MessageId};
use tokio::sync::Mutex;

use super::act::patch_card;
use super::prompts::{card, text_element};
use super::send::{Sending, partial};
use super::text::{Outgoing, is_blank, not_one_message, one_message, parts};
use crate::shared::bounded_cache::BoundedCache;
use crate::shared::draft::{Seal, completes};

/// Bot, tenant, chat and thread.
type DraftChat = (String, String, String, String);
/// Chat, and the hash of the id of the draft, which may be long.
type DraftKey = (DraftChat, [u8; 16]);
/// Locked, so that the frames of one draft are handled one after another.
type Draft = Arc<Mutex<DraftState>>;

const CARDS_MAX: usize = 20_000;
const DRAFTS_MAX: usize = 1_000;

const MAY_BE_SENT: &str =
    "it is not known whether the card of this draft was sent, so no second card is created; send the final text";

#[derive(Default)]
struct DraftState {
    message_id: Option<MessageId>,
    /// What the card shows.
    shown: String,
    seal: Seal,
    /// It is unknown whether the card was sent. Sending another one could show the draft twice.
    may_be_sent: bool,
}

fn place_of(sending: &Sending<'_>) -> DraftChat {
    let (acting_as, place) = (sending.acting_as, sending.place);
    let thread = place.thread.unwrap_or_default().to_owned();
    (acting_as.bot.id.to_string(), acting_as.tenant.to_string(), place.chat_id.to_owned(), thread)
}

/// Messages that are cards, and those of them that are drafts.
pub(super) struct Cards {
    /// By bot and message id: cards are edited by another API call than texts.
    known: BoundedCache<(BotId, String), ()>,
    drafts: BoundedCache<DraftKey, Draft>,
    /// The latest draft of a place that is not sealed.
    open: BoundedCache<DraftChat, Draft>,
}

impl Cards {
    pub(super) fn new() -> Self {
        let hour_ms = 3_600_000;
        Self {
            known: BoundedCache::new(CARDS_MAX, 24 * hour_ms),
            drafts: BoundedCache::new(DRAFTS_MAX, hour_ms),
            open: BoundedCache::new(DRAFTS_MAX, hour_ms),
        }
    }

    pub(super) fn note(&self, bot: &Bot, id: Option<&str>, now_ms: u64) {
        if let Some(id) = id {
            self.known.put((bot.id.clone(), id.to_owned()), (), now_ms);
        }
    }

    pub(super) fn has(&self, bot: &Bot, id: &str, now_ms: u64) -> bool {
        self.known.get(&(bot.id.clone(), id.to_owned()), now_ms).is_some()
    }

    pub(super) async fn draft(
        &self,
        sending: &Sending<'_>,
        draft_id: &str,
        content: &str,
        sealed: bool,
    ) -> Result<Acted, ActionResult> {
        let (place, now_ms) = (place_of(sending), sending.feishu.env.steady_ms());
        let draft = self.drafts.get_or_put((place.clone(), short_hash(&[draft_id])), now_ms, Draft::default);
        let mut state = draft.lock().await;
        if state.seal.is_of_another(content, sealed, now_ms) {
            *state = DraftState::default();
        }
        if state.seal.is_closed() {
            // The final text is there; a frame that comes late changes nothing.
            return Ok(ActionResult { message_id: state.message_id.clone(), ..ActionResult::done() }.into());
        }
        if is_blank(content) && state.message_id.is_none() {
            return if sealed { Err(not_one_message(content)) } else { Ok(ActionResult::done().into()) };
        }
        let texts = parts(content);
        let first = texts.first().map_or("", String::as_str);
        let first = one_message(first).ok_or_else(|| not_one_message(first))?;
        self.open.put(place.clone(), draft.clone(), now_ms);
        let acted = match (state.may_be_sent, sealed) {
            (false, _) => self.show(sending, &mut state, &first).await,
            (true, false) => return Err(ActionResult::refused(Code::Unavailable, MAY_BE_SENT)),
            // The final text is a message of its own.
            (true, true) => {
                let acted = Sending::acted(sending.post_text(&first, None).await);
                state.message_id.clone_from(&acted.result.message_id);
                acted
            }
        };
        if !sealed || !acted.result.success {
            return Ok(acted);
        }
        state.seal.close(content, now_ms);
        self.open.forget(&place);
        let message_id = state.message_id.clone();
        for (index, text) in texts.iter().enumerate().skip(1) {
            let Some(out) = one_message(text) else { continue };
            let more = Sending::acted(sending.post_text(&out, None).await);
            if !more.result.success {
                let what = format!("{index} of {} parts went out", texts.len());
                return Ok(partial(more, message_id.as_deref(), &what));
            }
        }
        Ok(ActionResult { message_id, ..ActionResult::done() }.into())
    }

    /// Makes the card, or changes it.
    async fn show(&self, sending: &Sending<'_>, state: &mut DraftState, out: &Outgoing) -> Acted {
        if let Some(id) = state.message_id.clone() {
            if state.shown == out.card {
                return ActionResult::sent(id).into();
            }
            return match patch_card(sending.api, &id, &out.card).await {
                Ok(_) => {
                    state.shown.clone_from(&out.card);
                    ActionResult::sent(id).into()
                }
                Err(error) => error.into(),
            };
        }
        let content = card(&[text_element(&out.card)]).to_string();
        state.may_be_sent = true; // also if the caller is gone when the action ends
        let acted = Sending::acted(sending.post("interactive", &content, None).await);
        state.may_be_sent = acted.result.ambiguous;
        if acted.result.success {
            state.message_id.clone_from(&acted.result.message_id);
            state.shown.clone_from(&out.card);
            self.note(sending.api.bot, state.message_id.as_deref(), sending.feishu.env.steady_ms());
        }
        acted
    }

    /// The text of a message, put into the card of the draft that it completes. `None`: there is no such draft, or Feishu does
    /// not change the card.
    pub(super) async fn complete(&self, sending: &Sending<'_>, content: &str, out: &Outgoing) -> Option<Acted> {
        let (place, now_ms) = (place_of(sending), sending.feishu.env.steady_ms());
        let draft = self.open.get(&place, now_ms)?;
        let mut state = draft.lock().await;
        let id = state.message_id.clone().filter(|_| !state.seal.is_closed() && completes(&state.shown, &out.card))?;
        let changed = patch_card(sending.api, &id, &out.card).await;
        match changed {
            Ok(_) => {
                state.seal.close(content, now_ms);
                self.open.forget(&place);
                Some(ActionResult::sent(id).into())
            }
            Err(super::failure::ApiError::Refused { .. }) => None,
            // The card may show the final text already, so no message is sent instead. A rate limit is retried.
            Err(error) => Some(error.into()),
        }
    }

    /// Takes away the card of a draft that another message has overtaken. A later frame makes a new one.
    pub(super) async fn take_away(&self, sending: &Sending<'_>) {
        let place = place_of(sending);
        let Some(draft) = self.open.get(&place, sending.feishu.env.steady_ms()) else { return };
        self.open.forget(&place);
        let mut state = draft.lock().await;
        if state.seal.is_closed() {
            return;
        }
        let Some(id) = state.message_id.take() else { return };
        state.shown.clear();
        let path = format!("/open-apis/im/v1/messages/{id}");
        if let Err(error) = sending.api.call(HttpMethod::Delete, &path, None).await {
            tracing::debug!(error = error.text(), "removing the card of a draft failed");
        }
    }
}
