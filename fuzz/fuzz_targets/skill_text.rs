//! `skill_text` of the test kit, run by cargo-fuzz.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    frontdesk_testkit::fuzz::targets::skill_text(input);
});
