//! Skill sources: a status that was written is read back, and a second rewrite changes nothing.

use frontdesk_core::agents::skill_text::{description, is_name, status_of, tags, with_status};
use frontdesk_wire::agents::SkillStatus;

use super::super::engine::{Outcome, outcome};

const ALL: [SkillStatus; 3] = [SkillStatus::Draft, SkillStatus::Approved, SkillStatus::Disabled];

pub fn skill_text(input: &[u8]) -> Outcome {
    let source = String::from_utf8_lossy(input);
    let before = status_of(&source);
    for status in ALL {
        rewrite(&source, before, status);
    }
    let tags = tags(&source);
    assert!(tags.len() <= 256 && tags.iter().map(String::len).sum::<usize>() <= 8 << 10, "tags are bounded");
    assert!(tags.iter().enumerate().all(|(at, tag)| !tag.is_empty() && !tags[..at].contains(tag)), "each tag once");
    let description = description(&source);
    assert!(description.as_deref() != Some(""));
    assert!(!is_name(&source) || (source.is_ascii() && !source.contains(['/', '\n', ' '])));
    let inserted = with_status(&source, "Approved").len().cmp(&source.len());
    outcome((before, tags.len().min(4), description.is_some(), is_name(&source), inserted))
}

fn rewrite(source: &str, before: SkillStatus, status: SkillStatus) {
    let once = with_status(source, status.name());
    assert_eq!(status_of(&once), status, "{once:?}");
    // An inserted line may be followed by blank lines, which its first rewrite removes.
    let twice = with_status(&once, status.name());
    assert_eq!(with_status(&twice, status.name()), twice, "{twice:?}");
    assert_eq!(status_of(&twice), status);
    // An existing line is rewritten in one step, from any status.
    if before != SkillStatus::Draft {
        assert_eq!(twice, once, "{source:?}");
        for other in ALL {
            assert_eq!(with_status(&with_status(source, other.name()), status.name()), once, "{source:?}");
        }
    }
}
