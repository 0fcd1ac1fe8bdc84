//! Any body at the doors of the agents plane, any address, any skill: reading must never panic, what was read
//! must be equal when it is written and read a second time, and a status that is written is the one that is read.
#![no_main]

use std::fmt::Debug;

use frontdesk_core::agents::address::{is_wake, resolve};
use frontdesk_core::agents::skill_text::{description, is_name, status_of, tags, with_status};
use frontdesk_wire::agents::{
    AgentPut, ConnectorSpec, DataWrite, DeliveryPayload, Fault, NotifyPost, QueryFilters, ReplyPost, SkillFilter,
    SkillPut, SkillStatus, WakeOpts,
};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|body: &[u8]| {
    equal_twice::<DeliveryPayload>(body);
    equal_twice::<WakeOpts>(body);
    equal_twice::<ConnectorSpec>(body);
    equal_twice::<SkillFilter>(body);
    equal_twice::<SkillPut>(body);
    equal_twice::<QueryFilters>(body);
    equal_twice::<DataWrite>(body);
    equal_twice::<Fault>(body);
    // These have no equality of their own: their bytes stand for them.
    read_twice::<NotifyPost>(body);
    read_twice::<AgentPut>(body);
    read_twice::<ReplyPost>(body);
    if let Ok(text) = std::str::from_utf8(body) {
        take_apart(text);
        rewrite(text);
    }
});

fn read_twice<T: Serialize + DeserializeOwned>(body: &[u8]) -> Option<(T, T)> {
    let first: T = serde_json::from_slice(body).ok()?;
    let written = serde_json::to_string(&first).expect("what was read can be written");
    let second: T = serde_json::from_str(&written).expect("and read again");
    assert_eq!(serde_json::to_string(&second).ok(), Some(written));
    Some((first, second))
}

fn equal_twice<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) {
    if let Some((first, second)) = read_twice::<T>(body) {
        assert_eq!(first, second);
    }
}

/// The first line is the address, the others are registered.
fn take_apart(text: &str) {
    let mut lines = text.lines();
    let address = lines.next().unwrap_or_default();
    let registered: Vec<&str> = lines.collect();
    let Some(found) = resolve(address, |id| registered.contains(&id)) else {
        assert!(!registered.contains(&address));
        return;
    };
    assert!(registered.contains(&found.agent), "nobody is made up");
    let whole = match found.session {
        None => found.agent.to_owned(),
        Some(session) => format!("{}@{session}", found.agent),
    };
    assert!(whole == address || format!("{whole}@") == address, "nothing of it is lost");
    assert!(is_wake(address) || found.session.is_none());
    // No longer id would have done.
    let longer =
        |id: &&&str| id.len() > found.agent.len() && address.strip_prefix(**id).is_some_and(|it| it.starts_with('@'));
    assert_eq!(registered.iter().find(longer), None);
}

fn rewrite(source: &str) {
    let _ = (is_name(source), tags(source), description(source));
    let before = status_of(source);
    for status in [SkillStatus::Draft, SkillStatus::Approved, SkillStatus::Disabled] {
        let once = with_status(source, status.name());
        assert_eq!(status_of(&once), status, "{once:?}");
        // A line that was put in may have blank lines behind it, which go with the first rewrite of it.
        let twice = with_status(&once, status.name());
        assert_eq!(with_status(&twice, status.name()), twice, "{twice:?}");
        assert_eq!(status_of(&twice), status);
        // A line that was there is rewritten in one step, whichever way it came to its status.
        let has_line = before != SkillStatus::Draft;
        if has_line {
            assert_eq!(twice, once, "{source:?}");
            for other in [SkillStatus::Draft, SkillStatus::Approved, SkillStatus::Disabled] {
                assert_eq!(with_status(&with_status(source, other.name()), status.name()), once, "{source:?}");
            }
        }
    }
}
