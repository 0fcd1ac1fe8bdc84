//! The name of a conversation, computed exactly like in the gateway.
//!
//! Capabilities are bound and interrupts routed under this name, so any difference loses an answer. The Python function
//! is the reference (`tests/hermes/session_keys.py`).

use crate::event::Source;
use crate::ids::SessionKey;

pub fn build_session_key(source: &Source) -> SessionKey {
    own_key(source).into()
}

fn own_key(source: &Source) -> String {
    let profile = source.profile.as_deref().filter(|p| !p.is_empty() && *p != "default");
    key(profile.unwrap_or("main"), None, source)
}

/// The key in a namespace. Gateways after 0.19 put the `scope`, if there is one, before the chat.
fn key(namespace: &str, scope: Option<&str>, source: &Source) -> String {
    let whatsapp = source.platform == "whatsapp";
    let participant = participant(source, whatsapp);
    let thread = present(source.thread_id.as_deref());

    let mut key = String::with_capacity(64);
    key.push_str("agent:");
    key.push_str(namespace);
    push(&mut key, &source.platform);
    push(&mut key, &source.chat_type);
    if let Some(scope) = present(scope) {
        push(&mut key, scope);
    }
    if source.chat_type == "dm" {
        let chat = if whatsapp { canonical_whatsapp(&source.chat_id) } else { source.chat_id.to_string() };
        if let Some(who) = present(Some(&chat)).or(participant.as_deref()) {
            push(&mut key, who);
        }
        if let Some(thread) = thread {
            push(&mut key, thread);
        }
        return key;
    }
    if let Some(chat) = present(Some(&source.chat_id)) {
        push(&mut key, chat);
    }
    match (thread, participant) {
        (Some(thread), _) => push(&mut key, thread), // participants share a thread
        (None, Some(who)) => push(&mut key, &who),
        (None, None) => {}
    }
    key
}

/// All names that a supported gateway may use for this conversation. A capability is bound under all of them: its own
/// platform, or `relay` for a forwarded interaction, with and without its profile.
pub fn session_names(source: &Source) -> Vec<SessionKey> {
    let chat_types: &[&str] =
        if source.is_direct() { &["dm"] } else { &[source.chat_type.as_str(), "channel", "thread", "group"] };
    let mut keys = Vec::new();
    for chat_type in chat_types {
        let mut own = Source { chat_type: (*chat_type).into(), ..source.clone() };
        push_names(&mut keys, &own);
        if source.platform == "discord" && !source.is_direct() {
            own.thread_id = None; // the first ones after 0.19 take a thread for a channel
            push_names(&mut keys, &own);
        }
        let mut forwarded = Source { platform: "relay".into(), chat_type: (*chat_type).into(), ..source.clone() };
        push_names(&mut keys, &forwarded);
        if !source.is_direct() {
            forwarded.thread_id = None; // 0.19 knows channel and user of an interaction, but no thread
            push_names(&mut keys, &forwarded);
        }
    }
    each_once(keys)
}

fn each_once(mut keys: Vec<String>) -> Vec<SessionKey> {
    keys.sort();
    keys.dedup();
    keys.into_iter().map(SessionKey::from).collect()
}

/// All names under which a gateway may run the turn of an ordinary message from here.
pub fn turn_names(source: &Source) -> Vec<SessionKey> {
    if source.platform == "discord" {
        return session_names(source); // a turn may have begun with a forwarded interaction
    }
    let mut keys = Vec::new();
    push_names(&mut keys, source);
    if source.chat_type == "channel" {
        push_names(&mut keys, &Source { chat_type: "group".into(), ..source.clone() });
    }
    each_once(keys)
}

/// All names under which we may have stored the session that a gateway calls `name`.
pub fn session_aliases(name: &SessionKey) -> Vec<SessionKey> {
    let parts: Vec<&str> = name.split(':').collect();
    let [agent, namespace, platform, chat_type, rest @ ..] = parts.as_slice() else { return vec![name.clone()] };
    let mut names = vec![name.clone()];
    let namespaces: &[&str] = if *namespace == "main~" { &["main~", "main"] } else { &[namespace] };
    let chat_types: &[&str] = if *chat_type == "group" { &["group", "channel"] } else { &[chat_type] };
    let unscoped = rest.get(1..).filter(|rest| *platform == "slack" && !rest.is_empty());
    for namespace in namespaces {
        for chat_type in chat_types {
            for rest in [Some(rest), unscoped].into_iter().flatten() {
                names.push([&[*agent, namespace, platform, chat_type], rest].concat().join(":").into());
            }
        }
    }
    names.dedup();
    names
}

/// The keys of one source: for each profile rule, with and without a Slack workspace, and for each thread in which it
/// may be.
fn push_names(keys: &mut Vec<String>, source: &Source) {
    let mut threads = vec![source.clone()];
    if let (false, None, Some(ahead)) =
        (source.is_direct(), present(source.thread_id.as_deref()), present(source.prospective_thread_id.as_deref()))
    {
        let thread_id = Some(ahead.to_owned());
        threads.push(Source { thread_id, chat_type: "thread".into(), ..source.clone() });
    }
    let is_slack = source.platform == "slack";
    if is_slack && present(source.thread_id.as_deref()).is_none() && source.message_id.is_some() {
        threads.push(Source { thread_id: source.message_id.as_deref().map(str::to_owned), ..source.clone() });
    }
    let scopes = [None, source.scope_id.as_deref().filter(|_| is_slack)];
    let profile = source.profile.as_deref().unwrap_or("main");
    // Gateways after 0.19 distinguish a profile called `main` from the default one.
    let marked = if profile == "main" && source.profile.is_some() { "main~" } else { profile };
    for source in threads {
        keys.push(own_key(&source));
        for scope in scopes {
            keys.extend(["main", marked].map(|namespace| key(namespace, scope, &source)));
        }
    }
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

/// Reduces `+4912:7@s.whatsapp.net` and similar ids to the number. Applied twice, because the gateway looks up aliases
/// under the stripped form and strips again: `++12`, `+ 12` and `1+2+` are reduced too.
fn canonical_whatsapp(id: &str) -> String {
    strip_whatsapp(&strip_whatsapp(id))
}

fn strip_whatsapp(id: &str) -> String {
    // Python's strip() also removes the four ASCII separators that Rust does not treat as whitespace.
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
    fn a_conversation_has_the_names_of_all_gateway_versions() {
        let mut s = source("slack", "channel", "C1");
        s.user_id = Some("U1".into());
        s.message_id = Some("17.5".into());
        s.set_scope(Some("T1".into()));
        s.profile = Some("main".into());
        let names = session_names(&s);
        for name in [
            "agent:main:slack:channel:C1:U1",
            "agent:main~:slack:group:T1:C1:U1",
            "agent:main:slack:group:T1:C1:17.5",
            "agent:main:relay:channel:C1:U1",
        ] {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:#?}");
        }

        let mut s = source("discord", "thread", "th");
        s.user_id = Some("u".into());
        s.thread_id = Some("th".into());
        let names = session_names(&s);
        for name in [
            "agent:main:discord:thread:th:th",
            "agent:main:discord:group:th:u",
            "agent:main:relay:channel:th:u",
            "agent:main:relay:thread:th:th",
        ] {
            assert!(names.iter().any(|known| known == name), "{name} is not in {names:#?}");
        }
        s.thread_id = None;
        s.chat_type = "group".into();
        s.prospective_thread_id = Some("soon".into());
        assert!(turn_names(&s).contains(&"agent:main:discord:thread:th:soon".into()));
        assert_eq!(turn_names(&source("relay", "dm", "c")), ["agent:main:relay:dm:c"], "only one name");
    }

    #[test]
    fn names_of_newer_gateways_are_found_under_our_name() {
        for (theirs, ours) in [
            ("agent:main:relay:dm:c", "agent:main:relay:dm:c"),
            ("agent:main~:relay:dm:c", "agent:main:relay:dm:c"),
            ("agent:main:discord:group:c:u", "agent:main:discord:channel:c:u"),
            ("agent:main:slack:group:T1:C1:U1", "agent:main:slack:channel:C1:U1"),
        ] {
            let names = session_aliases(&theirs.into());
            assert!(names.contains(&ours.into()), "{theirs}: {names:?}");
        }
        for odd in ["", "agent", "a:b:c", "agent:main:slack:dm"] {
            assert!(session_aliases(&odd.into()).contains(&odd.into()));
        }
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
