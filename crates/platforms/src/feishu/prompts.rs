//! Questions with buttons, as cards, and what was chosen. The buttons carry what the answered card shows, so that any server can
//! answer a press, also after a restart.

use frontdesk_wire::action::{PromptOption, prompt_token};
use frontdesk_wire::event::PromptResponse;
use frontdesk_wire::{ActionResult, Code};
use serde_json::{Value, json};

use super::account::is_id;
use super::text::{CONTENT_MAX_BYTES, one_message};
use super::value::{first, text_of};
use crate::shared::markdown::literal;

/// More options are shown as a menu, and above `MENU_MAX` as a numbered list.
const BUTTONS_MAX: usize = 20;
const MENU_MAX: usize = 100;
const LABEL_MAX_CHARS: usize = 80;
/// Characters of the question in all buttons together. Each button carries the question for the answered card.
const QUESTION_BUDGET: usize = 6_000;
const QUESTION_MAX_CHARS: usize = 2_000;
/// The field of a value that marks a button of ours.
const TOKEN: &str = "hp1";
/// Separates the token from the label in an option of a menu.
const BREAK: char = '\n';

/// A card with these elements. It can be changed later.
pub(super) fn card(elements: &[Value]) -> Value {
    json!({ "config": { "wide_screen_mode": true, "update_multi": true }, "elements": elements })
}

pub(super) fn text_element(markup: &str) -> Value {
    json!({ "tag": "markdown", "content": markup })
}

/// The card of a prompt. `thread` comes back with the press.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
pub(super) fn prompt(
    prompt_id: &str,
    content: &str,
    options: &[PromptOption],
    thread: Option<&str>,
) -> Result<Value, ActionResult> {
    for (at, option) in options.iter().enumerate() {
        if options[..at].iter().any(|other| other.id == option.id) {
            let text = format!("two options have the id {:?}, so that Feishu could not tell them apart", option.id);
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
    }
    let mut text = if content.trim().is_empty() { "?".to_owned() } else { content.to_owned() };
    if options.len() > MENU_MAX {
        for (number, option) in options.iter().enumerate() {
            text.push_str(&format!("\n{}. {} (/{})", number + 1, literal(label(option)), option.id));
        }
    }
    let too_long = || ActionResult::refused(Code::TooLarge, "the question is too long for a card with buttons");
    let shown = one_message(&text).ok_or_else(too_long)?.card;
    let buttons = options.len().clamp(1, BUTTONS_MAX);
    let question = cut(&shown, (QUESTION_BUDGET / buttons).min(QUESTION_MAX_CHARS));
    let value = |token: &str, label: &str| json!({ TOKEN: token, "label": label, "question": question, "thread": thread.unwrap_or_default() });
    let mut elements = vec![text_element(&shown)];
    if options.len() <= BUTTONS_MAX {
        let button = |option: &PromptOption| {
            let label = cut(label(option), LABEL_MAX_CHARS);
            let kind = match option.style.as_deref() {
                Some("primary" | "success") => "primary",
                Some("danger") => "danger",
                _ => "default",
            };
            let value = value(&prompt_token(prompt_id, &option.id), &label);
            json!({ "tag": "button", "text": plain(&label), "type": kind, "value": value })
        };
        let buttons: Vec<Value> = options.iter().map(button).collect();
        elements.push(json!({ "tag": "action", "layout": "flow", "actions": buttons }));
    } else if options.len() <= MENU_MAX {
        let choice = |option: &PromptOption| {
            let label = cut(label(option), LABEL_MAX_CHARS);
            let token = prompt_token(prompt_id, &option.id);
            json!({ "text": plain(&label), "value": format!("{token}{BREAK}{label}") })
        };
        let choices: Vec<Value> = options.iter().map(choice).collect();
        let menu = json!({
            "tag": "select_static", "placeholder": plain("Choose"), "options": choices, "value": value("", ""),
        });
        elements.push(json!({ "tag": "action", "actions": [menu] }));
    }
    let mut card = card(&elements);
    // A copy in another chat would have the same buttons.
    card["config"]["enable_forward"] = false.into();
    if card.to_string().len() > CONTENT_MAX_BYTES { Err(too_long()) } else { Ok(card) }
}

fn label(option: &PromptOption) -> &str {
    if option.label.trim().is_empty() { &option.id } else { &option.label }
}

fn plain(text: &str) -> Value {
    json!({ "tag": "plain_text", "content": text })
}

fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(max.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// An option that a user chose.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pressed {
    pub(super) prompt_id: String,
    pub(super) option_id: String,
    pub(super) label: Option<String>,
    pub(super) question: String,
    pub(super) thread: Option<String>,
    /// Distinguishes presses.
    pub(super) token: String,
    pub(super) chat_id: String,
    pub(super) message_id: String,
}

/// `None`: the element is of no prompt.
pub(super) fn pressed(event: &Value) -> Option<Pressed> {
    let (action, context) = (&event["action"], &event["context"]);
    let value = &action["value"];
    let chosen = first([text_of(action, "option"), text_of(value, TOKEN)]);
    let (token, label) = chosen.split_once(BREAK).unwrap_or((chosen, text_of(value, "label")));
    let (prompt_id, option_id) = token.strip_prefix("hp1:")?.rsplit_once(':')?;
    let some = |text: &str, max: usize| Some(cut(text, max)).filter(|text| !text.is_empty());
    Some(Pressed {
        prompt_id: prompt_id.to_owned(),
        option_id: option_id.to_owned(),
        label: some(label, LABEL_MAX_CHARS),
        question: cut(text_of(value, "question"), QUESTION_MAX_CHARS),
        thread: Some(text_of(value, "thread")).filter(|thread| is_id(thread)).map(str::to_owned),
        token: cut(text_of(event, "token"), 200),
        chat_id: text_of(context, "open_chat_id").to_owned(),
        message_id: text_of(context, "open_message_id").to_owned(),
    })
}

impl Pressed {
    pub(super) fn response(&self) -> PromptResponse {
        PromptResponse {
            prompt_id: self.prompt_id.clone(),
            option_id: self.option_id.clone(),
            label: self.label.clone(),
            prompt_message_id: Some(self.message_id.as_str().into()),
        }
    }
}

/// The prompt without its buttons, with the choice and its author.
pub(super) fn answered_card(press: &Pressed, open_id: &str, name: Option<&str>) -> Value {
    let label = press.label.as_deref().unwrap_or(&press.option_id);
    let who = match name {
        Some(name) => one_message(&literal(name)).map_or_else(|| "?".to_owned(), |shown| shown.card),
        None if open_id.is_empty() => "?".to_owned(),
        None => format!("<at id={open_id}></at>"),
    };
    let chosen = one_message(&literal(label)).map_or_else(|| press.option_id.clone(), |shown| shown.card);
    let mut elements = Vec::new();
    if !press.question.trim().is_empty() {
        elements.push(text_element(&press.question));
    }
    elements.push(text_element(&format!("{who}: {chosen}")));
    json!({ "toast": { "type": "success", "content": label }, "card": { "type": "raw", "data": card(&elements) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(count: usize) -> Vec<PromptOption> {
        let one = |at: usize| PromptOption { id: format!("o{at}"), label: format!("Option {at}"), style: None };
        (0..count).map(one).collect()
    }

    fn press(action: &Value) -> Value {
        let context = json!({ "open_message_id": "om_1", "open_chat_id": "oc_1" });
        json!({ "action": action, "context": context, "token": "c-1", "operator": { "open_id": "ou_1" } })
    }

    #[test]
    fn few_options_are_buttons_more_a_menu_and_many_a_list() {
        for (count, kind) in [(1, "button"), (20, "button"), (21, "select_static"), (100, "select_static")] {
            let card = prompt("p1", "**Which?**", &options(count), None).unwrap();
            assert_eq!(card["elements"][0]["content"], "**Which?**");
            assert_eq!(card["elements"][1]["actions"][0]["tag"], kind);
            let config = json!({ "wide_screen_mode": true, "update_multi": true, "enable_forward": false });
            assert_eq!(card["config"], config, "it can be changed later, and stays in its chat");
        }
        let card = prompt("p1", "Which?", &options(101), None).unwrap();
        assert!(card["elements"][0]["content"].as_str().unwrap().contains("101. Option 100 (/o100)"), "{card}");
        assert!(card["elements"].get(1).is_none());
        let twice = [options(1), options(1)].concat();
        assert!(prompt("p", "x", &twice, None).unwrap_err().error.unwrap().contains("\"o0\""));
        let long = "word ".repeat(1_500);
        assert!(prompt("p", &long, &options(20), None).is_ok());
        assert_eq!(prompt("p", &"word ".repeat(4_000), &options(1), None).unwrap_err().code, Some(Code::TooLarge));
    }

    #[test]
    fn a_press_names_prompt_option_and_question() {
        let card = prompt("p:1", "Sure?", &options(2), Some("omt_1")).unwrap();
        let button = &card["elements"][1]["actions"][1];
        let found = pressed(&press(&json!({ "tag": "button", "value": button["value"] }))).unwrap();
        assert_eq!(
            (found.prompt_id.as_str(), found.option_id.as_str(), found.label.as_deref()),
            ("p:1", "o1", Some("Option 1"))
        );
        assert_eq!((found.question.as_str(), found.thread.as_deref()), ("Sure?", Some("omt_1")));
        let menu = prompt("p", "Sure?", &options(30), None).unwrap()["elements"][1]["actions"][0].clone();
        let chosen = json!({ "tag": "select_static", "option": menu["options"][29]["value"], "value": menu["value"] });
        let found = pressed(&press(&chosen)).unwrap();
        assert_eq!((found.option_id.as_str(), found.label.as_deref(), found.thread), ("o29", Some("Option 29"), None));
        for other in [json!({ "value": "other" }), json!({ "value": { "hp1": "hp1:x" } }), json!({}), json!(5)] {
            assert_eq!(pressed(&press(&other)), None);
        }
    }

    #[test]
    fn an_answered_prompt_shows_who_chose_what() {
        let pressed = Pressed { label: Some("Yes *really*".into()), question: "Sure?".into(), ..Pressed::default() };
        let shown = answered_card(&pressed, "ou_1", None);
        assert_eq!(shown["toast"], json!({ "type": "success", "content": "Yes *really*" }));
        let elements = &shown["card"]["data"]["elements"];
        assert_eq!(elements[0]["content"], "Sure?");
        let line = elements[1]["content"].as_str().unwrap();
        assert!(line.starts_with("<at id=ou_1></at>: Yes ") && !line.contains("*really*"), "{line}");
        assert!(
            answered_card(&pressed, "", Some("<at id=all></at>")).to_string().contains("<\\u200b")
                || !answered_card(&pressed, "", Some("<at id=all></at>")).to_string().contains("<at")
        );
    }
}
