//! One function per parser. Each accepts any bytes, asserts what must hold, and returns the outcome.

mod bodies;
mod event;
mod frames;
mod lines;
mod session;
mod skill;
mod split;
mod token;

pub use bodies::{agent_bodies, cron_bodies, manage_bodies};
pub use event::message_event;
pub use frames::gateway_frame;
pub use lines::lines;
pub use session::{agent_address, session_keys};
pub use skill::skill_text;
pub use split::split_text;
pub use token::token;

use std::fmt::Debug;

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::engine::Target;
use super::seeds;

/// All targets, in the order of the tests.
pub const ALL: [Target; 11] = [
    Target { name: "gateway_frame", run: gateway_frame, seeds: seeds::frames },
    Target { name: "lines", run: lines, seeds: seeds::lines },
    Target { name: "token", run: token, seeds: seeds::tokens },
    Target { name: "manage_bodies", run: manage_bodies, seeds: seeds::manage_bodies },
    Target { name: "agent_bodies", run: agent_bodies, seeds: seeds::agent_bodies },
    Target { name: "cron_bodies", run: cron_bodies, seeds: seeds::cron_bodies },
    Target { name: "message_event", run: message_event, seeds: seeds::events },
    Target { name: "session_keys", run: session_keys, seeds: seeds::sources },
    Target { name: "agent_address", run: agent_address, seeds: seeds::addresses },
    Target { name: "skill_text", run: skill_text, seeds: seeds::skills },
    Target { name: "split_text", run: split_text, seeds: seeds::texts },
];

/// Skips most inputs that are not JSON, because none of the body types can parse them.
fn is_worth_reading(input: &[u8]) -> bool {
    input.len().is_multiple_of(8) || serde_json::from_slice::<IgnoredAny>(input).is_ok()
}

/// Parses, serializes and parses again; the results must be equal. `None`: the input is not a `T`.
fn read_twice<T: Serialize + DeserializeOwned>(input: &[u8]) -> Option<(T, T)> {
    let first: T = serde_json::from_slice(input).ok()?;
    let written = serde_json::to_string(&first).expect("a parsed value can be serialized");
    assert!(!written.contains('\n'), "one line: {written}");
    let second: T = serde_json::from_str(&written).unwrap_or_else(|error| panic!("{error} when read again: {written}"));
    assert_eq!(serde_json::to_string(&second).expect("a parsed value can be serialized"), written);
    Some((first, second))
}

/// The same for types that can be compared.
fn equal_twice<T: Serialize + DeserializeOwned + PartialEq + Debug>(input: &[u8]) -> bool {
    let read = read_twice::<T>(input);
    if let Some((first, second)) = &read {
        assert_eq!(first, second);
    }
    read.is_some()
}
