//! Any stream of messages: no panic, no line over the limit, and the same lines however it is cut.
#![no_main]

use frontdesk_wire::lines::Lines;
use libfuzzer_sys::fuzz_target;

const MAX_BYTES: usize = 64;

fuzz_target!(|messages: Vec<&str>| {
    let mut lines = Lines::new(MAX_BYTES);
    let mut seen = Vec::new();
    for message in &messages {
        let pushed = lines.push(message, |line| seen.push(line.to_owned()));
        if pushed.is_err() {
            return; // the session ends here
        }
    }
    assert!(seen.iter().all(|line| line.len() <= MAX_BYTES && !line.contains('\n') && !line.trim().is_empty()));

    let whole = messages.concat();
    let complete = whole.rfind('\n').map_or("", |end| &whole[..end]);
    let expected: Vec<&str> = complete.split('\n').filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(seen, expected);
});
