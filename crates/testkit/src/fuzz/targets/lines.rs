//! Streams of messages, separated by NUL bytes in the input: no line above the limit, and the same lines however the
//! stream is cut.

use frontdesk_wire::lines::Lines;

use super::super::engine::{Outcome, outcome};

const MAX_BYTES: usize = 64;

pub fn lines(input: &[u8]) -> Outcome {
    let text = String::from_utf8_lossy(input);
    let mut lines = Lines::new(MAX_BYTES);
    let (mut seen, mut whole) = (Vec::new(), String::new());
    for message in text.split('\0') {
        whole.push_str(message);
        let pushed = lines.push(message, |line| seen.push(line.to_owned()));
        let fits = whole.split('\n').all(|line| line.len() <= MAX_BYTES);
        assert_eq!(pushed.is_ok(), fits, "refused exactly when a line is too long");
        if !fits {
            break; // the session ends here
        }
    }
    assert!(seen.iter().all(|line| line.len() <= MAX_BYTES && !line.contains('\n') && !line.trim().is_empty()));
    let mut complete: Vec<&str> = whole.split('\n').collect();
    complete.pop(); // the incomplete line
    let expected: Vec<&str> = complete.into_iter().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(seen, expected[..seen.len()], "in order, nothing added");
    let fits = whole.split('\n').all(|line| line.len() <= MAX_BYTES);
    assert!(!fits || seen.len() == expected.len(), "nothing lost");
    outcome((fits, seen.len().min(8), text.matches('\0').count().min(8)))
}
