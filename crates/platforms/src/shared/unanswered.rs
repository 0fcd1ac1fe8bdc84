//! Calls of a vendor that got no answer, or one that cannot be read.

use frontdesk_wire::{ActionResult, Code};

/// The result of the action. It may have been carried out if `may_be_done`.
pub(crate) fn result(may_be_done: bool, text: String) -> ActionResult {
    match may_be_done {
        true => ActionResult { ambiguous: true, ..ActionResult::refused(Code::Unknown, text) },
        false => ActionResult::refused(Code::Unavailable, text),
    }
}

/// Why an answer with this status is of no use.
pub(crate) fn without_body(status: u16) -> String {
    format!("status {status} without a readable body")
}

/// Whether the call may have been carried out, by the status of an answer that says nothing else. A proxy that refuses has passed
/// nothing on.
pub(crate) fn may_be_done(status: u16) -> bool {
    !(400..500).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_proves_that_nothing_was_done() {
        for (status, code) in
            [(200, Code::Unknown), (302, Code::Unknown), (403, Code::Unavailable), (502, Code::Unknown)]
        {
            let result = result(may_be_done(status), without_body(status));
            assert_eq!((result.code, result.ambiguous), (Some(code), may_be_done(status)), "{status}");
            assert!(result.error.unwrap_or_default().contains("without a readable body"));
        }
    }
}
