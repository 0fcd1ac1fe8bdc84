//! Each prompt is answered once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Answered prompts that are remembered.
const ANSWERED_MAX: usize = 1_000;

/// Bot, chat and message. The chat is empty where messages have ids of their own.
type Prompt = (String, String, String);

/// Prompts that were answered lately, as far as this server remembers.
#[derive(Default, Clone)]
pub(crate) struct AnsweredPrompts(Arc<Mutex<VecDeque<Prompt>>>);

/// Nobody else answers the prompt meanwhile. Dropped, it is free again.
pub(crate) struct Reserved {
    answered: AnsweredPrompts,
    prompt: Option<Prompt>,
}

impl AnsweredPrompts {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Prompt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reserve(&self, bot: &str, chat_id: &str, message_id: &str) -> Option<Reserved> {
        let prompt = (bot.to_owned(), chat_id.to_owned(), message_id.to_owned());
        let mut answered = self.lock();
        if answered.contains(&prompt) {
            return None;
        }
        answered.push_back(prompt.clone());
        while answered.len() > ANSWERED_MAX {
            answered.pop_front();
        }
        Some(Reserved { answered: self.clone(), prompt: Some(prompt) })
    }
}

impl Reserved {
    pub(crate) fn keep(mut self) {
        self.prompt = None;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(prompt) = self.prompt.take() {
            self.answered.lock().retain(|other| *other != prompt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answered_prompt_is_remembered() {
        let answered = AnsweredPrompts::default();
        let reserved = answered.reserve("b", "C", "1").unwrap();
        assert!(answered.reserve("b", "C", "1").is_none() && answered.reserve("c", "C", "1").is_some());
        drop(reserved);
        answered.reserve("b", "C", "1").unwrap().keep();
        assert!(answered.reserve("b", "C", "1").is_none());
        (0..ANSWERED_MAX).for_each(|at| answered.reserve("b", "C", &format!("x{at}")).unwrap().keep());
        assert!(answered.reserve("b", "C", "1").is_some(), "the oldest is forgotten");
    }
}
