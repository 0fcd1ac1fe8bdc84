//! Any body at the doors of the management plane and of the chat: reading it must never panic, and what was
//! read must be the same when it is written and read a second time.
#![no_main]

use frontdesk_wire::api::{ChatPost, DmDefaultAsk, LinkAsk, PrincipalAsk, ProvisionRequest, RelevancePolicy, ScopeAsk};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|body: &[u8]| {
    read_twice::<LinkAsk>(body);
    read_twice::<ScopeAsk>(body);
    read_twice::<PrincipalAsk>(body);
    read_twice::<DmDefaultAsk>(body);
    read_twice::<RelevancePolicy>(body);
    read_twice::<ProvisionRequest>(body);
    read_twice::<ChatPost>(body);
});

fn read_twice<T: Serialize + DeserializeOwned>(body: &[u8]) {
    let Ok(first) = serde_json::from_slice::<T>(body) else { return };
    let written = serde_json::to_string(&first).expect("what was read can be written");
    let second: T = serde_json::from_str(&written).expect("and read again");
    assert_eq!(serde_json::to_string(&second).ok(), Some(written));
}
