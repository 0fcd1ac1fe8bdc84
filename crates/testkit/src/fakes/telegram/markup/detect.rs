//! What clients detect in a text without markup.

use std::sync::LazyLock;

use regex::Regex;

use super::{Entity, Formatted, utf16_len};

static PATTERNS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    let patterns = [
        ("email", r"(?:^|[\s(,])([A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+)"),
        ("url", r#"(?:^|[\s(,])(https?://[^\s<>"]*[^\s<>".,;:!?)])"#),
        ("bot_command", r"(?:^|[\s(,])(/[A-Za-z0-9_]{1,64}(?:@[A-Za-z0-9_]{3,32})?)"),
        ("mention", r"(?:^|[^A-Za-z0-9_@/])(@[A-Za-z0-9_]{3,32})"),
        ("hashtag", r"(?:^|[\s(,])(#[\w]+)"),
    ];
    patterns.map(|(kind, pattern)| (kind, Regex::new(pattern).expect("a valid pattern"))).into()
});

pub(super) fn detect(formatted: &Formatted) -> Vec<Entity> {
    let mut found: Vec<Entity> = Vec::new();
    for (kind, pattern) in PATTERNS.iter() {
        for hit in pattern.captures_iter(&formatted.text).filter_map(|captures| captures.get(1)) {
            let offset = utf16_len(&formatted.text[..hit.start()]);
            let entity = Entity { kind, offset, length: utf16_len(hit.as_str()), argument: None };
            let closed = |other: &&Entity| matches!(other.kind, "code" | "pre" | "text_link" | "text_mention");
            let taken = formatted.entities.iter().filter(closed).chain(&found).any(|other| overlap(other, &entity));
            if !taken {
                found.push(entity);
            }
        }
    }
    found
}

fn overlap(a: &Entity, b: &Entity) -> bool {
    a.offset < b.offset + b.length && b.offset < a.offset + a.length
}
