//! Reactions have names at Slack.

use frontdesk_wire::{ActionResult, Code};

const NAMES: &[(&str, &str)] = &[
    ("👀", "eyes"),
    ("✅", "white_check_mark"),
    ("❌", "x"),
    ("👍", "+1"),
    ("👎", "-1"),
    ("❤", "heart"),
    ("🔥", "fire"),
    ("🎉", "tada"),
    ("👏", "clap"),
    ("🙏", "pray"),
    ("👌", "ok_hand"),
    ("💯", "100"),
    ("🤔", "thinking_face"),
    ("😂", "joy"),
    ("🤣", "rolling_on_the_floor_laughing"),
    ("😀", "grinning"),
    ("😁", "grin"),
    ("😄", "smile"),
    ("😃", "smiley"),
    ("😅", "sweat_smile"),
    ("🙂", "slightly_smiling_face"),
    ("😉", "wink"),
    ("😊", "blush"),
    ("😍", "heart_eyes"),
    ("😎", "sunglasses"),
    ("😢", "cry"),
    ("😭", "sob"),
    ("😡", "rage"),
    ("😠", "angry"),
    ("😱", "scream"),
    ("😴", "sleeping"),
    ("🤯", "exploding_head"),
    ("🤷", "shrug"),
    ("🙈", "see_no_evil"),
    ("🫡", "saluting_face"),
    ("🤗", "hugging_face"),
    ("🤖", "robot_face"),
    ("👋", "wave"),
    ("💪", "muscle"),
    ("🤝", "handshake"),
    ("✍", "writing_hand"),
    ("👇", "point_down"),
    ("👆", "point_up_2"),
    ("👉", "point_right"),
    ("👈", "point_left"),
    ("☑", "ballot_box_with_check"),
    ("✔", "heavy_check_mark"),
    ("✖", "heavy_multiplication_x"),
    ("⏳", "hourglass_flowing_sand"),
    ("⌛", "hourglass"),
    ("⏰", "alarm_clock"),
    ("⏱", "stopwatch"),
    ("⚠", "warning"),
    ("🚀", "rocket"),
    ("⭐", "star"),
    ("🌟", "star2"),
    ("✨", "sparkles"),
    ("💡", "bulb"),
    ("📌", "pushpin"),
    ("📎", "paperclip"),
    ("📝", "memo"),
    ("🔒", "lock"),
    ("🔓", "unlock"),
    ("🔑", "key"),
    ("🔔", "bell"),
    ("🔕", "no_bell"),
    ("🛑", "octagonal_sign"),
    ("🚫", "no_entry_sign"),
    ("⛔", "no_entry"),
    ("❓", "question"),
    ("❗", "exclamation"),
    ("‼", "bangbang"),
    ("🔴", "red_circle"),
    ("🟢", "large_green_circle"),
    ("🟡", "large_yellow_circle"),
    ("🔵", "large_blue_circle"),
    ("🔄", "arrows_counterclockwise"),
    ("🔁", "repeat"),
    ("🔍", "mag"),
    ("🔎", "mag_right"),
    ("⚙", "gear"),
    ("🔧", "wrench"),
    ("🛠", "hammer_and_wrench"),
    ("🐛", "bug"),
    ("🧪", "test_tube"),
    ("📦", "package"),
    ("🗑", "wastebasket"),
    ("💬", "speech_balloon"),
    ("🧵", "thread"),
    ("🏆", "trophy"),
    ("💔", "broken_heart"),
    ("💩", "hankey"),
    ("☕", "coffee"),
    ("🍕", "pizza"),
    ("⚡", "zap"),
    ("🌙", "crescent_moon"),
    ("☀", "sunny"),
    ("🧠", "brain"),
    ("➕", "heavy_plus_sign"),
    ("➖", "heavy_minus_sign"),
    ("🆗", "ok"),
    ("🆒", "cool"),
    ("🆕", "new"),
    ("💤", "zzz"),
    ("🎯", "dart"),
];

/// Of an emoji, or of a name that the agent gave itself: `:eyes:`, also one of the workspace.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
pub(super) fn name(emoji: &str) -> Result<String, ActionResult> {
    let trimmed = emoji.trim();
    // The selector of the coloured form is written or not.
    let plain = trimmed.replace('\u{fe0f}', "");
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == plain) {
        return Ok((*name).to_owned());
    }
    let given = trimmed.trim_matches(':');
    let is_plain = |c: char| c.is_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '+' | '\'');
    if (1..=100).contains(&given.len()) && given.chars().all(is_plain) {
        return Ok(given.to_owned());
    }
    let text = format!("Slack has no reaction {emoji:?} that is known here; give its name, as :eyes: or :tada:");
    Err(ActionResult::refused(Code::BadRequest, text))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn emoji_have_names_and_names_are_taken() {
        for (emoji, known) in [
            ("👀", "eyes"),
            ("❤️", "heart"),
            ("❤", "heart"),
            ("✅", "white_check_mark"),
            (":party_parrot:", "party_parrot"),
            ("+1", "+1"),
        ] {
            assert_eq!(name(emoji).unwrap(), known);
        }
        for odd in ["", "::", "🫠", "two words", "A", "../x"] {
            assert!(name(odd).unwrap_err().error.unwrap().contains(":eyes:"), "{odd}");
        }
        let emoji: HashSet<&str> = NAMES.iter().map(|(emoji, _)| *emoji).collect();
        assert!(emoji.len() == NAMES.len() && emoji.iter().all(|emoji| !emoji.contains('\u{fe0f}')));
    }
}
