//! What the shards of one listener share, with what reads back what they missed.

use std::sync::{Mutex, PoisonError};

use frontdesk_core::port::platform::{Bot, Inlet};
use tokio::sync::Notify;
use twilight_gateway::Config;

use super::Discord;
use super::callbacks::Answers;
use super::cursor::Progress;
use super::starts::Starts;

pub(super) struct Listening<'a> {
    pub(super) discord: &'a Discord,
    pub(super) bot: &'a Bot,
    pub(super) inlet: &'a dyn Inlet,
    pub(super) progress: Progress<'a>,
    pub(super) shards: u32,
    pub(super) config: Config,
    pub(super) starts: Starts<'a>,
    pub(super) failing: Failing,
    pub(super) answers: Answers,
    /// There may be something to read back, or something became known that it needs.
    pub(super) missed: Notify,
}

/// Shards that could not connect several times.
pub(super) struct Failing(Mutex<Vec<bool>>);

impl Failing {
    pub(super) fn new(shards: u32) -> Self {
        Self(Mutex::new(vec![false; shards as usize]))
    }

    /// True: all of them fail.
    pub(super) fn note(&self, number: u32, is_failing: bool) -> bool {
        let mut failing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(noted) = failing.get_mut(number as usize) {
            *noted = is_failing;
        }
        failing.iter().all(|it| *it)
    }
}
