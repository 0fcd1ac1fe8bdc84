//! The name of a conversation, computed exactly as the gateway computes it.
//!
//! Capabilities are bound and interrupts routed under this name, so a difference of one byte
//! is a lost answer. The Python function is the oracle (`tests/hermes/session_keys.py`).

use crate::event::Source;

pub fn build_session_key(source: &Source) -> String {
    let profile = source.profile.as_deref().filter(|p| !p.is_empty() && *p != "default");
    let whatsapp = source.platform == "whatsapp";
    let participant = participant(source, whatsapp);
    let thread = present(source.thread_id.as_deref());

    let mut key = String::with_capacity(64);
    key.push_str("agent:");
    key.push_str(profile.unwrap_or("main"));
    push(&mut key, &source.platform);
    if source.chat_type == "dm" {
        key.push_str(":dm");
        let chat = if whatsapp { canonical_whatsapp(&source.chat_id) } else { source.chat_id.clone() };
        if let Some(who) = present(Some(&chat)).or(participant.as_deref()) {
            push(&mut key, who);
        }
        if let Some(thread) = thread {
            push(&mut key, thread);
        }
        return key;
    }
    push(&mut key, &source.chat_type);
    if let Some(chat) = present(Some(&source.chat_id)) {
        push(&mut key, chat);
    }
    match (thread, participant) {
        (Some(thread), _) => push(&mut key, thread), // a thread is shared by its participants
        (None, Some(who)) => push(&mut key, &who),
        (None, None) => {}
    }
    key
}

fn push(key: &mut String, part: &str) {
    key.push(':');
    key.push_str(part);
}

fn present(part: Option<&str>) -> Option<&str> {
    part.filter(|text| !text.is_empty())
}

fn participant(source: &Source, whatsapp: bool) -> Option<String> {
    let raw = present(source.user_id_alt.as_deref()).or(present(source.user_id.as_deref()))?;
    if whatsapp {
        let canonical = canonical_whatsapp(raw);
        if !canonical.is_empty() {
            return Some(canonical);
        }
    }
    Some(raw.to_owned())
}

/// `+4912:7@s.whatsapp.net` and its kin become the bare number. Twice, because the gateway looks its
/// aliases up under the stripped form and strips that again: `++12`, `+ 12` and `1+2+` end bare too.
fn canonical_whatsapp(id: &str) -> String {
    strip_whatsapp(&strip_whatsapp(id))
}

fn strip_whatsapp(id: &str) -> String {
    // Python's strip() also takes the four ASCII separators that Rust does not call whitespace.
    let trimmed = id.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c));
    let without_plus = trimmed.replacen('+', "", 1);
    let before_colon = without_plus.split(':').next().unwrap_or_default();
    before_colon.split('@').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(platform: &str, chat_type: &str, chat: &str) -> Source {
        Source { platform: platform.into(), chat_type: chat_type.into(), chat_id: chat.into(), ..Source::default() }
    }

    #[test]
    fn a_dm_is_keyed_by_chat_then_thread() {
        let mut s = source("telegram", "dm", "42");
        assert_eq!(build_session_key(&s), "agent:main:telegram:dm:42");
        s.thread_id = Some("7".into());
        assert_eq!(build_session_key(&s), "agent:main:telegram:dm:42:7");
    }

    #[test]
    fn a_dm_without_a_chat_falls_back_to_the_person() {
        let mut s = source("relay", "dm", "");
        assert_eq!(build_session_key(&s), "agent:main:relay:dm");
        s.user_id = Some("u".into());
        assert_eq!(build_session_key(&s), "agent:main:relay:dm:u");
        s.user_id_alt = Some("alt".into());
        assert_eq!(build_session_key(&s), "agent:main:relay:dm:alt");
    }

    #[test]
    fn a_group_separates_people_and_a_thread_joins_them() {
        let mut s = source("discord", "group", "c");
        s.user_id = Some("u".into());
        s.set_scope(Some("guild".into()));
        assert_eq!(build_session_key(&s), "agent:main:discord:group:c:u");
        s.thread_id = Some("t".into());
        assert_eq!(build_session_key(&s), "agent:main:discord:group:c:t");
    }

    #[test]
    fn a_profile_replaces_main_unless_it_is_the_default() {
        let mut s = source("slack", "channel", "c");
        s.profile = Some("coder".into());
        assert_eq!(build_session_key(&s), "agent:coder:slack:channel:c");
        s.profile = Some("default".into());
        assert_eq!(build_session_key(&s), "agent:main:slack:channel:c");
    }

    #[test]
    fn whatsapp_ids_are_canonical() {
        let mut s = source("whatsapp", "dm", " +4912:47@s.whatsapp.net ");
        assert_eq!(build_session_key(&s), "agent:main:whatsapp:dm:4912");
        s.chat_id = "@lid".into();
        s.user_id = Some("99@lid".into());
        assert_eq!(build_session_key(&s), "agent:main:whatsapp:dm:99");
    }

    #[test]
    fn whatsapp_ids_are_stripped_twice() {
        for (id, bare) in [("++12", "12"), ("+ 12", "12"), ("1+2+3", "123"), ("+1+2+3", "12+3")] {
            assert_eq!(build_session_key(&source("whatsapp", "dm", id)), format!("agent:main:whatsapp:dm:{bare}"));
        }
    }

    #[test]
    fn an_absent_chat_type_is_a_dm_and_an_empty_one_stays_empty() {
        let key = |json: &str| build_session_key(&serde_json::from_str(json).unwrap());
        assert_eq!(key(r#"{"platform":"slack","chat_id":"c"}"#), "agent:main:slack:dm:c");
        assert_eq!(key(r#"{"platform":"slack","chat_id":"c","chat_type":""}"#), "agent:main:slack::c");
    }
}
