//! Events of rooms as the homeserver sends them. Users may put anything into the content, so it is read leniently.

use serde::Deserialize;
use serde_json::Value;

use super::content::option_of_key;

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct RoomEvent {
    pub(super) event_id: String,
    pub(super) sender: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) state_key: Option<String>,
    #[serde(default)]
    pub(super) content: Value,
    #[serde(default)]
    pub(super) unsigned: Value,
}

/// How a message relates to another one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Relation<'a> {
    pub(super) thread: Option<&'a str>,
    pub(super) reply_to: Option<&'a str>,
    /// A later version of another message.
    pub(super) is_edit: bool,
}

impl RoomEvent {
    pub(super) fn read(raw: &Value) -> Option<Self> {
        Self::deserialize(raw).ok().filter(|it| !it.event_id.is_empty() && !it.sender.is_empty())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.content[name].as_str()
    }

    pub(super) fn is_own_membership(&self, me: &str) -> bool {
        self.kind == "m.room.member" && self.state_key.as_deref() == Some(me)
    }

    pub(super) fn membership(&self) -> &str {
        self.text("membership").unwrap_or_default()
    }

    pub(super) fn membership_before(&self) -> &str {
        self.unsigned["prev_content"]["membership"].as_str().unwrap_or_default()
    }

    /// A reaction says only with the prompt what it chooses.
    pub(super) fn is_empty_without_related(&self) -> bool {
        self.kind == "m.reaction"
    }

    /// A program wrote it, as it says itself.
    pub(super) fn is_automated(&self) -> bool {
        ["m.automated", "org.matrix.msc1767.automated"].iter().any(|name| self.content[*name] == true)
    }

    pub(super) fn relation(&self) -> Relation<'_> {
        relation(&self.content)
    }

    /// The event that is needed to understand this one.
    pub(super) fn needs(&self) -> Option<&str> {
        let relates = &self.content["m.relates_to"];
        match self.kind.as_str() {
            "m.reaction" => {
                let is_option = relates["key"].as_str().is_some_and(|key| option_of_key(key).is_some());
                relates["event_id"].as_str().filter(|_| is_option)
            }
            "m.room.message" | "m.sticker" => {
                let Relation { reply_to, is_edit, .. } = self.relation();
                reply_to.filter(|_| !is_edit)
            }
            _ => None,
        }
    }
}

pub(super) fn relation(content: &Value) -> Relation<'_> {
    let relates = &content["m.relates_to"];
    let target = relates["event_id"].as_str().filter(|id| !id.is_empty());
    let kind = relates["rel_type"].as_str();
    let thread = target.filter(|_| kind == Some("m.thread"));
    // In a thread, clients add a reply to the latest message for clients that know no threads.
    let is_fallback = thread.is_some() && relates["is_falling_back"].as_bool().unwrap_or(false);
    Relation {
        thread,
        reply_to: relates["m.in_reply_to"]["event_id"].as_str().filter(|id| !is_fallback && !id.is_empty()),
        is_edit: kind == Some("m.replace"),
    }
}

/// Whether a member came or left. Without the earlier state that is not known, and counts as yes.
pub(super) fn is_new_member(event: &RoomEvent) -> bool {
    let is_in = |membership: &str| membership == "join";
    event.membership_before().is_empty() || is_in(event.membership()) != is_in(event.membership_before())
}

/// How many of these events, newest first, are since the bot is in the room. What was said before it was invited is not
/// for it; what was said between the invitation and the join is. `None`: it was there before all of them.
pub(super) fn beginning(events: &[Value], me: &str) -> Option<usize> {
    for (index, raw) in events.iter().enumerate() {
        let own = raw["type"] == "m.room.member" && raw["state_key"] == me;
        let Some(event) = RoomEvent::read(raw).filter(|_| own) else { continue };
        match (event.membership(), event.membership_before()) {
            ("join", "join" | "invite") => {} // a change of name, or the invitation comes next
            ("join" | "invite", _) => return Some(index + 1),
            _ => {}
        }
    }
    None
}

/// The text without the quote of the message that it replies to, which older clients put before it, with its author. Any
/// other quote is the author's own.
pub(super) fn without_quote(body: &str) -> &str {
    if !body.starts_with("> <@") && !body.starts_with("> * <@") {
        return body;
    }
    let mut rest = body;
    while rest.starts_with("> ") || rest.starts_with(">\n") {
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
    }
    rest.strip_prefix('\n').unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_removed_and_other_text_is_kept() {
        for (body, text) in [
            ("> <@ann:x> hello\n> more\n\nanswer", "answer"),
            ("> <@ann:x> hello\n>\n> more\n\n> a quote of the author\n\nanswer", "> a quote of the author\n\nanswer"),
            ("> <@ann:x> hello", ""),
            ("no quote", "no quote"),
            (">no quote", ">no quote"),
            ("> your last line\nwhat is it?", "> your last line\nwhat is it?"),
            ("", ""),
        ] {
            assert_eq!(without_quote(body), text, "{body:?}");
        }
    }
}
