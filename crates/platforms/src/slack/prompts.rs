//! Questions with buttons, and the chosen options.

use frontdesk_wire::action::{PromptOption, prompt_token};
use frontdesk_wire::event::PromptResponse;
use frontdesk_wire::{ActionResult, Code};
use serde_json::{Value, json};

use super::rich::{list_of, text_of};
use super::text::{escaped, sections};
use crate::shared::markdown::literal;

/// More options are a menu, and more than that a list.
const BUTTONS_MAX: usize = 25;
const MENU_MAX: usize = 100;
const LABEL_MAX_CHARS: usize = 75;
const SECTIONS_MAX: usize = 40;
/// Of the block whose element was used.
const BLOCK_ID: &str = "hp1";

/// Text and blocks of a prompt.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
pub(super) fn prompt(
    prompt_id: &str,
    content: &str,
    options: &[PromptOption],
) -> Result<(String, Vec<Value>), ActionResult> {
    for (at, option) in options.iter().enumerate() {
        if options[..at].iter().any(|other| other.id == option.id) {
            let text = format!("two options have the id {:?}, so that Slack could not tell them apart", option.id);
            return Err(ActionResult::refused(Code::BadRequest, text));
        }
    }
    let mut text = if content.trim().is_empty() { "?".to_owned() } else { content.to_owned() };
    if options.len() > MENU_MAX {
        for (number, option) in options.iter().enumerate() {
            text.push_str(&format!("\n{}. {} (!{})", number + 1, literal(&option.label), option.id));
        }
    }
    let parts = sections(&text);
    if parts.len() > SECTIONS_MAX {
        return Err(ActionResult::refused(Code::TooLarge, "the question is too long for a message with buttons"));
    }
    let section = |part: &String| json!({ "type": "section", "text": { "type": "mrkdwn", "text": part } });
    let mut blocks: Vec<Value> = parts.iter().map(section).collect();
    if options.len() <= BUTTONS_MAX {
        let buttons: Vec<Value> = options.iter().map(|option| button(prompt_id, option)).collect();
        blocks.push(json!({ "type": "actions", "block_id": BLOCK_ID, "elements": buttons }));
    } else if options.len() <= MENU_MAX {
        let choice =
            |option: &PromptOption| json!({ "text": plain(option), "value": prompt_token(prompt_id, &option.id) });
        let menu = json!({
            "type": "static_select",
            "action_id": BLOCK_ID,
            "placeholder": { "type": "plain_text", "text": "Choose" },
            "options": options.iter().map(choice).collect::<Vec<_>>(),
        });
        blocks.push(json!({ "type": "actions", "block_id": BLOCK_ID, "elements": [menu] }));
    }
    Ok((parts.join("\n"), blocks))
}

fn plain(option: &PromptOption) -> Value {
    let label = if option.label.trim().is_empty() { &option.id } else { &option.label };
    let label: String = label.chars().take(LABEL_MAX_CHARS).collect();
    json!({ "type": "plain_text", "text": label, "emoji": true })
}

fn button(prompt_id: &str, option: &PromptOption) -> Value {
    let token = prompt_token(prompt_id, &option.id);
    let mut button = json!({ "type": "button", "action_id": token, "value": token, "text": plain(option) });
    match option.style.as_deref() {
        Some("primary" | "success") => button["style"] = "primary".into(),
        Some("danger") => button["style"] = "danger".into(),
        _ => {}
    }
    button
}

/// An option that a user chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pressed {
    pub(super) prompt_id: String,
    pub(super) option_id: String,
    pub(super) label: Option<String>,
    /// When: it distinguishes presses.
    pub(super) action_ts: String,
    pub(super) chat_id: String,
    pub(super) message_ts: String,
}

/// `None`: the element is of no prompt.
pub(super) fn pressed(payload: &Value) -> Option<Pressed> {
    let action = list_of(payload, "actions").first()?;
    let chosen = &action["selected_option"];
    let (value, label) = match chosen.is_object() {
        true => (text_of(chosen, "value"), text_of(&chosen["text"], "text")),
        false => (text_of(action, "value"), text_of(&action["text"], "text")),
    };
    let (prompt_id, option_id) = value.strip_prefix("hp1:")?.rsplit_once(':')?;
    let container = &payload["container"];
    let first = |values: [&str; 2]| values.into_iter().find(|value| !value.is_empty()).unwrap_or_default().to_owned();
    Some(Pressed {
        prompt_id: prompt_id.to_owned(),
        option_id: option_id.to_owned(),
        label: Some(label.to_owned()).filter(|label| !label.is_empty()),
        action_ts: text_of(action, "action_ts").to_owned(),
        chat_id: first([text_of(&payload["channel"], "id"), text_of(container, "channel_id")]),
        message_ts: first([text_of(container, "message_ts"), text_of(&payload["message"], "ts")]),
    })
}

impl Pressed {
    pub(super) fn response(&self) -> PromptResponse {
        PromptResponse {
            prompt_id: self.prompt_id.clone(),
            option_id: self.option_id.clone(),
            label: self.label.clone(),
            prompt_message_id: Some(self.message_ts.as_str().into()),
        }
    }

    /// The prompt without its buttons, with the choice and its author.
    pub(super) fn shown(&self, message: &Value, user_id: &str) -> Value {
        let is_text = |block: &&Value| text_of(block, "type") != "actions";
        let mut blocks: Vec<Value> = list_of(message, "blocks").iter().filter(is_text).cloned().collect();
        let label = escaped(self.label.as_deref().unwrap_or(&self.option_id));
        let chosen = format!("<@{user_id}>: {label}");
        blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": chosen }] }));
        let text = format!("{}\n{chosen}", text_of(message, "text"));
        json!({ "replace_original": true, "text": text.trim(), "blocks": blocks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(count: usize) -> Vec<PromptOption> {
        let one = |at: usize| PromptOption { id: format!("o{at}"), label: format!("Option {at}"), style: None };
        (0..count).map(one).collect()
    }

    #[test]
    fn few_options_are_buttons_more_a_menu_and_many_a_list() {
        for (count, kind) in [(1, "button"), (25, "button"), (26, "static_select"), (100, "static_select")] {
            let (text, blocks) = prompt("p1", "**Which?**", &options(count)).unwrap();
            assert_eq!((text.as_str(), blocks.len()), ("*Which?*", 2));
            assert_eq!(blocks[1]["elements"][0]["type"], kind);
        }
        let (text, blocks) = prompt("p1", "Which?", &options(101)).unwrap();
        assert!(text.contains("101. Option 100 (!o100)"), "{text}");
        assert!(blocks.iter().all(|block| block["type"] == "section"));
        assert!(prompt("p", "x", &[options(1), options(1)].concat()).unwrap_err().error.unwrap().contains("\"o0\""));
        let too_long = prompt("p", &"word ".repeat(40_000), &options(1)).unwrap_err();
        assert_eq!(too_long.code, Some(Code::TooLarge));
    }

    #[test]
    fn labels_are_cut_and_never_empty() {
        let long = PromptOption { id: "a".into(), label: "x".repeat(200), style: Some("danger".into()) };
        let blank = PromptOption { id: "b".into(), label: "  ".into(), style: Some("secondary".into()) };
        let (text, blocks) = prompt("p", " ", &[long, blank]).unwrap();
        let buttons = list_of(&blocks[1], "elements");
        assert_eq!(text, "?");
        assert_eq!(buttons[0]["text"]["text"].as_str().unwrap().chars().count(), LABEL_MAX_CHARS);
        assert_eq!((&buttons[0]["style"], &buttons[1]["text"]["text"]), (&json!("danger"), &json!("b")));
        assert!(buttons[1].get("style").is_none(), "Slack refuses styles that it does not know");
    }

    #[test]
    fn a_press_names_prompt_and_option() {
        let payload = |action: Value| {
            let container = json!({ "type": "message", "message_ts": "1.2", "channel_id": "C1" });
            json!({ "actions": [action], "container": container, "channel": { "id": "C1" } })
        };
        let button = json!({ "value": "hp1:p:1:yes", "text": { "text": "Yes" }, "action_ts": "9.9" });
        let found = pressed(&payload(button)).unwrap();
        assert_eq!((found.prompt_id.as_str(), found.option_id.as_str()), ("p:1", "yes"));
        let menu = json!({ "selected_option": { "value": "hp1:p:no", "text": { "text": "No" } }, "action_ts": "9.9" });
        assert_eq!(pressed(&payload(menu)).unwrap().label.as_deref(), Some("No"));
        for other in [json!({ "value": "other" }), json!({ "value": "hp1:x" }), json!({}), json!(5)] {
            assert_eq!(pressed(&payload(other)), None);
        }
        let message = json!({ "text": "Which?", "blocks": [{ "type": "section" }, { "type": "actions" }] });
        let shown = Pressed { label: Some("<Yes>".into()), ..found }.shown(&message, "U1");
        assert_eq!(shown["text"], "Which?\n<@U1>: &lt;Yes&gt;");
        assert_eq!(list_of(&shown, "blocks").len(), 2);
    }
}
