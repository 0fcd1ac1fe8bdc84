//! `session_keys` of the test kit, run by cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    frontdesk_testkit::fuzz::targets::session_keys(input);
});
