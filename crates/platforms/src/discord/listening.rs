//! What the socket of a shard, its store, and what reads back what it missed have in common.

use std::sync::Arc;

use frontdesk_core::port::platform::{Bot, Inlet, Part};
use tokio::sync::Notify;
use twilight_gateway::Config;

use super::Discord;
use super::callbacks::Answers;
use super::cursor::Progress;
use super::starts::Gateway;

pub(super) struct Listening<'a> {
    pub(super) discord: &'a Discord,
    pub(super) bot: &'a Bot,
    /// The shard.
    pub(super) part: Part,
    pub(super) inlet: &'a dyn Inlet,
    pub(super) progress: Progress<'a>,
    pub(super) config: Config,
    pub(super) gateway: Arc<Gateway>,
    pub(super) answers: Answers,
    /// There may be something to read back, or something became known that it needs.
    pub(super) missed: Notify,
}
