//! Prompts of agents as buttons or menus, and presses on them.

use std::collections::HashSet;

use frontdesk_wire::action::{PromptOption, prompt_token};
use frontdesk_wire::event::PromptResponse;
use frontdesk_wire::{ActionResult, Code};
use serde_json::{Value, json};

use super::text::MESSAGE_MAX;
use crate::shared::markdown::literal;

/// Rows of one message, and what each can have.
const ROWS_MAX: usize = 5;
const ROW_BUTTONS: usize = 5;
const BUTTONS_MAX: usize = ROWS_MAX * ROW_BUTTONS;
const MENU_OPTIONS: usize = 25;
const MENUS_MAX: usize = ROWS_MAX * MENU_OPTIONS;
const BUTTON_LABEL_MAX: usize = 80;
const MENU_LABEL_MAX: usize = 100;
const BUTTON_TOKEN: &str = "hp1";
/// Of a menu. Its options are named by its values; the number tells the menus of one prompt apart.
const MENU_TOKEN: &str = "hps1";

// Kinds of components.
const ROW: u8 = 1;
const BUTTON: u8 = 2;
const MENU: u8 = 3;

fn label(option: &PromptOption, max: usize) -> String {
    let text = if option.label.trim().is_empty() { &option.id } else { option.label.trim() };
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max - 1).chain(['…']).collect()
}

/// Colours are advice: what is not known is grey.
fn style(option: &PromptOption) -> u8 {
    match option.style.as_deref() {
        Some("primary") => 1,
        Some("success") => 3,
        Some("danger" | "destructive") => 4,
        _ => 2,
    }
}

/// What the message says, and its components. More options than Discord has room for become a numbered list.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
pub(super) fn prompt(
    prompt_id: &str,
    content: &str,
    options: &[PromptOption],
) -> Result<(String, Vec<Value>), ActionResult> {
    let mut seen = HashSet::new();
    if let Some(twice) = options.iter().find(|option| !seen.insert(option.id.as_str())) {
        let text = format!("two options have the id {:?}, so that Discord could not tell them apart", twice.id);
        return Err(ActionResult::refused(Code::BadRequest, text));
    }
    let mut text = if content.trim().is_empty() { "?".to_owned() } else { content.to_owned() };
    let rows = match options.len() {
        0..=BUTTONS_MAX => options.chunks(ROW_BUTTONS).map(|row| buttons(prompt_id, row)).collect(),
        count if count <= MENUS_MAX => {
            options.chunks(MENU_OPTIONS).enumerate().map(|(at, part)| menu(prompt_id, at, part)).collect()
        }
        _ => {
            for (number, option) in options.iter().enumerate() {
                text.push_str(&format!("\n{}. {} (/{})", number + 1, literal(&option.label), option.id));
            }
            Vec::new()
        }
    };
    Ok((text, rows))
}

fn buttons(prompt_id: &str, row: &[PromptOption]) -> Value {
    let button = |option: &PromptOption| {
        json!({
            "type": BUTTON,
            "style": style(option),
            "label": label(option, BUTTON_LABEL_MAX),
            "custom_id": prompt_token(prompt_id, &option.id),
        })
    };
    json!({ "type": ROW, "components": row.iter().map(button).collect::<Vec<Value>>() })
}

fn menu(prompt_id: &str, at: usize, part: &[PromptOption]) -> Value {
    let option = |option: &PromptOption| json!({ "label": label(option, MENU_LABEL_MAX), "value": option.id });
    let first = at * MENU_OPTIONS + 1;
    let menu = json!({
        "type": MENU,
        "custom_id": format!("{MENU_TOKEN}:{at}:{prompt_id}"),
        "placeholder": format!("{first} to {}", first + part.len() - 1),
        "options": part.iter().map(option).collect::<Vec<Value>>(),
        "min_values": 1,
        "max_values": 1,
    });
    json!({ "type": ROW, "components": [menu] })
}

/// A user chose an option of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pressed {
    pub(super) message_id: String,
    prompt_id: String,
    pub(super) option_id: String,
    label: Option<String>,
}

/// `None`: the button is not of a prompt of this bot. The chosen option must be among those that the message really
/// shows.
pub(super) fn pressed(data: &Value) -> Option<Pressed> {
    let custom_id = data["data"]["custom_id"].as_str()?;
    let message_id = data["message"]["id"].as_str().filter(|id| !id.is_empty())?;
    let component = find(&data["message"]["components"], custom_id)?;
    let (prompt_id, option_id, label) =
        if let Some(rest) = custom_id.strip_prefix(BUTTON_TOKEN).and_then(|rest| rest.strip_prefix(':')) {
            let (prompt_id, option_id) = rest.rsplit_once(':')?;
            (prompt_id, option_id, &component["label"])
        } else {
            let (_, prompt_id) = custom_id.strip_prefix(MENU_TOKEN)?.strip_prefix(':')?.split_once(':')?;
            let chosen = data["data"]["values"].get(0)?.as_str()?;
            let option = component["options"].as_array()?.iter().find(|option| option["value"] == chosen)?;
            (prompt_id, chosen, &option["label"])
        };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    let is_option = (1..=32).contains(&option_id.len()) && option_id.bytes().all(is_plain);
    (is_option && !prompt_id.is_empty()).then(|| Pressed {
        message_id: message_id.to_owned(),
        prompt_id: prompt_id.to_owned(),
        option_id: option_id.to_owned(),
        label: label.as_str().map(str::to_owned),
    })
}

/// Whether it looks like a button of a prompt.
pub(super) fn has_prompt_token(data: &Value) -> bool {
    let custom_id = data["data"]["custom_id"].as_str().and_then(|id| id.split_once(':'));
    custom_id.is_some_and(|(token, _)| matches!(token, BUTTON_TOKEN | MENU_TOKEN))
}

fn find<'a>(rows: &'a Value, custom_id: &str) -> Option<&'a Value> {
    let rows = rows.as_array()?.iter();
    let mut all = rows.flat_map(|row| row["components"].as_array().into_iter().flatten());
    all.find(|component| component["custom_id"] == custom_id)
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

    /// The message of the prompt once it is answered: without buttons, and with the choice if there is room for it.
    pub(super) fn shown(&self, message: &Value, who: &str) -> Value {
        let mut shown = json!({ "components": [], "allowed_mentions": { "parse": [] } });
        let asked = message["content"].as_str().unwrap_or_default();
        let choice = self.label.as_deref().unwrap_or(&self.option_id);
        let text = format!("{asked}\n-# {}: {}", literal(who), literal(choice));
        if text.chars().count() <= MESSAGE_MAX {
            shown["content"] = text.into();
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(count: usize) -> Vec<PromptOption> {
        let one = |at: usize| PromptOption { id: format!("o{at}"), label: format!("Option {at}"), style: None };
        (0..count).map(one).collect()
    }

    fn press(message: &Value, data: Value) -> Option<Pressed> {
        pressed(&json!({ "message": message, "data": data }))
    }

    #[test]
    fn few_options_are_buttons_more_are_menus_and_many_a_list() {
        for (count, rows) in [(1, 1), (5, 1), (6, 2), (25, 5), (26, 2), (125, 5), (126, 0)] {
            let (text, made) = prompt("p1", "Which?", &options(count)).unwrap();
            assert_eq!(made.len(), rows, "{count}");
            assert_eq!(text.lines().count(), if rows == 0 { 127 } else { 1 });
            let ids: Vec<&str> = made
                .iter()
                .flat_map(|row| row["components"].as_array().unwrap())
                .map(|it| it["custom_id"].as_str().unwrap())
                .collect();
            assert!(ids.iter().collect::<HashSet<_>>().len() == ids.len() && ids.iter().all(|id| id.len() <= 100));
        }
        let twice = [options(1), options(1)].concat();
        assert!(prompt("p", "x", &twice).unwrap_err().error.unwrap().contains("\"o0\""));
    }

    #[test]
    fn labels_are_cut_and_never_empty() {
        let long = PromptOption { id: "a".into(), label: "x".repeat(200), style: Some("danger".into()) };
        let blank = PromptOption { id: "b".into(), label: "  ".into(), style: None };
        let (_, rows) = prompt("p", "", &[long, blank]).unwrap();
        let buttons = rows[0]["components"].as_array().unwrap();
        assert_eq!(buttons[0]["label"].as_str().unwrap().chars().count(), 80);
        assert_eq!((&buttons[0]["style"], &buttons[1]["label"]), (&json!(4), &json!("b")));
    }

    #[test]
    fn a_press_names_an_option_that_the_message_shows() {
        let message = |count: usize| {
            let (_, rows) = prompt("p:1", "Which?", &options(count)).unwrap();
            json!({ "id": "9", "content": "Which?", "components": rows })
        };
        let found = press(&message(3), json!({ "custom_id": "hp1:p:1:o2" })).unwrap();
        assert_eq!((found.prompt_id.as_str(), found.option_id.as_str()), ("p:1", "o2"));
        assert_eq!(found.response().label.as_deref(), Some("Option 2"));
        let shown = found.shown(&message(3), "An*n");
        assert_eq!((&shown["content"], &shown["components"]), (&json!("Which?\n-# An\\*n: Option 2"), &json!([])));
        let found = press(&message(30), json!({ "custom_id": "hps1:1:p:1", "values": ["o29"] })).unwrap();
        assert_eq!((found.prompt_id.as_str(), found.option_id.as_str()), ("p:1", "o29"));
        for (count, data) in [
            (3, json!({ "custom_id": "hp1:p:1:o9" })),
            (3, json!({ "custom_id": "other" })),
            (3, json!({})),
            (30, json!({ "custom_id": "hps1:1:p:1", "values": ["o2"] })),
            (30, json!({ "custom_id": "hps1:1:p:1" })),
        ] {
            assert_eq!(press(&message(count), data.clone()), None, "{data}");
        }
    }
}
