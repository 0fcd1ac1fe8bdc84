//! Questions: up to three buttons, a list of up to ten rows, or a numbered text.

use std::collections::HashSet;

use frontdesk_core::port::platform::{Acted, Bot};
use frontdesk_wire::ActionResult;
use frontdesk_wire::action::{PromptOption, prompt_token};
use serde_json::{Value, json};

use super::WhatsApp;
use super::act::{Target, acted, partial};
use super::api::Api;
use super::text::{SHORT_MAX, cut, one_message, parts};
use crate::shared::markdown::literal;

const BUTTONS_MAX: usize = 3;
const ROWS_MAX: usize = 10;
const BUTTON_MAX: usize = 20;
const ROW_MAX: usize = 24;
const DESCRIPTION_MAX: usize = 72;
/// What opens the list. The language of the person is not known.
const OPEN_LIST: &str = "⋯";

fn label(option: &PromptOption) -> &str {
    if option.label.trim().is_empty() { &option.id } else { option.label.trim() }
}

/// The buttons or the list. `None`: there are too many options.
fn interactive(body: &str, prompt_id: &str, options: &[PromptOption]) -> Option<Value> {
    let titles: HashSet<&str> = options.iter().map(label).collect();
    // A label that is too long for a button can be read in a list.
    let fits = titles.iter().all(|title| title.encode_utf16().count() <= BUTTON_MAX) && titles.len() == options.len();
    if options.len() <= BUTTONS_MAX && fits {
        let button = |option: &PromptOption| json!({ "type": "reply", "reply": { "id": prompt_token(prompt_id, &option.id), "title": label(option) } });
        let buttons: Vec<Value> = options.iter().map(button).collect();
        return Some(json!({ "type": "button", "body": { "text": body }, "action": { "buttons": buttons } }));
    }
    if options.len() > ROWS_MAX {
        return None;
    }
    let row = |option: &PromptOption| {
        let title = cut(label(option), ROW_MAX);
        let mut row = json!({ "id": prompt_token(prompt_id, &option.id), "title": title });
        if title != label(option) {
            row["description"] = cut(label(option), DESCRIPTION_MAX).into();
        }
        row
    };
    let rows: Vec<Value> = options.iter().map(row).collect();
    let action = json!({ "button": OPEN_LIST, "sections": [{ "rows": rows }] });
    Some(json!({ "type": "list", "body": { "text": body }, "action": action }))
}

impl WhatsApp {
    pub(super) async fn ask(
        &self,
        api: &Api<'_>,
        bot: &Bot,
        target: Target<'_>,
        prompt_id: &str,
        content: &str,
        options: &[PromptOption],
    ) -> Result<Acted, ActionResult> {
        let question = if content.trim().is_empty() { "?" } else { content };
        if options.len() > ROWS_MAX {
            return self.ask_in_text(api, bot, target, question, options).await;
        }
        if let Some(body) = one_message(question, SHORT_MAX)
            && let Some(interactive) = interactive(&body, prompt_id, options)
        {
            return Ok(acted(api.send(&target.message("interactive", interactive)).await, target.key));
        }
        // A long question is said first; the buttons follow it.
        let first = self.send_parts(api, bot, target, question).await?;
        let (Some(message_id), true) = (first.result.message_id.clone(), first.result.success) else {
            return Ok(first);
        };
        let target = Target { reply_to: None, ..target };
        let Some(interactive) = interactive("?", prompt_id, options) else { return Ok(first) };
        let asked = acted(api.send(&target.message("interactive", interactive)).await, target.key);
        match asked.result.success {
            true => Ok(asked),
            false => Ok(partial(asked, &message_id, "the question went out")),
        }
    }

    async fn ask_in_text(
        &self,
        api: &Api<'_>,
        bot: &Bot,
        target: Target<'_>,
        question: &str,
        options: &[PromptOption],
    ) -> Result<Acted, ActionResult> {
        let mut text = question.to_owned();
        for (number, option) in options.iter().enumerate() {
            text.push_str(&format!("\n{}. {} (/{})", number + 1, literal(label(option)), option.id));
        }
        self.send_parts(api, bot, target, &text).await
    }

    /// A text in as many messages as it needs. The first id counts.
    pub(super) async fn send_parts(
        &self,
        api: &Api<'_>,
        bot: &Bot,
        target: Target<'_>,
        text: &str,
    ) -> Result<Acted, ActionResult> {
        let texts = parts(text);
        let mut first: Option<Acted> = None;
        for (index, part) in texts.iter().enumerate() {
            let target = Target { reply_to: target.reply_to.filter(|_| index == 0), ..target };
            let sent = self.send_text(api, bot, target, part).await?;
            first = match (first, sent.result.success) {
                (None, true) => Some(sent),
                (None, false) => return Ok(sent),
                (Some(first), true) => Some(first),
                (Some(first), false) => {
                    let id = first.result.message_id.unwrap_or_default();
                    return Ok(partial(sent, &id, &format!("{index} of {} parts went out", texts.len())));
                }
            };
        }
        first.ok_or_else(|| super::act::not_one_message(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(labels: &[&str]) -> Vec<PromptOption> {
        let option =
            |(at, label): (usize, &&str)| PromptOption { id: format!("o{at}"), label: (*label).into(), style: None };
        labels.iter().enumerate().map(option).collect()
    }

    #[test]
    fn few_short_options_are_buttons() {
        let shown = interactive("Go?", "p1", &options(&["Yes", "No", ""])).unwrap();
        assert_eq!((&shown["type"], &shown["body"]["text"]), (&json!("button"), &json!("Go?")));
        let first = &shown["action"]["buttons"][0];
        assert_eq!(*first, json!({ "type": "reply", "reply": { "id": "hp1:p1:o0", "title": "Yes" } }));
        assert_eq!(shown["action"]["buttons"][2]["reply"]["title"], "o2", "an option without a label");
    }

    #[test]
    fn more_or_longer_options_are_rows() {
        let four = interactive("?", "p", &options(&["a", "b", "c", "d"])).unwrap();
        assert_eq!(
            (&four["type"], four["action"]["sections"][0]["rows"].as_array().unwrap().len()),
            (&json!("list"), 4)
        );
        let long = "This label is longer than a button or a row";
        let shown = interactive("?", "p", &options(&[long, "b"])).unwrap();
        let row = &shown["action"]["sections"][0]["rows"][0];
        assert_eq!((row["title"].as_str().unwrap().chars().count(), &row["description"]), (24, &json!(long)));
        assert_eq!(shown["action"]["sections"][0]["rows"][1].get("description"), None);
        assert_eq!(interactive("?", "p", &options(&["same", "same"])).unwrap()["type"], "list", "buttons must differ");
        assert!(interactive("?", "p", &options(&["x"; 10])).is_some());
        assert!(interactive("?", "p", &options(&["x"; 11])).is_none());
    }
}
