//! Answers for a bot that was not added, or that lacks a setting or secret.

use frontdesk_core::port::platform::{Bot, Reply};
use frontdesk_wire::{ActionResult, Code};

/// To an agent.
pub(crate) fn refused(bot: &Bot) -> ActionResult {
    ActionResult::refused(Code::UnknownIdentity, format!("bot {:?} was not added", bot.id))
}

/// The bot that a request is for, or the answer to the vendor.
pub(crate) fn or_not_found(bot: Option<&Bot>) -> Result<&Bot, Reply> {
    bot.ok_or_else(|| Reply::text(404, "no such bot"))
}
