//! Names made from untrusted input: session keys and agent addresses.

use frontdesk_core::agents::address::{ADDRESS_MAX_BYTES, is_wake, resolve};
use frontdesk_wire::{SessionKey, Source, build_session_key, session_aliases, session_names, turn_names};

use super::super::engine::{Outcome, outcome};
use super::read_twice;

/// Limit of names per source, because each name is stored with every capability.
const NAMES_MAX: usize = 96;

/// The input is a source as JSON, or a session name.
pub fn session_keys(input: &[u8]) -> Outcome {
    let Some((source, again)) = read_twice::<Source>(input) else {
        return aliases(&(&*String::from_utf8_lossy(input)).into());
    };
    assert_eq!(source, again);
    let key = build_session_key(&source);
    assert_eq!(build_session_key(&again), key);
    let named = source.profile.as_deref().filter(|name| !name.is_empty() && *name != "default");
    let start = format!("agent:{}:{}:{}", named.unwrap_or("main"), source.platform, source.chat_type);
    let rest = key.strip_prefix(&start).unwrap_or_else(|| panic!("{key:?} does not begin with {start:?}"));
    assert!(rest.is_empty() || rest.starts_with(':'), "{key:?}");

    let (all, turn) = (session_names(&source), turn_names(&source));
    for names in [&all, &turn] {
        assert!(names.is_sorted() && names.windows(2).all(|pair| pair[0] != pair[1]), "each name once: {names:?}");
        assert!(names.contains(&key), "{key:?} is not among {names:?}");
        assert!(names.len() <= NAMES_MAX, "{} names", names.len());
        assert!(names.iter().all(|name| name.starts_with("agent:")));
    }
    assert!(turn.iter().all(|name| all.contains(name)), "a turn runs under a name that capabilities are bound to");
    outcome((all.len(), turn.len(), aliases(&key)))
}

fn aliases(name: &SessionKey) -> Outcome {
    let names = session_aliases(name);
    assert!(names.iter().any(|known| known == name), "{name:?} is not among {names:?}");
    assert!(names.len() <= 9 && names.iter().all(|known| known.len() <= name.len() + "channel".len()));
    outcome(names.len())
}

/// The first line is the address, the others are registered ids.
pub fn agent_address(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let mut lines = text.lines();
    let address = lines.next().unwrap_or_default();
    let registered: Vec<&str> = lines.collect();
    let at_signs = address.matches('@').count().min(4);
    let found = resolve(address, |id| registered.contains(&id));
    if address.len() > ADDRESS_MAX_BYTES {
        assert_eq!(found, None, "longer addresses name nobody");
        return outcome(());
    }
    let Some(found) = found else {
        assert!(!registered.contains(&address));
        let begins = |id: &&&str| address.strip_prefix(**id).is_some_and(|rest| rest.starts_with('@'));
        assert_eq!(registered.iter().find(begins), None, "{address:?}");
        return outcome((0, at_signs, registered.len().min(4)));
    };
    assert!(registered.contains(&found.agent), "the agent is a registered one");
    let whole = match found.session {
        None => found.agent.to_owned(),
        Some(session) => format!("{}@{session}", found.agent),
    };
    assert!(whole == address || format!("{whole}@") == address, "agent and session give the address again");
    assert!(is_wake(address) || found.session.is_none());
    // No longer id matches.
    let longer =
        |id: &&&str| id.len() > found.agent.len() && address.strip_prefix(**id).is_some_and(|it| it.starts_with('@'));
    assert_eq!(registered.iter().find(longer), None);
    outcome((1, at_signs, found.agent.matches('@').count().min(4), found.session.is_some(), registered.len().min(4)))
}
