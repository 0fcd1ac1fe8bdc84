//! What a failure of the homeserver means for an action.

use frontdesk_core::port::platform::{Acted, Pace};
use frontdesk_wire::{ActionResult, Code};

use super::client::Fault;

/// Why an action was not carried out, as far as that is known.
pub(super) struct Failed(pub(super) Box<Acted>);

impl From<ActionResult> for Failed {
    fn from(result: ActionResult) -> Self {
        Self(Box::new(result.into()))
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        let text = fault.to_string();
        let result = |code| ActionResult::refused(code, text.clone());
        let retry_after_ms = match &fault {
            Fault::Limited { retry_after_ms } => Some(*retry_after_ms),
            _ => None,
        };
        let result = match &fault {
            Fault::Limited { .. } => result(Code::RateLimited),
            Fault::Unreachable { may_have_happened: false, .. } => result(Code::Unavailable),
            Fault::Unreachable { .. } | Fault::TooLarge(_) | Fault::Refused { status: 500.., .. } => {
                ActionResult { ambiguous: true, ..result(Code::Unknown) }
            }
            Fault::Refused { status: 401 | 403, .. } => result(Code::Forbidden),
            Fault::Refused { status: 404, .. } => result(Code::NotFound),
            Fault::Refused { status: 413, .. } => result(Code::TooLarge),
            fault if fault.is("M_TOO_LARGE") => result(Code::TooLarge),
            Fault::Refused { .. } | Fault::Final(_) => result(Code::PlatformFailed),
        };
        Self(Box::new(Acted { result, pace: Pace { retry_after_ms, ..Pace::default() }, receipt_id: None }))
    }
}

/// A question that comes before the action: if it fails, nothing was sent.
pub(super) fn unsent(fault: Fault) -> Fault {
    match fault {
        Fault::Unreachable { why, .. } => Fault::Unreachable { why, may_have_happened: false },
        Fault::TooLarge(_) | Fault::Refused { status: 500.., .. } => {
            Fault::Unreachable { why: fault.to_string(), may_have_happened: false }
        }
        other => other,
    }
}
