//! The text for a person whose command or press no agent gets.

use frontdesk_core::DeskError;
use frontdesk_core::intake::Receipt;
use frontdesk_core::port::store::StoreError;

/// `None`: an agent gets it. `not_linked` is for what only an operator could fix.
pub(crate) fn refusal(receipt: Option<&Receipt>, not_linked: &str) -> Option<String> {
    let Some(receipt) = receipt else { return Some("Nothing was done: the server did not accept this.".to_owned()) };
    // No delivery state: the server carried it out itself (/link, /stop), and its text is the answer.
    if receipt.verdict.outcome == "delivered" && receipt.verdict.delivery.is_some() {
        return None;
    }
    // Instructions for the operator name tenants: they belong into `explain`, not into a chat.
    let is_for_operators = receipt.verdict.text.contains("`frontdesk ");
    Some(if is_for_operators { not_linked.to_owned() } else { receipt.verdict.text.clone() })
}

pub(crate) fn not_stored(error: &DeskError) -> String {
    match error {
        DeskError::Store(StoreError::Unknown(_)) => {
            "It is not known whether this was stored. Check the chat before you send it again.".to_owned()
        }
        DeskError::Store(_) => {
            "This could not be stored, and nothing was done. Please try again in a moment.".to_owned()
        }
        error => format!("Nothing was done: {error}"),
    }
}
