//! Commands, buttons, menus and forms. Slack waits three seconds and does not retry, so nothing is looked up here.

use frontdesk_core::intake::{Intake, RawCapability, Receipt, Verified};
use frontdesk_core::port::platform::{Afterwards, Bot};
use frontdesk_wire::{MessageEvent, Source};
use serde_json::{Value, json};

use super::account::{is_id, is_ts};
use super::normalize::{Me, Scene, intake, source};
use super::prompts::{Pressed, pressed};
use super::received::{Answering, Received, ResponseUrl, only_for_them, refusal};
use super::rich::text_of;
use super::{CAPABILITY_KIND, Slack};

/// Answers to a command are taken for 30 minutes.
const RESPONSE_URL_MS: u64 = 1_800_000;
const NO_FORMS: &str = "Forms are not supported here. Please answer in the chat.";

/// A command that was typed behind a slash. All values are texts.
pub(super) struct SlashCommand {
    pub(super) team: String,
    pub(super) channel: String,
    pub(super) channel_name: String,
    pub(super) user: String,
    pub(super) user_name: String,
    pub(super) command: String,
    pub(super) text: String,
    pub(super) response_url: String,
    pub(super) trigger_id: String,
}

impl SlashCommand {
    /// `of` is the value of a field.
    pub(super) fn read(of: impl Fn(&str) -> Option<String>) -> Self {
        let of = |name| of(name).unwrap_or_default();
        Self {
            team: of("team_id"),
            channel: of("channel_id"),
            channel_name: of("channel_name"),
            user: of("user_id"),
            user_name: of("user_name"),
            command: of("command"),
            text: of("text"),
            response_url: of("response_url"),
            trigger_id: of("trigger_id"),
        }
    }
}

/// What kind of chat it is, by the name that commands and buttons carry.
fn channel_type(channel: &str, name: &str) -> &'static str {
    match name {
        "directmessage" => "im",
        name if name.starts_with("mpdm-") => "mpim",
        _ if channel.starts_with('D') => "im",
        _ => "channel",
    }
}

impl Slack {
    pub(super) fn command(&self, bot: &Bot, proof: Verified, given: &SlashCommand) -> Received {
        if !is_id(&given.channel) || !is_id(&given.user) || !given.command.starts_with('/') {
            return Received::answer(only_for_them("Nothing was done: the command has no user, channel or name."));
        }
        let scene = Scene { bot, team: &given.team, app_id: "", me: &Me::default() };
        let kind = channel_type(&given.channel, &given.channel_name);
        let id = format!("command-{}", hash(&[&given.trigger_id, &given.user, &given.command, &given.text]));
        let mut source = source(&scene, &given.channel, kind, &given.user);
        source.user_name = Some(given.user_name.clone()).filter(|name| !name.is_empty());
        source.message_id = Some(id.as_str().into());
        let event = MessageEvent {
            text: format!("{} {}", given.command.trim(), given.text.trim()).trim().to_owned(),
            message_type: "command".into(),
            source,
            message_id: Some(id.into()),
            ..MessageEvent::default()
        };
        let mut intake = intake(&scene, proof, event);
        (intake.addressed, intake.is_interaction) = (true, true);
        if ResponseUrl::of(bot, &given.response_url).is_some() {
            intake.capabilities.push(RawCapability {
                kind: CAPABILITY_KIND.into(),
                value: frontdesk_wire::Secret::new(given.response_url.as_str()),
                ttl_ms: RESPONSE_URL_MS,
                is_awaited: true,
            });
        }
        self.note_place(bot, &given.channel, &given.team);
        Received { intakes: vec![intake], answer: Answering::ToCommand, ..Received::default() }
    }

    /// A button, a menu, a form, or a shortcut.
    pub(super) fn interaction(&self, bot: &Bot, proof: Verified, payload: &Value) -> Received {
        let response_url = ResponseUrl::of(bot, text_of(payload, "response_url"));
        match text_of(payload, "type") {
            "block_actions" => match pressed(payload) {
                Some(press) => self.press(bot, proof, payload, press, response_url),
                None => self.reply_to_user(response_url, "This button no longer works. Ask the agent again."),
            },
            "view_submission" => {
                let view = json!({
                    "type": "modal",
                    "title": { "type": "plain_text", "text": "Not supported" },
                    "blocks": [{ "type": "section", "text": { "type": "plain_text", "text": NO_FORMS } }],
                });
                Received::answer(json!({ "response_action": "update", "view": view }))
            }
            "block_suggestion" => Received::answer(json!({ "options": [] })),
            "message_action" | "interactive_message" | "dialog_submission" => {
                self.reply_to_user(response_url, NO_FORMS)
            }
            _ => Received::default(), // a form that was closed, a shortcut without a chat: no answer is needed
        }
    }

    fn press(
        &self,
        bot: &Bot,
        proof: Verified,
        payload: &Value,
        press: Pressed,
        response_url: Option<ResponseUrl>,
    ) -> Received {
        let user = &payload["user"];
        let user_id = text_of(user, "id").to_owned();
        if !is_id(&press.chat_id) || !is_id(&user_id) || !is_ts(&press.message_ts) {
            let text = "Nothing was done: the button press has no user, chat or message. Press it again.";
            return self.reply_to_user(response_url, text);
        }
        let intake = press_event(bot, proof, payload, &press, user_id.clone());
        self.note_place(bot, &press.chat_id, text_of(&payload["team"], "id"));
        let (shown, outcall) = (press.shown(&payload["message"], &user_id), self.outcall.clone());
        let afterwards: Afterwards = Box::new(move |receipts: &[Receipt]| {
            let body = refusal(receipts.first()).map_or(shown, |text| only_for_them(&text));
            Box::pin(async move {
                if let Some(url) = response_url {
                    url.post_or_log(outcall, body).await;
                }
            })
        });
        Received { intakes: vec![intake], afterwards: Some(afterwards), ..Received::default() }
    }

    /// Slack shows an answer to a button only if it is posted separately.
    fn reply_to_user(&self, response_url: Option<ResponseUrl>, text: &str) -> Received {
        let (outcall, body) = (self.outcall.clone(), only_for_them(text));
        let afterwards = response_url.map(|url| -> Afterwards {
            Box::new(move |_: &[Receipt]| Box::pin(url.post_or_log(outcall, body))) //
        });
        Received { afterwards, ..Received::default() }
    }
}

/// The author is the person who pressed.
fn press_event(bot: &Bot, proof: Verified, payload: &Value, press: &Pressed, user_id: String) -> Intake {
    let team = [text_of(&payload["team"], "id"), text_of(&payload["user"], "team_id")];
    let team = team.into_iter().find(|id| is_id(id)).unwrap_or_default();
    let scene = Scene { bot, team, app_id: "", me: &Me::default() };
    let kind = channel_type(&press.chat_id, text_of(&payload["channel"], "name"));
    let (container, message) = (&payload["container"], &payload["message"]);
    let threads = [text_of(container, "thread_ts"), text_of(message, "thread_ts")];
    let thread = threads.into_iter().find(|ts| is_ts(ts)).filter(|ts| *ts != press.message_ts);
    let names = [text_of(&payload["user"], "username"), text_of(&payload["user"], "name")];
    let base = source(&scene, &press.chat_id, kind, &user_id);
    let source = Source {
        user_name: names.into_iter().find(|name| !name.is_empty()).map(str::to_owned),
        thread_id: thread.map(str::to_owned),
        message_id: Some(press.message_ts.as_str().into()),
        ..base
    };
    let event = MessageEvent {
        text: format!("/{}", press.option_id),
        message_type: "command".into(),
        source,
        message_id: Some(format!("press-{}", hash(&[&press.message_ts, &user_id, &press.action_ts])).into()),
        reply_to_message_id: Some(press.message_ts.as_str().into()),
        prompt_response: Some(press.response()),
        ..MessageEvent::default()
    };
    let mut intake = intake(&scene, proof, event);
    (intake.addressed, intake.is_interaction) = (true, true);
    intake.press_of = Some(press.message_ts.as_str().into());
    intake
}

fn hash(parts: &[&str]) -> String {
    hex::encode(frontdesk_core::short_hash(parts))
}
