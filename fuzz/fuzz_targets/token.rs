//! Any bearer of a stranger: taking it apart must never panic, and it must prove nothing.
#![no_main]

use frontdesk_wire::Secret;
use frontdesk_wire::token::{Proof, claim, mint};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, u64)| {
    let (bearer, gateway, exp_s) = input;
    let secret = Secret::new("a secret that the fuzzer does not know");
    if let Some(claimed) = claim(bearer) {
        assert!(!claimed.gateway_id.is_empty());
        assert_eq!(claimed.prove([&secret], 0), Proof::Bad);
    }
    let minted = mint(gateway, &secret, exp_s);
    if let Some(claimed) = claim(&minted) {
        assert_eq!(claimed.gateway_id, gateway);
        assert_eq!(claimed.prove([&secret], 0), Proof::Good);
    }
});
