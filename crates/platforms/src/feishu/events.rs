//! Events, however they came: messages, reactions, buttons, and changes of chats.

use frontdesk_core::intake::{Intake, Receipt, Verified};
use frontdesk_core::port::platform::{Bot, Change};
use frontdesk_wire::{MessageEvent, Source};
use serde_json::Value;

use super::Feishu;
use super::account::{app_id, is_id, is_message};
use super::normalize::{Person, Said, changes, message, source};
use super::prompts::{Pressed, answered_card, pressed};
use super::received::{Answering, Received, refusal, toast};
use super::value::text_of;

/// The event of a button or a menu.
pub(super) const PRESS: &str = "card.action.trigger";
/// The author of a message this recent sees its chat.
const JUST_WRITTEN_MS: u64 = 60_000;

/// Events of another app are not for this bot, even with a valid signature.
pub(super) fn check_app(bot: &Bot, payload: &Value) -> Result<(), String> {
    match text_of(&payload["header"], "app_id") {
        id if id == app_id(bot) => Ok(()),
        id => Err(format!("the event is of the app {id:?}, and the bot is {:?}", app_id(bot))),
    }
}

impl Feishu {
    /// One event of schema 2.0. `Err`: Feishu should send it again.
    pub(super) async fn events(
        &self,
        bot: &Bot,
        proof: Verified,
        payload: &Value,
        now_ms: u64,
    ) -> Result<Received, String> {
        let (header, event) = (&payload["header"], &payload["event"]);
        let (kind, event_id) = (text_of(header, "event_type"), text_of(header, "event_id"));
        let home = text_of(header, "tenant_key");
        match kind {
            "im.message.receive_v1" => self.said(bot, proof, event, home, now_ms).await,
            "im.message.reaction.created_v1" => self.reacted(bot, proof, event, event_id, "added").await,
            "im.message.reaction.deleted_v1" => self.reacted(bot, proof, event, event_id, "removed").await,
            PRESS => Ok(self.press(bot, proof, event, home, event_id).await),
            kind => Ok(self.changed(bot, kind, event, home)),
        }
    }

    async fn said(
        &self,
        bot: &Bot,
        proof: Verified,
        event: &Value,
        home: &str,
        now_ms: u64,
    ) -> Result<Received, String> {
        let said = Said::of(event, home);
        let facts = self.facts(bot, &said).await?;
        self.note(bot, &said);
        let Some(mut intake) = message(bot, proof, &said, &facts) else { return Ok(Received::default()) };
        let written_ms = text_of(said.message, "create_time").parse::<u64>().ok();
        intake.author_sees = written_ms.is_some_and(|at| at.abs_diff(now_ms) < JUST_WRITTEN_MS);
        Ok(Received { intakes: vec![intake], ..Received::default() })
    }

    /// Whose a direct chat is, and where a topic can be answered.
    fn note(&self, bot: &Bot, said: &Said<'_>) {
        let now_ms = self.env.steady_ms();
        if said.is_direct && !said.is_bot && is_id(said.chat_id) {
            let ids = said.sender.ids().map(str::to_owned).collect();
            self.persons.put((bot.id.clone(), said.chat_id.to_owned()), ids, now_ms);
        }
        for id in said.thread.into_iter().chain([said.message_id]).filter(|_| is_id(said.chat_id)) {
            self.places.put((bot.id.clone(), id.to_owned()), said.chat_id.to_owned(), now_ms);
        }
        if let Some(thread) = said.thread.filter(|_| is_message(said.message_id)) {
            self.anchors.put((bot.id.clone(), thread.to_owned()), said.message_id.to_owned(), now_ms);
        }
    }

    /// A reaction to a message of the bot is passed on as a text, as the gateway's own adapter does it.
    async fn reacted(
        &self,
        bot: &Bot,
        proof: Verified,
        event: &Value,
        event_id: &str,
        action: &str,
    ) -> Result<Received, String> {
        let (message_id, operator) = (text_of(event, "message_id"), text_of(event, "operator_type"));
        let person = Person::of(&event["user_id"]);
        if !is_message(message_id) || matches!(operator, "bot" | "app") || person.id().is_empty() {
            return Ok(Received::default());
        }
        let asked = tokio::time::timeout(super::people::ASK_LIMIT, self.message(bot, message_id)).await;
        let on = match asked {
            Ok(Ok(on)) => on,
            Ok(Err(super::failure::ApiError::Refused { .. })) => None,
            Ok(Err(error)) => return Err(format!("reading the message of a reaction failed: {}", error.text())),
            Err(_) => return Err("reading the message of a reaction failed: Feishu did not answer in time".to_owned()),
        };
        let Some(on) = on.filter(|on| on.is_own && is_id(&on.chat_id)) else { return Ok(Received::default()) };
        let (chat, name) = tokio::join!(self.chat_in_time(bot, &on.chat_id), self.name_of(bot, &person));
        let is_direct = self.is_direct(bot, &on.chat_id, chat.as_ref());
        let emoji = super::value::first([text_of(&event["reaction_type"], "emoji_type"), "UNKNOWN"]);
        let mut source = source(&on.chat_id, is_direct, chat.as_ref(), &person);
        source.user_name = name;
        source.message_id = Some(message_id.into());
        let event = MessageEvent {
            text: format!("reaction:{action}:{emoji}"),
            message_type: "text".into(),
            source,
            message_id: Some(message_id.into()),
            ..MessageEvent::default()
        };
        let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
        intake.mark = event_id.chars().take(128).collect(); // one message may have many reactions
        intake.addressed = true;
        Ok(Received { intakes: vec![intake], ..Received::default() })
    }

    pub(super) fn is_direct(&self, bot: &Bot, chat_id: &str, chat: Option<&super::normalize::Chat>) -> bool {
        let is_known = self.persons.get(&(bot.id.clone(), chat_id.to_owned()), self.env.steady_ms()).is_some();
        is_known || chat.is_some_and(|chat| chat.is_direct)
    }

    /// A button or a menu. Feishu waits three seconds and does not retry.
    async fn press(&self, bot: &Bot, proof: Verified, event: &Value, home: &str, event_id: &str) -> Received {
        let Some(press) = pressed(event) else {
            return Received::answer(toast("info", "This button no longer works. Ask the agent again."));
        };
        let operator = &event["operator"];
        let person = Person::of(operator).within(text_of(operator, "tenant_key"), home);
        if !is_id(&press.chat_id) || !is_message(&press.message_id) || person.id().is_empty() {
            let text = "Nothing was done: the button press has no user, chat or message. Press it again.";
            return Received::answer(toast("error", text));
        }
        let (chat, name) = tokio::join!(self.chat_in_time(bot, &press.chat_id), self.name_of(bot, &person));
        let is_direct = self.is_direct(bot, &press.chat_id, chat.as_ref());
        let mut source = source(&press.chat_id, is_direct, chat.as_ref(), &person);
        source.user_name.clone_from(&name);
        let intake = press_event(bot, proof, &press, source, event_id);
        let shown = answered_card(&press, person.open_id, name.as_deref());
        let answer =
            Box::new(move |receipts: &[Receipt]| refusal(receipts.first()).map_or(shown, |text| toast("error", &text)));
        Received { intakes: vec![intake], answer: Answering::ToPress(answer), ..Received::default() }
    }

    fn changed(&self, bot: &Bot, kind: &str, event: &Value, home: &str) -> Received {
        let changes = changes(kind, event, home);
        for change in &changes {
            match change {
                Change::Chat(chat_id) => self.forget_chat(bot, chat_id),
                Change::Person(user_id) => self.forget_name(bot, user_id),
                _ => {}
            }
        }
        Received { changes, ..Received::default() }
    }
}

/// The author is the person who pressed.
fn press_event(bot: &Bot, proof: Verified, press: &Pressed, mut source: Source, event_id: &str) -> Intake {
    let user = source.user_id.clone().unwrap_or_default();
    let id = hex::encode(frontdesk_core::short_hash(&[&press.message_id, &user, &press.token, event_id]));
    source.message_id = Some(press.message_id.as_str().into());
    source.thread_id.clone_from(&press.thread);
    let event = MessageEvent {
        text: format!("/{}", press.option_id),
        message_type: "command".into(),
        source,
        message_id: Some(format!("press-{id}").into()),
        reply_to_message_id: Some(press.message_id.as_str().into()),
        prompt_response: Some(press.response()),
        ..MessageEvent::default()
    };
    let mut intake = Intake::new(proof, bot.tenant_source(), bot.id.clone(), event);
    (intake.addressed, intake.is_interaction) = (true, true);
    intake.press_of = Some(press.message_id.as_str().into());
    intake
}
