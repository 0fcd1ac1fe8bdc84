//! What is known of a robot, for `frontdesk bot check`. The vendor cannot be asked: a second socket would end the first.

use std::sync::PoisonError;

use frontdesk_core::port::platform::{Bot, BotFinding};

use super::Robot;

/// Robots whose last failure is remembered.
const ENDED_MAX: usize = 1_000;

impl Robot {
    pub(super) fn note_end(&self, bot: &Bot, why: &str) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() >= ENDED_MAX && !ended.contains_key(&bot.id) {
            ended.clear();
        }
        ended.insert(bot.id.clone(), why.to_owned());
    }

    pub(super) fn findings(&self, bot: &Bot) -> Vec<BotFinding> {
        if self.links.is_open(&bot.id) {
            return vec![BotFinding::new("socket", true, "WeCom accepts bot_id and secret, and the socket is open")];
        }
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match ended.get(&bot.id) {
            Some(why) => format!("the socket is not open: {why}"),
            None => "the socket is not open at this server; another server on the same database may have it".to_owned(),
        };
        vec![BotFinding::new("socket", false, text)]
    }
}
