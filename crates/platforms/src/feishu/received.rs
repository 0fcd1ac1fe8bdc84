//! What a request or a frame of the socket brings, before anything of it is stored.

use frontdesk_core::DeskError;
use frontdesk_core::intake::{Intake, Receipt};
use frontdesk_core::port::platform::{Change, DoorAnswer, ReceivedRequest, Reply};
use serde_json::{Value, json};

use crate::shared::refusal as shared;

const NOT_LINKED: &str = "No agent gets this: you are not linked to one here. Whoever runs this bot can give you a code; \
                          send it with /link in a direct message to the bot.";
const TOAST_MAX_CHARS: usize = 300;

/// Makes the answer from the receipts of the events.
pub(super) type AnswerMaker = Box<dyn FnOnce(&[Receipt]) -> Value + Send>;

#[derive(Default)]
pub(super) struct Received {
    pub(super) intakes: Vec<Intake>,
    pub(super) changes: Vec<Change>,
    pub(super) answer: Answering,
}

/// The answer to Feishu.
#[derive(Default)]
pub(super) enum Answering {
    #[default]
    Nothing,
    Fixed(Value),
    /// Shown to the user who pressed a button. Feishu does not repeat a press.
    ToPress(AnswerMaker),
}

impl Received {
    pub(super) fn answer(answer: Value) -> Self {
        Self { answer: Answering::Fixed(answer), ..Self::default() }
    }

    pub(super) fn into_request(self) -> ReceivedRequest {
        let is_press = matches!(self.answer, Answering::ToPress(_));
        let answer = match self.answer {
            Answering::Nothing => DoorAnswer::Fixed(Reply::json(200, &json!({}))),
            Answering::Fixed(value) => DoorAnswer::Fixed(Reply::json(200, &value)),
            Answering::ToPress(make) => {
                DoorAnswer::FromReceipts(Box::new(move |receipts| Reply::json(200, &make(receipts)))) //
            }
        };
        let mut request = ReceivedRequest::events(self.intakes, answer);
        request.changes = self.changes;
        if is_press {
            request.if_not_stored = Some(Box::new(|error: &DeskError| Reply::json(200, &not_stored(error))));
        }
        request
    }
}

/// The text for a person whose press no agent gets. `None`: one gets it.
pub(super) fn refusal(receipt: Option<&Receipt>) -> Option<String> {
    shared::refusal(receipt, NOT_LINKED)
}

pub(super) fn not_stored(error: &DeskError) -> Value {
    toast("error", &shared::not_stored(error))
}

/// A note that only the user sees who pressed.
pub(super) fn toast(kind: &str, text: &str) -> Value {
    let text: String = text.chars().take(TOAST_MAX_CHARS).collect();
    json!({ "toast": { "type": kind, "content": text } })
}
