//! Reactions have names at Feishu.

use frontdesk_wire::{ActionResult, Code};

const NAMES: &[(&str, &str)] = &[
    ("👀", "GLANCE"),
    ("✅", "CheckMark"),
    ("❌", "CrossMark"),
    ("👍", "THUMBSUP"),
    ("👎", "ThumbsDown"),
    ("❤", "HEART"),
    ("🔥", "Fire"),
    ("🎉", "PARTY"),
    ("👏", "APPLAUSE"),
    ("🙏", "THANKS"),
    ("👌", "OK"),
    ("💯", "Hundred"),
    ("🤔", "THINKING"),
    ("😂", "LOL"),
    ("🤣", "LAUGH"),
    ("😀", "SMILE"),
    ("😄", "JOYFUL"),
    ("😁", "BeamingFace"),
    ("😊", "BLUSH"),
    ("😉", "WINK"),
    ("😍", "OBSESSED"),
    ("😘", "KISS"),
    ("😎", "SHOWOFF"),
    ("😢", "CRY"),
    ("😭", "SOB"),
    ("😡", "ANGRY"),
    ("😠", "SCOWL"),
    ("😱", "TERROR"),
    ("😲", "WOW"),
    ("😮", "SHOCKED"),
    ("😴", "SLEEP"),
    ("🥱", "YAWN"),
    ("😅", "SWEAT"),
    ("🤦", "FACEPALM"),
    ("🤷", "Shrug"),
    ("🫡", "SaluteFace"),
    ("🤗", "HUG"),
    ("🤫", "SHHH"),
    ("🤡", "ClownFace"),
    ("💀", "SKULL"),
    ("👋", "WAVE"),
    ("💪", "MUSCLE"),
    ("🤝", "SHAKE"),
    ("✋", "HIGHFIVE"),
    ("👊", "FISTBUMP"),
    ("✍", "Typing"),
    ("⌨", "Typing"),
    ("☑", "DONE"),
    ("✔", "Yes"),
    ("✖", "No"),
    ("⏳", "OneSecond"),
    ("⌛", "OneSecond"),
    ("⏰", "Alarm"),
    ("📌", "Pin"),
    ("📢", "Loudspeaker"),
    ("💡", "StatusFlashOfInspiration"),
    ("🚀", "GoGoGo"),
    ("🏆", "Trophy"),
    ("💔", "HEARTBROKEN"),
    ("💩", "POOP"),
    ("☕", "Coffee"),
    ("🍺", "BEER"),
    ("🎂", "CAKE"),
    ("🎁", "GIFT"),
    ("🌹", "ROSE"),
    ("💣", "BOMB"),
    ("🎵", "Music"),
    ("🎄", "XmasTree"),
    ("🎆", "FIREWORKS"),
    ("🐻", "BEAR"),
    ("☀", "GeneralSun"),
    ("🌙", "GeneralMoonRest"),
    ("⚽", "Soccer"),
    ("🏀", "Basketball"),
    ("🤮", "PUKE"),
    ("😷", "SICK"),
    ("🤑", "MONEY"),
    ("😋", "DROOL"),
    ("😜", "TEASE"),
    ("🥳", "Partying"),
    ("🤯", "CRAZY"),
    ("👈", "UPPERLEFT"),
];

/// Of an emoji, or a name that the agent gave itself: `THUMBSUP`, `:OnIt:`.
#[allow(clippy::result_large_err)] // a refusal is rare, and what the caller answers with
pub(super) fn name(emoji: &str) -> Result<String, ActionResult> {
    let trimmed = emoji.trim();
    // The selector of the coloured form is written or not.
    let plain = trimmed.replace('\u{fe0f}', "");
    if let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == plain) {
        return Ok((*name).to_owned());
    }
    let given = trimmed.trim_matches(':');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if (1..=64).contains(&given.len()) && given.bytes().all(is_plain) {
        return Ok(given.to_owned());
    }
    let text = format!("Feishu has no reaction {emoji:?} that is known here; give its name, as THUMBSUP or OnIt");
    Err(ActionResult::refused(Code::BadRequest, text))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn emoji_have_names_and_names_are_taken() {
        for (emoji, known) in [("👀", "GLANCE"), ("❤️", "HEART"), ("👍", "THUMBSUP"), (":OnIt:", "OnIt"), ("OK", "OK")]
        {
            assert_eq!(name(emoji).unwrap(), known);
        }
        for odd in ["", "::", "🫠", "two words", "../x"] {
            assert!(name(odd).unwrap_err().error.unwrap().contains("THUMBSUP"), "{odd}");
        }
        let emoji: HashSet<&str> = NAMES.iter().map(|(emoji, _)| *emoji).collect();
        assert!(emoji.len() == NAMES.len() && emoji.iter().all(|emoji| !emoji.contains('\u{fe0f}')));
    }
}
